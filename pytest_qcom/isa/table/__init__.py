"""The instruction table: each A630 instruction declared once, a module a category."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_qcom.isa.instruction import Op
from pytest_qcom.isa.table import cat0, cat1, cat2, cat3, cat4, cat5, cat6, cat7

_CATEGORIES = (cat0, cat1, cat2, cat3, cat4, cat5, cat6, cat7)

OPS: tuple[Op, ...] = tuple(op for category in _CATEGORIES for op in category.OPS)

KEYS: tuple[Callable[[int], tuple[int, ...]], ...] = tuple(category.key for category in _CATEGORIES)
"""By category: which bits of a word are its opcode."""


def _by_key() -> dict[tuple[int, ...], Op]:
    found: dict[tuple[int, ...], Op] = {}
    for op in OPS:
        key = KEYS[op.cat](op.layout.layout.match)
        if key in found:
            raise ValueError(f"{op.name} and {found[key].name} share the opcode {key}")
        found[key] = op
    return found


BY_KEY: Mapping[tuple[int, ...], Op] = _by_key()
BY_NAME: Mapping[str, Op] = {op.name: op for op in OPS}
ALIASES: Mapping[str, str] = cat1.ALIASES
"""Further stems under which text names an instruction."""
