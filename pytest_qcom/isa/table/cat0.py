"""Category 0: flow control (Mesa, ``ir3-cat0.xml``)."""

from __future__ import annotations

from dataclasses import replace

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.fields import Field, Fixed, Layout
from pytest_qcom.isa.form import Draft, Form, Token, attributes, number, sets
from pytest_qcom.isa.instruction import Flow, Instr, Latency, Op, Unsupported
from pytest_qcom.isa.registers import COMPONENTS

_FLAGS = (
    Field("rpt", 40, 42),
    Field("ss", 44, 44),
    Field("eq", 48, 48),
    Field("jp", 59, 59),
    Field("sy", 60, 60),
)
_TARGET = Field("target", 0, 31, signed=True)
_FIRST = (Field("inv1", 52, 52), Field("comp1", 53, 54))
_SECOND = (Field("inv2", 45, 45), Field("comp2", 46, 47))
_ATTRS = ("eq", "target", "inv1", "comp1", "inv2", "comp2", "index", "width")
_CAT = Fixed(61, 63, 0)


def key(word: int) -> tuple[int, ...]:
    """What tells cat0 instructions apart: OPC, OPC_HI, and BRTYPE of branches."""
    opcode, high = word >> 55 & 15, word >> 49 & 1
    return (0, opcode, high, word >> 37 & 7 if (opcode, high) == (1, 0) else 0)


def _lift(op: Op, f: dict[str, int], word: int) -> Instr:
    attrs = attributes({name: f[name] for name in _ATTRS if name in f})
    return Instr(op, rpt=f["rpt"], ss=bool(f["ss"]), jp=bool(f["jp"]), sy=bool(f["sy"]), attrs=attrs)


def _lower(instr: Instr) -> dict[str, int]:
    if instr.dst or instr.srcs or instr.sat or instr.nop or instr.ul or instr.ei:
        raise EncodeError(f"{instr.op.name} takes no operands and none of (sat)(nop)(ul)(ei); drop them")
    return {**dict(instr.attrs), "rpt": instr.rpt, "ss": instr.ss, "jp": instr.jp, "sy": instr.sy}


def _predicate(n: int) -> Token:
    inverted, component = f"inv{n}", f"comp{n}"

    def read(draft: Draft, text: str) -> None:
        draft.attrs[inverted] = int(text.startswith("!"))
        draft.attrs[component] = COMPONENTS.index(text[-1])

    return Token(
        r"!?p0\.[xyzw]", lambda i: f"{'!' if i[inverted] else ''}p0.{COMPONENTS[i[component]]}", read
    )


_TOKENS = {
    "target": Token(r"#-?\d+", lambda i: f"#{i['target']}", sets("target", lambda text: int(text[1:]))),
    "p1": _predicate(1),
    "p2": _predicate(2),
}
_DEFAULTS = {"eq": 0}


def _form(
    name: str,
    opcode: int,
    high: int,
    fields: tuple[Field, ...],
    fixed: tuple[Fixed, ...],
    flags: str,
    *slots: str,
) -> Form:
    layout = Layout(
        (*_FLAGS, _TARGET, *fields),
        (
            _CAT,
            Fixed(55, 58, opcode),
            Fixed(49, 49, high),
            Fixed(43, 43, care=False),
            Fixed(50, 51, care=False),
            *fixed,
        ),
    )
    defaults = _DEFAULTS if "{target}" in slots else {**_DEFAULTS, "target": 0}
    return Form(layout, _lift, _lower, tuple(flags.split()), name, slots, _TOKENS, defaults)


def _simple(name: str, opcode: int, high: int, effect: Flow | Unsupported) -> Op:
    fixed = (Fixed(32, 36, care=False), Fixed(37, 39), Fixed(45, 47), Fixed(52, 54))
    form = _form(name, opcode, high, (), fixed, "sy ss eq jp rpt")
    return Op(name, 0, Latency.NONE, effect=effect, source="Mesa ir3-cat0.xml", layout=form)


def _offset(name: str, opcode: int, high: int, effect: Flow | Unsupported) -> Op:
    fixed = (Fixed(32, 39, care=False), Fixed(45, 47, care=False), Fixed(52, 54, care=False))
    form = _form(name, opcode, high, (), fixed, "sy ss jp", "{target}")
    return Op(name, 0, Latency.NONE, effect=effect, source="Mesa ir3-cat0.xml", layout=form)


def _branch(name: str, kind: int, effect: Flow, two: bool = False) -> Op:
    fixed = (Fixed(32, 36, care=False), Fixed(37, 39, kind))
    if two:
        slots = ("{p1}", "{p2}", "{target}")
        form = _form(name, 1, 0, _FIRST + _SECOND, fixed, "sy ss eq jp", *slots)
    else:
        form = _form(
            name, 1, 0, _FIRST, (*fixed, Fixed(45, 47, care=False)), "sy ss eq jp", "{p1}", "{target}"
        )
    return Op(name, 0, Latency.NONE, effect=effect, source="Mesa ir3-cat0.xml", layout=form)


def _indexed() -> Op:
    fixed = (Fixed(37, 39, 3), Fixed(45, 47, care=False), Fixed(52, 54, care=False))
    base = _form("brac", 1, 0, (Field("index", 32, 36),), fixed, "sy ss eq jp", "{target}")
    form = replace(base, mnemonic="brac.{index}", tokens={**_TOKENS, "index": number("index")})
    effect = Unsupported(
        "branches on a constant flag that compute launches do not set; Mesa's compiler builds none"
    )
    return Op("brac", 0, Latency.NONE, effect=effect, source="Mesa ir3-cat0.xml", layout=form)


_DISCARD = Unsupported("ends fibers of fragment shaders; Mesa's compiler makes it of their discard only")


def _kill() -> Op:
    fixed = (Fixed(32, 36), Fixed(37, 39), Fixed(45, 47))
    form = _form("kill", 5, 0, _FIRST, fixed, "sy ss eq jp", "{p1}")
    return Op("kill", 0, Latency.NONE, effect=_DISCARD, source="Mesa ir3-cat0.xml", layout=form)


def _getlast() -> Op:
    fixed = (Fixed(32, 39, care=False), Fixed(45, 47, care=False))
    base = _form("getlast", 4, 1, (Field("width", 52, 54),), fixed, "sy ss jp", "{target}")
    width = Token(
        r"\d+",
        lambda i: str(2 << i["width"]),
        sets("width", lambda text: int(text).bit_length() - 2),
    )

    form = replace(base, mnemonic="getlast.w{width}", tokens={**_TOKENS, "width": width})
    effect = Unsupported(
        "scans over clusters, which Mesa emits where has_getfiberid is set: not for the A630"
    )
    return Op("getlast", 0, Latency.NONE, effect=effect, source="Mesa ir3-cat0.xml", layout=form)


_GRAPHICS = Unsupported("an instruction of geometry shaders; Mesa's compiler builds none for compute")
_STAGES = Unsupported(
    "hands over between the stages of graphics pipelines (ir3_compiler_nir.c, emit_instructions)"
)
_CALLS = Unsupported("Mesa emits no calls on a6xx and the call stack is not documented")

# A preamble, from shps to shpe, computes what is the same for all fibers and leaves it in the constant file.
# A device runs it once, before all else; here each wave runs it, and comes to the same constants. tinygrad
# turns preambles off (``has_preamble``), though Mesa has them on for the A630.

OPS: tuple[Op, ...] = (
    _simple("nop", 0, 0, Flow.NEXT),
    _simple("end", 6, 0, Flow.END),
    _simple("ret", 4, 0, _CALLS),
    _simple("emit", 7, 0, _GRAPHICS),
    _simple("cut", 8, 0, _GRAPHICS),
    _simple("chmask", 9, 0, _STAGES),
    _simple("chsh", 10, 0, _STAGES),
    _simple("flow_rev", 11, 0, Unsupported("its meaning is not documented; Mesa's compiler builds none")),
    _simple("shpe", 8, 1, Flow.NEXT),
    _simple("predt", 13, 1, Flow.PREDT),
    _simple("predf", 14, 1, Flow.PREDF),
    _simple("prede", 15, 1, Flow.PREDE),
    _kill(),
    _offset("jump", 2, 0, Flow.JUMP),
    _offset("call", 3, 0, _CALLS),
    _offset("bkt", 0, 1, Unsupported("its meaning is not documented; Mesa's compiler builds none")),
    _offset("getone", 5, 1, Flow.ELECT),
    _offset("shps", 7, 1, Flow.NEXT),
    _getlast(),
    _branch("br", 0, Flow.BRANCH),
    _branch("brao", 1, Flow.BRANCH_OR, two=True),
    _branch("braa", 2, Flow.BRANCH_AND, two=True),
    _indexed(),
    _branch("bany", 4, Flow.ANY),
    _branch("ball", 5, Flow.ALL),
)
