"""A matrix product over several devices: each computes some rows of C; one that fails costs its own.

All get ready, and launch at the same instant; what one of them runs into is kept beside what the others gave,
whose missing rows :func:`resume` computes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.conformance import compare
from pytest_qcom.devices import registry
from pytest_qcom.devices.device import Device
from pytest_qcom.devices.remote import Launch, RemoteDevice, opened, sleep_until
from pytest_qcom.errors import KernelError, QcomError
from pytest_qcom.kernels import single
from pytest_qcom.kernels.families import gemm_4x8_fp32_rotate
from pytest_qcom.kernels.families.gemm_4x8_fp32_rotate import Options
from pytest_qcom.kernels.kernel import Build

THREADS = 64
"""Fibers of a workgroup, so that the rows of a part are a multiple of 8."""
WARM_UP = 2
"""Launches of each device before those that are timed."""
LEAD = 50_000_000
"""ns from the last device getting ready to the common start: what the word to start may take to arrive."""
_ROWS = THREADS // 8


@dataclass(frozen=True, slots=True)
class Part:
    """Rows ``first`` and up of C from one device, with the device seconds of its launches.

    Attributes:
        begun: when the first of those was begun, in ns of this machine's clock.
    """

    device: str
    first: int
    rows: NDArray[np.float32]
    seconds: tuple[float, ...]
    begun: int

    @property
    def stop(self) -> int:
        """The first row behind it."""
        return self.first + len(self.rows)


@dataclass(frozen=True, slots=True)
class Split:
    """What the devices gave.

    Attributes:
        shape: of C.
        parts: of the devices that finished, in the order of their rows.
        failures: by the name of the device, what it ran into.
        work: 1e9 floating-point operations of the whole product.
    """

    shape: tuple[int, int]
    parts: tuple[Part, ...]
    failures: Mapping[str, QcomError]
    work: float

    def matrix(self) -> NDArray[np.float32]:
        """All of C.

        Raises:
            KernelError: rows are missing; it names the devices that failed.
        """
        if self.missing():
            names = ", ".join(self.failures)
            kept = ", ".join(f"{part.device}'s rows from {part.first}" for part in self.parts) or "nothing"
            first = next(iter(self.failures.values()))
            raise KernelError(
                f"product over several devices: {names} failed ({first}); kept is {kept}; run "
                "the missing rows again",
                failed=list(self.failures),
            )
        return np.concatenate([part.rows for part in self.parts])

    def missing(self) -> list[tuple[int, int]]:
        """(first row, row behind the last) of what no device gave."""
        ends = [0, *(part.stop for part in self.parts)]
        starts = [*(part.first for part in self.parts), self.shape[0]]
        return [(end, start) for end, start in zip(ends, starts, strict=True) if end < start]

    @property
    def seconds(self) -> float:
        """The best round: the slowest device of each; of rounds that all parts have."""
        return float(min(max(times) for times in zip(*(part.seconds for part in self.parts), strict=False)))

    @property
    def apart(self) -> int:
        """ns between the first and the last part's start."""
        begun = [part.begun for part in self.parts]
        return max(begun) - min(begun)


@contextlib.contextmanager
def named(names: Sequence[str], project: Path, hazards: str = "strict") -> Iterator[list[Device]]:
    """The devices of these names, as the devices files have them.

    A virtual one gets a process of its own, so that it works beside the others and ends alone.

    Raises:
        DeviceUnavailable: a name that there is not, or that is there twice; a device that does not open.
        KernelError: a name given twice.
    """
    if doubles := sorted({name for name in names if list(names).count(name) > 1}):
        raise KernelError(f"product over several devices: {', '.join(doubles)} twice; give each device once")
    with contextlib.ExitStack() as stack:
        found: list[Device] = []
        for entry in [registry.find(name, project) for name in names]:
            entry.require(hazards)
            if entry.kind == "virtual":
                found.append(stack.enter_context(opened(entry.name, "virtual", hazards)))
            else:
                found.append(stack.enter_context(entry.open(hazards)))
        yield found


def product(
    devices: Sequence[Device], a: NDArray[np.float16], b: NDArray[np.float16], rounds: int = 1
) -> Split:
    """``a @ b`` with float32 sums, its rows split evenly over the devices, all at the same time.

    Raises:
        KernelError: rows that cannot be split so, or shapes that the kernel does not take.
    """
    return _split(devices, a, b, rounds, [(0, a.shape[0])], ())


def resume(
    found: Split,
    devices: Sequence[Device],
    a: NDArray[np.float16],
    b: NDArray[np.float16],
    rounds: int = 1,
) -> Split:
    """What is missing of ``found``, over ``devices``; what was there is kept as it is.

    Raises:
        KernelError: as :func:`product`; or matrices of another shape.
    """
    if found.shape != (a.shape[0], b.shape[1]):
        raise KernelError(
            f"product over several devices: kept are rows of a {found.shape[0]} x {found.shape[1]} C, given "
            f"is one of {a.shape[0]} x {b.shape[1]}; give the same matrices"
        )
    return _split(devices, a, b, rounds, found.missing(), found.parts)


def _split(
    devices: Sequence[Device],
    a: NDArray[np.float16],
    b: NDArray[np.float16],
    rounds: int,
    wanted: Sequence[tuple[int, int]],
    kept: tuple[Part, ...],
) -> Split:
    """The wanted rows: each run of them evenly over the devices."""
    parts, failures = list(kept), dict[str, QcomError]()
    for first, stop in wanted:
        rows = _rows_each(len(devices), stop - first)
        options = _options((rows, b.shape[1], a.shape[1]))
        build = gemm_4x8_fp32_rotate.build(options)  # what is wrong with the shape is said first
        start = _Start(len(devices))
        with ThreadPoolExecutor(len(devices)) as pool:
            jobs = [
                pool.submit(_part, device, options, build, first + number * rows, a, b, rounds, start)
                for number, device in enumerate(devices)
            ]
        for device, job in zip(devices, jobs, strict=True):
            error = job.exception()
            if isinstance(error, QcomError):
                failures[device.name] = error
            else:
                parts.append(job.result())
    parts.sort(key=lambda part: part.first)
    shape = (a.shape[0], b.shape[1])
    return Split(shape, tuple(parts), failures, 2e-9 * a.shape[0] * a.shape[1] * b.shape[1])


def _rows_each(devices: int, rows: int) -> int:
    if not devices or rows % (_ROWS * devices):
        raise KernelError(f"product over {devices} devices: {rows} rows; give a multiple of {_ROWS} for each")
    return rows // devices


def _options(shape: tuple[int, int, int]) -> Options:
    return Options(*shape, threads=THREADS, image_store=False)


@dataclass(slots=True)
class _Start:
    """The common start of several devices; one that fails before it does not hold up the others."""

    waited: int
    instant: int = 0
    _change: threading.Condition = field(default_factory=threading.Condition)

    def ready(self) -> int:
        """The instant, once every other device is ready or has left; ns of this machine's clock."""
        with self._change:
            self._less()
            self._change.wait_for(lambda: self.waited == 0)
            return self.instant

    def leave(self) -> None:
        """It will not start."""
        with self._change:
            self._less()

    def _less(self) -> None:
        self.waited -= 1
        if not self.waited:
            self.instant = time.time_ns() + LEAD
            self._change.notify_all()


def _part(
    device: Device,
    options: Options,
    build: Build,
    first: int,
    a: NDArray[np.float16],
    b: NDArray[np.float16],
    rounds: int,
    start: _Start,
) -> Part:
    name = gemm_4x8_fp32_rotate.NAME
    try:
        images = single.images(options, a[first : first + options.m], b)
        output = device.empty((options.m, options.n), np.float32)
        tensors = {"A": device.image(images["A"]), "B": device.image(images["B"]), "C": output}
        arguments = [tensors[argument.name] for argument in build.arguments]
        launch: Launch = (build.binary(name), name, arguments, build.groups, build.local, build.thread128)
        for _ in range(WARM_UP):
            device.launch(*launch)
    except BaseException:
        start.leave()
        raise
    begun, seconds = _rounds(device, launch, rounds, start.ready())
    return Part(device.name, first, device.download(output), seconds, begun)


def _rounds(device: Device, launch: Launch, rounds: int, instant: int) -> tuple[int, tuple[float, ...]]:
    """(begun, device seconds): in another process, at that process's own clock."""
    if isinstance(device, RemoteDevice):
        return device.rounds(launch, rounds, instant)
    sleep_until(instant)
    begun = time.time_ns()
    return begun, tuple(device.launch(*launch) for _ in range(rounds))


def facts(
    names: Sequence[str], project: Path, shape: tuple[int, int, int], seed: int, rounds: int, hazards: str
) -> dict[str, Any]:
    """Runs a product of random matrices over named devices; what came of it, for the command line.

    Raises:
        KernelError: a shape that cannot be split, or one device alone.
        DeviceUnavailable: a device that does not open.
    """
    if len(names) < 2:
        raise KernelError(f"a product split over {len(names)} device; name two or more")
    m, n, k = shape
    gemm_4x8_fp32_rotate.build(_options((_rows_each(len(names), m), n, k)))  # before a large m is drawn
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(size).astype(np.float16) for size in ((m, k), (k, n)))
    with named(names, project, hazards) as devices:
        found = product(devices, a, b, rounds)
    judged = [_judged(part, a, b) for part in found.parts]
    together = (
        {} if found.failures else {"device_seconds": found.seconds, "gflops": found.work / found.seconds}
    )
    return {
        "devices": list(names),
        "shape": f"{m}x{n}x{k}",
        "ok": not found.failures and all(part["ok"] for part in judged),
        "failures": {name: str(error) for name, error in found.failures.items()},
        "parts": judged,
        **together,
        **({"started_apart_seconds": found.apart / 1e9} if found.parts else {}),
        "seed": seed,
    }


def _judged(part: Part, a: NDArray[np.float16], b: NDArray[np.float16]) -> dict[str, Any]:
    """A part against the float64 product of its rows, within :func:`~pytest_qcom.kernels.single.bound`."""
    own = a[part.first : part.stop]
    options = _options((len(own), b.shape[1], a.shape[1]))
    wanted = {"C": own.astype(np.float64) @ b.astype(np.float64)}
    facts = compare({"C": part.rows}, wanted, single.bound(options, single.images(options, own, b))).facts()
    return {
        "device": part.device,
        "first": part.first,
        "rows": len(own),
        **{name: facts[name] for name in ("ok", "max_abs", "mean_abs")},
        "device_seconds": min(part.seconds),
    }
