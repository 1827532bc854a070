"""Control flow of a kernel: branches of the wave, and where fibers go that part from it."""

from __future__ import annotations

from pytest_qcom.isa.instruction import (
    Flow,
    Instr,
)
from pytest_qcom.virtual.executor import dataflow
from pytest_qcom.virtual.executor.emission import Emission
from pytest_qcom.virtual.executor.layout import Fault, Header, Status


class ControlFlow(Emission):
    """Ends of blocks. In programs that diverge, lanes without a turn are parked with the block they go to."""

    def _leave(self, index: int) -> None:
        """The end of a block."""
        instr, kind = self.instrs[index], dataflow.flow(self.instrs[index])
        if kind is Flow.END:
            self._end()
            return
        for target in dataflow.targets(self.instrs, index):
            if not 0 <= target <= len(self.instrs):
                self._stop(Fault.BRANCH, index, Status.FAULT)
                return
        goes = dataflow.targets(self.instrs, index)
        if len(goes) == 1:
            self._go(goes[0])
        elif kind in (Flow.ANY, Flow.ALL):
            self._vote(instr, kind, goes)
        else:
            self._branch(self._condition(instr, kind), goes)

    def _end(self) -> None:
        if not self.masked:
            self.builder.lines.append(f"  ret i32 {Status.DONE}")
            return
        emit, word = self.builder.emit, self.word
        off = emit(f"xor {word} {self._lanes('active')}, -1")
        left = emit(f"and {word} {self._lanes('live')}, {off}")
        none = emit(f"icmp eq {word} {left}, 0")
        name = self.builder.name()[1:]
        self.builder.lines += [
            f"  store {word} {left}, ptr %p.live, align 8",
            f"  br i1 {none}, label %done.{name}, label %dispatch",
            f"done.{name}:",
            f"  ret i32 {Status.DONE}",
        ]

    def _predicate(self, component: int, inverted: int) -> str:
        pointer = self._at(Header.PREDICATES + 16 * component)
        mask = self.builder.emit(f"load {self.word}, ptr {pointer}, align 8")
        return self.builder.emit(f"xor {self.word} {mask}, -1") if inverted else mask

    def _condition(self, instr: Instr, kind: Flow | None) -> str:
        """A bit a lane: those that take the branch."""
        if kind in (Flow.PREDT, Flow.PREDF):
            return self._predicate(0, int(kind is Flow.PREDT))  # to skip the part
        if kind is Flow.ELECT:
            active = self._lanes("active")
            return self.builder.emit(f"add {self.word} {active}, -1")  # clears the lowest bit of them
        first = self._predicate(instr["comp1"], instr["inv1"])
        if kind is Flow.BRANCH:
            return first
        second = self._predicate(instr["comp2"], instr["inv2"])
        return self.builder.emit(f"{'or' if kind is Flow.BRANCH_OR else 'and'} {self.word} {first}, {second}")

    def _vote(self, instr: Instr, kind: Flow, goes: tuple[int, ...]) -> None:
        """A branch of the whole wave."""
        emit, word = self.builder.emit, self.word
        every = kind is Flow.ALL
        mask = self._predicate(instr["comp1"], instr["inv1"] ^ int(every))
        hit = emit(f"and {word} {mask}, {self._lanes('active')}")
        taken = emit(f"icmp {'eq' if every else 'ne'} {word} {hit}, 0")
        self._two_ways(taken, goes)

    def _two_ways(self, taken: str, goes: tuple[int, ...]) -> None:
        name = self.builder.name()[1:]
        self.builder.lines.append(f"  br i1 {taken}, label %t.{name}, label %f.{name}")
        for label, target in zip("tf", goes, strict=True):
            self._label(f"{label}.{name}")
            self._go(target)

    def _branch(self, mask: str, goes: tuple[int, ...]) -> None:
        emit, word = self.builder.emit, self.word
        if not self.masked:  # all lanes agree; the first one always exists
            self._two_ways(emit(f"trunc {word} {mask} to i1"), goes)
            return
        active = self._lanes("active")
        taken = emit(f"and {word} {active}, {mask}")
        name = self.builder.name()[1:]
        none, all_ = emit(f"icmp eq {word} {taken}, 0"), emit(f"icmp eq {word} {taken}, {active}")
        self.builder.lines += [
            f"  br i1 {none}, label %f.{name}, label %some.{name}",
            f"some.{name}:",
            f"  br i1 {all_}, label %t.{name}, label %both.{name}",
            f"both.{name}:",
        ]
        rest = emit(f"xor {word} {active}, {taken}")
        for lanes, target in ((taken, goes[0]), (rest, goes[1])):
            self.builder.lines.append(f"  store {word} {lanes}, ptr %p.mask, align 8")
            self._call("void", "park", ("ptr", "%w"), ("i32", str(target)))
        self.builder.lines.append("  br label %dispatch")
        for label, target in zip("tf", goes, strict=True):
            self._label(f"{label}.{name}")
            self._go(target)

    def _go(self, target: int) -> None:
        """The active lanes go on at ``target``: at once if they are all there are."""
        if not self.masked:
            self.builder.lines.append(f"  br label %b{target}")
            return
        active, live = self._lanes("active"), self._lanes("live")
        alone = self.builder.emit(f"icmp eq {self.word} {active}, {live}")
        name = self.builder.name()[1:]
        self.builder.lines += [
            f"  br i1 {alone}, label %b{target}, label %wait.{name}",
            f"wait.{name}:",
            f"  store {self.word} {active}, ptr %p.mask, align 8",
        ]
        self._call("void", "park", ("ptr", "%w"), ("i32", str(target)))
        self.builder.lines.append("  br label %dispatch")

    def _runaway(self) -> list[str]:
        self.builder.lines = [f"b{len(self.instrs)}:"]
        self._stop(Fault.RUNAWAY, len(self.instrs), Status.HANG)
        return self.builder.lines

    def _dispatcher(self) -> list[str]:
        """Goes on with the live lanes that are at the lowest block."""
        self.builder.lines = ["dispatch:"]
        block = self._call("i32", "choose", ("ptr", "%w"))
        cases = " ".join(f"i32 {b.start}, label %b{b.start}" for b in self.blocks)
        self.builder.lines.append(f"  switch i32 {block}, label %b{len(self.instrs)} [ {cases} ]")
        return self.builder.lines
