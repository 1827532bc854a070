"""Attention in one launch: what it is found by, and what is wrong with what is none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pytest_qcom.openpilot import execution, interpreter, patch, registry
from pytest_qcom.openpilot.graph import Graph
from suites.openpilot import near_misses

Captured = Callable[[str], Graph]


def test_programs_are_interpreted_as_the_device_runs_them(captured: Captured) -> None:
    """The calls between scores and mixture: a maximum, a sum of exponentials, a division."""
    graph = captured("attention")
    numbers = (7, 8, 9, 10)
    inputs = execution.random_inputs(graph, np.random.default_rng(1))
    made = execution.run(graph, inputs, watch=numbers).outputs
    memory = {graph.calls[7].views[0].memory: made[7][0].astype(np.float64).ravel()}
    for number in numbers[1:]:
        call, (expected,) = graph.calls[number], made[number]
        assert call.program is not None
        memory[call.views[0].memory] = np.full(expected.size, np.nan)
        interpreter.interpret(call.program, {n: memory[view.memory] for n, view in enumerate(call.views)})
        found = memory[call.views[0].memory]
        assert np.isfinite(found).sum() >= 64
        assert np.allclose(found, expected.ravel(), rtol=2e-3, atol=1e-6, equal_nan=True), number


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (near_misses.with_scores_returned, "what is between scores and mixture is read by others, too"),
        (near_misses.with_exchanged_rows, "what is between scores and mixture is no softmax"),
    ],
)
def test_why_it_is_none(captured: Captured, change: Callable[[Graph], Graph], reason: str) -> None:
    applied = patch.apply(registry.find("fuse-attention"), change(captured("attention")))
    assert reason in [each.reason for each in applied.refusals]


def test_five_calls_become_one(captured: Captured) -> None:
    """It moves results by less than the halves do that it leaves out."""
    report = patch.check(registry.find("fuse-attention"), captured("attention"), np.random.default_rng(2))
    assert [site.calls for site in report.applied.sites] == [(7, 8, 9, 10, 11)]
    assert 0 < report.error < 1e-3
    assert len(report.applied.graph.calls) == len(report.applied.before.calls) - 4
