"""Device time of a launch from what it issued: the model ``issue-only``.

Every issue slot, its repeats and idle slots included, takes a cycle of one of the chip's issue partitions;
nothing else takes time. In THREAD128 mode an instruction of a 128-fiber wave still takes one cycle where all
of its operands are half, and ``chip.rates.full_cycles128`` where one is full. No memory, no waits, no caches.
"""

from __future__ import annotations

import math
from typing import Protocol

from pytest_qcom.analysis.graph import build
from pytest_qcom.analysis.occupancy import Launch, of_launch
from pytest_qcom.chip import A630, Chip
from pytest_qcom.isa.instruction import Instr, Kind
from pytest_qcom.isa.program import Program

MODE = "model: issue-only"
_LOOP_WEIGHT = 64  # how often a loop is taken to run, where only its share of the instructions matters


class Counts(Protocol):
    """What a launch did, over all of its waves. An execution of the virtual device is one."""

    @property
    def waves(self) -> int: ...
    @property
    def issue_cycles(self) -> int: ...


def issue_only(launch: Launch, counts: Counts, program: Program, chip: Chip = A630) -> float:
    """Seconds that a launch takes if it is bound by nothing but issue.

    Workgroups are dealt evenly to the shader processors, and there the resident waves evenly to the issue
    partitions, so that a last round that does not fill them takes as long as a full one of its fullest.

    Raises:
        LaunchError: when not a single wave fits.
    """
    if not counts.waves:
        return 0.0
    resident = of_launch(launch, chip).waves
    processors = chip.cores.shader_processors.value
    partitions = chip.cores.issue_partitions.value
    gx, gy, gz = launch.groups
    groups = gx * gy * gz
    waves = math.ceil(groups / processors) * counts.waves // max(groups, 1)
    rounds, rest = divmod(waves, resident)
    deep = rounds * math.ceil(resident / partitions) + math.ceil(rest / partitions)
    cycles = deep * counts.issue_cycles / counts.waves
    if launch.thread128:
        cycles *= mean_slot(program, chip)
    return cycles / chip.clocks.core.value


def mean_slot(program: Program, chip: Chip = A630) -> float:
    """Mean cycles of an issue slot in THREAD128 mode; static mix of the program, loops weigh most."""
    slots = cycles = 0.0
    for index, weight in enumerate(_weights(program)):
        instr = program.instrs[index]
        busy, idle = 1 + instr.rpt, instr.nop
        slots += weight * (busy + idle)
        cycles += weight * (busy * (chip.rates.full_cycles128.value if is_full(instr) else 1.0) + idle)
    return cycles / slots if slots else 1.0


def is_full(instr: Instr) -> bool:
    """Whether an ALU instruction has an operand of 32 bits."""
    if instr.op.cat not in (1, 2, 3):
        return False
    operands = (*instr.srcs, instr.dst) if instr.dst is not None else instr.srcs
    return any(not operand.half for operand in operands if operand.kind not in (Kind.IMM, Kind.FLUT))


def _weights(program: Program) -> list[int]:
    """How often each instruction runs, relative to the others: by the depth of its loops."""
    graph = build(program)
    loops = [
        (graph.nodes[successor].start, node.stop)
        for node in graph.nodes
        for successor in node.successors
        if graph.nodes[successor].start <= node.start
    ]
    return [
        _LOOP_WEIGHT ** min(sum(start <= index < stop for start, stop in set(loops)), 4)
        for index in range(len(program.instrs))
    ]
