"""From a pickled ``TinyJit`` to a :class:`~pytest_qcom.openpilot.graph.Graph`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import nodes, pickles
from pytest_qcom.openpilot.graph import Call, Graph, Kind, Memory, Parameter, Program, View
from pytest_qcom.openpilot.nodes import unexpected
from pytest_qcom.openpilot.pickles import Record

PROGRAM_PARTS = ("SINK", "LINEAR", "SOURCE", "BINARY")
"""What a compiled PROGRAM is made of."""


def load(path: Path) -> Graph:
    """The graph in a file.

    Raises:
        GraphError: no such file, or none that holds a captured graph.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise GraphError(f"{path}: not readable ({error.strerror}); name the pickle of a TinyJit") from error
    return read(data, str(path))


def read(data: bytes, what: str = "pickle") -> Graph:
    """The graph in a pickle.

    Args:
        what: how errors call it.

    Raises:
        GraphError: truncated, damaged, or no captured graph.
    """
    jit = pickles.loads(data, what)
    try:
        return _graph(jit)
    except GraphError as error:
        raise GraphError(f"{what}: {error}", **error.facts) from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        raise GraphError(f"{what}: {unexpected(f'parts that do not fit together ({error})')}") from error


@dataclass(frozen=True, slots=True)
class Captured:
    """The parts of a pickled TinyJit."""

    result: Any
    linear: Record
    names: Sequence[Any]
    infos: Sequence[Any]


def captured(jit: Any) -> Captured:
    """The parts of a TinyJit.

    Raises:
        GraphError: it is another object.
    """
    if not (isinstance(jit, Record) and jit.name == "_TinyJit" and len(jit.arguments) == 2):
        raise unexpected(f"{type(jit).__name__} instead of a TinyJit")
    inner = jit.arguments[1]
    if not (isinstance(inner, Record) and inner.name == "CapturedJit" and len(inner.arguments) == 4):
        raise unexpected("a TinyJit that captured nothing")
    result, linear, names, infos = inner.arguments
    if nodes.op(linear) != "LINEAR" or not isinstance(names, list) or not isinstance(infos, list):
        raise unexpected(f"a {nodes.op(linear)} where the calls should be")
    return Captured(result, linear, names, infos)


def _graph(jit: Any) -> Graph:
    parts = captured(jit)
    reader = _Reader()
    inputs, shapes = _inputs(parts)
    reader.inputs = inputs
    calls = tuple(reader.call(node, batch) for node, batch in _calls(parts.linear))
    results = tuple(reader.view(node) for node in _buffers(parts.result))
    graph = Graph(*_classified(calls, inputs, results), shapes=shapes, frame=jit)
    graph.verify()
    return graph


def _calls(linear: Record) -> Iterator[tuple[Record, int | None]]:
    """Each call with the number of its batch."""
    for number, node in enumerate(nodes.sources(linear)):
        if nodes.op(node) != "CALL":
            raise unexpected(f"a {nodes.op(node)} among the calls")
        called = nodes.sources(node)[0]
        if nodes.op(called) == "CUSTOM_FUNCTION":
            if nodes.argument(called) != "graph":
                raise unexpected(f"a call of {nodes.argument(called)!r:.40}")
            for inner in nodes.sources(nodes.sources(called)[0]):
                yield inner, number
        else:
            yield node, None


def _inputs(parts: Captured) -> tuple[tuple[Memory, ...], tuple[tuple[int, ...], ...]]:
    memories, shapes = [], []
    for number, info in enumerate(parts.infos):
        if not isinstance(info, tuple) or len(info) != 4 or info[1] != ():
            raise unexpected(f"input {number}, whose shape depends on variables")
        shape = _input_shape(info[0])
        dtype = nodes.type_name(info[2])
        name = str(parts.names[number]) if number < len(parts.names) else f"#{number}"
        memories.append(Memory(Kind.INPUT, name, dtype, math.prod(shape) * np.dtype(dtype).itemsize))
        shapes.append(shape)
    return tuple(memories), tuple(shapes)


def _input_shape(node: Record) -> tuple[int, ...]:
    """The shape in which an input is given: (-1,) for one that is not reshaped."""
    if nodes.op(node) == "NOOP":
        return (-1,)
    if nodes.op(node) != "RESHAPE":
        raise unexpected(f"an input that is a {nodes.op(node)} of a buffer")
    return nodes.shape(nodes.sources(node)[1])


def _buffers(result: Any) -> Iterator[Record]:
    """The BUFFERs behind what is returned, in its order, each once."""
    seen: set[int] = set()
    pending = [result]
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if nodes.is_uop(value):
            if nodes.op(value) == "BUFFER":
                yield value
            else:
                pending += reversed(nodes.sources(value))
        elif isinstance(value, Record):
            pending += [value.state, *reversed(value.arguments)]
        elif isinstance(value, tuple | list):
            pending += reversed(value)
        elif isinstance(value, dict):
            pending += reversed(value.values())


class _Reader:
    """Calls and views of nodes, each piece of memory once."""

    def __init__(self) -> None:
        self.inputs: tuple[Memory, ...] = ()
        self._memories: dict[int, Memory] = {}
        self._programs: dict[int, Program] = {}

    def call(self, node: Record, batch: int | None) -> Call:
        called, *arguments = nodes.sources(node)
        views = tuple(map(self.view, arguments))
        if nodes.op(called) == "COPY" and len(views) == 2:
            return Call(None, views, None, nodes.argument(node), called)
        if nodes.op(called) != "PROGRAM":
            raise unexpected(f"a call of a {nodes.op(called)}")
        if id(called) not in self._programs:
            self._programs[id(called)] = program(called)
        found = self._programs[id(called)]
        if max((*found.outs, *found.ins), default=0) >= len(views):
            raise unexpected(f"a call of {found.label} with {len(views)} arguments")
        return Call(found, views, batch, nodes.argument(node))

    def view(self, node: Record) -> View:
        """The bytes that an argument is."""
        operation = nodes.op(node)
        if operation in ("BUFFER", "PARAM"):
            memory = self._memory(node, operation)
            return View(memory, 0, memory.nbytes, memory.dtype, node)
        below = self.view(nodes.sources(node)[0])
        if operation == "RESHAPE":
            return replace(below, node=node)
        if operation == "BITCAST":
            return replace(below, dtype=nodes.type_name(node.arguments[1]), node=node)
        if operation == "SHRINK" and len(nodes.sources(node)) == 3:
            first, count = (nodes.integer(bound) for bound in nodes.sources(node)[1:])
            size = np.dtype(below.dtype).itemsize
            return View(below.memory, below.start + first * size, count * size, below.dtype, node)
        raise unexpected(f"an argument that is a {operation} of a buffer")

    def _memory(self, node: Record, operation: str) -> Memory:
        found = nodes.storage(node)
        if operation == "PARAM":
            if not 0 <= found.slot < len(self.inputs):
                raise unexpected(f"input {found.slot} of {len(self.inputs)}")
            known = self.inputs[found.slot]
            if known.node is None:
                object.__setattr__(known, "node", node)
                object.__setattr__(known, "nbytes", found.count * np.dtype(found.dtype).itemsize)
            return known
        if found.slot not in self._memories:
            size = found.count * np.dtype(found.dtype).itemsize
            data = nodes.content(node)
            if data is not None and len(data) != size:
                raise unexpected(f"a buffer of {size} bytes with {len(data)} bytes of content")
            self._memories[found.slot] = Memory(Kind.FIXED, f"b{found.slot}", found.dtype, size, data, node)
        return self._memories[found.slot]


def program(node: Record) -> Program:
    """The program of a PROGRAM.

    Raises:
        GraphError: not compiled, or launched with sizes that are not numbers.
    """
    parts = nodes.sources(node)
    if tuple(map(nodes.op, parts)) != PROGRAM_PARTS or not isinstance(nodes.argument(node), Record):
        raise unexpected("a program that is not compiled")
    info = nodes.argument(node).fields
    binary = nodes.argument(parts[3])
    if info.get("vars") != () or not isinstance(binary, bytes) or not isinstance(info.get("name"), str):
        raise unexpected("a program with variables")
    params = [part for part in nodes.sources(parts[1]) if nodes.op(part) == "PARAM"]
    declared = {nodes.storage(part).slot: part for part in params}
    if sorted(declared) != list(range(len(declared))) or info["globals"] != tuple(sorted(declared)):
        raise unexpected(f"a program whose arguments are {sorted(declared)}")
    return Program(
        name=info["name"],
        binary=binary,
        groups=_sizes(info["global_size"]),
        local=_sizes(info["local_size"]),
        parameters=tuple(
            Parameter(nodes.storage(declared[slot]).dtype, nodes.shape(nodes.sources(declared[slot])[0]))
            for slot in sorted(declared)
        ),
        outs=tuple(sorted(set(info["outs"]))),
        ins=tuple(sorted(set(info["ins"]))),
        renderer=info["target"].fields["renderer"],
        node=node,
    )


def _sizes(given: Any) -> tuple[int, int, int]:
    if not isinstance(given, tuple) or not all(isinstance(size, int | float) for size in given):
        raise unexpected(f"a launch of {given!r:.60}")
    if any(size != int(size) for size in given):
        raise unexpected(f"a launch of {given}, with parts of workgroups")
    x, y, z = (*map(int, given), 1, 1, 1)[:3]
    return x, y, z


def _classified(
    calls: tuple[Call, ...], inputs: tuple[Memory, ...], results: tuple[View, ...]
) -> tuple[tuple[Call, ...], tuple[Memory, ...], tuple[View, ...]]:
    """The same with what the memory is for: weights, and each intermediate result as memory of its own."""
    written = {view.memory for call in calls for view in call.outs}
    returned = {view.memory for view in results}
    fixed = {memory for memory in written if memory in returned or not _valued(memory, calls)}
    named: dict[Memory, Memory] = {}
    numbers: Counter[Kind] = Counter()

    def rename(view: View) -> View:
        memory = view.memory
        if memory.kind is Kind.INPUT:
            return view
        if memory not in named:
            kind = Kind.FIXED if memory in written or memory in returned else Kind.WEIGHT
            if kind is Kind.WEIGHT and memory.contents is None:
                raise unexpected(f"{memory.name}, which is read but never written and has no content")
            named[memory] = replace(memory, kind=kind, name=f"{kind.value}{numbers[kind]}")
            numbers[kind] += 1
        return replace(view, memory=named[memory])

    live: dict[tuple[Memory, int, int], Memory] = {}
    found = []
    for call in calls:
        places: list[View] = []
        outs = call.program.outs if call.program else (0,)
        for number, view in enumerate(call.views):
            if view.memory not in written or view.memory in fixed:
                places.append(rename(view))
                continue
            key = (view.memory, view.start, view.nbytes)
            if number in outs:
                for other in [k for k in live if k[0] is key[0] and _meet(k, key)]:
                    del live[other]
                name = f"{Kind.TEMPORARY.value}{numbers[Kind.TEMPORARY]}"
                numbers[Kind.TEMPORARY] += 1
                live[key] = Memory(Kind.TEMPORARY, name, view.dtype, view.nbytes)
            held = key if key in live else next(k for k in live if k[0] is key[0] and _within(key, k))
            places.append(View(live[held], view.start - held[1], view.nbytes, view.dtype))
        found.append(replace(call, views=tuple(places)))
    return tuple(found), inputs, tuple(map(rename, results))


def _valued(memory: Memory, calls: tuple[Call, ...]) -> bool:
    """Whether all that is read of it is what one call before wrote, or a part of that."""
    live: set[tuple[Memory, int, int]] = set()
    for call in calls:
        outs = {(view.memory, view.start, view.nbytes) for view in call.outs if view.memory is memory}
        ins = {(view.memory, view.start, view.nbytes) for view in call.ins if view.memory is memory}
        held = all(any(_within(one, other) for other in live) for one in ins)
        if not held or any(_meet(one, other) for one in ins for other in outs):
            return False
        live = {kept for kept in live if not any(_meet(kept, new) for new in outs)} | outs
    return True


def _within(one: tuple[Memory, int, int], other: tuple[Memory, int, int]) -> bool:
    return other[1] <= one[1] and one[1] + one[2] <= other[1] + other[2]


def _meet(one: tuple[Memory, int, int], other: tuple[Memory, int, int]) -> bool:
    return one[1] < other[1] + other[2] and other[1] < one[1] + one[2]
