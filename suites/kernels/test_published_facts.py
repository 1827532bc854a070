"""What published float32 kernels give where waits are as they were written: on ones and on random matrices.

The notes checked with ones alone. Both facts stand here for every row of the tables that stores something,
and for what is wrong among the other published cases. That is what the virtual device does with late results;
the rows that the device itself found wrong are among those that are wrong here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.devices import registry
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import GpuFault, GpuHang
from pytest_qcom.kernels.kernel import Case, Kernel
from pytest_qcom.kernels.registry import KERNELS
from suites.kernels.test_single import PUBLISHED, shrunk

FACTS = {
    "gemm_4x4_fp32_published[p180]": ("right", "wrong"),  # three idle slots, which are enough for ones
    "gemm_4x4_fp32_published[p187]": ("wrong", "wrong"),  # 1020 on the device
    "gemm_4x8_fp32_published[p196]": ("wrong", "wrong"),  # wrong on the device
    "gemm_4x8_fp32_published[p198]": ("hang", "hang"),  # as on the device
    "gemm_4x8_fp32_published[hand-store]": ("fault", "fault"),  # addresses that are not ready
    "gemm_4x8_fp32_published[plain]": ("right", "wrong"),  # later columns are not waited for
    "gemm_4x16_fp32_published[plain]": ("right", "wrong"),
    "gemm_8x4_fp32_published[p167]": ("right", "wrong"),  # rows 4 to 7 are not waited for
    "gemm_8x8_fp32_published[p168]": ("right", "wrong"),
    "gemm_wide_fp32_published[one-sync]": ("wrong", "wrong"),
    "gemm_wide_fp32_published[component-sync-2]": ("wrong", "wrong"),
}
"""(on ones, at random); all other rows are right on both."""


def chosen() -> list[object]:
    """Rows of the tables, and what else is in the list; nothing without an output."""
    return [
        pytest.param(kernel, case, id=key)
        for kernel, case in (param.values for param in PUBLISHED)  # type: ignore[attr-defined]
        for key in (f"{kernel.name}[{case.name}]",)
        if not case.options.get("no_store") and (key in FACTS or re.fullmatch(r"p\d+", case.name))
    ]


@pytest.fixture(scope="module")
def late(device: Device) -> Iterator[Device]:
    """A virtual device whose results are as late as the hardware's."""
    if device.mode == "hardware":
        pytest.skip("hardware is as late as it is")
    with registry.find("virtual", Path.cwd()).open("emulate") as other:
        yield other


def verdict(device: Device, kernel: Kernel, case: Case, pattern: str) -> str:
    """``right``, ``wrong``, ``hang`` or ``fault``."""
    options = shrunk(kernel, case)
    try:
        run = conformance.prepare(device, kernel, options, np.random.default_rng(4), pattern)
        run.launch()
    except GpuHang:
        return "hang"
    except GpuFault:
        return "fault"
    return "right" if run.compare().ok else "wrong"


@pytest.mark.parametrize(("kernel", "case"), chosen())
def test_ones_and_random_matrices_are_two_facts(late: Device, kernel: Kernel, case: Case) -> None:
    expected = FACTS.get(f"{kernel.name}[{case.name}]", ("right", "right"))
    assert (verdict(late, kernel, case, "ones"), verdict(late, kernel, case, "")) == expected


def test_facts_name_declared_cases() -> None:
    declared = {f"{kernel.name}[{case.name}]" for kernel in KERNELS.values() for case in kernel.cases}
    assert set(FACTS) <= declared
