"""What a launch gives a shader processor to do, before any constant of the cycle model is known.

The different instructions of a wave stand in columns, so that trying other constants costs next to nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.analysis.graph import flow
from pytest_qcom.analysis.native import Floats, Ints
from pytest_qcom.analysis.occupancy import of_launch, waves_of
from pytest_qcom.analysis.processor import Pipe
from pytest_qcom.analysis.timing import is_full
from pytest_qcom.analysis.trace import Steering, Trace
from pytest_qcom.chip import A630, Chip
from pytest_qcom.isa.instruction import Flow, Instr, Kind, Load, Sample, Shuffle, Space, Store, Sync
from pytest_qcom.isa.program import Program

_MAD = "fff"  # classes of the sources of a float multiply-add
_ACROSS = 22.7 / 9.0
"""Cost of a shuffle across the wave over one within a quad, measured on tc3: 9.0 and 22.7 G lanes/s."""
_LOCAL_BYTES = 64  # a cycle, of local memory; inferred from the Adreno 640's 88 GB/s


class Costs(NamedTuple):
    """An instruction as the model's constants are applied to it.

    Attributes:
        pipe, ss, sy: where it works and what it waits for.
        slots, idle: issue slots with repeats, and idle ones behind them.
        mad: whether it is a multiply-add of full registers.
        sources: different registers that it reads.
        fresh: of a sample, the share of its blocks of texels that the wave has not touched yet.
        texture: of a sample, the number of its texture; -1 of others.
        bytes: of a load or store, for the wave.
        cycles: of local pipe, its work; no constant applies.
        latency: of loads and the local pipe.
        nop: whether nothing is issued.
        flow: whether it is a branch, a jump or the end.
    """

    pipe: int = Pipe.IDLE
    ss: bool = False
    sy: bool = False
    slots: int = 1
    idle: int = 0
    mad: bool = False
    sources: int = 0
    fresh: float = 0.0
    texture: int = -1
    bytes: float = 0.0
    cycles: float = 0.0
    latency: float = 0.0
    nop: bool = False
    flow: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What a processor is dealt.

    Attributes:
        places: the different instructions of the path, as indices of the program.
        path: numbers of ``places`` in the order of execution.
        costs: a column for each field of :class:`Costs`, over ``places``.
        active: fibers of a wave that the workgroup has.
        thread128: the launch mode.
        resident, share: waves that a processor holds, and those that it executes in all.
        loop: instructions of the longest loop; of the whole path where there is none.
        laps: where in the path each lap of its longest loop begins.
    """

    places: tuple[int, ...]
    path: Ints
    costs: dict[str, NDArray[np.float64]]
    active: int
    thread128: bool
    resident: int
    share: int
    loop: int
    laps: Ints

    def whole(self, name: str) -> Ints:
        """A column of whole numbers."""
        return self.costs[name].astype(np.int64)

    def cut(self, laps: int) -> Ints:
        """The path with all but ``laps`` laps of its loop left out."""
        return np.concatenate([self.path[: self.laps[laps - 1]], self.path[self.laps[-1] :]])


def work(launch: Steering, program: Program, path: Trace, chip: Chip = A630) -> Work:
    """What each shader processor of ``chip`` has to do for a launch whose first wave takes ``path``.

    Raises:
        LaunchError: when not a single wave fits.
    """
    taken = np.array(path.path, np.int64)
    places, numbers = np.unique(taken, return_inverse=True)
    rows = [_costs(program.instrs[int(index)], int(index), launch.thread128, path, chip) for index in places]
    columns: list[Floats] = list(np.array(rows, np.float64).T)
    share = max(1, math.ceil(waves_of(launch, chip) / chip.cores.shader_processors.value))
    back = [(before, after) for before, after in pairwise(path.path) if after <= before]
    return Work(
        places=tuple(int(place) for place in places),
        path=numbers.astype(np.int64),
        costs=dict(zip(Costs._fields, columns, strict=True)),
        active=path.active,
        thread128=launch.thread128,
        resident=min(of_launch(launch, chip).waves, share),
        share=share,
        loop=max((before - after + 1 for before, after in back), default=len(taken)),
        laps=_laps(taken, [after for _, after in back]),
    )


def _laps(path: Ints, heads: list[int]) -> Ints:
    """Where the head comes by to which the path goes back most often."""
    if not heads:
        return np.zeros(0, np.int64)
    found, counts = np.unique(heads, return_counts=True)
    return np.flatnonzero(path == found[np.argmax(counts)]).astype(np.int64)


def _costs(instr: Instr, index: int, thread128: bool, path: Trace, chip: Chip) -> Costs:
    effect = instr.op.effect
    made = Costs(ss=instr.ss, sy=instr.sy, slots=1 + instr.rpt, idle=instr.nop)
    if isinstance(effect, Sample):
        return made._replace(
            pipe=Pipe.TEXTURE,
            slots=1,
            fresh=path.fresh.get(index, 0.0),
            texture=int(instr.get("tex", 0)),
        )
    if isinstance(effect, Load | Store):
        return _memory(made, instr, effect, thread128, path.active, chip)
    if instr.op.sync is Sync.SS or isinstance(effect, Shuffle):
        lanes = chip.rates.sfu_lanes.value * chip.cores.issue_partitions.value
        cycles = path.active / lanes * made.slots
        if isinstance(effect, Shuffle) and effect.modes:  # across the wave
            cycles *= _ACROSS
        return made._replace(pipe=Pipe.LOCAL, cycles=cycles, latency=float(chip.latencies.alu.value))
    if instr.op.cat in (1, 2, 3):
        read = {(operand.value, operand.half) for operand in instr.srcs if operand.kind is Kind.GPR}
        return made._replace(pipe=Pipe.ALU, mad=instr.op.reads == _MAD and is_full(instr), sources=len(read))
    following = flow(instr) is Flow.NEXT
    return made._replace(nop=following, flow=not following)


def _memory(
    made: Costs, instr: Instr, effect: Load | Store, thread128: bool, active: int, chip: Chip
) -> Costs:
    count = instr.get("count", 1)
    amount = float(count * active * (2 if _half(instr) else 4))
    if effect.space is Space.LOCAL:
        cycles = amount / _LOCAL_BYTES
        return made._replace(
            pipe=Pipe.LOCAL, slots=1, cycles=cycles, latency=float(chip.latencies.local.value)
        )
    base, each = (chip.latencies.memory128 if thread128 else chip.latencies.memory).value
    latency = 0.0 if isinstance(effect, Store) else float(base + each * count)
    return made._replace(pipe=Pipe.MEMORY, slots=1, bytes=amount, latency=latency)


def _half(instr: Instr) -> bool:
    return instr.srcs[-1].half if instr.dst is None and instr.srcs else bool(instr.dst and instr.dst.half)
