"""Tables of published figures: what is read, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_qcom import tables, timings, verdicts
from pytest_qcom.errors import TableError

COLUMNS = ("id", "config")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "not readable"),
        ("", "no column id, config; the columns are id, config"),
        ("id,family\n1,a\n", "no column config; the columns are id, config"),
        ("id,config\n", "nothing below its header; give a row for each figure"),
        ("id,config\n1,a\n2,b, c\n", "row 2 has more cells than the header; quote one with a comma"),
        ("id,config\n1,\xff\n", "not readable"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "table.csv"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    with pytest.raises(TableError, match=words) as caught:
        tables.read(path, COLUMNS)
    assert str(caught.value).startswith(f"table {path}: ")


def test_cells_are_stripped_and_left_out_ones_empty(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text('\ufeffid,config,note\n1, "a, b" \n2,c ,d\n', encoding="utf-8")
    path.write_text(path.read_text().replace(', "a, b" ', ',"a, b" '))
    assert tables.read(path, COLUMNS) == [
        {"id": "1", "config": "a, b", "note": ""},
        {"id": "2", "config": "c", "note": "d"},
    ]


@pytest.mark.parametrize("read", [timings.read, verdicts.read])
def test_both_commands_read_alike(tmp_path: Path, read: object) -> None:
    assert callable(read)
    path = tmp_path / "table.csv"
    path.write_text("id,family,config\n1,a,b\n")
    with pytest.raises(TableError, match=r"no column .*verdict"):
        read(path)
