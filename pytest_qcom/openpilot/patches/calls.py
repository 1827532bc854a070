"""Patches that leave out or move calls and change no program."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from pytest_qcom.openpilot import accesses
from pytest_qcom.openpilot.graph import Call, Graph, Kind, Memory, Program, View
from pytest_qcom.openpilot.patch import Edit, Findings, Patch, Refusal, Site


def _content(program: Program, slot: int, view: View, same: dict[Memory, Memory]) -> Hashable:
    """What a program reads of a view, as far as it can be told without running: equal for equal values."""
    if view.memory.kind is Kind.WEIGHT:
        read = accesses.reads(program, slot)
        array = view.array()
        used = array if read is None or read.max() >= len(array) else array[read]
        return used.tobytes(), view.dtype
    return same.get(view.memory, view.memory), view.start, view.nbytes, view.dtype


def _find_duplicates(graph: Graph) -> Findings:
    sites, refusals = [], []
    seen: dict[Hashable, int] = {}
    same: dict[Memory, Memory] = {}
    for number, call in enumerate(graph.calls):
        if call.program is None:
            continue
        moving = any(view.memory.kind is Kind.FIXED for view in call.ins)
        slots = call.program.ins
        key = (
            call.program.digest,
            tuple(_content(call.program, slot, call.views[slot], same) for slot in slots),
        )
        if key not in seen:
            if not moving:
                seen[key] = number
            continue
        first = graph.calls[seen[key]]
        kinds = {view.memory.kind for view in (*call.outs, *first.outs)}
        if kinds != {Kind.TEMPORARY}:
            refusals.append(Refusal(number, f"repeats call {seen[key]}, but its result is returned"))
            continue
        same.update(_results(call, first, same))
        sites.append(Site((number,), {"repeats": seen[key]}))
    return tuple(sites), tuple(refusals)


def _results(call: Call, first: Call, same: dict[Memory, Memory]) -> dict[Memory, Memory]:
    pairs = zip(call.outs, first.outs, strict=True)
    return {mine.memory: same.get(theirs.memory, theirs.memory) for mine, theirs in pairs}


def _drop(graph: Graph, site: Site) -> Edit:
    (number,) = site.calls
    same = _results(graph.calls[number], graph.calls[site.facts["repeats"]], {})
    return Edit(calls={number: ()}, aliases={mine: View.of(theirs) for mine, theirs in same.items()})


def _order(graph: Graph) -> tuple[int, ...]:
    """Calls by level; within one, those of a program side by side, in the order of its first call."""
    levels = graph.levels()
    first: dict[Hashable, int] = {}
    for number, call in enumerate(graph.calls):
        first.setdefault((levels[number], call.label), number)
    return tuple(
        sorted(range(len(levels)), key=lambda n: (levels[n], first[levels[n], graph.calls[n].label], n))
    )


def _find_order(graph: Graph) -> Findings:
    order = _order(graph)
    moved = sum(place != number for place, number in enumerate(order))
    if not moved:
        return (), ()
    return (Site(tuple(range(len(order))), {"moved": moved}),), ()


def _sort(graph: Graph, site: Site) -> Edit:
    """In one batch: batches of calls that were apart would be torn to pieces."""
    batch = {n: (replace(graph.calls[n], batch=0),) for n in site.calls if graph.calls[n].program}
    return Edit(calls=batch, order=_order(graph))


PATCHES = (
    Patch(
        name="dedupe-head",
        summary="leave out a call that repeats an earlier one: same program, same inputs, equal weights",
        find=_find_duplicates,
        rewrite=_drop,
        models=("heads",),
        source="heads that were exported twice with byte-identical weights",
    ),
    Patch(
        name="level-schedule",
        summary="order calls by dependency level and, within one, by program",
        find=_find_order,
        rewrite=_sort,
        models=("heads",),
        source="the instruction cache keeps a program that is launched again at once",
    ),
)
