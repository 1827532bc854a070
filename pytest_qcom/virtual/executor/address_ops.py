"""The runtime's addresses: those of all lanes computed and checked at once.

Functions take the wave state, register rows and, for fault records, an instruction index. Only active lanes
count. Addresses of a wave mostly share their high half, so that 32 bits tell how they lie.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor import lanes
from pytest_qcom.virtual.executor.irgen import I1, I16, I32, I64, PTR, VOID, Function, i32, i64
from pytest_qcom.virtual.executor.layout import CHUNK, Fault, Header, Job, Status, field

GATHER, UNIFORM, CONTIGUOUS, PERIODIC, RUNS = range(5)
"""How lanes' addresses lie: anywhere, all the same, one behind the other, every ``PERIOD`` lanes as the first
ones of the wave, or the same for ``RUN`` lanes at a time. Tiles of a matrix product are read in the last two
ways."""

PERIOD, RUN = 8, 4

GROUP = 16
"""Lanes whose addresses are computed at a time."""

_HALF = ir.VectorType(I32, GROUP)
_NONE = ir.Constant(_HALF, [0] * GROUP)
_SPAN = 1 << 31  # low halves that are further apart may be in line only because they wrap


def emit(module: Any, wave: int) -> None:
    """Adds the address functions for waves of ``wave`` fibers to ``module``."""
    _record(module)
    _search(module)
    _check_lanes(module, wave)
    _far_addresses(module, wave)
    _global_addresses(module, wave)
    _local_addresses(module, wave)
    _private_addresses(module, wave)


def _record(module: Any) -> None:
    """record(w, kind, pc, lane, address, size): notes a fault."""
    f = Function(module, "record", VOID, [PTR, I32, I32, I32, I64, I32], private=True)
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


def ranges_below(f: Function, job: Any, address: Any) -> tuple[Any, Any]:
    """The table of mapped ranges, and how many of them start at or below an address."""
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
    return table, f.get(low, I64)


def _search(module: Any) -> None:
    """search(w, pc, address, bytes): whether it is mapped; the instruction has that range from now on."""
    f = Function(module, "search", I1, [PTR, I32, I64, I64], private=True)
    w, pc, address, size = f.args
    table, count = ranges_below(f, f.load(PTR, w, Header.JOB, 8), address)
    with f.when(f.b.icmp_signed("==", count, i64(0))):
        f.b.ret(ir.Constant(I1, 0))
    entry = f.b.mul(f.b.sub(count, i64(1)), i64(16))
    start, end = f.load(I64, table, entry, 8), f.load(I64, table, f.b.add(entry, i64(8)), 8)
    inside = f.b.and_(
        f.b.icmp_unsigned("<", address, end), f.b.icmp_unsigned("<=", size, f.b.sub(end, address))
    )
    with f.when(inside):
        known = _known_range(f, w, pc)
        f.store(start, known, 0, 8)
        f.store(end, known, 8, 8)
    f.b.ret(inside)
    f.finish()


def _known_range(f: Function, w: Any, pc: Any) -> Any:
    """Where the range that an instruction last accessed is kept; other instructions may share the place."""
    number = f.b.zext(f.b.and_(pc, i32(Header.RANGES - 1)), I64)
    return f.at(w, f.b.add(f.b.mul(number, i64(16)), i64(Header.RANGE)))


def _check_lanes(module: Any, wave: int) -> None:
    """check_lanes(w, addresses, mode, bytes, pc): lane by lane; records the first that is not mapped."""
    f = Function(module, "check_lanes", I32, [PTR, PTR, I32, I64, I32], private=True)
    w, out, mode, size, pc = f.args
    with lanes.active(f, w) as lane:
        address = lane_address(f, out, mode, size, lane)
        mapped = f.call("search", I1, [w, pc, address, size])
        with f.when(f.b.not_(mapped)):
            bytes32, lane32 = f.b.trunc(size, I32), f.b.trunc(lane, I32)
            f.call("record", VOID, [w, i32(Fault.GLOBAL), pc, lane32, address, bytes32])
            f.b.ret(i32(Status.FAULT))
    f.b.ret(i32(0))
    f.finish()


def lane_address(f: Function, out: Any, mode: Any, step: Any, lane: Any) -> Any:
    """The address of a lane, given what a function of this module made of all of them.

    Args:
        out: where it put them: all of them, or the first one's where they are in line.
        mode: how they lie.
        step: bytes that a lane accesses.
    """
    b = f.b
    uniform, line = (b.icmp_signed("==", mode, i32(way)) for way in (UNIFORM, CONTIGUOUS))
    at = b.select(b.or_(uniform, line), i64(0), b.mul(lane, i64(8)))
    return b.add(f.load(I64, out, at, 8), b.select(line, b.mul(lane, step), i64(0)))


class _Sweep:
    """A pass over the low halves of all lanes' addresses: their extent and how they lie.

    Lanes that are not active count as having the address of the first one that is.
    """

    def __init__(self, f: Function, w: Any, row: Any, step: Any, wave: int) -> None:
        self.f, self.w, self.row, self.step = f, w, row, step
        self.lane = lanes.first(f, w, wave)
        self.low = f.load(I32, row, f.b.mul(self.lane, i64(4)), 4)
        self.first = f.broadcast(self.low, GROUP)
        self.least, self.most = (f.local(_HALF, self.first) for _ in range(2))
        self.off = {way: f.local(_HALF, _NONE) for way in (CONTIGUOUS, PERIODIC, RUNS)}

    def run(self, further: Callable[[Any, Any], None] | None = None) -> None:
        """The pass; ``further(index, mask)`` is emitted for each group."""
        f, b = self.f, self.f.b
        step = b.trunc(self.step, I32)
        start = f.broadcast(b.sub(self.low, b.mul(b.trunc(self.lane, I32), step)), GROUP)
        lanes = ir.Constant(_HALF, list(range(GROUP)))
        expected = f.local(_HALF, b.add(start, b.mul(lanes, f.broadcast(step, GROUP))))
        advance = f.broadcast(b.mul(step, i32(GROUP)), GROUP)
        repeated = self._picked(self.group(i64(0)), lambda n: n % PERIOD)
        with self.groups() as index:
            mask, low = self.mask(index), self.group(index)
            for slot, relation in ((self.least, "<"), (self.most, ">")):
                old = f.get(slot, _HALF)
                b.store(b.select(b.icmp_unsigned(relation, low, old), low, old), slot)
            line = f.get(expected, _HALF)
            b.store(b.add(line, advance), expected)
            like = {CONTIGUOUS: line, PERIODIC: repeated, RUNS: self._picked(low, lambda n: n // RUN * RUN)}
            for way, reference in like.items():
                self.note(self.off[way], b.xor(low, reference), mask)
            if further is not None:
                further(index, mask)

    def groups(self) -> contextlib.AbstractContextManager[Any]:
        """A loop over the numbers of the groups with live lanes."""
        return self.f.loop(self.f.b.mul(lanes.count(self.f, self.w), i64(CHUNK // GROUP)))

    def mask(self, index: Any) -> Any:
        """The active lanes of a group."""
        b = self.f.b
        bits = self.f.load(I16, self.w, b.add(b.mul(index, i64(2)), i64(Header.ACTIVE)), 2)
        return b.bitcast(bits, ir.VectorType(I1, GROUP))

    def group(self, index: Any) -> Any:
        """The low halves of a group."""
        low = self.f.load(_HALF, self.row, self.f.b.mul(index, i64(4 * GROUP)), 64)
        return self.f.b.select(self.mask(index), low, self.first)

    def note(self, slot: Any, bits: Any, mask: Any) -> None:
        """Collects the ``bits`` of active lanes."""
        b = self.f.b
        b.store(b.or_(self.f.get(slot, _HALF), b.select(mask, bits, _NONE)), slot)

    def _picked(self, low: Any, lane: Callable[[int], int]) -> Any:
        picks = ir.Constant(_HALF, [lane(n) for n in range(GROUP)])
        return self.f.b.shuffle_vector(low, ir.Constant(_HALF, ir.Undefined), picks)

    def none(self, slot: Any) -> Any:
        """Whether no bit was collected."""
        b = self.f.b
        some = b.icmp_unsigned("!=", self.f.get(slot, _HALF), _NONE)
        return b.icmp_unsigned("==", b.bitcast(some, I16), ir.Constant(I16, 0))

    def extent(self) -> tuple[Any, Any]:
        """The least and the greatest low half."""
        f = self.f
        return f.reduce("umin", f.get(self.least, _HALF)), f.reduce("umax", f.get(self.most, _HALF))

    def mode(self, least: Any, most: Any) -> Any:
        """How the addresses lie."""
        b, mode = self.f.b, i32(GATHER)
        for way in (RUNS, PERIODIC, CONTIGUOUS):
            mode = b.select(self.none(self.off[way]), i32(way), mode)
        return b.select(b.icmp_unsigned("==", least, most), i32(UNIFORM), mode)

    def put(self, base: Any, mode: Any, out: Any) -> None:
        """Stores the addresses, ``base`` plus the low halves: as :func:`lane_address` expects them."""
        f, b = self.f, self.f.b
        start = b.add(base, b.zext(self.low, I64))
        line = b.icmp_signed("==", mode, i32(CONTIGUOUS))
        f.store(b.select(line, b.sub(start, b.mul(self.lane, self.step)), start), out, 0, 64)
        scattered = b.not_(b.or_(line, b.icmp_signed("==", mode, i32(UNIFORM))))
        with f.when(scattered):
            bases = f.broadcast(base, GROUP)
            with self.groups() as index:
                address = b.add(bases, b.zext(self.group(index), bases.type))
                f.store(address, out, b.mul(index, i64(8 * GROUP)), 64)


def _global_addresses(module: Any, wave: int) -> None:
    """addresses_global(w, low row, offset, bytes, pc, out): mode, or -1 after a fault.

    The high halves of the addresses are the row behind the low ones.
    """
    f = Function(module, "addresses_global", I32, [PTR, PTR, I64, I64, I32, PTR], private=True)
    w, row, offset, size, pc, out = f.args
    b = f.b
    sweep = _Sweep(f, w, row, size, wave)
    high = f.load(I32, row, b.add(b.mul(sweep.lane, i64(4)), i64(4 * wave)), 4)
    highs, apart = f.broadcast(high, GROUP), f.local(_HALF, _NONE)

    def compare(index: Any, mask: Any) -> None:
        at = b.add(b.mul(index, i64(4 * GROUP)), i64(4 * wave))
        sweep.note(apart, b.xor(f.load(_HALF, row, at, 64), highs), mask)

    sweep.run(compare)
    least, most = sweep.extent()
    near = b.and_(sweep.none(apart), b.icmp_unsigned("<", b.sub(most, least), i32(_SPAN)))
    with f.when(b.not_(near)):
        b.ret(f.call("addresses_far", I32, [w, row, offset, size, pc, out]))
    base = b.add(b.shl(b.zext(high, I64), i64(32)), offset)
    mode = sweep.mode(least, most)
    sweep.put(base, mode, out)
    low, top = b.add(base, b.zext(least, I64)), b.add(base, b.zext(most, I64))

    known = _known_range(f, w, pc)

    def inside() -> Any:
        start, end = f.load(I64, known, 0, 8), f.load(I64, known, 8, 8)
        fits = b.and_(b.icmp_unsigned("<", top, end), b.icmp_unsigned("<=", size, b.sub(end, top)))
        return b.and_(b.and_(b.icmp_unsigned(">=", low, start), b.icmp_unsigned("<=", low, top)), fits)

    with f.when(b.not_(inside())):
        f.call("search", I1, [w, pc, low, size])  # mostly all lanes are in one other buffer
        with f.when(b.not_(inside())):
            status = f.call("check_lanes", I32, [w, out, mode, size, pc])
            with f.when(b.icmp_signed("!=", status, i32(0))):
                b.ret(i32(-1))
    b.ret(mode)
    f.finish()


def _far_addresses(module: Any, wave: int) -> None:
    """addresses_far(w, low row, offset, bytes, pc, out): as addresses_global, whose high halves differ."""
    f = Function(module, "addresses_far", I32, [PTR, PTR, I64, I64, I32, PTR], private=True)
    w, row, offset, size, pc, out = f.args
    b = f.b
    first = lanes.first(f, w, wave)

    def address(lane: Any) -> Any:
        at = b.mul(lane, i64(4))
        low, high = (b.zext(f.load(I32, row, b.add(at, i64(4 * wave * half)), 4), I64) for half in (0, 1))
        return b.add(b.or_(low, b.shl(high, i64(32))), offset)

    first = address(lanes.first(f, w, wave))
    with f.loop(wave) as lane:
        f.store(first, out, b.mul(lane, i64(8)), 8)
    with lanes.active(f, w) as lane:
        f.store(address(lane), out, b.mul(lane, i64(8)), 8)
    status = f.call("check_lanes", I32, [w, out, i32(GATHER), size, pc])
    b.ret(b.select(b.icmp_signed("!=", status, i32(0)), i32(-1), i32(GATHER)))
    f.finish()


def _local_addresses(module: Any, wave: int) -> None:
    """addresses_local(w, row, offset, bytes, pc, out): as addresses_global."""
    f = Function(module, "addresses_local", I32, [PTR, PTR, I64, I64, I32, PTR], private=True)
    w, row, offset, size, pc, out = f.args
    sweep = _Sweep(f, w, row, size, wave)
    sweep.run()
    least, most = sweep.extent()
    _check_offsets(f, sweep, (least, most), offset, pc, Fault.LOCAL)
    base = f.b.add(f.b.ptrtoint(f.load(PTR, w, Header.LDS, 8), I64), offset)
    mode = sweep.mode(least, most)
    sweep.put(base, mode, out)
    f.b.ret(mode)
    f.finish()


def _private_addresses(module: Any, wave: int) -> None:
    """addresses_private(w, row, offset, bytes, pc, out): as addresses_global.

    Private memory is a block of the wave, one fiber's bytes after the other's.
    """
    f = Function(module, "addresses_private", I32, [PTR, PTR, I64, I64, I32, PTR], private=True)
    w, row, offset, size, pc, out = f.args
    b = f.b
    sweep = _Sweep(f, w, row, size, wave)
    sweep.run()
    pitch = _check_offsets(f, sweep, sweep.extent(), offset, pc, Fault.PRIVATE)
    base = b.add(b.ptrtoint(f.load(PTR, w, Header.PRIVATE, 8), I64), offset)
    wide = ir.VectorType(I64, GROUP)
    lanes = b.mul(ir.Constant(wide, list(range(GROUP))), f.broadcast(pitch, GROUP))
    bases = f.local(wide, b.add(f.broadcast(base, GROUP), lanes))
    advance = f.broadcast(b.mul(pitch, i64(GROUP)), GROUP)
    with sweep.groups() as index:
        low = sweep.group(index)
        start = f.get(bases, wide)
        b.store(b.add(start, advance), bases)
        f.store(b.add(start, b.zext(low, wide)), out, b.mul(index, i64(8 * GROUP)), 64)
    b.ret(i32(GATHER))
    f.finish()


def _check_offsets(
    f: Function, sweep: _Sweep, extent: tuple[Any, Any], offset: Any, pc: Any, kind: int
) -> Any:
    """Ends the function with a fault where an access leaves local or private memory; that memory's bytes."""
    b, w, size = f.b, sweep.w, sweep.step
    job = f.load(PTR, w, Header.JOB, 8)
    name = "shared_bytes" if kind == Fault.LOCAL else "private_bytes"
    limit = f.load(I64, job, field(Job, name), 8)
    low, top = (b.add(b.zext(end, I64), offset) for end in extent)
    fits = b.and_(b.icmp_unsigned("<=", size, limit), b.icmp_unsigned("<=", top, b.sub(limit, size)))
    with f.when(b.not_(b.and_(fits, b.icmp_unsigned("<=", low, top)))):
        _record_offset(f, w, sweep.row, offset, size, limit, pc, kind)
        b.ret(i32(-1))
    return limit


def _record_offset(
    f: Function, w: Any, row: Any, offset: Any, size: Any, limit: Any, pc: Any, kind: int
) -> None:
    """Records the first active lane whose address is not below ``limit``."""
    done = f.local(I1, ir.Constant(I1, 0))
    with lanes.active(f, w) as lane:
        address = f.b.add(f.b.zext(f.load(I32, row, f.b.mul(lane, i64(4)), 4), I64), offset)
        over = f.b.or_(
            f.b.icmp_unsigned("<", limit, size), f.b.icmp_unsigned(">", address, f.b.sub(limit, size))
        )
        with f.when(f.b.and_(over, f.b.not_(f.get(done, I1)))):
            arguments = [w, i32(kind), pc, f.b.trunc(lane, I32), address, f.b.trunc(size, I32)]
            f.call("record", VOID, arguments)
            f.b.store(ir.Constant(I1, 1), done)
