"""The persistent schedules of the published 8x8 GEMM: each sample of a K step has a pair that lives on.

They differ in which texels are sampled early, and where: the loop, its coordinates and its store are those of
our own 8x8 kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.choices import exclude, require
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.eight_ends import epilogue, skipped
from pytest_qcom.kernels.eight_rows import LOWER, ROWS, UPPER, Published
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.noted import Idle
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.rewritten import add
from pytest_qcom.kernels.schedule import Load, Multiply, Phases, Schedule, Step
from pytest_qcom.kernels.writer import Writer

OPTIONS = (
    "pipeline_b",
    "double_b",
    "rotate_b",
    "pipeline_a",
    "dual_a_tile",
    "stagger_b",
    "lagged_a4",
    "stream_a4",
    "masked_prefetch_a4",
    "dynamic_a4_dual",
    "rotate_low_banks",
)
"""Options that choose an order; without one everything is sampled right before its products."""
_SECOND_A = ("pipeline_a", "dual_a_tile", "dynamic_a4_dual", "rotate_low_banks")
_BOTH, _ALL = (0, 1), UPPER + LOWER
_ROTATED = {0: (0, 4, 28), 1: (28, 0, 4), 2: (4, 28, 0)}
_LOW = {0: (0, 4, 8), 1: (4, 8, 0), 2: (8, 0, 4)}
"""Half vec4 of columns 0 and 1 and of a third group, by bank."""


def check(name: str, options: Published) -> None:
    """That options of the persistent schedules go together.

    Raises:
        KernelError: they do not.
    """
    exclude(name, options, OPTIONS)
    require(name, options, "dynamic_b_prefetch", "dynamic_a4_dual")
    require(name, options, "rotate_no_prefetch", "rotate_low_banks")


def persistent(name: str, options: Published) -> tuple[Schedule, tuple[int, int]]:
    """The schedule, and (fregs, hregs) as declared: 10 and what the texels need, 8 with borrowed pairs."""
    check(name, options)
    plan = _plan(options)
    borrowed = options.dynamic_a4_dual
    schedule = Schedule(
        tile=Tile(ROWS, 2, options.threads, options.swap_grid),
        plan=plan,
        phases=lambda step: _phases(options, step),
        coordinates=(Borrowed if borrowed else Started)(start=options.k_start, skip=skipped(options)),
        epilogue=epilogue(options, "legal"),
        order=options.alu_order or "row_col_kk",
        scalar_first=True,
        sync=lambda products, step: options.one_sync and products == 0,
        waits="slots" if options.one_sync else "legal",
        unroll=_unroll(options),
        primed=_primed(options),
        peel=_peel(options),
    )
    fregs, hregs = plan.footprint()
    return schedule, (fregs if borrowed or options.rotate_low_banks else max(10, fregs), hregs)


def _unroll(options: Published) -> int:
    if options.rotate_b or options.rotate_low_banks:
        return 3
    return 2 if options.double_b else 1


def _peel(options: Published) -> int:
    """K steps behind the loop: those whose successors are not sampled."""
    if options.double_b:
        return 2
    ahead = options.pipeline_b or options.stagger_b or options.dynamic_b_prefetch or options.rotate_b
    return int(ahead or options.rotate_low_banks)


def _primed(options: Published) -> tuple[Load, ...]:
    if options.rotate_low_banks:
        return () if options.rotate_no_prefetch else (Load("B", _BOTH), Load("A", UPPER))
    ahead = options.pipeline_b or options.stagger_b or options.dynamic_b_prefetch
    return (Load("B", _BOTH),) if ahead or options.double_b or options.rotate_b else ()


def _phases(options: Published, step: Step) -> Phases:
    upper, lower, both = Load("A", UPPER), Load("A", LOWER), Load("B", _BOTH)
    if options.double_b:
        bank = step.index % 2
        other = Load("B", _BOTH, ahead=1, bank=1 - bank)
        first = Multiply(UPPER, _BOTH, behind=(other,), bank=bank)
        return (
            Load("A", UPPER, bank=bank),
            first,
            Load("A", LOWER, bank=bank),
            Multiply(LOWER, _BOTH, bank=bank),
        )
    if options.rotate_b:
        return _rotated(step)
    if options.rotate_low_banks:
        return _rotated_low(options, step)
    if options.pipeline_b:
        gap = (Idle(options.b_reuse_gap - 1),)
        refills = [(Multiply(LOWER, (col,)), *gap, Load("B", (col,), ahead=1)) for col in _BOTH]
        return (upper, Multiply(UPPER, _BOTH), lower, *refills[0], *refills[1])
    if options.stagger_b:
        return (upper, Multiply(UPPER, _BOTH), lower, *_staggered(options.stagger_rows))
    if options.dynamic_a4_dual:
        return _dynamic(options)
    return (both, upper, *_upper(options), *_lower(options))


def _upper(options: Published) -> Phases:
    """Products of rows 0 to 3, and how rows 4 to 7 come."""
    lower = Load("A", LOWER)
    if options.pipeline_a:
        return (Multiply(UPPER, _BOTH, behind=(lower,)),)
    if options.dual_a_tile:
        return (lower, Multiply(UPPER, _BOTH))
    if options.masked_prefetch_a4:
        return (Warm(LOWER), Multiply(UPPER, _BOTH), lower)
    lag = 1 if options.lagged_a4 else 0
    if not options.lagged_a4 and not options.stream_a4:
        return (Multiply(UPPER, _BOTH), lower)
    found: list[Multiply | Load | Idle] = []
    for row in UPPER:
        found.append(Multiply((row,), _BOTH))
        if row >= lag:
            found.append(Idle(-1 if options.lagged_a4 else options.stream_a4_gap, ss=options.lagged_a4))
            found.append(Load("A", (row - lag + 4,)))
    if lag:
        found += [Idle(-1, ss=True), Load("A", (7,))]
    return tuple(found)


def _lower(options: Published) -> Phases:
    idle = (Idle(options.one_sync_wait - 1),) if options.one_sync and options.one_sync_wait else ()
    return (*idle, Multiply(LOWER, _BOTH))


def _staggered(rows: int) -> Phases:
    """The columns are refilled behind the last of the lower rows, each behind its own products."""
    done, rest = LOWER[:rows], LOWER[rows:]
    first = (Multiply(done, _BOTH),) if done else ()
    refills = [(Multiply(rest, (col,)), Idle(-1, ss=True), Load("B", (col,), ahead=1)) for col in _BOTH]
    return (*first, *refills[0], *refills[1])


def _rotated(step: Step) -> Phases:
    """Three groups of texels for two columns: the free one takes the next column 0."""
    bank = step.index % 3
    first, second = (Load("B", (col,), ahead=1, bank=(bank + 1) % 3) for col in _BOTH)
    return (
        Load("A", UPPER, bank=bank),
        Multiply(UPPER, _BOTH, behind=(first,), bank=bank),
        Load("A", LOWER, bank=bank),
        Multiply(LOWER, (0,), bank=bank),
        second,
        Multiply(LOWER, (1,), bank=bank),
    )


def _rotated_low(options: Published, step: Step) -> Phases:
    """Columns and rows 0 to 3 change places: each group takes what is next as soon as it is done with."""
    bank, following = step.index % 3, (step.index + 1) % 3
    lower = Load("A", LOWER, bank=bank)
    if options.rotate_no_prefetch:
        loads = (Load("B", _BOTH, bank=bank), Load("A", UPPER, bank=bank), lower)
        return (*loads, Multiply(_ALL, _BOTH, bank=bank))
    return (
        lower,
        Multiply(_ALL, (0,), bank=bank),
        Load("A", UPPER, ahead=1, bank=following),
        Multiply(UPPER, (1,), bank=bank),
        Load("B", (1,), ahead=1, bank=following),
        Multiply(LOWER, (1,), bank=bank),
        Load("B", (0,), ahead=1, bank=following),
    )


def _dynamic(options: Published) -> Phases:
    """Rows 4 to 7 are sampled behind the first row, with the pairs of column 0."""
    first = Multiply((0,), _BOTH, behind=(Load("A", LOWER),))
    start: Phases = () if options.dynamic_b_prefetch else (Load("B", _BOTH),)
    upper: Phases = (
        *start,
        Load("A", UPPER),
        first,
        Multiply(UPPER[1:], _BOTH),
        Idle(options.dynamic_a4_wait - 1),
    )
    if not options.dynamic_b_prefetch:
        return (*upper, Multiply(LOWER, _BOTH))
    done, rest = LOWER[: options.dynamic_b_rows], LOWER[options.dynamic_b_rows :]
    refills = [(Multiply(rest, (col,)), Load("B", (col,), ahead=1)) for col in _BOTH if rest]
    early = (Multiply(done, _BOTH),) if done else ()
    last: Phases = () if rest else (Load("B", _BOTH, ahead=1),)
    gap = Idle(options.dynamic_b_gap - 1)
    return (*upper, *early, gap, *(phase for refill in refills for phase in refill), *last)


@dataclass(frozen=True, slots=True)
class Warm:
    """Rows of A sampled and dropped, which leaves them in the cache."""

    rows: tuple[int, ...]

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        for row in self.rows:
            w.isam(schedule.row(row)[0], schedule.plan["a_pairs"][2 * row], texture=0, kept=False)


@dataclass(frozen=True, slots=True)
class Started(Persistent):
    """Persistent pairs that start at a K step.

    Attributes:
        start: that step.
        skip: operands that are not sampled.
    """

    start: int = 0
    skip: str = ""

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        Persistent.prepare(self, w, schedule)
        plan = schedule.plan
        if not self.start:
            return
        for index in range(plan["a_pairs"].size // 2):
            w.mov(plan["a_pairs"][2 * index], self.start)
        for index in range(4 * schedule.tile.cols):
            w.mov(plan["b_pairs"][2 * index + 1], 4 * self.start + index % 4)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        if load.operand not in self.skip:
            Persistent.sample(self, w, schedule, load, step)

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        shifted = Step(
            step.index, step.count, step.final, None if step.end is None else step.end + self.start
        )
        Persistent.release(self, w, schedule, load, shifted)


@dataclass(frozen=True, slots=True)
class Borrowed(Started):
    """Rows 4 to 7 have no pairs: they take those of column 0, which its samples have read by then."""

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        plan = schedule.plan
        row, col = plan["row"][0], plan["col"][0]
        for index in UPPER:
            if index:
                add(w, plan["a_pairs"][2 * index + 1], row, index)
        for index in range(4 * schedule.tile.cols):
            column, kk = divmod(index, 4)
            if index:
                add(w, plan["b_pairs"][2 * index], col, 32 * column)
            w.mov(plan["b_pairs"][2 * index + 1], 4 * self.start + kk)
        for index in UPPER:
            w.mov(plan["a_pairs"][2 * index], self.start)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        if load.operand == "B" or load.which[0] < len(UPPER):
            Started.sample(self, w, schedule, load, step)
            return
        plan = schedule.plan
        w.mov(plan["col_copy"][0], plan["b_pairs"][0])
        for row in load.which:
            pair = self._pair(schedule, row)
            add(w, pair, plan["a_pairs"][0], 0 if step.final else -1)  # it has advanced already
            add(w, pair + 1, plan["a_pairs"][1], row)
        for row in load.which:
            if "A" not in self.skip:
                w.isam(schedule.row(row)[0], self._pair(schedule, row), texture=0)

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        if load.operand == "B" or load.which[0] < len(UPPER):
            Started.release(self, w, schedule, load, step)
            return
        plan = schedule.plan
        for kk in range(4):
            w.mov(plan["b_pairs"][2 * kk], plan["col_copy"][0])
            w.mov(plan["b_pairs"][2 * kk + 1], plan["b_pairs"][2 * (4 + kk) + 1])

    @staticmethod
    def _pair(schedule: Schedule, row: int) -> Reg:
        return schedule.plan["b_pairs"][2 * (row - len(UPPER))]


def _plan(options: Published) -> RegisterPlan:
    """Texels of B, of A, accumulators; pairs of B, then of A, with everything else over them at both ends."""
    plan = _texels(RegisterPlan(merged=options.mergedregs), options)
    upper_only = options.dynamic_a4_dual
    plan = plan.place("b_pairs", "r0.x", 16).place("a_pairs", "r4.x", 8 if upper_only else 2 * ROWS)
    dead = ("a_pairs", "b_pairs", "row", "col", "scratch", "addresses", "col_copy")
    if upper_only:
        plan = plan.place("col_copy", "r6.x", 1)
    plan = plan.place("row", "r4.y", 1, over=dead).place("col", "r0.x", 1, over=dead)
    plan = plan.place("scratch", "r5.x", 4, over=dead)
    if options.image_store:
        return plan.place("at", "r2.x", 2, over=dead).place("texels", "r1.x", 4, over=dead)
    plan = plan.place("addresses", "r0.x", 2 * ROWS, over=dead)
    plan = plan.place("carries", "r4.x", ROWS, over=dead).place("offsets", "r6.x", 2, over=dead)
    return plan.place("stage", "hr0.x", 4 * ROWS, over=tuple(b.name for b in plan.blocks if b.name != "acc"))


def _texels(plan: RegisterPlan, options: Published) -> RegisterPlan:
    banks: dict[int, tuple[int, int, int]] = {0: (0, 4, 8)}
    if options.rotate_b:
        banks = {bank: (first, second, 8) for bank, (first, second, _) in _ROTATED.items()}
    elif options.rotate_low_banks:
        banks = _LOW
    for bank, (first, second, a) in banks.items():
        over = tuple(block.name for block in plan.blocks)
        plan = plan.place(Schedule.texels("b", 0, bank), f"hr{first}.x", 16, over=over)
        plan = plan.place(Schedule.texels("b", 1, bank), f"hr{second}.x", 16, over=over)
        for row in UPPER if options.rotate_low_banks or not bank else ():
            plan = plan.place(Schedule.texels("a", row, bank), f"hr{a + row}.x", 4, over=over)
    if options.double_b:
        plan = plan.place("b0.1", "hr28.x", 16).place("b1.1", "hr32.x", 16)
    second = any(getattr(options, option) for option in _SECOND_A)
    for row in LOWER:
        if second:
            plan = plan.place(f"a{row}", f"hr{24 + row}.x", 4)
        else:
            plan = plan.place(f"a{row}", f"hr{4 + row}.x", 4, over=tuple(b.name for b in plan.blocks))
    return plan.place("acc", "hr12.x", 8 * ROWS)
