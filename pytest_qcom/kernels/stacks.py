"""Several products in one launch, their arrays stacked: inputs and oracles from those of one product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.kernels import single
from pytest_qcom.kernels.kernel import Argument, Arrays

Judge = Callable[[Any, Arrays], Mapping[str, NDArray[Any]]]
"""Of one product and its inputs: an oracle or a bound."""


def arguments(one: single.Problem, count: int, pointer: int) -> tuple[Argument, ...]:
    """Those of one product, each ``count`` times as high."""
    return tuple(
        replace(argument, shape=(count * argument.shape[0], *argument.shape[1:]))
        for argument in single.arguments(one, pointer)
    )


def random(one: single.Problem, count: int, rng: np.random.Generator) -> Arrays:
    """Standard normal matrices."""
    return _stacked([single.random(one, rng) for _ in range(count)])


def pattern(name: str, one: single.Problem, count: int) -> Arrays:
    """A pattern of one product, rolled by a row and a column from product to product."""
    a, b = single.matrices(one, single.PATTERNS[name](one))
    rolled = [single.images(one, np.roll(a, part, 0), np.roll(b, part, 1)) for part in range(count)]
    return _stacked(rolled)


def each(judge: Judge, one: single.Problem, count: int, arrays: Arrays) -> Arrays:
    """What ``judge`` says of each product, stacked."""
    parts = {name: np.split(arrays[name], count) for name in "AB"}
    own = [{"A": a, "B": b} for a, b in zip(parts["A"], parts["B"], strict=True)]
    return {"C": np.concatenate([judge(one, inputs)["C"] for inputs in own])}


def _stacked(products: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([arrays[name] for arrays in products]) for name in "AB"}
