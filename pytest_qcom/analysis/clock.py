"""The clock of the virtual device: the cycle model, once for each program and geometry."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Protocol

from pytest_qcom.analysis import timing
from pytest_qcom.analysis.cycles import MODE, simulate
from pytest_qcom.analysis.graph import build
from pytest_qcom.analysis.trace import Steering, trace
from pytest_qcom.errors import EncodeError, GpuHang
from pytest_qcom.isa.program import Program

_KEPT = 4096  # launches of which the time is remembered
_BUDGET = 300_000  # instructions of one wave that are followed


class TimingWarning(UserWarning):
    """A launch has the time of the model ``issue-only``, since its path cannot be followed."""


class Counted(timing.Counts, Protocol):
    """What a launch did, over all of its waves."""


class Coded(Steering, Protocol):
    """A launch with its code. A dispatch of the virtual device is one."""

    @property
    def code(self) -> bytes: ...
    @property
    def entry(self) -> int: ...


class Clock:
    """Device seconds of launches.

    The path is that of the first wave of the first workgroup. Where the waves of the launch issued more or
    less than it on average, its time is scaled by that. A program whose path cannot be followed, because it
    is longer than the budget or steered by what only the executor can compute, has the time of the model
    ``issue-only``; a :class:`TimingWarning` says so, and :attr:`model` of the last launch.

    Attributes:
        mode: what the times mean.
        model: the model of the last launch.
    """

    mode = MODE

    def __init__(self) -> None:
        self.model = MODE
        self._known: OrderedDict[tuple[object, ...], tuple[float, str]] = OrderedDict()

    def __call__(self, launch: Coded, counts: Counted, program: Program) -> float:
        if not counts.waves:
            return 0.0
        key = (
            launch.code,
            launch.entry,
            launch.groups,
            launch.local_size,
            launch.thread128,
            (launch.fregs, launch.hregs, launch.merged, launch.branchstack, launch.shared_bytes),
            counts.waves,
            counts.issue_cycles,
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _seconds(launch, counts, program)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        seconds, self.model = found
        return seconds


def _seconds(launch: Coded, counts: Counted, program: Program) -> tuple[float, str]:
    """Device seconds, and by which model."""
    try:
        path = trace(launch, program, budget=_BUDGET, entry=launch.entry)
    except (GpuHang, EncodeError) as error:
        warnings.warn(
            f"time of a launch of {len(build(program).nodes)} blocks is {timing.MODE}: {error}",
            TimingWarning,
            stacklevel=3,
        )
        return timing.issue_only(launch, counts, program), timing.MODE
    issued = sum(1 + program.instrs[index].rpt + program.instrs[index].nop for index in path.path)
    seconds = simulate(launch, program, path).seconds
    return seconds * counts.issue_cycles / (counts.waves * issued), MODE
