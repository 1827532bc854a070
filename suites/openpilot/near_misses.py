"""For each patch, graphs that look like a site and are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_qcom.openpilot.graph import Graph, Kind
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


def after(name: str) -> Callable[[Graph], Graph]:
    """The graph once a patch was applied: what is left looks like its sites and is none."""
    from pytest_qcom.openpilot.patch import apply

    return lambda graph: apply(PATCHES[name], graph).graph


def as_it_is(graph: Graph) -> Graph:
    """The model's own graph."""
    return graph


NEAR_MISSES: dict[str, tuple[Miss, ...]] = {
    "recompile": (("stem", as_it_is),),
    "fast-gelu": (("attention", as_it_is), ("vision-mlp", after("fast-gelu"))),  # a softmax; no exponential
    "blocked-forward": (("attention", after("blocked-forward")), ("stem", after("native-fp16"))),
    "native-fp16": (("attention", after("native-fp16")), ("stem", after("blocked-forward"))),
    "replace-up4x16": (("attention", as_it_is), ("vision-mlp", after("replace-up4x16"))),  # 64 columns
    "large-fp16": (("attention", as_it_is), ("vision-mlp", after("large-fp16"))),
    "quant-forward": (("attention", as_it_is), ("vision-mlp", after("quant-forward"))),
    "geometry": (("heads", as_it_is), ("stem", as_it_is)),  # they exchange values; no multiple divides
    "inverse-full-rpt": (("attention", as_it_is),),
    "dedupe-head": (("heads", lambda graph: with_other_weights(once(graph))),),
    "level-schedule": (("heads", only_first_level),),
}
