"""The runtime's memory accesses: addresses of all lanes checked at once, then moved in bulk where possible.

Every function takes the wave state, register rows and an instruction index (for fault records), and gives
0, or ``Status.FAULT`` after recording what went wrong. Only active lanes access memory or are written to.
A store of several lanes to one address leaves the value of the highest lane.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor.irgen import I1, I16, I32, I64, PTR, VOID, Function, i32, i64
from pytest_qcom.virtual.executor.layout import CHUNK, Fault, Header, Job, Status, field

WIDTHS = ((8, 16), (8, 32), (16, 16), (32, 32))
"""(bits in memory, bits in a register) of the data types of loads and stores."""

GATHER, UNIFORM, CONTIGUOUS = 0, 1, 2
_GROUP = 16  # lanes whose 64-bit addresses are computed at a time


def emit(module: Any, wave: int) -> None:
    """Adds the memory functions for waves of ``wave`` fibers to ``module``."""
    _record(module)
    _search(module)
    _check_lanes(module, wave)
    _global_addresses(module, wave)
    _offset_addresses(module, wave, "local")
    _offset_addresses(module, wave, "private")
    for memory, register in WIDTHS:
        for space, letter in (("global", "g"), ("local", "l"), ("private", "p")):
            _load(module, wave, space, letter, memory, register)
            _store(module, wave, space, letter, memory, register)


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
        self.vec = ir.VectorType(I64, _GROUP)
        base = f.b.sub(first, f.b.mul(first_lane, step))
        self.first = f.broadcast(first, _GROUP)
        self.base = f.broadcast(base, _GROUP)
        self.step = f.broadcast(step, _GROUP)
        self.least = f.local(self.vec, self.first)
        self.most = f.local(self.vec, self.first)
        self.differs = f.local(self.vec, ir.Constant(self.vec, [0] * _GROUP))
        self.iota = ir.Constant(self.vec, list(range(_GROUP)))

    def add(self, index: Any, address: Any, mask: Any) -> None:
        """Takes the addresses of group ``index``."""
        f, b = self.f, self.f.b
        address = b.select(mask, address, self.first)
        f.store(address, self.out, b.mul(index, i64(8 * _GROUP)), 64)
        for slot, relation in ((self.least, "<"), (self.most, ">")):
            old = f.get(slot, self.vec)
            b.store(b.select(b.icmp_unsigned(relation, address, old), address, old), slot)
        lane = b.add(self.iota, f.broadcast(b.mul(index, i64(_GROUP)), _GROUP))
        expected = b.add(self.base, b.mul(lane, self.step))
        off = b.select(mask, b.xor(address, expected), ir.Constant(self.vec, [0] * _GROUP))
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
    return f.b.bitcast(bits, ir.VectorType(I1, _GROUP))


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
    offsets = f.broadcast(offset, _GROUP)
    narrow = ir.VectorType(I32, _GROUP)
    with f.loop(wave // _GROUP) as index:
        at = f.b.mul(index, i64(4 * _GROUP))
        lows = f.b.zext(f.load(narrow, row, at, 64), sweep.vec)
        highs = f.b.zext(f.load(narrow, row, f.b.add(at, i64(4 * wave)), 64), sweep.vec)
        shift = ir.Constant(sweep.vec, [32] * _GROUP)
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
    extent = f.local(sweep.vec, ir.Constant(sweep.vec, [0] * _GROUP))
    with f.loop(wave // _GROUP) as index:
        rows = f.load(ir.VectorType(I32, _GROUP), row, f.b.mul(index, i64(4 * _GROUP)), 64)
        relative = f.b.add(f.b.zext(rows, sweep.vec), f.broadcast(offset, _GROUP))
        mask = _group_mask(f, w, index)
        old = f.get(extent, sweep.vec)
        larger = f.b.and_(mask, f.b.icmp_unsigned(">", relative, old))
        f.b.store(f.b.select(larger, relative, old), extent)
        number = f.b.add(sweep.iota, f.broadcast(f.b.mul(index, i64(_GROUP)), _GROUP))
        start = f.b.add(f.broadcast(base, _GROUP), f.b.mul(number, f.broadcast(pitch, _GROUP)))
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


class _Transfer:
    """The common frame of loads and stores: addresses, then chunk by chunk."""

    def __init__(self, module: Any, wave: int, name: str, space: str, memory: int, register: int) -> None:
        self.f = f = Function(module, name, I32, [PTR, PTR, PTR, I64, I32, I32])
        self.w, self.data, row, offset, count, pc = f.args
        self.memory, self.register = ir.IntType(memory), ir.IntType(register)
        self.count = f.b.zext(count, I64)
        self.step = f.b.mul(self.count, i64(memory // 8))
        self.row_bytes = wave * register // 8
        self.out = f.local(ir.ArrayType(I64, wave), align=64)
        arguments = [self.w, row, offset, self.step, pc, self.out]
        self.mode = f.call(f"addresses_{space}", I32, arguments)
        with f.when(f.b.icmp_signed("<", self.mode, i32(0))):
            f.b.ret(i32(Status.FAULT))

    def mask(self, chunk: Any) -> Any:
        f = self.f
        return f.load(I32, self.w, f.b.add(f.b.mul(chunk, i64(4)), i64(Header.ACTIVE)), 4)

    def address(self, lane: Any) -> Any:
        """The address of lane number ``lane`` as a pointer."""
        f = self.f
        return f.b.inttoptr(f.load(I64, self.out, f.b.mul(lane, i64(8)), 8), PTR)

    def cell(self, component: Any, lane: Any) -> Any:
        """Where the register element of ``component`` and ``lane`` lies."""
        f = self.f
        at = f.b.add(f.b.mul(component, i64(self.row_bytes)), f.b.mul(lane, i64(self.register.width // 8)))
        return f.at(self.data, at)

    def fast(self, mask: Any, counts: tuple[int, ...], body: Any) -> Any:
        """Emits ``body(count)`` for contiguous full chunks; whether one of them ran."""
        f = self.f
        taken = f.local(I1, ir.Constant(I1, 0))
        line = f.b.and_(
            f.b.icmp_signed("==", self.mode, i32(CONTIGUOUS)), f.b.icmp_signed("==", mask, i32(-1))
        )
        for count in counts:
            with f.when(f.b.and_(line, f.b.icmp_signed("==", self.count, i64(count)))):
                body(count)
                f.b.store(ir.Constant(I1, 1), taken)
        return f.get(taken, I1)


def _lane0(t: _Transfer, chunk: Any) -> Any:
    return t.f.b.mul(chunk, i64(CHUNK))


def _load(module: Any, wave: int, space: str, letter: str, memory: int, register: int) -> None:
    """ld{g,l,p}_{memory}_{register}(w, destination row, address row, offset, count, pc)."""
    t = _Transfer(module, wave, f"ld{letter}_{memory}_{register}", space, memory, register)
    f, b = t.f, t.f.b

    def bulk(count: int, first: Any) -> None:
        packed = f.load(ir.VectorType(t.memory, CHUNK * count), t.address(first), 0, 1)
        for component in range(count):
            picks = ir.Constant(ir.VectorType(I32, CHUNK), list(range(component, CHUNK * count, count)))
            value = b.shuffle_vector(packed, ir.Constant(packed.type, ir.Undefined), picks)
            f.store(_extend(b, value, register), t.cell(i64(component), first), 0, 32)

    with f.loop(wave // CHUNK) as chunk:
        mask, first = t.mask(chunk), _lane0(t, chunk)
        same = b.icmp_signed("==", t.mode, i32(UNIFORM))
        with b.if_else(same) as (uniform, other):
            with uniform, f.loop(t.count) as component:
                source = f.load(t.memory, t.address(first), b.mul(component, i64(memory // 8)))
                value = f.broadcast(_extend(b, source, register), CHUNK)
                f.blend_store(mask, value, t.cell(component, first))
            with other:
                done = t.fast(mask, (1, 2, 4), lambda count: bulk(count, first))
                if memory == 32:
                    done = b.or_(done, _quads(t, mask, first, done))
                rest = b.select(done, i32(0), mask)
                with f.lanes(rest) as bit:
                    lane = b.add(bit, first)
                    pointer = t.address(lane)
                    with f.loop(t.count) as component:
                        value = f.load(t.memory, pointer, b.mul(component, i64(memory // 8)))
                        f.store(_extend(b, value, register), t.cell(component, lane), 0, register // 8)
    b.ret(i32(0))
    f.finish()


def _quads(t: _Transfer, mask: Any, first: Any, done: Any) -> Any:
    """Loads four words for each lane of a full chunk and turns lanes of words into words of lanes.

    Matrix kernels load so, from addresses that few lanes share. Whether it was done.
    """
    f, b = t.f, t.f.b
    four = b.icmp_signed("==", t.count, i64(4))
    apt = b.and_(b.and_(four, b.icmp_signed("==", mask, i32(-1))), b.not_(done))
    with f.when(apt), f.loop(CHUNK // _GROUP) as part:
        start = b.add(first, b.mul(part, i64(_GROUP)))
        lanes = []
        for lane in range(_GROUP):
            lanes.append(f.load(ir.VectorType(I32, 4), t.address(b.add(start, i64(lane)))))
        for component, words in enumerate(_transposed(b, lanes)):
            f.store(words, t.cell(i64(component), start), 0, 64)
    return apt


def _transposed(b: Any, lanes: list[Any]) -> list[Any]:
    """Sixteen vectors of four words as four vectors of sixteen: 4 x 4 transpositions in 128-bit parts."""

    def shuffle(left: Any, right: Any, picks: list[int]) -> Any:
        return b.shuffle_vector(left, right, ir.Constant(ir.VectorType(I32, len(picks)), picks))

    def joined(vectors: list[Any]) -> Any:
        while len(vectors) > 1:
            picks = list(range(2 * vectors[0].type.count))
            vectors = [shuffle(vectors[n], vectors[n + 1], picks) for n in range(0, len(vectors), 2)]
        return vectors[0]

    rows = [joined(lanes[n::4]) for n in range(4)]  # part k of row n is lane 4k + n
    low = [base + n for base in (0, 4, 8, 12) for n in (0, 16, 1, 17)]
    high = [base + n for base in (0, 4, 8, 12) for n in (2, 18, 3, 19)]
    pairs = [shuffle(rows[n], rows[n + 1], picks) for n in (0, 2) for picks in (low, high)]
    first = [base + n for base in (0, 4, 8, 12) for n in (0, 1, 16, 17)]
    second = [base + n for base in (0, 4, 8, 12) for n in (2, 3, 18, 19)]
    return [shuffle(pairs[n], pairs[n + 2], picks) for n in (0, 1) for picks in (first, second)]


def _extend(b: Any, value: Any, bits: int) -> Any:
    """``value`` zero-extended to registers of ``bits``."""
    element = value.type.element if isinstance(value.type, ir.VectorType) else value.type
    if element.width == bits:
        return value
    wide = ir.IntType(bits)
    return b.zext(value, ir.VectorType(wide, value.type.count) if element is not value.type else wide)


def _store(module: Any, wave: int, space: str, letter: str, memory: int, register: int) -> None:
    """st{g,l,p}_{memory}_{register}(w, data row, address row, offset, count, pc)."""
    t = _Transfer(module, wave, f"st{letter}_{memory}_{register}", space, memory, register)
    f, b = t.f, t.f.b
    narrow = memory < register

    def bulk(count: int, first: Any) -> None:
        packed = None
        for component in range(count):
            value = f.load(ir.VectorType(t.register, CHUNK), t.cell(i64(component), first), 0, 32)
            value = b.trunc(value, ir.VectorType(t.memory, CHUNK)) if narrow else value
            wide = _place(b, value, component, count)
            packed = wide if packed is None else _merge(b, packed, wide, component, count)
        f.store(packed, t.address(first), 0, 1)

    with f.loop(wave // CHUNK) as chunk:
        mask, first = t.mask(chunk), _lane0(t, chunk)
        done = t.fast(mask, (1, 2, 4), lambda count: bulk(count, first))
        with f.lanes(b.select(done, i32(0), mask)) as bit:
            lane = b.add(bit, first)
            pointer = t.address(lane)
            with f.loop(t.count) as component:
                value = f.load(t.register, t.cell(component, lane), 0, register // 8)
                value = b.trunc(value, t.memory) if narrow else value
                f.store(value, pointer, b.mul(component, i64(memory // 8)))
    b.ret(i32(0))
    f.finish()


def _place(b: Any, value: Any, component: int, count: int) -> Any:
    """A vector ``count`` times as long with the elements of ``value`` at their interleaved places."""
    if count == 1:
        return value
    picks = [lane if part == component else CHUNK for lane in range(CHUNK) for part in range(count)]
    mask = ir.Constant(ir.VectorType(I32, CHUNK * count), picks)
    return b.shuffle_vector(value, ir.Constant(value.type, [0] * CHUNK), mask)


def _merge(b: Any, packed: Any, wide: Any, component: int, count: int) -> Any:
    """``packed`` with the elements of ``component`` taken from ``wide``."""
    size = CHUNK * count
    picks = [i + size if i % count == component else i for i in range(size)]
    return b.shuffle_vector(packed, wide, ir.Constant(ir.VectorType(I32, size), picks))
