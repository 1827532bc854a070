"""Sessions with tests of patches of captured graphs: what the marker names, what is checked and stored."""

from __future__ import annotations

import json

import pytest

from pytest_qcom.openpilot import models
from suites.plugin.conftest import Run

PATCHES = """
import pytest

@pytest.mark.qcom_patch("input-pack")
@pytest.mark.qcom_patch("recompile", "input-pack", graph="graphs/mine.pkl")
def test_patch(patch_run):
    report = patch_run()
    assert report.ok and report.applied.sites
    assert report.seconds[1] < report.seconds[0]
    assert report.error == 0
"""


def test_patches_are_checked_and_held_to_floors(pytester: pytest.Pytester, run: Run) -> None:
    (pytester.mkdir("graphs") / "mine.pkl").write_bytes(models.pickled("input-pack"))
    result = run("--qcom-device", "virtual", "--qcom-update-baselines", test=PATCHES)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*PatchError: patch recompile on graphs/mine.pkl: not applied: call 0 (*): the compiler makes *; "
            "name a graph that it fits",
            "=* patches =*",
            "patch * shape * speed  floor  margin  max error  hazards",
            "input-pack[[]graphs/mine.pkl[]]  1 to 1 calls  * runs/s   none *0.00e+00   strict",
            "input-pack[[]input-pack[]]       1 to 1 calls  * runs/s   none *0.00e+00   strict",
            "2 floors of virtual written to *",
        ]
    )
    path = pytester.path / "baselines" / "virtual" / "0001_floors.json"
    stored = json.loads(path.read_text())
    assert [entry["fullname"] for entry in stored["benchmarks"]] == [
        "input-pack[graphs/mine.pkl]",
        "input-pack[input-pack]",
    ]
    stored["benchmarks"][0]["extra_info"]["floor"] *= 1.01
    path.write_text(json.dumps(stored))
    result = run("--qcom-device", "virtual", "-k", "not recompile")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*FloorError: input-pack[[]graphs/mine.pkl[]] on virtual: * runs/s is 0.99% below the floor of *",
            "input-pack[[]input-pack[]] * +0.0% *",
        ]
    )


WRONG = {
    "qcom_patch(3)": "qcom_patch with {'names': (3,)}: names are text; write qcom_patch(*names, model=",
    "qcom_patch('input-pak')": "no patch is called 'input-pak'; did you mean input-pack",
    "qcom_patch(model='head')": "no model is called 'head'; did you mean heads",
    "qcom_patch('input-pack', graf='x')": "qcom_patch with graf: it has no such argument; write qcom_patch(",
    "qcom_patch('input-pack', model='stem', graph='x')": "model 'stem' and graph 'x': give one of them",
    "qcom_patch(graph='x.pkl')": "qcom_patch with graph 'x.pkl' alone: name the patches that fit it",
    "qcom_patch('input-pack', graph='x.pkl')": "x.pkl; name the pickle of a TinyJit",
    "qcom_patch('recompile')": "qcom_patch: no declared model has a site of recompile; give graph=FILE",
}


def test_wrong_marker_is_an_error_of_that_test_alone(desk: Run) -> None:
    tests = [
        f"@pytest.mark.{marker}\ndef test_{number}(patch_run): patch_run()"
        for number, marker in enumerate(WRONG)
    ]
    others = ["@pytest.mark.qcom_patch('stem')\ndef test_without(): pass", "def test_bare(patch_run): pass"]
    result = desk(test="\n".join(["import pytest", *tests, *others, "def test_right(): pass"]))
    result.assert_outcomes(errors=len(WRONG) + 2, passed=1)
    for number, words in enumerate(WRONG.values()):
        [line] = [
            line for line in result.outlines if f"::test_{number}[invalid]: " in line and line[0] != "E"
        ]
        assert words in line
    result.stdout.fnmatch_lines(
        ["*test_without: marked qcom_patch, but does not take the fixture 'patch_run'"],
    )
    result.stdout.fnmatch_lines(["*test_bare: patch_run needs a qcom_patch marker and its model"])


def test_all_declared_patches_by_one_marker(desk: Run) -> None:
    test = "import pytest\n@pytest.mark.qcom_patch(model='heads')\ndef test_a(patch_run): patch_run()"
    result = desk("--collect-only", "-q", test=test)
    found = [line for line in result.outlines if "::test_a[" in line]
    assert "test_made.py::test_a[dedupe-head[heads]]" in found
    assert all(line.endswith("[heads]]") for line in found)
    assert len(found) > 5
