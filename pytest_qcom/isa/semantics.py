"""The operation algebra in which the instruction table states what an instruction computes.

One definition an instruction drives everything: the LLVM executor and the numpy reference each
implement :class:`Builder`, and :func:`evaluate` runs a table entry on either. A value is opaque here; a
builder knows the :class:`~pytest_qcom.isa.registers.Ty` of each value that it made.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from pytest_qcom.isa.registers import Ty

V = TypeVar("V")


class Builder(Protocol[V]):
    """What semantics may do with values. One value stands for one scalar of every fiber of a wave.

    Integer values carry only a width (16 or 32; ``U16``/``S16`` and ``U32``/``S32`` are the same value,
    signedness is in the operation). A condition (``Cond`` below, an opaque ``V`` too) is one bit a fiber.
    """

    def const(self, ty: Ty, value: int | float) -> V:
        """The same ``value`` in every fiber. For a float type an ``int`` is taken as a number."""
        ...

    # integer; operands of one width
    def add(self, a: V, b: V) -> V: ...
    def sub(self, a: V, b: V) -> V: ...
    def mul(self, a: V, b: V) -> V:
        """Low half of the product."""
        ...

    def and_(self, a: V, b: V) -> V: ...
    def or_(self, a: V, b: V) -> V: ...
    def xor(self, a: V, b: V) -> V: ...
    def not_(self, a: V) -> V: ...
    def shl(self, a: V, amount: V) -> V:
        """Amount modulo the width of ``a``, like :meth:`lshr` and :meth:`ashr`."""
        ...

    def lshr(self, a: V, amount: V) -> V: ...
    def ashr(self, a: V, amount: V) -> V: ...
    def icmp(self, relation: str, a: V, b: V, signed: bool) -> V:
        """A condition; ``relation`` is one of ``lt le gt ge eq ne``."""
        ...

    def clz(self, a: V) -> V:
        """Leading zeros; the width when ``a`` is 0."""
        ...

    def popcount(self, a: V) -> V: ...
    def bitreverse(self, a: V) -> V: ...
    def resize(self, a: V, bits: int, signed: bool) -> V:
        """Truncate, or extend by sign or zero, to 16 or 32 bits."""
        ...

    def low(self, a: V, bits: int, signed: bool) -> V:
        """The low ``bits`` (8, 16 or 24) of ``a``, extended to the width of ``a``."""
        ...

    # conditions
    def select(self, cond: V, a: V, b: V) -> V: ...
    def nonzero(self, a: V) -> V:
        """The condition ``a != 0`` on the bits of ``a``."""
        ...

    # floats; every result is flushed: a subnormal becomes a zero of its sign
    def fadd(self, a: V, b: V) -> V: ...
    def fmul(self, a: V, b: V) -> V: ...
    def fmin(self, a: V, b: V) -> V:
        """IEEE minNum: a NaN operand loses."""
        ...

    def fmax(self, a: V, b: V) -> V: ...
    def fneg(self, a: V) -> V: ...
    def fabs(self, a: V) -> V: ...
    def fcmp(self, relation: str, a: V, b: V) -> V:
        """A condition; all relations are false on NaN but ``ne``, which is true."""
        ...

    def fround(self, mode: str, a: V) -> V:
        """To an integral value; ``mode`` is one of ``floor ceil trunc even away``."""
        ...

    def sfu(self, function: str, a: V) -> V:
        """One of ``rcp rsq log2 exp2 sin cos sqrt``, at the width of ``a``."""
        ...

    # between widths and kinds
    def fconvert(self, a: V, ty: Ty, rounding: str) -> V:
        """Float to float; ``rounding`` is ``zero``, ``even``, ``up`` or ``down``."""
        ...

    def to_int(self, a: V, bits: int, signed: bool, rounding: str) -> V:
        """Float to integer of 8, 16 or 32 bits; saturates, NaN gives 0. An 8-bit result is 16 bits wide."""
        ...

    def from_int(self, a: V, ty: Ty, signed: bool, rounding: str) -> V:
        """Integer to float."""
        ...

    def as_float(self, a: V) -> V:
        """The same bits as a float of the same width."""
        ...

    def as_int(self, a: V) -> V:
        """The same bits as an integer of the same width."""
        ...
