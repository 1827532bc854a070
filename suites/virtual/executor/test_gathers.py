"""Loads from every kind of addresses that lanes can have, against numpy: read at once, or one by one."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from pytest_qcom.virtual.executor import Executor
from suites.virtual.executor.rig import Array, Memory, aligned, constants, lane_address, launch, name

LANES, ELEMENTS = 64, 1024
TYPES = {"u8": "uint8", "u16": "uint16", "u32": "uint32"}
MARK = 0x5A


def _patterns(rng: np.random.Generator) -> dict[str, Array]:
    """Numbers of the first element that each lane reads, counted in what a lane reads."""
    lane = np.arange(LANES)
    few = rng.integers(0, ELEMENTS // 8, LANES)
    lies: dict[str, Array] = {
        "one": np.full(LANES, few[0]),
        "line": few[0] + lane,
        "rows": few[lane % 8],
        "columns": few[lane // 8],
        "runs": few[lane // 4],
        "tile": 8 * few[lane // 8] + lane % 8,
        "anywhere": few,
    }
    for way in ("one", "line", "rows", "columns"):  # but for one lane
        lies[f"nearly {way}"] = np.where(lane == rng.integers(1, LANES), few[1], lies[way])
    return lies


def _masks(rng: np.random.Generator) -> dict[str, Array]:
    lane = np.arange(LANES)
    return {
        "all": np.ones(LANES, bool),
        "some": rng.random(LANES) < 0.6,
        "late": lane >= 41,
        "single": lane == rng.integers(LANES),
    }


def _program(kind: str, count: int, local: int) -> Program:
    """Lane i reads from the address at c0.x[i] where c0.z[i] says so, and stores what it has at c1.x[i].

    Args:
        local: words at c1.z that a lane copies to local memory first, where addresses are then.
    """
    a = Assembler()
    for base, constant, shift in ((40, "c0.x", 3), (44, "c0.z", 2), (48, "c1.x", 4)):
        lane_address(a, base, "r0.x", constant, shift)
    if local:
        lane_address(a, 52, "r0.x", "c1.z", 4)
        a.emit("shl.b", "r3.x", "r0.x", 4)
        for _ in range(local // 4):
            a.emit("ldg.u32", "r4.x", "g[r13.x]", 4)
            a.emit("stl.u32", "l[r3.x]", "r4.x", 4)
            for register in ("r3.x", "r13.x", "r3.x", "r13.x"):
                a.emit("add.u", register, register, 8 * LANES)
        a.emit("bar.g")
    a.emit("ldg.u32", "r2.x", "g[r10.x]", 2)
    a.emit("ldg.u32", "r2.z", "g[r11.x]", 1)
    for component in range(4):
        a.emit("mov.u32u32", name(16 + component), MARK)
        a.emit("mov.u16u16", name(16 + component, half=True), MARK)
    a.emit("cmps.u.eq", "p0.x", "r2.z", 0)
    a.emit("br", "p0.x", "skip")
    half = kind != "u32"
    where = "l[r2.x]" if local else "g[r2.x]"
    a.emit(f"{'ldl' if local else 'ldg'}.{kind}", name(16, half), where, count)
    a.label("skip")
    for component in range(4 if half else 0):
        a.emit("cov.u16u32", name(16 + component), name(16 + component, half=True))
    a.emit("stg.u32", "g[r12.x]", "r4.x", 4, jp=True)
    a.emit("end")
    return a.program()


def _run(
    executor: Executor, program: Program, addresses: Array, active: Array, memory: Memory, **launched: int
) -> Array:
    table, flags, target = (aligned((LANES, n), "uint32") for n in (2, 1, 4))
    table.view("uint64")[:, 0], flags[:, 0] = addresses, active
    source = launched.pop("source", 0)
    file = constants(memory.add(table), memory.add(flags), memory.add(target), source)
    executor.run(launch(program, file, **launched), memory)
    return target


@pytest.mark.parametrize("portable_code", [False, True], ids=["host", "portable"])
@pytest.mark.parametrize("space", ["global", "local"])
@pytest.mark.parametrize("kind", TYPES)
def test_loads_from_wherever_lanes_point(
    executor: Executor, portable: Executor, kind: str, space: str, portable_code: bool
) -> None:
    rng = np.random.default_rng(11)
    size = np.dtype(TYPES[kind]).itemsize
    source = aligned((ELEMENTS * 4 * size // 4,), "uint32")
    source[:] = rng.integers(0, 1 << 32, source.shape, np.uint64)
    local = len(source) // LANES if space == "local" else 0
    for count in range(1, 5):
        program = _program(kind, count, local)
        for lies, pattern in _patterns(rng).items():
            first = pattern * count
            for active, mask in _masks(rng).items():
                memory = Memory()
                start = memory.add(source)
                addresses = first * size + (0 if local else start)
                got = _run(
                    portable if portable_code else executor, program, addresses, mask, memory,
                    source=start, shared_bytes=4 * len(source) if local else 0,
                )  # fmt: skip
                want = np.full((LANES, 4), MARK)
                elements = source.view(TYPES[kind])[first[:, None] + np.arange(count)]
                want[mask, :count] = elements[mask]
                assert np.array_equal(got, want), f"{count} x {kind} of {lies}, {active} active"


def _placed(memory: Memory, address: int, words: Array) -> None:
    """Maps a buffer that holds ``words`` at an address of the test's choice."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE
    arguments = ctypes.c_void_p(address), ctypes.c_size_t(words.nbytes), 3, flags, -1, ctypes.c_long(0)
    assert libc.mmap(*arguments) == address
    array: Array = np.ctypeslib.as_array((ctypes.c_uint32 * len(words)).from_address(address))
    array[:] = words
    memory.add(array)


@pytest.mark.parametrize(
    "starts",
    [(0x5_FFFF_8000,), (0x8_0000_0000, 0xA_0000_0000), (0xC_0000_0000, 0xC_FFFF_0000)],
    ids=["border", "far", "ends"],
)
def test_loads_where_high_halves_differ(executor: Executor, starts: tuple[int, ...]) -> None:
    """A buffer across a multiple of 4 GiB; two far apart; two whose ends seem in line by their low halves."""
    rng = np.random.default_rng(12)
    memory, lane = Memory(), np.arange(LANES)
    words = [rng.integers(0, 1 << 32, 1 << 14, np.uint64).astype(np.uint32) for _ in starts]
    for start, content in zip(starts, words, strict=True):
        _placed(memory, start, content)
    quads = np.concatenate(words).reshape(-1, 4)
    half = len(quads) // 2
    choices = [
        half - 20 + lane,
        rng.integers(0, 2 * half, LANES),
        half + rng.integers(-half, half, 8)[lane % 8],
    ]
    choices += [half * (lane % 2), (2 * half - 20 + lane) % (2 * half)]
    where = np.concatenate([start + np.arange(0, 1 << 16, 16) for start in starts])
    program = _program("u32", 4, 0)
    for mask in _masks(rng).values():
        for picks in choices:
            got = _run(executor, program, where[picks], mask, Memory(list(memory.arrays)))
            assert np.array_equal(got, np.where(mask[:, None], quads[picks], MARK))
