"""GEMMs with half inputs and float32 accumulators, 4 to 8 rows by 1 to 4 vec4 columns a fiber.

A float32 tile of a fiber is as large in registers as it is in work, so its schedules differ in what they keep
besides it. Ours writes each coordinate into the registers that the sample then fills, all of a step before
the first sample, so that nothing waits but the last; the loop's counters and its test stand in that wait.
With ``paired_coords`` a coordinate is one repeated instruction, and the 4x8 loop 61 instructions.
With ``own_pairs`` every sample has a coordinate that lives through the loop: half as many additions, more
registers. With fewer B banks than columns (``preload_b`` off), columns are sampled and multiplied in turn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import single
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.counted import Advance, Aim, Counted, Fetch, pair_constants
from pytest_qcom.kernels.gemm import check_shape, gemm_launch
from pytest_qcom.kernels.kernel import Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import (
    ALL_K,
    ORDERS,
    Action,
    Arithmetic,
    Epilogue,
    Load,
    Multiply,
    Phases,
    Schedule,
    Step,
    generate,
    loop_constants,
)
from pytest_qcom.kernels.stores import POINTER, ImageStore, RowMajor

_NOTES = "QUALCOMM.md and qcom_fp32_check.py of tinygrad's QCOM GEMM experiments"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the float32 kernels, by the names of the notes.

    Attributes:
        m, n, k: C is (m, n); both in whole workgroup tiles, k a multiple of 4.
        threads: fibers of a workgroup: 64, 128 or 256.
        thread128: waves of 128 fibers; else of 64.
        k_unroll: K steps of the loop body. A rest is done behind the loop.
        preload_b: all columns of B have registers; else they share those of one column.
        pipeline_b: columns in turn in the registers of two: one is sampled before the products of another.
        component_stream: columns in turn in the registers of one, each k sampled anew behind its products.
        own_pairs: a coordinate of its own for each sample, kept over the loop; needs ``preload_b``.
        ahead: samples for the next step between the products of this one, those of A into a second bank;
            needs ``own_pairs`` and an even ``k_unroll``.
        paired_coords: both parts of a coordinate by one repeated addition; needs ``k_unroll`` 1.
        alu_order: nesting of the MADs.
        sampler_per_texture: each texture has its sampler.
        scalar_mad: one column an instruction, without repeats.
        interleaved_a: a texel of A is four rows of one k; for tiles of four rows.
        float_inputs: A and B are float32 images.
        image_store: C is an image; with ``half_output`` a half one.
        no_store: the products are dropped; a throughput probe whose output means nothing.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    threads: int = 128
    thread128: bool = False
    k_unroll: int = 1
    preload_b: bool = True
    pipeline_b: bool = False
    component_stream: bool = False
    own_pairs: bool = False
    ahead: bool = False
    paired_coords: bool = False
    alu_order: str = "kk_col_row"
    sampler_per_texture: bool = True
    scalar_mad: bool = False
    interleaved_a: bool = False
    float_inputs: bool = False
    image_store: bool = False
    half_output: bool = False


def build(name: str, rows: int, ncols: int, options: Options) -> Build:
    """The kernel ``name`` for tiles of ``rows`` by ``ncols`` vec4 columns.

    Raises:
        KernelError: options that do not go together, a shape that is not made of whole tiles.
    """
    _check(name, rows, ncols, options)
    tile = Tile(rows, ncols, options.threads)
    coordinates: Persistent | Counted = (
        Persistent() if options.own_pairs else Counted(early=True, paired=options.paired_coords)
    )
    schedule = Schedule(
        tile=tile,
        plan=plan(tile, options),
        phases=phases(tile, options, coordinates),
        primed=_primed(tile) if options.ahead else (),
        peel=1 if options.ahead else 0,
        coordinates=coordinates,
        epilogue=epilogue(options),
        order=options.alu_order,
        unroll=options.k_unroll,
        arithmetic=arithmetic(options.sampler_per_texture, options.scalar_mad),
        interleaved=options.interleaved_a,
    )
    constants = pair_constants(tile) if options.paired_coords else ()
    return launch(name, options, schedule, options.thread128, constants=constants)


def launch(
    name: str,
    problem: single.Problem,
    schedule: Schedule,
    thread128: bool,
    steps: int | None = None,
    constants: tuple[tuple[int, int], ...] = (),
) -> Build:
    """The launch of a float32 schedule over ``steps`` K steps, by default all of the problem's.

    Raises:
        KernelError: the output is not made of whole workgroup tiles.
    """
    groups = schedule.tile.groups(name, problem.m, problem.n)
    k = problem.k if steps is None else 4 * steps
    constants = (
        *constants,
        *schedule.epilogue.constants(schedule.tile, row_bytes=4 * problem.n),
        *loop_constants(k, schedule.unroll, schedule.peel),
    )
    return gemm_launch(
        problem,
        schedule.tile,
        schedule.plan,
        generate(schedule, k),
        constants,
        groups,
        arguments=single.arguments(problem, POINTER),
        thread128=thread128,
    )


def arithmetic(sampler_per_texture: bool, scalar_mad: bool = False) -> Arithmetic:
    """Products of float32."""
    return Arithmetic(
        texel="f32",
        multiply="mad.f32",
        lanes=1 if scalar_mad else 4,
        samplers=2 if sampler_per_texture else 1,
    )


def epilogue(options: Options) -> Epilogue:
    """Texels or words straight from the accumulators."""
    return ImageStore() if options.image_store else RowMajor(element=4)


class Form(Protocol):
    """Which of the register plans."""

    @property
    def preload_b(self) -> bool: ...
    @property
    def pipeline_b(self) -> bool: ...
    @property
    def component_stream(self) -> bool: ...
    @property
    def own_pairs(self) -> bool: ...
    @property
    def ahead(self) -> bool: ...
    @property
    def interleaved_a(self) -> bool: ...


def plan(tile: Tile, options: Form) -> RegisterPlan:
    """Texels of B and A, accumulators, counters; what only the start or the end needs lies over texels."""
    banks = tile.cols if options.preload_b else 2 if options.pipeline_b else 1
    result = RegisterPlan()
    for bank in range(banks):
        result = result.place(f"b{bank}", f"r{4 * bank}.x", 16)
    for index in range(4 if options.interleaved_a else tile.rows):
        result = result.place(f"a{index}", f"r{4 * banks + index}.x", 4)
    first = 4 * banks + (4 if options.interleaved_a else tile.rows)
    if options.ahead:
        for index in range(tile.rows):
            result = result.place(f"a{index}.1", f"r{first + index}.x", 4)
        for bank in range(banks):  # B has one bank, for steps of either number
            result = result.place(f"b{bank}.1", f"r{4 * bank}.x", 16, over=(f"b{bank}",))
        first += tile.rows
    result = result.place("acc", f"r{first}.x", 4 * tile.rows * tile.cols)
    state = first + tile.rows * tile.cols
    dead = tuple(block.name for block in result.blocks if block.name != "acc")
    if options.own_pairs:
        result = result.place("b_pairs", f"r{state}.x", 8 * tile.cols)
        result = result.place("a_pairs", f"r{state + 2 * tile.cols}.x", 2 * tile.rows)
        pairs = ("a_pairs", "b_pairs")
        result = result.place("row", f"r{state + 2 * tile.cols}.y", 1, over=pairs)
        result = result.place("col", f"r{state}.x", 1, over=pairs)
    else:
        for name, component in (("k4", "x"), ("row", "y"), ("col", "z"), ("ky", "w")):
            result = result.place(name, f"r{state}.{component}", 1)
        if options.interleaved_a:
            result = result.place("quads", f"r{state + 1}.x", 1)
    return _over_texels(result, tile, dead)


def _over_texels(result: RegisterPlan, tile: Tile, dead: tuple[str, ...]) -> RegisterPlan:
    """Registers of prologue and epilogue over those of the texels."""
    result = result.place("scratch", "r1.x", 4, over=dead)
    dead = (*dead, "scratch")
    addresses = -(-tile.rows // 2)
    carries = -(-tile.rows // 4)
    result = result.place("addresses", "r0.x", 2 * tile.rows, over=dead)
    result = result.place("carries", f"r{addresses}.x", tile.rows, over=dead)
    result = result.place("offsets", f"r{addresses + carries}.x", 2, over=dead)
    return result.place("at", "r0.x", 8, over=(*dead, "addresses", "carries", "offsets"))


def phases(tile: Tile, options: Form, coordinates: Persistent | Counted) -> Phases | Callable[[Step], Phases]:
    """A K step: columns that have registers at once, with the rows of A sampled before the first products."""
    rows, cols = tuple(range(tile.rows)), tuple(range(tile.cols))
    if options.ahead:
        return functools.partial(_refilled, rows, cols)
    a = Load("A", tuple(range(4)) if options.interleaved_a else rows)
    if isinstance(coordinates, Persistent):
        return (Load("B", cols), a, Multiply(rows, cols))
    if options.component_stream:
        return _streamed(rows, cols, a, coordinates)
    if options.pipeline_b:
        return _pipelined(rows, cols, a, coordinates)
    groups = [cols] if options.preload_b else [(col,) for col in cols]
    steps: list[Load | Multiply | Action] = []
    for number, group in enumerate(groups):
        loads = (Load("B", group),) if number else (a, Load("B", group))
        steps.append(Aim(coordinates, loads))
        last = number == len(groups) - 1
        if last:
            steps.append(Advance(coordinates))
        steps += [Fetch(coordinates, loads, test=last), Multiply(rows, group)]
    return tuple(steps)


def _pipelined(rows: tuple[int, ...], cols: tuple[int, ...], a: Load, coordinates: Counted) -> Phases:
    """Two columns are sampled, then each next one into what the last products have left."""
    steps: list[Load | Multiply | Action] = []
    for col in cols:
        loads = (a, Load("B", cols[:2])) if col == 0 else (Load("B", (col + 1,)),)
        if col == 0 or col + 1 < len(cols):
            last = max(col + 1, 1) == len(cols) - 1
            steps.append(Aim(coordinates, loads))
            if last:
                steps.append(Advance(coordinates))
            steps.append(Fetch(coordinates, loads, test=last))
        steps.append(Multiply(rows, (col,)))
    return tuple(steps)


def _streamed(rows: tuple[int, ...], cols: tuple[int, ...], a: Load, coordinates: Counted) -> Phases:
    """The products of a column k by k.

    Behind those of one k comes the coordinate of that k of the next column, and one k later its sample.
    """
    first = (a, Load("B", cols[:1]))
    steps: list[Load | Multiply | Action] = [Aim(coordinates, first), Fetch(coordinates, first)]
    for col in cols:
        late: tuple[Load, ...] = ()
        for kk in ALL_K:
            steps.append(Multiply(rows, (col,), (kk,)))
            if col + 1 == len(cols):
                continue
            load = (Load("B", (col + 1,), (kk,)),)
            last = col + 2 == len(cols) and kk == ALL_K[-1]
            steps += [Aim(coordinates, load), *([Advance(coordinates)] if last else [])]
            steps += [Fetch(coordinates, late), *([Fetch(coordinates, load, test=last)] if kk == 3 else [])]
            late = load
    return tuple(steps)


def _refilled(rows: tuple[int, ...], cols: tuple[int, ...], step: Step) -> Phases:
    """The products k by k; what a k of B leaves free is sampled for the next step at once."""
    bank = step.index % 2
    early = Load("A", rows, ahead=1, bank=1 - bank)
    steps: list[Load | Multiply] = []
    for kk in ALL_K:
        steps.append(Multiply(rows, cols, (kk,), behind=() if kk else (early,), bank=bank))
        steps.append(Load("B", cols, (kk,), ahead=1, bank=1 - bank))
    return tuple(steps)


def _primed(tile: Tile) -> tuple[Load, ...]:
    """The samples of the first step, as the others have them."""
    cols = tuple(range(tile.cols))
    return (Load("A", tuple(range(tile.rows))), *(Load("B", cols, (kk,)) for kk in ALL_K))


def _check(name: str, rows: int, ncols: int, options: Options) -> None:
    """Combinations that make no kernel."""
    check_shape(name, options)
    if options.interleaved_a and rows != 4:
        raise KernelError(f"{name}: interleaved-a with {rows} rows; a texel holds four, leave it out")
    if options.own_pairs and not options.preload_b:
        raise KernelError(
            f"{name}: own-pairs without preload-b; columns in turn have no pairs, give preload-b=true"
        )
    in_turn = [flag for flag in ("pipeline_b", "component_stream") if getattr(options, flag)]
    if len(in_turn) > 1 or (in_turn and (options.preload_b or ncols < 2)):
        flags = " with ".join(flag.replace("_", "-") for flag in in_turn)
        raise KernelError(
            f"{name}: {flags} is about columns in turn; give one of them, preload-b=false and a wider tile"
        )
    if options.paired_coords and (options.own_pairs or options.interleaved_a or options.k_unroll != 1):
        raise KernelError(f"{name}: paired-coords with own-pairs, interleaved-a or k-unroll; give it alone")
    if options.ahead and (not options.own_pairs or options.k_unroll % 2):
        raise KernelError(
            f"{name}: ahead needs own-pairs=true and an even k-unroll; give both or leave it out"
        )
    if options.own_pairs and options.interleaved_a:
        raise KernelError(f"{name}: own-pairs with interleaved-a; give one of them")
    if options.half_output and not options.image_store:
        raise KernelError(f"{name}: half-output into a buffer of float32; give image-store=true too")
    if 4 * options.m * options.n >= 1 << 32:
        raise KernelError(f"{name}: C of {options.m} x {options.n} is beyond 4 GiB; give smaller m or n")


def _declare(rows: int, ncols: int, cases: tuple[Case, ...]) -> Kernel:
    name = f"gemm_{rows}x{4 * ncols}_fp32"
    return Kernel(
        name=name,
        summary=f"GEMM of half matrices accumulated in float32, {rows} rows by {ncols} vec4 columns a fiber",
        options=Options,
        build=functools.partial(build, name, rows, ncols),
        inputs=single.random,
        oracle=single.product,
        tolerance=single.bound,
        patterns=single.PATTERNS,
        unit="GFLOPS",
        cases=cases,
        source=_NOTES,
    )


def _cases(rows: int, ncols: int, k: int = 36) -> tuple[Case, ...]:
    """What is checked of every tile: the two ways of coordinates, both wave sizes, a rest, both stores."""
    m, n = 4 * rows, 128 * ncols
    return (
        Case("small", dict(m=m, n=n, k=k)),
        Case("wide", dict(m=m, n=2 * n, k=8)),
        Case("tall", dict(m=3 * m, n=n, k=20)),
        Case("one-step", dict(m=m, n=n, k=4)),
        Case("unroll", dict(m=m, n=n, k=28, k_unroll=2)),
        Case("own-pairs", dict(m=m, n=n, k=k, own_pairs=True)),
        Case("own-pairs-unroll", dict(m=m, n=2 * n, k=28, own_pairs=True, k_unroll=2)),
        Case("ahead", dict(m=m, n=n, k=28, own_pairs=True, ahead=True, k_unroll=2)),
        Case("paired-coords", dict(m=m, n=2 * n, k=k, paired_coords=True)),
        Case("ahead-one", dict(m=m, n=n, k=4, own_pairs=True, ahead=True, k_unroll=2)),
        Case("thread128", dict(m=m, n=n, k=k, thread128=True)),
        Case("threads-64", dict(m=2 * rows, n=n, k=k, threads=64)),
        Case("image-store", dict(m=m, n=n, k=k, image_store=True)),
        Case("half-output", dict(m=m, n=n, k=k, image_store=True, half_output=True)),
        Case("float-inputs", dict(m=m, n=n, k=k, float_inputs=True)),
    )


_ORDERED = tuple(
    Case(order.replace("_", "-"), dict(m=16, n=256, k=20, alu_order=order))
    for order in ORDERS
    if order != "kk_col_row"
)


def _few(rows: int, ncols: int) -> tuple[Case, ...]:
    """What is checked of the less usual tiles."""
    names = {"small", "unroll", "own-pairs-unroll", "image-store", "one-bank-unroll", "pipeline-b"}
    names.add("component-stream")
    every = (*_cases(rows, ncols), *(_banks(rows, ncols) if ncols > 1 else ()))
    return tuple(case for case in every if case.name in names)


def _banks(rows: int, ncols: int) -> tuple[Case, ...]:
    """Columns in turn, in the registers of one."""
    m, n = 4 * rows, 128 * ncols
    return (
        Case("one-bank", dict(m=m, n=n, k=36, preload_b=False)),
        Case("one-bank-unroll", dict(m=m, n=2 * n, k=28, preload_b=False, k_unroll=2)),
        Case("one-bank-paired", dict(m=m, n=n, k=20, preload_b=False, paired_coords=True)),
        Case("one-bank-image", dict(m=m, n=n, k=20, preload_b=False, image_store=True)),
        Case("pipeline-b", dict(m=m, n=n, k=28, preload_b=False, pipeline_b=True)),
        Case("component-stream", dict(m=m, n=n, k=28, preload_b=False, component_stream=True, k_unroll=2)),
    )


_N1024 = Case("n1024", dict(paired_coords=True))

KERNELS = (
    _declare(
        4,
        1,
        (
            _N1024,
            *_cases(4, 1),
            Case("unroll-4", dict(m=16, n=128, k=44, k_unroll=4)),
            Case("scalar-mad", dict(m=16, n=128, k=36, scalar_mad=True)),
            Case("interleaved", dict(m=16, n=128, k=36, interleaved_a=True)),
        ),
    ),
    _declare(
        4,
        2,
        (
            _N1024,
            *_cases(4, 2),
            *_ORDERED,
            *_banks(4, 2),
            Case("interleaved", dict(m=16, n=256, k=36, interleaved_a=True, k_unroll=2)),
            Case("interleaved-one-bank", dict(m=16, n=256, k=20, interleaved_a=True, preload_b=False)),
        ),
    ),
    _declare(4, 3, _few(4, 3)),
    _declare(4, 4, _few(4, 4)),
    _declare(5, 2, _few(5, 2)),
    _declare(6, 2, _few(6, 2)),
    _declare(8, 1, (Case("n1024", {}), *_few(8, 1))),
    _declare(8, 2, (Case("n1024", dict(own_pairs=True, k_unroll=4)), *_cases(8, 2), *_banks(8, 2))),
)
