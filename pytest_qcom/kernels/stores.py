"""Store epilogues: how the accumulators of a fiber reach its part of C."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.launch import GROUP_X, GROUP_Y, LANES, LOCAL_ID, Tile, emit_multiply
from pytest_qcom.kernels.registers import Block, RegisterPlan
from pytest_qcom.kernels.schedule import Epilogue
from pytest_qcom.kernels.writer import Writer, constant_name

POINTER = 80
"""c20.x and c20.y: the 64-bit address of C, where the published kernels have it."""
_ROW_STEPS = 84
"""c21.x and up: 1, 2, ... rows in bytes."""
_SMALLEST, _LARGEST = -4096, 4095  # byte offset of stg


def stored(columns: tuple[int, ...], tile: Tile) -> Sequence[int]:
    """The vec4 columns of a tile that are stored: those that are named, or all."""
    return columns or range(tile.cols)


@dataclass(frozen=True, slots=True)
class RowMajor:
    """Halves or words into a row-major C, one 64-bit address a row.

    ``low = pointer.low + offset``; the carry is ``low <u pointer.low``; ``high = pointer.high + carry``. The
    columns of a fiber lie 256 or 512 bytes apart, in reach of the store's own offset. Rows are worked on in
    turns, so that one row's result is ready when its turn comes again.

    The plan gives ``addresses`` (a full pair a row), ``carries`` (a full scalar a row) and two ``offsets``;
    all of them may lie over what is dead behind the loop, ``addresses`` and ``carries`` also over ``row`` and
    ``col``.

    Attributes:
        source: the plan's block with the vec4 of (row, column) at ``row * cols + column``.
        staging: ``""`` stores the accumulators themselves; ``"copy"`` moves each row's vector to the plan's
            ``stage`` first (one vec4 a row); ``"broadcast"`` does that with a repeated move that lacks (r),
            which puts lane x into all four: what the published kernels of the first notes did.
        element: bytes of an element of C, 2 or 4; staging is for 2.
        columns: vec4 columns of the tile that are stored, all where none is named.
    """

    source: str = "acc"
    staging: str = ""
    element: int = 2
    columns: tuple[int, ...] = ()

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        steps = range(max(1, tile.rows - 1))
        return tuple((_ROW_STEPS + step, (step + 1) * row_bytes) for step in steps)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        self.addresses(w, tile, plan)
        for col in stored(self.columns, tile):
            self.store(w, tile, plan, range(tile.rows), col)

    def store(self, w: Writer, tile: Tile, plan: RegisterPlan, rows: Sequence[int], col: int) -> None:
        """Some rows of a column, to their addresses."""
        offset = 4 * self.element * col * (1 if tile.adjacent else tile.lanes)
        if not _SMALLEST <= offset <= _LARGEST:
            raise KernelError(f"store of column {col}: {offset} bytes are beyond the offset of a store")
        sources = {row: plan[self.source].vec(row * tile.cols + col) for row in rows}
        if self.staging:
            for row, source in sources.items():
                w.copy_half(plan["stage"].vec(row), source, repeated=self.staging == "copy")
                sources[row] = plan["stage"].vec(row)
        for row in rows:
            store = w.store_half if self.element == 2 else w.store_full
            store(plan["addresses"][2 * row], sources[row], offset)

    def addresses(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        """The address of column 0 of each row."""
        rows = range(tile.rows)
        addresses, carries, offsets = plan["addresses"], plan["carries"], plan["offsets"]
        low, high = constant_name(POINTER), constant_name(POINTER + 1)
        w.alu("mul.s24", offsets[0], plan["row"][0], constant_name(_ROW_STEPS))
        unit = 4 * self.element * (tile.cols if tile.adjacent else 1)
        emit_multiply(w, offsets[1], plan["col"][0], unit)
        w.alu("add.u", addresses[0], offsets[0], offsets[1])
        for row in rows[1:]:
            w.alu("add.u", addresses[2 * row], addresses[0], constant_name(_ROW_STEPS + row - 1))
        for row in rows:
            w.alu("add.u", addresses[2 * row], addresses[2 * row], low)
        for row in rows:
            w.alu("cmps.u.lt", carries[row], addresses[2 * row], low)
        for row in rows:
            w.alu("add.u", addresses[2 * row + 1], carries[row], high)


@dataclass(frozen=True, slots=True)
class Stepped:
    """Halves into a row-major C as the published 8-row kernels store them, in their order, with their waits.

    The addresses of column 0 are those of :class:`RowMajor`, with its registers. For a further column 256
    bytes are added to the low words alone: where a row crosses 4 GiB there, the carry is lost. Repeated moves
    without (r) fill the stage, so that lane x of each vector is stored four times.

    Attributes:
        mode: idle slots between the stores of a column: ``donor`` behind rows 1 to 6, ``pairs`` behind
            rows 1, 3 and 5, ``tight`` none.
        gap: what comes before a further column: 16 was encoded as ``(ss)nop``, 8 as one idle slot; 0 none.
        direct: the accumulators are stored themselves and the step is a full 64-bit addition; the plan gives
            ``step`` and two ``carry``.
        early: the step comes before the gap and the staging.
    """

    mode: str = "donor"
    gap: int = 16
    direct: bool = False
    early: bool = False

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return RowMajor().constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        RowMajor().addresses(w, tile, plan)
        if self.direct:
            w.mov(plan["step"][0], 8 * LANES)
        with w.as_written():
            for col in range(tile.cols):
                if col:
                    self._steps(w, tile, plan, when=self.early)
                    emit_gap(w, self.gap)
                self._column(w, tile, plan, col)

    def _column(self, w: Writer, tile: Tile, plan: RegisterPlan, col: int) -> None:
        rows, addresses = range(tile.rows), plan["addresses"]
        sources = [plan["acc"].vec(row * tile.cols + col) for row in rows]
        if not self.direct:
            for row in rows:
                w.copy_half(plan["stage"].vec(row), sources[row], repeated=False)
            sources = [plan["stage"].vec(row) for row in rows]
        if not col:  # where the published code has its last address arithmetic
            w.emit("nop", rpt=5)
        else:
            self._steps(w, tile, plan, when=not self.early)
        for row in rows:
            w.store_half(addresses[2 * row], sources[row], 0)
            if row in _STORE_GAPS[self.mode]:
                w.emit("nop")

    def _steps(self, w: Writer, tile: Tile, plan: RegisterPlan, when: bool) -> None:
        for row in range(tile.rows) if when else ():
            self._step(w, plan, plan["addresses"][2 * row])

    def _step(self, w: Writer, plan: RegisterPlan, low: Reg) -> None:
        if not self.direct:
            w.alu("add.u", low, low, 8 * LANES)
            return
        old, carry = plan["carry"][0], plan["carry"][1]
        for mnemonic, *operands in (
            ("mov.u32u32", old, low),
            ("add.u", low, low, plan["step"][0]),
            ("cmps.u.lt", carry, low, old),
            ("and.b", carry, carry, 1),
            ("add.u", low + 1, low + 1, carry),
        ):
            w.emit(mnemonic, *operands)
            w.emit("nop", rpt=2)


STEP_WAIT = 16
"""The gap that waits for stores: a repeat has 3 bits, the next bit is (ss)."""
GAPS = (0, 8, STEP_WAIT)
"""Gaps of the notes that can be decoded: none, one idle slot, a wait."""


def emit_gap(w: Writer, gap: int) -> None:
    """What the notes' encoder made of an idle slot repeated ``gap`` times; one of :data:`GAPS`."""
    if gap:
        w.emit("nop", ss=gap == STEP_WAIT)


_STORE_GAPS: Mapping[str, Collection[int]] = {"donor": range(1, 7), "pairs": (1, 3, 5), "tight": ()}


@dataclass(frozen=True, slots=True)
class ImageStore:
    """Vec4 into an image of C, a texel a vec4 column; the descriptor's format converts.

    The plan gives ``at``, two full scalars for the coordinate of each store in turn, beside ``row`` and
    ``col``. A coordinate may change when (ss) says that the store has read it, so more pairs than one in
    ``at`` let stores overlap. Half accumulators are made full first, in ``texels``, four full scalars a pair.

    Attributes:
        source: the plan's block with the vec4 of (row, column) at ``row * cols + column``.
        columns: vec4 columns of the tile that are stored, all where none is named.
        gap: idle slots behind each store, :data:`STEP_WAIT` for a wait for it.
    """

    source: str = "acc"
    columns: tuple[int, ...] = ()
    gap: int = 0

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return ()

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        row, col, at = plan["row"][0], plan["col"][0], plan["at"]
        places = [(line, column) for line in range(tile.rows) for column in stored(self.columns, tile)]
        pairs = at.size // 2
        for start in range(0, len(places), pairs):
            batch = places[start : start + pairs]
            for index, (line, column) in enumerate(batch):
                w.alu("add.s", at[2 * index], col, tile.lanes * column)
                w.alu("add.s", at[2 * index + 1], row, line)
            sources = [plan[self.source].vec(line * tile.cols + column) for line, column in batch]
            for index, source in enumerate(sources):
                if source.half:
                    sources[index] = plan["texels"].vec(index)
                    w.emit("cov.f16f32", sources[index], f"(r){source}", rpt=3)
            for index, source in enumerate(sources):
                w.store_texel(source, at[2 * index])
                emit_gap(w, self.gap)


@dataclass(frozen=True, slots=True)
class Constant:
    """A store of a number in place of the accumulators: a probe of the store alone.

    Attributes:
        counted: the number of the vector, from 1 on, in halves; else 1024.
    """

    store: Epilogue
    counted: bool = False

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return self.store.constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        for index, reg in enumerate(plan["acc"]):
            if reg.half:
                w.set_half(
                    reg, int(np.float16(index // 4 + 1).view(np.uint16)) if self.counted else _THOUSAND
                )
            else:
                w.mov(reg, _THOUSAND_WORD)
        self.store.emit(w, tile, plan)


_THOUSAND = 0x6400
"""1024 as a half."""
_THOUSAND_WORD = 0x44800000
"""1024 as a float."""


@dataclass(frozen=True, slots=True)
class NoStore:
    """Nothing: the products are computed and dropped, which is what throughput probes do."""

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return ()

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        """Nothing."""


def emit_fiber_store(w: Writer, data: Reg, scratch: Block, grid_width: int, threads: int) -> None:
    """Four halves a fiber to C, in the order of the fibers: C is (groups * threads, 4), 8 bytes a fiber.

    The local id must still stand in r0.x. ``scratch`` are four full scalars; the group number times the
    workgroup size, in bytes, must fit 32 bits, and the grid width times 8 an immediate.
    """
    low, high = constant_name(POINTER), constant_name(POINTER + 1)
    address, group = scratch[0], scratch[2]
    w.mov(group, GROUP_Y)
    w.mov(scratch[3], GROUP_X)
    w.alu("mul.s24", group, group, grid_width)
    w.alu("add.u", group, group, scratch[3])
    w.alu("shl.b", group, group, (8 * threads).bit_length() - 1)
    w.alu("shl.b", scratch[3], LOCAL_ID, 3)
    w.alu("add.u", address, group, scratch[3])
    w.alu("add.u", address, address, low)
    w.alu("cmps.u.lt", group, address, low)
    w.alu("add.u", address + 1, group, high)
    w.store_half(address, data, 0)
