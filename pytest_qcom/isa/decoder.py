"""Words to instructions: a dictionary look-up on category and opcode bits, then the form of the entry."""

from __future__ import annotations

from functools import lru_cache

from pytest_qcom.errors import DecodeError
from pytest_qcom.isa.instruction import Instr
from pytest_qcom.isa.table import BY_KEY, KEYS


@lru_cache(maxsize=1 << 17)
def decode(word: int) -> Instr:
    """The instruction that the 64-bit ``word`` encodes.

    Raises:
        DecodeError: when it encodes none; the message and ``facts`` name the word and the offending bits.
    """
    if not 0 <= word < 1 << 64:
        raise DecodeError(f"word {word:#x} has more than 64 bits; an instruction has 64", word=word)
    key = KEYS[word >> 61](word)
    op = BY_KEY.get(key)
    if op is None:
        opcode = ", ".join(str(part) for part in key[1:])
        raise DecodeError(
            f"word {word:016x}: bits 63:61 are category {key[0]}, which has no opcode ({opcode}); "
            "this is no A630 instruction",
            word=word,
            low=61,
            high=63,
            value=key[0],
        )
    form = op.layout
    instr: Instr = form.lift(op, form.layout.unpack(word, op.name), word)
    return instr
