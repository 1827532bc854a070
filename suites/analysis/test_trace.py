"""The path of a wave and what it samples."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_qcom.analysis.trace import steering, trace
from pytest_qcom.errors import GpuHang
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from pytest_qcom.timings import Launch

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


@pytest.mark.parametrize(
    ("coordinates", "texels", "lines"),
    [
        ("mov.u32u32 r1.x, r0.x\nmov.u32u32 r1.y, 7", 128, 16),  # a row: every fiber its own texel
        ("and.b r1.x, r0.x, 31\nmov.u32u32 r1.y, 7", 128, 4),  # four times the same 32
        ("mov.u32u32 r1.x, 3\nshr.b r1.y, r0.x, 5", 32, 4),  # one texel for 32 fibers each
        ("mov.u32u32 r1.x, 3\nmov.u32u32 r1.y, r0.x", 128, 128),  # a column
    ],
)
def test_texels_that_quads_ask_for(coordinates: str, texels: int, lines: int) -> None:
    text = f"{coordinates}\n(rpt5)nop\nisam.1d (f16)(xyzw)hr0.x, r1.x, s#0, t#0\nend"
    found = trace(LAUNCH, program(text))
    assert found.texels == {3: texels}
    assert found.lines == {3: lines}


def test_a_workgroup_smaller_than_a_wave_leaves_fibers_idle() -> None:
    text = (
        "mov.u32u32 r1.x, r0.x\nmov.u32u32 r1.y, 7\n(rpt5)nop\nisam.1d (f16)(xyzw)hr0.x, r1.x, s#0, t#0\nend"
    )
    small = dataclasses.replace(LAUNCH, local_size=(64, 1, 1))
    assert trace(small, program(text)).texels == {3: 64}
    assert trace(small, program(text)).active == 64


def test_group_ids_steer() -> None:
    text = "cmps.s.eq p0.x, r51.w, 2\n(rpt5)nop\nbr p0.x, #2\nnop\nend"
    assert trace(LAUNCH, program(text), (2, 0, 0)).path == (0, 1, 2, 4)
    assert trace(LAUNCH, program(text), (1, 0, 0)).path == (0, 1, 2, 3, 4)


def test_no_end_is_a_hang() -> None:
    with pytest.raises(GpuHang, match="no end after 1000 of them"):
        trace(LAUNCH, program("jump #0\nend"), budget=1000)
