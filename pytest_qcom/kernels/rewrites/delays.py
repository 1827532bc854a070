"""Idle slots between coordinates and their samples, down to those that the coordinates need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pytest_qcom.chip import A630
from pytest_qcom.isa.access import reads, writes
from pytest_qcom.isa.instruction import Flow, Instr, Sample
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.edit import replace_instructions
from pytest_qcom.kernels.rewrite import Findings, Refusal, Site
from pytest_qcom.kernels.waits import insert_waits, slots

_NEEDED = A630.delays.non_alu.value


@dataclass(frozen=True, slots=True)
class DelayTrim:
    """Shortens the nop before a sample whose coordinates have been ready for long enough.

    Attributes:
        least: slots that are left of each nop, whether the coordinates are ready or not, as the notes'
            patch leaves one; -1 for as many as they need.
        keep_first: the first nop of a row of samples stays as it is.
    """

    least: int = -1
    keep_first: bool = False
    name: str = "trim-delays"
    summary: str = "fewer idle slots between a coordinate and its sample"

    def find(self, program: Program) -> Findings:
        sites: list[Site] = []
        refusals: list[Refusal] = []
        edits: dict[int, tuple[Instr, ...]] = {}
        entered = {block.start for block in program.blocks()}
        row = False
        for index, instr in enumerate(program.instrs):
            if instr.op.cat not in (0, 5) or index in entered:
                row = False
            if not _delays(program, index, entered):
                continue
            first, row = not row, True
            if self.keep_first and first:
                refusals.append(Refusal(index, "the first delay of a row of samples is kept"))
                continue
            shorter = self._shorter(program, index, edits)
            if shorter == (instr,):
                refusals.append(Refusal(index, "its coordinates are not ready earlier"))
            else:
                edits[index] = shorter
                sites.append(Site((index,), (shorter,)))
        return tuple(sites), tuple(refusals)

    def _shorter(
        self, program: Program, index: int, edits: dict[int, tuple[Instr, ...]]
    ) -> tuple[Instr, ...]:
        """What is left of the nop."""
        idle = program.instrs[index]
        if self.least >= 0:
            return tuple(_idle(idle, min(self.least, idle.rpt + 1)))
        for count in range(idle.rpt + 1):
            shorter = tuple(_idle(idle, count))
            if _waits(program, {**edits, index: shorter}) <= _waits(program, edits):
                return shorter
        return (idle,)


def _idle(idle: Instr, count: int) -> Iterator[Instr]:
    if count:
        yield replace(idle, rpt=count - 1)


def _waits(program: Program, edits: dict[int, tuple[Instr, ...]]) -> int:
    """Idle slots that the program lacks once it is edited."""
    edited = replace_instructions(program, edits)
    return sum(map(slots, insert_waits(edited).instrs)) - sum(map(slots, edited.instrs))


def _delays(program: Program, index: int, entered: set[int]) -> bool:
    """Whether it is a plain nop before a sample, with a coordinate of that written in the same block."""
    idle = program.instrs[index]
    if idle.op.effect is not Flow.NEXT or idle.ss or idle.sy or idle.jp or index + 1 in entered:
        return False
    if index + 1 >= len(program.instrs) or not isinstance(program.instrs[index + 1].op.effect, Sample):
        return False
    pair = {access.reg for access in reads(program.instrs[index + 1])}
    for before in range(index - 1, max(-1, index - 1 - 4 * _NEEDED), -1):
        if pair & {access.reg for access in writes(program.instrs[before])}:
            return program.instrs[before].op.cat in (1, 2, 3)
        if before in entered:
            return False
    return False
