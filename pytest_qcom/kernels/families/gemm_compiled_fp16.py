"""What a compiler makes of the tile shapes: FP16 GEMMs of rows by vec4 columns a fiber, written in UOps.

The loop of the hand kernels with nothing done by hand: each K step samples its rows of A and columns of B,
and adds up halves. Mesa compiles it here; the table of its cases says what it made of each shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul, uops
from pytest_qcom.kernels.gemm import HalfGemm, check_shape
from pytest_qcom.kernels.kernel import Arrays, Build, Case
from pytest_qcom.kernels.launch import LANES, Tile
from pytest_qcom.kernels.uops import Array

NAME = "gemm_compiled_fp16"
ROWS, COLS = (4, 8), (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the compiled shapes.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``rows`` times ``threads`` / 32, n of 128 ``ncols``, k of 4.
        rows, ncols: rows and vec4 columns of a fiber: 4 or 8; 1, 2 or 4.
        threads: fibers of a workgroup.
    """

    m: int = 64
    n: int = 512
    k: int = 64
    rows: int = 8
    ncols: int = 2
    threads: int = 128


def build(options: Options) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: a tile that is not tried, or a shape that is not made of tiles.
    """
    check_shape(NAME, options)
    for option, known in (("rows", ROWS), ("ncols", COLS)):
        if getattr(options, option) not in known:
            raise KernelError(f"{NAME}: {option} is {getattr(options, option)}; give one of {known}")
    if options.k % 32:
        raise KernelError(
            f"{NAME}: k is {options.k}; rows of images have no padding here, give a multiple of 32"
        )
    Tile(options.rows, options.ncols, options.threads).groups(NAME, options.m, options.n)
    arrays = (
        Array("A", (options.m, options.k), "float16", image=True),
        Array("B", (options.k, options.n), "float16", image=True),
        Array("C", (options.m, options.n), "float16", written=True),
    )
    work = 2e-9 * options.m * options.n * options.k
    return uops.compile_uops(NAME, _program(options, arrays), arrays, work)


def _program(options: Options, arrays: tuple[Array, ...]) -> Any:
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import AxisType, UOp

    rows, cols, k4, n4 = options.rows, options.ncols, options.k // 4, options.n // 4
    tile = Tile(rows, cols, options.threads)
    groups = tile.groups(NAME, options.m, options.n)
    a, b, c = uops.parameters(arrays)
    group_x, group_y = UOp.special(groups[0], "gidx0"), UOp.special(groups[1], "gidx1")
    local = UOp.special(options.threads, "lidx0")
    row = group_y * tile.group_rows + local // LANES * rows
    col = group_x * (LANES * cols) + local % LANES
    step = UOp.range(k4, 0, AxisType.REDUCE)
    places = [(r, x, lane) for r in range(rows) for x in range(cols) for lane in range(4)]
    sums = uops.Sums(len(places), "float16", slot=0)

    def halves(buffer: UOp, texel: UOp) -> list[UOp]:
        return [value.cast(dtypes.half) for value in uops.vector(buffer, texel)]

    left = [halves(a, (row + r) * k4 + step) for r in range(rows)]
    right = {
        (x, kk): halves(b, (step * 4 + kk) * n4 + col + LANES * x) for x in range(cols) for kk in range(4)
    }
    values = []
    for number, (r, x, lane) in enumerate(places):
        value = sums.within(number, step)
        for kk in range(4):
            value = value + left[r][kk] * right[x, kk][lane]
        values.append(value)
    totals = dict(zip(places, sums.after(values, step), strict=True))
    stores = []
    for r in range(rows):
        for x in range(cols):
            vec = [totals[r, x, lane] for lane in range(4)]
            stores += uops.put(c, (row + r) * n4 + col + LANES * x, vec)
    return uops.sink(NAME, stores)


def _bare(options: Options, arrays: Arrays) -> Arrays:
    """A without padding: k is a multiple of what a row of an image is."""
    return {"A": arrays["A"].reshape(options.m, -1), "B": arrays["B"].reshape(options.k, options.n)}


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    return uops.shaped(GEMM.build(options), dict(_bare(options, matmul.random(options, rng))))


def _plain(options: Options, arrays: Arrays) -> Arrays:
    """The images of the hand kernels."""
    a, b = arrays["A"].reshape(options.m, options.k), arrays["B"].reshape(options.k, options.n)
    return matmul.images(options, a, b)


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64, inputs below the smallest normal float16 taken as 0."""
    return matmul.product(options, _plain(options, arrays))


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """One chain of additions over k, as :func:`matmul.half_bound` has it."""
    return matmul.half_bound(options, _plain(options, arrays))


def _pattern(name: str) -> Callable[[Any], Arrays]:
    return lambda options: uops.shaped(
        GEMM.build(options), dict(_bare(options, matmul.HALF_PATTERNS[name](options)))
    )


GEMM = HalfGemm(
    name=NAME,
    summary="FP16 GEMM of several tile shapes, left to the compiler; UOps",
    options=Options,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={name: _pattern(name) for name in matmul.HALF_PATTERNS},
    cases=(
        Case("8x4", dict(ncols=1)),
        Case("8x8", {}),
        Case("8x16", dict(ncols=4, k=32)),
        Case("8x8-256", dict(threads=256)),
        Case("4x4", dict(rows=4, ncols=1)),
        Case("4x8", dict(rows=4)),
        Case("4x16", dict(rows=4, ncols=4)),
    ),
    source="qcom_compiler_shapes.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (GEMM,)
