"""The semantics of the table as formulas, for people: the same definitions, built as text."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qcom.isa.form import attributes
from pytest_qcom.isa.instruction import (
    ActiveMask,
    Atomic,
    Barrier,
    Detail,
    Effect,
    FiberId,
    Flow,
    Instr,
    Load,
    Op,
    Preset,
    Query,
    Sample,
    Shuffle,
    Size,
    Store,
    Unsupported,
    Upload,
)
from pytest_qcom.isa.operands import gpr
from pytest_qcom.isa.refusals import REFUSALS
from pytest_qcom.isa.registers import Ty
from pytest_qcom.isa.table import OPS

_RELATIONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


class FormulaBuilder:
    """The algebra of :class:`~pytest_qcom.isa.semantics.Builder` on strings."""

    def const(self, ty: Ty, value: int | float) -> str:
        return str(value)

    def add(self, a: str, b: str) -> str:
        return f"({a} + {b})"

    def sub(self, a: str, b: str) -> str:
        return f"({a} - {b})"

    def mul(self, a: str, b: str) -> str:
        return f"({a} * {b})"

    def and_(self, a: str, b: str) -> str:
        return f"({a} & {b})"

    def or_(self, a: str, b: str) -> str:
        return f"({a} | {b})"

    def xor(self, a: str, b: str) -> str:
        return f"({a} ^ {b})"

    def not_(self, a: str) -> str:
        return f"~{a}"

    def shl(self, a: str, amount: str) -> str:
        return f"({a} << {amount})"

    def lshr(self, a: str, amount: str) -> str:
        return f"({a} >> {amount})"

    def ashr(self, a: str, amount: str) -> str:
        return f"({a} >>s {amount})"

    def icmp(self, relation: str, a: str, b: str, signed: bool) -> str:
        return f"({a} {_RELATIONS[relation]}{'s' if signed else ''} {b})"

    def clz(self, a: str) -> str:
        return f"clz({a})"

    def popcount(self, a: str) -> str:
        return f"popcount({a})"

    def bitreverse(self, a: str) -> str:
        return f"bitreverse({a})"

    def resize(self, a: str, bits: int, signed: bool) -> str:
        return a  # widths are not shown

    def low(self, a: str, bits: int, signed: bool) -> str:
        return f"{'s' if signed else 'u'}{bits}({a})"

    def select(self, cond: str, a: str, b: str) -> str:
        return f"({cond} ? {a} : {b})"

    def nonzero(self, a: str) -> str:
        return f"({a} != 0)"

    def flush(self, a: str) -> str:
        return a

    def fadd(self, a: str, b: str) -> str:
        return f"({a} + {b})"

    def fmul(self, a: str, b: str) -> str:
        return f"round({a} * {b})"

    def fmin(self, a: str, b: str) -> str:
        return f"min({a}, {b})"

    def fmax(self, a: str, b: str) -> str:
        return f"max({a}, {b})"

    def fneg(self, a: str) -> str:
        return f"-{a}"

    def fabs(self, a: str) -> str:
        return f"|{a}|"

    def fcmp(self, relation: str, a: str, b: str) -> str:
        return f"({a} {_RELATIONS[relation]} {b})"

    def fround(self, mode: str, a: str) -> str:
        return f"{mode}({a})"

    def sfu(self, function: str, a: str) -> str:
        return f"{function}({a})"

    def fconvert(self, a: str, ty: Ty, rounding: str) -> str:
        return f"{ty.name.lower()}({a})"

    def to_int(self, a: str, bits: int, signed: bool, rounding: str) -> str:
        return f"int({a})"

    def from_int(self, a: str, ty: Ty, signed: bool, rounding: str) -> str:
        return f"{ty.name.lower()}({a})"

    def as_float(self, a: str) -> str:
        return a

    def as_int(self, a: str) -> str:
        return a


def formula(op: Op) -> str:
    """What ``op`` computes or does, in a line; sources are a, b and c in the order of the text.

    Compares are shown for their first condition; ``>>s`` and ``<s`` are signed, ``u24(a)`` is the low
    24 bits of ``a``.
    """
    if op.compute is None:
        return _effect(op.effect)
    if op.reads == "t":
        return "the source's bits, converted from its type to the destination's"
    sources = "abc"[: len(op.reads)]
    attrs = {"cond": 0, "mixed": 0, "high": 0}
    instr = Instr(op, gpr(0), tuple(gpr(index) for index in range(len(sources))), attrs=attributes(attrs))
    text = str(op.compute(FormulaBuilder(), list(sources), instr))
    return _bare(text)


def _bare(text: str) -> str:
    """Without parentheses around the whole."""
    depth = 0
    for index, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if not depth:
            return text[1:-1] if text[0] == "(" and index == len(text) - 1 else text
    return text


def _effect(effect: Effect | None) -> str:
    match effect:
        case Flow():
            return f"control flow: {effect.value}"
        case Load():
            return f"load from {effect.space.value} memory"
        case Store():
            return f"store to {effect.space.value} memory"
        case Atomic():
            return f"atomic {effect.operation} in {effect.space.value} memory, gives the old value"
        case Sample():
            return _sample(effect)
        case Size():
            return "width, height and depth of an image, elements of a buffer"
        case ActiveMask():
            return "mask of the active fibers"
        case Shuffle():
            names = ", ".join(name for _, name in effect.modes) or effect.mode
            return f"value of another fiber: {names}"
        case Barrier():
            return "barrier of the workgroup" if effect.waits else "order of memory accesses"
        case Preset():
            return "stores to the constant file"
        case Upload():
            return "copies vec4 of a uniform buffer to the constant file"
        case Query():
            facts = zip("xyzw", effect.facts, strict=True)
            told = [f"{fact.value} in {letter}" for letter, fact in facts if fact is not None]
            return f"what a texture's descriptor says: {', '.join(told)}"
        case FiberId():
            return "number of the fiber in its wave"
        case Unsupported():
            return f"not executed: {effect.reason}"
        case _:
            return ""


_DETAIL = {
    Detail.BASE: "",
    Detail.SOURCE: " and a level of detail",
    Detail.GRADIENTS: " and their derivatives",
    Detail.IMPLICIT: ", where derivatives do not count",
}


def _sample(effect: Sample) -> str:
    if effect.gather >= 0:
        return f"{'xyzw'[effect.gather]} of the four texels around coordinates"
    detail = " and the number of a sample" if effect.multisampled else _DETAIL[effect.detail]
    if effect.filtered:
        return f"texture at coordinates{detail}, as its sampler filters"
    return f"texel at integer coordinates{detail}"


def page() -> str:
    """The whole table as a Markdown page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Instructions of the A630"
    yield ""
    yield "Made from the instruction table by `python -m pytest_qcom.isa.formula`. Sources are a, b and c in"
    yield "the order of the text; `>>s` and `<s` are signed, `u24(a)` is the low 24 bits; every float"
    yield "result is rounded and flushed."
    for cat in range(8):
        yield from ("", f"## Category {cat}", "")
        yield "| instruction | does | latency, wait | confidence | source |"
        yield "| --- | --- | --- | --- | --- |"
        for op in (op for op in OPS if op.cat == cat):
            wait = f"{op.latency.value}, {op.sync.value}"
            cells = (f"`{op.name}`", formula(op), wait, op.confidence, op.source)
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield from ("", "## Forms that are not executed", "")
    yield "Instructions of the tables above that are, but not in these forms:"
    yield ""
    yield from (f"- {refusal.form}: {refusal.reason}." for refusal in REFUSALS)


if __name__ == "__main__":
    print(page(), end="")
