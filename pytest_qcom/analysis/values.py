"""Which value a register holds, as far as moves tell: two registers with one name hold the same value."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from pytest_qcom.analysis.context import Context
from pytest_qcom.isa.access import parallel
from pytest_qcom.isa.instruction import Kind
from pytest_qcom.isa.registers import ADDRESS, NO_REGISTER

_CONSTANT = (Kind.IMM, Kind.CONST)

Name = Hashable
"""A cell that nothing wrote yet (its number), a constant, where it was written, or where paths met."""
Names = dict[int, Name]


@dataclass(frozen=True, slots=True)
class Move:
    """One value copied: ``cells`` become what ``sources`` hold, or ``constant`` where there are none."""

    cells: tuple[int, ...]
    sources: tuple[int, ...]
    constant: Name = None


def moves(context: Context, index: int) -> tuple[Move, ...] | None:
    """What an instruction copies without changing it, one move an element; ``None`` if it is none."""
    instr = context.program.instrs[index]
    dst = instr.dst
    if dst is None or dst.kind is not Kind.GPR or dst.value >= min(ADDRESS, NO_REGISTER):
        return None
    if "src_type" not in instr or instr["src_type"] != instr["dst_type"]:
        return None
    step = context.steps[index]
    sources = {access.element: access.reg for access in step.reads}
    made: list[Move] = []
    for access in step.writes:
        cells = context.storage.cells(access.reg)
        if access.element in sources:
            made.append(Move(cells, context.storage.cells(sources[access.element])))
        elif len(instr.srcs) == 1 and not instr.srcs[0].repeat and instr.srcs[0].kind in _CONSTANT:
            made.append(Move(cells, (), (instr.srcs[0].kind, instr.srcs[0].value)))
        else:
            return None
    return tuple(made)


def exits(context: Context) -> list[Names]:
    """The names behind each node; a cell that is not in them holds what it held at the start."""
    nodes = context.graph.nodes
    names: list[Names | None] = [None] * len(nodes)
    met: list[set[int]] = [set() for _ in nodes]  # cells in which paths differ, for good
    changed = True
    while changed:
        changed = False
        for position in context.order:
            known = [found for other in nodes[position].predecessors if (found := names[other]) is not None]
            if position == 0:
                known.append({})
            met[position].update(differing(known))
            entry = {cell: name for found in known for cell, name in found.items()}
            entry.update((cell, ("met", position, cell)) for cell in met[position])
            after = _behind(context, position, entry)
            if after != names[position]:
                names[position], changed = after, True
    return [found or {} for found in names]


def differing(states: list[Names]) -> Iterator[int]:
    """The cells that do not have the same name in all of them."""
    if len(states) > 1:
        for cell in set().union(*states):
            if len({state.get(cell, cell) for state in states}) > 1:
                yield cell


def _behind(context: Context, position: int, names: Names) -> Names:
    for index in context.within(position):
        copied = moves(context, index)
        if copied is None:
            for access in context.steps[index].writes:
                names.update((cell, (index, cell)) for cell in context.storage.cells(access.reg))
            continue
        before = dict(names) if parallel(context.program.instrs[index]) else names
        for move in copied:
            found = [before.get(cell, cell) for cell in move.sources] or [move.constant] * len(move.cells)
            names.update(zip(move.cells, found, strict=True))
    return names
