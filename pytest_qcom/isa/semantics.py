"""The operation algebra in which the instruction table states what an instruction computes.

One definition an instruction drives everything: the LLVM executor and the numpy reference each
implement :class:`Builder`, and :func:`evaluate` runs a table entry on either. A value is opaque here; a
builder knows the :class:`~pytest_qcom.isa.registers.Ty` of each value that it made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.instruction import Instr, Kind, Operand
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

    # floats; operands are flushed already, every result is flushed: a subnormal becomes a zero of its sign
    def flush(self, a: V) -> V:
        """Subnormals of ``a`` to zeros of their sign; may be skipped where it is known that none exist."""
        ...

    def fadd(self, a: V, b: V) -> V: ...
    def fmul(self, a: V, b: V) -> V: ...
    def fmin(self, a: V, b: V) -> V:
        """``b`` if ``b < a`` or ``a`` is NaN, else ``a``: a NaN operand loses, of two zeros ``a`` wins."""
        ...

    def fmax(self, a: V, b: V) -> V:
        """``b`` if ``b > a`` or ``a`` is NaN, else ``a``."""
        ...

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
        """Float to float; ``rounding`` is ``zero``, ``even``, ``up`` or ``down``.

        Overflow gives the largest finite number where the rounding says so (``zero``: always); a subnormal
        result is flushed.
        """
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


ROUNDINGS = ("zero", "even", "up", "down")
"""The cat1 round field by value (Mesa, ``ir3-cat1.xml`` ``#round``)."""

FOLDED_ROUNDING = "zero"
"""How a float result is narrowed into a half destination: as a cov without round field, since Mesa folds
only those (``ir3_cf.c`` ``is_safe_conv``); unverified on silicon."""


class FloatImmediate(NamedTuple):
    """An entry of the float immediate table: its bits in both widths and Mesa's name."""

    full: int
    half: int
    name: str


FLOAT_TABLE = (
    FloatImmediate(0x00000000, 0x0000, "0.0"),
    FloatImmediate(0x3F000000, 0x3800, "0.5"),
    FloatImmediate(0x3F800000, 0x3C00, "1.0"),
    FloatImmediate(0x40000000, 0x4000, "2.0"),
    FloatImmediate(0x402DF854, 0x4170, "e"),
    FloatImmediate(0x40490FDB, 0x4248, "pi"),
    FloatImmediate(0x3EA2F983, 0x3518, "1/pi"),
    FloatImmediate(0x3F317218, 0x398C, "1/log2(e)"),
    FloatImmediate(0x3FB8AA3B, 0x3DC5, "log2(e)"),
    FloatImmediate(0x3E9A209B, 0x34D1, "1/log2(10)"),
    FloatImmediate(0x40549A78, 0x42A5, "log2(10)"),
    FloatImmediate(0x40800000, 0x4400, "4.0"),
)
"""Float immediates by index (Mesa, ``ir3.c`` ``ir3_flut``)."""

Fetch = Callable[[Operand, int, Ty], Any]
"""``fetch(operand, element, ty)``: see :func:`evaluate`."""


def evaluate(builder: Builder[V], instr: Instr, element: int, fetch: Fetch) -> V:
    """What one repetition of an ALU instruction (cat1 to cat4) writes.

    Args:
        builder: the algebra to compute in.
        instr: an instruction whose ``op.compute`` is set.
        element: the repetition, from 0; for swz, gat and sct the number of the move.
        fetch: gives the raw bits of a register or constant source, as an *integer* value of 16 bits where
            ``operand.half``, else 32. It resolves (r): an operand with ``repeat`` is ``element`` scalars
            further on. It never sees immediates, nor applies (neg) and (abs). ``ty`` says how the bits
            will be read; it matters only to half constants under constant demotion, which convert from
            32 bits: float to float for ``F16``, else truncation. A predicate reads as 0 or all ones.

    Returns:
        An integer value with the bits to write, 16 wide where the destination is half, else 32; for a
        predicate destination a condition.
    """
    if instr.op.reads == "t":
        value = _convert(builder, _cat1_source(builder, instr, element, fetch), instr)
        return builder.nonzero(value) if instr.dst is not None and instr.dst.reg.predicate else value
    values = [
        _source(builder, operand, kind, element, fetch)
        for operand, kind in zip(instr.srcs, instr.op.reads, strict=True)
    ]
    if instr.op.compute is None or instr.dst is None:
        raise EncodeError(f"{instr.op.name} has no ALU semantics; its effect is {instr.op.effect}")
    return _finish(builder, instr, cast(V, instr.op.compute(builder, values, instr)))


def operand_type(kind: str, half: bool) -> Ty:
    """The data type of a source of class ``kind`` (a letter of ``Op.reads``)."""
    pair = {"f": (Ty.F32, Ty.F16), "s": (Ty.S32, Ty.S16)}.get(kind, (Ty.U32, Ty.U16))
    return pair[half]


def _source(builder: Builder[V], operand: Operand, kind: str, element: int, fetch: Fetch) -> V:
    """A source as its class says, modifiers applied: abs first, then neg."""
    ty = operand_type(kind, operand.half)
    if operand.kind is Kind.IMM:
        value = builder.const(operand_type("u", operand.half), operand.value)
    elif operand.kind is Kind.FLUT:
        entry = FLOAT_TABLE[operand.value]
        value = builder.const(operand_type("u", operand.half), entry.half if operand.half else entry.full)
    else:
        value = fetch(operand, element, ty)
    if kind == "f":
        result = builder.as_float(value)
        if operand.kind is not Kind.FLUT:
            result = builder.flush(result)
        result = builder.fabs(result) if operand.abs else result
        return builder.fneg(result) if operand.neg else result
    if operand.abs and kind in "us":
        zero = builder.const(ty, 0)
        value = builder.select(builder.icmp("lt", value, zero, signed=True), builder.sub(zero, value), value)
    if not operand.neg:
        return value
    if kind == "b":
        return builder.not_(value)
    if kind == "g":
        return builder.xor(value, builder.const(ty, 0x8000 if operand.half else 0x80000000))
    return builder.sub(builder.const(ty, 0), value)


def _finish(builder: Builder[V], instr: Instr, value: V) -> V:
    """Saturation of floats and conversion to the destination."""
    dst = instr.dst
    assert dst is not None
    kind = instr.op.result
    if kind == "c":
        if dst.reg.predicate:
            return value
        ty = operand_type("u", dst.half)
        return builder.select(value, builder.const(ty, 1), builder.const(ty, 0))
    if kind == "f":
        source_half = instr.srcs[0].half
        if instr.sat:
            ty = operand_type("f", source_half)
            value = builder.fmin(builder.fmax(value, builder.const(ty, 0)), builder.const(ty, 1))
        if source_half != dst.half and not dst.reg.predicate:
            value = builder.fconvert(value, operand_type("f", dst.half), FOLDED_ROUNDING)
        value = builder.as_int(value)
    if dst.reg.predicate:
        return builder.nonzero(value)
    return value if kind == "f" else builder.resize(value, 16 if dst.half else 32, kind == "s")


def _cat1_source(builder: Builder[V], instr: Instr, element: int, fetch: Fetch) -> V:
    """The raw bits that a move reads; the parallel moves pick their source by ``element``."""
    ty = Ty(instr["src_type"])
    operand = instr.srcs[0]
    if len(instr.srcs) > 1:
        operand, element = instr.srcs[element], 0
    elif "dst1" in instr:
        operand = replace(operand, repeat=True)
    if operand.kind is Kind.IMM:
        bits = 16 if operand.half else 32
        return builder.const(operand_type("u", operand.half), operand.value & (1 << bits) - 1)
    return cast(V, fetch(operand, element, ty))


def _convert(builder: Builder[V], value: V, instr: Instr) -> V:
    """cat1: the bits ``value`` of the source type to bits of the destination type."""
    src, dst = Ty(instr["src_type"]), Ty(instr["dst_type"])
    if src is dst:
        return value
    rounding = ROUNDINGS[instr.get("round")]
    dst_bits = 16 if dst.half or dst is Ty.U8_32 else 32
    bytes_ = (Ty.U8, Ty.U8_32)
    if src.float:
        number = builder.flush(builder.as_float(value))
        if dst.float:
            return builder.as_int(builder.fconvert(number, dst, rounding))
        return builder.to_int(number, 8 if dst in bytes_ else dst_bits, dst.signed, rounding)
    if src in bytes_:  # sign extension is decided by the destination (Mesa, create_cov)
        value = builder.low(value, 8, dst.signed)
    if dst.float:
        return builder.as_int(builder.from_int(value, dst, src.signed, rounding))
    if dst in bytes_:
        return builder.low(builder.resize(value, 16, False), 8, False)
    return builder.resize(value, dst_bits, src.signed or (src in bytes_ and dst.signed))
