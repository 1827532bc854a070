"""Late results: what programs compute that wait too little; those that wait enough are left alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_qcom.analysis import hazards
from pytest_qcom.analysis.findings import errors
from pytest_qcom.errors import GpuHang
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.virtual.dispatch import Dispatch, Format
from pytest_qcom.virtual.executor import Executor
from suites.virtual.executor.rig import Array, Memory, aligned, constants, image, lane_address, launch, name

Body = Callable[[Assembler], None]


def always(_: Dispatch) -> bool:
    return True


@pytest.fixture(scope="module")
def late(cache_dir: Path) -> Executor:
    """An executor in which every program has late results."""
    return Executor(threads=2, cache_dir=cache_dir, late=always)


def settle(a: Assembler) -> None:
    """Nothing is outstanding behind this."""
    a.emit("nop", rpt=5, ss=True, sy=True)
    a.emit("nop", rpt=5)


def lane_values(executor: Executor, body: Body, width: int = 1, **changes: Any) -> Array:
    """``width`` words a fiber: r4.x and up behind ``body``, which finds 1.0 there and 2.0 in r8.x and up.

    The addresses of the fiber's words in the output and in an input of 3.0 are r40.x/y and r41.x/y.
    """
    out, given = aligned((64, 4), np.uint32), aligned((64, 4), np.float32)
    given[:] = 3
    memory = Memory()
    file = constants(memory.add(out), memory.add(given))
    a = Assembler()
    lane_address(a, 160, "r0.x", "c0.x", 4)
    lane_address(a, 164, "r0.x", "c0.z", 4)
    for component in range(4):
        a.emit("mov.f32f32", name(16 + component), "(1.0)")
        a.emit("mov.f32f32", name(32 + component), "(2.0)")
    settle(a)
    body(a)
    settle(a)
    a.emit("stg.f32", "r40.x", "r4.x", offset=0, count=width)
    a.emit("end")
    executor.run(launch(waited_prologue(a.program()), file, **changes), memory)
    return out.view(np.float32)[:, :width]


def waited_prologue(program: Program) -> Program:
    """The waits of the address arithmetic; what stands behind the first (sy) is left as it is."""
    first = next(index for index, instr in enumerate(program.instrs) if instr.sy)
    return insert_waits(program, written=set(range(first, len(program.instrs))))


@pytest.mark.parametrize(("slots", "value"), [(0, 1.0), (2, 1.0), (3, 2.0), (6, 2.0)])
def test_alu_result_is_old_within_its_latency(late: Executor, slots: int, value: float) -> None:
    def body(a: Assembler) -> None:
        a.emit("mov.f32f32", "r5.x", "(1.0)")
        settle(a)
        a.emit("mov.f32f32", "r5.x", "r8.x")
        if slots:
            a.emit("nop", rpt=slots - 1)
        a.emit("mov.f32f32", "r4.x", "r5.x")

    assert (lane_values(late, body) == value).all()


def test_repeats_read_in_turn(late: Executor) -> None:
    """Two slots behind a repeated write its last elements are still old; the repeats keep step with it."""

    def body(a: Assembler) -> None:
        a.emit("mov.f32f32", "r5.x", "(r)r4.x", rpt=3)
        settle(a)
        a.emit("mov.f32f32", "r5.x", "(r)r8.x", rpt=3)
        a.emit("mov.f32f32", "r4.x", "(r)r5.x", rpt=3)

    assert (lane_values(late, body, width=4) == 2.0).all()

    def backwards(a: Assembler) -> None:
        a.emit("mov.f32f32", "r5.x", "(r)r4.x", rpt=3)
        settle(a)
        a.emit("mov.f32f32", "r5.x", "(r)r8.x", rpt=3)
        a.emit("mov.f32f32", "r4.x", "r5.w")

    assert (lane_values(late, backwards) == 1.0).all()


def test_addend_of_a_mad_is_read_late(late: Executor) -> None:
    def body(a: Assembler) -> None:
        a.emit("mad.f32", "r4.x", "r8.x", "r8.y", "r4.x")
        a.emit("nop")
        a.emit("mad.f32", "r4.x", "r8.x", "r8.y", "r4.x")

    assert (lane_values(late, body) == 9.0).all()


@pytest.mark.parametrize(("slots", "taken"), [(5, False), (6, True)])
def test_branch_reads_an_old_predicate(late: Executor, slots: int, taken: bool) -> None:
    def body(a: Assembler) -> None:
        a.emit("cmps.s.ne", "p0.x", "r0.x", "r0.x")
        settle(a)
        a.emit("cmps.s.eq", "p0.x", "r0.x", "r0.x")
        a.emit("nop", rpt=slots - 1)
        a.emit("br", "p0.x", "over")
        a.emit("mov.f32f32", "r4.x", "(4.0)")
        a.label("over")

    assert (lane_values(late, body) == (1.0 if taken else 4.0)).all()


@pytest.mark.parametrize(("wait", "value"), [("", 1.0), ("ss", 1.0), ("sy", 3.0), ("far", 3.0)])
def test_load_is_there_with_its_flag_or_in_its_time(late: Executor, wait: str, value: float) -> None:
    def body(a: Assembler) -> None:
        a.emit("ldg.f32", "r5.x", "r41.x", offset=0, count=1)
        if wait == "far":
            for _ in range(40):
                a.emit("nop", rpt=5)
        a.emit("mov.f32f32", "r4.x", "r5.x", ss=wait == "ss", sy=wait == "sy")

    def prepared(a: Assembler) -> None:
        a.emit("mov.f32f32", "r5.x", "(1.0)")
        settle(a)
        body(a)

    assert (lane_values(late, prepared) == value).all()


def test_late_load_replaces_what_was_written_meanwhile(late: Executor) -> None:
    def body(a: Assembler) -> None:
        a.emit("ldg.f32", "r4.x", "r41.x", offset=0, count=1)
        a.emit("mov.f32f32", "r4.x", "r8.x")

    assert (lane_values(late, body) == 3.0).all()


@pytest.mark.parametrize(("ss", "value"), [(False, 2.0), (True, 1.0)])
def test_store_reads_its_data_late(late: Executor, ss: bool, value: float) -> None:
    """The first store is still being served when the second one's data changes."""
    out = aligned((64, 8), np.float32)
    memory = Memory()
    file = constants(memory.add(out))
    a = Assembler()
    lane_address(a, 160, "r0.x", "c0.x", 5)
    a.emit("mov.f32f32", "r4.x", "(1.0)")
    settle(a)
    for offset in range(4):
        a.emit("stg.f32", "r40.x", "r4.x", offset=4 * offset, count=1)
    a.emit("mov.f32f32", "r4.x", "(2.0)", ss=ss)
    settle(a)
    a.emit("end")
    late.run(launch(waited_prologue(a.program()), file), memory)
    assert (out[:, 0] == 1.0).all()
    assert (out[:, 3] == value).all()


@pytest.mark.parametrize(("slots", "value"), [(3, 5.0), (4, 7.0)])
def test_sample_reads_an_old_coordinate(late: Executor, slots: int, value: float) -> None:
    texels = aligned((4, 16, 4), np.float32)
    texels[:, 0], texels[:, 1] = 5.0, 7.0
    out, memory = aligned((64, 4), np.float32), Memory()
    file = constants(memory.add(out))
    memory.add(texels)
    a = Assembler()
    lane_address(a, 160, "r0.x", "c0.x", 4)
    a.emit("mov.u32u32", "r6.x", 0)
    a.emit("mov.u32u32", "r6.y", 0)
    settle(a)
    a.emit("mov.u32u32", "r6.x", 1)
    a.emit("nop", rpt=slots - 1)
    a.emit("isam.1d", "r4.x", "r6.x", type="f32", tex=0, samp=0, wrmask=15)
    settle(a)
    a.emit("stg.f32", "r40.x", "r4.x", offset=0, count=4)
    a.emit("end")
    bound = (image(texels, Format.RGBA32_FLOAT),)
    late.run(launch(waited_prologue(a.program()), file, textures=bound), memory)
    assert (out == value).all()


def test_registers_hold_what_the_wave_before_left(late: Executor) -> None:
    """The first wave finds zeros."""
    out, memory = aligned((3, 64), np.uint32), Memory()
    file = constants(memory.add(out))
    a = Assembler()
    a.emit("mov.u32u32", "r3.x", "r48.x")
    a.emit("shl.b", "r3.x", "r3.x", 6)
    a.emit("add.u", "r3.x", "r3.x", "r0.x")
    lane_address(a, 160, "r3.x", "c0.x", 2)
    settle(a)
    a.emit("stg.u32", "r40.x", "r4.x", offset=0, count=1)
    a.emit("add.u", "r4.x", "r48.x", 5, ss=True)
    settle(a)
    a.emit("end")
    late.run(launch(waited_prologue(a.program()), file, groups=(3, 1, 1)), memory)
    assert [int(row[0]) for row in out] == [0, 5, 6]


def test_beyond_the_footprint(late: Executor) -> None:
    def reads(a: Assembler) -> None:
        a.emit("mov.u32u32", "r4.x", "r46.x")

    assert np.isnan(lane_values(late, reads, fregs=46)).all()
    with pytest.raises(GpuHang, match="beyond the declared 41 full"):
        lane_values(late, reads, fregs=41)


def test_only_programs_that_are_named_have_late_results(cache_dir: Path) -> None:
    asked: list[int] = []

    def never(dispatch: Dispatch) -> bool:
        asked.append(dispatch.fregs)
        return False

    def body(a: Assembler) -> None:
        a.emit("mov.f32f32", "r4.x", "r8.x")
        a.emit("mov.f32f32", "r4.x", "r4.x")

    assert (lane_values(Executor(threads=1, cache_dir=cache_dir, late=never), body) == 2.0).all()
    assert asked == [48]


# random programs

_ALU = ("add.f", "mul.f", "max.f", "mad.f32", "mov.f32f32", "rcp", "ldg", "stg", "half")


def _random(seed: int, loops: bool) -> Program:
    """Arithmetic, special functions, loads and stores over r4 to r7 and hr0 to hr1, in any order."""
    draw = random.Random(seed)
    a = Assembler()
    lane_address(a, 160, "r0.x", "c0.x", 6)
    lane_address(a, 164, "r0.x", "c0.z", 4)
    for index in range(16):
        a.emit("cov.u32f32", name(16 + index), "r0.x")
    for index in range(8):
        a.emit("cov.u32f16", name(index, half=True), "r0.x")
    a.emit("mov.u32u32", "r42.x", 0)
    settle(a)
    if loops:
        a.label("loop")
    for _ in range(40):
        _operation(a, draw)
    if loops:
        a.emit("add.s", "r42.x", "r42.x", 1)
        a.emit("cmps.s.lt", "p0.x", "r42.x", 3)
        a.emit("br", "p0.x", "loop")
    for index in range(4):
        a.emit("cov.f16f32", "r43.x", name(index, half=True))
        a.emit("add.f", name(16 + 4 * index), name(16 + 4 * index), "r43.x")
        a.emit("stg.f32", "r40.x", name(16 + 4 * index), offset=16 * index, count=4)
    a.emit("end")
    return a.program()


def _operation(a: Assembler, draw: random.Random) -> None:
    kind = draw.choice(_ALU)
    repeat = draw.choice((0, 0, 1, 3))
    full = [name(16 + draw.randrange(16 - repeat)) for _ in range(4)]
    marked = [f"{'(r)' if repeat and draw.random() < 0.7 else ''}{reg}" for reg in full]
    if kind == "rcp":
        a.emit("rcp", full[0], full[1])
    elif kind == "ldg":
        a.emit("ldg.f32", name(16 + draw.randrange(13)), "r41.x", offset=0, count=draw.randrange(1, 5))
    elif kind == "stg":
        a.emit("stg.f32", "r40.x", name(16 + draw.randrange(13)), offset=16, count=draw.randrange(1, 5))
    elif kind == "half":
        half = [name(draw.randrange(8 - repeat), half=True) for _ in range(3)]
        a.emit("mad.f16", half[0], half[1], half[2], f"{'(r)' if repeat else ''}{half[0]}", rpt=repeat)
    elif kind == "mad.f32":
        a.emit(kind, full[0], marked[1], marked[2], marked[3], rpt=repeat)
    elif kind == "mov.f32f32":
        a.emit(kind, full[0], marked[1], rpt=repeat)
    else:
        a.emit(kind, full[0], marked[1], marked[2], rpt=repeat)


def _result(executor: Executor, program: Program, groups: int = 1) -> Array:
    out, given = aligned((64, 16), np.float32), aligned((64, 4), np.float32)
    given[:] = np.random.default_rng(0).standard_normal(given.shape)
    memory = Memory()
    file = constants(memory.add(out), memory.add(given))
    executor.run(launch(program, file, groups=(groups, 1, 1)), memory)
    return out.view(np.uint32)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_what_waits_enough_is_left_alone(late: Executor, executor: Executor, seed: int, loops: bool) -> None:
    """Nothing found by the checker: the same bits, late results or not. Without waits: others, every time."""
    bare = waited_prologue(_random(seed, loops))
    waited = insert_waits(bare)
    assert not errors(hazards.lint(waited, fregs=48, hregs=48))
    assert (_result(late, waited) == _result(executor, waited)).all()
    assert errors(hazards.lint(bare, fregs=48, hregs=48))
    first = _result(late, bare)
    assert (first == _result(late, bare)).all()
    assert (first != _result(executor, bare)).any()


def test_threads_do_not_matter(cache_dir: Path) -> None:
    """Waves find what others left, so they run in one order, however many threads there are."""
    bare = waited_prologue(_random(2, loops=True))
    one, four = (Executor(threads=count, cache_dir=cache_dir, late=always) for count in (1, 4))
    found = _result(one, bare, groups=24)
    assert (found != _result(one, bare)).any()  # the last wave does not compute what a first one does
    assert (found == _result(four, bare, groups=24)).all()
    assert (found == _result(four, bare, groups=24)).all()


@pytest.mark.parametrize("seed", range(20))
def test_a_flag_more_never_adds_a_hazard(seed: int) -> None:
    """On any instruction of a program that waits nowhere."""
    draw = random.Random(seed)
    program = _random(seed, loops=seed % 2 == 1)
    before = len(errors(hazards.lint(program, fregs=48, hregs=48)))
    instrs = list(program.instrs)
    index = draw.randrange(len(instrs))
    flag = "sy" if instrs[index].op.cat > 4 or draw.random() < 0.5 else "ss"
    instr = instrs[index]
    instrs[index] = replace(instr, sy=True) if flag == "sy" else replace(instr, ss=True)
    assert len(errors(hazards.lint(Program(tuple(instrs)), fregs=48, hregs=48))) <= before
