"""Addresses of the store epilogues, run on numpy: every element of the tile in its place, wherever C lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_qcom.isa.instruction import Store
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.reference import Registers, execute
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.launch import LANES, Tile, emit_place
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.stores import POINTER, RowMajor, Stepped, emit_fiber_store
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.writer import Writer

FIBERS = 256
BASES = (0x1000, 0x7F12_0000_0000, 0x7F12_FFFF_F000, 0x7F12_FFFF_FFF8, 0xFFFF_FFF0, 0x1_0000_0000)


def launch(base: int, constants: dict[int, int], group: tuple[int, int]) -> Registers:
    """Registers of a workgroup at its start: local ids, group ids, the pointer and ``constants``."""
    full = np.random.default_rng(0).integers(0, 1 << 32, (256, FIBERS), dtype=np.uint32)
    full[0] = np.arange(FIBERS)
    full[4 * 51 + 3], full[4 * 52] = group
    file = np.zeros(1024, np.uint32)
    file[POINTER], file[POINTER + 1] = base & 0xFFFF_FFFF, base >> 32
    for number, value in constants.items():
        file[number] = value
    return Registers(full, np.zeros((192, FIBERS), np.uint16), file)


def stored(program: Program, registers: Registers) -> list[tuple[Any, int, Reg]]:
    """(address of each fiber, bytes of a component, first data register) of each store."""
    found = []
    for instr in program.instrs:
        if isinstance(instr.op.effect, Store):
            address, data = instr.srcs
            low, high = (registers.full[address.value + word].astype(np.uint64) for word in (0, 1))
            target = (high << np.uint64(32) | low) + np.uint64(instr["offset"])
            found.append((target, instr.type.bits // 8, data.reg))
        elif instr.op.cat in (1, 2, 3):
            execute(instr, registers)
    return found


def plan(tile: Tile, half: bool) -> RegisterPlan:
    first = RegisterPlan().place("row", "r1.x", 1).place("col", "r1.y", 1).place("scratch", "r2.x", 4)
    first = first.place("acc", "hr0.x" if half else "r12.x", 4 * tile.rows * tile.cols)
    dead = ("row", "col", "scratch")
    first = first.place("addresses", "r2.x", 2 * tile.rows, over=dead)
    return first.place("carries", "r6.x", tile.rows).place("offsets", "r0.x", 2)


@pytest.mark.parametrize("base", BASES, ids=hex)
@pytest.mark.parametrize(
    ("tile", "element"),
    [
        (Tile(4, 4, 256), 2),
        (Tile(4, 1, 256), 2),
        (Tile(8, 2, 256), 2),
        (Tile(8, 2, 256, adjacent=True), 2),
        (Tile(4, 3, 256, adjacent=True), 4),
        (Tile(4, 2, 256), 4),
    ],
    ids=str,
)
def test_row_major(base: int, tile: Tile, element: int) -> None:
    width, group = 4096, (3, 2)
    w, registers, store = Writer(), plan(tile, half=element == 2), RowMajor(element=element)
    emit_place(w, tile, registers["row"][0], registers["col"][0], registers["scratch"])
    store.emit(w, tile, registers)
    w.end()
    state = launch(base, dict(store.constants(tile, element * width)), group)
    lid = np.arange(FIBERS)
    row = group[1] * tile.group_rows + lid // LANES * tile.rows
    apart = 1 if tile.adjacent else LANES  # vec4 from one column to the next
    lane = lid % LANES * (tile.cols if tile.adjacent else 1)
    col = group[0] * LANES * tile.cols + lane
    found = stored(insert_waits(w.program()), state)
    assert len(found) == tile.rows * tile.cols
    places = {data: (target, size) for target, size, data in found}
    for line in range(tile.rows):
        for column in range(tile.cols):
            target, size = places[registers["acc"].vec(line * tile.cols + column)]
            expected = base + element * ((row + line) * width + 4 * (col + apart * column))
            assert size == element
            np.testing.assert_array_equal(target, expected.astype(np.uint64))


@pytest.mark.parametrize("base", BASES, ids=hex)
def test_fiber_order(base: int) -> None:
    w = Writer()
    scratch = RegisterPlan().place("scratch", "r1.x", 4)["scratch"]
    emit_fiber_store(w, Reg(0, half=True), scratch, grid_width=7, threads=FIBERS)
    w.end()
    ((target, size, _),) = stored(insert_waits(w.program()), launch(base, {}, (5, 1000)))
    assert size == 2
    expected = base + 8 * ((1000 * 7 + 5) * FIBERS + np.arange(FIBERS))
    np.testing.assert_array_equal(target, expected.astype(np.uint64))


@pytest.mark.parametrize("base", BASES, ids=hex)
@pytest.mark.parametrize("direct", [False, True])
def test_stepped_loses_the_carry_of_further_columns(base: int, direct: bool) -> None:
    """Column 1 lies 256 bytes on; where that crosses 4 GiB it is 4 GiB too low, unless ``direct``."""
    width, group, tile = 4096, (3, 2), Tile(8, 2, 256)
    w, registers = Writer(), plan(tile, half=True)
    registers = registers.place("stage", "hr16.x", 32).place("step", "r20.x", 1).place("carry", "r20.y", 2)
    emit_place(w, tile, registers["row"][0], registers["col"][0], registers["scratch"])
    store = Stepped(direct=direct)
    store.emit(w, tile, registers)
    w.end()
    state = launch(base, dict(store.constants(tile, 2 * width)), group)
    found = stored(insert_waits(w.program(), written=w.exact), state)
    assert len(found) == 16
    lid = np.arange(FIBERS)
    row, col = group[1] * 64 + lid // LANES * 8, group[0] * 64 + lid % LANES
    for number, (target, size, data) in enumerate(found):
        column, line = divmod(number, 8)
        first = (base + 2 * ((row + line) * width + 4 * col)).astype(np.uint64)
        low = (first + np.uint64(256 * column)) & np.uint64(0xFFFF_FFFF)
        lost = first & ~np.uint64(0xFFFF_FFFF) | low
        np.testing.assert_array_equal(target, first + np.uint64(256 * column) if direct else lost)
        assert size == 2
        source = registers["acc"].vec(line * 2 + column) if direct else registers["stage"].vec(line)
        assert data == source
