"""Compiled functions: the same bits as uncompiled ones, and an error for what is not in the subset."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from pytest_qcom.analysis import processor
from pytest_qcom.analysis.cycles import DEFAULT, START
from pytest_qcom.analysis.native import Floats, Ints, NotCompilable, compiled
from pytest_qcom.analysis.processor import Jobs, Pipe, State, state

_LIMIT = 7


class Pair(NamedTuple):
    values: Floats
    counts: Ints
    factor: float


@compiled
def folded(pair: Pair, length: int) -> float:
    """Documentation is no code."""
    index, total = 0, 0.0
    while index < length:
        if pair.counts[index] == 0 or not pair.values[index] < 4.0:
            index += 1
            continue
        if index > _LIMIT and pair.counts[index] % 3 != 1:
            break
        scale: float = pair.factor if pair.counts[index] > 2 else -1
        total = max(total, min(scaled(pair.values[index], scale), 100.0)) + pair.values[index] / 3
        pair.counts[index] = index // 2 - 1
        index += 1
    return total + index


@compiled
def scaled(value: float, factor: float) -> float:
    """A function that another one calls, and that changes a parameter."""
    if factor > 1:
        value = value + 1
    return value * factor


@compiled
def powered(value: float) -> float:
    return value**2


@pytest.mark.parametrize("seed", range(20))
def test_a_compiled_function_gives_the_same_bits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, 20)
    one, other = (Pair(rng.uniform(0, 5, 20), counts.copy(), 1.7) for _ in range(2))
    other = one._replace(counts=counts.copy())
    plain = folded.__wrapped__  # type: ignore[attr-defined]
    assert folded(one, 20) == plain(other, 20)
    assert one.counts.tolist() == other.counts.tolist()


def test_what_is_not_in_the_subset_is_an_error() -> None:
    with pytest.raises(NotCompilable, match="powered: line 3 uses Pow"):
        powered(2.0)


def test_other_arrays_are_refused() -> None:
    pair = Pair(np.zeros(4, np.float32), np.zeros(4, np.int64), 1.0)
    with pytest.raises(NotCompilable, match="float32"):
        folded(pair, 4)


def random_jobs(rng: np.random.Generator, kinds: int, length: int) -> Jobs:
    pipe = rng.integers(0, len(Pipe), kinds)
    return Jobs(
        path=rng.integers(0, kinds, length),
        pipe=pipe,
        ss=rng.integers(0, 2, kinds),
        sy=rng.integers(0, 2, kinds),
        work=rng.uniform(0, 8, kinds),
        gap=rng.uniform(1, 8, kinds),
        latency=np.where(pipe == Pipe.ALU, 0, rng.uniform(0, 90, kinds)),
        word=rng.uniform(0, 2, kinds),
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_compiled_processor_is_the_one_in_the_source(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    jobs = random_jobs(rng, 12, 60)
    one, other = (state(4, 2, DEFAULT.queue, most=500) for _ in range(2))
    cycles = processor.run(jobs, one, 60, 9, START)
    for name in ("run", "first", "earliest", "awaited", "issue"):
        monkeypatch.setattr(processor, name, getattr(processor, name).__wrapped__)
    assert processor.run(jobs, other, 60, 9, START) == cycles
    for name in State._fields:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
