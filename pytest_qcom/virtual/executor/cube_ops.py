"""The runtime's cubes: the face that a direction points at, and the texels across its edges.

Faces and their coordinates are those of OpenGL and Vulkan ("Cube Map Face Selection"); where two components
are equally large, z counts before y before x. Beyond an edge lies the next face's texel; beyond a corner,
where three faces meet, the mean of their texels, of integers that of the face itself
(``chip.choice("cube-corners")``).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor.irgen import FLOAT, I1, I32, PTR, Function, i32
from pytest_qcom.virtual.executor.layout import TextureRecord
from pytest_qcom.virtual.executor.sampler_ops import clamped, get, integers
from pytest_qcom.virtual.executor.texel_ops import QUAD

SIDES = 6
_AXES = (((2, -1), (1, -1)), ((0, 1), (2, 1)), ((0, 1), (1, -1)))
"""By the axis of a face's direction: which component its x and y are, and with which sign. On the faces of
negative directions the sign of the other axis changes: x on +-x and +-z, y on +-y."""


def components(face: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Which component of a direction is x of a face and which is y, each with its sign."""
    axis, negative = divmod(face, 2)
    (x, x_sign), (y, y_sign) = _AXES[axis]
    if not negative:
        return (x, x_sign), (y, y_sign)
    return ((x, x_sign), (y, -y_sign)) if axis == 1 else ((x, -x_sign), (y, y_sign))


def emit(module: Any) -> None:
    """Adds the functions to ``module``."""
    _texel_of(module)
    _across(module)


def pointed(f: Function, direction: list[Any]) -> Any:
    """The number of the face that a direction, three f32, points at."""
    b = f.b
    x, y, z = (f.call("llvm.fabs.f32", FLOAT, [part]) for part in direction)
    on_z = b.and_(b.fcmp_ordered(">=", z, x), b.fcmp_ordered(">=", z, y))
    on_y = b.fcmp_ordered(">=", y, x)
    axis = b.select(on_z, i32(2), b.select(on_y, i32(1), i32(0)))
    major = pick(f, axis, direction)
    negative = b.zext(b.fcmp_ordered("<", major, ir.Constant(FLOAT, 0.0)), I32)
    return b.add(b.shl(axis, i32(1)), negative)


def pick(f: Function, number: Any, values: list[Any]) -> Any:
    """One of a few values by a number that is not known beforehand."""
    result = values[0]
    for index, value in enumerate(values[1:], 1):
        result = f.b.select(f.b.icmp_signed("==", number, i32(index)), value, result)
    return result


def on_face(f: Function, face: Any, direction: list[Any]) -> tuple[Any, Any, Any]:
    """A direction in the axes of a face: x, y and what they are divided by, which is never negative.

    Works for floats and for integers.
    """
    b = f.b
    floats = direction[0].type != I32
    xs: list[Any] = []
    ys: list[Any] = []
    majors: list[Any] = []
    for number in range(SIDES):
        (x, x_sign), (y, y_sign) = components(number)
        axis, negative = divmod(number, 2)
        for into, part, sign in ((xs, x, x_sign), (ys, y, y_sign), (majors, axis, 1 - 2 * negative)):
            value = direction[part]
            into.append(value if sign > 0 else b.fneg(value) if floats else b.neg(value))
    return pick(f, face, xs), pick(f, face, ys), pick(f, face, majors)


def _texel_of(module: Any) -> None:
    """side(w, pc, record, first layer, x, y, z, n): the texel whose middle a direction points at.

    The direction is in halves of texels of a cube of ``n`` texels: -n to n.
    """
    f = Function(module, "side", QUAD, [PTR, I32, PTR, I32, I32, I32, I32, I32], private=True)
    w, pc, record, layer, *direction, count = f.args
    b = f.b
    sizes = [f.call("llvm.abs.i32", I32, [part, ir.Constant(I1, 0)]) for part in direction]
    axis = b.select(b.icmp_signed(">", sizes[1], sizes[0]), i32(1), i32(0))
    larger = pick(f, axis, sizes)
    axis = b.select(b.icmp_signed(">", sizes[2], larger), i32(2), axis)
    major = pick(f, axis, direction)
    face = b.add(b.shl(axis, i32(1)), b.zext(b.icmp_signed("<", major, i32(0)), I32))
    last = b.sub(count, i32(1))
    places = []
    for part in on_face(f, face, direction)[:2]:
        # the face that was left lies n away, the outermost texels' middles n - 1
        held = clamped(f, part, b.neg(last), last)
        places.append(b.ashr(b.add(held, last), i32(1)))
    b.ret(f.call("seen", QUAD, [w, pc, record, *places, b.add(layer, face)]))
    f.finish()


def _across(module: Any) -> None:
    """across(w, pc, record, x, y, layer): a texel of a face, or one beyond its edges."""
    f = Function(module, "across", QUAD, [PTR, I32, PTR, I32, I32, I32], private=True)
    w, pc, record, x, y, layer = f.args
    b = f.b
    count = get(f, record, TextureRecord, "width")
    last, zero = b.sub(count, i32(1)), i32(0)
    face = b.srem(layer, i32(SIDES))
    base = b.sub(layer, face)
    inner = [clamped(f, value, zero, last) for value in (x, y)]
    outer = [clamped(f, value, i32(-1), count) for value in (x, y)]
    beyond = [b.icmp_signed("!=", *pair) for pair in zip(inner, outer, strict=True)]
    with f.when(b.not_(b.or_(*beyond))):
        b.ret(f.call("seen", QUAD, [w, pc, record, *inner, layer]))

    def texel(column: Any, row: Any) -> Any:
        places = [b.sub(b.shl(value, i32(1)), last) for value in (column, row)]
        direction = _direction(f, face, places, count)
        return f.call("side", QUAD, [w, pc, record, base, *direction, count])

    with f.when(b.not_(b.and_(*beyond))):
        b.ret(texel(*outer))
    own = f.call("seen", QUAD, [w, pc, record, *inner, layer])
    with f.when(integers(f, record)):
        b.ret(own)
    floats = ir.VectorType(FLOAT, 4)
    parts = [own, texel(outer[0], inner[1]), texel(inner[0], outer[1])]
    first, second, third = (b.bitcast(part, floats) for part in parts)
    total = b.fadd(b.fadd(first, second), third)
    b.ret(b.bitcast(b.fdiv(total, ir.Constant(floats, [3.0] * 4)), QUAD))
    f.finish()


def _direction(f: Function, face: Any, places: list[Any], major: Any) -> list[Any]:
    """The direction of a place on a face, in halves of texels from its middle."""
    b = f.b
    parts: list[list[Any]] = [[], [], []]
    for number in range(SIDES):
        axis, negative = divmod(number, 2)
        parts[axis].append(b.neg(major) if negative else major)
        for (part, sign), place in zip(components(number), places, strict=True):
            parts[part].append(place if sign > 0 else b.neg(place))
    return [pick(f, face, values) for values in parts]
