"""The split-A schedules of the published 8-row GEMMs: rows 0 to 3, then 4 to 7, through few texels of A."""

from __future__ import annotations

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.eight_rows import LOWER, ROWS, UPPER, Published, ends, epilogue, skipped, word
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.rewritten import NO_DELAY, OnePair
from pytest_qcom.kernels.schedule import Load, Multiply, Phases, Schedule, Step

_NEXT = (
    "split_prefetch_next_a",
    "split_interleave_next_b",
    "split_stream_next_b0",
    "split_stream_next_b1",
    "split_prefetch_loop_b",
)
"""What needs split-prefetch-next-b."""
_LAYOUTS = ("split_low_a", "split_high_a", "split_buffer_a", "split_preload_a8")
_B_FORMS = ("grouped_b", "grouped_b_cols", "split_inline_b_wait", "split_pair_b_coords", "split_base_b_y")


_SETTLED = 5
"""Delay of the samples that are not ahead, where those of the next step are. Inferred: without prefetch the
notes need a delay of 3 and have wrong outputs with 2, with prefetch they have right ones with 0."""


def split(name: str, options: Published) -> Schedule:
    """The schedule of 8x8 or 8x16 with ``split-a``.

    Raises:
        KernelError: options that do not go together.
    """
    _check(name, options)
    wide = options.ncols == 4
    tile = Tile(ROWS, options.ncols, options.threads, options.swap_grid)
    return Schedule(
        tile=tile,
        plan=_wide_plan() if wide else _plan(options),
        phases=_wide() if wide else lambda step: _phases(options, step),
        coordinates=_coordinates(options),
        epilogue=epilogue(options),
        scalar_first=True,
        sync=lambda products, step: _sync(options, products, step),
        waits="written",
        unroll=max(1, options.split_k_unroll),
        primed=(Load("B", (0, 1)),) if options.split_prefetch_loop_b else (),
        peel=int(options.split_prefetch_loop_b),
    )


def declared(options: Published) -> tuple[int, int]:
    """(fregs, hregs) that the notes declare."""
    if options.ncols == 4:
        return 12, 48
    hregs = 32 if options.split_buffer_a or options.split_preload_a8 else 28
    if options.split_quad_a and options.split_high_a:
        return 14, hregs
    return (10 if options.donor8_add256_store else 12), hregs


def _check(name: str, options: Published) -> None:
    def together(first: str, *others: str) -> None:
        given = [other for other in others if getattr(options, other) and other != first]
        if getattr(options, first) and given:
            raise KernelError(f"{name}: {word(first)} with {word(given[0])}; give one of them")

    if options.split_k_unroll < 0:
        raise KernelError(f"{name}: split-k-unroll is {options.split_k_unroll}; give 1 or more")
    if not options.split_prefetch_next_b:
        for option in _NEXT:
            if getattr(options, option):
                raise KernelError(f"{name}: {word(option)} needs split-prefetch-next-b; give it too")
    if options.split_next_a_first and not options.split_prefetch_next_a:
        raise KernelError(f"{name}: split-next-a-first needs split-prefetch-next-a; give it too")
    for group in (_LAYOUTS, _B_FORMS, ("split_interleave_next_b", "split_stream_next_b0")):
        for option in group:
            together(option, *group)
    together("split_hoist_b0_coord", "grouped_b", "grouped_b_cols", "split_pair_b_coords")
    together("split_prefetch_next_a", "split_buffer_a", "split_preload_a8", "split_quad_a")
    together("stream_b1", "split_prefetch_next_b")
    if options.split_inline_b_nop not in (1, 2, 3):
        raise KernelError(f"{name}: split-inline-b-nop is {options.split_inline_b_nop}; give 1, 2 or 3")
    if options.ncols == 4:
        for option in (*_NEXT, *_LAYOUTS, *_B_FORMS, "split_prefetch_next_b", "stream_b1", "split_quad_a"):
            if getattr(options, option):
                raise KernelError(f"{name}: {word(option)} is about 2 vec4 columns; leave it out")


def _coordinates(options: Published) -> OnePair:
    grouped = "all" if options.grouped_b else "column" if options.grouped_b_cols else ""
    prefetch = options.split_prefetch_next_b
    return OnePair(
        a_delay=options.a_coord_delay,
        b_delay=options.b_coord_delay,
        skip=skipped(options),
        fast=options.split_fast_coords,
        hoisted=options.split_hoist_b0_coord,
        grouped=grouped,
        two_pairs=options.split_pair_b_coords,
        inline=options.split_inline_b_nop if options.split_inline_b_wait else 0,
        base_y=options.split_base_b_y,
        add_rows=options.split_add_a_rows,
        x_once=prefetch and not options.split_next_a_first,
        quad=options.split_quad_a,
        flagged=options.ncols == 4,
        settled=_SETTLED if prefetch else NO_DELAY,
    )


def _sync(options: Published, products: int, step: Step) -> bool:
    """One (sy) a loop body; the form without unroll and the wide one have one a group."""
    if options.strip_mad_sy:
        return False
    if options.ncols == 4:
        return True
    if not options.split_k_unroll:
        return products == 0 or not options.no_next_sy
    return products == 0 and step.index == 0


def _phases(options: Published, step: Step) -> Phases:
    if options.stream_b1:
        upper = Multiply(UPPER, (0, 1), behind=(Load("B", (1,)),))
        return (Load("B", (0,)), Load("A", UPPER), upper, Load("A", LOWER), Multiply(LOWER, (0, 1)))
    first: list[Load] = []
    if not options.split_prefetch_next_b or (step.index == 0 and not options.split_prefetch_loop_b):
        first.append(Load("B", (0, 1)))
    if not options.split_prefetch_next_a or step.index == 0:
        first.append(Load("A", UPPER))
    last = step.index == step.count - 1 and not options.split_prefetch_loop_b
    lower = [phase for phase in _lower(options) if isinstance(phase, Multiply) or not last]
    return (*first, *_upper(options), *lower)


def _upper(options: Published) -> tuple[Load | Multiply, ...]:
    """The products of rows 0 to 3 and the samples of rows 4 to 7."""
    a = Load("A", LOWER)
    if options.split_preload_a8:
        return (a, Multiply(UPPER, (0, 1)))
    if options.split_buffer_a:
        return (Multiply(UPPER, (0,)), a, Multiply(UPPER, (1,)))
    return (Multiply(UPPER, (0, 1)), a)


def _lower(options: Published) -> tuple[Load | Multiply, ...]:
    """The products of rows 4 to 7, with what is sampled ahead among them."""
    if not options.split_prefetch_next_b:
        return (Multiply(LOWER, (0, 1)),)
    phases: list[Load | Multiply] = []
    if options.split_stream_next_b0:
        phases += _stream(0)
    else:
        phases.append(Multiply(LOWER, (0,)))
        phases.append(Load("B", (0,), kk=(0, 1) if options.split_interleave_next_b else UPPER, ahead=1))
    second = [Load("B", (1,), ahead=1)]
    following = [Load("A", UPPER, ahead=1)] if options.split_prefetch_next_a else []
    if options.split_interleave_next_b:
        phases += [Multiply(LOWER[:2], (1,)), Load("B", (0,), kk=(2, 3), ahead=1), Multiply(LOWER[2:], (1,))]
    elif options.split_stream_next_b1:
        return (*phases, *_stream(1), *following)
    else:
        phases.append(Multiply(LOWER, (1,)))
    late = [*following, *second] if options.split_next_a_first else [*second, *following]
    return (*phases, *late)


def _stream(col: int) -> list[Load | Multiply]:
    """The last products of a column by k, each k's texel sampled anew behind its own."""
    phases: list[Load | Multiply] = []
    for kk in range(4):
        phases += [Multiply(LOWER, (col,), kk=(kk,)), Load("B", (col,), kk=(kk,), ahead=1)]
    return phases


def _wide() -> Phases:
    """Four columns through two sets of texels; all rows of A stay."""
    rows = UPPER + LOWER
    return (
        Load("B", (0, 1)),
        Load("A", rows),
        Multiply(rows, (0,)),
        Load("B", (2,)),
        Multiply(rows, (1,)),
        Load("B", (3,)),
        Multiply(rows, (2,)),
        Multiply(rows, (3,)),
    )


def _state(plan: RegisterPlan) -> RegisterPlan:
    """Counters, place and pair where the notes have them."""
    places = {"ky": "r6.y", "k4": "r6.z", "row": "r7.x", "col": "r7.y", "next": "r0.x"}
    for name, at in places.items():
        plan = plan.place(name, at, 1)
    return plan.place("pair", "r4.y", 2)


def _plan(options: Published) -> RegisterPlan:
    b, a, acc = 0, 8, 12
    if options.split_low_a:
        b, a = 4, 0
    elif options.split_high_a:
        a, acc = 24, 8
    own_lower = options.split_buffer_a or options.split_preload_a8
    if own_lower:
        acc = 16
    plan = RegisterPlan().place("b0", f"hr{b}.x", 16).place("b1", f"hr{b + 4}.x", 16)
    for row in UPPER:
        plan = plan.place(f"a{row}", f"hr{a + row}.x", 4)
    for row in LOWER:
        if own_lower:
            plan = plan.place(f"a{row}", f"hr{a + row}.x", 4)
        else:
            plan = plan.place(f"a{row}", f"hr{a + row - 4}.x", 4, over=(f"a{row - 4}",))
    plan = _state(plan.place("acc", f"hr{acc}.x", 8 * ROWS))
    if options.split_fast_coords:
        plan = plan.place("right", "r6.w", 1)
    if options.split_hoist_b0_coord:
        plan = plan.place("hoisted", "r8.x", 2)
    if options.grouped_b or options.grouped_b_cols or options.split_pair_b_coords:
        plan = plan.place("b_pairs0", "r4.x", 8, over=("pair",))
    if options.grouped_b or options.grouped_b_cols:
        plan = plan.place("b_pairs1", "r8.x", 8)
    if options.split_quad_a:
        plan = plan.place("lane", "r8.x", 1).place("indices", "r9.x", 4)
        plan = plan.place("quad", f"r{a // 2}.x", 8, over=("pair",))
    return ends(plan)


def _wide_plan() -> RegisterPlan:
    plan = RegisterPlan().place("b0", "hr0.x", 16).place("b1", "hr4.x", 16)
    for row in range(ROWS):
        plan = plan.place(f"a{row}", f"hr{8 + row}.x", 4)
    return ends(_state(plan.place("acc", "hr16.x", 16 * ROWS)))
