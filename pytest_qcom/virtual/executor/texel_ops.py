"""The runtime's texels: where one lies in memory, and what it is in registers.

Outside an image a read gives zeros and a write is dropped (``ISAMMODE_GL`` and clamp-to-border with a zero
border agree for reads; Mesa, ``a6xx_isam_mode``). Stores convert to nearest even and hold integers within the
format's bounds [undocumented].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.dispatch import Format
from pytest_qcom.virtual.executor.irgen import FLOAT, HALF, I1, I32, I64, PTR, VOID, Function, i32, i64
from pytest_qcom.virtual.executor.layout import TextureRecord, field

QUAD = ir.VectorType(I32, 4)
"""A texel in registers: four components, floats as f32 bits, integers extended to 32 bits."""

ZERO = ir.Constant(QUAD, [0] * 4)
_FLOATS = ir.VectorType(FLOAT, 4)
_ONE = 0x3F800000


def emit(module: Any) -> None:
    """Adds the functions of single texels to ``module``."""
    _place(module)
    _decode(module)
    _texel(module)
    _store_texel(module)


def inside(f: Function, record: Any, x: Any, y: Any, z: Any = None) -> Any:
    """Whether a texel is one of the image's; in its first layer without ``z``."""
    b, result = f.b, ir.Constant(I1, 1)
    for name, value in (("width", x), ("height", y), ("depth", z)):
        if value is not None:
            limit = f.load(I32, record, field(TextureRecord, name), 4)
            result = b.and_(result, b.icmp_unsigned("<", value, limit))
    return result


def _place(module: Any) -> None:
    """place(record, x, y, z): the address of a texel, 0 outside of the image."""
    f = Function(module, "place", I64, [PTR, I32, I32, I32], private=True)
    record, x, y, z = f.args
    b = f.b
    with f.when(b.not_(inside(f, record, x, y, z))):
        b.ret(i64(0))

    def get(name: str) -> Any:
        return f.load(I64, record, field(TextureRecord, name), 8)

    address = get("address")
    for index, step in ((z, "layer"), (y, "pitch"), (x, "texel")):
        address = b.add(address, b.mul(b.zext(index, I64), get(step)))
    b.ret(address)
    f.finish()


def _switch(
    f: Function, form: Any, cases: dict[Format, Callable[[], None]], default: Callable[[], None]
) -> None:
    """Branches on a texel format. Every case returns."""
    other = f.function.append_basic_block("other")
    switch = f.b.switch(form, other)
    for value, body in cases.items():
        block = f.function.append_basic_block(value.name)
        switch.add_case(i32(value.value), block)
        f.b.position_at_end(block)
        body()
    f.b.position_at_end(other)
    default()


def _format(f: Function, record: Any) -> Any:
    return f.load(I32, record, field(TextureRecord, "format"), 4)


def _floats(value: float) -> Any:
    return ir.Constant(_FLOATS, [value] * 4)


def _bounds(form: Format) -> tuple[float, float]:
    """The least normalised number and what stands for 1."""
    return (0.0, 2.0**form.bits - 1) if form.kind == "UNORM" else (-1.0, 2.0 ** (form.bits - 1) - 1)


def _decode(module: Any) -> None:
    """decode(record, address): the texel at an address; components that the format lacks are 0, 0 and 1."""
    f = Function(module, "decode", QUAD, [PTR, I64], private=True)
    record, address = f.args
    b = f.b
    pointer = b.inttoptr(address, PTR)

    def give(form: Format) -> Callable[[], None]:
        def body() -> None:
            raw = f.load(ir.VectorType(ir.IntType(form.bits), form.components), pointer)
            if form.components < 4:
                fill = ir.Constant(raw.type, [0] * form.components)
                picks = [*range(form.components), *[form.components] * (4 - form.components)]
                raw = b.shuffle_vector(raw, fill, ir.Constant(QUAD, picks))
            value = _numbers(f, form, raw)
            if form.components < 4:
                value = b.insert_element(value, i32(1 if form.integer else _ONE), i32(3))
            b.ret(value)

        return body

    _switch(f, _format(f, record), {c: give(c) for c in Format}, lambda: b.ret(ZERO))
    f.finish()


def _numbers(f: Function, form: Format, raw: Any) -> Any:
    """Four components as memory holds them, as registers do."""
    b = f.b
    if form.kind == "FLOAT":
        halves = form.bits == 16
        return b.bitcast(b.fpext(b.bitcast(raw, ir.VectorType(HALF, 4)), _FLOATS), QUAD) if halves else raw
    signed = form.kind in ("SNORM", "SINT")
    value = raw if form.bits == 32 else b.sext(raw, QUAD) if signed else b.zext(raw, QUAD)
    if form.integer:
        return value
    low, one = _bounds(form)
    scaled = b.fdiv(b.sitofp(value, _FLOATS), _floats(one))
    if signed:  # the two least integers are both -1
        scaled = b.select(b.fcmp_ordered("<", scaled, _floats(low)), _floats(low), scaled)
    return b.bitcast(scaled, QUAD)


def _texel(module: Any) -> None:
    """texel(record, x, y, z): four components, with the swizzle of the descriptor."""
    f = Function(module, "texel", QUAD, [PTR, I32, I32, I32], private=True)
    record, *coordinates = f.args
    b = f.b
    address = f.call("place", I64, [record, *coordinates])
    with f.when(b.icmp_signed("==", address, i64(0))):
        b.ret(ZERO)
    value = f.call("decode", QUAD, [record, address])
    with f.when(b.icmp_signed("!=", f.load(I32, record, field(TextureRecord, "plain"), 4), i32(0))):
        b.ret(value)
    integer = ir.Constant(I1, 0)
    for form in Format:
        if form.integer:
            integer = b.or_(integer, b.icmp_signed("==", _format(f, record), i32(form.value)))
    slot = f.local(ir.ArrayType(I32, 6), align=16)
    f.store(value, slot, 0, 16)
    f.store(i32(0), slot, 16, 4)
    f.store(b.select(integer, i32(1), i32(_ONE)), slot, 20, 4)
    for component in range(4):  # 0 to 3 a component, 4 zero, 5 one
        pick = f.load(I32, record, field(TextureRecord, "swizzle") + 4 * component, 4)
        element = f.load(I32, slot, b.mul(b.zext(pick, I64), i64(4)), 4)
        value = b.insert_element(value, element, i32(component))
    b.ret(value)
    f.finish()


def _store_texel(module: Any) -> None:
    """store_texel(record, x, y, z, value): the inverse of texel, without swizzle."""
    f = Function(module, "store_texel", VOID, [PTR, I32, I32, I32, QUAD], private=True)
    record, x, y, z, value = f.args
    b = f.b
    address = f.call("place", I64, [record, x, y, z])
    with f.when(b.icmp_signed("==", address, i64(0))):
        b.ret_void()
    pointer = b.inttoptr(address, PTR)

    def put(form: Format) -> Callable[[], None]:
        def body() -> None:
            packed = _packed(f, form, value)
            if form.components < 4:
                picks = ir.Constant(ir.VectorType(I32, form.components), list(range(form.components)))
                packed = b.shuffle_vector(packed, ir.Constant(packed.type, ir.Undefined), picks)
            f.store(packed, pointer)
            b.ret_void()

        return body

    _switch(f, _format(f, record), {c: put(c) for c in Format}, b.ret_void)
    f.finish()


def _packed(f: Function, form: Format, value: Any) -> Any:
    """Register values in the form that memory holds, four components."""
    b = f.b
    if form.bits == 32:
        return value
    numbers = b.bitcast(value, _FLOATS)
    if form.kind == "FLOAT":
        return b.fptrunc(numbers, ir.VectorType(HALF, 4))
    if not form.integer:
        low, one = _bounds(form)
        above = b.fcmp_ordered(">", numbers, _floats(low))  # false for NaN, which becomes the lower bound
        numbers = b.select(above, numbers, _floats(low))
        numbers = b.select(b.fcmp_ordered("<", numbers, _floats(1.0)), numbers, _floats(1.0))
        rounded = f.call("llvm.roundeven.v4f32", _FLOATS, [b.fmul(numbers, _floats(one))])
        value = b.fptosi(rounded, QUAD)
    elif form.kind == "SINT":
        for bound, relation in ((-(1 << form.bits - 1), "<"), ((1 << form.bits - 1) - 1, ">")):
            limit = ir.Constant(QUAD, [bound] * 4)
            value = b.select(b.icmp_signed(relation, value, limit), limit, value)
    else:
        limit = ir.Constant(QUAD, [(1 << form.bits) - 1] * 4)
        value = b.select(b.icmp_unsigned(">", value, limit), limit, value)
    return b.trunc(value, ir.VectorType(ir.IntType(form.bits), 4))
