"""The path that one wave takes, and what it samples on the way, without running the whole program.

Only what steers a wave is computed, on the numpy reference of the instruction table: the instructions from
which branches, coordinates and addresses follow. Everything else, loaded values too, is taken as zero. Where
fibers part, the path is that of the first fiber.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.analysis.graph import flow
from pytest_qcom.analysis.occupancy import Launch
from pytest_qcom.errors import GpuHang
from pytest_qcom.isa.access import reads, writes
from pytest_qcom.isa.instruction import Flow, Instr, Kind, Load, Sample, Store
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.reference import Registers, execute
from pytest_qcom.isa.registers import NO_REGISTER, PREDICATE, Reg

_REGISTERS = 4 * 64
_BUDGET = 2_000_000  # instructions of one wave
_COMPUTED = (1, 2, 3, 4)  # categories of instructions whose results are computed; those of others are zero
_BLOCK = 5  # log2 of the half4 texels of a row that come into the cache together: 256 bytes, found by fit
_STEADY = 4  # times that a loop's head comes by before its laps count as equal


class Steering(Launch, Protocol):
    """A launch with what steers its waves. A dispatch of the virtual device is one."""

    @property
    def constants(self) -> bytes: ...
    @property
    def group_id_regid(self) -> int: ...
    @property
    def local_size_regid(self) -> int: ...
    @property
    def group_offset_regid(self) -> int: ...
    @property
    def local_id_regid(self) -> int: ...
    @property
    def linear_local_id_regid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Trace:
    """One wave.

    Attributes:
        path: indices of the instructions executed, in order.
        active: fibers of the wave that the workgroup has.
        fresh: for each sampling instruction, the share of the blocks it touches that the wave has not
            touched before, over all of its executions but the first; of that one where it is the only one. A
            block holds 32 half4 texels of a row.
    """

    path: tuple[int, ...]
    active: int
    fresh: Mapping[int, float]


def trace(
    launch: Steering,
    program: Program,
    group: tuple[int, int, int] = (0, 0, 0),
    budget: int = _BUDGET,
    entry: int = 0,
) -> Trace:
    """The path of the first wave of workgroup ``group`` from ``entry`` on, at most ``budget`` instructions.

    Raises:
        GpuHang: a path that does not end.
    """
    x, y, z = launch.local_size
    fibers = 128 if launch.thread128 else 64
    walk = _Walk(program, launched(launch, fibers, group), min(fibers, x * y * z), budget)
    walk.run(entry)
    return Trace(
        tuple(walk.path),
        walk.active,
        {at: _fresh(found[1:] or found) for at, found in walk.seen.items()},
    )


def _fresh(found: Sequence[tuple[int, int]]) -> float:
    """The share of fresh blocks."""
    return sum(fresh for _, fresh in found) / max(1, sum(blocks for blocks, _ in found))


_CONDITIONAL = frozenset({Flow.BRANCH, Flow.BRANCH_OR, Flow.BRANCH_AND, Flow.ANY, Flow.ALL})


class _Walk:
    """The path so far. A loop whose laps repeat is followed by its counter alone, without coordinates."""

    def __init__(self, program: Program, registers: Registers, active: int, budget: int) -> None:
        self.program, self.registers, self.active, self.budget = program, registers, active, budget
        self.needed = steering(program, (Sample,))
        self.flows = [flow(instr) for instr in program.instrs]
        branches = {index for index, kind in enumerate(self.flows) if kind is not Flow.NEXT}
        self.steered = branches | steering(program, ())
        self.path: list[int] = []
        self.seen: dict[int, list[tuple[int, int]]] = {}  # blocks and fresh ones, of each execution
        self.touched: dict[int, set[int]] = {}  # blocks of each texture
        self.marks: dict[int, list[int]] = {}  # where in the path each loop head came by

    def run(self, index: int) -> None:
        """From instruction ``index`` to the end."""
        while index >= 0:
            following = self._step(index)
            if following > index or following < 0:
                index = following
                continue
            marks = self.marks.setdefault(following, [])
            marks.append(len(self.path))
            index = self._repeat(marks) if self._steady(marks) else following

    def _step(self, index: int) -> int:
        """Executes an instruction; the next one, -1 behind the last."""
        instr, kind = self.program.instrs[index], self.flows[index]
        self.path.append(index)
        if len(self.path) > self.budget:
            raise GpuHang(
                f"trace of {len(self.program.instrs)} instructions: no end after {self.budget} of them",
                index=index,
            )
        if kind is Flow.END:
            return -1
        if isinstance(instr.op.effect, Sample):
            blocks = _blocks(instr, self.registers, self.active)
            touched = self.touched.setdefault(int(instr.get("tex", 0)), set())
            self.seen.setdefault(index, []).append((len(blocks), len(blocks - touched)))
            touched |= blocks
        elif index in self.needed:
            execute(instr, self.registers)
        return self.program.target(index) if taken(instr, kind, self.registers) else index + 1

    def _steady(self, marks: list[int]) -> bool:
        """Whether the last laps of a loop took the same path, and enough of them."""
        if len(marks) < _STEADY or marks[-1] - marks[-_STEADY] > len(self.path):
            return False
        laps = [tuple(self.path[a:b]) for a, b in zip(marks[-_STEADY:], marks[-_STEADY + 1 :], strict=False)]
        return len(set(laps)) == 1

    def _counting(self, lap: Sequence[int]) -> list[int]:
        """The places of a lap from which its branches, those of later laps and those elsewhere follow."""
        elsewhere = self._behind(set(lap))
        wanted = {access.reg for index in elsewhere for access in reads(self.program.instrs[index])}
        found: set[int] = set()
        before = -1
        while len(found) > before:  # backwards through one lap after the other
            before = len(found)
            for place in reversed(range(len(lap))):
                instr = self.program.instrs[lap[place]]
                if isinstance(instr.op.effect, Sample):  # its result is not followed, see _step
                    continue
                written = {access.reg for access in writes(instr)}
                steers = self.flows[lap[place]] is not Flow.NEXT
                if not steers and (instr.op.cat not in _COMPUTED or not written & wanted):
                    continue
                found.add(place)
                wanted -= written
                wanted.update(access.reg for access in reads(instr))
        return sorted(found)

    def _behind(self, lap: set[int]) -> set[int]:
        """What may run once a lap is left and steer a branch there; nothing where no branch is left."""
        behind: set[int] = set()
        ahead = [following for index in lap for following in self._following(index)]
        while ahead:
            index = ahead.pop()
            if index not in lap and index not in behind:
                behind.add(index)
                ahead += self._following(index)
        branches = any(self.flows[index] in _CONDITIONAL for index in behind)
        return behind & self.steered if branches else set()

    def _following(self, index: int) -> list[int]:
        """Where an instruction may go on."""
        kind = self.flows[index]
        following = [] if kind in (Flow.END, Flow.JUMP) else [index + 1]
        if kind is Flow.JUMP or kind in _CONDITIONAL:
            following.append(self.program.target(index))
        return [index for index in following if index < len(self.flows)]

    def _repeat(self, marks: list[int]) -> int:
        """Follows a loop by what steers its branches, as long as its laps repeat; where it goes on."""
        lap = self.path[marks[-2] : marks[-1]]
        steps = [(place, lap[place]) for place in self._counting(lap)]
        while True:
            for place, index in steps:
                instr, kind = self.program.instrs[index], self.flows[index]
                if kind is Flow.NEXT:
                    execute(instr, self.registers)
                    continue
                following = self.program.target(index) if taken(instr, kind, self.registers) else index + 1
                if following != (lap[place + 1] if place + 1 < len(lap) else lap[0]):
                    self.path += lap[: place + 1]
                    marks.clear()
                    return following
            self.path += lap
            if len(self.path) > self.budget:
                raise GpuHang(
                    f"trace of {len(self.program.instrs)} instructions: no end after {self.budget} of them",
                    index=lap[0],
                )


def steering(program: Program, effects: tuple[type[object], ...] = (Sample, Load, Store)) -> frozenset[int]:
    """The instructions from which branches, and coordinates and addresses of ``effects``, follow."""
    wanted: set[Reg] = set()
    for instr in program.instrs:
        data = len(instr.srcs) - 1 if isinstance(instr.op.effect, Store) else -1
        if instr.op.cat == 0 or isinstance(instr.op.effect, effects):
            wanted.update(access.reg for access in reads(instr) if access.operand != data)
    found: set[int] = set()
    grown = True
    while grown:
        grown = False
        for index, instr in enumerate(program.instrs):
            if index in found or instr.op.cat not in _COMPUTED:
                continue
            if any(access.reg in wanted for access in writes(instr)):
                found.add(index)
                wanted.update(access.reg for access in reads(instr))
                grown = True
    return frozenset(found)


def launched(launch: Steering, fibers: int, group: tuple[int, int, int]) -> Registers:
    """The registers as the launch leaves them."""
    full = np.zeros((_REGISTERS, fibers), np.uint32)
    half = np.zeros((_REGISTERS, fibers), np.uint16)
    constants = np.zeros(4096, np.uint32)
    words = np.frombuffer(launch.constants[: len(launch.constants) // 4 * 4], np.uint32)[:4096]
    constants[: len(words)] = words
    x, y, _ = launch.local_size
    lane = np.arange(fibers)
    local = (lane % x, lane // x % y, lane // (x * y))
    values: tuple[tuple[int, tuple[int | NDArray[np.int64], ...]], ...] = (
        (launch.group_id_regid, group),
        (launch.local_size_regid, launch.local_size),
        (launch.group_offset_regid, tuple(g * s for g, s in zip(group, launch.local_size, strict=True))),
        (launch.local_id_regid, local),
        (launch.linear_local_id_regid, (lane,)),
    )
    for first, triple in values:
        for number, value in enumerate(triple):
            if first < NO_REGISTER:
                full[first + number] = value
    state = Registers(full, half, constants, np.zeros((4, fibers), bool), np.zeros((4, fibers), np.int16))
    return state


def _blocks(instr: Instr, registers: Registers, active: int) -> set[int]:
    """The blocks of a row's texels that the wave asks for, as numbers."""
    coordinate = instr.srcs[0]
    if coordinate.kind is not Kind.GPR:
        return set()
    file = registers.half if coordinate.half else registers.full
    x, y = (file[coordinate.value + axis, :active].astype(np.int64) for axis in range(2))
    return set((y << 32 | x >> _BLOCK).tolist())


def taken(instr: Instr, kind: Flow, registers: Registers) -> bool:
    """Whether the first fiber takes the branch."""
    if kind is Flow.JUMP:
        return True
    if kind in (Flow.BRANCH, Flow.ANY, Flow.ALL):
        return _holds(instr, registers, "1")
    if kind is Flow.BRANCH_OR:
        return _holds(instr, registers, "1") or _holds(instr, registers, "2")
    if kind is Flow.BRANCH_AND:
        return _holds(instr, registers, "1") and _holds(instr, registers, "2")
    return False


def _holds(instr: Instr, registers: Registers, number: str) -> bool:
    predicate = Reg(PREDICATE + instr["comp" + number])
    return bool(registers.predicates[predicate.num - PREDICATE, 0]) != bool(instr["inv" + number])
