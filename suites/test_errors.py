"""What messages are put together from."""

from __future__ import annotations

import pytest

from pytest_qcom.errors import closest


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("row", ["rows", "raw", "m"], "did you mean rows, raw?"),
        ("x", ["rows", "raw"], "there are rows, raw"),
        (
            "x",
            (f"name{number}" for number in range(10)),
            f"there are {', '.join(f'name{n}' for n in range(10))}",
        ),
        ("x", [f"name{number}" for number in range(13)], "name9 and 3 more"),
        ("x", [], "there are none"),
    ],
)
def test_closest_names(name: str, known: list[str], text: str) -> None:
    assert closest(name, known).endswith(text)
