"""Published measurements of a device, made into its baseline.

The table has one row a published figure (``id, family, config, m, …, unit, low, high, verdict, check``).
A row whose family is a declared kernel, and whose configuration is one of its cases, is stored under that
case's name and becomes its floor; any other row keeps its place as ``family[id]``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_qcom import baselines
from pytest_qcom.baselines import Machine
from pytest_qcom.errors import BaselineError

FILE = "0001_measurements.json"
CONFIGURATION = ("config", "m", "n", "k", "threads", "thread128")
COLUMNS = ("id", "family", *CONFIGURATION, "unit", "low", "high", "verdict", "check")
RATES = ("GFLOPS", "GB/s", "Gops/s")
UNKNOWN_WORK = 1.0
"""Work to which the seconds of a row refer whose kernel is not declared: its own count was not published."""

Row = Mapping[str, str]
Match = Callable[[Row], tuple[str, float] | None]


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a table: entries by key, and for each row that gave none, its id and why."""

    entries: Mapping[str, Any]
    left_out: Mapping[str, str]


def read(path: Path) -> list[Row]:
    """The rows of a table of measurements.

    Raises:
        BaselineError: not readable, or columns are missing.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or ()  # none in an empty file; asked for while it is open
            rows: list[Row] = list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise BaselineError(f"measurements {path}: not readable ({error}); name a CSV file") from error
    missing = [column for column in COLUMNS if column not in names]
    if missing:
        raise BaselineError(
            f"measurements {path}: no column {', '.join(missing)}; the columns are {', '.join(COLUMNS)}"
        )
    return rows


def convert(rows: list[Row], machine: Machine, match: Match) -> Imported:
    """Entries of a baseline from rows of a table.

    Args:
        match: the declared case that a row is about, and the work of one launch of it; None without one.

    Raises:
        BaselineError: a figure that is no number, or two rows about the same case.
    """
    entries: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for row in rows:
        reason = _unusable(row)
        if reason:
            left_out[row["id"]] = reason
            continue
        key, work = match(row) or (f"{row['family']}[{row['id']}]", UNKNOWN_WORK)
        if key in entries:
            raise BaselineError(
                f"measurements: row {row['id']} is about {key}, as an earlier one; correct the table"
            )
        entries[key] = _entry(row, key, work, machine)
    return Imported(entries, left_out)


def _unusable(row: Row) -> str | None:
    if row["unit"] not in RATES:
        return f"unit {row['unit']!r} is no rate"
    if not row["low"] or not row["high"]:
        return "no figure was published"
    if row["verdict"] not in ("correct", "probe"):
        return f"the output was {row['verdict']}"
    return None


def _entry(row: Row, key: str, work: float, machine: Machine) -> dict[str, Any]:
    try:
        low, high = float(row["low"]), float(row["high"])
    except ValueError as error:
        raise BaselineError(
            f"measurements: row {row['id']} has figures {row['low']!r}, {row['high']!r}"
        ) from error
    if not 0 < low <= high:
        raise BaselineError(
            f"measurements: row {row['id']} has a range from {low} to {high}; correct the table"
        )
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
                "source": "published engineering notes",
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
