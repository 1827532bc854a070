"""The runtime's levels of detail: from derivatives of coordinates, and which levels a sampler then reads.

Levels count in 1/256 (Mesa, ``tu_device.cc``, ``mipmapPrecisionBits``). From derivatives: the logarithm of
the longer of their two lengths in texels, computed exactly and rounded to nearest. Halfway between two levels
the larger image is nearest (``chip.choice("detail-of-gradients")``, ``"detail-halfway"``).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor.cube_ops import on_face
from pytest_qcom.virtual.executor.irgen import FLOAT, I1, I32, I64, PTR, Function, i32, i64
from pytest_qcom.virtual.executor.layout import SamplerRecord, TextureRecord
from pytest_qcom.virtual.executor.sampler_ops import ONE, clamped, clean, get

_DOUBLE = ir.DoubleType()
_BITS = 7  # of the logarithm of a square, twice that of a length


def emit(module: Any) -> None:
    """Adds the functions to ``module``."""
    _logarithm(module)
    _length(module)


def _logarithm(module: Any) -> None:
    """logarithm(square): of the square root, in 1/256, to nearest; far below 0 for 0."""
    f = Function(module, "logarithm", I32, [_DOUBLE], private=True)
    b = f.b
    scaled = b.fmul(f.args[0], ir.Constant(_DOUBLE, 2.0 ** (1 / (2 * 2**_BITS))))
    bits = b.bitcast(scaled, I64)
    exponent = b.sub(b.and_(b.lshr(bits, i64(52)), i64(0x7FF)), i64(1023))
    one = i64(1023 << 52)
    mantissa = b.bitcast(b.or_(b.and_(bits, i64((1 << 52) - 1)), one), _DOUBLE)
    result = exponent
    for _ in range(_BITS):  # a bit for each squaring
        mantissa = b.fmul(mantissa, mantissa)
        above = b.fcmp_ordered(">=", mantissa, ir.Constant(_DOUBLE, 2.0))
        mantissa = b.select(above, b.fmul(mantissa, ir.Constant(_DOUBLE, 0.5)), mantissa)
        result = b.add(b.shl(result, i64(1)), b.zext(above, I64))
    b.ret(b.trunc(result, I32))
    f.finish()


def _length(module: Any) -> None:
    """length(record, unnormalized, deep, direction, derivative): the square of a derivative's length.

    Both are three f32, the direction counts for cubes only.
    """
    f = Function(module, "length", _DOUBLE, [PTR, I1, I1, I32, PTR, PTR], private=True)
    record, unnormalized, deep, face, direction, derivative = f.args
    b = f.b

    def parts(pointer: Any) -> list[Any]:
        values = [f.load(I32, pointer, 4 * n, 4) for n in range(3)]
        return [b.fpext(b.bitcast(clean(f, value), FLOAT), _DOUBLE) for value in values]

    steps = parts(derivative)
    cube = b.icmp_signed("!=", get(f, record, TextureRecord, "cube"), i32(0))
    (x, y, major), (dx, dy, step) = (on_face(f, face, values) for values in (parts(direction), steps))
    square = b.fmul(major, major)
    half = ir.Constant(_DOUBLE, 0.5)
    turned = []
    for place, change in ((x, dx), (y, dy)):  # of place / major / 2
        moved = b.fsub(b.fmul(major, change), b.fmul(place, step))
        turned.append(b.fdiv(b.fmul(half, moved), square))
    zero, total = ir.Constant(_DOUBLE, 0.0), ir.Constant(_DOUBLE, 0.0)
    flat = [steps[0], steps[1], b.select(deep, steps[2], zero)]
    for value, other, name in zip(flat, [*turned, zero], ("width", "height", "depth"), strict=True):
        size = b.sitofp(get(f, record, TextureRecord, name), _DOUBLE)
        size = b.select(unnormalized, ir.Constant(_DOUBLE, 1.0), size)
        texels = b.fmul(b.select(cube, other, value), size)
        total = b.fadd(total, b.fmul(texels, texels))
    b.ret(total)
    f.finish()


def given(f: Function, bits: Any) -> Any:
    """A level of detail that a program gives as f32 bits, in 1/256; NaN counts as 0."""
    scaled = f.b.fmul(f.b.bitcast(clean(f, bits), FLOAT), ir.Constant(FLOAT, float(ONE)))
    rounded = f.call("llvm.roundeven.f32", FLOAT, [scaled])
    level = f.call("llvm.fptosi.sat.i32.f32", I32, [rounded])
    return clamped(f, level, i32(-(1 << 20)), i32(1 << 20))


def bounded(f: Function, record: Any, sampler: Any, level: Any) -> Any:
    """A level of detail with the sampler's bias, within its bounds and the texture's."""
    level = f.b.add(level, get(f, sampler, SamplerRecord, "bias"))
    level = clamped(f, level, get(f, sampler, SamplerRecord, "least"), get(f, sampler, SamplerRecord, "most"))
    least = get(f, record, TextureRecord, "least")
    return f.b.select(f.b.icmp_signed("<", level, least), least, level)


def levels(f: Function, record: Any, sampler: Any, level: Any, base: Any) -> tuple[Any, Any]:
    """The first of two levels that are read, and the weight of the next one; the largest with ``base``."""
    b = f.b
    top = b.sub(get(f, record, TextureRecord, "levels"), i32(1))
    single = b.icmp_signed("!=", get(f, sampler, SamplerRecord, "single"), i32(0))
    largest = b.or_(b.or_(base, single), b.icmp_signed("<=", level, i32(0)))
    mips = b.icmp_signed("!=", get(f, sampler, SamplerRecord, "mips"), i32(0))
    nearest = b.lshr(b.add(level, i32(ONE // 2 - 1)), i32(8))
    first = b.select(mips, b.lshr(level, i32(8)), nearest)
    behind = b.icmp_signed(">=", first, top)
    weight = b.select(b.or_(behind, b.not_(mips)), i32(0), b.and_(level, i32(ONE - 1)))
    first = b.select(behind, top, first)
    return b.select(largest, i32(0), first), b.select(largest, i32(0), weight)


def record_of(f: Function, record: Any, level: Any, size: int) -> Any:
    """The record of a level of detail."""
    b = f.b
    index = b.sub(b.zext(level, I64), i64(1))
    further = f.at(f.load(PTR, record, TextureRecord.further.offset, 8), b.mul(index, i64(size)))
    return b.select(b.icmp_signed("==", level, i32(0)), record, further)
