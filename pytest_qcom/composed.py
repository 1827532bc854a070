"""Runs a declared composition, a sequence of launches, on a device and judges its output."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.conformance import Outcome, compared, drawn, judged
from pytest_qcom.devices.device import Device, Tensor
from pytest_qcom.kernels.composition import Composition, HostStep, Memory, Plan, Step
from pytest_qcom.kernels.kernel import Arrays

if TYPE_CHECKING:
    from pytest_qcom.targets import Composed


@dataclass(slots=True)
class _Host:
    """What this machine is computing: by memory, the jobs that write to it, and what of theirs goes where."""

    waiting: dict[str, list[tuple[Future[tuple[Arrays, float]], str, int]]] = field(default_factory=dict)
    seconds: float = 0.0


def _timed(compute: Callable[[Arrays], Arrays], given: Arrays) -> tuple[Arrays, float]:
    start = time.perf_counter()
    return compute(given), time.perf_counter() - start


@dataclass(slots=True)
class Sequence:
    """A composition with its inputs on a device.

    Attributes:
        parts: device seconds of the last run by part of the plan.
        seconds: device seconds of each run so far.
        host_seconds: what this machine's processor took in the last run, beside the device; it varies.
    """

    device: Device
    composition: Composition
    options: Any
    plan: Plan
    inputs: Arrays
    pattern: str
    tensors: dict[str, Tensor]
    parts: dict[str, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    host_seconds: float = 0.0
    _host: _Host = field(default_factory=lambda: _Host())

    @property
    def work(self) -> float:
        """What a run does, as in :class:`~pytest_qcom.kernels.composition.Plan`."""
        return self.plan.work

    @property
    def shape(self) -> str:
        """The problem, for tables."""
        return "x".join(str(getattr(self.options, name)) for name in "mnk")

    def launch(self) -> float:
        """Runs all launches in their order, once; device seconds of all.

        What the host does runs beside them: a launch waits for it only where it needs its results.

        Raises:
            LaunchError, GpuFault, GpuHang, HazardError: what the device ran into.
        """
        parts: dict[str, float] = defaultdict(float)
        with ThreadPoolExecutor(1) as pool:
            self._host = _Host()
            for step in self.plan.steps:
                if isinstance(step, HostStep):
                    self._start(pool, step)
                else:
                    parts[step.part] += self._launch(step)
            for name in list(self._host.waiting):
                self._settle(name)
        self.parts, self.host_seconds = dict(parts), self._host.seconds
        self.seconds.append(sum(parts.values()))
        return self.seconds[-1]

    def _launch(self, step: Step) -> float:
        build = step.build
        for use in step.uses.values():
            self._settle(use.memory)
        views = [
            self.device.view(
                self.tensors[step.uses[argument.name].memory],
                argument.shape,
                argument.image,
                step.uses[argument.name].start,
            )
            for argument in build.arguments
        ]
        binary = build.binary(step.kernel)
        return self.device.launch(binary, step.kernel, views, build.groups, build.local, build.thread128)

    def _start(self, pool: ThreadPoolExecutor, step: HostStep) -> None:
        """Gives the host what it needs; it goes on by itself."""
        given = {}
        for name, memory in step.reads.items():
            self._settle(memory)
            given[name] = self.device.download(self.tensors[memory])
        job = pool.submit(_timed, step.compute, given)
        for name, use in step.writes.items():
            self._host.waiting.setdefault(use.memory, []).append((job, name, use.start))

    def _settle(self, memory: str) -> None:
        """Puts what the host makes of a memory onto the device, once it is there."""
        jobs = self._host.waiting.pop(memory, [])
        if not jobs:
            return
        tensor = self.tensors[memory]
        whole = sum(math.prod(job.result()[0][name].shape) for job, name, _ in jobs) == math.prod(
            tensor.shape
        )
        array = np.empty(tensor.shape, tensor.dtype) if whole else self.device.download(tensor)
        for job, name, start in jobs:
            found, seconds = job.result()
            values = found[name].ravel()
            array.reshape(-1)[start : start + values.size] = values
            self._host.seconds += seconds / len(found)
        self.tensors[memory] = self.device.upload(array)

    def compare(self) -> Outcome:
        """The output against the oracle: within the composition's bound, for a pattern exactly."""

        def output(name: str) -> NDArray[Any]:
            return self.device.download(self.tensors[name])

        return compared(self.composition, self.options, self.inputs, self.pattern, output)

    def judge(self) -> Outcome:
        """:meth:`compare`, which must be right.

        Raises:
            KernelError: the output is wrong.
        """
        return judged(self.compare(), self.composition, self.options, self.shape, self.pattern)


def prepare(
    device: Device,
    composition: Composition,
    options: Any,
    generator: np.random.Generator | None = None,
    pattern: str = "",
) -> Sequence:
    """Plans the launches and puts the inputs onto the device.

    Raises:
        KernelError: options that do not go together, or an unknown pattern.
        LaunchError: memories that the device cannot hold.
    """
    plan = composition.plan(options)  # first: it refuses what has no inputs
    inputs = drawn(composition, options, generator, pattern)
    tensors = {memory.name: _tensor(device, memory, inputs) for memory in plan.memories}
    return Sequence(device, composition, options, plan, inputs, pattern, tensors)


def _tensor(device: Device, memory: Memory, inputs: Arrays) -> Tensor:
    if memory.written:
        return device.empty(memory.shape, memory.dtype)
    return device.upload(inputs[memory.name].reshape(memory.shape))


def facts(device: Device, target: Composed, seed: int, pattern: str = "") -> dict[str, Any]:
    """Runs a composition on random inputs; what came of it, for the command line.

    Args:
        pattern: inputs with an exact result instead.

    Raises:
        KernelError, LaunchError, GpuFault, GpuHang, HazardError: it could not run.
    """
    composition, options = target.kernel, target.options
    run = prepare(device, composition, options, np.random.default_rng(seed), pattern)
    seconds = run.launch()
    outcome = run.compare()
    return {
        "composition": composition.name,
        "device": device.name,
        "mode": device.mode,
        "launches": len(run.plan.launches),
        "unit": composition.unit,
        composition.unit.lower().replace("/", "_per_"): run.plan.work / seconds,
        "device_seconds": seconds,
        **{f"{part}_seconds": value for part, value in run.parts.items()},
        **({"host_seconds": run.host_seconds} if len(run.plan.steps) > len(run.plan.launches) else {}),
        "seed": seed,
        "repeat": composition.command(options, seed),
        "verdict": str(outcome),
        **outcome.facts(),
    }
