"""Registers of the A630 and the data types that live in them.

A register number counts scalars: ``4 * index + component``, so ``r2.z`` is 10. Full (``r``) and half
(``hr``) registers are two files in split mode; in merged mode ``hr(2k)``/``hr(2k+1)`` scalars are the low
and high halves of full scalar ``k`` (Mesa, ``ir3.h`` ``ir3_reg_file_offset``).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pytest_qcom.errors import EncodeError

COMPONENTS = "xyzw"
FIRST_SHARED = 4 * 48  # r48.x: one value a wave
ADDRESS = 4 * 61  # a0.x, a1.x is a0.y
PREDICATE = 4 * 62  # p0.x .. p0.w
NO_REGISTER = 4 * 63  # "unused" in a register-id field


class Ty(enum.Enum):
    """The eight type codes of cat1, cat5 and cat6 fields (Mesa, ``ir3-common.xml`` ``#type``)."""

    F16 = 0
    F32 = 1
    U16 = 2
    U32 = 3
    S16 = 4
    S32 = 5
    U8 = 6
    U8_32 = 7

    @property
    def half(self) -> bool:
        """Whether values of this type live in half registers."""
        return self in (Ty.F16, Ty.U16, Ty.S16, Ty.U8)

    @property
    def bits(self) -> int:
        """Width in memory, in bits."""
        return {Ty.U8: 8, Ty.U8_32: 8}.get(self, 16 if self.half else 32)

    @property
    def float(self) -> bool:
        return self in (Ty.F16, Ty.F32)

    @property
    def signed(self) -> bool:
        return self in (Ty.S16, Ty.S32)


@dataclass(frozen=True, slots=True, order=True)
class Reg:
    """One scalar register: ``half`` selects the file, ``num`` is ``4 * index + component``."""

    num: int
    half: bool = False

    @staticmethod
    def parse(name: str) -> Reg:
        """The register called ``name``: ``r3.z``, ``hr0.x``, ``p0.x``, ``a0.x``.

        Raises:
            EncodeError: when it is no register name or the index is out of the file.
        """
        stem, dot, component = name.partition(".")
        base = {"r": 0, "hr": 0, "a": ADDRESS, "p": PREDICATE}
        prefix = stem.rstrip("0123456789")
        digits = stem[len(prefix) :]
        if not dot or prefix not in base or not digits or component not in COMPONENTS or len(component) != 1:
            raise EncodeError(
                f"register {name!r} is no A630 register; write r0.x to r55.w, hr0.x to hr47.w, p0.x or a0.x"
            )
        index = int(digits)
        limit = {"r": 56, "hr": 56, "a": 2, "p": 1}[prefix]
        if index >= limit:
            raise EncodeError(f"register {name!r} is beyond the file: {prefix}0 to {prefix}{limit - 1} exist")
        if prefix == "a":  # a1.x is encoded as a0.y
            return Reg(ADDRESS + index + COMPONENTS.index(component), half=True)
        return Reg(base[prefix] + 4 * index + COMPONENTS.index(component), half=prefix == "hr")

    @property
    def predicate(self) -> bool:
        return PREDICATE <= self.num < NO_REGISTER

    @property
    def address(self) -> bool:
        return ADDRESS <= self.num < PREDICATE

    @property
    def shared(self) -> bool:
        """Whether all fibers of a wave share it (r48.x to r55.w)."""
        return FIRST_SHARED <= self.num < ADDRESS

    def __add__(self, scalars: int) -> Reg:
        return Reg(self.num + scalars, self.half)

    def __str__(self) -> str:
        index, component = divmod(self.num, 4)
        if self.predicate:
            return f"p0.{COMPONENTS[component]}"
        if self.address:
            return f"a{component}.x"
        return f"{'hr' if self.half else 'r'}{index}.{COMPONENTS[component]}"
