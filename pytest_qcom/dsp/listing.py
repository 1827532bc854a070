"""A kernel as data: loops over operations on named vectors, and the buffers that they read and write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_qcom.dsp.hvx import Kind, Operation
from pytest_qcom.errors import KernelError


@dataclass(frozen=True, slots=True)
class Buffer:
    """An argument of the kernel: ``size`` bytes, only read or only ``written``."""

    name: str
    size: int
    written: bool = False


@dataclass(frozen=True, slots=True)
class Address:
    """A place in a buffer, in bytes: ``offset`` and, for each loop variable, so many bytes an iteration."""

    buffer: str
    strides: tuple[tuple[str, int], ...] = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """Gives ``result``, of kind vector or word, the bytes at an address that is a multiple of its size."""

    result: str
    kind: Kind
    address: Address


@dataclass(frozen=True, slots=True)
class Step:
    """Gives ``result`` what an operation makes of operands: names, or numbers where it takes literals."""

    result: str
    operation: Operation
    operands: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """Writes the vector ``value`` to an address that is a multiple of its size."""

    value: str
    address: Address


@dataclass(frozen=True, slots=True)
class Loop:
    """Runs ``body`` for ``variable`` from 0 to ``count - 1``."""

    variable: str
    count: int
    body: tuple[Statement, ...]

    def assigned(self) -> Iterator[str]:
        """The names that get a value inside."""
        for statement in self.body:
            if isinstance(statement, Loop):
                yield from statement.assigned()
            elif not isinstance(statement, Store):
                yield statement.result


Statement = Load | Step | Store | Loop


def _loops(body: tuple[Statement, ...]) -> Iterator[Loop]:
    for statement in body:
        if isinstance(statement, Loop):
            yield statement
            yield from _loops(statement.body)


@dataclass(frozen=True, slots=True)
class Listing:
    """A kernel.

    Raises:
        KernelError: a name without a value, one of another kind, a loop variable that stands twice, or a
            buffer used the wrong way.
    """

    name: str
    buffers: tuple[Buffer, ...]
    body: tuple[Statement, ...]

    def __post_init__(self) -> None:
        variables = [loop.variable for loop in _loops(self.body)]
        for variable in variables:
            if variables.count(variable) > 1:
                raise KernelError(f"{self.name}: two loops by {variable}; name one of them differently")
        self._check(self.body, {}, frozenset())

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name.

        Raises:
            KernelError: there is none.
        """
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise KernelError(f"{self.name}: no buffer {name}; declare it")

    def _check(self, body: tuple[Statement, ...], outer: Mapping[str, Kind], loops: frozenset[str]) -> None:
        known = dict(outer)
        for statement in body:
            if isinstance(statement, Loop):
                self._check(statement.body, known, loops | {statement.variable})
                continue
            if not isinstance(statement, Step):
                self._check_address(statement, loops)
            if isinstance(statement, Store):
                self._expect(known, statement.value, Kind.VECTOR)
                continue
            kind = self._result(statement, known)
            if known.setdefault(statement.result, kind) is not kind:
                is_now = known[statement.result].c
                raise KernelError(
                    f"{self.name}: {statement.result} is {is_now} and is given {kind.c}; use another name"
                )

    def _result(self, statement: Load | Step, known: Mapping[str, Kind]) -> Kind:
        if isinstance(statement, Load):
            return statement.kind
        operation = statement.operation
        if len(statement.operands) != len(operation.operands):
            raise KernelError(
                f"{self.name}: {operation.name} with {len(statement.operands)} operands; "
                f"it takes {len(operation.operands)}"
            )
        for operand, kind in zip(statement.operands, operation.operands, strict=True):
            self._expect(known, operand, kind)
        return operation.result

    def _expect(self, known: Mapping[str, Kind], operand: str | int, kind: Kind) -> None:
        found = Kind.LITERAL if isinstance(operand, int) else known.get(operand)
        if found is not kind:
            what = "has no value" if found is None else f"is {found.c}"
            raise KernelError(f"{self.name}: {operand} {what} where {kind.c} is read; give another operand")

    def _check_address(self, statement: Load | Store, loops: frozenset[str]) -> None:
        address = statement.address
        stored = isinstance(statement, Store)
        if self.buffer(address.buffer).written is not stored:
            raise KernelError(
                f"{self.name}: {'store to' if stored else 'load from'} {address.buffer}, which is only "
                f"{'read' if stored else 'written'}; a buffer is one or the other"
            )
        for variable, _ in address.strides:
            if variable not in loops:
                raise KernelError(
                    f"{self.name}: address in {address.buffer} by {variable}, which is no loop around it"
                )
