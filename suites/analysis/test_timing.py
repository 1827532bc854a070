"""Issue-only time: what it counts, and that the measured peaks come out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from pytest_qcom.analysis.timing import MODE, is_full, issue_only, mean_slot
from pytest_qcom.chip import A630
from pytest_qcom.errors import LaunchError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program


@dataclass(frozen=True)
class Launch:
    groups: tuple[int, int, int] = (64, 1, 1)
    local_size: tuple[int, int, int] = (128, 1, 1)
    thread128: bool = False
    fregs: int = 4
    hregs: int = 4
    merged: bool = False
    branchstack: int = 0
    shared_bytes: int = 0


@dataclass(frozen=True)
class Counts:
    waves: int
    issue_cycles: int


def program(text: str) -> Program:
    return Assembler().parse(text).program()


HALF = program("(rpt3)mad.f16 hr0.x, hr1.x, (r)hr2.x, (r)hr0.x\nend")
FULL = program("(rpt3)mad.f32 r0.x, r1.x, (r)r2.x, (r)r0.x\nend")
CLOCK = A630.clocks.core.value


def test_mode_is_named() -> None:
    assert MODE == "model: issue-only"


def test_issue_slots_are_spread_over_the_partitions() -> None:
    # 64 workgroups of two waves on 2 processors with 2 partitions each: 32 waves a partition
    assert issue_only(Launch(), Counts(128, 128 * 100), HALF) == 32 * 100 / CLOCK


def test_a_single_wave_takes_its_own_slots() -> None:
    assert issue_only(Launch((1, 1, 1), (64, 1, 1)), Counts(1, 100), HALF) == 100 / CLOCK


def test_a_last_round_that_is_not_full_takes_a_whole_one() -> None:
    launch = Launch((6, 1, 1), (64, 1, 1), fregs=48, hregs=0)  # four waves fit a processor, three are there
    assert issue_only(launch, Counts(6, 600), HALF) == 2 * 100 / CLOCK


def test_no_waves_no_time() -> None:
    assert issue_only(Launch((0, 1, 1)), Counts(0, 0), HALF) == 0.0


def test_wide_waves_run_half_instructions_in_one_cycle_and_full_ones_slower() -> None:
    wide = replace(Launch(), thread128=True)
    slower = A630.rates.full_cycles128.value
    half, full = (issue_only(wide, Counts(64, 64 * 4000), p) for p in (HALF, FULL))
    assert half == 16 * 4000 / CLOCK
    assert full / half == pytest.approx(slower, rel=0.1)  # `end` is issued too
    assert issue_only(Launch(), Counts(128, 12800), FULL) == issue_only(Launch(), Counts(128, 12800), HALF)


def test_loops_weigh_most() -> None:
    looped = program(
        "mov.f32f32 r0.x, r1.x\nloop:\n(rpt3)mad.f16 hr0.x, hr1.x, (r)hr2.x, (r)hr0.x\nbr p0.x, #loop\nend"
    )
    assert mean_slot(looped) < 1.01
    assert mean_slot(FULL) > 1.3


def test_immediates_are_of_no_width() -> None:
    assert not is_full(program("add.s hr0.x, hr0.x, 1\nend").instrs[0])
    assert is_full(program("cov.f16f32 r0.x, hr0.x\nend").instrs[0])
    assert not is_full(program("nop\nend").instrs[0])


@pytest.mark.parametrize(
    ("thread128", "body", "peak"),
    [
        (False, HALF, A630.rates.mad_half64.value),
        (False, FULL, A630.rates.mad_full64.value),
        (True, HALF, A630.rates.mad_half128.value),
        (True, FULL, A630.rates.mad_full128.value),
    ],
)
def test_measured_peaks_come_out(thread128: bool, body: Program, peak: float) -> None:
    """A long run of four-fold multiply-adds, 8 flops a fiber each."""
    wave, instructions = (128 if thread128 else 64), 10_000
    launch = Launch(groups=(1024, 1, 1), thread128=thread128)
    waves = 1024 * 128 // wave
    one = Program(body.instrs[:1])
    seconds = issue_only(launch, Counts(waves, waves * 4 * instructions), one)
    assert waves * wave * 8 * instructions / seconds == pytest.approx(peak, rel=2e-3)


def test_a_launch_that_does_not_fit_says_so() -> None:
    with pytest.raises(LaunchError, match="holds no wave"):
        issue_only(Launch(fregs=60, thread128=True), Counts(1, 1), HALF)
