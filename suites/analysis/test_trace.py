"""The path of a wave and what it samples."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from pytest_qcom.analysis import trace as trace_module
from pytest_qcom.analysis.trace import steering, trace
from pytest_qcom.errors import GpuHang
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.instruction import Instr
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.reference import Registers, execute
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.timings import Launch, launched

LAUNCH = Launch((128, 1, 1), (4, 4, 1), True, 8, 8, False, 0, 0, b"")


def program(text: str) -> Program:
    return Assembler().parse(text).program()


LOOP = """
    mov.u32u32 r1.x, 0
    (rpt2)nop
    loop:
    add.s r1.x, r1.x, 1
    mad.f32 r4.x, r5.x, r6.x, r4.x
    (rpt2)nop
    cmps.s.lt p0.x, r1.x, 5
    (rpt5)nop
    br p0.x, #loop
    end
"""


def test_a_loop_runs_its_laps() -> None:
    path = trace(LAUNCH, program(LOOP)).path
    assert path == (0, 1) + (2, 3, 4, 5, 6, 7) * 5 + (8,)


def test_only_what_steers_is_computed() -> None:
    assert steering(program(LOOP)) == {0, 2, 5}


SAMPLE = "isam.1d (f16)(xyzw)hr0.x, r1.x, s#0, t#{}\n"


@pytest.mark.parametrize(
    ("between", "texture", "fresh"),
    [
        ("", 0, 0),  # the same blocks
        ("", 1, 1),  # another texture
        ("mov.u32u32 r1.y, 8\n", 0, 1),  # another row
        ("add.s r1.x, r1.x, 32\n", 0, 0.25),  # 128 texels are four blocks of 32, of which one is new
        ("add.s r1.x, r1.x, 16\n", 0, 0.2),  # five blocks, of which the last is new
    ],
)
def test_blocks_that_were_not_touched_before(between: str, texture: int, fresh: float) -> None:
    text = (
        "mov.u32u32 r1.x, r0.x\nmov.u32u32 r1.y, 7\n(rpt5)nop\n"
        f"{SAMPLE.format(0)}(ss)nop\n{between}{SAMPLE.format(texture)}end"
    )
    found = trace(LAUNCH, program(text)).fresh
    assert list(found.values()) == [1, fresh]


def test_of_several_executions_the_first_does_not_count() -> None:
    """Four blocks a row; a lap takes the same row, or the next one."""
    for step, fresh in ((0, 0), (1, 1)):
        text = LOOP.replace("loop:", f"mov.u32u32 r2.x, r0.x\nloop:\nadd.s r2.y, r2.y, {step}").replace(
            "mad.f32 r4.x, r5.x, r6.x, r4.x", "isam.1d (f16)(xyzw)hr0.x, r2.x, s#0, t#0"
        )
        assert list(trace(LAUNCH, program(text)).fresh.values()) == [fresh]


def test_a_workgroup_smaller_than_a_wave_leaves_fibers_idle() -> None:
    small = dataclasses.replace(LAUNCH, local_size=(64, 1, 1))
    assert trace(small, program("end")).active == 64
    assert trace(LAUNCH, program("end")).active == 128


def test_group_ids_steer() -> None:
    text = "cmps.s.eq p0.x, r51.w, 2\n(rpt5)nop\nbr p0.x, #2\nnop\nend"
    assert trace(LAUNCH, program(text), (2, 0, 0)).path == (0, 1, 2, 4)
    assert trace(LAUNCH, program(text), (1, 0, 0)).path == (0, 1, 2, 3, 4)


def test_no_end_is_a_hang() -> None:
    with pytest.raises(GpuHang, match="no end after 1000 of them"):
        trace(LAUNCH, program("jump #0\nend"), budget=1000)


NESTED = """
    mov.u32u32 r1.x, 0
    outer:
    add.s r1.x, r1.x, 1
    mov.u32u32 r1.y, 0
    (rpt2)nop
    inner:
    add.s r1.y, r1.y, 1
    (rpt2)nop
    cmps.s.lt p0.x, r1.y, {}
    (rpt5)nop
    br p0.x, #inner
    cmps.s.lt p0.x, r1.x, {}
    (rpt5)nop
    br p0.x, #outer
    end
"""


@pytest.mark.parametrize(("inner", "outer"), [(1, 1), (3, 9), (9, 3), (9, 9), (40, 40)])
def test_loops_in_loops_run_their_laps(inner: int, outer: int) -> None:
    lap = (1, 2, 3, *(4, 5, 6, 7, 8) * inner, 9, 10, 11)
    assert trace(LAUNCH, program(NESTED.format(inner, outer))).path == (0, *lap * outer, 12)


def test_a_loop_whose_laps_grow_is_followed() -> None:
    """The inner loop runs as often as the outer one has: no two laps are alike."""
    text = NESTED.format(0, 12).replace("cmps.s.lt p0.x, r1.y, 0", "cmps.s.lt p0.x, r1.y, r1.x")
    laps = ((1, 2, 3, *(4, 5, 6, 7, 8) * n, 9, 10, 11) for n in range(1, 13))
    assert trace(LAUNCH, program(text)).path == (0, *(step for lap in laps for step in lap), 12)


def test_what_no_later_branch_reads_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the loop its counter's register gets a sum, as before an image store; that steers nothing."""
    done: Counter[str] = Counter()

    def counted(instr: Instr, registers: Registers) -> None:
        done[instr.op.name] += 1
        execute(instr, registers)

    monkeypatch.setattr(trace_module, "execute", counted)
    text = LOOP.replace("r1.x, 5", "r1.x, 500").replace("end", "mov.u32u32 r1.x, r4.x\nend")
    path = trace(LAUNCH, program(text)).path
    assert len(path) == 2 + 6 * 500 + 2
    assert done["cmps.s"] == 500 and done["mad.f32"] < 10


def test_what_a_loop_leaves_for_a_later_branch_is_followed() -> None:
    """The first loop counts twice as fast in a register that only the second one's branch reads."""
    text = """
    mov.u32u32 r1.x, 0
    mov.u32u32 r1.y, 0
    (rpt2)nop
    first:
    add.s r1.x, r1.x, 1
    add.s r1.y, r1.y, 2
    (rpt2)nop
    cmps.s.lt p0.x, r1.x, 20
    (rpt5)nop
    br p0.x, #first
    second:
    add.s r1.y, r1.y, -1
    (rpt2)nop
    cmps.s.gt p0.x, r1.y, 0
    (rpt5)nop
    br p0.x, #second
    end
    """
    path = trace(LAUNCH, program(text)).path
    assert path == (0, 1, 2, *range(3, 9)) + tuple(range(3, 9)) * 19 + tuple(range(9, 14)) * 40 + (14,)


def test_a_sample_over_a_register_that_counts_is_not_followed() -> None:
    """The published kernels have their next counter over a texel, and read that register elsewhere too."""
    kernel = KERNELS["gemm_4x8_fp32_published"]
    build = kernel.build(dataclasses.replace(kernel.configure({}, "p188"), k=1024))
    (jump,) = (at for at, instr in enumerate(build.program.instrs) if instr.op.name == "br")
    path = trace(launched(build), build.program).path
    assert path.count(jump) == 1024 // 4
    assert path.count(jump + 1) == 1


def test_a_loaded_value_in_a_register_that_counts_elsewhere_is_taken_as_zero() -> None:
    text = LOOP.replace("mad.f32 r4.x, r5.x, r6.x, r4.x", "isam.1d (f16)(xyzw)hr0.x, r2.x, s#0, t#0").replace(
        "end",
        "(sy)cov.u16u32 r1.x, hr0.x\n(rpt2)nop\ncmps.s.lt p0.x, r1.x, 5\n(rpt5)nop\nbr p0.x, #2\nnop\nend",
    )
    assert trace(LAUNCH, program(text)).path[-6:] == (8, 9, 10, 11, 12, 14)
