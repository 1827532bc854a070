"""Races between workgroups of a launch: found with both instructions, and only where there are some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_qcom.errors import GpuFault, RaceError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.virtual.dispatch import Format, Sampler, Wrap
from pytest_qcom.virtual.executor import Executor
from suites.virtual.executor.rig import Memory, aligned, constants, image, lane_address, launch


@pytest.fixture(scope="module")
def watcher(cache_dir: Path) -> Executor:
    return Executor(threads=3, cache_dir=cache_dir, races=True)


def _groups(width: int, body: str, element: int = 2) -> Assembler:
    """r1.x: lane + group * ``width``; r10: its element at c0, r12: at c1, r14: c1 itself; then ``body``."""
    a = Assembler()
    a.emit("mul.u24", "r1.x", "r48.x", width)
    a.emit("add.u", "r1.x", "r1.x", "r0.x")
    lane_address(a, 40, "r1.x", "c0.x", element)
    lane_address(a, 48, "r1.x", "c0.z", element)
    a.emit("mov.u32u32", "r14.x", "c0.z")
    a.emit("mov.u32u32", "r14.y", "c0.w")
    a.parse(body)
    a.emit("end")
    return a


def _launch(watcher: Executor, a: Assembler, groups: int = 3, **changes: Any) -> None:
    """Runs with two buffers."""
    memory = Memory()
    addresses = [memory.add(aligned((2048,), "uint32")) for _ in range(2)]
    watcher.run(launch(a.program(), constants(*addresses), groups=(groups, 1, 1), **changes), memory)


def test_two_writers(watcher: Executor) -> None:
    """Groups overlap in 16 lanes; both instructions, both groups, the place and the count are told."""
    a = _groups(48, "stg.u32 g[r10.x], r0.x, 1")
    target = aligned((256,), "uint32")
    memory = Memory()
    address = memory.add(target)
    with pytest.raises(RaceError) as info:
        watcher.run(launch(a.program(), constants(address, address), groups=(3, 1, 1)), memory)
    pc = 12
    store, place = f"instruction {pc} (stg.u32 g[r10.x], r0.x, 1)", address + 192
    assert str(info.value) == (
        f"race at {place:#x}, byte 192 of array 0: {store} of workgroup (1, 0, 0) writes what {store} of "
        "workgroup (0, 0, 0) wrote in the same launch (32 such accesses in all); nothing orders "
        "workgroups: let each have memory of its own, use atomics, or two launches"
    )
    facts = {"address": place, "pcs": (pc, pc), "groups": ((0, 0, 0), (1, 0, 0)), "count": 32}
    assert info.value.facts == facts
    expected = np.zeros(256, np.uint32)
    for group in range(3):
        expected[48 * group : 48 * group + 64] = np.arange(64)
    assert np.array_equal(target, expected)


ADD = "atomic.g.add.untyped.1d.u32.1.g r3.x, r14.x, r0.x"
STORE, LOAD = "stg.u32 g[r10.x], r0.x, 1", "ldg.u32 r3.x, g[r12.x], 1"
RACES = {
    "read of what was written": (-256, f"{STORE}\n{LOAD}", "reads", "wrote"),
    "write of what was read": (256, f"{LOAD}\n{STORE}", "writes", "read"),
    "atomic on what was written": (0, f"{ADD}\nstg.u32 g[r14.x], r0.x, 1", "changes", "wrote"),
    "read of what atomics change": (0, f"ldg.u32 r3.x, g[r14.x], 1\n{ADD}", "reads", "changed"),
}


@pytest.mark.parametrize("name", RACES)
def test_kinds_of_races(watcher: Executor, name: str) -> None:
    apart, body, verb, done = RACES[name]
    memory = Memory()
    address = memory.add(aligned((512,), "uint32")) + 256
    dispatch = launch(_groups(64, body).program(), constants(address, address + apart), groups=(3, 1, 1))
    with pytest.raises(RaceError, match=rf"of workgroup \(1, 0, 0\) {verb} what .* \(0, 0, 0\) {done} in"):
        watcher.run(dispatch, memory)


def test_a_groups_own_read_does_not_hide_another_groups(watcher: Executor) -> None:
    """All read a word; the last of them reads it and then writes it."""
    a = Assembler()
    a.emit("mov.u32u32", "r14.x", "c0.x")
    a.emit("mov.u32u32", "r14.y", "c0.y")
    a.parse("ldg.u32 r3.x, g[r14.x], 1")
    a.emit("cmps.u.ne", "p0.x", "r48.x", 2)
    a.emit("br", "p0.x", "out")
    a.parse("stg.u32 g[r14.x], r0.x, 1")
    a.label("out")
    a.emit("end", jp=True)
    target = aligned((64,), "uint32")
    memory = Memory()
    address = memory.add(target)
    with pytest.raises(RaceError, match=r"workgroup \(2, 0, 0\) writes what .* \(1, 0, 0\) read in"):
        watcher.run(launch(a.program(), constants(address), groups=(3, 1, 1)), memory)
    watcher.run(launch(a.program(), constants(address), groups=(1, 1, 1)), memory)


CLEAN = {
    "disjoint": (64, "stg.u32 g[r10.x], r0.x, 1\nldg.u32 r3.x, g[r10.x], 1\nstg.u32 g[r10.x], r3.x, 1"),
    "read by all": (64, "ldg.u32 r3.x, g[r14.x], 1\nstg.u32 g[r10.x], r3.x, 1"),
    "atomics": (64, f"{ADD}\nstg.u32 g[r10.x], r3.x, 1"),
}


@pytest.mark.parametrize("name", CLEAN)
def test_near_misses(watcher: Executor, name: str) -> None:
    width, body = CLEAN[name]
    _launch(watcher, _groups(width, body))
    _launch(watcher, _groups(width, body), thread128=True, local_size=(64, 1, 1))


def test_one_group_cannot_race(watcher: Executor) -> None:
    """Not with itself, nor with the launch before."""
    a = _groups(0, "stg.u32 g[r14.x], r0.x, 1\nldg.u32 r3.x, g[r14.x], 1\nstg.u32 g[r10.x], r3.x, 1")
    for _ in range(2):
        _launch(watcher, a, groups=1)


def test_bytes_beside_each_other(watcher: Executor) -> None:
    """Neighbours in a word are not a race; where one byte is common, they are."""
    memory = Memory()
    address = memory.add(aligned((512,), "uint8"))
    for width, races in ((65, 0), (64, 0), (63, 2)):
        a = _groups(width, "cov.u32u16 hr1.x, r0.x\nstg.u8 g[r10.x], hr1.x, 1", element=0)
        dispatch = launch(a.program(), constants(address, address), groups=(3, 1, 1))
        if not races:
            watcher.run(dispatch, memory)
            continue
        with pytest.raises(RaceError, match=r"byte 63 of array 0: .* \(2 such") as info:
            watcher.run(dispatch, memory)
        assert info.value.facts["address"] == address + 63


@pytest.mark.parametrize(("shared", "verb"), [(False, ""), (True, "reads")])
def test_images(watcher: Executor, shared: bool, verb: str) -> None:
    """Each group stores texels of its own row, and reads one of its own or of another's."""
    a = Assembler()
    a.emit("mov.u32u32", "r1.x", "r0.x")
    a.emit("mov.u32u32", "r1.y", "r48.x")
    a.parse("stib.b.typed.2d.f32.4.imm r0.x, r1.x, 0")
    if shared:
        a.emit("mov.u32u32", "r1.y", 0)
    a.parse("isam.1d (f32)(xyzw)r4.x, r1.x, s#0, t#0")
    a.emit("end")
    texture = aligned((4, 64, 4), "float32")
    memory = Memory()
    memory.add(texture)
    bound = (image(texture, Format.RGBA32_FLOAT),)
    dispatch = launch(a.program(), groups=(4, 1, 1), textures=bound, images=bound)
    if not shared:
        watcher.run(dispatch, memory)
        return
    with pytest.raises(
        RaceError, match=r"\(isam.* of workgroup \(1, 0, 0\) reads what .*\(stib.* \(0, 0, 0\)"
    ):
        watcher.run(dispatch, memory)


SAMPLES = {
    "saml (f32)(xyzw)r4.x, r2.x, r3.x, s#{}, t#0": 1,
    "samgq (f32)(xyzw)r4.x, r2.x, s#{}, t#0": 1,
    "gather4r (f32)(xyzw)r4.x, r2.x, s#{}, t#0": 2,
    "isaml (f32)(xyzw)r4.x, r1.x, r7.w, s#{}, t#0": 1,
}
"""Instructions, and how many rows of texels they read: with sampler 0, which takes the nearest one."""


@pytest.mark.parametrize("text", SAMPLES)
@pytest.mark.parametrize("linear", [False, True])
def test_texels_of_samplers(watcher: Executor, text: str, linear: bool) -> None:
    """Each group stores texels of its own row, or of every second, and samples the start of its own.

    Only texels that a sampler takes count: the next row does where a mix or a gather has it.
    """
    sampler = Sampler(unnormalized=True, magnified=linear, minified=linear, wraps=(Wrap.CLAMP_TO_EDGE,) * 3)
    rows = max(SAMPLES[text], 2 if linear and not text.startswith("isaml") else 1)
    for apart in (1, 2):
        a = Assembler()
        a.emit("mov.u32u32", "r1.x", "r0.x")
        a.emit("mul.u24", "r1.y", "r48.x", apart)
        a.parse("stib.b.typed.2d.f32.4.imm r0.x, r1.x, 0")
        a.parse("cov.u32f32 r2.x, r1.x\ncov.u32f32 r2.y, r1.y\nmov.u32u32 r8.x, 0x3f400000")
        a.parse("add.f r2.x, r2.x, (0.5)\nadd.f r2.y, r2.y, r8.x")
        for register in ("r2.z", "r2.w", "r3.x", "r3.y", "r3.z", "r3.w", "r7.w"):
            a.emit("mov.u32u32", register, 0)
        a.parse(text.format(0))
        a.emit("end")
        texture = aligned((8, 64, 4), "float32")
        memory = Memory()
        memory.add(texture)
        bound = (image(texture, Format.RGBA32_FLOAT),)
        dispatch = launch(a.program(), groups=(3, 1, 1), textures=bound, images=bound, samplers=(sampler,))
        if rows <= apart:
            watcher.run(dispatch, memory)
            continue
        name = text.split()[0]
        with pytest.raises(RaceError, match=rf"\(stib.* writes what .*\({name} .*\(0, 0, 0\) read"):
            watcher.run(dispatch, memory)


def test_a_fault_is_a_fault(watcher: Executor) -> None:
    a = _groups(64, "stg.u32 g[r10.x], r0.x, 1")
    with pytest.raises(GpuFault, match=r"instruction 12 .*, lane 0: 4 bytes at 0x40 are not mapped"):
        watcher.run(launch(a.program(), constants(64, 64)), Memory())


def test_off_by_default(executor: Executor) -> None:
    a = _groups(0, "stg.u32 g[r10.x], r0.x, 1")
    _launch(executor, a)
