"""The runtime's watch for races: what it keeps of each piece of memory, and looks up at each access."""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor import lanes
from pytest_qcom.virtual.executor.address_ops import lane_address, ranges_below
from pytest_qcom.virtual.executor.irgen import I1, I32, I64, PTR, VOID, Function, i32, i64
from pytest_qcom.virtual.executor.layout import (
    Header,
    Job,
    Status,
    TextureRecord,
    UniformRecord,
    field,
)

READ, WRITE, ATOMIC = 0, 1, 2
SLOTS = ("wrote", "read", "read", "changed", "changed")
"""What a piece of memory keeps: the last writer; the last reader and the last one of another workgroup, so
that a workgroup's own reads do not hide theirs; and in the same way who changed it atomically."""

ENTRY = 8 * len(SLOTS)
PC_BITS = 24  # of a slot's word; above them is the workgroup's number plus one
_FOES = {READ: (0, 3, 4), WRITE: (0, 1, 2, 3, 4), ATOMIC: (0, 1, 2)}


def emit(module: Any, wave: int) -> None:
    """Adds the watching functions for waves of ``wave`` fibers to ``module``."""
    _raced(module)
    _shadow(module)
    _note(module)
    _watch_global(module, wave)
    _watch_image(module, wave, "texture")
    _watch_image(module, wave, "image")
    _watch_surface(module, wave)
    _watch_uniforms(module, wave)


def _raced(module: Any) -> None:
    """raced(job, address, kinds, now, before): counts a race and keeps the first."""
    f = Function(module, "raced", VOID, [PTR, I64, I64, I64, I64], private=True)
    job, address, kinds, now, before = f.args
    count = f.load(I64, job, field(Job, "races"), 8)
    f.store(f.b.add(count, i64(1)), job, field(Job, "races"), 8)
    with f.when(f.b.icmp_signed("==", count, i64(0))):
        for name, value in (("address", address), ("kinds", kinds), ("now", now), ("before", before)):
            f.store(value, job, field(Job, f"race_{name}"), 8)
    f.b.ret_void()
    f.finish()


def _shadow(module: Any) -> None:
    """shadow(job, address): what is kept for a mapped address."""
    f = Function(module, "shadow", PTR, [PTR, I64], private=True)
    job, address = f.args
    b = f.b
    table, count = ranges_below(f, job, address)
    index = b.sub(count, i64(1))
    start = f.load(I64, table, b.mul(index, i64(16)), 8)
    shadows = f.load(PTR, job, field(Job, "shadows"), 8)
    base = f.load(PTR, shadows, b.mul(index, i64(8)), 8)
    piece = b.lshr(b.sub(address, start), f.load(I64, job, field(Job, "shadow_shift"), 8))
    b.ret(f.at(base, b.mul(piece, i64(ENTRY))))
    f.finish()


def _note(module: Any) -> None:
    """note(w, address, bytes, kind, pc): one lane's access; all of it is mapped."""
    f = Function(module, "note", VOID, [PTR, I64, I64, I32, I32], private=True)
    w, address, size, kind, pc = f.args
    b = f.b
    job = f.load(PTR, w, Header.JOB, 8)
    group = b.zext(f.load(I32, w, Header.GROUP, 4), I64)
    me = b.or_(b.shl(b.add(group, i64(1)), i64(PC_BITS)), b.zext(pc, I64))
    first = f.call("shadow", PTR, [job, address])
    last = f.call("shadow", PTR, [job, b.sub(b.add(address, size), i64(1))])
    span = b.sub(b.ptrtoint(last, I64), b.ptrtoint(first, I64))
    pieces = b.add(b.udiv(span, i64(ENTRY)), i64(1))
    shift = f.load(I64, job, field(Job, "shadow_shift"), 8)
    foes = i32(0)
    for value, slots in _FOES.items():
        mask = i32(sum(1 << slot for slot in slots))
        foes = b.select(b.icmp_signed("==", kind, i32(value)), mask, foes)
    with f.loop(pieces) as index:
        entry = f.at(first, b.mul(index, i64(ENTRY)))
        place = b.add(address, b.shl(index, shift))
        for slot in range(len(SLOTS)):
            before = f.load(I64, entry, 8 * slot, 8)
            foe = b.icmp_signed("!=", b.and_(foes, i32(1 << slot)), i32(0))
            known = b.icmp_signed("!=", before, i64(0))
            with f.when(b.and_(foe, b.and_(known, _differ(f, before, me)))):
                kinds = b.or_(b.zext(kind, I64), i64(slot << 8))
                f.call("raced", VOID, [job, place, kinds, me, before])
        for value, slot in ((READ, 1), (ATOMIC, 3)):
            with f.when(b.icmp_signed("==", kind, i32(value))):
                before = f.load(I64, entry, 8 * slot, 8)
                with f.when(_differ(f, before, me)):
                    f.store(before, entry, 8 * slot + 8, 8)
                f.store(me, entry, 8 * slot, 8)
        with f.when(b.icmp_signed("==", kind, i32(WRITE))):
            f.store(me, entry, 0, 8)
    b.ret_void()
    f.finish()


def _differ(f: Function, left: Any, right: Any) -> Any:
    """Whether two accesses are of different workgroups."""
    bits = i64(PC_BITS)
    return f.b.icmp_signed("!=", f.b.lshr(left, bits), f.b.lshr(right, bits))


def _watch_global(module: Any, wave: int) -> None:
    """watch_global(w, address row, offset, bytes, kind, pc); a fault where something is not mapped."""
    f = Function(module, "watch_global", I32, [PTR, PTR, I64, I64, I32, I32])
    w, row, offset, size, kind, pc = f.args
    b = f.b
    out = f.local(ir.ArrayType(I64, wave), align=64)
    mode = f.call("addresses_global", I32, [w, row, offset, size, pc, out])
    with f.when(b.icmp_signed("<", mode, i32(0))):
        b.ret(i32(Status.FAULT))
    with lanes.active(f, w) as lane:
        f.call("note", VOID, [w, lane_address(f, out, mode, size, lane), size, kind, pc])
    b.ret(i32(0))
    f.finish()


def _watch_image(module: Any, wave: int, table: str) -> None:
    """watch_texture, watch_image(w, x row, y row, slot, kind, pc); what is not there, the access reports."""
    f = Function(module, f"watch_{table}", I32, [PTR, PTR, PTR, I32, I32, I32])
    w, xs, ys, slot, kind, pc = f.args
    b = f.b
    job = f.load(PTR, w, Header.JOB, 8)
    index = b.zext(slot, I64)
    with f.when(b.icmp_unsigned(">=", index, f.load(I64, job, field(Job, f"{table}_count"), 8))):
        b.ret(i32(0))
    step = i64(ctypes.sizeof(TextureRecord))
    record = f.at(f.load(PTR, job, field(Job, f"{table}s"), 8), b.mul(index, step))

    def get(name: str, ty: Any = I32) -> Any:
        return f.load(ty, record, field(TextureRecord, name), ty.width // 8)

    with f.when(b.icmp_signed("==", get("mapped"), i32(0))):
        b.ret(i32(0))
    size = get("texel", I64)
    with lanes.active(f, w) as lane:
        at = b.mul(lane, i64(4))
        x, y = f.load(I32, xs, at, 4), f.load(I32, ys, at, 4)
        inside = b.and_(b.icmp_unsigned("<", x, get("width")), b.icmp_unsigned("<", y, get("height")))
        with f.when(inside):
            row = b.add(get("address", I64), b.mul(b.zext(y, I64), get("pitch", I64)))
            place = b.add(row, b.mul(b.zext(x, I64), size))
            f.call("note", VOID, [w, place, size, kind, pc])
    b.ret(i32(0))
    f.finish()


def _noted(f: Function, w: Any, address: Any, size: Any, kind: Any, pc: Any) -> None:
    """Notes an access unless it is outside (address 0) or not mapped, which the access itself reports."""
    with f.when(f.b.icmp_signed("!=", address, i64(0))):
        mapped = f.call("search", I1, [w, pc, address, size])
        with f.when(mapped):
            f.call("note", VOID, [w, address, size, kind, pc])


def _each_record(f: Function, wave: int, w: Any, slots: Any, table: Any, pc: Any, body: Any) -> None:
    """``body(lane, record)`` for active lanes; ends at a slot that is not bound."""

    def lane(number: Any) -> None:
        slot = f.load(I32, slots, f.b.mul(number, i64(4)), 4)
        record = f.call("find", PTR, [w, table, slot, f.b.trunc(number, I32), pc])
        with f.when(f.b.icmp_unsigned("==", f.b.ptrtoint(record, I64), i64(0))):
            f.b.ret(i32(0))
        body(number, record)

    with lanes.active(f, w) as number:
        lane(number)
    f.b.ret(i32(0))
    f.finish()


def _watch_surface(module: Any, wave: int) -> None:
    """watch_surface(w, x, y, z, slots, table, unit, words, kind, pc): unit: bytes a word, 0 a texel."""
    f = Function(module, "watch_surface", I32, [PTR, PTR, PTR, PTR, PTR, I32, I64, I64, I32, I32])
    w, *rows, slots, table, unit, words, kind, pc = f.args
    b = f.b
    typed = b.icmp_signed("==", unit, i64(0))

    def note(lane: Any, record: Any) -> None:
        x, y, z = (f.load(I32, row, b.mul(lane, i64(4)), 4) for row in rows)
        texel = f.load(I64, record, field(TextureRecord, "texel"), 8)
        with f.loop(words) as word:
            at = b.add(x, b.trunc(word, I32))
            address = f.call("texel_address", I64, [record, at, y, z, unit])
            _noted(f, w, address, b.select(typed, texel, unit), kind, pc)

    _each_record(f, wave, w, slots, table, pc, note)


def _watch_uniforms(module: Any, wave: int) -> None:
    """watch_uniforms(w, x, slots, table, component, components, pc)."""
    f = Function(module, "watch_uniforms", I32, [PTR, PTR, PTR, I32, I32, I32, I32])
    w, row, slots, table, component, components, pc = f.args
    b = f.b

    def note(lane: Any, record: Any) -> None:
        x = b.zext(f.load(I32, row, b.mul(lane, i64(4)), 4), I64)
        base = f.load(I64, record, field(UniformRecord, "address"), 8)
        size = f.load(I64, record, field(UniformRecord, "size"), 8)
        first = b.add(b.mul(x, i64(4)), b.zext(component, I64))
        with f.loop(b.zext(components, I64)) as word:
            start = b.mul(b.add(first, word), i64(4))
            inside = b.icmp_unsigned("<", start, size)
            address = b.select(inside, b.add(base, start), i64(0))
            _noted(f, w, address, i64(4), i32(READ), pc)

    _each_record(f, wave, w, slots, table, pc, note)
