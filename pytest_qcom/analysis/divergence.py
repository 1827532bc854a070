"""Where the fibers of a workgroup part: barriers that not all of them reach, joins at which they stay parked.

A value is *divergent* if it may differ between fibers: the local id, and whatever is computed from it, loaded
through it, or written where only some fibers run. Rules: Mesa, ``ir3_reconvergence.c``.
"""

from __future__ import annotations

from pytest_qcom.analysis import findings
from pytest_qcom.analysis.context import Context
from pytest_qcom.analysis.findings import Finding
from pytest_qcom.analysis.graph import flow
from pytest_qcom.analysis.storage import SHARED
from pytest_qcom.isa.access import parallel
from pytest_qcom.isa.instruction import Atomic, FiberId, Flow, Shuffle

_PARTING = (Flow.BRANCH, Flow.BRANCH_OR, Flow.BRANCH_AND, Flow.PREDT, Flow.PREDF)


def divergence(context: Context, preset: int) -> list[Finding]:
    """Barriers under divergence and joins without (jp); ``preset`` are the cells that the launch fills."""
    if not any(flow(instr) in _PARTING for instr in context.program.instrs):
        return []
    joins = _post_dominators(context)
    branches: set[int] = set()
    while True:  # a divergent region makes what it writes divergent, and so maybe further branches
        regions = {node: _region(context, node, joins[node]) for node in branches}
        within = set().union(*regions.values()) if regions else set()
        more = _divergent_branches(context, preset & ~SHARED, within)
        if more <= branches:
            break
        branches |= more
    found: dict[tuple[str, int], Finding] = {}  # the outermost branch is to blame, once an instruction
    for node in sorted(branches):
        for finding in (*_barriers(context, node, regions[node]), *_join(context, node, joins[node])):
            found.setdefault((finding.rule.name, finding.consumer.index), finding)
    return list(found.values())


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


def _divergent_branches(context: Context, preset: int, within: set[int]) -> set[int]:
    """Nodes that end in a branch on a divergent value, when the nodes ``within`` run divergently."""
    nodes = context.graph.nodes
    entry = [0] * len(nodes)
    entry[0] = preset
    branches: set[int] = set()
    moves: dict[int, tuple[tuple[int, int], ...]] = {}
    todo = list(reversed(context.order))
    while todo:
        position = todo.pop()
        state = entry[position]
        for index in range(nodes[position].start, nodes[position].stop):
            step, instr = context.steps[index], context.program.instrs[index]
            own = isinstance(instr.op.effect, Atomic | Shuffle | FiberId)
            if own or position in within:
                state |= step.write_mask
            elif len(step.writes) > 1 and parallel(instr):
                if index not in moves:
                    moves[index] = _moves(context, index)
                state = _moved(state, moves[index])
            elif step.read_mask & state:
                state |= step.write_mask
            else:
                state &= ~step.write_mask
            if _parts(context, position, index) and step.read_mask & state:
                branches.add(position)
        for successor in nodes[position].successors:
            if state & ~entry[successor]:
                entry[successor] |= state
                todo.append(successor)
    return branches


def _moves(context: Context, index: int) -> tuple[tuple[int, int], ...]:
    """The (cells read, cells written) of each value that a parallel move moves."""
    step = context.steps[index]
    reads: dict[int, int] = {}
    for access in step.reads:
        reads[access.element] = reads.get(access.element, 0) | context.storage.mask((access.reg,))
    return tuple(
        (reads.get(access.element, 0), context.storage.mask((access.reg,))) for access in step.writes
    )


def _moved(state: int, moves: tuple[tuple[int, int], ...]) -> int:
    """The divergent cells behind a parallel move, all of whose sources are read before any is written."""
    after = state
    for read, written in moves:
        after = after | written if read & state else after & ~written
    return after


def _parts(context: Context, position: int, index: int) -> bool:
    """Whether an instruction may send fibers two ways."""
    return (
        flow(context.program.instrs[index]) in _PARTING and len(context.graph.nodes[position].successors) > 1
    )


def _barriers(context: Context, node: int, region: set[int]) -> list[Finding]:
    branch = context.graph.nodes[node].stop - 1
    return [
        Finding(
            rule=findings.DIVERGENT_BARRIER,
            register="",
            consumer=context.site(index),
            producer=context.site(branch),
            available=None,
            needed=None,
            effect="waits for fibers that took the other way: the workgroup never goes on",
            fix="a barrier that every fiber reaches",
        )
        for position in sorted(region)
        for index in range(context.graph.nodes[position].start, context.graph.nodes[position].stop)
        if context.steps[index].barrier
    ]


def _join(context: Context, node: int, join: int | None) -> list[Finding]:
    branch = context.graph.nodes[node].stop - 1
    if join is None or flow(context.program.instrs[branch]) in (Flow.PREDT, Flow.PREDF):
        return []  # predication parks nobody: prede ends it
    first = context.graph.nodes[join].start
    if context.program.instrs[first].jp:
        return []
    return [
        Finding(
            rule=findings.MISSING_JOIN,
            register="",
            consumer=context.site(first),
            producer=context.site(branch),
            available=None,
            needed=None,
            effect="goes on without the fibers that took the other way",
            fix=f"(jp) on #{first}",
        )
    ]
