"""What weights are like, what rounding them does, what corrects an approximation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pytest_qcom import cli
from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import patch, precision, registry, writing
from pytest_qcom.openpilot.graph import Graph, Kind

Captured = Callable[[str], Graph]


def test_weights_are_what_was_drawn(captured: Captured) -> None:
    rows = precision.weights(captured("vision-mlp"))["weights"]
    assert [row.get("shape") for row in rows] == [[64, 256], None, [256, 64]] * 2
    matrix = rows[0]
    assert matrix["elements"] == 64 * 256
    assert matrix["rms"] == pytest.approx(1 / 8, rel=0.02)
    assert 55 <= matrix["rank"] <= 64  # random rows are independent
    assert matrix["rounding"]["half"] == 0  # they are halves
    assert rows[1]["rounding"]["half"] > 0
    assert matrix["rounding"]["nibble"] > 10 * matrix["rounding"]["byte"] > 0


def test_a_scan_adds_up(captured: Captured) -> None:
    graph = captured("shared-heads")
    facts = precision.scan(graph, np.random.default_rng(0), "nibble", 4)
    names = [name for row in facts["chunks"] for name in row["weights"]]
    assert sorted(names) == sorted(memory.name for memory in graph.memories if memory.kind is Kind.WEIGHT)
    errors = [row["error"] for row in facts["chunks"]]
    assert 0 < max(errors) <= 2 * facts["all"] <= 4 * sum(errors)
    assert precision.scan(graph, np.random.default_rng(0), "half", 1)["all"] < max(errors) / 20
    with pytest.raises(GraphError, match=r"^rounding 'bit': there are half, byte, nibble; give one of them$"):
        precision.rounded(graph, [], "bit")


def test_a_constant_error_is_taken_away(captured: Captured) -> None:
    """A bias that is moved is what a constant corrects; rounded sums are not."""
    graph = captured("attention")
    fast = patch.apply(registry.find("native-fp16"), graph).graph
    facts = precision.correction(graph, fast, np.random.default_rng(5), 4)
    assert facts["constant"]["mean"] > facts["none"]["mean"] / 2
    with pytest.raises(GraphError, match=r"^correction of 2 cases: a line needs two besides the one"):
        precision.correction(graph, fast, np.random.default_rng(5), 2)


def test_the_line_through_the_cases() -> None:
    x = np.array([[1.0, 2.0], [2.0, 2.0], [4.0, 2.0]])
    slope, start = precision._line(x, 3 * x + 1)
    np.testing.assert_allclose((slope[0], start[0]), (3, 1))
    np.testing.assert_allclose(slope[1] * 2 + start[1], 7)  # what does not vary has slope 1


def test_at_the_shell(captured: Captured, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, fast = str(tmp_path / "a.pkl"), str(tmp_path / "b.pkl")
    writing.save(captured("stem"), Path(file))
    writing.save(patch.apply(registry.find("fast-gelu"), captured("stem")).graph, Path(fast))
    for words in (
        ["weights"],
        ["scan", "--rounding", "byte"],
        ["correction", "--with", fast, "--cases", "3"],
    ):
        assert cli.main(["graph", words[0], file, *words[1:]]) == 0
        assert capsys.readouterr().out.count("\n") > 1
        assert cli.main(["graph", words[0], file, *words[1:], "--json"]) == 0
        assert json.loads(capsys.readouterr().out)
    assert cli.main(["graph", "correction", file]) == 2
    assert "graph correction: it takes two graphs" in capsys.readouterr().err
