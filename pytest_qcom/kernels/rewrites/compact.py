"""Moves and removals that keep registers as they are: MADs of neighbouring lanes together, idle slots out."""

from __future__ import annotations

from dataclasses import replace

from pytest_qcom.isa.access import advance, destination, reads, writes
from pytest_qcom.isa.instruction import Instr
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.edit import branches, replace_instructions
from pytest_qcom.kernels.rewrite import is_mad, neighbours
from pytest_qcom.kernels.rewrites.loop import Mismatch
from pytest_qcom.kernels.waits import insert_waits, slots


def compact(program: Program) -> Program:
    """The program with the fewest idle slots; branches follow. As it is if that saves none.

    Raises:
        Mismatch: it uses half registers; what waits for what is then a matter of the launch's register mode.
    """
    if program.footprint()[1]:
        raise Mismatch("the program uses half registers, whose waits depend on the launch's register mode")
    edits: dict[int, tuple[Instr, ...]] = {}
    for index, instr in enumerate(program.instrs):
        idle = instr.op.name == "nop"
        if idle and not (instr.ss or instr.sy or instr.jp):
            edits[index] = ()
        elif instr.nop or (idle and instr.rpt):
            edits[index] = (replace(instr, nop=0, rpt=0 if idle else instr.rpt),)
    if not edits:
        return program
    fewer = insert_waits(replace_instructions(program, edits))
    saved = len(fewer.instrs) < len(program.instrs) or _slots(fewer) < _slots(program)
    return fewer if saved and len(fewer.instrs) <= len(program.instrs) else program


def _slots(program: Program) -> int:
    return sum(slots(instr) for instr in program.instrs)


def regroup(program: Program) -> Program:
    """The program with each MAD right behind the one of the lane before it, where nothing is between them.

    Repeated MADs are taken apart first, so that their lanes can join others; packing puts them together
    again. Nothing moves over a sample, a wait, or what it depends on.
    """
    instrs: list[Instr] = []
    moved: dict[int, int] = {}
    jumps: dict[int, int] = {}
    starts = {block.start for block in program.blocks()}
    for index, instr in enumerate(program.instrs):
        moved[index] = len(instrs)
        if branches(instr):
            jumps[len(instrs)] = program.target(index)
        instrs += _apart(instr)
    fixed = {moved[start] for start in starts}
    for at in range(len(instrs)):
        _pull(instrs, at, fixed)
    edited = tuple(
        _jump(instr, moved[jumps[at]] - at) if at in jumps else instr for at, instr in enumerate(instrs)
    )
    return insert_waits(Program(edited))


def _jump(instr: Instr, offset: int) -> Instr:
    attrs = tuple((name, offset if name == "target" else value) for name, value in instr.attrs)
    return replace(instr, attrs=attrs)


def _apart(instr: Instr) -> list[Instr]:
    """The lanes of a repeated MAD, each an instruction; another instruction as it is."""
    if not instr.rpt or not is_mad(instr, instr.rpt) or instr.nop:
        return [instr]
    lanes = []
    for element in range(instr.rpt + 1):
        srcs = tuple(replace(advance(source, element), repeat=False) for source in instr.srcs)
        first = element == 0
        lanes.append(
            replace(
                instr, dst=destination(instr, element), srcs=srcs, rpt=0,
                sy=instr.sy and first, ss=instr.ss and first, jp=instr.jp and first,
            )
        )  # fmt: skip
    return lanes


def _pull(instrs: list[Instr], at: int, fixed: set[int]) -> None:
    """Moves the MAD of the next lane to behind the one at ``at``, if one can come there."""
    first = instrs[at]
    if not is_mad(first, 0):
        return
    read: set[Reg] = set()
    written: set[Reg] = set()
    for index in range(at + 1, len(instrs)):
        other = instrs[index]
        if index in fixed or other.op.cat not in (1, 2, 3) or other.sy or other.ss or other.nop:
            return
        uses, makes = {a.reg for a in reads(other)}, {a.reg for a in writes(other)}
        if is_mad(other, 0) and neighbours(first, other):
            if not (uses & written or makes & (read | written)):
                instrs.insert(at + 1, instrs.pop(index))
            return
        read |= uses
        written |= makes
