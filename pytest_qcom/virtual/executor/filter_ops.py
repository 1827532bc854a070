"""The runtime's textures at coordinates: what a sampler makes of all that a sample's sources hold; sizes.

Lane by lane: the face of a cube, the level of detail, then a mix within each level that counts
(:mod:`~pytest_qcom.virtual.executor.sampler_ops`).
"""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor import cube_ops, detail_ops, lanes, sampler_ops
from pytest_qcom.virtual.executor.image_ops import KINDS
from pytest_qcom.virtual.executor.irgen import FLOAT, I1, I32, I64, PTR, VOID, Function, i32, i64
from pytest_qcom.virtual.executor.layout import (
    CHUNK,
    Fault,
    Header,
    Job,
    SamplerRecord,
    Status,
    Table,
    Tables,
    TextureRecord,
    field,
)
from pytest_qcom.virtual.executor.sampler_ops import (
    DEEP,
    GRADIENTS,
    IMPLICIT,
    LAYERED,
    LEVEL,
    OFFSETS,
    SHADOW,
    Ask,
    clamped,
    clean,
    flag,
    get,
    integers,
    mixes,
    sample_bytes,
    watched,
)
from pytest_qcom.virtual.executor.surface_ops import Lanes
from pytest_qcom.virtual.executor.texel_ops import QUAD, ZERO

_RECORD = ctypes.sizeof(TextureRecord)


def emit(module: Any, wave: int) -> None:
    """Adds the functions for waves of ``wave`` fibers to ``module``."""
    sampler_ops.emit(module)
    cube_ops.emit(module)
    sampler_ops.emit_mixes(module)
    detail_ops.emit(module)
    _find_sampler(module)
    for kind in KINDS:
        if kind != "u16":
            _filter(module, wave, kind)
            _fetch(module, wave, kind)
            _isaml(module, wave, kind)
    _extent(module, wave)
    _facts(module, wave)


def _find_sampler(module: Any) -> None:
    """find_sampler(w, table, slot, lane, pc): a slot's record; null after recording why there is none."""
    f = Function(module, "find_sampler", PTR, [PTR, I32, I32, I32, I32], private=True)
    w, table, slot, lane, pc = f.args
    b = f.b
    job = f.load(PTR, w, Header.JOB, 8)
    tables = f.load(PTR, job, field(Job, "tables"), 8)
    entry = f.at(tables, b.mul(b.zext(table, I64), i64(ctypes.sizeof(Table))))
    index, none = b.zext(slot, I64), ir.Constant(PTR, None)
    known = b.icmp_unsigned("<", table, i32(Tables.COUNT))
    count = f.load(I64, b.select(known, entry, tables), field(Table, "count"), 8)
    with f.when(b.or_(b.not_(known), b.icmp_unsigned(">=", index, count))):
        f.call("record", VOID, [w, i32(Fault.IMAGE_SLOT), pc, lane, index, table])
        b.ret(none)
    records = f.load(PTR, entry, field(Table, "records"), 8)
    found = f.at(records, b.mul(index, i64(ctypes.sizeof(SamplerRecord))))
    with f.when(b.icmp_signed("==", get(f, found, SamplerRecord, "bound"), i32(0))):
        f.call("record", VOID, [w, i32(Fault.DESCRIPTOR), pc, lane, index, table])
        b.ret(none)
    b.ret(found)
    f.finish()


class _Sources:
    """A lane's scalars of both sources, by place; those that are not there read as the first."""

    def __init__(self, a: Lanes, lane: Any, how: Any) -> None:
        self.a, self.f, self.lane, self.how = a, a.f, lane, how
        b = self.f.b
        self.axes = b.select(self.has(DEEP), i32(3), i32(2))
        self.reference = self.axes
        self.layer = b.add(self.axes, b.zext(self.has(SHADOW), I32))
        behind = b.add(self.layer, b.zext(self.has(LAYERED), I32))
        self.gradients = b.select(b.icmp_signed("<", behind, i32(4)), i32(4), behind)
        self.level = b.select(self.has(OFFSETS), self.axes, i32(0))

    def has(self, bit: int) -> Any:
        return flag(self.f, self.how, bit)

    def scalar(self, source: int, place: Any, bit: int = 0) -> Any:
        """One scalar; ``bit`` of how says whether it is there, else it is 0."""
        f, b = self.f, self.f.b
        place = i32(place) if isinstance(place, int) else place
        there = self.has(bit) if bit else ir.Constant(I1, 1)
        row = b.mul(b.zext(b.select(there, place, i32(0)), I64), i64(4 * self.a.wave))
        value = f.load(I32, self.a.rows[source], b.add(row, b.mul(self.lane, i64(4))), 4)
        return b.select(there, value, i32(0))


class _Sample:
    """The texture of one lane: what its sampler makes of its sources."""

    def __init__(self, a: Lanes, sources: _Sources, record: Any, sampler: Any, gather: Any) -> None:
        self.a, self.f, self.sources, self.record, self.sampler = a, a.f, sources, record, sampler
        b = self.f.b
        self.gathers = b.icmp_signed(">=", gather, i32(0))
        self.cube = b.icmp_signed("!=", get(self.f, record, TextureRecord, "cube"), i32(0))
        self.ask = self.f.local(ir.ArrayType(I32, Ask.COUNT), align=16)
        self.face = self.f.local(I32, i32(0))
        self._put(Ask.GATHER, gather)
        self._place()
        self._put(Ask.REFERENCE, sources.scalar(0, sources.reference, SHADOW))
        x, y, z = (sources.scalar(1, axis, OFFSETS) for axis in range(3))
        for axis, value in enumerate((x, y, b.select(sources.has(DEEP), z, i32(0)))):
            self._put(Ask.OFFSET + axis, value)

    def _put(self, place: int, value: Any) -> None:
        self.f.store(value, self.ask, 4 * place, 4)

    def _place(self) -> None:
        """Coordinates and layer; of a cube the face, its coordinates and its layer."""
        f, b, sources = self.f, self.f.b, self.sources
        direction = [sources.scalar(0, n, DEEP if n == 2 else 0) for n in range(3)]
        for axis, value in enumerate(direction):
            self._put(Ask.X + axis, value)
        layers = get(f, self.record, TextureRecord, "depth")
        layers = b.select(self.cube, b.udiv(layers, i32(cube_ops.SIDES)), layers)
        layer = self._layer(sources.scalar(0, sources.layer, LAYERED), layers)
        layer = b.select(sources.has(LAYERED), layer, i32(0))
        self._put(Ask.LAYER, layer)
        self._put(Ask.HOW, sources.how)
        with f.when(self.cube):
            floats = [b.bitcast(clean(f, value), FLOAT) for value in direction]
            face = cube_ops.pointed(f, floats)
            b.store(face, self.face)
            x, y, major = cube_ops.on_face(f, face, floats)
            half = ir.Constant(FLOAT, 0.5)
            for place, part in ((Ask.X, x), (Ask.Y, y)):
                self._put(place, b.bitcast(b.fadd(b.fmul(b.fdiv(part, major), half), half), I32))
            self._put(Ask.LAYER, b.add(b.mul(layer, i32(cube_ops.SIDES)), face))
            self._put(Ask.HOW, b.and_(sources.how, i32(~DEEP)))

    def _layer(self, coordinate: Any, layers: Any) -> Any:
        """Compilers add a half to a layer (Mesa, ``array_index_add_half``): what is cut off rounds it."""
        f, b = self.f, self.f.b
        whole = f.call("llvm.floor.f32", FLOAT, [b.bitcast(clean(f, coordinate), FLOAT)])
        number = f.call("llvm.fptosi.sat.i32.f32", I32, [whole])
        return clamped(f, number, i32(0), b.sub(layers, i32(1)))

    def _detail(self) -> Any:
        """The level of detail in 1/256, before bias and bounds."""
        f, b, sources = self.f, self.f.b, self.sources
        level = f.local(I32)
        b.store(detail_ops.given(f, sources.scalar(1, sources.level, LEVEL)), level)
        with f.when(sources.has(GRADIENTS)):
            vectors = []
            starts = (i32(0), sources.gradients, b.add(sources.gradients, sources.axes))
            for start in starts:
                vector = f.local(ir.ArrayType(I32, 3), align=4)
                for axis in range(3):
                    there = ir.Constant(I1, 1) if axis < 2 else sources.has(DEEP)
                    value = sources.scalar(0, b.add(start, i32(axis)), GRADIENTS)
                    f.store(b.select(there, value, i32(0)), vector, 4 * axis, 4)
                vectors.append(vector)
            unnormalized = b.icmp_signed("!=", get(f, self.sampler, SamplerRecord, "unnormalized"), i32(0))
            shared = [self.record, unnormalized, sources.has(DEEP), f.get(self.face, I32), vectors[0]]
            squares = [f.call("length", ir.DoubleType(), [*shared, vector]) for vector in vectors[1:]]
            longer = b.select(b.fcmp_ordered(">", squares[1], squares[0]), squares[1], squares[0])
            b.store(f.call("logarithm", I32, [longer]), level)
        return f.get(level, I32)

    def _mixes(self, level: Any) -> Any:
        """Whether neighbours count at a level of detail."""
        f, b = self.f, self.f.b
        magnified = b.icmp_signed("<=", level, i32(0))
        modes = (get(f, self.sampler, SamplerRecord, name) for name in ("magnified", "minified"))
        linear = b.icmp_signed("!=", b.select(magnified, *modes), i32(0))
        linear = b.and_(linear, b.not_(integers(f, self.record)))
        return b.or_(linear, self.gathers)

    def undecided(self) -> Any:
        """Whether the result depends on a level of detail that nothing tells."""
        f, b = self.f, self.f.b
        ways = [get(f, self.sampler, SamplerRecord, name) for name in ("magnified", "minified")]
        several = b.icmp_signed("!=", get(f, self.record, TextureRecord, "levels"), i32(1))
        return b.and_(self.sources.has(IMPLICIT), b.or_(several, b.icmp_signed("!=", *ways)))

    def texel(self) -> Any:
        """Four components."""
        f, b = self.f, self.f.b
        level = detail_ops.bounded(f, self.record, self.sampler, self._detail())
        first, weight = detail_ops.levels(f, self.record, self.sampler, level, self.gathers)
        self._put(Ask.LINEAR, b.zext(self._mixes(level), I32))

        def of(number: Any) -> Any:
            record = detail_ops.record_of(f, self.record, number, _RECORD)
            return f.call("sampled", QUAD, [self.a.w, self.a.pc, record, self.sampler, self.ask])

        return mixes(f, of(first), weight, lambda: of(b.add(first, i32(1))))


def _filter(module: Any, wave: int, kind: str) -> None:
    """surface_filter_*(w, data row, first source's row, second's, slot row, table, sampler slot row,
    sampler table row, component mask, gathered component, how, pc)."""
    a = Lanes(module, wave, f"surface_filter_{kind}", [PTR, PTR, I32, I32, I32], rows=2)
    f, b, (samplers, tables, mask, gather, how) = a.f, a.f.b, a.further
    step = KINDS[kind][1] // 8

    def read(lane: Any, record: Any, _: list[Any]) -> None:
        a.mapped(record, lane, f.load(I64, record, field(TextureRecord, "address"), 8))
        slot, table = (f.load(I32, row, b.mul(lane, i64(4)), 4) for row in (samplers, tables))
        lane32 = b.trunc(lane, I32)
        sampler = f.call("find_sampler", PTR, [a.w, table, slot, lane32, a.pc])
        with f.when(b.icmp_unsigned("==", b.ptrtoint(sampler, I64), i64(0))):
            b.ret(i32(Status.FAULT))
        sample = _Sample(a, _Sources(a, lane, how), record, sampler, gather)
        with f.when(sample.undecided()):
            a.fault(Fault.DERIVATIVES, lane, i64(0))
        a.put(sample.texel(), mask, lane, kind, step)

    a.run(read)


def _fetch(module: Any, wave: int, kind: str) -> None:
    """surface_fetch_*(..., level row, sample row, component mask, pc): a texel of a level of detail.

    Zeros from a level or a sample that is not there.
    """
    a = Lanes(module, wave, f"surface_fetch_{kind}", [PTR, PTR, I32])
    f, b, (levels, samples, mask) = a.f, a.f.b, a.further
    step = KINDS[kind][1] // 8

    def read(lane: Any, record: Any, coordinates: list[Any]) -> None:
        a.mapped(record, lane, f.load(I64, record, field(TextureRecord, "address"), 8))
        at = b.mul(lane, i64(4))
        level, sample = (f.load(I32, row, at, 4) for row in (levels, samples))
        there = [
            b.icmp_unsigned("<", number, get(f, record, TextureRecord, name))
            for number, name in ((level, "levels"), (sample, "samples"))
        ]
        texel = f.local(QUAD)
        b.store(ZERO, texel)
        with f.when(b.and_(*there)):
            chosen = detail_ops.record_of(f, record, level, _RECORD)
            offset = b.mul(b.zext(sample, I64), sample_bytes(f, record))
            b.store(_of_sample(f, a, chosen, coordinates, offset), texel)
        a.put(f.get(texel, QUAD), mask, lane, kind, step)

    a.run(read)


def _isaml(module: Any, wave: int, kind: str) -> None:
    """isaml_*(w, data row, x row, y row, zero row, slot row, slot, level row, mask, pc).

    As isam_* where all lanes want the largest level, unless races are looked for; else lane by lane.
    """
    pointers = [PTR] * 6
    f = Function(module, f"isaml_{kind}", I32, [*pointers, I32, PTR, I32, I32])
    w, data, x, y, zero, slots, slot, levels, mask, pc = f.args
    b, vector = f.b, ir.VectorType(I32, CHUNK)
    others = f.local(I32)
    b.store(b.zext(watched(f, w), I32), others)
    with lanes.chunks(f, w) as (active, first):
        wanted = f.load(vector, levels, b.mul(first, i64(4)), 64)
        other = b.bitcast(b.icmp_signed("!=", wanted, ir.Constant(vector, [0] * CHUNK)), I32)
        b.store(b.or_(f.get(others, I32), b.and_(other, active)), others)
    with f.when(b.icmp_signed("==", f.get(others, I32), i32(0))):
        b.ret(f.call(f"isam_{kind}", I32, [w, data, x, y, slot, mask, pc]))
    arguments = [w, data, x, y, zero, slots, i32(Tables.TEXTURES), levels, zero, mask, pc]
    b.ret(f.call(f"surface_fetch_{kind}", I32, arguments))
    f.finish()


def _of_sample(f: Function, a: Lanes, record: Any, coordinates: list[Any], offset: Any) -> Any:
    """A texel ``offset`` bytes behind the first sample: the record of an image that begins there."""
    size = i64(_RECORD)
    moved = f.local(ir.ArrayType(ir.IntType(8), _RECORD), align=16)
    f.call("llvm.memcpy.p0.p0.i64", VOID, [moved, record, size, ir.Constant(I1, 0)])
    place = field(TextureRecord, "address")
    f.store(f.b.add(f.load(I64, record, place, 8), offset), moved, place, 8)
    return f.call("seen", QUAD, [a.w, a.pc, moved, *coordinates])


def _extent(module: Any, wave: int) -> None:
    """surface_extent(..., mask, pc): width, height, depth at the level of detail x, and layers."""
    a = Lanes(module, wave, "surface_extent", [I32])
    f, b, (mask,) = a.f, a.f.b, a.further

    def extent(lane: Any, record: Any, coordinates: list[Any]) -> None:
        level = b.select(b.icmp_unsigned("<", coordinates[0], i32(31)), coordinates[0], i32(31))
        found: Any = ir.Constant(QUAD, ir.Undefined)
        cube = b.icmp_signed("!=", get(f, record, TextureRecord, "cube"), i32(0))
        depth = get(f, record, TextureRecord, "depth")
        depth = b.select(cube, b.udiv(depth, i32(cube_ops.SIDES)), depth)
        sizes = [get(f, record, TextureRecord, name) for name in ("width", "height")]
        for place, whole in enumerate((*sizes, depth)):
            size = b.lshr(whole, level)
            size = b.select(b.icmp_signed("==", size, i32(0)), i32(1), size)
            found = b.insert_element(found, size, i32(place))
        a.put(b.insert_element(found, depth, i32(3)), mask, lane, "f32", 4)

    a.run(extent)


def _facts(module: Any, wave: int) -> None:
    """surface_facts(..., mask, pc): elements of a buffer, nothing, levels and samples of a texture."""
    a = Lanes(module, wave, "surface_facts", [I32])
    f, b, (mask,) = a.f, a.f.b, a.further

    def facts(lane: Any, record: Any, coordinates: list[Any]) -> None:
        found: Any = ZERO
        for place, name in ((0, "width"), (2, "levels"), (3, "samples")):
            found = b.insert_element(found, get(f, record, TextureRecord, name), i32(place))
        a.put(found, mask, lane, "f32", 4)

    a.run(facts)
