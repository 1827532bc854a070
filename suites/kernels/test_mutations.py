"""Tests of the tests: a good kernel with one thing broken must not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import HazardError
from pytest_qcom.isa.instruction import Instr
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.edit import replace_instructions
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.registry import KERNELS

GEMM = KERNELS["gemm_4xn_fp16"]
OPTIONS = GEMM.configure({"m": 32, "n": 1024, "k": 64, "k-unroll": 1})


def places(program: Program, wanted: Callable[[Instr], bool]) -> list[int]:
    return [index for index, instr in enumerate(program.instrs) if wanted(instr)]


def broken(build: Build, index: int, change: Callable[[Instr], Instr]) -> Build:
    program = replace_instructions(build.program, {index: (change(build.program.instrs[index]),)})
    return replace(build, program=program)


def outcome(device: Device, build: Build) -> conformance.Outcome:
    run = conformance.prepare(device, GEMM, OPTIONS, np.random.default_rng(11), build=build)
    run.launch()
    return run.compare()


def test_every_sync_is_needed(device: Device) -> None:
    """Without any one of its (sy) the kernel is refused, with the flag as the fix."""
    if device.mode == "hardware":
        pytest.skip("hardware does not explain hazards")
    build = GEMM.build(OPTIONS)
    flagged = places(build.program, lambda instr: instr.sy)
    assert len(flagged) == 2
    for index in flagged:
        with pytest.raises(HazardError, match=r"(missing|overwrite)-sy .*fix: \(sy\) on #"):
            outcome(device, broken(build, index, lambda instr: replace(instr, sy=False)))


def is_mad(instr: Instr) -> bool:
    return instr.op.cat == 3 and instr.rpt == 3


def swapped(instr: Instr) -> Instr:
    """The neighbouring scalar of A instead of the right one."""
    first, second, third = instr.srcs
    return replace(instr, srcs=(first, replace(second, value=second.value ^ 1), third))


def lane(instr: Instr) -> Instr:
    """Lane x of B in all four."""
    first, second, third = instr.srcs
    return replace(instr, srcs=(replace(first, repeat=False), second, third))


def other_accumulator(instr: Instr) -> Instr:
    first, second, third = instr.srcs
    return replace(instr, srcs=(first, second, replace(third, value=third.value ^ 4)))


def three_lanes(instr: Instr) -> Instr:
    return replace(instr, rpt=2)


@pytest.mark.parametrize(
    ("change", "number"),
    [(swapped, 0), (swapped, 63), (lane, 31), (other_accumulator, 32), (three_lanes, 63)],
)
def test_a_wrong_product_is_noticed(device: Device, change: Callable[[Instr], Instr], number: int) -> None:
    build = GEMM.build(OPTIONS)
    mads = places(build.program, is_mad)
    assert len(mads) == 64
    assert outcome(device, build).ok
    result = outcome(device, broken(build, mads[number], change))
    assert not result.ok
    # One MAD of 64 works on one row of four and one of four columns.
    assert 0 < result.wrong <= result.checked / 8


@pytest.mark.parametrize("texture", [0, 1])
def test_a_sample_of_the_wrong_texture_is_noticed(device: Device, texture: int) -> None:
    build = GEMM.build(OPTIONS)
    samples = places(build.program, lambda instr: instr.op.cat == 5 and instr["tex"] == texture)
    assert len(samples) == (4, 16)[texture]

    def other(instr: Instr) -> Instr:
        attrs = tuple((name, 1 - value if name == "tex" else value) for name, value in instr.attrs)
        return replace(instr, attrs=attrs)

    assert not outcome(device, broken(build, samples[-1], other)).ok
