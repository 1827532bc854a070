"""The pytest plugin: options, fixtures, marker, header and summary. Hooks delegate; fixtures import.

Nothing here runs for a project that did not ask: without a named device and without a test that uses a
fixture of ours, no device is opened, no environment variable is set and nothing is printed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_qcom import benchmarks
from pytest_qcom.baselines import Measurement
from pytest_qcom.errors import EnvelopeError, QcomError
from pytest_qcom.report import row, seed_note, table, trust, versions
from pytest_qcom.session import PATCH_PROPERTY, PROPERTY, Session
from pytest_qcom.settings import INI, MARKERS, OPTIONS, Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_qcom.conformance import Outcome
    from pytest_qcom.devices.device import Device
    from pytest_qcom.expected import Failure
    from pytest_qcom.isa.program import Program
    from pytest_qcom.openpilot.patch import Report
    from pytest_qcom.patched import Patched
    from pytest_qcom.targets import Composed, Target

SESSION = pytest.StashKey[Session]()
SEED = pytest.StashKey[int]()
NODE_ID = pytest.StashKey[str]()
PROBLEM = pytest.StashKey[str]()
TARGETS = {"qcom_kernel": "kernel_target", "qcom_patch": "patch_target"}
"""Marker to the fixture that gives what it names."""
RUNS = {"qcom_kernel": "kernel_run", "qcom_patch": "patch_run"}
"""Marker to the fixture that runs it."""
TABLES = {PROPERTY: ("kernel", "kernels"), PATCH_PROPERTY: ("patch", "patches")}
"""A result's property to what it is of, one and many."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    # Its hooks and fixture are ours to use, also where plugins are not loaded by themselves.
    pluginmanager.import_plugin("benchmark", consider_entry_points=True)
    group = parser.getgroup("qcom", "Adreno 630 conformance")
    for name, arguments in OPTIONS:
        group.addoption(name, **arguments)
    for name, text, default in INI:
        parser.addini(name, text, default=default)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    # Before any conftest can import tinygrad, which reads its environment once.
    start(early_config, early_config.known_args_namespace)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    start(config, config.option)
    if SESSION in config.stash:
        with usage_errors():
            benchmarks.prepare(config.stash[SESSION], config.option)
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Recorder(config.stash[SESSION]), "qcom-recorder")


def start(config: pytest.Config, option: Any) -> None:
    """Makes the session, once; a device that was named is there from now on."""
    if SESSION in config.stash or option.help or option.version or option.markers:
        return
    with usage_errors():
        session = Session(Settings.read(option, config.getini, config.rootpath))
        config.stash[SESSION] = session
        config.add_cleanup(session.close)
        if session.settings.asked and not distributes(option):
            session.install()


def distributes(option: Any) -> bool:
    """The tests run in pytest-xdist's workers, and this process is not one of them."""
    return bool(getattr(option, "numprocesses", None)) and "PYTEST_XDIST_WORKER" not in os.environ


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Turns errors of ours into pytest's one line and exit code 4."""
    try:
        yield
    except QcomError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_report_header(config: pytest.Config) -> str | None:
    session = config.stash.get(SESSION, None)
    return session.header() if session is not None and session.settings.asked else None


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_benchmark_generate_machine_info(config: pytest.Config) -> dict[str, str] | None:
    session = config.stash[SESSION]
    return session.machine.info() if session.settings.asked else None


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_commit_info(config: pytest.Config, commit_info: dict[str, Any]) -> None:
    if config.stash[SESSION].settings.asked:
        commit_info["versions"] = versions()


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(config: pytest.Config) -> Generator[None]:
    # pytest-benchmark raises it behind its table, and pytest would show the stack.
    from pytest_benchmark.session import PerformanceRegression

    try:
        return (yield)
    except PerformanceRegression:
        if not config.stash[SESSION].settings.asked:
            raise
        found: Any = config.pluginmanager.get_plugin("pytest-benchmark")
        names = ", ".join(dict.fromkeys(name for name, _ in found.performance_regressions))
        pytest.exit(
            f"slower than --benchmark-compare-fail allows: {names}; make it faster, or accept the new speed "
            "with --qcom-update-baselines",
            pytest.ExitCode.TESTS_FAILED,
        )


def pytest_itemcollected(item: pytest.Item) -> None:
    item.stash[NODE_ID] = item.nodeid  # pytest-xdist may append a group to it later


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, fixture in TARGETS.items():
        markers = list(metafunc.definition.iter_markers(name))
        if markers and fixture in metafunc.fixturenames:
            targets = [target for marker in markers for target in marked(marker, metafunc.config)]
            ids = [getattr(target, "key", "invalid") for target in targets]
            metafunc.parametrize(fixture, targets, ids=ids, indirect=True)


def marked(marker: pytest.Mark, config: pytest.Config) -> Sequence[Target | Composed | Patched | QcomError]:
    """What a marker of ours asks for; an error is raised later, as an error of that test alone."""
    try:
        if marker.name == "qcom_patch":
            from pytest_qcom import patched

            return patched.read(marker.args, marker.kwargs, config.rootpath)
        from pytest_qcom import targets

        return targets.read(marker.args, marker.kwargs)
    except QcomError as error:
        return [error]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = {item.nodeid: item for item in items}
    problems = config.stash[SESSION].expect(named, expect_failure)
    if not any("::" in argument for argument in config.args):  # else only some of a file's tests are here
        for name, problem in problems.items():
            named[name].stash[PROBLEM] = problem
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if any(fixture in fixtures for fixture in TARGETS.values()):
            item.add_marker(pytest.mark.benchmark(timer=config.stash[SESSION].clock), append=False)
        for marker, fixture in TARGETS.items():
            if fixture not in fixtures and item.get_closest_marker(marker) is not None:
                item.stash[PROBLEM] = f"marked {marker}, but does not take the fixture {RUNS[marker]!r}"
        if {"device", "patch_run"} & set(fixtures) and not config.stash[SESSION].entry.shared:
            item.add_marker(pytest.mark.xdist_group(f"qcom-{config.stash[SESSION].entry.name}"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """A device that does not answer is one error, and not one of each test: it is asked before the first."""
    qcom = session.config.stash[SESSION]
    if session.config.option.collectonly or not qcom.settings.asked or qcom.entry.shared:
        return
    if distributes(session.config.option) or hasattr(session.config, "workerinput"):
        return  # a worker that has the device opens it for its tests
    used = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    with usage_errors():
        if "device" in used:
            _ = qcom.device
        if "patch_run" in used:
            _ = qcom.place


def expect_failure(item: pytest.Item, failure: Failure) -> None:
    """Marks a test that must fail, and with the known message."""
    raises = pytest.RaisesExc(Exception, match=failure.match)
    item.add_marker(pytest.mark.xfail(reason=failure.cause, strict=not failure.drawn, raises=raises))


@pytest.hookimpl(tryfirst=True)  # before what skips a test
def pytest_runtest_setup(item: pytest.Item) -> None:
    if PROBLEM in item.stash:
        pytest.fail(f"{item.nodeid}: {item.stash[PROBLEM]}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield
    item.config.stash[SESSION].after_test(used="device" in getattr(item, "fixturenames", ()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    result = yield
    if result.failed and SEED in item.stash:
        seed = item.config.stash[SESSION].settings.seed
        result.sections.append(("qcom seed", seed_note(item.stash[SEED], seed)))
    return result


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Device:
    """The device of the session; its memory is freed, and a fault or hang recovered from, after each test."""
    return request.config.stash[SESSION].device


@pytest.fixture
def random_matrix(request: pytest.FixtureRequest) -> Callable[..., NDArray[Any]]:
    """Random arrays: ``random_matrix(shape, dtype="float16", distribution="normal")``.

    The seed comes from the test's node id and ``--qcom-seed``; a failing test prints it.
    """
    from pytest_qcom.inputs import matrix

    generator = random_generator(request.node)

    def draw(shape: tuple[int, ...], dtype: Any = "float16", distribution: str = "normal") -> NDArray[Any]:
        return matrix(generator, shape, dtype, distribution)

    return draw


def random_generator(node: pytest.Item) -> np.random.Generator:
    """The generator of a test's random inputs."""
    import numpy as np

    from pytest_qcom.inputs import seed

    node.stash[SEED] = seed(node.stash[NODE_ID], node.config.stash[SESSION].settings.seed)
    return np.random.default_rng(node.stash[SEED])


@pytest.fixture
def kernel_target(request: pytest.FixtureRequest) -> Target | Composed:
    """The kernel, case and options of the test's ``qcom_kernel`` marker."""
    found: Target | Composed = the_target(request, "qcom_kernel", "case")
    return found


@pytest.fixture
def patch_target(request: pytest.FixtureRequest) -> Patched:
    """The patch and graph of the test's ``qcom_patch`` marker."""
    found: Patched = the_target(request, "qcom_patch", "model")
    return found


def the_target(request: pytest.FixtureRequest, marker: str, part: str) -> Any:
    """What the test is parametrized with, or what its only marker names."""
    found = [request.param] if hasattr(request, "param") else []
    if not found:
        found = [each for mark in request.node.iter_markers(marker) for each in marked(mark, request.config)]
    if len(found) != 1:
        problem = f"{RUNS[marker]} needs a {marker} marker and its {part}"
        pytest.fail(f"{request.node.nodeid}: {problem}", pytrace=False)
    if isinstance(found[0], QcomError):
        pytest.fail(f"{request.node.nodeid}: {found[0]}", pytrace=False)
    return found[0]


@pytest.fixture
def kernel_run(
    request: pytest.FixtureRequest, kernel_target: Target | Composed, device: Device, benchmark: Any
) -> Callable[[], Outcome]:
    """Runs the kernel of the test's marker: ``kernel_run()`` checks its output and holds it to its floor."""
    session = request.config.stash[SESSION]
    generator = random_generator(request.node)

    def run() -> Outcome:
        return session.run(kernel_target, generator, benchmark, request.node.user_properties)

    return run


@pytest.fixture
def patch_run(request: pytest.FixtureRequest, patch_target: Patched, benchmark: Any) -> Callable[[], Report]:
    """Checks the patch of the test's marker: ``patch_run()`` runs the graph before and after it on the same
    random inputs, and holds the patched one to its floor."""
    session = request.config.stash[SESSION]
    generator = random_generator(request.node)

    def run() -> Report:
        return session.run_patch(patch_target, generator, benchmark, request.node.user_properties)

    return run


@pytest.fixture(scope="session")
def envelope() -> Callable[..., bytes]:
    """Builds a QCOM CL binary: ``envelope(program, **fields)``, fields as those of the ``Envelope``."""
    return binary


def binary(program: Program | bytes, name: str = "kernel", **fields: Any) -> bytes:
    """The QCOM CL binary of a program, or of an instruction image.

    Raises:
        EnvelopeError: neither of them, unknown or missing fields, or what no binary can hold.
    """
    from pytest_qcom.envelope import Envelope
    from pytest_qcom.isa.program import Program

    if isinstance(program, Program):
        fregs, hregs = program.footprint()
        fields = {"image": program.encode(), "fregs": fregs, "hregs": hregs, **fields}
    elif isinstance(program, bytes):
        fields = {"image": program, **fields}
    else:
        raise EnvelopeError(f"envelope of {program!r}: give a Program, or the bytes of an instruction image")
    known = {item.name for item in dataclasses.fields(Envelope)} - {"name"}
    if wrong := sorted((fields.keys() - known) | ({"fregs", "hregs"} - fields.keys())):
        raise EnvelopeError(
            f"envelope of {name!r}: {', '.join(wrong)} unknown or missing; fields are "
            f"{', '.join(sorted(known))}"
        )
    return Envelope(name=name, **fields).to_bytes()


class Recorder:
    """Gathers results from reports where a session ends: pytest-xdist's controller, or the only process."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.results: dict[str, list[tuple[Measurement, bool]]] = {name: [] for name in TABLES}
        self.notes: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            for name, value in report.user_properties:
                if name in self.results:
                    self.results[name].append((Measurement.loads(str(value)), report.passed))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.session.settings.update and session.config.option.collectonly is False:
            try:
                every = [result for results in self.results.values() for result, passed in results if passed]
                self.notes.append(self.session.store(every))
            except QcomError as error:
                self.notes.append(f"ERROR: {error}")
                if session.exitstatus == pytest.ExitCode.OK:  # an interrupt stays one
                    session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        shown = {name: results for name, results in self.results.items() if results}
        if self.notes and not shown:
            terminalreporter.section("floors")
        for name, results in shown.items():
            one, many = TABLES[name]
            terminalreporter.section(many)
            for line in table(one, sorted(row(result) for result, _ in results)):
                terminalreporter.write_line(line)
        for line in [*(trust(self.session.entry.mode) if shown else []), *self.notes]:
            terminalreporter.write_line(line)
