"""Published FP16 GEMMs of 8 rows by 1, 2 or 4 vec4 columns a fiber, as their code did it.

Loops are written as published, with their delays and their few (sy), and nothing else waits: pairs are
rewritten under outstanding samples, and with one (sy) a loop body most texels are multiplied whether or not
they have arrived. Stores are published too, as far as results depend on it: repeated moves without (r) store
lane x of each vector four times, and a stepped address loses its carry. Prologues and the addresses of the
first column are ours. What all this does on all-ones inputs the notes call correct; random inputs show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul, notes
from pytest_qcom.kernels.eight_rows import (
    LOWER,
    ROWS,
    UPPER,
    Published,
    Published8x4,
    Published8x16,
    check,
    ends,
    epilogue,
    placed,
    skipped,
)
from pytest_qcom.kernels.families import gemm_8xn_fp16
from pytest_qcom.kernels.gemm import build_gemm
from pytest_qcom.kernels.kernel import Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.rewritten import OnePair, Preset
from pytest_qcom.kernels.schedule import Load, Multiply, Phases, Schedule, Step
from pytest_qcom.kernels.split_a import declared, split
from pytest_qcom.kernels.stores import NoStore, RowMajor

_NOTES = "QUALCOMM.md of tinygrad's QCOM GEMM experiments, tinygrad commit f072c2bf97"
_ROWS = UPPER + LOWER
_PAIRS = {
    "first": ("r8.w", "r9.y", "r9.w", "r10.y"),
    "second": ("r13.x", "r13.z", "r14.x", "r14.z"),
    "wide-first": ("r24.z", "r12.y", "r12.w", "r13.y"),
    "wide-second": ("r13.w", "r14.y", "r14.w", "r15.y"),
}
"""Preset pairs of the columns of B, where the vendor compiler has them for one and for two columns."""


def build_8x4(options: Published) -> Build:
    """A published kernel of 8 rows by 1 vec4 column."""
    forms = {"donor_store": _donor, "pipeline": _pipeline, "pipeline4": _pipeline, "serial": _serial}
    return _build("gemm_8x4_fp16_published", options, 1, forms)


def build_8x8(options: Published) -> Build:
    """A published kernel of 8 rows by 2 vec4 columns."""
    forms = {
        "donor_store": _donor,
        "serial": _serial,
        "experimental_twopass": _twopass,
        "pipeline": _pipeline,
        "pipeline4": _pipeline,
        "batch2": _pipeline,
        "persistent": _persistent,
        "split_a": _split,
    }
    return _build("gemm_8x8_fp16_published", options, 2, forms)


def build_8x16(options: Published) -> Build:
    """A published kernel of 8 rows by 4 vec4 columns."""
    forms = {"donor_store": _serial, "serial": _serial, "split_a": _split}
    return _build("gemm_8x16_fp16_published", options, 4, forms)


Form = tuple[Schedule, tuple[int, int]]  # and (fregs, hregs) as declared


def _build(
    name: str, options: Published, ncols: int, forms: Mapping[str, Callable[[str, Published], Form]]
) -> Build:
    form = check(name, options, ncols, tuple(forms))
    schedule, (fregs, hregs) = forms[form](name, options)
    if options.profile == "isam":
        schedule = replace(schedule, phases=_samples_only(schedule))
    if options.k // 4 % schedule.unroll:
        raise KernelError(
            f"{name}: {options.k // 4} K steps do not divide by {schedule.unroll}; the published kernels "
            "have no remainder"
        )
    return replace(
        build_gemm(name, options, schedule),
        fregs=options.fregs_override or fregs,
        hregs=options.hregs_override or hregs,
        thread128=options.thread128,
    )


def _schedule(
    options: Published,
    plan: RegisterPlan,
    phases: Phases | Callable[[Step], Phases],
    coordinates: OnePair | Preset,
    sync: Callable[[int, Step], bool],
    unroll: int = 1,
) -> Schedule:
    """Everything but split-A: products by k, then row, then column."""
    return Schedule(
        tile=Tile(ROWS, options.ncols, options.threads, options.swap_grid),
        plan=ends(plan),
        phases=phases,
        coordinates=coordinates,
        epilogue=epilogue(options),
        order="kk_row_col",
        scalar_first=True,
        sync=(lambda products, step: False) if options.strip_mad_sy else sync,
        waits="written",
        unroll=unroll,
    )


def _samples_only(schedule: Schedule) -> Callable[[Step], Phases]:
    """The phases without their products."""
    return lambda step: tuple(phase for phase in schedule.at(step) if isinstance(phase, Load))


def _split(name: str, options: Published) -> Form:
    return split(name, options), declared(options)


def _serial(name: str, options: Published) -> Form:
    """All rows, then one column after the other through the same four texels; a (sy) a column."""
    plan = _texels(RegisterPlan(), a=0, b=(8,)).place("acc", "hr16.x", 4 * ROWS * options.ncols)
    places = {"pair": ("r4.y", 2), "ky": ("r6.y", 1), "k4": ("r6.z", 1), "row": ("r7.x", 1)}
    plan = placed(plan, {**places, "col": ("r7.y", 1), "next": ("r0.x", 1)})
    coordinates = OnePair(
        options.a_coord_delay, options.b_coord_delay, skip=skipped(options), add_rows=True, delay_all=True
    )
    phases: list[Load | Multiply] = [Load("A", _ROWS)]
    for col in range(options.ncols):
        phases += [Load("B", (col,)), Multiply(_ROWS, (col,))]
    schedule = _schedule(options, plan, tuple(phases), coordinates, lambda products, step: True)
    hregs = 16 + 8 * options.ncols
    if options.donor_store:
        return schedule, (15, hregs)
    return schedule, (8 if options.profile else 12, hregs)


def _donor(name: str, options: Published) -> Form:
    """The compiler's loop: a preset pair a sample, everything sampled, then multiplied."""
    cols = tuple(range(options.ncols))
    if options.ncols == 1:
        plan = _texels(RegisterPlan(), a=0, b=(8,)).place("acc", "hr16.x", 4 * ROWS)
        plan, footprint, ahead = _preset(plan, ("first",)), (12, 24), 3
    else:
        plan = _texels(RegisterPlan(), a=0, b=(8, 12)).place("acc", "hr16.x", 8 * ROWS)
        plan = placed(plan, {"a_pairs": ("r7.w", 16), "ky": ("r15.w", 1), "k4": ("r16.w", 1)})
        plan = placed(plan, {"row": ("r24.x", 1), "col": ("r24.y", 1)})
        plan = _pairs(plan, ("wide-first", "wide-second")).place("next", "r8.y", 1, over=("a_pairs",))
        footprint, ahead = (28, 32), 0
    phases = (Load("A", _ROWS), Load("B", cols), Multiply(_ROWS, cols))
    coordinates = Preset(options.a_coord_delay, options.b_coord_delay, ahead, skipped(options))
    return _schedule(options, plan, phases, coordinates, _first), footprint


def _twopass(name: str, options: Published) -> Form:
    """Both columns with the registers of the compiler's one; a second set of preset pairs above."""
    plan = _texels(RegisterPlan(), a=0, b=(8, 12)).place("acc", "hr16.x", 8 * ROWS)
    phases = (Load("A", _ROWS), Load("B", (0, 1)), Multiply(_ROWS, (0, 1)))
    coordinates = Preset(options.a_coord_delay, options.b_coord_delay, skip=skipped(options))
    return _schedule(options, _preset(plan, ("first", "second")), phases, coordinates, _first), (15, 32)


def _pipeline(name: str, options: Published) -> Form:
    """Two sets of texels over 2 or 4 K steps; the next set is sampled before the products of this one."""
    if options.ncols == 1:
        plan = _texels(_texels(RegisterPlan(), a=0, b=(8,)), a=12, b=(20,), bank=1)
        plan = _preset(plan.place("acc", "hr24.x", 4 * ROWS), ("first",))
    else:
        plan = _texels(_texels(RegisterPlan(), a=0, b=(8, 12)), a=32, b=(40, 44), bank=1)
        plan = _preset(plan.place("acc", "hr16.x", 8 * ROWS), ("first", "second"))
    cols = tuple(range(options.ncols))
    sync = _first_set if options.no_next_sy or options.batch2 else _first
    coordinates = Preset(options.a_coord_delay, options.b_coord_delay, skip=skipped(options))
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


def _persistent(name: str, options: Published) -> Form:
    """The published schedule that is right: ours without samples ahead, and two more registers declared."""
    ours = gemm_8xn_fp16.Options(
        options.m, options.n, options.k, options.threads, 1, "none", options.swap_grid
    )
    store = NoStore() if options.no_store else RowMajor()
    return replace(gemm_8xn_fp16.schedule(ours, options.ncols), epilogue=store), (10, 28)


def _first(products: int, step: Step) -> bool:
    return products == 0


def _first_set(products: int, step: Step) -> bool:
    """Only the first of the two sets; what was sampled before it has arrived with it."""
    return products == 0 and step.index % 2 == 0


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


def _kernel(
    ncols: int, options: type[Any], build: Callable[[Published], Build], cases: tuple[Case, ...]
) -> Kernel:
    return Kernel(
        name=f"gemm_8x{4 * ncols}_fp16_published",
        summary=f"FP16 GEMM of 8 rows by {4 * ncols} columns a fiber, as published",
        options=options,
        build=build,
        inputs=matmul.random,
        oracle=matmul.product,
        tolerance=matmul.half_bound,
        patterns=matmul.HALF_PATTERNS,
        unit="GFLOPS",
        cases=cases,
        claim="as-published",
        family=f"gemm_8x{4 * ncols}_fp16",
        source=_NOTES,
    )


def _cases(rows: Mapping[str, str]) -> tuple[Case, ...]:
    """Cases by the number of their row in the published tables."""
    return tuple(Case(name, notes.options(config)) for name, config in rows.items())


_BEST = (
    "split-a split-k-unroll=8 b-coord-delay=0 donor8-add256-store split-prefetch-next-b split-fast-coords "
    "fregs-override=8"
)
_TIGHT = f"{_BEST} add256-store-mode=tight"
_FOUR = "split-a split-k-unroll=4 b-coord-delay=3 donor8-add256-store"

KERNELS = (
    _kernel(
        1,
        Published8x4,
        build_8x4,
        _cases({"p011": "donor-store", "p058": "pipeline a-coord-delay=0"}),
    ),
    _kernel(
        2,
        Published,
        build_8x8,
        _cases(
            {
                "p012": "donor-store",
                "p013": "experimental-twopass",
                "p014": "serial donor8-store",
                "p015": "split-a donor8-add256-store no-next-sy",
                "p016": "split-a split-k-unroll=2 donor8-add256-store",
                "p017": _FOUR,
                "p018": "split-a split-k-unroll=8 b-coord-delay=3 donor8-add256-store",
                "p019": "split-a split-k-unroll=4 donor8-add256-store split-prefetch-next-b "
                "split-fast-coords fregs-override=8",
                "p020": _BEST,
                "p021": f"{_BEST} add256-store-mode=pairs",
                "p023": f"{_TIGHT} fregs-override=9 split-hoist-b0-coord",
                "p028": f"{_TIGHT} threads=64",
                "p030": f"{_TIGHT} split-prefetch-next-a",
                "p031": f"{_TIGHT} split-prefetch-next-a swapped before B1",
                "p032": f"{_TIGHT} split-interleave-next-b",
                "p034": f"{_TIGHT} split-high-a",
                "p035": f"{_TIGHT} fregs-override=9 split-high-a split-hoist-b0-coord",
                "p036": f"{_TIGHT} fregs-override=10 split-low-a",
                "p038": f"{_TIGHT} split-stream-next-b1",
                "p039": f"{_TIGHT} b-coord-delay=3 swap-grid",
                "p040": f"{_TIGHT} split-k-unroll=16",
                "p049": "split-a split-k-unroll=4 b-coord-delay=-1 donor8-add256-store grouped-b",
                "p050": "split-a split-k-unroll=4 b-coord-delay=-1 donor8-add256-store grouped-b-cols",
                "p051": "split-a split-k-unroll=8 b-coord-delay=-1 donor8-add256-store grouped-b",
                "p052": f"{_FOUR} threads=64",
                "p054": "pipeline a-coord-delay=4",
                "p055": "pipeline a-coord-delay=4 b-coord-delay=-1 no-next-sy",
                "p056": "pipeline4",
                "persistent": "persistent",
            }
        ),
    ),
    _kernel(
        4,
        Published8x16,
        build_8x16,
        _cases({"p059": "split-a split-k-unroll=4", "p060": "donor-store threads=64"}),
    ),
)
