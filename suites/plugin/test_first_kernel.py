"""The page about a first kernel: what it shows runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from suites.plugin.conftest import Run

PAGE = Path(__file__).parents[2] / "docs" / "first-kernel.md"


def test_the_first_kernel_runs_and_its_missing_waits_are_explained(
    pytester: pytest.Pytester, run: Run
) -> None:
    declared, test = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    pytester.makeconftest(declared)
    run("--qcom-device", "virtual", "--qcom-update-baselines", test=test).assert_outcomes(passed=2)
    result = run("--qcom-device", "virtual")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["scale[[]small[]] *GB/s * +0.0% *"])
    assert "insert_waits(Assembler" in declared
    pytester.makeconftest(declared.replace("insert_waits(Assembler", "(Assembler"))
    result = run("--qcom-device", "virtual", "-k", "small")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*HazardError: early-read r1.x at #1 *; fix: (rpt2)nop before #1 (and *"])
