"""Programs with one wait taken out: what a checker of waits must notice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pytest_qcom.analysis.graph import flow, targeted
from pytest_qcom.isa.instruction import Flow, Instr
from pytest_qcom.isa.program import Program


@dataclass(frozen=True, slots=True)
class Mutant:
    """A program without one of its waits. ``wait``: ``ss``, ``sy``, ``nopN`` or ``nop``; ``index``: where."""

    program: Program
    wait: str
    index: int


def mutants(program: Program) -> Iterator[Mutant]:
    """Every program that lacks one flag or one idle slot of ``program``."""
    for index, instr in enumerate(program.instrs):
        if instr.ss:
            yield Mutant(_with(program, index, replace(instr, ss=False)), "ss", index)
        if instr.sy:
            yield Mutant(_with(program, index, replace(instr, sy=False)), "sy", index)
        if instr.nop:
            yield Mutant(_with(program, index, replace(instr, nop=instr.nop - 1)), "nopN", index)
        if is_nop(instr):
            if instr.rpt:
                yield Mutant(_with(program, index, replace(instr, rpt=instr.rpt - 1)), "nop", index)
            elif not (instr.ss or instr.sy or instr.jp):
                yield Mutant(_without(program, index), "nop", index)


def is_nop(instr: Instr) -> bool:
    return instr.op.cat == 0 and flow(instr) is Flow.NEXT


def _with(program: Program, index: int, instr: Instr) -> Program:
    return Program((*program.instrs[:index], instr, *program.instrs[index + 1 :]))


def _without(program: Program, gone: int) -> Program:
    """The program without instruction ``gone``; branches still lead where they led."""
    instrs = []
    for index, instr in enumerate(program.instrs):
        if index == gone:
            continue
        if targeted(instr):
            target = index + instr["target"]
            moved = (target - (target > gone)) - (index - (index > gone))
            attrs = tuple((name, moved if name == "target" else value) for name, value in instr.attrs)
            instr = replace(instr, attrs=attrs)
        instrs.append(instr)
    return Program(tuple(instrs))
