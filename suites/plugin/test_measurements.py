"""Published measurements as a baseline: every row is an entry or is listed with its reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_qcom import baselines, cli, measurements
from pytest_qcom.baselines import Machine
from pytest_qcom.errors import BaselineError
from pytest_qcom.kernels.registry import KERNELS

HEADER = ",".join(measurements.COLUMNS)
MACHINE = Machine("tc3", "Adreno 630", "hardware", tolerance=0.02)
STORED = Path(__file__).parents[2] / "baselines"

WITHOUT_A_FIGURE = {
    "gemm_4x4_fp32_published[p187]",
    "gemm_4x8_fp32_published[p196]",
    "gemm_4x8_fp32_published[p198]",
}
"""Published as wrong or as a hang, and not as a speed."""

PUBLISHED = (
    "ncols=4 direct compact-acc stable-bx stable-ay inc-coords persistent-coords alu-order=row_col_kk "
    "coord-delay=-1 k-unroll=4 first-sync-only b-first"
)


def table(path: Path, *rows: str) -> Path:
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


@pytest.fixture
def imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    rows = table(
        tmp_path / "rows.csv",
        f"p101,gemm_4xn_fp16,{PUBLISHED},1024,1024,1024,128,1,GFLOPS,421.2,434.8,correct,all_ones",
        f"p119,gemm_4xn_fp16,{PUBLISHED},1024,1024,1024,256,1,GFLOPS,421.1,423.0,correct,all_ones",
        "p500,gemm_4xn_fp16,unheard-of=3,1024,1024,1024,128,1,GFLOPS,400,400,correct,all_ones",
        "p501,other,,64,64,64,,0,GB/s,5,5,probe,none",
        "p111,gemm_4xn_fp16,store-constant,1024,1024,1024,128,1,ms,0.089,0.089,probe,none",
        "p149,other,hand: aliases,1024,1024,1024,128,0,GFLOPS,240,240,wrong,all_ones",
        "p700,other,,1024,1024,1024,128,0,GFLOPS,,,correct,all_ones",
    )
    arguments = ["import", str(rows), "--device", "tc3", "--folder", str(tmp_path), "--json"]
    assert cli.main(arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_every_row_is_an_entry_or_has_a_reason(imported: Any) -> None:
    assert imported["entries"] == 4
    assert imported["left_out"] == {
        "p111": "unit 'ms' is no rate",
        "p149": "the output was wrong",
        "p700": "no figure was published",
    }


def test_rows_about_a_declared_case_become_its_floor(tmp_path: Path, imported: Any) -> None:
    floors = baselines.load(tmp_path, "tc3").floors
    assert list(floors) == [
        "gemm_4xn_fp16[p500]",
        "gemm_4xn_fp16_published[p101]",
        "gemm_4xn_fp16_published[p119]",
        "other[p501]",
    ]
    floor = floors["gemm_4xn_fp16_published[p101]"]
    assert (floor.value, floor.unit, floor.tolerance, floor.model) == (421.2, "GFLOPS", 0.02, "hardware")
    assert floor.provenance == {
        "source": "published engineering notes",
        "row": "p101",
        "measured": [421.2, 434.8],
        "verdict": "correct",
        "check": "all_ones",
    }


def test_times_are_those_of_the_case(tmp_path: Path, imported: Any) -> None:
    entries = {entry["name"]: entry for entry in baselines.load(tmp_path, "tc3").document["benchmarks"]}
    stats = entries["gemm_4xn_fp16_published[p101]"]["stats"]
    assert stats["max"] == pytest.approx(2 * 1024**3 / 421.2e9)
    assert stats["min"] == pytest.approx(2 * 1024**3 / 434.8e9)
    assert entries["other[p501]"]["stats"]["mean"] == pytest.approx(1 / 5)  # of one unit of work


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        ("fast", "5", "row p1 has figures 'fast', '5'"),
        ("0", "5", "row p1 has a range from 0.0 to 5.0"),
        ("6", "5", "row p1 has a range from 6.0 to 5.0"),
        ("nan", "5", "row p1 has a range from nan to 5.0"),
    ],
)
def test_broken_figures(tmp_path: Path, low: str, high: str, words: str) -> None:
    path = table(tmp_path / "rows.csv", f"p1,other,,64,64,64,64,0,GFLOPS,{low},{high},correct,random")
    with pytest.raises(BaselineError, match=words):
        measurements.convert(measurements.read(path), MACHINE, lambda row: None)


def test_two_rows_about_one_case(tmp_path: Path) -> None:
    row = "other,,64,64,64,64,0,GFLOPS,5,5,correct,random"
    path = table(tmp_path / "rows.csv", f"p1,{row}", f"p2,{row}")
    with pytest.raises(BaselineError, match=r"row p2 is about other\[x\], as an earlier one"):
        measurements.convert(measurements.read(path), MACHINE, lambda row: ("other[x]", 1.0))


def test_table_without_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,family\np1,other\n")
    with pytest.raises(BaselineError, match="no column config, m, n, k, "):
        measurements.read(path)


def test_stored_floors_of_hardware_are_published_or_measured_there() -> None:
    stored = baselines.load(STORED, "tc3")
    assert {floor.model for floor in stored.floors.values()} == {"hardware"}
    published = {
        f"{kernel.name}[{case.name}]"
        for kernel in KERNELS.values()
        for case in kernel.cases
        if kernel.claim == "as-published" and re.fullmatch(r"p\d+", case.name)  # named by its row
    }
    assert len(published) > 40
    assert published - set(stored.floors) <= WITHOUT_A_FIGURE


def test_stored_floors_of_the_virtual_device_are_those_of_declared_cases() -> None:
    """A kernel without a floor fails its own test; a floor without a kernel would be noticed by nobody."""
    stored = baselines.load(STORED, "virtual")
    declared = {f"{kernel.name}[{case.name}]" for kernel in KERNELS.values() for case in kernel.cases}
    assert stored.floors
    assert set(stored.floors) - declared == set()
    assert {floor.model for floor in stored.floors.values()} == {"model: cycle"}
