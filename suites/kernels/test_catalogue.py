"""The page of kernels is current, and the map of replaced scripts names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_qcom import catalogue
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.registry import KERNELS
from suites.kernels.conftest import built

ROOT = Path(__file__).parents[2]


def test_the_page_of_kernels_is_current() -> None:
    stored = (ROOT / "docs" / "kernels.md").read_text()
    assert stored == catalogue.page(ROOT / "baselines", built), "run qcom list --markdown > docs/kernels.md"


def test_loops_are_counted_without_their_branch() -> None:
    build: Build = built("gemm_4xn_fp16_published", "p101")
    assert catalogue.loops(build.program) == (417,)


def test_published_figures_stand_at_their_configuration() -> None:
    figures = catalogue.published(ROOT / "baselines")
    shown = [key for key in figures if key.partition("[")[0] in KERNELS]
    page = (ROOT / "docs" / "kernels.md").read_text()
    assert shown
    declared = {f"{kernel.name}[{case.name}]" for kernel in KERNELS.values() for case in kernel.cases}
    for key in set(shown) & declared:
        case = key.partition("[")[2].removesuffix("]")
        assert re.search(rf"^\| {re.escape(case)} \|.* {re.escape(figures[key])} \|$", page, re.M), key
