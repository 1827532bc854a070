"""A cycle model of a launch: waves, issue, ALU, texture pipe, stores, waits hidden by other waves.

One shader processor is simulated with its resident waves. A wave issues in order; a partition issues one
instruction at a time, of whichever of its waves could go first; its ALU is busy for every repeat, longer for
full registers in THREAD128. A sample takes the partition while it hands its coordinates over, then queues in
the processor's texture pipe, which serves distinct texels of a quad at a steady rate; (sy) waits for the last
result, (ss) until the pipes have taken their sources. Waves that end are followed by the next ones. Two
rounds of waves and two lengths of the longest loop are simulated, and the rest extrapolated.

The few constants that no source gives are fitted to published measurements by
``suites/analysis/fit_cycles.py``; they stand in :class:`Constants`.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pytest_qcom.analysis.occupancy import of_launch, waves_of
from pytest_qcom.analysis.timing import is_full
from pytest_qcom.analysis.trace import Steering, Trace, trace
from pytest_qcom.chip import A630, Chip
from pytest_qcom.isa.instruction import Instr, Load, Sample, Shuffle, Space, Store, Sync
from pytest_qcom.isa.program import Program

MODE = "model: cycle"

_WINDOW = 1600  # instructions of a loop after which it is taken to be steady
_BOUND = 0.85  # share of the time from which on a busy pipe is what limits


@dataclass(frozen=True, slots=True)
class Constants:
    """What is fitted, for one shader processor.

    Fitted to the 79 published rows whose kernels could be built, all families with the same constants. Not
    explained yet: texture bandwidth at 16 and 20 samples a wait, float32 kernels of scalar MADs.

    Attributes:
        texels: distinct texels that the texture pipe serves a cycle.
        sample: least cycles of the texture pipe for a sample of a 64-fiber wave.
        coordinates: cycles that a sample of a 64-fiber wave takes the partition to hand over coordinates.
        texture_latency: cycles from a sample's service to its result.
        store_bytes: bytes a cycle of the store path.
        memory_latency: cycles from a load's service to its result.
        full: cycles of an ALU instruction on full registers of a 128-fiber wave, a repeat.
        word: cycles that an instruction word takes the issue of its partition.
        turn: cycles until a wave may issue again, beyond those that its instruction takes.
        miss: the same as ``word`` where the instruction cache does not hold the program.
        start: cycles before the first instruction of a wave.
    """

    texels: float = 20.0
    sample: float = 2.4
    coordinates: float = 3.25
    texture_latency: float = 85.0
    store_bytes: float = 12.0
    memory_latency: float = 180.0
    full: float = 2.1
    word: float = 1.25
    turn: float = 2.0
    miss: float = 3.75
    start: float = 100.0


DEFAULT = Constants()


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted launch.

    Attributes:
        seconds, cycles: duration of the launch.
        waves: resident waves of a shader processor.
        busy: share of the time for which each pipe of a processor works: ``alu``, ``texture``, ``store``.
        limiter: the pipe that binds, ``sync`` where none does.
    """

    seconds: float
    cycles: float
    waves: int
    busy: dict[str, float]
    limiter: str


Job = tuple[int, float, float, bool, bool, float]
"""An instruction as simulated: pipe, cycles of it, cycles until the wave's next, (ss), (sy), latency."""

_PIPES = 5
_ALU, _TEXTURE, _MEMORY, _LOCAL, _IDLE = range(_PIPES)


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
    launch: Steering, program: Program, path: Trace, constants: Constants = DEFAULT, chip: Chip = A630
) -> Estimate:
    """The same for a path that is known already."""
    total = waves_of(launch, chip)
    processors, partitions = chip.cores.shader_processors.value, chip.cores.issue_partitions.value
    share = math.ceil(total / processors)
    resident = min(of_launch(launch, chip).waves, share)
    made = {
        index: _job(program.instrs[index], index, launch.thread128, path.active, path, constants, chip)
        for index in set(path.path)
    }
    cached = chip.memories.instruction_cache.value // chip.code.bytes_per_instruction.value
    word = constants.word if len(program.instrs) <= cached else constants.miss
    constants = replace(constants, word=word)
    heads = _laps(path.path)
    short = math.ceil(_WINDOW / (heads[1] - heads[0])) if len(heads) > 1 else 0
    if len(heads) <= 2 * short:
        cycles, busy = _launch([made[index] for index in path.path], resident, share, partitions, constants)
    else:  # the loop is steady by now: two lengths give its pace
        before, _ = _launch(_cut(path.path, heads, short, made), resident, share, partitions, constants)
        cycles, busy = _launch(
            _cut(path.path, heads, 2 * short, made), resident, share, partitions, constants
        )
        cycles += (len(heads) - 2 * short) * (cycles - before) / short
    pipe = max(busy, key=lambda name: busy[name])
    limiter = pipe if busy[pipe] > _BOUND else "sync"
    return Estimate(cycles / chip.clocks.top.value, cycles, resident, busy, limiter)


def _launch(
    jobs: Sequence[Job], resident: int, share: int, partitions: int, constants: Constants
) -> tuple[float, dict[str, float]]:
    """Cycles of ``share`` waves on a processor, and for which share of them each pipe works."""
    first, busy = _run(jobs, resident, resident, partitions, constants)
    if share <= resident:
        return first, {name: amount / first for name, amount in busy.items()}
    both, busy = _run(jobs, resident, 2 * resident, partitions, constants)
    cycles = first + (share / resident - 1) * (both - first)
    return cycles, {name: amount / both for name, amount in busy.items()}


def _laps(path: Sequence[int]) -> list[int]:
    """Where in the path each lap of its longest loop begins."""
    back = Counter(after for before, after in pairwise(path) if after <= before)
    if not back:
        return []
    head = max(back, key=lambda index: (back[index], -index))
    return [place for place, index in enumerate(path) if index == head]


def _cut(path: Sequence[int], heads: Sequence[int], laps: int, made: dict[int, Job]) -> list[Job]:
    """The path with all but ``laps`` laps of its loop left out."""
    kept = (*path[: heads[laps - 1]], *path[heads[-1] :])
    return [made[index] for index in kept]


def _job(
    instr: Instr, index: int, thread128: bool, active: int, path: Trace, constants: Constants, chip: Chip
) -> Job:
    effect, double = instr.op.effect, active / chip.waves.fibers.value
    if isinstance(effect, Sample):
        cycles = max(path.texels.get(index, 0.0) / constants.texels, constants.sample * double)
        return _TEXTURE, cycles, constants.coordinates * double, instr.ss, instr.sy, constants.texture_latency
    if isinstance(effect, Load | Store):
        local = effect.space is Space.LOCAL
        amount = instr.get("count", 1) * (chip.waves.fibers.value * double) * (2 if _half(instr) else 4)
        latency = 0.0 if isinstance(effect, Store) else constants.memory_latency
        if local:
            return _LOCAL, amount / 64, 1.0, instr.ss, instr.sy, float(chip.latencies.local.value)
        return _MEMORY, amount / constants.store_bytes, 1.0, instr.ss, instr.sy, latency
    if instr.op.sync is Sync.SS or isinstance(effect, Shuffle):
        width = chip.waves.fibers.value * double / chip.rates.sfu_lanes.value
        return (
            _LOCAL,
            width * (1 + instr.rpt),
            1.0 + instr.rpt,
            instr.ss,
            instr.sy,
            float(chip.latencies.alu.value),
        )
    if instr.op.cat in (1, 2, 3):
        slot = constants.full if thread128 and is_full(instr) else 1.0
        cycles = (1 + instr.rpt) * slot
        return _ALU, cycles, cycles + instr.nop, instr.ss, instr.sy, 0.0
    return _IDLE, 0.0, 1.0 + instr.rpt + instr.nop, instr.ss, instr.sy, 0.0


def _half(instr: Instr) -> bool:
    return instr.srcs[-1].half if instr.dst is None and instr.srcs else bool(instr.dst and instr.dst.half)


def _run(
    jobs: Sequence[Job], resident: int, waves: int, partitions: int, constants: Constants
) -> tuple[float, dict[str, float]]:
    """Cycles until ``waves`` waves are done, ``resident`` at a time, and how long each pipe worked."""
    processor = _Processor(constants, resident, partitions)
    places, pending, end = [0] * resident, waves - resident, 0.0
    queue = [(constants.start, slot) for slot in range(resident)]
    while queue:
        ready, slot = heapq.heappop(queue)
        place = places[slot]
        at = processor.earliest(slot, jobs[place])
        if at > ready and queue and at > queue[0][0]:  # another wave may go first
            heapq.heappush(queue, (at, slot))
            continue
        following = processor.issue(slot, jobs[place], max(at, ready))
        place += 1
        if place == len(jobs):
            end = max(end, following, processor.taken[slot])
            if not pending:
                continue
            pending -= 1
            place, following = 0, following + constants.start
            processor.renew(slot)
        places[slot] = place
        heapq.heappush(queue, (following, slot))
    return end, processor.worked()


class _Processor:
    """The pipes of a shader processor and what its resident waves wait for; all values are cycles."""

    def __init__(self, constants: Constants, resident: int, partitions: int) -> None:
        self.word, self.turn, self.partitions = constants.word, constants.turn, partitions
        self.front, self.alu = [0.0] * partitions, [0.0] * partitions
        self.free, self.busy = [0.0] * _PIPES, [0.0] * _PIPES
        self.taken = [0.0] * resident  # when the pipes have the sources of all that a wave issued
        self.sy, self.ss = [0.0] * resident, [0.0] * resident  # when its last results are there

    def earliest(self, slot: int, job: Job) -> float:
        """When a wave could issue ``job``."""
        pipe, _, _, needs_ss, needs_sy, _ = job
        lane = slot % self.partitions
        at = self.front[lane]
        if pipe <= _TEXTURE and self.alu[lane] > at:
            at = self.alu[lane]
        if needs_sy and self.sy[slot] > at:
            at = self.sy[slot]
        if needs_ss:
            at = max(at, self.ss[slot], self.taken[slot])
        return at

    def issue(self, slot: int, job: Job, at: float) -> float:
        """Issues ``job`` at cycle ``at``; when the wave may issue its next."""
        pipe, cycles, gap, _, _, latency = job
        lane = slot % self.partitions
        self.front[lane] = at + self.word
        self.busy[pipe] += cycles
        if pipe == _ALU:
            self.alu[lane] = at + cycles
        elif pipe != _IDLE:
            start = at
            if pipe == _TEXTURE:
                self.alu[lane] = start = at + gap
            done = self.free[pipe] = max(self.free[pipe], start) + cycles
            self.taken[slot] = max(self.taken[slot], done)
            if pipe == _LOCAL:
                self.ss[slot] = done + latency
            elif latency:
                self.sy[slot] = max(self.sy[slot], done + latency)
        return at + gap + self.turn

    def renew(self, slot: int) -> None:
        """A new wave in the place of one that ended."""
        self.sy[slot] = self.ss[slot] = self.taken[slot] = 0.0

    def worked(self) -> dict[str, float]:
        """Cycles that each pipe worked; of the ALUs, the mean."""
        return {
            "alu": self.busy[_ALU] / self.partitions,
            "texture": self.busy[_TEXTURE],
            "store": self.busy[_MEMORY],
        }
