"""What the kernel suites share: every declared case, and a device that looks over missing waits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pytest_qcom.devices import registry
from pytest_qcom.devices.device import Device
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.targets import Target


def cases(*claims: str, of: str = "", but: Sequence[str] = ()) -> list[object]:
    """(kernel, case) of every declared case with one of the claims, with their key as id.

    ``of``: only of kernels in whose name this pattern is found. ``but``: none with one of these in its key.
    """
    return [
        pytest.param(kernel, case, id=f"{kernel.name}[{case.name}]")
        for kernel in KERNELS.values()
        if kernel.claim in claims and re.search(of, kernel.name)
        for case in kernel.cases
        if not any(word in f"{kernel.name}[{case.name}]" for word in but)
    ]


def built(kernel: str, case: str) -> Build:
    """A declared case."""
    return Target(KERNELS[kernel], case).build()


@pytest.fixture(scope="session")
def lenient(device: Device) -> Iterator[Device]:
    """The device; a virtual one runs programs whose waits are too short as if every wait were there."""
    if device.mode == "hardware":
        yield device
        return
    with registry.find("virtual", Path.cwd()).open("off") as other:
        yield other
