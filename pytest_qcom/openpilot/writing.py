"""From a :class:`~pytest_qcom.openpilot.graph.Graph` back to a pickle that tinygrad loads and runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import nodes, pickles, reading
from pytest_qcom.openpilot.graph import Call, Graph, Kind, Memory, View
from pytest_qcom.openpilot.pickles import Record

DEVICE = "QCOM"
ALIGNMENT = 256
"""Bytes to a multiple of which results are placed; tinygrad's planner does the same, images need 64."""


def save(graph: Graph, path: Path) -> None:
    """Writes the graph to a file.

    Raises:
        GraphError: the file cannot be written.
    """
    try:
        path.write_bytes(dumps(graph))
    except OSError as error:
        raise GraphError(f"{path}: cannot be written ({error.strerror}); name another file") from error


def dumps(graph: Graph, first_slot: int = 0) -> bytes:
    """The pickle of the TinyJit that runs the graph.

    Args:
        first_slot: tinygrad tells the buffers of a process apart by their numbers; those of the graph are
            numbered from here on, in the order in which the calls use them.
    """
    graph.verify()
    arena = plan(graph)
    place = nodes.buffer(nodes.fresh_slot(), "int8", arena.nbytes, DEVICE) if arena.nbytes else None
    writer = _Writer(arena, place)
    linear = nodes.linear(list(writer.lowered(graph.calls)))
    parts = reading.captured(graph.frame)
    captured = pickles.call(
        "tinygrad.engine.jit", "CapturedJit", parts.result, linear, parts.names, parts.infos
    )
    jit = pickles.call("tinygrad.engine.jit", "_TinyJit", None, captured)
    buffers = [memory.node for memory in graph.memories if memory.node and memory.kind is not Kind.INPUT]
    buffers += [place] if place is not None else []
    numbers = {nodes.storage(node).slot: number for number, node in enumerate(buffers, first_slot)}

    def renumbered(record: Record) -> tuple[Any, ...]:
        return nodes.numbered(record, numbers) if record.name == "UOp" else record.arguments

    return pickles.dumps(jit, renumbered)


def slots(graph: Graph) -> int:
    """How many numbers :func:`dumps` uses at most."""
    return 1 + sum(memory.node is not None for memory in graph.memories)


@dataclass(frozen=True, slots=True)
class Plan:
    """Where temporaries are in one arena of ``nbytes`` bytes."""

    nbytes: int
    starts: dict[Memory, int]


def plan(graph: Graph) -> Plan:
    """Places temporaries such that two share bytes only if one is dead before the other is written.

    Each is put at the first gap among those that live at the same time, the largest first.
    """
    lives: dict[Memory, tuple[int, int]] = {}
    for number, call in enumerate(graph.calls):
        for view in call.views:
            if view.memory.kind is Kind.TEMPORARY:
                lives[view.memory] = (lives.get(view.memory, (number, 0))[0], number)
    starts: dict[Memory, int] = {}
    end = 0
    for memory in sorted(lives, key=lambda each: (-each.nbytes, lives[each])):
        first, last = lives[memory]
        others = sorted(
            (start, start + other.nbytes)
            for other, start in starts.items()
            if lives[other][0] <= last and first <= lives[other][1]
        )
        at = 0
        for start, stop in others:
            if at + memory.nbytes <= start:
                break
            at = max(at, -(-stop // ALIGNMENT) * ALIGNMENT)
        starts[memory] = at
        end = max(end, at + memory.nbytes)
    return Plan(-(-(end + 1) // ALIGNMENT) * ALIGNMENT if starts else 0, starts)


class _Writer:
    def __init__(self, arena: Plan, place: Record | None) -> None:
        self._arena = arena
        self._place = place
        self._views: dict[View, Record] = {}

    def lowered(self, calls: Sequence[Call]) -> Any:
        """The nodes of the calls, those of a batch as one."""
        for batch, group in itertools.groupby(calls, lambda call: call.batch):
            made = [self.call(call) for call in group]
            if batch is None or len(made) == 1:
                yield from made
                continue
            parameters = [node for each in made for node in nodes.sources(each)[1:]]
            inputs = list({id(node): node for node in parameters if nodes.op(node) == "PARAM"}.values())
            yield nodes.graphed(made, inputs, nodes.call_info())

    def call(self, call: Call) -> Record:
        called = call.program.node if call.program else call.node
        if called is None:
            raise GraphError("graph: a copy without the node to call; make it from another copy")
        info = call.info if call.info is not None else nodes.call_info()
        return nodes.invocation(called, [self.view(view) for view in call.views], info)

    def view(self, view: View) -> Record:
        memory = view.memory
        if memory.kind is Kind.TEMPORARY:
            if view not in self._views:
                assert self._place is not None
                start = self._arena.starts[memory] + view.start
                self._views[view] = nodes.part(self._place, start, view.nbytes, view.dtype)
            return self._views[view]
        node = view.node if view.node is not None else memory.node
        if view.node is None and not (view.whole and view.dtype == memory.dtype):
            raise GraphError(
                f"graph: part of {memory.name} in the place of all of it; copy it to memory of its own"
            )
        if node is None:
            raise GraphError(f"graph: {memory.name} is {memory.kind.value} memory without a node")
        return node
