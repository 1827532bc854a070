"""Coordinates from two counters, in the registers that the samples go to or in a pair that all share.

A full texel is four 32-bit registers, its coordinate two. Where both files are scarce, the coordinate is
written into the first two registers of the texel and the sample overwrites it: no register is spent on
coordinates, and no pair is ever rewritten under an outstanding sample, since the sample that reads it is
the one that products have waited for.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.launch import LANES, Tile
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE, Load, Schedule, Step, limit
from pytest_qcom.kernels.writer import Writer, constant_name

Term = tuple[Reg, int]
"""A register plus a number."""

SHARED = "pair"
"""The plan's block of the one pair for all samples."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The plan gives ``k4``, ``ky`` (k of the next step), ``row``, ``col``; with shared pairs ``pair``;
    where A is interleaved ``quads``, its row of texels.

    Attributes:
        shared_a, shared_b: samples of A or B take their coordinate from the one pair; else from the
            registers that they write.
        ahead: what ``ky`` is ahead of the first k of a step; the published kernels have 3.
        delay: ``(rptN)nop`` between a coordinate and its sample; -1 is none.
        first_delay_only: that nop only before the first sample of a load.
        convert: samples are half, into the plan's ``half``, and converted.
        noted: the published loop control with its own waits; else that of ours.
        early: the phases have an :class:`Advance` and a :class:`Fetch` that tests; else the loop is counted
            and tested behind the last product.
        skip: operands that are not sampled, ``A``, ``B`` or both: a throughput probe. Their coordinates are
            written all the same.
        paired: both parts of a coordinate by one repeated addition of a pair of constants; the plan has k4
            beside row, and col beside ky, and a loop body is one step.
        below: A lies below B in the one image that both are sampled from, from this row on; 0 for an image
            each.
    """

    shared_a: bool = False
    shared_b: bool = False
    ahead: int = 0
    delay: int = -1
    first_delay_only: bool = False
    convert: bool = False
    noted: bool = False
    early: bool = False
    skip: str = ""
    paired: bool = False
    below: int = 0

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        w.mov(schedule.plan["ky"][0], self.ahead, sy=self.noted)
        w.mov(schedule.plan["k4"][0], 0)
        if schedule.interleaved:
            w.alu("shr.b", schedule.plan["quads"][0], schedule.plan["row"][0], 2)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """The samples of ``load``, each behind its coordinate."""
        shared = self.shared_a if load.operand == "A" else self.shared_b
        last: Term | None = None
        for number, texel in enumerate(texels(schedule, load)):
            pair = schedule.plan[SHARED][0] if shared else texel
            x, y = self._place(schedule, load, number, step)
            if not shared or x != last:
                _set(w, pair, x)
            _set(w, pair + 1, y)
            last = x
            if self.delay >= 0 and not (number and self.first_delay_only):
                w.emit("nop", rpt=self.delay)
            self.fetch(w, schedule, load, texel, pair)

    def aim(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """The coordinates of ``load`` into the registers of its texels."""
        if self.paired:
            base = schedule.plan["k4" if load.operand == "A" else "col"][0]
            for place, texel in zip(_places(load), texels(schedule, load), strict=True):
                pair = constant_name(_PAIRS + 2 * _number(schedule.tile, load.operand, place))
                w.alu("add.s", texel, f"(r){base}", f"(r){pair}", rpt=1)
            return
        for number, texel in enumerate(texels(schedule, load)):
            x, y = self._place(schedule, load, number, step)
            _set(w, texel, x)
            _set(w, texel + 1, y)

    def fetch(self, w: Writer, schedule: Schedule, load: Load, texel: Reg, pair: Reg) -> None:
        """One sample."""
        if load.operand in self.skip:
            return
        texture = 0 if self.below else "AB".index(load.operand)
        arithmetic = schedule.arithmetic
        if not self.convert:
            arithmetic.sample(w, texel, pair, texture)
            return
        half = schedule.plan["half"][0]
        replace(arithmetic, texel="f16").sample(w, half, pair, texture)
        for lane in range(4):
            w.emit("cov.f16f32", texel + lane, half + lane, sy=self.noted and not lane)

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Nothing: the next step writes its coordinates."""

    def advance(self, w: Writer, schedule: Schedule, step: Step) -> None:
        """Behind the coordinates of the last step of a loop body: counts its steps, and tests."""
        if step.end is None:
            return
        k4, ky = schedule.plan["k4"][0], schedule.plan["ky"][0]
        w.alu("add.s", k4, k4, schedule.unroll)
        w.alu("add.s", ky, ky, 4 * schedule.unroll)

    def finish(self, w: Writer, schedule: Schedule, step: Step) -> None:
        if step.end is None:
            return
        plan, unroll = schedule.plan, schedule.unroll
        k4, ky = plan["k4"][0], plan["ky"][0]
        if not self.noted:
            if not self.early:
                self.advance(w, schedule, step)
                w.alu("cmps.s.eq", "p0.x", k4, limit(step.end))
            return
        if step.end - unroll > LARGEST_IMMEDIATE:
            raise KernelError(
                f"k is {4 * step.end}: the loop test counts to {LARGEST_IMMEDIATE + unroll} K steps"
            )
        w.alu("add.s", plan["next"][0], k4, unroll)
        w.alu("add.s", ky, ky, 4 * unroll)
        w.alu("cmps.s.eq", "p0.x", k4, step.end - unroll, nop=1)
        w.mov(k4, plan["next"][0])
        w.emit("nop", rpt=3)

    def _place(self, schedule: Schedule, load: Load, number: int, step: Step) -> tuple[Term, Term]:
        """(x, y) of sample ``number`` of ``load``."""
        index = step.index + load.ahead
        plan, first = schedule.plan, 4 * index - self.ahead
        if load.operand == "B":
            column, kk = divmod(number, len(load.kk))
            return (plan["col"][0], LANES * load.which[column]), (plan["ky"][0], first + load.kk[kk])
        if schedule.interleaved:
            return (plan["ky"][0], first + load.which[number]), (plan["quads"][0], 0)
        return (plan["k4"][0], index), (plan["row"][0], self.below + load.which[number])


_PAIRS = 96
"""c24.x and up: pairs of what is added to the counters, those of the rows of A, then those of B."""


def pair_constants(tile: Tile) -> tuple[tuple[int, int], ...]:
    """The constants of ``paired`` coordinates, as (scalar number, value)."""
    pairs = [(0, row) for row in range(tile.rows)]
    pairs += [(tile.lanes * col, kk) for col in range(tile.cols) for kk in range(4)]
    return tuple((_PAIRS + number, value) for number, value in enumerate(itertools.chain(*pairs)))


def _number(tile: Tile, operand: str, place: tuple[int, int]) -> int:
    """Which pair of constants belongs to a row of A, or to a column and k of B."""
    return place[0] if operand == "A" else tile.rows + 4 * place[0] + place[1]


def _places(load: Load) -> list[tuple[int, int]]:
    """(row, 0) or (column, k) of the samples of ``load``, in their order."""
    kk = (0,) if load.operand == "A" else load.kk
    return [(index, k) for index in load.which for k in kk]


def texels(schedule: Schedule, load: Load) -> list[Reg]:
    """The registers that the samples of ``load`` go to, in their order."""
    if load.operand == "A":
        return [schedule.plan[schedule.texels("a", index, load.bank)][0] for index in load.which]
    return [schedule.plan[schedule.slot(col, load.bank)].vec(kk) for col in load.which for kk in load.kk]


@dataclass(frozen=True, slots=True)
class Aim:
    """The coordinates of some loads, all before the first of their samples."""

    coordinates: Counted
    loads: tuple[Load, ...]

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        for load in self.loads:
            self.coordinates.aim(w, schedule, load, step)


@dataclass(frozen=True, slots=True)
class Advance:
    """The counters, and the test of the loop: both fill the wait for the last coordinate."""

    coordinates: Counted

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        self.coordinates.advance(w, schedule, step)


@dataclass(frozen=True, slots=True)
class Fetch:
    """The samples of some loads whose coordinates stand in their registers.

    ``test``: the loop is tested before the last one, which has to wait for its coordinate.
    """

    coordinates: Counted
    loads: tuple[Load, ...]
    test: bool = False

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        samples = [(load, texel) for load in self.loads for texel in texels(schedule, load)]
        for number, (load, texel) in enumerate(samples):
            if self.test and number == len(samples) - 1 and step.end is not None:
                w.alu("cmps.s.eq", "p0.x", schedule.plan["k4"][0], limit(step.end))
            self.coordinates.fetch(w, schedule, load, texel, texel)


def _set(w: Writer, dst: Reg, term: Term) -> None:
    """``dst`` becomes the sum of a register and a number."""
    register, number = term
    if number:
        w.alu("add.s", dst, register, number)
    else:
        w.mov(dst, register)
