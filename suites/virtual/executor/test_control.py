"""Control flow: fibers that go different ways, predication, barriers, budgets, and what does not end."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_qcom.errors import GpuHang
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from pytest_qcom.virtual.executor import Executor
from suites.virtual.executor.rig import Array, Memory, aligned, constants, lane_address, launch

WAVES = pytest.mark.parametrize("thread128", [False, True], ids=["64", "128"])


def _outcome(executor: Executor, text: str, lanes: int = 64, thread128: bool = False) -> Array:
    """r1.x of every lane after ``text``, which starts with the lane in r0.x."""
    target = aligned((lanes,), "uint32")
    memory = Memory()
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 2)
    a.parse(text)
    a.emit("stg.u32", "g[r10.x]", "r1.x", 1)
    a.emit("end")
    dispatch = launch(
        a.program(), constants(memory.add(target)), local_size=(lanes, 1, 1), thread128=thread128
    )
    executor.run(dispatch, memory)
    return target


@WAVES
@pytest.mark.parametrize("lanes", [1, 37, 64])
def test_loops_with_a_trip_count_of_each_fiber(executor: Executor, lanes: int, thread128: bool) -> None:
    """Lane i goes round (i * 7) % 13 times and adds up the count."""
    text = """
        mul.u24 r2.x, r0.x, 7
        mov.u32u32 r1.x, 0
    modulo:
        cmps.u.lt p0.x, r2.x, 13
        br p0.x, #start
        sub.u r2.x, r2.x, 13
        jump #modulo
    start:
        cmps.s.eq p0.x, r2.x, 0
        br p0.x, #done
        add.u r1.x, r1.x, r2.x
        sub.u r2.x, r2.x, 1
        jump #start
    done:
        (jp)nop
    """
    count = np.arange(lanes) * 7 % 13
    assert np.array_equal(_outcome(executor, text, lanes, thread128), count * (count + 1) // 2)


@WAVES
def test_nested_branches(executor: Executor, thread128: bool) -> None:
    """Four levels deep, each bit of the lane decides one; every path leaves its own number."""
    lines, label = ["mov.u32u32 r1.x, 0", "mov.u32u32 r2.x, 1"], 0

    def level(depth: int) -> None:
        nonlocal label
        if depth == 4:
            lines.append("mul.u24 r2.x, r2.x, 3")
            return
        label += 1
        mine = label
        lines.extend([f"and.b r3.x, r0.x, {1 << depth}", "cmps.s.eq p0.x, r3.x, 0", f"br p0.x, #other{mine}"])
        lines.append(f"add.u r1.x, r1.x, {10 + 7 * mine}")
        level(depth + 1)
        lines.extend([f"jump #join{mine}", f"other{mine}:", f"sub.u r1.x, r1.x, {mine}"])
        level(depth + 1)
        lines.extend([f"join{mine}:", f"(jp)add.u r1.x, r1.x, {depth}"])

    level(0)
    lines.append("mad.u24 r1.x, r2.x, r2.x, r1.x")

    def expected(lane: int) -> int:
        counter = 0

        def walk(depth: int, taken: bool) -> int:
            nonlocal counter
            if depth == 4:
                return 0
            counter += 1
            mine, total = counter, 0
            first = bool(lane >> depth & 1)
            total += (10 + 7 * mine) * (first and taken) + walk(depth + 1, first and taken)
            total += -mine * (not first and taken) + walk(depth + 1, not first and taken)
            return total + depth * taken

        return walk(0, True) + 9

    got = _outcome(executor, "\n".join(lines), 128 if thread128 else 64, thread128)
    assert [int(v) for v in got] == [expected(lane) & 0xFFFFFFFF for lane in range(len(got))]


@pytest.mark.parametrize(
    "branch,taken",
    [
        ("brao p0.x, p0.y", lambda a, b: a | b),
        ("brao !p0.x, p0.y", lambda a, b: ~a | b),
        ("braa p0.x, p0.y", lambda a, b: a & b),
        ("braa p0.x, !p0.y", lambda a, b: a & ~b),
        ("br !p0.x", lambda a, b: ~a),
        ("bany p0.x", lambda a, b: np.full(64, a.any())),
        ("ball p0.x", lambda a, b: np.full(64, a.all())),
        ("bany p0.z", lambda a, b: np.zeros(64, bool)),
        ("ball p0.w", lambda a, b: np.ones(64, bool)),
    ],
)
def test_branches_on_predicates(executor: Executor, branch: str, taken: object) -> None:
    text = f"""
        and.b r2.x, r0.x, 1
        cmps.s.eq p0.x, r2.x, 1
        cmps.s.gt p0.y, r0.x, 20
        cmps.s.lt p0.z, r0.x, 0
        cmps.s.ge p0.w, r0.x, 0
        mov.u32u32 r1.x, 5
        {branch}, #over
        add.u r1.x, r1.x, r0.x
    over:
        (jp)nop
    """
    lane = np.arange(64)
    assert callable(taken)
    went = taken((lane & 1) == 1, lane > 20)
    assert np.array_equal(_outcome(executor, text), np.where(went, 5, 5 + lane))


def test_votes_count_live_fibers_only(executor: Executor) -> None:
    """Lanes that a partial wave does not have neither hold nor lack a predicate."""
    text = """
        cmps.s.lt p0.x, r0.x, 5
        cmps.s.ge p0.y, r0.x, 5
        mov.u32u32 r1.x, 0
        ball p0.x, #all
        add.u r1.x, r1.x, 1
    all:
        bany p0.y, #any
        add.u r1.x, r1.x, 2
    any:
        nop
    """
    assert list(_outcome(executor, text, lanes=5)) == [2] * 5


@WAVES
def test_predication(executor: Executor, thread128: bool) -> None:
    """predt and predf take p0.x as they find it; what the first part makes of it counts for the second."""
    text = """
        and.b r2.x, r0.x, 3
        cmps.s.eq p0.x, r2.x, 1
        mov.u32u32 r1.x, 1
        predt
        add.u r1.x, r1.x, 10
        add.u r1.x, r1.x, r0.x
        predf
        add.u r1.x, r1.x, 100
        (jp)prede
        add.u r1.x, r1.x, 1000
        cmps.s.eq p0.x, r2.x, 2
        predf
        add.u r1.x, r1.x, 7
        (jp)prede
    """
    lanes = 128 if thread128 else 64
    lane = np.arange(lanes)
    want = 1001 + np.where(lane & 3 == 1, 10 + lane, 100) + np.where(lane & 3 == 2, 0, 7)
    assert np.array_equal(_outcome(executor, text, lanes, thread128), want)


def test_fibers_that_end_early(executor: Executor) -> None:
    """A kernel's bounds check: some fibers end, the others go on, with a loop that is then uniform."""
    text = """
        cmps.s.ge p0.x, r0.x, 23
        br !p0.x, #inside
        end
    inside:
        mov.u32u32 r1.x, 0
        mov.u32u32 r2.x, 4
    again:
        add.u r1.x, r1.x, r0.x
        sub.u r2.x, r2.x, 1
        cmps.s.ne p0.x, r2.x, 0
        br p0.x, #again
        nop
    """
    lane = np.arange(64)
    assert np.array_equal(_outcome(executor, text), np.where(lane < 23, 4 * lane, 0))


def _barrier_program(waves_stop: int | None) -> Program:
    """Three rounds through local memory; fibers from ``waves_stop`` on end before the second."""
    a = Assembler()
    a.emit("shl.b", "r1.x", "r0.x", 2)
    a.emit("mov.u32u32", "r2.x", "r0.x")
    a.emit("mov.u32u32", "r3.x", 3)
    a.label("round")
    a.emit("stl.u32", "l[r1.x]", "r2.x", 1)
    a.emit("bar.g")
    a.emit("sub.u", "r1.y", 255, "r0.x")
    a.emit("shl.b", "r1.y", "r1.y", 2)
    a.emit("ldl.u32", "r2.y", "l[r1.y]", 1)
    a.emit("add.u", "r2.x", "r2.x", "r2.y")
    if waves_stop is not None:
        a.emit("cmps.s.ge", "p0.x", "r0.x", waves_stop)
        a.emit("br", "p0.x", "out")
    a.emit("bar.g")
    a.emit("sub.u", "r3.x", "r3.x", 1)
    a.emit("cmps.s.ne", "p0.x", "r3.x", 0)
    a.emit("br", "p0.x", "round")
    lane_address(a, 40, "r0.x", "c0.x", 2)
    a.emit("stg.u32", "g[r10.x]", "r2.x", 1)
    a.label("out")
    a.emit("end")
    return a.program()


@WAVES
def test_barriers_in_a_loop(executor: Executor, thread128: bool) -> None:
    target = aligned((256,), "uint32")
    memory = Memory()
    file = constants(memory.add(target))
    dispatch = launch(
        _barrier_program(None), file, local_size=(256, 1, 1), shared_bytes=1024, thread128=thread128
    )
    executor.run(dispatch, memory)
    values = np.arange(256)
    for _ in range(3):
        values = values + values[::-1]
    assert np.array_equal(target, values)


def test_a_barrier_that_some_waves_never_reach(executor: Executor) -> None:
    target = aligned((256,), "uint32")
    memory = Memory()
    program = _barrier_program(128)
    dispatch = launch(
        program, constants(memory.add(target)), local_size=(256, 1, 1), groups=(1, 2, 1), shared_bytes=1024
    )
    with pytest.raises(GpuHang) as info:
        executor.run(dispatch, memory)
    assert str(info.value) == (
        "barrier deadlock in workgroup (0, 0, 0): waiting are wave 0 at instruction 11 (bar.g); wave 1 at "
        "instruction 11 (bar.g); ended without it: waves 2, 3; let every wave of the workgroup reach "
        "the barrier"
    )
    assert info.value.facts["waiting"] == [(0, 11), (1, 11)]


@pytest.mark.parametrize("divergent", [False, True])
def test_a_loop_without_end_is_a_hang(executor: Executor, divergent: bool) -> None:
    a = Assembler()
    a.emit("mov.u32u32", "r1.x", 0)
    if divergent:
        a.emit("cmps.s.lt", "p0.x", "r0.x", 3)
        a.emit("br", "!p0.x", "out")
    a.label("loop")
    a.emit("add.u", "r1.x", "r1.x", 1)
    a.emit("jump", "loop")
    a.label("out")
    a.emit("end")
    with pytest.raises(GpuHang) as info:
        executor.run(launch(a.program(), groups=(3, 1, 1)), Memory())
    start = 3 if divergent else 1
    assert str(info.value) == (
        f"GPU hang at instruction {start} (add.u r1.x, r1.x, 1), wave 0 of workgroup (0, 0, 0): the "
        "wave used up its "
        "budget of issue cycles in a loop that starts here; make the loop end, or give the executor "
        "a larger budget"
    )
    assert info.value.facts == {"pc": start, "wave": 0, "group": (0, 0, 0)}


def test_a_program_without_end_is_a_hang(executor: Executor) -> None:
    a = Assembler()
    a.emit("mov.u32u32", "r1.x", 0)
    program = Program(a.program().instrs)
    code = program.encode()[:8]
    with pytest.raises(GpuHang) as info:
        executor.run(launch(code), Memory())
    assert str(info.value) == (
        "GPU hang at instruction 1, wave 0 of workgroup (0, 0, 0): the program ran past its last "
        "instruction; "
        "put an end there"
    )


def test_counts_what_was_issued(executor: Executor) -> None:
    """A repeated instruction counts once and takes a cycle for each repeat; (nop) slots take cycles too."""
    a = Assembler()
    a.emit("mov.u32u32", "r3.x", 5)
    a.label("loop")
    a.emit("add.u", "r4.x", "r0.x", 1, nop=2)
    a.emit("mov.u32u32", "r5.x", 1, rpt=3)
    a.emit("sub.u", "r3.x", "r3.x", 1)
    a.emit("cmps.s.ne", "p0.x", "r3.x", 0)
    a.emit("nop", rpt=5)
    a.emit("br", "p0.x", "loop")
    a.emit("end")
    execution = executor.run(launch(a.program(), groups=(7, 1, 1), local_size=(100, 1, 1)), Memory())
    assert execution.waves == 14
    assert execution.instructions == 14 * (1 + 5 * 6 + 1)
    assert execution.issue_cycles == 14 * (1 + 5 * (3 + 4 + 1 + 1 + 6 + 1) + 1)


@WAVES
@pytest.mark.parametrize("lanes", [1, 37, 64])
def test_the_first_of_the_active_fibers_is_elected(executor: Executor, lanes: int, thread128: bool) -> None:
    """getone sends all but it elsewhere: once over all fibers, once over those from a third of them on."""
    text = """
        mov.u32u32 r1.x, 0
        getone #others
        mov.u32u32 r1.x, 1
    others:
        (jp)cmps.u.ge p0.x, r0.x, START
        br !p0.x, #last
        getone #last
        add.u r1.x, r1.x, 2
    last:
        (jp)nop
    """
    start = lanes // 3
    want = (np.arange(lanes) == 0) + 2 * (np.arange(lanes) == start)
    found = _outcome(executor, text.replace("START", str(start)), lanes, thread128)
    assert np.array_equal(found, want)


@WAVES
@pytest.mark.parametrize("lanes", [1, 37, 64])
def test_a_scan_that_elects_one_fiber_after_the_other(
    executor: Executor, lanes: int, thread128: bool
) -> None:
    """As Mesa expands reductions: the sum so far stands in a shared register."""
    text = """
        mul.u24 r2.x, r0.x, r0.x
        mov.u32u32 r48.y, 0
    header:
        getone #footer
        mov.u32u32 r1.x, r48.y
        add.u r2.x, r2.x, r1.x
        mov.u32u32 r48.y, r2.x
        jump #out
    footer:
        (jp)jump #header
    out:
        (jp)nop
    """
    squares = np.arange(lanes) ** 2
    found = _outcome(executor, text, lanes, thread128)
    assert np.array_equal(found, np.cumsum(squares) - squares)


@WAVES
def test_a_shared_register_takes_what_a0_displaces(executor: Executor, thread128: bool) -> None:
    """The first fiber's: of a register and of constants, repeats too."""
    text = """
        mov.s16s16 a0.x, 8
        mov.u32u32 r2.z, 7
        (rpt5)nop
        mov.u32u32 r48.x, r<a0.x + 2>
        (rpt3)add.u r49.x, c<a0.x + 500>, 5
        mov.u32u32 r1.x, r48.x
        add.u r1.x, r1.x, r49.x
        add.u r1.x, r1.x, r49.w
    """
    assert (_outcome(executor, text, 40, thread128) == 7 + 5 + 5).all()


@WAVES
@pytest.mark.parametrize("lanes", [1, 37, 64, 100])
@pytest.mark.parametrize("register", ["r48.x", "r2.x"])
def test_masks_of_active_fibers(executor: Executor, register: str, lanes: int, thread128: bool) -> None:
    """All that are there, then those of one side; beyond the wave there is none."""
    stem = register.removesuffix(".x")
    text = f"""
        movmsk.w128 {register}
        mov.u32u32 r1.x, {stem}.z
        movmsk.w64 {register}
        add.u r1.x, r1.x, {stem}.x
        add.u r1.x, r1.x, {stem}.y
        cmps.u.lt p0.x, r0.x, 20
        br !p0.x, #join
        movmsk.w32 {register}
        xor.b r1.x, r1.x, {stem}.x
    join:
        (jp)nop
    """
    if not thread128:
        lanes = min(lanes, 64)
    words = [(1 << min(max(lanes - start, 0), 32)) - 1 for start in (0, 32, 64)]
    total = (words[0] + words[1] + words[2]) & (1 << 32) - 1
    want = [total ^ (1 << min(lanes, 20)) - 1 if lane < 20 else total for lane in range(lanes)]
    assert _outcome(executor, text, lanes, thread128).tolist() == want
