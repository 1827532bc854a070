"""Mesa's disassembler against ours, over the whole table and over random bits."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from pytest_qcom.errors import DecodeError
from pytest_qcom.isa.decoder import decode
from pytest_qcom.isa.encoder import encode
from pytest_qcom.isa.table import BY_KEY, KEYS, OPS
from pytest_qcom.isa.text import text
from suites.isa import oracle, strategies
from suites.isa.differences import DIFFERENCES, Difference, explain


def compare(words: list[int]) -> Counter[str]:
    """Assert agreement with Mesa on ``words``; how many of each outcome there were."""
    outcomes: Counter[str] = Counter()
    for word, mesa in zip(words, oracle.disassemble(words), strict=True):
        try:
            instr = decode(word)
        except DecodeError as error:
            if not oracle.accepts(mesa):
                outcomes["refused by both"] += 1
                continue
            kind = explain(word, mesa, str(error))
            assert kind is not None, f"{word:016x}: Mesa prints {mesa!r}, we refuse: {error}"
            outcomes[kind] += 1
            continue
        assert oracle.accepts(mesa), f"{word:016x}: Mesa refuses with {mesa!r}, we print {text(instr)!r}"
        assert text(instr) == mesa, f"{word:016x}"
        assert encode(instr) == word, f"{word:016x} {mesa!r} becomes {encode(instr):016x}"
        outcomes["equal"] += 1
    return outcomes


@settings(max_examples=6)
@given(strategies.seeds)
def test_every_entry_prints_as_mesa_does(seed: int) -> None:
    words = strategies.words(seed, 10)
    outcomes = compare(words)
    assert sum(outcomes.values()) == len(words)
    assert outcomes["equal"] > len(words) // 3


@settings(max_examples=4)
@given(strategies.seeds)
def test_random_bits_are_accepted_exactly_where_mesa_accepts(seed: int) -> None:
    outcomes = compare(strategies.noise(seed, 4000))
    assert outcomes["equal"] and outcomes["refused by both"]


@pytest.mark.long
def test_a_million_words() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(50):
        outcomes += compare(strategies.words(seed, 50) + strategies.noise(seed, 10_000))
    assert sum(outcomes.values()) >= 1_000_000
    assert {difference.name for difference in DIFFERENCES} <= set(outcomes)


def test_every_entry_is_reached() -> None:
    """Random words of an entry decode to that entry, so that the comparison above covers all of them."""
    reached = set()
    for word in strategies.words(1, 200):
        try:
            reached.add(decode(word).op.name)
        except DecodeError:
            continue
    assert reached == {op.name for op in OPS}


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.name)
def test_listed_differences_still_differ(difference: Difference) -> None:
    (mesa,) = oracle.disassemble([difference.example])
    assert oracle.accepts(mesa), (
        f"Mesa refuses {difference.example:016x} now; drop the row: {difference.reason}"
    )
    with pytest.raises(DecodeError) as caught:
        decode(difference.example)
    assert explain(difference.example, mesa, str(caught.value)) == difference.name


def test_look_up_is_by_category_and_opcode() -> None:
    for op in OPS:
        assert BY_KEY[KEYS[op.cat](op.layout.layout.match)] is op
