"""A cycle model of a launch: waves, issue, ALU, texture pipe, stores, waits hidden by other waves.

One shader processor is simulated with its waves (:mod:`.processor`) until three rounds of them are done; the
further rounds take as long as the second did. Here stands what an instruction costs there.

The few constants that no source gives are fitted to published measurements by
``suites/analysis/fit_cycles.py``; they stand in :class:`Constants`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pytest_qcom.analysis.native import Floats, Ints
from pytest_qcom.analysis.processor import Jobs, Pipe, State, run, state
from pytest_qcom.analysis.trace import Steering, Trace, trace
from pytest_qcom.analysis.work import Work, work
from pytest_qcom.chip import A630, Chip
from pytest_qcom.isa.program import Program

MODE = "model: cycle"

_LONG = 60_000  # instructions of a wave from which on only a part of its loop is simulated
_ROUNDS = 3
_THREE = 3  # different registers of an instruction from which on it takes ``Constants.sources``


@dataclass(frozen=True, slots=True)
class Constants:
    """What no source gives, for one shader processor; fitted with all families together.

    Attributes:
        fetch: cycles by which the result of a sample of 64 fibers comes later than from the cache, where the
            wave has not touched its blocks of texels before; of fewer or more fibers in proportion.
        queue: cycles of work that the texture pipe takes in advance.
        sources: least cycles of an instruction, repeats included, that reads three different registers.
        turn: cycles until a wave may issue again, beyond those that its instruction takes; none after a nop.
        sample: the same behind a sample.
        branch: cycles more behind a branch or jump.
        store_bytes: bytes a cycle of the store path.
        miss: cycles of its partition that an instruction costs in a loop beyond the instruction cache.
    """

    fetch: float = 88.0
    queue: float = 8.0
    sources: float = 4.0
    turn: float = 2.5
    sample: float = 1.5
    branch: float = 20.0
    store_bytes: float = 16.0
    miss: float = 1.0


DEFAULT = Constants()
START = 100.0
"""Cycles from a wave's launch to its first instruction; assumed: no published figure shows it."""
_WAYS = 4  # of the instruction cache, assumed: a loop thrashes all of it when it is this part too long


class Event(NamedTuple):
    """An issued instruction, for timelines."""

    slot: int
    place: int
    pipe: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted launch.

    Attributes:
        seconds, cycles: duration of the launch.
        waves: resident waves of a shader processor.
        busy: share of the time for which each pipe of a processor works: ``alu``, ``texture``, ``store``.
        loop: instructions of the longest loop; of the whole path where there is none.
        events: what one processor issued, if that was asked for.
    """

    seconds: float
    cycles: float
    waves: int
    busy: dict[str, float]
    loop: int = 0
    events: Sequence[Event] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Scale:
    """Factors on what things cost, to see what a launch is bound by.

    Attributes:
        alu, store, latency, miss: of ALU work, stores, latency of results, instruction cache misses.
        textures: of samples from a texture, by its number.
        waves: of resident waves.
    """

    alu: float = 1.0
    store: float = 1.0
    latency: float = 1.0
    miss: float = 1.0
    waves: int = 1
    textures: Mapping[int, float] = field(default_factory=dict)


_NOTHING = Scale()


def estimate(
    launch: Steering, program: Program, constants: Constants = DEFAULT, chip: Chip = A630
) -> Estimate:
    """The time of a launch.

    Raises:
        LaunchError: when not a single wave fits.
        GpuHang: a path that does not end.
    """
    return simulate(launch, program, trace(launch, program), constants, chip)


def simulate(
    launch: Steering,
    program: Program,
    path: Trace,
    constants: Constants = DEFAULT,
    chip: Chip = A630,
) -> Estimate:
    """The same for a path that is known already."""
    return evaluate(work(launch, program, path, chip), constants, chip)


def evaluate(
    given: Work,
    constants: Constants = DEFAULT,
    chip: Chip = A630,
    scale: Scale = _NOTHING,
    events: bool = False,
) -> Estimate:
    """The time of a launch of which the work is known."""
    resident = min(given.resident * scale.waves, given.share)
    machine = _Machine(resident, given.share, _jobs(given, constants, chip, scale), constants, chip)
    laps = given.laps
    part = max(1, _LONG // 4 // int(laps[1] - laps[0])) if len(laps) > 1 else 1
    if len(given.path) < _LONG or len(laps) < 8 or len(laps) <= 2 * part:  # or other loops are long too
        cycles, busy = machine.launch(given.path)
    else:  # two lengths of the loop give its pace
        before, _ = machine.launch(given.cut(part))
        cycles, busy = machine.launch(given.cut(2 * part))
        cycles += (len(given.laps) - 2 * part) * (cycles - before) / part
    found: Sequence[Event] = ()
    if events:
        found = machine.events(given.cut(2) if len(given.laps) > 2 else given.path, given.places)
    return Estimate(cycles / chip.clocks.top.value, cycles, resident, busy, given.loop, found)


@dataclass(frozen=True, slots=True)
class _Machine:
    """A processor, the waves that it is dealt, and what their instructions cost."""

    resident: int
    share: int
    jobs: Jobs
    constants: Constants
    chip: Chip

    def launch(self, path: Ints) -> tuple[float, dict[str, float]]:
        """Cycles of all waves, and for which share of them each pipe works."""
        waves = min(self.share, _ROUNDS * self.resident)
        cycles, machine = self._run(path, waves)
        one, two = machine.marks
        busy = machine.busy / cycles
        if self.share > waves:
            cycles += (self.share - waves) / self.resident * float(two - one)
        return cycles, {
            "alu": float(busy[Pipe.ALU]) / machine.partitions,
            "texture": float(busy[Pipe.TEXTURE]),
            "store": float(busy[Pipe.MEMORY]),
        }

    def events(self, path: Ints, places: Sequence[int]) -> list[Event]:
        """What a processor with one wave in each slot issues, in this order."""
        _, machine = self._run(path, self.resident, len(path) * self.resident)
        rows = ((int(slot), int(job), start, end) for slot, job, start, end in machine.log.reshape(-1, 4))
        return [
            Event(slot, places[job], int(self.jobs.pipe[job]), float(start), float(end))
            for slot, job, start, end in rows
        ]

    def _run(self, path: Ints, waves: int, most: int = 0) -> tuple[float, State]:
        partitions = self.chip.cores.issue_partitions.value
        made = state(self.resident, partitions, self.constants.queue, most)
        jobs = self.jobs._replace(path=np.ascontiguousarray(path))
        return float(run(jobs, made, len(path), waves, START)), made


def _jobs(given: Work, constants: Constants, chip: Chip, scale: Scale) -> Jobs:
    """What the instructions cost."""
    costs, pipe = given.costs, given.whole("pipe")
    miss = _miss(given.loop, constants, chip) * scale.miss
    alu = _alu(given, constants, chip) * scale.alu + miss
    factor = np.ones(len(pipe))
    for number, value in scale.textures.items():
        factor[given.whole("texture") == number] = value
    texture = given.active / chip.rates.texels.value
    cached = (chip.latencies.texture128 if given.thread128 else chip.latencies.texture).value[-1]
    fetched = constants.fetch * given.active / chip.waves.fibers.value
    latency = (cached + costs["fresh"] * fetched) * np.minimum(1.0, 2 * factor)
    turn = np.select(
        [costs["nop"] > 0, pipe == Pipe.TEXTURE, costs["flow"] > 0],
        [0.0, constants.sample, constants.turn + constants.branch],
        constants.turn,
    )
    work = np.select(
        [pipe == Pipe.ALU, pipe == Pipe.TEXTURE, pipe == Pipe.MEMORY],
        [alu, texture * factor, costs["bytes"] / constants.store_bytes * scale.store],
        costs["cycles"],
    )
    return Jobs(
        path=given.path,
        pipe=pipe,
        ss=given.whole("ss"),
        sy=given.whole("sy"),
        work=work,
        gap=np.where(pipe == Pipe.ALU, alu, costs["slots"]) + costs["idle"] + turn,
        latency=np.where(pipe == Pipe.TEXTURE, latency, costs["latency"]) * scale.latency,
        word=np.where(costs["nop"] > 0, 0.0, 1.0) + miss,
    )


def _alu(given: Work, constants: Constants, chip: Chip) -> Floats:
    """Cycles of ALU instructions; a full mad of 128 fibers takes longer, half as long where half are idle."""
    three, slot = given.costs["sources"] >= _THREE, np.ones(len(given.places))
    if given.thread128:
        mad = np.where(three, chip.rates.mad_cycles128.value, chip.rates.full_cycles128.value)
        mad = np.maximum(1.0, mad * given.active / (2 * chip.waves.fibers.value))
        slot = np.where(given.costs["mad"] > 0, mad, slot)
    return np.maximum(given.costs["slots"] * slot, np.where(three, constants.sources, 1.0))


def _miss(loop: int, constants: Constants, chip: Chip) -> float:
    """Cycles of an instruction that may not be in the instruction cache."""
    held = chip.memories.instruction_cache.value // chip.code.bytes_per_instruction.value
    return min(1.0, max(0.0, (loop - held) / (held / _WAYS))) * constants.miss
