"""A shader program: its instructions, its control-flow graph, its register footprint."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from pytest_qcom.errors import DecodeError, EncodeError
from pytest_qcom.isa import access
from pytest_qcom.isa.decoder import decode
from pytest_qcom.isa.encoder import encode
from pytest_qcom.isa.instruction import Flow, Instr, Kind, Operand
from pytest_qcom.isa.registers import ADDRESS, FIRST_SHARED
from pytest_qcom.isa.text import text

WORD = 8
"""Bytes of an instruction."""

PAD_UNIT = 16
"""Instructions to a multiple of which an image is padded (Mesa, ``ir3.c`` ``ir3_collect_info``)."""

PAD_LEAST = 4
"""The least number of nops behind ``end`` (the same)."""

_JUMPS = (Flow.JUMP, Flow.BRANCH, Flow.BRANCH_OR, Flow.BRANCH_AND, Flow.ANY, Flow.ALL, Flow.ELECT)


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions ``start`` to ``stop - 1`` without a jump inside; ``successors`` are starts of blocks."""

    start: int
    stop: int
    successors: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """Instructions up to the last ``end``; the padding behind it is not kept."""

    instrs: tuple[Instr, ...]

    @staticmethod
    def decode(image: bytes) -> Program:
        """The program in ``image``.

        Raises:
            DecodeError: with the byte offset, when a word is no instruction or the image is cut.
        """
        if not image or len(image) % WORD:
            raise DecodeError(
                f"program of {len(image)} bytes: an image is a whole number of {WORD}-byte instructions, "
                "at least one; it is truncated",
                offset=len(image) // WORD * WORD,
            )
        instrs = []
        for index, (word,) in enumerate(struct.iter_unpack("<Q", image)):
            try:
                instrs.append(decode(word))
            except DecodeError as error:
                raise DecodeError(
                    f"instruction {index} at byte {index * WORD:#x}: {error}",
                    offset=index * WORD,
                    **error.facts,
                ) from error
        return Program(tuple(_without_padding(instrs)))

    def encode(self) -> bytes:
        """The image, padded with nops as Mesa pads.

        Raises:
            EncodeError: for an instruction that cannot be encoded; the message says which.
        """
        words = []
        for index, instr in enumerate(self.instrs):
            try:
                words.append(encode(instr))
            except EncodeError as error:
                raise EncodeError(f"instruction {index}: {error}", index=index, **error.facts) from error
        length = -(-(len(words) + PAD_LEAST) // PAD_UNIT) * PAD_UNIT
        return struct.pack(f"<{length}Q", *words, *[0] * (length - len(words)))

    def text(self) -> str:
        """Mesa's text, a line an instruction; branch offsets are relative."""
        return "".join(text(instr) + "\n" for instr in self.instrs)

    def listing(self) -> str:
        """The text with instruction numbers and labels at branch targets, which the assembler reads back."""
        targets = {self.target(index) for index in range(len(self.instrs)) if self._jumps(index)}
        lines = []
        for index, instr in enumerate(self.instrs):
            if index in targets:
                lines.append(f"l{index}:")
            line = text(instr)
            if self._jumps(index):
                line = line.rpartition("#")[0] + f"#l{self.target(index)}"
            lines.append(line)
        return "\n".join(lines) + "\n"

    def target(self, index: int) -> int:
        """The instruction that the jump or branch at ``index`` goes to.

        Raises:
            DecodeError: when that is outside of the program.
        """
        target = index + self.instrs[index]["target"]
        if not 0 <= target < len(self.instrs):
            raise DecodeError(
                f"instruction {index} ({text(self.instrs[index])}) jumps to {target}, "
                f"outside of the program's {len(self.instrs)} instructions; the branch offset is wrong",
                offset=index * WORD,
                target=target,
            )
        return target

    def _jumps(self, index: int) -> bool:
        return self.instrs[index].op.effect in _JUMPS

    def blocks(self) -> tuple[Block, ...]:
        """The basic blocks in program order.

        Raises:
            DecodeError: when a branch leaves the program.
        """
        return self._blocks

    @cached_property
    def _blocks(self) -> tuple[Block, ...]:
        starts = {0}
        for index, instr in enumerate(self.instrs):
            if self._jumps(index):
                starts.add(self.target(index))
            if self._jumps(index) or instr.op.effect is Flow.END:
                starts.add(index + 1)
        edges = [*sorted(start for start in starts if start < len(self.instrs)), len(self.instrs)]
        return tuple(Block(start, stop, tuple(self._successors(stop - 1))) for start, stop in pairwise(edges))

    def _successors(self, index: int) -> Iterator[int]:
        effect = self.instrs[index].op.effect
        if self._jumps(index):
            yield self.target(index)
        following = effect not in (Flow.END, Flow.JUMP) and index + 1 < len(self.instrs)
        if following and not (self._jumps(index) and self.target(index) == index + 1):
            yield index + 1

    def footprint(self) -> tuple[int, int]:
        """(fregs, hregs): vec4 registers of the full and the half file that the code names.

        Shared, predicate and address registers do not count; relative accesses count their base offset.
        """
        highest = {False: -1, True: -1}
        for instr in self.instrs:
            for touched in (*access.reads(instr), *access.writes(instr)):
                if touched.reg.num < FIRST_SHARED:
                    highest[touched.reg.half] = max(highest[touched.reg.half], touched.reg.num)
            for operand in (*instr.srcs, *([instr.dst] if instr.dst is not None else [])):
                if operand.kind is Kind.REL_GPR and 0 <= operand.value < ADDRESS:
                    highest[operand.half] = max(highest[operand.half], operand.value)
        return highest[False] // 4 + 1, highest[True] // 4 + 1


def _without_padding(instrs: list[Instr]) -> list[Instr]:
    last = max((index for index, instr in enumerate(instrs) if instr.op.effect is Flow.END), default=None)
    return instrs if last is None else instrs[: last + 1]


def operands(instr: Instr) -> tuple[Operand, ...]:
    """Destination and sources of ``instr``."""
    return (*([instr.dst] if instr.dst is not None else []), *instr.srcs)
