"""Fits the constants of the cycle model to measured figures, and judges them on rows left out of the fit.

Steps along one constant at a time: deterministic but for the time that it is given, no gradient, and robust,
since the loss takes an error above :data:`_CLIPPED` no worse than that.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_qcom.analysis.cycles import DEFAULT, Constants
from pytest_qcom.timings import Row, errors

_CLIPPED = 0.35
_STEPS = (1.25, 1.1, 1.04)
PRIOR = Constants(
    hold64=1.5,
    hold128=5.0,
    queue=40.0,
    line=0.03,
    texture_latency=85.0,
    store_bytes=16.0,
    mad_three=2.0,
    mad_two=1.48,
    sources=4.0,
    idle=0.25,
    turn=2.5,
    miss=1.0,
)
"""Where a fit begins that shall not know the fitted values: round ones about those of Mesa and the notes."""


def loss(table: Sequence[Row], constants: Constants) -> float:
    """Mean, clipped, and median of the absolute log error, added."""
    found = [abs(math.log(row.predict(constants)[0] / row.measured)) for row in table]
    return float(np.mean(np.minimum(found, _CLIPPED)) + np.median(found))


def fit(table: Sequence[Row], seconds: float, start: Constants = PRIOR) -> Constants:
    """The constants that fit best, after at most ``seconds``."""
    until, best, value = time.monotonic() + seconds, start, loss(table, start)
    for step in _STEPS:
        moved = True
        while moved and time.monotonic() < until:
            moved = False
            for item in dataclasses.fields(Constants):
                for factor in (step, 1 / step):
                    if time.monotonic() > until:
                        return best
                    tried = dataclasses.replace(best, **{item.name: getattr(best, item.name) * factor})
                    at = loss(table, tried)
                    if at < value - 1e-5:
                        best, value, moved = tried, at, True
                        break
    return best


def halves(table: Sequence[Row], seed: int = 0) -> tuple[list[Row], list[Row]]:
    """A random half of the rows, and the other one."""
    order = np.random.default_rng(seed).permutation(len(table))
    return [table[index] for index in order[::2]], [table[index] for index in order[1::2]]


def judge(table: Sequence[Row], constants: Constants) -> dict[str, Any]:
    """The errors of a table."""
    return {
        "rows": len(table),
        **errors([row.measured for row in table], [row.predict(constants)[0] for row in table]),
    }


def cross_validate(table: Sequence[Row], seconds: float, seed: int = 0) -> dict[str, Any]:
    """Fits a random half from :data:`PRIOR`, and judges the fit on both halves."""
    fitted, left_out = halves(table, seed)
    constants = fit(fitted, seconds)
    return {
        "constants": dataclasses.asdict(constants),
        "fitted": judge(fitted, constants),
        "left_out": judge(left_out, constants),
        "left_out_with_shipped_constants": judge(left_out, DEFAULT),
    }
