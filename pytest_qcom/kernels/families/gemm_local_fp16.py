"""A GEMM whose workgroup copies its tiles of A and B into local memory: 32 x 64 of C, 16 k at a time.

Written in UOps. All matrices are buffers, row by row; a fiber computes 8 rows by 2 columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import flat, matmul, uops
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.uops import THREADS, Array

NAME = "gemm_local_fp16"
ROWS, COLS, DEPTH = 32, 64, 16
"""What a workgroup computes of C, and how many k it has in local memory."""
_FIBER_ROWS, _FIBER_COLS, _LANES = 8, 2, 32


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the local-memory GEMM.

    Attributes:
        m, n, k: C is (m, n); multiples of 32, 64 and 16.
        unroll: k of the inner loop's body: 1, 2, 4, 8 or 16. With 16, Mesa spills.
    """

    m: int = 128
    n: int = 1536
    k: int = 384
    unroll: int = 1


def build(options: Options) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: a shape that is not made of tiles, or an unroll that does not divide them.
    """
    m, n, k = options.m, options.n, options.k
    if min(m, n, k) < 1 or m % ROWS or n % COLS or k % DEPTH:
        raise KernelError(f"{NAME}: {m} x {n} x {k} is not made of tiles of {ROWS} x {COLS} x {DEPTH}")
    if options.unroll not in (1, 2, 4, 8, 16):
        raise KernelError(f"{NAME}: unroll is {options.unroll}; give 1, 2, 4, 8 or 16")
    arrays = (
        Array("A", (m, k), "float16"),
        Array("B", (k, n), "float16"),
        Array("C", (m, n), "float16", written=True),
    )
    return uops.compile_uops(NAME, _program(options, arrays), arrays, 2e-9 * m * n * k)


def _program(options: Options, arrays: tuple[Array, ...]) -> Any:
    from tinygrad.dtype import AddrSpace, dtypes
    from tinygrad.uop.ops import AxisType, UOp

    n, k, half = options.n, options.k, dtypes.half
    a, b, c = uops.parameters(arrays)
    group_x, group_y = UOp.special(n // COLS, "gidx0"), UOp.special(options.m // ROWS, "gidx1")
    local = UOp.special(THREADS, "lidx0")
    row, column = local // _LANES * _FIBER_ROWS, local % _LANES * _FIBER_COLS
    tile = UOp.range(k // DEPTH, 0, AxisType.REDUCE)

    stores = []
    staged_a = UOp.placeholder((ROWS * DEPTH,), half, 0, AddrSpace.LOCAL)
    for part in range(ROWS * DEPTH // THREADS):
        at = local + THREADS * part
        source = (group_y * ROWS + at // DEPTH) * k + tile * DEPTH + at % DEPTH
        stores.append(staged_a.index(at).store(a.index(source).load()))
    staged_b = UOp.placeholder((DEPTH * COLS,), half, 1, AddrSpace.LOCAL)
    for part in range(DEPTH * COLS // THREADS):
        at = local + THREADS * part
        source = (tile * DEPTH + at // COLS) * n + group_x * COLS + at % COLS
        stores.append(staged_b.index(at).store(b.index(source).load()))
    copied = UOp.group(*stores)
    staged_a, staged_b = staged_a.after(copied), staged_b.after(copied)

    inner = UOp.range(DEPTH // options.unroll, 1, AxisType.REDUCE)
    places = [(r, x) for r in range(_FIBER_ROWS) for x in range(_FIBER_COLS)]
    sums = uops.Sums(len(places), "float16", slot=2)
    values = []
    for number, (r, x) in enumerate(places):
        value = sums.within(number, inner, tile)
        for step in range(options.unroll):
            kk = inner * options.unroll + step
            left = staged_a.index((row + r) * DEPTH + kk).load()
            value = value + left * staged_b.index(kk * COLS + column + x).load()
        values.append(value)
    totals = sums.after(values, inner, tile)
    first = (group_y * ROWS + row) * n + group_x * COLS + column
    return uops.sink(
        NAME,
        [c.index(first + (r * n + x)).store(total) for (r, x), total in zip(places, totals, strict=True)],
    )


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    return flat.matrices(options, matmul.random(options, rng))


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64, inputs below the smallest normal float16 taken as 0."""
    return matmul.product(options, flat.images(options, arrays))


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """One chain of additions over k, as :func:`matmul.half_bound` has it."""
    return matmul.half_bound(options, flat.images(options, arrays))


GEMM = Kernel(
    name=NAME,
    summary="FP16 GEMM whose workgroups stage A and B in local memory; UOps",
    options=Options,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns=flat.patterns(flat.matrices),
    unit="GFLOPS",
    cases=(
        Case("m128n1536k384", {}),
        Case("tile", dict(m=32, n=64, k=16)),
        Case("odd", dict(m=96, n=192, k=48, unroll=2)),
    ),
    family="local_gemm",
    source="qcom_local_gemm_check.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (GEMM,)
