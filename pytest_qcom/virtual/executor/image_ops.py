"""The runtime's image accesses: texels by integer coordinates, converted between format and register type.

Outside an image a read gives zeros and a write is dropped (``ISAMMODE_GL`` and clamp-to-border with a zero
border agree for reads; Mesa, ``a6xx_isam_mode``). A texel read as f16 is flushed like any f16 result
[undocumented]; read as f32 it is exact. Stores convert to nearest even [undocumented].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.dispatch import Format
from pytest_qcom.virtual.executor.irgen import (
    FLOAT,
    HALF,
    I1,
    I8,
    I16,
    I32,
    I64,
    PTR,
    VOID,
    Function,
    i32,
    i64,
)
from pytest_qcom.virtual.executor.layout import CHUNK, Fault, Header, Job, Status, TextureRecord, field

KINDS = {"f32": (FLOAT, 32), "f16": (HALF, 16), "i16": (I16, 16), "u16": (I16, 16)}
"""Register types of texels by name: ``f32`` stands for every 32-bit type, and in reads ``i16`` for both
integer ones; in stores it is extended with its sign, ``u16`` with zeros."""

_QUAD = ir.VectorType(I32, 4)
_FLOATS = ir.VectorType(FLOAT, 4)
_ZERO = ir.Constant(_QUAD, [0] * 4)
_BYTES = (Format.RGBA8_UNORM, Format.RGBA8_SNORM, Format.RGBA8_UINT, Format.RGBA8_SINT)
_SIGNED = (Format.RGBA8_SNORM, Format.RGBA8_SINT)
_WORDS = (Format.RGBA32_FLOAT, Format.RGBA32_UINT, Format.RGBA32_SINT)


def texel_bytes(form: Format) -> int:
    """Bytes of a texel in memory."""
    return 4 if form in _BYTES else 16 if form in _WORDS else 8


def emit(module: Any, wave: int) -> None:
    """Adds the image functions for waves of ``wave`` fibers to ``module``."""
    _texel(module)
    _store_texel(module)
    for kind in KINDS:
        if kind != "u16":
            _read(module, wave, f"isam_{kind}", "texture", kind)
            _read(module, wave, f"ldib_{kind}", "image", kind)
        _write(module, wave, kind)


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


def _address(f: Function, record: Any, x: Any, y: Any, size: Any) -> Any:
    """The address of texel (x, y), both i32 and inside the image."""
    pitch = f.load(I64, record, field(TextureRecord, "pitch"), 8)
    base = f.load(I64, record, field(TextureRecord, "address"), 8)
    row = f.b.mul(f.b.zext(y, I64), pitch)
    return f.b.inttoptr(f.b.add(base, f.b.add(row, f.b.mul(f.b.zext(x, I64), size))), PTR)


def _inside(f: Function, record: Any, x: Any, y: Any) -> Any:
    width = f.load(I32, record, field(TextureRecord, "width"), 4)
    height = f.load(I32, record, field(TextureRecord, "height"), 4)
    return f.b.and_(f.b.icmp_unsigned("<", x, width), f.b.icmp_unsigned("<", y, height))


def _texel(module: Any) -> None:
    """texel(record, x, y): four components, floats as f32 bits, integers extended to 32 bits."""
    f = Function(module, "texel", _QUAD, [PTR, I32, I32])
    record, x, y = f.args
    b = f.b
    with f.when(b.not_(_inside(f, record, x, y))):
        b.ret(_ZERO)

    def number(value: Any) -> Any:
        return b.bitcast(value, _QUAD)

    def give(form: Format) -> Callable[[], None]:
        def body() -> None:
            pointer = _address(f, record, x, y, i64(texel_bytes(form)))
            if form in _WORDS:
                value = f.load(_QUAD, pointer)
            elif form is Format.RGBA16_FLOAT:
                value = number(b.fpext(f.load(ir.VectorType(HALF, 4), pointer), _FLOATS))
            else:
                raw = f.load(ir.VectorType(I8, 4), pointer)
                value = b.sext(raw, _QUAD) if form in _SIGNED else b.zext(raw, _QUAD)
                if form is Format.RGBA8_UNORM:
                    value = number(b.fdiv(b.uitofp(value, _FLOATS), _floats(255.0)))
                elif form is Format.RGBA8_SNORM:
                    scaled = b.fdiv(b.sitofp(value, _FLOATS), _floats(127.0))
                    low = b.fcmp_ordered("<", scaled, _floats(-1.0))
                    value = number(b.select(low, _floats(-1.0), scaled))
            integers = (Format.RGBA8_UINT, Format.RGBA8_SINT, Format.RGBA32_UINT, Format.RGBA32_SINT)
            one = 1 if form in integers else 0x3F800000
            b.ret(_swizzled(f, record, value, one))

        return body

    _switch(
        f,
        f.load(I32, record, field(TextureRecord, "format"), 4),
        {c: give(c) for c in Format},
        lambda: b.ret(_ZERO),
    )
    f.finish()


def _floats(value: float) -> Any:
    return ir.Constant(_FLOATS, [value] * 4)


def _swizzled(f: Function, record: Any, value: Any, one: int) -> Any:
    """``value`` as the descriptor's swizzle wants it: 0 to 3 a component, 4 zero, 5 one."""
    b = f.b
    slot = f.local(ir.ArrayType(I32, 6), align=16)
    f.store(value, slot, 0, 16)
    f.store(i32(0), slot, 16, 4)
    f.store(i32(one), slot, 20, 4)
    result = value
    for component in range(4):
        pick = f.load(I32, record, field(TextureRecord, "swizzle") + 4 * component, 4)
        element = f.load(I32, slot, b.mul(b.zext(pick, I64), i64(4)), 4)
        result = b.insert_element(result, element, i32(component))
    return result


def _store_texel(module: Any) -> None:
    """store_texel(record, x, y, value): the inverse of texel, without swizzle."""
    f = Function(module, "store_texel", VOID, [PTR, I32, I32, _QUAD])
    record, x, y, value = f.args
    b = f.b
    with f.when(b.not_(_inside(f, record, x, y))):
        b.ret_void()

    def put(form: Format) -> Callable[[], None]:
        def body() -> None:
            pointer = _address(f, record, x, y, i64(texel_bytes(form)))
            f.store(_packed(f, form, value), pointer)
            b.ret_void()

        return body

    _switch(
        f, f.load(I32, record, field(TextureRecord, "format"), 4), {c: put(c) for c in Format}, b.ret_void
    )
    f.finish()


def _packed(f: Function, form: Format, value: Any) -> Any:
    """Register values in the form that memory holds."""
    b = f.b
    if form in _WORDS:
        return value
    numbers = b.bitcast(value, _FLOATS)
    if form is Format.RGBA16_FLOAT:
        return b.fptrunc(numbers, ir.VectorType(HALF, 4))
    if form in (Format.RGBA8_UNORM, Format.RGBA8_SNORM):
        scale, low = (255.0, 0.0) if form is Format.RGBA8_UNORM else (127.0, -1.0)
        above = b.fcmp_ordered(">", numbers, _floats(low))  # false for NaN, which becomes the lower bound
        numbers = b.select(above, numbers, _floats(low))
        numbers = b.select(b.fcmp_ordered("<", numbers, _floats(1.0)), numbers, _floats(1.0))
        rounded = f.call("llvm.roundeven.v4f32", _FLOATS, [b.fmul(numbers, _floats(scale))])
        value = b.fptosi(rounded, _QUAD)
    else:
        signed = form is Format.RGBA8_SINT
        for bound, relation in ((-128 if signed else 0, "<"), (127 if signed else 255, ">")):
            limit = ir.Constant(_QUAD, [bound] * 4)
            if signed:
                value = b.select(b.icmp_signed(relation, value, limit), limit, value)
            elif relation == ">":
                value = b.select(b.icmp_unsigned(relation, value, limit), limit, value)
    return b.trunc(value, ir.VectorType(I8, 4))


class _Access:
    """The common frame of image accesses: the descriptor, and the coordinates of the active lanes."""

    def __init__(self, module: Any, wave: int, name: str, table: str, kind: str) -> None:
        self.f = f = Function(module, name, I32, [PTR, PTR, PTR, PTR, I32, I32, I32])
        self.w, self.data, self.x, self.y, slot, self.components, self.pc = f.args
        self.wave, self.kind = wave, kind
        self.element, bits = KINDS[kind]
        self.step = bits // 8
        job = f.load(PTR, self.w, Header.JOB, 8)
        count = f.load(I64, job, field(Job, f"{table}_count"), 8)
        index = f.b.zext(slot, I64)
        with f.when(f.b.icmp_unsigned(">=", index, count)):
            f.call("record", VOID, [self.w, i32(Fault.IMAGE_SLOT), self.pc, i32(0), index, i32(0)])
            f.b.ret(i32(Status.FAULT))
        records = f.load(PTR, job, field(Job, f"{table}s"), 8)
        self.record = f.at(records, f.b.mul(index, i64(64)))
        self.mapped = f.b.icmp_signed("!=", self._int("mapped"), i32(0))

    def _int(self, name: str) -> Any:
        return self.f.load(I32, self.record, field(TextureRecord, name), 4)

    def coordinates(self, lane: Any) -> tuple[Any, Any]:
        at = self.f.b.mul(lane, i64(4))
        return self.f.load(I32, self.x, at, 4), self.f.load(I32, self.y, at, 4)

    def check(self, lane: Any, x: Any, y: Any) -> None:
        """Records a fault when the texel is part of the image but the image is not mapped."""
        f = self.f
        bad = f.b.and_(f.b.not_(self.mapped), _inside(f, self.record, x, y))
        with f.when(bad):
            base = f.load(I64, self.record, field(TextureRecord, "address"), 8)
            lane32 = f.b.trunc(lane, I32)
            f.call("record", VOID, [self.w, i32(Fault.IMAGE_MEMORY), self.pc, lane32, base, i32(0)])
            f.b.ret(i32(Status.FAULT))

    def cell(self, component: int, lane: Any) -> Any:
        at = self.f.b.mul(lane, i64(self.step))
        return self.f.at(self.data, self.f.b.add(at, i64(component * self.wave * self.step)))


def _read(module: Any, wave: int, name: str, table: str, kind: str) -> None:
    """isam_*, ldib_*(w, destination row, x row, y row, slot, component mask, pc)."""
    a = _Access(module, wave, name, table, kind)
    f, b = a.f, a.f.b
    plain = b.and_(a.mapped, b.icmp_signed("!=", a._int("plain"), i32(0)))
    all_components = b.icmp_signed("==", a.components, i32(15))
    quick = b.and_(plain, all_components)
    before = _Before(f)
    with f.loop(wave // CHUNK) as chunk:
        mask = f.load(I32, a.w, b.add(b.mul(chunk, i64(4)), i64(Header.ACTIVE)), 4)
        first = b.mul(chunk, i64(CHUNK))
        done = f.local(I1, ir.Constant(I1, 0))
        with f.when(b.and_(quick, b.icmp_signed("==", mask, i32(-1)))):
            _quick_read(a, first, done, before)
        with f.lanes(b.select(f.get(done, I1), i32(0), mask)) as bit:
            lane = b.add(bit, first)
            x, y = a.coordinates(lane)
            a.check(lane, x, y)
            texel = f.call("texel", _QUAD, [a.record, x, y])
            for component in range(4):
                wanted = b.icmp_signed("!=", b.and_(a.components, i32(1 << component)), i32(0))
                with f.when(wanted):
                    value = _narrowed(a, b.extract_element(texel, i32(component)))
                    f.store(value, a.cell(component, lane), 0, a.step)
    b.ret(i32(0))
    f.finish()


def _narrowed(a: _Access, bits: Any) -> Any:
    """A component, 32 bits as texel gives them, in the register's type."""
    b = a.f.b
    if a.kind == "f32":
        return bits
    if a.kind == "i16":
        return b.trunc(bits, I16)
    return _flushed(a.f, b.bitcast(b.fptrunc(b.bitcast(bits, FLOAT), HALF), I16))


def _flushed(f: Function, bits: Any) -> Any:
    """f16 bits, scalar or vector, without subnormals."""

    def constant(value: int) -> Any:
        if isinstance(bits.type, ir.VectorType):
            return ir.Constant(bits.type, [value] * bits.type.count)
        return ir.Constant(I16, value)

    tiny = f.b.icmp_unsigned("==", f.b.and_(bits, constant(0x7C00)), constant(0))
    return f.b.select(tiny, f.b.and_(bits, constant(0x8000)), bits)


def _quick_read(a: _Access, first: Any, done: Any, before: _Before) -> None:
    """A full chunk in one row of the image: one texel for all lanes, or consecutive ones.

    GEMM kernels read the same texels in every chunk of a wave: what an earlier chunk got is then copied.
    """
    f, b = a.f, a.f.b
    vec = ir.VectorType(I32, CHUNK)
    x0, y0 = a.coordinates(first)
    at = b.mul(first, i64(4))
    xs, ys = f.load(vec, a.x, at, 64), f.load(vec, a.y, at, 64)
    first_x = f.broadcast(x0, CHUNK)
    iota = ir.Constant(vec, list(range(CHUNK)))

    def all_equal(left: Any, right: Any) -> Any:
        return b.icmp_signed("==", b.bitcast(b.icmp_signed("==", left, right), I32), i32(-1))

    row = all_equal(ys, f.broadcast(y0, CHUNK))
    same, line = all_equal(xs, first_x), all_equal(xs, b.add(first_x, iota))
    last = b.add(x0, b.select(same, i32(0), i32(CHUNK - 1)))
    valid = b.and_(_inside(f, a.record, x0, y0), b.icmp_unsigned("<", last, a._int("width")))
    valid = b.and_(valid, b.icmp_unsigned("<=", x0, last))
    good = b.and_(b.and_(row, valid), b.or_(same, line))
    with f.when(good):
        again = b.and_(b.icmp_signed("==", x0, before.get("x")), b.icmp_signed("==", y0, before.get("y")))
        again = b.and_(again, b.icmp_signed("==", b.zext(same, I32), before.get("same")))
        with b.if_else(again) as (copy, fresh):
            with copy:
                _copy(a, b.zext(before.get("first"), I64), first)
                b.store(ir.Constant(I1, 1), done)
            with fresh:
                for layout in (I16, I32):
                    if (layout is I32 and a.kind != "f32") or (layout is I16 and a.kind == "i16"):
                        continue
                    with f.when(_holds(a, layout)):
                        pointer = _address(f, a.record, x0, y0, i64(layout.width // 2))
                        _fetch(a, first, pointer, layout, same)
                        b.store(ir.Constant(I1, 1), done)
                        seen = {"x": x0, "y": y0, "same": b.zext(same, I32), "first": b.trunc(first, I32)}
                        for name, value in seen.items():
                            before.set(name, value)


class _Before:
    """Which texels an earlier chunk read the quick way, and the chunk's first lane."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.slots = {name: f.local(I32, i32(0)) for name in ("x", "y", "first")}
        self.slots["same"] = f.local(I32, i32(-1))

    def get(self, name: str) -> Any:
        return self.f.get(self.slots[name], I32)

    def set(self, name: str, value: Any) -> None:
        self.f.b.store(value, self.slots[name])


def _copy(a: _Access, source: Any, first: Any) -> None:
    ty = ir.VectorType(ir.IntType(8 * a.step), CHUNK)
    for component in range(4):
        value = a.f.load(ty, a.cell(component, source), 0, 32)
        a.f.store(value, a.cell(component, first), 0, 32)


def _holds(a: _Access, layout: Any) -> Any:
    """Whether the image's components are 16 or 32 bits long as ``layout`` is."""
    b, form = a.f.b, a._int("format")
    matches = ir.Constant(I1, 0)
    for word in (Format.RGBA16_FLOAT,) if layout is I16 else _WORDS:
        matches = b.or_(matches, b.icmp_signed("==", form, i32(word.value)))
    return matches


def _fetch(a: _Access, first: Any, pointer: Any, layout: Any, same: Any) -> None:
    """One texel into all lanes of a chunk, or as many as lanes."""
    f, b = a.f, a.f.b
    flush = layout is I16 and a.kind == "f16"
    with b.if_else(same) as (broadcast, consecutive):
        with broadcast:
            texel = f.load(ir.VectorType(layout, 4), pointer)
            texel = _flushed(f, texel) if flush else texel
            for component in range(4):
                _put(a, component, first, f.broadcast(b.extract_element(texel, i32(component)), CHUNK))
        with consecutive:
            for component, lanes in enumerate(_planes(f, pointer, layout)):
                _put(a, component, first, _flushed(f, lanes) if flush else lanes)


def _planes(f: Function, pointer: Any, layout: Any) -> list[Any]:
    """Consecutive texels by component. Halves are parted in two steps: pairs of them move as 32 bits."""

    def part(packed: Any, count: int, index: int) -> Any:
        size = packed.type.count // count
        picks = ir.Constant(ir.VectorType(I32, size), list(range(index, packed.type.count, count)))
        return f.b.shuffle_vector(packed, ir.Constant(packed.type, ir.Undefined), picks)

    if layout is I32:
        packed = f.load(ir.VectorType(I32, 4 * CHUNK), pointer)
        return [part(packed, 4, component) for component in range(4)]
    pairs = f.load(ir.VectorType(I32, 2 * CHUNK), pointer)
    planes = []
    for index in range(2):
        halves = f.b.bitcast(part(pairs, 2, index), ir.VectorType(I16, 2 * CHUNK))
        planes += [part(halves, 2, component) for component in range(2)]
    return planes


def _put(a: _Access, component: int, first: Any, bits: Any) -> None:
    """Stores a chunk of a component, given as memory holds it, in the register's type."""
    b = a.f.b
    if bits.type.element.width == 16 and a.kind == "f32":
        halves = b.bitcast(bits, ir.VectorType(HALF, CHUNK))
        bits = b.fpext(halves, ir.VectorType(FLOAT, CHUNK))
    a.f.store(bits, a.cell(component, first), 0, 32)


def _write(module: Any, wave: int, kind: str) -> None:
    """stib_*(w, data row, x row, y row, slot, components, pc); components beyond the given ones are zero."""
    a = _Access(module, wave, f"stib_{kind}", "image", kind)
    f, b = a.f, a.f.b
    with f.loop(wave // CHUNK) as chunk:
        mask = f.load(I32, a.w, b.add(b.mul(chunk, i64(4)), i64(Header.ACTIVE)), 4)
        first = b.mul(chunk, i64(CHUNK))
        with f.lanes(mask) as bit:
            lane = b.add(bit, first)
            x, y = a.coordinates(lane)
            a.check(lane, x, y)
            texel: Any = _ZERO
            for component in range(4):
                slot = f.local(I32, i32(0))
                with f.when(b.icmp_signed(">", a.components, i32(component))):
                    raw = f.load(ir.IntType(8 * a.step), a.cell(component, lane), 0, a.step)
                    b.store(_widened(a, raw), slot)
                texel = b.insert_element(texel, f.get(slot, I32), i32(component))
            f.call("store_texel", VOID, [a.record, x, y, texel])
    b.ret(i32(0))
    f.finish()


def _widened(a: _Access, raw: Any) -> Any:
    b = a.f.b
    if a.kind == "f32":
        return raw
    if a.kind in ("i16", "u16"):
        return b.sext(raw, I32) if a.kind == "i16" else b.zext(raw, I32)
    return b.bitcast(b.fpext(b.bitcast(raw, HALF), FLOAT), I32)
