"""How operands stand in a word and in text: the source encodings that categories share."""

from __future__ import annotations

import re
from dataclasses import replace

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.fields import bad_bits
from pytest_qcom.isa.instruction import Kind, Operand
from pytest_qcom.isa.registers import ADDRESS, COMPONENTS, NO_REGISTER, PREDICATE
from pytest_qcom.isa.semantics import FLOAT_TABLE

GPR_LIMIT = 256
CONST_LIMIT = 2048


def gpr(number: int, half: bool = False, repeat: bool = False) -> Operand:
    """A plain register operand."""
    return Operand(Kind.GPR, number, half, repeat=repeat)


# ---- 16-bit sources of cat2 and cat4 (Mesa, ir3-common.xml #multisrc)


def unpack_source(bits: int, half: bool, repeat: bool, word: int, lo: int, owner: str) -> Operand:
    """The operand in the 16 ``bits`` that stand at ``lo`` of ``word``."""
    neg, abs_ = bool(bits & 0x4000), bool(bits & 0x8000)
    form, low = bits >> 11 & 7, bits & 0x7FF
    if form == 0 and not low & 0x300:
        return Operand(Kind.GPR, low & 0xFF, half, neg, abs_, repeat, bool(low & 0x400))
    if form == 2:
        return Operand(Kind.CONST, low, half, neg, abs_, repeat)
    if form == 4:
        return Operand(Kind.IMM, low - 0x800 if low & 0x400 else low, half, neg, abs_, repeat)
    if form == 5 and low & 0x3FF < len(FLOAT_TABLE):
        if bool(low & 0x400) != half:
            raise bad_bits(word, lo + 10, lo + 10, owner, "a float immediate of the other width")
        return Operand(Kind.FLUT, low & 0x3FF, half, neg, abs_, repeat)
    if form == 1:
        return _relative(low, half, neg, abs_, repeat)
    raise bad_bits(word, lo, lo + 15, owner, "no source operand")


def pack_source(operand: Operand, half: bool, owner: str) -> int:
    """The 16 bits of ``operand`` without its (r) flag.

    Raises:
        EncodeError: when the value is out of range: cat2 immediates are -1024 to 1023.
    """
    bits = 0x4000 * operand.neg | 0x8000 * operand.abs
    value, kind = operand.value, operand.kind
    if kind is Kind.GPR:
        return bits | 0x400 * operand.last | _ranged(value, 0, GPR_LIMIT - 1, "register", owner)
    if kind is Kind.CONST:
        return bits | 0x1000 | _ranged(value, 0, CONST_LIMIT - 1, "constant", owner)
    if kind is Kind.IMM:
        return bits | 0x2000 | _ranged(value, -1024, 1023, "immediate", owner) & 0x7FF
    if kind is Kind.FLUT:
        return bits | 0x2800 | 0x400 * half | _ranged(value, 0, len(FLOAT_TABLE) - 1, "table index", owner)
    return bits | 0x0800 | _pack_relative(operand, owner)


# ---- 13-bit sources of cat3 (Mesa, ir3-cat3.xml #cat3-src); neg and (r) stand elsewhere in the word


def unpack_source3(bits: int, half: bool, immediate: bool, word: int, lo: int, owner: str) -> Operand:
    """The operand in the 13 ``bits`` at ``lo``; ``immediate``: bit 12 means a number, not a constant."""
    if bits & 0x1000:
        if immediate:
            return Operand(Kind.IMM, bits & 0xFFF, half)
        if not bits & 0x800:
            return Operand(Kind.CONST, bits & 0x7FF, half)
    elif bits & 0x800:
        return _relative(bits & 0x7FF, half)
    elif not bits & 0x300:
        return Operand(Kind.GPR, bits & 0xFF, half, last=bool(bits & 0x400))
    raise bad_bits(word, lo, lo + 12, owner, "no source operand")


def pack_source3(operand: Operand, immediate: bool, owner: str) -> int:
    """The 13 bits of ``operand``, its flags apart."""
    if operand.abs:
        raise EncodeError(f"{owner}: source {operand_text(operand)} has (abs), which cat3 lacks; drop it")
    if operand.kind is Kind.GPR:
        return 0x400 * operand.last | _ranged(operand.value, 0, GPR_LIMIT - 1, "register", owner)
    if operand.kind is Kind.CONST and not immediate:
        return 0x1000 | _ranged(operand.value, 0, CONST_LIMIT - 1, "constant", owner)
    if operand.kind is Kind.IMM and immediate:
        return 0x1000 | _ranged(operand.value, 0, 0xFFF, "immediate", owner)
    if operand.kind in (Kind.REL_GPR, Kind.REL_CONST):
        return 0x800 | _pack_relative(operand, owner)
    wanted = "a register or a number" if immediate else "a register or a constant"
    raise EncodeError(f"{owner}: source {operand_text(operand)} cannot stand here; use {wanted}")


def _relative(bits: int, half: bool, neg: bool = False, abs_: bool = False, repeat: bool = False) -> Operand:
    kind = Kind.REL_CONST if bits & 0x400 else Kind.REL_GPR
    offset = bits & 0x3FF
    return Operand(kind, offset - 0x400 if offset & 0x200 else offset, half, neg, abs_, repeat)


def _pack_relative(operand: Operand, owner: str) -> int:
    offset = _ranged(operand.value, -512, 511, "relative offset", owner) & 0x3FF
    return 0x400 * (operand.kind is Kind.REL_CONST) | offset


def _ranged(value: int, low: int, high: int, what: str, owner: str) -> int:
    if not low <= value <= high:
        raise EncodeError(
            f"{owner}: {what} is {value}, the encoding holds {low} to {high}; choose a value in range",
            value=value,
            low=low,
            high=high,
        )
    return value


# ---- text


def register_text(number: int, half: bool = False) -> str:
    """Mesa's name of register ``number`` as an operand: ``a0`` and ``p0`` keep the ``h`` of their width."""
    index, component = divmod(number, 4)
    stem = {ADDRESS // 4: "a0", PREDICATE // 4: "p0"}.get(index, f"r{index}")
    return f"{'h' if half else ''}{stem}.{COMPONENTS[component]}"


def operand_text(operand: Operand, repeat: bool | None = None, zero: bool = False) -> str:
    """``operand`` as cat2 to cat4 print it.

    Args:
        repeat: overrides the (r) flag, which is not printed where its bits mean (nopN).
        zero: print a relative offset of 0 too, as cat3 does.
    """
    absneg = ("", "(neg)", "(abs)", "(absneg)")[operand.neg + 2 * operand.abs]
    prefix = absneg + ("(r)" if (operand.repeat if repeat is None else repeat) else "")
    h = "h" if operand.half else ""
    if operand.kind is Kind.GPR:
        last = "(last)" if operand.last else ""
        # cat3 (which prints a zero offset) puts (last) behind the other flags
        return (prefix + last if zero else last + prefix) + register_text(operand.value, operand.half)
    if operand.kind is Kind.CONST:
        return f"{prefix}{h}c{operand.value >> 2}.{COMPONENTS[operand.value & 3]}"
    if operand.kind is Kind.IMM:
        return f"{prefix}h({operand.value})" if operand.half else f"{prefix}{operand.value}"
    if operand.kind is Kind.FLUT:
        return f"{prefix}{h}({FLOAT_TABLE[operand.value].name})"
    file = "c" if operand.kind is Kind.REL_CONST else "r"
    offset = f" + {operand.value}" if operand.value or zero else ""
    return f"{prefix}{h}{file}<a0.x{offset}>"


_FLAGS = re.compile(r"\((neg|abs|absneg|r|last)\)")
_REGISTER = re.compile(r"(h?)(r|c|a|p)(\d+)\.([xyzw])")
_RELATIVE = re.compile(r"(h?)(r|c)<a0\.x(?: *\+ *(-?\d+)| *- *(\d+))?>")
_NUMBER = re.compile(r"h?\(?(-?(?:0x[0-9a-fA-F]+|\d+))\)?")
_TABLE = {entry.name: index for index, entry in enumerate(FLOAT_TABLE)}


def parse_operand(text: str) -> Operand:
    """The operand that ``text`` spells, in Mesa's way or with a plain number for a half immediate.

    Raises:
        EncodeError: when it is no operand.
    """
    rest, flags = text.strip(), set()
    while match := _FLAGS.match(rest):
        flags.add(match[1])
        rest = rest[match.end() :]
    found = _plain_operand(rest)
    if found is None:
        raise EncodeError(
            f"operand {text!r} is none of r0.x, hr0.x, c0.x, hc0.x, p0.x, a0.x, r<a0.x + 1>, 5, (1.0); "
            "correct it"
        )
    both = "absneg" in flags
    return replace(
        found,
        neg=both or "neg" in flags,
        abs=both or "abs" in flags,
        repeat="r" in flags,
        last="last" in flags,
    )


def _plain_operand(text: str) -> Operand | None:
    if match := _REGISTER.fullmatch(text):
        return _parse_register(match)
    if match := _RELATIVE.fullmatch(text):
        offset = int(match[3] or 0) - int(match[4] or 0)
        return Operand(Kind.REL_CONST if match[2] == "c" else Kind.REL_GPR, offset, match[1] == "h")
    half = text.startswith("h")
    name = text.removeprefix("h")
    if name.startswith("(") and name.endswith(")") and name[1:-1] in _TABLE:
        return Operand(Kind.FLUT, _TABLE[name[1:-1]], half)
    if match := _NUMBER.fullmatch(text):
        return Operand(Kind.IMM, int(match[1], 16 if "x" in match[1] else 10), half)
    return None


def _parse_register(match: re.Match[str]) -> Operand:
    half, file, index, component = match[1] == "h", match[2], int(match[3]), COMPONENTS.index(match[4])
    if file == "c":
        return Operand(
            Kind.CONST, _ranged(4 * index + component, 0, CONST_LIMIT - 1, "constant", match[0]), half
        )
    if file == "a":  # a1.x is encoded as a0.y
        number = _ranged(ADDRESS + index + component, ADDRESS, PREDICATE - 1, "address register", match[0])
        return gpr(number, half)
    if file == "p":
        return gpr(
            _ranged(PREDICATE + 4 * index + component, PREDICATE, NO_REGISTER - 1, "predicate", match[0]),
            half,
        )
    return gpr(_ranged(4 * index + component, 0, GPR_LIMIT - 1, "register", match[0]), half)
