"""The page of patches is current."""

from __future__ import annotations

from pathlib import Path

from pytest_qcom.openpilot.page import page

STORED = Path(__file__).parents[2] / "docs" / "patches.md"


def test_the_page_of_patches_is_current() -> None:
    renew = "run python -m pytest_qcom.openpilot.page > docs/patches.md"
    assert STORED.read_text() == page(), renew
