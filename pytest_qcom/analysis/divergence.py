"""Where the fibers of a workgroup part: barriers that not all of them reach, joins at which they stay parked.

A value is *divergent* if it may differ between fibers: the local id, and whatever is computed from it, loaded
through it, or written where only some fibers run. Rules: Mesa, ``ir3_reconvergence.c``.
"""

from __future__ import annotations

import operator

from pytest_qcom.analysis import findings, values
from pytest_qcom.analysis.context import Context
from pytest_qcom.analysis.findings import Finding
from pytest_qcom.analysis.graph import flow
from pytest_qcom.analysis.storage import SHARED
from pytest_qcom.analysis.values import Move, Names, differing, exits
from pytest_qcom.isa.access import parallel
from pytest_qcom.isa.instruction import Atomic, FiberId, Flow, Shuffle

_PARTING = (Flow.BRANCH, Flow.BRANCH_OR, Flow.BRANCH_AND, Flow.ELECT, Flow.PREDT, Flow.PREDF)


def divergence(context: Context, preset: int) -> list[Finding]:
    """Barriers under divergence and joins without (jp); ``preset`` are the cells that the launch fills."""
    if not any(flow(instr) in _PARTING for instr in context.program.instrs):
        return []
    joins = _post_dominators(context)
    found = _findings(context, preset, joins, None)
    # Names of values tell apart what parted fibers wrote differently; most programs need none.
    return _findings(context, preset, joins, exits(context)) if found else []


def _findings(
    context: Context, preset: int, joins: list[int | None], names: list[Names] | None
) -> list[Finding]:
    branches: set[int] = set()
    while True:  # a divergent region makes what it writes divergent, and so maybe further branches
        regions = {node: _region(context, node, joins[node]) for node in branches}
        within = set().union(*regions.values()) if regions else set()
        met = None if names is None else _met(context, regions, joins, names)
        more = _divergent_branches(context, preset & ~SHARED, within, met)
        if more <= branches:
            break
        branches |= more
    found: dict[tuple[str, int], Finding] = {}  # the outermost branch is to blame, once an instruction
    for node in sorted(branches):
        for finding in (*_barriers(context, node, regions[node]), *_join(context, node, joins[node])):
            found.setdefault((finding.rule.name, finding.consumer.index), finding)
    return list(found.values())


def _met(
    context: Context, regions: dict[int, set[int]], joins: list[int | None], names: list[Names]
) -> dict[int, int]:
    """The cells that differ between fibers at the start of a node because they came from different ones."""
    met: dict[int, int] = {}
    for branch, region in regions.items():
        for node in (*region, joins[branch]):
            if node is None:
                continue
            before = context.graph.nodes[node].predecessors
            if node not in region:
                before = tuple(other for other in before if other in region or other == branch)
            for cell in differing([names[other] for other in before]):
                met[node] = met.get(node, 0) | 1 << cell
    return met


def _post_dominators(context: Context) -> list[int | None]:
    """The node at which the paths out of each node meet again, ``None`` where they do not."""
    nodes = context.graph.nodes
    everything = (1 << len(nodes)) - 1
    sets = [everything] * len(nodes)
    changed = True
    while changed:
        changed = False
        for position in reversed(context.order):
            met = everything if nodes[position].successors else 0
            for successor in nodes[position].successors:
                met &= sets[successor]
            met |= 1 << position
            if met != sets[position]:
                sets[position], changed = met, True
    nearest: list[int | None] = []
    for position, met in enumerate(sets):
        others = [other for other in range(len(nodes)) if met >> other & 1 and other != position]
        nearest.append(max(others, key=lambda other: sets[other].bit_count(), default=None))
    return nearest


def _region(context: Context, node: int, join: int | None) -> set[int]:
    """The nodes that run while the fibers that parted behind ``node`` are apart."""
    region: set[int] = set()
    todo = list(context.graph.nodes[node].successors)
    while todo:
        position = todo.pop()
        if position != join and position not in region:
            region.add(position)
            todo.extend(context.graph.nodes[position].successors)
    return region


def _divergent_branches(
    context: Context, preset: int, within: set[int], met: dict[int, int] | None
) -> set[int]:
    """Nodes that end in a branch on a divergent value, when the nodes ``within`` run divergently.

    ``met``: what differs at the start of nodes, so that copies ``within`` need not count as divergent.
    """
    branches: set[int] = set()
    known: dict[int, tuple[Move, ...] | None] = {}

    def through(position: int, state: int) -> int:
        state |= (met or {}).get(position, 0)
        for index in context.within(position):
            step, instr = context.steps[index], context.program.instrs[index]
            own = isinstance(instr.op.effect, Atomic | Shuffle | FiberId)
            if index not in known:
                known[index] = values.moves(context, index)
            moves = known[index]
            if moves is not None and (met is not None or position not in within):
                state = _moved(context, index, moves, state)
            elif own or position in within or step.read_mask & state:
                state |= step.write_mask
            else:
                state &= ~step.write_mask
            elect = flow(instr) is Flow.ELECT  # reads nothing, and parts whatever is in the registers
            if _parts(context, position, index) and (elect or step.read_mask & state):
                branches.add(position)
        return state

    context.entries(preset, through, operator.or_)
    return branches


def _moved(context: Context, index: int, moves: tuple[Move, ...], state: int) -> int:
    """The divergent cells behind an instruction that only moves values."""
    before = state
    for move in moves:
        if not parallel(context.program.instrs[index]):
            before = state
        written = sum(1 << cell for cell in move.cells)
        state = state | written if any(before >> cell & 1 for cell in move.sources) else state & ~written
    return state


def _parts(context: Context, position: int, index: int) -> bool:
    """Whether an instruction may send fibers two ways."""
    return (
        flow(context.program.instrs[index]) in _PARTING and len(context.graph.nodes[position].successors) > 1
    )


def _barriers(context: Context, node: int, region: set[int]) -> list[Finding]:
    branch = context.graph.nodes[node].stop - 1
    return [
        context.finding(
            findings.DIVERGENT_BARRIER,
            index,
            "waits for fibers that took the other way: the workgroup never goes on",
            "a barrier that every fiber reaches",
            producer=branch,
        )
        for position in sorted(region)
        for index in context.within(position)
        if context.steps[index].barrier
    ]


def _join(context: Context, node: int, join: int | None) -> list[Finding]:
    branch = context.graph.nodes[node].stop - 1
    if join is None or flow(context.program.instrs[branch]) in (Flow.PREDT, Flow.PREDF):
        return []  # predication parks nobody: prede ends it
    first = context.graph.nodes[join].start
    if context.program.instrs[first].jp:
        return []
    if flow(context.program.instrs[branch]) is Flow.ELECT and first == branch + 1:
        return []  # a loop of elections: the others come here one by one, elected in their turn
    effect = "goes on without the fibers that took the other way"
    return [context.finding(findings.MISSING_JOIN, first, effect, f"(jp) on #{first}", producer=branch)]
