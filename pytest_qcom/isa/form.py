"""The form of a family of instructions: its bits, its text, and the way between both and an ``Instr``.

The text of a form is one template for printing and for parsing: flags, a mnemonic and operands, in which
``{name}`` is a :class:`Token`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.fields import Layout
from pytest_qcom.isa.instruction import Instr, Op, Operand
from pytest_qcom.isa.operands import operand_text, parse_operand, register_text
from pytest_qcom.isa.registers import Ty


@dataclass
class Draft:
    """An instruction under construction by the parser."""

    op: Op
    dst: Operand | None = None
    srcs: dict[int, Operand] = field(default_factory=dict)
    attrs: dict[str, int] = field(default_factory=dict)
    flags: dict[str, int] = field(default_factory=dict)

    def instr(self) -> Instr:
        """What was parsed, as it stands; encoding it is the check."""
        srcs = tuple(self.srcs[index] for index in sorted(self.srcs))
        flags = {name: value if name in ("rpt", "nop") else bool(value) for name, value in self.flags.items()}
        return Instr(self.op, self.dst, srcs, attrs=attributes(self.attrs), **flags)  # type: ignore[arg-type]


def attributes(values: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """``values`` in the order that makes equal instructions compare equal."""
    return tuple(sorted(values.items()))


@dataclass(frozen=True)
class Token:
    """A placeholder of a template: how it looks in text and what it sets."""

    pattern: str
    show: Callable[[Instr], str]
    read: Callable[[Draft, str], None]


@dataclass(frozen=True)
class Form:
    """Bits and text of a family.

    Attributes:
        layout: the word.
        lift: from field values (and the word, for messages) to an instruction.
        lower: back; it raises :class:`EncodeError` for what the word cannot hold.
        flags: names of the flags that are printed, in order.
        mnemonic: template of the mnemonic.
        operands: templates of the operands, printed with ``, `` between them.
        tokens: the placeholders.
        defaults: attributes that text need not state, given to the parser.
    """

    layout: Layout
    lift: Callable[[Op, dict[str, int], int], Instr]
    lower: Callable[[Instr], dict[str, int]]
    flags: tuple[str, ...]
    mnemonic: str
    operands: tuple[str, ...]
    tokens: Mapping[str, Token]
    defaults: Mapping[str, int] = field(default_factory=dict)

    def text(self, instr: Instr) -> str:
        """Mesa's text of ``instr``."""
        prefix = "".join(FLAG_TEXT[name](instr) for name in self.flags)
        operands = ", ".join(filter(None, (self._fill(slot, instr) for slot in self.operands)))
        return prefix + self._fill(self.mnemonic, instr) + (f" {operands}" if operands else "")

    def _fill(self, template: str, instr: Instr) -> str:
        return _PLACEHOLDER.sub(lambda match: self.tokens[match[1]].show(instr), template)

    @cached_property
    def _mnemonic(self) -> tuple[re.Pattern[str], list[str]]:
        return self._compile(self.mnemonic)

    @cached_property
    def _slots(self) -> list[tuple[re.Pattern[str], list[str]]]:
        return [self._compile(slot) for slot in self.operands]

    def _compile(self, template: str) -> tuple[re.Pattern[str], list[str]]:
        names: list[str] = []
        pattern = ""
        for index, part in enumerate(_PLACEHOLDER.split(template)):
            if index % 2:
                names.append(part)
                pattern += f"({self.tokens[part].pattern})"
            else:
                pattern += re.escape(part)
        return re.compile(pattern), names

    def parse(self, draft: Draft, mnemonic: str, operands: Sequence[str], values: Mapping[str, int]) -> bool:
        """Read ``operands`` into ``draft``, if ``mnemonic`` is one of this form.

        ``values`` are attributes known beforehand, which the text may override.

        Raises:
            EncodeError: when an operand does not fit its slot, or their number is wrong.
        """
        pattern, names = self._mnemonic
        match = pattern.fullmatch(mnemonic)
        if match is None:
            return False
        draft.attrs.update(self.defaults)
        draft.attrs.update({name: value for name, value in values.items() if name in self.defaults})
        self._read(draft, names, match)
        if self.operands == (REST,):
            operands = [", ".join(operands)] if operands else []
        if len(operands) != len(self.operands):
            raise EncodeError(
                f"{mnemonic} with {len(operands)} operands; it takes {len(self.operands)}: {self.usage}"
            )
        for (pattern, names), text in zip(self._slots, operands, strict=True):
            found = pattern.fullmatch(text)
            if found is None:
                raise EncodeError(f"{mnemonic}: operand {text!r} does not fit; write {self.usage}")
            self._read(draft, names, found)
        return True

    @property
    def spelling(self) -> str:
        """The mnemonic as it is written, choices in parentheses: ``stg.(f16|f32|...)``."""
        return self._mnemonic[0].pattern.replace("\\.", ".").replace("(?:", "(")

    @property
    def usage(self) -> str:
        """The operands by name, as in ``dst, src1, src2``."""
        return ", ".join(self.operands).translate({ord("{"): None, ord("}"): None}) or "none"

    def _read(self, draft: Draft, names: list[str], match: re.Match[str]) -> None:
        groups = iter(match.groups())
        for name in names:
            self.tokens[name].read(draft, next(groups))


REST = "{operands}"
"""An operand template that takes all operands as one text."""

_PLACEHOLDER = re.compile(r"\{(\w+)\}")

FLAG_TEXT: Mapping[str, Callable[[Instr], str]] = {
    "sy": lambda i: "(sy)" if i.sy else "",
    "ss": lambda i: "(ss)" if i.ss else "",
    "jp": lambda i: "(jp)" if i.jp else "",
    "sat": lambda i: "(sat)" if i.sat else "",
    "ul": lambda i: "(ul)" if i.ul else "",
    "eq": lambda i: "(eq)" if i.get("eq") else "",
    "rpt": lambda i: f"(rpt{i.rpt})" if i.rpt else "",
    "nop": lambda i: f"(nop{i.nop}) " if i.nop else "",
}
"""The flags before a mnemonic."""

# ---- tokens


def sets(name: str, value: Callable[[str], int]) -> Callable[[Draft, str], None]:
    """A reader that sets the attribute ``name``."""

    def read(draft: Draft, text: str) -> None:
        draft.attrs[name] = value(text)

    return read


def takes(index: int) -> Callable[[Draft, str], None]:
    """A reader of source ``index``."""

    def read(draft: Draft, text: str) -> None:
        draft.srcs[index] = parse_operand(text)

    return read


def number(name: str) -> Token:
    """The attribute ``name`` as a decimal number."""
    return Token(r"\d+", lambda i: str(i[name]), sets(name, int))


def choice(name: str, names: Mapping[int, str]) -> Token:
    """The attribute ``name`` by the words of ``names``; a value without a word as a number."""
    values = {word: value for value, word in names.items()}
    pattern = "|".join(re.escape(word) for word in sorted(values, key=len, reverse=True))
    if set(names) != set(range(len(names))):
        pattern += r"|\d+"  # a number without a word gets the message of the encoder
    return Token(
        pattern,
        lambda i: names.get(i[name], str(i[name])),
        sets(name, lambda text: values[text] if text in values else int(text)),
    )


def flag(name: str, word: str) -> Token:
    """``word`` where the attribute ``name`` is set."""
    return Token(
        f"(?:{re.escape(word)})?",
        lambda i: word if i.get(name) else "",
        sets(name, lambda text: int(bool(text))),
    )


TYPES = {ty.value: ty.name.lower() for ty in Ty}
TYPE = choice("type", TYPES)
ANY = r"[^,\[\]]+"


def source(index: int, *, zero: bool = False, repeat_under_nop: bool = True) -> Token:
    """Source ``index`` with its modifiers."""

    def show(instr: Instr) -> str:
        operand = instr.srcs[index]
        shown = None if repeat_under_nop or not instr.nop else False
        return operand_text(operand, shown, zero)

    return Token(ANY, show, takes(index))


def plain(index: int, *, half: bool = True) -> Token:
    """Source ``index`` as a register without modifiers; ``half``: with the ``h`` of its width."""

    def show(instr: Instr) -> str:
        operand = instr.srcs[index]
        return raw_register(operand.value) if not half else register_text(operand.value, operand.half)

    return Token(ANY, show, takes(index))


def raw_register(number: int) -> str:
    """Mesa's name where it does not know ``a0`` and ``p0``."""
    return f"r{number >> 2}.{'xyzw'[number & 3]}"


def destination(*, half: bool = True) -> Token:
    """The destination register; ``half``: with the ``h`` of its width."""

    def show(instr: Instr) -> str:
        assert instr.dst is not None
        return register_text(instr.dst.value, half and instr.dst.half)

    def read(draft: Draft, text: str) -> None:
        draft.dst = parse_operand(text)

    return Token(ANY, show, read)


def further(name: str) -> Token:
    """A further destination, kept in the attribute ``name``; as wide as the first."""

    def show(instr: Instr) -> str:
        assert instr.dst is not None
        return register_text(instr[name], instr.dst.half)

    return Token(ANY, show, sets(name, lambda text: parse_operand(text).value))


def offset(name: str = "offset") -> Token:
    """A byte offset with its sign, nothing when 0."""
    return Token(
        r"(?:[+-]\d+)?",
        lambda i: f"{i[name]:+d}" if i[name] else "",
        sets(name, lambda text: int(text or 0)),
    )


def either(index: int) -> Token:
    """Source ``index``: a full register or a small number (Mesa, ``ir3-cat6.xml`` ``#cat6-src``)."""
    pattern = r"h?r\d+\.[xyzw]|\d+|[ap]\d\.[xyzw]"

    def show(instr: Instr) -> str:
        operand = instr.srcs[index]
        return str(operand.value) if operand.kind.value == "imm" else raw_register(operand.value)

    return Token(pattern, show, takes(index))


def slot(name: str = "slot") -> Token:
    """A binding slot: a number, or a register where ``mode`` is not 0."""

    def show(instr: Instr) -> str:
        return raw_register(instr[name]) if instr["mode"] else str(instr[name])

    def read(draft: Draft, text: str) -> None:
        draft.attrs[name] = int(text) if text.isdigit() else parse_operand(text).value

    return Token(r"\d+|r\d+\.[xyzw]", show, read)
