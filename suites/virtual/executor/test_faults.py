"""Accesses outside of what is mapped or declared, with their full messages; nothing else is touched."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from pytest_qcom.errors import DecodeError, GpuFault, GpuHang, LaunchError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.virtual.dispatch import Format, Image
from pytest_qcom.virtual.executor import Executor
from suites.virtual.executor.rig import Memory, aligned, constants, image, lane_address, launch


def _store(count: int = 1, lanes_apart: int = 2) -> Assembler:
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", lanes_apart)
    a.emit("stg.u32", "g[r10.x]", "r0.x", count)
    a.emit("end")
    return a


@pytest.mark.parametrize("thread128", [False, True])
def test_a_store_behind_a_buffer(executor: Executor, thread128: bool) -> None:
    """Lanes 0 to 39 fit; the fault names lane 40. Its wave has not stored anything."""
    target = aligned((40,), "uint32")
    memory = Memory()
    address = memory.add(target)
    dispatch = launch(_store().program(), constants(address), local_size=(64, 1, 1), thread128=thread128)
    with pytest.raises(GpuFault) as info:
        executor.run(dispatch, memory)
    bad = address + 160
    assert str(info.value) == (
        "GPU fault at instruction 4 (stg.u32 g[r10.x], r0.x, 1), wave 0 of workgroup (0, 0, 0), lane "
        "40: 4 bytes at "
        f"{bad:#x} are not mapped: byte 160 of array 0; correct the address"
    )
    assert info.value.facts == {"pc": 4, "wave": 0, "group": (0, 0, 0), "lane": 40, "address": bad}
    assert not target.any()


def test_the_last_bytes_of_an_access_count(executor: Executor) -> None:
    target = aligned((64 * 4 - 1,), "uint32")
    memory = Memory()
    address = memory.add(target)
    with pytest.raises(GpuFault, match=r"lane 63: 16 bytes at .* are not mapped"):
        executor.run(launch(_store(4, 4).program(), constants(address)), memory)


def test_addresses_far_away_and_above_everything(executor: Executor) -> None:
    target = aligned((64,), "uint32")
    memory = Memory()
    memory.add(target)
    for address in (0, 8, 0xFFFF_FFFF_FFFF_FF00, 0x7FFF_FFFF_FFFF_FFF0, 1 << 63):
        with pytest.raises(
            GpuFault, match=rf"lane 0: 4 bytes at {address:#x} are not mapped: far from every array"
        ):
            executor.run(launch(_store().program(), constants(address)), memory)


def test_an_unmapped_launch_has_no_memory_at_all(executor: Executor) -> None:
    with pytest.raises(GpuFault, match="lane 0: 4 bytes at 0x40 are not mapped"):
        executor.run(launch(_store().program(), constants(64)), Memory())


def test_many_ranges_are_searched(executor: Executor) -> None:
    """Every lane writes into an array of its own, all far apart."""
    arrays = [aligned((1,), "uint32") for _ in range(64)]
    pointers = aligned((64,), "uint64")
    pointers[:] = [array.ctypes.data for array in arrays]
    memory = Memory(list(arrays))
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 3)
    a.emit("ldg.u32", "r1.x", "g[r10.x]", 2)
    a.emit("stg.u32", "g[r1.x]", "r0.x", 1)
    a.emit("end")
    executor.run(launch(a.program(), constants(memory.add(pointers))), memory)
    assert [int(array[0]) for array in arrays] == list(range(64))
    del memory.arrays[17]
    with pytest.raises(GpuFault, match=rf"lane 17: 4 bytes at {arrays[17].ctypes.data:#x} are not mapped"):
        executor.run(launch(a.program(), constants(pointers.ctypes.data)), memory)


def test_inactive_lanes_cannot_fault(executor: Executor) -> None:
    target = aligned((40,), "uint32")
    memory = Memory()
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 2)
    a.emit("cmps.s.lt", "p0.x", "r0.x", 40)
    a.emit("predt")
    a.emit("stg.u32", "g[r10.x]", "r0.x", 1)
    a.emit("prede", jp=True)
    a.emit("end")
    executor.run(launch(a.program(), constants(memory.add(target))), memory)
    assert np.array_equal(target, np.arange(40))


def test_local_memory_has_an_end(executor: Executor) -> None:
    a = Assembler()
    a.emit("shl.b", "r1.x", "r0.x", 2)
    a.emit("stl.u32", "l[r1.x]", "r0.x", 1)
    a.emit("end")
    with pytest.raises(GpuFault) as info:
        executor.run(launch(a.program(), shared_bytes=128), Memory())
    assert str(info.value) == (
        "GPU fault at instruction 1 (stl.u32 l[r1.x], r0.x, 1), wave 0 of workgroup (0, 0, 0), lane "
        "32: 4 bytes at LDS "
        "address 128 are outside of the 128 bytes of local memory (LDS) that the launch declares; "
        "correct the address "
        "or declare more"
    )


def test_private_memory_has_an_end(executor: Executor) -> None:
    a = Assembler()
    a.emit("mov.u32u32", "r1.x", 0)
    a.emit("ldp.u32", "r2.x", "p[r1.x-4]", 1)
    a.emit("end")
    with pytest.raises(GpuFault) as info:
        executor.run(launch(a.program(), private_bytes=512), Memory())
    assert str(info.value) == (
        "GPU fault at instruction 1 (ldp.u32 r2.x, p[r1.x-4], 1), wave 0 of workgroup (0, 0, 0), "
        "lane 0: 4 bytes at "
        "private address -4 are outside of the 512 bytes that the launch declares for a fiber; "
        "correct the address or "
        "declare more"
    )


def _sample() -> bytes:
    a = Assembler()
    a.emit("mov.u32u32", "r0.y", 0)
    a.parse("isam.1d (f32)(xyzw)r4.x, r0.x, s#0, t#2")
    a.emit("end")
    return a.program().encode()


def test_a_texture_that_is_not_bound(executor: Executor) -> None:
    with pytest.raises(GpuFault) as info:
        executor.run(launch(_sample()), Memory())
    assert str(info.value) == (
        "GPU fault at instruction 1 (isam.1d (f32)(xyzw)r4.x, r0.x, s#0, t#2), wave 0 of workgroup "
        "(0, 0, 0), lane 0: "
        "slot 2 is not bound: the launch has 0 textures and 0 images; bind it or use another slot"
    )


def test_an_image_that_is_mapped_in_part(executor: Executor) -> None:
    texture = aligned((4, 16, 4), "float32")
    memory = Memory()
    memory.add(texture)
    good = image(texture, Format.RGBA32_FLOAT)
    larger = Image(good.address, 16, 5, good.pitch, good.format)
    executor.run(launch(_sample(), textures=(good, good, good)), memory)
    with pytest.raises(GpuFault) as info:
        executor.run(launch(_sample(), textures=(good, good, larger)), memory)
    assert str(info.value) == (
        "GPU fault at instruction 1 (isam.1d (f32)(xyzw)r4.x, r0.x, s#0, t#2), wave 0 of workgroup "
        "(0, 0, 0), lane 0: "
        f"the image at {good.address:#x} is not mapped as a whole: byte 0 of array 0; correct its descriptor"
    )


def test_what_is_not_executed_says_why(executor: Executor) -> None:
    a = Assembler()
    a.emit("kill", "p0.x")
    a.emit("end")
    with pytest.raises(GpuFault) as info:
        executor.run(launch(a.program()), Memory())
    assert str(info.value) == (
        "GPU fault at instruction 0 (kill p0.x), wave 0 of workgroup (0, 0, 0): ends fibers of "
        "fragment shaders; Mesa's compiler makes it of their discard only; the virtual A630 does not "
        "execute it"
    )


def test_registers_beyond_the_file(executor: Executor) -> None:
    a = Assembler()
    a.emit("cov.u32s16", "hr1.x", "r0.x")
    a.emit("mova", "a0.x", "hr1.x")
    a.parse("mov.u32u32 r1.x, r<a0.x + 180>")
    a.emit("end")
    with pytest.raises(
        GpuFault, match=r"lane 12: register 192 is outside of the register file; correct a0.x"
    ):
        executor.run(launch(a.program()), Memory())


def test_a_branch_out_of_the_program(executor: Executor) -> None:
    a = Assembler()
    a.label("here")
    a.emit("jump", "here")
    a.emit("end")
    words = list(struct.unpack("<16Q", a.program().encode()))
    words[0] = words[0] & ~0xFFFFFFFF | 500
    with pytest.raises(
        GpuFault, match=r"instruction 0 .*: the branch leaves the program; correct its offset"
    ):
        executor.run(launch(struct.pack("<16Q", *words)), Memory())


def test_words_that_are_no_instructions(executor: Executor) -> None:
    with pytest.raises(DecodeError, match="instruction 1 at byte 0x8"):
        executor.run(launch(struct.pack("<2Q", 0, 0x5FFF_FFFF_FFFF_FFFF)), Memory())


@pytest.mark.parametrize("entry", [2, 15])
def test_a_start_behind_the_end(executor: Executor, entry: int) -> None:
    """In the padding, from where the device would run into whatever is behind it; found by the fuzzer."""
    a = Assembler()
    a.parse("nop\nend")
    with pytest.raises(GpuHang) as info:
        executor.run(launch(a.program(), entry=entry), Memory())
    assert str(info.value) == (
        f"GPU hang at instruction {entry}: the launch starts there, behind the program's last one, 1; "
        "correct where it starts"
    )
    executor.run(launch(a.program(), entry=1), Memory())


def test_a_launch_of_nothing(executor: Executor) -> None:
    with pytest.raises(LaunchError) as info:
        executor.run(launch(_store().program(), groups=(1, 0, 1)), Memory())
    assert str(info.value) == (
        "launch of (1, 0, 1) workgroups of (64, 1, 1) fibers: every size is at least 1; correct the launch"
    )


def test_the_lowest_workgroup_that_fails_is_reported(executor: Executor) -> None:
    """Whatever thread meets its fault first."""
    target = aligned((64 * 700,), "uint32")
    memory = Memory()
    a = Assembler()
    a.emit("shl.b", "r1.x", "r48.x", 6)
    a.emit("add.u", "r1.x", "r1.x", "r0.x")
    lane_address(a, 40, "r1.x", "c0.x", 2)
    a.emit("stg.u32", "g[r10.x]", "r1.x", 1)
    a.emit("end")
    dispatch = launch(a.program(), constants(memory.add(target)), groups=(5000, 1, 1))
    for _ in range(5):
        with pytest.raises(GpuFault, match=r"wave 0 of workgroup \(700, 0, 0\), lane 0"):
            executor.run(dispatch, memory)
    assert np.array_equal(target, np.arange(64 * 700))
