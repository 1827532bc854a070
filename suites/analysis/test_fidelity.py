"""The page on trust and the figures that it tells."""

from __future__ import annotations

from pathlib import Path

from pytest_qcom import fidelity
from pytest_qcom.analysis.cycles import DEFAULT

ROOT = Path(__file__).parents[2]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "fidelity.md").read_text() == fidelity.page(), (
        "run python -m pytest_qcom.fidelity"
    )


def test_the_page_tells_every_constant() -> None:
    page = fidelity.page()
    for name in DEFAULT.__slots__:
        assert f"| {name} | {getattr(DEFAULT, name):g} | " in page


def test_the_summary_names_the_figures() -> None:
    timing, verdicts = fidelity.figures()["timing"], fidelity.figures()["verdicts"]
    assert f"{timing['built']} published speeds" in fidelity.summary()
    assert timing["median_abs_error"] <= 0.05
    assert timing["spearman"] >= 0.95
    assert f"{verdicts['agree']} of {verdicts['built']} published verdicts" in fidelity.summary()
    assert verdicts["false_alarms"] == 0
    assert verdicts["agree"] >= 0.95 * verdicts["built"]
    assert f"{verdicts['agree']} agree" in fidelity.page()
