"""A captured graph as data: calls of programs, the memory they read and write, what depends on what.

Intermediate results are values here, each written once: where tinygrad's planner put them into one arena is
forgotten when a graph is read and decided anew when it is written. So calls may be moved, merged and left
out without regard to memory; only the data flow counts. Memory that is not used in this way (written in
parts, read before it is written, or returned to the caller) keeps its place, and the order of the calls that
touch it counts too.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import GraphError
from pytest_qcom.isa.program import Program as Code
from pytest_qcom.openpilot import library, nodes
from pytest_qcom.openpilot.pickles import Record

IMAGE = 3
"""Dimensions of an image's shape: height, width, four."""
LANES = 4
"""Elements of a texel, the last of those dimensions."""
_COLOR = re.compile("\x1b\\[[0-9;]*m")
_FIBERS = 1024  # of a workgroup


class Kind(enum.Enum):
    """What a piece of memory is for."""

    INPUT = "input"  # given with each run
    WEIGHT = "weight"  # never written
    TEMPORARY = "temporary"  # written by one call, read by later ones
    FIXED = "fixed"  # keeps its place: results, state, memory that is written in parts


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Some memory; two are the same only if they are one object.

    Attributes:
        name: an input's own; otherwise made of its kind and a number.
        dtype: numpy name.
        contents: of a weight, and of fixed memory as it was when it was pickled.
        node: the BUFFER or PARAM; ``None`` for temporaries.
    """

    kind: Kind
    name: str
    dtype: str
    nbytes: int
    contents: bytes | None = None
    node: Record | None = None

    def array(self) -> NDArray[Any]:
        """The contents, one element after the other.

        Raises:
            GraphError: it has none.
        """
        if self.contents is None:
            raise GraphError(
                f"contents of {self.name}: it is {self.kind.value} memory; only weights have some"
            )
        return np.frombuffer(self.contents, self.dtype)


def weight(array: NDArray[Any]) -> Memory:
    """New memory that holds an array and is never written."""
    data, dtype = np.ascontiguousarray(array).tobytes(), array.dtype.name
    slot = nodes.fresh_slot()
    node = nodes.buffer(slot, dtype, array.size, "QCOM", data)
    return Memory(Kind.WEIGHT, f"new-weight{slot}", dtype, len(data), data, node)


def temporary(dtype: str, count: int) -> Memory:
    """New memory for ``count`` elements that one call writes and later ones read."""
    name = f"new-temporary{nodes.fresh_slot()}"
    return Memory(Kind.TEMPORARY, name, dtype, count * np.dtype(dtype).itemsize)


@dataclass(frozen=True, slots=True)
class View:
    """Bytes ``start`` to ``start + nbytes`` of some memory, as elements of ``dtype``."""

    memory: Memory
    start: int
    nbytes: int
    dtype: str
    node: Record | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of(memory: Memory, dtype: str | None = None) -> View:
        """All of some memory."""
        return View(memory, 0, memory.nbytes, dtype or memory.dtype)

    @property
    def whole(self) -> bool:
        """Whether it is all of the memory."""
        return self.start == 0 and self.nbytes == self.memory.nbytes

    def within(self, place: View) -> View:
        """The same bytes of another view, as they are of the memory."""
        return View(place.memory, place.start + self.start, self.nbytes, self.dtype)

    def overlaps(self, other: View) -> bool:
        """Whether both have a byte in common."""
        same = self.memory is other.memory
        return same and self.start < other.start + other.nbytes and other.start < self.start + self.nbytes

    def array(self) -> NDArray[Any]:
        """The contents of a weight's part.

        Raises:
            GraphError: it is no weight.
        """
        _ = self.memory.array()
        assert self.memory.contents is not None
        return np.frombuffer(self.memory.contents[self.start : self.start + self.nbytes], self.dtype)


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument as a program declares it; an image has shape (height, width, 4)."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def image(self) -> bool:
        """Whether it is sampled or stored to as an image."""
        return len(self.shape) == IMAGE and self.shape[-1] == LANES

    @property
    def nbytes(self) -> int:
        """Its size."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Program:
    """A compiled program with its launch.

    Attributes:
        outs, ins: numbers of the arguments that it writes and reads.
        renderer: which compiler made it; ``IR3`` is Mesa.
        node: the PROGRAM.
    """

    name: str
    binary: bytes
    groups: tuple[int, int, int]
    local: tuple[int, int, int]
    parameters: tuple[Parameter, ...]
    outs: tuple[int, ...]
    ins: tuple[int, ...]
    renderer: str
    node: Record = field(compare=False, repr=False)

    @cached_property
    def _decoded(self) -> tuple[Code, int, int]:
        return library.program_of(self.binary, self.renderer, self.function)

    @property
    def code(self) -> Code:
        """The instructions.

        Raises:
            GraphError, EnvelopeError, DecodeError: a damaged binary.
        """
        return self._decoded[0]

    @property
    def footprint(self) -> tuple[int, int]:
        """(fregs, hregs) as declared."""
        return self._decoded[1:]

    @property
    def label(self) -> str:
        """The name without colors."""
        return _COLOR.sub("", self.name)

    @property
    def function(self) -> str:
        """The name as an identifier, which is the kernel's in a CL binary."""
        return re.sub(r"[^A-Za-z0-9_]", lambda match: f"{ord(match.group()):02X}", self.label)

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits of the code, launch and arguments."""
        binary = library.content(self.binary, self.renderer)
        text = (binary, self.groups, self.local, self.parameters, self.outs, self.ins)
        return hashlib.sha256(repr(text).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Call:
    """A launch of a program, or (without one) a copy of its second view to its first.

    Attributes:
        batch: calls with one number that stand together are submitted at once; ``None`` on its own.
        info, node: of tinygrad: the call's description; of a copy, what is called.
    """

    program: Program | None
    views: tuple[View, ...]
    batch: int | None = None
    info: Any = field(default=None, compare=False, repr=False)
    node: Record | None = field(default=None, compare=False, repr=False)

    @property
    def outs(self) -> tuple[View, ...]:
        """What it writes."""
        return tuple(self.views[n] for n in (self.program.outs if self.program else (0,)))

    @property
    def ins(self) -> tuple[View, ...]:
        """What it reads."""
        return tuple(self.views[n] for n in (self.program.ins if self.program else (1,)))

    @property
    def label(self) -> str:
        """The program's name."""
        return self.program.label if self.program else "copy"

    def substituted(self, places: Mapping[Memory, View]) -> Call:
        """The call with views in the place of some memory; its own keep their offsets, sizes and types."""
        moved = (view.within(places[view.memory]) if view.memory in places else view for view in self.views)
        return replace(self, views=tuple(moved))


@dataclass(frozen=True)
class Graph:
    """A captured graph.

    Attributes:
        calls: in the order in which they are submitted.
        inputs: by number; their names are those of the keyword arguments, or their positions.
        results: the memory that the caller gets back.
        shapes: those in which the inputs are given; (-1,) for one that is flat.
        frame: the record of the TinyJit.
    """

    calls: tuple[Call, ...]
    inputs: tuple[Memory, ...]
    results: tuple[View, ...]
    shapes: tuple[tuple[int, ...], ...]
    frame: Record = field(compare=False, repr=False)

    def dependencies(self) -> tuple[frozenset[int], ...]:
        """Of each call, the earlier calls that must have run: it reads or writes what they wrote, or writes
        what they read."""
        touched: dict[Memory, list[tuple[int, View, bool]]] = {}
        found = []
        for number, call in enumerate(self.calls):
            outs, own = set(call.outs), set()
            accesses = [(view, view in outs) for view in dict.fromkeys((*call.ins, *call.outs))]
            for view, written in accesses:
                own |= {
                    earlier
                    for earlier, other, wrote in touched.get(view.memory, ())
                    if (written or wrote) and view.overlaps(other)
                }
            for view, written in accesses:
                touched.setdefault(view.memory, []).append((number, view, written))
            found.append(frozenset(own))
        return tuple(found)

    def levels(self) -> tuple[int, ...]:
        """Of each call, the length of the longest chain of dependencies before it."""
        found: list[int] = []
        for before in self.dependencies():
            found.append(1 + max((found[earlier] for earlier in before), default=-1))
        return tuple(found)

    def writer(self, view: View, before: int) -> int | None:
        """The last call before number ``before`` that writes exactly this view; ``None`` without one."""
        for number in range(before - 1, -1, -1):
            if view in self.calls[number].outs:
                return number
        return None

    def readers(self, memory: Memory) -> tuple[int, ...]:
        """The calls that read of some memory."""
        return tuple(
            number
            for number, call in enumerate(self.calls)
            if any(view.memory is memory for view in call.ins)
        )

    def critical_path(self, seconds: Sequence[float]) -> tuple[int, ...]:
        """The chain of dependencies that takes longest, for the seconds of each call."""
        finish: list[float] = []
        previous: list[int | None] = []
        for before, own in zip(self.dependencies(), seconds, strict=True):
            last = max(before, key=lambda earlier: finish[earlier], default=None)
            finish.append(own + (finish[last] if last is not None else 0.0))
            previous.append(last)
        chain: list[int] = []
        at = max(range(len(finish)), key=finish.__getitem__, default=None)
        while at is not None:
            chain.append(at)
            at = previous[at]
        return tuple(reversed(chain))

    @property
    def memories(self) -> tuple[Memory, ...]:
        """All memory, in the order in which the calls touch it."""
        views = (view for call in self.calls for view in call.views)
        return tuple(dict.fromkeys(view.memory for view in (*views, *self.results)))

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits of what the graph computes and how; names of memory play no part."""
        numbers = {memory: number for number, memory in enumerate(self.memories)}
        digest = hashlib.sha256()
        for memory in numbers:
            weight = memory.contents if memory.kind is Kind.WEIGHT else None
            name = memory.name if memory.kind is Kind.INPUT else ""
            digest.update(repr((memory.kind.value, name, memory.dtype, memory.nbytes)).encode())
            digest.update(hashlib.sha256(weight or b"").digest())
        for call in self.calls:
            views = [(numbers[view.memory], view.start, view.nbytes, view.dtype) for view in call.views]
            digest.update(repr((call.program.digest if call.program else "copy", views)).encode())
        digest.update(repr([(numbers[view.memory], view.start) for view in self.results]).encode())
        return digest.hexdigest()[:16]

    def verify(self) -> None:
        """Checks what every graph must be, read or rewritten.

        Raises:
            GraphError: a value that is read before it is written or written twice, an argument smaller than
                what its program declares, a launch that the chip does not allow.
        """
        for number, problem in self._problems():
            raise GraphError(
                f"graph: call {number} ({self.calls[number].label}) {problem}; "
                "the graph is damaged, or what rewrote it is wrong"
            )

    def _problems(self) -> Iterator[tuple[int, str]]:
        written: set[Memory] = set()
        for number, call in enumerate(self.calls):
            if call.program is not None and len(call.views) != len(call.program.parameters):
                declared = len(call.program.parameters)
                yield number, f"has {len(call.views)} arguments, its program declares {declared}"
                return
            for view in call.ins:
                if view.memory.kind is Kind.TEMPORARY and view.memory not in written:
                    yield number, f"reads {view.memory.name}, which no call before it writes"
            for view in call.outs:
                if view.memory.kind in (Kind.INPUT, Kind.WEIGHT):
                    yield number, f"writes {view.memory.name}, a {view.memory.kind.value}"
                if view.memory.kind is Kind.TEMPORARY and view.memory in written:
                    yield number, f"writes {view.memory.name} a second time"
                written.add(view.memory)
            for view in call.views:
                if view.start < 0 or view.start + view.nbytes > view.memory.nbytes:
                    yield number, f"touches {view.memory.name} beyond its {view.memory.nbytes} bytes"
            if call.program is not None:
                yield from ((number, problem) for problem in _misfits(call.program, call.views))

    def with_calls(self, calls: Sequence[Call]) -> Graph:
        """The graph with other calls.

        Raises:
            GraphError: as :meth:`verify`.
        """
        changed = replace(self, calls=tuple(calls))
        changed.verify()
        return changed


def _misfits(program: Program, views: Sequence[View]) -> Iterator[str]:
    for number, (view, parameter) in enumerate(zip(views, program.parameters, strict=True)):
        if parameter.nbytes > view.nbytes:
            yield f"has argument {number} of {view.nbytes} bytes, its program declares {parameter.nbytes}"
    if not 1 <= int(np.prod(program.local)) <= _FIBERS or min(program.groups) < 1:
        yield f"is launched with {program.groups} groups of {program.local} fibers"
