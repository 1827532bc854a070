"""Further store epilogues of the published kernels, and what stands before a store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.launch import GROUP_X, GROUP_Y, LANES, Tile, emit_multiply
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Epilogue
from pytest_qcom.kernels.stores import POINTER, RowMajor, emit_gap, stored
from pytest_qcom.kernels.writer import Writer, constant_name

_LOW, _HIGH = constant_name(POINTER), constant_name(POINTER + 1)


@dataclass(frozen=True, slots=True)
class ThreadMajor:
    """Each fiber's tile in one piece, fibers in the order of workgroups (x first) and local ids.

    C is (workgroups * threads, rows, 4 cols) halves. The plan gives ``addresses``, ``offsets``, ``row`` and
    ``col``. The local id is made again of these two, unless the plan keeps it as ``lid``; the workgroup is
    where it was, unless the plan keeps ``group_y`` and ``group_x``.

    Attributes:
        grid_width: workgroups in x.
        columns: vec4 columns that are stored, all where none is named.
    """

    grid_width: int
    columns: tuple[int, ...] = ()

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return ()

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        address, index, other = plan["addresses"][0], plan["offsets"][0], plan["offsets"][1]
        lid = plan["lid"][0] if "lid" in plan else self._local_id(w, tile, plan)
        w.mov(index, plan["group_y"][0] if "group_y" in plan else GROUP_Y)
        w.mov(other, plan["group_x"][0] if "group_x" in plan else GROUP_X)
        w.alu("mul.s24", index, index, self.grid_width)
        w.alu("add.u", index, index, other)
        w.alu("shl.b", index, index, tile.threads.bit_length() - 1)
        w.alu("add.u", index, index, lid)
        emit_multiply(w, index, index, 8 * tile.rows * tile.cols)
        w.alu("add.u", address, index, _LOW)
        w.alu("cmps.u.lt", index, address, _LOW)
        w.alu("add.u", address + 1, index, _HIGH)
        for line in range(tile.rows):
            for column in stored(self.columns, tile):
                number = line * tile.cols + column
                w.store_half(address, plan["acc"].vec(number), 8 * number)

    @staticmethod
    def _local_id(w: Writer, tile: Tile, plan: RegisterPlan) -> Reg:
        row, col = plan["row"][0], plan["col"][0]
        w.alu("shr.b", row, row, tile.rows.bit_length() - 1)
        w.alu("and.b", row, row, tile.threads // LANES - 1)
        w.alu("shl.b", row, row, LANES.bit_length() - 1)
        w.alu("and.b", col, col, LANES - 1)
        w.alu("add.u", col, col, row)
        return col


_FULL = re.compile(r"r([0-9]|[1-3][0-9]|4[0-7])\.[xyzw]")


def keeping(plan: RegisterPlan, lid: str, groups: str) -> RegisterPlan:
    """The plan that keeps the local id in a full register and workgroup y and x in two, where they are named.

    Raises:
        KernelError: other words, or registers that the plan uses.
    """
    names = [name for name in (lid, *groups.split(",")) if name]
    if not all(_FULL.fullmatch(name) for name in names) or len(names) - bool(lid) not in (0, 2):
        raise KernelError(
            f"thread-store-lid-reg is {lid or 'none'}, thread-store-group-regs {groups or 'none'}; give "
            "one of r0.x to r47.w, and two such as r36.y,r36.z"
        )
    blocks = (*(("lid",) if lid else ()), *(("group_y", "group_x") if groups else ()))
    for block, at in zip(blocks, names, strict=True):
        plan = plan.place(block, at, 1)
    return plan


def by_fiber(c: NDArray[Any], tile: Tile) -> NDArray[Any]:
    """A row-major C of shape (m, n) as :class:`ThreadMajor` stores it."""
    m, n = c.shape
    lines, columns = m // tile.group_rows, n // tile.group_columns
    tiles = c.reshape(lines, tile.threads // LANES, tile.rows, columns, tile.cols, LANES, 4)
    outer = (3, 0) if tile.swapped else (0, 3)  # workgroups are numbered by y, then x
    return tiles.transpose(*outer, 1, 5, 2, 4, 6).reshape(-1, tile.rows, 4 * tile.cols)


@dataclass(frozen=True, slots=True)
class Linear:
    """Row-major, straight from the accumulators, from one address to whose low word alone more is added.

    Where a fiber's tile crosses 4 GiB the carry is lost. The plan is that of :class:`RowMajor`.

    Attributes:
        columns: vec4 columns that are stored, all where none is named.
    """

    columns: tuple[int, ...] = ()

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return RowMajor().constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        _address(w, tile, plan, plan["row"][0], plan["col"][0])
        address, base = plan["addresses"], plan["carries"][0]
        w.mov(base, address[0])
        for row in range(tile.rows):
            for number, col in enumerate(stored(self.columns, tile)):
                if row:
                    w.alu("add.u", address[0], base, constant_name(_ROW_STEPS + row - 1))
                elif number:
                    w.mov(address[0], base)
                if col:
                    w.alu("add.u", address[0], address[0], 8 * LANES * col)
                w.store_half(address[0], plan["acc"].vec(row * tile.cols + col), 0)


_ROW_STEPS = RowMajor().constants(Tile(2, 1, 128), 0)[0][0]


@dataclass(frozen=True, slots=True)
class Single:
    """Row-major, one vector at a time, each with an address of its own: the notes' safe store.

    The plan is that of :class:`RowMajor`.

    Attributes:
        columns: vec4 columns that are stored, all where none is named.
        spaced: the slots between dependent arithmetic, which the notes' lacks: on hardware it was mostly
            invalid.
    """

    columns: tuple[int, ...] = ()
    spaced: bool = True

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return RowMajor().constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        if self.spaced:
            self._emit(w, tile, plan)
            return
        w.emit("nop", sy=True)
        with w.as_written():
            self._emit(w, tile, plan)

    def _emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        row, col, address = plan["row"][0], plan["col"][0], plan["addresses"]
        for col_index in stored(self.columns, tile):
            for line in range(tile.rows):
                if not self.spaced:  # the store before still reads its address
                    w.emit("nop", ss=True)
                w.alu("add.s", address[2], row, line)
                w.alu("add.s", address[3], col, LANES * col_index)
                _address(w, tile, plan, address[2], address[3])
                if not self.spaced:
                    w.emit("nop", ss=True)
                w.store_half(address[0], plan["acc"].vec(line * tile.cols + col_index), 0)


def _address(w: Writer, tile: Tile, plan: RegisterPlan, row: Reg, col: Reg) -> None:
    """The address of (row, column) in the first pair of ``addresses``."""
    address, offsets, carry = plan["addresses"], plan["offsets"], plan["carries"][0]
    w.alu("mul.s24", offsets[0], row, constant_name(_ROW_STEPS))
    emit_multiply(w, offsets[1], col, 8)
    w.alu("add.u", address[0], offsets[0], offsets[1])
    w.alu("add.u", address[0], address[0], _LOW)
    w.alu("cmps.u.lt", carry, address[0], _LOW)
    w.alu("add.u", address[1], carry, _HIGH)


@dataclass(frozen=True, slots=True)
class ByHand(RowMajor):
    """The store by hand with what was tried to find out why lanes were lost.

    Attributes:
        again: rows whose store is issued twice; of ``columns``, or of the first one of them alone with
            ``once``.
        repaired: rows that are staged and stored once more behind the others of a column.
        gap: idle slots before each column but the first, as :func:`~pytest_qcom.kernels.stores.emit_gap`
            has them.
    """

    again: tuple[int, ...] = ()
    once: bool = False
    repaired: tuple[int, ...] = ()
    gap: int = 0

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        self.addresses(w, tile, plan)
        for number, col in enumerate(stored(self.columns, tile)):
            if number:
                emit_gap(w, self.gap)
            again = self.again if not (self.once and number) else ()
            rows = [row for row in range(tile.rows) for _ in range(1 + (row in again))]
            self.store(w, tile, plan, rows, col)
            if self.repaired:
                self.store(w, tile, plan, self.repaired, col)


@dataclass(frozen=True, slots=True)
class Raised:
    """C begins ``rows`` rows further down; the plan's ``raised`` is one full scalar."""

    store: Epilogue
    rows: int

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return self.store.constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        row, raised = plan["row"][0], plan["raised"][0]
        w.mov(raised, self.rows)
        w.alu("add.s", row, row, raised)
        self.store.emit(w, tile, plan)


@dataclass(frozen=True, slots=True)
class Summed:
    """Four sets of accumulators, one a k of the texel, are added up before the store."""

    store: Epilogue
    sets: int = 4

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return self.store.constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        acc, size = plan["acc"], 4 * tile.rows * tile.cols
        for part in range(1, self.sets):
            for index in range(0, size, 4):
                other = acc[part * size + index]
                w.alu("add.f", acc[index], f"(r){acc[index]}", f"(r){other}", rpt=3)
        self.store.emit(w, tile, plan)


@dataclass(frozen=True, slots=True)
class Below:
    """C has a part below the other for each part of K: ``rows`` each, the plan's ``part`` says which."""

    store: Epilogue
    rows: int

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return self.store.constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        part, row = plan["part"][0], plan["row"][0]
        w.alu("shl.b", part, part, self.rows.bit_length() - 1)
        w.alu("add.s", row, row, part)
        self.store.emit(w, tile, plan)


@dataclass(frozen=True, slots=True)
class Restored:
    """Row and column come back from where the coordinates' first step saved them, in ``saved``."""

    store: Epilogue

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return self.store.constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        w.mov(plan["row"][0], plan["saved"][0])
        w.mov(plan["col"][0], plan["saved"][1])
        self.store.emit(w, tile, plan)
