"""Packets: what is sound, what each broken one is told, and what the processor does with the sound ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinygrad.runtime.ops_qcom import parity, pkt4_hdr, pkt7_hdr

from pytest_qcom.errors import GpuFault
from pytest_qcom.virtual.pm4 import Opcode, odd_parity, packets, resynchronize
from suites.virtual.bench import TICKS, Bench, cmd, halves, load, reg, signal, stamp, wait

WORD = st.integers(0, 2**32 - 1)


@given(st.integers(0, 2**18 - 1))
def test_parity_is_that_of_the_driver(value: int) -> None:
    # The driver's fold looks at the low 20 bits or so of what it is given; headers carry at most 18.
    assert odd_parity(value) == parity(value)


@given(st.integers(0, 2**18 - 1), st.lists(WORD, max_size=127), st.lists(WORD, max_size=300))
def test_packets_are_read_as_the_driver_writes_them(
    target: int, values: list[int], padding: list[int]
) -> None:
    words = [pkt4_hdr(target, len(values)), *values, pkt7_hdr(Opcode.CP_NOP, len(padding)), *padding]
    write, nop = packets(words)
    assert (write.opcode, write.register, list(write.payload), write.offset) == (None, target, values, 0)
    assert (nop.opcode, list(nop.payload), nop.offset) == (Opcode.CP_NOP, padding, len(values) + 1)


@given(st.sampled_from([reg(0xA9B0, 1, 2), cmd(Opcode.CP_NOP, 5, 6)]), st.integers(0, 31))
def test_any_flipped_header_bit_is_noticed(words: list[int], bit: int) -> None:
    broken = [words[0] ^ 1 << bit, *words[1:]]
    with pytest.raises(GpuFault) as caught:
        list(packets(broken))
    assert caught.value.facts["offset"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [0x12345678],
            "packet header 0x12345678 at dword 0 of the command stream: type 1 is no packet of this "
            "chip; types 4 "
            "and 7 are; check what built the stream",
        ),
        (
            [pkt7_hdr(Opcode.CP_NOP, 0) ^ 1 << 15],
            "packet header 0x70100000 at dword 0 of the command stream: bad parity: 0x0 is 0x8000 in a sound "
            "header; check what built the stream",
        ),
        (
            [pkt7_hdr(Opcode.CP_NOP, 0), pkt7_hdr(Opcode.CP_NOP, 0) | 1 << 24],
            "packet header 0x71108000 at dword 1 of the command stream: reserved bits 0x1000000 are "
            "set; check "
            "what built the stream",
        ),
        (
            [*reg(0xA9B0, 1, 2)[:2]],
            "packet header 0x40a9b002 at dword 0 of the command stream: the stream is truncated: 2 "
            "dwords should "
            "follow, 1 do; check what built the stream",
        ),
        (
            cmd(0x3F, 1, 2, 3),
            "packet header 0x70bf8003 at dword 0 of the command stream: packet 0x3f is none that "
            "compute uses; "
            "check what built the stream",
        ),
        (
            cmd(Opcode.CP_EXEC_CS, 0, 1),
            "packet header 0x70b30002 at dword 0 of the command stream: CP_EXEC_CS with 2 dwords, it "
            "has 4 to 4; "
            "check what built the stream",
        ),
    ],
    ids=["type", "parity", "reserved", "truncated", "unknown", "length"],
)
def test_broken_packets_are_told_what_is_wrong(words: list[int], message: str) -> None:
    with pytest.raises(GpuFault) as caught:
        list(packets(words))
    assert str(caught.value) == message


PLACE = "at dword 0 of the command stream"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            reg(0x1234, 7),
            f"register write 0x1234 {PLACE}: register 0x1234 (value 0x7) is none that compute uses; "
            "check the "
            "address and the count",
        ),
        (
            cmd(Opcode.CP_EVENT_WRITE, 63),
            f"CP_EVENT_WRITE {PLACE}: event 63 is none that compute uses",
        ),
        (
            cmd(Opcode.CP_EVENT_WRITE, 4),
            f"CP_EVENT_WRITE {PLACE}: CACHE_FLUSH_TS with 1 dwords, it has 4",
        ),
        (
            cmd(Opcode.CP_WAIT_REG_MEM, 7 | 1 << 4, 0, 0, 0, 0, 0),
            f"CP_WAIT_REG_MEM {PLACE}: compare function 7 does not exist; 0 to 6 do",
        ),
        (
            cmd(Opcode.CP_WAIT_REG_MEM, 5 | 2 << 4, 0, 0, 0, 0, 0),
            f"CP_WAIT_REG_MEM {PLACE}: poll mode 2 is none that compute uses; 0 (register) and 1 "
            "(memory) are",
        ),
        (
            cmd(Opcode.CP_REG_TO_MEM, 0x1234, 0, 0),
            f"CP_REG_TO_MEM {PLACE}: register 0x1234 is none that compute uses; check the address",
        ),
        (
            cmd(Opcode.CP_REG_TO_MEM, 1 << 31, 0, 0),
            f"CP_REG_TO_MEM {PLACE}: ACCUMULATE is none that compute uses",
        ),
        (
            cmd(Opcode.CP_LOAD_STATE6_FRAG, 0xD << 18, 0, 0),
            f"CP_LOAD_STATE6_FRAG {PLACE}: STATE_SRC 0 is none that compute uses; 2 is memory",
        ),
        (
            load(0xC, 1, 0, 1),
            f"CP_LOAD_STATE6_FRAG {PLACE}: state block 0xc with type 1 is none that compute uses",
        ),
    ],
    ids=["register", "event", "stamp", "compare", "poll", "read", "accumulate", "source", "block"],
)
def test_sound_packets_with_bad_contents(words: list[int], message: str) -> None:
    with pytest.raises(GpuFault) as caught:
        Bench().submit(words)
    assert str(caught.value) == message


def test_memory_that_is_not_mapped_is_named() -> None:
    bench = Bench()
    with pytest.raises(
        GpuFault, match=r"^CACHE_FLUSH_TS write of 4 bytes at 0x10 touches 0x10, which is not "
    ):
        bench.submit(signal(0x10, 1))
    with pytest.raises(
        GpuFault, match=r"^CP_LOAD_STATE6 of constants of 1 bytes at 0x40 touches 0x40, which"
    ):
        bench.submit(load(0xD, 1, 0x40, 4))


def test_signals_and_memory_writes() -> None:
    bench = Bench()
    place = bench.buffer(64)
    words = signal(place, 7) + cmd(Opcode.CP_MEM_WRITE, *halves(place + 8), 1, 2, 3)
    words += cmd(Opcode.CP_WAIT_FOR_IDLE) + cmd(Opcode.CP_WAIT_MEM_WRITES) + cmd(Opcode.CP_EVENT_WRITE, 49)
    bench.submit(words + cmd(Opcode.CP_SET_MARKER, 8))
    assert struct.unpack("<6I", bench.gpu.memory.read(place, 24, "test")) == (7, 0, 1, 2, 3, 0)


def test_the_counter_stands_still_but_for_launches() -> None:
    bench = Bench()
    place = bench.buffer(64)
    bench.submit(stamp(place) + bench.launch() + stamp(place + 8) + bench.launch() + stamp(place + 16))
    first, second, third = struct.unpack("<3Q", bench.gpu.memory.read(place, 24, "test"))
    assert (second - first, third - second) == (TICKS, TICKS)


def test_registers_can_be_stored() -> None:
    bench = Bench()
    place = bench.buffer(64)
    words = reg(0xA9B0, 0x11, 0x22) + cmd(Opcode.CP_REG_TO_MEM, 0xA9B0 | 2 << 18, *halves(place))
    bench.submit(words)
    assert struct.unpack("<2I", bench.gpu.memory.read(place, 8, "test")) == (0x11, 0x22)


COMPARED = {  # function: does 5 stand in this relation to 4, 5, 6
    0: (True, True, True),
    1: (False, False, True),
    2: (False, True, True),
    3: (False, True, False),
    4: (True, False, True),
    5: (True, True, False),
    6: (True, False, False),
}


@pytest.mark.parametrize("function", COMPARED)
def test_waits_compare_as_they_say(function: int) -> None:
    for reference, holds in zip((4, 5, 6), COMPARED[function], strict=True):
        bench = Bench(wait_limit=60)
        place = bench.buffer(struct.pack("<I", 0xF5))
        bench.submit(wait(place, reference, function, mask=0xF) + signal(place, 1))
        assert (bench.word(place) == 1) == holds
        bench.gpu.memory.write(place, struct.pack("<I", reference + (0, -1, 0, 0, 1, 0, 1)[function]), "test")
        bench.gpu.wait(bench.context, 1)


def test_signed_waits_and_waits_on_registers() -> None:
    bench = Bench(wait_limit=60)
    place = bench.buffer(8)
    negative = cmd(Opcode.CP_WAIT_REG_MEM, 6 | 1 << 3 | 1 << 4, *halves(place), 0xFFFFFFFF, 0xFFFFFFFF, 0)
    register = cmd(Opcode.CP_WAIT_REG_MEM, 3, 0xA9B0, 0, 0x30, 0xF0, 0)
    bench.submit(negative + reg(0xA9B0, 0x35) + register + signal(place, 9))
    assert bench.word(place) == 9


def _sound(words: Sequence[int]) -> bool:
    try:
        list(packets(words))
    except GpuFault:
        return False
    return True


@given(st.lists(st.sampled_from([cmd(Opcode.CP_NOP, 1), reg(0xA9B0, 3), cmd(0x3F), [0], [0x7]]), max_size=8))
def test_resynchronizing_finds_the_longest_sound_rest(parts: list[list[int]]) -> None:
    words = [0xFFFFFFFF, *(word for part in parts for word in part)]
    start = resynchronize(words, 0)
    assert _sound(words[start:])
    assert not any(_sound(words[earlier:]) for earlier in range(start))
