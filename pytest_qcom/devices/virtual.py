"""The virtual A630 as a device: executor, clock and hazard checker put together."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from pytest_qcom.analysis import hazards, timing
from pytest_qcom.devices.runtime import RuntimeDevice
from pytest_qcom.errors import DeviceUnavailable
from pytest_qcom.isa.program import Program
from pytest_qcom.virtual import kgsl
from pytest_qcom.virtual.dispatch import Dispatch, Execution
from pytest_qcom.virtual.executor import Executor
from pytest_qcom.virtual.gpu import ProgramHook, VirtualGpu


def gpu(hazards_mode: str) -> VirtualGpu:
    """A virtual A630.

    Args:
        hazards_mode: ``strict``: a program with a hazard does not run; ``off``: as if every wait were there.

    Raises:
        DeviceUnavailable: another mode.
    """
    return VirtualGpu(Executor(), _seconds, hook(hazards_mode))


def hook(hazards_mode: str) -> ProgramHook | None:
    """What looks at a program before its first launch, in a hazards mode.

    Raises:
        DeviceUnavailable: a mode that is unknown or not built.
    """
    if hazards_mode == "off":
        return None
    if hazards_mode == "strict":
        return _check
    raise DeviceUnavailable(
        f"virtual device with hazards mode {hazards_mode!r}: the modes are strict and off; choose one of them"
    )


@contextlib.contextmanager
def opened(name: str, chip: str, hazards_mode: str) -> Iterator[RuntimeDevice]:
    """The virtual device, until the context ends. tinygrad's own ``QCOM`` device is left alone."""
    machine = gpu(hazards_mode)
    node = kgsl.Node(machine)
    device = RuntimeDevice(
        name, chip, timing.MODE, machine.memory.limit, functools.partial(kgsl.installed, node)
    )
    try:
        yield device
    finally:
        device.close()


def _check(program: Program, dispatch: Dispatch) -> None:
    hazards.check(
        program,
        fregs=dispatch.fregs,
        hregs=dispatch.hregs,
        merged=dispatch.merged,
        thread128=dispatch.thread128,
        inputs=hazards.preset(dispatch),
    )


def _seconds(dispatch: Dispatch, execution: Execution, program: Program) -> float:
    return timing.issue_only(dispatch, execution, program)
