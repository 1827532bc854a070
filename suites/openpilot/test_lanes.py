"""Weights whose lanes stand in another order are told from weights that are others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pytest_qcom.openpilot import inspection, lanes
from pytest_qcom.openpilot.graph import Graph, Kind, View, weight

PAIRS = (0, 2, 4, 6, 1, 3, 5, 7)


def packed(graph: Graph, order: tuple[int, ...]) -> tuple[Graph, tuple[int, int]]:
    """The graph with the lanes of its last weight in another order; the call and argument that it is of."""
    number, slot = max(
        (number, slot)
        for number, call in enumerate(graph.calls)
        for slot, view in enumerate(call.views)
        if view.memory.kind is Kind.WEIGHT
    )
    call = graph.calls[number]
    array = call.views[slot].array()
    moved = View.of(
        weight(np.ascontiguousarray(array.reshape(-1, lanes.WIDTH)[:, order].reshape(array.shape)))
    )
    views = (*call.views[:slot], moved, *call.views[slot + 1 :])
    calls = (*graph.calls[:number], replace(call, views=views), *graph.calls[number + 1 :])
    return graph.with_calls(calls), (number, slot)


def test_a_comparison_names_the_order(captured: Callable[[str], Graph]) -> None:
    """And going back with what was found gives the graph that it was."""
    graph = captured("attention")
    wrong, (number, slot) = packed(graph, PAIRS)
    facts = inspection.compare(graph, wrong, np.random.default_rng(5))
    (row,) = facts["differences"]
    assert (row["calls"], row["changed"], row["lanes"]) == ([number] * 2, ["weights"], {slot: list(PAIRS)})
    assert f"argument {slot} has lanes 0, 2, 4, 6, 1, 3, 5, 7" in "\n".join(inspection.compare_lines(facts))
    back = tuple(int(lane) for lane in np.argsort(row["lanes"][slot]))
    assert packed(wrong, back)[0].digest == graph.digest


@pytest.mark.parametrize("place", [0, 77, 255])
def test_one_other_value_is_no_order(place: int) -> None:
    values = np.random.default_rng(6).standard_normal((32, lanes.WIDTH)).astype(np.float16)
    moved = np.ascontiguousarray(values[:, PAIRS])
    assert lanes.order(values.tobytes(), moved.tobytes()) == PAIRS
    moved.reshape(-1)[place] += 1
    assert lanes.order(values.tobytes(), moved.tobytes()) is None


def test_equal_lanes_stay_where_they_are() -> None:
    values = np.random.default_rng(7).standard_normal((4, lanes.WIDTH)).astype(np.float16)
    values[:, 5] = values[:, 2]
    swapped = values[:, (1, 0, 2, 3, 4, 5, 6, 7)]
    assert lanes.order(values.tobytes(), swapped.tobytes()) == (1, 0, 2, 3, 4, 5, 6, 7)
    assert lanes.order(values.tobytes(), values.tobytes()) is None
    assert lanes.order(values.tobytes(), values[:3].tobytes()) is None
