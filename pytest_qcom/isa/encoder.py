"""Instructions to words."""

from __future__ import annotations

from pytest_qcom.isa.instruction import Instr


def encode(instr: Instr) -> int:
    """The 64-bit word of ``instr``.

    Raises:
        EncodeError: when the encoding cannot hold an operand, a range or a modifier.
    """
    form = instr.op.layout
    word: int = form.layout.pack(form.lower(instr), instr.op.name)
    return word
