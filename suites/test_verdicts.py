"""Verdicts of a device against those of late results: what is built, how it is counted, what is said."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest

from pytest_qcom import verdicts
from pytest_qcom.analysis import hazards
from pytest_qcom.analysis.findings import Finding
from pytest_qcom.devices import registry, virtual
from pytest_qcom.isa.program import Program

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
    ("family", "config"),
    [
        ("gemm_4xn_fp16", "ncols=4 direct safe-store"),
        ("gemm_4xn_fp16", "ncols=4 direct hybrid-store"),
        ("gemm_8x8_fp16", "serial donor4-store"),
    ],
)
def test_stores_without_slots_between_their_arithmetic(family: str, config: str) -> None:
    """The notes call an address of its own for each vector mostly invalid, for want of the slots."""
    small = {"m": "64", "n": "512", "k": "256"}
    (judged,) = verdicts.verify([{**row(config, "wrong", family), **small}], jobs=1)
    assert judged.agrees
    assert "stg" in judged.detail


def test_of_a_kernel_without_a_store_it_counts_that_it_ends() -> None:
    config = "low-4x8-fp32 preload-b no-store"
    judged = verdicts.verify(
        [row(config, "correct", "gemm_4x8_fp32"), row(f"{config} fregs-override=7", "hang", "gemm_4x8_fp32")],
        jobs=1,
    )
    assert [item.ours for item in judged] == ["correct", "hang"]


def test_no_file_decides_which_device_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project may call another device ``virtual``; late results are a matter of ours."""
    (tmp_path / registry.PROJECT_FILE).write_text("this is no table of devices")
    monkeypatch.chdir(tmp_path)
    (judged,) = verdicts.verify([row("serial", "correct")], jobs=1)
    assert judged.ours in verdicts.OURS


def test_a_program_is_linted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lint, seen = hazards.lint, collections.Counter[bytes]()

    def counted(program: Program, **more: Any) -> tuple[Finding, ...]:
        seen[program.encode()] += 1
        return lint(program, **more)

    monkeypatch.setattr(hazards, "lint", counted)
    virtual.findings.cache_clear()
    (judged,) = verdicts.verify([row(f"{FOUR}=2", "wrong")], jobs=1)
    assert judged.findings
    assert set(seen.values()) == {1}
