"""What all parts of the translator share: the function in the making and its straight-line segments."""

from __future__ import annotations

from pytest_qcom.isa.instruction import (
    Instr,
)
from pytest_qcom.isa.registers import ADDRESS, FIRST_SHARED
from pytest_qcom.virtual.executor import dataflow
from pytest_qcom.virtual.executor.layout import Fault, Header, Layout, Status, shared_offset
from pytest_qcom.virtual.executor.llvm_builder import LlvmBuilder, Value
from pytest_qcom.virtual.executor.segment import Segment, exists
from pytest_qcom.virtual.executor.target import Host


class Emission:
    """The kernel function in the making.

    Attributes:
        masked: fibers may go different ways, so only active lanes may be written.
        clean: half registers without subnormals at this point.
        segment: the open chunk loop, if there is one.
        barriers: instruction indices of the barriers so far.
    """

    def __init__(
        self, instrs: tuple[Instr, ...], entry: int, layout: Layout, demoted: bool, host: Host
    ) -> None:
        self.instrs, self.entry, self.layout, self.demoted = instrs, entry, layout, demoted
        self.blocks = dataflow.blocks(instrs, entry)
        merged = layout.merged
        self.masked = dataflow.diverges(instrs, self.blocks, entry, merged)
        self.flushed = {} if merged else dataflow.flushed_halves(instrs, self.blocks, entry)
        self.clean = 0
        self.builder = LlvmBuilder(host)
        self.segment: Segment | None = None
        self.barriers: list[int] = []
        self._segments = 0
        self.word = f"i{layout.wave}"

    def _call(self, result: str, name: str, *arguments: tuple[str, str]) -> str:
        return self.builder.call(result, name, *arguments)

    def _label(self, name: str) -> None:
        self.builder.lines.append(f"{name}:")

    def _at(self, offset: int) -> str:
        return self.builder.emit(f"getelementptr i8, ptr %w, i64 {offset}")

    def _set(self, offset: int, ty: str, value: str) -> None:
        self.builder.lines.append(f"  store {ty} {value}, ptr {self._at(offset)}, align {int(ty[1:]) // 8}")

    def _stop(self, kind: int, pc: int, status: int) -> None:
        """Ends the wave with a fault record."""
        self._set(Header.FAULT_KIND, "i32", str(kind))
        self._set(Header.FAULT_PC, "i32", str(pc))
        self.builder.lines.append(f"  ret i32 {status}")

    def _lanes(self, which: str) -> str:
        return self.builder.emit(f"load {self.word}, ptr %p.{which}, align 8")

    def _checked(self, name: str, *arguments: tuple[str, str]) -> None:
        """Calls a runtime function that may stop the wave."""
        status = self._call("i32", name, ("ptr", "%w"), *arguments)
        label = self.builder.name()[1:]
        bad = self.builder.emit(f"icmp ne i32 {status}, 0")
        self.builder.lines += [
            f"  br i1 {bad}, label %fault.{label}, label %ok.{label}",
            f"fault.{label}:",
            f"  ret i32 {Status.FAULT}",
            f"ok.{label}:",
        ]

    def _open(self) -> Segment:
        if self.segment is None:
            self._segments += 1
            name = f"s{self._segments}"
            self.segment = Segment(self.builder, self.layout, name, self.masked, self.demoted, self.clean)
            self.segment.prepare()
        return self.segment

    def _close(self) -> None:
        if self.segment is not None:
            self.segment.close()
            self.segment = None

    def _unsupported(self, index: int) -> None:
        """Ends the wave when it gets here; what follows is emitted but never reached."""
        self._close()
        self._stop(Fault.UNSUPPORTED, index, Status.FAULT)
        self._label(f"never.{self.builder.name()[1:]}")  # an instruction may get here for each repeat

    def _write(self, number: int, half: bool, value: Value) -> None:
        """Sets a register, whatever file it is of; see :meth:`Segment.write`."""
        if FIRST_SHARED <= number < ADDRESS:
            self._write_shared(number, value)
        else:
            self._open().write(number, half, value)

    def _write_shared(self, number: int, value: Value) -> None:
        """A shared register takes the value of the first active lane."""
        if not exists(number):
            return
        segment = self._open()
        wide = self.builder.resize(value, 32, False)
        segment.put(("s", Header.SCRATCH), wide)
        self._close()
        emit, word = self.builder.emit, self.word
        name = f"llvm.cttz.{word}"
        lane = self.builder.call(word, name, (word, self._lanes("active")), ("i1", "true"))
        lane64 = lane if word == "i64" else emit(f"trunc {word} {lane} to i64")
        row = emit(f"getelementptr i32, ptr {self._at(Header.SCRATCH)}, i64 {lane64}")
        scalar = emit(f"load i32, ptr {row}, align 4")
        self._set(shared_offset(number), "i32", scalar)
