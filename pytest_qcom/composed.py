"""Runs a declared composition, a sequence of launches, on a device and judges its output."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pytest_qcom.conformance import Outcome, compare
from pytest_qcom.devices.device import Device, Tensor
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.composition import Composition, Memory, Plan, Step
from pytest_qcom.kernels.kernel import Arrays


@dataclass(slots=True)
class Sequence:
    """A composition with its inputs on a device.

    Attributes:
        parts: device seconds of the last run by part of the plan.
        seconds: device seconds of each run so far.
    """

    device: Device
    composition: Composition
    options: Any
    plan: Plan
    inputs: Arrays
    pattern: str
    tensors: Mapping[str, Tensor]
    parts: dict[str, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def launch(self) -> float:
        """Runs all launches in their order, once; device seconds of all.

        Raises:
            LaunchError, GpuFault, GpuHang, HazardError: what the device ran into.
        """
        parts: dict[str, float] = defaultdict(float)
        for step in self.plan.steps:
            parts[step.part] += self._launch(step)
        self.parts = dict(parts)
        self.seconds.append(sum(parts.values()))
        return self.seconds[-1]

    def _launch(self, step: Step) -> float:
        build = step.build
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

    def compare(self) -> Outcome:
        """The output against the oracle: within the composition's bound, for a pattern exactly."""
        expected = self.composition.oracle(self.options, self.inputs)
        bounds: Mapping[str, Any] = dict.fromkeys(expected, 0.0)
        if not self.pattern:
            bounds = self.composition.tolerance(self.options, self.inputs)
        outputs = {name: self.device.download(self.tensors[name]) for name in expected}
        return compare(outputs, expected, bounds)


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
    if pattern and pattern not in composition.patterns:
        known = ", ".join(composition.patterns) or "none"
        raise KernelError(f"composition {composition.name} has no pattern {pattern!r}; it has {known}")
    plan = composition.plan(options)
    if pattern:
        inputs = composition.patterns[pattern](options)
    else:
        inputs = composition.inputs(options, generator if generator is not None else np.random.default_rng(0))
    tensors = {memory.name: _tensor(device, memory, inputs) for memory in plan.memories}
    return Sequence(device, composition, options, plan, inputs, pattern, tensors)


def _tensor(device: Device, memory: Memory, inputs: Arrays) -> Tensor:
    if memory.written:
        return device.empty(memory.shape, memory.dtype)
    return device.upload(inputs[memory.name].reshape(memory.shape))


def facts(device: Device, composition: Composition, options: Any, seed: int) -> dict[str, Any]:
    """Runs a composition on random inputs; what came of it, for the command line.

    Raises:
        KernelError, LaunchError, GpuFault, GpuHang, HazardError: it could not run.
    """
    run = prepare(device, composition, options, np.random.default_rng(seed))
    seconds = run.launch()
    words = ["qcom compose", composition.name, composition.arguments(options), f"--seed {seed}"]
    return {
        "composition": composition.name,
        "device": device.name,
        "mode": device.mode,
        "launches": len(run.plan.steps),
        "unit": composition.unit,
        composition.unit.lower().replace("/", "_per_"): run.plan.work / seconds,
        "device_seconds": seconds,
        **{f"{part}_seconds": value for part, value in run.parts.items()},
        "seed": seed,
        "repeat": " ".join(filter(None, words)),
        **run.compare().facts(),
    }
