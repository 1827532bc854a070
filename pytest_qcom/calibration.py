"""Fits the constants of the cycle model to measured figures, and judges them on rows left out of the fit.

Steps along one constant at a time: deterministic, no gradient, and robust, since the loss takes an error
above :data:`_CLIPPED` no worse than that. A row is traced once; constants are tried on what it has to do.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_qcom.analysis.cycles import DEFAULT, Constants
from pytest_qcom.errors import KernelError
from pytest_qcom.timings import Row, errors

_CLIPPED = 0.35
_FACTORS = (2 / 3, 4 / 5, 10 / 11, 11 / 10, 5 / 4, 3 / 2)
_GAIN = 5e-4  # of the loss, from which on it is taken; less is noise of how waves fall into step
FOLDS = 5
PRIOR = Constants(
    fetch=64.0, queue=8.0, sources=3.0, turn=2.5, sample=1.0, branch=16.0, store_bytes=16.0, miss=1.0
)
"""Where a fit begins that shall not know the fitted values: round ones about those of Mesa and the notes."""


def loss(table: Sequence[Row], constants: Constants) -> float:
    """Of the absolute log error the mean, clipped, half the median and a quarter of the 90th percentile."""
    found = [abs(math.log(row.predict(constants)[0] / row.measured)) for row in table]
    median, tail = np.quantile(found, (0.5, 0.9))
    return float(np.mean(np.minimum(found, _CLIPPED)) + median / 2 + tail / 4)


def fit(table: Sequence[Row], start: Constants = PRIOR, passes: int = 6) -> Constants:
    """The constants that fit best, after at most ``passes`` over all of them."""
    best, value = start, loss(table, start)
    for _ in range(passes):
        before = value
        for item in dataclasses.fields(Constants):
            best, value = _moved(table, best, value, item.name)
        if value == before:
            break
    return best


def rounded(table: Sequence[Row], constants: Constants) -> Constants:
    """Few digits instead: of the two next to a constant that which fits better, one after the other.

    Constants below 10 become multiples of a half, others of four.
    """
    for item in dataclasses.fields(Constants):
        value = getattr(constants, item.name)
        grid = 0.5 if value < 10 else 4.0
        tried = [
            dataclasses.replace(constants, **{item.name: grid * near})
            for near in dict.fromkeys((math.floor(value / grid), math.ceil(value / grid)))
        ]
        constants = min(tried, key=lambda made: loss(table, made)) if len(tried) > 1 else tried[0]
    return constants


def _moved(table: Sequence[Row], start: Constants, value: float, name: str) -> tuple[Constants, float]:
    """One constant by the factor that gains most, if any gains enough, and the loss then."""
    tried = [dataclasses.replace(start, **{name: getattr(start, name) * factor}) for factor in _FACTORS]
    losses = [loss(table, constants) for constants in tried]
    least = min(losses)
    return (tried[losses.index(least)], least) if least < value - _GAIN else (start, value)


def judge(table: Sequence[Row], constants: Constants) -> dict[str, Any]:
    """The errors of a table."""
    return _told(table, [row.predict(constants)[0] for row in table])


def _told(table: Sequence[Row], predicted: Sequence[float]) -> dict[str, Any]:
    return {"rows": len(table), **errors([row.measured for row in table], predicted)}


def halves(table: Sequence[Row], seed: int = 0) -> tuple[list[Row], list[Row]]:
    """A random half of the rows, and the other one."""
    order = np.random.default_rng(seed).permutation(len(table))
    return [table[index] for index in order[::2]], [table[index] for index in order[1::2]]


def cross_validate(table: Sequence[Row], seed: int = 0) -> dict[str, Any]:
    """Fits each random half from :data:`PRIOR`, and judges each fit on both halves.

    Every row is thus predicted once by constants that did not know it: ``left_out``.
    """
    one, other = halves(table, seed)
    fits = [(fitted, rest, fit(fitted)) for fitted, rest in ((one, other), (other, one))]
    known = [(row, row.predict(made)[0]) for fitted, _, made in fits for row in fitted]
    unknown = [(row, row.predict(made)[0]) for _, rest, made in fits for row in rest]
    return {
        "constants": [dataclasses.asdict(made) for *_, made in fits],
        "fitted": _told(*_parts(known)),
        "left_out": _told(*_parts(unknown)),
        "shipped": judge(table, DEFAULT),
    }


def by_family(table: Sequence[Row], folds: int = FOLDS) -> dict[str, Any]:
    """The errors of rows whose whole family was left out of the fit; families are dealt to ``folds``.

    Raises:
        KernelError: the table has but one family.
    """
    families = sorted({row.family for row in table})
    if len(families) < 2:
        raise KernelError(f"fit without a family: the table has {len(families)}; give one of several")
    found: list[tuple[Row, float]] = []
    for fold in range(min(folds, len(families))):
        out = set(families[fold::folds])
        made = fit([row for row in table if row.family not in out])
        found += [(row, row.predict(made)[0]) for row in table if row.family in out]
    return _told(*_parts(found))


def _parts(found: Sequence[tuple[Row, float]]) -> tuple[list[Row], list[float]]:
    return [row for row, _ in found], [value for _, value in found]
