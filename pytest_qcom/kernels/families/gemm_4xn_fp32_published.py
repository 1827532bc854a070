"""Published GEMMs of four rows with float32 accumulators: one vec4 column (4x4) and two (4x8).

Their loops are written as published, waits included; prologue, addresses and stores are ours. What they
compute is right wherever the hardware waits by itself: coordinates are rewritten under outstanding samples
and samples read coordinates that have just been written, so the published delays, found by trying, decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul, single
from pytest_qcom.kernels.counted import Aim, Counted, Fetch
from pytest_qcom.kernels.full import arithmetic, launch
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Action, Load, Multiply, Schedule
from pytest_qcom.kernels.stores import NoStore, RowMajor

ROWS = 4
_ROWS = tuple(range(ROWS))
Cases = Mapping[str, Mapping[str, Any]]
"""Options by the name of their case."""
_NOTES = "QUALCOMM.md of tinygrad's QCOM GEMM experiments, tinygrad commit f072c2bf97"


@dataclass(frozen=True, slots=True)
class Published:
    """What the published float32 kernels have in common, by the names of the notes.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``threads`` / 8, n of the tile's columns, k of 4.
        threads: fibers of a workgroup.
        thread128: waves of 128 fibers.
        direct_f32_loads: samples are float32; else half, and converted.
        sampler_per_texture: each texture has its sampler.
        coord_delay: nop repeats between a coordinate and its sample; -1 is none.
        alu_order: nesting of the MADs.
        scalar_mad: no repeated MADs.
        no_store: the products are dropped: a throughput probe.
        skip_a_loads, skip_b_loads: nothing is sampled there; a probe.
        fregs_override: full vec4 declared; 0 is what the kernel uses. Fewer corrupts or hangs hardware.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    threads: int = 128
    thread128: bool = True
    direct_f32_loads: bool = False
    sampler_per_texture: bool = False
    coord_delay: int = 5
    alu_order: str = "kk_row_col"
    scalar_mad: bool = False
    no_store: bool = False
    skip_a_loads: bool = False
    skip_b_loads: bool = False
    fregs_override: int = 0


@dataclass(frozen=True, slots=True)
class Published4x4(Published):
    """Options of the published 4x4 kernels.

    Attributes:
        compact_fp32: A is sampled a row at a time, into one register.
        compact_fp32_hybrid: A in registers of its own that hold its coordinates too; B by one pair.
        compact_preload: all samples bring their coordinate in the register that they fill.
        batch_coords: with ``compact_preload``, all coordinates before the first sample.
        first_coord_wait_only: with ``compact_preload``, a delay only before the first sample of each operand.
    """

    compact_fp32: bool = False
    compact_fp32_hybrid: bool = False
    compact_preload: bool = False
    batch_coords: bool = False
    first_coord_wait_only: bool = False


@dataclass(frozen=True, slots=True)
class Published4x8(Published):
    """Options of the published low-register 4x8 kernels.

    Attributes:
        low_4x8_fp32: the low register plan, the only one that is declared.
        preload_b: both columns of B have registers; else they share those of one.
        batch_coords: all coordinates before the first sample; needs ``preload_b``.
        stream_b: the second column is sampled behind the first row's products of the first column.
        sync: with ``stream_b``, a (sy) before the products of the second column.
        interleaved_a: a texel of A is four rows of one k.
    """

    thread128: bool = False
    direct_f32_loads: bool = True
    low_4x8_fp32: bool = True
    preload_b: bool = False
    batch_coords: bool = False
    stream_b: bool = False
    sync: bool = False


@dataclass(frozen=True, slots=True)
class _Problem:
    """What the arrays of every published kernel are: half images, and a buffer."""

    m: int
    n: int
    k: int
    float_inputs: bool = False
    interleaved_a: bool = False
    image_store: bool = False
    half_output: bool = False


def problem(options: Published) -> _Problem:
    """The product that a kernel with these options computes."""
    return _Problem(options.m, options.n, options.k)


def build_4x4(options: Published4x4) -> Build:
    """A published 4x4 kernel.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    name = "gemm_4x4_fp32_published"
    check(name, options)
    forms = [form for form in _FORMS if getattr(options, form)]
    if len(forms) > 1:
        raise KernelError(
            f"{name}: {' with '.join(form.replace('_', '-') for form in forms)}; give one of them"
        )
    if (options.batch_coords or options.first_coord_wait_only) and forms != ["compact_preload"]:
        raise KernelError(
            f"{name}: batch-coords and first-coord-wait-only are about compact-preload; give it too"
        )
    plan, coordinates, phases = _FORMS[forms[0]](options) if forms else _plain(options)
    syncs = tuple(range(ROWS)) if options.compact_fp32 else (0,)
    return published(name, options, Tile(ROWS, 1, options.threads), plan, coordinates, phases, syncs)


def build_4x8(options: Published4x8) -> Build:
    """A published 4x8 kernel with the low register plan.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    name = "gemm_4x8_fp32_published"
    check(name, options)
    if not options.low_4x8_fp32:
        raise KernelError(f"{name}: low-4x8-fp32 is false; no other plan is declared, leave it true")
    if options.batch_coords and not options.preload_b:
        raise KernelError(f"{name}: batch-coords needs registers for both columns; give preload-b too")
    if options.stream_b and options.preload_b:
        raise KernelError(f"{name}: stream-b with preload-b; give one of them")
    if options.sync and not options.stream_b:
        raise KernelError(f"{name}: sync is about stream-b; give it too")
    banks = 2 if options.preload_b or options.stream_b else 1
    coordinates = noted(options)
    plan = texels(RegisterPlan(), b=0, banks=banks, a=4 * banks, acc=4 * banks + 4, cols=2)
    plan = over_texels(state(plan, f"r{4 * banks + 12}"))
    syncs = (0, 1) if banks == 1 else (0, 2) if options.sync else (0,)
    tile = Tile(ROWS, 2, options.threads)
    return published(name, options, tile, plan, coordinates, _low(options, coordinates), syncs)


def check(name: str, options: Published) -> None:
    """What every published kernel needs.

    Raises:
        KernelError: a shape or a delay that makes no kernel.
    """
    check_shape(name, options)
    if not -1 <= options.coord_delay <= 7:
        raise KernelError(f"{name}: coord-delay is {options.coord_delay}; give -1 (none) to 7")
    if (options.skip_a_loads or options.skip_b_loads) and not options.no_store:
        raise KernelError(f"{name}: without its loads a kernel has nothing to store; give no-store=true too")


def published(
    name: str,
    options: Published,
    tile: Tile,
    plan: RegisterPlan,
    coordinates: Counted,
    phases: tuple[Load | Multiply | Action, ...],
    syncs: tuple[int, ...] = (0,),
) -> Build:
    """The launch of a published loop; the phases of products that are in ``syncs`` wait for samples."""
    schedule = Schedule(
        tile=tile,
        plan=plan,
        phases=phases,
        coordinates=coordinates,
        epilogue=NoStore() if options.no_store else RowMajor(element=4),
        order=options.alu_order,
        scalar_first=True,
        sync=lambda products, step: products in syncs,
        waits="written",
        unroll=1,
        arithmetic=arithmetic(options.sampler_per_texture, options.scalar_mad),
    )
    if coordinates.convert:
        schedule = replace(schedule, plan=plan.place("half", "hr0.x", 4))
    built = launch(name, problem(options), schedule, options.thread128)
    return replace(built, fregs=options.fregs_override or built.fregs)


def noted(options: Published, **form: bool) -> Counted:
    """Coordinates as published."""
    return Counted(
        ahead=3,
        delay=options.coord_delay,
        convert=not options.direct_f32_loads,
        noted=True,
        skip="A" * options.skip_a_loads + "B" * options.skip_b_loads,
        **form,
    )


Form = tuple[RegisterPlan, Counted, tuple[Load | Multiply | Action, ...]]


def _plain(options: Published4x4) -> Form:
    """One coordinate pair for all samples."""
    plan = texels(RegisterPlan(), b=8, banks=1, a=16, acc=12, cols=1).place("pair", "r4.x", 2)
    phases = (Load("B", (0,)), Load("A", _ROWS), Multiply(_ROWS, (0,)))
    return over_texels(low_state(plan)), noted(options, shared_a=True, shared_b=True), phases


def _compact(options: Published4x4) -> Form:
    """B, then each row of A in one register, with its products."""
    plan = texels(RegisterPlan(), b=0, banks=1, a=4, acc=8, cols=1, rows_apart=0).place("pair", "r5.x", 2)
    phases: list[Load | Multiply | Action] = [Load("B", (0,))]
    for row in _ROWS:
        phases += [Load("A", (row,)), Multiply((row,), (0,))]
    return (
        over_texels(low_state(plan)),
        noted(options, shared_a=True, shared_b=True),
        tuple(phases),
    )


def _hybrid(options: Published4x4) -> Form:
    """B by one pair, which lies where row 0 of A will be; A brings its coordinates itself."""
    plan = RegisterPlan().place("b0", "r0.x", 16)
    for row, at in enumerate(("r4.x", "r5.x", "r6.x", "r12.x")):
        plan = plan.place(f"a{row}", at, 4)
    plan = plan.place("pair", "r4.x", 2, over=("a0",)).place("acc", "r8.x", 16)
    for name, at in (("row", "r7.x"), ("col", "r7.y"), ("ky", "r7.z"), ("k4", "r7.w")):
        plan = plan.place(name, at, 1)
    plan = plan.place("next", "r5.x", 1, over=("a1",))
    phases = (Load("B", (0,)), Load("A", _ROWS), Multiply(_ROWS, (0,)))
    return over_texels(plan), noted(options, shared_b=True), phases


def _preload(options: Published4x4) -> Form:
    """Every sample brings its coordinate in the register that it fills."""
    coordinates = replace(noted(options), first_delay_only=options.first_coord_wait_only)
    plan = texels(RegisterPlan(), b=0, banks=1, a=4, acc=8, cols=1)
    loads = (Load("B", (0,)), Load("A", _ROWS))
    phases: tuple[Load | Multiply | Action, ...] = (*loads, Multiply(_ROWS, (0,)))
    if options.batch_coords:
        phases = (Aim(coordinates, loads), Fetch(coordinates, loads), Multiply(_ROWS, (0,)))
    return over_texels(state(plan, "r12")), coordinates, phases


_FORMS: dict[str, Callable[[Published4x4], Form]] = {
    "compact_fp32": _compact,
    "compact_fp32_hybrid": _hybrid,
    "compact_preload": _preload,
}


def _low(options: Published4x8, coordinates: Counted) -> tuple[Load | Multiply | Action, ...]:
    """The K step of the low 4x8 plan."""
    a = Load("A", _ROWS)
    if options.preload_b:
        loads = (Load("B", (0, 1)), a)
        if options.batch_coords:
            return (Aim(coordinates, loads), Fetch(coordinates, loads), Multiply(_ROWS, (0, 1)))
        return (*loads, Multiply(_ROWS, (0, 1)))
    if options.stream_b:
        second: list[Load | Multiply | Action] = [
            Load("B", (1,)),
            Multiply((1, 2, 3), (0,)),
            Multiply(_ROWS, (1,)),
        ]
        return (Load("B", (0,)), a, Multiply((0,), (0,)), *second)
    return (Load("B", (0,)), a, Multiply(_ROWS, (0,)), Load("B", (1,)), Multiply(_ROWS, (1,)))


def texels(
    plan: RegisterPlan,
    *,
    b: int,
    banks: int,
    a: int,
    acc: int,
    cols: int,
    rows: int = ROWS,
    rows_apart: int = 1,
) -> RegisterPlan:
    """Texels and accumulators from the given vec4; with ``rows_apart`` 0 the rows of A share one."""
    for bank in range(banks):
        plan = plan.place(f"b{bank}", f"r{b + 4 * bank}.x", 16)
    for row in range(rows):
        earlier = tuple(f"a{other}" for other in range(row)) if not rows_apart else ()
        plan = plan.place(f"a{row}", f"r{a + row * rows_apart}.x", 4, over=earlier)
    return plan.place("acc", f"r{acc}.x", 4 * rows * cols)


def low_state(plan: RegisterPlan, following: str = "r0.x") -> RegisterPlan:
    """Loop state where the half kernels have it; ``following`` is the next counter."""
    for name, at in (("ky", "r6.y"), ("k4", "r6.z"), ("row", "r7.x"), ("col", "r7.y")):
        plan = plan.place(name, at, 1)
    return plan.place("next", following, 1, over=("b0",))


def state(plan: RegisterPlan, vec: str) -> RegisterPlan:
    """Loop state in one vec4, the next counter over a texel of B."""
    for name, component in (("row", "x"), ("col", "y"), ("ky", "z"), ("k4", "w")):
        plan = plan.place(name, f"{vec}.{component}", 1)
    return plan.place("next", "r0.x", 1, over=("b0",))


def over_texels(plan: RegisterPlan, rows: int = ROWS) -> RegisterPlan:
    """What prologue and epilogue need, over everything but the accumulators and the place."""
    dead = tuple(block.name for block in plan.blocks if block.name not in ("acc", "row", "col"))
    plan = plan.place("scratch", "r1.x", 4, over=dead)
    dead = (*dead, "scratch")
    plan = plan.place("addresses", "r0.x", 2 * rows, over=dead)
    plan = plan.place("carries", f"r{rows // 2}.x", rows, over=dead)
    return plan.place("offsets", f"r{rows // 2 + rows // 4}.x", 2, over=dead)


def _tolerance(options: Published, arrays: Arrays) -> Mapping[str, single.Float]:
    """:func:`~pytest_qcom.kernels.single.bound` of one chain over k."""
    return single.bound(problem(options), arrays)


def declare(name: str, options: type[Published], build: Callable[[Any], Build], rows: Cases) -> Kernel:
    """The published configurations of a family; those that store nothing are throughput figures."""
    family = name.removesuffix("_published")
    return Kernel(
        name=name,
        summary=f"{family} as published: right if the hardware waits where the code does not",
        options=options,
        build=build,
        inputs=lambda options, rng: single.random(problem(options), rng),
        oracle=_product,
        tolerance=_tolerance,
        patterns={name: _pattern(name) for name in single.PATTERNS},
        unit="GFLOPS",
        cases=tuple(Case(row, given) for row, given in rows.items()),
        claim="as-published",
        family=family,
        source=_NOTES,
    )


def _product(options: Published, arrays: Arrays) -> Arrays:
    """Samples that are half flush what is below the smallest normal half; float32 ones do not."""
    if options.no_store:
        return {}
    if options.direct_f32_loads:
        return single.product(problem(options), arrays)
    return matmul.product(options, arrays)


def _pattern(name: str) -> Callable[[Any], Arrays]:
    return lambda options: single.PATTERNS[name](problem(options))


_DIRECT: dict[str, Any] = dict(direct_f32_loads=True, sampler_per_texture=True)
_PLAIN = dict(_DIRECT, coord_delay=4)
_HYBRID = dict(_PLAIN, compact_fp32_hybrid=True)
_ROWS_4X4: Cases = {
    "p170": _PLAIN,
    "p171": dict(direct_f32_loads=True, coord_delay=4),
    "p172": dict(_PLAIN, no_store=True),
    "p173": dict(_PLAIN, no_store=True, skip_a_loads=True),
    "p176": dict(_PLAIN, scalar_mad=True),
    "p178": dict(_PLAIN, compact_fp32=True, no_store=True),
    "p180": dict(_HYBRID, coord_delay=3),
    "p181": _HYBRID,
    "p182": dict(_HYBRID, no_store=True),
    "p184": dict(_HYBRID, no_store=True, skip_b_loads=True),
    "p185": dict(_HYBRID, no_store=True, skip_a_loads=True, skip_b_loads=True),
    "p187": dict(_HYBRID, coord_delay=2),
    "converted": dict(coord_delay=4),
    "compact": dict(_PLAIN, compact_fp32=True),
    "preload": dict(_PLAIN, compact_preload=True),
    "preload-batch": dict(_DIRECT, coord_delay=-1, compact_preload=True, batch_coords=True),
    "preload-first-wait": dict(_PLAIN, compact_preload=True, first_coord_wait_only=True),
}

_BEST: dict[str, Any] = dict(
    preload_b=True, batch_coords=True, sampler_per_texture=True, coord_delay=-1, alu_order="kk_col_row"
)
_ROWS_4X8: Cases = {
    "p188": _BEST,
    "p191": dict(_BEST, no_store=True),
    "p192": dict(_BEST, no_store=True, skip_a_loads=True),
    "p196": dict(stream_b=True),
    "p197": dict(stream_b=True, sync=True),
    "p198": dict(_BEST, fregs_override=20),
    "one-bank": dict(sampler_per_texture=True),
    "preload": dict(preload_b=True, sampler_per_texture=True),
}

KERNELS = (
    declare("gemm_4x4_fp32_published", Published4x4, build_4x4, _ROWS_4X4),
    declare("gemm_4x8_fp32_published", Published4x8, build_4x8, _ROWS_4X8),
)
