"""Coordinate policies: how a schedule makes the (x, y) pairs that its samples read."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.launch import LANES
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE, Load, Schedule, Step, limit
from pytest_qcom.kernels.writer import Writer


@dataclass(frozen=True, slots=True)
class Persistent:
    """Every sample of a K step has its own pair, kept over the loop and advanced by one addition.

    The plan's ``a_pairs`` are the rows' (k4, row), its ``b_pairs`` the columns' four (col4, k) each. A pair
    changes only behind the products that waited for its sample. ``row`` and ``col`` are the y of the first A
    pair and the x of the first B pair, which never change, so they serve the epilogue too.

    Attributes:
        base: the plan's block with the first row of B, which may lie over the x of A; else that is row 0.
    """

    base: str = ""

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        a_pairs, b_pairs = schedule.plan["a_pairs"], schedule.plan["b_pairs"]
        row, col = schedule.plan["row"][0], schedule.plan["col"][0]
        for index in range(1, schedule.tile.rows):
            w.alu("add.s", a_pairs[2 * index + 1], row, index)
        for index in range(4 * schedule.tile.cols):
            column, kk = divmod(index, 4)
            if column:
                w.alu("add.s", b_pairs[2 * index], col, LANES * column)
            elif kk:
                w.mov(b_pairs[2 * index], col)
            if self.base:
                w.alu("add.s", b_pairs[2 * index + 1], schedule.plan[self.base][0], kk)
            else:
                w.mov(b_pairs[2 * index + 1], kk)
        for index in range(schedule.tile.rows):
            w.mov(a_pairs[2 * index], 0)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        plan = schedule.plan
        for index in load.which:
            if load.operand == "A":
                texel = plan[schedule.texels("a", index, load.bank)][0]
                schedule.arithmetic.sample(w, texel, plan["a_pairs"][2 * index], texture=0)
            else:
                for kk in load.kk:
                    pair = plan["b_pairs"][2 * (4 * index + kk)]
                    texel = plan[schedule.slot(index, load.bank)].vec(kk)
                    schedule.arithmetic.sample(w, texel, pair, texture=1)

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        if step.final:
            return
        for index in load.which:
            if load.operand == "A":
                x = schedule.plan["a_pairs"][2 * index]
                w.alu("add.s", x, x, 1)
            else:
                for kk in load.kk:
                    y = schedule.plan["b_pairs"][2 * (4 * index + kk) + 1]
                    w.alu("add.s", y, y, 4)
        if (
            load.operand == "A" and 0 in load.which and step.end is not None
        ):  # far enough from the branch to cost no slot
            w.alu("cmps.s.eq", "p0.x", schedule.plan["a_pairs"][0], limit(step.end))

    def finish(self, w: Writer, schedule: Schedule, step: Step) -> None:
        """Nothing: the test stands behind the first product."""


@dataclass(frozen=True, slots=True)
class Noted:
    """The pairs of the published 4xN kernels, where columns go in pairs and the odd one has a single pair.

    The plan gives ``k4`` and ``ky`` (3 ahead of the first k of the step), ``a_pairs``, ``even`` (four pairs
    of the even column, also of column 2 unless ``stable_bx``), ``odd`` (one pair for all four samples of the
    odd column), with ``stable_bx`` also ``even2`` and, with ``stable_ay``, ``odd2`` of columns 2 and 3.

    Attributes:
        stable_bx: columns 2 and 3 keep their x in registers of their own.
        stable_ay: A pairs keep their row; else row and k are written anew.
        inc_coords: unrolled steps add to the pairs instead of writing them.
        persistent_coords: the pairs live over the back edge too, and the first A pair is the loop counter.
        coord_delay: ``(rptN)nop`` before the samples of written pairs; -1 is none.
        skip: operands, ``A`` or ``B`` or both, that are not sampled; their coordinates are written all the
            same.
    """

    ncols: int
    stable_bx: bool
    stable_ay: bool
    inc_coords: bool
    persistent_coords: bool
    coord_delay: int
    skip: str = ""

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        plan, row, col = schedule.plan, schedule.plan["row"][0], schedule.plan["col"][0]
        w.mov(plan["ky"][0], 3, sy=True)
        w.mov(plan["k4"][0], 0)
        for index in range(schedule.tile.rows):
            self._add(w, plan["a_pairs"][2 * index + 1], row, index)
            w.mov(plan["a_pairs"][2 * index], 0)
        for kk in range(4):
            w.mov(plan["even"][2 * kk], col)
            w.mov(plan["even"][2 * kk + 1], kk)
        if self.ncols > 1:
            w.alu("add.s", plan["odd"][0], col, LANES)
        if self.stable_bx:
            for kk in range(4):
                w.alu("add.s", plan["even2"][2 * kk], col, 2 * LANES)
            w.alu("add.s", plan["odd2" if "odd2" in plan else "x3"][0], col, 3 * LANES)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        if load.operand == "A":
            self._sample_a(w, schedule, load, step)
            return
        for col in load.which:
            if col % 2:
                self._sample_odd(w, schedule, col, load.kk)
            else:
                self._sample_even(w, schedule, col, step, load.kk)

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Nothing: the next step writes its pairs before its samples."""

    def finish(self, w: Writer, schedule: Schedule, step: Step) -> None:
        plan, unroll, end = schedule.plan, schedule.unroll, step.end
        if end is None:
            return
        if end - 1 > LARGEST_IMMEDIATE:
            raise KernelError(f"k is {4 * end}: the loop test counts to {LARGEST_IMMEDIATE + 1} K steps")
        if self.persistent_coords:
            w.alu("cmps.s.eq", "p0.x", plan["a_pairs"][0], end - 1, nop=1)
            for index in range(schedule.tile.rows):
                self._add(w, plan["a_pairs"][2 * index], plan["a_pairs"][2 * index], 1)
            for kk in range(4):
                self._add(w, plan["even"][2 * kk + 1], plan["even"][2 * kk + 1], 4)
            return
        w.alu("add.s", plan["next"][0], plan["k4"][0], unroll)
        w.alu("add.s", plan["ky"][0], plan["ky"][0], 4 * unroll)
        w.alu("cmps.s.eq", "p0.x", plan["k4"][0], end - unroll, nop=1)
        w.mov(plan["k4"][0], plan["next"][0])
        w.emit("nop", rpt=3)

    def _written(self, step: Step) -> bool:
        """Whether this step writes pairs from the counters, instead of adding to them."""
        return not self.persistent_coords and (step.index == 0 or not self.inc_coords)

    def _sample_a(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        plan = schedule.plan
        for index in load.which:
            x, y = plan["a_pairs"][2 * index], plan["a_pairs"][2 * index + 1]
            if self._written(step):
                self._add(w, x, plan["k4"][0], step.index)
                if not self.stable_ay:
                    self._add(w, y, plan["row"][0], index)
            elif step.index:
                self._add(w, x, x, 1)
        self._delay(w)
        for index in () if "A" in self.skip else load.which:
            w.isam(plan[f"a{index}"][0], plan["a_pairs"][2 * index], texture=0)

    def _sample_even(
        self, w: Writer, schedule: Schedule, col: int, step: Step, depths: tuple[int, ...]
    ) -> None:
        plan = schedule.plan
        pairs = plan["even2" if col and self.stable_bx else "even"]
        for kk in depths:
            x, y = pairs[2 * kk], pairs[2 * kk + 1]
            if self.ncols > 2 and not self.stable_bx:
                self._add(w, x, plan["col"][0], LANES * col)
            if col and self.stable_bx:
                w.mov(y, plan["even"][2 * kk + 1])
            elif not col and self._written(step):
                self._add(w, y, plan["ky"][0], 4 * step.index - 3 + kk)
            elif not col and step.index:
                self._add(w, y, y, 4)
        self._delay(w)
        for kk in () if "B" in self.skip else depths:
            w.isam(plan[schedule.slot(col)].vec(kk), pairs[2 * kk], texture=1)

    def _sample_odd(self, w: Writer, schedule: Schedule, col: int, depths: tuple[int, ...]) -> None:
        plan = schedule.plan
        own = col == 3 and "odd2" in plan
        pair = plan["odd2" if own else "odd"]
        if col == 3 and self.stable_bx and not own:
            w.mov(pair[0], plan["x3"][0])
        elif self.ncols > 2 and not own and not (col == 1 and "odd2" in plan):
            self._add(w, pair[0], plan["col"][0], LANES * col)
        for kk in depths:
            w.mov(pair[1], plan["even"][2 * kk + 1])
            self._delay(w)
            if "B" not in self.skip:
                w.isam(plan[schedule.slot(col)].vec(kk), pair[0], texture=1)

    def _delay(self, w: Writer) -> None:
        if self.coord_delay >= 0:
            w.emit("nop", rpt=self.coord_delay)

    @staticmethod
    def _add(w: Writer, dst: Reg, src: Reg, value: int) -> None:
        if value:
            w.alu("add.s", dst, src, value)
        else:
            w.mov(dst, src)
