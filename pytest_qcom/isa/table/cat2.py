"""Category 2: ALU instructions of one and two sources (Mesa, ``ir3-cat2.xml``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.fields import Field, Fixed, Layout
from pytest_qcom.isa.form import Draft, Form, Token, attributes, choice, destination, source
from pytest_qcom.isa.instruction import Compute, Instr, Kind, Latency, Op, Operand, Unsupported
from pytest_qcom.isa.operands import gpr, operand_text, pack_source, unpack_source
from pytest_qcom.isa.registers import PREDICATE
from pytest_qcom.isa.semantics import Builder, operand_type

_FIELDS = (
    Field("src1", 0, 15),
    Field("dst", 32, 39),
    Field("rpt", 40, 41),
    Field("sat", 42, 42),
    Field("r1", 43, 43),
    Field("ss", 44, 44),
    Field("ul", 45, 45),
    Field("conv", 46, 46),
    Field("ei", 47, 47),
    Field("r2", 51, 51),
    Field("full", 52, 52),
    Field("jp", 59, 59),
    Field("sy", 60, 60),
)
_FLAGS = ("sy", "ss", "jp", "sat", "rpt", "nop", "ul")
CONDITIONS = {0: "lt", 1: "le", 2: "gt", 3: "ge", 4: "eq", 5: "ne"}


def key(word: int) -> tuple[int, ...]:
    """OPC."""
    return (2, word >> 53 & 63)


# ---- what cat2 and cat3 share: (nopN) in the place of (r), and the width of the destination


def lift_flags(f: dict[str, int]) -> dict[str, Any]:
    """The modifiers of an instruction."""
    nop = 0 if f["rpt"] else f["r1"] + 2 * f["r2"]
    names = ("sat", "ss", "ul", "ei", "jp", "sy")
    return {"rpt": f["rpt"], "nop": nop, **{name: bool(f[name]) for name in names if name in f}}


def lower_flags(instr: Instr) -> dict[str, int]:
    """Modifiers to fields; the (r) bits of the first two sources hold (nopN) when nothing repeats.

    Raises:
        EncodeError: when (rptN) and (nopN), or (r) without (rptN), are asked for.
    """
    fields = {name: int(getattr(instr, name)) for name in ("rpt", "sat", "ss", "ul", "ei", "jp", "sy")}
    marked = [bool(operand.repeat) for operand in instr.srcs[:2]] + [False, False]
    if instr.rpt and instr.nop:
        raise EncodeError(
            f"{instr.op.name} with (rpt{instr.rpt}) and (nop{instr.nop}); they share bits, use one"
        )
    if not instr.rpt and any(marked):
        raise EncodeError(f"{instr.op.name} with (r) but without (rptN); its bits would mean (nopN), drop it")
    if not 0 <= instr.nop <= 3:
        raise EncodeError(
            f"{instr.op.name} with (nop{instr.nop}); at most (nop3) fits, use a nop instruction"
        )
    first, second = (instr.nop & 1, instr.nop >> 1) if not instr.rpt else marked[:2]
    return {**fields, "r1": int(first), "r2": int(second)}


def lift_dst(f: dict[str, int], full: bool) -> tuple[Operand, dict[str, int]]:
    """The destination, half where its width differs from ``full`` or is equal without conversion.

    Registers from p0.x on are never half; their conversion bit is kept as an attribute.
    """
    if f["dst"] >= PREDICATE:
        return gpr(f["dst"]), {"conv": 1} if f["conv"] else {}
    return gpr(f["dst"], half=full == bool(f["conv"])), {}


def lower_dst(instr: Instr, full: bool) -> dict[str, int]:
    """The destination's fields.

    Raises:
        EncodeError: when it is missing or no register.
    """
    dst = instr.dst
    if dst is None or dst.kind is not Kind.GPR or dst.neg or dst.abs or dst.repeat:
        raise EncodeError(f"{instr.op.name} needs a plain register as destination; give one")
    conv = instr.get("conv") if dst.value >= PREDICATE else int(dst.half == full)
    return {"dst": dst.value, "conv": conv}


def common_width(instr: Instr, srcs: Sequence[Operand]) -> bool:
    """Whether the sources are full; immediates follow the registers.

    Raises:
        EncodeError: when half and full registers are mixed.
    """
    registers = [operand for operand in srcs if operand.kind not in (Kind.IMM, Kind.FLUT)]
    widths = {operand.half for operand in registers or srcs[:1]}
    if len(widths) > 1:
        names = ", ".join(operand_text(operand) for operand in srcs)
        raise EncodeError(f"{instr.op.name} with half and full sources ({names}); all must have one width")
    return not widths.pop()


def _lift(op: Op, f: dict[str, int], word: int) -> Instr:
    full, flags = bool(f["full"]), lift_flags(f)
    dst, attrs = lift_dst(f, full)
    repeats = bool(f["rpt"])
    srcs = [unpack_source(f["src1"], not full, repeats and bool(f["r1"]), word, 0, op.name)]
    if "src2" in f:
        srcs.append(unpack_source(f["src2"], not full, repeats and bool(f["r2"]), word, 16, op.name))
    elif repeats and f["r2"]:
        attrs["r2"] = 1  # no source to mark
    if "cond" in f:
        attrs["cond"] = f["cond"]
    return Instr(op, dst, tuple(srcs), attrs=attributes(attrs), **flags)


def _lower(instr: Instr, count: int) -> dict[str, int]:
    name = instr.op.name
    if len(instr.srcs) != count:
        raise EncodeError(f"{name} with {len(instr.srcs)} sources; it takes {count}")
    full = common_width(instr, instr.srcs)
    fields = {**dict(instr.attrs), **lower_flags(instr), **lower_dst(instr, full), "full": int(full)}
    for index, operand in enumerate(instr.srcs, 1):
        fields[f"src{index}"] = pack_source(replace(operand, repeat=False), not full, name)
    fields["r2"] |= instr.get("r2")
    return fields


def _ei_dst() -> Token:
    token = destination()

    def read(draft: Draft, text: str) -> None:
        draft.flags["ei"] = int(text.startswith("(ei)"))
        token.read(draft, text.removeprefix("(ei)"))

    return Token(r"(?:\(ei\))?" + token.pattern, lambda i: ("(ei)" if i.ei else "") + token.show(i), read)


_TOKENS = {
    "dst": _ei_dst(),
    "src1": source(0, repeat_under_nop=False),
    "src2": source(1, repeat_under_nop=False),
    "cond": choice("cond", CONDITIONS),
}


def _form(name: str, opcode: int, sources: int, condition: bool = False) -> Form:
    fields = _FIELDS + ((Field("src2", 16, 31),) if sources == 2 else ())
    fields += (Field("cond", 48, 50, legal=tuple(CONDITIONS)),) if condition else ()
    fixed: tuple[Fixed, ...] = (Fixed(61, 63, 2), Fixed(53, 58, opcode))
    fixed += () if sources == 2 else (Fixed(16, 31, care=False),)
    fixed += () if condition else (Fixed(48, 50, care=False),)
    slots = ("{dst}", "{src1}", "{src2}")[: sources + 1]
    mnemonic = name + (".{cond}" if condition else "")
    return Form(
        Layout(fields, fixed), _lift, lambda instr: _lower(instr, sources), _FLAGS, mnemonic, slots, _TOKENS
    )


_FLOAT = "Mesa: ir3_compiler_nir.c emit_alu; rounding and flushing: tu_device.cc float controls"
_INTEGER = "Mesa: ir3_compiler_nir.c emit_alu, NIR's definition of the operation it is made from"
_SOURCES = {"f": _FLOAT, "c": "Mesa: ir3_compiler_nir.c emit_alu, compares"}


def _op(
    name: str, opcode: int, reads: str, result: str, compute: Compute, confidence: str = "documented"
) -> Op:
    form = _form(name, opcode, len(reads), result == "c")
    return Op(
        name,
        2,
        Latency.ALU,
        compute=compute,
        reads=reads,
        result=result,
        confidence=confidence,
        source=_SOURCES.get(result, _INTEGER),
        layout=form,
    )


def _unsupported(name: str, opcode: int, sources: int, reason: str, condition: bool = False) -> Op:
    form = _form(name, opcode, sources, condition)
    return Op(name, 2, Latency.ALU, effect=Unsupported(reason), source="Mesa ir3-cat2.xml", layout=form)


# ---- semantics


def _width(instr: Instr) -> int:
    return 16 if instr.srcs[0].half else 32


def _sign_f(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
    ty = operand_type("f", i.srcs[0].half)
    zero, one, minus = (b.const(ty, number) for number in (0, 1, -1))
    negative = b.select(b.fcmp("lt", v[0], zero), minus, zero)
    return b.select(b.fcmp("gt", v[0], zero), one, negative)


def _add(signed: bool) -> Compute:
    def compute(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
        if i.ei:
            return _halving_add(b, v[0], v[1], signed, b.const(operand_type("u", i.srcs[0].half), 1))
        return saturating(b, "add", v[0], v[1], signed, _width(i)) if i.sat else b.add(v[0], v[1])

    return compute


def _sub(signed: bool) -> Compute:
    def compute(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
        return saturating(b, "sub", v[0], v[1], signed, _width(i)) if i.sat else b.sub(v[0], v[1])

    return compute


def _halving_add(b: Builder[Any], x: Any, y: Any, signed: bool, one: Any) -> Any:
    """(x + y) >> 1 without overflow: the shared bits plus half of the others."""
    other = b.xor(x, y)
    return b.add(b.and_(x, y), b.ashr(other, one) if signed else b.lshr(other, one))


def saturating(b: Builder[Any], name: str, x: Any, y: Any, signed: bool, width: int) -> Any:
    """Integer addition or subtraction that stops at the ends of its range."""
    ty = operand_type("s" if signed else "u", width == 16)
    result = b.add(x, y) if name == "add" else b.sub(x, y)
    if not signed:
        if name == "add":
            return b.select(b.icmp("lt", result, x, False), b.const(ty, (1 << width) - 1), result)
        return b.select(b.icmp("lt", x, y, False), b.const(ty, 0), result)
    zero = b.const(ty, 0)
    moved = b.xor(x, result)  # overflow: the result's sign differs from x's although y's cannot explain it
    operands = b.xor(x, y)
    overflow = b.and_(moved, operands if name == "sub" else b.not_(operands))
    top, bottom = b.const(ty, (1 << width - 1) - 1), b.const(ty, -(1 << width - 1))
    limit = b.select(b.icmp("lt", x, zero, True), bottom, top)
    return b.select(b.icmp("lt", overflow, zero, True), limit, result)


def _pick(relation: str, signed: bool) -> Compute:
    return lambda b, v, i: b.select(b.icmp(relation, v[0], v[1], signed), v[0], v[1])


def _compare(signed: bool) -> Compute:
    return lambda b, v, i: b.icmp(CONDITIONS[i["cond"]], v[0], v[1], signed)


def _product(bits: int, signed: bool) -> Compute:
    """A product of ``bits`` wide factors, always computed in 32 bits (Mesa, ``ir3_cf.c``)."""

    def compute(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
        wide = [b.resize(value, 32, signed) if i.srcs[0].half else b.low(value, bits, signed) for value in v]
        return b.mul(wide[0], wide[1])

    return compute


def _clz(signed: bool) -> Compute:
    """Leading zeros (signed: of the magnitude's bits); -1 when there is no bit to find."""

    def compute(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
        ty = operand_type("s", i.srcs[0].half)
        value = v[0]
        if signed:
            value = b.xor(value, b.ashr(value, b.const(ty, _width(i) - 1)))
        return b.select(b.nonzero(value), b.clz(value), b.const(ty, -1))

    return compute


def _getbit(b: Builder[Any], v: Sequence[Any], i: Instr) -> Any:
    return b.and_(b.lshr(v[0], v[1]), b.const(operand_type("u", i.srcs[0].half), 1))


_VECTOR = "cmpv is no scalar compare and its result is not documented; Mesa's compiler builds none"

OPS: tuple[Op, ...] = (
    _op("add.f", 0, "ff", "f", lambda b, v, i: b.fadd(v[0], v[1])),
    _op("min.f", 1, "ff", "f", lambda b, v, i: b.fmin(v[0], v[1]), "inferred"),
    _op("max.f", 2, "ff", "f", lambda b, v, i: b.fmax(v[0], v[1]), "inferred"),
    _op("mul.f", 3, "ff", "f", lambda b, v, i: b.fmul(v[0], v[1])),
    _op("sign.f", 4, "f", "f", _sign_f, "inferred"),
    _op("cmps.f", 5, "ff", "c", lambda b, v, i: b.fcmp(CONDITIONS[i["cond"]], v[0], v[1])),
    _op("absneg.f", 6, "f", "f", lambda b, v, i: v[0]),
    _unsupported("cmpv.f", 7, 2, _VECTOR, condition=True),
    _op("floor.f", 9, "f", "f", lambda b, v, i: b.fround("floor", v[0])),
    _op("ceil.f", 10, "f", "f", lambda b, v, i: b.fround("ceil", v[0])),
    _op("rndne.f", 11, "f", "f", lambda b, v, i: b.fround("even", v[0])),
    _op("rndaz.f", 12, "f", "f", lambda b, v, i: b.fround("away", v[0]), "inferred"),
    _op("trunc.f", 13, "f", "f", lambda b, v, i: b.fround("trunc", v[0])),
    _op("add.u", 16, "uu", "u", _add(False)),
    _op("add.s", 17, "ss", "s", _add(True)),
    _op("sub.u", 18, "uu", "u", _sub(False)),
    _op("sub.s", 19, "ss", "s", _sub(True)),
    _op("cmps.u", 20, "uu", "c", _compare(False)),
    _op("cmps.s", 21, "ss", "c", _compare(True)),
    _op("min.u", 22, "uu", "u", _pick("le", False)),
    _op("min.s", 23, "ss", "s", _pick("le", True)),
    _op("max.u", 24, "uu", "u", _pick("ge", False)),
    _op("max.s", 25, "ss", "s", _pick("ge", True)),
    _op("absneg.s", 26, "s", "s", lambda b, v, i: v[0]),
    _op("and.b", 28, "bb", "b", lambda b, v, i: b.and_(v[0], v[1])),
    _op("or.b", 29, "bb", "b", lambda b, v, i: b.or_(v[0], v[1])),
    _op("not.b", 30, "b", "b", lambda b, v, i: b.not_(v[0])),
    _op("xor.b", 31, "bb", "b", lambda b, v, i: b.xor(v[0], v[1])),
    _unsupported("cmpv.u", 33, 2, _VECTOR, condition=True),
    _unsupported("cmpv.s", 34, 2, _VECTOR, condition=True),
    _op("mul.u24", 48, "uu", "u", _product(24, False)),
    _op("mul.s24", 49, "ss", "s", _product(24, True)),
    _op("mull.u", 50, "uu", "u", _product(16, False)),
    _op("bfrev.b", 51, "b", "b", lambda b, v, i: b.bitreverse(v[0])),
    _op("clz.s", 52, "s", "s", _clz(True), "inferred"),
    _op("clz.b", 53, "b", "s", _clz(False), "inferred"),
    _op("shl.b", 54, "bb", "b", lambda b, v, i: b.shl(v[0], v[1])),
    _op("shr.b", 55, "bb", "b", lambda b, v, i: b.lshr(v[0], v[1])),
    _op("ashr.b", 56, "bb", "s", lambda b, v, i: b.ashr(v[0], v[1])),
    _unsupported("mgen.b", 58, 2, "its mask is not documented; Mesa's compiler builds none"),
    _op("getbit.b", 59, "bb", "b", _getbit, "inferred"),
    _unsupported("setrm", 60, 1, "the rounding mode it sets is not documented; Mesa's compiler builds none"),
    _op("cbits.b", 61, "b", "b", lambda b, v, i: b.popcount(v[0])),
    _unsupported("shb", 62, 2, "its meaning is not documented; Mesa's compiler builds none"),
    _unsupported("msad", 63, 2, "its meaning is not documented; Mesa's compiler builds none"),
)
