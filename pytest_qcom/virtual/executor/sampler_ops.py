"""The runtime's texels of a level of detail, as a sampler has them: wraps, borders, neighbours and their mix.

Places are counted in 1/256 of a texel, and so are the weights of a mix (Mesa, ``tu_device.cc``,
``subTexelPrecisionBits``); neighbours in x are mixed first, then in y, then in z, each mix rounded to f32
[order undocumented]. A shadow sampler compares texels before it mixes; its number is held within 0 and 1
where texels are (Vulkan, "Depth Compare Operation").
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from pytest_qcom.chip import A630
from pytest_qcom.virtual.dispatch import Compare, Format, Wrap
from pytest_qcom.virtual.executor.irgen import FLOAT, I1, I32, I64, PTR, VOID, Function, i32, i64
from pytest_qcom.virtual.executor.layout import Header, Job, SamplerRecord, TextureRecord, field
from pytest_qcom.virtual.executor.race_ops import READ
from pytest_qcom.virtual.executor.texel_ops import QUAD

LAYERED, DEEP, SHADOW, OFFSETS, LEVEL, GRADIENTS, IMPLICIT = (1 << bit for bit in range(7))
"""What a sample's sources hold: a layer, a third coordinate, a number to compare with; offsets, a level of
detail, derivatives. ``IMPLICIT``: derivatives are meant that nobody gave."""

_BITS: int = A630.images.subtexel_bits.value
ONE = 1 << _BITS
_FLOATS = ir.VectorType(FLOAT, 4)


class Ask:
    """Places of what one lane wants, an i32 or f32 each."""

    X, Y, Z, LAYER, REFERENCE, OFFSET, _, _, LINEAR, GATHER, HOW = range(11)
    COUNT = 11


def emit(module: Any) -> None:
    """Adds the functions to ``module``."""
    _wrapped(module)
    _fixed(module)
    _seen(module)
    _compared(module)


def emit_mixes(module: Any) -> None:
    """Adds those that need the taps of cubes."""
    _tap(module)
    _mixed(module)
    _row(module)
    _plane(module)
    _sampled(module)


def get(f: Function, record: Any, kind: type[ctypes.Structure], name: str, ty: Any = I32) -> Any:
    """A field of a record."""
    return f.load(ty, record, field(kind, name), 4)


def formatted(f: Function, record: Any, wanted: Callable[[Format], bool]) -> Any:
    """Whether a texture's format is one of those that are wanted."""
    number, found = get(f, record, TextureRecord, "format"), ir.Constant(I1, 0)
    for form in filter(wanted, Format):
        found = f.b.or_(found, f.b.icmp_signed("==", number, i32(form.value)))
    return found


def integers(f: Function, record: Any) -> Any:
    """Whether a texture's components are integers, which are not mixed."""
    return formatted(f, record, lambda form: form.integer)


def sample_bytes(f: Function, record: Any) -> Any:
    """Bytes of one sample of a texel, an i64."""
    samples = f.b.zext(get(f, record, TextureRecord, "samples"), I64)
    return f.b.udiv(f.load(I64, record, field(TextureRecord, "texel"), 8), samples)


def watched(f: Function, w: Any) -> Any:
    """Whether races are looked for."""
    job = f.load(PTR, w, Header.JOB, 8)
    shadows = f.b.ptrtoint(f.load(PTR, job, field(Job, "shadows"), 8), I64)
    return f.b.icmp_signed("!=", shadows, i64(0))


def asked(f: Function, ask: Any, place: int, ty: Any = I32) -> Any:
    """One of the places of :class:`Ask`."""
    return f.load(ty, ask, 4 * place, 4)


def flag(f: Function, bits: Any, bit: int) -> Any:
    """Whether a bit is set."""
    return f.b.icmp_signed("!=", f.b.and_(bits, i32(bit)), i32(0))


def clamped(f: Function, value: Any, low: Any, high: Any) -> Any:
    """A signed number within bounds, the upper one if they cross."""
    value = f.b.select(f.b.icmp_signed("<", value, low), low, value)
    return f.b.select(f.b.icmp_signed(">", value, high), high, value)


def clean(f: Function, bits: Any) -> Any:
    """f32 bits, scalar or vector, with zeros for subnormals: not every host's arithmetic flushes them."""

    def constant(value: int) -> Any:
        vector = isinstance(bits.type, ir.VectorType)
        return ir.Constant(bits.type, [value] * bits.type.count if vector else value)

    tiny = f.b.icmp_unsigned("==", f.b.and_(bits, constant(0x7F800000)), constant(0))
    return f.b.select(tiny, f.b.and_(bits, constant(0x80000000)), bits)


def _wrapped(module: Any) -> None:
    """wrapped(number, count, wrap): which texel of a row stands for one of any number; -1: the border."""
    f = Function(module, "wrapped", I32, [I32, I32, I32], private=True)
    number, count, wrap = f.args
    b = f.b
    with f.when(b.icmp_unsigned("<", number, count)):
        b.ret(number)
    zero, last = i32(0), b.sub(count, i32(1))

    def modulo(period: Any) -> Any:
        rest = b.srem(b.sext(number, I64), period)
        return b.select(b.icmp_signed("<", rest, i64(0)), b.add(rest, period), rest)

    wide = b.zext(count, I64)
    double = b.add(wide, wide)
    turn = modulo(double)
    back = b.select(b.icmp_signed("<", turn, wide), turn, b.sub(b.sub(double, i64(1)), turn))
    mirrored = b.select(b.icmp_signed("<", number, zero), b.not_(number), number)
    values = {
        Wrap.REPEAT: b.trunc(modulo(wide), I32),
        Wrap.CLAMP_TO_EDGE: clamped(f, number, zero, last),
        Wrap.MIRROR_REPEAT: b.trunc(back, I32),
        Wrap.MIRROR_CLAMP: clamped(f, mirrored, zero, last),
    }
    result: Any = i32(-1)
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
    value = b.bitcast(clean(f, coordinate), FLOAT)
    scaled = b.bitcast(clean(f, b.bitcast(b.fmul(value, b.sitofp(count, FLOAT)), I32)), FLOAT)
    value = b.select(unnormalized, value, scaled)
    scale, half = ir.Constant(FLOAT, float(ONE)), ir.Constant(FLOAT, 0.5)
    middle = f.call("llvm.roundeven.f32", FLOAT, [b.fmul(b.fsub(value, half), scale)])
    start = b.fmul(f.call("llvm.floor.f32", FLOAT, [value]), scale)
    b.ret(f.call("llvm.fptosi.sat.i32.f32", I32, [b.select(linear, middle, start)]))
    f.finish()


def _seen(module: Any) -> None:
    """seen(w, pc, record, x, y, z): a texel; where races are looked for, it is noted that it was read."""
    f = Function(module, "seen", QUAD, [PTR, I32, PTR, I32, I32, I32], private=True)
    w, pc, record, *place = f.args
    b = f.b
    with f.when(watched(f, w)):
        address = f.call("place", I64, [record, *place])
        with f.when(b.icmp_signed("!=", address, i64(0))):
            f.call("note", VOID, [w, address, sample_bytes(f, record), i32(READ), pc])
    b.ret(f.call("texel", QUAD, [record, *place]))
    f.finish()


def _compared(module: Any) -> None:
    """compared(record, sampler, reference, texel): 1 where the reference passes against x, else 0."""
    f = Function(module, "compared", QUAD, [PTR, PTR, I32, QUAD], private=True)
    record, sampler, reference, texel = f.args
    b = f.b
    zero, one = ir.Constant(FLOAT, 0.0), ir.Constant(FLOAT, 1.0)
    number = b.bitcast(clean(f, reference), FLOAT)
    held = b.select(b.fcmp_ordered(">", number, zero), number, zero)
    held = b.select(b.fcmp_ordered("<", held, one), held, one)
    number = b.select(formatted(f, record, lambda form: form.kind == "UNORM"), held, number)
    value = b.bitcast(clean(f, b.extract_element(texel, i32(0))), FLOAT)
    relations = {
        Compare.LESS: b.fcmp_ordered("<", number, value),
        Compare.EQUAL: b.fcmp_ordered("==", number, value),
        Compare.LEQUAL: b.fcmp_ordered("<=", number, value),
        Compare.GREATER: b.fcmp_ordered(">", number, value),
        Compare.NOTEQUAL: b.fcmp_unordered("!=", number, value),
        Compare.GEQUAL: b.fcmp_ordered(">=", number, value),
        Compare.ALWAYS: ir.Constant(I1, 1),
    }
    passes: Any = ir.Constant(I1, 0)
    wanted = get(f, sampler, SamplerRecord, "compare")
    for relation, holds in relations.items():
        passes = b.select(b.icmp_signed("==", wanted, i32(relation.value)), holds, passes)
    result = b.bitcast(b.select(passes, one, zero), I32)
    b.ret(f.broadcast(result, 4))
    f.finish()


_TAP = [PTR, I32, PTR, PTR, PTR]
"""What functions of a level begin with: (w, pc, record, sampler, ask)."""


def _tap(module: Any) -> None:
    """tap(..., x, y, z): a texel of any number, compared if need be; the border where there is none."""
    f = Function(module, "tap", QUAD, [*_TAP, I32, I32, I32], private=True)
    w, pc, record, sampler, ask, x, y, z = f.args
    b = f.b
    how, found = asked(f, ask, Ask.HOW), f.local(QUAD)
    faces = b.and_(get(f, record, TextureRecord, "cube"), get(f, sampler, SamplerRecord, "seamless"))
    with b.if_else(b.icmp_signed("!=", faces, i32(0))) as (cube, flat):
        with cube:
            b.store(f.call("across", QUAD, [w, pc, record, x, y, z]), found)
        with flat:
            places = []
            for axis, (number, name) in enumerate(((x, "width"), (y, "height"), (z, "depth"))):
                wrap = f.load(I32, sampler, field(SamplerRecord, "wraps") + 4 * axis, 4)
                places.append(f.call("wrapped", I32, [number, get(f, record, TextureRecord, name), wrap]))
            places[2] = b.select(flag(f, how, DEEP), places[2], z)
            outside = b.icmp_signed("<", b.or_(b.or_(places[0], places[1]), places[2]), i32(0))
            with b.if_else(outside) as (border, inside):
                with border:
                    b.store(f.load(QUAD, sampler, field(SamplerRecord, "border"), 4), found)
                with inside:
                    b.store(f.call("seen", QUAD, [w, pc, record, *places]), found)
    texel = f.get(found, QUAD)
    with f.when(flag(f, how, SHADOW)):
        reference = asked(f, ask, Ask.REFERENCE)
        b.ret(f.call("compared", QUAD, [record, sampler, reference, texel]))
    b.ret(texel)
    f.finish()


def _mixed(module: Any) -> None:
    """mixed(left, right, weight): the right one counts ``weight`` of 256."""
    f = Function(module, "mixed", QUAD, [QUAD, QUAD, I32], private=True)
    left, right, weight = f.args
    b = f.b
    parts = []
    for texel, share in ((left, b.sub(i32(ONE), weight)), (right, weight)):
        factor = b.fmul(b.sitofp(share, FLOAT), ir.Constant(FLOAT, 1 / ONE))
        product = b.fmul(b.bitcast(clean(f, texel), _FLOATS), f.broadcast(factor, 4))
        parts.append(b.bitcast(clean(f, b.bitcast(product, QUAD)), _FLOATS))
    b.ret(clean(f, b.bitcast(b.fadd(*parts), QUAD)))
    f.finish()


def mixes(f: Function, left: Any, weight: Any, right: Any) -> Any:
    """``left``, mixed with what ``right()`` gives where its weight is not 0; else that is not asked for."""
    result = f.local(QUAD)
    f.b.store(left, result)
    with f.when(f.b.icmp_signed("!=", weight, i32(0))):
        f.b.store(f.call("mixed", QUAD, [left, right(), weight]), result)
    return f.get(result, QUAD)


def _row(module: Any) -> None:
    """row(..., x, y, z, weight): a texel and the next one in x."""
    f = Function(module, "row", QUAD, [*_TAP, I32, I32, I32, I32], private=True)
    *common, x, y, z, weight = f.args
    left = f.call("tap", QUAD, [*common, x, y, z])
    f.b.ret(mixes(f, left, weight, lambda: f.call("tap", QUAD, [*common, f.b.add(x, i32(1)), y, z])))
    f.finish()


def _plane(module: Any) -> None:
    """plane(..., x, y, z, weight in x, in y): a mix of four texels."""
    f = Function(module, "plane", QUAD, [*_TAP, *[I32] * 5], private=True)
    *common, x, y, z, weight_x, weight_y = f.args
    upper = f.call("row", QUAD, [*common, x, y, z, weight_x])

    def lower() -> Any:
        return f.call("row", QUAD, [*common, x, f.b.add(y, i32(1)), z, weight_x])

    f.b.ret(mixes(f, upper, weight_y, lower))
    f.finish()


def _axis(f: Function, number: int, record: Any, sampler: Any, ask: Any) -> tuple[Any, Any]:
    """The first of two texels of an axis, and the weight of the second."""
    b = f.b
    size = get(f, record, TextureRecord, ("width", "height", "depth")[number])
    unnormalized = b.icmp_signed("!=", get(f, sampler, SamplerRecord, "unnormalized"), i32(0))
    linear = b.icmp_signed("!=", asked(f, ask, Ask.LINEAR), i32(0))
    place = f.call("fixed", I32, [asked(f, ask, Ask.X + number), size, unnormalized, linear])
    first = b.add(b.ashr(place, i32(_BITS)), asked(f, ask, Ask.OFFSET + number))
    return first, b.and_(place, i32(ONE - 1))


def _sampled(module: Any) -> None:
    """sampled(w, pc, record, sampler, ask): what a sampler makes of one level of detail."""
    f = Function(module, "sampled", QUAD, _TAP, private=True)
    common = f.args
    _, _, record, sampler, ask = common
    b = f.b
    (x, weight_x), (y, weight_y), (z, weight_z) = (_axis(f, n, record, sampler, ask) for n in range(3))
    deep = flag(f, asked(f, ask, Ask.HOW), DEEP)
    z = b.select(deep, z, asked(f, ask, Ask.LAYER))
    weight_z = b.select(deep, weight_z, i32(0))
    gather = asked(f, ask, Ask.GATHER)
    with f.when(b.icmp_signed(">=", gather, i32(0))):
        found: Any = ir.Constant(QUAD, ir.Undefined)
        for place, (right, below) in enumerate(((0, 1), (1, 1), (1, 0), (0, 0))):
            tap = f.call("tap", QUAD, [*common, b.add(x, i32(right)), b.add(y, i32(below)), z])
            found = b.insert_element(found, b.extract_element(tap, gather), i32(place))
        b.ret(found)
    near = f.call("plane", QUAD, [*common, x, y, z, weight_x, weight_y])

    def far() -> Any:
        return f.call("plane", QUAD, [*common, x, y, b.add(z, i32(1)), weight_x, weight_y])

    b.ret(mixes(f, near, weight_z, far))
    f.finish()
