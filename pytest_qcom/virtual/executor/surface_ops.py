"""The runtime's accesses of images and buffers by descriptor in every form, lane by lane.

Slots come from registers, sets are bound or bindless, images have up to three coordinates. Typed accesses
convert texels; untyped ones move words of 16 or 32 bits whose coordinate counts such words from the buffer's
start (Mesa, ``lower_offset_for_ssbo``). Outside a buffer reads give zeros and writes are dropped, word by
word [inferred from robust access]; the same holds for uniform buffers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor import lanes
from pytest_qcom.virtual.executor.atomic_ops import Words
from pytest_qcom.virtual.executor.image_ops import KINDS, narrowed, widened
from pytest_qcom.virtual.executor.irgen import I1, I32, I64, PTR, VOID, Function, i32, i64
from pytest_qcom.virtual.executor.layout import (
    Fault,
    Header,
    Job,
    Status,
    Table,
    Tables,
    TextureRecord,
    UniformRecord,
    field,
)
from pytest_qcom.virtual.executor.texel_ops import QUAD, ZERO

SWIZZLED = 16
"""Bit of a read's mask of components: the descriptor's swizzle counts, as it does for textures."""


def emit(module: Any, wave: int) -> None:
    """Adds the functions for waves of ``wave`` fibers to ``module``."""
    _find(module)
    _word_address(module)
    _texel_address(module)
    for kind in KINDS:
        if kind != "u16":
            _read(module, wave, kind)
        _write(module, wave, kind)
    for bits in (16, 32):
        _read_words(module, wave, bits)
        _write_words(module, wave, bits)
    _atomic(module, wave)
    _size(module, wave)
    _uniforms(module, wave)
    _upload(module, wave)


def _find(module: Any) -> None:
    """find(w, table, slot, lane, pc): the record of a slot; null after recording why there is none."""
    f = Function(module, "find", PTR, [PTR, I32, I32, I32, I32], private=True)
    w, table, slot, lane, pc = f.args
    b = f.b
    job = f.load(PTR, w, Header.JOB, 8)
    tables = f.load(PTR, job, field(Job, "tables"), 8)
    entry = f.at(tables, b.mul(b.zext(table, I64), i64(ctypes.sizeof(Table))))
    index = b.zext(slot, I64)
    with f.when(b.icmp_unsigned(">=", index, f.load(I64, entry, field(Table, "count"), 8))):
        f.call("record", VOID, [w, i32(Fault.IMAGE_SLOT), pc, lane, index, table])
        b.ret(ir.Constant(PTR, None))
    uniform = b.icmp_signed(">=", table, i32(Tables.UNIFORMS))
    sizes = (i64(ctypes.sizeof(UniformRecord)), i64(ctypes.sizeof(TextureRecord)))
    found = f.at(f.load(PTR, entry, field(Table, "records"), 8), b.mul(index, b.select(uniform, *sizes)))
    with f.when(b.not_(uniform)):
        depth = f.load(I32, found, field(TextureRecord, "depth"), 4)
        with f.when(b.icmp_signed("==", depth, i32(0))):
            f.call("record", VOID, [w, i32(Fault.DESCRIPTOR), pc, lane, index, table])
            b.ret(ir.Constant(PTR, None))
    b.ret(found)
    f.finish()


def _word_address(module: Any) -> None:
    """word_address(record, index, unit): where word ``index`` of a buffer lies, 0 outside of it."""
    f = Function(module, "word_address", I64, [PTR, I64, I64], private=True)
    record, index, unit = f.args
    b = f.b
    width = b.zext(f.load(I32, record, field(TextureRecord, "width"), 4), I64)
    size = b.mul(width, f.load(I64, record, field(TextureRecord, "texel"), 8))
    start = b.mul(index, unit)
    fits = b.icmp_unsigned("<=", b.add(start, unit), size)
    address = b.add(f.load(I64, record, field(TextureRecord, "address"), 8), start)
    b.ret(b.select(fits, address, i64(0)))
    f.finish()


def _texel_address(module: Any) -> None:
    """texel_address(record, x, y, z, unit): where a texel lies, 0 outside; with a unit as word_address."""
    f = Function(module, "texel_address", I64, [PTR, I32, I32, I32, I64], private=True)
    record, x, y, z, unit = f.args
    with f.when(f.b.icmp_signed("!=", unit, i64(0))):
        f.b.ret(f.call("word_address", I64, [record, f.b.zext(x, I64), unit]))
    f.b.ret(f.call("place", I64, [record, x, y, z]))
    f.finish()


class Lanes:
    """The common frame: every active lane has a slot and coordinates of its own.

    Arguments of all functions begin with (w, data row, x row, y row, z row, slot row, table) and end with the
    instruction's index; ``further`` ones stand between. ``rows``: how many rows there are of coordinates.
    """

    def __init__(self, module: Any, wave: int, name: str, further: list[Any], rows: int = 3) -> None:
        self.f = f = Function(module, name, I32, [PTR, PTR, *[PTR] * rows, PTR, I32, *further, I32])
        self.w, self.data, *self.rows, self.slots, self.table = f.args[: rows + 4]
        self.further, self.pc = f.args[rows + 4 : -1], f.args[-1]
        self.wave = wave

    def run(self, body: Callable[[Any, Any, list[Any]], None]) -> None:
        """``body(lane, record, coordinates)`` for each lane; then returns."""
        f = self.f

        def lane(number: Any) -> None:
            at = f.b.mul(number, i64(4))
            slot = f.load(I32, self.slots, at, 4)
            arguments = [self.w, self.table, slot, f.b.trunc(number, I32), self.pc]
            record = f.call("find", PTR, arguments)
            with f.when(f.b.icmp_unsigned("==", f.b.ptrtoint(record, I64), i64(0))):
                f.b.ret(i32(Status.FAULT))
            body(number, record, [f.load(I32, row, at, 4) for row in self.rows])

        with lanes.active(f, self.w) as number:
            lane(number)
        f.b.ret(i32(0))
        f.finish()

    def mapped(self, record: Any, lane: Any, address: Any) -> Any:
        """Whether an address is none; a fault if it is one of an image that is not mapped as a whole."""
        f, b = self.f, self.f.b
        outside = b.icmp_signed("==", address, i64(0))
        lacks = b.icmp_signed("==", f.load(I32, record, field(TextureRecord, "mapped"), 4), i32(0))
        with f.when(b.and_(lacks, b.not_(outside))):
            base = f.load(I64, record, field(TextureRecord, "address"), 8)
            self.fault(Fault.IMAGE_MEMORY, lane, base)
        return outside

    def put(self, texel: Any, mask: Any, lane: Any, kind: str, step: int) -> None:
        """Stores the components of a texel whose bit is set, in the register's type."""
        f, b = self.f, self.f.b
        for component in range(4):
            wanted = b.icmp_signed("!=", b.and_(mask, i32(1 << component)), i32(0))
            with f.when(wanted):
                bits = narrowed(f, kind, b.extract_element(texel, i32(component)))
                f.store(bits, self.cell(component, lane, step), 0, step)

    def fault(self, kind: int, lane: Any, address: Any, size: Any = None) -> None:
        f = self.f
        size = i32(0) if size is None else size
        f.call("record", VOID, [self.w, i32(kind), self.pc, f.b.trunc(lane, I32), address, size])
        f.b.ret(i32(Status.FAULT))

    def cell(self, component: int, lane: Any, step: int) -> Any:
        """Where the register element of a component lies, ``step`` bytes long."""
        at = self.f.b.mul(lane, i64(step))
        return self.f.at(self.data, self.f.b.add(at, i64(component * self.wave * step)))


def _read(module: Any, wave: int, kind: str) -> None:
    """surface_read_*(..., mask, pc): texels; the mask has a bit a component, and SWIZZLED."""
    a = Lanes(module, wave, f"surface_read_{kind}", [I32])
    f, b, (mask,) = a.f, a.f.b, a.further
    step = KINDS[kind][1] // 8
    swizzled = b.icmp_signed("!=", b.and_(mask, i32(SWIZZLED)), i32(0))

    def read(lane: Any, record: Any, coordinates: list[Any]) -> None:
        address = f.call("place", I64, [record, *coordinates])
        outside = a.mapped(record, lane, address)
        texel = f.local(QUAD, ZERO)
        with f.when(b.not_(outside)), b.if_else(swizzled) as (turned, plain):
            with turned:
                b.store(f.call("texel", QUAD, [record, *coordinates]), texel)
            with plain:
                b.store(f.call("decode", QUAD, [record, address]), texel)
        a.put(f.get(texel, QUAD), mask, lane, kind, step)

    a.run(read)


def _write(module: Any, wave: int, kind: str) -> None:
    """surface_write_*(..., components, pc): texels; components beyond the given ones are zero."""
    a = Lanes(module, wave, f"surface_write_{kind}", [I32])
    f, b, (components,) = a.f, a.f.b, a.further
    step = KINDS[kind][1] // 8

    def write(lane: Any, record: Any, coordinates: list[Any]) -> None:
        a.mapped(record, lane, f.call("place", I64, [record, *coordinates]))
        texel: Any = ZERO
        for component in range(4):
            slot = f.local(I32, i32(0))
            with f.when(b.icmp_signed(">", components, i32(component))):
                raw = f.load(ir.IntType(8 * step), a.cell(component, lane, step), 0, step)
                b.store(widened(f, kind, raw), slot)
            texel = b.insert_element(texel, f.get(slot, I32), i32(component))
        f.call("store_texel", VOID, [record, *coordinates, texel])

    a.run(write)


def _words(a: Lanes, bits: int, move: Callable[[Any, Any, Any], None]) -> None:
    """``move(pointer or null, register cell, whether outside)`` for each word of each lane."""
    f, b, (components,) = a.f, a.f.b, a.further

    def words(lane: Any, record: Any, coordinates: list[Any]) -> None:
        first = b.zext(coordinates[0], I64)
        for component in range(4):
            with f.when(b.icmp_signed(">", components, i32(component))):
                arguments = [record, b.add(first, i64(component)), i64(bits // 8)]
                address = f.call("word_address", I64, arguments)
                outside = a.mapped(record, lane, address)
                move(b.inttoptr(address, PTR), a.cell(component, lane, bits // 8), outside)

    a.run(words)


def _read_words(module: Any, wave: int, bits: int) -> None:
    """surface_load_16, surface_load_32(..., components, pc)."""
    a = Lanes(module, wave, f"surface_load_{bits}", [I32])
    word = ir.IntType(bits)

    def read(pointer: Any, cell: Any, outside: Any) -> None:
        slot = a.f.local(word, ir.Constant(word, 0))
        with a.f.when(a.f.b.not_(outside)):
            a.f.b.store(a.f.load(word, pointer), slot)
        a.f.store(a.f.get(slot, word), cell, 0, bits // 8)

    _words(a, bits, read)


def _write_words(module: Any, wave: int, bits: int) -> None:
    """surface_store_16, surface_store_32(..., components, pc)."""
    a = Lanes(module, wave, f"surface_store_{bits}", [I32])

    def write(pointer: Any, cell: Any, outside: Any) -> None:
        with a.f.when(a.f.b.not_(outside)):
            a.f.store(a.f.load(ir.IntType(bits), cell, 0, bits // 8), pointer)

    _words(a, bits, write)


def _atomic(module: Any, wave: int) -> None:
    """surface_atomic(..., value row, compare row, operation, unit, pc): unit 0 changes texels of 32 bits.

    Outside it changes nothing and gives 0.
    """
    a = Lanes(module, wave, "surface_atomic", [PTR, PTR, I32, I64])
    f, b, (values, compares, operation, unit) = a.f, a.f.b, a.further
    words = Words(f, wave, 32)

    def change(lane: Any, record: Any, coordinates: list[Any]) -> None:
        texel = f.load(I64, record, field(TextureRecord, "texel"), 8)
        typed = b.icmp_signed("==", unit, i64(0))
        with f.when(b.and_(typed, b.icmp_signed("!=", texel, i64(4)))):
            slot = b.zext(f.load(I32, a.slots, b.mul(lane, i64(4)), 4), I64)
            a.fault(Fault.DESCRIPTOR, lane, slot, a.table)
        address = f.call("texel_address", I64, [record, *coordinates, unit])
        outside = a.mapped(record, lane, address)
        old = f.local(I32, i32(0))
        with f.when(b.not_(outside)):
            words.check(address, a.w, a.pc, lane)
            arguments = [address, operation, words.get(values, lane), words.get(compares, lane)]
            b.store(f.call("change_32", I32, arguments), old)
        words.put(f.get(old, I32), a.data, lane)

    a.run(change)


def _size(module: Any, wave: int) -> None:
    """surface_size(..., pc): width, height and depth in three rows."""
    a = Lanes(module, wave, "surface_size", [])

    def size(lane: Any, record: Any, coordinates: list[Any]) -> None:
        for component, name in enumerate(("width", "height", "depth")):
            value = a.f.load(I32, record, field(TextureRecord, name), 4)
            a.f.store(value, a.cell(component, lane, 4), 0, 4)

    a.run(size)


def _uniforms(module: Any, wave: int) -> None:
    """uniforms(..., component, components, pc): words from component ``component`` of vec4 number x on."""
    a = Lanes(module, wave, "uniforms", [I32, I32])
    f, b, (component, components) = a.f, a.f.b, a.further

    def read(lane: Any, record: Any, coordinates: list[Any]) -> None:
        base = f.load(I64, record, field(UniformRecord, "address"), 8)
        size = f.load(I64, record, field(UniformRecord, "size"), 8)
        first = b.add(b.mul(b.zext(coordinates[0], I64), i64(4)), b.zext(component, I64))
        for index in range(4):
            with f.when(b.icmp_signed(">", components, i32(index))):
                start = b.mul(b.add(first, i64(index)), i64(4))
                slot = f.local(I32, i32(0))
                with f.when(b.icmp_unsigned("<", start, size)):
                    address = b.add(base, start)
                    with f.when(b.not_(f.call("search", I1, [a.w, a.pc, address, i64(4)]))):
                        a.fault(Fault.UNIFORM_MEMORY, lane, address, i32(4))
                    b.store(f.load(I32, b.inttoptr(address, PTR)), slot)
                f.store(f.get(slot, I32), a.cell(index, lane, 4), 0, 4)

    a.run(read)


def _upload(module: Any, wave: int) -> None:
    """upload(w, x row, slot row, table, base row, vectors, pc): vec4 of the first active lane to constants.

    They come from vec4 number x of a uniform buffer on, and begin at the constant that the lane's base says.
    """
    f = Function(module, "upload", I32, [PTR, PTR, PTR, I32, PTR, I32, I32])
    w, xs, slots, table, bases, vectors, pc = f.args
    b = f.b
    lane = lanes.first(f, w, wave)
    at, lane32 = b.mul(lane, i64(4)), b.trunc(lane, I32)
    record = f.call("find", PTR, [w, table, f.load(I32, slots, at, 4), lane32, pc])
    with f.when(b.icmp_unsigned("==", b.ptrtoint(record, I64), i64(0))):
        b.ret(i32(Status.FAULT))
    file, job = f.load(PTR, w, Header.CONSTANTS, 8), f.load(PTR, w, Header.JOB, 8)
    limit = b.udiv(f.load(I64, job, field(Job, "constant_bytes"), 8), i64(4))
    first, words = b.zext(f.load(I32, bases, at, 4), I64), b.shl(b.zext(vectors, I64), i64(2))
    with f.when(b.icmp_unsigned(">", b.add(first, words), limit)):
        f.call("record", VOID, [w, i32(Fault.CONSTANT), pc, lane32, first, i32(0)])
        b.ret(i32(Status.FAULT))
    base = f.load(I64, record, field(UniformRecord, "address"), 8)
    size = f.load(I64, record, field(UniformRecord, "size"), 8)
    start = b.shl(b.zext(f.load(I32, xs, at, 4), I64), i64(4))
    with f.loop(words) as index:
        offset, slot = b.add(start, b.shl(index, i64(2))), f.local(I32)
        b.store(i32(0), slot)
        with f.when(b.icmp_unsigned("<", offset, size)):
            address = b.add(base, offset)
            with f.when(b.not_(f.call("search", I1, [w, pc, address, i64(4)]))):
                f.call("record", VOID, [w, i32(Fault.UNIFORM_MEMORY), pc, lane32, address, i32(4)])
                b.ret(i32(Status.FAULT))
            b.store(f.load(I32, b.inttoptr(address, PTR)), slot)
        f.store(f.get(slot, I32), file, b.shl(b.add(first, index), i64(2)), 4)
    b.ret(i32(0))
    f.finish()
