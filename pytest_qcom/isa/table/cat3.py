"""Category 3: ALU instructions of three sources (Mesa, ``ir3-cat3.xml``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.fields import Field, Fixed, Layout, bad_bits
from pytest_qcom.isa.form import Form, attributes, choice, destination, source
from pytest_qcom.isa.instruction import Compute, Instr, Kind, Latency, Op, Operand, Unsupported
from pytest_qcom.isa.operands import gpr, operand_text, pack_source3, unpack_source3
from pytest_qcom.isa.semantics import Builder, operand_type
from pytest_qcom.isa.table.cat2 import (
    common_width,
    lift_dst,
    lift_flags,
    lower_dst,
    lower_flags,
    saturating,
)

_BASE = (
    Field("src1", 0, 12),
    Field("r2", 15, 15),
    Field("src3", 16, 28),
    Field("r3", 29, 29),
    Field("dst", 32, 39),
    Field("rpt", 40, 41),
    Field("r1", 43, 43),
    Field("ss", 44, 44),
    Field("ul", 45, 45),
    Field("src2", 47, 54),
    Field("jp", 59, 59),
    Field("sy", 60, 60),
)
_NEG1, _NEG2, _NEG3 = Field("neg1", 14, 14), Field("neg2", 30, 30), Field("neg3", 31, 31)
_CAT = Fixed(61, 63, 3)
_ALTERNATE = Fixed(13, 13, 1)
_FLAGS = ("sy", "ss", "jp", "sat", "rpt", "nop", "ul")


def key(word: int) -> tuple[int, ...]:
    """OPC, the alternate bit, and the bit that tells its dot products and matrix operations apart."""
    opcode, alternate = word >> 55 & 15, word >> 13 & 1
    variant = {13: word >> 46 & 1, 14: word >> 42 & 1}.get(opcode, 0) if alternate else 0
    return (3, opcode, alternate, variant)


def _no_constant(operand: Operand, word: int, lo: int, name: str) -> Operand:
    """Dot products and matrix operations take no constants where others do (Mesa prints an error)."""
    if operand.kind is Kind.CONST:
        raise bad_bits(word, lo, lo + 12, name, "a constant, which it does not take")
    return operand


def _refuse_constants(instr: Instr) -> None:
    if any(operand.kind is Kind.CONST for operand in instr.srcs):
        raise EncodeError(f"{instr.op.name} takes no constants; move it to a register")


def _sources(
    f: dict[str, int], full: bool, immediates: tuple[bool, bool], word: int, name: str
) -> list[Operand]:
    first = unpack_source3(f["src1"], not full, immediates[0], word, 0, name)
    third = unpack_source3(f["src3"], not full, immediates[1], word, 16, name)
    operands = [first, gpr(f["src2"], not full), third]
    repeats = (bool(f["rpt"] and f["r1"]), bool(f["rpt"] and f["r2"]), bool(f["r3"]))
    return [
        replace(operand, neg=bool(f.get(f"neg{n}")), repeat=repeat)
        for n, (operand, repeat) in enumerate(zip(operands, repeats, strict=True), 1)
    ]


def _pack_sources(instr: Instr, immediates: tuple[bool, bool], half: bool) -> dict[str, int]:
    name = instr.op.name
    if len(instr.srcs) != 3:
        raise EncodeError(f"{name} with {len(instr.srcs)} sources; it takes 3")
    first, second, third = (replace(operand, half=half) for operand in instr.srcs)
    if second.kind is not Kind.GPR or second.abs or second.last:
        raise EncodeError(
            f"{name}: second source {operand_text(second)} must be a plain register; move it to one"
        )
    fields = {
        "src1": pack_source3(first, immediates[0], name),
        "src2": second.value,
        "src3": pack_source3(third, immediates[1], name),
        "r3": int(third.repeat),
    }
    return fields | {f"neg{n}": int(operand.neg) for n, operand in enumerate(instr.srcs, 1) if operand.neg}


# ---- the plain form: the opcode says how wide the sources are


def _plain(name: str, opcode: int, full: bool) -> Form:
    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        dst, attrs = lift_dst(f, full)
        srcs = _sources(f, full, (False, False), word, op.name)
        return Instr(op, dst, tuple(srcs), attrs=attributes(attrs), **lift_flags(f))

    def lower(instr: Instr) -> dict[str, int]:
        if common_width(instr, instr.srcs) != full:
            raise EncodeError(
                f"{name} takes {'full' if full else 'half'} sources; use {'r' if full else 'hr'} registers"
            )
        fields = {**dict(instr.attrs), **lower_flags(instr), **lower_dst(instr, full)}
        return fields | _pack_sources(instr, (False, False), not full)

    fields = (*_BASE, _NEG1, _NEG2, _NEG3, Field("sat", 42, 42), Field("conv", 46, 46))
    layout = Layout(fields, (_CAT, Fixed(55, 58, opcode), Fixed(13, 13)))
    return Form(layout, lift, lower, _FLAGS, name, _SLOTS, _TOKENS)


# ---- the alternate form: bit 42 says how wide, the first and third source may be numbers


def _alternate(name: str, opcode: int) -> Form:
    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        full = bool(f["full"])
        dst, attrs = lift_dst(f, full)
        srcs = _sources(f, full, (True, True), word, op.name)
        return Instr(op, dst, tuple(srcs), attrs=attributes(attrs), **lift_flags(f))

    def lower(instr: Instr) -> dict[str, int]:
        full = common_width(instr, instr.srcs)
        fields = {**dict(instr.attrs), **lower_flags(instr), **lower_dst(instr, full), "full": int(full)}
        return fields | _pack_sources(instr, (True, True), not full)

    fields = (*_BASE, _NEG1, _NEG2, _NEG3, Field("full", 42, 42), Field("conv", 46, 46))
    layout = Layout(fields, (_CAT, Fixed(55, 58, opcode), _ALTERNATE))
    return Form(
        layout, lift, lower, _FLAGS, name, _SLOTS, {**_TOKENS, "src1": _number(0), "src3": _number(2)}
    )


def _number(index: int) -> Any:
    """A source of which an immediate is printed bare."""
    token = source(index, zero=True, repeat_under_nop=False)

    def show(instr: Instr) -> str:
        operand = instr.srcs[index]
        return token.show(instr) if operand.kind is not Kind.IMM else _bare(operand, bool(instr.nop))

    return replace(token, show=show)


def _bare(operand: Operand, nop: bool) -> str:
    return operand_text(replace(operand, half=False), False if nop else None)


_SLOTS = ("{dst}", "{src1}", "{src2}", "{src3}")
_TOKENS = {
    "dst": destination(),
    "src1": source(0, zero=True, repeat_under_nop=False),
    "src2": source(1, repeat_under_nop=False),
    "src3": source(2, zero=True, repeat_under_nop=False),
}

# ---- packed dot products


def _dot(name: str, variant: int) -> Form:
    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        srcs = _sources(f, True, (False, False), word, op.name)
        _no_constant(srcs[0], word, 0, op.name)
        _no_constant(srcs[2], word, 16, op.name)
        attrs = attributes({"mixed": f["mixed"], "high": f["high"]})
        return Instr(op, gpr(f["dst"]), tuple(srcs), attrs=attrs, **lift_flags(f))

    def lower(instr: Instr) -> dict[str, int]:
        if not common_width(instr, instr.srcs):
            raise EncodeError(f"{name} takes full sources; use r registers")
        _refuse_constants(instr)
        dst = lower_dst(instr, False)
        fields = {**dict(instr.attrs), **lower_flags(instr), "dst": dst["dst"]}
        return fields | _pack_sources(instr, (False, False), False)

    fields = (*_BASE, Field("mixed", 14, 14), Field("high", 30, 30), _NEG3, Field("sat", 42, 42))
    layout = Layout(fields, (_CAT, Fixed(55, 58, 13), _ALTERNATE, Fixed(46, 46, variant)))
    tokens = {
        **_TOKENS,
        "src3": source(2, zero=True),
        "sign": choice("mixed", {0: ".unsigned", 1: ".mixed"}),
        "pack": choice("high", {0: ".low", 1: ".high"}),
    }
    flags = ("sy", "ss", "jp", "sat", "nop", "ul")  # (rptN) is not printed
    return Form(layout, lift, lower, flags, name + "{sign}{pack}", _SLOTS, tokens, {"mixed": 0, "high": 0})


def _matrix(name: str, variant: int) -> Form:
    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        srcs = _sources(f, bool(f["full"]), (False, True), word, op.name)
        _no_constant(srcs[0], word, 0, op.name)
        attrs = attributes({"full": f["full"]})
        return Instr(op, gpr(f["dst"], not f["dst_full"]), tuple(srcs), attrs=attrs, **lift_flags(f))

    def lower(instr: Instr) -> dict[str, int]:
        dst = instr.dst
        if dst is None or dst.kind is not Kind.GPR:
            raise EncodeError(f"{name} needs a register as destination; give one")
        _refuse_constants(instr)
        full = common_width(instr, instr.srcs)
        fields = {**dict(instr.attrs), **lower_flags(instr), "dst": dst.value, "dst_full": int(not dst.half)}
        return fields | {"full": int(full)} | _pack_sources(instr, (False, True), not full)

    fields = (*_BASE, _NEG1, _NEG2, Field("full", 31, 31), Field("dst_full", 46, 46))
    layout = Layout(fields, (_CAT, Fixed(55, 58, 14), _ALTERNATE, Fixed(42, 42, variant)))
    return Form(layout, lift, lower, _FLAGS, name, _SLOTS, {**_TOKENS, "src3": _number(2)})


# ---- semantics


def _mad_f(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
    return b.fadd(b.fmul(v[0], v[1]), v[2])  # unfused (Mesa, emit_alu ffma): rounded and flushed in between


def _mad24(signed: bool) -> Compute:
    return lambda b, v, i: b.add(b.mul(b.low(v[0], 24, signed), b.low(v[1], 24, signed)), v[2])


def _mad16(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
    return b.add(b.mul(v[0], v[1]), v[2])


def _madsh(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
    sixteen = b.const(operand_type("u", False), 16)
    product = b.mul(b.low(v[0], 16, False), b.lshr(v[1], sixteen))
    return b.add(b.shl(product, sixteen), v[2])


def _sel_b(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
    return b.select(b.nonzero(v[1]), v[0], v[2])


def _sel_s(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
    zero = b.const(operand_type("s", i.srcs[1].half), 0)
    return b.select(b.icmp("ge", v[1], zero, True), v[0], v[2])


def _sel_f(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
    zero = b.const(operand_type("f", i.srcs[1].half), 0)
    return b.select(b.fcmp("ge", v[1], zero), v[0], v[2])


def _sad(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
    zero = b.const(operand_type("s", i.srcs[0].half), 0)
    difference = b.sub(v[0], v[1])
    magnitude = b.select(b.icmp("lt", difference, zero, True), b.sub(zero, difference), difference)
    return b.add(magnitude, v[2])


def _dot_product(count: int) -> Compute:
    """Sum of byte products plus the third source; mixed: the first source's bytes are signed."""

    def compute(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
        ty, signed = operand_type("u", False), bool(i["mixed"])
        first = 2 * i["high"] if count == 2 else 0
        total = None
        for byte in range(first, first + count):
            shift = b.const(ty, 8 * byte)
            left = b.low(b.lshr(v[0], shift), 8, signed)
            term = b.mul(left, b.low(b.lshr(v[1], shift), 8, False))
            total = term if total is None else b.add(total, term)
        return saturating(b, "add", total, v[2], signed, 32) if i.sat else b.add(total, v[2])

    return compute


_SOURCE = "Mesa: ir3_compiler_nir.c emit_alu, ir3_nir_imul.py; rounding and flushing: tu_device.cc"
_LATE = 2  # the addend, by source number (Mesa, ir3_src_read_delay)


def _op(
    name: str,
    opcode: int,
    full: bool,
    reads: str,
    result: str,
    compute: Compute,
    confidence: str = "documented",
    late: int | None = None,
) -> Op:
    return Op(
        name,
        3,
        Latency.ALU,
        compute=compute,
        reads=reads,
        result=result,
        confidence=confidence,
        source=_SOURCE,
        late_source=late,
        layout=_plain(name, opcode, full),
    )


def _shift(name: str, opcode: int, compute: Compute) -> Op:
    form = _alternate(name, opcode)
    return Op(
        name,
        3,
        Latency.ALU,
        compute=compute,
        reads="bbb",
        result="b",
        source="Mesa ir3-cat3.xml",
        layout=form,
    )


def _packed(name: str, variant: int, count: int) -> Op:
    form = _dot(name, variant)
    return Op(
        name,
        3,
        Latency.ALU,
        compute=_dot_product(count),
        reads="uus",
        result="u",
        confidence="inferred",
        source="Mesa ir3-cat3.xml; the A630's compiler flag for it is off",
        layout=form,
    )


_WMM = Unsupported("a matrix operation of newer chips; Mesa's compiler builds none")

OPS: tuple[Op, ...] = (
    _op("mad.u16", 0, False, "uuu", "u", _mad16, late=_LATE),
    Op(
        "madsh.u16",
        3,
        Latency.ALU,
        effect=Unsupported("its meaning is not documented; Mesa's compiler builds none"),
        source="Mesa ir3-cat3.xml",
        late_source=_LATE,
        layout=_plain("madsh.u16", 1, True),
    ),
    _op("mad.s16", 2, False, "sss", "s", _mad16, late=_LATE),
    _op("madsh.m16", 3, True, "uuu", "u", _madsh, late=_LATE),
    _op("mad.u24", 4, True, "uuu", "u", _mad24(False), late=_LATE),
    _op("mad.s24", 5, True, "sss", "s", _mad24(True), late=_LATE),
    _op("mad.f16", 6, False, "fff", "f", _mad_f, late=_LATE),
    _op("mad.f32", 7, True, "fff", "f", _mad_f, late=_LATE),
    _op("sel.b16", 8, False, "ggg", "b", _sel_b),
    _op("sel.b32", 9, True, "ggg", "b", _sel_b),
    _op("sel.s16", 10, False, "sss", "s", _sel_s, "inferred"),
    _op("sel.s32", 11, True, "sss", "s", _sel_s, "inferred"),
    _op("sel.f16", 12, False, "fff", "f", _sel_f, "inferred"),
    _op("sel.f32", 13, True, "fff", "f", _sel_f, "inferred"),
    _op("sad.s16", 14, False, "sss", "s", _sad, "inferred"),
    _op("sad.s32", 15, True, "sss", "s", _sad, "inferred"),
    _shift("shrm", 8, lambda b, v, i: b.and_(b.lshr(v[1], v[0]), v[2])),
    _shift("shlm", 9, lambda b, v, i: b.and_(b.shl(v[1], v[0]), v[2])),
    _shift("shrg", 10, lambda b, v, i: b.or_(b.lshr(v[1], v[0]), v[2])),
    _shift("shlg", 11, lambda b, v, i: b.or_(b.shl(v[1], v[0]), v[2])),
    _shift("andg", 12, lambda b, v, i: b.or_(b.and_(v[1], v[0]), v[2])),
    _packed("dp2acc", 0, 2),
    _packed("dp4acc", 1, 4),
    Op("wmm", 3, Latency.ALU, effect=_WMM, source="Mesa ir3-cat3.xml", layout=_matrix("wmm", 0)),
    Op("wmm.accu", 3, Latency.ALU, effect=_WMM, source="Mesa ir3-cat3.xml", layout=_matrix("wmm.accu", 1)),
)
