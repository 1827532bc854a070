"""The stored floors: what is accepted, what is refused and with which words, what an update keeps."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_qcom import baselines
from pytest_qcom.baselines import Machine, Measurement
from pytest_qcom.errors import BaselineError, FloorError

MACHINE = Machine("desk", "Adreno 630", "hardware", tolerance=0.02)
VERSIONS = {"tinygrad": "0.14.0"}


def measurement(
    name: str = "gemm[small]", seconds: tuple[float, ...] = (2e-3, 2e-3), **fields: Any
) -> Measurement:
    kernel, _, case = name.rstrip("]").partition("[")
    defaults: dict[str, Any] = {
        "key": name,
        "kernel": kernel,
        "case": case,
        "options": {"m": 64},
        "shape": "64x64x64",
        "unit": "GFLOPS",
        "work": 2e-3,
        "seconds": seconds,
        "floor": None,
        "max_error": 0.0,
        "hazards": "strict",
        "claim": "correct",
    }
    return Measurement(**{**defaults, **fields})


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return baselines.update(tmp_path, MACHINE, [measurement(), measurement("gemm[large]", (1e-3,))], VERSIONS)


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def refusal(root: Path, device: str = "desk") -> str:
    with pytest.raises(BaselineError) as error:
        baselines.load(root, device)
    return str(error.value)


def test_what_was_stored_is_loaded(tmp_path: Path, stored: Path) -> None:
    assert stored == tmp_path / "desk" / "0001_floors.json"
    loaded = baselines.load(tmp_path, "desk")
    assert list(loaded.floors) == ["gemm[large]", "gemm[small]"]
    floor = loaded.floor("gemm[small]", "hardware")
    assert (floor.value, floor.unit, floor.tolerance, floor.model) == (1.0, "GFLOPS", 0.02, "hardware")
    assert floor.provenance["versions"] == VERSIONS


def test_measurement_survives_its_text() -> None:
    original = measurement(floor=0.5, max_error=None)
    assert Measurement.loads(original.dumps()) == original


@pytest.mark.parametrize("speed", [1.0, 2.0, 0.98])
def test_floor_allows_its_tolerance(tmp_path: Path, stored: Path, speed: float) -> None:
    floor = baselines.load(tmp_path, "desk").floor("gemm[small]", "hardware")
    assert floor.check(speed, "GFLOPS") == pytest.approx(speed - 1)


@pytest.mark.parametrize("speed", [0.979, 0.0, float("nan")])
def test_floor_breach(tmp_path: Path, stored: Path, speed: float) -> None:
    floor = baselines.load(tmp_path, "desk").floor("gemm[small]", "hardware")
    with pytest.raises(FloorError) as error:
        floor.check(speed, "GFLOPS")
    assert error.value.facts["floor"] == 1.0
    if speed == 0.979:
        assert str(error.value) == (
            f"gemm[small] on desk: 0.98 GFLOPS is 2.10% below the floor of 1.00 GFLOPS (tolerance 2.00%, "
            f"{stored}); make the kernel faster, or accept the new speed with --qcom-update-baselines"
        )


def test_floor_of_another_unit(tmp_path: Path, stored: Path) -> None:
    with pytest.raises(BaselineError, match=r"measured in GB/s, .* has GFLOPS; rewrite"):
        baselines.load(tmp_path, "desk").floor("gemm[small]", "hardware").check(5.0, "GB/s")


def test_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path) == (
        f"baseline of desk: no stored floors in {tmp_path / 'desk'}; store them first: "
        "run these tests with --qcom-update-baselines --qcom-device desk"
    )


def test_missing_entry(tmp_path: Path, stored: Path) -> None:
    with pytest.raises(BaselineError) as error:
        baselines.load(tmp_path, "desk").floor("gemm[huge]", "hardware")
    assert str(error.value) == (
        f"floor of gemm[huge] on desk: {stored} has no such entry among its 2; "
        "measure it with --qcom-update-baselines"
    )


def test_floor_of_another_model_of_time(tmp_path: Path, stored: Path) -> None:
    with pytest.raises(BaselineError) as error:
        baselines.load(tmp_path, "desk").floor("gemm[small]", "model: cycles")
    assert str(error.value) == (
        f"floor of gemm[small] on desk: {stored} has it from 'hardware', "
        "the device's times are 'model: cycles'; measure it again with --qcom-update-baselines"
    )


def test_broken_json(tmp_path: Path, stored: Path) -> None:
    stored.write_text(stored.read_text()[:-10])
    assert refusal(tmp_path).startswith(f"baseline {stored}: is not readable JSON (Expecting")


def test_broken_newest_file_is_not_replaced_by_an_older_one(tmp_path: Path, stored: Path) -> None:
    newer = stored.with_name("0002_floors.json")
    newer.write_text("{")
    assert str(newer) in refusal(tmp_path)


def test_file_of_another_device(tmp_path: Path, stored: Path) -> None:
    stored.parent.rename(tmp_path / "shelf")
    assert refusal(tmp_path, "shelf") == (
        f"baseline of shelf: {tmp_path / 'shelf' / '0001_floors.json'} was measured on 'desk'; "
        "put it into the folder of that device, or measure shelf with --qcom-update-baselines"
    )


def test_entry_of_another_device(tmp_path: Path, stored: Path) -> None:
    edit(stored, lambda document: document["benchmarks"][0]["extra_info"].update(device="shelf"))
    assert f"entry gemm[large] of {stored} was measured on 'shelf'" in refusal(tmp_path)


@pytest.mark.parametrize("floor", [0, -1.0, float("nan"), float("inf"), "430", None, True])
def test_floor_that_is_no_positive_number(tmp_path: Path, stored: Path, floor: Any) -> None:
    edit(stored, lambda document: document["benchmarks"][1]["extra_info"].update(floor=floor))
    assert f"entry gemm[small] has floor {floor!r}, not a positive number" in refusal(tmp_path)


@pytest.mark.parametrize("mean", [0, float("nan"), None])
def test_mean_that_is_no_time(tmp_path: Path, stored: Path, mean: Any) -> None:
    edit(stored, lambda document: document["benchmarks"][1]["stats"].update(mean=mean))
    assert f"entry gemm[small] has a mean of {mean!r}, not a positive number of seconds" in refusal(tmp_path)


@pytest.mark.parametrize("tolerance", [-0.1, 1, "2%"])
def test_tolerance_that_is_no_fraction(tmp_path: Path, stored: Path, tolerance: Any) -> None:
    edit(stored, lambda document: document["benchmarks"][1]["extra_info"].update(tolerance=tolerance))
    assert f"entry gemm[small] has tolerance {tolerance!r}, not a fraction of 1" in refusal(tmp_path)


@pytest.mark.parametrize("field", baselines.REQUIRED)
def test_entry_without_a_field(tmp_path: Path, stored: Path, field: str) -> None:
    edit(stored, lambda document: document["benchmarks"][1]["extra_info"].pop(field))
    assert f"entry gemm[small] lacks extra_info {field};" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda document: document.pop("benchmarks"),
            "is no pytest-benchmark file: it has no list of benchmarks",
        ),
        (lambda document: document["benchmarks"].append(5), "entry 2 has no fullname"),
        (lambda document: document["benchmarks"].append(document["benchmarks"][0]), "has gemm[large] twice"),
        (
            lambda document: document["benchmarks"][0].pop("extra_info"),
            "entry gemm[large] lacks extra_info floor, ",
        ),
        (lambda document: document["benchmarks"][0].pop("stats"), "entry gemm[large] has a mean of None"),
        (
            lambda document: document["benchmarks"][0]["extra_info"].update(unit=3),
            "has a unit or model that is no",
        ),
        (
            lambda document: document["benchmarks"][0]["extra_info"].update(provenance=3),
            "has a provenance that is no",
        ),
    ],
)
def test_malformed_document(tmp_path: Path, stored: Path, change: Callable[[Any], Any], words: str) -> None:
    edit(stored, change)
    message = refusal(tmp_path)
    assert words in message
    assert message.endswith("delete it and measure again with --qcom-update-baselines")


def test_update_keeps_the_entries_of_kernels_that_did_not_run(tmp_path: Path, stored: Path) -> None:
    before = {entry["name"]: entry for entry in json.loads(stored.read_text())["benchmarks"]}
    baselines.update(tmp_path, MACHINE, [measurement("gemm[small]", (1e-3,))], VERSIONS)
    after = {entry["name"]: entry for entry in json.loads(stored.read_text())["benchmarks"]}
    assert after["gemm[large]"] == before["gemm[large]"]
    assert after["gemm[small]"]["extra_info"]["floor"] == 2.0
    assert after["gemm[small]"]["stats"]["mean"] == 1e-3


def test_updates_at_once_lose_no_floor(tmp_path: Path, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has read and waits before it writes; the second one must not have read what it did."""
    reading, real = threading.Barrier(2), baselines.write

    def slow(*arguments: Any) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):  # broken where only one is within
            reading.wait(timeout=0.2)
        real(*arguments)

    monkeypatch.setattr(baselines, "write", slow)
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(baselines.update, tmp_path, MACHINE, [measurement(name)], VERSIONS)
            for name in ("gemm[one]", "gemm[other]")
        ]
        assert {each.result(timeout=30) for each in both} == {stored}
    assert {"gemm[one]", "gemm[other]", "gemm[large]"} <= set(baselines.load(tmp_path, "desk").floors)


def test_update_waits_for_another_process(tmp_path: Path, stored: Path) -> None:
    script = """
        import fcntl, os, sys, time
        fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
        print("locked", flush=True)
        time.sleep(0.3)
        print(os.stat(sys.argv[2]).st_mtime_ns)
    """
    before = stored.stat().st_mtime_ns
    arguments = [sys.executable, "-c", textwrap.dedent(script), str(stored.parent), str(stored)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        baselines.update(tmp_path, MACHINE, [measurement("gemm[new]")], VERSIONS)
        assert int(other.stdout.readline()) == before  # nothing was written while it was locked
    assert "gemm[new]" in baselines.load(tmp_path, "desk").floors


def test_update_without_news_changes_nothing(tmp_path: Path, stored: Path) -> None:
    before = stored.read_bytes(), stored.stat().st_mtime_ns
    assert baselines.update(tmp_path, MACHINE, [measurement()], VERSIONS) == stored
    assert (stored.read_bytes(), stored.stat().st_mtime_ns) == before


def test_update_writes_into_the_newest_file(tmp_path: Path, stored: Path) -> None:
    newer = stored.rename(stored.with_name("0007_measurements.json"))
    assert baselines.update(tmp_path, MACHINE, [measurement()], VERSIONS) == newer


def test_update_refuses_to_lose_a_malformed_file(tmp_path: Path, stored: Path) -> None:
    stored.write_text("{")
    with pytest.raises(BaselineError, match="is not readable JSON"):
        baselines.update(tmp_path, MACHINE, [measurement()], VERSIONS)
    assert stored.read_text() == "{"


def test_failed_update_leaves_the_old_file(
    tmp_path: Path, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(
        BaselineError, match=r"cannot write .* \(.*No space left on device\); the stored floors stay"
    ):
        baselines.update(tmp_path, MACHINE, [measurement("gemm[new]")], VERSIONS)
    assert stored.read_bytes() == before
    assert list(stored.parent.iterdir()) == [stored]


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ([], "nothing was measured; the stored floors stay as they are"),
        ([measurement(), measurement()], r"gemm\[small\] was measured by two tests; run one"),
        ([measurement(seconds=(0.0,))], r"gemm\[small\] took no time; check the device's clock"),
    ],
)
def test_update_refuses(tmp_path: Path, stored: Path, measured: list[Measurement], words: str) -> None:
    before = stored.read_bytes()
    with pytest.raises(BaselineError, match=words):
        baselines.update(tmp_path, MACHINE, measured, VERSIONS)
    assert stored.read_bytes() == before


def test_key_names_changed_options() -> None:
    assert baselines.key("gemm", "small") == "gemm[small]"
    assert (
        baselines.key("gemm", "small", {"threads": 64, "b_first": True})
        == "gemm[small,b_first=True,threads=64]"
    )
