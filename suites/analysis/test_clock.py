"""The virtual device's clock: cached, scaled by what was issued, explicit where it falls back."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import pytest

from pytest_qcom.analysis import cycles, timing
from pytest_qcom.analysis.clock import Clock, TimingWarning
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.timings import Launch


@dataclass(frozen=True)
class Coded(Launch):
    code: bytes = b""
    entry: int = 0


@dataclass(frozen=True)
class Counts:
    waves: int
    issue_cycles: int


TEXT = "mov.u32u32 r0.x, 1\n(rpt2)nop\nadd.s r0.x, r0.x, r0.x\nend"
LAUNCH = Coded((64, 1, 1), (4, 1, 1), False, 1, 0, False, 0, 0, b"")
COUNTS = Counts(4, 4 * 6)


def test_the_clock_is_the_cycle_model() -> None:
    program, clock = Assembler().parse(TEXT).program(), Clock()
    assert clock(LAUNCH, COUNTS, program) == cycles.estimate(LAUNCH, program).seconds
    assert clock.model == Clock.mode == cycles.MODE


def test_a_launch_of_nothing_takes_no_time() -> None:
    assert Clock()(LAUNCH, Counts(0, 0), Assembler().parse("end").program()) == 0.0


def test_what_a_launch_issued_counts() -> None:
    program, clock = Assembler().parse(TEXT).program(), Clock()
    once, twice = (clock(LAUNCH, replace(COUNTS, issue_cycles=24 * n), program) for n in (1, 2))
    assert twice == pytest.approx(2 * once)


def test_a_known_launch_costs_next_to_nothing() -> None:
    program, clock = Assembler().parse(TEXT).program(), Clock()
    clock(LAUNCH, COUNTS, program)
    began = time.process_time()
    for _ in range(1000):
        clock(LAUNCH, COUNTS, program)
    assert time.process_time() - began < 1.0  # a millisecond each


def test_a_path_without_end_falls_back_and_says_so() -> None:
    program, clock = Assembler().parse("mov.u32u32 r0.x, 1\njump #-1\nend").program(), Clock()
    with pytest.warns(TimingWarning, match="issue-only"):
        seconds = clock(LAUNCH, COUNTS, program)
    assert seconds == timing.issue_only(LAUNCH, COUNTS, program)
    assert clock.model == timing.MODE
