"""Instructions as text, letter by letter as Mesa's disassembler prints them."""

from __future__ import annotations

from pytest_qcom.isa.instruction import Instr


def text(instr: Instr) -> str:
    """Mesa's text of ``instr``; a branch offset is a number, relative to the branch."""
    line: str = instr.op.layout.text(instr)
    return line
