"""Whatever is submitted: an error of ours or of the driver, never a crash, never a hang."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suites.fuzz.ioctls import Client, attack
from suites.fuzz.streams import mutate, stream, submit, touch
from suites.virtual.bench import Bench

WORD = st.integers(0, 2**32 - 1)


@settings(max_examples=200)
@given(st.randoms(use_true_random=False))
def test_mutated_streams(source: random.Random) -> None:
    bench = Bench(wait_limit=0.002)
    bench.executor.act = touch
    submit(bench, mutate(source, stream(bench)))


@settings(max_examples=100)
@given(st.lists(WORD, min_size=1, max_size=50))
def test_random_streams(words: list[int]) -> None:
    bench = Bench(wait_limit=0.002)
    bench.executor.act = touch
    submit(bench, words)


@settings(max_examples=200)
@given(st.randoms(use_true_random=False))
def test_mutated_ioctls(source: random.Random) -> None:
    attack(source)


@settings(max_examples=50)
@given(st.randoms(use_true_random=False))
def test_sound_sequences_of_ioctls_are_accepted(source: random.Random) -> None:
    assert Client(source, wrong=0.0).run(40)


@pytest.mark.parametrize("seed", range(4))
def test_a_gpu_survives_everything_that_went_wrong(seed: int) -> None:
    """One GPU through many bad streams in a row, and then a good one."""
    bench = Bench(wait_limit=0.002)
    source = random.Random(seed)
    words = stream(bench)
    for _ in range(50):
        submit(bench, mutate(source, words))
    bench.executor.launches.clear()
    bench.submit(words)
    assert len(bench.executor.launches) == 2
