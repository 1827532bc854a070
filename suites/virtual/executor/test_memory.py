"""Loads, stores, atomics, shuffles and relative operands against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_qcom.errors import GpuFault
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.virtual.executor import Executor
from suites.virtual.executor.rig import Array, Memory, aligned, constants, lane_address, launch, name

WAVES = pytest.mark.parametrize("thread128", [False, True], ids=["64", "128"])


def _random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    array = aligned(shape, dtype)
    array[...] = np.random.default_rng(seed).integers(0, 1 << 30, shape).astype(dtype)
    return array


def _copy(mnemonic: str, register: str, shift: int, count: int, stride_from: str = "r0.x") -> Assembler:
    """Lane i copies ``count`` elements at c0.x + (i << shift) to c0.z + (i << shift)."""
    a = Assembler()
    lane_address(a, 40, stride_from, "c0.x", shift)
    lane_address(a, 42, stride_from, "c0.z", shift)
    a.emit(f"ldg.{mnemonic}", register, "g[r10.x]", count)
    a.emit(f"stg.{mnemonic}", "g[r10.z]", register, count, ss=False)
    a.emit("end")
    return a


@WAVES
@pytest.mark.parametrize(
    "mnemonic,dtype,shift",
    [("u32", "uint32", 2), ("u16", "uint16", 1), ("f16", "uint16", 1), ("u8", "uint8", 0)],
)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("lanes", [1, 20, 33, 64])
def test_copies_elements(
    executor: Executor, mnemonic: str, dtype: str, shift: int, count: int, lanes: int, thread128: bool
) -> None:
    """Packed, strided and partial waves; the source ends where the last lane's elements end."""
    groups, padded = 3, 1 << (count - 1).bit_length()
    width = shift + padded.bit_length() - 1
    source, target = (_random((groups, lanes, padded), dtype, seed) for seed in (1, 2))
    before = target.copy()
    memory = Memory()
    file = constants(memory.add(source), memory.add(target))
    a = Assembler()
    a.emit("mul.u24", "r1.x", "r48.x", lanes)
    a.emit("add.u", "r1.x", "r1.x", "r0.x")
    register = "r4.x" if mnemonic == "u32" else "hr4.x"
    for part in _copy(mnemonic, register, width, count, "r1.x").program().instrs:
        a.append(part)
    executor.run(
        launch(a.program(), file, local_size=(lanes, 1, 1), groups=(groups, 1, 1), thread128=thread128),
        memory,
    )
    assert np.array_equal(target[..., :count], source[..., :count])
    assert np.array_equal(target[..., count:], before[..., count:])


def test_gathers_and_scatters(executor: Executor) -> None:
    """Every lane has its own address; of several stores to one address the highest lane's stays."""
    rng = np.random.default_rng(3)
    index = aligned((64,), "uint32")
    index[:] = rng.integers(0, 50, 64)
    source, target = _random((64,), "uint32", 4), aligned((64,), "uint32")
    memory = Memory()
    file = constants(memory.add(index), memory.add(source), memory.add(target))
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 2)
    a.emit("ldg.u32", "r1.x", "g[r10.x]", 1)
    lane_address(a, 44, "r1.x", "c0.z", 2)
    a.emit("ldg.u32", "r1.y", "g[r11.x]", 1)
    lane_address(a, 48, "r1.x", "c1.x", 2)
    a.emit("add.u", "r1.y", "r1.y", "r0.x")
    a.emit("stg.u32", "g[r12.x]", "r1.y", 1)
    a.emit("end")
    executor.run(launch(a.program(), file), memory)
    expected = np.zeros(64, np.uint32)
    for lane in range(64):
        expected[index[lane]] = source[index[lane]] + lane
    assert np.array_equal(target, expected)


@WAVES
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_gathers_vectors(executor: Executor, count: int, thread128: bool) -> None:
    """Each lane loads ``count`` words from an address of its own, which other lanes may share."""
    lanes = 128 if thread128 else 64
    index = aligned((lanes,), "uint32")
    index[:] = np.random.default_rng(6).integers(0, 40, lanes)
    source, target = _random((40, 4), "uint32", 7), aligned((lanes, 4), "uint32")
    memory = Memory()
    file = constants(memory.add(index), memory.add(source), memory.add(target))
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 2)
    a.emit("ldg.u32", "r1.x", "g[r10.x]", 1)
    lane_address(a, 44, "r1.x", "c0.z", 4)
    a.emit("ldg.u32", "r2.x", "g[r11.x]", count)
    lane_address(a, 48, "r0.x", "c1.x", 4)
    a.emit("stg.u32", "g[r12.x]", "r2.x", count)
    a.emit("end")
    executor.run(launch(a.program(), file, thread128=thread128), memory)
    assert np.array_equal(target[:, :count], source[index, :count])
    assert not target[:, count:].any()


def test_register_offsets(executor: Executor) -> None:
    source, target = _random((256,), "uint16", 5), aligned((64,), "uint16")
    memory = Memory()
    file = constants(memory.add(source), memory.add(target))
    a = Assembler()
    for number, constant in enumerate(("c0.x", "c0.y", "c0.z", "c0.w")):
        a.emit("mov.u32u32", name(40 + number), constant)
    a.parse("ldg.a.u16 hr0.x, g[r10.x+(((r0.x<<1)+3)<<1)], 1")
    a.parse("stg.a.u16 g[r10.z+(r0.x<<1)], hr0.x, 1")
    a.emit("end")
    executor.run(launch(a.program(), file), memory)
    assert np.array_equal(target, source[2 * np.arange(64) + 3])


@WAVES
def test_local_memory_is_shared_by_the_group(executor: Executor, thread128: bool) -> None:
    """Each fiber reads what a fiber of another wave wrote before the barrier."""
    fibers = 256
    target = aligned((2, fibers), "uint32")
    memory = Memory()
    file = constants(memory.add(target))
    a = Assembler()
    a.emit("shl.b", "r1.x", "r0.x", 2)
    a.emit("mul.u24", "r1.y", "r0.x", 3)
    a.emit("add.u", "r1.y", "r1.y", "r48.x")
    a.emit("stl.u32", "l[r1.x]", "r1.y", 1)
    a.emit("bar.g")
    a.emit("sub.u", "r1.z", fibers - 1, "r0.x")
    a.emit("shl.b", "r1.w", "r1.z", 2)
    a.emit("ldl.u32", "r2.x", "l[r1.w]", 1)
    a.emit("shl.b", "r2.y", "r48.x", 8)
    a.emit("add.u", "r2.y", "r2.y", "r0.x")
    lane_address(a, 40, "r2.y", "c0.x", 2)
    a.emit("stg.u32", "g[r10.x]", "r2.x", 1)
    a.emit("end")
    changes = {"local_size": (fibers, 1, 1), "groups": (2, 1, 1), "shared_bytes": 4 * fibers}
    executor.run(launch(a.program(), file, thread128=thread128, **changes), memory)
    lanes = np.arange(fibers)[::-1]
    assert np.array_equal(target, np.stack([3 * lanes, 3 * lanes + 1]))


def test_private_memory_is_a_fiber_s_own(executor: Executor) -> None:
    target = aligned((64, 2), "uint32")
    memory = Memory()
    file = constants(memory.add(target))
    a = Assembler()
    a.emit("mov.u32u32", "r1.x", 8)
    a.emit("add.u", "r1.z", "r0.x", 7)
    a.emit("mov.u32u32", "r1.w", "r0.x")
    a.emit("stp.u32", "p[r1.x+4]", "r1.z", 2)
    a.emit("ldp.u32", "r2.x", "p[r1.x+4]", 2)
    lane_address(a, 40, "r0.x", "c0.x", 3)
    a.emit("stg.u32", "g[r10.x]", "r2.x", 2)
    a.emit("end")
    executor.run(launch(a.program(), file, private_bytes=512), memory)
    lanes = np.arange(64)
    assert np.array_equal(target, np.stack([lanes + 7, lanes], 1))


@pytest.mark.parametrize(
    "operation,expected",
    [
        ("add", 5 + sum(range(64))),
        ("max", 63),
        ("min", 0),
        ("or", 63),
        ("xor", 5),
        ("xchg", 63),
    ],
)
def test_global_atomics(executor: Executor, operation: str, expected: int) -> None:
    """Lanes take their turn in order; the old values come back."""
    word, old = aligned((1,), "uint32"), aligned((64,), "uint32")
    word[0] = 5
    memory = Memory()
    file = constants(memory.add(word), memory.add(old))
    a = Assembler()
    a.emit("mov.u32u32", "r10.x", "c0.x")
    a.emit("mov.u32u32", "r10.y", "c0.y")
    a.parse(f"atomic.g.{operation}.untyped.1d.u32.1.g r1.x, r10.x, r0.x")
    lane_address(a, 44, "r0.x", "c0.z", 2)
    a.emit("stg.u32", "g[r11.x]", "r1.x", 1)
    a.emit("end")
    executor.run(launch(a.program(), file), memory)
    assert int(word[0]) == (expected if operation != "xor" else 5 ^ int(np.bitwise_xor.reduce(np.arange(64))))
    assert int(old[0]) == 5
    if operation == "add":
        assert np.array_equal(old, 5 + np.concatenate([[0], np.cumsum(np.arange(63))]))


def test_compare_and_swap(executor: Executor) -> None:
    """The data are a pair: the new value, then the one to compare with; who finds it stores."""
    word, old = aligned((1,), "uint32"), aligned((64,), "uint32")
    memory = Memory()
    file = constants(memory.add(word), memory.add(old))
    a = Assembler()
    a.emit("mov.u32u32", "r10.x", "c0.x")
    a.emit("mov.u32u32", "r10.y", "c0.y")
    a.emit("add.u", "r2.x", "r0.x", 1)
    a.emit("mov.u32u32", "r2.y", "r0.x")
    a.parse("atomic.g.cmpxchg.untyped.1d.u32.1.g r1.x, r10.x, r2.x")
    lane_address(a, 44, "r0.x", "c0.z", 2)
    a.emit("stg.u32", "g[r11.x]", "r1.x", 1)
    a.emit("end")
    executor.run(launch(a.program(), file), memory)
    assert int(word[0]) == 64
    assert np.array_equal(old, np.arange(64))


def test_local_atomics_over_waves(executor: Executor) -> None:
    target = aligned((1,), "uint32")
    memory = Memory()
    file = constants(memory.add(target))
    a = Assembler()
    a.emit("mov.u32u32", "r1.x", 16)
    a.emit("mov.u32u32", "r1.y", 3)
    a.parse("atomic.add.untyped.1d.u32.1.l r1.z, l[r1.x], r1.y")
    a.emit("bar.g")
    a.emit("ldl.u32", "r2.x", "l[r1.x]", 1)
    a.emit("mov.u32u32", "r10.x", "c0.x")
    a.emit("mov.u32u32", "r10.y", "c0.y")
    a.emit("stg.u32", "g[r10.x]", "r2.x", 1)
    a.emit("end")
    executor.run(launch(a.program(), file, local_size=(200, 1, 1), shared_bytes=64), memory)
    assert int(target[0]) == 600


@WAVES
@pytest.mark.parametrize(
    "text,source",
    [
        ("shfl.xor.u32 r1.x, r0.x, 5", lambda i, n: i ^ 5),
        ("shfl.up.u32 r1.x, r0.x, 3", lambda i, n: np.where(i >= 3, i - 3, i)),
        ("shfl.down.u32 r1.x, r0.x, 3", lambda i, n: np.where(i + 3 < n, i + 3, i)),
        ("shfl.rdown.u32 r1.x, r0.x, 3", lambda i, n: (i + 3) % n),
        ("quad_shuffle.horiz (u32)(x)r1.x, r0.x", lambda i, n: i ^ 1),
        ("quad_shuffle.vert (u32)(x)r1.x, r0.x", lambda i, n: i ^ 2),
        ("quad_shuffle.diag (u32)(x)r1.x, r0.x", lambda i, n: i ^ 3),
        (
            "mov.u32u32 r2.x, 7\nmov.u32u32 r2.y, r0.x\nquad_shuffle.horiz (u32)(xy)r0.w, r2.x",
            lambda i, n: i ^ 1,
        ),
        ("getfiberid.u32 r1.x", lambda i, n: i),
    ],
)
def test_lanes_exchange_values(executor: Executor, text: str, source: object, thread128: bool) -> None:
    lanes = 128 if thread128 else 64
    target = aligned((lanes,), "uint32")
    memory = Memory()
    file = constants(memory.add(target))
    a = Assembler()
    a.parse(text)
    lane_address(a, 40, "r0.x", "c0.x", 2)
    a.emit("stg.u32", "g[r10.x]", "r1.x", 1)
    a.emit("end")
    executor.run(launch(a.program(), file, thread128=thread128), memory)
    assert callable(source)
    assert np.array_equal(target, source(np.arange(lanes), lanes))


def test_relative_registers_and_constants(executor: Executor) -> None:
    """a0.x differs between lanes: reads and writes of registers, reads of constants."""
    target = aligned((64, 4), "uint32")
    memory = Memory()
    file = constants(memory.add(target), 0x2_0000_0001, 0x4_0000_0003)
    a = Assembler()
    a.emit("and.b", "r1.x", "r0.x", 3)
    a.emit("cov.u32s16", "hr1.x", "r1.x")
    a.emit("mova", "a0.x", "hr1.x")
    for component in range(4):
        a.emit("mov.u32u32", name(8 + component), 100 + component)
        a.emit("mov.u32u32", name(12 + component), 0)
    a.parse("mov.u32u32 r1.y, r<a0.x + 8>")
    a.parse("mov.u32u32 r1.z, c<a0.x + 2>")
    a.parse("mov.u32u32 r<a0.x + 12>, r0.x")
    lane_address(a, 40, "r0.x", "c0.x", 4)
    a.emit("add.u", "r4.x", "r1.y", "r1.z")
    a.emit("add.u", "r4.y", "r3.x", "r3.y")
    a.emit("add.u", "r4.z", "r3.z", "r3.w")
    a.emit("mov.u32u32", "r4.w", "r3.z")
    a.emit("stg.u32", "g[r10.x]", "r4.x", 4)
    a.emit("end")
    executor.run(launch(a.program(), file), memory)
    lane = np.arange(64)
    pick = lane & 3
    expected = [
        100 + pick + np.array([1, 2, 3, 4])[pick],
        lane * (pick < 2),
        lane * (pick >= 2),
        lane * (pick == 2),
    ]
    assert np.array_equal(target, np.stack(expected, 1))


@pytest.mark.parametrize("merged", [False, True], ids=["split", "merged"])
def test_relative_half_registers(executor: Executor, merged: bool) -> None:
    """Read and written, a repeat further each time; in merged mode they are parts of full ones."""
    rng = np.random.default_rng(14)
    values = rng.integers(0, 1 << 16, 8)
    target = aligned((64, 4), "uint32")
    memory = Memory()
    a = Assembler()
    a.parse("and.b r1.x, r0.x, 3\n(rpt2)nop\ncov.u32s16 hr40.x, r1.x\n(rpt2)nop\nmova a0.x, hr40.x")
    for place, value in enumerate(values):
        a.emit("mov.u16u16", name(48 + place, half=True), int(value))
    a.parse("mov.u16u16 hr16.x, 0\n(rpt5)nop")
    a.parse("(rpt2)sel.b16 hr14.x, (r)hr<a0.x + 49>, hr12.x, hr16.x\n(rpt5)nop")  # r7.x in merged mode
    a.parse("(rpt2)mov.u16u16 hr<a0.x + 52>, (r)hr14.x\n(rpt5)nop")
    lane_address(a, 40, "r0.x", "c0.x", 4)
    for place in range(4):
        a.parse(f"cov.u16u32 {name(80 + place)}, {name(52 + place, half=True)}")
    a.emit("stg.u32", "g[r10.x]", "r20.x", 4)
    a.emit("end")
    executor.run(launch(a.program(), constants(memory.add(target)), merged=merged), memory)
    for lane, found in enumerate(target):
        file = values.copy()
        first = lane & 3
        read = file[first + 1 : first + 4]
        file = np.concatenate([file, np.zeros(4, file.dtype)])
        file[first + 4 : first + 7] = read
        assert found.tolist() == file[4:8].tolist(), lane


@pytest.mark.parametrize("merged", [False, True], ids=["split", "merged"])
def test_register_files_alias_in_merged_mode_only(executor: Executor, merged: bool) -> None:
    """hr2.x and hr2.y are the halves of r1.x, or registers of their own."""
    target, source = aligned((64, 2), "uint32"), _random((64, 2), "uint16", 9)
    memory = Memory()
    file = constants(memory.add(target), memory.add(source))
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 3)
    lane_address(a, 44, "r0.x", "c0.z", 2)
    a.emit("mov.u32u32", "r1.x", 0x12345678)
    a.emit("ldg.u16", "hr2.x", "g[r11.x]", 2)
    a.emit("mov.u16u16", "hr2.y", 0x7777)
    a.emit("mov.u32u32", "r2.x", "r1.x")
    a.emit("cov.u16u32", "r2.y", "hr2.x")
    a.emit("stg.u32", "g[r10.x]", "r2.x", 2)
    a.emit("end")
    executor.run(launch(a.program(), file, merged=merged), memory)
    expected = source[:, 0].astype(np.uint32) | 0x77770000 if merged else np.full(64, 0x12345678, np.uint32)
    assert np.array_equal(target[:, 0], expected)
    assert np.array_equal(target[:, 1], source[:, 0])


@WAVES
@pytest.mark.parametrize("base", ["", "a1.x+"])
def test_stores_to_constants(executor: Executor, thread128: bool, base: str) -> None:
    """The words of the first active fiber, for all of them; constants around stay."""
    lanes = 128 if thread128 else 64
    target = aligned((lanes, 4), "uint32")
    memory = Memory()
    file = constants(memory.add(target), *range(100, 108))
    a = Assembler()
    a.emit("mova1", "a1.x", 3)
    a.emit("add.u", "r1.x", "r0.x", 7)
    a.emit("mov.u32u32", "r1.y", "r0.x")
    a.emit("mul.u24", "r1.z", "r0.x", 3)
    a.parse("getone #elected")
    a.parse(f"stc.u32 c[{base}{5 if base else 8}], r1.x, 3")
    a.label("elected")
    a.emit("nop", jp=True)
    for component in range(4):
        a.emit("mov.u32u32", name(8 + component), f"c{(7 + component) // 4}.{'xyzw'[(7 + component) % 4]}")
    lane_address(a, 40, "r0.x", "c0.x", 4)
    a.emit("stg.u32", "g[r10.x]", "r2.x", 4)
    a.emit("end")
    executor.run(launch(a.program(), file, thread128=thread128), memory)
    kept = np.frombuffer(file, np.uint32)[7]
    assert np.array_equal(target, np.tile(np.array([kept, 7, 0, 0], np.uint32), (lanes, 1)))


def test_a_store_behind_the_constants_is_a_fault(executor: Executor) -> None:
    a = Assembler()
    a.emit("mova1", "a1.x", 8190)
    a.parse("stc.u32 c[a1.x+20], r1.x, 1")
    a.emit("end")
    with pytest.raises(
        GpuFault, match=r"lane 0: constant 8210 is outside of the constant file; correct a0\.x"
    ):
        executor.run(launch(a.program()), Memory())


@pytest.mark.parametrize("demoted", [False, True], ids=["packed", "demoted"])
def test_half_constants(executor: Executor, demoted: bool) -> None:
    """Packed halves without demotion; with it the 32-bit constant, converted by the operand's type."""
    target = aligned((64, 2), "uint16")
    memory = Memory()
    address = memory.add(target)
    scalars = np.array([address & 0xFFFFFFFF, address >> 32, 0, 0, 0, 0, 0, 0], np.uint32)
    scalars[6] = (
        np.float32(1.5).view(np.uint32) if demoted else 0x3E00_0007
    )  # c1.z: hc1.z, or hc3.x and hc3.y
    scalars[7] = 0x00010005
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 2)
    a.emit("mov.f16f16", "hr0.z", "(1.0)")
    a.emit("add.f", "hr0.x", "hr0.z", "hc1.z" if demoted else "hc3.y")
    a.emit("add.u", "hr0.y", "hr0.w", "hc1.w" if demoted else "hc3.x")
    a.emit("stg.u16", "g[r10.x]", "hr0.x", 2)
    a.emit("end")
    executor.run(launch(a.program(), scalars.tobytes(), constant_demotion=demoted), memory)
    assert set(target[:, 0].view(np.float16)) == {2.5}
    assert set(target[:, 1]) == ({5} if demoted else {7})


@WAVES
def test_system_values(executor: Executor, thread128: bool) -> None:
    """Local ids run x fastest; group ids, sizes and offsets arrive where the launch wants them."""
    local, groups = (4, 6, 5), (2, 3, 2)
    fibers = 120
    target = aligned((12, fibers, 8), "uint32")
    memory = Memory()
    file = constants(memory.add(target))
    a = Assembler()
    a.emit("mul.u24", "r5.x", "r48.z", 3)
    a.emit("add.u", "r5.x", "r5.x", "r48.y")
    a.emit("mul.u24", "r5.x", "r5.x", 2)
    a.emit("add.u", "r5.x", "r5.x", "r48.x")
    a.emit("mul.u24", "r5.x", "r5.x", fibers)
    a.emit("add.u", "r5.x", "r5.x", "r4.x")
    lane_address(a, 40, "r5.x", "c0.x", 5)
    a.emit("mov.u32u32", "r0.w", "r48.w")
    a.emit("mov.u32u32", "r1.x", "r49.y")
    a.emit("mov.u32u32", "r1.y", "r50.x")
    a.emit("mov.u32u32", "r1.z", "r50.y")
    a.emit("mov.u32u32", "r1.w", "r4.x")
    a.emit("stg.u32", "g[r10.x]", "r0.x", 4)
    a.emit("stg.u32", "g[r10.x+16]", "r1.x", 4)
    a.emit("end")
    dispatch = launch(
        a.program(), file, local_size=local, groups=groups, thread128=thread128, local_size_regid=195,
        group_offset_regid=199, linear_local_id_regid=16,
    )  # fmt: skip
    executor.run(dispatch, memory)
    lane = np.arange(fibers)
    for group in range(12):
        y, z = group // 2 % 3, group // 6
        want = [lane % 4, lane // 4 % 6, lane // 24, 4, 5, 6 * y, 5 * z, lane]
        assert np.array_equal(
            target[group], np.stack([np.broadcast_to(np.asarray(w), fibers) for w in want], 1)
        ), group
