"""PM4: the packets of a command stream, and the processor that obeys them.

Packet headers are those of Mesa's ``adreno_pm4.xml``: type 4 writes consecutive registers, type 7 is a
command; both carry odd parity over their count and their register or opcode.
"""

from __future__ import annotations

import enum
import operator
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pytest_qcom.errors import GpuFault
from pytest_qcom.virtual import registers as regs
from pytest_qcom.virtual.dispatch import Dispatch
from pytest_qcom.virtual.findings import Finding, Findings
from pytest_qcom.virtual.launch import decode_launch
from pytest_qcom.virtual.memory import Memory
from pytest_qcom.virtual.state import Block, State


class Opcode(enum.IntEnum):
    """Type 7 packets that compute streams use (``adreno_pm4_type3_packets``)."""

    CP_NOP = 0x10
    CP_WAIT_MEM_WRITES = 0x12
    CP_WAIT_FOR_IDLE = 0x26
    CP_RUN_OPENCL = 0x31
    CP_EXEC_CS = 0x33
    CP_LOAD_STATE6_FRAG = 0x34
    CP_WAIT_REG_MEM = 0x3C
    CP_MEM_WRITE = 0x3D
    CP_REG_TO_MEM = 0x3E
    CP_EVENT_WRITE = 0x46
    CP_SET_MARKER = 0x65


class Event(enum.IntEnum):
    """Events of CP_EVENT_WRITE that compute streams use (``vgt_event_type``)."""

    CACHE_FLUSH_TS = 4
    CACHE_FLUSH = 6
    CACHE_INVALIDATE = 49


_DWORDS = {  # payload of each packet: fewest, most
    Opcode.CP_NOP: (0, 0x3FFF),
    Opcode.CP_WAIT_MEM_WRITES: (0, 0),
    Opcode.CP_WAIT_FOR_IDLE: (0, 0),
    Opcode.CP_RUN_OPENCL: (1, 1),
    Opcode.CP_EXEC_CS: (4, 4),
    Opcode.CP_LOAD_STATE6_FRAG: (3, 3),
    Opcode.CP_WAIT_REG_MEM: (6, 6),
    Opcode.CP_MEM_WRITE: (3, 0x3FFF),
    Opcode.CP_REG_TO_MEM: (3, 3),
    Opcode.CP_EVENT_WRITE: (1, 4),
    Opcode.CP_SET_MARKER: (1, 1),
}

_COMPARE: dict[int, Callable[[int, int], bool]] = {  # cp_cond_function
    0: lambda left, right: True,
    1: operator.lt,
    2: operator.le,
    3: operator.eq,
    4: operator.ne,
    5: operator.ge,
    6: operator.gt,
}
_POLL_REGISTER, _POLL_MEMORY = 0, 1
_RM6_COMPUTE = 8


def odd_parity(value: int) -> int:
    """The bit that makes the number of ones in ``value`` and itself odd."""
    return (value.bit_count() + 1) & 1


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet: type 4 when ``opcode`` is ``None``. ``offset`` counts dwords from the stream's start."""

    offset: int
    opcode: Opcode | None
    register: int
    payload: Sequence[int]

    @property
    def name(self) -> str:
        """For messages."""
        return f"register write {self.register:#x}" if self.opcode is None else self.opcode.name

    def fault(self, problem: str) -> GpuFault:
        """An error that names the packet and its place."""
        return GpuFault(f"{self.name} at dword {self.offset} of the command stream: {problem}")


def packets(words: Sequence[int], start: int = 0) -> Iterator[Packet]:
    """The packets of a stream of dwords, from dword ``start`` on.

    Raises:
        GpuFault: a header with bad parity, of another type or of an unknown packet, or a stream that ends
            within a packet. ``facts["offset"]`` is the dword.
    """
    offset = start
    while offset < len(words):
        packet = _packet(words, offset)
        yield packet
        offset += 1 + len(packet.payload)


def _packet(words: Sequence[int], offset: int) -> Packet:
    header = words[offset]
    kind = header >> 28
    if kind == 4:
        opcode, target, count = None, header >> 8 & 0x3FFFF, header & 0x7F
        parity = odd_parity(count) << 7 | odd_parity(target) << 27
        reserved, checked = 0x4000000, 0x8000080
    elif kind == 7:
        opcode, target, count = header >> 16 & 0x7F, header >> 16 & 0x7F, header & 0x3FFF
        parity = odd_parity(count) << 15 | odd_parity(target) << 23
        reserved, checked = 0xF004000, 0x808000
    else:
        raise _bad(header, offset, f"type {kind} is no packet of this chip; types 4 and 7 are")
    if header & reserved:
        raise _bad(header, offset, f"reserved bits {header & reserved:#x} are set")
    if header & checked != parity:
        raise _bad(header, offset, f"bad parity: {header & checked:#x} is {parity:#x} in a sound header")
    if offset + count >= len(words):
        left = len(words) - offset - 1
        raise _bad(header, offset, f"the stream is truncated: {count} dwords should follow, {left} do")
    payload = words[offset + 1 : offset + 1 + count]
    if opcode is None:
        return Packet(offset, None, target, payload)
    try:
        known = Opcode(opcode)
    except ValueError:
        raise _bad(header, offset, f"packet {opcode:#x} is none that compute uses") from None
    fewest, most = _DWORDS[known]
    if not fewest <= count <= most:
        raise _bad(header, offset, f"{known.name} with {count} dwords, it has {fewest} to {most}")
    return Packet(offset, known, 0, payload)


def _bad(header: int, offset: int, problem: str) -> GpuFault:
    return GpuFault(
        f"packet header {header:#010x} at dword {offset} of the command stream: {problem}; "
        "check what built the stream",
        offset=offset,
        header=header,
    )


def resynchronize(words: Sequence[int], offset: int) -> int:
    """The first dword behind a bad packet at ``offset`` from which the stream is sound to its end."""
    for start in range(offset + 1, len(words)):
        if words[start] >> 28 in (4, 7):
            try:
                for _ in packets(words, start):
                    pass
            except GpuFault:
                continue
            return start
    return len(words)


class CommandProcessor:
    """Obeys packets, one at a time.

    Args:
        memory: what the GPU may touch.
        launch: called with each compute launch.
        counter: the always-on counter, in its own ticks.
        findings: takes what is wrong in the stream without being a fault.
    """

    def __init__(
        self,
        memory: Memory,
        launch: Callable[[Dispatch], None],
        counter: Callable[[], int],
        findings: Findings,
    ) -> None:
        self.memory = memory
        self.state = State(memory, findings)
        self._launch = launch
        self._counter = counter
        self._findings = findings
        self._handlers: dict[Opcode, Callable[[Packet], None]] = {
            Opcode.CP_RUN_OPENCL: self._run,
            Opcode.CP_EXEC_CS: self._exec,
            Opcode.CP_LOAD_STATE6_FRAG: self._load_state,
            Opcode.CP_MEM_WRITE: self._mem_write,
            Opcode.CP_REG_TO_MEM: self._reg_to_mem,
            Opcode.CP_EVENT_WRITE: self._event,
            Opcode.CP_SET_MARKER: self._marker,
        }

    def step(self, packet: Packet) -> bool:
        """Obeys ``packet``; False when it is a wait whose condition does not hold yet.

        Raises:
            GpuFault: memory, register or event that does not exist.
            LaunchError: a launch that the chip does not allow.
        """
        if packet.opcode is None:
            self._write_registers(packet)
        elif packet.opcode is Opcode.CP_WAIT_REG_MEM:
            return self._satisfied(packet)
        elif packet.opcode in self._handlers:
            self._handlers[packet.opcode](packet)
        return True  # waits for idle and for writes: everything is done when the next packet comes

    def salvage(self, packet: Packet) -> None:
        """Obeys only what tells the host that the stream has passed: signals and timestamps."""
        if packet.opcode in (Opcode.CP_EVENT_WRITE, Opcode.CP_REG_TO_MEM, Opcode.CP_MEM_WRITE):
            try:
                self._handlers[packet.opcode](packet)
            except GpuFault:
                return  # the stream has failed already, and its first error is the one to report

    def describe_wait(self, packet: Packet) -> str:
        """The condition of a CP_WAIT_REG_MEM and the value that stands against it, for messages."""
        word, low, high, reference, mask, _ = packet.payload
        sign = ("always", "<", "<=", "==", "!=", ">=", ">", "?")[regs.WAIT_REG_MEM_0.get(word, "FUNCTION")]
        address = low | high << 32
        if not self.memory.contains(address, 4):
            return f"waits on {address:#x}, which is no longer mapped"
        value = self._word(address) & mask
        return (
            f"waits for the word at {address:#x} ({self.memory.describe(address)}) {sign} {reference}; "
            f"it is {value}"
        )

    def _word(self, address: int) -> int:
        value: int = struct.unpack("<I", self.memory.read(address, 4, "CP_WAIT_REG_MEM"))[0]
        return value

    def _write_registers(self, packet: Packet) -> None:
        for index, value in enumerate(packet.payload):
            address = packet.register + index
            word = regs.REGISTERS.get(address)
            if word is None:
                raise packet.fault(
                    f"register {address:#x} (value {value:#x}) is none that compute uses; "
                    "check the address and the count"
                )
            self.state.write(word, value)

    def _satisfied(self, packet: Packet) -> bool:
        word, low, high, reference, mask, _ = packet.payload
        function = regs.WAIT_REG_MEM_0.get(word, "FUNCTION")
        poll = regs.WAIT_REG_MEM_0.get(word, "POLL")
        if function not in _COMPARE:
            raise packet.fault(f"compare function {function} does not exist; 0 to 6 do")
        if poll == _POLL_REGISTER:
            value = self._register(packet, low)
        elif poll == _POLL_MEMORY:
            value = self._word(low | high << 32)
        else:
            raise packet.fault(f"poll mode {poll} is none that compute uses; 0 (register) and 1 (memory) are")
        value &= mask
        if regs.WAIT_REG_MEM_0.get(word, "SIGNED_COMPARE"):
            value, reference = _signed(value), _signed(reference)
        return _COMPARE[function](value, reference)

    def _register(self, packet: Packet, address: int) -> int:
        counter = regs.CP_ALWAYS_ON_COUNTER.address
        if address in (counter, counter + 1):
            return self._counter() >> 32 * (address - counter) & 0xFFFFFFFF
        if address not in regs.REGISTERS:
            raise packet.fault(f"register {address:#x} is none that compute uses; check the address")
        return self.state.get(address)

    def _event(self, packet: Packet) -> None:
        number = regs.EVENT_WRITE_0.get(packet.payload[0], "EVENT")
        try:
            event = Event(number)
        except ValueError:
            raise packet.fault(f"event {number} is none that compute uses") from None
        stamped = event is Event.CACHE_FLUSH_TS
        if len(packet.payload) != (4 if stamped else 1):
            raise packet.fault(
                f"{event.name} with {len(packet.payload)} dwords, it has {4 if stamped else 1}"
            )
        if stamped:
            _, low, high, value = packet.payload
            self.memory.write(low | high << 32, struct.pack("<I", value), f"{event.name} write")

    def _mem_write(self, packet: Packet) -> None:
        low, high, *values = packet.payload
        data = struct.pack(f"<{len(values)}I", *values)
        self.memory.write(low | high << 32, data, "CP_MEM_WRITE write")

    def _reg_to_mem(self, packet: Packet) -> None:
        word, low, high = packet.payload
        register = regs.REG_TO_MEM_0.get(word, "REG")
        count = regs.REG_TO_MEM_0.get(word, "CNT") or 1
        if regs.REG_TO_MEM_0.get(word, "ACCUMULATE"):
            raise packet.fault("ACCUMULATE is none that compute uses")
        if register == regs.CP_ALWAYS_ON_COUNTER.address and count == 2:
            data = struct.pack("<Q", self._counter())  # both halves of one reading
        else:
            values = [self._register(packet, register + index) for index in range(count)]
            data = struct.pack(f"<{count}I", *values)
        self.memory.write(low | high << 32, data, "CP_REG_TO_MEM write")

    def _marker(self, packet: Packet) -> None:
        mode = regs.SET_MARKER_0.get(packet.payload[0], "MODE")
        if mode != _RM6_COMPUTE:
            self._findings.add(
                Finding(
                    "CP_SET_MARKER",
                    "MODE",
                    packet.payload[0],
                    _RM6_COMPUTE,
                    "marks no compute work, which is RM6_COMPUTE",
                )
            )

    def _load_state(self, packet: Packet) -> None:
        word, low, high = packet.payload
        field = regs.LOAD_STATE_0.get
        if field(word, "STATE_SRC") != 2:
            raise packet.fault(f"STATE_SRC {field(word, 'STATE_SRC')} is none that compute uses; 2 is memory")
        kind = (field(word, "STATE_BLOCK"), field(word, "STATE_TYPE"))
        try:
            block = Block(kind)
        except ValueError:
            raise packet.fault(
                f"state block {kind[0]:#x} with type {kind[1]} is none that compute uses"
            ) from None
        self.state.load(block, low | high << 32, field(word, "DST_OFF"), field(word, "NUM_UNIT"))

    def _exec(self, packet: Packet) -> None:
        _, x, y, z = packet.payload
        self._launch(decode_launch(self.state, (x, y, z)))
        self.state.launched()

    def _run(self, packet: Packet) -> None:
        self._launch(decode_launch(self.state, None))
        self.state.launched()


def _signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value
