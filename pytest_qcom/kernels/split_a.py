"""The split-A schedules of the published 8-row GEMMs: rows 0 to 3, then 4 to 7, through few texels of A."""

from __future__ import annotations

from dataclasses import replace

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.choices import NO_DELAY, exclude, extended, require, word
from pytest_qcom.kernels.eight_ends import epilogue, skipped
from pytest_qcom.kernels.eight_rows import LOWER, ROWS, UPPER, Published
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.noted import Idle
from pytest_qcom.kernels.rewritten import AHEAD, OnePair, PairSets
from pytest_qcom.kernels.schedule import Load, Multiply, Phase, Phases, Schedule, Step
from pytest_qcom.kernels.split_registers import HIGH_PAIRS, SETS, high_pairs_shared, plan, wide_plan
from pytest_qcom.kernels.stores import STEP_WAIT

_NEXT = (
    "split_prefetch_next_a",
    "split_interleave_next_b",
    "split_stream_next_b0",
    "split_stream_next_b1",
    "split_prefetch_loop_b",
)
"""What needs split-prefetch-next-b."""
_ORDERS = (
    "split_reuse_b",
    "split_row_stream",
    "split_phase_stream",
    "split_stream_b_a8",
    "split_prefetch_next_b",
)
"""Orders of samples and products that exclude each other."""
_OWN_LOWER = ("split_buffer_a", "split_preload_a8", "split_one_sync_tile", "split_stream_b_a8")
_B_FORMS = ("grouped_b", "grouped_b_cols", "split_inline_b_wait", "split_pair_b_coords")
_SINGLES = (
    "split_high_a",
    "split_low_a",
    "split_prefetch_next_a",
    "split_one_sync_tile",
    "split_buffer_a",
    "split_preload_a8",
    "split_interleave_a4",
)
_ALL = UPPER + LOWER
_SETTLED = 5
"""Delay of the samples that are not ahead, where those of the next step are; not what was published.

The published code has the option's delay there too. Without prefetch the notes need a delay of 3 and have
wrong outputs with 2, with prefetch they have right ones with 0: a coordinate that is too late at the start of
a wave would be wrong in both, so what differs is not known."""


def split(name: str, options: Published, waits: str = "written") -> Schedule:
    """The schedule of 8x8 or 8x16 with ``split-a``.

    Raises:
        KernelError: options that do not go together.
    """
    _check(name, options)
    wide = options.ncols == 4
    return Schedule(
        tile=Tile(ROWS, options.ncols, options.threads, options.swap_grid),
        plan=wide_plan(options) if wide else plan(options),
        phases=lambda step: rowwise(
            options, _timed(options, _wide() if wide else _phases(options, step), step)
        ),
        coordinates=_coordinates(options),
        epilogue=epilogue(options, waits),
        order=options.alu_order or "row_col_kk",
        scalar_first=True,
        sync=lambda products, step: waits == "written" and _sync(options, products, step),
        waits=waits,
        unroll=max(1, options.split_k_unroll),
        primed=(Load("B", (0, 1)),) if options.split_prefetch_loop_b else (),
        peel=int(options.split_prefetch_loop_b),
        b_index=(lambda col, kk: kk % 2) if options.split_stream_b_a8 else None,
        reserved=divmod(options.split_reserved_out, 2) if options.split_reserved_out >= 0 else None,
        zero_from_first=True,
    )


def declared(options: Published) -> tuple[int, int]:
    """(fregs, hregs) that the notes declare, for the plan's own where they have no figure."""
    if options.ncols == 4:
        return 30 if options.split_safe_coords else 12, 48
    fregs, hregs = plan(options).footprint()
    if not (options.split_reuse_b or options.split_row_stream):
        hregs = max(hregs, 28)
    if options.split_quad_a and options.split_high_a:
        return max(14, fregs), hregs
    return max(10 if options.donor8_add256_store else 12, fregs), hregs


def _check(name: str, options: Published) -> None:
    if options.split_inline_b_nop not in (1, 2, 3):
        raise KernelError(f"{name}: split-inline-b-nop is {options.split_inline_b_nop}; give 1, 2 or 3")
    for option in _NEXT:
        require(name, options, option, "split_prefetch_next_b")
    for option, needed in (
        ("split_next_a_first", "split_prefetch_next_a"),
        ("split_triple_coords", "split_separate_coords"),
        ("split_dual_a_coords", "split_triple_coords"),
        ("split_low_stable_coords", "split_mid_acc"),
        ("split_stream_b_a8", "split_high_a"),
        ("split_stream_b_a8", "split_low_pairs"),
        ("split_interleave_a4", "stream_b1"),
        ("stream_b1_sync", "stream_b1"),
        ("split_interleave_a_reuse_gap", "split_interleave_a4"),
        ("split_sync_wait", "split_relaxed_sync"),
    ):
        require(name, options, option, needed)
    _check_orders(name, options)
    _check_coordinates(name, options)
    if options.ncols == 4:
        _check_wide(name, options)


def _check_orders(name: str, options: Published) -> None:
    """Which orders and texels go together."""
    for group in (
        _ORDERS,
        _OWN_LOWER,
        _B_FORMS,
        SETS,
        ("split_low_a", "split_high_a", "split_mid_acc"),
        ("split_low_a", "split_high_inputs"),
        ("split_high_a", "split_high_inputs"),
        ("split_interleave_next_b", "split_stream_next_b0"),
        ("split_prefetch_next_a", *_OWN_LOWER),
    ):
        exclude(name, options, group)
    for option in ("split_reuse_b", "split_row_stream", "split_phase_stream"):
        for single in _SINGLES:
            exclude(name, options, (option, single))
    for option in ("split_reuse_b", "split_row_stream", "split_phase_stream", "split_stream_b_a8"):
        exclude(name, options, ("stream_b1", option))
    for option in (*_OWN_LOWER, "split_prefetch_loop_b"):
        exclude(name, options, ("stream_b1", option))
    exclude(name, options, ("split_interleave_a4", "split_prefetch_next_b"))


def _check_wide(name: str, options: Published) -> None:
    """What 8x16 does not have."""
    for option in (
        *_NEXT,
        *_ORDERS,
        "stream_b1",
        *_OWN_LOWER,
        *_B_FORMS,
        *(option for option in SETS if option != "split_safe_coords"),
        *_SINGLES,
        "split_quad_a",
        "split_mid_acc",
        "split_high_pair_a",
        "split_high_pair_b",
        "split_high_pair_coords",
    ):
        if getattr(options, option):
            raise KernelError(f"{name}: {word(option)} is about 2 vec4 columns; leave it out")


def _check_coordinates(name: str, options: Published) -> None:
    """Whose coordinates go together."""
    for option in SETS:
        if option != "split_low_pairs":
            exclude(name, options, (option, "split_high_pair_b"))
        exclude(name, options, (option, "split_high_pair_coords"))
    sets = [option for option in (*SETS, *HIGH_PAIRS) if getattr(options, option)]
    for option in (
        "split_hoist_b0_coord",
        *_B_FORMS,
        "split_base_b_y",
        "split_quad_a",
        "split_single_high_coord",
    ):
        for other in sets:
            exclude(name, options, (option, other))
    for option in ("grouped_b", "grouped_b_cols", "split_pair_b_coords"):
        exclude(name, options, ("split_hoist_b0_coord", option))
        exclude(name, options, ("split_base_b_y", option))
    for option in ("split_row_stream", "split_phase_stream", "split_prefetch_next_a", *_OWN_LOWER):
        exclude(name, options, ("split_quad_a", option))


def _coordinates(options: Published) -> OnePair:
    prefetch = options.split_prefetch_next_b
    common = OnePair(
        a_delay=NO_DELAY if options.split_k_unroll else options.a_coord_delay,
        b_delay=options.b_coord_delay,
        skip=skipped(options),
        ahead=0 if options.split_base_b_y else AHEAD,
        start=options.k_start,
        hold=options.split_source_hold_delay,
        gap=options.split_unroll_gap - 1,
        fast=options.split_fast_coords,
        hoisted=options.split_hoist_b0_coord,
        grouped="all" if options.grouped_b else "column" if options.grouped_b_cols else "",
        two_pairs=options.split_pair_b_coords,
        inline=options.split_inline_b_nop if options.split_inline_b_wait else 0,
        base_y=options.split_base_b_y,
        add_rows=options.split_add_a_rows,
        x_once=_x_once(options),
        delay_all=options.split_serial_safe_coords,
        quad=options.split_quad_a,
        quad_map=tuple(map(int, options.split_quad_map)),
        flagged=options.ncols == 4 or options.split_sampler_source_sync,
        settled=_SETTLED if prefetch else NO_DELAY,
    )
    if not any(getattr(options, option) for option in (*SETS, *HIGH_PAIRS)):
        return common
    shared = options.split_low_stable_coords or (options.split_low_pairs and options.split_high_a)
    shared = shared and not options.split_high_pair_a
    return extended(PairSets, common, shared=shared or high_pairs_shared(options))


def _x_once(options: Published) -> bool:
    """Whether A's x still stands in the pair when rows 4 to 7 are sampled."""
    between = options.split_next_a_first or options.stream_b1  # column 1 takes the pair
    return options.split_prefetch_next_b and not between


def _sync(options: Published, products: int, step: Step) -> bool:
    """One (sy) a loop body; the form without unroll and the wide one have one a group."""
    if options.strip_mad_sy:
        return False
    if options.ncols == 4:
        return True
    if not options.split_k_unroll:
        return products == 0 or not options.no_next_sy
    return products == 0 and step.index == 0


def _timed(options: Published, phases: Phases, step: Step) -> Phases:
    """The groups of products with their (sy), where it is chosen by a mask, and what is idle before them."""
    found: list[Phase] = []
    group = -1
    for phase in phases:
        if not isinstance(phase, Multiply):
            found.append(phase)
            continue
        streamed = phase.sync is None and len(phase.kk) == 1
        group += not streamed or phase.kk[0] == 0
        sync = phase.sync
        if options.split_relaxed_sync and sync is None and not options.strip_mad_sy:
            bit = _STREAM_BIT if streamed else group % 3
            sync = bool(options.split_sync_mask >> bit & 1) and not phase.kk[0]
            if not sync and options.split_sync_wait:
                found.append(Idle(options.split_sync_wait - 1))
        if options.split_pre_mad_nops != NO_DELAY:
            found.append(Idle(options.split_pre_mad_nops))
        found.append(replace(phase, sync=sync))
    return tuple(found)


_STREAM_BIT = 3
"""Of ``split-sync-mask``: the first products of those whose texels are refilled k by k."""


def rowwise(options: Published, phases: Phases) -> Phases:
    """With ``row-sync`` a (sy) before the first product of each row."""
    if not options.row_sync:
        return phases
    found: list[Phase] = []
    for phase in phases:
        if not isinstance(phase, Multiply):
            found.append(phase)
            continue
        for number, row in enumerate(phase.rows):
            behind = () if number else phase.behind
            found.append(Multiply((row,), phase.cols, phase.kk, behind, phase.bank, sync=True))
    return tuple(found)


def _phases(options: Published, step: Step) -> Phases:
    if options.split_reuse_b:
        return tuple(phase for col in (0, 1) for phase in _reused(col))
    if options.split_row_stream or options.split_phase_stream:
        rows = [(Load("A", (row,)), Multiply((row,), (0, 1), sync=True)) for row in _ALL]
        return (Load("B", (0, 1)), *(phase for pair in rows for phase in pair))
    if options.split_stream_b_a8:
        return _ping_pong()
    if options.stream_b1 and not options.split_prefetch_next_b:
        return _streamed(options)
    first: list[Load] = []
    late = options.stream_b1 and step.index == 0  # column 1 of the first step, behind its first product
    if not options.split_prefetch_next_b or (step.index == 0 and not options.split_prefetch_loop_b):
        first.append(Load("B", (0,) if late else (0, 1)))
    if not options.split_prefetch_next_a or step.index == 0:
        first.append(Load("A", UPPER))
    last = step.index == step.count - 1 and not options.split_prefetch_loop_b
    lower = [phase for phase in _lower(options) if isinstance(phase, Multiply) or not last]
    return (*first, *(_late(options) if late else _upper(options)), *lower)


def _late(options: Published) -> Phases:
    """Column 1 behind the first product, then rows 4 to 7."""
    behind = (Load("B", (1,)),)
    if options.stream_b1_sync:
        products = Multiply(UPPER, (0,), behind=behind), Multiply(UPPER, (1,), sync=True)
        return (*products, Load("A", LOWER))
    return (Multiply(UPPER, (0, 1), behind=behind), Load("A", LOWER))


def _reused(col: int) -> Phases:
    """All rows of one column."""
    cols = (col,)
    return (
        Load("B", cols),
        Load("A", UPPER),
        Multiply(UPPER, cols, sync=True),
        Load("A", LOWER),
        Multiply(LOWER, cols, sync=True),
    )


def _ping_pong() -> Phases:
    """All rows stay; each texel of B is sampled while the one before it is multiplied."""
    places = [(col, kk) for col in (0, 1) for kk in range(4)]
    found: list[Load | Multiply] = [Load("A", UPPER), Load("A", LOWER), Load("B", (0,), (0,))]
    for number, (col, kk) in enumerate(places):
        if number + 1 < len(places):
            following, depth = places[number + 1]
            found.append(Load("B", (following,), (depth,)))
        found.append(Multiply(_ALL, (col,), (kk,), sync=True))
    return tuple(found)


def _streamed(options: Published) -> Phases:
    """Column 1 behind the first product; rows 4 to 7 at once, or each behind the row whose texel it takes."""
    start = (Load("B", (0,)), Load("A", UPPER))
    if not options.split_interleave_a4:
        return (*start, *_late(options), Multiply(LOWER, (0, 1)))
    found: list[Load | Multiply | Idle] = [*start]
    gap = (_idle(options.split_interleave_a_reuse_gap),) if options.split_interleave_a_reuse_gap else ()
    for row in UPPER:
        found.append(Multiply((row,), (0,), behind=() if row else (Load("B", (1,)),)))
        found.append(Multiply((row,), (1,), sync=options.stream_b1_sync and not row))
        found += [*gap, Load("A", (row + 4,))]
    return (*found, Multiply(LOWER, (0, 1), sync=True))


def _idle(gap: int) -> Idle:
    """A gap as the notes' encoder made it: a wait, or one idle slot."""
    return Idle(NO_DELAY, ss=True) if gap == STEP_WAIT else Idle(0)


def _upper(options: Published) -> tuple[Load | Multiply, ...]:
    """The products of rows 0 to 3 and the samples of rows 4 to 7."""
    a = Load("A", LOWER)
    if options.split_preload_a8 or options.split_one_sync_tile:
        return (a, Multiply(UPPER, (0, 1)))
    if options.split_buffer_a:
        return (Multiply(UPPER, (0,)), a, Multiply(UPPER, (1,)))
    return (Multiply(UPPER, (0, 1)), a)


def _lower(options: Published) -> tuple[Load | Multiply, ...]:
    """The products of rows 4 to 7, with what is sampled ahead among them."""
    sync = False if options.split_one_sync_tile else None
    if not options.split_prefetch_next_b:
        return (Multiply(LOWER, (0, 1), sync=sync),)
    phases: list[Load | Multiply] = []
    if options.split_stream_next_b0:
        phases += _stream(0)
    else:
        phases.append(Multiply(LOWER, (0,), sync=sync))
        phases.append(Load("B", (0,), kk=(0, 1) if options.split_interleave_next_b else UPPER, ahead=1))
    second = [Load("B", (1,), ahead=1)]
    following = [Load("A", UPPER, ahead=1)] if options.split_prefetch_next_a else []
    if options.split_interleave_next_b and options.split_stream_next_b1:
        return (*phases, Load("B", (0,), kk=(2, 3), ahead=1), *_stream(1), *following)
    if options.split_interleave_next_b:
        phases += [Multiply(LOWER[:2], (1,)), Load("B", (0,), kk=(2, 3), ahead=1), Multiply(LOWER[2:], (1,))]
    elif options.split_stream_next_b1:
        return (*phases, *_stream(1), *following)
    else:
        phases.append(Multiply(LOWER, (1,), sync=sync))
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
    return (
        Load("B", (0, 1)),
        Load("A", _ALL),
        Multiply(_ALL, (0,)),
        Load("B", (2,)),
        Multiply(_ALL, (1,)),
        Load("B", (3,)),
        Multiply(_ALL, (2,)),
        Multiply(_ALL, (3,)),
    )
