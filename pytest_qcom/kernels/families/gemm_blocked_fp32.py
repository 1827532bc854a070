"""GEMMs that sum a block of k in float16 and the blocks in float32: by hand, and in UOps.

Half MADs over texels of halves, and once a block the four partial sums of a row are made floats and added to
the total: nearly the speed of half sums, with an error that does not grow with k.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import blocked, flat, matmul, uops
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.gemm import check_shape, gemm_launch
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import LANES, Tile
from pytest_qcom.kernels.noted_checks import check_steps
from pytest_qcom.kernels.notes import flag
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Load, Multiply, Schedule, Step, generate, loop_constants
from pytest_qcom.kernels.stores import POINTER, RowMajor
from pytest_qcom.kernels.tiled import Tiled, check_tile, check_words
from pytest_qcom.kernels.uops import THREADS, Array
from pytest_qcom.kernels.writer import Writer

NAME, UOP_NAME = "gemm_4x4_fp32_blocked", "gemm_blocked_fp32"
_ROWS = 4  # of a fiber, in UOps
_SOURCES = "qcom_blocked_accum_model.py", "qcom_blocked_source_check.py"
_WORDS = RowMajor(source="total", element=4)


@dataclass(frozen=True, slots=True)
class Options(Tiled):
    """Options of the hand kernel; k a multiple of 4, ``k_unroll`` of ``block``.

    Attributes:
        block: K steps whose products are summed as halves.
        rows, ncols: the tile of a fiber: 4 or 8 rows, 1 or 2 vec4 columns.
        direct_branch: the loop is closed by the branch of its test; else by a jump, which reaches further.
        k_count: so many K steps are multiplied; 0 is all.
    """

    k_unroll: int = 4
    block: int = 1
    rows: int = 4
    ncols: int = 1
    direct_branch: bool = True
    k_count: int = 0

    @property
    def k_start(self) -> int:
        """Always 0."""
        return 0

    @property
    def steps(self) -> int:
        """K steps that a fiber does."""
        return self.k_count or self.k // 4


@dataclass(frozen=True, slots=True)
class Totals(Persistent):
    """Pairs of their own, and totals that start at 0."""

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        Persistent.prepare(self, w, schedule)
        w.zero(schedule.plan["total"])


@dataclass(frozen=True, slots=True)
class Promote:
    """At the end of a block: its sums to floats, onto the totals, and back to 0."""

    block: int

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        if (step.index + 1) % self.block and step.index + 1 < step.count:
            return
        plan = schedule.plan
        vectors = range(plan["acc"].size // 4)
        room = plan["promoted"].size // 4
        for start in range(0, len(vectors), room):
            batch = vectors[start : start + room]
            for index in batch:
                promoted, part = plan["promoted"].vec(index - start), plan["acc"].vec(index)
                w.emit("cov.f16f32", promoted, f"(r){part}", rpt=3)
            for index in batch:
                total, promoted = plan["total"].vec(index), plan["promoted"].vec(index - start)
                w.alu("add.f", total, f"(r){total}", f"(r){promoted}", rpt=3)
        if not step.final:
            w.zero(plan["acc"])


def build(options: Options) -> Build:
    """The hand kernel.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    check_shape(NAME, options)
    check_tile(NAME, options.rows, options.ncols)
    check_words(NAME, options.m, options.n)
    check_steps(NAME, options)
    if options.block < 1 or options.k_unroll % options.block:
        raise KernelError(
            f"{NAME}: k-unroll {options.k_unroll} with block {options.block}; give a multiple of the block"
        )
    tile = Tile(options.rows, options.ncols, options.threads)
    rows, cols = tuple(range(options.rows)), tuple(range(options.ncols))
    schedule = Schedule(
        tile=tile,
        plan=_plan(tile),
        phases=(Load("A", rows), Load("B", cols), Multiply(rows, cols), Promote(options.block)),
        coordinates=Totals(),
        epilogue=_WORDS,
        unroll=options.k_unroll,
        far=not options.direct_branch,
    )
    shape = matmul.Sides(options.m, options.n, 4 * options.steps)
    constants = (
        *_WORDS.constants(tile, row_bytes=4 * options.n),
        *loop_constants(shape.k, schedule.unroll),
    )
    groups = tile.groups(NAME, options.m, options.n)
    arguments = (
        *matmul.arguments(options, POINTER)[:2],
        Argument("C", (options.m, options.n), "float32", image=False, written=True, pointer=POINTER),
    )
    program = generate(schedule, shape.k)
    return gemm_launch(shape, tile, schedule.plan, program, constants, groups, arguments, options.thread128)


def _plan(tile: Tile) -> RegisterPlan:
    """Texels and partial sums are halves; totals, pairs, and two vec4 on their way to the totals."""
    plan = RegisterPlan()
    for col in range(tile.cols):
        plan = plan.place(f"b{col}", f"hr{4 * col}.x", 16)
    for row in range(tile.rows):
        plan = plan.place(f"a{row}", f"hr{4 * tile.cols + row}.x", 4)
    plan = plan.place("acc", f"hr{4 * tile.cols + tile.rows}.x", 4 * tile.rows * tile.cols)
    promoted = min(4, tile.rows * tile.cols)
    plan = plan.place("promoted", "r0.x", 4 * promoted)
    at = promoted
    plan = plan.place("total", f"r{at}.x", 4 * tile.rows * tile.cols)
    at += tile.rows * tile.cols
    plan = plan.place("b_pairs", f"r{at}.x", 8 * tile.cols).place(
        "a_pairs", f"r{at + 2 * tile.cols}.x", 2 * tile.rows
    )
    pairs = ("b_pairs", "a_pairs")
    plan = plan.place("col", f"r{at}.x", 1, over=pairs)
    plan = plan.place("row", f"r{at + 2 * tile.cols}.y", 1, over=pairs)
    scratch = ("promoted",)
    plan = plan.place("scratch", "r1.x", 4, over=scratch)
    return _addresses(plan, tile, (*scratch, "scratch"), at)


def _addresses(plan: RegisterPlan, tile: Tile, dead: tuple[str, ...], pairs: int) -> RegisterPlan:
    """Those of the epilogue over what is on its way and, from the second vec4 on, over the pairs."""
    dead = (*dead, "b_pairs", "a_pairs", "row", "col")
    plan = plan.place("offsets", "r0.x", 2, over=dead)
    plan = plan.place("carries", "r1.x", tile.rows, over=dead)
    first = pairs if tile.rows > 4 else 2
    return plan.place("addresses", f"r{first}.x", 2 * tile.rows, over=(*dead, "carries"))


def _matrices(options: Any, arrays: Arrays) -> tuple[NDArray[Any], NDArray[Any]]:
    """The matrices that are multiplied: halves, those below the smallest normal one 0."""
    a, b = (np.asarray(matrix, np.float16) for matrix in matmul.matrices(options, arrays))
    return tuple(np.where(np.abs(x) < matmul.HALF_TINY, np.float16(0), x) for x in (a, b))  # type: ignore[return-value]


def _product(options: Options | UopOptions, arrays: Arrays) -> Arrays:
    """``A @ B`` over the k that are multiplied, in float64; halves below the smallest normal one are 0."""
    a, b = _multiplied(options, arrays)
    return {"C": a.astype(np.float64) @ b.astype(np.float64)}


def _multiplied(options: Options | UopOptions, arrays: Arrays) -> tuple[NDArray[Any], NDArray[Any]]:
    a, b = _matrices(options, arrays)
    return a[:, : 4 * options.steps], b[: 4 * options.steps]


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """:func:`~pytest_qcom.kernels.blocked.bound` of the block's k."""
    return {"C": blocked.bound(*_multiplied(options, arrays), 4 * options.block)}


@dataclass(frozen=True, slots=True)
class UopOptions:
    """Options of the kernel in UOps, by the names of the published check.

    Attributes:
        m, n, k: C is (m, n); m a multiple of 16, n of 128, k of 4 ``block4``.
        block4: K steps of four k whose products are summed as halves.
        stride: elements from one row of C to the next; 0 is n.
        float_a: A is a float32 image, sampled as half.
        linear: A and B are buffers, row by row, and are loaded.
    """

    m: int = 128
    n: int = 1536
    k: int = 384
    block4: int = 4
    stride: int = 0
    float_a: bool = False
    linear: bool = False

    @property
    def steps(self) -> int:
        """K steps that a fiber does."""
        return self.k // 4


@functools.cache
def build_uops(options: UopOptions) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of tiles.
    """
    m, n, k = options.m, options.n, options.k
    if not 1 <= options.block4 <= 16:
        raise KernelError(f"{UOP_NAME}: block4 is {options.block4}; give 1 to 16")
    tile = (4 * _ROWS, 4 * LANES, 4 * options.block4)
    if min(m, n, k) < 1 or any(side % part for side, part in zip((m, n, k), tile, strict=True)):
        raise KernelError(f"{UOP_NAME}: {m} x {n} x {k} is not made of tiles of {' x '.join(map(str, tile))}")
    if options.stride and (options.stride < n or options.stride % 4):
        raise KernelError(
            f"{UOP_NAME}: stride is {options.stride}; give a multiple of 4 from n = {n} on, or 0"
        )
    if options.float_a and options.linear:
        raise KernelError(f"{UOP_NAME}: float-a with linear; a load does not convert, give one of them")
    image = not options.linear
    arrays = (
        Array("A", (m, k), "float32" if options.float_a else "float16", image=image),
        Array("B", (k, n), "float16", image=image),
        Array("C", (m, options.stride or n), "float32", written=True),
    )
    return uops.compile_uops(UOP_NAME, _program(options, arrays), arrays, 2e-9 * m * n * k)


def _program(options: UopOptions, arrays: tuple[Array, ...]) -> Any:
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import AxisType, UOp

    k4, n4 = options.k // 4, options.n // 4
    a, b, c = uops.parameters(arrays)
    group_x, group_y = UOp.special(n4 // LANES, "gidx0"), UOp.special(options.m // (4 * _ROWS), "gidx1")
    local = UOp.special(THREADS, "lidx0")
    row, col = group_y * (4 * _ROWS) + local // LANES * _ROWS, group_x * LANES + local % LANES
    block = UOp.range(k4 // options.block4, 0, AxisType.REDUCE)

    def halves(buffer: UOp, texel: UOp) -> list[UOp]:
        return [value.cast(dtypes.half) for value in uops.vector(buffer, texel)]

    parts: list[UOp | None] = [None] * (4 * _ROWS)
    for number in range(options.block4):
        at = block * options.block4 + number
        right = [halves(b, (at * 4 + kk) * n4 + col) for kk in range(4)]
        for line in range(_ROWS):
            left = halves(a, (row + line) * k4 + at)
            for column in range(4):
                place = 4 * line + column
                for kk in range(4):
                    product, part = left[kk] * right[kk][column], parts[place]
                    parts[place] = product if part is None else part + product
    sums = uops.Sums(4 * _ROWS, "float32", slot=0)
    values = [
        sums.within(place, block) + part.cast(dtypes.float)
        for place, part in enumerate(parts)
        if part is not None
    ]
    totals = sums.after(values, block)
    apart = (options.stride or options.n) // 4
    written = [
        uops.put(c, (row + line) * apart + col, totals[4 * line : 4 * line + 4]) for line in range(_ROWS)
    ]
    return uops.sink(UOP_NAME, [store for stores in written for store in stores])


def _inputs(options: UopOptions, arrays: Arrays) -> Arrays:
    given = dict(flat.matrices(options, arrays))
    if options.float_a:
        given["A"] = given["A"].astype(np.float32)
    return uops.shaped(build_uops(options), given)


def _random(options: UopOptions, rng: np.random.Generator) -> Arrays:
    given = dict(_inputs(options, matmul.random(options, rng)))
    if options.float_a:  # more bits than a half has
        given["A"] = rng.standard_normal(given["A"].shape).astype(np.float32)
    return given


def _uop_product(options: UopOptions, arrays: Arrays) -> Arrays:
    found = _product(options, flat.images(options, arrays))
    return {"C": flat.apart(found["C"], options.stride)}


def _uop_tolerance(options: UopOptions, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """As of the hand kernel; a float that is sampled as half may be off by a rounding that is unknown.

    That costs ``2**-10`` of each ``|a b|`` at most, whichever way it rounds.
    """
    a, b = _matrices(options, flat.images(options, arrays))
    error = blocked.bound(a, b, 4 * options.block4)
    if options.float_a:
        error = error + 2 * matmul.HALF_ROUNDOFF * (np.abs(a).astype(float) @ np.abs(b).astype(float))
    return {"C": flat.apart(error, options.stride)}


def _words(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options, and turns of the loop as a script limits them: ``outer-iters``; ``no-back-edge`` is one."""
    found = {key.replace("-", "_"): value for key, value in given.items()}
    steps = found.get("block", 1)
    if flag(found.pop("no_back_edge", "")):
        found["outer_iters"] = 1
    if str(steps).isdecimal() and str(found.get("outer_iters", "")).isdecimal():
        found["k_count"] = int(found.pop("outer_iters")) * int(steps)
    return found


HAND = Kernel(
    name=NAME,
    summary="GEMM of half matrices, sums of a block of k in float16 and of the blocks in float32",
    options=Options,
    build=build,
    inputs=matmul.random,
    oracle=_product,
    tolerance=_tolerance,
    patterns=matmul.PATTERNS,
    reads=_words,
    unit="GFLOPS",
    cases=(
        Case("n1024", dict(block=4)),
        Case("small", dict(m=16, n=128, k=36)),
        Case("one-step", dict(m=16, n=128, k=4)),
        Case("wide", dict(m=16, n=256, k=20)),
        Case("block-2", dict(m=16, n=128, k=44, block=2)),
        Case("block-4", dict(m=48, n=128, k=60, block=4)),
        Case("block-8", dict(m=16, n=128, k=132, block=8, k_unroll=8)),
        Case("jump", dict(m=16, n=128, k=68, block=2, direct_branch=False)),
        Case("part-of-k", dict(m=16, n=128, k=64, block=2, k_count=10)),
        Case("4x8", dict(m=16, n=256, k=36, ncols=2, block=2)),
        Case("8x4", dict(m=32, n=128, k=36, rows=8, block=4)),
        Case("8x8", dict(m=32, n=256, k=28, rows=8, ncols=2)),
        Case("thread128", dict(m=16, n=128, k=36, block=2, thread128=True)),
        Case("threads-64", dict(m=8, n=128, k=36, threads=64)),
    ),
    source=f"{_SOURCES[0]} of tinygrad's QCOM GEMM experiments",
)

UOPS = Kernel(
    name=UOP_NAME,
    summary="GEMM from half images, sums of a block of k in float16 and of the blocks in float32; UOps",
    options=UopOptions,
    build=build_uops,
    inputs=_random,
    oracle=_uop_product,
    tolerance=_uop_tolerance,
    patterns=flat.patterns(_inputs),
    unit="GFLOPS",
    cases=(
        Case("m128n1536k384", {}),
        Case("block-1", dict(m=16, n=128, k=64, block4=1)),
        Case("block-2", dict(m=32, n=256, k=64, block4=2, stride=320)),
        Case("float-a", dict(m=16, n=128, k=64, float_a=True)),
        Case("linear", dict(m=16, n=256, k=32, block4=2, linear=True)),
    ),
    source=f"{_SOURCES[1]} of tinygrad's QCOM GEMM experiments",
)

KERNELS = (HAND, UOPS)
