"""Coordinates from counters, written anew for each sample into pairs that take turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.choices import NO_DELAY
from pytest_qcom.kernels.launch import LANES, Tile
from pytest_qcom.kernels.registers import Block, RegisterPlan
from pytest_qcom.kernels.schedule import Epilogue, Load, Schedule, Step, limit
from pytest_qcom.kernels.writer import Writer

_Place = TypeVar("_Place")
_HALF = 16  # bits of either half of a folded state


@dataclass(frozen=True, slots=True)
class Fresh:
    """As many samples at a time as their operand has pairs: pairs first, then the samples.

    The plan gives ``a_pairs`` and ``b_pairs``, ``row`` and ``col``, and the counters ``k4`` and ``ky``.

    Attributes:
        folded: ``row`` holds the row in its high half and k4 in its low one, each below 65536, until
            :class:`Unfolded` leaves the row alone; instead of counters there is ``count``, which the loop's
            test reads: what it tests must not come from what differs between fibers.
        a_delay, b_delay: ``(rptN)nop`` between the pairs and their samples; -1 is none.
        skip: operands, ``A`` or ``B`` or both, that are not sampled, their pairs are written all the same;
            ``a`` and ``b``: not even those.
        start: the first K step.
    """

    folded: bool = False
    a_delay: int = NO_DELAY
    b_delay: int = NO_DELAY
    skip: str = ""
    start: int = 0

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        if self.folded:
            w.alu("shl.b", schedule.plan["row"][0], schedule.plan["row"][0], _HALF)
            if self.start:
                w.alu("add.s", schedule.plan["row"][0], schedule.plan["row"][0], self.start)
            w.mov(schedule.plan["count"][0], 0)
            return
        w.mov(schedule.plan["k4"][0], self.start)
        w.mov(schedule.plan["ky"][0], 4 * self.start)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        plan = schedule.plan
        if load.operand.lower() in self.skip:
            return
        if load.operand == "A":
            pairs = plan["a_pairs"]
            for rows in _batches(list(load.which), pairs):
                for index, row in enumerate(rows):
                    self._row(w, schedule, pairs[2 * index], row)
                self._delay(w, self.a_delay)
                for index, row in enumerate(rows if "A" not in self.skip else ()):
                    w.isam(plan[schedule.texels("a", row, load.bank)][0], pairs[2 * index], texture=0)
            return
        pairs = plan["b_pairs"]
        for places in _batches([(col, kk) for col in load.which for kk in load.kk], pairs):
            for index, (col, kk) in enumerate(places):
                w.alu("add.s", pairs[2 * index], plan["col"][0], LANES * col)
                self._depth(w, schedule, pairs[2 * index + 1], kk)
            self._delay(w, self.b_delay)
            for index, (col, kk) in enumerate(places if "B" not in self.skip else ()):
                w.isam(plan[schedule.slot(col, load.bank)].vec(kk), pairs[2 * index], texture=1)

    @staticmethod
    def _delay(w: Writer, repeat: int) -> None:
        if repeat != NO_DELAY:
            w.emit("nop", rpt=repeat)

    def _row(self, w: Writer, schedule: Schedule, pair: Reg, row: int) -> None:
        state = schedule.plan["row"][0]
        if self.folded:
            self._k4(w, pair, state)
            w.alu("shr.b", pair + 1, state, _HALF)
            w.alu("add.s", pair + 1, pair + 1, row)
        else:
            w.mov(pair, schedule.plan["k4"][0])
            w.alu("add.s", pair + 1, state, row)

    def _depth(self, w: Writer, schedule: Schedule, dst: Reg, kk: int) -> None:
        """The row of B."""
        if self.folded:
            self._k4(w, dst, schedule.plan["row"][0])
            w.alu("shl.b", dst, dst, 2)
            w.alu("or.b", dst, dst, kk)
        else:
            w.alu("add.s", dst, schedule.plan["ky"][0], kk)

    @staticmethod
    def _k4(w: Writer, dst: Reg, state: Reg) -> None:
        w.alu("shl.b", dst, state, _HALF)
        w.alu("shr.b", dst, dst, _HALF)

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Nothing: pairs are written before their samples."""

    def finish(self, w: Writer, schedule: Schedule, step: Step) -> None:
        plan = schedule.plan
        state, count = plan["row"][0], plan["count" if self.folded else "k4"][0]
        if step.final:
            return
        w.alu("add.s", count, count, 1)
        if self.folded:
            w.alu("add.s", state, state, 1)
        else:
            w.alu("add.s", plan["ky"][0], plan["ky"][0], 4)
        if step.end is not None:
            end = step.end if self.folded else step.end + self.start
            w.alu("cmps.s.eq", "p0.x", count, limit(end))


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A store behind coordinates that are ``folded``: the row alone again."""

    store: Epilogue

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return self.store.constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        w.alu("shr.b", plan["row"][0], plan["row"][0], _HALF)
        self.store.emit(w, tile, plan)


def _batches(places: Sequence[_Place], pairs: Block) -> list[Sequence[_Place]]:
    """``places`` in as many as there are ``pairs`` for at a time."""
    size = pairs.size // 2
    return [places[start : start + size] for start in range(0, len(places), size)]
