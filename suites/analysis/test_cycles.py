"""The cycle model: what it must show, by itself and on the kernels."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest

from pytest_qcom.analysis.cycles import MODE, Estimate, estimate
from pytest_qcom.chip import A630
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.kernels.registry import find
from pytest_qcom.timings import Launch, launched

LAUNCH = Launch((128, 1, 1), (64, 4, 1), True, 8, 8, False, 0, 0, b"")


def predicted(text: str, launch: Launch = LAUNCH) -> Estimate:
    return estimate(launch, Assembler().parse(text).program())


@cache
def figure(kernel: str, **given: object) -> float:
    """The model's figure for a kernel, in its unit."""
    found = find(kernel)
    build = found.build(found.configure(given))
    return build.work / estimate(launched(build, build.thread128), build.program).seconds


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


def test_what_limits_is_named() -> None:
    alu = predicted("(rpt3)mad.f16 hr0.x, hr1.x, (r)hr2.x, (r)hr0.x\n" * 200 + "end")
    waits = predicted(
        "isam.1d (f16)(xyzw)hr4.x, r0.x, s#0, t#0\n(sy)nop\n" * 50 + "end",
        dataclasses.replace(LAUNCH, fregs=40),
    )
    assert (alu.limiter, waits.limiter) == ("alu", "sync")


def test_the_peak_is_that_of_the_chip() -> None:
    text = "(rpt3)mad.f16 hr0.x, hr1.x, (r)hr2.x, (r)hr0.x\n" * 500 + "end"
    found = predicted(text)
    flops = 2 * 4 * 500 * 128 * 64 * 4
    assert flops / found.seconds == pytest.approx(2 * 512 * A630.clocks.top.value, rel=0.01)


def test_an_image_beyond_the_instruction_cache_is_slower() -> None:
    step = "mad.f16 hr0.x, hr1.x, hr2.x, hr3.x\n"
    small, large = (predicted(step * count + "end") for count in (900, 1800))
    assert large.cycles > 2.2 * small.cycles


@pytest.mark.long
class TestPublishedTurns:
    """Turns that the notes report; their figures were measured on a device."""

    def test_64_threads_lose(self) -> None:
        assert figure("gemm_4xn_fp16", threads=64) < 0.75 * figure("gemm_4xn_fp16", threads=128)

    def test_more_columns_win(self) -> None:
        narrow = figure("gemm_4xn_fp16_published", ncols=2, donor_store=True, coord_delay=0)
        assert figure("gemm_4xn_fp16_published", ncols=4, donor_store=True, coord_delay=4) > 1.05 * narrow

    def test_unrolling_beyond_the_instruction_cache_loses(self) -> None:
        assert figure("gemm_4xn_fp16", k_unroll=16) < figure("gemm_4xn_fp16", k_unroll=8)

    def test_wide_waves_double_the_half_peak(self) -> None:
        found = find("alu_peak")
        build = found.build(found.configure({}, "compiler"))
        narrow, wide = (estimate(launched(build, flag), build.program).seconds for flag in (False, True))
        assert narrow == pytest.approx(2 * wide, rel=0.1)
