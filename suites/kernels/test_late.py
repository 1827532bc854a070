"""Kernels that wait enough compute the same whether or not results are late: every bit, on random inputs.

By itself the device runs such a program without late results, so that here it is told that each one has them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_qcom import conformance, linting
from pytest_qcom.analysis import hazards
from pytest_qcom.analysis.findings import Finding, errors
from pytest_qcom.devices import registry, virtual
from pytest_qcom.devices.device import Device
from pytest_qcom.kernels.kernel import Build, Kernel
from pytest_qcom.kernels.registry import KERNELS


@pytest.fixture(scope="module")
def devices() -> Iterator[tuple[Device, Device]]:
    """(as if every wait were there, with late results always)."""
    entry = registry.find("virtual", Path.cwd())
    with pytest.MonkeyPatch.context() as patch, entry.open("off") as off:
        patch.setattr(virtual, "_hazardous", lambda dispatch: True)
        with entry.open("emulate") as late:
            yield off, late


def _size(options: Any) -> int:
    """How much there is to compute, as far as the options say."""
    return int(np.prod([getattr(options, name) for name in "mnk" if hasattr(options, name)], dtype=np.int64))


@functools.cache
def cheapest(name: str) -> tuple[Any, Build]:
    """The case of a kernel with the smallest problem."""
    kernel = KERNELS[name]
    options = min((kernel.configure({}, case.name) for case in kernel.cases), key=_size)
    return options, kernel.build(options)


def _hazards(build: Build) -> tuple[Finding, ...]:
    return errors(hazards.lint(build.program, **linting.registers(build)))


def _outputs(device: Device, kernel: Kernel, options: Any, build: Build) -> dict[str, NDArray[np.uint8]]:
    run = conformance.prepare(device, kernel, options, np.random.default_rng(1), "", build)
    run.launch()
    found = {name: np.ascontiguousarray(array).view(np.uint8) for name, array in run.outputs().items()}
    device.reset()
    return found


def _same(name: str, devices: tuple[Device, Device]) -> None:
    options, build = cheapest(name)
    if _hazards(build):
        assert KERNELS[name].claim == "as-published"
        return
    off, late = (_outputs(device, KERNELS[name], options, build) for device in devices)
    assert off.keys() == late.keys()
    for output, array in off.items():
        assert (array == late[output]).all(), output


SHORT = (
    "gemm_8x4_fp16",
    "gemm_4x8_fp32",
    "gemm_4x8_fp32_splitk",
    "gemm_dp4",
    "gemm_local_fp16",
    "pack_banked",
    "image_probe",
)
"""Kernels for the short run: samples of halves and words, shuffles, integers, barriers, loads and stores."""


@pytest.mark.parametrize("name", SHORT)
def test_short_kernels_that_wait_enough_compute_the_same(name: str, devices: tuple[Device, Device]) -> None:
    assert not _hazards(cheapest(name)[1])
    _same(name, devices)


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_that_wait_enough_compute_the_same(name: str, devices: tuple[Device, Device]) -> None:
    _same(name, devices)
