"""Text and calls to programs.

Text is Mesa's, an instruction a line, with labels::

    (sy)(rpt3)mad.f16 hr0.x, hr4.x, (r)hr8.x, (r)hr0.x
    loop:
    cmps.s.eq p0.x, r1.x, 64
    br !p0.x, #loop
    end

:meth:`Assembler.emit` takes the same mnemonics and operands as arguments. Spelling of the typed ones::

    emit("mov.f32f32", "r0.x", "(1.5)")        emit("cov.f16f32", "(even)r0.x", "hr0.x")
    emit("mova", "a0.x", "hr0.x")              emit("mov.u32u32", "r0.x", 0x12345678)
    emit("cmps.s.eq", "p0.x", "r1.x", 300)     emit("br", "!p0.x", "loop")
    emit("isam.1d", "hr0.x", "r4.x", type="f16", samp=0, tex=0, wrmask=15)
    emit("isam.1d", "(f16)(xyzw)hr0.x", "r4.x", "s#0", "t#0")
    emit("quad_shuffle.brcst", "(u32)(x)r0.x", "r1.x", "r2.x")
    emit("ldg.f32", "r0.x", "r2.x", 4, offset=16)   emit("ldg.f32", "r0.x", "g[r2.x+16]", 4)
    emit("stg.f16", "r2.x", "hr0.x", 4)             emit("stg.f16", "g[r2.x]", "hr0.x", 4)
    emit("stib.b.typed.2d.f32.4.imm", "r0.x", "r4.x", 0)
    emit("shfl.xor.u32", "r0.x", "r1.x", 1)         emit("getfiberid.u32", "r0.x")
    emit("atomic.add.untyped.1d.u32.1.l", "r0.x", "l[r1.x]", "r2.x")
    emit("dp4acc.mixed.low", "r0.x", "r1.x", "r2.x", "r3.x")    emit("bar.g", sy=True)

An immediate follows the width of the instruction's registers, so ``5`` and ``h(5)`` are the same where the
sources are half. A trailing count may be left out and is then 1.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.decoder import decode
from pytest_qcom.isa.encoder import encode
from pytest_qcom.isa.form import TYPES, Draft
from pytest_qcom.isa.instruction import Instr, Op, Operand
from pytest_qcom.isa.legality import violations
from pytest_qcom.isa.operands import operand_text
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Reg
from pytest_qcom.isa.table import ALIASES, BY_NAME, OPS
from pytest_qcom.isa.text import text

Argument = str | int | Reg | Operand

_FLAG = re.compile(r"\((sy|ss|jp|sat|ul|eq|rpt\d+|nop\d+)\) *")
_LABEL = re.compile(r"#?([A-Za-z_]\w*)")
_LABEL_LINE = re.compile(r"([A-Za-z_]\w*):")
_NUMBER = re.compile(r"#?-?\d+")
_INSTR_FLAGS = ("rpt", "nop", "sy", "ss", "jp", "sat", "ul", "ei")


def _stems() -> dict[str, list[Op]]:
    """Entries by the first word of their mnemonics."""
    found: dict[str, list[Op]] = {}
    for op in OPS:
        found.setdefault(op.name.partition(".")[0], []).append(op)
    for alias, name in ALIASES.items():
        found.setdefault(alias, []).append(BY_NAME[name])
    return found


_BY_STEM = _stems()


@dataclass
class Assembler:
    """Collects instructions; labels may be used before they are set."""

    instrs: list[Instr] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    _jumps: dict[int, str] = field(default_factory=dict)

    def name(self, **registers: str) -> None:
        """Names for registers: after ``name(acc="hr8.x")`` an operand ``acc`` or ``(r)acc`` is ``hr8.x``.

        Raises:
            EncodeError: when a name is set to two registers.
        """
        for name, register in registers.items():
            if self.names.get(name, register) != register:
                raise EncodeError(f"name {name!r} is {self.names[name]} and {register}; choose another")
            self.names[name] = register

    def label(self, name: str) -> None:
        """``name`` for the next instruction.

        Raises:
            EncodeError: when the label exists.
        """
        if name in self.labels:
            raise EncodeError(f"label {name!r} is set twice, at {self.labels[name]} and {len(self.instrs)}")
        self.labels[name] = len(self.instrs)

    def emit(self, mnemonic: str, *operands: Argument, **attributes: int | bool | str) -> int:
        """Append an instruction.

        Args:
            mnemonic: Mesa's, with its type suffixes; flags in front, as in ``"(sy)nop"``, are fine.
            operands: destination first, then the sources, in the order of Mesa's text.
            attributes: ``rpt nop sy ss jp sat ul ei`` and fields: ``offset count tex samp wrmask type`` ...

        Returns:
            The index of the instruction.

        Raises:
            EncodeError: an unknown mnemonic, or an operand, range or modifier that cannot be encoded.
        """
        texts = [self._operand_text(operand) for operand in operands]
        self._append(mnemonic, texts, attributes)
        return len(self.instrs) - 1

    def append(self, instr: Instr) -> int:
        """Append an instruction that exists already; its branch offset stays as it is."""
        self.instrs.append(instr)
        return len(self.instrs) - 1

    def parse(self, text: str) -> Assembler:
        """Append the lines of ``text``; ``;`` and ``//`` start a comment.

        Raises:
            EncodeError: with the number of the line.
        """
        for number, line in enumerate(text.splitlines(), 1):
            body = re.split(r";|//", line)[0].strip()
            try:
                self._line(body)
            except EncodeError as error:
                raise EncodeError(f"line {number}: {error}", line=number, **error.facts) from error
        return self

    def _line(self, body: str) -> None:
        if match := _LABEL_LINE.fullmatch(body):
            self.label(match[1])
        elif body:
            flags, rest = _split_flags(body)
            mnemonic, _, operands = rest.partition(" ")
            texts = [part for part in _split(operands) if part]
            self._append(mnemonic, [self._operand_text(part) for part in texts], flags)

    def program(self) -> Program:
        """The program, labels resolved.

        Raises:
            EncodeError: when a label is not set, or an instruction is one that the hardware cannot execute.
        """
        instrs = list(self.instrs)
        for index, name in self._jumps.items():
            if name not in self.labels:
                raise EncodeError(
                    f"label {name!r}, used at instruction {index}, is not set; "
                    f"labels are {', '.join(sorted(self.labels)) or 'none'}"
                )
            instrs[index] = with_attributes(instrs[index], target=self.labels[name] - index)
        for index, instr in enumerate(instrs):
            for violation in violations(instr):
                raise EncodeError(f"instruction {index} ({text(instr)}) {violation}", index=index)
        return Program(tuple(instrs))

    def _operand_text(self, operand: Argument) -> str:
        if isinstance(operand, Operand):
            return operand_text(operand)
        spelled = str(operand).strip()
        return re.sub(r"(?<![\w.<#])[A-Za-z_]\w*(?![\w.>(])", lambda m: self.names.get(m[0], m[0]), spelled)

    def _append(self, mnemonic: str, operands: list[str], attributes: Mapping[str, int | bool | str]) -> None:
        flags, stem = _split_flags(mnemonic)
        operands, label = _take_label(stem, operands)
        instr = _assemble(stem, tuple(operands), tuple({**flags, **attributes}.items()))
        if label is not None:
            self._jumps[len(self.instrs)] = label
        self.instrs.append(instr)


def assemble(line: str) -> Instr:
    """The instruction of one line of Mesa's text.

    Raises:
        EncodeError: when the text is none.
    """
    (instr,) = Assembler().parse(line).instrs
    return instr


def with_attributes(instr: Instr, **changes: int) -> Instr:
    """``instr`` with other values of its category's attributes.

    Raises:
        EncodeError: when the result cannot be encoded.
    """
    attrs = tuple(sorted({**dict(instr.attrs), **changes}.items()))
    flags = {name: getattr(instr, name) for name in _INSTR_FLAGS}
    return decode(encode(Instr(instr.op, instr.dst, instr.srcs, attrs=attrs, **flags)))


def _split_flags(text: str) -> tuple[dict[str, int], str]:
    flags: dict[str, int] = {}
    while match := _FLAG.match(text):
        word = match[1]
        name = word.rstrip("0123456789")
        flags[name] = int(word[len(name) :] or 1)
        text = text[match.end() :]
    return flags, text


def _split(operands: str) -> list[str]:
    """At commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])", operands)]


def _take_label(mnemonic: str, operands: list[str]) -> tuple[list[str], str | None]:
    """A label in the place of a branch target, for later."""
    ops = _BY_STEM.get(mnemonic.partition(".")[0], [])
    if not operands or not any("target" in op.layout.tokens and op.layout.operands for op in ops):
        return operands, None
    last = operands[-1]
    if _NUMBER.fullmatch(last):
        return [*operands[:-1], f"#{last.removeprefix('#')}"], None
    match = _LABEL.fullmatch(last)
    return ([*operands[:-1], "#0"], match[1]) if match else (operands, None)


@functools.lru_cache(maxsize=1 << 16)  # kernels are unrolled: most of their lines are written often
def _assemble(
    mnemonic: str, operands: tuple[str, ...], attributes: tuple[tuple[str, int | bool | str], ...]
) -> Instr:
    candidates = _BY_STEM.get(mnemonic.partition(".")[0], [])
    values = {name: _value(name, value) for name, value in attributes}
    for op in candidates:
        draft = Draft(op)
        if op.layout.parse(draft, mnemonic, _complete(op, operands, values), values):
            break
    else:
        known = sorted({name for op in OPS for name in (op.name, *ALIASES)})
        near = get_close_matches(mnemonic, known, 3, 0.4)
        for op in candidates:
            if op.name == mnemonic:  # a part of the name, such as a type, is missing
                raise EncodeError(f"mnemonic {mnemonic!r} is incomplete; write {op.layout.spelling}")
        raise EncodeError(
            f"mnemonic {mnemonic!r} is unknown; did you mean {', '.join(near) or 'one of the table'}?"
        )
    for name, value in values.items():
        (draft.flags if name in _INSTR_FLAGS else draft.attrs)[name] = value
    return decode(encode(draft.instr()))


def _value(name: str, value: int | bool | str) -> int:
    if isinstance(value, str):
        codes = {word: code for code, word in TYPES.items()}
        if name != "type" or value not in codes:
            raise EncodeError(f"attribute {name}={value!r} is no number; types are {', '.join(codes)}")
        return codes[value]
    return int(value)


def _complete(op: Op, operands: Sequence[str], values: dict[str, int]) -> list[str]:
    """``operands`` with a trailing count of 1 that was left out or given as an attribute."""
    slots = op.layout.operands
    if len(operands) == len(slots) - 1 and slots[-1] == "{count}":
        return [*operands, str(values.pop("count", 1))]
    return list(operands)
