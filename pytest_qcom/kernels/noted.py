"""Coordinates of the published 4-row kernels: columns go in pairs, counters ``k4`` and ``ky`` give the depth.

``ky`` is 3 ahead of the first k of the step. Nothing here waits for a sample before its coordinate changes,
except where an option of the notes says so; a schedule that wants every wait has them put in behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.launch import LANES
from pytest_qcom.kernels.quads import hand_halves
from pytest_qcom.kernels.rewritten import add, delay
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE, Load, Schedule, Step
from pytest_qcom.kernels.writer import Writer

AHEAD = 3
"""Of ``ky``."""
_PAIR = 2  # columns
_QUAD = 4  # neighbouring fibers that share a sample


@dataclass(frozen=True, slots=True)
class Noted:
    """Where the odd one of two columns has a single pair.

    The plan gives ``k4`` and ``ky``, ``a_pairs``, ``even`` (four pairs of the even column, also of column 2
    unless ``stable_bx``), ``odd`` (one pair for all four samples of the odd column), with ``stable_bx`` also
    ``even2`` and either ``odd2``, a pair of column 3, or ``x3``, its x. What it has as ``saved`` gets row and
    column.

    Attributes:
        stable_bx: columns 2 and 3 keep their x in registers of their own.
        stable_ay: A pairs keep their row; else row and k are written anew.
        inc_coords: unrolled steps add to the pairs instead of writing them.
        persistent_coords: the pairs live over the back edge too, and the first A pair is the loop counter.
        coord_delay: ``(rptN)nop`` before the samples of written pairs; -1 is none.
        skip: operands, ``A`` or ``B`` or both, that are not sampled; their coordinates are written all the
            same.
        start: the first K step.
        parts: K is split: every ``part_rows`` rows have another part of ``part_steps`` K steps. The plan
            gives ``part`` and ``count``.
        quad: the first of four neighbouring fibers samples A and the others get it; the plan gives ``lane``,
            and ``zero`` and ``quad``, full registers over the texels, or ``sampled`` and ``indices``, halves.
        drained: (ss) before pairs are written.
        odd_wait: before the odd column's samples: ``sy``, each waits for the one before; ``copies``, the
            plan's ``odd_copies`` take its x and four y, and all samples before it are waited for.
        last_flagged: (sy) on the last sample of B of a load, which waits for those before it.
    """

    ncols: int
    stable_bx: bool = False
    stable_ay: bool = False
    inc_coords: bool = False
    persistent_coords: bool = False
    coord_delay: int = 5
    skip: str = ""
    start: int = 0
    parts: int = 1
    part_rows: int = 1
    part_steps: int = 1
    quad: bool = False
    drained: bool = False
    odd_wait: str = ""
    last_flagged: bool = False

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        plan, row = schedule.plan, schedule.plan["row"][0]
        if self.parts > 1:
            self._prepare_part(w, schedule)
        else:
            w.mov(plan["ky"][0], 4 * self.start + AHEAD, sy=True)
            w.mov(plan["k4"][0], self.start)
        for index in range(schedule.tile.rows):
            add(w, plan["a_pairs"][2 * index + 1], row, index)
            w.mov(plan["a_pairs"][2 * index], plan["k4"][0] if self.parts > 1 else self.start)
        if self.quad:
            w.alu("and.b", plan["lane"][0], plan["col"][0], _QUAD - 1)
        if "saved" in plan:
            w.mov(plan["saved"][0], row)
            w.mov(plan["saved"][1], plan["col"][0])
        self._prepare_b(w, schedule)

    def _prepare_part(self, w: Writer, schedule: Schedule) -> None:
        """Which part of K, by the row; the row within it; the counters where it starts."""
        plan, row = schedule.plan, schedule.plan["row"][0]
        w.alu("shr.b", plan["part"][0], row, self.part_rows.bit_length() - 1)
        w.alu("and.b", row, row, self.part_rows - 1)
        w.alu("mul.s24", plan["k4"][0], plan["part"][0], self.part_steps)
        w.alu("shl.b", plan["ky"][0], plan["k4"][0], 2)
        w.alu("add.s", plan["ky"][0], plan["ky"][0], AHEAD)
        w.mov(plan["count"][0], 0)

    def _prepare_b(self, w: Writer, schedule: Schedule) -> None:
        plan, col = schedule.plan, schedule.plan["col"][0]
        for kk in range(4):
            w.mov(plan["even"][2 * kk], col)
            if self._varied:
                add(w, plan["even"][2 * kk + 1], plan["ky"][0], kk - AHEAD)
            else:
                w.mov(plan["even"][2 * kk + 1], kk)
        if self.ncols > 1:
            w.alu("add.s", plan["odd"][0], col, LANES)
        if self.stable_bx:
            for kk in range(4):
                w.alu("add.s", plan["even2"][2 * kk], col, 2 * LANES)
            w.alu("add.s", plan["odd2" if "odd2" in plan else "x3"][0], col, 3 * LANES)

    @property
    def _varied(self) -> bool:
        """Whether K does not start at 0."""
        return self.parts > 1 or self.start > 0

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        if self.drained:
            w.emit("nop", ss=True)
        if load.operand == "A":
            self._sample_a(w, schedule, load, step)
        else:
            self._sample_b(w, schedule, load, step)

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Nothing: the next step writes its pairs before its samples."""

    def finish(self, w: Writer, schedule: Schedule, step: Step) -> None:
        if step.end is None:
            return
        plan, unroll = schedule.plan, schedule.unroll
        end = self.start + step.end
        if end - 1 > LARGEST_IMMEDIATE:
            raise KernelError(f"k is {4 * end}: the loop test counts to {LARGEST_IMMEDIATE + 1} K steps")
        if self.persistent_coords:
            w.alu("cmps.s.eq", "p0.x", plan["a_pairs"][0], end - 1, nop=1)
            for index in range(schedule.tile.rows):
                add(w, plan["a_pairs"][2 * index], plan["a_pairs"][2 * index], 1)
            self._advance_b(w, schedule)
            return
        k4 = plan["k4"][0]
        w.alu("add.s", plan["next"][0], k4, unroll)
        w.alu("add.s", plan["ky"][0], plan["ky"][0], 4 * unroll)
        if self.parts > 1:
            w.alu("add.s", plan["count"][0], plan["count"][0], unroll)
            w.emit("nop", rpt=2)
            w.alu("cmps.s.eq", "p0.x", plan["count"][0], step.end, nop=1)
        else:
            w.alu("cmps.s.eq", "p0.x", k4, end - unroll, nop=1)
        w.mov(k4, plan["next"][0])
        w.emit("nop", rpt=3)

    def _advance_b(self, w: Writer, schedule: Schedule) -> None:
        for kk in range(4):
            y = schedule.plan["even"][2 * kk + 1]
            add(w, y, y, 4)

    def _written(self, step: Step) -> bool:
        """Whether this step writes pairs from the counters, instead of adding to them."""
        return not self.persistent_coords and (step.index == 0 or not self.inc_coords)

    def _sample_a(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        plan = schedule.plan
        for index in load.which:
            x, y = plan["a_pairs"][2 * index], plan["a_pairs"][2 * index + 1]
            if self._written(step):
                add(w, x, plan["k4"][0], step.index + load.ahead)
                if not self.stable_ay:
                    add(w, y, plan["row"][0], index)
            elif step.index:
                add(w, x, x, 1)
        delay(w, self.coord_delay)
        if self.quad:
            self._sample_quad(w, schedule, load)
            return
        for index in () if "A" in self.skip else load.which:
            w.isam(plan[schedule.texels("a", index, load.bank)][0], plan["a_pairs"][2 * index], texture=0)

    def _sample_quad(self, w: Writer, schedule: Schedule, load: Load) -> None:
        """One fiber of four samples; its texels go around, or, as in one file, full registers over them."""
        plan, join = schedule.plan, f"quad{len(w)}"
        texels = [plan[schedule.texels("a", index, load.bank)][0] for index in load.which]
        halves = [plan["sampled"].vec(index) for index in load.which] if "sampled" in plan else []
        w.alu("cmps.s.ne", "p0.x", plan["lane"][0], 0)
        if halves:
            w.set_half(plan["indices"][0], 0)
        else:
            w.mov(plan["zero"][0], 0)
        w.emit("nop", rpt=4)
        w.emit("br", "p0.x", join)
        for index, texel in () if "A" in self.skip else zip(load.which, halves or texels, strict=True):
            w.isam(texel, plan["a_pairs"][2 * index], texture=0)
        w.label(join)
        w.emit("nop", ss=True, jp=True)
        if halves:
            hand_halves(w, texels, halves, [plan["indices"][0]] * len(halves))
            return
        for number, register in enumerate(plan["quad"]):
            w.emit(
                "quad_shuffle.brcst",
                register,
                register,
                plan["zero"][0],
                type="u32",
                wrmask=1,
                sy=not number,
            )

    def _sample_b(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        for number, col in enumerate(load.which):
            last = self.last_flagged and number == len(load.which) - 1
            if col % _PAIR:
                self._sample_odd(w, schedule, load, col, last)
            else:
                self._sample_even(w, schedule, load, col, step, last)

    def _sample_even(
        self, w: Writer, schedule: Schedule, load: Load, col: int, step: Step, last: bool
    ) -> None:
        plan = schedule.plan
        pairs = plan["even2" if col and self.stable_bx else "even"]
        for kk in load.kk:
            x, y = pairs[2 * kk], pairs[2 * kk + 1]
            if self.ncols > _PAIR and not self.stable_bx:
                add(w, x, plan["col"][0], LANES * col)
            if col and self.stable_bx:
                w.mov(y, plan["even"][2 * kk + 1])
            elif not col and self._written(step):
                add(w, y, plan["ky"][0], 4 * (step.index + load.ahead) - AHEAD + kk)
            elif not col and step.index:
                add(w, y, y, 4)
        delay(w, self.coord_delay)
        for kk in () if "B" in self.skip else load.kk:
            sy = last and kk == load.kk[-1]
            w.isam(schedule.vector(col, kk, load.bank), pairs[2 * kk], texture=1, sy=sy)

    def _sample_odd(self, w: Writer, schedule: Schedule, load: Load, col: int, last: bool) -> None:
        plan = schedule.plan
        own = col > 1 and "odd2" in plan
        pair = plan["odd2" if own else "odd"]
        if col > 1 and self.stable_bx and not own:
            w.mov(pair[0], plan["x3"][0])
        elif self.ncols > _PAIR and not own and not (col == 1 and "odd2" in plan):
            add(w, pair[0], plan["col"][0], LANES * col)
        depths = [plan["even"][2 * kk + 1] for kk in load.kk]
        if self.odd_wait == "copies":
            depths = self._copied(w, schedule, pair[0], depths)
        for kk, y in zip(load.kk, depths, strict=True):
            w.mov(pair[1], y, sy=self.odd_wait == "sy" and kk != load.kk[0])
            delay(w, self.coord_delay)
            if "B" not in self.skip:
                sy = last and kk == load.kk[-1]
                w.isam(schedule.vector(col, kk, load.bank), pair[0], texture=1, sy=sy)

    @staticmethod
    def _copied(w: Writer, schedule: Schedule, x: Reg, depths: list[Reg]) -> list[Reg]:
        """The coordinates of an odd column in registers of their own, all samples before them arrived."""
        copies = schedule.plan["odd_copies"]
        w.mov(copies[0], x)
        for index, y in enumerate(depths):
            w.mov(copies[1 + index], y)
        w.mov(x, copies[0], sy=True)
        return [copies[1 + index] for index in range(len(depths))]


@dataclass(frozen=True, slots=True)
class Grouped(Noted):
    """A pair for each sample of a load of B, all written before the first of them.

    The plan gives ``pairs0``, ``pairs1``, ... of four pairs each: one block a column, or as many as there
    are, in turns. ``even`` and ``odd`` are not needed.

    Attributes:
        by_k: blocks belong to k instead of columns, and a block's pairs to the columns.
        kept_x: columns have blocks of their own, in which x stays.
        added_y: y is advanced in the pairs, which live through the loop.
        shifted: of columns 2 and 3 x is that of columns 0 and 1 plus two columns, and y is not written.
        drain: what comes before pairs are written: ``ss``, ``sy`` or nothing.
        settle: delay behind the written pairs.
    """

    by_k: bool = False
    kept_x: bool = False
    added_y: bool = False
    shifted: bool = False
    drain: str = ""
    settle: int = 5

    def _pair(self, schedule: Schedule, col: int, kk: int) -> Reg:
        blocks = sum(f"pairs{index}" in schedule.plan for index in range(schedule.tile.cols))
        block, index = (kk, col) if self.by_k else (col, kk)
        return schedule.plan[f"pairs{block % blocks}"][2 * index]

    def _prepare_b(self, w: Writer, schedule: Schedule) -> None:
        plan = schedule.plan
        for col in range(self.ncols) if self.kept_x else ():
            for kk in range(4):
                pair = self._pair(schedule, col, kk)
                add(w, pair, plan["col"][0], LANES * col)
                if self.added_y:  # the first sample adds a step
                    add(w, pair + 1, plan["ky"][0], kk - AHEAD - 4)

    def _advance_b(self, w: Writer, schedule: Schedule) -> None:
        if not self.added_y:
            w.alu("add.s", schedule.plan["ky"][0], schedule.plan["ky"][0], 4 * schedule.unroll)

    def _sample_b(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        plan = schedule.plan
        if self.drain == "ss":
            w.emit("nop", ss=True)
        elif self.drain:
            w.mov(plan["k4"][0], plan["k4"][0], sy=True)
        again = self.shifted and load.which[0] >= _PAIR
        if not self.kept_x:
            for col, _, pair in self._pairs(schedule, load):
                if again:
                    add(w, pair, pair, _PAIR * LANES)
                else:
                    add(w, pair, plan["col"][0], LANES * col)
        for _, kk, pair in self._pairs(schedule, load):
            if self.added_y:
                add(w, pair + 1, pair + 1, 4)
            elif not again:
                add(w, pair + 1, plan["ky"][0], 4 * (step.index + load.ahead) - AHEAD + kk)
        delay(w, self.settle)
        for col, kk, pair in self._pairs(schedule, load):
            if "B" not in self.skip:
                w.isam(schedule.vector(col, kk, load.bank), pair, texture=1)

    def _pairs(self, schedule: Schedule, load: Load) -> Iterator[tuple[int, int, Reg]]:
        for col in load.which:
            for kk in load.kk:
                yield col, kk, self._pair(schedule, col, kk)


@dataclass(frozen=True, slots=True)
class Aimed(Noted):
    """Columns 2 and 3 have a pair a sample, ``later``, written at once by :class:`AimLater`."""

    def _sample_b(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        if load.which[0] < _PAIR:
            Noted._sample_b(self, w, schedule, load, step)
            return
        for col in load.which:
            for kk in load.kk:
                if "B" not in self.skip:
                    pair = schedule.plan["later"][2 * (4 * (col - _PAIR) + kk)]
                    w.isam(schedule.vector(col, kk, load.bank), pair, texture=1)


@dataclass(frozen=True, slots=True)
class AimLater:
    """Behind the samples of columns 0 and 1: the pairs of columns 2 and 3."""

    settle: int = 5

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        plan = schedule.plan
        w.mov(plan["k4"][0], plan["k4"][0], sy=True)
        for index in range(2 * 4):
            column, kk = divmod(index, 4)
            add(w, plan["later"][2 * index], plan["col"][0], LANES * (_PAIR + column))
            w.mov(plan["later"][2 * index + 1], plan["even"][2 * kk + 1])
        delay(w, self.settle)


@dataclass(frozen=True, slots=True)
class Drain:
    """All samples have arrived: a register moved to itself with (sy), and idle slots behind it."""

    idle: int = -1

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        w.mov(schedule.plan["k4"][0], schedule.plan["k4"][0], sy=True)
        delay(w, self.idle)


@dataclass(frozen=True, slots=True)
class Idle:
    """``(rptN)nop``; nothing where N is -1, unless ``ss`` makes it a wait for the samples' coordinates."""

    repeat: int
    ss: bool = False

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        if self.ss:
            w.emit("nop", ss=True)
        else:
            delay(w, self.repeat)
