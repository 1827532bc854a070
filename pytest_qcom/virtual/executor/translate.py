"""A program as an LLVM function: ``i32 kernel(ptr wave state)``, which runs one wave to its next stop.

Arithmetic becomes chunk loops (:mod:`segment`); memory, images and lanes are calls of the runtime; control
flow stays control flow. Where fibers may go different ways, each has a place to go on (:mod:`scheduler`)
and all writes are masked; programs whose branches are the same for all fibers of a wave do without.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_qcom.isa.instruction import (
    ActiveMask,
    Atomic,
    Barrier,
    FiberId,
    Instr,
    Kind,
    Load,
    Preset,
    Query,
    Sample,
    Shuffle,
    Size,
    Store,
    Upload,
)
from pytest_qcom.isa.refusals import refusal
from pytest_qcom.isa.registers import FIRST_SHARED
from pytest_qcom.virtual.executor import dataflow
from pytest_qcom.virtual.executor.arithmetic import Arithmetic
from pytest_qcom.virtual.executor.control import ControlFlow
from pytest_qcom.virtual.executor.dataflow import HALF, Block
from pytest_qcom.virtual.executor.layout import Fault, Header, Layout, Status
from pytest_qcom.virtual.executor.surfaces import Surfaces
from pytest_qcom.virtual.executor.target import Host


@dataclass(frozen=True, slots=True)
class Translation:
    """A translated program.

    Attributes:
        text: LLVM IR of a module that defines ``kernel``.
        imports: the runtime functions that it calls.
        barriers: instruction indices of the barriers, in program order.
    """

    text: str
    layout: Layout
    imports: tuple[str, ...]
    barriers: tuple[int, ...]


def registers(instrs: tuple[Instr, ...], merged: bool) -> tuple[int, int]:
    """How many full and half scalars a program can touch, with a margin of one vec4."""
    full, half = 0, 0
    for instr in instrs:
        operands = (*instr.srcs, *((instr.dst,) if instr.dst else ()))
        if any(operand.kind is Kind.REL_GPR for operand in operands):
            return FIRST_SHARED, 0 if merged else FIRST_SHARED
        for number in (*dataflow.reads(instr, merged), *dataflow.writes(instr, merged)):
            if number >= HALF:
                half = max(half, number - HALF + 1)
            elif number < FIRST_SHARED:
                full = max(full, number + 1)
    return min(FIRST_SHARED, (full + 7) // 4 * 4), 0 if merged else min(FIRST_SHARED, (half + 7) // 4 * 4)


def translate(
    instrs: tuple[Instr, ...], entry: int, wave: int, merged: bool, demoted: bool, host: Host
) -> Translation:
    """IR of a program.

    Args:
        instrs: the instructions; running past the last one is a runaway.
        entry: index of the first to execute.
        wave: fibers of a wave.
        merged: half registers are parts of full ones.
        demoted: half constants are converted from 32 bits.
    """
    full, half = registers(instrs, merged)
    return Translator(instrs, entry, Layout(wave, full, half, merged), demoted, host).module()


class Translator(ControlFlow, Arithmetic, Surfaces):
    """Blocks and their instructions."""

    attributes = '"denormal-fp-math-f32"="preserve-sign,preserve-sign" nounwind'

    def module(self) -> Translation:
        """Translates all blocks."""
        heads = {s for block in self.blocks for s in block.successors if s <= block.start}
        for block in self.blocks:
            self._block(block, block.start in heads)
        body = self.builder.lines
        resumes = "".join(f" i32 {n}, label %r{index}" for n, index in enumerate(self.barriers, 1))
        head = [
            f"define i32 @kernel(ptr %w) {self.attributes} {{",
            "entry:",
            *self.prologue(body),
            f"  %p.resume = getelementptr i8, ptr %w, i64 {Header.RESUME}",
            "  %resume = load i32, ptr %p.resume, align 4",
            f"  switch i32 %resume, label %b{self.entry} [{resumes} ]",
        ]
        tail = [*self._runaway(), *(self._dispatcher() if self.masked else []), "}", ""]
        others = self.functions()
        text = "\n".join([*head, *body, *tail, *others, *sorted(self.builder.declarations)]) + "\n"
        names = (line.partition("@")[2].partition("(")[0] for line in self.builder.declarations)
        imports = tuple(sorted(name for name in names if not name.startswith("llvm.")))
        return Translation(text, self.layout, imports, tuple(self.barriers))

    def prologue(self, body: list[str]) -> list[str]:
        """What the start of a function defines for its ``body``."""
        return [
            *(["  %sfu = alloca [32 x float], align 64"] if any("%sfu" in line for line in body) else []),
            f"  %p.chunks = getelementptr i8, ptr %w, i64 {Header.CHUNKS}",
            "  %chunks.32 = load i32, ptr %p.chunks, align 4",
            "  %chunks = zext i32 %chunks.32 to i64",
            f"  %p.constants = getelementptr i8, ptr %w, i64 {Header.CONSTANTS}",
            "  %constants = load ptr, ptr %p.constants, align 8",
            f"  %p.active = getelementptr i8, ptr %w, i64 {Header.ACTIVE}",
            f"  %p.live = getelementptr i8, ptr %w, i64 {Header.LIVE}",
            f"  %p.mask = getelementptr i8, ptr %w, i64 {Header.MASK}",
        ]

    def functions(self) -> list[str]:
        """Further functions of the module."""
        return []

    def _block(self, block: Block, loop_head: bool) -> None:
        self._label(f"b{block.start}")
        self.builder.forget()
        self.clean = self.flushed.get(block.start, 0)
        self._count(block, loop_head)
        last = block.stop - 1
        for index in range(block.start, block.stop):
            instr = self.instrs[index]
            kind = dataflow.flow(instr)
            if kind is None:
                self._instr(index, instr)
                self.clean = dataflow.flush_step(instr, self.clean)
        self._close()
        effect = self.instrs[last].op.effect
        if not (isinstance(effect, Barrier) and effect.waits):
            self._leave(last)
        # a barrier has emitted its own continuation, which falls into the next block
        else:
            self._go(last + 1)

    def _count(self, block: Block, loop_head: bool) -> None:
        emit = self.builder.emit
        cost = sum(1 + i.rpt + i.nop for i in self.instrs[block.start : block.stop])
        number, at = self._at(Header.INSTRUCTIONS), self._at(Header.ISSUE)
        total = emit(f"add i64 {emit(f'load i64, ptr {number}, align 8')}, {block.stop - block.start}")
        issue = emit(f"add i64 {emit(f'load i64, ptr {at}, align 8')}, {cost}")
        self.builder.lines += [
            f"  store i64 {total}, ptr {number}, align 8",
            f"  store i64 {issue}, ptr {at}, align 8",
        ]
        if loop_head:
            limit = emit(f"load i64, ptr {self._at(Header.LIMIT)}, align 8")
            over = emit(f"icmp ugt i64 {issue}, {limit}")
            name = f"b{block.start}"
            self.builder.lines.append(f"  br i1 {over}, label %hang.{name}, label %go.{name}")
            self._label(f"hang.{name}")
            self._stop(Fault.BUDGET, block.start, Status.HANG)
            self._label(f"go.{name}")

    def _instr(self, index: int, instr: Instr) -> None:
        effect = instr.op.effect
        if instr.op.compute is not None:
            self._alu(index, instr)
        elif refusal(instr) is not None:
            self._unsupported(index)
        elif isinstance(effect, Barrier):
            if effect.waits:
                self._barrier(index)
        elif isinstance(effect, FiberId):
            self._fiber_id(instr)
        elif isinstance(effect, Preset):
            self._preset(index, instr)
        elif isinstance(effect, Upload):
            self._upload(index, instr)
        elif isinstance(effect, ActiveMask):
            self._active_mask(instr)
        elif isinstance(effect, Shuffle):
            self._shuffle(instr)
        elif isinstance(effect, Sample):
            self._sample(index, instr)
        elif isinstance(effect, Size):
            self._size(index, instr)
        elif isinstance(effect, Query):
            self._query(index, instr)
        elif isinstance(effect, Load | Store | Atomic):
            self._memory(index, instr, effect)

    def _barrier(self, index: int) -> None:
        self._close()
        self.barriers.append(index)
        self._set(Header.RESUME, "i32", str(len(self.barriers)))
        self._set(Header.FAULT_PC, "i32", str(index))
        self.builder.lines.append(f"  ret i32 {Status.BARRIER}")
        self._label(f"r{index}")
