"""Category 6: loads, stores, atomics and shuffles (Mesa, ``ir3-cat6.xml``)."""

from __future__ import annotations

from dataclasses import replace

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.fields import Field, Fixed, Layout, bad_bits
from pytest_qcom.isa.form import (
    TYPE,
    TYPES,
    Draft,
    Form,
    Token,
    attributes,
    choice,
    destination,
    either,
    flag,
    number,
    offset,
    plain,
    raw_register,
    slot,
)
from pytest_qcom.isa.instruction import (
    Atomic,
    Effect,
    FiberId,
    Instr,
    Kind,
    Latency,
    Load,
    Op,
    Operand,
    Shuffle,
    Space,
    Store,
    Sync,
    Unsupported,
)
from pytest_qcom.isa.operands import gpr, operand_text, parse_operand
from pytest_qcom.isa.registers import Ty

_SOURCE = "Mesa ir3-cat6.xml"
_FLAGS = (Field("jp", 59, 59), Field("sy", 60, 60))
_CAT = Fixed(61, 63, 6)
_TYPE_FIELD = Field("type", 49, 51)
_PRINTED = ("sy", "jp")
_LDC = 0b011110


def _ignored(lo: int, hi: int | None = None) -> Fixed:
    """Bits that Mesa does not look at."""
    return Fixed(lo, lo if hi is None else hi, care=False)


def key(word: int) -> tuple[int, ...]:
    """The encodings that a6xx added are known by bits 53 and 22 and a sub-opcode; the others by OPC."""
    opcode = word >> 54 & 31
    if word >> 53 & 1 and word >> 22 & 1:
        sub = word >> 14 & 63
        return (6, 1, sub, word >> 52 & 1 if sub == _LDC else 0)
    if opcode == 0:
        return (6, 0, opcode, word >> 51 & 2 | word >> 22 & 1)
    return (6, 0, opcode, word >> 52 & 1 if opcode == 3 or 16 <= opcode <= 26 else 0)


def _instr(op: Op, f: dict[str, int], dst: Operand | None, srcs: tuple[Operand, ...], **attrs: int) -> Instr:
    return Instr(op, dst, srcs, jp=bool(f["jp"]), sy=bool(f["sy"]), attrs=attributes(attrs))


def _half(ty: int) -> bool:
    return Ty(ty).half


def _lower_common(instr: Instr, sources: int, dst: bool) -> dict[str, int]:
    """What all of cat6 checks; attributes and flags as fields."""
    name = instr.op.name
    if instr.rpt or instr.nop or instr.ss or instr.sat or instr.ul or instr.ei:
        raise EncodeError(f"{name} takes none of (ss)(rptN)(nopN)(sat)(ul)(ei); put an (ss)nop before it")
    if len(instr.srcs) != sources or (instr.dst is not None) != dst:
        raise EncodeError(
            f"{name} with {len(instr.srcs)} sources and {'a' if instr.dst else 'no'} destination; "
            f"it takes {sources} and {'one' if dst else 'none'}"
        )
    fields = {**dict(instr.attrs), "jp": int(instr.jp), "sy": int(instr.sy)}
    if instr.dst is not None:
        fields["dst"] = _register(instr, instr.dst)
    return fields


def _register(instr: Instr, operand: Operand) -> int:
    if operand.kind is not Kind.GPR or operand.neg or operand.abs or operand.repeat:
        raise EncodeError(f"{instr.op.name}: {operand_text(operand)} is no plain register; move it to one")
    return operand.value


def _full(instr: Instr, operand: Operand) -> int:
    if operand.half:
        raise EncodeError(f"{instr.op.name}: {operand_text(operand)} is a half register; addresses are full")
    return _register(instr, operand)


def _data(instr: Instr, operand: Operand, shown: bool = True) -> int:
    """A data register, whose width the type decides; where Mesa prints no ``h`` the parser cannot know it."""
    if shown and operand.half != _half(instr["type"]):
        raise EncodeError(
            f"{instr.op.name}: {operand_text(operand)} does not hold type {TYPES[instr['type']]}; "
            "use the other register file"
        )
    return _register(instr, operand)


def _either(instr: Instr, operand: Operand) -> tuple[int, int]:
    """(bits, is a number) of an operand that may be a number of 8 bits or a full register."""
    if operand.kind is Kind.IMM:
        if not 0 <= operand.value < 256:
            raise EncodeError(f"{instr.op.name}: immediate is {operand.value}, the encoding holds 0 to 255")
        return operand.value, 1
    return _full(instr, operand), 0


def _lift_either(value: int, immediate: int) -> Operand:
    return Operand(Kind.IMM, value) if immediate else gpr(value)


# ---- tokens

_OFFSET = offset()
_BRACKET = {"g": r"g\[", "l": r"l\[", "p": r"p\["}


def _address(index: int, space: str) -> Token:
    """``g[r0.x+4]``; the brackets may be left out in assembly, as in ``r0.x+4``."""
    inner = plain(index, half=space != "g")  # Mesa knows a0 and p0 here, and only calls them r61, r62 for g

    def show(instr: Instr) -> str:
        return f"{space}[{inner.show(instr)}{_OFFSET.show(instr)}]"

    def read(draft: Draft, text: str) -> None:
        body = text.removeprefix(f"{space}[").removesuffix("]")
        register, sign, digits = _split_offset(body)
        inner.read(draft, register)
        draft.attrs["offset"] = int(sign + digits or 0)

    return Token(rf"(?:{space}\[)?[a-z]+\d+\.[xyzw](?:[+-]\d+)?\]?", show, read)


def _split_offset(body: str) -> tuple[str, str, str]:
    for sign in "+-":
        register, found, digits = body.partition(sign)
        if found:
            return register, sign, digits
    return body, "", ""


_COUNT = number("count")
_MODE = choice("mode", {0: "imm", 1: "uniform", 2: "nonuniform"})
_TYPED = choice("typed", {0: "untyped", 1: "typed"})
_ATOMIC_TYPES = {**TYPES, 6: "u64"}


def _base() -> Token:
    def read(draft: Draft, text: str) -> None:
        draft.attrs.update(bindless=int(bool(text)), base=int(text[5:] or 0))

    return Token(r"(?:\.base\d)?", lambda i: f".base{i['base']}" if i["bindless"] else "", read)


# ---- ldg, stg and their register-offset forms


def _ldg() -> Op:
    fields = (
        *_FLAGS,
        _TYPE_FIELD,
        Field("offset", 1, 13, True),
        Field("address", 14, 21),
        Field("count", 24, 26),
        Field("dst", 32, 39),
    )
    fixed = (
        _CAT,
        Fixed(0, 0, 1),
        Fixed(22, 22),
        Fixed(23, 23, 1),
        _ignored(27, 29),
        Fixed(30, 31),
        _ignored(40),
        _ignored(41, 48),
        Fixed(52, 53),
        Fixed(54, 58),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        attrs = {name: f[name] for name in ("type", "offset", "count")}
        return _instr(op, f, gpr(f["dst"], _half(f["type"])), (gpr(f["address"]),), **attrs)

    def lower(instr: Instr) -> dict[str, int]:
        fields = _lower_common(instr, 1, True)
        _data(instr, instr.dst or gpr(0))
        return fields | {"address": _full(instr, instr.srcs[0])}

    tokens = {"type": TYPE, "dst": destination(), "address": _address(0, "g"), "count": _COUNT}
    form = Form(
        Layout(fields, fixed), lift, lower, _PRINTED, "ldg.{type}", ("{dst}", "{address}", "{count}"), tokens
    )
    return _memory("ldg", Latency.GLOBAL, Sync.SY, Load(Space.GLOBAL), form)


def _stg() -> Op:
    fields = (
        *_FLAGS,
        _TYPE_FIELD,
        Field("data", 1, 8),
        Field("high", 9, 13, True),
        Field("count", 24, 26),
        Field("low", 32, 39),
        Field("address", 41, 48),
    )
    fixed = (
        _CAT,
        _ignored(0),
        _ignored(14, 21),
        _ignored(22),
        Fixed(23, 23, 1),
        _ignored(27, 29),
        Fixed(30, 31),
        Fixed(40, 40, 1),
        Fixed(52, 53),
        Fixed(54, 58, 3),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        data = gpr(f["data"], _half(f["type"]))
        return _instr(
            op, f, None, (gpr(f["address"]), data), type=f["type"], count=f["count"], offset=_join(f)
        )

    def lower(instr: Instr) -> dict[str, int]:
        fields = _lower_common(instr, 2, False)
        address, data = instr.srcs
        return _halve(fields) | {"address": _full(instr, address), "data": _data(instr, data)}

    tokens = {"type": TYPE, "address": _address(0, "g"), "data": plain(1), "count": _COUNT}
    form = Form(
        Layout(fields, fixed), lift, lower, _PRINTED, "stg.{type}", ("{address}", "{data}", "{count}"), tokens
    )
    return _memory("stg", Latency.NONE, Sync.NONE, Store(Space.GLOBAL), form)


def _join(f: dict[str, int]) -> int:
    """The store offset of 13 bits, whose halves stand apart."""
    return (f["high"] << 8) | f["low"]


def _halve(fields: dict[str, int]) -> dict[str, int]:
    value = fields.pop("offset")
    if not -4096 <= value <= 4095:
        raise EncodeError(f"store offset is {value}, its 13 bits hold -4096 to 4095; choose a value in range")
    return fields | {"high": value >> 8, "low": value & 0xFF}


def _memory(name: str, latency: Latency, sync: Sync, effect: Effect, form: Form) -> Op:
    return Op(name, 6, latency, sync, effect=effect, source=_SOURCE, layout=form)


def _scaled(index: int) -> Token:
    """``g[r0.x+((r1.x<<2)+1)<<2]`` in the four shapes in which Mesa prints it."""

    def show(instr: Instr) -> str:
        base, register = raw_register(instr.srcs[0].value), _gpr_text(instr.srcs[index].value)
        type_shift = _type_shift(instr["type"])
        added, shift = (f"+{instr['offset']}" if instr["offset"] else ""), instr["shift"]
        if type_shift == 0:
            return f"g[{base}+{register}{added}]"
        if not added:
            return f"g[{base}+({register}<<{shift + type_shift})]"
        if shift == 0:
            return f"g[{base}+(({register}{added})<<{type_shift})]"
        return f"g[{base}+((({register}<<{shift}){added})<<{type_shift})]"

    def read(draft: Draft, text: str) -> None:
        body = text.removeprefix("g[").removesuffix("]").replace("(", "").replace(")", "")
        base, register, *rest = body.replace("<<", "+<").split("+")
        shifts = [int(part[1:]) for part in rest if part.startswith("<")]
        added = next((int(part) for part in rest if not part.startswith("<")), 0)
        type_shift = _type_shift(draft.attrs["type"])
        draft.srcs[0], draft.srcs[index] = parse_operand(base), parse_operand(register)
        shift = shifts[0] - (0 if len(shifts) == 2 else type_shift) if shifts else 0
        draft.attrs.update(offset=added, shift=shift)

    return Token(r"g\[.*\]", show, read)


def _gpr_text(number_: int) -> str:
    return operand_text(gpr(number_))


def _type_shift(ty: int) -> int:
    return 0 if ty >= Ty.U8.value else 1 if _half(ty) else 2


def _ldg_a() -> Op:
    fields = (
        *_FLAGS,
        _TYPE_FIELD,
        Field("index", 1, 8),
        Field("offset", 9, 10),
        Field("shift", 12, 13),
        Field("address", 14, 21),
        Field("count", 24, 26),
        Field("dst", 32, 39),
    )
    fixed = (
        _CAT,
        Fixed(0, 0, 1),
        Fixed(11, 11, care=False),
        Fixed(22, 23, 3),
        _ignored(27, 29),
        Fixed(30, 31),
        _ignored(40, 48),
        Fixed(52, 53),
        Fixed(54, 58),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        attrs = {name: f[name] for name in ("type", "offset", "shift", "count")}
        return _instr(op, f, gpr(f["dst"], _half(f["type"])), (gpr(f["address"]), gpr(f["index"])), **attrs)

    def lower(instr: Instr) -> dict[str, int]:
        fields = _lower_common(instr, 2, True)
        _data(instr, instr.dst or gpr(0))
        return fields | {"address": _full(instr, instr.srcs[0]), "index": _full(instr, instr.srcs[1])}

    tokens = {"type": TYPE, "dst": destination(), "address": _scaled(1), "count": _COUNT}
    form = Form(
        Layout(fields, fixed),
        lift,
        lower,
        _PRINTED,
        "ldg.a.{type}",
        ("{dst}", "{address}", "{count}"),
        tokens,
    )
    return _memory("ldg.a", Latency.GLOBAL, Sync.SY, Load(Space.GLOBAL), form)


def _stg_a() -> Op:
    fields = (
        *_FLAGS,
        _TYPE_FIELD,
        Field("data", 1, 8),
        Field("offset", 9, 10),
        Field("shift", 12, 13),
        Field("count", 24, 26),
        Field("index", 32, 39),
        Field("address", 41, 48),
    )
    fixed = (
        _CAT,
        _ignored(0),
        Fixed(11, 11, care=False),
        _ignored(14, 21),
        _ignored(22),
        Fixed(23, 23, 1),
        _ignored(27, 29),
        Fixed(30, 31),
        Fixed(40, 40, 1),
        Fixed(52, 52, 1),
        Fixed(53, 53),
        Fixed(54, 58, 3),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        attrs = {name: f[name] for name in ("type", "offset", "shift", "count")}
        srcs = (gpr(f["address"]), gpr(f["index"]), gpr(f["data"], _half(f["type"])))
        return _instr(op, f, None, srcs, **attrs)

    def lower(instr: Instr) -> dict[str, int]:
        fields = _lower_common(instr, 3, False)
        address, index, data = instr.srcs
        registers = {
            "address": _full(instr, address),
            "index": _full(instr, index),
            "data": _data(instr, data),
        }
        return fields | registers

    tokens = {"type": TYPE, "address": _scaled(1), "data": plain(2), "count": _COUNT}
    form = Form(
        Layout(fields, fixed),
        lift,
        lower,
        _PRINTED,
        "stg.a.{type}",
        ("{address}", "{data}", "{count}"),
        tokens,
    )
    return _memory("stg.a", Latency.NONE, Sync.NONE, Store(Space.GLOBAL), form)


# ---- local and private memory


def _load(name: str, opcode: int, space: str, effect: Effect, latency: Latency, sync: Sync) -> Op:
    shown = space == "p"  # Mesa prints the half registers of local loads without h
    fields = (
        *_FLAGS,
        _TYPE_FIELD,
        Field("offset", 1, 13, True),
        Field("address", 14, 21),
        Field("count", 24, 31),
        Field("dst", 32, 39),
    )
    fixed = (
        _CAT,
        Fixed(0, 0, 1),
        _ignored(22),
        Fixed(23, 23, 1),
        _ignored(40, 48),
        _ignored(52, 53),
        Fixed(54, 58, opcode),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        attrs = {part: f[part] for part in ("type", "offset", "count")}
        return _instr(op, f, gpr(f["dst"], _half(f["type"])), (gpr(f["address"]),), **attrs)

    def lower(instr: Instr) -> dict[str, int]:
        fields = _lower_common(instr, 1, True)
        _data(instr, instr.dst or gpr(0), shown)
        return fields | {"address": _full(instr, instr.srcs[0])}

    tokens = {"type": TYPE, "dst": destination(half=shown), "address": _address(0, space), "count": _COUNT}
    slots = ("{dst}", "{address}", "{count}")
    form = Form(Layout(fields, fixed), lift, lower, _PRINTED, name + ".{type}", slots, tokens)
    return _memory(name, latency, sync, effect, form)


def _store(name: str, opcode: int, space: str, effect: Effect, first_ignored: bool = True) -> Op:
    fields = (
        *_FLAGS,
        _TYPE_FIELD,
        Field("data", 1, 8),
        Field("high", 9, 13, True),
        Field("count", 24, 31),
        Field("low", 32, 39),
        Field("address", 41, 48),
    )
    fixed = (
        _CAT,
        Fixed(0, 0, care=not first_ignored),
        _ignored(14, 22),
        Fixed(23, 23, 1),
        Fixed(40, 40, 1),
        _ignored(52, 53),
        Fixed(54, 58, opcode),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        data = gpr(f["data"], _half(f["type"]))
        return _instr(
            op, f, None, (gpr(f["address"]), data), type=f["type"], count=f["count"], offset=_join(f)
        )

    def lower(instr: Instr) -> dict[str, int]:
        fields = _halve(_lower_common(instr, 2, False))
        return fields | {
            "address": _full(instr, instr.srcs[0]),
            "data": _data(instr, instr.srcs[1], shown=False),
        }

    tokens = {"type": TYPE, "address": _address(0, space), "data": _gpr_shown(1), "count": _COUNT}
    slots = ("{address}", "{data}", "{count}")
    form = Form(Layout(fields, fixed), lift, lower, _PRINTED, name + ".{type}", slots, tokens)
    return _memory(name, Latency.NONE, Sync.NONE, effect, form)


def _gpr_shown(index: int) -> Token:
    """A source register that Mesa prints as full whatever its width."""
    token = plain(index)
    return replace(token, show=lambda i: _gpr_text(i.srcs[index].value))


def _ldlv() -> Op:
    fields = (*_FLAGS, _TYPE_FIELD, Field("offset", 1, 13), Field("count", 24, 31), Field("dst", 32, 39))
    fixed = (
        _CAT,
        Fixed(0, 0),
        Fixed(14, 21),
        Fixed(22, 23, 3),
        _ignored(40, 48),
        _ignored(52, 53),
        Fixed(54, 58, 31),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        attrs = {part: f[part] for part in ("type", "offset", "count")}
        return _instr(op, f, gpr(f["dst"], _half(f["type"])), (), **attrs)

    tokens = {"type": TYPE, "dst": destination(half=False), "offset": number("offset"), "count": _COUNT}
    slots = ("{dst}", "l[{offset}]", "{count}")
    form = Form(
        Layout(fields, fixed),
        lift,
        lambda i: _lower_common(i, 0, True),
        _PRINTED,
        "ldlv.{type}",
        slots,
        tokens,
    )
    return _memory("ldlv", Latency.LOCAL, Sync.SS, Unsupported("varyings belong to graphics"), form)


# ---- the constant file


def _const_dst() -> Token:
    def show(instr: Instr) -> str:
        if not instr["a1"]:
            return f"c[{instr['offset']}]"
        return f"c[a1.x{'+' + str(instr['offset']) if instr['offset'] else ''}]"

    def read(draft: Draft, text: str) -> None:
        body = text[2:-1]
        draft.attrs["a1"] = int(body.startswith("a1.x"))
        draft.attrs["offset"] = int(body.removeprefix("a1.x").removeprefix("+") or 0)

    return Token(r"c\[(?:a1\.x(?:\+\d+)?|\d+)\]", show, read)


_PREAMBLE = Unsupported("writes the constant file, which only preambles do; tinygrad turns them off")


def _stc() -> Op:
    fields = (
        *_FLAGS,
        _TYPE_FIELD,
        Field("data", 1, 8),
        Field("count", 24, 26),
        Field("offset", 32, 39),
        Field("a1", 40, 40),
    )
    fixed = (
        _CAT,
        _ignored(0),
        _ignored(9, 13),
        Fixed(14, 22),
        Fixed(23, 23, 1),
        _ignored(27, 31),
        _ignored(41, 48),
        _ignored(52, 53),
        Fixed(54, 58, 28),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        attrs = {part: f[part] for part in ("type", "count", "offset", "a1")}
        return _instr(op, f, None, (gpr(f["data"], _half(f["type"])),), **attrs)

    def lower(instr: Instr) -> dict[str, int]:
        return _lower_common(instr, 1, False) | {"data": _data(instr, instr.srcs[0], shown=False)}

    tokens = {"type": TYPE, "const": _const_dst(), "data": _gpr_shown(0), "count": _COUNT}
    slots = ("{const}", "{data}", "{count}")
    form = Form(Layout(fields, fixed), lift, lower, _PRINTED, "stc.{type}", slots, tokens)
    return _memory("stc", Latency.NONE, Sync.SS, _PREAMBLE, form)


def _ldg_k() -> Op:
    fields = (
        *_FLAGS,
        _TYPE_FIELD,
        Field("bytes", 1, 13, True),
        Field("address", 14, 21),
        Field("count", 23, 26),
        Field("offset", 32, 39),
        Field("a1", 40, 40),
    )
    fixed = (
        _CAT,
        Fixed(0, 0, 1),
        Fixed(22, 22),
        _ignored(27, 29),
        Fixed(30, 31),
        _ignored(41, 48),
        Fixed(52, 52, 1),
        Fixed(53, 53),
        Fixed(54, 58),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        attrs = {part: f[part] for part in ("type", "count", "offset", "a1", "bytes")}
        return _instr(op, f, None, (gpr(f["address"]),), **attrs)

    def lower(instr: Instr) -> dict[str, int]:
        return _lower_common(instr, 1, False) | {"address": _full(instr, instr.srcs[0])}

    tokens = {
        "type": TYPE,
        "const": _const_dst(),
        "address": plain(0, half=False),
        "bytes": offset("bytes"),
        "count": _COUNT,
    }
    tokens["address"] = replace(tokens["address"], pattern=r"r\d+\.[xyzw]")
    slots = ("{const}", "g[{address}{bytes}]", "{count}")
    form = Form(Layout(fields, fixed), lift, lower, _PRINTED, "ldg.k.{type}", slots, tokens)
    return _memory("ldg.k", Latency.GLOBAL, Sync.SY, _PREAMBLE, form)


# ---- atomics on local memory and on 64-bit addresses

_ATOMICS = ("add", "sub", "xchg", "inc", "dec", "cmpxchg", "min", "max", "and", "or", "xor")


def _atomic(name: str, opcode: int, space: Space) -> Op:
    local = space is Space.LOCAL
    fields = (
        *_FLAGS,
        _TYPE_FIELD,
        Field("dims", 9, 10),
        Field("typed", 11, 11),
        Field("count", 12, 13),
        Field("address", 14, 21),
        Field("address_im", 22, 22),
        Field("data_im", 23, 23),
        Field("data", 24, 31),
        Field("dst", 32, 39),
    )
    fixed = (
        _CAT,
        Fixed(0, 0, 1),
        Fixed(1, 8),
        _ignored(40),
        Fixed(41, 48),
        Fixed(52, 52, 0 if local else 1),
        Fixed(53, 53),
        Fixed(54, 58, opcode),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        srcs = (_lift_either(f["address"], f["address_im"]), _lift_either(f["data"], f["data_im"]))
        attrs = {"type": f["type"], "typed": f["typed"], "dims": f["dims"] + 1, "count": f["count"] + 1}
        return _instr(op, f, gpr(f["dst"]), srcs, **attrs)

    def lower(instr: Instr) -> dict[str, int]:
        fields = _from_one(_lower_common(instr, 2, True))
        for part, operand in zip(("address", "data"), instr.srcs, strict=True):
            fields[part], fields[part + "_im"] = _either(instr, operand)
        return fields

    tokens = {
        "type": TYPE if local else choice("type", _ATOMIC_TYPES),
        "typed": _TYPED,
        "dims": number("dims"),
        "count": _COUNT,
        "dst": destination(),
        "address": either(0),
        "data": either(1),
    }
    suffix = "l" if local else "g"
    slots = ("{dst}", "l[{address}]" if local else "{address}", "{data}")
    stem = f"atomic.{name}" if local else f"atomic.g.{name}"
    mnemonic = stem + ".{typed}.{dims}d.{type}.{count}." + suffix
    form = Form(Layout(fields, fixed), lift, lower, _PRINTED, mnemonic, slots, tokens)
    latency, sync = (Latency.LOCAL, Sync.SS) if local else (Latency.GLOBAL, Sync.SY)
    return _memory(stem, latency, sync, Atomic(space, name), form)


def _from_one(fields: dict[str, int]) -> dict[str, int]:
    """``dims`` and ``count`` are stored less one."""
    for part in ("dims", "count"):
        if part in fields:
            fields[part] -= 1
    return fields


# ---- the encodings that a6xx added: UBOs, images, information about the wave

_NEW = (
    *_FLAGS,
    Field("base", 1, 3),
    Field("mode", 6, 7, legal=(0, 1, 2)),
    Field("bindless", 8, 8),
    Field("count", 12, 13),
)
_NEW_FIXED = (_CAT, Fixed(40, 40))
_PLAIN_NEW = (Fixed(4, 5), Fixed(54, 58))


def _new_attrs(f: dict[str, int]) -> dict[str, int]:
    attrs = {part: f[part] for part in ("mode", "bindless", "base")}
    attrs["count"] = f["count"] + 1
    attrs |= {part: f[part] for part in ("type", "typed", "slot") if part in f}
    return attrs | ({"dims": f["dims"] + 1} if "dims" in f else {})


_NEW_TOKENS = {
    "type": TYPE,
    "typed": _TYPED,
    "dims": number("dims"),
    "count": _COUNT,
    "mode": _MODE,
    "base": _base(),
    "dst": destination(),
    "slot": slot(),
}


def _ldc() -> Op:
    fields = (
        *_NEW,
        Field("offset", 9, 10),
        Field("uniform", 11, 11),
        Field("address_im", 23, 23),
        Field("address", 24, 31),
        Field("dst", 32, 39),
        Field("slot", 41, 48),
    )
    fixed = (
        *_NEW_FIXED,
        *_PLAIN_NEW,
        _ignored(0),
        Fixed(14, 19, _LDC),
        _ignored(20, 21),
        Fixed(22, 22, 1),
        Fixed(49, 50, 3),
        _ignored(51),
        Fixed(52, 53, 2),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        attrs = _new_attrs(f) | {"offset": f["offset"], "uniform": f["uniform"], "type": Ty.U32.value}
        return _instr(op, f, gpr(f["dst"]), (_lift_either(f["address"], f["address_im"]),), **attrs)

    def lower(instr: Instr) -> dict[str, int]:
        fields = _from_one(_lower_common(instr, 1, True))
        fields.pop("type", None)
        fields["address"], fields["address_im"] = _either(instr, instr.srcs[0])
        return fields

    tokens = {
        **_NEW_TOKENS,
        "uniform": flag("uniform", ".u"),
        "offset": number("offset"),
        "address": either(0),
    }
    mnemonic = "ldc{uniform}.offset{offset}.{count}.{mode}{base}"
    form = Form(
        Layout(fields, fixed), lift, lower, _PRINTED, mnemonic, ("{dst}", "{address}", "{slot}"), tokens
    )
    return _memory("ldc", Latency.GLOBAL, Sync.SY, Load(Space.UBO), form)


def _ldc_k() -> Op:
    fields = (
        *_NEW,
        Field("address_im", 23, 23),
        Field("address", 24, 31),
        Field("vectors", 32, 39),
        Field("slot", 41, 48),
    )
    fixed = (
        *_NEW_FIXED,
        *_PLAIN_NEW,
        _ignored(0),
        _ignored(9, 11),
        Fixed(14, 19, _LDC),
        _ignored(20, 21),
        Fixed(22, 22, 1),
        Fixed(49, 50, 3),
        _ignored(51),
        Fixed(52, 53, 3),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        attrs = _new_attrs(f) | {"vectors": f["vectors"] + 1}
        return _instr(op, f, None, (_lift_either(f["address"], f["address_im"]),), **attrs)

    def lower(instr: Instr) -> dict[str, int]:
        fields = _from_one(_lower_common(instr, 1, False))
        fields["vectors"] -= 1
        fields["address"], fields["address_im"] = _either(instr, instr.srcs[0])
        return fields

    tokens = {**_NEW_TOKENS, "vectors": number("vectors"), "address": either(0)}
    slots = ("c[a1.x]", "{address}", "{slot}")
    mnemonic = "ldc.{vectors}.k.{mode}{base}"
    form = Form(Layout(fields, fixed), lift, lower, _PRINTED, mnemonic, slots, tokens, {"count": 1})
    return _memory("ldc.k", Latency.GLOBAL, Sync.SY, _PREAMBLE, form)


def _wave_info(name: str, sub: int, effect: Effect, bit23: bool) -> Op:
    fields = (*_NEW, _TYPE_FIELD, Field("dst", 32, 39))
    care = Fixed(23, 23, 1) if bit23 else _ignored(23)
    fixed = (
        *_NEW_FIXED,
        *_PLAIN_NEW,
        Fixed(0, 0),
        _ignored(9, 11),
        Fixed(14, 19, sub),
        _ignored(20, 21),
        Fixed(22, 22, 1),
        care,
        _ignored(24, 31),
        _ignored(41, 48),
        _ignored(52),
        Fixed(53, 53, 1),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        return _instr(op, f, gpr(f["dst"]), (), **_new_attrs(f))

    def lower(instr: Instr) -> dict[str, int]:
        return _from_one(_lower_common(instr, 0, True))

    # the one the encoder emits has no bits set besides these (Mesa, ir3.c)
    defaults = {"mode": 0, "bindless": 0, "base": 0, "count": 1}
    form = Form(
        Layout(fields, fixed), lift, lower, _PRINTED, name + ".{type}", ("{dst}",), _NEW_TOKENS, defaults
    )
    return _memory(name, Latency.ALU, Sync.SY, effect, form)


_IMAGE_FIELDS = (Field("dims", 9, 10), Field("typed", 11, 11), Field("slot", 41, 48))


def _image_info(name: str, sub: int) -> Op:
    fields = (*_NEW, *_IMAGE_FIELDS, _TYPE_FIELD, Field("dst", 32, 39))
    fixed = (
        *_NEW_FIXED,
        *_PLAIN_NEW,
        Fixed(0, 0),
        Fixed(14, 19, sub),
        Fixed(20, 23, 6),
        _ignored(24, 31),
        _ignored(52),
        Fixed(53, 53, 1),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        return _instr(op, f, gpr(f["dst"]), (), **_new_attrs(f))

    def lower(instr: Instr) -> dict[str, int]:
        return _from_one(_lower_common(instr, 0, True))

    mnemonic = name + ".{typed}.{dims}d.{type}.{count}.{mode}{base}"
    form = Form(Layout(fields, fixed), lift, lower, _PRINTED, mnemonic, ("{dst}", "{slot}"), _NEW_TOKENS)
    effect = Unsupported("image queries: tinygrad's compiler never emits them")
    return _memory(name, Latency.GLOBAL, Sync.SS, effect, form)


def _image(name: str, sub: int, load: bool) -> Op:
    """ldib.b and stib.b: bit 23 says that the offset of 7 bits counts, which else must be 0."""
    fields = (
        *_NEW,
        *_IMAGE_FIELDS,
        _TYPE_FIELD,
        Field("high", 4, 5),
        Field("coordinate", 24, 31),
        Field("data", 32, 39),
        Field("has_offset", 23, 23),
        Field("low", 54, 58),
    )
    fixed = (*_NEW_FIXED, Fixed(0, 0, care=not load), Fixed(14, 19, sub), Fixed(20, 22, 6), Fixed(52, 53, 2))

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        data, coordinate = gpr(f["data"], _half(f["type"])), gpr(f["coordinate"])
        value = f["high"] << 5 | f["low"]
        if value and not f["has_offset"]:
            raise bad_bits(word, 54, 58, op.name, "an offset although bit 23 says that there is none")
        attrs = _new_attrs(f) | {"offset": value, "has_offset": f["has_offset"]}
        return _instr(op, f, data if load else None, (coordinate,) if load else (coordinate, data), **attrs)

    def lower(instr: Instr) -> dict[str, int]:
        fields = _from_one(_lower_common(instr, 1 if load else 2, load))
        fields.pop("dst", None)
        value = fields.pop("offset")
        if not 0 <= value < 128:
            raise EncodeError(f"{name} offset is {value}, its 7 bits hold 0 to 127; choose a value in range")
        fields |= {
            "high": value >> 5,
            "low": value & 31,
            "has_offset": int(bool(value) or fields["has_offset"]),
        }
        data = instr.dst if load else instr.srcs[1]
        return fields | {"coordinate": _full(instr, instr.srcs[0]), "data": _data(instr, data or gpr(0))}

    added = Token(
        r"(?:\+\d+)?",
        lambda i: f"+{i['offset']}" if i["offset"] else "",
        lambda d, t: d.attrs.update(offset=int(t or 0), has_offset=int(bool(t))),
    )
    coordinate = Token(r"[a-z]+\d+\.[xyzw]", plain(0).show, plain(0).read)
    tokens = {
        **_NEW_TOKENS,
        "data": destination() if load else plain(1),
        "coordinate": coordinate,
        "added": added,
    }
    mnemonic = name + ".{typed}.{dims}d.{type}.{count}.{mode}{base}"
    slots = ("{data}", "{coordinate}{added}", "{slot}")
    form = Form(Layout(fields, fixed), lift, lower, _PRINTED, mnemonic, slots, tokens)
    if load:
        return _memory(name, Latency.GLOBAL, Sync.SY, Load(Space.IMAGE), form)
    return _memory(name, Latency.NONE, Sync.NONE, Store(Space.IMAGE), form)


def _image_atomic(name: str, sub: int) -> Op:
    fields = (*_NEW, *_IMAGE_FIELDS, _TYPE_FIELD, Field("coordinate", 24, 31), Field("data", 32, 39))
    fixed = (
        *_NEW_FIXED,
        *_PLAIN_NEW,
        _ignored(0),
        Fixed(14, 19, sub),
        Fixed(20, 22, 6),
        Fixed(23, 23),
        Fixed(52, 53, 3),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        return _instr(op, f, gpr(f["data"]), (gpr(f["coordinate"]), gpr(f["data"])), **_new_attrs(f))

    def lower(instr: Instr) -> dict[str, int]:
        fields = _from_one(_lower_common(instr, 2, True))
        coordinate, data = instr.srcs
        if instr.dst is None or data.value != fields.pop("dst"):
            raise EncodeError(
                f"atomic.b.{name} returns into its data register; destination and data must be one"
            )
        return fields | {"coordinate": _full(instr, coordinate), "data": _full(instr, data)}

    def read(draft: Draft, text: str) -> None:
        draft.dst = draft.srcs[1] = parse_operand(text)

    data = Token(r"[a-z]+\d+\.[xyzw]", lambda i: _gpr_text(i.srcs[1].value), read)
    tokens = {**_NEW_TOKENS, "type": choice("type", _ATOMIC_TYPES), "data": data, "coordinate": plain(0)}
    mnemonic = f"atomic.b.{name}" + ".{typed}.{dims}d.{type}.{count}.{mode}{base}"
    form = Form(
        Layout(fields, fixed), lift, lower, _PRINTED, mnemonic, ("{data}", "{coordinate}", "{slot}"), tokens
    )
    return _memory(f"atomic.b.{name}", Latency.GLOBAL, Sync.SY, Atomic(Space.IMAGE, name), form)


# ---- resinfo of earlier chips, shuffles


def _resinfo() -> Op:
    fields = (
        *_FLAGS,
        _TYPE_FIELD,
        Field("dims", 9, 10),
        Field("dst", 32, 39),
        Field("slot", 41, 48),
        Field("immediate", 53, 53),
    )
    fixed = (
        _CAT,
        _ignored(0),
        _ignored(1, 8),
        _ignored(11, 13),
        Fixed(14, 23),
        _ignored(24, 31),
        Fixed(40, 40),
        _ignored(52),
        Fixed(54, 58, 15),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        attrs = {"type": f["type"], "dims": f["dims"] + 1, "slot": f["slot"], "mode": 1 - f["immediate"]}
        return _instr(op, f, gpr(f["dst"]), (), **attrs)

    def lower(instr: Instr) -> dict[str, int]:
        fields = _from_one(_lower_common(instr, 0, True))
        return fields | {"immediate": int(not fields.pop("mode"))}

    def read(draft: Draft, text: str) -> None:
        _NEW_TOKENS["slot"].read(draft, text)
        draft.attrs["mode"] = int(not text.isdigit())

    tokens = {**_NEW_TOKENS, "slot": replace(_NEW_TOKENS["slot"], read=read)}
    form = Form(
        Layout(fields, fixed), lift, lower, _PRINTED, "resinfo.{type}.{dims}d", ("{dst}", "g[{slot}]"), tokens
    )
    effect = Unsupported("image queries: tinygrad's compiler never emits them")
    return _memory("resinfo", Latency.GLOBAL, Sync.SS, effect, form)


SHUFFLES = {1: "xor", 2: "up", 3: "down", 6: "rup", 7: "rdown"}


def _shfl() -> Op:
    fields = (
        *_FLAGS,
        _TYPE_FIELD,
        Field("value", 1, 8),
        Field("index_im", 23, 23),
        Field("index", 24, 31),
        Field("dst", 32, 39),
        Field("shuffle", 45, 47, legal=tuple(SHUFFLES)),
    )
    fixed = (
        _CAT,
        Fixed(0, 0),
        Fixed(9, 22),
        _ignored(40, 44),
        _ignored(48),
        Fixed(52, 53, 2),
        Fixed(54, 58, 27),
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        half = _half(f["type"])
        srcs = (gpr(f["value"], half), _lift_either(f["index"], f["index_im"]))
        return _instr(op, f, gpr(f["dst"], half), srcs, type=f["type"], shuffle=f["shuffle"])

    def lower(instr: Instr) -> dict[str, int]:
        fields = _lower_common(instr, 2, True)
        value, index = instr.srcs
        _data(instr, instr.dst or gpr(0))
        fields["index"], fields["index_im"] = _either(instr, index)
        return fields | {"value": _data(instr, value)}

    tokens = {
        "type": TYPE,
        "shuffle": choice("shuffle", SHUFFLES),
        "dst": destination(),
        "value": plain(0),
        "index": either(1),
    }
    slots = ("{dst}", "{value}", "{index}")
    form = Form(Layout(fields, fixed), lift, lower, _PRINTED, "shfl.{shuffle}.{type}", slots, tokens)
    return _memory("shfl", Latency.LOCAL, Sync.SS, Shuffle("", tuple(SHUFFLES.items())), form)


_STAGES = Unsupported("passes data between the stages of graphics pipelines")
_WAVE = Unsupported("which processor or wave runs a fiber is not defined for compute")
OPS: tuple[Op, ...] = (
    _ldg(),
    _ldg_a(),
    _ldg_k(),
    _stg(),
    _stg_a(),
    _load("ldl", 1, "l", Load(Space.LOCAL), Latency.LOCAL, Sync.SS),
    _load("ldp", 2, "p", Load(Space.PRIVATE), Latency.GLOBAL, Sync.SY),
    _load("ldlw", 10, "l", _STAGES, Latency.LOCAL, Sync.SS),
    _ldlv(),
    _store("stl", 4, "l", Store(Space.LOCAL)),
    _store("stp", 5, "p", Store(Space.PRIVATE), first_ignored=False),
    _store("stlw", 11, "l", _STAGES),
    _stc(),
    _resinfo(),
    _shfl(),
    *(_atomic(name, 16 + n, Space.LOCAL) for n, name in enumerate(_ATOMICS)),
    *(_atomic(name, 16 + n, Space.GLOBAL) for n, name in enumerate(_ATOMICS)),
    _ldc(),
    _ldc_k(),
    _wave_info("getspid", 0b100100, _WAVE, bit23=False),
    _wave_info("getwid", 0b100101, _WAVE, bit23=False),
    _wave_info("getfiberid", 0b100110, FiberId(), bit23=True),
    _image_info("resinfo.b", 0b001111),
    _image_info("resbase", 0b001100),
    _image("stib.b", 0b011101, load=False),
    _image("ldib.b", 0b000110, load=True),
    *(_image_atomic(name, 16 + n) for n, name in enumerate(_ATOMICS) if name not in ("inc", "dec")),
)
