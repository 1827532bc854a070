"""Uses that the encoding can hold and the hardware cannot execute.

The decoder takes them, since they are what the image says; the assembler refuses to make them.
Source of the rules: Mesa, ``ir3.c`` ``ir3_valid_flags``, which says what the A630's compiler may combine.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qcom.isa import access
from pytest_qcom.isa.instruction import Atomic, Instr, Kind, Operand
from pytest_qcom.isa.operands import operand_text
from pytest_qcom.isa.registers import ADDRESS, FIRST_SHARED

FULL_SHARED_END = 4 * 56
"""Behind r55.w: the shared registers end here and nothing follows before a0.x."""

_CONSTANT = (Kind.CONST, Kind.REL_CONST)
_RELATIVE = (Kind.REL_GPR, Kind.REL_CONST)


def violations(instr: Instr) -> tuple[str, ...]:
    """What is wrong with ``instr`` on an A630, a phrase each; empty for all that a compiler emits."""
    return tuple(_violations(instr))


def _violations(instr: Instr) -> Iterator[str]:
    yield from _registers(instr)
    srcs = instr.srcs
    relative = [operand for operand in srcs if operand.kind in _RELATIVE]
    if instr.dst is not None and instr.dst.kind is Kind.REL_GPR and relative:
        yield "has a relative source and a relative destination; move the source first"
    match instr.op.cat:
        case 2:
            yield from _two_sources(srcs)
        case 3 if len(srcs) > 1 and _shared(srcs[1]):
            yield f"reads the shared register {operand_text(srcs[1])} as its second source; make it another"
        case 4:
            for operand in srcs:
                if operand.kind not in (Kind.GPR, Kind.REL_GPR):
                    yield f"reads {operand_text(operand)}, but the special functions read registers only"
        case 5:
            for operand in srcs:
                if _shared(operand):
                    yield f"reads the shared register {operand_text(operand)}; textures read fiber registers"
        case 6 if isinstance(instr.op.effect, Atomic):
            for operand in srcs:
                if operand.kind is Kind.IMM:
                    yield f"takes the number {operand.value}, but atomics read registers only"


def _two_sources(srcs: tuple[Operand, ...]) -> Iterator[str]:
    if sum(operand.kind in _CONSTANT or _shared(operand) for operand in srcs) > 1:
        names = " and ".join(operand_text(operand) for operand in srcs)
        yield f"reads {names}, but only one source may be a constant or shared; move one to a register"
    if len(srcs) > 1 and all(operand.kind in (Kind.IMM, Kind.FLUT) for operand in srcs):
        yield "has two immediates; move one to a register"


def _shared(operand: Operand) -> bool:
    return operand.kind is Kind.GPR and operand.reg.shared


def _registers(instr: Instr) -> Iterator[str]:
    """Registers between the files, and runs of registers that leave their file."""
    for touched in (*access.reads(instr), *access.writes(instr)):
        number = touched.reg.num
        if FULL_SHARED_END <= number < ADDRESS:
            yield f"touches {touched.reg}, which does not exist: the file ends at r55.w"
            return
        if number == FIRST_SHARED and touched.element and not _starts_shared(instr, touched.operand):
            yield f"runs from r47.w into the shared register {touched.reg}; start lower"
            return


def _starts_shared(instr: Instr, number: int) -> bool:
    operand = instr.dst if number < 0 else instr.srcs[number]
    return operand is not None and operand.value >= FIRST_SHARED
