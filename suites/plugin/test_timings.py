"""Published speeds against the model's: what is built, what is not, and how errors are told."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from pytest_qcom import calibration, cli, measurements, timings
from pytest_qcom.analysis.cycles import DEFAULT
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.registry import KERNELS

HEADER = "id,family,config,m,n,k,threads,thread128,unit,low,high,verdict,check"
ROWS = (
    "a,mad_peak,dtype=fp16,1024,1024,1024,256,1,GFLOPS,690.35,690.35,probe,none",
    "b,mad_peak,dtype=fp32,1024,1024,1024,256,0,GFLOPS,345.6,345.7,probe,none",
    "c,nowhere,x,1024,1024,1024,128,1,GFLOPS,1,1,probe,none",
    "d,mad_peak,dtype=fp16,1024,1024,1024,256,1,GFLOPS,,,probe,none",
    "e,mad_peak,dtype=fp16,1024,1024,1024,256,1,parsecs,1,1,probe,none",
)

SPLIT_A = {
    "id": "f",
    "family": "gemm_8x8_fp16",
    "config": "split-a donor8-add256-store",
    "m": "128",
    "n": "512",
    "k": "256",
    "threads": "128",
    "thread128": "1",
    "unit": "GFLOPS",
    "low": "1",
    "high": "1",
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text("\n".join((HEADER, *ROWS)) + "\n")
    return path


def test_rows_are_counted_and_listed(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify-timing", str(table), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["built"], facts["not_built"], len(facts["rows"])) == (2, 3, 5)
    assert max(facts["median_abs_error"], facts["p90_abs_error"]) < 0.05
    assert facts["spearman"] == pytest.approx(1)
    reasons = {row["id"]: row["reason"] for row in facts["rows"] if not row["built"]}
    assert "no declared kernel" in reasons["c"] and "parsecs" in reasons["e"]
    assert reasons["d"] == "no figure was published"


@pytest.mark.parametrize(
    ("unit", "measured"),
    [("TFLOPS", 0.69), ("MFLOPS", 690e3), ("us", 3112), ("ms", 3.112), ("s", 3.112e-3), ("cycles", 2.21e6)],
)
def test_figures_in_other_units(unit: str, measured: float) -> None:
    """2048 groups of 256 fibers do 8 passes of 16 MADs of 16: 2.15 GFLOP."""
    row = dict(zip(HEADER.split(","), ROWS[0].split(","), strict=True))
    figure = str(measured)
    (found,) = timings.verify([{**row, "unit": unit, "low": figure, "high": figure}])["rows"]
    assert found["unit"] == unit and abs(found["error"]) < 0.1


def test_a_rate_of_something_else_is_no_prediction() -> None:
    row = dict(zip(HEADER.split(","), ROWS[0].split(","), strict=True))
    (found,) = timings.verify([{**row, "unit": "GB/s"}])["rows"]
    assert found["reason"] == "mad_peak: a figure in GB/s; what it does is counted in GFLOPS"


def test_text_names_families_and_rows(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify-timing", str(table)]) == 0
    text = capsys.readouterr().out
    assert "2 rows built, 3 not" in text and "c nowhere x: not built:" in text


@pytest.mark.parametrize("figures", ["fast,fast", "0,1", "690,inf", "700,690"])
def test_figures_that_are_no_range_are_an_error(
    table: Path, figures: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table.write_text(table.read_text().replace("690.35,690.35", figures))
    assert cli.main(["verify-timing", str(table)]) == cli.BAD_INPUT
    assert "table row a: low and high are " in capsys.readouterr().err


def test_what_kernels_count_is_a_rate() -> None:
    counted = {kernel.unit for kernel in KERNELS.values()}
    assert counted == set(measurements.RATES) == {unit for unit, _ in timings.RATES.values()}


def test_equal_values_share_their_rank() -> None:
    assert timings.spearman([1, 2, 2, 4], [1, 3, 3, 9]) == pytest.approx(1)
    assert timings.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert timings.spearman([1, 1], [1, 2]) is None


def rows_of(table: Path) -> list[timings.Row]:
    return [row for row in timings.rows(timings.read(table)) if isinstance(row, timings.Row)]


def test_a_fit_without_passes_is_where_it_began(table: Path) -> None:
    rows = rows_of(table)
    assert calibration.fit(rows, DEFAULT, passes=0) == DEFAULT
    assert calibration.judge(rows, DEFAULT)["rows"] == 2


def test_a_fit_finds_the_constants_that_made_the_figures(table: Path) -> None:
    """A published kernel whose figure is what the model gives with later lines."""
    row = next(row for row in timings.rows([SPLIT_A]) if isinstance(row, timings.Row))
    made = dataclasses.replace(DEFAULT, fetch=2 * DEFAULT.fetch)
    row = dataclasses.replace(row, measured=row.predict(made)[0])
    assert calibration.loss([row], DEFAULT) > 0.05
    assert calibration.loss([row], calibration.fit([row], DEFAULT)) < 0.01


def test_rounded_constants_have_few_digits_and_fit(table: Path) -> None:
    row = next(row for row in timings.rows([SPLIT_A]) if isinstance(row, timings.Row))
    row = dataclasses.replace(row, measured=row.predict(DEFAULT)[0])
    near = dataclasses.replace(DEFAULT, fetch=DEFAULT.fetch + 0.4, turn=DEFAULT.turn - 0.1)
    made = calibration.rounded([row], near)
    assert all(value % (0.5 if value < 10 else 4.0) == 0 for value in dataclasses.astuple(made))
    assert made == DEFAULT


def test_halves_are_each_left_out_once(table: Path) -> None:
    rows = rows_of(table)
    one, other = calibration.halves(rows)
    assert {row.id for row in one + other} == {"a", "b"} and len(one) == len(other) == 1
    found = calibration.cross_validate(rows)
    assert found["fitted"]["rows"] == found["left_out"]["rows"] == 2
    with pytest.raises(KernelError, match="the table has 1; give one of several"):
        calibration.by_family(rows)


def test_families_are_each_left_out_once(table: Path) -> None:
    rows = rows_of(table)
    named = [dataclasses.replace(row, family=row.id) for row in rows]
    assert calibration.by_family(named)["rows"] == 2
