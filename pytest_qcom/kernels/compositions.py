"""The declared compositions: products by Strassen's and Winograd's forms, of one level and more.

Sums of blocks are UOp kernels, one to three levels a launch; the products in between are GEMMs of ours, which
may do the last sums themselves. :mod:`strassen_plan` makes the launches, :mod:`strassen_bound` the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError, closest
from pytest_qcom.kernels import strassen_bound
from pytest_qcom.kernels.composition import Composition
from pytest_qcom.kernels.kernel import Arrays, Case
from pytest_qcom.kernels.strassen_options import NAME, SUMS, Options
from pytest_qcom.kernels.strassen_plan import plan

_EXACT = {"float16": 2**11, "float32": 2**24}
_SOURCE = "qcom_strassen*_check.py of tinygrad's QCOM GEMM experiments"


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    """Standard normal matrices."""
    return {
        "A": rng.standard_normal((options.m, options.k)).astype(np.float16),
        "B": rng.standard_normal((options.k, options.n)).astype(np.float16),
    }


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64, without any of the form's sums."""
    a, b = (arrays[side].astype(np.float64) for side in "AB")
    return {"C": a @ b}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """The bounds of the sums of blocks, of the products and of their combination, carried through."""
    return {"C": strassen_bound.rounded(options, arrays).error[0]}


def exact(options: Options) -> Arrays:
    """Entries 0 and plus or minus 2**-3 such that no sum anywhere rounds: indices alone decide C.

    All values are multiples of a unit, and no sum of magnitudes on the way exceeds what the type holds
    exactly in that unit. Each row of A keeps as many random entries as that allows, all of B are there. Where
    not even one is allowed, rows of A that would be added up have entries in one of them alone.

    Raises:
        KernelError: not even one entry of such a row of A can be exact.
    """
    rng = np.random.default_rng(29)
    b = rng.choice((-1.0, 1.0), (options.k, options.n)) / 8
    signs = rng.choice((-1.0, 1.0), (options.m, options.k)) / 8
    order = rng.permuted(np.tile(np.arange(options.k), (options.m, 1)), axis=1)
    side = 2**options.levels
    alone = np.arange(side)[:, None] == rng.integers(side, size=options.m // side)
    for rows in (np.ones((options.m, 1), bool), alone.reshape(-1, 1)):
        kept = options.k
        while kept:
            a = np.where((order < kept) & rows, signs, 0)
            sizes = {"A": np.abs(a).reshape(options.m, side, -1).sum(2), "B": np.full((side, side), 1 / 8)}
            stored, summed = strassen_bound.largest(options, sizes)
            excess = 64 * max(stored / _EXACT[options.product], summed / _EXACT[SUMS[options.accumulate]])
            if excess <= 1:
                return {"A": a.astype(np.float16), "B": b.astype(np.float16)}
            kept >>= max(1, int(np.log2(excess)))  # sums shrink as what is kept does, or a little less
    raise KernelError(
        f"{NAME}: {options.levels} levels of {options.accumulate} have no exact inputs; give fewer"
    )


_FLOAT = dict(accumulate="fp32")
_HALVES = dict(half_products=True, float_sums=True)
_WIDE = dict(float_operands=True, split_combine=True)
_SMALL = dict(leaf="buffers")
_HOST = dict(stream=1, host_sums=True)
STRASSEN = Composition(
    name=NAME,
    summary="a product by seven products a level, in Strassen's or Winograd's form",
    options=Options,
    plan=plan,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={"exact": exact},
    unit="GFLOPS",
    cases=(
        Case("one", dict(m=64, n=512, k=64)),
        Case("one-winograd", dict(m=64, n=512, k=128, form="winograd")),
        Case("one-images", dict(m=32, n=64, k=64, images=True, **_SMALL, **_FLOAT)),
        Case("one-terminal", dict(m=16, n=256, k=256, leaf="terminal", **_FLOAT)),
        Case("two", dict(m=128, n=1024, k=128, levels=2)),
        Case("two-fp32", dict(m=64, n=1024, k=128, levels=2, **_FLOAT)),
        Case("two-fp32-half", dict(m=64, n=1024, k=128, levels=2, **_HALVES, **_FLOAT)),
        Case("two-8x8", dict(m=64, n=1024, k=128, levels=2, leaf_tile="8x8", **_HALVES, **_FLOAT)),
        Case("two-halfwave", dict(m=128, n=256, k=128, levels=2, leaf_tile="halfwave", **_HALVES, **_FLOAT)),
        Case("two-winograd-fp32", dict(m=32, n=1024, k=128, levels=2, form="winograd", **_FLOAT)),
        Case(
            "two-half-combine",
            dict(m=64, n=1024, k=128, levels=2, together=1, half_combine=True, combine_vec=8, transform_vec=2)
            | dict(transform_threads=64, combine_threads=64, leaf_threads=128, half_products=True)
            | _FLOAT,
        ),
        Case("two-fused", dict(m=64, n=512, k=128, levels=2, together=1, leaf="fused", **_FLOAT)),
        Case("three-local", dict(m=128, n=128, k=128, levels=3, together=3, local=True, **_SMALL, **_FLOAT)),
        Case("four-host", dict(m=128, n=512, k=64, levels=4, half_products=True) | _HOST | _SMALL | _FLOAT),
        Case("five-stream", dict(m=256, n=1024, k=256, levels=5, stream=1, **_SMALL, **_FLOAT)),
        Case("one-n1024", {}),
        Case("one-fused-n512", dict(m=512, n=512, k=512, leaf="fused", **_FLOAT)),
        Case("one-terminal-n512", dict(m=512, n=512, k=512, leaf="terminal", **_FLOAT)),
        Case("two-n1024", dict(levels=2)),
        Case("two-fp32-n1024", dict(levels=2, **_HALVES, **_FLOAT)),
        Case("two-fp32-float", dict(m=32, n=1024, k=128, levels=2, **_WIDE, **_FLOAT)),
        Case("two-images", dict(m=64, n=256, k=64, levels=2, images=True, **_SMALL, **_FLOAT)),
        Case("two-terminal", dict(m=32, n=512, k=128, levels=2, leaf="terminal", **_FLOAT)),
        Case("three", dict(m=256, n=2048, k=256, levels=3)),
        Case("three-together", dict(m=128, n=128, k=128, levels=3, together=3, **_SMALL)),
        Case("three-fp32", dict(m=64, n=2048, k=256, levels=3, **_FLOAT)),
        Case("three-fp32-n1024", dict(m=1024, n=2048, k=1024, levels=3, **_HALVES, **_FLOAT)),
        Case("three-8x8-n1024", dict(m=1024, n=2048, k=1024, levels=3, leaf_tile="8x8", **_HALVES, **_FLOAT)),
        Case("three-fp32-n2048", dict(m=2048, n=2048, k=2048, levels=3, **_FLOAT)),
        Case("four-fp32", dict(m=512, n=4096, k=512, levels=4, **_FLOAT)),
        Case(
            "four-halfwave-n1024",
            dict(m=1024, n=1024, k=1024, levels=4, leaf_tile="halfwave", half_products=True) | _FLOAT,
        ),
        Case("four-fp32-n4096", dict(m=4096, n=4096, k=4096, levels=4, half_products=True, **_FLOAT)),
        Case(
            "four-host-n4096",
            dict(m=4096, n=4096, k=4096, levels=4, stream=2, host_sums=True, half_products=True) | _FLOAT,
        ),
        Case("five-n8192", dict(m=1024, n=8192, k=8192, levels=5, stream=2, half_products=True) | _FLOAT),
    ),
    long=(
        "one-n1024",
        "one-fused-n512",
        "one-terminal-n512",
        "two-n1024",
        "two-fp32-n1024",
        "two-fp32-float",
        "two-images",
        "two-terminal",
        "three",
        "three-together",
        "three-fp32",
        "three-fp32-n1024",
        "three-8x8-n1024",
        "three-fp32-n2048",
        "four-fp32",
        "four-halfwave-n1024",
        "four-fp32-n4096",
        "four-host-n4096",
        "five-n8192",
    ),
    source=_SOURCE,
)

COMPOSITIONS: dict[str, Composition] = {composition.name: composition for composition in (STRASSEN,)}


def find(name: str) -> Composition:
    """The composition called ``name``.

    Raises:
        KernelError: there is none.
    """
    if name in COMPOSITIONS:
        return COMPOSITIONS[name]
    raise KernelError(f"no composition is called {name!r}; {closest(name, COMPOSITIONS)}")
