"""Published speeds against those that the cycle model gives.

A row of a table of measurements names a kernel by family and words; :func:`verify` builds it, predicts it,
and the errors are told by family and together.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pytest_qcom import measurements, tables
from pytest_qcom.analysis.cycles import DEFAULT, Constants, Estimate, evaluate
from pytest_qcom.analysis.trace import trace
from pytest_qcom.analysis.work import Work, work
from pytest_qcom.errors import KernelError, QcomError
from pytest_qcom.kernels.kernel import Build, Kernel
from pytest_qcom.kernels.published import configured, options_from_notes
from pytest_qcom.kernels.registry import KERNELS

RATES = {
    "GFLOPS": ("GFLOPS", 1.0),
    "MFLOPS": ("GFLOPS", 1e-3),
    "TFLOPS": ("GFLOPS", 1e3),
    "GB/s": ("GB/s", 1.0),
    "MB/s": ("GB/s", 1e-3),
    "Gops/s": ("Gops/s", 1.0),
    "Mops/s": ("Gops/s", 1e-3),
    "Gfibers/s": ("Gfibers/s", 1.0),
    "Mfibers/s": ("Gfibers/s", 1e-3),
}
"""Rates that are measured: the unit in which a kernel counts its work, and how much of it that is."""
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
"""Units of a whole launch's time, in seconds; ``cycles`` are those of the clock."""
CYCLES = "cycles"
UNITS = (*RATES, *TIMES, CYCLES)


@dataclass(frozen=True, slots=True)
class Launch:
    """A build as the model wants to see it, by the launch convention of CL binaries."""

    local_size: tuple[int, int, int]
    groups: tuple[int, int, int]
    thread128: bool
    fregs: int
    hregs: int
    merged: bool
    branchstack: int
    shared_bytes: int
    constants: bytes
    group_id_regid: int = 4 * 51 + 3
    local_size_regid: int = 4 * 48
    group_offset_regid: int = 4 * 51
    local_id_regid: int = 0
    linear_local_id_regid: int = 4 * 63


def launched(build: Build, thread128: bool | None = None) -> Launch:
    """The launch of a build, in the mode that it declares or another one."""
    constants = bytearray(4 * 1024)
    for number, value in build.constants:
        constants[4 * number : 4 * number + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")
    return Launch(
        build.local,
        build.groups,
        build.thread128 if thread128 is None else thread128,
        build.fregs,
        build.hregs,
        build.merged,
        build.branchstack,
        build.shared_bytes,
        bytes(constants),
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A measured figure with the launch that it is about."""

    id: str
    family: str
    config: str
    unit: str
    measured: float
    kernel: str
    amount: float  # what a launch does, in the kernel's unit times seconds
    work: Work

    def predict(self, constants: Constants = DEFAULT) -> tuple[float, Estimate]:
        """The figure that the model gives, in the row's unit."""
        found = evaluate(self.work, constants)
        if self.unit == CYCLES:
            return found.cycles, found
        if self.unit in TIMES:
            return found.seconds / TIMES[self.unit], found
        return self.amount / found.seconds / RATES[self.unit][1], found


@dataclass(frozen=True, slots=True)
class Left:
    """A row that cannot be judged, and why."""

    id: str
    family: str
    config: str
    reason: str


def rows(table: Iterable[Mapping[str, str]]) -> Iterator[Row | Left]:
    """The rows of a table of measurements, built and traced.

    Raises:
        KernelError: a figure that is no number.
    """
    for row in table:
        place = (row["id"], row["family"], row["config"])
        if not row["low"] or not row["high"]:
            yield Left(*place, "no figure was published")
            continue
        if row["unit"] not in UNITS:
            yield Left(*place, f"unit {row['unit']!r} is none of {', '.join(UNITS)}")
            continue
        try:
            kernel, build = _built(row)
            _check_unit(kernel, row["unit"])
            launch = launched(build, row["thread128"] == "1" if row.get("thread128") else None)
            given = work(launch, build.program, trace(launch, build.program))
        except QcomError as error:
            yield Left(*place, str(error))
            continue
        yield Row(*place, row["unit"], _figure(row), kernel.name, build.work, given)


def _check_unit(kernel: Kernel, unit: str) -> None:
    """A rate is one of what the kernel counts.

    Raises:
        KernelError: it is of something else.
    """
    if unit in RATES and RATES[unit][0] != kernel.unit:
        raise KernelError(f"{kernel.name}: a figure in {unit}; what it does is counted in {kernel.unit}")


def _figure(row: Mapping[str, str]) -> float:
    """The middle of a published range."""
    try:
        low, high = float(row["low"]), float(row["high"])
    except ValueError as error:
        raise KernelError(
            f"table row {row['id']}: low and high are {row['low']!r} and {row['high']!r}; give numbers"
        ) from error
    if not (0 < low <= high and math.isfinite(high)):
        raise KernelError(
            f"table row {row['id']}: low and high are {low} and {high}; give figures above 0, the lower first"
        )
    return (low + high) / 2


def _built(row: Mapping[str, str]) -> tuple[Kernel, Build]:
    """The kernel of a row: as published where that is declared, else ours with the same options."""
    try:
        kernel, options = options_from_notes(row["family"], row["config"], row)
        return kernel, kernel.build(options)
    except KernelError as error:
        for kernel in KERNELS.values():
            if row["family"] in (kernel.family, kernel.name):
                build = _ours(kernel, row)
                if build is not None:
                    return kernel, build
        raise error


def _ours(kernel: Kernel, row: Mapping[str, str]) -> Build | None:
    try:
        return kernel.build(configured(kernel, row["config"], row))
    except KernelError:  # a configuration that this one does not offer
        return None


def read(path: Path) -> list[Mapping[str, str]]:
    """The rows of a file.

    Raises:
        TableError: a table that is none.
    """
    return tables.read(path, measurements.COLUMNS)


def verify(table: Iterable[Mapping[str, str]], constants: Constants = DEFAULT) -> dict[str, Any]:
    """The errors of the model over a table, as plain data."""
    found = list(rows(table))
    built = [row for row in found if isinstance(row, Row)]
    predicted = [row.predict(constants) for row in built]
    values = [value for value, _ in predicted]
    facts: dict[str, Any] = {
        "built": len(built),
        "not_built": len(found) - len(built),
        **errors([row.measured for row in built], values),
        "families": _by_family(built, values),
        "rows": [
            {
                "id": row.id,
                "family": row.family,
                "config": row.config,
                "kernel": row.kernel,
                "unit": row.unit,
                "measured": row.measured,
                "predicted": value,
                "error": value / row.measured - 1,
                "waves": estimate.waves,
                "built": True,
            }
            for row, (value, estimate) in zip(built, predicted, strict=True)
        ],
    }
    facts["rows"] += [{**dataclasses.asdict(row), "built": False} for row in found if isinstance(row, Left)]
    return facts


def errors(measured: Sequence[float], predicted: Sequence[float]) -> dict[str, float | None]:
    """Median and 90th percentile of the absolute relative error, and the rank correlation."""
    if not measured:
        return {"median_abs_error": None, "p90_abs_error": None, "spearman": None}
    off = np.abs(np.array(predicted) / np.array(measured) - 1)
    return {
        "median_abs_error": float(np.median(off)),
        "p90_abs_error": float(np.quantile(off, 0.9)),
        "spearman": spearman(measured, predicted),
    }


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Rank correlation; equal values share their mean rank. None where one side does not vary."""
    ranks = [_ranks(np.array(values)) for values in (one, other)]
    if len(one) < 2 or any(np.ptp(rank) == 0 for rank in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse])


def _by_family(built: Sequence[Row], values: Sequence[float]) -> dict[str, Any]:
    groups: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
    for row, value in zip(built, values, strict=True):
        groups[row.family].append((row.measured, value))
    return {
        family: {"rows": len(pairs), **errors(*map(list, zip(*pairs, strict=True)))}
        for family, pairs in sorted(groups.items())
    }


def lines(facts: Mapping[str, Any]) -> list[str]:
    """The same as text."""
    text = [f"{'family':24} rows  median     p90  Spearman"]
    for family, found in (*facts["families"].items(), ("all", {**facts, "rows": facts["built"]})):
        rank = "" if found["spearman"] is None else f"{found['spearman']:9.3f}"
        if found["median_abs_error"] is not None:
            text.append(
                f"{family:24} {found['rows']:4} {found['median_abs_error']:7.1%} "
                f"{found['p90_abs_error']:7.1%} {rank}"
            )
    for row in sorted(facts["rows"], key=lambda row: -abs(row.get("error", 0.0))):
        if row["built"]:
            text.append(
                f"{row['id']} {row['family']} {row['config']}: {row['measured']:.1f} {row['unit']} measured, "
                f"{row['predicted']:.1f} predicted ({row['error']:+.1%}), {row['waves']} waves"
            )
    text.append(f"{facts['built']} rows built, {facts['not_built']} not")
    text += [
        f"{row['id']} {row['family']} {row['config']}: not built: {row['reason']}"
        for row in facts["rows"]
        if not row["built"]
    ]
    return text
