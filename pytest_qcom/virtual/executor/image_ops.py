"""The runtime's accesses of images in fixed slots by x and y, of all lanes at once where they are neighbours.

A texel read as f16 is flushed like any f16 result [undocumented]; read as f32 it is exact.
"""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.dispatch import Format
from pytest_qcom.virtual.executor import lanes
from pytest_qcom.virtual.executor.irgen import (
    FLOAT,
    HALF,
    I1,
    I16,
    I32,
    I64,
    PTR,
    VOID,
    Function,
    i32,
    i64,
)
from pytest_qcom.virtual.executor.layout import CHUNK, Fault, Header, Job, Status, TextureRecord, field
from pytest_qcom.virtual.executor.texel_ops import QUAD, ZERO, inside
from pytest_qcom.virtual.executor.vectors import planes

KINDS = {"f32": (FLOAT, 32), "f16": (HALF, 16), "i16": (I16, 16), "u16": (I16, 16)}
"""Register types of texels by name: ``f32`` stands for every 32-bit type, and in reads ``i16`` for both
integer ones; in stores it is extended with its sign, ``u16`` with zeros."""

_WORDS = (Format.RGBA32_FLOAT, Format.RGBA32_UINT, Format.RGBA32_SINT)


def emit(module: Any, wave: int) -> None:
    """Adds the image functions for waves of ``wave`` fibers to ``module``."""
    for kind in KINDS:
        if kind != "u16":
            _read(module, wave, f"isam_{kind}", "texture", kind)
            _read(module, wave, f"ldib_{kind}", "image", kind)
        _write(module, wave, kind)


class _Access:
    """The common frame of image accesses: the descriptor, and the coordinates of the active lanes."""

    def __init__(self, module: Any, wave: int, name: str, table: str, kind: str) -> None:
        self.f = f = Function(module, name, I32, [PTR, PTR, PTR, PTR, I32, I32, I32])
        self.w, self.data, self.x, self.y, slot, self.components, self.pc = f.args
        self.wave, self.kind = wave, kind
        self.element, bits = KINDS[kind]
        self.step = bits // 8
        job = f.load(PTR, self.w, Header.JOB, 8)
        count = f.load(I64, job, field(Job, f"{table}_count"), 8)
        index = f.b.zext(slot, I64)
        with f.when(f.b.icmp_unsigned(">=", index, count)):
            f.call("record", VOID, [self.w, i32(Fault.IMAGE_SLOT), self.pc, i32(0), index, i32(0)])
            f.b.ret(i32(Status.FAULT))
        records = f.load(PTR, job, field(Job, f"{table}s"), 8)
        self.record = f.at(records, f.b.mul(index, i64(ctypes.sizeof(TextureRecord))))
        self.mapped = f.b.icmp_signed("!=", self._int("mapped"), i32(0))

    def _int(self, name: str) -> Any:
        return self.f.load(I32, self.record, field(TextureRecord, name), 4)

    def coordinates(self, lane: Any) -> tuple[Any, Any]:
        at = self.f.b.mul(lane, i64(4))
        return self.f.load(I32, self.x, at, 4), self.f.load(I32, self.y, at, 4)

    def check(self, lane: Any, x: Any, y: Any) -> None:
        """Records a fault when the texel is part of the image but the image is not mapped."""
        f = self.f
        bad = f.b.and_(f.b.not_(self.mapped), inside(f, self.record, x, y))
        with f.when(bad):
            base = f.load(I64, self.record, field(TextureRecord, "address"), 8)
            lane32 = f.b.trunc(lane, I32)
            f.call("record", VOID, [self.w, i32(Fault.IMAGE_MEMORY), self.pc, lane32, base, i32(0)])
            f.b.ret(i32(Status.FAULT))

    def cell(self, component: int, lane: Any) -> Any:
        at = self.f.b.mul(lane, i64(self.step))
        return self.f.at(self.data, self.f.b.add(at, i64(component * self.wave * self.step)))


def _read(module: Any, wave: int, name: str, table: str, kind: str) -> None:
    """isam_*, ldib_*(w, destination row, x row, y row, slot, component mask, pc)."""
    a = _Access(module, wave, name, table, kind)
    f, b = a.f, a.f.b
    plain = b.and_(a.mapped, b.icmp_signed("!=", a._int("plain"), i32(0)))
    all_components = b.icmp_signed("==", a.components, i32(15))
    quick = b.and_(plain, all_components)
    before = _Before(f)
    with lanes.chunks(f, a.w) as (mask, first):
        done = f.local(I1, ir.Constant(I1, 0))
        with f.when(b.and_(quick, b.icmp_signed("==", mask, i32(-1)))):
            _quick_read(a, first, done, before)
        with f.lanes(b.select(f.get(done, I1), i32(0), mask)) as bit:
            lane = b.add(bit, first)
            x, y = a.coordinates(lane)
            a.check(lane, x, y)
            texel = f.call("texel", QUAD, [a.record, x, y, i32(0)])
            for component in range(4):
                wanted = b.icmp_signed("!=", b.and_(a.components, i32(1 << component)), i32(0))
                with f.when(wanted):
                    value = narrowed(f, a.kind, b.extract_element(texel, i32(component)))
                    f.store(value, a.cell(component, lane), 0, a.step)
    b.ret(i32(0))
    f.finish()


def narrowed(f: Function, kind: str, bits: Any) -> Any:
    """A component, 32 bits as texel gives them, in the register's type."""
    if kind == "f32":
        return bits
    if kind == "i16":
        return f.b.trunc(bits, I16)
    return _flushed(f, f.b.bitcast(f.b.fptrunc(f.b.bitcast(bits, FLOAT), HALF), I16))


def _flushed(f: Function, bits: Any) -> Any:
    """f16 bits, scalar or vector, without subnormals."""

    def constant(value: int) -> Any:
        if isinstance(bits.type, ir.VectorType):
            return ir.Constant(bits.type, [value] * bits.type.count)
        return ir.Constant(I16, value)

    tiny = f.b.icmp_unsigned("==", f.b.and_(bits, constant(0x7C00)), constant(0))
    return f.b.select(tiny, f.b.and_(bits, constant(0x8000)), bits)


def _quick_read(a: _Access, first: Any, done: Any, before: _Before) -> None:
    """A full chunk in one row of the image: one texel for all lanes, or consecutive ones.

    GEMM kernels read the same texels in every chunk of a wave: what an earlier chunk got is then copied.
    """
    f, b = a.f, a.f.b
    vec = ir.VectorType(I32, CHUNK)
    x0, y0 = a.coordinates(first)
    at = b.mul(first, i64(4))
    xs, ys = f.load(vec, a.x, at, 64), f.load(vec, a.y, at, 64)
    first_x = f.broadcast(x0, CHUNK)
    iota = ir.Constant(vec, list(range(CHUNK)))

    def all_equal(left: Any, right: Any) -> Any:
        return b.icmp_signed("==", b.bitcast(b.icmp_signed("==", left, right), I32), i32(-1))

    row = all_equal(ys, f.broadcast(y0, CHUNK))
    same, line = all_equal(xs, first_x), all_equal(xs, b.add(first_x, iota))
    last = b.add(x0, b.select(same, i32(0), i32(CHUNK - 1)))
    valid = b.and_(inside(f, a.record, x0, y0), b.icmp_unsigned("<", last, a._int("width")))
    valid = b.and_(valid, b.icmp_unsigned("<=", x0, last))
    good = b.and_(b.and_(row, valid), b.or_(same, line))
    with f.when(good):
        again = b.and_(b.icmp_signed("==", x0, before.get("x")), b.icmp_signed("==", y0, before.get("y")))
        again = b.and_(again, b.icmp_signed("==", b.zext(same, I32), before.get("same")))
        with b.if_else(again) as (copy, fresh):
            with copy:
                _copy(a, b.zext(before.get("first"), I64), first)
                b.store(ir.Constant(I1, 1), done)
            with fresh:
                for layout in (I16, I32):
                    if (layout is I32 and a.kind != "f32") or (layout is I16 and a.kind == "i16"):
                        continue
                    with f.when(_holds(a, layout)):
                        place = f.call("place", I64, [a.record, x0, y0, i32(0)])
                        pointer = b.inttoptr(place, PTR)
                        _fetch(a, first, pointer, layout, same)
                        b.store(ir.Constant(I1, 1), done)
                        seen = {"x": x0, "y": y0, "same": b.zext(same, I32), "first": b.trunc(first, I32)}
                        for name, value in seen.items():
                            before.set(name, value)


class _Before:
    """Which texels an earlier chunk read the quick way, and the chunk's first lane."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.slots = {name: f.local(I32, i32(0)) for name in ("x", "y", "first")}
        self.slots["same"] = f.local(I32, i32(-1))

    def get(self, name: str) -> Any:
        return self.f.get(self.slots[name], I32)

    def set(self, name: str, value: Any) -> None:
        self.f.b.store(value, self.slots[name])


def _copy(a: _Access, source: Any, first: Any) -> None:
    ty = ir.VectorType(ir.IntType(8 * a.step), CHUNK)
    for component in range(4):
        value = a.f.load(ty, a.cell(component, source), 0, 32)
        a.f.store(value, a.cell(component, first), 0, 32)


def _holds(a: _Access, layout: Any) -> Any:
    """Whether the image's components are 16 or 32 bits long as ``layout`` is."""
    b, form = a.f.b, a._int("format")
    matches = ir.Constant(I1, 0)
    for word in (Format.RGBA16_FLOAT,) if layout is I16 else _WORDS:
        matches = b.or_(matches, b.icmp_signed("==", form, i32(word.value)))
    return matches


def _fetch(a: _Access, first: Any, pointer: Any, layout: Any, same: Any) -> None:
    """One texel into all lanes of a chunk, or as many as lanes."""
    f, b = a.f, a.f.b
    flush = layout is I16 and a.kind == "f16"
    with b.if_else(same) as (broadcast, consecutive):
        with broadcast:
            texel = f.load(ir.VectorType(layout, 4), pointer)
            texel = _flushed(f, texel) if flush else texel
            for component in range(4):
                _put(a, component, first, f.broadcast(b.extract_element(texel, i32(component)), CHUNK))
        with consecutive:
            texels = f.load(ir.VectorType(layout, 4 * CHUNK), pointer)
            for component, plane in enumerate(planes(b, texels, 4)):
                _put(a, component, first, _flushed(f, plane) if flush else plane)


def _put(a: _Access, component: int, first: Any, bits: Any) -> None:
    """Stores a chunk of a component, given as memory holds it, in the register's type."""
    b = a.f.b
    if bits.type.element.width == 16 and a.kind == "f32":
        halves = b.bitcast(bits, ir.VectorType(HALF, CHUNK))
        bits = b.fpext(halves, ir.VectorType(FLOAT, CHUNK))
    a.f.store(bits, a.cell(component, first), 0, 32)


def _write(module: Any, wave: int, kind: str) -> None:
    """stib_*(w, data row, x row, y row, slot, components, pc); components beyond the given ones are zero."""
    a = _Access(module, wave, f"stib_{kind}", "image", kind)
    f, b = a.f, a.f.b
    with lanes.active(f, a.w) as lane:
        x, y = a.coordinates(lane)
        a.check(lane, x, y)
        texel: Any = ZERO
        for component in range(4):
            slot = f.local(I32, i32(0))
            with f.when(b.icmp_signed(">", a.components, i32(component))):
                raw = f.load(ir.IntType(8 * a.step), a.cell(component, lane), 0, a.step)
                b.store(widened(f, a.kind, raw), slot)
            texel = b.insert_element(texel, f.get(slot, I32), i32(component))
        f.call("store_texel", VOID, [a.record, x, y, i32(0), texel])
    b.ret(i32(0))
    f.finish()


def widened(f: Function, kind: str, raw: Any) -> Any:
    """A register's component as the 32 bits that ``store_texel`` takes."""
    if kind == "f32":
        return raw
    if kind in ("i16", "u16"):
        return f.b.sext(raw, I32) if kind == "i16" else f.b.zext(raw, I32)
    return f.b.bitcast(f.b.fpext(f.b.bitcast(raw, HALF), FLOAT), I32)
