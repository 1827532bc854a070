"""Texels that fibers of a quad sample for each other: B as published, rows of A as halves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.counted import Counted
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Load, Schedule, Step
from pytest_qcom.kernels.writer import Writer

SHUFFLES = {1: "xor", 2: "up", 3: "down", 6: "rup", 7: "rdown"}
"""Modes of a shuffle as its word encodes them."""
QUAD = 4
"""Neighbouring fibers that can hand registers around."""
_ROWS = 4  # of a fiber
_HANDED = ("quad", "indices", "zero")  # of the published kernels: full registers over texels, fibers' numbers


def by_halves(plan: RegisterPlan, sampled: int, fibers: int) -> RegisterPlan:
    """A published plan with texels of A that go around as halves, for files that are separate.

    ``sampled`` texels stand apart from those that they become: a shuffle of four onto its own source is not
    reliable, the notes say. ``indices`` are the fibers' numbers.
    """
    plan = replace(plan, blocks=tuple(block for block in plan.blocks if block.name not in _HANDED))
    return plan.allocate("sampled", 4 * sampled, half=True).allocate("indices", fibers, half=True)


def hand_halves(w: Writer, targets: Sequence[Reg], sources: Sequence[Reg], fibers: Sequence[Reg]) -> None:
    """Each target becomes the texel that the fiber of the quad with that number has in its source."""
    for registers in zip(targets, sources, fibers, strict=True):
        w.emit("quad_shuffle.brcst", *registers, type="u16", wrmask=15)


@dataclass(frozen=True, slots=True)
class OwnRow(Persistent):
    """Pairs that live through the loop; of A the fiber's own, for the row that it samples for its quad.

    The plan gives ``sampled``, a texel, and ``indices``, the numbers of four fibers, as halves; ``a_pairs``
    is one pair, so that ``row`` stands elsewhere.
    """

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        Persistent.prepare(self, w, schedule)
        plan, y = schedule.plan, schedule.plan["a_pairs"][1]
        w.alu("and.b", y, plan["col"][0], QUAD - 1)
        w.alu("add.s", y, y, plan["row"][0])
        for fiber, index in enumerate(plan["indices"]):
            w.set_half(index, fiber)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        if load.operand == "A":
            schedule.arithmetic.sample(w, schedule.plan["sampled"][0], schedule.plan["a_pairs"][0], texture=0)
        else:
            Persistent.sample(self, w, schedule, load, step)


@dataclass(frozen=True, slots=True)
class HandRows:
    """The rows that the fibers of a quad have sampled, into all of them."""

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        targets = [schedule.row(row)[0] for row in range(QUAD)]
        hand_halves(w, targets, [schedule.plan["sampled"][0]] * QUAD, list(schedule.plan["indices"]))


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
