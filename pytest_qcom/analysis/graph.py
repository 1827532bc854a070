"""The control-flow graph that the checks walk.

It differs from the program's own blocks in one thing: a ``predt``/``predf``/``prede`` region runs both of its
sides one behind the other, but no fiber takes part in both, so each side follows the region's head, and both
lead to its end. Mesa legalizes such regions in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_qcom.isa.instruction import Flow, Instr
from pytest_qcom.isa.program import Program

_TARGETED = (Flow.JUMP, Flow.BRANCH, Flow.BRANCH_OR, Flow.BRANCH_AND, Flow.ANY, Flow.ALL, Flow.ELECT)


@dataclass(frozen=True, slots=True)
class Node:
    """Instructions ``start`` to ``stop - 1``; edges are numbers of nodes."""

    start: int
    stop: int
    successors: tuple[int, ...]
    predecessors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """All nodes in program order; node 0 is the entry.

    Attributes:
        node_of: the node of each instruction.
        reachable: whether each node can be reached from the entry.
        falls_off: nodes that run past the last instruction.
    """

    nodes: tuple[Node, ...]
    node_of: tuple[int, ...]
    reachable: tuple[bool, ...]
    falls_off: tuple[int, ...]

    def before(self, index: int) -> tuple[int, ...]:
        """The instructions that may execute directly before instruction ``index``."""
        node = self.nodes[self.node_of[index]]
        if index > node.start:
            return (index - 1,)
        return tuple(self.nodes[other].stop - 1 for other in node.predecessors)


def flow(instr: Instr) -> Flow:
    """What an instruction does to the program counter."""
    effect = instr.op.effect
    return effect if isinstance(effect, Flow) else Flow.NEXT


def targeted(instr: Instr) -> bool:
    """Whether an instruction names a branch target."""
    return flow(instr) in _TARGETED


def escaping(program: Program) -> list[int]:
    """Branches that leave the program."""
    size = len(program.instrs)
    return [
        i for i, instr in enumerate(program.instrs) if targeted(instr) and not 0 <= i + instr["target"] < size
    ]


def build(program: Program) -> Graph:
    """The graph of a program none of whose branches escapes."""
    instrs = program.instrs
    flows = [flow(instr) for instr in instrs]
    sides = _predication(flows)
    leaders = {0}
    for index, kind in enumerate(flows):
        if kind in _TARGETED:
            leaders.add(index + instrs[index]["target"])
        if kind is not Flow.NEXT:
            leaders.add(index + 1)
        if kind in (Flow.PREDT, Flow.PREDF, Flow.PREDE):
            leaders.add(index)
    starts = sorted(leader for leader in leaders if leader < len(instrs))
    number = {start: position for position, start in enumerate(starts)}
    stops = [*starts[1:], len(instrs)]
    successors: list[tuple[int, ...]] = []
    falls_off = []
    for position, stop in enumerate(stops):
        last = stop - 1
        targets = _targets(instrs[last], last, flows[last], sides)
        if stop in sides.after:
            targets = [sides.after[stop] if i == 0 and t == stop else t for i, t in enumerate(targets)]
        if any(target >= len(instrs) for target in targets):
            falls_off.append(position)
        successors.append(tuple(number[t] for t in dict.fromkeys(targets) if t < len(instrs)))
    return _graph(starts, stops, successors, falls_off, len(instrs))


@dataclass(frozen=True, slots=True)
class _Sides:
    """``skip``: head of a region to where its other side begins; ``after``: start of that side to the end."""

    skip: dict[int, int]
    after: dict[int, int]


def _predication(flows: list[Flow]) -> _Sides:
    skip: dict[int, int] = {}
    after: dict[int, int] = {}
    head = other = -1
    for index, kind in enumerate(flows):
        if kind is Flow.PREDE:
            if head >= 0 and other < 0:
                skip[head] = index
            if other >= 0:
                after[other] = index
            head = other = -1
        elif kind in (Flow.PREDT, Flow.PREDF):
            if head < 0:
                head = index
            else:
                skip[head] = other = index
    return _Sides(skip, after)


def _targets(instr: Instr, index: int, kind: Flow, sides: _Sides) -> list[int]:
    if kind is Flow.END:
        return []
    if kind is Flow.JUMP:
        return [index + instr["target"]]
    targets = [index + 1]
    if kind in _TARGETED:
        targets.append(index + instr["target"])
    if index in sides.skip:
        targets.append(sides.skip[index])
    return targets


def _graph(
    starts: list[int], stops: list[int], successors: list[tuple[int, ...]], falls_off: list[int], size: int
) -> Graph:
    predecessors: list[list[int]] = [[] for _ in starts]
    for position, targets in enumerate(successors):
        for target in targets:
            predecessors[target].append(position)
    node_of = [0] * size
    for position, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        node_of[start:stop] = [position] * (stop - start)
    reachable = [False] * len(starts)
    todo = [0]
    while todo:
        position = todo.pop()
        if not reachable[position]:
            reachable[position] = True
            todo.extend(successors[position])
    nodes = tuple(
        Node(start, stop, successors[i], tuple(predecessors[i]))
        for i, (start, stop) in enumerate(zip(starts, stops, strict=True))
    )
    return Graph(nodes, tuple(node_of), tuple(reachable), tuple(i for i in falls_off if reachable[i]))
