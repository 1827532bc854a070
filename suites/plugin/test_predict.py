"""``qcom predict``: what it says of a kernel, its timeline and its plot."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from pytest_qcom import cli, prediction, targets, timings
from pytest_qcom.analysis.cycles import estimate

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


@pytest.mark.parametrize("words", [(KERNEL, *WORDS), ("mad_peak", "--case", "fp16")])
def test_the_text_says_the_same_as_the_facts(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    found = facts(capsys, *words)
    assert cli.main(["predict", *words]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{found['kernel']} ") or text.startswith(f"{found['kernel']}:")
    assert f": {found['speed']:.1f} GFLOPS (model: cycle)\n" in text
    assert f"time: {1e3 * found['device_seconds']:.3f} ms" in text
    assert f"\nlimiter: {found['limiter']}\n" in text
    assert f"\nroof: {found['roof']}, of which it reaches {found['share_of_roof']:.0%}\n" in text
    assert not re.search(r"\d\.\d{4,}", text), "no raw floats"


def test_the_line_of_a_roofline_meets_the_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is drawn, with a stand-in for matplotlib where there is none."""
    drawn: dict[str, Any] = {}

    class Axes:
        def loglog(self, x: list[float], y: list[float], *style: str, label: str) -> None:
            drawn[label] = (x, y)

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: None

    class Figure:
        def __init__(self, **_: Any) -> None:
            pass

        def subplots(self) -> Axes:
            return Axes()

        def savefig(self, path: Path) -> None:
            path.write_text("drawn")

    module = types.ModuleType("matplotlib.figure")
    module.Figure = Figure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "matplotlib", types.ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", module)
    found = prediction.predict(targets.named(KERNEL, None, WORDS))
    prediction.plot(found, tmp_path / "roof.svg")
    (places, roof), (point, speed) = drawn["roof"], next(drawn[key] for key in drawn if key != "roof")
    assert (tmp_path / "roof.svg").read_text() == "drawn"
    at = places.index(point[0])
    assert roof[at] == pytest.approx(min(found.roofs().values())) and speed[0] <= roof[at]


def test_a_prediction_is_the_same_every_time() -> None:
    target = targets.named(KERNEL, None, WORDS)
    assert prediction.predict(target).facts() == prediction.predict(target).facts()


@pytest.mark.parametrize("kernel", ["gemm_local_fp16", "gemm_8x8_fp16", "gemm_4x4_fp32"])
def test_a_large_product_is_predicted_within_a_second(kernel: str) -> None:
    """Its path, with loops in loops of tens of thousands of instructions, and its time."""
    build = targets.named(kernel, None, ("m=1024", "n=1024", "k=1024")).build()
    launch = timings.launched(build)
    began = time.process_time()
    assert estimate(launch, build.program).seconds > 0
    assert time.process_time() - began < 1.0
