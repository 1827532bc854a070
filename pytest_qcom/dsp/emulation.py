"""Runs a listing with numpy: every iteration that takes nothing over from another one at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.dsp.hvx import Bytes
from pytest_qcom.dsp.listing import Address, Listing, Load, Loop, Statement, Step, Store
from pytest_qcom.errors import KernelError

Index = int | NDArray[np.int64]


def run(listing: Listing, memory: Mapping[str, Bytes]) -> None:
    """Runs ``listing`` on its buffers.

    Args:
        memory: the bytes of each buffer; those of written ones are changed.

    Raises:
        KernelError: a buffer of another size, an access outside of its buffer or between two vectors, or
            iterations that store to one place.
    """
    for buffer in listing.buffers:
        size = memory[buffer.name].nbytes
        if size != buffer.size:
            raise KernelError(f"{listing.name}: {buffer.name} has {size} bytes; give it {buffer.size}")
    _Emulation(listing.name, memory).body(listing.body, {}, {}, _together(listing.body, set()))


def _together(body: Sequence[Statement], outer: set[str]) -> tuple[str, ...]:
    """Variables of the loops that carry no value from an iteration to the next one, outermost first."""
    found: list[str] = []
    known = set(outer)
    for statement in body:
        if isinstance(statement, Loop):
            if not known & set(statement.assigned()):
                found.append(statement.variable)
            found += _together(statement.body, known)
        elif not isinstance(statement, Store):
            known.add(statement.result)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Emulation:
    name: str
    memory: Mapping[str, Bytes]

    def body(
        self,
        body: Sequence[Statement],
        values: dict[str, Bytes],
        indices: Mapping[str, Index],
        together: Sequence[str],
    ) -> None:
        """Runs statements; each loop of ``together`` is one axis of the values inside of it."""
        for statement in body:
            if isinstance(statement, Load):
                values[statement.result] = self.load(statement, indices)
            elif isinstance(statement, Store):
                self.store(statement.address, values[statement.value], indices)
            elif isinstance(statement, Step):
                operands = [values[each] if isinstance(each, str) else each for each in statement.operands]
                values[statement.result] = statement.operation.execute(*operands)
            elif statement.variable in together:
                axes = len(together) - together.index(statement.variable) - 1
                every = np.arange(statement.count, dtype=np.int64).reshape(-1, *[1] * axes)
                self.body(statement.body, values, {**indices, statement.variable: every}, together)
            else:
                for iteration in range(statement.count):
                    self.body(statement.body, values, {**indices, statement.variable: iteration}, together)

    def load(self, statement: Load, indices: Mapping[str, Index]) -> Bytes:
        places = self.places(statement.address, statement.kind.size, indices)
        return self.memory[statement.address.buffer][places]

    def store(self, address: Address, value: Bytes, indices: Mapping[str, Index]) -> None:
        size = value.shape[-1]
        places = self.places(address, size, indices)
        starts = places[..., 0]
        iterations = np.broadcast_shapes(value.shape[:-1], *(np.shape(index) for index in indices.values()))
        if np.unique(starts).size != np.prod(iterations, dtype=np.int64):
            raise KernelError(
                f"{self.name}: iterations store to one place of {address.buffer}; the last one would win, "
                f"give the address a stride of every loop around it"
            )
        self.memory[address.buffer][places] = value

    def places(self, address: Address, size: int, indices: Mapping[str, Index]) -> NDArray[np.int64]:
        """The bytes of an access, (iterations of the loops in its address..., ``size``)."""
        start = np.asarray(address.offset, np.int64)
        for variable, stride in address.strides:
            start = start + stride * np.asarray(indices[variable], np.int64)
        first, last = int(start.min()), int(start.max()) + size
        if first < 0 or last > self.memory[address.buffer].nbytes:
            raise KernelError(
                f"{self.name}: bytes {first} to {last} of {address.buffer} are accessed, it has "
                f"{self.memory[address.buffer].nbytes}; correct strides or counts"
            )
        if np.any(start % size):
            raise KernelError(
                f"{self.name}: access of {size} bytes to {address.buffer} at no multiple of {size}; the "
                f"hardware would take the multiple below it"
            )
        return start[..., None] + np.arange(size)
