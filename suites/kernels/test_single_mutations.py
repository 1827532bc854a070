"""Tests of the tests for float32 and byte kernels: a good kernel with one thing broken must not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.devices.device import Device
from pytest_qcom.isa.instruction import Instr, Kind
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.edit import replace_instructions
from pytest_qcom.kernels.registry import KERNELS

SHAPES = {
    "gemm_4x8_fp32": {"m": 16, "n": 256, "k": 20},
    "gemm_4x8_fp32_rotate": {"m": 16, "n": 256, "k": 28},
    "gemm_4x8_fp32_splitk": {"m": 16, "n": 64, "k": 20},
    "gemm_4x8_fp32_waksman": {"m": 16, "n": 256, "k": 20},
    "gemm_4x4_fp32_quad_b": {"m": 16, "n": 128, "k": 20},
    "gemm_int8_fp32": {"m": 16, "n": 256, "k": 20},
    "gemm_dp4": {"m": 16, "n": 128, "k": 80, "mixed": True},
    "gemm_dp4_scaled": {"m": 16, "n": 128, "k": 80},
}


def places(program: Program, wanted: Callable[[Instr], bool]) -> list[int]:
    return [index for index, instr in enumerate(program.instrs) if wanted(instr)]


def outcome(device: Device, name: str, edits: dict[int, tuple[Instr, ...]]) -> conformance.Outcome:
    """The result of a kernel with some instructions replaced."""
    kernel = KERNELS[name]
    options = kernel.configure(SHAPES[name])
    build = kernel.build(options)
    build = replace(build, program=replace_instructions(build.program, edits))
    run = conformance.prepare(device, kernel, options, np.random.default_rng(12), build=build)
    run.launch()
    return run.compare()


def program(name: str) -> Program:
    return KERNELS[name].build(KERNELS[name].configure(SHAPES[name])).program


def product(instr: Instr) -> bool:
    return instr.op.name in ("mad.f32", "dp4acc")


def neighbour(instr: Instr) -> Instr:
    """Another component in place of the scalar, or of the first vector."""
    numbers = [number for number, operand in enumerate(instr.srcs[:2]) if not operand.repeat]
    number = numbers[0] if numbers else 0
    srcs = list(instr.srcs)
    srcs[number] = replace(srcs[number], value=srcs[number].value ^ 1)
    return replace(instr, srcs=tuple(srcs))


@pytest.mark.parametrize("name", SHAPES)
def test_a_good_kernel_passes(device: Device, name: str) -> None:
    assert outcome(device, name, {}).ok


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_a_wrong_factor_is_noticed(lenient: Device, name: str, part: float) -> None:
    found = program(name)
    mads = places(found, product)
    index = mads[int(part * len(mads))]
    result = outcome(lenient, name, {index: (neighbour(found.instrs[index]),)})
    assert not result.ok
    assert 0 < result.wrong < result.checked


@pytest.mark.parametrize("name", SHAPES)
def test_a_missing_product_is_noticed(lenient: Device, name: str) -> None:
    mads = places(program(name), product)
    assert not outcome(lenient, name, {mads[len(mads) // 3]: ()}).ok


def coordinate(found: Program) -> int:
    """The last sum of a register and a number that is a coordinate of a sample."""
    samples = [instr for instr in found.instrs if instr.op.name == "isam"]
    pairs = {instr.srcs[0].value + component for instr in samples for component in range(2)}
    last = places(found, lambda instr: instr.op.name == "isam")[-1]
    sums = places(
        found,
        lambda instr: (
            instr.op.name == "add.s"
            and instr.srcs[1].kind is Kind.IMM
            and instr.dst is not None
            and instr.dst.value in pairs
        ),
    )
    return [index for index in sums if index < last][-1]


@pytest.mark.parametrize("name", SHAPES)
def test_a_coordinate_that_is_off_by_one_is_noticed(lenient: Device, name: str) -> None:
    found = program(name)
    index = coordinate(found)
    instr = found.instrs[index]
    first, second = instr.srcs
    wrong = replace(instr, srcs=(first, replace(second, value=second.value + 1)))
    assert not outcome(lenient, name, {index: (wrong,)}).ok


@pytest.mark.parametrize("name", ["gemm_4x8_fp32_splitk", "gemm_4x4_fp32_quad_b"])
@pytest.mark.parametrize("number", [0, 3])
def test_an_exchange_of_three_components_is_noticed(lenient: Device, name: str, number: int) -> None:
    found = program(name)
    index = places(found, lambda instr: instr.op.name.startswith("quad_shuffle"))[number]
    instr = found.instrs[index]
    attrs = tuple((key, 7 if key == "wrmask" else value) for key, value in instr.attrs)
    assert not outcome(lenient, name, {index: (replace(instr, attrs=attrs),)}).ok
