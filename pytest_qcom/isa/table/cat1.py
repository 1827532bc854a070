"""Category 1: moves and conversions (Mesa, ``ir3-cat1.xml``)."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from typing import Any

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.fields import Field, Fixed, Layout, bad_bits
from pytest_qcom.isa.form import (
    TYPES,
    Draft,
    Form,
    Token,
    attributes,
    choice,
    destination,
    further,
    plain,
)
from pytest_qcom.isa.instruction import ActiveMask, Instr, Kind, Latency, Op, Operand
from pytest_qcom.isa.operands import (
    gpr,
    operand_text,
    pack_source,
    parse_operand,
    register_text,
    unpack_source,
)
from pytest_qcom.isa.registers import ADDRESS, Ty

_CAT = Fixed(61, 63, 1)
_COMMON = (
    Field("dst", 32, 39),
    Field("ss", 44, 44),
    Field("ul", 45, 45),
    Field("round", 55, 56),
    Field("jp", 59, 59),
    Field("sy", 60, 60),
)
_TYPES = (Field("dst_type", 46, 48), Field("src_type", 50, 52))
_ROUND = {0: "", 1: "(even)", 2: "(pos_infinity)", 3: "(neg_infinity)"}
_GPR, _CONST, _IMM = 0, 1, 2  # the source kind field
_F16, _F32, _U16, _U32, _S16, _S32 = 0, 1, 2, 3, 4, 5


def key(word: int) -> tuple[int, ...]:
    """OPC, and SUB_OPC of the parallel moves."""
    opcode = word >> 57 & 3
    return (1, opcode, word >> 40 & 3 if opcode == 2 else 0)


def half_type(ty: int) -> bool:
    """Whether cat1 keeps type ``ty`` in half registers; 7 too, unlike cat6."""
    return Ty(ty).half or ty == Ty.U8_32.value


def _flags(f: dict[str, int]) -> dict[str, Any]:
    return {name: bool(f[name]) for name in ("ss", "ul", "jp", "sy")}


def _lower_common(instr: Instr) -> dict[str, int]:
    if instr.sat or instr.nop or instr.ei:
        raise EncodeError(f"{instr.op.name} takes none of (sat)(nop)(ei); drop them")
    if instr.dst is None:
        raise EncodeError(f"{instr.op.name} needs a destination; give a register")
    fields = {"ss": instr.ss, "ul": instr.ul, "jp": instr.jp, "sy": instr.sy, "rpt": instr.rpt}
    return {**dict(instr.attrs), **fields, "dst": instr.dst.value}


# ---- mov, cov, mova


def _lift_mov(op: Op, f: dict[str, int], word: int) -> Instr:
    half = half_type(f["src_type"])
    kind, bits = f["kind"], f["src"]
    if kind == _IMM:
        source = Operand(Kind.IMM, bits, half, repeat=bool(f["r"]))
    elif kind == _CONST and bits < 0x800:
        source = Operand(Kind.CONST, bits, half, repeat=bool(f["r"]))
    elif kind == _GPR and bits < 0x1000:
        source = unpack_source(bits, half, bool(f["r"]), word, 0, op.name)
    else:
        raise bad_bits(word, 0, 31, op.name, f"no source of kind {kind}")
    dst_half = half_type(f["dst_type"])
    dst = Operand(Kind.REL_GPR if f["dst_rel"] else Kind.GPR, f["dst"], dst_half)
    if dst.kind is Kind.GPR and dst.reg.predicate:
        dst = replace(dst, half=False)
    attrs = attributes({name: f[name] for name in ("src_type", "dst_type", "round")})
    return Instr(op, dst, (source,), rpt=f["rpt"], attrs=attrs, **_flags(f))


def _lower_mov(instr: Instr) -> dict[str, int]:
    fields = _lower_common(instr)
    if len(instr.srcs) != 1 or instr.dst is None:
        raise EncodeError(f"{instr.op.name} with {len(instr.srcs)} sources; it takes one")
    source = instr.srcs[0]
    if source.neg or source.abs:
        raise EncodeError(f"{instr.op.name}: source {operand_text(source)} has (neg) or (abs); use absneg")
    _check_width(instr, source, "src_type")
    _check_width(instr, instr.dst, "dst_type")
    fields["r"] = source.repeat
    fields["dst_rel"] = instr.dst.kind is Kind.REL_GPR
    if source.kind is Kind.IMM:
        return {**fields, "kind": _IMM, "src": source.value & 0xFFFFFFFF}
    packed = pack_source(replace(source, repeat=False), source.half, instr.op.name)
    if source.kind is Kind.CONST:
        return {**fields, "kind": _CONST, "src": packed & 0x7FF}
    if source.kind is Kind.FLUT:
        raise EncodeError(f"{instr.op.name}: a mov takes its float immediate as bits, not from the table")
    return {**fields, "kind": _GPR, "src": packed}


def _check_width(instr: Instr, operand: Operand, name: str) -> None:
    half = half_type(instr[name])
    special = operand.kind is Kind.GPR and operand.value >= ADDRESS
    if operand.half != half and operand.kind is not Kind.IMM and not special:
        raise EncodeError(
            f"{instr.op.name}: {operand_text(operand)} is {'half' if operand.half else 'full'}, "
            f"type {TYPES[instr[name]]} is not; use the other register file"
        )


def _move_kind(instr: Instr) -> str:
    assert instr.dst is not None
    src, dst = instr["src_type"], instr["dst_type"]
    if src == dst == _S16 and instr.dst.value == ADDRESS:
        return "mova"
    if src == dst == _U16 and instr.dst.value == ADDRESS + 1:
        return "mova1"
    return f"{'mov' if src == dst else 'cov'}.{TYPES[src]}{TYPES[dst]}"


_TYPE = "|".join(sorted(TYPES.values(), key=len, reverse=True))
_CODES = {name: code for code, name in TYPES.items()}


def _read_kind(draft: Draft, text: str) -> None:
    found = re.fullmatch(rf"(mov|cov)\.({_TYPE})({_TYPE})", text)
    pair = (found[2], found[3]) if found else ("s16", "s16") if text == "mova" else ("u16", "u16")
    if found and (found[1] == "mov") != (found[2] == found[3]):
        raise EncodeError(
            f"{text} has types that are {'not ' if found[1] == 'mov' else ''}equal; use mov or cov"
        )
    draft.attrs.update(src_type=_CODES[pair[0]], dst_type=_CODES[pair[1]])


def _show_dst(instr: Instr) -> str:
    assert instr.dst is not None
    if _move_kind(instr) in ("mova", "mova1"):
        return f"a{instr.dst.value - ADDRESS}.x"
    half = half_type(instr["dst_type"])
    if instr.dst.kind is Kind.REL_GPR:
        offset = f" + {instr.dst.value}" if instr.dst.value else ""
        return f"{'h' if half else ''}r<a0.x{offset}>"
    return register_text(instr.dst.value, half)


def _read_dst(draft: Draft, text: str) -> None:
    dst = parse_operand(text)
    special = dst.kind is Kind.GPR and dst.value >= ADDRESS
    half = half_type(draft.attrs["dst_type"]) and not (dst.kind is Kind.GPR and dst.reg.predicate)
    draft.dst = replace(dst, half=half) if special else dst


def _show_src(instr: Instr) -> str:
    source = instr.srcs[0]
    if source.kind is not Kind.IMM:
        shown = operand_text(source)
        # mova states (r) itself and its source states it again (Mesa, #instruction-cat1-mov)
        return ("(r)" if source.repeat else "") + shown if _move_kind(instr).startswith("mova") else shown
    shown = _immediate_text(source.value, instr["src_type"])
    return ("(r)" if source.repeat else "") + shown if _move_kind(instr).startswith("mova") else shown


def _immediate_text(bits: int, ty: int) -> str:
    if ty == _F16:
        return f"h({_float_text(struct.unpack('<e', struct.pack('<H', bits & 0xFFFF))[0], bits >> 15 & 1)})"
    if ty == _F32:
        return f"({_float_text(struct.unpack('<f', struct.pack('<I', bits))[0], bits >> 31)})"
    if ty == _U32 and bits > 0x1000:
        return f"0x{bits:x}"
    width = {_S16: 16, _S32: 32}.get(ty)
    if width is None:
        return str(bits)
    value = bits & (1 << width) - 1
    return str(value - (1 << width) if value >> width - 1 else value)


def _float_text(value: float, sign: int) -> str:
    return ("-nan" if sign else "nan") if value != value else f"{value:f}"


def _read_src(draft: Draft, text: str) -> None:
    rest, repeat = text, False
    while rest.startswith("(r)"):
        rest, repeat = rest[3:], True
    ty = draft.attrs["src_type"]
    half = half_type(ty)
    found = re.fullmatch(r"h?\(([^()]*)\)", rest)
    if ty in (_F16, _F32) and found:
        try:
            code = struct.pack("<e", float(found[1])) if half else struct.pack("<f", float(found[1]))
        except (ValueError, OverflowError) as error:
            raise EncodeError(f"{text!r} is no {TYPES[ty]} number; write (1.5) or h(1.5)") from error
        draft.srcs[0] = Operand(Kind.IMM, int.from_bytes(code, "little"), half, repeat=repeat)
        return
    operand = parse_operand(rest)
    special = operand.kind is Kind.GPR and operand.value >= ADDRESS
    if operand.kind is Kind.IMM:
        operand = replace(operand, value=_integer_bits(operand.value, ty, text), half=half)
    draft.srcs[0] = replace(operand, repeat=repeat or operand.repeat, half=half if special else operand.half)


def _integer_bits(value: int, ty: int, text: str) -> int:
    bits = 16 if half_type(ty) else 32
    if not -(1 << bits - 1) <= value < 1 << bits:
        raise EncodeError(f"immediate {text} does not fit {TYPES[ty]}; it holds {bits} bits")
    return value & (1 << bits) - 1


_MOV_TOKENS = {
    "kind": Token(rf"mova1?|(?:mov|cov)\.(?:{_TYPE})(?:{_TYPE})", _move_kind, _read_kind),
    "round": choice("round", _ROUND),
    "dst": Token(r"[^,]+", _show_dst, _read_dst),
    "src": Token(r"[^,]+", _show_src, _read_src),
}

_MOV = Form(
    Layout(
        (
            *_COMMON,
            *_TYPES,
            Field("src", 0, 31),
            Field("kind", 53, 54),
            Field("rpt", 40, 41),
            Field("r", 43, 43),
            Field("dst_rel", 49, 49),
        ),
        (_CAT, Fixed(42, 42), Fixed(57, 58)),
    ),
    _lift_mov,
    _lower_mov,
    ("sy", "ss", "jp", "rpt", "ul"),
    "{kind}",
    ("{round}{dst}", "{src}"),
    _MOV_TOKENS,
)

# ---- parallel moves: all sources are read before any destination is written


def _parallel(name: str, sub: int, dsts: tuple[str, ...], srcs: int) -> Op:
    """An op of ``1 + len(dsts)`` destinations and ``srcs`` sources, in the bytes of the low word."""
    extra = (*dsts, *(f"src{index}" for index in range(1, srcs)))
    if name == "swz":
        extra = ("src1", "dst1")
    fields = (Field("src0", 0, 7), *(Field(part, 8 * n, 8 * n + 7) for n, part in enumerate(extra, 1)))
    rest = (Fixed(24, 31),) if name == "swz" else ()
    layout = Layout(
        (*_COMMON, *_TYPES, *fields),
        (
            _CAT,
            Fixed(42, 42),
            Fixed(43, 43),
            Fixed(49, 49),
            Fixed(53, 54),
            Fixed(57, 58, 2),
            Fixed(40, 41, sub),
            *rest,
        ),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        half = half_type(f["src_type"])
        operands = tuple(gpr(f[f"src{index}"], half) for index in range(srcs))
        attrs = attributes({part: f[part] for part in ("src_type", "dst_type", "round", *dsts)})
        return Instr(op, gpr(f["dst"], half_type(f["dst_type"])), operands, attrs=attrs, **_flags(f))

    def lower(instr: Instr) -> dict[str, int]:
        values = _lower_common(instr)
        if values.pop("rpt") or len(instr.srcs) != srcs or instr.dst is None:
            raise EncodeError(f"{name} takes {srcs} sources and no (rptN); correct them")
        for operand, which in (*((source, "src_type") for source in instr.srcs), (instr.dst, "dst_type")):
            _check_width(instr, operand, which)
            if operand.kind is not Kind.GPR or operand.neg or operand.abs or operand.repeat:
                raise EncodeError(f"{name}: {operand_text(operand)} is no plain register; use one")
        return values | {f"src{index}": source.value for index, source in enumerate(instr.srcs)}

    types = {"src_type": choice("src_type", TYPES), "dst_type": choice("dst_type", TYPES)}
    tokens = {
        **types,
        "round": choice("round", _ROUND),
        "dst": destination(),
        **{part: further(part) for part in dsts},
        **{f"src{n}": plain(n) for n in range(srcs)},
    }
    slots = ("{round}{dst}", *(f"{{{part}}}" for part in dsts), *(f"{{src{n}}}" for n in range(srcs)))
    form = Form(layout, lift, lower, ("sy", "ss", "jp", "ul"), name + ".{src_type}{dst_type}", slots, tokens)
    return Op(name, 1, Latency.ALU, compute=_moved, reads="t", source="Mesa ir3-cat1.xml", layout=form)


def _moved(builder: Any, values: Any, instr: Instr) -> Any:
    return values[0]  # the conversion between types is evaluate()'s


# ---- movmsk


def _lift_movmsk(op: Op, f: dict[str, int], word: int) -> Instr:
    kind = Kind.REL_GPR if f["dst_rel"] else Kind.GPR
    return Instr(
        op, Operand(kind, f["dst"]), rpt=f["rpt"], attrs=attributes({"round": f["round"]}), **_flags(f)
    )


def _lower_movmsk(instr: Instr) -> dict[str, int]:
    fields = _lower_common(instr)
    if instr.srcs or instr.dst is None:
        raise EncodeError("movmsk takes no sources; drop them")
    return {**fields, "dst_rel": instr.dst.kind is Kind.REL_GPR}


def _show_movmsk_dst(instr: Instr) -> str:
    assert instr.dst is not None
    if instr.dst.kind is Kind.REL_GPR:
        return f"r<a0.x{f' + {instr.dst.value}' if instr.dst.value else ''}>"
    return register_text(instr.dst.value)


def _movmsk() -> Op:
    layout = Layout(
        (*_COMMON, Field("rpt", 40, 41), Field("dst_rel", 49, 49)),
        (
            _CAT,
            Fixed(0, 31),
            Fixed(42, 43),
            Fixed(46, 48, 3),
            Fixed(50, 52, 3),
            Fixed(53, 54),
            Fixed(57, 58, 3),
        ),
    )
    width = Token(
        "32|64|96|128",
        lambda i: str(32 * (i.rpt + 1)),
        lambda d, t: d.flags.__setitem__("rpt", int(t) // 32 - 1),
    )

    def read(draft: Draft, text: str) -> None:
        draft.dst = parse_operand(text)

    dst = Token(r"[^,]+", _show_movmsk_dst, read)
    form = Form(
        layout,
        _lift_movmsk,
        _lower_movmsk,
        ("sy", "ss", "jp", "ul"),
        "movmsk.w{width}",
        ("{dst}",),
        {"width": width, "dst": dst},
        {"round": 0},
    )
    return Op("movmsk", 1, Latency.ALU, effect=ActiveMask(), source="Mesa ir3-cat1.xml", layout=form)


OPS: tuple[Op, ...] = (
    Op("mov", 1, Latency.ALU, compute=_moved, reads="t", source="Mesa ir3-cat1.xml, create_cov", layout=_MOV),
    _parallel("swz", 0, ("dst1",), 2),
    _parallel("gat", 1, (), 4),
    _parallel("sct", 2, ("dst1", "dst2", "dst3"), 1),
    _movmsk(),
)
ALIASES = {"cov": "mov", "mova": "mov", "mova1": "mov"}
"""Mnemonic stems of text that are spellings of another entry."""
