"""The runtime's loads and stores of global, local and private memory, in bulk where addresses allow it.

Every function takes the wave state, register rows and an instruction index (for fault records), and gives
0, or ``Status.FAULT`` after recording what went wrong. Only active lanes access memory or are written to.
A store of several lanes to one address leaves the value of the highest lane.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor.address_ops import CONTIGUOUS, GROUP, UNIFORM
from pytest_qcom.virtual.executor.irgen import I1, I32, I64, PTR, Function, i32, i64
from pytest_qcom.virtual.executor.layout import CHUNK, Header, Status

WIDTHS = ((8, 16), (8, 32), (16, 16), (32, 32))
"""(bits in memory, bits in a register) of the data types of loads and stores."""


def emit(module: Any, wave: int) -> None:
    """Adds the memory functions for waves of ``wave`` fibers to ``module``."""
    for memory, register in WIDTHS:
        for space, letter in (("global", "g"), ("local", "l"), ("private", "p")):
            _load(module, wave, space, letter, memory, register)
            _store(module, wave, space, letter, memory, register)


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
    with f.when(apt), f.loop(CHUNK // GROUP) as part:
        start = b.add(first, b.mul(part, i64(GROUP)))
        lanes = []
        for lane in range(GROUP):
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
