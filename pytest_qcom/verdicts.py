"""Verdicts of a device on published kernels against those of the virtual one, late results included.

A row of a table of verdicts names a kernel by family and words, and says what the device did and how that was
checked. :func:`verify` builds each row, runs it on the virtual device in hazards mode ``emulate`` with the
same check at the same shape, and compares. A verdict agrees where both are ``correct`` or neither is: in what
way a program without enough waits goes wrong depends on what else the device runs.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import numpy as np

from pytest_qcom import conformance, linting, tables
from pytest_qcom.analysis import hazards
from pytest_qcom.analysis.findings import errors
from pytest_qcom.chip import A630
from pytest_qcom.devices import virtual
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import GpuFault, GpuHang, QcomError
from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.kernel import Arrays, Build, Kernel
from pytest_qcom.kernels.published import options_from_notes
from pytest_qcom.tables import Row
from pytest_qcom.timings import launched

COLUMNS = ("id", "family", "config", "verdict")
"""Columns that a table must have. ``m``, ``n``, ``k``, ``threads``, ``thread128`` and ``check`` count too."""
VERDICTS = ("correct", "wrong", "hang", "wrong_or_hang")
OURS = ("correct", "wrong", "hang")
_PATTERNS = {"all_ones": "ones", "": "ones"}
_MODE = "emulate"


@dataclass(frozen=True, slots=True)
class Judged:
    """A row and what came of it.

    Attributes:
        device: the device's verdict.
        reason: why the row could not be built; empty if it was.
        ours: the virtual device's verdict with the row's check; ``detail`` says more.
        random: the same with random inputs.
        findings: how many hazards of which rule the program has.
        explanation: of a disagreement.
    """

    id: str
    family: str
    config: str
    check: str
    device: str
    kernel: str = ""
    reason: str = ""
    ours: str = ""
    detail: str = ""
    random: str = ""
    findings: Mapping[str, int] | None = None
    symptom: str = ""
    explanation: str = ""

    @property
    def agrees(self) -> bool:
        """Both are correct, or neither is."""
        return not self.reason and (self.ours == "correct") == (self.device == "correct")

    @property
    def false_alarm(self) -> bool:
        """Correct on the device, but not here."""
        return not self.reason and self.device == "correct" and self.ours != "correct"


def read(path: Path) -> list[Row]:
    """The rows of a file.

    Raises:
        TableError: a table that is none.
    """
    return tables.read(path, COLUMNS)


def verify(rows: Sequence[Row], jobs: int | None = None) -> list[Judged]:
    """Judges all rows, in their order.

    Args:
        jobs: processes; by default one for each processor that this one may use.
    """
    count = min(jobs or len(os.sched_getaffinity(0)), max(1, len(rows)))
    if count == 1:
        with _opened() as device:
            return [judge(row, device) for row in rows]
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        share = max(1, len(rows) // (_SHARES * count))  # rows of one table stand beside those like them
        return list(pool.map(_judge_here, map(dict, rows), chunksize=share))


_SHARES = 4
"""Parts of a table that a process works on, one after the other."""


def _opened() -> contextlib.AbstractContextManager[Device]:
    """A device whose clock costs little: nobody asks how long a row takes."""
    return virtual.opened("virtual", A630.name, _MODE, timed=False)


@functools.cache
def _device() -> Device:
    """The device of a worker process, which lives as long as that."""
    stack = contextlib.ExitStack()
    Finalize(None, stack.close, exitpriority=0)
    return stack.enter_context(_opened())


def _judge_here(row: Row) -> Judged:
    return judge(row, _device())


def judge(row: Row, device: Device) -> Judged:
    """What a row's kernel does here. ``device`` is a virtual one in mode ``emulate``; it is reset behind."""
    check = row.get("check", "")
    plain: dict[str, Any] = {
        "id": row["id"],
        "family": row["family"],
        "config": row["config"],
        "check": check,
        "device": row["verdict"],
        "symptom": row.get("symptom", ""),
    }
    if row["verdict"] not in VERDICTS:
        return Judged(**plain, reason=f"verdict {row['verdict']!r} says nothing about the output")
    try:
        kernel, options = options_from_notes(row["family"], row["config"], row)
        build = kernel.build(options)
    except QcomError as error:
        return Judged(**plain, reason=str(error))
    shared = _sharing(kernel)
    pattern = _PATTERNS.get(check, "")
    pattern = pattern if pattern in kernel.patterns else ""
    ours, detail = chance, _ = _run(device, shared, options, build, pattern)
    if pattern:
        corner = _corner(build)
        chance, _ = _run(device, shared, options, corner, "", whole=False) if corner else ("correct", "")
        if chance == "correct":  # the rest may still be wrong
            chance, _ = _run(device, shared, options, build, "")
    judged = Judged(
        **plain, kernel=kernel.name, ours=ours, detail=detail, random=chance, findings=_findings(build)
    )
    if judged.agrees:
        return judged
    return Judged(**{**_fields(judged), "explanation": _explanation(judged)})


_CORNER = 2
"""Workgroups of a side of the grid that are tried first with random inputs, which mostly go wrong there."""


def _corner(build: Build) -> Build | None:
    """The launch of a few workgroups; ``None`` where what it leaves out would not show as NaN."""
    if any(np.dtype(output.dtype).kind != "f" for output in build.arguments if output.written):
        return None
    x, y, z = build.groups
    return replace(build, groups=(min(x, _CORNER), min(y, _CORNER), z))


class _Once:
    """Inputs of matrix products, made once for each shape.

    The functions of :mod:`~pytest_qcom.kernels.matmul` look at nothing else, so that the rows of a table
    share them; those of other kernels are called each time.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Arrays] = {}

    def call(self, function: Callable[..., Arrays], shape: Any, *more: Any) -> Arrays:
        """``function(shape, ...)``, which makes inputs."""
        if getattr(function, "__module__", "") != matmul.__name__:
            return function(shape, *more)
        key = (function, shape.m, shape.n, shape.k)
        if key not in self._known:
            self._known[key] = function(shape, *more)
        return self._known[key]


_once = _Once()


def _sharing(kernel: Kernel) -> Kernel:
    """The kernel with what :class:`_Once` remembers."""
    patterns = {name: functools.partial(_once.call, function) for name, function in kernel.patterns.items()}
    return replace(
        kernel,
        inputs=functools.partial(_once.call, kernel.inputs),
        patterns=patterns,
    )


def _fields(judged: Judged) -> dict[str, Any]:
    return {name: getattr(judged, name) for name in judged.__slots__}


def _run(
    device: Device, kernel: Kernel, options: Any, build: Build, pattern: str, whole: bool = True
) -> tuple[str, str]:
    """(verdict, what was seen) of one launch. Not ``whole``: what it leaves unwritten is not looked at."""
    try:
        run = conformance.prepare(device, kernel, options, np.random.default_rng(0), pattern, build)
        run.launch()
        outputs = run.outputs()
    except GpuHang as error:
        return "hang", str(error)
    except GpuFault as error:
        return "wrong", str(error)
    finally:
        device.reset()
    expected = kernel.oracle(options, run.inputs)
    bounds: Mapping[str, Any] = dict.fromkeys(expected, 0.0)
    if not pattern:
        bounds = kernel.tolerance(options, run.inputs)
    if not whole:  # outputs start as NaN
        outputs = {
            name: np.where(np.isnan(outputs[name]), values, outputs[name])
            for name, values in expected.items()
        }
    outcome = conformance.compare(outputs, expected, bounds)
    return ("correct" if outcome.ok else "wrong"), str(outcome)


def _findings(build: Build) -> dict[str, int]:
    """By rule; those that the device found itself, which had to know whether results can be late."""
    inputs = hazards.preset(launched(build))
    found = virtual.findings(build.program.encode(), **linting.registers(build), inputs=inputs)
    return dict(collections.Counter(finding.rule.name for finding in errors(found)))


def _explanation(judged: Judged) -> str:
    """Why the verdicts may differ, from what is known of the program."""
    if judged.ours != "correct":
        return (
            "something is late here that was in time on the device: a latency or a queue is modelled too long"
        )
    if not judged.findings:
        return "the program built here has no hazard: what failed is not in it, or is of no modelled kind"
    if judged.random != "correct":
        return (
            "wrong here too, but not on this check: what is late was sampled within the images or multiplied "
            "before, so constant inputs give the same; on the device something else was in those registers, "
            "such as what an earlier program left"
        )
    return "its hazards have no effect here: waits are long enough for the modelled latencies of a lone wave"


def facts(judged: Sequence[Judged]) -> dict[str, Any]:
    """The figures of a table, and all rows, as plain data."""
    built = [row for row in judged if not row.reason]
    return {
        "built": len(built),
        "not_built": len(judged) - len(built),
        "agree": sum(row.agrees for row in built),
        "agree_share": sum(row.agrees for row in built) / len(built) if built else None,
        "false_alarms": sum(row.false_alarm for row in built),
        "confusion": {
            device: {ours: sum(r.device == device and r.ours == ours for r in built) for ours in OURS}
            for device in VERDICTS
        },
        "random": {ours: sum(row.random == ours for row in built) for ours in OURS},
        "rows": [{**asdict(row), "built": not row.reason, "agree": row.agrees} for row in judged],
    }


def lines(judged: Sequence[Judged]) -> list[str]:
    """The same as text."""
    found = facts(judged)
    text = [
        f"{'device':>14} | {'correct here':>12} {'wrong here':>10} {'hang here':>9} | random inputs wrong"
    ]
    for device in VERDICTS:
        counts = found["confusion"][device]
        if sum(counts.values()):
            rows = [row for row in judged if not row.reason and row.device == device]
            missed = sum(row.random != "correct" for row in rows)
            text.append(
                f"{device:>14} | {counts['correct']:>12} {counts['wrong']:>10} {counts['hang']:>9} | "
                f"{missed} of {len(rows)}"
            )
    share = found["agree_share"]
    text.append(
        f"{found['built']} rows built, {found['agree']} agree"
        + (f" ({share:.1%})" if share is not None else "")
        + f", {found['false_alarms']} false alarms, {found['not_built']} not built"
    )
    for row in judged:
        if not row.reason and not row.agrees:
            symptom = f" ({row.symptom})" if row.symptom else ""
            text.append(
                f"{row.id} {row.family} {row.config}: {row.device} on the device{symptom}, {row.ours}"
            )
            text.append(f"    {row.explanation}; {row.detail}; random: {row.random}")
    text += [f"{row.id} {row.family} {row.config}: not built: {row.reason}" for row in judged if row.reason]
    return text
