"""Category 6: loads, stores, atomics and shuffles (Mesa, ``ir3-cat6.xml``)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytest_qcom.errors import DecodeError, EncodeError
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
    Preset,
    Shuffle,
    Size,
    Space,
    Store,
    Sync,
    Unsupported,
    Upload,
)
from pytest_qcom.isa.operands import gpr, operand_text, parse_operand
from pytest_qcom.isa.registers import Ty

_LDC = 0b011110


def key(word: int) -> tuple[int, ...]:
    """The encodings that a6xx added are known by bits 53 and 22 and a sub-opcode; the others by OPC."""
    opcode = word >> 54 & 31
    if word >> 53 & 1 and word >> 22 & 1:
        sub = word >> 14 & 63
        return (6, 1, sub, word >> 52 & 1 if sub == _LDC else 0)
    if opcode == 0:
        return (6, 0, opcode, word >> 51 & 2 | word >> 22 & 1)
    return (6, 0, opcode, word >> 52 & 1 if opcode == 3 or 16 <= opcode <= 26 else 0)


# ---- a family: its bits, and which fields are operands


class _Width(enum.Enum):
    """How wide a register operand is."""

    FULL = "full"
    DATA = "data"  # as the type says
    HIDDEN = "hidden"  # as the type says, but Mesa prints a full register
    EITHER = "either"  # full, or a number of 8 bits where the field's ``_im`` bit is set


@dataclass(frozen=True, slots=True)
class _Role:
    """An operand: the field that holds it, and its width."""

    field: str
    width: _Width = _Width.FULL


@dataclass(frozen=True, slots=True)
class _Roles:
    """The operands of a family. All other fields are attributes; ``fixed`` are attributes without bits."""

    dst: _Role | None = None
    srcs: tuple[_Role, ...] = ()
    fixed: Mapping[str, int] | None = None

    def lift(self, op: Op, f: dict[str, int], word: int) -> Instr:
        """Fields to an instruction."""
        half = "type" in f and Ty(f["type"]).half
        dst = None if self.dst is None else _operand(self.dst, f, half)
        srcs = tuple(_operand(role, f, half) for role in self.srcs)
        attrs = {name: value for name, value in f.items() if name not in self._operand_fields()}
        return Instr(
            op,
            dst,
            srcs,
            jp=bool(f["jp"]),
            sy=bool(f["sy"]),
            attrs=attributes(attrs | dict(self.fixed or {})),
        )

    def lower(self, instr: Instr) -> dict[str, int]:
        """An instruction to fields.

        Raises:
            EncodeError: for flags that cat6 lacks, and operands of the wrong kind, width or number.
        """
        name = instr.op.name
        if instr.rpt or instr.nop or instr.ss or instr.sat or instr.ul or instr.ei:
            raise EncodeError(f"{name} takes none of (ss)(rptN)(nopN)(sat)(ul)(ei); put an (ss)nop before it")
        if len(instr.srcs) != len(self.srcs) or (instr.dst is None) != (self.dst is None):
            raise EncodeError(
                f"{name} with {len(instr.srcs)} sources and {'no' if instr.dst is None else 'a'} "
                f"destination; it takes {len(self.srcs)} and {'none' if self.dst is None else 'one'}"
            )
        fields = {key: value for key, value in instr.attrs if key not in (self.fixed or ())}
        fields |= {"jp": int(instr.jp), "sy": int(instr.sy)}
        operands = [*zip(self.srcs, instr.srcs, strict=True)]
        if self.dst is not None and instr.dst is not None:
            operands.append((self.dst, instr.dst))
        for role, operand in operands:
            packed = _pack(role, instr, operand)
            if fields.get(role.field, packed[role.field]) != packed[role.field]:
                raise EncodeError(f"{name} returns into its data register; make both operands one")
            fields |= packed
        return fields

    def _operand_fields(self) -> set[str]:
        roles = (*self.srcs, *([self.dst] if self.dst is not None else []))
        names = {role.field for role in roles}
        return {"jp", "sy"} | names | {f"{name}_im" for name in names}


def _operand(role: _Role, f: dict[str, int], half: bool) -> Operand:
    if f.get(f"{role.field}_im"):
        return Operand(Kind.IMM, f[role.field])
    return gpr(f[role.field], half and role.width in (_Width.DATA, _Width.HIDDEN))


def _pack(role: _Role, instr: Instr, operand: Operand) -> dict[str, int]:
    name = instr.op.name
    if role.width is _Width.EITHER and operand.kind is Kind.IMM:
        if not 0 <= operand.value < 256:
            raise EncodeError(f"{name}: immediate is {operand.value}, the encoding holds 0 to 255")
        return {role.field: operand.value, f"{role.field}_im": 1}
    shown = operand_text(operand)
    if operand.kind is not Kind.GPR or operand.neg or operand.abs or operand.repeat:
        raise EncodeError(f"{name}: {shown} is no plain register; move it to one")
    if role.width is _Width.DATA and operand.half != Ty(instr["type"]).half:
        raise EncodeError(
            f"{name}: {shown} does not hold type {TYPES[instr['type']]}; use the other register file"
        )
    if role.width in (_Width.FULL, _Width.EITHER) and operand.half:
        raise EncodeError(f"{name}: {shown} is a half register; addresses are full")
    return {role.field: operand.value}


_COMMON = (Field("jp", 59, 59), Field("sy", 60, 60))
_CAT = Fixed(61, 63, 6)
_TYPE_FIELD = Field("type", 49, 51)
_DST = Field("dst", 32, 39)


def _ignored(lo: int, hi: int | None = None) -> Fixed:
    """Bits that Mesa does not look at."""
    return Fixed(lo, lo if hi is None else hi, care=False)


def _op(
    name: str,
    layout: Layout,
    roles: _Roles,
    text: tuple[str, ...],
    tokens: Mapping[str, Token],
    effect: Effect,
    wait: tuple[Latency, Sync],
    defaults: Mapping[str, int] | None = None,
) -> Op:
    """An entry; ``text`` is the mnemonic's template and those of the operands."""
    form = Form(layout, roles.lift, roles.lower, ("sy", "jp"), text[0], text[1:], tokens, defaults or {})
    return Op(name, 6, wait[0], wait[1], effect=effect, source="Mesa ir3-cat6.xml", layout=form)


_NO_RESULT = (Latency.NONE, Sync.NONE)
_LOCAL = (Latency.LOCAL, Sync.SS)
_GLOBAL = (Latency.GLOBAL, Sync.SY)
_FULL, _DATA, _HIDDEN, _EITHER = _Width

# ---- tokens

_COUNT = number("count")
_OFFSET = offset()
_TYPED = choice("typed", {0: "untyped", 1: "typed"})
_ATOMIC_TYPE = choice("type", {**TYPES, 6: "u64"})
_REGISTER = r"[a-z]+\d+\.[xyzw]"


def _address(index: int, space: str) -> Token:
    """``g[r0.x+4]``; the brackets may be left out in assembly, as in ``r0.x+4``."""
    # Mesa knows a0 and p0 in local and private addresses, and only calls them r61 and r62 in global ones
    inner = plain(index, half=space != "g")

    def show(instr: Instr) -> str:
        return f"{space}[{inner.show(instr)}{_OFFSET.show(instr)}]"

    def read(draft: Draft, text: str) -> None:
        body = text.removeprefix(f"{space}[").removesuffix("]")
        sign = "-" if "-" in body else "+"
        register, _, digits = body.partition(sign)
        inner.read(draft, register)
        draft.attrs["offset"] = int(sign + (digits or "0"))

    return Token(rf"(?:{space}\[)?{_REGISTER}(?:[+-]\d+)?\]?", show, read)


def _scaled() -> Token:
    """``g[r0.x+((r1.x<<2)+1)<<2]`` in the four shapes in which Mesa prints it."""

    def show(instr: Instr) -> str:
        base, register = raw_register(instr.srcs[0].value), operand_text(instr.srcs[1])
        scale, shift = _type_shift(instr["type"]), instr["shift"]
        added = f"+{instr['offset']}" if instr["offset"] else ""
        if scale == 0:
            return f"g[{base}+{register}{added}]"
        if not added:
            return f"g[{base}+({register}<<{shift + scale})]"
        if shift == 0:
            return f"g[{base}+(({register}{added})<<{scale})]"
        return f"g[{base}+((({register}<<{shift}){added})<<{scale})]"

    def read(draft: Draft, text: str) -> None:
        body = text.removeprefix("g[").removesuffix("]").replace("(", "").replace(")", "")
        base, register, *rest = body.replace("<<", "+<").split("+")
        shifts = [int(part[1:]) for part in rest if part.startswith("<")]
        added = next((int(part) for part in rest if not part.startswith("<")), 0)
        both = len(shifts) == 2
        shift = shifts[0] - (0 if both else _type_shift(draft.attrs["type"])) if shifts else 0
        draft.srcs[0], draft.srcs[1] = parse_operand(base), parse_operand(register)
        draft.attrs.update(offset=added, shift=shift)

    r = _REGISTER
    shapes = (
        rf"{r}(?:\+\d+)?",
        rf"\({r}<<\d+\)",
        rf"\(\({r}\+\d+\)<<\d+\)",
        rf"\(\(\({r}<<\d+\)\+\d+\)<<\d+\)",
    )
    return Token(rf"g\[{r}\+(?:{'|'.join(shapes)})\]", show, read)


def _type_shift(ty: int) -> int:
    return 0 if ty >= Ty.U8.value else 1 if Ty(ty).half else 2


def _unmarked(index: int) -> Token:
    """A source register that Mesa prints as full whatever its width."""
    return replace(plain(index), show=lambda i: operand_text(gpr(i.srcs[index].value)))


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


def _base() -> Token:
    def read(draft: Draft, text: str) -> None:
        draft.attrs.update(bindless=int(bool(text)), base=int(text[5:] or 0))

    return Token(r"(?:\.base\d)?", lambda i: f".base{i['base']}" if i["bindless"] else "", read)


# ---- global memory


_COUNT_FIELD = Field("count", 24, 26)
_COUNT_REST = (_ignored(27, 29), Fixed(30, 31))
_LDG_FIELDS = (*_COMMON, _TYPE_FIELD, Field("address", 14, 21), _COUNT_FIELD, _DST)
_LDG_FIXED = (_CAT, Fixed(0, 0, 1), *_COUNT_REST, _ignored(40, 48), Fixed(52, 53), Fixed(54, 58))
_STG_FIELDS = (*_COMMON, _TYPE_FIELD, Field("data", 1, 8), _COUNT_FIELD, Field("address", 41, 48))
# bit 40 says that there is an offset; Mesa's encoder always sets it
_STG_FIXED = (
    _CAT,
    _ignored(0),
    _ignored(14, 21),
    _ignored(22),
    Fixed(23, 23, 1),
    *_COUNT_REST,
    Fixed(40, 40, 1),
    Fixed(53, 53),
    Fixed(54, 58, 3),
)
_SCALE = (Field("offset", 9, 10), Field("shift", 12, 13))


def _ldg() -> Op:
    layout = Layout((*_LDG_FIELDS, Field("offset", 1, 13, True)), (*_LDG_FIXED, Fixed(22, 23, 2)))
    roles = _Roles(_Role("dst", _DATA), (_Role("address"),))
    tokens = {"type": TYPE, "dst": destination(), "address": _address(0, "g"), "count": _COUNT}
    text = ("ldg.{type}", "{dst}", "{address}", "{count}")
    return _op("ldg", layout, roles, text, tokens, Load(Space.GLOBAL), _GLOBAL)


def _ldg_a() -> Op:
    fields = (*_LDG_FIELDS, Field("index", 1, 8), *_SCALE)
    layout = Layout(fields, (*_LDG_FIXED, Fixed(11, 11, care=False), Fixed(22, 23, 3)))
    roles = _Roles(_Role("dst", _DATA), (_Role("address"), _Role("index")))
    tokens = {"type": TYPE, "dst": destination(), "address": _scaled(), "count": _COUNT}
    text = ("ldg.a.{type}", "{dst}", "{address}", "{count}")
    return _op("ldg.a", layout, roles, text, tokens, Load(Space.GLOBAL), _GLOBAL)


def _stg() -> Op:
    fields = (*_STG_FIELDS, Field("offset", 32, 39, True, upper=(9, 13)))
    layout = Layout(fields, (*_STG_FIXED, Fixed(52, 52)))
    roles = _Roles(srcs=(_Role("address"), _Role("data", _DATA)))
    tokens = {"type": TYPE, "address": _address(0, "g"), "data": plain(1), "count": _COUNT}
    text = ("stg.{type}", "{address}", "{data}", "{count}")
    return _op("stg", layout, roles, text, tokens, Store(Space.GLOBAL), _NO_RESULT)


def _stg_a() -> Op:
    fields = (*_STG_FIELDS, Field("index", 32, 39), *_SCALE)
    layout = Layout(fields, (*_STG_FIXED, Fixed(11, 11, care=False), Fixed(52, 52, 1)))
    roles = _Roles(srcs=(_Role("address"), _Role("index"), _Role("data", _DATA)))
    tokens = {"type": TYPE, "address": _scaled(), "data": plain(2), "count": _COUNT}
    text = ("stg.a.{type}", "{address}", "{data}", "{count}")
    return _op("stg.a", layout, roles, text, tokens, Store(Space.GLOBAL), _NO_RESULT)


# ---- local and private memory

_LONG_COUNT = Field("count", 24, 31)


def _load(name: str, opcode: int, space: str, effect: Effect, wait: tuple[Latency, Sync]) -> Op:
    shown = space == "p"  # Mesa prints the half registers of local loads without h
    fields = (
        *_COMMON,
        _TYPE_FIELD,
        Field("offset", 1, 13, True),
        Field("address", 14, 21),
        _LONG_COUNT,
        _DST,
    )
    fixed = (_CAT, Fixed(0, 0, 1), _ignored(22), Fixed(23, 23, 1), _ignored(40, 48), _ignored(52, 53))
    roles = _Roles(_Role("dst", _DATA if shown else _HIDDEN), (_Role("address"),))
    tokens = {"type": TYPE, "dst": destination(half=shown), "address": _address(0, space), "count": _COUNT}
    text = (name + ".{type}", "{dst}", "{address}", "{count}")
    return _op(name, Layout(fields, (*fixed, Fixed(54, 58, opcode))), roles, text, tokens, effect, wait)


def _store(name: str, opcode: int, space: str, effect: Effect, first: Fixed) -> Op:
    fields = (
        *_COMMON,
        _TYPE_FIELD,
        Field("data", 1, 8),
        Field("offset", 32, 39, True, upper=(9, 13)),
        _LONG_COUNT,
        Field("address", 41, 48),
    )
    fixed = (_CAT, first, _ignored(14, 22), Fixed(23, 23, 1), Fixed(40, 40, 1), _ignored(52, 53))
    roles = _Roles(srcs=(_Role("address"), _Role("data", _HIDDEN)))
    tokens = {"type": TYPE, "address": _address(0, space), "data": _unmarked(1), "count": _COUNT}
    text = (name + ".{type}", "{address}", "{data}", "{count}")
    return _op(name, Layout(fields, (*fixed, Fixed(54, 58, opcode))), roles, text, tokens, effect, _NO_RESULT)


def _ldlv() -> Op:
    fields = (*_COMMON, _TYPE_FIELD, Field("offset", 1, 13), _LONG_COUNT, _DST)
    fixed = (
        _CAT,
        Fixed(0, 0),
        Fixed(14, 21),
        Fixed(22, 23, 3),
        _ignored(40, 48),
        _ignored(52, 53),
        Fixed(54, 58, 31),
    )
    tokens = {"type": TYPE, "dst": destination(half=False), "offset": number("offset"), "count": _COUNT}
    text = ("ldlv.{type}", "{dst}", "l[{offset}]", "{count}")
    roles = _Roles(_Role("dst", _HIDDEN))
    return _op(
        "ldlv", Layout(fields, fixed), roles, text, tokens, Unsupported("varyings are graphics"), _LOCAL
    )


# ---- the constant file

_LDG_K = Unsupported(
    "Mesa's compiler makes it from A7xx on (ir3_nir.c, ir3_nir_lower_const_global_loads); for the A630 it "
    "emits ldg and stc"
)
_CONST_FIELDS = (Field("offset", 32, 39), Field("a1", 40, 40))


def _stc() -> Op:
    fields = (*_COMMON, _TYPE_FIELD, Field("data", 1, 8), _COUNT_FIELD, *_CONST_FIELDS)
    fixed = (
        _CAT,
        _ignored(0),
        _ignored(9, 13),
        Fixed(14, 22),
        Fixed(23, 23, 1),
        _ignored(27, 31),
        _ignored(41, 48),
    )
    layout = Layout(fields, (*fixed, _ignored(52, 53), Fixed(54, 58, 28)))
    tokens = {"type": TYPE, "const": _const_dst(), "data": _unmarked(0), "count": _COUNT}
    text = ("stc.{type}", "{const}", "{data}", "{count}")
    roles = _Roles(srcs=(_Role("data", _HIDDEN),))
    return _op("stc", layout, roles, text, tokens, Preset(), (Latency.NONE, Sync.SS))


def _ldg_k() -> Op:
    fields = (
        *_COMMON,
        _TYPE_FIELD,
        Field("bytes", 1, 13, True),
        Field("address", 14, 21),
        Field("count", 23, 26),
        *_CONST_FIELDS,
    )
    fixed = (
        _CAT,
        Fixed(0, 0, 1),
        Fixed(22, 22),
        *_COUNT_REST,
        _ignored(41, 48),
        Fixed(52, 53, 1),
        Fixed(54, 58),
    )
    address = replace(plain(0, half=False), pattern=_REGISTER)
    tokens = {
        "type": TYPE,
        "const": _const_dst(),
        "address": address,
        "bytes": offset("bytes"),
        "count": _COUNT,
    }
    text = ("ldg.k.{type}", "{const}", "g[{address}{bytes}]", "{count}")
    return _op(
        "ldg.k", Layout(fields, fixed), _Roles(srcs=(_Role("address"),)), text, tokens, _LDG_K, _GLOBAL
    )


# ---- atomics on local memory and on 64-bit addresses

_ATOMICS = ("add", "sub", "xchg", "inc", "dec", "cmpxchg", "min", "max", "and", "or", "xor")
_DIMS = Field("dims", 9, 10, bias=1)
_TYPED_FIELD = Field("typed", 11, 11)
_COMPONENTS = Field("count", 12, 13, bias=1)


def _atomic(name: str, opcode: int, space: Space) -> Op:
    local = space is Space.LOCAL
    fields = (
        *_COMMON,
        _TYPE_FIELD,
        _DIMS,
        _TYPED_FIELD,
        _COMPONENTS,
        Field("address", 14, 21),
        Field("address_im", 22, 22),
        Field("data_im", 23, 23),
        Field("data", 24, 31),
        _DST,
    )
    fixed = (
        _CAT,
        Fixed(0, 0, 1),
        Fixed(1, 8),
        _ignored(40),
        Fixed(41, 48),
        Fixed(52, 52, not local),
        Fixed(53, 53),
    )
    roles = _Roles(_Role("dst"), (_Role("address", _EITHER), _Role("data", _EITHER)))
    tokens = {
        "type": TYPE if local else _ATOMIC_TYPE,
        "typed": _TYPED,
        "dims": number("dims"),
        "count": _COUNT,
        "dst": destination(),
        "address": either(0),
        "data": either(1),
    }
    stem = f"atomic.{name}" if local else f"atomic.g.{name}"
    mnemonic = stem + ".{typed}.{dims}d.{type}.{count}." + ("l" if local else "g")
    text = (mnemonic, "{dst}", "l[{address}]" if local else "{address}", "{data}")
    layout = Layout(fields, (*fixed, Fixed(54, 58, opcode)))
    return _op(stem, layout, roles, text, tokens, Atomic(space, name), _LOCAL if local else _GLOBAL)


# ---- the encodings that a6xx added: UBOs, images, information about the wave

_NEW = (
    *_COMMON,
    Field("base", 1, 3),
    Field("mode", 6, 7, legal=(0, 1, 2)),
    Field("bindless", 8, 8),
    _COMPONENTS,
)
_NEW_FIXED = (_CAT, Fixed(40, 40))
_PLAIN_NEW = (*_NEW_FIXED, Fixed(4, 5), Fixed(54, 58))
_SLOT = Field("slot", 41, 48)
_IMAGE = (_DIMS, _TYPED_FIELD, _SLOT)
_NEW_TOKENS = {
    "type": TYPE,
    "typed": _TYPED,
    "dims": number("dims"),
    "count": _COUNT,
    "mode": choice("mode", {0: "imm", 1: "uniform", 2: "nonuniform"}),
    "base": _base(),
    "dst": destination(),
    "slot": slot(),
}
_IMAGE_MNEMONIC = ".{typed}.{dims}d.{type}.{count}.{mode}{base}"
_OLD_QUERY = Unsupported("an encoding of earlier chips; on a6xx Mesa emits resinfo.b")
_BASE = Unsupported("addresses of images; Mesa's compiler builds none")


def _constants(name: str, fields: tuple[Field, ...], fixed: tuple[Fixed, ...]) -> Layout:
    """What ldc and ldc.k share: an offset that may be a number, and the slot of the buffer."""
    shared = (*_NEW, Field("address_im", 23, 23), Field("address", 24, 31), _SLOT)
    bits = (
        _ignored(0),
        Fixed(14, 19, _LDC),
        _ignored(20, 21),
        Fixed(22, 22, 1),
        Fixed(49, 50, 3),
        _ignored(51),
    )
    return Layout((*shared, *fields), (*_PLAIN_NEW, *bits, *fixed))


def _ldc() -> Op:
    layout = _constants("ldc", (Field("offset", 9, 10), Field("uniform", 11, 11), _DST), (Fixed(52, 53, 2),))
    roles = _Roles(_Role("dst"), (_Role("address", _EITHER),), {"type": Ty.U32.value})
    tokens = {
        **_NEW_TOKENS,
        "uniform": flag("uniform", ".u"),
        "offset": number("offset"),
        "address": either(0),
    }
    text = ("ldc{uniform}.offset{offset}.{count}.{mode}{base}", "{dst}", "{address}", "{slot}")
    return _op("ldc", layout, roles, text, tokens, Load(Space.UBO), _GLOBAL)


def _ldc_k() -> Op:
    layout = _constants("ldc.k", (Field("vectors", 32, 39, bias=1),), (_ignored(9, 11), Fixed(52, 53, 3)))
    tokens = {**_NEW_TOKENS, "vectors": number("vectors"), "address": either(0)}
    text = ("ldc.{vectors}.k.{mode}{base}", "c[a1.x]", "{address}", "{slot}")
    roles = _Roles(srcs=(_Role("address", _EITHER),))
    return _op("ldc.k", layout, roles, text, tokens, Upload(), _GLOBAL, {"count": 1})


def _wave_info(name: str, sub: int, effect: Effect, bit23: Fixed) -> Op:
    fields = (*_NEW, _TYPE_FIELD, _DST)
    bits = (Fixed(0, 0), _ignored(9, 11), Fixed(14, 19, sub), _ignored(20, 21), Fixed(22, 22, 1), bit23)
    fixed = (*_PLAIN_NEW, *bits, _ignored(24, 31), _ignored(41, 48), _ignored(52), Fixed(53, 53, 1))
    # Mesa prints none of these, and its encoder writes zeros
    defaults = {"mode": 0, "bindless": 0, "base": 0, "count": 1}
    text, wait = (name + ".{type}", "{dst}"), (Latency.ALU, Sync.SY)
    return _op(name, Layout(fields, fixed), _Roles(_Role("dst")), text, _NEW_TOKENS, effect, wait, defaults)


def _image_info(name: str, sub: int, effect: Effect) -> Op:
    """They write three registers whatever ``dims`` says (Mesa, ``emit_intrinsic_image_size``)."""
    fields = (*_NEW, *_IMAGE, _TYPE_FIELD, _DST)
    bits = (
        Fixed(0, 0),
        Fixed(14, 19, sub),
        Fixed(20, 23, 6),
        _ignored(24, 31),
        _ignored(52),
        Fixed(53, 53, 1),
    )
    text, wait = (name + _IMAGE_MNEMONIC, "{dst}", "{slot}"), (Latency.GLOBAL, Sync.SS)
    layout = Layout(fields, (*_PLAIN_NEW, *bits))
    return _op(name, layout, _Roles(_Role("dst")), text, _NEW_TOKENS, effect, wait)


@dataclass(frozen=True, slots=True)
class _OffsetRoles(_Roles):
    """Image accesses: bit 23 says that the offset counts, without it the offset's bits must be 0."""

    def lift(self, op: Op, f: dict[str, int], word: int) -> Instr:
        if f["offset"] and not f["has_offset"]:
            raise self._refusal(op, word)
        return _Roles.lift(self, op, f, word)

    def lower(self, instr: Instr) -> dict[str, int]:
        fields = _Roles.lower(self, instr)
        return fields | {"has_offset": int(bool(fields["offset"]) or fields["has_offset"])}

    def _refusal(self, op: Op, word: int) -> DecodeError:
        return bad_bits(word, 54, 58, op.name, "an offset although bit 23 says that there is none")


def _image(name: str, sub: int, load: bool) -> Op:
    fields = (
        *_NEW,
        *_IMAGE,
        _TYPE_FIELD,
        Field("offset", 54, 58, upper=(4, 5)),
        Field("has_offset", 23, 23),
        Field("coordinate", 24, 31),
        Field("data", 32, 39),
    )
    fixed = (*_NEW_FIXED, Fixed(0, 0, care=not load), Fixed(14, 19, sub), Fixed(20, 22, 6), Fixed(52, 53, 2))
    data, coordinate = _Role("data", _DATA), _Role("coordinate")
    roles = _OffsetRoles(data, (coordinate,)) if load else _OffsetRoles(None, (coordinate, data))
    added = Token(
        r"(?:\+\d+)?",
        lambda i: f"+{i['offset']}" if i["offset"] else "",
        lambda d, t: d.attrs.update(offset=int(t or 0), has_offset=int(bool(t))),
    )
    tokens = {
        **_NEW_TOKENS,
        "data": destination() if load else plain(1),
        "coordinate": replace(plain(0), pattern=_REGISTER),
        "added": added,
    }
    text = (name + _IMAGE_MNEMONIC, "{data}", "{coordinate}{added}", "{slot}")
    effect: Effect = Load(Space.IMAGE) if load else Store(Space.IMAGE)
    return _op(name, Layout(fields, fixed), roles, text, tokens, effect, _GLOBAL if load else _NO_RESULT)


def _image_atomic(name: str, sub: int) -> Op:
    """The old value comes back in the data register."""
    fields = (*_NEW, *_IMAGE, _TYPE_FIELD, Field("coordinate", 24, 31), Field("data", 32, 39))
    fixed = (*_PLAIN_NEW, _ignored(0), Fixed(14, 19, sub), Fixed(20, 22, 6), Fixed(23, 23), Fixed(52, 53, 3))

    def read(draft: Draft, text: str) -> None:
        draft.dst = draft.srcs[1] = parse_operand(text)

    data = Token(_REGISTER, lambda i: operand_text(gpr(i.srcs[1].value)), read)
    tokens = {**_NEW_TOKENS, "type": _ATOMIC_TYPE, "data": data, "coordinate": plain(0)}
    text = (f"atomic.b.{name}{_IMAGE_MNEMONIC}", "{data}", "{coordinate}", "{slot}")
    roles = _Roles(_Role("data"), (_Role("coordinate"), _Role("data")))
    return _op(
        f"atomic.b.{name}", Layout(fields, fixed), roles, text, tokens, Atomic(Space.IMAGE, name), _GLOBAL
    )


# ---- the resinfo of earlier chips, shuffles


def _resinfo() -> Op:
    fields = (*_COMMON, _TYPE_FIELD, _DIMS, _DST, _SLOT, Field("slot_im", 53, 53))
    bits = (
        _ignored(0),
        _ignored(1, 8),
        _ignored(11, 13),
        Fixed(14, 23),
        _ignored(24, 31),
        Fixed(40, 40),
        _ignored(52),
    )
    tokens = {"type": TYPE, "dims": number("dims"), "dst": destination(), "slot": either(0)}
    text, wait = ("resinfo.{type}.{dims}d", "{dst}", "g[{slot}]"), (Latency.GLOBAL, Sync.SS)
    roles = _Roles(_Role("dst"), (_Role("slot", _EITHER),))
    layout = Layout(fields, (_CAT, *bits, Fixed(54, 58, 15)))
    return _op("resinfo", layout, roles, text, tokens, _OLD_QUERY, wait)


SHUFFLES = {1: "xor", 2: "up", 3: "down", 6: "rup", 7: "rdown"}
"""Modes of shfl by field value (Mesa, ``#cat6-shfl-mode``)."""


def _shfl() -> Op:
    fields = (
        *_COMMON,
        _TYPE_FIELD,
        Field("value", 1, 8),
        Field("index_im", 23, 23),
        Field("index", 24, 31),
        _DST,
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
    tokens = {
        "type": TYPE,
        "shuffle": choice("shuffle", SHUFFLES),
        "dst": destination(),
        "value": plain(0),
        "index": either(1),
    }
    text = ("shfl.{shuffle}.{type}", "{dst}", "{value}", "{index}")
    roles = _Roles(_Role("dst", _DATA), (_Role("value", _DATA), _Role("index", _EITHER)))
    effect = Shuffle("", tuple(SHUFFLES.items()))
    return _op("shfl", Layout(fields, fixed), roles, text, tokens, effect, _LOCAL)


_STAGES = Unsupported(
    "passes data between the stages of graphics pipelines; for compute Mesa emits ldl and stl"
)
_WAVE = Unsupported(
    "which processor or wave runs a fiber is not defined for compute; Mesa's compiler builds none"
)

OPS: tuple[Op, ...] = (
    _ldg(),
    _ldg_a(),
    _ldg_k(),
    _stg(),
    _stg_a(),
    _load("ldl", 1, "l", Load(Space.LOCAL), _LOCAL),
    _load("ldp", 2, "p", Load(Space.PRIVATE), _GLOBAL),
    _load("ldlw", 10, "l", _STAGES, _LOCAL),
    _ldlv(),
    _store("stl", 4, "l", Store(Space.LOCAL), _ignored(0)),
    _store("stp", 5, "p", Store(Space.PRIVATE), Fixed(0, 0)),
    _store("stlw", 11, "l", _STAGES, _ignored(0)),
    _stc(),
    _resinfo(),
    _shfl(),
    *(_atomic(name, 16 + n, Space.LOCAL) for n, name in enumerate(_ATOMICS)),
    *(_atomic(name, 16 + n, Space.GLOBAL) for n, name in enumerate(_ATOMICS)),
    _ldc(),
    _ldc_k(),
    _wave_info("getspid", 0b100100, _WAVE, _ignored(23)),
    _wave_info("getwid", 0b100101, _WAVE, _ignored(23)),
    _wave_info("getfiberid", 0b100110, FiberId(), Fixed(23, 23, 1)),
    _image_info("resinfo.b", 0b001111, Size()),
    _image_info("resbase", 0b001100, _BASE),
    _image("stib.b", 0b011101, load=False),
    _image("ldib.b", 0b000110, load=True),
    *(_image_atomic(name, 16 + n) for n, name in enumerate(_ATOMICS) if name not in ("inc", "dec")),
)
