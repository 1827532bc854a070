"""Texture reads, image loads and typed stores against numpy, in every format."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.virtual.dispatch import Format
from pytest_qcom.virtual.executor import Executor
from suites.virtual.executor.rig import Array, Memory, aligned, constants, image, lane_address, launch

DTYPES = {
    Format.RGBA8_UNORM: "uint8",
    Format.RGBA8_SNORM: "int8",
    Format.RGBA8_UINT: "uint8",
    Format.RGBA8_SINT: "int8",
    Format.RGBA16_FLOAT: "float16",
    Format.RGBA32_FLOAT: "float32",
    Format.RGBA32_UINT: "uint32",
    Format.RGBA32_SINT: "int32",
}
FORMATS = pytest.mark.parametrize("form", DTYPES, ids=lambda form: form.name)


def _texels(form: Format, height: int, width: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    array = aligned((height, width, 4), DTYPES[form])
    if array.dtype.kind == "f":
        array[...] = rng.normal(0, 3, array.shape)
    else:
        info = np.iinfo(array.dtype)
        array[...] = rng.integers(info.min, info.max, array.shape, endpoint=True, dtype=array.dtype)
    return array


def _number(form: Format, texels: Array) -> Array:
    """What a 32-bit read gives, as bits."""
    if form is Format.RGBA8_UNORM:
        scaled: Array = (texels.astype(np.float32) / np.float32(255)).view(np.uint32)
        return scaled
    if form is Format.RGBA8_SNORM:
        signed: Array = np.maximum(texels.astype(np.float32) / np.float32(127), np.float32(-1)).view(
            np.uint32
        )
        return signed
    if texels.dtype.kind == "f":
        return texels.astype(np.float32).view(np.uint32)
    return texels.astype(np.int64).astype(np.uint32)


def _read(
    executor: Executor,
    texture: Array,
    form: Format,
    xy: Array,
    half: bool,
    lanes: int,
    load: bool = False,
    swizzle: tuple[int, int, int, int] = (0, 1, 2, 3),
) -> Array:
    """Lane i reads the texel at ``xy[i]``."""
    coordinates, target = aligned((lanes, 2), "int32"), aligned((lanes, 4), "uint16" if half else "uint32")
    coordinates[...] = xy
    memory = Memory()
    memory.add(texture)
    file = constants(memory.add(coordinates), memory.add(target))
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 3)
    lane_address(a, 44, "r0.x", "c0.z", 3 if half else 4)
    a.emit("ldg.u32", "r1.x", "g[r10.x]", 2)
    integer = form.name.endswith("INT")
    register = "hr4.x" if half else "r4.x"
    kind = ("u16" if integer else "f16") if half else ("u32" if integer else "f32")
    if load:
        a.parse(f"ldib.b.typed.2d.{kind}.4.imm {register}, r1.x, 1")
    else:
        a.parse(f"isam.1d ({kind})(xyzw){register}, r1.x, s#0, t#1")
    a.emit("stg.u16" if half else "stg.u32", "g[r11.x]", register, 4)
    a.emit("end")
    bound = (image(aligned((1, 1, 4), "float32"), Format.RGBA32_FLOAT), image(texture, form, swizzle))
    slots = {"images": bound} if load else {"textures": bound}
    executor.run(launch(a.program(), file, thread128=lanes == 128, local_size=(lanes, 1, 1), **slots), memory)
    return target


def _scattered(lanes: int, height: int, width: int) -> Array:
    rng = np.random.default_rng(5)
    return np.stack([rng.integers(-2, width + 2, lanes), rng.integers(-2, height + 2, lanes)], 1)


def _expected(form: Format, texture: Array, xy: Array) -> Array:
    height, width, _ = texture.shape
    inside = (xy >= 0).all(1) & (xy[:, 0] < width) & (xy[:, 1] < height)
    clipped = np.clip(xy, 0, [width - 1, height - 1])
    return np.where(inside[:, None], _number(form, texture)[clipped[:, 1], clipped[:, 0]], 0)


@FORMATS
@pytest.mark.parametrize("load", [False, True], ids=["isam", "ldib"])
@pytest.mark.parametrize("lanes", [64, 128])
def test_reads_any_texel(executor: Executor, form: Format, load: bool, lanes: int) -> None:
    """Outside of the image a read gives zeros."""
    texture = _texels(form, 7, 21)
    xy = _scattered(lanes, 7, 21)
    assert np.array_equal(
        _read(executor, texture, form, xy, False, lanes, load), _expected(form, texture, xy)
    )


@pytest.mark.parametrize("form", [Format.RGBA16_FLOAT, Format.RGBA32_FLOAT, Format.RGBA32_UINT])
@pytest.mark.parametrize("pattern", ["rows", "tile", "uniform", "columns", "edge", "mixed"])
@pytest.mark.parametrize("lanes", [64, 128])
def test_reads_in_the_patterns_of_gemm(executor: Executor, form: Format, pattern: str, lanes: int) -> None:
    """Consecutive texels, one texel for 32 lanes, and what looks like it: all that has a short cut."""
    texture = _texels(form, 40, 150)
    lane = np.arange(lanes)
    xy = {
        "rows": np.stack([3 + lane, np.full(lanes, 5)], 1),
        "tile": np.stack([9 + (lane & 31), 2 + 0 * lane], 1),
        "uniform": np.stack([np.full(lanes, 4), lane >> 5], 1),
        "columns": np.stack([np.full(lanes, 4), lane & 31], 1),
        "edge": np.stack([130 + (lane & 31), np.full(lanes, 39)], 1),
        "mixed": np.stack([np.where(lane < 40, 7, lane), np.where(lane & 64, 3, 4)], 1),
    }[pattern]
    assert np.array_equal(_read(executor, texture, form, xy, False, lanes), _expected(form, texture, xy))
    if form is Format.RGBA16_FLOAT:
        got = _read(executor, texture, form, xy, True, lanes)
        want = _expected(form, texture, xy).view(np.float32).astype(np.float16)
        assert np.array_equal(got, want.view(np.uint16))


def test_a_half_read_flushes_subnormals(executor: Executor) -> None:
    """The choice of this executor: a texel read as f16 is flushed as results are; as f32 it is exact."""
    texture = aligned((1, 64, 4), "float16")
    texture.view(np.uint16)[...] = np.arange(256).reshape(1, 64, 4) * 8 + 1 | 0x8000
    lane = np.arange(64)
    for xy in (
        np.stack([lane, 0 * lane], 1),
        np.stack([lane ^ 1, 0 * lane], 1),
        np.stack([0 * lane + 9, 0 * lane], 1),
    ):
        texels = texture[0, xy[:, 0]]
        bits = texels.view(np.uint16)
        half = _read(executor, texture, Format.RGBA16_FLOAT, xy, True, 64)
        assert np.array_equal(half, np.where(bits & 0x7C00, bits, 0x8000))
        full = _read(executor, texture, Format.RGBA16_FLOAT, xy, False, 64)
        assert np.array_equal(full.view(np.float32), texels.astype(np.float32))


@FORMATS
def test_swizzles(executor: Executor, form: Format) -> None:
    """Components in any order; 4 is zero and 5 one, of the format's kind."""
    texture = _texels(form, 2, 64)
    xy = np.stack([np.arange(64), np.arange(64) & 1], 1)
    got = _read(executor, texture, form, xy, False, 64, swizzle=(2, 4, 5, 0))
    plain = _expected(form, texture, xy)
    one = 1 if form.name.endswith("INT") else int(np.float32(1).view(np.uint32))
    want = np.stack([plain[:, 2], np.zeros(64), np.full(64, one), plain[:, 0]], 1)
    assert np.array_equal(got, want.astype(np.uint32))


def test_write_mask(executor: Executor) -> None:
    """Components that are not asked for leave their registers alone."""
    texture, target = _texels(Format.RGBA32_FLOAT, 1, 64), aligned((64, 4), "float32")
    memory = Memory()
    memory.add(texture)
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 4)
    for register in ("r4.x", "r4.y", "r4.z", "r4.w"):
        a.emit("mov.f32f32", register, "(2.0)")
    a.emit("mov.u32u32", "r0.y", 0)
    a.parse("isam.1d (f32)(xz)r4.x, r0.x, s#0, t#0")
    a.emit("stg.u32", "g[r10.x]", "r4.x", 4)
    a.emit("end")
    executor.run(
        launch(a.program(), constants(memory.add(target)), textures=(image(texture, Format.RGBA32_FLOAT),)),
        memory,
    )
    assert np.array_equal(target[:, [0, 2]], texture[0][:, [0, 2]])
    assert (target[:, [1, 3]] == 2).all()


def _packed(form: Format, values: Array) -> Array:
    """What an image of ``form`` holds after a store of f32 or integer ``values``."""
    dtype = np.dtype(DTYPES[form])
    if form in (Format.RGBA8_UNORM, Format.RGBA8_SNORM):
        scale, low = (255, 0) if form is Format.RGBA8_UNORM else (127, -1)
        clipped = np.clip(np.nan_to_num(values, nan=low), low, 1).astype(np.float32)
        rounded: Array = np.rint(clipped * np.float32(scale)).astype(dtype)
        return rounded
    if form.name.startswith("RGBA8"):
        info = np.iinfo(dtype)
        return np.clip(values, info.min, info.max).astype(dtype)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


@FORMATS
@pytest.mark.parametrize("lanes", [64, 50])
def test_typed_stores(executor: Executor, form: Format, lanes: int) -> None:
    """Converted to the image's format; outside of the image they are dropped."""
    rng = np.random.default_rng(8)
    integer = form.name.endswith("INT")
    values = aligned(
        (lanes, 4), ("uint32" if form.name.endswith("_UINT") else "int32") if integer else "float32"
    )
    values[...] = rng.integers(0, 1 << 12, values.shape) if integer else rng.normal(0, 1, values.shape)
    if not integer:
        values[0] = [np.nan, np.inf, -np.inf, 1e6]
    output = aligned((3, 17, 4), DTYPES[form])
    cells = rng.permutation(5 * 19)[:lanes]
    coordinates = aligned((lanes, 2), "int32")
    coordinates[...] = np.stack([cells % 19 - 1, cells // 19 - 1], 1)
    memory = Memory()
    memory.add(output)
    file = constants(memory.add(coordinates), memory.add(values))
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 3)
    lane_address(a, 44, "r0.x", "c0.z", 4)
    a.emit("ldg.u32", "r1.x", "g[r10.x]", 2)
    a.emit("ldg.u32", "r4.x", "g[r11.x]", 4)
    a.parse(f"stib.b.typed.2d.{'u32' if integer else 'f32'}.4.imm r4.x, r1.x, 0")
    a.emit("end")
    dispatch = launch(a.program(), file, images=(image(output, form),), local_size=(lanes, 1, 1))
    executor.run(dispatch, memory)
    want = np.zeros_like(output)
    for (x, y), value in zip(coordinates, values, strict=True):
        if 0 <= x < 17 and 0 <= y < 3:
            want[y, x] = _packed(form, value)
    assert np.array_equal(output.view(np.uint8), want.view(np.uint8))


@pytest.mark.parametrize("kind", ["u16", "s16"])
@pytest.mark.parametrize("form", [Format.RGBA32_UINT, Format.RGBA32_SINT, Format.RGBA8_UINT])
def test_stores_of_short_integers(executor: Executor, kind: str, form: Format) -> None:
    """Halves are extended as their type says; bytes take the nearest that they can hold."""
    values = aligned((64, 4), "uint16")
    values[...] = np.random.default_rng(8).integers(0, 1 << 16, values.shape)
    values[0] = [0, 0x7FFF, 0x8000, 0xFFFF]
    output = aligned((1, 64, 4), DTYPES[form])
    memory = Memory()
    memory.add(output)
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 3)
    a.emit("ldg.u16", "hr4.x", "g[r10.x]", 4)
    a.emit("mov.u32u32", "r1.x", "r0.x")
    a.emit("mov.u32u32", "r1.y", 0)
    a.parse(f"stib.b.typed.2d.{kind}.4.imm hr4.x, r1.x, 0")
    a.emit("end")
    executor.run(launch(a.program(), constants(memory.add(values)), images=(image(output, form),)), memory)
    wide = values.astype(np.int64) if kind == "u16" else values.view(np.int16).astype(np.int64)
    want = np.minimum(wide % (1 << 32), 255) if form is Format.RGBA8_UINT else wide % (1 << 32)
    assert np.array_equal(output[0].astype(np.int64) % (1 << 32), want)
