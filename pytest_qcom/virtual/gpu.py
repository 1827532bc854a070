"""The virtual A630: command streams in, memory changed, time passed.

A :class:`VirtualGpu` owns the memory table, the register file, the executor and the clock. Streams run in
the order of submission within a context; one that waits for a value in memory stays, and a thread of the
GPU's own goes on with it once the value is there, or gives up on it as a hang.
"""

from __future__ import annotations

import contextlib
import gc
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pytest_qcom.chip import A630
from pytest_qcom.errors import GpuFault, GpuHang, QcomError
from pytest_qcom.virtual.dispatch import Dispatch, Execution
from pytest_qcom.virtual.findings import Findings
from pytest_qcom.virtual.memory import Memory
from pytest_qcom.virtual.pm4 import CommandProcessor, Opcode, Packet, packets, resynchronize

if TYPE_CHECKING:
    from pytest_qcom.isa.program import Program

_POLL_SECONDS = 0.0005
_REMEMBERED = 4096  # programs whose decoded form is kept


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage is collected within.

    tinygrad counts a submission before it makes it, and waits for all that it has counted when a buffer is
    freed. A buffer that the collector frees while a stream runs would so wait for that stream's own end.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Runner(Protocol):
    """What executes a launch: :class:`pytest_qcom.virtual.executor.Executor`."""

    def run(self, dispatch: Dispatch, memory: Memory) -> Execution: ...


Clock = Callable[[Dispatch, Execution, "Program"], float]
"""Device seconds of a launch."""
ProgramHook = Callable[["Program", Dispatch], None]
"""Looks at a program before its first launch; raises what every launch of it shall raise."""


@dataclass(slots=True)
class _Stream:
    """A submitted command stream."""

    words: Sequence[int]
    timestamp: int
    position: int = 0  # dwords
    failed: bool = False  # only what tells the host is still obeyed


@dataclass(slots=True)
class _Context:
    """A KGSL drawing context: its own order, its own timestamps and its own state.

    The registers that a stream has set are there for what follows in its context, and for nothing else: a
    stream that waits between its registers and its launch is gone on with as it was, whatever ran meanwhile.
    """

    processor: CommandProcessor
    queue: deque[_Stream] = field(default_factory=deque)
    submitted: int = 0
    retired: int = 0


@dataclass(slots=True)
class _Known:
    """A program seen before, and what the hook said of it."""

    program: Program
    verdict: QcomError | None


class VirtualGpu:
    """One virtual A630.

    Args:
        executor: runs launches.
        clock: how long a launch takes, in device seconds; asked when somebody reads the time. Rounded to
            ticks of the always-on counter, at least one, so that the same launch always takes the same time.
        on_program: called once for each program and footprint, before its first launch.
        wait_limit: host seconds after which a wait that nothing satisfies is a hang.
    """

    def __init__(
        self,
        executor: Runner,
        clock: Clock,
        on_program: ProgramHook | None = None,
        wait_limit: float = 10.0,
    ) -> None:
        self.memory = Memory()
        self.findings = Findings()
        self.executor = executor
        self.clock = clock
        self.on_program = on_program
        self.wait_limit = wait_limit
        self.launches = 0
        self._ticks = 0
        self._last_seconds = 0.0
        self._untimed: list[tuple[Dispatch, Execution, Program]] = []  # until somebody asks for the time
        self._contexts: dict[int, _Context] = {}
        self._next_context = 1
        self._errors: deque[BaseException] = deque()
        self._programs: dict[tuple[object, ...], _Known] = {}
        self.lock = threading.Condition(threading.RLock())
        self._pump: threading.Thread | None = None

    def watch(self, on_program: ProgramHook | None) -> None:
        """Has another hook look at programs from now on, also at those seen before."""
        with self.lock:
            self.on_program = on_program
            self._programs.clear()

    def run_on(self, executor: Runner) -> None:
        """Has another executor run the launches from now on."""
        with self.lock:
            self.executor = executor

    def check(self) -> None:
        """Waits for every stream and raises what nobody was told yet.

        Raises:
            QcomError: what the GPU ran into.
        """
        with self.lock:
            self.lock.wait_for(lambda: not any(context.queue for context in self._contexts.values()))
            self._raise_pending()

    @property
    def ticks(self) -> int:
        """The always-on counter, in ticks of 19.2 MHz since the GPU was made."""
        with self.lock:
            self._time_launches()
            return self._ticks

    @property
    def last_seconds(self) -> float:
        """Device seconds of the last launch, before rounding to ticks."""
        with self.lock:
            self._time_launches()
            return self._last_seconds

    def _time_launches(self) -> None:
        untimed, self._untimed = self._untimed, []
        for dispatch, execution, program in untimed:
            self._last_seconds = self.clock(dispatch, execution, program)
            self._ticks += max(1, round(self._last_seconds * A630.clocks.always_on.value))

    def create_context(self) -> int:
        """A new context's number."""
        with self.lock:
            number = self._next_context
            self._next_context += 1
            processor = CommandProcessor(self.memory, self._launch, lambda: self.ticks, self.findings)
            self._contexts[number] = _Context(processor)
            return number

    def destroy_context(self, number: int) -> None:
        """Drops a context and what it still waits for.

        Raises:
            KeyError: there is none of that number.
        """
        with self.lock:
            del self._contexts[number]

    def has_context(self, number: int) -> bool:
        """Whether the context exists."""
        return number in self._contexts

    def submitted(self, number: int) -> int:
        """The timestamp of the context's newest stream; 0 if there was none."""
        return self._contexts[number].submitted

    def submit(self, number: int, buffers: Sequence[tuple[int, int]]) -> int:
        """Takes command buffers (address, bytes) as one stream and runs it as far as it goes.

        Returns:
            The timestamp that :meth:`wait` takes.

        Raises:
            QcomError: what the GPU ran into. The stream's signals are set all the same.
        """
        with self.lock, collector_paused():
            words: list[int] = []
            for address, size in buffers:
                data = self.memory.read(address, size - size % 4, "command buffer")
                words += struct.unpack(f"<{len(data) // 4}I", data)
            context = self._contexts[number]
            context.submitted += 1
            timestamp = context.submitted
            context.queue.append(_Stream(words, timestamp))
            self._advance()
            self._raise_pending()
            if any(other.queue for other in self._contexts.values()):
                self._start_pump()
            return timestamp

    def wait(self, number: int, timestamp: int, seconds: float | None = None) -> bool:
        """Waits until a stream has passed; False when ``seconds`` of host time are over before.

        Raises:
            QcomError: what the GPU ran into meanwhile.
        """
        context = self._contexts[number]
        with self.lock:
            self.lock.wait_for(lambda: context.retired >= timestamp or bool(self._errors), seconds)
            self._raise_pending()
            return context.retired >= timestamp

    def _raise_pending(self) -> None:
        if self._errors:
            first = self._errors.popleft()
            self._errors.clear()
            raise first

    def _advance(self) -> bool:
        """Runs every context until all are empty or wait; whether anything moved."""
        moved = again = True
        moved = False
        while again:
            again = False
            for context in list(self._contexts.values()):
                while context.queue:
                    stream = context.queue[0]
                    before = stream.position
                    done = self._run(context.processor, stream)
                    again |= done or stream.position != before
                    if not done:
                        break
                    context.queue.popleft()
                    context.retired = stream.timestamp
            moved |= again
        if moved:
            self.lock.notify_all()
        return moved

    def _run(self, processor: CommandProcessor, stream: _Stream) -> bool:
        """Runs a stream; False when it waits."""
        while stream.position < len(stream.words):
            try:
                for packet in packets(stream.words, stream.position):
                    if stream.failed:
                        processor.salvage(packet)
                    elif not processor.step(packet):
                        return False
                    stream.position = packet.offset + 1 + len(packet.payload)
            except BaseException as error:
                # Whatever it was, also an interrupt from the keyboard: the stream must not run again.
                self._fail(stream, error)
                if not isinstance(error, Exception):
                    self._run(processor, stream)
                    raise
        return True

    def _fail(self, stream: _Stream, error: BaseException) -> None:
        """Notes the stream's first error and goes behind the packet that caused it."""
        if not stream.failed and isinstance(error, Exception):
            self._errors.append(error)
        stream.failed = True
        try:
            packet = next(packets(stream.words, stream.position))
        except GpuFault:
            stream.position = resynchronize(stream.words, stream.position)
        else:
            stream.position = packet.offset + 1 + len(packet.payload)

    def _start_pump(self) -> None:
        """Has a thread go on with waiting streams."""
        if self._pump is None:
            self._pump = threading.Thread(target=self._pump_streams, name="virtual-a630", daemon=True)
            self._pump.start()

    def _pump_streams(self) -> None:
        deadline = time.monotonic() + self.wait_limit
        while True:
            time.sleep(_POLL_SECONDS)
            with self.lock:
                if self._advance():
                    deadline = time.monotonic() + self.wait_limit
                elif time.monotonic() > deadline:
                    self._hang()
                if not any(context.queue for context in self._contexts.values()):
                    self._pump = None
                    return

    def _hang(self) -> None:
        """Gives up on every waiting stream."""
        for context in self._contexts.values():
            if not context.queue:
                continue
            stream = context.queue[0]
            packet = next(packets(stream.words, stream.position))
            self._fail(stream, self._stuck(context.processor, packet))
        self._advance()

    def _stuck(self, processor: CommandProcessor, packet: Packet) -> GpuHang:
        assert packet.opcode is Opcode.CP_WAIT_REG_MEM  # nothing else waits
        return GpuHang(
            f"{packet.name} at dword {packet.offset} of the command stream "
            f"{processor.describe_wait(packet)} and nothing changed it for {self.wait_limit:g} s; "
            "the stream is dropped, submit the signal before the wait",
            offset=packet.offset,
        )

    def _launch(self, dispatch: Dispatch) -> None:
        known = self._known(dispatch)
        if known.verdict is not None:
            raise _copy(known.verdict)
        if 0 in dispatch.groups:
            return  # nothing to do, as on the device
        execution = self.executor.run(dispatch, self.memory)
        self._untimed.append((dispatch, execution, known.program))
        if len(self._untimed) >= _REMEMBERED:
            self._time_launches()
        self.launches += 1

    def _known(self, dispatch: Dispatch) -> _Known:
        """The launch's program, decoded and looked at once."""
        from pytest_qcom.isa.program import Program

        key = (
            dispatch.code,
            dispatch.entry,
            dispatch.fregs,
            dispatch.hregs,
            dispatch.merged,
            dispatch.thread128,
            dispatch.branchstack,
            dispatch.constant_demotion,
        )
        known = self._programs.get(key)
        if known is None:
            program, verdict = Program.decode(dispatch.code), None
            if self.on_program is not None:
                try:
                    self.on_program(program, dispatch)
                except QcomError as error:
                    verdict = _copy(error)
            if len(self._programs) >= _REMEMBERED:
                self._programs.clear()
            known = self._programs[key] = _Known(program, verdict)
        return known


def _copy(error: QcomError) -> QcomError:
    """The same error without a traceback, which would keep alive whatever the frames of a launch refer to."""
    return type(error)(str(error), **error.facts)
