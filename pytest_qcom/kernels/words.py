"""Where probes have what they move and put what they find out: rows of words or halves, one a fiber."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.launch import GROUP_X, GROUP_Y, LOCAL_ID
from pytest_qcom.kernels.registers import Block
from pytest_qcom.kernels.stores import POINTER
from pytest_qcom.kernels.writer import Writer, constant_name


def emit_fiber_number(w: Writer, number: Reg, scratch: Reg, grid_width: int, threads: int) -> None:
    """``number`` = the fiber's place in the launch; workgroups of ``threads`` (a power of 2), x fastest."""
    w.mov(number, GROUP_Y)
    w.mov(scratch, grid_width)
    w.alu("mul.s24", number, number, scratch)
    w.mov(scratch, GROUP_X)
    w.alu("add.u", number, number, scratch)
    w.alu("shl.b", number, number, threads.bit_length() - 1)
    w.alu("add.u", number, number, LOCAL_ID)


def emit_word_store(w: Writer, number: Reg, words: Sequence[Reg], scratch: Block) -> None:
    """``words`` to row ``number`` of C, which is (fibers, len(words)) 32-bit words; 64-bit addresses.

    ``scratch`` are four full scalars. The offset of a row must fit 32 bits, the row the reach of a store.
    """
    _emit_row(w, number, 4 * len(words), scratch)
    for index, word in enumerate(words):
        w.emit("stg.u32", scratch[0], word, 1, offset=4 * index)


def emit_word_load(w: Writer, number: Reg, word: Reg, scratch: Block, pointer: int) -> None:
    """The fiber's word of the buffer whose address is at scalar constant ``pointer``; else as for a store."""
    _emit_row(w, number, 4, scratch, pointer)
    w.emit("ldg.u32", word, scratch[0], 1)


def emit_vector_store(w: Writer, number: Reg, vectors: Sequence[Reg], scratch: Block) -> None:
    """Half vec4 to row ``number`` of C, which is (fibers, 4 len(vectors)) halves; else as for words."""
    _emit_row(w, number, 8 * len(vectors), scratch)
    for index, vector in enumerate(vectors):
        w.store_half(scratch[0], vector, 8 * index)


def _emit_row(w: Writer, number: Reg, size: int, scratch: Block, pointer: int = POINTER) -> None:
    """The address of row ``number`` of a buffer, of ``size`` bytes, in the first two of ``scratch``."""
    low, high = constant_name(pointer), constant_name(pointer + 1)
    address, carry = scratch[0], scratch[2]
    w.alu("mul.s24", address, number, size)
    w.alu("add.u", address, address, low)
    w.alu("cmps.u.lt", carry, address, low)
    w.alu("add.u", address + 1, carry, high)
