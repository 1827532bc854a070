"""The table of mapped memory, and how messages name an address."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_qcom.errors import GpuFault
from pytest_qcom.virtual.memory import Memory


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60)), max_size=12), st.data())
def test_ranges_are_exactly_what_is_mapped(spans: list[tuple[int, int]], data: st.DataObject) -> None:
    memory = Memory()
    buffers = [memory.map(start, size) for start, size in spans]
    for buffer in data.draw(st.lists(st.sampled_from(buffers), unique=True)) if buffers else ():
        memory.unmap(buffer)
        spans.remove((buffer.address, buffer.size))
    mapped = {byte for start, size in spans for byte in range(start, start + size)}
    ranges = memory.ranges()
    assert {byte for start, end in ranges.tolist() for byte in range(start, end)} == mapped
    assert np.all(ranges[:, 0] < ranges[:, 1]) and np.all(ranges[1:, 0] >= ranges[:-1, 1])
    for address in range(0, 580, 7):
        assert memory.contains(address, 1) == (address in mapped)


def test_ranges_cannot_be_changed_from_outside() -> None:
    memory = Memory()
    memory.map(0x1000, 16)
    with pytest.raises(ValueError, match="read-only"):
        memory.ranges()[0, 0] = 0


def test_an_address_is_described_by_the_nearest_buffer() -> None:
    memory = Memory()
    assert memory.describe(5) == "no memory is mapped"
    first = memory.map(0x10000, 4096)
    memory.map(0x20000, 8192, "weights")
    assert memory.describe(0x10004) == "byte 4 of buffer #0 (4096 bytes at 0x10000)"
    assert memory.describe(0x1100C) == "12 bytes past the end of buffer #0 (4096 bytes at 0x10000)"
    assert memory.describe(0x1FFF0) == "16 bytes before buffer #1 'weights' (8192 bytes at 0x20000)"
    memory.unmap(first)
    assert memory.describe(0x10004) == "byte 4 of buffer #0 (4096 bytes at 0x10000), which was freed"


def test_reads_and_writes_stay_within_what_is_mapped() -> None:
    memory = Memory()
    block = ctypes.create_string_buffer(64)
    address = ctypes.addressof(block)
    memory.map(address, 64)
    memory.write(address + 8, b"abcd", "test write")
    assert memory.read(address + 6, 8, "test read") == b"\0\0abcd\0\0"
    with pytest.raises(GpuFault) as caught:
        memory.read(address + 60, 8, "test read")
    assert str(caught.value) == (
        f"test read of 8 bytes at {address + 60:#x} touches {address + 64:#x}, which is not mapped: "
        f"0 bytes past the end of buffer #0 (64 bytes at {address:#x}); allocate the memory or correct the "
        "address"
    )
    assert caught.value.facts == {"address": address + 64}


@pytest.mark.parametrize("address", [-1, 1 << 64, (1 << 64) - 1, 0])
def test_addresses_that_no_memory_has(address: int) -> None:
    memory = Memory()
    memory.map(0x1000, 0x1000)
    assert not memory.contains(address, 1)


def test_a_buffer_can_be_held_to_the_size_that_was_asked_for() -> None:
    memory = Memory()
    buffer = memory.map(0x1000, 0x1000)
    memory.limit(0x1000, 100, "A")
    assert memory.contains(0x1000, 100) and not memory.contains(0x1000, 101)
    assert memory.describe(0x1064) == "0 bytes past the end of buffer #0 'A' (100 bytes at 0x1000)"
    with pytest.raises(GpuFault) as caught:
        memory.limit(0x1000, 200)
    assert str(caught.value) == (
        "200 bytes at 0x1000: no buffer of that size starts there; allocate it first"
    )
    memory.unmap(buffer)
    assert memory.buffers == ()


def test_the_collector_frees_buffers_in_the_middle_of_a_change() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.me = self

    memory = Memory()
    kept = []
    before = gc.get_threshold()
    gc.set_threshold(3)  # a collection at nearly every allocation
    try:
        for step in range(400):
            weakref.finalize(Cycle(), memory.unmap, memory.map(0x100000 + 0x1000 * step, 4096))
            kept.append(memory.map(0x1000000 + 0x1000 * step, 4096))
            memory.limit(kept[-1].address, 100 + step, "kept")
            assert memory.available(kept[-1].address) == 100 + step
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert [(entry.address, entry.size) for entry in memory.buffers] == [
        (entry.address, 100 + step) for step, entry in enumerate(kept)
    ]
