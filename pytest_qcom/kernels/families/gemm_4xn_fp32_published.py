"""Published GEMMs of four rows with float32 accumulators: one vec4 column (4x4), two (4x8), four (4x16).

Their loops are written as published, waits included, see :mod:`pytest_qcom.kernels.full_published`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.counted import Aim, Counted, Fetch
from pytest_qcom.kernels.full_published import (
    Cases,
    Published,
    check,
    declare,
    low_state,
    noted,
    over_texels,
    published,
    state,
    texels,
)
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.notes import flag, given_names, renamed
from pytest_qcom.kernels.quads import SHUFFLES, QuadB
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Action, Load, Multiply, Step

ROWS = 4
_ROWS = tuple(range(ROWS))


@dataclass(frozen=True, slots=True)
class Published4xN(Published):
    """Options of the published kernels of four rows.

    Attributes:
        compact_fp32: A is sampled a row at a time, into one register.
        compact_fp32_hybrid: A in registers of its own that hold its coordinates too; B by one pair.
        compact_preload: all samples bring their coordinate in the register that they fill.
        batch_coords: with ``compact_preload`` or ``low_4x8_fp32``, all coordinates of what is sampled
            together before the first sample.
        first_coord_wait_only: with ``compact_preload``, a delay only before the first sample of each operand.
        quad_map: with ``compact_preload``, the fibers of a quad are below each other and share a column.
        quad_b: with ``quad_map``, the first fiber of a quad samples B and hands it to the others.
        quad_b_load_all: with ``quad_b``, all of them sample it, and the first one's is taken.
        quad_b_shfl_mode: with ``quad_b``, sixteen shuffles of this mode in place of four broadcasts: 1 xor,
            2 up, 3 down, 6 rup, 7 rdown; 0 for broadcasts.
        low_4x8_fp32: two columns with texels that bring their coordinates.
        preload_b: with it, both columns of B have registers; else they share those of one.
        stream_b: with it, the second column is sampled behind the first row's products of the first.
        sync: with ``stream_b``, a (sy) before the products of the second column.
        interleaved_a: with it, a texel of A is four rows of one k.
        pipeline: two columns with two banks of B each, sampled a step ahead; with the low plan or alone.
    """

    compact_fp32: bool = False
    compact_fp32_hybrid: bool = False
    compact_preload: bool = False
    batch_coords: bool = False
    first_coord_wait_only: bool = False
    quad_map: bool = False
    quad_b: bool = False
    quad_b_load_all: bool = False
    quad_b_shfl_mode: int = 0
    low_4x8_fp32: bool = False
    preload_b: bool = False
    stream_b: bool = False
    sync: bool = False
    interleaved_a: bool = False
    pipeline: bool = False


@dataclass(frozen=True, slots=True)
class Published4x8(Published4xN):
    """The same for two columns, where samples are float32 and waves of 64 are what was measured."""

    thread128: bool = False
    direct_f32_loads: bool = True


@dataclass(frozen=True, slots=True)
class Form:
    """What a form gives to :func:`published`: the plan, coordinates, K step, and where it waits."""

    plan: RegisterPlan
    coordinates: Counted
    phases: Any
    syncs: tuple[int, ...] = (0,)
    more: Mapping[str, Any] = field(default_factory=dict)


_NARROW = ("compact_fp32", "compact_fp32_hybrid", "compact_preload")
_WIDE = ("low_4x8_fp32", "pipeline")
_OF_COLUMNS = {1: _NARROW, 2: _WIDE}
_NEEDS = {
    "first_coord_wait_only": ("compact_preload",),
    "quad_map": ("compact_preload",),
    "quad_b": ("quad_map",),
    "quad_b_load_all": ("quad_b",),
    "quad_b_shfl_mode": ("quad_b",),
    "batch_coords": ("compact_preload", "low_4x8_fp32"),
    "preload_b": ("low_4x8_fp32",),
    "stream_b": ("low_4x8_fp32",),
    "interleaved_a": ("low_4x8_fp32",),
    "sync": ("stream_b",),
}
"""Options that are about others."""


def build(name: str, ncols: int, options: Published4xN) -> Build:
    """A published kernel of ``ncols`` vec4 columns.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    check(name, options, ncols)
    chosen = [form for form in (*_NARROW, *_WIDE) if getattr(options, form)]
    if options.pipeline and options.low_4x8_fp32:  # it is the low plan's own, with both columns in registers
        chosen.remove("low_4x8_fp32")
    _check(name, ncols, options, chosen)
    form = _FORMS[chosen[0]](options) if chosen else _plain(ncols, options)
    tile = Tile(ROWS, ncols, options.threads, rows_first=options.quad_map)
    built = published(name, options, tile, form.plan, form.coordinates, form.phases, form.syncs, **form.more)
    return replace(built, branchstack=2 if options.quad_b else 0)


def _check(name: str, ncols: int, options: Published4xN, chosen: list[str]) -> None:
    def words(options: tuple[str, ...] | list[str], joint: str) -> str:
        return joint.join(option.replace("_", "-") for option in options)

    if len(chosen) > 1:
        raise KernelError(f"{name}: {words(chosen, ' with ')}; give one of them")
    right = _OF_COLUMNS.get(ncols, ())
    if chosen and chosen[0] not in right:
        raise KernelError(f"{name}: {words(chosen, '')} is not of {ncols} columns; leave it out")
    for option, needed in _NEEDS.items():
        if getattr(options, option) and not any(getattr(options, other) for other in needed):
            raise KernelError(
                f"{name}: {words([option], '')} is about {words(needed, ' or ')}; give that too"
            )
    others = [word for word in ("batch_coords", "stream_b", "interleaved_a") if getattr(options, word)]
    if options.pipeline and others:
        raise KernelError(f"{name}: pipeline with {words(others, ', ')}; leave that out")
    if options.quad_map and options.threads < 128:
        raise KernelError(f"{name}: quad-map with {options.threads} threads; a quad is four tiles, give 128")
    if options.quad_b_shfl_mode and options.quad_b_shfl_mode not in SHUFFLES:
        raise KernelError(
            f"{name}: quad-b-shfl-mode is {options.quad_b_shfl_mode}; give one of "
            f"{', '.join(map(str, SHUFFLES))}, or 0 for broadcasts"
        )
    if options.quad_b and options.coord_delay >= 0 and not options.quad_b_load_all:
        raise KernelError(
            f"{name}: quad-b branches over four samples alone; give coord-delay=-1, or quad-b-load-all"
        )


def _plain(ncols: int, options: Published4xN) -> Form:
    """One coordinate pair for all samples; further columns reload B, and nothing waits for them."""
    acc = 12 + ROWS * ncols
    plan = texels(RegisterPlan(), b=8, banks=1, a=acc, acc=12, cols=ncols).place("pair", "r4.x", 2)
    phases: list[Load | Multiply | Action] = [Load("B", (0,)), Load("A", _ROWS), Multiply(_ROWS, (0,))]
    for col in range(1, ncols):
        phases += [Load("B", (col,)), Multiply(_ROWS, (col,))]
    coordinates = noted(options, shared_a=True, shared_b=True)
    least = 32 if ncols == 2 else 0  # its store copies through r24 to r31
    return Form(over_texels(low_state(plan)), coordinates, tuple(phases), more=dict(least=least))


def _compact(options: Published4xN) -> Form:
    """B, then each row of A in one register, with its products."""
    plan = texels(RegisterPlan(), b=0, banks=1, a=4, acc=8, cols=1, rows_apart=0).place("pair", "r5.x", 2)
    phases: list[Load | Multiply | Action] = [Load("B", (0,))]
    for row in _ROWS:
        phases += [Load("A", (row,)), Multiply((row,), (0,))]
    coordinates = noted(options, shared_a=True, shared_b=True)
    return Form(over_texels(low_state(plan)), coordinates, tuple(phases), _ROWS)


def _hybrid(options: Published4xN) -> Form:
    """B by one pair, which lies where row 0 of A will be; A brings its coordinates itself."""
    plan = RegisterPlan().place("b0", "r0.x", 16)
    for row, at in enumerate(("r4.x", "r5.x", "r6.x", "r12.x")):
        plan = plan.place(f"a{row}", at, 4)
    plan = plan.place("pair", "r4.x", 2, over=("a0",)).place("acc", "r8.x", 16)
    for name, at in (("row", "r7.x"), ("col", "r7.y"), ("ky", "r7.z"), ("k4", "r7.w")):
        plan = plan.place(name, at, 1)
    plan = plan.place("next", "r5.x", 1, over=("a1",))
    phases = (Load("B", (0,)), Load("A", _ROWS), Multiply(_ROWS, (0,)))
    return Form(over_texels(plan), noted(options, shared_b=True), phases)


def _preload(options: Published4xN) -> Form:
    """Every sample brings its coordinate in the register that it fills."""
    coordinates = replace(noted(options), first_delay_only=options.first_coord_wait_only)
    b = 13 if options.quad_b else 0
    plan = texels(RegisterPlan(), b=b, banks=1, a=4, acc=8, cols=1)
    rows, first = Load("A", _ROWS), Load("B", (0,))
    if options.quad_b:
        plan = plan.place("sampled", "r0.x", 16).place("lane", "r4.x", 1, over=("a0",))
        plan = state(plan, "r12", over=("sampled",))
        shared = QuadB(coordinates, options.quad_b_load_all, options.quad_b_shfl_mode)
        after = _sampled(coordinates, (rows,), options.batch_coords)
        return Form(over_texels(plan), coordinates, (shared, *after, Multiply(_ROWS, (0,))))
    phases = (*_sampled(coordinates, (first, rows), options.batch_coords), Multiply(_ROWS, (0,)))
    return Form(over_texels(state(plan, "r12")), coordinates, phases)


def _sampled(
    coordinates: Counted, loads: tuple[Load, ...], batched: bool
) -> tuple[Load | Multiply | Action, ...]:
    """Some samples, each behind its coordinate or all behind all of theirs."""
    return (Aim(coordinates, loads), Fetch(coordinates, loads)) if batched else loads


def _low(options: Published4xN) -> Form:
    """The low register plan of 4x8."""
    coordinates = noted(options)
    stream = options.stream_b
    banks = 2 if options.preload_b or stream else 1
    a_texels = 4
    plan = texels(RegisterPlan(), b=0, banks=banks, a=4 * banks, acc=4 * banks + a_texels, cols=2)
    plan = state(plan, f"r{4 * banks + 12}")
    if options.interleaved_a:
        plan = plan.place("quads", f"r{4 * banks + 13}.x", 1)
    a, batched = Load("A", _ROWS), options.batch_coords
    first, second = Load("B", (0,)), Load("B", (1,))
    if stream:
        phases = (
            *_sampled(coordinates, (first, a), batched),
            Multiply((0,), (0,)),
            *_sampled(coordinates, (second,), batched),
            Multiply((1, 2, 3), (0,)),
            Multiply(_ROWS, (1,)),
        )
        syncs = (0, 2) if options.sync else (0,)
    elif banks == 2:
        phases = (*_sampled(coordinates, (Load("B", (0, 1)), a), batched), Multiply(_ROWS, (0, 1)))
        syncs = (0,)
    else:
        phases = (
            *_sampled(coordinates, (first, a), batched),
            Multiply(_ROWS, (0,)),
            *_sampled(coordinates, (second,), batched),
            Multiply(_ROWS, (1,)),
        )
        syncs = (0, 1)
    more = dict(interleaved=options.interleaved_a)
    return Form(over_texels(plan), coordinates, phases, syncs, more)


def _pipeline(options: Published4xN) -> Form:
    """Two steps a pass: B a step ahead behind the first row's products, A behind those of the others."""
    plan = texels(RegisterPlan(), b=0, banks=2, a=8, acc=12, cols=2)
    for col in (0, 1):
        plan = plan.place(f"b{col}.1", f"r{21 + 4 * col}.x", 16)
    for row in _ROWS:
        plan = plan.place(f"a{row}.1", f"r{8 + row}.x", 4, over=(f"a{row}",))
    plan = state(plan.place("temporaries", "r20.z", 2), "r29", "r20.z", over=("temporaries",))
    loads = (Load("B", (0, 1)), Load("A", _ROWS))
    return Form(over_texels(plan), noted(options), _pipelined, (0,), dict(unroll=2, peel=1, primed=loads))


def _pipelined(step: Step) -> tuple[Load | Multiply, ...]:
    bank = step.index % 2
    return (
        Multiply((0,), (0, 1), bank=bank),
        Load("B", (0, 1), ahead=1, bank=1 - bank),
        Multiply((1, 2, 3), (0, 1), bank=bank),
        Load("A", _ROWS, ahead=1, bank=1 - bank),
    )


_FORMS: dict[str, Callable[[Published4xN], Form]] = {
    "compact_fp32": _compact,
    "compact_fp32_hybrid": _hybrid,
    "compact_preload": _preload,
    "low_4x8_fp32": _low,
    "pipeline": _pipeline,
}

_DIRECT: dict[str, Any] = dict(direct_f32_loads=True, sampler_per_texture=True)
_PLAIN = dict(_DIRECT, coord_delay=4)
_HYBRID = dict(_PLAIN, compact_fp32_hybrid=True)
_QUAD = dict(_DIRECT, compact_preload=True, quad_map=True)
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
    "preload-float-inputs": dict(_PLAIN, compact_preload=True, float_inputs=True),
    "preload-constant": dict(_PLAIN, compact_preload=True, post_constant=True),
    "preload-stride": dict(_PLAIN, compact_preload=True, stride=2048),
    "quad-map": dict(_QUAD, coord_delay=4),
    "quad-b": dict(_QUAD, coord_delay=-1, quad_b=True, batch_coords=True),
    "quad-b-in-turn": dict(_QUAD, coord_delay=-1, quad_b=True),
    "quad-b-load-all": dict(_QUAD, coord_delay=4, quad_b=True, quad_b_load_all=True),
    "quad-b-shfl": dict(_QUAD, coord_delay=-1, quad_b=True, batch_coords=True, quad_b_shfl_mode=6),
}

_LOW: dict[str, Any] = dict(low_4x8_fp32=True)
_BEST: dict[str, Any] = dict(
    low_4x8_fp32=True,
    preload_b=True,
    batch_coords=True,
    sampler_per_texture=True,
    coord_delay=-1,
    alu_order="kk_col_row",
)
_ROWS_4X8: Cases = {
    "p188": _BEST,
    "p191": dict(_BEST, no_store=True),
    "p192": dict(_BEST, no_store=True, skip_a_loads=True),
    "p196": dict(_LOW, stream_b=True),
    "p197": dict(_LOW, stream_b=True, sync=True),
    "p198": dict(_BEST, fregs_override=20),
    "one-bank": dict(_LOW, sampler_per_texture=True),
    "one-bank-batch": dict(_LOW, sampler_per_texture=True, batch_coords=True, coord_delay=-1),
    "preload": dict(_LOW, preload_b=True, sampler_per_texture=True),
    "interleaved": dict(_BEST, interleaved_a=True),
    "float-inputs": dict(_BEST, float_inputs=True),
    "hand-store": dict(_BEST, hand_store=True),
    "pipeline": dict(sampler_per_texture=True, coord_delay=4, pipeline=True),
    "pipeline-no-delay": dict(sampler_per_texture=True, coord_delay=-1, pipeline=True, no_store=True),
    "plain": dict(sampler_per_texture=True, coord_delay=4),
}
_ROWS_4X16: Cases = {
    "plain": dict(_PLAIN, n=2048),
}


def _words(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options by our names; what brings its coordinates was never converted, and has a sampler a texture."""
    found = renamed(given, {"first_wait_only": "first_coord_wait_only"})
    preloads = any(name.replace("-", "_") == "compact_preload" and flag(found[name]) for name in found)
    return {**_DIRECT, **found} if preloads else found


def _implied(ncols: int, given: Mapping[str, str]) -> Mapping[str, str]:
    """A row that names no form has the one that its options are about, and what lies between."""
    found, names = dict(given), given_names(_words(given))
    possible = {*_OF_COLUMNS.get(ncols, ()), *_NEEDS}
    waiting = [] if names & {*_NARROW, *_WIDE} else sorted(names & _NEEDS.keys())
    while waiting:
        needed = [option for option in _NEEDS.get(waiting.pop(), ()) if option in possible]
        if needed and names.isdisjoint(needed):
            names.add(needed[0])
            waiting.append(needed[0])
            found[needed[0]] = "true"
    return found


def _declared(name: str, ncols: int, options: type[Published4xN], rows: Cases) -> Any:
    implied = functools.partial(_implied, ncols)
    return declare(name, options, functools.partial(build, name, ncols), rows, reads=_words, implied=implied)


KERNELS = (
    _declared("gemm_4x4_fp32_published", 1, Published4xN, _ROWS_4X4),
    _declared("gemm_4x8_fp32_published", 2, Published4x8, _ROWS_4X8),
    _declared("gemm_4x16_fp32_published", 4, Published4xN, _ROWS_4X16),
)
