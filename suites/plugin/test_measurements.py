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
from pytest_qcom.kernels.compositions import COMPOSITIONS
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.openpilot.registry import PATCHES
from suites.plugin.test_baselines import measurement

HEADER = ",".join(measurements.COLUMNS)
MACHINE = Machine("tc3", "Adreno 630", "hardware", tolerance=0.02)
STORED = Path(__file__).parents[2] / "baselines"

WITHOUT_A_FIGURE = {
    "gemm_4x4_fp16_published[p149]",
    "gemm_4x4_fp32_published[p187]",
    "gemm_4x8_fp32_published[p196]",
    "gemm_4x8_fp32_published[p198]",
    "gemm_4xn_fp16_published[p132]",
}
"""Published as wrong or as a hang: their speed, where one was given, is no floor."""

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
        "p701,other,,0,-3,6.5,128,0,GFLOPS,5,5,correct,all_ones",
        "p702,other,,64,,64,128,0,GFLOPS,5,5,correct,all_ones",
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
        "p701": "m is '0', n is '-3', k is '6.5', no positive whole number",
        "p702": "n is '', no positive whole number",
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
        ("fast", "5", "row p1 has figures 'fast', '5', which are no numbers"),
        ("0", "5", "row p1 has a range from 0.0 to 5.0"),
        ("6", "5", "row p1 has a range from 6.0 to 5.0"),
        ("nan", "5", "row p1 has a range from nan to 5.0"),
        ("5", "inf", "row p1 has a range from 5.0 to inf"),
        ("1e999", "1e999", "row p1 has a range from inf to inf"),
        ("1e-320", "1e300", "row p1 has a range from 1e-320 to 1e\\+300"),
    ],
)
def test_broken_figures(tmp_path: Path, low: str, high: str, words: str) -> None:
    path = table(tmp_path / "rows.csv", f"p1,other,,64,64,64,64,0,GFLOPS,{low},{high},correct,random")
    with pytest.raises(BaselineError, match=rf"^measurements {path}: {words}; correct the table$"):
        measurements.convert(path, MACHINE, lambda row: None)


def test_two_rows_about_one_case(tmp_path: Path) -> None:
    row = "other,,64,64,64,64,0,GFLOPS,5,5,correct,random"
    path = table(tmp_path / "rows.csv", f"p1,{row}", f"p2,{row}")
    with pytest.raises(BaselineError, match=r"row p2 is about other\[x\], as an earlier one"):
        measurements.convert(path, MACHINE, lambda row: ("other[x]", 1.0))


USABLE = "p1,other,,64,64,64,64,0,GFLOPS,{low},{low},correct,random"


def bring(rows: Path, *arguments: str) -> int:
    return cli.main(["import", str(rows), "--folder", str(rows.parent), *(arguments or ("--device", "tc3"))])


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ((), "nothing below its header; give a row for each figure"),
        (
            ("p1,other,,64,64,64,64,0,ms,5,5,probe,none",),
            "no usable row (row p1: unit 'ms' is no rate); the stored floors stay as they are",
        ),
    ],
)
def test_table_without_a_usable_row_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: tuple[str, ...], problem: str
) -> None:
    assert bring(table(tmp_path / "rows.csv", USABLE.format(low=5))) == 0
    stored = tmp_path / "tc3" / measurements.FILE
    before = stored.read_bytes()
    capsys.readouterr()
    path = table(tmp_path / "empty.csv", *rows)
    assert bring(path) == cli.BAD_INPUT
    what = "measurements" if rows else "table"  # one without rows is none of any kind
    assert capsys.readouterr().err == f"qcom: {what} {path}: {problem}\n"
    assert stored.read_bytes() == before


def test_import_keeps_what_was_measured_since(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = USABLE.replace("p1,", "p2,")
    rows = table(tmp_path / "rows.csv", USABLE.format(low=5), other.format(low=6))
    assert bring(rows) == 0
    new = [measurement("other[p2]"), measurement("gemm[small]")]
    stored = baselines.update(tmp_path, MACHINE, new, {})
    stored = stored.rename(stored.with_name("0002_later.json"))  # what counts is the newest file
    capsys.readouterr()
    assert bring(table(rows, USABLE.format(low=7), other.format(low=8))) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"1 entries written to {stored}",
        "2 floors measured with --qcom-update-baselines stay as they are: gemm[small], other[p2]",
    ]
    found = {key: floor.value for key, floor in baselines.load(tmp_path, "tc3").floors.items()}
    assert found == {"other[p1]": 7, "other[p2]": 1, "gemm[small]": 1}


def test_import_for_a_device_that_nobody_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bring(table(tmp_path / "rows.csv", USABLE.format(low=5)), "--device", "virtual") == cli.BAD_INPUT
    words = "virtual is not measured hardware; name the device that was measured"
    assert capsys.readouterr().err == f"qcom: import for virtual: {words}\n"
    assert not (tmp_path / "virtual").exists()


def test_table_without_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No figure agrees with the model: that is no success."""
    path = table(tmp_path / "rows.csv")
    assert cli.main(["verify-timing", str(path)]) == cli.BAD_INPUT
    words = "nothing below its header; give a row for each figure"
    assert capsys.readouterr().err == f"qcom: table {path}: {words}\n"


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
    declared |= {f"{each.name}[{case.name}]" for each in COMPOSITIONS.values() for case in each.cases}
    declared |= {f"{each.name}[{model}]" for each in PATCHES.values() for model in each.models}
    assert stored.floors
    assert set(stored.floors) - declared == set()
    assert {floor.model for floor in stored.floors.values()} == {"model: cycle"}
