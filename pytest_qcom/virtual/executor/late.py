"""A program as it runs where nothing waits by itself: results that are late, sources that are read late.

The translation of a program whose waits are too short. Each wave has a clock in issue slots and a queue of
what it has issued (:mod:`~pytest_qcom.virtual.executor.late_queue`):

* An asynchronous instruction (categories 4 to 6) reads its sources some slots after its issue, once those
  before it have been served, and its result is in the register its latency later. (ss) and (sy) put the clock
  forward to when what they wait for is done. Until then readers get the old value, and a late result replaces
  what was written meanwhile.
* A result of the ALU is in its register four cycles after its issue, a predicate or address seven.
* What lies beyond the declared footprint is another wave's: to write there hangs the processor, since among
  what is overwritten are counters and addresses.
* A barrier opens when all sources that were issued before it have been read, so that stores are done.

Latencies are those of a wave that runs alone. A register that nothing wrote holds what the previous wave of
this launch left, zero in the first one: the waves of a launch run one after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

from pytest_qcom.chip import A630
from pytest_qcom.isa import access
from pytest_qcom.isa.instruction import (
    Access,
    Barrier,
    FiberId,
    Flow,
    Instr,
    Kind,
    Latency,
    Operand,
    Preset,
    Store,
    Sync,
    Unsupported,
    Upload,
)
from pytest_qcom.isa.registers import ADDRESS, FIRST_SHARED, PREDICATE, Ty
from pytest_qcom.isa.semantics import evaluate
from pytest_qcom.virtual.executor import dataflow, late_queue
from pytest_qcom.virtual.executor.dataflow import Block
from pytest_qcom.virtual.executor.layout import Fault, Header, Layout, Status
from pytest_qcom.virtual.executor.llvm_builder import Value
from pytest_qcom.virtual.executor.target import Host
from pytest_qcom.virtual.executor.translate import Translation, Translator, registers

SOURCE_LEAD = 0
"""Slots from the issue of an asynchronous instruction to the reading of its sources. Fitted to published
verdicts: a coordinate four slots before its sample is seen, one three slots before it is not. Mesa asks for
six, which is legal for every consumer of its class."""
TEXTURE_LOOP = 90
"""Cycles from a sample's coordinates to its texel in the loop of a matrix product, where not everything is in
the nearest cache: measured as 80 to 100 on a device, by what a (sy) behind samples costs."""
_VEC4_FIBERS = 8
"""Fibers a cycle whose vec4 the store pipe takes [assumed: 64 bytes a cycle]."""
_SHADOW = 4  # scalars of a result

Move = tuple[Operand, list[int], int]
"""A result that is on its way: destination, its components, the shadow rows."""


def translate_late(
    instrs: tuple[Instr, ...],
    entry: int,
    wave: int,
    merged: bool,
    demoted: bool,
    footprint: tuple[int, int],
    host: Host,
) -> Translation:
    """IR of a program with its late results; arguments as for :func:`~.translate.translate`.

    Args:
        footprint: declared fregs and hregs.
    """
    full, half = registers(instrs, merged)
    rows = sum(_SHADOW if _asynchronous(i) else access.elements(i) for i in instrs)
    size = late_queue.ENTRY * late_queue.CAPACITY + 4 * wave * rows
    layout = Layout(wave, full, half, merged, size)
    return _Late(instrs, entry, layout, demoted, host, footprint).module()


def _asynchronous(instr: Instr) -> bool:
    """Whether results come by a queue; not where a0.x displaces an operand, which is read at once."""
    effect = instr.op.effect
    if instr.op.cat == 4 and _relative(instr):
        return False
    return instr.op.cat in (4, 5, 6) and not isinstance(effect, Unsupported | FiberId | Preset | Upload)


class _Late(Translator):
    """Every instruction ends its chunk loop where something late may matter."""

    def __init__(
        self,
        instrs: tuple[Instr, ...],
        entry: int,
        layout: Layout,
        demoted: bool,
        host: Host,
        footprint: tuple[int, int],
    ) -> None:
        super().__init__(instrs, entry, layout, demoted, host)
        self.flushed = {}
        self.footprint = footprint
        self._shadows = layout.late + late_queue.ENTRY * late_queue.CAPACITY
        self._moves: list[Move] | None = None
        self._functions: list[str] = []
        self._reads: list[int] = []
        self._commits: list[int] = []
        self._slots = 0
        self._operations = 0
        self._late, self._registers, results = _late_results(instrs, self.blocks, layout.merged)
        self._tracked = self._registers | results

    # the module

    def functions(self) -> list[str]:
        queue = late_queue.functions(
            self.layout.late, self.layout.wave, self._reads, self._commits, SOURCE_LEAD
        )
        self.builder.declarations.add("declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)")
        return [*queue, *self._functions]

    def _function(self, name: str, result: str, body: Callable[[], None]) -> None:
        """Emits a function of the wave; ``body`` must not leave a chunk loop open to anybody else."""
        self._close()
        kept, self.builder.lines = self.builder.lines, []
        self.builder.forget()
        body()
        self._close()
        lines, self.builder.lines = self.builder.lines, kept
        self.builder.forget()
        head = [f"define internal {result} @{name}(ptr %w) {self.attributes} {{", "entry:"]
        end = "ret void" if result == "void" else "ret i32 0"
        self._functions += [*head, *self.prologue(lines), *lines, f"  {end}", "}"]

    def _late_call(self, name: str, *arguments: int) -> None:
        """Calls a function of the queue, which may stop the wave."""
        text = "".join(f", i64 {value}" for value in arguments)
        status = self.builder.emit(f"call i32 @{name}(ptr %w{text})")
        label = self.builder.name()[1:]
        bad = self.builder.emit(f"icmp ne i32 {status}, 0")
        self.builder.lines += [
            f"  br i1 {bad}, label %fault.{label}, label %ok.{label}",
            f"fault.{label}:",
            f"  ret i32 {status}",
            f"ok.{label}:",
        ]

    def _tick(self) -> None:
        """Ends the chunk loop and brings the clock up to date."""
        self._close()
        if self._slots:
            at = self._at(Header.LATE_CLOCK)
            clock = self.builder.emit(f"load i64, ptr {at}, align 8")
            now = self.builder.emit(f"add i64 {clock}, {self._slots}")
            self.builder.lines.append(f"  store i64 {now}, ptr {at}, align 8")
            self._slots = 0

    # blocks

    def _block(self, block: Block, loop_head: bool) -> None:
        self._label(f"b{block.start}")
        self.builder.forget()
        self.clean = 0
        self._slots = 0
        self._count(block, loop_head)
        last = block.stop - 1
        for index in range(block.start, block.stop):
            instr = self.instrs[index]
            self._settle(instr)
            self._instr(index, instr)
            self._slots += 1 + instr.rpt + instr.nop
        if dataflow.flow(self.instrs[last]) is Flow.END:
            self._tick()
            self._late_call("late_advance", late_queue.NEVER - 1)
        self._tick()
        effect = self.instrs[last].op.effect
        if isinstance(effect, Barrier) and effect.waits:
            self._go(last + 1)
        else:
            self._leave(last)

    def _settle(self, instr: Instr) -> None:
        """What has happened by the time an instruction reads: its flags, then what is due."""
        flags = late_queue.SS * instr.ss | late_queue.SY * instr.sy
        if flags:
            self._tick()
            self._late_call("late_sync", flags)
        merged = self.layout.merged
        touched = {*dataflow.reads(instr, merged), *dataflow.writes(instr, merged)}
        relative = any(o.kind is Kind.REL_GPR for o in (*instr.srcs, instr.dst) if o is not None)
        if _asynchronous(instr):  # reads nothing now
            return
        if relative or not touched.isdisjoint(self._tracked):
            self._tick()
            self._late_call("late_poll", 0)

    def _instr(self, index: int, instr: Instr) -> None:
        if dataflow.flow(instr) is not None:
            return
        if self._beyond(instr):
            self._close()
            self._stop(Fault.FOOTPRINT, index, Status.HANG)
            self._label(f"never.{index}")
        elif isinstance(instr.op.effect, FiberId):
            self._close()
            self._stop(Fault.LACKING, index, Status.HANG)
            self._label(f"never.{index}")
        elif _asynchronous(instr):
            self._issue(index, instr)
        elif index in self._late:
            self._delay(instr)
        else:
            super()._instr(index, instr)

    def _barrier(self, index: int) -> None:
        """Stores before a barrier are done when it opens: nothing else puts local memory in order."""
        self._tick()
        self._late_call("late_sync", late_queue.SOURCES)
        super()._barrier(index)

    def _beyond(self, instr: Instr) -> bool:
        """Whether an instruction writes a register that is not the wave's."""
        fregs, hregs = self.footprint
        for written in access.writes(instr):
            number = written.reg.num
            if number >= FIRST_SHARED:
                continue
            if written.reg.half and not self.layout.merged:
                if number >= 4 * hregs:
                    return True
            elif (number >> 1 if written.reg.half else number) >= 4 * fregs:
                return True
        return False

    # asynchronous instructions

    def _issue(self, index: int, instr: Instr) -> None:
        operation = self._operations
        self._operations += 1
        moves: list[Move] = []
        self._moves = moves

        def read() -> None:
            if instr.op.compute is not None:
                self._special(instr)
            else:
                Translator._instr(self, index, instr)

        def commit() -> None:
            self._arrive(moves)

        self._function(f"late_read.{operation}", "i32", read)
        self._moves = None
        self._function(f"late_commit.{operation}", "void", commit)
        self._reads.append(operation)
        self._commits.append(operation)
        self._tick()
        self._late_call("late_finish", operation)
        kind = {Sync.SS: late_queue.SS, Sync.SY: late_queue.SY}.get(instr.op.sync, 0)
        service, latency = _times(instr, self.layout.wave)
        self._late_call("late_push", operation, 0, 0, service, latency, kind)

    def _special(self, instr: Instr) -> None:
        """A special function: results go aside, not to their register."""
        for element in range(access.elements(instr)):
            segment = self._open()
            value = evaluate(self.builder, instr, element, segment.read)
            self._aside(access.destination(instr, element), value)

    def _aside(self, operand: Operand, value: Value) -> None:
        """Keeps a result in a shadow row until it arrives."""
        half = operand.half and operand.value < PREDICATE
        if value.element == "i1":
            one, zero = self.builder.const(Ty.U32, 1), self.builder.const(Ty.U32, 0)
            value = self.builder.select(value, one, zero)
            half = False
        offset = self._shadow(1)
        self._open().put(("t" if half else "s", offset), value)
        assert self._moves is not None
        self._moves.append((operand, [0], offset))

    def _shadow(self, rows: int) -> int:
        offset = self._shadows
        self._shadows += rows * 4 * self.layout.wave
        return offset

    def _target_rows(self, operand: Operand, count: int) -> int:
        return self._shadow(count)

    def _collect(self, operand: Operand, components: list[int], count: int) -> None:
        assert self._moves is not None
        self._moves.append((operand, components, self._shadows - count * 4 * self.layout.wave))

    def _arrive(self, moves: list[Move]) -> None:
        """Results reach their registers."""
        for operand, components, offset in moves:
            half = operand.half and operand.value < PREDICATE
            step = (2 if half else 4) * self.layout.wave
            for component in components:
                segment = self._open()
                value = segment.get(("t" if half else "s", offset + component * step))
                self._write(operand.value + component, operand.half, value)

    # the ALU

    def _alu(self, index: int, instr: Instr) -> None:
        """Repeats read one after the other, so what is due may differ between them."""
        tracked = not {*dataflow.reads(instr, self.layout.merged)}.isdisjoint(self._registers)
        plain = instr.dst is not None and instr.dst.kind is Kind.GPR and instr.dst.value < FIRST_SHARED
        if not (tracked and plain) or access.parallel(instr) or _relative(instr):
            super()._alu(index, instr)
            return
        for element in range(access.elements(instr)):
            self._element(instr, element)
            segment = self._open()
            value = evaluate(self.builder, instr, element, segment.read)
            destination = access.destination(instr, element)
            segment.write(destination.value, destination.half, value)

    def _element(self, instr: Instr, element: int) -> None:
        """Lets arrive what has by the time a repeat reads; the addend of a MAD is read two slots later.

        Where an addend may be late, the factors are taken to be read with it.
        """
        ahead = element
        if any(
            read.operand == instr.op.late_source
            and read.operand >= 0
            and dataflow.key(read.reg.num, read.reg.half, self.layout.merged) in self._registers
            for read in access.reads(instr)
        ):
            ahead += A630.delays.mad_addend.value
        if ahead:
            self._tick()
            self._late_call("late_poll", ahead)

    def _delay(self, instr: Instr) -> None:
        """An ALU instruction whose result may be wanted before it is there."""
        assert instr.dst is not None
        first = self._operations
        count = access.elements(instr)
        self._tick()
        for operation in range(first, first + count):
            self._late_call("late_finish", operation)
        batches = []
        own: dict[tuple[int, bool], int] = {}  # a repeat reads what an earlier one of its instruction wrote
        parallel = access.parallel(instr)
        for element in range(count):
            if not parallel:
                self._element(instr, element)
            moves: list[Move] = []
            self._moves = moves
            value = evaluate(self.builder, instr, element, self._fetch({} if parallel else own))
            destination = access.destination(instr, element)
            self._aside(destination, value)
            own[destination.value, destination.half] = moves[0][2]
            batches.append(moves)
        self._moves = None
        self._close()
        wait = A630.delays.alu_to_alu.value
        if instr.dst.value >= ADDRESS:
            wait = A630.delays.predicate.value
        if instr.dst.value == ADDRESS + 1:
            # for asynchronous reads only, which are first where times are equal
            wait = A630.delays.address.value - 1
        for element, moves in enumerate(batches):
            operation = self._operations
            self._operations += 1
            self._function(f"late_commit.{operation}", "void", functools.partial(self._arrive, moves))
            self._commits.append(operation)
            self._late_call("late_push", operation, 1, element + 1 + wait, 0, 0, 0)

    def _fetch(self, own: Mapping[tuple[int, bool], int]) -> Callable[[Operand, int, Ty], Value]:
        """Reads operands, from shadow rows where ``own`` has the register."""

        def fetch(operand: Operand, element: int, ty: Ty) -> Value:
            segment = self._open()
            place = operand.value + (element if operand.repeat else 0), operand.half
            if operand.kind is Kind.GPR and place in own and place[0] < ADDRESS:
                return segment.get(("t" if operand.half else "s", own[place]))
            return segment.read(operand, element, ty)

        return fetch


def _relative(instr: Instr) -> bool:
    operands = (*instr.srcs, *((instr.dst,) if instr.dst else ()))
    return any(operand.kind in (Kind.REL_GPR, Kind.REL_CONST) for operand in operands)


def _times(instr: Instr, wave: int) -> tuple[int, int]:
    """Slots for which an instruction keeps its queue, and from its reading to its result."""
    times, wide = A630.latencies, wave == 128
    count = access.vector(instr) if instr.op.cat in (5, 6) else 1
    if instr.op.latency is Latency.TEXTURE:
        table = times.texture128 if wide else times.texture
        cached = table.value[min(max(count, 1), 4) - 1]
        return wave // A630.rates.texels.value, max(cached, TEXTURE_LOOP)
    if instr.op.latency is Latency.SFU:
        return wave // A630.rates.sfu_lanes.value, times.sfu.value[0]
    if instr.op.latency is Latency.LOCAL:
        return wave // A630.rates.texels.value, times.local.value
    base, step = (times.memory128 if wide else times.memory).value
    latency = 0 if isinstance(instr.op.effect, Store) else base + step * count
    return wave // _VEC4_FIBERS, latency


def _late_results(
    instrs: tuple[Instr, ...], blocks: list[Block], merged: bool
) -> tuple[set[int], set[int], set[int]]:
    """ALU instructions whose latency may matter, what they write, what asynchronous ones read and write.

    Late are those whose result is wanted within its latency, or not known to be wanted later because their
    block ends, those that write what an asynchronous instruction of their block reads, and all that write the
    same registers.
    """
    tracked: set[int] = set()
    late: set[int] = set()
    for instr in instrs:
        if _asynchronous(instr):
            tracked.update(dataflow.writes(instr, merged), dataflow.reads(instr, merged))
    for block in blocks:
        sources = {
            number
            for instr in instrs[block.start : block.stop]
            if _asynchronous(instr)
            for number in dataflow.reads(instr, merged)
        }
        for index in range(block.start, block.stop):
            written = dataflow.writes(instrs[index], merged)
            if _delayable(instrs[index]) and (
                not sources.isdisjoint(written) or _wanted(instrs, block, index, set(written), merged)
            ):
                late.add(index)
    registers_: set[int] = set()
    while True:
        for index in late:
            registers_.update(dataflow.writes(instrs[index], merged))
        more = {
            index
            for index, instr in enumerate(instrs)
            if _delayable(instr) and not registers_.isdisjoint(dataflow.writes(instr, merged))
        }
        if more <= late:
            return late, registers_, tracked
        late |= more


def _delayable(instr: Instr) -> bool:
    """ALU instructions with a result of their own in the wave's registers."""
    if instr.op.cat not in (1, 2, 3) or instr.dst is None or _relative(instr) or instr.op.compute is None:
        return False
    return instr.dst.kind is Kind.GPR and not FIRST_SHARED <= instr.dst.value < ADDRESS


def _wanted(instrs: tuple[Instr, ...], block: Block, index: int, written: set[int], merged: bool) -> bool:
    """Whether a result may be read before it is there."""
    producer = instrs[index]
    special = producer.dst is not None and producer.dst.value >= ADDRESS
    window = A630.delays.predicate.value if special else A630.delays.alu_to_alu.value
    slots = producer.nop
    for other in instrs[index + 1 : block.stop]:
        if slots >= window:
            return False
        if not written.isdisjoint(dataflow.reads(other, merged)) and _early(producer, other, slots, window):
            return True
        slots += 1 + other.rpt + other.nop
    return slots < window


def _early(producer: Instr, other: Instr, slots: int, window: int) -> bool:
    """Whether an element of ``other`` reads an element of ``producer`` too soon; ``slots`` lie between."""
    for read, at in _element_reads(other):
        for written in access.writes(producer):
            same = written.reg == read.reg or written.reg.half != read.reg.half
            if same and slots + at - written.element + producer.rpt < window:
                return True
    return False


def _element_reads(instr: Instr) -> Iterator[tuple[Access, int]]:
    for read in access.reads(instr):
        late = A630.delays.mad_addend.value if read.operand == instr.op.late_source else 0
        yield read, (read.element if instr.op.cat in (1, 2, 3) else 0) + max(late, 0)
