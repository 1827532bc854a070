"""A texel of B that the first fiber of a quad samples for all four, as the published kernels do it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_qcom.kernels.counted import Counted
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Load, Schedule, Step
from pytest_qcom.kernels.writer import Writer

SHUFFLES = {1: "xor", 2: "up", 3: "down", 6: "rup", 7: "rdown"}
"""Modes of a shuffle as its word encodes them."""
_ROWS = 4  # of a fiber


@dataclass(frozen=True, slots=True)
class QuadB:
    """The four k of B, sampled by the first fiber of each quad and handed to the others.

    The plan gives ``sampled``, four vec4 beside ``b0``, and ``lane``, one scalar, which may lie over A.

    Attributes:
        load_all: no branch: every fiber samples.
        shuffle: the mode of scalar shuffles; 0 for vector broadcasts.
    """

    coordinates: Counted
    load_all: bool
    shuffle: int

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        plan, lane = schedule.plan, schedule.plan["lane"][0]
        sampled, over = plan["sampled"], f"over{len(w)}"
        for kk in range(4):
            w.mov(sampled.vec(kk), plan["col"][0])
            w.alu("add.s", sampled.vec(kk) + 1, plan["ky"][0], kk - self.coordinates.ahead)
        w.alu("shr.b", lane, plan["row"][0], _ROWS.bit_length() - 1)
        w.emit("nop", rpt=2)
        w.alu("and.b", lane, lane, 3)
        w.emit("nop", rpt=2)
        if not self.load_all:
            w.alu("cmps.s.eq", "p0.x", lane, 0)
            w.emit("nop", rpt=5)
            w.branch(over)
        for kk in range(4):
            if self.load_all and self.coordinates.delay >= 0:
                w.emit("nop", rpt=self.coordinates.delay)
            self.coordinates.fetch(w, schedule, Load("B", (0,)), sampled.vec(kk), sampled.vec(kk))
        w.label(over)
        w.emit("nop", ss=True, jp=True)
        self._hand(w, plan)
        w.emit("nop", ss=True)  # the number of the fiber lies where A will be

    def _hand(self, w: Writer, plan: RegisterPlan) -> None:
        lane, sampled, target = plan["lane"][0], plan["sampled"], plan["b0"]
        if not self.shuffle:
            w.mov(lane, 0)
            w.emit("nop", rpt=5)
            for kk in range(4):
                registers = target.vec(kk), sampled.vec(kk), lane
                w.emit("quad_shuffle.brcst", *registers, type="u32", wrmask=15, sy=not kk)
            return
        mode = SHUFFLES[self.shuffle]
        if mode.endswith("down"):  # the first fiber is behind
            w.alu("sub.s", lane, 0, lane)
            w.emit("nop", rpt=5)
        w.emit("nop", sy=True)
        for index in range(16):
            w.emit(f"shfl.{mode}.u32", target[index], sampled[index], lane)
