"""The runtime's addresses: those of all lanes computed and checked at once.

Functions take the wave state, register rows and, for fault records, an instruction index. Only active lanes
count.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor.irgen import I1, I16, I32, I64, PTR, VOID, Function, i32, i64
from pytest_qcom.virtual.executor.layout import CHUNK, Fault, Header, Job, Status, field

GATHER, UNIFORM, CONTIGUOUS = 0, 1, 2
"""How lanes' addresses lie: anywhere, all the same, or one behind the other."""

GROUP = 16
"""Lanes whose 64-bit addresses are computed at a time."""


def emit(module: Any, wave: int) -> None:
    """Adds the address functions for waves of ``wave`` fibers to ``module``."""
    _record(module)
    _search(module)
    _check_lanes(module, wave)
    _global_addresses(module, wave)
    _offset_addresses(module, wave, "local")
    _offset_addresses(module, wave, "private")


def _record(module: Any) -> None:
    """record(w, kind, pc, lane, address, size): notes a fault."""
    f = Function(module, "record", VOID, [PTR, I32, I32, I32, I64, I32])
    w, kind, pc, lane, address, size = f.args
    for value, offset in (
        (kind, Header.FAULT_KIND),
        (pc, Header.FAULT_PC),
        (lane, Header.FAULT_LANE),
        (size, Header.FAULT_SIZE),
        (address, Header.FAULT_ADDRESS),
    ):
        f.store(value, w, offset, 4)
    f.b.ret_void()
    f.finish()


def _search(module: Any) -> None:
    """search(w, address, bytes): whether it is mapped; the wave's cached range becomes that range."""
    f = Function(module, "search", I1, [PTR, I64, I64])
    w, address, size = f.args
    job = f.load(PTR, w, Header.JOB, 8)
    table = f.load(PTR, job, field(Job, "ranges"), 8)
    low, high = f.local(I64, i64(0)), f.local(I64, f.load(I64, job, field(Job, "range_count"), 8))
    head, body, tail = (f.function.append_basic_block(n) for n in ("head", "step", "tail"))
    f.b.branch(head)
    f.b.position_at_end(head)
    lo, hi = f.get(low, I64), f.get(high, I64)
    f.b.cbranch(f.b.icmp_signed("<", lo, hi), body, tail)
    f.b.position_at_end(body)
    middle = f.b.lshr(f.b.add(lo, hi), i64(1))
    start = f.load(I64, table, f.b.mul(middle, i64(16)), 8)
    right = f.b.icmp_unsigned("<=", start, address)
    f.b.store(f.b.select(right, f.b.add(middle, i64(1)), lo), low)
    f.b.store(f.b.select(right, hi, middle), high)
    f.b.branch(head)
    f.b.position_at_end(tail)
    with f.when(f.b.icmp_signed("==", f.get(low, I64), i64(0))):
        f.b.ret(ir.Constant(I1, 0))
    entry = f.b.mul(f.b.sub(f.get(low, I64), i64(1)), i64(16))
    start, end = f.load(I64, table, entry, 8), f.load(I64, table, f.b.add(entry, i64(8)), 8)
    inside = f.b.and_(
        f.b.icmp_unsigned("<", address, end), f.b.icmp_unsigned("<=", size, f.b.sub(end, address))
    )
    with f.when(inside):
        f.store(start, w, Header.RANGE, 8)
        f.store(end, w, Header.RANGE + 8, 8)
    f.b.ret(inside)
    f.finish()


def _check_lanes(module: Any, wave: int) -> None:
    """check_lanes(w, addresses, bytes, pc): lane by lane; records the first that is not mapped."""
    f = Function(module, "check_lanes", I32, [PTR, PTR, I64, I32])
    w, addresses, size, pc = f.args
    with f.loop(wave // CHUNK) as chunk:
        mask = f.load(I32, w, f.b.add(f.b.mul(chunk, i64(4)), i64(Header.ACTIVE)), 4)
        with f.lanes(mask) as bit:
            lane = f.b.add(bit, f.b.mul(chunk, i64(CHUNK)))
            address = f.load(I64, addresses, f.b.mul(lane, i64(8)), 8)
            mapped = f.call("search", I1, [w, address, size])
            with f.when(f.b.not_(mapped)):
                bytes32, lane32 = f.b.trunc(size, I32), f.b.trunc(lane, I32)
                f.call("record", VOID, [w, i32(Fault.GLOBAL), pc, lane32, address, bytes32])
                f.b.ret(i32(Status.FAULT))
    f.b.ret(i32(0))
    f.finish()


class _Sweep:
    """A pass over all lanes' addresses: stores them, finds their extent and whether they are consecutive."""

    def __init__(self, f: Function, wave: int, first: Any, first_lane: Any, step: Any, out: Any) -> None:
        self.f, self.out = f, out
        self.vec = ir.VectorType(I64, GROUP)
        base = f.b.sub(first, f.b.mul(first_lane, step))
        self.first = f.broadcast(first, GROUP)
        self.base = f.broadcast(base, GROUP)
        self.step = f.broadcast(step, GROUP)
        self.least = f.local(self.vec, self.first)
        self.most = f.local(self.vec, self.first)
        self.differs = f.local(self.vec, ir.Constant(self.vec, [0] * GROUP))
        self.iota = ir.Constant(self.vec, list(range(GROUP)))

    def add(self, index: Any, address: Any, mask: Any) -> None:
        """Takes the addresses of group ``index``."""
        f, b = self.f, self.f.b
        address = b.select(mask, address, self.first)
        f.store(address, self.out, b.mul(index, i64(8 * GROUP)), 64)
        for slot, relation in ((self.least, "<"), (self.most, ">")):
            old = f.get(slot, self.vec)
            b.store(b.select(b.icmp_unsigned(relation, address, old), address, old), slot)
        lane = b.add(self.iota, f.broadcast(b.mul(index, i64(GROUP)), GROUP))
        expected = b.add(self.base, b.mul(lane, self.step))
        off = b.select(mask, b.xor(address, expected), ir.Constant(self.vec, [0] * GROUP))
        b.store(b.or_(f.get(self.differs, self.vec), off), self.differs)

    def result(self) -> tuple[Any, Any, Any]:
        """Least and greatest address, and the transfer mode."""
        f, b = self.f, self.f.b
        least = f.reduce("umin", f.get(self.least, self.vec))
        most = f.reduce("umax", f.get(self.most, self.vec))
        line = b.icmp_unsigned("==", f.reduce("or", f.get(self.differs, self.vec)), i64(0))
        mode = b.select(line, i32(CONTIGUOUS), i32(GATHER))
        return least, most, b.select(b.icmp_unsigned("==", least, most), i32(UNIFORM), mode)


def _first_active(f: Function, w: Any, wave: int) -> Any:
    active = f.load(ir.IntType(wave), w, Header.ACTIVE, 8)
    lane = f.call(f"llvm.cttz.i{wave}", active.type, [active, ir.Constant(I1, 0)])
    lane = f.b.trunc(lane, I64) if wave > 64 else lane
    return f.b.and_(lane, i64(wave - 1))


def _group_mask(f: Function, w: Any, index: Any) -> Any:
    bits = f.load(I16, w, f.b.add(f.b.mul(index, i64(2)), i64(Header.ACTIVE)), 2)
    return f.b.bitcast(bits, ir.VectorType(I1, GROUP))


def _global_addresses(module: Any, wave: int) -> None:
    """addresses_global(w, low row, offset, bytes, pc, out): mode, or -1 after a fault.

    The high halves of the addresses are the row behind the low ones.
    """
    f = Function(module, "addresses_global", I32, [PTR, PTR, I64, I64, I32, PTR])
    w, row, offset, size, pc, out = f.args
    lane = _first_active(f, w, wave)
    at = f.b.mul(lane, i64(4))
    low = f.b.zext(f.load(I32, row, at, 4), I64)
    high = f.b.zext(f.load(I32, row, f.b.add(at, i64(4 * wave)), 4), I64)
    first = f.b.add(f.b.or_(low, f.b.shl(high, i64(32))), offset)
    sweep = _Sweep(f, wave, first, lane, size, out)
    offsets = f.broadcast(offset, GROUP)
    narrow = ir.VectorType(I32, GROUP)
    with f.loop(wave // GROUP) as index:
        at = f.b.mul(index, i64(4 * GROUP))
        lows = f.b.zext(f.load(narrow, row, at, 64), sweep.vec)
        highs = f.b.zext(f.load(narrow, row, f.b.add(at, i64(4 * wave)), 64), sweep.vec)
        shift = ir.Constant(sweep.vec, [32] * GROUP)
        address = f.b.add(f.b.or_(lows, f.b.shl(highs, shift)), offsets)
        sweep.add(index, address, _group_mask(f, w, index))
    least, most, mode = sweep.result()

    def inside() -> Any:
        start, end = f.load(I64, w, Header.RANGE, 8), f.load(I64, w, Header.RANGE + 8, 8)
        fits = f.b.icmp_unsigned("<=", most, f.b.sub(end, size))
        return f.b.and_(f.b.icmp_unsigned(">=", least, start), fits)

    with f.when(f.b.not_(inside())):
        f.call("search", I1, [w, least, size])  # mostly all lanes are in one other buffer
        with f.when(f.b.not_(inside())):
            status = f.call("check_lanes", I32, [w, out, size, pc])
            with f.when(f.b.icmp_signed("!=", status, i32(0))):
                f.b.ret(i32(-1))
    f.b.ret(mode)
    f.finish()


def _offset_addresses(module: Any, wave: int, space: str) -> None:
    """addresses_local, addresses_private(w, row, offset, bytes, pc, out): as addresses_global.

    Private memory is a block of the wave, one fiber's bytes after the other's.
    """
    f = Function(module, f"addresses_{space}", I32, [PTR, PTR, I64, I64, I32, PTR])
    w, row, offset, size, pc, out = f.args
    local = space == "local"
    job = f.load(PTR, w, Header.JOB, 8)
    limit = f.load(I64, job, field(Job, "shared_bytes" if local else "private_bytes"), 8)
    base = f.b.ptrtoint(f.load(PTR, w, Header.LDS if local else Header.PRIVATE, 8), I64)
    pitch = i64(0) if local else limit
    lane = _first_active(f, w, wave)
    address = f.b.add(f.b.zext(f.load(I32, row, f.b.mul(lane, i64(4)), 4), I64), offset)
    first = f.b.add(address, f.b.add(base, f.b.mul(lane, pitch)))
    sweep = _Sweep(f, wave, first, lane, size, out)
    extent = f.local(sweep.vec, ir.Constant(sweep.vec, [0] * GROUP))
    with f.loop(wave // GROUP) as index:
        rows = f.load(ir.VectorType(I32, GROUP), row, f.b.mul(index, i64(4 * GROUP)), 64)
        relative = f.b.add(f.b.zext(rows, sweep.vec), f.broadcast(offset, GROUP))
        mask = _group_mask(f, w, index)
        old = f.get(extent, sweep.vec)
        larger = f.b.and_(mask, f.b.icmp_unsigned(">", relative, old))
        f.b.store(f.b.select(larger, relative, old), extent)
        number = f.b.add(sweep.iota, f.broadcast(f.b.mul(index, i64(GROUP)), GROUP))
        start = f.b.add(f.broadcast(base, GROUP), f.b.mul(number, f.broadcast(pitch, GROUP)))
        sweep.add(index, f.b.add(relative, start), mask)
    most = f.reduce("umax", f.get(extent, sweep.vec))
    fits = f.b.and_(f.b.icmp_unsigned("<=", size, limit), f.b.icmp_unsigned("<=", most, f.b.sub(limit, size)))
    with f.when(f.b.not_(fits)):
        _record_offset(f, w, row, offset, size, limit, pc, wave, Fault.LOCAL if local else Fault.PRIVATE)
        f.b.ret(i32(-1))
    f.b.ret(sweep.result()[2])
    f.finish()


def _record_offset(
    f: Function, w: Any, row: Any, offset: Any, size: Any, limit: Any, pc: Any, wave: int, kind: int
) -> None:
    """Records the first active lane whose address is not below ``limit``."""
    done = f.local(I1, ir.Constant(I1, 0))
    with f.loop(wave // CHUNK) as chunk:
        mask = f.load(I32, w, f.b.add(f.b.mul(chunk, i64(4)), i64(Header.ACTIVE)), 4)
        with f.lanes(mask) as bit:
            lane = f.b.add(bit, f.b.mul(chunk, i64(CHUNK)))
            address = f.b.add(f.b.zext(f.load(I32, row, f.b.mul(lane, i64(4)), 4), I64), offset)
            over = f.b.or_(
                f.b.icmp_unsigned("<", limit, size), f.b.icmp_unsigned(">", address, f.b.sub(limit, size))
            )
            with f.when(f.b.and_(over, f.b.not_(f.get(done, I1)))):
                arguments = [w, i32(kind), pc, f.b.trunc(lane, I32), address, f.b.trunc(size, I32)]
                f.call("record", VOID, arguments)
                f.b.store(ir.Constant(I1, 1), done)
