"""Replacing instructions of a program: branches keep their meaning whatever is inserted or taken out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_qcom.isa.instruction import Flow, Instr
from pytest_qcom.isa.program import Program

_JUMPS = (Flow.JUMP, Flow.BRANCH, Flow.BRANCH_OR, Flow.BRANCH_AND, Flow.ANY, Flow.ALL, Flow.ELECT)


def replace_instructions(program: Program, edits: Mapping[int, Sequence[Instr]]) -> Program:
    """The program with each instruction ``index`` of ``edits`` replaced by the given ones.

    An instruction that is to stay must be among its own replacements. A branch to a replaced instruction goes
    to the first of its replacements, or, where there are none, to what follows. Branches among the
    replacements keep the target of the instruction that they replace.
    """
    lines: list[tuple[Instr, int | None]] = []  # instruction, branch target as an old index
    moved: list[int] = []  # old index to new index
    for index, instr in enumerate(program.instrs):
        moved.append(len(lines))
        target = index + instr["target"] if branches(instr) else None
        for new in edits.get(index, (instr,)):
            lines.append((new, target if branches(new) else None))
    moved.append(len(lines))
    return Program(
        tuple(
            instr if target is None else with_target(instr, moved[target] - at)
            for at, (instr, target) in enumerate(lines)
        )
    )


def branches(instr: Instr) -> bool:
    """Whether the instruction goes to a target."""
    return instr.op.effect in _JUMPS


def with_target(instr: Instr, offset: int) -> Instr:
    """The branch with its target ``offset`` instructions from itself."""
    attrs = tuple((name, offset if name == "target" else value) for name, value in instr.attrs)
    return replace(instr, attrs=attrs)
