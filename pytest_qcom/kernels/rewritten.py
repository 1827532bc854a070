"""Coordinates of the published 8-row kernels: pairs that are rewritten for every sample, in loops as written.

Nothing here waits for a sample before its pair changes; the delays are idle slots that the notes found by
trying. Counters ``k4`` and ``ky`` (3 ahead of the first k of the step) advance between K steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.choices import NO_DELAY
from pytest_qcom.kernels.launch import LANES
from pytest_qcom.kernels.quads import hand_halves
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE, Load, Schedule, Step
from pytest_qcom.kernels.writer import Writer

AHEAD = 3
"""What ky is ahead of the first k of a step, where the notes do not say otherwise."""
_INLINE = {1: (False, 3), 2: (True, 2), 3: (True, 3)}
"""What the notes' encoder made of ``nop=N`` on an addition: (ss) and idle slots behind it."""


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of a K step and the loop's end, which every policy here shares.

    Attributes:
        ahead: what ``ky`` is ahead of the first k of the step.
        skip: operands, ``A`` or ``B`` or both, that are not sampled, their coordinates are written all the
            same; ``a`` and ``b``: not even those.
        start: the first K step.
        hold: delay behind each sample.
        gap: delay between the steps of a loop body.
        flagged_samples: (sy) on each sample, which waits for those before it.
    """

    a_delay: int = 5
    b_delay: int = 5
    ahead: int = AHEAD
    skip: str = ""
    start: int = 0
    hold: int = NO_DELAY
    gap: int = NO_DELAY
    flagged_samples: bool = False

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        w.mov(schedule.plan["ky"][0], self.ahead + 4 * self.start, sy=True)
        w.mov(schedule.plan["k4"][0], self.start)

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Nothing: pairs are written before their samples, whoever still reads them."""

    def finish(self, w: Writer, schedule: Schedule, step: Step) -> None:
        plan = schedule.plan
        k4, ky, following = plan["k4"][0], plan["ky"][0], plan["next"][0]
        if step.end is not None:
            end = self.start + step.end
            if end - 1 > LARGEST_IMMEDIATE:
                raise KernelError(f"k is {4 * end}: the loop test counts to {LARGEST_IMMEDIATE + 1} K steps")
            w.alu("add.s", following, k4, 1)
            w.alu("add.s", ky, ky, 4)
            w.alu("cmps.s.eq", "p0.x", k4, end - 1, nop=1)
            w.mov(k4, following)
            w.emit("nop", rpt=3)
        elif step.index < step.count - 1:
            w.alu("add.s", k4, k4, 1)
            w.alu("add.s", ky, ky, 4)
            delay(w, self.gap)

    def y(self, w: Writer, schedule: Schedule, dst: Reg, load: Load, kk: int) -> None:
        """The row of B of k number ``kk``."""
        add(w, dst, schedule.plan["ky"][0], kk - self.ahead + 4 * load.ahead)

    def sample_row(self, w: Writer, schedule: Schedule, load: Load, row: int, pair: Reg) -> None:
        if "A" not in self.skip:
            texel = schedule.plan[schedule.texels("a", row, load.bank)][0]
            w.isam(texel, pair, texture=0, sy=self.flagged_samples)
            delay(w, self.hold)

    def sample_column(self, w: Writer, schedule: Schedule, load: Load, col: int, kk: int, pair: Reg) -> None:
        if "B" not in self.skip:
            w.isam(schedule.vector(col, kk, load.bank), pair, texture=1, sy=self.flagged_samples)
            delay(w, self.hold)


@dataclass(frozen=True, slots=True)
class Preset(Counters):
    """A pair a sample whose constant half is preset, as the vendor compiler has them.

    The plan gives ``a_pairs`` and, one block a pair, ``b<col>.pair<kk>``. Each sample follows its coordinate
    and its delay.
    """

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        Counters.prepare(self, w, schedule)
        plan = schedule.plan
        for row in range(schedule.tile.rows):
            add(w, plan["a_pairs"][2 * row + 1], plan["row"][0], row)
        for col in range(schedule.tile.cols):
            for kk in range(4):
                add(w, self._pair(schedule, col, kk), plan["col"][0], LANES * col)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        if load.operand.lower() in self.skip:
            return
        if load.operand == "A":
            for row in load.which:
                pair = schedule.plan["a_pairs"][2 * row]
                add(w, pair, schedule.plan["k4"][0], load.ahead)
                delay(w, self.a_delay)
                self.sample_row(w, schedule, load, row, pair)
            return
        for col in load.which:
            for kk in load.kk:
                pair = self._pair(schedule, col, kk)
                self.y(w, schedule, pair + 1, load, kk)
                delay(w, self.b_delay)
                self.sample_column(w, schedule, load, col, kk, pair)

    @staticmethod
    def _pair(schedule: Schedule, col: int, kk: int) -> Reg:
        return schedule.plan[f"b{col}.pair{kk}"][0]


@dataclass(frozen=True, slots=True)
class OnePair(Counters):
    """One pair for all samples: the plan's ``pair``.

    Attributes:
        fast: ``right``, the x of column 1, has a register.
        hoisted: column 0 has a pair of its own, ``hoisted``, whose x is written once.
        grouped: B's pairs are all written before their samples: ``all``, both columns, or ``column``. The
            plan gives ``b_pairs0`` and ``b_pairs1``.
        two_pairs: B's pairs are written and sampled two by two, in ``b_pairs0``.
        inline: B's delay as the notes' encoder puts ``nop=N`` into the addition; 0 is none.
        base_y: B's y is ky, which is not ahead, with kk put in by or.b. Of a step that is ahead ky goes to
            ``base`` first, and B's delay stands behind that; none is before the samples.
        add_rows: A's y by addition; else by or.b, since a fiber's first row is a multiple of 8.
        x_once: A's x is written before rows 0 to 3 alone.
        delay_all: A's delay stands before every sample; else before the first of a group.
        quad: each fiber of four samples one row of A and hands it around. The plan gives ``lane``,
            ``indices`` and ``quad``, full registers over the texels, or ``sampled``, halves. quad_map: the
            fibers that have rows 0 to 3.
        flagged: (ss) on each write of a coordinate.
        settled: B's samples that are not ahead keep at least this delay, if there is any.
    """

    fast: bool = False
    hoisted: bool = False
    grouped: str = ""
    two_pairs: bool = False
    inline: int = 0
    base_y: bool = False
    add_rows: bool = False
    x_once: bool = False
    delay_all: bool = False
    quad: bool = False
    quad_map: tuple[int, ...] = (0, 1, 2, 3)
    flagged: bool = False
    settled: int = NO_DELAY

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        Counters.prepare(self, w, schedule)
        plan = schedule.plan
        if self.fast:
            add(w, plan["right"][0], plan["col"][0], LANES)
        if self.hoisted:
            w.mov(plan["hoisted"][0], plan["col"][0])
        if self.quad:
            w.alu("and.b", plan["lane"][0], plan["col"][0], 3)
            for fiber, reg in zip(self.quad_map, plan["indices"], strict=True):
                (w.set_half if reg.half else w.mov)(reg, fiber)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        if load.operand.lower() in self.skip:
            return
        if load.operand == "A":
            (self._quad if self.quad else self._rows)(w, schedule, load)
        elif self.grouped == "all":
            self._group(w, schedule, load, [(col, kk) for col in load.which for kk in load.kk])
        elif self.grouped:
            for col in load.which:
                places = [(col, kk) for kk in load.kk]
                self._group(w, schedule, load, places[::-1] if col else places)
        elif self.two_pairs:
            for col in load.which:
                for first in range(0, len(load.kk), 2):
                    self._group(w, schedule, load, [(col, kk) for kk in load.kk[first : first + 2]])
        else:
            for col in load.which:
                self._column(w, schedule, load, col)

    def _rows(self, w: Writer, schedule: Schedule, load: Load) -> None:
        plan, pair = schedule.plan, schedule.plan["pair"][0]
        if not self.x_once or 0 in load.which:
            add(w, pair, plan["k4"][0], load.ahead, ss=self.flagged)
        for number, row in enumerate(load.which):
            self._row(w, pair + 1, plan["row"][0], row)
            if not number or self.delay_all:
                delay(w, self.a_delay)
            self.sample_row(w, schedule, load, row, pair)

    def _row(self, w: Writer, dst: Reg, first: Reg, row: int) -> None:
        if row:
            w.alu("add.s" if self.add_rows else "or.b", dst, first, row, ss=self.flagged)
        else:
            w.mov(dst, first, ss=self.flagged)

    def _quad(self, w: Writer, schedule: Schedule, load: Load) -> None:
        """A fiber's row goes to the first texel, from where the full registers over it are handed around.

        With ``sampled`` it goes there, and from there as halves.
        """
        plan, pair, first = schedule.plan, schedule.plan["pair"][0], load.which[0]
        add(w, pair, plan["k4"][0], load.ahead)
        self._row(w, pair + 1, plan["row"][0], first)
        w.alu("or.b", pair + 1, pair + 1, plan["lane"][0])
        delay(w, self.a_delay)
        if "sampled" in plan:
            sampled = plan["sampled"][0]
            w.isam(sampled, pair, texture=0)
            targets = [plan[schedule.texels("a", row, load.bank)][0] for row in load.which]
            hand_halves(w, targets, [sampled] * len(targets), list(plan["indices"]))
            return
        self.sample_row(w, schedule, load, first, pair)
        for row in range(len(load.which)):
            registers = plan["quad"][2 * row], plan["quad"][0]
            w.emit("quad_shuffle.brcst", *registers, plan["indices"][row], type="u32", wrmask=3, sy=not row)

    def _column(self, w: Writer, schedule: Schedule, load: Load, col: int) -> None:
        own = self.hoisted and not col
        pair = schedule.plan["hoisted" if own else "pair"][0]
        if not own and load.kk[0] == 0:  # later parts find it as they left it
            self._x(w, schedule, pair, col)
        if self.base_y:
            self._from_base(w, schedule, load, col, pair)
            return
        for kk in load.kk:
            if self.inline:
                ss, nop = _INLINE[self.inline]
                offset = kk - self.ahead + 4 * load.ahead
                w.alu("add.s", pair + 1, schedule.plan["ky"][0], offset, ss=ss, nop=nop)
            else:
                offset = kk - self.ahead + 4 * load.ahead
                add(w, pair + 1, schedule.plan["ky"][0], offset, ss=self.flagged)
            if not self.inline:
                settle = not load.ahead and self.b_delay != NO_DELAY
                delay(w, max(self.b_delay, self.settled) if settle else self.b_delay)
            self.sample_column(w, schedule, load, col, kk, pair)

    def _from_base(self, w: Writer, schedule: Schedule, load: Load, col: int, pair: Reg) -> None:
        """Samples of a column whose y is a multiple of four and kk; its x stands in the pair."""
        base = schedule.plan["ky"][0]
        if load.ahead:
            base = schedule.plan["base"][0]
            add(w, base, schedule.plan["ky"][0], 4 * load.ahead)
            delay(w, max(self.b_delay, 0))
        for kk in load.kk:
            if kk:
                w.alu("or.b", pair + 1, base, kk)
            else:
                w.mov(pair + 1, base)
            self.sample_column(w, schedule, load, col, kk, pair)

    def _x(self, w: Writer, schedule: Schedule, dst: Reg, col: int) -> None:
        if col == 1 and self.fast:
            w.mov(dst, schedule.plan["right"][0], ss=self.flagged)
        else:
            add(w, dst, schedule.plan["col"][0], LANES * col, ss=self.flagged)

    def _group(self, w: Writer, schedule: Schedule, load: Load, places: list[tuple[int, int]]) -> None:
        pairs = (
            [schedule.plan["b_pairs0"]] * 2
            if self.two_pairs
            else [schedule.plan[f"b_pairs{col}"] for col in range(schedule.tile.cols)]
        )
        at = [(col, kk, pairs[col][2 * (kk % 2 if self.two_pairs else kk)]) for col, kk in places]
        for col, kk, pair in at:
            self._x(w, schedule, pair, col)
            self.y(w, schedule, pair + 1, load, kk)
        delay(w, self.b_delay)
        for col, kk, pair in at:
            self.sample_column(w, schedule, load, col, kk, pair)


@dataclass(frozen=True, slots=True)
class PairSets(OnePair):
    """A pair for each sample of a load, all written before the first of them.

    The plan gives ``b_set0`` and ``a_set0`` of four pairs each (A's of eight where all rows are sampled at
    once), or one of them, and ``b_set1`` and ``a_set1`` if column 1 and rows 4 to 7 have others. An operand
    without a set has the one pair. Before a set is written that other samples may still read, all samples
    are waited for.

    Attributes:
        shared: both operands have the sets of B.
    """

    shared: bool = False

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        name = "b" if self.shared else load.operand.lower()
        if load.operand.lower() in self.skip:
            return
        if f"{name}_set0" not in schedule.plan:
            OnePair.sample(self, w, schedule, load, step)
        elif load.operand == "A":
            self._group_of_rows(w, schedule, load, name)
        else:
            for col in load.which:
                self._own_column(w, schedule, load, col, name)

    def _group_of_rows(self, w: Writer, schedule: Schedule, load: Load, name: str) -> None:
        plan = schedule.plan
        lower = load.which[0] >= 4
        own = lower and f"{name}_set1" in plan
        if self.shared or not (lower or f"{name}_set1" in plan):
            _drain(w, schedule)
        pairs = plan[f"{name}_set{int(own)}"]
        at = [(row, pairs[2 * row % pairs.size]) for row in load.which]
        for _, pair in at:
            add(w, pair, plan["k4"][0], load.ahead, ss=self.flagged)
        for row, pair in at:
            self._row(w, pair + 1, plan["row"][0], row)
        delay(w, self.a_delay)
        for row, pair in at:
            self.sample_row(w, schedule, load, row, pair)
            if self.delay_all:
                delay(w, self.a_delay)

    def _own_column(self, w: Writer, schedule: Schedule, load: Load, col: int, name: str) -> None:
        plan = schedule.plan
        own = col == 1 and f"{name}_set1" in plan
        if self.shared or (col and not own):
            _drain(w, schedule)
        pairs = plan[f"{name}_set{int(own)}"]
        for kk in load.kk:
            self._x(w, schedule, pairs[2 * kk], col)
        for kk in load.kk:
            offset = kk - self.ahead + 4 * load.ahead
            add(w, pairs[2 * kk + 1], plan["ky"][0], offset, ss=self.flagged)
        delay(w, self.b_delay)
        for kk in load.kk:
            self.sample_column(w, schedule, load, col, kk, pairs[2 * kk])


def _drain(w: Writer, schedule: Schedule) -> None:
    """All samples have arrived, so their coordinates are free: a register moved to itself with (sy)."""
    w.mov(schedule.plan["k4"][0], schedule.plan["k4"][0], sy=True)


def add(w: Writer, dst: Reg, src: Reg, value: int, ss: bool = False) -> None:
    """``dst = src + value``, a move where there is nothing to add."""
    if value:
        w.alu("add.s", dst, src, value, ss=ss)
    else:
        w.mov(dst, src, ss=ss)


def delay(w: Writer, repeat: int) -> None:
    """``repeat + 1`` idle slots; none for :data:`NO_DELAY`."""
    if repeat != NO_DELAY:
        w.emit("nop", rpt=repeat)
