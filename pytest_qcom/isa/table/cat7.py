"""Category 7: barriers, cache control, sleep (Mesa, ``ir3-cat7.xml``)."""

from __future__ import annotations

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.fields import Field, Fixed, Layout
from pytest_qcom.isa.form import Form, attributes, choice, flag
from pytest_qcom.isa.instruction import Barrier, Effect, Instr, Latency, Op, Unsupported

_FLAGS = (Field("ss", 44, 44), Field("jp", 59, 59), Field("sy", 60, 60))
_COMMON = (Fixed(61, 63, 7), Fixed(0, 43, care=False))
_PRINTED = ("sy", "ss", "jp")
_ATTRS = ("g", "l", "r", "w", "all", "long")


def key(word: int) -> tuple[int, ...]:
    """OPC."""
    return (7, word >> 55 & 15)


def _lift(op: Op, f: dict[str, int], word: int) -> Instr:
    attrs = attributes({name: f[name] for name in _ATTRS if name in f})
    return Instr(op, ss=bool(f["ss"]), jp=bool(f["jp"]), sy=bool(f["sy"]), attrs=attrs)


def _lower(instr: Instr) -> dict[str, int]:
    if instr.dst or instr.srcs or instr.rpt or instr.nop or instr.sat or instr.ul or instr.ei:
        raise EncodeError(
            f"{instr.op.name} takes no operands and none of (rptN)(nopN)(sat)(ul)(ei); drop them"
        )
    return {**dict(instr.attrs), "ss": int(instr.ss), "jp": int(instr.jp), "sy": int(instr.sy)}


_TOKENS = {
    **{name: flag(name, f".{name}") for name in "glrw"},
    "all": choice("all", {0: ".shr", 1: ".all"}),
    "long": choice("long", {0: ".s", 1: ".l"}),
}


def _op(name: str, fields: tuple[Field, ...], fixed: tuple[Fixed, ...], mnemonic: str, effect: Effect) -> Op:
    layout = Layout((*_FLAGS, *fields), (*_COMMON, *fixed))
    form = Form(layout, _lift, _lower, _PRINTED, mnemonic, (), _TOKENS)
    return Op(name, 7, Latency.NONE, effect=effect, source="Mesa ir3-cat7.xml", layout=form)


def _barrier(name: str, opcode: int, effect: Effect) -> Op:
    fields = (Field("w", 51, 51), Field("r", 52, 52), Field("l", 53, 53), Field("g", 54, 54))
    fixed = (Fixed(55, 58, opcode), Fixed(45, 48, care=False), Fixed(49, 49, 1), Fixed(50, 50, care=False))
    return _op(name, fields, fixed, name + "{g}{l}{r}{w}", effect)


def _cache(name: str, opcode: int) -> Op:
    fixed = (Fixed(55, 58, opcode), Fixed(45, 50, care=False), Fixed(52, 52), Fixed(53, 54, care=False))
    effect = Unsupported(
        "data cache control by the shader: its scope is not documented; Mesa's compiler builds none"
    )
    return _op(name, (Field("all", 51, 51),), fixed, name + "{all}", effect)


OPS: tuple[Op, ...] = (
    _barrier("bar", 0, Barrier(waits=True)),
    _barrier("fence", 1, Barrier(waits=False)),
    _op(
        "sleep",
        (Field("long", 51, 51),),
        (Fixed(55, 58, 2), Fixed(45, 50, care=False), Fixed(52, 54, care=False)),
        "sleep{long}",
        Unsupported("how long it sleeps is not documented; Mesa's compiler builds none"),
    ),
    _op(
        "icinv",
        (),
        (Fixed(55, 58, 3), Fixed(45, 54, care=False)),
        "icinv",
        Unsupported("instruction cache control by the shader; Mesa's compiler builds none"),
    ),
    _cache("dccln", 4),
    _cache("dcinv", 5),
    _cache("dcflu", 6),
)
