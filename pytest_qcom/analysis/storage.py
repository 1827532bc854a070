"""Where registers lie: which names share storage, in split and in merged mode.

A *cell* is the unit of storage that the checks track. In split mode every scalar register is a cell of its
own; in merged mode a full scalar is two cells, those of the two half scalars that are its low and high 16
bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_qcom.isa.registers import ADDRESS, FIRST_SHARED, Reg

FULL, HALF, SPECIAL = 0, 1, 2  # width of an access; SPECIAL: predicates and addresses

_SHARED = 512  # first cell of the shared registers
_SPECIAL = 768  # first cell of addresses and predicates
_HALVES = 256  # first cell of half registers in split mode


@dataclass(frozen=True, slots=True)
class Storage:
    """The cells of a launch: ``merged`` as SP_CS_CNTL_0.MERGEDREGS says."""

    merged: bool

    def cells(self, reg: Reg) -> tuple[int, ...]:
        """The cells that a scalar register covers."""
        number = reg.num
        if number >= ADDRESS:
            return (_SPECIAL + number - ADDRESS,)
        base = 0
        if number >= FIRST_SHARED:
            base, number = _SHARED, number - FIRST_SHARED
        if not self.merged:
            return (base + number + (_HALVES // 2 if base else _HALVES) * reg.half,)
        return (base + number,) if reg.half else (base + 2 * number, base + 2 * number + 1)

    def mask(self, registers: Iterable[Reg]) -> int:
        """The cells of several registers as a bit set."""
        mask = 0
        for reg in registers:
            for cell in self.cells(reg):
                mask |= 1 << cell
        return mask


def width(reg: Reg) -> int:
    """``FULL``, ``HALF`` or ``SPECIAL``."""
    if reg.num >= ADDRESS:
        return SPECIAL
    return HALF if reg.half else FULL


GENERAL = (1 << _SHARED) - 1  # r0 to r47 and hr0 to hr47
SHARED = (1 << _SPECIAL) - (1 << _SHARED)
