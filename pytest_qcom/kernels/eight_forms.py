"""The published 8-row FP16 GEMMs but for split-A: what each samples and multiplies, in which registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_qcom.kernels.eight_ends import ends, epilogue, placed, skipped
from pytest_qcom.kernels.eight_rows import LOWER, ROWS, UPPER, Published
from pytest_qcom.kernels.fresh import Fresh, Unfolded
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.noted import Drain
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.rewritten import OnePair, Preset
from pytest_qcom.kernels.schedule import Coordinates, Load, Multiply, Phases, Schedule, Step
from pytest_qcom.kernels.split_a import rowwise

Form = tuple[Schedule, tuple[int, int]]
"""A schedule, and (fregs, hregs) as declared."""

_ROWS = UPPER + LOWER
_PAIRS = {
    "first": ("r8.w", "r9.y", "r9.w", "r10.y"),
    "second": ("r13.x", "r13.z", "r14.x", "r14.z"),
    "wide-first": ("r24.z", "r12.y", "r12.w", "r13.y"),
    "wide-second": ("r13.w", "r14.y", "r14.w", "r15.y"),
}
"""Preset pairs of the columns of B, where the vendor compiler has them for one and for two columns."""


def _schedule(
    options: Published,
    plan: RegisterPlan,
    phases: Phases | Callable[[Step], Phases],
    coordinates: Coordinates,
    sync: Callable[[int, Step], bool],
    unroll: int = 1,
) -> Schedule:
    """Everything but split-A: products by k, then row, then column."""
    return Schedule(
        tile=Tile(ROWS, options.ncols, options.threads, options.swap_grid),
        plan=ends(plan, options.image_store),
        phases=lambda step: rowwise(options, phases(step) if callable(phases) else phases),
        coordinates=coordinates,
        epilogue=epilogue(options),
        order=options.alu_order or "kk_row_col",
        scalar_first=True,
        sync=(lambda products, step: False) if options.strip_mad_sy else sync,
        waits="written",
        unroll=unroll,
        zero_from_first=True,
    )


def serial(name: str, options: Published) -> Form:
    """All rows, then one column after the other through the same four texels; a (sy) a column."""
    plan = _texels(_none(options), a=0, b=(8,)).place("acc", "hr16.x", 4 * ROWS * options.ncols)
    places = {"pair": ("r4.y", 2), "ky": ("r6.y", 1), "k4": ("r6.z", 1), "row": ("r7.x", 1)}
    plan = placed(plan, {**places, "col": ("r7.y", 1), "next": ("r0.x", 1)})
    coordinates = OnePair(
        options.a_coord_delay,
        options.b_coord_delay,
        skip=skipped(options),
        start=options.k_start,
        add_rows=True,
        delay_all=True,
    )
    phases: list[Load | Multiply] = [Load("A", _ROWS)]
    for col in range(options.ncols):
        phases += [Load("B", (col,)), Multiply(_ROWS, (col,))]
    schedule = _schedule(options, plan, tuple(phases), coordinates, lambda products, step: True)
    hregs = 16 + 8 * options.ncols
    if options.donor_store:
        return schedule, (15, hregs)
    return schedule, (8 if options.profile else 12, hregs)


def donor(name: str, options: Published) -> Form:
    """The compiler's loop: a preset pair a sample, everything sampled, then multiplied."""
    cols = tuple(range(options.ncols))
    if options.ncols == 1:
        plan = _texels(_none(options), a=0, b=(8,)).place("acc", "hr16.x", 4 * ROWS)
        plan, footprint, ahead = _preset(plan, ("first",)), (12, 24), 3
    else:
        plan = _texels(_none(options), a=0, b=(8, 12)).place("acc", "hr16.x", 8 * ROWS)
        plan = placed(plan, {"a_pairs": ("r7.w", 16), "ky": ("r15.w", 1), "k4": ("r16.w", 1)})
        plan = placed(plan, {"row": ("r24.x", 1), "col": ("r24.y", 1)})
        plan = _pairs(plan, ("wide-first", "wide-second")).place("next", "r8.y", 1, over=("a_pairs",))
        footprint, ahead = (28, 32), 0
    phases = (Load("A", _ROWS), Load("B", cols), Multiply(_ROWS, cols))
    coordinates = Preset(
        options.a_coord_delay, options.b_coord_delay, ahead, skipped(options), options.k_start
    )
    return _schedule(options, plan, phases, coordinates, _first), footprint


def twopass(name: str, options: Published) -> Form:
    """Both columns with the registers of the compiler's one; a second set of preset pairs above."""
    plan = _texels(_none(options), a=0, b=(8, 12)).place("acc", "hr16.x", 8 * ROWS)
    phases: Phases = (Load("A", _ROWS), Load("B", (0, 1)), Multiply(_ROWS, (0, 1)))
    if options.overlap_b1:
        later = Load("B", (1,))
        phases = (
            Load("A", _ROWS),
            Load("B", (0,)),
            Multiply(_ROWS, (0,), behind=(later,)),
            Multiply(_ROWS, (1,), sync=not options.strip_mad_sy),
        )
    coordinates = _preset_pairs(options)
    return _schedule(options, _preset(plan, ("first", "second")), phases, coordinates, _first), (15, 32)


def pipeline(name: str, options: Published) -> Form:
    """Two sets of texels over 2 or 4 K steps; the next set is sampled before the products of this one."""
    if options.ncols == 1:
        plan = _texels(_texels(_none(options), a=0, b=(8,)), a=12, b=(20,), bank=1)
        plan = _preset(plan.place("acc", "hr24.x", 4 * ROWS), ("first",))
    else:
        plan = _texels(_texels(_none(options), a=0, b=(8, 12)), a=32, b=(40, 44), bank=1)
        plan = _preset(plan.place("acc", "hr16.x", 8 * ROWS), ("first", "second"))
    cols = tuple(range(options.ncols))
    sync = _first_set if options.no_next_sy or options.batch2 else _first
    coordinates = _preset_pairs(options)
    schedule = _schedule(
        options,
        plan,
        lambda step: _two_sets(cols, step),
        coordinates,
        sync,
        unroll=4 if options.pipeline4 else 2,
    )
    return schedule, (12, 32) if options.ncols == 1 else (15, 48)


def _two_sets(cols: tuple[int, ...], step: Step) -> Phases:
    bank = step.index % 2
    phases: list[Load | Multiply] = []
    if step.index == 0:
        phases += [Load("A", _ROWS), Load("B", cols)]
    if step.index < step.count - 1:
        other = 1 - bank
        phases += [Load("A", _ROWS, ahead=1, bank=other), Load("B", cols, ahead=1, bank=other)]
    return (*phases, Multiply(_ROWS, cols, bank=bank))


def _preset_pairs(options: Published) -> Preset:
    delays = options.a_coord_delay, options.b_coord_delay
    return Preset(*delays, skip=skipped(options), start=options.k_start)


def preload(name: str, options: Published) -> Form:
    """All columns, then all rows, through one pair, each sample waiting for the one before."""
    n = options.ncols
    plan = _none(options)
    for col in range(n):
        plan = plan.place(f"b{col}", f"hr{4 * col}.x", 16)
    for row in range(ROWS):
        plan = plan.place(f"a{row}", f"hr{4 * n + row}.x", 4)
    plan = plan.place("acc", f"hr{4 * n + 12}.x", 4 * ROWS * n)
    at = 10 if n == 3 else 8
    places = {"row": f"r{at}.w", "col": f"r{at + 1}.x", "ky": f"r{at + 1}.y", "k4": f"r{at + 1}.z"}
    plan = placed(plan, {name: (place, 1) for name, place in places.items()})
    plan = placed(plan, {"pair": (f"r{at}.y", 2), "next": (f"r{at + 1}.w", 1)})
    coordinates = OnePair(
        options.a_coord_delay,
        options.b_coord_delay,
        skip=skipped(options),
        start=options.k_start,
        flagged_samples=True,
        add_rows=True,
        delay_all=True,
    )
    cols = tuple(range(n))
    phases = (Load("B", cols), Load("A", _ROWS), Drain(), Multiply(_ROWS, cols), Drain())
    schedule = _schedule(options, plan, phases, coordinates, lambda products, step: True)
    primed = (Load("B", (0,), kk=(0,)),)
    return replace(schedule, primed=primed), schedule.plan.footprint()


def lifetime(name: str, options: Published) -> Form:
    """Few pairs, one register for row and k, every wait."""
    plan = _group_texels(options, acc=12).place("b_pairs", "r4.x", 8).place("a_pairs", "r14.x", 6)
    plan = placed(plan, {"col": ("r15.z", 1), "row": ("r15.w", 1), "count": ("r6.x", 1)})
    return _fresh(options, plan, folded=True, unroll=options.split_k_unroll or 4), (16, 32)


def self_coords(name: str, options: Published) -> Form:
    """Pairs where, in merged mode, their results lie, every wait."""
    plan = _group_texels(options, acc=16).place("b_pairs", "r0.x", 16, over=("b0", "b1"))
    plan = plan.place("a_pairs", "r4.x", 8, over=tuple(f"a{row}" for row in _ROWS))
    places = {"row": "r6.x", "col": "r6.y", "k4": "r6.z", "ky": "r6.w"}
    plan = placed(plan, {name: (place, 1) for name, place in places.items()})
    return _fresh(options, plan, folded=False, unroll=options.split_k_unroll or 1), (8, 32)


def _group_texels(options: Published, acc: int) -> RegisterPlan:
    """Both columns of B, four texels that the rows of A share, and accumulators."""
    plan = _none(options).place("b0", "hr0.x", 16).place("b1", "hr4.x", 16)
    for row in _ROWS:
        plan = plan.place(f"a{row}", f"hr{8 + row % 4}.x", 4, over=(f"a{row - 4}",))
    return plan.place("acc", f"hr{acc}.x", 8 * ROWS)


def _fresh(options: Published, plan: RegisterPlan, folded: bool, unroll: int) -> Schedule:
    coordinates = Fresh(
        folded, options.a_coord_delay, options.b_coord_delay, skipped(options), options.k_start
    )
    phases = (
        Load("B", (0, 1)),
        Load("A", UPPER),
        Multiply(UPPER, (0, 1)),
        Load("A", LOWER),
        Multiply(LOWER, (0, 1)),
    )
    schedule = _schedule(options, plan, phases, coordinates, lambda products, step: False, unroll)
    store = epilogue(options, "legal")
    return replace(
        schedule,
        order=options.alu_order or "row_col_kk",
        waits="legal",
        epilogue=Unfolded(store) if folded else store,
        zero_from_first=False,
    )


def _first(products: int, step: Step) -> bool:
    return products == 0


def _first_set(products: int, step: Step) -> bool:
    """Only the first of the two sets; what was sampled before it has arrived with it."""
    return products == 0 and step.index % 2 == 0


def _none(options: Published) -> RegisterPlan:
    """No registers yet, of one file or of two."""
    return RegisterPlan(merged=options.mergedregs)


def _texels(plan: RegisterPlan, a: int, b: tuple[int, ...], bank: int = 0) -> RegisterPlan:
    for row in range(ROWS):
        plan = plan.place(Schedule.texels("a", row, bank), f"hr{a + row}.x", 4)
    for col, at in enumerate(b):
        plan = plan.place(Schedule.texels("b", col, bank), f"hr{at}.x", 16)
    return plan


def _preset(plan: RegisterPlan, columns: tuple[str, ...]) -> RegisterPlan:
    """Where the compiler's kernel of one column has its state."""
    places = {"a_pairs": ("r4.w", 16), "ky": ("r10.w", 1), "k4": ("r11.x", 1), "row": ("r11.z", 1)}
    plan = placed(plan, {**places, "col": ("r11.w", 1), "next": ("r0.x", 1)})
    return _pairs(plan, columns)


def _pairs(plan: RegisterPlan, columns: tuple[str, ...]) -> RegisterPlan:
    for col, name in enumerate(columns):
        for kk, at in enumerate(_PAIRS[name]):
            plan = plan.place(f"b{col}.pair{kk}", at, 2)
    return plan
