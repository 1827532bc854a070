"""What a session does with its options, its device and its failures."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from pytest_qcom.devices import registry
from pytest_qcom.devices.device import Device
from suites.plugin.conftest import KERNEL_TEST, Run

DRAW = """
def test_draw(random_matrix):
    print("drawn", random_matrix((2, 3)).tolist())
    assert {passes}
"""

HEAVY = ("numpy", "tinygrad", "llvmlite", "tinymesa", "hypothesis")


def drawn(result: pytest.RunResult) -> str:
    [line] = [line for line in result.outlines if "drawn [" in line]
    return line.partition("drawn ")[2]


@pytest.mark.parametrize("argument", ["--help", "--markers", "--version --version"])
def test_asking_for_help_imports_nothing_heavy(pytester: pytest.Pytester, run: Run, argument: str) -> None:
    script = f"""
        import sys, pytest
        code = pytest.main(["-p", "pytest_qcom", "-p", "no:hypothesispytest", "--qcom-device", "virtual",
                            *{argument.split()!r}])
        assert "pytest_qcom.plugin" in sys.modules
        print("heavy:", sorted(set(sys.modules) & set({HEAVY!r})), "exit code", int(code))
    """
    result = pytester.runpython(pytester.makepyfile(ask=script))
    result.stdout.fnmatch_lines(["heavy: [[][]] exit code 0"])


def test_help_and_markers_document_everything(run: Run) -> None:
    options = run("--help").stdout
    for name in (
        "--qcom-device",
        "--qcom-hazards",
        "--qcom-races",
        "--qcom-expected",
        "--qcom-seed",
        "--qcom-update-baselines",
        "qcom_device (string)",
    ):
        options.fnmatch_lines([f"*{name}*"])
    run("--markers").stdout.fnmatch_lines(
        ["@pytest.mark.qcom_kernel(name, case=None, *", "@pytest.mark.long: *"]
    )


def test_header_names_what_is_under_test(desk: Run) -> None:
    result = desk("--qcom-hazards", "off", test="def test_nothing(): pass")
    result.stdout.fnmatch_lines(
        ["qcom: desk (Adreno 630, fake), hazards off, tinygrad 0.14.0, Mesa 25.2.7.2, baseline none"]
    )
    assert result.ret == 0


def test_header_names_the_baseline(desk: Run, measured: Path) -> None:
    desk().stdout.fnmatch_lines(["qcom: desk *, baseline baselines/desk/0001_floors.json"])


def test_a_project_that_did_not_ask_is_left_alone(run: Run) -> None:
    result = run(
        test=f"""
        import os, sys
        def test_untouched():
            assert "DEV" not in os.environ
            assert not set({HEAVY[:4]!r}) & set(sys.modules)
        """
    )
    assert result.ret == 0
    result.stdout.no_fnmatch_line("qcom:*")


@pytest.mark.parametrize("way", ["option", "environment", "ini", "option over environment over ini"])
def test_ways_to_name_the_device(pytester: pytest.Pytester, run: Run, way: str) -> None:
    test = "import os\ndef test_installed(): assert os.environ['FAKE_INSTALLED'] == 'strict'"
    arguments = ["--qcom-device", "desk"] if "option" in way else []
    environment = {"QCOM_DEVICE": "desk" if way == "environment" else "shelf"} if "environment" in way else {}
    if "ini" in way:
        pytester.makeini(f"[pytest]\nqcom_device = {'desk' if way == 'ini' else 'cellar'}")
    result = run("-p", "fakes", *arguments, test=test, **environment)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["qcom: desk *"])


@pytest.mark.parametrize(
    ("name", "workers", "known"),
    [
        ("virtua", [], "did you mean virtual?"),
        ("virtua", ["-n", "2"], "did you mean virtual?"),
        ("", [], "there are local, virtual"),  # what a shell makes of a variable that is not set
    ],
)
def test_unknown_device_is_one_error_before_any_test(
    pytester: pytest.Pytester, run: Run, name: str, workers: list[str], known: str
) -> None:
    result = run("--qcom-device", name, *workers, test="def test_a(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line] == [
        f"ERROR: device {name!r}: unknown, name it in {pytester.path / '.qcom-devices.toml'}; {known}"
    ]
    result.stdout.no_fnmatch_line("*passed*")


def test_absent_device_is_one_error_before_any_test(desk: Run) -> None:
    result = desk(FAKE_GONE="1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line] == ["ERROR: device desk: it is gone; plug it in"]
    result.stdout.no_fnmatch_line("*skipped*")


def test_a_device_that_does_not_answer_is_one_error_before_any_test(desk: Run) -> None:
    result = desk(FAKE_SILENT="1", FAKE_KIND="ssh")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    words = "ERROR: device desk: it does not answer; switch it on"
    assert [line for line in result.errlines if line] == [words]
    result.stdout.no_fnmatch_line("*[0-9] error*")
    desk("-k", "nothing", FAKE_SILENT="1", FAKE_KIND="ssh").assert_outcomes(deselected=2)
    desk("--collect-only", FAKE_SILENT="1", FAKE_KIND="ssh").stdout.fnmatch_lines(["*2 tests collected*"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--qcom-hazards", "loose"],
            "*argument --qcom-hazards: invalid choice: 'loose'*strict*emulate*off*",
        ),
        (["--qcom-seed", "x"], "*argument --qcom-seed: invalid integer value: 'x'*"),
    ],
)
def test_bad_option(run: Run, arguments: list[str], words: str) -> None:
    result = run(*arguments, test="def test_a(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([words])


@pytest.mark.parametrize(
    ("arguments", "environment", "asked"),
    [(["--qcom-races"], {}, "--qcom-races"), ([], {"QCOM_RACES": "1"}, "environment variable QCOM_RACES")],
)
@pytest.mark.parametrize("device", ["virtual", "desk"])
def test_races_where_late_results_are_emulated_are_one_error_before_any_test(
    run: Run, arguments: list[str], environment: dict[str, str], asked: str, device: str
) -> None:
    options = ("-p", "fakes", "--qcom-device", device, "--qcom-hazards", "emulate", *arguments)
    result = run(*options, test="def test_a(device): pass", **environment)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line] == [
        f"ERROR: {asked} with --qcom-hazards emulate: races are looked for with every wait in its place; "
        "leave one of them out, or take --qcom-hazards strict or off"
    ]


def test_races_that_the_environment_names_otherwise_are_one_error(run: Run) -> None:
    result = run(test="def test_a(device): pass", QCOM_RACES="banana")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line] == [
        "ERROR: environment variable QCOM_RACES is 'banana': it is 1 to look for races, else 0; correct it"
    ]


PUBLISHED = """
import pytest

@pytest.mark.qcom_kernel("gemm_8x8_fp16_published", case="p017", m=64, n=256, k=64)
def test_published(kernel_run):
    assert not kernel_run().ok
"""


@pytest.mark.parametrize("mode", ["emulate", "off"])
def test_published_kernel_runs_where_hazards_are_not_refused(run: Run, mode: str) -> None:
    result = run("--qcom-hazards", mode, "--qcom-update-baselines", test=PUBLISHED)
    result.assert_outcomes(passed=1)


def test_published_kernel_is_refused_where_hazards_are(run: Run) -> None:
    result = run("--qcom-hazards", "strict", test=PUBLISHED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*HazardError: *"])


def test_failing_test_prints_its_seed(run: Run) -> None:
    result = run("--qcom-seed", "7", test=DRAW.format(passes=False))
    result.assert_outcomes(failed=1)
    words = r"random inputs drawn with seed 0x[0-9a-f]{16} \(from .* --qcom-seed 7\); qcom run .*"
    result.stdout.re_match_lines([words])


def test_passing_test_prints_no_seed(run: Run) -> None:
    result = run(test=DRAW.format(passes=True))
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*random inputs*")


def test_seed_decides_what_is_drawn(run: Run) -> None:
    test = DRAW.format(passes=True)
    first, again, other = (drawn(run("-s", "--qcom-seed", seed, test=test)) for seed in "001")
    assert first == again
    assert first != other


@pytest.mark.parametrize("workers", [["-n", "2"], ["-n", "2", "--dist", "loadgroup"]])
def test_workers_draw_the_same(run: Run, workers: list[str]) -> None:
    test = "import pytest\n@pytest.mark.xdist_group('one')" + DRAW.format(passes=False)
    alone = drawn(run(test=test))
    assert drawn(run(*workers)) == alone


def test_device_is_reset_after_each_test(desk: Run) -> None:
    test = "def test_a(device): pass\ndef test_b(device): pass\ndef test_c(): pass"
    result = desk("-s", test=test)
    result.assert_outcomes(passed=3)
    assert re.findall(r"device reset \d", result.stdout.str()) == ["device reset 1", "device reset 2"]


def test_fault_that_no_program_was_told_of_fails_the_test_before_the_next_one(desk: Run) -> None:
    result = desk(test="def test_a(): pass", FAKE_FAULT="1")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_a*", "*GpuFault: GPU fault at instruction 3: *"])


@pytest.mark.parametrize("autoload", [{}, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}])
def test_loads_by_name(run: Run, autoload: dict[str, str]) -> None:
    result = run(
        "-p", "pytest_qcom", "-p", "fakes", "--qcom-device", "desk", "--qcom-update-baselines",
        test=KERNEL_TEST, **autoload,
    )  # fmt: skip
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["qcom: desk *", "copy[[]small[]] *"])


def test_package_without_its_metadata_loads_the_plugin_too(pytester: pytest.Pytester, run: Run) -> None:
    """``-p pytest_qcom`` imports the bare package where the project is on the path but not installed."""
    package = Path(sys.modules["pytest_qcom"].__file__ or "").parent
    (pytester.path / "pytest_qcom").symlink_to(package)
    script = """
        import importlib.metadata, sys, pytest
        sys.path.insert(0, ".")
        real = importlib.metadata.distributions
        def others(**how):
            return [one for one in real(**how) if one.name != "pytest-qcom"]
        importlib.metadata.distributions = others
        sys.exit(pytest.main(["-p", "pytest_qcom", "-p", "no:cacheprovider", "--qcom-seed", "3"]))
    """
    pytester.makepyfile(test_made=DRAW.format(passes=False))
    result = pytester.runpython(pytester.makepyfile(bare=script))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["random inputs drawn with seed * --qcom-seed 3); *"])
    assert os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD") is None


def test_the_registry_names_a_device_as_the_device_names_itself(device: Device) -> None:
    entry = registry.find(device.name, Path.cwd())
    assert (entry.name, entry.chip, entry.mode) == (device.name, device.chip, device.mode)


def test_marker_without_its_fixture(desk: Run) -> None:
    result = desk(
        test="import pytest\n@pytest.mark.qcom_kernel('copy')\ndef test_a(): pass\ndef test_b(): pass"
    )
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*test_a: marked qcom_kernel, but does not take the fixture 'kernel_run'"])


WRONG_MARKERS = {
    "qcom_kernel()": "one kernel name is needed; write qcom_kernel(name, case=None, **options)",
    "qcom_kernel(3)": "one kernel name is needed; write qcom_kernel(name, case=None, **options)",
    "qcom_kernel('copi')": "no kernel is called 'copi'; did you mean copy",
    "qcom_kernel('copy', case='huge')": "kernel copy has no case 'huge'; it has small, large",
    "qcom_kernel('copy', case=1)": "case 1 is no text; write qcom_kernel(name, case=None, **options)",
    "qcom_kernel('copy', m=3)": "kernel copy has no option 'm'; there are n",
    "qcom_kernel('copy', n='many')": "kernel copy: option n is 'many'; give a whole number",
}


def test_wrong_marker_is_an_error_of_that_test_alone(desk: Run) -> None:
    tests = [
        f"@pytest.mark.{marker}\ndef test_{number}(kernel_run): kernel_run()"
        for number, marker in enumerate(WRONG_MARKERS)
    ]
    result = desk(test="\n".join(["import pytest", *tests, "def test_right(): pass"]))
    result.assert_outcomes(errors=len(WRONG_MARKERS), passed=1)
    for number, words in enumerate(WRONG_MARKERS.values()):
        [line] = [
            line for line in result.outlines if f"::test_{number}[invalid]: " in line and line[0] != "E"
        ]
        assert words in line
    assert "INTERNALERROR" not in result.stdout.str()


def test_fixtures_say_what_they_take_in_one_line(desk: Run) -> None:
    test = """
        import pytest
        from pytest_qcom.errors import EnvelopeError, KernelError

        @pytest.mark.parametrize(("fields", "words"), [
            ({"program": 3}, "envelope of 3: give a Program, or the bytes of an instruction image"),
            ({"program": bytes(8)}, "envelope of 'kernel': fregs, hregs unknown or missing; fields are "),
            ({"program": bytes(8), "fregs": 1, "hregs": 0, "x": 3}, "envelope of 'kernel': x unknown or"),
        ])
        def test_envelope(envelope, fields, words):
            with pytest.raises(EnvelopeError, match=f"^{words}"):
                envelope(**fields)

        def test_image(envelope):
            assert bytes(range(8)) in envelope(bytes(range(8)), fregs=1, hregs=0)

        def test_matrix(random_matrix):
            with pytest.raises(KernelError, match="no tuple of positive whole numbers; give one such as"):
                random_matrix((-1, 2), "float16")
    """
    desk(test=test).assert_outcomes(passed=5)


def test_kernel_run_without_marker(desk: Run) -> None:
    result = desk(test="def test_a(kernel_run): kernel_run()")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_a: kernel_run needs a qcom_kernel marker and its case"])


def test_hardware_runs_in_one_group_of_workers(desk: Run) -> None:
    test = """
        def test_a(device, request):
            assert [mark.args for mark in request.node.iter_markers("xdist_group")] == [("qcom-desk",)]
        def test_b(request):
            assert not list(request.node.iter_markers("xdist_group"))
    """
    desk("-n", "2", "--dist", "loadgroup", test=test, FAKE_KIND="ssh").assert_outcomes(passed=2)
    result = desk("-n", "2", test=test, FAKE_KIND="ssh")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: device desk with -n: *--dist loadgroup*"])


def test_garbage_is_collected_between_tests(desk: Run) -> None:
    """Within a test a finalizer could wait for what tinygrad has counted but not yet submitted."""
    result = desk(
        test="""
        import gc, weakref
        freed = []
        class Cycle:
            def __init__(self):
                self.me = self
                weakref.finalize(self, freed.append, self.__class__.__name__)
        def test_first():
            assert not gc.isenabled()
            Cycle()
            kept = [[] for _ in range(100_000)]
            assert not freed
        def test_second(): assert freed == ["Cycle"]
        """
    )
    result.assert_outcomes(passed=2)
