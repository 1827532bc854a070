"""Floors of kernels: each way to miss one fails the test's own report, wherever the test runs."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from suites.plugin.conftest import KERNEL_TEST, Run


def failures(path: Path) -> dict[str, str]:
    """Messages of failed tests in a JUnit file, by test name."""
    cases = ElementTree.parse(path).iter("testcase")
    found = {case.get("name", ""): case.find("failure") for case in cases}
    return {name: failure.get("message", "") for name, failure in found.items() if failure is not None}


def entries(path: Path) -> dict[str, Any]:
    return {entry["fullname"]: entry for entry in json.loads(path.read_text())["benchmarks"]}


def test_update_stores_what_was_measured(pytester: pytest.Pytester, desk: Run) -> None:
    assert desk("--qcom-update-baselines").ret == 0
    measured = pytester.path / "baselines" / "desk" / "0001_floors.json"
    document = json.loads(measured.read_text())
    assert document["machine_info"] == {"node": "desk", "chip": "Adreno 630", "mode": "fake"}
    assert document["commit_info"]["versions"] == {"tinygrad": "0.14.0", "tinymesa": "25.2.7.2"}
    found = entries(measured)
    assert list(found) == ["copy[large]", "copy[small]"]
    assert found["copy[small]"]["stats"]["mean"] == 1e-3
    info = found["copy[small]"]["extra_info"]
    assert (info["floor"], info["unit"], info["device"], info["model"]) == (64.0, "GFLOPS", "desk", "fake")
    assert info["provenance"]["source"] == "measured with --qcom-update-baselines"


def test_update_of_a_partial_run_keeps_the_rest(desk: Run, measured: Path) -> None:
    assert desk("--qcom-update-baselines", "-k", "small", FAKE_SECONDS="2e-3").ret == 0
    assert {key: entry["extra_info"]["floor"] for key, entry in entries(measured).items()} == {
        "copy[large]": 128.0,
        "copy[small]": 32.0,
    }


def test_interrupted_update_stores_what_was_measured_and_stays_interrupted(desk: Run, measured: Path) -> None:
    before = entries(measured)
    interrupt = "\ndef test_interrupt(): raise KeyboardInterrupt\n"
    result = desk("--qcom-update-baselines", "-k", "interrupt", test=KERNEL_TEST + interrupt)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert entries(measured) == before
    small = ("-k", "small or interrupt")
    result = desk("--qcom-update-baselines", *small, test=KERNEL_TEST + interrupt, FAKE_SECONDS="2e-3")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    changed = {name for name, entry in entries(measured).items() if entry != before[name]}
    assert changed == {"copy[small]"}


def test_update_from_several_workers(pytester: pytest.Pytester, desk: Run) -> None:
    assert desk("-n", "2", "--qcom-update-baselines").ret == 0
    assert len(entries(pytester.path / "baselines" / "desk" / "0001_floors.json")) == 2


def test_wrong_output_is_not_stored(desk: Run, measured: Path) -> None:
    before = measured.read_bytes()
    result = desk("--qcom-update-baselines", FAKE_WRONG="1", FAKE_SECONDS="1e-4")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["ERROR: baseline of desk: nothing was measured; the stored floors stay as they are"]
    )
    assert measured.read_bytes() == before


def test_update_that_cannot_write_fails_the_session(pytester: pytest.Pytester, desk: Run) -> None:
    (pytester.path / "baselines").write_text("in the way")
    result = desk("--qcom-update-baselines")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["ERROR: baseline of desk: cannot write */baselines/desk (*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_update_refuses_a_malformed_file_before_any_test(desk: Run, measured: Path) -> None:
    measured.write_text("{")
    result = desk("--qcom-update-baselines")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: baseline {measured}: is not readable JSON (*"])
    assert measured.read_text() == "{"


def test_summary_shows_each_kernel(desk: Run, measured: Path) -> None:
    result = desk(FAKE_SECONDS="0.5e-3")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "kernel * shape * speed * floor * margin * max error * hazards",
            "copy[[]large[]] * 128 * 256.00 GFLOPS * 128.00 * +100.0% * 0.00e+00 * strict",
            "copy[[]small[]] * 64 * 128.00 GFLOPS * 64.00 * +100.0% * 0.00e+00 * strict",
        ]
    )


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
@pytest.mark.parametrize("comparing", [[], ["--benchmark-compare"]])
def test_breach_is_a_failure_of_that_test(
    pytester: pytest.Pytester, desk: Run, measured: Path, workers: list[str], comparing: list[str]
) -> None:
    edited = json.loads(measured.read_text())
    edited["benchmarks"][1]["extra_info"]["floor"] = 66.0
    measured.write_text(json.dumps(edited))
    result = desk("--junitxml=junit.xml", *workers, *comparing)
    result.assert_outcomes(failed=1, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    [(name, message)] = failures(pytester.path / "junit.xml").items()
    assert name == "test_kernel[copy[small]]"
    assert message.startswith(
        "pytest_qcom.errors.FloorError: copy[small] on desk: 64.00 GFLOPS is 3.03% below the floor of 66.00"
    )
    result.stdout.fnmatch_lines(["copy[[]small[]] * 64.00 GFLOPS * 66.00 * -3.0% *"])


def test_three_ways_to_have_no_floor_fail_differently(
    pytester: pytest.Pytester, desk: Run, measured: Path
) -> None:
    good = measured.read_text()

    def message(text: str | None) -> str:
        measured.unlink(missing_ok=True)
        if text is not None:
            measured.write_text(text)
        desk("--junitxml=junit.xml").assert_outcomes(failed=2)
        return failures(pytester.path / "junit.xml")["test_kernel[copy[small]]"]

    name = "pytest_qcom.errors.BaselineError: "
    assert message(None).startswith(f"{name}baseline of desk: no stored floors in ")
    assert message(good[:-9]).startswith(f"{name}baseline {measured}: is not readable JSON")
    assert message(good.replace('"node": "desk"', '"node": "shelf"')).startswith(
        f"{name}baseline of desk: {measured} was measured on 'shelf'"
    )
    assert message(good.replace('"floor": 64.0', '"floor": 0')).startswith(
        f"{name}baseline {measured}: entry copy[small] has floor 0, not a positive number"
    )


def test_kernel_without_an_entry_fails(desk: Run, measured: Path) -> None:
    document = json.loads(measured.read_text())
    del document["benchmarks"][0]
    measured.write_text(json.dumps(document))
    result = desk("--benchmark-compare", "--benchmark-compare-fail=mean:5%")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        [f"*floor of copy[[]large[]] on desk: {measured} has no such entry among its 1*"]
    )


def test_changed_options_have_a_floor_of_their_own(desk: Run, measured: Path) -> None:
    test = KERNEL_TEST.replace('"copy"', '"copy", case="small", n=32')
    result = desk(test=test)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*floor of copy[[]small,n=32[]] on desk: * has no such entry*"])


def test_wrong_output_fails_before_any_floor(desk: Run, measured: Path) -> None:
    result = desk(FAKE_WRONG="1")
    result.assert_outcomes(failed=2)
    result.stdout.no_fnmatch_line("*FloorError*")
    result.stdout.fnmatch_lines(["random inputs drawn with seed *"])


def test_kernel_that_does_not_run_is_one_failure(desk: Run, measured: Path) -> None:
    refused = desk("-W", "error", FAKE_REFUSE="1")
    refused.assert_outcomes(failed=2)
    refused.stdout.fnmatch_lines(["*LaunchError: launch of copy: refused*"])
    unbuilt = desk("-W", "error", test=KERNEL_TEST.replace('"copy"', '"copy", n=-1, case="small"'))
    unbuilt.assert_outcomes(failed=1)


def test_failure_shows_the_tests_line_and_the_message_alone(desk: Run, measured: Path) -> None:
    result = desk("-k", "small", FAKE_SECONDS="1")
    result.assert_outcomes(failed=1)
    words = "E       pytest_qcom.errors.FloorError: copy[[]small[]] on *"
    result.stdout.fnmatch_lines([">       kernel_run()", words])
    result.stdout.no_fnmatch_line("*baselines.py*")


def test_missing_floors_show_what_to_run(desk: Run) -> None:
    result = desk("-k", "small")
    result.assert_outcomes(failed=1)
    words = "store them first: run these tests with --qcom-update-baselines --qcom-device desk"
    result.stdout.fnmatch_lines(
        [">       kernel_run()", f"E       *BaselineError: baseline of desk: no stored floors in *; {words}"]
    )
    result.stdout.no_fnmatch_line("*session.py*")


def test_benchmarks_report_device_time(pytester: pytest.Pytester, desk: Run, measured: Path) -> None:
    result = desk("--benchmark-json=out.json", FAKE_SECONDS="0.25")
    result.assert_outcomes(failed=2)
    document = json.loads((pytester.path / "out.json").read_text())
    assert document["machine_info"] == {"node": "desk", "chip": "Adreno 630", "mode": "fake"}
    assert document["commit_info"]["versions"]["tinygrad"] == "0.14.0"
    found = {entry["fullname"]: entry for entry in document["benchmarks"]}
    assert found["copy[small]"]["stats"]["mean"] == 0.25
    assert found["copy[small]"]["extra_info"]["floor"] == 64.0
    assert (found["copy[small]"]["group"], found["copy[small]"]["options"]["timer"]) == (
        "copy",
        "device_seconds",
    )


def test_benchmarks_of_a_project_that_did_not_ask_are_its_own(pytester: pytest.Pytester, run: Run) -> None:
    path = pytester.path / "own.json"
    test = "def test_own(benchmark): benchmark.pedantic(lambda: None, rounds=1)"
    result = run(f"--benchmark-json={path}", test=test)
    result.assert_outcomes(passed=1)
    assert "versions" not in json.loads(path.read_text())["commit_info"]


def test_comparing_reads_the_stored_floors(desk: Run, measured: Path) -> None:
    result = desk("--benchmark-compare", "--benchmark-compare-fail=mean:5%")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["copy[[]small[]] (0001_floors) *", "copy[[]small[]] (NOW) *"])
    result.stderr.fnmatch_lines(["Comparing against benchmarks from: 0001_floors.json"])
    assert "machine_info is different" not in result.stdout.str() + result.stderr.str()


def test_compare_fail_sees_a_regression_within_the_floor(desk: Run, measured: Path) -> None:
    document = json.loads(measured.read_text())
    for entry in document["benchmarks"]:
        entry["extra_info"]["tolerance"] = 0.5
    measured.write_text(json.dumps(document))
    result = desk("--benchmark-compare", "--benchmark-compare-fail=mean:5%", FAKE_SECONDS="1.2e-3")
    result.stdout.fnmatch_lines(["test_made.py .. *"])
    assert result.ret == 1
    lines = [line for line in result.errlines if line]
    assert "Performance has regressed:" in lines
    assert lines[-1].startswith("Exit: slower than --benchmark-compare-fail allows: copy[")
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_compare_fail_of_a_project_that_did_not_ask_is_its_own(pytester: pytest.Pytester, run: Run) -> None:
    test = "import time\ndef test_own(benchmark): benchmark.pedantic(time.sleep, (SECONDS,), rounds=1)"
    run("--benchmark-autosave", test=test.replace("SECONDS", "0.001")).assert_outcomes(passed=1)
    again = ["--benchmark-compare", "--benchmark-compare-fail=mean:5%"]
    result = run(*again, test=test.replace("SECONDS", "0.1"))
    result.stderr.fnmatch_lines(["*PerformanceRegression*"])


@pytest.mark.parametrize("name", ["nosuch", "some/where/else", "0002"])
def test_comparing_with_a_file_that_is_not_there(desk: Run, measured: Path, name: str) -> None:
    result = desk(f"--benchmark-compare={name}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line] == [
        f"ERROR: --benchmark-compare={name}: no such file in {measured.parent}; there are 0001_floors.json, "
        "and without a name it is the newest one"
    ]


@pytest.mark.parametrize("name", ["0001", "0001_floors.json", "baselines/desk/0001_floors.json"])
def test_comparing_with_a_named_file(desk: Run, measured: Path, name: str) -> None:
    result = desk(f"--benchmark-compare={name}")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["copy[[]small[]] (*0001_floors) *", "copy[[]small[]] (NOW) *"])


def test_limits_of_comparing_without_comparing(desk: Run, measured: Path) -> None:
    result = desk("--benchmark-compare-fail=mean:5%")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --benchmark-compare-fail without --benchmark-compare: *"])


def test_comparing_from_another_folder(pytester: pytest.Pytester, desk: Run, measured: Path) -> None:
    elsewhere = pytester.mkdir("elsewhere")
    pytester.chdir()
    result = desk("--benchmark-compare", f"--rootdir={pytester.path}", str(pytester.path / "test_made.py"))
    result.assert_outcomes(passed=2)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "damage", "words"),
    [
        ([], None, "baseline of desk: no stored floors in */baselines/desk; store them first: *"),
        ([], ("}", ""), "baseline *0001_floors.json: is not readable JSON *"),
        (
            [],
            ('"mode": "fake"', '"mode": "model: other"'),
            "compare on desk: * was measured on *; measure again *",
        ),
        (["--benchmark-compare-fail=mean:5%", "-n", "2"], ("", ""), "--benchmark-compare-fail with -n: *"),
    ],
)
def test_comparing_with_nothing_comparable_is_refused(
    desk: Run, measured: Path, arguments: list[str], damage: tuple[str, str] | None, words: str
) -> None:
    if damage is None:
        measured.unlink()
    else:
        measured.write_text(measured.read_text().replace(*damage))
    result = desk("--benchmark-compare", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {words}"])
    assert "INTERNALERROR" not in result.stdout.str()


def test_histogram(pytester: pytest.Pytester, desk: Run, measured: Path) -> None:
    desk("--benchmark-compare", "--benchmark-histogram=plot").assert_outcomes(passed=2)
    [plot] = pytester.path.glob("plot*.svg")
    assert "copy[small]" in plot.read_text()
