"""Graphs on a device of another process: as here, and what goes wrong there is said here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from pytest_qcom.devices import channel
from pytest_qcom.errors import DeviceUnavailable, GraphError
from pytest_qcom.openpilot import execution, patch, places, registry
from pytest_qcom.openpilot.graph import Graph
from pytest_qcom.openpilot.places import Distant

Captured = Callable[[str], Graph]


@pytest.fixture(scope="module")
def far() -> Iterator[Distant]:
    """A virtual device in a process of its own."""
    with places.distant("far", "virtual", "strict", channel.HERE) as place:
        yield place


def test_a_graph_is_captured_and_run_there_as_here(far: Distant, captured: Captured) -> None:
    graph = far.graph("heads")
    assert graph.digest == captured("heads").digest
    assert far.graph("heads") is graph
    inputs = execution.random_inputs(graph, np.random.default_rng(4))
    here, there = execution.run(graph, inputs, watch=[1]), far.run(graph, inputs, watch=[1])
    assert there.seconds == here.seconds
    for mine, theirs in zip(
        (*here.results, *here.outputs[1]), (*there.results, *there.outputs[1]), strict=True
    ):
        assert theirs.dtype == mine.dtype
        assert np.array_equal(theirs, mine)
    part = far.run(graph, inputs, stop=3)
    assert (len(part.seconds), part.results) == (3, ())


def test_a_patch_is_checked_there(far: Distant) -> None:
    report = patch.check(
        registry.find("input-pack"), far.graph("input-pack"), np.random.default_rng(1), far.run
    )
    assert report.ok and report.applied.sites
    assert report.seconds[1] < report.seconds[0]


def test_what_goes_wrong_there_is_said_here(far: Distant) -> None:
    graph = far.graph("input-pack")
    with pytest.raises(GraphError, match=r"^device far: run with inputs none: the graph has yuv; "):
        far.run(graph, {})
    with pytest.raises(GraphError, match=r"^no model is called 'head'; did you mean heads\?$"):
        far.graph("head")
    assert far.run(graph, execution.random_inputs(graph, np.random.default_rng(0))).results


@pytest.mark.parametrize(
    ("device", "address", "words"),
    [
        ("none", channel.HERE, r"^device far: device 'none': unknown, "),
        ("virtual", "popen//python=/no/such/python", r"^device far: no process at popen//python=/no/such"),
    ],
)
def test_a_place_that_is_not_there(device: str, address: str, words: str) -> None:
    with pytest.raises(DeviceUnavailable, match=words), places.distant("far", device, "strict", address):
        pytest.fail("it opened")


def test_a_process_that_ends_takes_nothing_with_it() -> None:
    with places.distant("far", "virtual", "strict", channel.HERE) as place:
        place._channel.gateway.exit()
        with pytest.raises(DeviceUnavailable, match=r"^device far: its process ended during capture "):
            place.graph("input-pack")
