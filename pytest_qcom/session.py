"""One test session on one device: what the plugin's hooks and fixtures delegate to."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pytest_qcom import baselines, expected, report
from pytest_qcom.arguments import counted
from pytest_qcom.devices import registry
from pytest_qcom.devices.races import RACES_VARIABLE, looking_for_races, races_wanted
from pytest_qcom.errors import BaselineError, DeviceUnavailable
from pytest_qcom.settings import Settings

if TYPE_CHECKING:
    from numpy.random import Generator

    from pytest_qcom.conformance import Outcome
    from pytest_qcom.devices.device import Device
    from pytest_qcom.openpilot.patch import Report
    from pytest_qcom.openpilot.places import Place
    from pytest_qcom.patched import Patched
    from pytest_qcom.targets import Composed, Target

PROPERTY = "qcom"
"""Name of a kernel's result among a test's ``user_properties``."""
PATCH_PROPERTY = "qcom-patch"
"""Name of a patch's."""
R = TypeVar("R", bound="Timed")
HARDWARE_ROUNDS = 10
YOUNG = 1
"""The generation of garbage that is collected after each test."""
OLD_AFTER = 50
"""Tests after which all garbage is collected."""


class Timed(Protocol):
    """What can be run again and again."""

    def launch(self) -> float:
        """Runs it once; device seconds."""
        ...


class Clock:
    """Seconds that the device has worked: pytest-benchmark's timer, so that it measures the device."""

    def __init__(self) -> None:
        self.seconds = 0.0

    __name__ = "device_seconds"

    def __call__(self) -> float:
        """Device seconds since the last :meth:`restart`."""
        return self.seconds

    def restart(self) -> None:
        """Starts again at 0, so that a test's rounding does not depend on the tests before it."""
        self.seconds = 0.0

    def add(self, seconds: float) -> float:
        """Counts a launch."""
        self.seconds += seconds
        return seconds


class Session:
    """The device of a session and what it is held to; each part made when it is first needed.

    Raises:
        DeviceUnavailable: from the constructor, when the settings name a device that is unknown or absent, or
            look for races where late results are emulated, or the environment does not say whether to look.
        ExpectationError: from the constructor, when they name no list of expected failures.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = Clock()
        self._stack = contextlib.ExitStack()
        self._device: Device | None = None
        self.installed = False
        races_wanted()  # the environment may hold what is no answer
        if settings.hazards == "emulate":
            self._refuse_races()
        if settings.races:
            self._stack.enter_context(looking_for_races(self.entry))
        if settings.asked:
            self.entry.require(settings.hazards)
        self.failures = expected.read(settings.expected) if settings.expected else ()

    def _refuse_races(self) -> None:
        """One error at the start; else each test would run into it."""
        if self.settings.races:
            asked = "--qcom-races"
        elif self.entry.deterministic and races_wanted():
            asked = f"environment variable {RACES_VARIABLE}"
        else:
            return
        raise DeviceUnavailable(
            f"{asked} with --qcom-hazards emulate: races are looked for with every wait in its place; "
            "leave one of them out, or take --qcom-hazards strict or off"
        )

    @cached_property
    def entry(self) -> registry.Entry:
        """The device's line in the registry."""
        return registry.find(self.settings.device, self.settings.root)

    @cached_property
    def machine(self) -> baselines.Machine:
        """The device as the JSON files name it."""
        return baselines.machine(self.entry)

    @cached_property
    def baseline(self) -> baselines.Baseline:
        """The stored floors of the device.

        Raises:
            BaselineError: missing or malformed.
        """
        return baselines.load(self.settings.baselines, self.settings.device)

    @property
    def device(self) -> Device:
        """The open device.

        Raises:
            DeviceUnavailable: it does not answer.
        """
        if self._device is None:
            self._device = self._stack.enter_context(self.entry.open(self.settings.hazards))
        return self._device

    @cached_property
    def place(self) -> Place:
        """Where captured graphs run: on the device, as the one of this process or behind ssh.

        Raises:
            DeviceUnavailable: it does not answer, or tinygrad has opened another one in this process.
        """
        from pytest_qcom.openpilot import places

        if self.entry.kind == "ssh":
            return self._stack.enter_context(places.opened(self.entry, self.settings.hazards))
        if not self.installed:
            self.install()
        return places.HERE

    def install(self) -> None:
        """Makes the device the one that any tinygrad program in this process runs on.

        Garbage is collected between tests from now on and not within them. tinygrad counts a submission
        before it makes it, and when a program or a graph is freed, it waits for all that it has counted: one
        that the collector frees in between has tinygrad wait for what it never submits, give the device up
        after 30 s, and fail every later test.
        """
        from pytest_qcom.virtual.gpu import collector_paused

        self._stack.enter_context(self.entry.install(self.settings.hazards))
        self._stack.enter_context(collector_paused())
        self.installed = True

    def after_test(self, used: bool) -> None:
        """Frees what a test left, and raises what the device did not tell it.

        Args:
            used: the test took the fixture ``device``.

        Raises:
            QcomError: what a tinygrad program ran into and was not told yet.
            DeviceUnavailable: the device does not recover.
        """
        if used and self._device is not None:
            self._device.reset()
        if self.installed:
            gc.collect(YOUNG if gc.get_count()[2] < OLD_AFTER else 2)
            self.entry.check()

    def expect(
        self, items: Mapping[str, Any], mark: Callable[[Any, expected.Failure], None]
    ) -> dict[str, str]:
        """Marks the tests that are known to fail in this session; see :func:`pytest_qcom.expected.apply`."""
        here = [item for item in self.failures if item.applies(self.settings.hazards, os.environ)]
        return expected.apply(here, items, mark)

    def close(self) -> None:
        """Gives the device back."""
        self._stack.close()

    def header(self) -> str:
        """The line that says what is under test."""
        path = baselines.newest(self.settings.baselines, self.settings.device)
        if path is None:
            name = "none"
        elif path.is_relative_to(self.settings.root):
            name = str(path.relative_to(self.settings.root))
        else:
            name = str(path)
        return report.header(self.entry.name, self.entry.chip, self.entry.mode, self.settings.hazards, name)

    def run(
        self,
        target: Target | Composed,
        generator: Generator,
        benchmark: Any,
        properties: list[tuple[str, Any]],
    ) -> Outcome:
        """Runs a kernel or a composition on random inputs, checks its output, and holds it to its floor.

        Args:
            benchmark: pytest-benchmark's fixture, with :attr:`clock` as its timer.
            properties: the test's ``user_properties``; the result is added before the floor is checked.

        Raises:
            KernelError: the output is wrong.
            BaselineError: the kernel has no usable floor.
            FloorError: slower than it.
        """
        __tracebackhide__ = True  # a failure shows the test's own line and the message
        from pytest_qcom import composed, conformance
        from pytest_qcom.targets import Composed

        def prepare() -> conformance.Run | composed.Sequence:
            if isinstance(target, Composed):
                return composed.prepare(self.device, target.kernel, target.options, generator)
            return conformance.prepare(self.device, target.kernel, target.options, generator)

        run = self._timed(target.kernel.name, target.key, benchmark, prepare)
        outcome = run.judge()
        measured = baselines.Measurement(
            key=target.key,
            kernel=target.kernel.name,
            case=target.case,
            options=dataclasses.asdict(target.options),
            shape=run.shape,
            unit=target.kernel.unit,
            work=run.work,
            seconds=tuple(run.seconds),
            floor=None,
            max_error=outcome.max_abs,
            hazards=self.settings.hazards,
            claim=target.kernel.claim,
        )
        self._hold(measured, benchmark, properties, PROPERTY)
        return outcome

    def run_patch(
        self, target: Patched, generator: Generator, benchmark: Any, properties: list[tuple[str, Any]]
    ) -> Report:
        """Runs a graph before and after a patch on random inputs, compares, and holds it to its floor.

        Args:
            benchmark, properties: as for :meth:`run`.

        Raises:
            PatchError: the patch does not fit the graph, or results move by more than it allows.
            GraphError: no graph that can be read.
            DeviceUnavailable: as :attr:`place`.
            BaselineError, FloorError: as :meth:`run`.
        """
        __tracebackhide__ = True
        from pytest_qcom import patched

        name, place = target.patch.name, self.place
        run = self._timed(name, target.key, benchmark, lambda: patched.prepare(target, generator, place))
        report = run.judge()
        measured = baselines.Measurement(
            key=target.key,
            kernel=name,
            case=target.model,
            options={},
            shape=run.shape,
            unit=patched.UNIT,
            work=1.0,
            seconds=tuple(run.seconds),
            floor=None,
            max_error=report.error,
            hazards=self.settings.hazards,
            claim=f"results move by {target.patch.tolerance.share:g} at most",
        )
        self._hold(measured, benchmark, properties, PATCH_PROPERTY)
        return report

    def _timed(self, group: str, key: str, benchmark: Any, prepare: Callable[[], R]) -> R:
        """What ``prepare`` makes, after as many launches as are timed on the device."""
        __tracebackhide__ = True
        runs: list[R] = []

        def setup() -> None:  # within pytest-benchmark, which otherwise warns of a test that fails here
            if not runs:
                runs.append(prepare())

        self.clock.restart()
        benchmark.group, benchmark.name, benchmark.fullname = group, key, key
        rounds = 1 if self.entry.deterministic else HARDWARE_ROUNDS
        benchmark.pedantic(lambda: self.clock.add(runs[0].launch()), setup=setup, rounds=rounds)
        [run] = runs
        return run

    def _hold(
        self,
        measured: baselines.Measurement,
        benchmark: Any,
        properties: list[tuple[str, Any]],
        name: str,
    ) -> None:
        """Records a measurement, whatever comes of it, then holds it against its floor."""
        __tracebackhide__ = True
        floor, problem = None, None
        if not self.settings.update:
            try:
                floor = self.baseline.floor(measured.key, self.machine.mode)
            except BaselineError as error:
                problem = error
        measured = dataclasses.replace(measured, floor=floor.value if floor else None)
        properties.append((name, measured.dumps()))
        benchmark.extra_info.update(baselines.extra_info(measured, self.machine, report.versions()))
        if problem is not None:
            raise problem.with_traceback(None)  # the test's line and the message, not how it was read
        if floor is not None:
            floor.check(measured.speed, measured.unit)

    def store(self, measured: list[baselines.Measurement]) -> str:
        """Writes the results as the device's new floors; says where.

        Raises:
            BaselineError: nothing was measured, or the file cannot be written.
        """
        path = baselines.update(self.settings.baselines, self.machine, measured, report.versions())
        return f"{counted(len(measured), 'floor')} of {self.machine.name} written to {path}"
