"""The page of kernels is current, and the map of replaced scripts names what there is."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from pytest_qcom import catalogue, cli
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.compositions import COMPOSITIONS
from pytest_qcom.kernels.kernel import Build, Declared
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.openpilot import commands
from pytest_qcom.openpilot.registry import PATCHES
from suites.kernels.conftest import built

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(480)  # it builds every case
def test_the_page_of_kernels_is_current() -> None:
    stored = (ROOT / "docs" / "kernels.md").read_text()
    assert stored == catalogue.page(ROOT / "baselines"), "run qcom list --markdown > docs/kernels.md"


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


DECLARED: dict[str, Declared] = {**KERNELS, **COMPOSITIONS}
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in (ROOT / "docs" / "coverage.md").read_text().splitlines()
    if re.match(r"\| \S+\.(py|c) \|", line)
]


def exists(name: str) -> bool:
    """Whether there is such a kernel, case, composition, patch, command, module, suite or pattern."""
    if name.startswith("qcom graph "):
        return name.removeprefix("qcom graph ") in commands.ACTIONS
    if name.startswith("qcom "):
        return name.removeprefix("qcom ") in {command[0] for command in cli.COMMANDS}
    if name in PATCHES:
        return True
    if name.startswith("suites/"):
        return (ROOT / name).is_file()
    if name.startswith("pytest_qcom."):
        return importlib.util.find_spec(name) is not None
    kernel, _, case = name.partition("[")
    if kernel not in DECLARED:
        return False
    if case:
        DECLARED[kernel].case(case.removesuffix("]"))
    return True


def test_all_that_replaces_a_script_exists() -> None:
    """Also what is named on the way under "missing", but for options and patterns."""
    for script, replaced, missing in ROWS:
        names = re.findall(r"`([^`]+)`", replaced)
        assert bool(names) != (replaced == "not yet"), script
        for name in names:
            assert exists(name) or any(
                name in DECLARED[other].patterns for other in names if other in KERNELS
            ), f"{script}: {name}"
        assert missing or replaced != "not yet", f"{script}: say what is missing"
        assert all(exists(name) for name in re.findall(r"`(\w+_\w+)`", missing)), script


def test_scripts_stand_once_and_are_counted() -> None:
    scripts = [script for script, *_ in ROWS]
    assert scripts == sorted(set(scripts))
    done = sum(replaced != "not yet" for _, replaced, _ in ROWS)
    text = (ROOT / "docs" / "coverage.md").read_text()
    assert f"{done} of {len(ROWS)} have a replacement." in text


@pytest.mark.parametrize(
    "name",
    ["gemm_9x9", "qcom fly", "qcom graph fly", "suites/kernels/test_nothing.py", "pytest_qcom.nothing"],
)
def test_what_does_not_exist_is_noticed(name: str) -> None:
    assert not exists(name)
    with pytest.raises(KernelError):
        exists("strassen[seven]")
