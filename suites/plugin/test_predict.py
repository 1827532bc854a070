"""``qcom predict``: what it says of a kernel, its timeline and its plot."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_qcom import cli, prediction, targets

KERNEL = "gemm_4xn_fp16"
WORDS = ("m=128", "n=512", "k=64")


def facts(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert cli.main(["predict", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_facts_of_a_gemm(capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, KERNEL, *WORDS)
    assert found["GFLOPS"] == found["speed"] > 0
    assert found["cycles"] > 0 and found["waves"] > 0
    assert found["limiter"] in found["gains"]
    assert set(found["gains"]) == {
        "ALU", "texture A", "texture B", "sync", "store", "occupancy", "instruction cache"
    }  # fmt: skip
    assert found["roof"] in found["roofs"] and 0 < found["share_of_roof"] <= 1


def test_a_mad_loop_stands_under_the_alu(capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, "mad_peak", "--case", "fp16")
    assert (found["limiter"], found["roof"]) == ("ALU", "ALU")
    assert found["share_of_roof"] > 0.9


def test_the_timeline_is_chrome_trace_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json"
    found = facts(capsys, KERNEL, *WORDS, "--trace", str(path))
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert {event["tid"] for event in events} == set(range(found["waves"]))
    assert {"alu", "texture"} <= {event["cat"] for event in events}
    for slot in range(found["waves"]):
        starts = [event["ts"] for event in events if event["tid"] == slot]
        assert starts == sorted(starts) and all(event["dur"] > 0 for event in events)


def test_a_trace_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", KERNEL, *WORDS, "--trace", str(tmp_path / "no" / "t.json")]) == cli.BAD_INPUT
    assert "not writable" in capsys.readouterr().err


def test_a_roofline_is_drawn_or_says_what_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "roof.svg"
    code = cli.main(["predict", KERNEL, *WORDS, "--plot", str(path)])
    if importlib.util.find_spec("matplotlib"):
        assert code == 0 and path.read_text().lstrip().startswith("<?xml")
    else:
        assert code == cli.BAD_INPUT and "extra 'plot'" in capsys.readouterr().err


def test_a_prediction_is_the_same_every_time() -> None:
    target = targets.named(KERNEL, None, WORDS)
    assert prediction.predict(target).facts() == prediction.predict(target).facts()
