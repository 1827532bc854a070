"""A program as an LLVM function: ``i32 kernel(ptr wave state)``, which runs one wave to its next stop.

Arithmetic becomes chunk loops (:mod:`segment`); memory, images and lanes are calls of the runtime; control
flow stays control flow. Where fibers may go different ways, each has a place to go on (:mod:`scheduler`)
and all writes are masked; programs whose branches are the same for all fibers of a wave do without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_qcom.isa import access
from pytest_qcom.isa.instruction import (
    Atomic,
    Barrier,
    FiberId,
    Flow,
    Instr,
    Kind,
    Load,
    Operand,
    Sample,
    Shuffle,
    Space,
    Store,
    Unsupported,
)
from pytest_qcom.isa.registers import ADDRESS, FIRST_SHARED, Ty
from pytest_qcom.isa.semantics import evaluate
from pytest_qcom.virtual.executor import dataflow
from pytest_qcom.virtual.executor.dataflow import HALF, Block
from pytest_qcom.virtual.executor.lane_ops import ATOMICS, SHUFFLES
from pytest_qcom.virtual.executor.layout import CHUNK, Fault, Header, Layout, Status, shared_offset
from pytest_qcom.virtual.executor.llvm_builder import LlvmBuilder, Value, vector
from pytest_qcom.virtual.executor.segment import Segment
from pytest_qcom.virtual.executor.target import Host

_FILE = 192  # scalars of a register file
_RESULTS = Header.SCRATCH + 8 * Header.SCRATCH_ROW  # rows for results that do not go to plain registers


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
            return _FILE, 0 if merged else _FILE
        for number in (*dataflow.reads(instr, merged), *dataflow.writes(instr, merged)):
            if number >= HALF:
                half = max(half, number - HALF + 1)
            elif number < FIRST_SHARED:
                full = max(full, number + 1)
    return min(_FILE, (full + 7) // 4 * 4), 0 if merged else min(_FILE, (half + 7) // 4 * 4)


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
    return _Translator(instrs, entry, Layout(wave, full, half, merged), demoted, host).module()


class _Translator:
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

    # the module

    def module(self) -> Translation:
        """Translates all blocks."""
        heads = {s for block in self.blocks for s in block.successors if s <= block.start}
        for block in self.blocks:
            self._block(block, block.start in heads)
        body = self.builder.lines
        resumes = "".join(f" i32 {n}, label %r{index}" for n, index in enumerate(self.barriers, 1))
        head = [
            'define i32 @kernel(ptr %w) "denormal-fp-math-f32"="preserve-sign,preserve-sign" nounwind {',
            "entry:",
            *(["  %sfu = alloca [32 x float], align 64"] if any("%sfu" in line for line in body) else []),
            f"  %p.resume = getelementptr i8, ptr %w, i64 {Header.RESUME}",
            "  %resume = load i32, ptr %p.resume, align 4",
            f"  %p.chunks = getelementptr i8, ptr %w, i64 {Header.CHUNKS}",
            "  %chunks.32 = load i32, ptr %p.chunks, align 4",
            "  %chunks = zext i32 %chunks.32 to i64",
            f"  %p.constants = getelementptr i8, ptr %w, i64 {Header.CONSTANTS}",
            "  %constants = load ptr, ptr %p.constants, align 8",
            f"  %p.active = getelementptr i8, ptr %w, i64 {Header.ACTIVE}",
            f"  %p.live = getelementptr i8, ptr %w, i64 {Header.LIVE}",
            f"  %p.mask = getelementptr i8, ptr %w, i64 {Header.MASK}",
            f"  switch i32 %resume, label %b{self.entry} [{resumes} ]",
        ]
        tail = [*self._runaway(), *(self._dispatcher() if self.masked else []), "}", ""]
        text = "\n".join([*head, *body, *tail, *sorted(self.builder.declarations)]) + "\n"
        names = (line.partition("@")[2].partition("(")[0] for line in self.builder.declarations)
        imports = tuple(sorted(name for name in names if not name.startswith("llvm.")))
        return Translation(text, self.layout, imports, tuple(self.barriers))

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

    # blocks

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

    # control flow

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

    def _lanes(self, which: str) -> str:
        return self.builder.emit(f"load {self.word}, ptr %p.{which}, align 8")

    def _predicate(self, component: int, inverted: int) -> str:
        pointer = self._at(Header.PREDICATES + 16 * component)
        mask = self.builder.emit(f"load {self.word}, ptr {pointer}, align 8")
        return self.builder.emit(f"xor {self.word} {mask}, -1") if inverted else mask

    def _condition(self, instr: Instr, kind: Flow | None) -> str:
        """A bit a lane: those that take the branch."""
        if kind in (Flow.PREDT, Flow.PREDF):
            return self._predicate(0, int(kind is Flow.PREDT))  # to skip the part
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

    # instructions

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

    def _instr(self, index: int, instr: Instr) -> None:
        effect = instr.op.effect
        if instr.op.compute is not None:
            self._alu(index, instr)
        elif isinstance(effect, Unsupported):
            self._unsupported(index)
        elif isinstance(effect, Barrier):
            if effect.waits:
                self._barrier(index)
        elif isinstance(effect, FiberId):
            self._fiber_id(instr)
        elif isinstance(effect, Shuffle):
            self._shuffle(instr)
        elif isinstance(effect, Sample):
            self._sample(index, instr)
        elif isinstance(effect, Load | Store | Atomic):
            self._memory(index, instr, effect)

    def _unsupported(self, index: int) -> None:
        """Ends the wave when it gets here; what follows is emitted but never reached."""
        self._close()
        self._stop(Fault.UNSUPPORTED, index, Status.FAULT)
        self._label(f"never.{index}")

    def _alu(self, index: int, instr: Instr) -> None:
        if any(o.kind in (Kind.REL_GPR, Kind.REL_CONST) for o in (*instr.srcs, instr.dst) if o is not None):
            self._relative(index, instr)
            return
        segment = self._open()
        values = []
        count = access.elements(instr)
        parallel = access.parallel(instr)
        assert instr.dst is not None
        for element in range(count):
            value = evaluate(self.builder, instr, element, segment.read)
            number = access.destination(instr, element).value
            if FIRST_SHARED <= number < ADDRESS:
                self._write_shared(number, value)
                segment = self._open()
            elif parallel:
                values.append((number, value))
            else:
                segment.write(number, instr.dst.half, value)
        for number, value in values:
            segment.write(number, instr.dst.half, value)

    def _write_shared(self, number: int, value: Value) -> None:
        """A shared register takes the value of the first active lane."""
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

    def _relative(self, index: int, instr: Instr) -> None:
        """Operands that a0.x displaces: lane by lane through scratch rows, an element at a time."""
        assert instr.dst is not None
        for element in range(access.elements(instr)):
            rows: dict[Operand, Value] = {}
            places: dict[Operand, int] = {}
            self._close()
            for operand in instr.srcs:
                if operand.kind in (Kind.REL_GPR, Kind.REL_CONST) and operand not in places:
                    places[operand] = self._fetch_relative(index, operand, element, len(places))
            segment = self._open()
            for operand, offset in places.items():
                short = operand.half and not self._demotes(operand)
                rows[operand] = segment.get(("t" if short else "s", offset))

            def fetch(operand: Operand, step: int, ty: Ty, rows: dict[Operand, Value] = rows) -> Value:
                if operand not in rows:
                    return self._open().read(operand, step, ty)
                return self._open().demote(rows[operand], ty) if self._demotes(operand) else rows[operand]

            value = evaluate(self.builder, instr, element, fetch)
            if instr.dst.kind is not Kind.REL_GPR:
                segment.write(access.destination(instr, element).value, instr.dst.half, value)
                continue
            offset = Header.SCRATCH
            segment.put(("t" if instr.dst.half else "s", offset), value)
            self._close()
            self._move_relative(index, "put", instr.dst, element, offset)

    def _fetch_relative(self, index: int, operand: Operand, element: int, slot: int) -> int:
        offset = Header.SCRATCH + slot * Header.SCRATCH_ROW
        step = element if operand.repeat else 0
        if operand.kind is Kind.REL_GPR:
            self._move_relative(index, "get", operand, step, offset)
            return offset
        arguments = (("ptr", self._at(offset)), ("ptr", self._at(Header.ADDRESS)))
        bits = 16 if operand.half and not self.demoted else 32
        numbers = (("i32", str(operand.value + step)), ("i32", str(index)))
        self._checked(f"constant_{bits}", *arguments, *numbers)
        return offset

    def _demotes(self, operand: Operand) -> bool:
        return operand.kind is Kind.REL_CONST and operand.half and self.demoted

    def _move_relative(self, index: int, way: str, operand: Operand, element: int, offset: int) -> None:
        half = operand.half
        if half and self.layout.merged:
            self._unsupported(index)
            return
        file = self.layout.half_row(0) if half else self.layout.full_row(0)
        arguments = [("ptr", self._at(at)) for at in (offset, file, Header.ADDRESS)]
        numbers = [("i32", str(n)) for n in (operand.value + element, _FILE, index)]
        self._checked(f"{way}_{16 if half else 32}", *arguments, *numbers)

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

    def _barrier(self, index: int) -> None:
        self._close()
        self.barriers.append(index)
        self._set(Header.RESUME, "i32", str(len(self.barriers)))
        self._set(Header.FAULT_PC, "i32", str(index))
        self.builder.lines.append(f"  ret i32 {Status.BARRIER}")
        self._label(f"r{index}")

    def _fiber_id(self, instr: Instr) -> None:
        assert instr.dst is not None
        segment = self._open()
        numbers = ", ".join(f"i32 {lane}" for lane in range(CHUNK))
        first = self.builder.emit(f"mul i64 {segment.index}, {CHUNK}")
        first32 = self.builder.emit(f"trunc i64 {first} to i32")
        ty = vector("i32")
        single = self.builder.emit(f"insertelement {ty} poison, i32 {first32}, i64 0")
        base = self.builder.emit(f"shufflevector {ty} {single}, {ty} poison, {ty} zeroinitializer")
        lane = Value(self.builder.emit(f"add {ty} {base}, <{numbers}>"), "i32")
        half = instr.dst.half
        segment.write(instr.dst.value, half, self.builder.resize(lane, 16 if half else 32, False))

    # rows for the runtime

    def _plain(self, operand: Operand) -> bool:
        """Whether the operand's values lie in a row of the wave state as they are."""
        merged_half = operand.half and self.layout.merged
        return operand.kind is Kind.GPR and operand.value < FIRST_SHARED and not merged_half

    def _row(self, number: int, half: bool) -> int:
        return self.layout.half_row(number) if half else self.layout.full_row(number)

    def _source_rows(self, operand: Operand, count: int, slot: int, narrow: bool = False) -> int:
        """Offset of ``count`` consecutive rows with the operand's values; copied to scratch if need be.

        ``narrow`` keeps halves as rows of 16 bits; else rows are 32 bits wide.
        """
        if self._plain(operand) and operand.half == narrow:
            return self._row(operand.value, operand.half)
        segment = self._open()
        offset = Header.SCRATCH + slot * Header.SCRATCH_ROW
        bits, step = (16, 2) if narrow else (32, 4)
        for index in range(count):
            if operand.kind is Kind.IMM:
                value = self.builder.const(Ty.U32, operand.value if index == 0 else 0)
            elif operand.kind is Kind.CONST:
                value = segment.constant(operand.value + index, operand.half, Ty.U32)
            else:
                value = segment.register(operand.value + index, operand.half)
            value = self.builder.resize(value, bits, False)
            segment.put(("t" if narrow else "s", offset + index * step * self.layout.wave), value)
        return offset

    def _target_rows(self, operand: Operand) -> int:
        """Offset of the rows that the runtime shall write for a destination."""
        if self._plain(operand):
            return self._row(operand.value, operand.half)
        return _RESULTS

    def _collect(self, operand: Operand, components: list[int]) -> None:
        """Moves results from scratch to where they belong."""
        if self._plain(operand):
            return
        step = (2 if operand.half else 4) * self.layout.wave
        for component in components:
            segment = self._open()
            value = segment.get(("t" if operand.half else "s", _RESULTS + component * step))
            number = operand.value + component
            if FIRST_SHARED <= number < ADDRESS:
                self._write_shared(number, value)
            else:
                segment.write(number, operand.half, value)

    # memory

    def _memory(self, index: int, instr: Instr, effect: Load | Store | Atomic) -> None:
        if isinstance(effect, Atomic):
            self._atomic(index, instr, effect)
        elif effect.space is Space.IMAGE:
            self._image(index, instr, isinstance(effect, Load))
        elif effect.space is Space.UBO:
            self._unsupported(index)
        else:
            self._linear(index, instr, effect)

    def _linear(self, index: int, instr: Instr, effect: Load | Store) -> None:
        """Loads and stores of global, local and private memory."""
        load = isinstance(effect, Load)
        ty, count = instr.type, instr["count"]
        letter = {Space.GLOBAL: "g", Space.LOCAL: "l", Space.PRIVATE: "p"}[effect.space]
        name = f"{'ld' if load else 'st'}{letter}_{ty.bits}_{16 if ty.half else 32}"
        data = instr.dst if load else instr.srcs[-1]
        assert data is not None
        indexed = len(instr.srcs) - (not load) == 2
        address, offset = self._address(instr, effect.space, indexed)
        rows = self._target_rows(data) if load else self._source_rows(data, count, 2, data.half)
        self._close()
        numbers = (("i64", str(offset)), ("i32", str(count)), ("i32", str(index)))
        self._checked(name, ("ptr", self._at(rows)), ("ptr", self._at(address)), *numbers)
        if load:
            self._collect(data, list(range(count)))

    def _address(self, instr: Instr, space: Space, indexed: bool) -> tuple[int, int]:
        """Rows of the address, and the bytes to add to it."""
        wide = space is Space.GLOBAL
        if not indexed:
            return self._source_rows(instr.srcs[0], 2 if wide else 1, 0), instr.get("offset")
        segment, builder = self._open(), self.builder
        base, register = instr.srcs[0], instr.srcs[1]
        scaled = builder.shl(segment.register(register.value, False), builder.const(Ty.U32, instr["shift"]))
        scaled = builder.add(scaled, builder.const(Ty.U32, instr["offset"]))
        size = {8: 0, 16: 1, 32: 2}[instr.type.bits]
        scaled = builder.shl(scaled, builder.const(Ty.U32, size))
        low = segment.register(base.value, False)
        total = builder.add(low, scaled)
        carry = builder.icmp("lt", total, low, False)
        one, zero = builder.const(Ty.U32, 1), builder.const(Ty.U32, 0)
        high = builder.add(segment.register(base.value + 1, False), builder.select(carry, one, zero))
        segment.put(("s", Header.SCRATCH), total)
        segment.put(("s", Header.SCRATCH + 4 * self.layout.wave), high)
        return Header.SCRATCH, 0

    def _atomic(self, index: int, instr: Instr, effect: Atomic) -> None:
        if effect.space not in (Space.GLOBAL, Space.LOCAL) or instr.type.bits != 32:
            self._unsupported(index)
            return
        wide = effect.space is Space.GLOBAL
        operation = effect.operation
        if operation in ("min", "max") and not instr.type.signed:
            operation = f"u{operation}"
        address = self._source_rows(instr.srcs[0], 2 if wide else 1, 0)
        swap = operation == "cmpxchg"  # data is a pair: the new value, the one to compare with
        data = self._source_rows(instr.srcs[1], 2 if swap else 1, 2)
        assert instr.dst is not None
        target = self._target_rows(instr.dst)
        self._close()
        value, compare = data, data + (4 * self.layout.wave if swap else 0)
        pointers = [("ptr", self._at(at)) for at in (target, address)]
        operands = [("ptr", self._at(at)) for at in (value, compare)]
        numbers = (("i32", str(ATOMICS.index(operation))), ("i32", str(index)))
        name = f"atomic_{effect.space.value}"
        self._checked(name, *pointers, ("i64", "0"), *operands, *numbers)
        self._collect(instr.dst, [0])

    # images

    def _coordinates(self, operand: Operand, pair: bool) -> tuple[int, int]:
        """Offsets of the x and y rows."""
        if pair:
            rows = self._source_rows(operand, 2, 0)
            return rows, rows + 4 * self.layout.wave
        rows = self._source_rows(operand, 1, 0)
        zero = Header.SCRATCH + 2 * Header.SCRATCH_ROW
        self._open().put(("s", zero), self.builder.const(Ty.U32, 0))
        return rows, zero

    def _texels(
        self, index: int, name: str, rows: int, xy: tuple[int, int], slot: int, components: int
    ) -> None:
        self._close()
        pointers = [("ptr", self._at(at)) for at in (rows, *xy)]
        numbers = [("i32", str(n)) for n in (slot, components, index)]
        self._checked(name, *pointers, *numbers)

    def _sample(self, index: int, instr: Instr) -> None:
        if any(instr.get(flag) for flag in ("s2en", "3d", "array", "o")):
            self._unsupported(index)
            return
        assert instr.dst is not None
        mask = instr["wrmask"]
        xy = self._coordinates(instr.srcs[0], True)
        self._texels(index, f"isam_{_kind(instr.type)}", self._target_rows(instr.dst), xy, instr["tex"], mask)
        self._collect(instr.dst, [n for n in range(4) if mask >> n & 1])

    def _image(self, index: int, instr: Instr, load: bool) -> None:
        """ldib and stib with typed images."""
        if instr["mode"] or not instr["typed"] or instr["dims"] > 2 or instr.get("bindless"):
            self._unsupported(index)
            return
        count, kind = instr["count"], _kind(instr.type)
        xy = self._coordinates(instr.srcs[0], instr["dims"] == 2)
        if load:
            assert instr.dst is not None
            rows = self._target_rows(instr.dst)
            self._texels(index, f"ldib_{kind}", rows, xy, instr["slot"], (1 << count) - 1)
            self._collect(instr.dst, list(range(count)))
            return
        data = instr.srcs[1]
        rows = self._source_rows(data, count, 4, data.half)
        self._texels(index, f"stib_{kind}", rows, xy, instr["slot"], count)

    def _shuffle(self, instr: Instr) -> None:
        effect, value, dst = instr.op.effect, instr.srcs[0], instr.dst
        assert isinstance(effect, Shuffle) and dst is not None
        mode = effect.of(instr)
        operand = instr.srcs[1] if len(instr.srcs) > 1 else Operand(Kind.IMM, 0)
        bits = 16 if dst.half else 32
        for component in range(access.vector(instr)):
            if not instr.get("wrmask", 1) >> component & 1:
                continue
            into = replace(dst, value=dst.value + component)
            indices = self._source_rows(operand, 1, 0)
            rows = self._source_rows(replace(value, value=value.value + component), 1, 2, value.half)
            target = self._target_rows(into)
            self._close()
            pointers = [("ptr", self._at(at)) for at in (target, rows, indices)]
            self._call(
                "void", f"shuffle_{bits}", ("ptr", "%w"), *pointers, ("i32", str(SHUFFLES.index(mode)))
            )
            self._collect(into, [0])


def _kind(ty: Ty) -> str:
    """The runtime's name of a texel's register type."""
    if not ty.half:
        return "f32"
    return "f16" if ty is Ty.F16 else "i16"
