"""Verdicts of a device against those of late results: what is built, how it is counted, what is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_qcom import verdicts
from pytest_qcom.errors import KernelError

SMALL = {"m": "64", "n": "256", "k": "64", "threads": "128", "thread128": "1", "check": "all_ones"}
FOUR = "split-a split-k-unroll=4 donor8-add256-store b-coord-delay"


def row(config: str, verdict: str, family: str = "gemm_8x8_fp16") -> dict[str, str]:
    return {"id": config, "family": family, "config": config, "verdict": verdict, **SMALL}


def test_confusion_agreement_and_alarms() -> None:
    judged = verdicts.verify(
        [
            row(f"{FOUR}=3", "correct"),
            row(f"{FOUR}=3 strip-mad-sy", "wrong"),
            row(f"{FOUR}=3 hregs-override=27", "hang"),
            row(f"{FOUR}=3 strip-mad-sy fregs-override=8", "correct"),
            row("no-such-word", "wrong"),
            row(f"{FOUR}=3", "probe"),
        ],
        jobs=1,
    )
    assert [item.ours for item in judged] == ["correct", "wrong", "hang", "wrong", "", ""]
    assert [item.agrees for item in judged] == [True, True, True, False, False, False]
    assert judged[0].random == "wrong"
    assert "beyond the declared 10 full and 27 half" in judged[2].detail
    assert judged[3].false_alarm
    assert judged[3].explanation
    found = verdicts.facts(judged)
    assert (found["built"], found["not_built"], found["agree"], found["false_alarms"]) == (4, 2, 3, 1)
    assert found["confusion"]["correct"] == {"correct": 1, "wrong": 1, "hang": 0}
    assert "no-such-word" in found["rows"][4]["reason"]
    text = "\n".join(verdicts.lines(judged))
    assert "4 rows built, 3 agree (75.0%), 1 false alarms, 2 not built" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "not readable"),
        ("id,family,config\n1,a,b\n", "lacks the column 'verdict'"),
        (",".join(verdicts.COLUMNS) + "\n", "nothing below its header; give a row for each verdict"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "table.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(KernelError, match=words):
        verdicts.read(path)
