"""The virtual A630 as a device: executor, clock and hazard checker put together."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from pytest_qcom.analysis import hazards, timing
from pytest_qcom.analysis.clock import Clock
from pytest_qcom.analysis.findings import Finding, errors
from pytest_qcom.devices import HAZARD_MODES
from pytest_qcom.devices.races import RACES_VARIABLE, races_wanted
from pytest_qcom.devices.runtime import RuntimeDevice
from pytest_qcom.errors import DeviceUnavailable
from pytest_qcom.isa.instruction import FiberId
from pytest_qcom.isa.program import Program
from pytest_qcom.virtual import kgsl
from pytest_qcom.virtual.dispatch import Dispatch
from pytest_qcom.virtual.executor import Executor
from pytest_qcom.virtual.gpu import ProgramHook, VirtualGpu


def gpu(hazards_mode: str, timed: bool = True) -> VirtualGpu:
    """A virtual A630, which looks for races where :data:`~pytest_qcom.devices.races.RACES_VARIABLE` is set.

    Args:
        hazards_mode: ``strict``: a program with a hazard does not run; ``emulate``: it computes what its
            late results make of it; ``off``: as if every wait were there.
        timed: whether launches take what the cycle model says; else what their issue takes, which is known
            at little cost.

    Raises:
        DeviceUnavailable: another mode, or one that does not go with looking for races.
    """
    return VirtualGpu(executor(hazards_mode), Clock() if timed else timing.issue_only, hook(hazards_mode))


def set_up(machine: VirtualGpu, hazards_mode: str) -> None:
    """Has a virtual A630 run and look at programs as :func:`gpu` would have it from now on.

    Raises:
        DeviceUnavailable: as :func:`gpu`.
    """
    machine.run_on(executor(hazards_mode))
    machine.watch(hook(hazards_mode))


def executor(hazards_mode: str) -> Executor:
    """What runs launches in a hazards mode; the same object for the same settings.

    Raises:
        DeviceUnavailable: as :func:`gpu`.
    """
    hook(hazards_mode)
    races = races_wanted()
    if races and hazards_mode == "emulate":
        raise DeviceUnavailable(
            f"virtual device with hazards mode emulate and {RACES_VARIABLE}: races are looked for with every "
            "wait in its place; choose hazards mode strict or off"
        )
    return _executor(hazards_mode == "emulate", races)


@functools.cache
def _executor(late: bool, races: bool) -> Executor:
    return Executor(late=_hazardous if late else None, races=races)


def hook(hazards_mode: str) -> ProgramHook | None:
    """What looks at a program before its first launch, in a hazards mode.

    Raises:
        DeviceUnavailable: an unknown mode.
    """
    if hazards_mode not in HAZARD_MODES:
        raise DeviceUnavailable(
            f"virtual device with hazards mode {hazards_mode!r}: the modes are {', '.join(HAZARD_MODES)}; "
            "choose one of them"
        )
    return _check if hazards_mode == "strict" else None


@contextlib.contextmanager
def opened(name: str, chip: str, hazards_mode: str, timed: bool = True) -> Iterator[RuntimeDevice]:
    """The virtual device, until the context ends. tinygrad's own ``QCOM`` device is left alone."""
    machine = gpu(hazards_mode, timed)
    node = kgsl.Node(machine)
    mode = Clock.mode if timed else timing.MODE
    device = RuntimeDevice(name, chip, mode, machine.memory.limit, functools.partial(kgsl.installed, node))
    try:
        yield device
    finally:
        device.close()


def _check(program: Program, dispatch: Dispatch) -> None:
    hazards.check(program, **_circumstances(dispatch))


def _circumstances(dispatch: Dispatch) -> dict[str, Any]:
    """What the checker must know of a launch."""
    return {
        "fregs": dispatch.fregs,
        "hregs": dispatch.hregs,
        "merged": dispatch.merged,
        "thread128": dispatch.thread128,
        "inputs": hazards.preset(dispatch),
    }


def _hazardous(dispatch: Dispatch) -> bool:
    """Whether a launch's program may compute something else than with every wait in its place."""
    found = findings(dispatch.code, **_circumstances(dispatch))
    return bool(errors(found)) or _lacking(dispatch.code)


@functools.lru_cache(maxsize=1024)
def _lacking(code: bytes) -> bool:
    """Whether a program has what the device does not have."""
    return any(isinstance(instr.op.effect, FiberId) for instr in Program.decode(code).instrs)


@functools.lru_cache(maxsize=256)
def findings(code: bytes, **circumstances: Any) -> tuple[Finding, ...]:
    """What :func:`.analysis.hazards.lint` finds in a program, by its words; the latest answers are kept."""
    return hazards.lint(Program.decode(code), **circumstances)
