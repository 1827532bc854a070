"""For each patch, graphs that look like a site and are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pytest_qcom.openpilot.graph import Call, Graph, Kind, View
from pytest_qcom.openpilot.registry import PATCHES

Miss = tuple[str, Callable[[Graph], Graph]]
"""A model, and what is changed in its graph."""


def with_other_weights(graph: Graph) -> Graph:
    """Every weight differs from every other one in its last byte."""
    weights = [memory for memory in graph.memories if memory.kind is Kind.WEIGHT]
    changed = {
        memory: replace(memory, contents=(memory.contents or b"")[:-1] + bytes([number]))
        for number, memory in enumerate(weights)
    }
    return replace(graph, calls=tuple(call.substituted(changed) for call in graph.calls))


def once(graph: Graph) -> Graph:
    """The graph after what removes repeated calls."""
    from pytest_qcom.openpilot.patch import apply

    return apply(PATCHES["dedupe-head"], graph).graph


def only_first_level(graph: Graph) -> Graph:
    """Its calls of one level: any order is one by level."""
    same = graph.calls[0].label
    kept = [call for n, call in enumerate(graph.calls) if graph.levels()[n] == 0 and call.label == same]
    return replace(graph, calls=tuple(kept))


NEAR_MISSES: dict[str, tuple[Miss, ...]] = {
    "dedupe-head": (("heads", lambda graph: with_other_weights(once(graph))),),
    "level-schedule": (("heads", only_first_level),),
    "inverse-full-rpt": (("attention", lambda graph: graph),),
}


def changed_view(call: Call, number: int, view: View) -> Call:
    """The call with another argument."""
    return replace(call, views=(*call.views[:number], view, *call.views[number + 1 :]))


def noise(view: View, seed: int) -> bytes:
    """Random numbers of a view's type and size."""
    count = view.nbytes // np.dtype(view.dtype).itemsize
    return np.random.default_rng(seed).standard_normal(count).astype(view.dtype).tobytes()
