"""Lists of tests that are known to fail: what a list may say, and what a session does with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_qcom import expected
from pytest_qcom.errors import ExpectationError
from suites.plugin.conftest import Run

TESTS = """
import os, unittest, pytest
class TestCase(unittest.TestCase):
    def test_wrong(self): self.assertEqual(os.environ.get("GOT", "5"), "15")
    def test_fine(self): pass
def test_alone(): raise RuntimeError("out of luck")
"""

LIST = """
[[failure]]
tests = ["test_made.py::TestCase::test_wrong"]
match = "'5' != '15'"
cause = "loads once"
evidence = "its text"

[[failure]]
tests = ["test_made.py::test_alone"]
match = "luck"
cause = "no luck"
evidence = "none"
"""


@pytest.fixture
def listed(pytester: pytest.Pytester, desk: Run) -> Run:
    """A session on :data:`TESTS` with :data:`LIST`, or with the list that ``text`` holds."""

    def session(*arguments: str, text: str = LIST, **environment: str) -> pytest.RunResult:
        path = pytester.path / "known.toml"
        path.write_text(text)
        return desk("-rxX", "--qcom-expected", str(path), *arguments, test=TESTS, **environment)

    return session


@pytest.mark.parametrize("arguments", [[], ["-n", "1"], ["-k", "wrong or fine or alone"]])
def test_known_failures_leave_a_session_green(listed: Run, arguments: list[str]) -> None:
    result = listed(*arguments)
    result.assert_outcomes(passed=1, xfailed=2)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["XFAIL test_made.py::TestCase::test_wrong - loads once"])


def test_a_test_that_is_fixed_is_noticed(listed: Run) -> None:
    result = listed(GOT="15")
    result.assert_outcomes(passed=1, xfailed=1, failed=1)
    result.stdout.fnmatch_lines(["*[[]XPASS(strict)[]] loads once*"])


def test_of_drawn_inputs_only_some_fail(listed: Run) -> None:
    text = LIST.replace("cause", "drawn = true\ncause", 1)
    listed(text=text).assert_outcomes(passed=1, xfailed=2)
    lucky = listed(text=text, GOT="15")
    lucky.assert_outcomes(passed=1, xfailed=1, xpassed=1)
    assert lucky.ret == 0
    listed(text=text, GOT="6").assert_outcomes(passed=1, xfailed=1, failed=1)


def test_another_failure_is_noticed(listed: Run) -> None:
    result = listed(GOT="6")
    result.assert_outcomes(passed=1, xfailed=1, failed=1)
    result.stdout.fnmatch_lines(["*'6' != '15'*"])


def test_modes_and_environments(listed: Run) -> None:
    text = LIST.replace("evidence", 'hazards = ["off"]\nevidence', 1).replace(
        'evidence = "none"', 'evidence = "none"\nwhen = { IMAGE = "1" }'
    )
    listed(text=text, IMAGE="0").assert_outcomes(passed=1, failed=2)
    listed("--qcom-hazards", "off", text=text, IMAGE="1").assert_outcomes(passed=1, xfailed=2)


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_a_listed_test_that_is_no_more(listed: Run, workers: list[str]) -> None:
    text = LIST.replace("test_alone", "test_gone")
    result = listed(*workers, text=text)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["*expected failure test_made.py::test_gone: no such test in its file; take it off the list"]
    )
    one = listed("test_made.py::TestCase::test_wrong", *workers, text=text)  # says nothing of the others
    one.assert_outcomes(xfailed=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[failure]\n", "expected failures in {path}: no readable TOML (Expected ']]'"),
        (
            "known = []\n",
            "expected failures in {path}: no tables, or others than [[failure]]; write one table a cause",
        ),
        (
            "failure = 5\n",
            "expected failures in {path}: no tables, or others than [[failure]]; write one table a cause",
        ),
        ("failure = [5]\n", "expected failures in {path}, table 1: a table is needed"),
        (
            LIST.replace("cause", "reason"),
            "expected failures in {path}, table 1: cause, reason unknown or mis",
        ),
        (
            LIST.replace('"loads once"', "5"),
            "expected failures in {path}, table 1: cause = 5; a string is neede",
        ),
        (
            LIST.replace('["test_made.py::test_alone"]', "[1]"),
            "expected failures in {path}, table 2: tests = [1]",
        ),
        (
            LIST.replace("evidence", "drawn = 1\nevidence", 1),
            "expected failures in {path}, table 1: drawn = 1;",
        ),
        (LIST.replace("'5'", "(5"), "expected failures in {path}, table 1: match is no regular expression:"),
        (
            LIST.replace("test_alone", "TestCase::test_wrong"),
            "expected failures in {path}: test_made.py::TestCase",
        ),
    ],
)
def test_a_malformed_list_is_one_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(ExpectationError) as raised:
        expected.read(str(path))
    assert str(raised.value).startswith(message.format(path=path))
    assert "\n" not in str(raised.value)


def test_an_unknown_list_is_one_error_before_any_test(desk: Run) -> None:
    result = desk("--qcom-expected", "tinygrap", test=TESTS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line] == [
        "ERROR: expected failures 'tinygrap': No such file or directory; name a file, or one of tinygrad"
    ]


def test_the_page_shows_the_list_of_tinygrad() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tinygrad.md").read_text(encoding="utf-8")
    rows = expected.table(expected.read("tinygrad"))
    assert "\n".join(rows) in page, "docs/tinygrad.md: put `python -m pytest_qcom.expected tinygrad` there"
