"""What KGSL mapped: the only memory that the GPU may touch.

A GPU address is the host address of the same byte (KGSL's ``USE_CPU_MAP``), so reading and writing need no
copy. Everything here is a table of ranges; who allocates is :mod:`pytest_qcom.virtual.kgsl`.
"""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import GpuFault

_Value = TypeVar("_Value")

_HIGHEST = 1 << 64
_REMEMBERED = 64  # freed buffers that a message can still name


@dataclass(frozen=True, slots=True)
class Buffer:
    """A mapped range of ``size`` bytes, numbered in the order of mapping; ``name`` is for messages."""

    number: int
    address: int
    size: int
    name: str = ""

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.address + self.size

    def __str__(self) -> str:
        title = f"buffer #{self.number}" + (f" {self.name!r}" if self.name else "")
        return f"{title} ({self.size} bytes at {self.address:#x})"


class Memory:
    """The table of mapped buffers. Not locked: one GPU owns it.

    The garbage collector frees buffers too, in the middle of anything that allocates. So the table is a tuple
    that is replaced whole, and what is derived from it says of which one.
    """

    def __init__(self) -> None:
        self._buffers: tuple[Buffer, ...] = ()  # by address, then by number
        self._freed: tuple[Buffer, ...] = ()  # the latest ones, those freed last behind
        self._count = 0
        self._spans: _Derived[list[tuple[int, int]]] = _Derived()  # the table as disjoint ranges
        self._ranges: _Derived[NDArray[np.uint64]] = _Derived()

    def map(self, address: int, size: int, name: str = "") -> Buffer:
        """Enters a range of ``size`` bytes. Ranges may overlap, as user memory mapped twice does."""
        buffer = Buffer(self._count, address, size, name)
        self._count += 1

        def entered(table: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
            at = bisect.bisect(table, (address, buffer.number), key=lambda old: (old.address, old.number))
            return (*table[:at], buffer, *table[at:])

        # an address is of the buffer that is there now
        self._freed = tuple(old for old in self._freed if old.end <= address or buffer.end <= old.address)
        self._change(entered)
        return buffer

    def _change(self, changed: Callable[[tuple[Buffer, ...]], tuple[Buffer, ...]]) -> None:
        """Replaces the table, anew where the collector has replaced it meanwhile."""
        while True:
            before = self._buffers
            after = changed(before)
            if self._buffers is before:
                self._buffers = after
                return

    def unmap(self, buffer: Buffer) -> None:
        """Takes a range out of the table. Later accesses to it fault and name it as freed."""
        current = next(entry for entry in self._buffers if entry.number == buffer.number)
        self._change(lambda table: tuple(entry for entry in table if entry.number != buffer.number))
        self._freed = (*self._freed[1 - _REMEMBERED :], current)

    def limit(self, address: int, size: int, name: str = "") -> None:
        """Narrows the buffer at ``address`` to ``size`` bytes and names it.

        KGSL maps whole pages; a caller who knows the size that was asked for can have the GPU held to it.

        Raises:
            GpuFault: no buffer starts there, or it is smaller.
        """
        found = next((old for old in self._buffers if old.address == address and old.size >= size), None)
        if found is None:
            raise GpuFault(
                f"{size} bytes at {address:#x}: no buffer of that size starts there; allocate it first"
            )
        narrow = replace(found, size=size, name=name or found.name)
        self._change(lambda table: tuple(narrow if old.number == narrow.number else old for old in table))

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The mapped buffers, by address."""
        return self._buffers

    def ranges(self) -> NDArray[np.uint64]:
        """Disjoint mapped ranges, shape (n, 2), sorted: start and first address behind. Read-only."""
        return self._ranges.of(self._buffers, self._as_array)

    def _as_array(self, table: tuple[Buffer, ...]) -> NDArray[np.uint64]:
        ranges = np.array(self._spans.of(table, _merged), dtype=np.uint64).reshape(-1, 2)
        ranges.setflags(write=False)
        return ranges

    def available(self, address: int) -> int:
        """Mapped bytes from ``address`` on, without a gap; 0 when it is not mapped."""
        spans = self._spans.of(self._buffers, _merged)
        index = bisect.bisect_right(spans, (address, _HIGHEST)) - 1
        return max(0, spans[index][1] - address) if index >= 0 else 0

    def contains(self, address: int, size: int) -> bool:
        """Whether all of ``size`` bytes at ``address`` are mapped."""
        return self.available(address) >= size

    def describe(self, address: int) -> str:
        """Where ``address`` lies, for messages: in, behind or before the nearest buffer."""
        for buffer in self._buffers:
            if buffer.address <= address < buffer.end:
                return f"byte {address - buffer.address} of {buffer}"
        for buffer in reversed(self._freed):
            if buffer.address <= address < buffer.end:
                return f"byte {address - buffer.address} of {buffer}, which was freed"
        if not self._buffers:
            return "no memory is mapped"
        nearest = min(self._buffers, key=lambda entry: _distance(entry, address))
        if address >= nearest.end:
            return f"{address - nearest.end} bytes past the end of {nearest}"
        return f"{nearest.address - address} bytes before {nearest}"

    def check(self, address: int, size: int, what: str) -> None:
        """Holds an access of ``size`` bytes against the table.

        Raises:
            GpuFault: some of it is not mapped; the message names ``what`` and the first bad address.
        """
        available = self.available(address)
        if available < size:
            bad = address + available
            raise GpuFault(
                f"{what} of {size} bytes at {address:#x} touches {bad:#x}, which is not mapped: "
                f"{self.describe(bad)}; allocate the memory or correct the address",
                address=bad,
            )

    def read(self, address: int, size: int, what: str) -> bytes:
        """``size`` bytes at ``address``.

        Raises:
            GpuFault: some of it is not mapped.
        """
        self.check(address, size, what)
        return ctypes.string_at(address, size)

    def write(self, address: int, data: bytes, what: str) -> None:
        """Puts ``data`` at ``address``.

        Raises:
            GpuFault: some of it is not mapped.
        """
        self.check(address, len(data), what)
        ctypes.memmove(address, data, len(data))


@dataclass(slots=True)
class _Derived(Generic[_Value]):
    """What was computed of a table, until it is asked for of another one."""

    table: tuple[Buffer, ...] | None = None
    value: _Value | None = None

    def of(self, table: tuple[Buffer, ...], compute: Callable[[tuple[Buffer, ...]], _Value]) -> _Value:
        if self.value is None or self.table is not table:
            self.value = compute(table)
            self.table = table
        return self.value


def _merged(table: tuple[Buffer, ...]) -> list[tuple[int, int]]:
    """The ranges of a table, those that overlap made one."""
    spans: list[tuple[int, int]] = []
    for buffer in table:
        if spans and buffer.address < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], buffer.end))
        else:
            spans.append((buffer.address, buffer.end))
    return spans


def _distance(buffer: Buffer, address: int) -> int:
    return buffer.address - address if address < buffer.address else address - buffer.end
