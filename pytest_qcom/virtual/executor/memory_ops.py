"""The runtime's loads and stores of global, local and private memory, in bulk where addresses allow it.

Every function takes the wave state, register rows and an instruction index (for fault records), and gives
0, or ``Status.FAULT`` after recording what went wrong. Only active lanes access memory or are written to.
A store of several lanes to one address leaves the value of the highest lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor import lanes
from pytest_qcom.virtual.executor.address_ops import (
    CONTIGUOUS,
    GATHER,
    GROUP,
    PERIOD,
    PERIODIC,
    RUN,
    RUNS,
    UNIFORM,
    lane_address,
)
from pytest_qcom.virtual.executor.irgen import I1, I32, I64, PTR, VOID, Function, i32, i64
from pytest_qcom.virtual.executor.layout import CHUNK, Header, Status
from pytest_qcom.virtual.executor.vectors import joined, picked, planes

WIDTHS = ((8, 16), (8, 32), (16, 16), (32, 32))
"""(bits in memory, bits in a register) of the data types of loads and stores."""

_LINE, _STRIDE = 64, 1 << 20  # bytes of a cache line; the longest step of a loop that is worth a guess


def emit(module: Any, wave: int) -> None:
    """Adds the memory functions for waves of ``wave`` fibers to ``module``."""
    _prefetch(module)
    for memory, register in WIDTHS:
        _load(module, wave, memory, register)
        _store(module, wave, memory, register)
        for space in ("global", "local", "private"):
            for way in ("load", "store"):
                _access(module, wave, way, space, memory, register)


def _access(module: Any, wave: int, way: str, space: str, memory: int, register: int) -> None:
    """{ld,st}{g,l,p}_{memory}_{register}(w, data row, address row, offset, count, pc)."""
    name = f"{'ld' if way == 'load' else 'st'}{space[0]}_{memory}_{register}"
    f = Function(module, name, I32, [PTR, PTR, PTR, I64, I32, I32])
    w, data, row, offset, count, pc = f.args
    out = f.local(ir.ArrayType(I64, wave), align=64)
    step = f.b.mul(f.b.zext(count, I64), i64(memory // 8))
    mode = f.call(f"addresses_{space}", I32, [w, row, offset, step, pc, out])
    with f.when(f.b.icmp_signed("<", mode, i32(0))):
        f.b.ret(i32(Status.FAULT))
    if way == "load" and space == "global":
        f.call("prefetch", VOID, [w, out, mode, step, pc])
    f.call(f"{way}_{memory}_{register}", VOID, [w, data, out, mode, count])
    f.b.ret(i32(0))
    f.finish()


def _prefetch(module: Any) -> None:
    """prefetch(w, addresses, how they lie, bytes, pc): has the host fetch what the next turn of a loop loads.

    A load that has moved on by a step since it last ran will most likely move on by as much again. Loops over
    the rows of a matrix make steps that no host foresees by itself, since each is in another page.
    """
    f = Function(module, "prefetch", VOID, [PTR, PTR, I32, I64, I32], private=True)
    w, out, mode, size, pc = f.args
    b = f.b
    slot = b.mul(b.zext(b.and_(pc, i32(Header.RECENTS - 1)), I64), i64(8))
    before, now = f.load(I64, w, b.add(slot, i64(Header.RECENT)), 8), f.load(I64, out, 0, 8)
    f.store(now, w, b.add(slot, i64(Header.RECENT)), 8)
    step = b.sub(now, before)
    to_others = b.icmp_unsigned(">", b.add(step, i64(_LINE)), i64(2 * _LINE))
    plausible = b.icmp_unsigned("<", b.add(step, i64(_STRIDE)), i64(2 * _STRIDE))
    together = b.icmp_signed("!=", mode, i32(GATHER))
    with f.when(b.and_(b.and_(to_others, plausible), together)):
        uniform, periodic, runs = (b.icmp_signed("==", mode, i32(way)) for way in (UNIFORM, PERIODIC, RUNS))
        number = b.select(uniform, i64(1), b.mul(lanes.count(f, w), i64(CHUNK)))
        number = b.select(periodic, i64(PERIOD), number)
        line = b.udiv(i64(_LINE), size)  # neighbours are mostly in one
        line = b.select(periodic, i64(1), b.select(runs, b.mul(line, i64(RUN)), line))
        with f.loop(number, step=line) as lane:
            address = b.add(lane_address(f, out, mode, size, lane), step)
            f.call("llvm.prefetch.p0", VOID, [b.inttoptr(address, PTR), i32(0), i32(3), i32(1)])
    b.ret_void()
    f.finish()


class _Transfer:
    """The common frame of loads and stores to and from addresses that are known: (w, data row, addresses,
    how they lie, elements a lane)."""

    def __init__(self, module: Any, wave: int, way: str, memory: int, register: int) -> None:
        arguments = [PTR, PTR, PTR, I32, I32]
        self.f = f = Function(module, f"{way}_{memory}_{register}", VOID, arguments, private=True)
        self.w, self.data, self.out, self.mode, count = f.args
        self.memory, self.register = ir.IntType(memory), ir.IntType(register)
        self.count = f.b.zext(count, I64)
        self.step = f.b.mul(self.count, i64(memory // 8))
        self.row_bytes = wave * register // 8

    def lies(self, way: int) -> Any:
        """Whether addresses lie in a way."""
        return self.f.b.icmp_signed("==", self.mode, i32(way))

    def counts(self, count: int) -> Any:
        """Whether each lane moves that many elements."""
        return self.f.b.icmp_signed("==", self.count, i64(count))

    def address(self, lane: Any) -> Any:
        """The address of lane number ``lane`` as a pointer."""
        f = self.f
        return f.b.inttoptr(lane_address(f, self.out, self.mode, self.step, lane), PTR)

    def cell(self, component: Any, lane: Any) -> Any:
        """Where the register element of ``component`` and ``lane`` lies."""
        f = self.f
        at = f.b.add(f.b.mul(component, i64(self.row_bytes)), f.b.mul(lane, i64(self.register.width // 8)))
        return f.at(self.data, at)

    def in_line(self, mask: Any) -> Any:
        """Whether a chunk is full and its lanes' elements lie one behind the other."""
        return self.f.b.and_(self.lies(CONTIGUOUS), self.f.b.icmp_signed("==", mask, i32(-1)))


def _load(module: Any, wave: int, memory: int, register: int) -> None:
    """load_{memory}_{register}."""
    t = _Transfer(module, wave, "load", memory, register)
    f, b = t.f, t.f.b
    with lanes.chunks(f, t.w) as (mask, first):
        rest = f.local(I32, mask)
        with f.when(t.lies(UNIFORM)):
            with f.loop(t.count) as component:
                source = f.load(t.memory, t.address(first), b.mul(component, i64(memory // 8)))
                value = f.broadcast(_extend(b, source, register), CHUNK)
                f.blend_store(mask, value, t.cell(component, first))
            b.store(i32(0), rest)
        for count in (1, 2, 4):
            with f.when(b.and_(t.counts(count), b.icmp_signed("!=", f.get(rest, I32), i32(0)))):
                _vectors(t, mask, first, count, rest)
        with f.lanes(f.get(rest, I32)) as bit:
            lane = b.add(bit, first)
            pointer = t.address(lane)
            with f.loop(t.count) as component:
                value = f.load(t.memory, pointer, b.mul(component, i64(memory // 8)))
                f.store(_extend(b, value, register), t.cell(component, lane), 0, register // 8)
    b.ret_void()
    f.finish()


def _vectors(t: _Transfer, mask: Any, first: Any, count: int, rest: Any) -> None:
    """Loads ``count`` elements for each lane of a chunk at once, where addresses allow it.

    The lanes that remain to be loaded are in ``rest``.
    """
    f, b = t.f, t.f.b

    def put(planes: Iterable[Any], condition: Any) -> None:
        for component, value in enumerate(planes):
            f.blend_store(condition, _extend(b, value, t.register.width), t.cell(i64(component), first))
        b.store(i32(0), rest)

    with f.when(t.in_line(mask)):
        packed = f.load(ir.VectorType(t.memory, CHUNK * count), t.address(first), 0, 1)
        put(planes(b, packed, count), i32(-1))
    with f.when(t.lies(PERIODIC)):
        put(_few(t, count, i64(0), 1, lambda lane: lane % PERIOD), mask)
    with f.when(t.lies(RUNS)):
        put(_few(t, count, first, RUN, lambda lane: lane // RUN), mask)
    if t.memory.width * count >= 32:
        with f.when(t.lies(GATHER)):
            put(_gathered(t, count, first), mask)


def _few(t: _Transfer, count: int, first: Any, step: int, source: Callable[[int], int]) -> list[Any]:
    """The components of a chunk whose lanes read what ``PERIOD`` of them do: ``first``, ``first + step``...

    Args:
        source: the number of the one that a lane reads as.
    """
    f, vector = t.f, ir.VectorType(t.memory, count)
    lanes = (f.b.add(first, i64(step * number)) for number in range(PERIOD))
    packed = joined(f.b, [f.load(vector, t.address(lane)) for lane in lanes])
    return [
        picked(f.b, packed, [source(lane) * count + component for lane in range(CHUNK)])
        for component in range(count)
    ]


def _gathered(t: _Transfer, count: int, first: Any) -> list[Any]:
    """The components of a chunk whose lanes read 4, 8 or 16 bytes from anywhere."""
    f, b, bits = t.f, t.f.b, t.memory.width * count
    if bits == 128:
        parts = []
        for start in range(0, CHUNK, GROUP):
            lanes = (b.add(first, i64(start + lane)) for lane in range(GROUP))
            words = [f.load(ir.VectorType(t.memory, count), t.address(lane)) for lane in lanes]
            parts.append(_transposed(b, words))
        return [joined(b, list(words)) for words in zip(*parts, strict=True)]
    size, word = 512 // bits, ir.IntType(bits)
    pointers, everywhere = ir.VectorType(PTR, size), ir.Constant(ir.VectorType(I1, size), [1] * size)
    words = []
    for start in range(0, CHUNK, size):
        at = b.mul(b.add(first, i64(start)), i64(8))
        addresses = b.inttoptr(f.load(ir.VectorType(I64, size), t.out, at, 64), pointers)
        result = ir.VectorType(word, size)
        arguments = [addresses, i32(1), everywhere, ir.Constant(result, ir.Undefined)]
        words.append(f.call(f"llvm.masked.gather.v{size}i{bits}.v{size}p0", result, arguments))
    return planes(b, b.bitcast(joined(b, words), ir.VectorType(t.memory, CHUNK * count)), count)


def _transposed(b: Any, lanes: list[Any]) -> list[Any]:
    """Sixteen vectors of four words as four vectors of sixteen: 4 x 4 transpositions in 128-bit parts."""

    def shuffle(left: Any, right: Any, picks: list[int]) -> Any:
        return b.shuffle_vector(left, right, ir.Constant(ir.VectorType(I32, len(picks)), picks))

    rows = [joined(b, lanes[n::4]) for n in range(4)]  # part k of row n is lane 4k + n
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


def _store(module: Any, wave: int, memory: int, register: int) -> None:
    """store_{memory}_{register}."""
    t = _Transfer(module, wave, "store", memory, register)
    f, b = t.f, t.f.b
    narrow = memory < register

    def packed(count: int, first: Any) -> Any:
        whole = None
        for component in range(count):
            value = f.load(ir.VectorType(t.register, CHUNK), t.cell(i64(component), first), 0, 32)
            value = b.trunc(value, ir.VectorType(t.memory, CHUNK)) if narrow else value
            wide = _place(b, value, component, count)
            whole = wide if whole is None else _merge(b, whole, wide, component, count)
        return whole

    with lanes.chunks(f, t.w) as (mask, first):
        rest = f.local(I32, mask)
        for count in (1, 2, 4):
            with f.when(b.and_(t.in_line(mask), t.counts(count))):
                f.store(packed(count, first), t.address(first), 0, 1)
                b.store(i32(0), rest)
        with f.lanes(f.get(rest, I32)) as bit:
            lane = b.add(bit, first)
            pointer = t.address(lane)
            with f.loop(t.count) as component:
                value = f.load(t.register, t.cell(component, lane), 0, register // 8)
                value = b.trunc(value, t.memory) if narrow else value
                f.store(value, pointer, b.mul(component, i64(memory // 8)))
    b.ret_void()
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
