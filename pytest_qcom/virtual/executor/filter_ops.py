"""The runtime's textures at coordinates, as a sampler has them: wraps, borders, the mix of neighbours, sizes.

Lane by lane. Places are counted in 1/256 of a texel, and so are the weights of a mix (Mesa, ``tu_device.cc``,
``subTexelPrecisionBits``); neighbours in x are mixed first, then in y, then in z, each mix rounded to f32
[order undocumented]. A texture has one level; the level of detail tells magnified from minified.
"""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir

from pytest_qcom.chip import A630
from pytest_qcom.virtual.dispatch import Format, Wrap
from pytest_qcom.virtual.executor.image_ops import KINDS
from pytest_qcom.virtual.executor.irgen import FLOAT, I1, I32, I64, PTR, Function, i32, i64
from pytest_qcom.virtual.executor.layout import (
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
from pytest_qcom.virtual.executor.surface_ops import Lanes
from pytest_qcom.virtual.executor.texel_ops import QUAD

LAYERED, DEEP = 1, 2
"""What a third coordinate is: a layer, or one like the others."""

_BITS: int = A630.images.subtexel_bits.value
_ONE = 1 << _BITS
_FLOATS = ir.VectorType(FLOAT, 4)


def emit(module: Any, wave: int) -> None:
    """Adds the functions for waves of ``wave`` fibers to ``module``."""
    _wrapped(module)
    _fixed(module)
    _tap(module)
    _mixed(module)
    _plane(module)
    for kind in KINDS:
        if kind != "u16":
            _filter(module, wave, kind)
    _extent(module, wave)


def _get(f: Function, record: Any, kind: type[ctypes.Structure], name: str, ty: Any = I32) -> Any:
    return f.load(ty, record, field(kind, name), 4)


def _wrapped(module: Any) -> None:
    """wrapped(number, count, wrap): which texel of a row stands for one of any number; -1: the border."""
    f = Function(module, "wrapped", I32, [I32, I32, I32], private=True)
    number, count, wrap = f.args
    b = f.b
    zero, last = i32(0), b.sub(count, i32(1))

    def modulo(period: Any) -> Any:
        rest = b.srem(b.sext(number, I64), period)
        return b.select(b.icmp_signed("<", rest, i64(0)), b.add(rest, period), rest)

    def clamped(value: Any) -> Any:
        value = b.select(b.icmp_signed("<", value, zero), zero, value)
        return b.select(b.icmp_signed(">", value, last), last, value)

    wide = b.zext(count, I64)
    double = b.add(wide, wide)
    turn = modulo(double)
    back = b.select(b.icmp_signed("<", turn, wide), turn, b.sub(b.sub(double, i64(1)), turn))
    mirrored = b.select(b.icmp_signed("<", number, zero), b.not_(number), number)
    values = {
        Wrap.REPEAT: b.trunc(modulo(wide), I32),
        Wrap.CLAMP_TO_EDGE: clamped(number),
        Wrap.MIRROR_REPEAT: b.trunc(back, I32),
        Wrap.MIRROR_CLAMP: clamped(mirrored),
    }
    result = b.select(b.icmp_unsigned("<", number, count), number, i32(-1))
    for way, value in values.items():
        result = b.select(b.icmp_signed("==", wrap, i32(way.value)), value, result)
    b.ret(result)
    f.finish()


def _fixed(module: Any) -> None:
    """fixed(coordinate, count, unnormalized, linear): a place in 1/256 texels, NaN as 0.

    With ``linear`` from the middle of the first texel, else the start of the texel that the place is in.
    """
    f = Function(module, "fixed", I32, [I32, I32, I1, I1], private=True)
    coordinate, count, unnormalized, linear = f.args
    b = f.b
    value = b.bitcast(_clean(f, coordinate), FLOAT)
    scaled = b.bitcast(_clean(f, b.bitcast(b.fmul(value, b.sitofp(count, FLOAT)), I32)), FLOAT)
    value = b.select(unnormalized, value, scaled)
    scale, half = ir.Constant(FLOAT, float(_ONE)), ir.Constant(FLOAT, 0.5)
    middle = f.call("llvm.roundeven.f32", FLOAT, [b.fmul(b.fsub(value, half), scale)])
    start = b.fmul(f.call("llvm.floor.f32", FLOAT, [value]), scale)
    b.ret(f.call("llvm.fptosi.sat.i32.f32", I32, [b.select(linear, middle, start)]))
    f.finish()


def _clean(f: Function, bits: Any) -> Any:
    """f32 bits, scalar or vector, with zeros for subnormals: not every host's arithmetic flushes them."""

    def constant(value: int) -> Any:
        vector = isinstance(bits.type, ir.VectorType)
        return ir.Constant(bits.type, [value] * bits.type.count if vector else value)

    tiny = f.b.icmp_unsigned("==", f.b.and_(bits, constant(0x7F800000)), constant(0))
    return f.b.select(tiny, f.b.and_(bits, constant(0x80000000)), bits)


def _tap(module: Any) -> None:
    """tap(record, sampler, x, y, z): a texel, or the border where a coordinate is -1."""
    f = Function(module, "tap", QUAD, [PTR, PTR, I32, I32, I32], private=True)
    record, sampler, x, y, z = f.args
    b = f.b
    with f.when(b.icmp_signed("<", b.or_(b.or_(x, y), z), i32(0))):
        b.ret(f.load(QUAD, sampler, field(SamplerRecord, "border"), 4))
    b.ret(f.call("texel", QUAD, [record, x, y, z]))
    f.finish()


def _mixed(module: Any) -> None:
    """mixed(left, right, weight): the right one counts ``weight`` of 256. With 0 the left one, as it is."""
    f = Function(module, "mixed", QUAD, [QUAD, QUAD, I32], private=True)
    left, right, weight = f.args
    b = f.b
    with f.when(b.icmp_signed("==", weight, i32(0))):
        b.ret(left)
    parts = []
    for texel, share in ((left, b.sub(i32(_ONE), weight)), (right, weight)):
        factor = b.fmul(b.sitofp(share, FLOAT), ir.Constant(FLOAT, 1 / _ONE))
        product = b.fmul(b.bitcast(_clean(f, texel), _FLOATS), f.broadcast(factor, 4))
        parts.append(b.bitcast(_clean(f, b.bitcast(product, QUAD)), _FLOATS))
    b.ret(_clean(f, b.bitcast(b.fadd(*parts), QUAD)))
    f.finish()


def _plane(module: Any) -> None:
    """plane(record, sampler, x, next x, y, next y, z, weight in x, in y): a mix of four texels."""
    f = Function(module, "plane", QUAD, [PTR, PTR, *[I32] * 7], private=True)
    record, sampler, x0, x1, y0, y1, z, weight_x, weight_y = f.args
    rows = []
    for y in (y0, y1):
        texels = [f.call("tap", QUAD, [record, sampler, x, y, z]) for x in (x0, x1)]
        rows.append(f.call("mixed", QUAD, [*texels, weight_x]))
    f.b.ret(f.call("mixed", QUAD, [*rows, weight_y]))
    f.finish()


class _Filter:
    """The texture of one lane: what its sampler makes of its coordinates."""

    def __init__(self, f: Function, record: Any, sampler: Any, gathers: Any) -> None:
        self.f, self.record, self.sampler, self.gathers = f, record, sampler, gathers

    def _setting(self, name: str, ty: Any = I32) -> Any:
        return _get(self.f, self.sampler, SamplerRecord, name, ty)

    def _size(self, name: str) -> Any:
        return _get(self.f, self.record, TextureRecord, name)

    def linear(self, lod: Any) -> Any:
        """Whether neighbours count at a level of detail."""
        b = self.f.b
        level = b.fadd(b.bitcast(lod, FLOAT), self._setting("bias", FLOAT))
        for name, relation in (("least", "<"), ("most", ">")):
            bound = self._setting(name, FLOAT)
            level = b.select(b.fcmp_ordered(relation, level, bound), bound, level)
        magnified = b.fcmp_ordered("<=", level, ir.Constant(FLOAT, 0.0))
        mode = b.select(magnified, self._setting("magnified"), self._setting("minified"))
        mixes = b.icmp_signed("!=", mode, i32(0))
        for form in Format:
            if form.integer:
                other = b.icmp_signed("!=", self._size("format"), i32(form.value))
                mixes = b.and_(mixes, other)
        return b.or_(mixes, self.gathers)

    def axis(self, number: int, coordinate: Any, linear: Any) -> tuple[Any, Any, Any]:
        """Two texels of an axis, and the weight of the second."""
        b, size = self.f.b, self._size(("width", "height", "depth")[number])
        unnormalized = b.icmp_signed("!=", self._setting("unnormalized"), i32(0))
        place = self.f.call("fixed", I32, [coordinate, size, unnormalized, linear])
        return self._pair(number, place, size)

    def _pair(self, number: int, place: Any, size: Any) -> tuple[Any, Any, Any]:
        f, b = self.f, self.f.b
        wrap = f.load(I32, self.sampler, field(SamplerRecord, "wraps") + 4 * number, 4)
        first = b.ashr(place, i32(_BITS))
        pair = [f.call("wrapped", I32, [n, size, wrap]) for n in (first, b.add(first, i32(1)))]
        return pair[0], pair[1], b.and_(place, i32(_ONE - 1))

    def third(self, how: Any, coordinate: Any, linear: Any) -> tuple[Any, Any, Any]:
        """As :meth:`axis` of z: a layer, one of a third axis, or none.

        Compilers add a half to a layer (Mesa, ``array_index_add_half``), so that what is cut off rounds it.
        """
        f, b = self.f, self.f.b
        deep = self.axis(2, coordinate, linear)
        layer = f.call("llvm.floor.f32", FLOAT, [b.bitcast(_clean(f, coordinate), FLOAT)])
        number, last = f.call("llvm.fptosi.sat.i32.f32", I32, [layer]), b.sub(self._size("depth"), i32(1))
        number = b.select(b.icmp_signed("<", number, i32(0)), i32(0), number)
        number = b.select(b.icmp_signed(">", number, last), last, number)
        flat = b.select(b.icmp_signed("==", how, i32(LAYERED)), number, i32(0))
        is_deep = b.icmp_signed("==", how, i32(DEEP))
        first, second, weight = (
            b.select(is_deep, *pair) for pair in zip(deep, (flat, flat, i32(0)), strict=True)
        )
        return first, second, weight


def _filter(module: Any, wave: int, kind: str) -> None:
    """surface_filter_*(..., level of detail row, sampler, component mask, gathered component, how, pc)."""
    a = Lanes(module, wave, f"surface_filter_{kind}", [PTR, I32, I32, I32, I32])
    f, b, (levels, number, mask, gather, how) = a.f, a.f.b, a.further
    step = KINDS[kind][1] // 8
    job = f.load(PTR, a.w, Header.JOB, 8)
    tables = f.load(PTR, job, field(Job, "tables"), 8)
    entry = f.at(tables, Tables.SAMPLERS * ctypes.sizeof(Table))
    index = b.zext(number, I64)
    with f.when(b.icmp_unsigned(">=", index, f.load(I64, entry, field(Table, "count"), 8))):
        f.call(
            "record", ir.VoidType(), [a.w, i32(Fault.IMAGE_SLOT), a.pc, i32(0), index, i32(Tables.SAMPLERS)]
        )
        b.ret(i32(Status.FAULT))
    records = f.load(PTR, entry, field(Table, "records"), 8)
    sampler = f.at(records, b.mul(index, i64(ctypes.sizeof(SamplerRecord))))
    gathers = b.icmp_signed(">=", gather, i32(0))

    def read(lane: Any, record: Any, coordinates: list[Any]) -> None:
        a.mapped(record, lane, f.load(I64, record, field(TextureRecord, "address"), 8))
        c = _Filter(f, record, sampler, gathers)
        linear = c.linear(f.load(I32, levels, b.mul(lane, i64(4)), 4))
        x0, x1, weight_x = c.axis(0, coordinates[0], linear)
        y0, y1, weight_y = c.axis(1, coordinates[1], linear)
        z0, z1, weight_z = c.third(how, coordinates[2], linear)
        texel = f.local(QUAD)
        with b.if_else(gathers) as (four, one):
            with four:
                found: Any = ir.Constant(QUAD, ir.Undefined)
                for place, (x, y) in enumerate(((x0, y1), (x1, y1), (x1, y0), (x0, y0))):
                    tap = f.call("tap", QUAD, [record, sampler, x, y, z0])
                    found = b.insert_element(found, b.extract_element(tap, gather), i32(place))
                b.store(found, texel)
            with one:
                planes = [
                    f.call("plane", QUAD, [record, sampler, x0, x1, y0, y1, z, weight_x, weight_y])
                    for z in (z0, z1)
                ]
                b.store(f.call("mixed", QUAD, [*planes, weight_z]), texel)
        a.put(f.get(texel, QUAD), mask, lane, kind, step)

    a.run(read)


def _extent(module: Any, wave: int) -> None:
    """surface_extent(..., mask, pc): width, height, depth at the level of detail x, and layers."""
    a = Lanes(module, wave, "surface_extent", [I32])
    f, b, (mask,) = a.f, a.f.b, a.further

    def extent(lane: Any, record: Any, coordinates: list[Any]) -> None:
        level = b.select(b.icmp_unsigned("<", coordinates[0], i32(31)), coordinates[0], i32(31))
        found: Any = ir.Constant(QUAD, ir.Undefined)
        for place, name in enumerate(("width", "height", "depth")):
            size = b.lshr(_get(f, record, TextureRecord, name), level)
            size = b.select(b.icmp_signed("==", size, i32(0)), i32(1), size)
            found = b.insert_element(found, size, i32(place))
        found = b.insert_element(found, _get(f, record, TextureRecord, "depth"), i32(3))
        a.put(found, mask, lane, "f32", 4)

    a.run(extent)
