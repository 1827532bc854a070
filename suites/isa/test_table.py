"""The table proves itself: bits, opcodes, templates, golden words, semantics."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import pytest

from pytest_qcom.errors import DecodeError
from pytest_qcom.isa.assembler import assemble
from pytest_qcom.isa.decoder import decode
from pytest_qcom.isa.encoder import encode
from pytest_qcom.isa.instruction import Flow, Instr, Kind, Latency, Op, Sync, Unsupported
from pytest_qcom.isa.table import ALIASES, BY_KEY, BY_NAME, KEYS, OPS
from pytest_qcom.isa.text import text
from suites.isa import oracle, strategies

entries = pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)


def _golden() -> list[tuple[str, int, str, str]]:
    rows = []
    for line in (Path(__file__).parent / "golden.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, word, shown, origin = line.split(" | ")
            rows.append((name, int(word, 16), shown, origin))
    return rows


GOLDEN = _golden()


def test_counts() -> None:
    """Nothing is lost: what is declared is what the look-ups hold."""
    assert len(OPS) == len(BY_NAME) == len(BY_KEY) == 206
    assert set(ALIASES.values()) <= set(BY_NAME)
    assert [sum(op.cat == cat for op in OPS) for cat in range(8)] == [25, 5, 45, 25, 10, 34, 55, 7]


@entries
def test_every_bit_is_defined_once(op: Op) -> None:
    assert not list(op.layout.layout.unclaimed())


def test_no_two_entries_match_one_word() -> None:
    for first, second in combinations(OPS, 2):
        a, b = first.layout.layout, second.layout.layout
        common = a.mask & b.mask
        assert (a.match ^ b.match) & common, f"{first.name} and {second.name} match the same word"


def test_bits_without_effect_are_refused() -> None:
    """A set bit where Mesa's disassembler warns of one is an error of ours, with its place."""
    checked = 0
    for op in OPS:
        layout = op.layout.layout
        for part in layout.fixed:
            if part.care:
                continue
            with pytest.raises(DecodeError) as caught:
                layout.unpack(layout.match | 1 << part.hi, op.name)
            assert caught.value.facts["low"] == part.lo and caught.value.facts["high"] == part.hi
            (mesa,) = oracle.disassemble([layout.match | 1 << part.hi])
            checked += "dontcare" in mesa or not oracle.accepts(mesa)
    assert checked > 300


@entries
def test_opcode_bits_are_fixed(op: Op) -> None:
    """The look-up key of a word depends on fixed bits of its entry only."""
    draw = random.Random(op.name)
    keys = {KEYS[op.cat](strategies.word_of(op, draw)) for _ in range(200)}
    if op.name in ("stib.b", "ldib.b"):  # their offset stands where others have the opcode
        assert len(keys) == 1
    assert keys == {KEYS[op.cat](op.layout.layout.match)}


@pytest.mark.parametrize(
    ("name", "word", "shown"), [row[:3] for row in GOLDEN], ids=[f"{row[0]}-{row[1]:016x}" for row in GOLDEN]
)
def test_golden_words(name: str, word: int, shown: str) -> None:
    instr = decode(word)
    assert (instr.op.name, text(instr), encode(instr)) == (name, shown, word)


def test_golden_words_are_mesas() -> None:
    assert oracle.disassemble([row[1] for row in GOLDEN]) == [row[2] for row in GOLDEN]


def test_every_entry_has_golden_words() -> None:
    assert {row[0] for row in GOLDEN} == set(BY_NAME)
    assert all(row[3] for row in GOLDEN)


@entries
def test_every_entry_says_what_it_does(op: Op) -> None:
    """Either a formula with a class for each operand, or an effect; never both, never neither."""
    assert (op.compute is None) != (op.effect is None)
    assert op.source and op.confidence in ("documented", "measured", "inferred")
    if op.compute is not None:
        assert op.reads and set(op.reads) <= set("fusbgt")
        assert op.reads == "t" or (op.result and op.result in "fusbc")
    if isinstance(op.effect, Unsupported):
        assert op.effect.reason


@entries
def test_latency_and_sync_go_together(op: Op) -> None:
    """A result that comes late is waited for by a flag; what gives none needs none."""
    if op.latency in (Latency.SFU, Latency.LOCAL):
        assert op.sync is Sync.SS
    elif op.latency in (Latency.TEXTURE, Latency.GLOBAL):
        assert op.sync is (Sync.SS if op.name.startswith("res") else Sync.SY)
    assert op.cat != 0 or isinstance(op.effect, Flow | Unsupported)


def _hides(instr: Instr, shown: str) -> bool:
    """Text that means several words: NaNs, the repeat of dot products, the unused half of an immediate."""
    unused = any(source.kind is Kind.IMM and source.half and source.value >= 1 << 16 for source in instr.srcs)
    return "nan" in shown or unused or (bool(instr.rpt) and "mixed" in instr)


@entries
def test_text_reads_back(op: Op) -> None:
    """Text to instruction to text: the template is one for both ways."""
    draw = random.Random(op.name)
    seen = 0
    for _ in range(400):
        try:
            instr = decode(strategies.word_of(op, draw))
        except DecodeError:
            continue
        shown = text(instr)
        if _hides(instr, shown):
            continue
        seen += 1
        assert text(assemble(shown)) == shown
        if seen == 40:
            break
    assert seen
