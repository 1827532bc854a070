"""Formulas are made from the semantics, and the page of instructions from the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_qcom.isa.formula import formula, page
from pytest_qcom.isa.table import BY_NAME, OPS


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("mad.f16", "round(a * b) + c"),
        ("madsh.m16", "((u16(a) * (b >> 16)) << 16) + c"),
        ("sel.b32", "(b != 0) ? a : c"),
        ("shlg", "(b << a) | c"),
        ("cmps.s", "a <s b"),
        ("clz.b", "(a != 0) ? clz(a) : -1"),
        ("sad.s32", "(((a - b) <s 0) ? (0 - (a - b)) : (a - b)) + c"),
        ("rcp", "rcp(a)"),
        ("ldg", "load from global memory"),
        ("atomic.b.add", "atomic add in image memory, gives the old value"),
        ("shfl", "value of another fiber: xor, up, down, rup, rdown"),
        ("bar", "barrier of the workgroup"),
        ("bkt", "not executed: its meaning is not documented; Mesa's compiler builds none"),
    ],
)
def test_formulas(name: str, shown: str) -> None:
    assert formula(BY_NAME[name]) == shown


def test_every_entry_has_one() -> None:
    assert all(formula(op) for op in OPS)


def test_the_page_is_current() -> None:
    stored = Path(__file__).parents[2] / "docs" / "instructions.md"
    assert stored.read_text() == page(), "run python -m pytest_qcom.isa.formula > docs/instructions.md"
