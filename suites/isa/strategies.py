"""Random words and instructions over the whole table."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from pytest_qcom.isa.fields import Field
from pytest_qcom.isa.instruction import Op
from pytest_qcom.isa.table import OPS

seeds = st.integers(0, (1 << 32) - 1)


def _field_value(draw: random.Random, part: Field) -> int:
    """A field's bits: often 0, else any; what has no meaning rarely."""
    if part.legal and draw.random() < 0.95:
        return draw.choice(part.legal)
    return draw.getrandbits(part.hi - part.lo + 1) if draw.random() < 0.7 else 0


def word_of(op: Op, draw: random.Random) -> int:
    """A word with the fixed bits of ``op`` and random fields."""
    layout = op.layout.layout
    word: int = layout.match
    for part in layout.fields:
        word |= (_field_value(draw, part) & (1 << part.hi - part.lo + 1) - 1) << part.lo
    return word


def words(seed: int, count: int) -> list[int]:
    """``count`` words of every entry, every tenth with a flipped bit."""
    draw = random.Random(seed)
    found = [word_of(op, draw) for op in OPS for _ in range(count)]
    return [word ^ 1 << draw.randrange(64) if draw.random() < 0.1 else word for word in found]


def noise(seed: int, count: int) -> list[int]:
    """``count`` words of random bits."""
    draw = random.Random(seed)
    return [draw.getrandbits(64) for _ in range(count)]
