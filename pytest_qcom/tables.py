"""Tables of published figures and verdicts: CSV files of one row a configuration, columns by name."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from pathlib import Path

from pytest_qcom.errors import TableError

Row = Mapping[str, str]
"""A row by the names of its columns; what is left out or blank is empty."""


def read(path: Path, columns: Collection[str]) -> list[Row]:
    """The rows of a table.

    Args:
        columns: those without which the table is none.

    Raises:
        TableError: no readable file, a column that is missing, cells without a column, or no rows.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restval="")
            names = reader.fieldnames or ()  # none in an empty file; asked for while it is open
            rows = list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise TableError(f"table {path}: not readable ({error}); name a CSV file", path=str(path)) from error
    missing = [column for column in columns if column not in names]
    if missing:
        raise TableError(
            f"table {path}: no column {', '.join(missing)}; the columns are {', '.join(columns)}",
            path=str(path),
        )
    if not rows:
        raise TableError(
            f"table {path}: nothing below its header; give a row for each figure", path=str(path)
        )
    found: list[Row] = []
    for number, row in enumerate(rows, 1):
        if None in row:
            raise TableError(
                f"table {path}: row {number} has more cells than the header; quote one with a comma",
                path=str(path),
            )
        found.append({name: value.strip() for name, value in row.items()})
    return found
