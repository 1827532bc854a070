"""The cycle model: what it must show, by itself and on the kernels."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_qcom.analysis.cycles import DEFAULT, MODE, Estimate, estimate
from pytest_qcom.chip import A630
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.timings import Launch

LAUNCH = Launch((128, 1, 1), (64, 4, 1), True, 8, 8, False, 0, 0, b"")


def predicted(text: str, launch: Launch = LAUNCH) -> Estimate:
    return estimate(launch, Assembler().parse(text).program())


def test_mode_is_named() -> None:
    assert MODE == "model: cycle"


def test_the_same_program_takes_the_same_time() -> None:
    text = "rcp r1.x, r0.x\n(ss)add.f r1.y, r1.x, r0.x\nend"
    assert predicted(text) == predicted(text)


def test_more_waves_take_longer() -> None:
    text = "(rpt3)mad.f16 hr0.x, hr1.x, (r)hr2.x, (r)hr0.x\n" * 40 + "end"
    one, two = (predicted(text, dataclasses.replace(LAUNCH, groups=(n, 1, 1))) for n in (512, 1024))
    assert two.cycles == pytest.approx(2 * one.cycles, rel=0.05)


def test_a_wait_is_hidden_by_other_waves() -> None:
    body = (
        "(sy)(rpt3)mad.f16 hr0.x, hr4.x, (r)hr4.x, (r)hr0.x\n"
        + "(rpt3)mad.f16 hr1.x, hr4.x, (r)hr4.x, (r)hr1.x\n" * 30
    )
    text = ("isam.1d (f16)(xyzw)hr4.x, r0.x, s#0, t#0\n" + body) * 20 + "end"
    alone = predicted(text, dataclasses.replace(LAUNCH, fregs=48, hregs=0))
    among = predicted(text)
    assert (alone.waves, among.waves) == (2, 8)
    assert among.cycles < 0.75 * alone.cycles
    assert among.busy["alu"] > alone.busy["alu"]


def test_branches_take_time_that_other_waves_hide() -> None:
    """The same instructions, with a jump to the next one behind each."""
    mad = "(rpt3)mad.f16 hr0.x, hr1.x, (r)hr2.x, (r)hr0.x\n"
    plain, jumping = (
        predicted(f"{body * 50}end", dataclasses.replace(LAUNCH, fregs=40)).cycles
        for body in (mad, mad + "jump #1\n")
    )
    cost = DEFAULT.branch + DEFAULT.turn + 1
    assert jumping - plain == pytest.approx(64 * 50 * cost, rel=0.05)  # 64 rounds of a wave on a partition
    many = [predicted(f"{body * 50}end").cycles for body in (mad, mad + "jump #1\n")]
    assert many[1] - many[0] < 0.5 * (jumping - plain)


def test_what_is_busy_is_told() -> None:
    alu = predicted("(rpt3)mad.f16 hr0.x, hr1.x, (r)hr2.x, (r)hr0.x\n" * 200 + "end")
    waits = predicted(
        "isam.1d (f16)(xyzw)hr4.x, r0.x, s#0, t#0\n(sy)nop\n" * 50 + "end",
        dataclasses.replace(LAUNCH, fregs=40),
    )
    assert alu.busy["alu"] > 0.9 > 0.5 > max(waits.busy.values())


def test_the_peak_is_that_of_the_chip() -> None:
    text = "(rpt3)mad.f16 hr0.x, hr1.x, (r)hr2.x, (r)hr0.x\n" * 500 + "end"
    found = predicted(text)
    flops = 2 * 4 * 500 * 128 * 64 * 4
    assert flops / found.seconds == pytest.approx(2 * 512 * A630.clocks.top.value, rel=0.01)


def test_an_image_beyond_the_instruction_cache_is_slower() -> None:
    step = "mad.f16 hr0.x, hr1.x, hr2.x, hr3.x\n"
    small, large = (predicted(step * count + "end") for count in (900, 1800))
    assert large.cycles > 2.2 * small.cycles
