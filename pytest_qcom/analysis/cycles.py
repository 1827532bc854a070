"""A cycle model of a launch: waves, issue, ALU, texture pipe, stores, waits hidden by other waves.

One shader processor is simulated with its resident waves (:mod:`.processor`); here stands what an instruction
costs there. Two rounds of waves and two lengths of the longest loop are simulated, the rest is extrapolated.

The few constants that no source gives are fitted to published measurements by
``suites/analysis/fit_cycles.py``; they stand in :class:`Constants`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pytest_qcom.analysis.occupancy import of_launch, waves_of
from pytest_qcom.analysis.processor import Event, Job, Pipe, Processor
from pytest_qcom.analysis.timing import is_full
from pytest_qcom.analysis.trace import Steering, Trace, trace
from pytest_qcom.chip import A630, Chip
from pytest_qcom.isa.instruction import Instr, Kind, Load, Sample, Shuffle, Space, Store, Sync
from pytest_qcom.isa.program import Program

MODE = "model: cycle"

_MAD = "fff"  # classes of the sources of a float multiply-add
_WINDOW = 700  # instructions of a loop after which it is taken to be steady


@dataclass(frozen=True, slots=True)
class Constants:
    """What no source gives, for one shader processor; fitted with all families together.

    Attributes:
        hold64: cycles for which a sample of 64 fibers holds its partition in THREAD64 mode.
        hold128: the same of 128 fibers in THREAD128 mode; fewer active fibers, fewer cycles.
        queue: cycles of work that the texture pipe takes in advance.
        line: cycles of the texture pipe for each run of eight texels of a row, beyond the texels' own.
        texture_latency: cycles from a sample's service to its result.
        store_bytes: bytes a cycle of the store path.
        mad_three, mad_two: cycles of a full mad of 128 fibers that reads three different registers, or two.
        sources: least cycles of an instruction, repeats included, that reads three different registers.
        idle: share of the slots of a repeated nop in which no other wave of the partition issues.
        turn: cycles until a wave may issue again, beyond those that its instruction takes.
        miss: cycles of its partition that an instruction costs in a loop beyond the instruction cache.
    """

    hold64: float = 1.11
    hold128: float = 6.25
    queue: float = 23.7
    line: float = 0.028
    texture_latency: float = 110.0
    store_bytes: float = 22.4
    mad_three: float = 1.68
    mad_two: float = 1.48
    sources: float = 4.0
    idle: float = 0.42
    turn: float = 2.0
    miss: float = 0.73


DEFAULT = Constants()
START = 100.0
"""Cycles from a wave's launch to its first instruction; assumed: no published figure shows it."""
_ACROSS = 22.7 / 9.0
"""Cost of a shuffle across the wave over one within a quad, measured on tc3: 9.0 and 22.7 G lanes/s."""
_WAYS = 4  # of the instruction cache, assumed: a loop thrashes all of it when it is this part too long


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
    scale: Scale | None = None,
    events: bool = False,
) -> Estimate:
    """The same for a path that is known already."""
    scale = scale or Scale()
    processors, partitions = chip.cores.shader_processors.value, chip.cores.issue_partitions.value
    share = max(1, math.ceil(waves_of(launch, chip) / processors))
    resident = min(of_launch(launch, chip).waves * scale.waves, share)
    loop = max((before - after + 1 for before, after in pairwise(path.path) if after <= before), default=0)
    loop = loop or len(path.path)  # the waves themselves are the laps
    costs = _Costs(launch.thread128, path, loop, constants, scale, chip)
    made = {index: costs.job(program.instrs[index], index) for index in set(path.path)}
    machine = _Machine(resident, share, partitions, constants)
    heads = _laps(path.path)
    short = math.ceil(_WINDOW / (heads[1] - heads[0])) if len(heads) > 1 else 0
    if len(heads) <= 2 * short:
        cycles, busy = machine.launch([made[index] for index in path.path])
    else:  # the loop is steady by now: two lengths give its pace
        before, _ = machine.launch(_cut(path.path, heads, short, made))
        cycles, busy = machine.launch(_cut(path.path, heads, 2 * short, made))
        cycles += (len(heads) - 2 * short) * (cycles - before) / short
    found: list[Event] = []
    if events:
        jobs = [made[index] for index in path.path] if len(heads) <= 2 else _cut(path.path, heads, 2, made)
        machine.processor().run(jobs, resident, START, found)
    return Estimate(cycles / chip.clocks.top.value, cycles, resident, busy, loop, found)


@dataclass(frozen=True, slots=True)
class _Machine:
    """A processor and the waves that it is dealt."""

    resident: int
    share: int
    partitions: int
    constants: Constants

    def processor(self) -> Processor:
        return Processor(self.resident, self.partitions, self.constants.turn, self.constants.queue)

    def launch(self, jobs: Sequence[Job]) -> tuple[float, dict[str, float]]:
        """Cycles of all waves, and for which share of them each pipe works."""
        processor = self.processor()
        first = cycles = processor.run(jobs, self.resident, START)
        total = first
        if self.share > self.resident:
            processor = self.processor()
            cycles = processor.run(jobs, 2 * self.resident, START)
            total = first + (self.share / self.resident - 1) * (cycles - first)
        busy = processor.busy
        return total, {
            "alu": busy[Pipe.ALU] / self.partitions / cycles,
            "texture": busy[Pipe.TEXTURE] / cycles,
            "store": busy[Pipe.MEMORY] / cycles,
        }


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


@dataclass(frozen=True, slots=True)
class _Costs:
    """What the instructions of a launch cost."""

    thread128: bool
    path: Trace
    loop: int
    constants: Constants
    scale: Scale
    chip: Chip

    def job(self, instr: Instr, index: int) -> Job:
        """An instruction as the processor sees it."""
        effect, miss = instr.op.effect, self._miss()
        word = 1.0 + miss
        if isinstance(effect, Sample):
            pipe, work, hold, gap, latency = self._sample(instr, index)
        elif isinstance(effect, Load | Store):
            pipe, work, hold, gap, latency = self._memory(instr, effect)
        elif instr.op.sync is Sync.SS or isinstance(effect, Shuffle):
            lanes = self.chip.rates.sfu_lanes.value * self.chip.cores.issue_partitions.value
            pipe, work, hold = Pipe.LOCAL, self.path.active / lanes * (1 + instr.rpt), 0.0
            if isinstance(effect, Shuffle) and effect.modes:  # across the wave
                work *= _ACROSS
            gap, latency = 1.0 + instr.rpt, float(self.chip.latencies.alu.value)
        elif instr.op.cat in (1, 2, 3):
            busy = self.alu(instr) * self.scale.alu
            pipe, work, hold, gap, latency = Pipe.ALU, busy + miss, 0.0, busy + instr.nop + miss, 0.0
        else:
            word += self.constants.idle * instr.rpt
            pipe, work, hold, gap, latency = Pipe.IDLE, 0.0, 0.0, 1.0 + instr.rpt + instr.nop, 0.0
        latency *= self.scale.latency
        return Job(pipe, work, hold, gap, latency, word, instr.ss, instr.sy, index)

    def alu(self, instr: Instr) -> float:
        """Cycles of an ALU instruction; a half-empty 128-fiber wave takes half as many for a full mad."""
        read = {(operand.value, operand.half) for operand in instr.srcs if operand.kind is Kind.GPR}
        three, slot = len(read) > 2, 1.0
        if self.thread128 and is_full(instr) and instr.op.reads == _MAD:
            slot = self.constants.mad_three if three else self.constants.mad_two
            slot = max(1.0, slot * self.path.active / (2 * self.chip.waves.fibers.value))
        return max((1 + instr.rpt) * slot, self.constants.sources if three else 1.0)

    def _miss(self) -> float:
        """Cycles of an instruction that may not be in the instruction cache."""
        held = self.chip.memories.instruction_cache.value // self.chip.code.bytes_per_instruction.value
        share = min(1.0, max(0.0, (self.loop - held) / (held / _WAYS)))
        return share * self.constants.miss * self.scale.miss

    def _sample(self, instr: Instr, index: int) -> tuple[Pipe, float, float, float, float]:
        fibers = self.chip.waves.fibers.value
        factor = self.scale.textures.get(int(instr.get("tex", 0)), 1.0)
        work = self.path.active / self.chip.rates.texels.value
        work += self.path.lines.get(index, 0.0) * self.constants.line
        hold = self.constants.hold64 * self.path.active / fibers
        if self.thread128:
            hold = self.constants.hold128 * self.path.active / (2 * fibers)
        return (
            Pipe.TEXTURE,
            work * factor,
            hold * factor,
            hold * factor,
            self.constants.texture_latency * min(1.0, 2 * factor),
        )

    def _memory(self, instr: Instr, effect: Load | Store) -> tuple[Pipe, float, float, float, float]:
        amount = instr.get("count", 1) * self.path.active * (2 if _half(instr) else 4)
        if effect.space is Space.LOCAL:
            return Pipe.LOCAL, amount / 64, 0.0, 1.0, float(self.chip.latencies.local.value)
        base, each = (self.chip.latencies.memory128 if self.thread128 else self.chip.latencies.memory).value
        latency = 0.0 if isinstance(effect, Store) else float(base + each * instr.get("count", 1))
        return Pipe.MEMORY, amount / self.constants.store_bytes * self.scale.store, 0.0, 1.0, latency


def _half(instr: Instr) -> bool:
    return instr.srcs[-1].half if instr.dst is None and instr.srcs else bool(instr.dst and instr.dst.half)
