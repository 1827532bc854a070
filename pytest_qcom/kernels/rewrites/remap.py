"""Accumulators into neighbouring registers, so that their MADs can become vector products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pytest_qcom.isa.access import advance, destination, elements, reads, writes
from pytest_qcom.isa.instruction import Instr, Kind, Operand
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import FIRST_SHARED, Reg
from pytest_qcom.kernels.rewrite import Findings, Refusal, Site, is_mad

_LANES = 4
_MOVABLE = (1, 2, 3)  # categories whose registers are named lane by lane


@dataclass(frozen=True, slots=True)
class AccumulatorRemap:
    """Renames accumulators whose four lanes stand apart to four neighbours that nothing else uses.

    A vector of accumulators is four MAD lanes behind each other with one scalar, neighbouring lanes of the
    other factor, and destinations that are their addends. A register keeps its meaning under another name
    wherever every access of it is renamed; those must all be of arithmetic and moves, whose repeats are taken
    apart where only some of their lanes are renamed.
    """

    name: str = "remap-accumulators"
    summary: str = "accumulators whose lanes stand apart move to neighbouring registers"

    def find(self, program: Program) -> Findings:
        used = {access.reg for instr in program.instrs for access in (*reads(instr), *writes(instr))}
        renamed: dict[Reg, Reg] = {}
        refusals: list[Refusal] = []
        for index, vector in _torn(program):
            if renamed.keys() & set(vector):
                continue
            reason = _against(program, vector)
            home = _home(used | set(renamed.values()), vector[0].half) if reason is None else None
            if reason is None and home is None:
                reason = "four registers in a row are not free"
            if reason is not None or home is None:
                refusals.append(Refusal(index, reason or ""))
                continue
            renamed |= {reg: home + lane for lane, reg in enumerate(vector)}
        return tuple(_sites(program, renamed)), tuple(refusals)


def _torn(program: Program) -> Iterator[tuple[int, tuple[Reg, ...]]]:
    """(first instruction, accumulators) of each vector whose registers are no neighbours."""
    lanes = [
        (index, element)
        for index, instr in enumerate(program.instrs)
        if is_mad(instr, instr.rpt)
        for element in range(instr.rpt + 1)
    ]
    at = 0
    while at + _LANES <= len(lanes):
        run = lanes[at : at + _LANES]
        vector = _vector(program, run)
        if vector is None:
            at += 1
            continue
        at += _LANES
        if any(reg != vector[0] + lane for lane, reg in enumerate(vector)):
            yield run[0][0], vector


def _vector(program: Program, run: list[tuple[int, int]]) -> tuple[Reg, ...] | None:
    """The accumulators of four lanes of MADs, if those are one vector product."""
    if run[-1][0] - run[0][0] >= _LANES:
        return None
    found = []
    first: tuple[Operand, Operand] | None = None
    for number, (index, element) in enumerate(run):
        instr = program.instrs[index]
        one, other, addend = (replace(advance(source, element), repeat=False) for source in instr.srcs)
        into = destination(instr, element)
        if (
            addend.value != into.value
            or addend.half != into.half
            or addend.neg
            or addend.kind is not Kind.GPR
        ):
            return None
        first = first or (one, other)
        if one != first[0] or other != replace(first[1], value=first[1].value + number):
            return None
        found.append(into.reg)
    return tuple(found) if len(set(found)) == _LANES else None


def _against(program: Program, vector: tuple[Reg, ...]) -> str | None:
    """Why the registers cannot have another name, or ``None``."""
    for index, instr in enumerate(program.instrs):
        touched = {access.reg for access in (*reads(instr), *writes(instr))} & set(vector)
        if touched and instr.op.cat not in _MOVABLE:
            return f"{min(touched)} is used at #{index} by {instr.op.name}, which takes registers in a row"
        if touched and "src_type" in instr and len(instr.srcs) > 1:
            return f"{min(touched)} is used at #{index} by several moves at once"
    return None


def _home(used: set[Reg], half: bool) -> Reg | None:
    """The lowest vec4 of the file that is free."""
    for start in range(0, FIRST_SHARED, _LANES):
        if not any(Reg(start + lane, half) in used for lane in range(_LANES)):
            return Reg(start, half)
    return None


def _sites(program: Program, renamed: dict[Reg, Reg]) -> Iterator[Site]:
    for index, instr in enumerate(program.instrs):
        touched = {access.reg for access in (*reads(instr), *writes(instr))}
        if touched & renamed.keys():
            yield Site((index,), (tuple(_renamed(instr, renamed)),))


def _renamed(instr: Instr, renamed: dict[Reg, Reg]) -> Iterator[Instr]:
    """The instruction on renamed registers, its lanes one by one if it repeats."""

    def name(operand: Operand) -> Operand:
        known = operand.kind is Kind.GPR and operand.reg in renamed
        return replace(operand, value=renamed[operand.reg].num) if known else operand

    count = elements(instr)
    for element in range(count):
        srcs = tuple(name(replace(advance(source, element), repeat=False)) for source in instr.srcs)
        first, last = element == 0, element == count - 1
        yield replace(
            instr, dst=name(destination(instr, element)), srcs=srcs, rpt=0,
            nop=instr.nop if last else 0, sy=instr.sy and first, ss=instr.ss and first,
            jp=instr.jp and first,
        )  # fmt: skip
