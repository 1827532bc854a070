"""A matrix product over several devices: each computes some rows of C; one that fails costs its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError, QcomError
from pytest_qcom.kernels import single
from pytest_qcom.kernels.families import gemm_4x8_fp32_rotate
from pytest_qcom.kernels.families.gemm_4x8_fp32_rotate import Options

THREADS = 64
"""Fibers of a workgroup, so that the rows of a part are a multiple of 8."""
_ROWS = THREADS // 8


@dataclass(frozen=True, slots=True)
class Part:
    """Rows ``first`` and up of C from one device, with the device seconds of its launches."""

    device: str
    first: int
    rows: NDArray[np.float32]
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """What the devices gave.

    Attributes:
        parts: of the devices that finished, in the order of their rows.
        failures: by the name of the device, what it ran into.
        work: 1e9 floating-point operations of the whole product.
    """

    parts: tuple[Part, ...]
    failures: Mapping[str, QcomError]
    work: float

    def matrix(self) -> NDArray[np.float32]:
        """All of C.

        Raises:
            KernelError: rows are missing; it names the devices that failed.
        """
        if self.failures:
            names = ", ".join(self.failures)
            kept = ", ".join(f"{part.device}'s rows from {part.first}" for part in self.parts) or "nothing"
            first = next(iter(self.failures.values()))
            raise KernelError(
                f"product over several devices: {names} failed ({first}); kept is {kept}; run "
                "the missing rows again",
                failed=list(self.failures),
            )
        return np.concatenate([part.rows for part in self.parts])

    @property
    def seconds(self) -> float:
        """The best round: the slowest device of each."""
        return float(min(max(times) for times in zip(*(part.seconds for part in self.parts), strict=True)))


def product(
    devices: Sequence[Device], a: NDArray[np.float16], b: NDArray[np.float16], rounds: int = 1
) -> Split:
    """``a @ b`` with float32 sums, its rows split evenly over the devices, all at the same time.

    Raises:
        KernelError: rows that cannot be split so, or shapes that the kernel does not take.
    """
    if not devices or a.shape[0] % (_ROWS * len(devices)):
        raise KernelError(
            f"product over {len(devices)} devices: {a.shape[0]} rows; give a multiple of {_ROWS} for each"
        )
    rows = a.shape[0] // len(devices)
    options = Options(rows, b.shape[1], a.shape[1], threads=THREADS, image_store=False)
    gemm_4x8_fp32_rotate.build(options)  # what is wrong with the shape is said before anything runs
    with ThreadPoolExecutor(len(devices)) as pool:
        jobs = [
            pool.submit(_part, device, options, number * rows, a[number * rows :][:rows], b, rounds)
            for number, device in enumerate(devices)
        ]
    parts, failures = [], {}
    for device, job in zip(devices, jobs, strict=True):
        error = job.exception()
        if isinstance(error, QcomError):
            failures[device.name] = error
        else:
            parts.append(job.result())
    return Split(tuple(parts), failures, 2e-9 * a.shape[0] * a.shape[1] * b.shape[1])


def _part(
    device: Device,
    options: Options,
    first: int,
    a: NDArray[np.float16],
    b: NDArray[np.float16],
    rounds: int,
) -> Part:
    build = gemm_4x8_fp32_rotate.build(options)
    images = single.images(options, a, b)
    output = device.empty((options.m, options.n), np.float32)
    tensors = {"A": device.image(images["A"]), "B": device.image(images["B"]), "C": output}
    arguments = [tensors[argument.name] for argument in build.arguments]
    name = gemm_4x8_fp32_rotate.NAME
    seconds = tuple(
        device.launch(build.binary(name), name, arguments, build.groups, build.local, build.thread128)
        for _ in range(rounds)
    )
    return Part(device.name, first, device.download(output), seconds)
