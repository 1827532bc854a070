"""Coordinate policies: how a schedule makes the (x, y) pairs that its samples read."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_qcom.kernels.launch import LANES
from pytest_qcom.kernels.schedule import Load, Schedule, Step, limit
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
        rows = a_pairs.size // 2
        for index in range(1, rows):
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
        for index in range(rows):
            w.mov(a_pairs[2 * index], 0)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        plan = schedule.plan
        for index in load.which:
            if load.operand == "A":
                texel = schedule.row(index, load.bank)[0]
                schedule.arithmetic.sample(w, texel, plan["a_pairs"][2 * index], texture=0)
            else:
                for kk in load.kk:
                    pair = plan["b_pairs"][2 * (4 * index + kk)]
                    texel = schedule.vector(index, kk, load.bank)
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
