"""Published measurements of a device, made into its baseline.

The table has one row a published figure (``id, family, config, m, …, unit, low, high, verdict, check``).
A row whose family is a declared kernel, and whose configuration is one of its cases, is stored under that
case's name and becomes its floor; any other row keeps its place as ``family[id]``. Floors that were measured
with ``--qcom-update-baselines`` win over published ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_qcom import baselines, tables
from pytest_qcom.baselines import Machine
from pytest_qcom.errors import BaselineError
from pytest_qcom.tables import Row

FILE = "0001_measurements.json"
CONFIGURATION = ("config", "m", "n", "k", "threads", "thread128")
COLUMNS = ("id", "family", *CONFIGURATION, "unit", "low", "high", "verdict", "check")
RATES = ("GFLOPS", "GB/s", "Gops/s", "Gfibers/s")
SHAPE = ("m", "n", "k")
SOURCE = "published engineering notes"
"""Where an entry comes from that was imported, as its provenance says."""
LEAST, MOST = 1e-9, 1e9
"""Rates between which all real ones are, in :data:`RATES`; beyond them statistics of the times overflow."""
UNKNOWN_WORK = 1.0
"""Work to which the seconds of a row refer whose kernel is not declared: its own count was not published."""

Match = Callable[[Row], tuple[str, float] | None]


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a table: entries by key, and for each row that gave none, its id and why."""

    entries: Mapping[str, Any]
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of entries that were imported.

    Attributes:
        path: the file that holds the device's floors.
        written: keys of the entries that are in it as they were imported.
        measured: keys of floors that were measured and stay as they are, whatever was imported.
    """

    path: Path
    written: tuple[str, ...]
    measured: tuple[str, ...]

    def lines(self) -> list[str]:
        """The same as text."""
        found = [f"{len(self.written)} entries written to {self.path}"]
        if self.measured:
            found.append(
                f"{len(self.measured)} floors measured with --qcom-update-baselines stay as they are: "
                f"{', '.join(self.measured)}"
            )
        return found


def convert(path: Path, machine: Machine, match: Match) -> Imported:
    """Entries of a baseline from the rows of a table.

    Args:
        match: the declared case that a row is about, and the work of one launch of it; None without one.

    Raises:
        TableError: a table that is none.
        BaselineError: a device whose times are modelled, a table without a usable row, a figure that is no
            number, or two rows about the same case.
    """
    if machine.mode != "hardware":
        raise BaselineError(
            f"import for {machine.name}: {machine.name} is not measured hardware; name the device that was "
            f"measured",
            device=machine.name,
        )
    entries: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for row in tables.read(path, COLUMNS):
        reason = _unusable(row)
        if reason:
            left_out[row["id"]] = reason
            continue
        key, work = match(row) or (f"{row['family']}[{row['id']}]", UNKNOWN_WORK)
        if key in entries:
            raise _wrong(path, row, f"is about {key}, as an earlier one")
        entries[key] = _entry(path, row, key, work, machine)
    if not entries:
        first, reason = next(iter(left_out.items()))
        raise BaselineError(
            f"measurements {path}: no usable row (row {first}: {reason}); the stored floors stay as they are",
            path=str(path),
        )
    return Imported(entries, left_out)


def store(root: Path, machine: Machine, entries: Mapping[str, Any], versions: Mapping[str, str]) -> Stored:
    """Puts imported entries among the stored ones of a device below ``root``.

    They replace those that were imported before; a floor that was measured since stays, also where an
    imported entry has its key.

    Raises:
        BaselineError: the old file is malformed, or the folder cannot be written.
    """
    measured: dict[str, Any] = {}

    def combine(kept: Mapping[str, Any]) -> Mapping[str, Any]:
        measured.update(
            (key, entry)
            for key, entry in kept.items()
            if entry["extra_info"]["provenance"].get("source") != SOURCE
        )
        return {**kept, **entries, **measured}

    path = baselines.store(root, machine, combine, versions, FILE)
    return Stored(path, tuple(key for key in sorted(entries) if key not in measured), tuple(sorted(measured)))


def _unusable(row: Row) -> str | None:
    if row["unit"] not in RATES:
        return f"unit {row['unit']!r} is no rate"
    if not row["low"] or not row["high"]:
        return "no figure was published"
    if row["verdict"] not in ("correct", "probe"):
        return f"the output was {row['verdict']}"
    wrong = [f"{name} is {row[name]!r}" for name in SHAPE if not _size(row[name])]
    if wrong:
        return f"{', '.join(wrong)}, no positive whole number"
    return None


def _size(text: str) -> bool:
    return re.fullmatch("[1-9][0-9]{0,8}", text) is not None


def _wrong(path: Path, row: Row, problem: str) -> BaselineError:
    return BaselineError(
        f"measurements {path}: row {row['id']} {problem}; correct the table", path=str(path), row=row["id"]
    )


def _entry(path: Path, row: Row, key: str, work: float, machine: Machine) -> dict[str, Any]:
    try:
        low, high = float(row["low"]), float(row["high"])
    except ValueError as error:
        raise _wrong(
            path, row, f"has figures {row['low']!r}, {row['high']!r}, which are no numbers"
        ) from error
    if not LEAST <= low <= high <= MOST:
        raise _wrong(path, row, f"has a range from {low} to {high}")
    rates = [low] if low == high else [low, high]
    remarks = {name: row[name] for name in ("symptom", "note", "line") if row.get(name)}
    return {
        "group": row["family"],
        "name": key,
        "fullname": key,
        "params": {name: row[name] for name in CONFIGURATION if row[name]},
        "param": key.partition("[")[2].removesuffix("]"),
        "extra_info": {
            "floor": low,
            "unit": row["unit"],
            "tolerance": machine.tolerance,
            "device": machine.name,
            "model": machine.mode,
            "work": work,
            "provenance": {
                "source": SOURCE,
                "row": row["id"],
                "measured": [low, high],
                "verdict": row["verdict"],
                "check": row["check"],
                **remarks,
            },
        },
        "options": {},
        "stats": baselines.statistics(work / rate for rate in rates),
    }
