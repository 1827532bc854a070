"""What a compiler makes of the tile shapes: FP16 GEMMs of rows by vec4 columns a fiber, written in UOps.

The loop of the hand kernels with nothing done by hand: each K step samples its rows of A and columns of B,
and adds up halves. Mesa compiles it here; the table of its cases says what it made of each shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul, single, uops
from pytest_qcom.kernels.gemm import HalfGemm, check_shape
from pytest_qcom.kernels.kernel import Arrays, Build, Case
from pytest_qcom.kernels.launch import LANES, Tile
from pytest_qcom.kernels.uops import Array

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

NAME = "gemm_compiled_fp16"
ROWS, COLS = (4, 8), (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the compiled shapes.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``rows`` times ``threads`` / 32, n of 128 ``ncols``, k of 4.
        rows, ncols: rows and vec4 columns of a fiber: 4 or 8; 1, 2 or 4.
        threads: fibers of a workgroup.
        partial: a sum of its own for each k of a texel, added up at the end; else one chain over k.
        fp32_acc: float32 sums, and C is float32.
        image_store: C is an image.
    """

    m: int = 64
    n: int = 512
    k: int = 64
    rows: int = 8
    ncols: int = 2
    threads: int = 128
    partial: bool = False
    fp32_acc: bool = False
    image_store: bool = False

    @property
    def kind(self) -> str:
        """The type of sums and of C."""
        return "float32" if self.fp32_acc else "float16"


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
    inputs = (
        Array("A", (options.m, options.k), "float16", image=True),
        Array("B", (options.k, options.n), "float16", image=True),
    )
    c = Array("C", (options.m, options.n), options.kind, written=True, image=options.image_store)
    arrays = (c, *inputs) if options.image_store else (*inputs, c)
    work = 2e-9 * options.m * options.n * options.k
    return uops.compile_uops(NAME, _program(options, arrays), arrays, work)


def _program(options: Options, arrays: tuple[Array, ...]) -> Any:
    from tinygrad.uop.ops import AxisType, UOp

    rows, cols, k4, n4 = options.rows, options.ncols, options.k // 4, options.n // 4
    tile = Tile(rows, cols, options.threads)
    groups = tile.groups(NAME, options.m, options.n)
    named = dict(zip((array.name for array in arrays), uops.parameters(arrays), strict=True))
    a, b, c = (named[name] for name in "ABC")
    group_x, group_y = UOp.special(groups[0], "gidx0"), UOp.special(groups[1], "gidx1")
    local = UOp.special(options.threads, "lidx0")
    row = group_y * tile.group_rows + local // LANES * rows
    col = group_x * (LANES * cols) + local % LANES
    step = UOp.range(k4, 0, AxisType.REDUCE)
    kind = uops.kind(options.kind)
    parts: Sequence[Sequence[int]] = [(kk,) for kk in range(4)] if options.partial else [range(4)]
    places = [
        (r, x, lane, part)
        for r in range(rows)
        for x in range(cols)
        for lane in range(4)
        for part in range(len(parts))
    ]
    sums = uops.Sums(len(places), options.kind, slot=0)

    def sampled(buffer: UOp, texel: UOp) -> list[UOp]:
        return [value.cast(kind) for value in uops.vector(buffer, texel)]

    left = [sampled(a, (row + r) * k4 + step) for r in range(rows)]
    right = {
        (x, kk): sampled(b, (step * 4 + kk) * n4 + col + LANES * x) for x in range(cols) for kk in range(4)
    }
    values = []
    for number, (r, x, lane, part) in enumerate(places):
        value = sums.within(number, step)
        for kk in parts[part]:
            value = value + left[r][kk] * right[x, kk][lane]
        values.append(value)
    totals = dict(zip(places, sums.after(values, step), strict=True))
    stores = []
    for r in range(rows):
        for x in range(cols):
            vec = [_added([totals[r, x, lane, part] for part in range(len(parts))]) for lane in range(4)]
            if options.image_store:
                vec = [value.cast(uops.kind("float32")) for value in vec]
            stores += uops.put(c, (row + r) * n4 + col + LANES * x, vec)
    return uops.sink(NAME, stores)


def _added(parts: Sequence[UOp]) -> UOp:
    return functools.reduce(lambda total, part: total + part, parts)


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
    """``A @ B`` in float64; of half sums, inputs below the smallest normal float16 taken as 0."""
    judge = single.product if options.fp32_acc else matmul.product
    return _shaped(options, judge(_problem(options), _plain(options, arrays)))


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """One chain of additions over k, or four of which each has every fourth k."""
    problem, plain = _problem(options), _plain(options, arrays)
    if not options.fp32_acc:
        return _shaped(options, matmul.half_bound(problem, plain, chains=4 if options.partial else 1))
    parts = [slice(kk, None, 4) for kk in range(4)] if options.partial else []
    return _shaped(options, single.bound(problem, plain, parts))


def _problem(options: Options) -> single.Plain:
    return single.Plain(options.m, options.n, options.k)


def _shaped(options: Options, found: Mapping[str, NDArray[Any]]) -> Arrays:
    """C in the shape that its argument has."""
    return uops.shaped(GEMM.build(options), {"C": np.asarray(found["C"])})


def _pattern(name: str) -> Callable[[Any], Arrays]:
    return lambda options: uops.shaped(
        GEMM.build(options), dict(_bare(options, matmul.HALF_PATTERNS[name](options)))
    )


GEMM = HalfGemm(
    name=NAME,
    summary="GEMM of half matrices of several tile shapes, left to the compiler; UOps",
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
        Case("4x16-image", dict(rows=4, ncols=4, image_store=True)),
        Case("4x8-partial", dict(rows=4, partial=True)),
        Case("4x8-fp32", dict(rows=4, fp32_acc=True)),
        Case("8x4-fp32-partial", dict(ncols=1, fp32_acc=True, partial=True, image_store=True)),
    ),
    source="qcom_compiler_shapes.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (GEMM,)
