"""Published speeds against the model's: what is built, what is not, and how errors are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_qcom import calibration, cli, timings
from pytest_qcom.analysis.cycles import DEFAULT

HEADER = "id,family,config,m,n,k,threads,thread128,unit,low,high,verdict,check"
ROWS = (
    "a,mad_peak,dtype=fp16,1024,1024,1024,256,1,GFLOPS,690.35,690.35,probe,none",
    "b,mad_peak,dtype=fp32,1024,1024,1024,256,0,GFLOPS,345.6,345.7,probe,none",
    "c,nowhere,x,1024,1024,1024,128,1,GFLOPS,1,1,probe,none",
    "d,mad_peak,dtype=fp16,1024,1024,1024,256,1,GFLOPS,,,probe,none",
    "e,mad_peak,dtype=fp16,1024,1024,1024,256,1,parsecs,1,1,probe,none",
)


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


def test_text_names_families_and_rows(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify-timing", str(table)]) == 0
    text = capsys.readouterr().out
    assert "2 rows built, 3 not" in text and "c nowhere x: not built:" in text


def test_a_figure_that_is_no_number_is_an_error(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table.write_text(table.read_text().replace("690.35,690.35", "fast,fast"))
    assert cli.main(["verify-timing", str(table)]) == cli.BAD_INPUT
    assert "table row a" in capsys.readouterr().err


def test_equal_values_share_their_rank() -> None:
    assert timings.spearman([1, 2, 2, 4], [1, 3, 3, 9]) == pytest.approx(1)
    assert timings.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert timings.spearman([1, 1], [1, 2]) is None


def test_a_fit_without_time_is_where_it_began(table: Path) -> None:
    rows = [row for row in timings.rows(timings.read(table)) if isinstance(row, timings.Row)]
    assert calibration.fit(rows, 0.0, DEFAULT) == DEFAULT
    assert calibration.judge(rows, DEFAULT)["rows"] == 2
