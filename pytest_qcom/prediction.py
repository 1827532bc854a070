"""What the cycle model says of one kernel: speed, limiter, roof; a timeline for Perfetto, a roofline."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_qcom.analysis.cycles import MODE, Estimate, Scale, evaluate
from pytest_qcom.analysis.occupancy import of_launch, waves_of
from pytest_qcom.analysis.processor import Pipe
from pytest_qcom.analysis.timing import is_full
from pytest_qcom.analysis.trace import Trace, trace
from pytest_qcom.analysis.work import Work, work
from pytest_qcom.chip import A630, Chip
from pytest_qcom.errors import KernelError
from pytest_qcom.isa.instruction import Sample
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.targets import Target
from pytest_qcom.timings import Launch, launched

_CLEAR = 1.05  # gain from which on a cost limits
_TEXEL_BYTES = 8  # of half4, the texels that all roofs here count
_NAMES = {0: "texture A", 1: "texture B"}
"""Textures by number, as the published GEMMs bind them."""
_HALF = {"occupancy": "twice the waves", "sync": "half the latency of what is waited for"}
"""What is tried, in words, where it is no cost of a pipe."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A kernel and what the model says of it.

    Attributes:
        gains: for each possible limiter how many times as fast the kernel would be if that cost half, or if
            twice the waves were resident.
    """

    target: Target
    build: Build
    launch: Launch
    path: Trace
    estimate: Estimate
    gains: dict[str, float]

    @property
    def limiter(self) -> str:
        """What would gain most; occupancy where no cost gains much, since more waves hide any of them."""
        costs = {name: gain for name, gain in self.gains.items() if name != "occupancy"}
        most = max(costs, key=lambda name: costs[name])
        return most if costs[most] >= max(_CLEAR, 1 + (self.gains["occupancy"] - 1) / 3) else "occupancy"

    @property
    def speed(self) -> float:
        """In the kernel's unit."""
        return self.build.work / self.estimate.seconds

    def texels(self) -> float:
        """Texels that the launch samples, one a fiber and sample."""
        program = self.build.program
        samples = sum(isinstance(program.instrs[index].op.effect, Sample) for index in self.path.path)
        return float(samples * self.path.active * waves_of(self.launch))

    def roofs(self, chip: Chip = A630) -> dict[str, float]:
        """Speeds, in the kernel's unit, that pipes alone would allow: ``ALU`` and ``texture``."""
        program, clock = self.build.program, chip.clocks.top.value
        processors, partitions = chip.cores.shader_processors.value, chip.cores.issue_partitions.value
        counts = Counter(self.path.path)
        slots = sum(
            count * (1 + program.instrs[index].rpt) * self._slot(index)
            for index, count in counts.items()
            if program.instrs[index].op.reads == "fff"
        )
        waves = waves_of(self.launch, chip)
        found = {}
        if slots:
            found["ALU"] = self.build.work * clock * processors * partitions / (slots * waves)
        if self.texels():
            found["texture"] = self.build.work * clock * processors * chip.rates.texels.value / self.texels()
        return found

    def _slot(self, index: int) -> float:
        """Least cycles of a repeat of a multiply-add: full ones of 128 fibers take longer."""
        full = self.launch.thread128 and is_full(self.build.program.instrs[index])
        return A630.rates.full_cycles128.value if full else 1.0

    def facts(self) -> dict[str, Any]:
        """As plain data."""
        roofs = self.roofs()
        roof = min(roofs, key=lambda name: roofs[name]) if roofs else None
        held = of_launch(self.launch)
        return {
            "kernel": self.target.key,
            "options": self.target.kernel.arguments(self.target.options),
            "model": MODE,
            "device_seconds": self.estimate.seconds,
            "cycles": self.estimate.cycles,
            "unit": self.target.kernel.unit,
            "speed": self.speed,
            **({"GFLOPS": self.speed} if self.target.kernel.unit == "GFLOPS" else {}),
            "waves": self.estimate.waves,
            "wave_fibers": held.wave_fibers,
            "limited_by": held.limiter.value,
            "limiter": self.limiter,
            "gains": self.gains,
            "busy": self.estimate.busy,
            "loop_instructions": self.estimate.loop,
            "roofs": roofs,
            "roof": roof,
            "share_of_roof": self.speed / roofs[roof] if roof else None,
        }


def predict(target: Target, thread128: bool | None = None) -> Prediction:
    """Builds a kernel and predicts it.

    Raises:
        KernelError: options that do not go together.
        LaunchError: not a single wave fits.
        GpuHang: a path that does not end.
    """
    build = target.build()
    launch = launched(build, thread128)
    path = trace(launch, build.program)
    given = work(launch, build.program, path)
    found = evaluate(given, events=True)
    return Prediction(target, build, launch, path, found, _gains(given, found))


def _gains(given: Work, found: Estimate) -> dict[str, float]:
    """How many times as fast the launch would be, were each possible limiter half the cost that it is."""
    textures = sorted(set(given.whole("texture").tolist()) - {-1})
    scales = {
        "ALU": Scale(alu=0.5),
        **{_NAMES.get(number, f"texture {number}"): Scale(textures={number: 0.5}) for number in textures},
        "sync": Scale(latency=0.5),
        "store": Scale(store=0.5),
        "occupancy": Scale(waves=2),
        "instruction cache": Scale(miss=0.5),
    }
    return {name: found.seconds / evaluate(given, scale=scale).seconds for name, scale in scales.items()}


def write_trace(found: Prediction, path: Path, chip: Chip = A630) -> None:
    """A timeline of one shader processor in Chrome's JSON trace format, which Perfetto opens.

    It shows one round of waves, of the longest loop the first two laps. A row is a wave; times are
    microseconds at the top clock.

    Raises:
        KernelError: a path that cannot be written.
    """
    text = found.build.program.text().splitlines()
    scale = 1e6 / chip.clocks.top.value
    partitions = chip.cores.issue_partitions.value
    events: list[dict[str, Any]] = [
        {
            "ph": "M",
            "pid": slot % partitions,
            "tid": slot,
            "name": "thread_name",
            "args": {"name": f"wave {slot}"},
        }
        for slot in range(found.estimate.waves)
    ]
    events += [
        {"ph": "M", "pid": number, "name": "process_name", "args": {"name": f"partition {number}"}}
        for number in range(partitions)
    ]
    events += [
        {
            "ph": "X",
            "pid": event.slot % partitions,
            "tid": event.slot,
            "name": text[event.place].strip(),
            "cat": Pipe(event.pipe).name.lower(),
            "ts": event.start * scale,
            "dur": (event.end - event.start) * scale,
            "args": {"instruction": event.place, "cycle": event.start},
        }
        for event in found.estimate.events
    ]
    content = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"kernel": found.target.key}}
    try:
        path.write_text(json.dumps(content) + "\n", encoding="utf-8")
    except OSError as error:
        raise KernelError(f"trace {path}: not writable ({error.strerror}); name another file") from error


def plot(found: Prediction, path: Path, chip: Chip = A630) -> None:
    """The roofline of the chip with the kernel on it: speed over work a texture byte.

    Raises:
        KernelError: no matplotlib, a kernel that samples nothing, or a path that cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise KernelError(
            "a plot needs matplotlib, which is not there; install the extra 'plot' of pytest-qcom"
        ) from error
    roofs = found.roofs(chip)
    if not {"ALU", "texture"} <= roofs.keys():
        raise KernelError(
            f"kernel {found.target.key} has no roofline: it must both multiply and sample; "
            "ask without --plot for its limiter"
        )
    unit = found.target.kernel.unit
    intensity = found.build.work * 1e9 / (found.texels() * _TEXEL_BYTES)
    bandwidth = roofs["texture"] / intensity
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    places = [intensity * 2.0**step for step in range(-4, 5)]
    axes.loglog(places, [min(roofs["ALU"], bandwidth * place) for place in places], label="roof")
    axes.loglog(
        [intensity],
        [found.speed],
        "o",
        label=f"{found.target.key}: {found.speed:.0f} {unit}, {found.limiter}",
    )
    axes.set_xlabel("flop a texture byte")
    axes.set_ylabel(unit)
    axes.set_title(f"{chip.name}, {MODE}")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise KernelError(f"plot {path}: not writable ({error}); name a .png, .svg or .pdf file") from error


def lines(facts: dict[str, Any]) -> list[str]:
    """Facts as text, rounded."""
    unit = facts["unit"]
    busy = ", ".join(f"{name} {share:.0%}" for name, share in facts["busy"].items())
    gains = sorted(facts["gains"].items(), key=lambda gain: -gain[1])
    options = f" {facts['options']}" if facts["options"] else ""
    text = [
        f"{facts['kernel']}{options}: {facts['speed']:.1f} {unit} ({facts['model']})",
        f"time: {1e3 * facts['device_seconds']:.3f} ms, {facts['cycles']:,.0f} cycles",
        f"waves: {facts['waves']} of {facts['wave_fibers']} fibers on a shader processor; bound: "
        f"{facts['limited_by']}",
        f"busy: {busy}",
        f"longest loop: {facts['loop_instructions']} instructions",
        f"limiter: {facts['limiter']}",
        *(
            f"  {_HALF.get(name, f'half the cost of {name}')}: {gain:.2f} times as fast"
            for name, gain in gains
        ),
    ]
    if facts["roof"] is not None:
        text.append(f"roof: {facts['roof']}, of which it reaches {facts['share_of_roof']:.0%}")
        text += [f"  {name}: {value:.1f} {unit}" for name, value in facts["roofs"].items()]
    return text
