"""Category 5: textures and quad shuffles (Mesa, ``ir3-cat5.xml``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.fields import Field, Fixed, Layout, bad_bits
from pytest_qcom.isa.form import TYPES, Draft, Form, Token, attributes, sets
from pytest_qcom.isa.instruction import (
    Detail,
    Effect,
    Fact,
    Instr,
    Kind,
    Latency,
    Op,
    Operand,
    Query,
    Sample,
    Shuffle,
    Size,
    Sync,
    Unsupported,
)
from pytest_qcom.isa.operands import gpr, parse_operand, register_text
from pytest_qcom.isa.registers import Ty

_COMMON = (
    Field("full", 0, 0),
    Field("src1", 1, 8),
    Field("src2", 9, 16),
    Field("samp", 21, 24),
    Field("tex", 25, 31),
    Field("dst", 32, 39),
    Field("wrmask", 40, 43),
    Field("type", 44, 46),
    Field("base_lo", 47, 47),
    Field("3d", 48, 48),
    Field("array", 49, 49),
    Field("s2en", 51, 51),
    Field("o", 52, 52),
    Field("jp", 59, 59),
    Field("sy", 60, 60),
)
# shuffles use only these, the other fields of textures are 0
_SHUFFLE = tuple(
    field for field in _COMMON if field.name in ("full", "src1", "src2", "dst", "wrmask", "type", "jp", "sy")
)
_CAT = Fixed(61, 63, 5)
_UNUSED = Fixed(17, 17, care=False)
_WRMASK = {
    mask: "".join(letter for bit, letter in enumerate("xyzw") if mask >> bit & 1) for mask in range(16)
}
# descriptor modes of s2en (Mesa, #cat5-s2en-bindless-desc-mode)
_INDIRECT, _BINDLESS = range(6), (1, 2, 3, 5, 6, 7)
_USES_A1, _UNIFORM, _NONUNIFORM = (1, 3, 7), (0, 1, 5), (2, 3, 4)


@dataclass(frozen=True)
class _Shape:
    """What a texture instruction takes: coordinate sources, sampler, texture, printed type."""

    sources: int = 1
    samp: bool = True
    tex: bool = True
    type: bool = True


def key(word: int) -> tuple[int, ...]:
    """OPC; at opcode 31 the bit below tells broadcasts from quad shuffles and 20:19 the shuffle."""
    opcode = word >> 54 & 31
    if opcode != 31:
        return (5, opcode, 0, 0)
    shuffle = word >> 53 & 1
    return (5, opcode, shuffle, word >> 19 & 3 if shuffle else 0)


# ---- fields


def _lift(shape: _Shape, op: Op, f: dict[str, int], word: int) -> Instr:
    half = not f["full"]
    srcs = []
    if shape.sources:
        srcs.append(gpr(f["src1"], half))
    elif f["src1"]:
        raise bad_bits(word, 1, 8, op.name, "there is no source")
    names = ("wrmask", "type", "3d", "array", "s2en", "o", "sv", "p", "inv_1d", "immediate", "cluster")
    attrs = {name: f[name] for name in names if name in f}
    if f.get("o") or shape.sources > 1:
        srcs.append(gpr(f["src2"], half))
    elif f.get("immediate"):
        attrs["offset"] = f["src2"]
    elif f["src2"]:
        raise bad_bits(word, 9, 16, op.name, "there is no second source")
    if not srcs:
        attrs["half"] = int(half)
    if f.get("s2en"):
        third = _lift_s2en(shape, op, f, word, attrs)
        srcs += [third] if third else []
    else:
        _lift_slots(shape, op, f, word, attrs)
    dst = gpr(f["dst"], Ty(f["type"]).half)
    return Instr(op, dst, tuple(srcs), jp=bool(f["jp"]), sy=bool(f["sy"]), attrs=attributes(attrs))


def _lift_slots(shape: _Shape, op: Op, f: dict[str, int], word: int, attrs: dict[str, int]) -> None:
    for name, present, lo, hi in (("samp", shape.samp, 21, 24), ("tex", shape.tex, 25, 31)):
        if present:
            attrs[name] = f[name]
        elif f.get(name):
            raise bad_bits(word, lo, hi, op.name, f"it has no {name}")
    for name, lo, hi in (("base_hi", 19, 20), ("base_lo", 47, 47)):
        if f.get(name):
            raise bad_bits(word, lo, hi, op.name, "a base without bindless mode")


def _lift_s2en(shape: _Shape, op: Op, f: dict[str, int], word: int, attrs: dict[str, int]) -> Operand | None:
    """Sampler and texture from a register or a descriptor, in a byte that is split over the slots."""
    third, mode = word >> 21 & 0xFF, word >> 29 & 7
    attrs |= {"mode": mode, "base": f["base_hi"] << 1 | f["base_lo"]}
    if mode in _INDIRECT:
        return gpr(third, mode not in _BINDLESS)
    a1 = mode in _USES_A1
    samp, tex = (third, 0) if a1 else (third & 15, third >> 4)
    for name, present, value in (("samp", shape.samp, samp), ("tex", shape.tex, tex)):
        if present:
            attrs[name] = value
        elif value:
            raise bad_bits(word, 21, 28, op.name, f"it has no {name}")
    if a1:
        attrs.pop("tex", None)
    return None


def _lower(shape: _Shape, instr: Instr) -> dict[str, int]:
    name = instr.op.name
    if instr.rpt or instr.nop or instr.ss or instr.sat or instr.ul or instr.ei:
        raise EncodeError(f"{name} takes none of (ss)(rptN)(nopN)(sat)(ul)(ei); put an (ss)nop before it")
    attrs = dict(instr.attrs)
    srcs = list(instr.srcs)
    fields = {"jp": int(instr.jp), "sy": int(instr.sy)}
    if attrs.get("s2en"):
        fields |= _lower_s2en(instr, srcs, attrs)
    else:
        fields |= {slot: attrs.pop(slot, 0) for slot in ("samp", "tex")}
    wanted = 2 if attrs.get("o") and shape.sources else max(shape.sources, attrs.get("o", 0))
    if len(srcs) != wanted:
        raise EncodeError(f"{name} with {len(srcs)} coordinate sources; it takes {wanted}")
    if any(operand.kind is not Kind.GPR or operand.neg or operand.abs or operand.repeat for operand in srcs):
        raise EncodeError(f"{name} takes plain registers only; move the operand to one")
    if len({operand.half for operand in srcs}) > 1:
        raise EncodeError(f"{name} with half and full sources; all must have one width")
    half = srcs[0].half if srcs else bool(attrs.pop("half", 0))
    numbers = [operand.value for operand in srcs]
    if shape.sources == 0:
        numbers.insert(0, 0)
    fields |= {
        "full": int(not half),
        "src1": numbers[0],
        "src2": numbers[1] if len(numbers) > 1 else attrs.pop("offset", 0),
    }
    return attrs | fields | _lower_dst(instr)


def _lower_dst(instr: Instr) -> dict[str, int]:
    dst = instr.dst
    if dst is None or dst.kind is not Kind.GPR:
        raise EncodeError(f"{instr.op.name} needs a register as destination; give one")
    if dst.half != Ty(instr["type"]).half:
        raise EncodeError(
            f"{instr.op.name}: destination {register_text(dst.value, dst.half)} does not hold type "
            f"{TYPES[instr['type']]}; use the other register file"
        )
    return {"dst": dst.value}


def _lower_s2en(instr: Instr, srcs: list[Operand], attrs: dict[str, int]) -> dict[str, int]:
    mode, base = attrs.pop("mode"), attrs.pop("base")
    if mode in _INDIRECT:
        if not srcs:
            raise EncodeError(f"{instr.op.name} in mode {mode} needs a register with the slots; give one")
        third = srcs.pop().value
    elif mode in _USES_A1:
        third = attrs.pop("samp", 0)
    else:
        third = attrs.pop("samp", 0) | attrs.pop("tex", 0) << 4
    if not 0 <= third < 256:
        raise EncodeError(f"{instr.op.name}: slots make {third}; bindless ones go up to 15")
    return {
        "samp": third & 15,
        "tex": third >> 4 | mode << 4,
        "base_hi": base >> 1,
        "base_lo": base & 1,
        "s2en": 1,
    }


# ---- text


_SUFFIXES = "3d|1d|a|o|p|v|s|s2en|uniform|nonuniform|base[0-7]"


def _suffixes(instr: Instr) -> str:
    get = instr.get
    text = ".3d" * get("3d") + ".a" * get("array") + ".o" * get("o") + ".p" * get("p")
    if get("sv"):
        text += ".v" if "inv_1d" in instr else ".s"
    if get("s2en"):
        mode = get("mode")
        text += (
            ".s2en" * (mode in _INDIRECT)
            + ".uniform" * (mode in _UNIFORM)
            + ".nonuniform" * (mode in _NONUNIFORM)
        )
        text += f".base{get('base')}" * (mode in _BINDLESS)
    if "inv_1d" in instr and not get("inv_1d"):
        text += ".1d"
    return text


def _read_suffixes(draft: Draft, text: str) -> None:
    words = text.split(".")[1:]
    attrs = draft.attrs
    for word, name in ((("3d"), "3d"), ("a", "array"), ("o", "o"), ("p", "p"), ("v", "sv"), ("s", "sv")):
        if word in words:
            attrs[name] = 1
    if "inv_1d" in attrs:
        attrs["inv_1d"] = int("1d" not in words)
    base = next((int(word[4:]) for word in words if word.startswith("base")), None)
    if "s2en" in words or base is not None:
        attrs.update(s2en=1, base=base or 0, mode=_read_mode(words, base is not None))


def _read_mode(words: list[str], bindless: bool) -> int:
    """The descriptor mode that the suffixes name; a trailing a1.x selects its neighbour later."""
    if "s2en" not in words:
        return 6
    if bindless:
        return 5 if "uniform" in words else 2
    return 0 if "uniform" in words else 4


def _operands(shape: _Shape, instr: Instr) -> str:
    """Everything behind the mnemonic, as one string."""
    dst = instr.dst
    assert dst is not None
    kind = f"({TYPES[instr['type']]})" if shape.type else ""
    parts = [f"{kind}({_WRMASK[instr['wrmask']]}){register_text(dst.value, dst.half)}"]
    parts += [register_text(operand.value, operand.half) for operand in instr.srcs]
    if instr.get("offset"):
        parts[shape.sources] += f"+{instr['offset']}"
    return ", ".join(parts + _slots(shape, instr))


def _slots(shape: _Shape, instr: Instr) -> list[str]:
    mode = instr.get("mode", -1)
    parts = []
    if mode not in _INDIRECT:
        parts += [f"s#{instr['samp']}"] if shape.samp else []
        parts += [f"t#{instr['tex']}"] if shape.tex and mode not in _USES_A1 else []
    return parts + (["a1.x"] if mode in _USES_A1 else [])


_SLOT = re.compile(r"([st])#(\d+)")
_COORDINATE = re.compile(r"([a-z]+\d+\.[xyzw])(?:\+(\d+))?")


def _read_operands(shape: _Shape, draft: Draft, text: str) -> None:
    first, *rest = [part.strip() for part in text.split(",")]
    while first.startswith("("):
        word, _, first = first[1:].partition(")")
        if word in TYPES.values():
            draft.attrs["type"] = next(code for code, name in TYPES.items() if name == word)
        else:
            draft.attrs["wrmask"] = _read_mask(word)
    draft.dst = parse_operand(first)
    if not shape.type:
        draft.attrs["type"] = (Ty.F16 if draft.dst.half else Ty.F32).value
    for part in rest:
        slot, coordinate = _SLOT.fullmatch(part), _COORDINATE.fullmatch(part)
        if slot:
            draft.attrs["samp" if slot[1] == "s" else "tex"] = int(slot[2])
        elif part == "a1.x":
            draft.attrs["mode"] = {6: 7, 5: 1, 2: 3}.get(draft.attrs.get("mode", 6), 7)
        elif coordinate:
            draft.srcs[len(draft.srcs)] = parse_operand(coordinate[1])
            if coordinate[2]:
                draft.attrs.update(offset=int(coordinate[2]), immediate=1)
        else:
            raise EncodeError(f"operand {part!r} is no coordinate, s#N, t#N or a1.x; correct it")
    if not draft.srcs:
        draft.attrs.setdefault("half", int(draft.dst.half))


def _read_mask(word: str) -> int:
    for mask, letters in _WRMASK.items():
        if letters == word:
            return mask
    raise EncodeError(f"write mask ({word}) is none; write letters of xyzw in order")


def _tokens(shape: _Shape) -> dict[str, Token]:
    return {
        "suffixes": Token(rf"(?:\.(?:{_SUFFIXES}))*", _suffixes, _read_suffixes),
        "operands": Token(r".+", lambda i: _operands(shape, i), lambda d, t: _read_operands(shape, d, t)),
        "width": Token(
            r"\d+",
            lambda i: str(2 << i["cluster"]),
            sets("cluster", lambda text: int(text).bit_length() - 2),
        ),
    }


_BASIC = {"wrmask": 15, "type": Ty.F32.value}
_DEFAULTS = {**_BASIC, "3d": 0, "array": 0, "s2en": 0, "o": 0}


def _form(
    name: str,
    mnemonic: str,
    shape: _Shape,
    fields: tuple[Field, ...],
    fixed: tuple[Fixed, ...],
    defaults: dict[str, int],
) -> Form:
    shuffle = not any(field.name == "base_hi" for field in fields)
    common = _SHUFFLE if shuffle else _COMMON
    layout = Layout((*common, *fields), (_CAT, _UNUSED, *fixed))
    slots = {"samp": 0} if shape.samp else {}
    slots |= {"tex": 0} if shape.tex else {}
    return Form(
        layout,
        lambda op, f, word: _lift(shape, op, f, word),
        lambda instr: _lower(shape, instr),
        ("sy", "jp"),
        mnemonic,
        ("{operands}",),
        _tokens(shape),
        {**(_BASIC if shuffle else _DEFAULTS), **slots, **defaults},
    )


_DERIVATIVES = Unsupported(
    "derivatives between neighbouring fibers, which Mesa lets compute have from A7xx on (tu_device.cc, "
    "computeDerivativeGroupLinear); without them nir_lower_tex makes the level of detail 0"
)
_CONVOLUTION = Unsupported("convolutions; Mesa's compiler builds none")
_POSITIONS = Unsupported("positions of samples: Mesa emits them for fragment shaders only (load_sample_pos)")
_ANOTHER_STAGE = Unsupported("Mesa makes it of samgq, in other stages than compute (ir3_legalize.c)")
_UNUSED_QUERY = Unsupported("a query whose results are not documented; Mesa's compiler builds none")


def _op(name: str, form: Form, effect: Effect) -> Op:
    return Op(name, 5, Latency.TEXTURE, Sync.SY, effect=effect, source="Mesa ir3-cat5.xml", layout=form)


def _texture(name: str, opcode: int, shape: _Shape, effect: Effect) -> Op:
    fields = (Field("base_hi", 19, 20), Field("sv", 50, 50), Field("p", 53, 53))
    fixed = (Fixed(18, 18), Fixed(54, 58, opcode))
    return _op(name, _form(name, name + "{suffixes}", shape, fields, fixed, {"sv": 0, "p": 0}), effect)


def _isam() -> Op:
    fields = (
        Field("inv_1d", 18, 18),
        Field("base_hi", 19, 20),
        Field("sv", 50, 50),
        Field("immediate", 53, 53),
    )
    defaults = {"inv_1d": 0, "sv": 0, "immediate": 0}
    form = _form("isam", "isam{suffixes}", _Shape(), fields, (Fixed(54, 58, 0),), defaults)
    return _op("isam", form, Sample())


_NO_TEXTURE = (Fixed(21, 31), Fixed(47, 52))


def _quad(name: str, variant: int, sources: int, mode: str) -> Op:
    fixed = (Fixed(18, 18), Fixed(19, 20, variant), *_NO_TEXTURE, Fixed(53, 58, 63))
    shape = _Shape(sources, samp=False, tex=False)
    form = _form(name, name, shape, (), fixed, {})
    effect = Shuffle(mode)
    return Op(name, 5, Latency.TEXTURE, Sync.SY, effect=effect, source="Mesa ir3-cat5.xml", layout=form)


def _broadcast() -> Op:
    shape = _Shape(samp=False, tex=False)
    fixed = (Fixed(18, 18), *_NO_TEXTURE, Fixed(53, 58, 62))
    form = _form("brcst.active", "brcst.active.w{width}", shape, (Field("cluster", 19, 20),), fixed, {})
    effect = Unsupported(
        "scans over clusters, which Mesa emits where has_getfiberid is set: not for the A630"
    )
    return _op("brcst.active", form, effect)


def _tcinv() -> Op:
    layout = Layout(
        (Field("jp", 59, 59), Field("sy", 60, 60)), (_CAT, Fixed(0, 53, care=False), Fixed(54, 58, 28))
    )

    def lift(op: Op, f: dict[str, int], word: int) -> Instr:
        return Instr(op, jp=bool(f["jp"]), sy=bool(f["sy"]))

    def lower(instr: Instr) -> dict[str, int]:
        return {"jp": int(instr.jp), "sy": int(instr.sy)}

    form = Form(layout, lift, lower, ("sy", "jp"), "tcinv", (), {})
    effect = Unsupported("texture cache control; Mesa's compiler builds none")
    return Op("tcinv", 5, Latency.NONE, effect=effect, source="Mesa ir3-cat5.xml", layout=form)


_TWO, _NO_SAMP = _Shape(2), _Shape(samp=False)
_BARE = _Shape(samp=False, tex=False)

OPS: tuple[Op, ...] = (
    _isam(),
    _texture("isaml", 1, _TWO, Sample(detail=Detail.SOURCE)),
    _texture("isamm", 2, _Shape(), Sample(multisampled=True)),
    _texture("sam", 3, _Shape(), Sample(filtered=True, detail=Detail.IMPLICIT)),
    _texture("samb", 4, _TWO, _DERIVATIVES),
    _texture("saml", 5, _TWO, Sample(filtered=True, detail=Detail.SOURCE)),
    _texture("samgq", 6, _Shape(), Sample(filtered=True, detail=Detail.GRADIENTS)),
    _texture("getlod", 7, _Shape(), _DERIVATIVES),
    _texture("conv", 8, _TWO, _CONVOLUTION),
    _texture("convm", 9, _TWO, _CONVOLUTION),
    _texture("getsize", 10, _NO_SAMP, Size()),
    _texture("getbuf", 11, _Shape(0, samp=False), Query((Fact.ELEMENTS, None, None, None))),
    _texture("getpos", 12, _NO_SAMP, _POSITIONS),
    _texture("getinfo", 13, _Shape(0, samp=False), Query((None, None, Fact.LEVELS, Fact.SAMPLES))),
    _texture("dsx", 14, _BARE, _DERIVATIVES),
    _texture("dsy", 15, _BARE, _DERIVATIVES),
    *(
        _texture(f"gather4{letter}", 16 + number, _Shape(), Sample(filtered=True, gather=number))
        for number, letter in enumerate("rgba")
    ),
    *(_texture(f"samgp{n}", 20 + n, _Shape(), _ANOTHER_STAGE) for n in range(4)),
    _texture("dsxpp.1", 24, _Shape(samp=False, tex=False, type=False), _DERIVATIVES),
    _texture("dsypp.1", 25, _Shape(samp=False, tex=False, type=False), _DERIVATIVES),
    _texture("rgetpos", 26, _BARE, _POSITIONS),
    _texture("rgetinfo", 27, _Shape(0, samp=False, tex=False), _UNUSED_QUERY),
    _tcinv(),
    _broadcast(),
    _quad("quad_shuffle.brcst", 0, 2, "quad_brcst"),
    _quad("quad_shuffle.horiz", 1, 1, "quad_horiz"),
    _quad("quad_shuffle.vert", 2, 1, "quad_vert"),
    _quad("quad_shuffle.diag", 3, 1, "quad_diag"),
)
