"""Many small products in one launch, from buffers; in UOps.

A, B and C are stacked, row by row. A fiber computes some rows by one vec4 column of a product. No side needs
to be that of a texture, so products may be as small as one workgroup is.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import strassen, uops
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import CHOICES
from pytest_qcom.kernels.uops import Array

NAME = "strassen_products"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the products.

    Attributes:
        m, n, k: of each product: m a multiple of ``rows``, n and k of 4, m n / (4 ``rows``) of ``threads``.
        batches: products.
        rows: of a fiber: 1, 2 or 4.
        threads: fibers of a workgroup: 64, 128 or 256.
        float_inputs: A and B are float32, and so are sums.
        float_sums: sums are float32, and so is C; else half.
        half_output: C is half all the same.
    """

    m: int = 64
    n: int = 64
    k: int = 64
    batches: int = 49
    rows: int = 4
    threads: int = 64
    float_inputs: bool = False
    float_sums: bool = False
    half_output: bool = False

    @property
    def sums(self) -> str:
        """The type of sums."""
        return "float32" if self.float_sums or self.float_inputs else "float16"

    @property
    def output(self) -> str:
        """The type of C."""
        return "float16" if self.half_output else self.sums


def _check(options: Options) -> None:
    if options.rows not in (1, 2, 4) or options.threads not in CHOICES:
        raise KernelError(
            f"{NAME}: rows is {options.rows} and threads {options.threads}; give 1, 2 or 4, and one of "
            f"{CHOICES}"
        )
    if options.half_output and options.sums == "float16":
        raise KernelError(f"{NAME}: half-output with half sums, which give half C anyway; give float-sums")
    sides, units = (options.m, options.n, options.k), (options.rows, 4, 4)
    fibers = options.m // options.rows * (options.n // 4)
    if (
        min(*sides, options.batches) < 1
        or any(side % unit for side, unit in zip(sides, units, strict=True))
        or fibers % options.threads
    ):
        raise KernelError(
            f"{NAME}: {options.batches} products of {' x '.join(map(str, sides))} are not made of whole "
            f"workgroups of {options.threads} fibers with {options.rows} x 4 of C each; give other sides"
        )


@functools.cache
def build(options: Options) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: options that do not go together.
    """
    _check(options)
    m, n, k = options.m, options.n, options.k
    inputs = "float32" if options.float_inputs else "float16"
    arrays = (
        Array("A", (options.batches * m, k), inputs),
        Array("B", (options.batches * k, n), inputs),
        Array("C", (options.batches * m, n), options.output, written=True),
    )
    return uops.compile_uops(NAME, _program(options, arrays), arrays, 2e-9 * options.batches * m * n * k)


def _program(options: Options, arrays: tuple[Array, ...]) -> Any:
    from tinygrad.uop.ops import AxisType, UOp

    n4, k4, rows = options.n // 4, options.k // 4, options.rows
    bands = options.m // rows
    a, b, c = uops.parameters(arrays)
    groups = options.batches * bands * n4 // options.threads
    fiber = UOp.special(groups, "gidx0") * options.threads + UOp.special(options.threads, "lidx0")
    first, col = fiber // n4 * rows, fiber % n4
    product = fiber // (bands * n4)
    step, kind = UOp.range(k4, 0, AxisType.REDUCE), uops.kind(options.sums)

    def texel(buffer: UOp, number: UOp) -> list[UOp]:
        return [value.cast(kind) for value in uops.vector(buffer, number)]

    right = [texel(b, ((product * k4 + step) * 4 + kk) * n4 + col) for kk in range(4)]
    sums = uops.Sums(4 * rows, options.sums, slot=0)
    values = []
    for row in range(rows):
        left = texel(a, (first + row) * k4 + step)
        for column in range(4):
            value = sums.within(4 * row + column, step)
            for kk in range(4):
                value = value + left[kk] * right[kk][column]
            values.append(value)
    totals = [total.cast(uops.kind(options.output)) for total in sums.after(values, step)]
    stores = []
    for row in range(rows):
        stores += uops.put(c, (first + row) * n4 + col, totals[4 * row : 4 * row + 4])
    return uops.sink(NAME, stores)


def arithmetic(options: Options) -> strassen.Arithmetic:
    """How products and their sums round."""
    return strassen.SINGLE if options.sums == "float32" else strassen.HALF


def _bounded(options: Options, arrays: Arrays) -> Mapping[str, strassen.Rounded]:
    source = strassen.exact if options.float_inputs else strassen.flushed
    left = source(arrays["A"].reshape(options.batches, options.m, options.k))
    right = source(arrays["B"].reshape(options.batches, options.k, options.n))
    found = strassen.multiplied(left, right, arithmetic(options))
    if options.half_output:
        found = strassen.stored_as_half(found)
    shape = (options.batches * options.m, options.n)
    return {"C": strassen.Rounded(found.value.reshape(shape), found.error.reshape(shape))}


def _inputs(options: Options, a: NDArray[Any], b: NDArray[Any]) -> Arrays:
    kind = np.float32 if options.float_inputs else np.float16
    return {"A": a.astype(kind), "B": b.astype(kind)}


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    """Standard normal matrices."""
    a = rng.standard_normal((options.batches * options.m, options.k))
    return _inputs(options, a, rng.standard_normal((options.batches * options.k, options.n)))


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """Each ``A @ B`` in float64."""
    return {name: found.value for name, found in _bounded(options, arrays).items()}


def _tolerance(options: Options, arrays: Arrays) -> Arrays:
    """One chain of additions over k, of rounded products and flushed inputs; see :mod:`strassen`."""
    return {name: found.error for name, found in _bounded(options, arrays).items()}


def _exact(options: Options) -> Arrays:
    """Entries plus or minus 2**-3, of which no sum rounds: indices alone decide the result."""
    rng = np.random.default_rng(29)
    a = rng.choice((-1.0, 1.0), (options.batches * options.m, options.k)) / 8
    return _inputs(options, a, rng.choice((-1.0, 1.0), (options.batches * options.k, options.n)) / 8)


PRODUCTS = Kernel(
    name=NAME,
    summary="many small products in one launch, from buffers; UOps",
    options=Options,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={"exact": _exact},
    unit="GFLOPS",
    cases=(
        Case("n64x49", {}),
        Case("n16x7", dict(m=16, n=16, k=16, batches=7, rows=1, float_sums=True)),
        Case("half-output", dict(m=16, n=32, k=36, batches=3, rows=2, float_sums=True, half_output=True)),
        Case("float-inputs", dict(m=32, n=32, k=20, batches=7, float_inputs=True)),
    ),
)

KERNELS = (PRODUCTS,)
