"""Images of all shapes and formats, buffers by descriptor, their atomics and uniform buffers, against numpy.

Every lane has coordinates, a slot and data of its own, among them ones outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_qcom.errors import GpuFault, RaceError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.refusals import REFUSALS
from pytest_qcom.virtual.dispatch import DescriptorSet, Format, Image, Uniforms
from pytest_qcom.virtual.executor import Executor
from suites.isa.refused import REFUSED
from suites.virtual.executor.rig import Array, Memory, aligned, constants, lane_address, launch

LANES = 64
FORMATS = pytest.mark.parametrize("form", Format, ids=lambda form: form.name)
DTYPES = {"UNORM": "uint", "UINT": "uint", "SNORM": "int", "SINT": "int", "FLOAT": "float"}
EDGES = [0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


@pytest.fixture(scope="module", params=["at once", "late"])
def either(request: pytest.FixtureRequest, executor: Executor, cache_dir: Path) -> Executor:
    """The executor, and the one whose results come as late as on the device: the programs here wait."""
    late = Executor(cache_dir=cache_dir, budget=1 << 20, late=lambda dispatch: True)
    return executor if request.param == "at once" else late


def _draw(shape: tuple[int, ...], seed: int) -> Array:
    """Words: random ones, edges and small numbers."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 3, shape)
    anything, small = rng.integers(0, 1 << 32, shape), rng.integers(0, 99, shape)
    words = aligned(shape, "uint32")
    words[...] = np.choose(kinds, [anything, rng.choice(EDGES, shape), small])
    return words


def _texels(form: Format, shape: tuple[int, int, int], seed: int = 1) -> Array:
    """(depth, height, width, components), of any bits but NaN."""
    array = aligned((*shape, form.components), f"{DTYPES[form.kind]}{form.bits}")
    raw = np.random.default_rng(seed).integers(0, 256, array.nbytes, dtype=np.uint8)
    array.view(np.uint8).reshape(-1)[:] = raw
    if form.kind == "FLOAT":
        array[...] = np.nan_to_num(array, nan=1.5)
    return array


def _image(array: Array, form: Format, **changes: Any) -> Image:
    depth, height, width, _ = array.shape
    described = Image(
        array.ctypes.data, width, height, array.strides[1], form, depth=depth, layer_pitch=array.strides[0]
    )
    return replace(described, **changes)


def _numbers(form: Format, texel: Array) -> Array:
    """A texel as four words: what the formats of Vulkan and OpenCL say."""
    integer = form.kind in ("UINT", "SINT")
    full = np.array([0, 0, 0, 1], np.int64 if integer else np.float64)
    full[: form.components] = texel
    if integer:
        return full.astype(np.uint32)
    if form.kind != "FLOAT":
        signed = form.kind == "SNORM"
        one = np.float32(2 ** (form.bits - signed) - 1)
        full[: form.components] = np.maximum(texel.astype(np.float32) / one, np.float32(-1))
    return full.astype(np.float32).view(np.uint32)


def _run(executor: Executor, instruction: str, inputs: Array, half: bool = False, **fields: Any) -> Array:
    """Runs an instruction; lane i has ``inputs[i]``: x, y, z and slot in r4, four words of data in r5.

    Returns:
        Shape (lanes, 4): r8, which was 0xAAAA everywhere. With ``half`` hr8 and hr5 in their place.
    """
    memory: Memory = fields.pop("memory")
    target = aligned((LANES, 4), "uint32")
    file = constants(memory.add(inputs), memory.add(target))
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 5, settled=True)
    lane_address(a, 44, "r0.x", "c0.z", 4, settled=True)
    a.emit("nop", rpt=5)
    a.parse("ldg.u32 r4.x, g[r10.x], 4")
    a.parse("ldg.u32 r5.x, g[r10.x+16], 4")
    a.parse("(rpt3)mov.u32u32 r8.x, 0xaaaa\n(sy)(rpt5)nop")
    if half:
        a.parse("(rpt3)cov.u32u16 hr8.x, (r)r8.x\n(rpt3)cov.u32u16 hr5.x, (r)r5.x\n(rpt5)nop")
    a.parse(instruction)
    a.parse("(ss)(sy)(rpt5)nop")
    if half:
        a.parse("(rpt3)cov.u16u32 r8.x, (r)hr8.x\n(rpt5)nop")
    a.emit("stg.u32", "g[r11.x]", "r8.x", 4)
    a.emit("end")
    executor.run(launch(a.program(), file, local_size=(LANES, 1, 1), **fields), memory)
    return target


def _inputs(width: int, height: int, depth: int, slots: int = 1, seed: int = 3) -> Array:
    """Coordinates in and next to an image, slots, data."""
    rng = np.random.default_rng(seed)
    inputs = _draw((LANES, 8), seed)
    for axis, size in enumerate((width, height, depth)):
        inputs[:, axis] = rng.integers(-1, size + 1, LANES)
    inputs[:, 3] = rng.integers(0, slots, LANES)
    return inputs


def _at(array: Array, x: int, y: int = 0, z: int = 0) -> Array | None:
    depth, height, width, _ = array.shape
    return array[z, y, x] if x < width and y < height and z < depth else None


# ---- reads and writes of texels

READS = {
    "isam.3d": ("isam.3d.1d (T)(xyzw)r8.x, r4.x, s#0, t#0", 3),
    "isam.a": ("isam.a.1d (T)(xyzw)r8.x, r4.x, s#0, t#0", 3),
    "ldib 3d": ("ldib.b.typed.3d.T.4.imm r8.x, r4.x, 0", 3),
    "ldib 2d by register": ("ldib.b.typed.2d.T.4.nonuniform r8.x, r4.x, r4.w", 2),
    "ldib 1d by register": ("ldib.b.typed.1d.T.4.uniform r8.x, r4.x, r4.w", 1),
}


@FORMATS
@pytest.mark.parametrize("name", READS)
def test_reads(executor: Executor, form: Format, name: str) -> None:
    text, dims = READS[name]
    arrays = [_texels(form, (3, 4, 9), seed) for seed in (1, 2)]
    inputs = _inputs(9, 4, 3, 2)
    bound = tuple(_image(array, form) for array in arrays)
    kind = "u32" if form.integer else "f32"
    memory = Memory(list(arrays))
    found = _run(executor, text.replace("T", kind), inputs, memory=memory, images=bound, textures=bound)
    for lane, (x, y, z, slot) in enumerate(inputs[:, :4]):
        array = arrays[slot if "register" in name else 0]
        texel = _at(array, x, *[y, z][: dims - 1])
        want = np.zeros(4, np.uint32) if texel is None else _numbers(form, texel)
        assert np.array_equal(found[lane], want), (lane, x, y, z)


@FORMATS
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_writes(executor: Executor, form: Format, dims: int) -> None:
    """To the image that each lane names; numbers to the nearest that the format holds."""
    arrays = [_texels(form, (3, 4, 12)) for _ in range(2)]
    want = [array.copy() for array in arrays]
    inputs = _inputs(12, 4, 3, 2)
    places = np.random.default_rng(1).permutation(3 * 4 * 12)[:LANES]  # no texel twice
    inputs[:, 0], inputs[:, 1], inputs[:, 2] = places % 12, places // 12 % 4, places // 48
    inputs[:12, 0] = inputs[:12, 0] + 12  # outside
    if dims == 1:
        inputs[:, 0] = np.arange(LANES) % 14
        inputs[:, 3] = np.arange(LANES) // 14 % 2
    kind = "u32" if form.integer else "f32"
    if not form.integer:
        values = np.random.default_rng(2).normal(0, 1, (LANES, 4)).astype(np.float32)
        values[0], values[13] = [2, -2, 1, 0], [np.inf, -np.inf, np.nan, 1e-9]
        inputs[:, 4:] = values.view(np.uint32)
    text = f"stib.b.typed.{dims}d.{kind}.4.nonuniform r5.x, r4.x, r4.w"
    bound = tuple(_image(array, form) for array in arrays)
    _run(executor, text, inputs, memory=Memory(list(arrays)), images=bound)
    for x, y, z, slot, *values in inputs:
        texel = _at(want[slot], x, *[y, z][: dims - 1])
        if texel is not None:
            texel[...] = _stored(form, np.array(values, np.uint32))[: form.components]
    for array, expected in zip(arrays, want, strict=True):
        assert np.array_equal(array.view(f"uint{form.bits}"), expected.view(f"uint{form.bits}"))


def _stored(form: Format, words: Array) -> Array:
    dtype = np.dtype(f"{DTYPES[form.kind]}{form.bits}")
    if form.integer:
        wide = words.view(np.int32).astype(np.int64) if form.kind == "SINT" else words.astype(np.int64)
        info = np.iinfo(dtype)
        return np.clip(wide, info.min, info.max).astype(dtype)
    numbers = words.view(np.float32)
    if form.kind == "FLOAT":
        with np.errstate(over="ignore"):
            return numbers.astype(dtype)
    low = 0 if form.kind == "UNORM" else -1
    clipped = np.clip(np.nan_to_num(numbers, nan=low), low, 1).astype(np.float32)
    stored: Array = np.rint(clipped * np.float32(2 ** (form.bits + low) - 1)).astype(dtype)
    return stored


def test_swizzles_count_for_textures_only(executor: Executor) -> None:
    array = _texels(Format.RGBA32_UINT, (2, 3, 9))
    described = _image(array, Format.RGBA32_UINT, swizzle=(2, 5, 0, 4))
    inputs = _inputs(9, 3, 2)
    text = "isam.3d.1d (u32)(xw)r8.x, r4.x, s#0, t#0"
    found = _run(executor, text, inputs, memory=Memory([array]), textures=(described,))
    text = "ldib.b.typed.3d.u32.4.imm.base1 r8.x, r4.x, 0"
    sets = (None, DescriptorSet((described,), ()))
    whole = _run(executor, text, inputs, memory=Memory([array]), sets=sets)
    for lane, (x, y, z) in enumerate(inputs[:, :3]):
        texel = _at(array, x, y, z)
        zero = np.zeros(4, np.uint32)
        assert np.array_equal(whole[lane], zero if texel is None else texel)
        want = [0, 0xAAAA, 0xAAAA, 0] if texel is None else [texel[2], 0xAAAA, 0xAAAA, 0]
        assert np.array_equal(found[lane], want)


BINDLESS: dict[str, tuple[str, Callable[[int], int]]] = {
    "imm": ("isam.base2.1d (u32)(xyzw)r8.x, r4.x, s#0, t#1", lambda slot: 1),
    "register": ("isam.s2en.uniform.base2.1d (u32)(xyzw)r8.x, r4.x, r4.w", lambda slot: slot),
    "a1": (
        "mova1 a1.x, 17\n(rpt5)nop\n(rpt5)nop\nisam.base2.1d (u32)(xyzw)r8.x, r4.x, s#0, a1.x",
        lambda slot: 2,
    ),
    "ldib": ("ldib.b.typed.2d.u32.4.nonuniform.base2 r8.x, r4.x, r4.w", lambda slot: slot),
}


@pytest.mark.parametrize("name", BINDLESS)
def test_bindless_images(either: Executor, name: str) -> None:
    text, chosen = BINDLESS[name]
    arrays = [_texels(Format.RGBA32_UINT, (1, 4, 9), seed) for seed in range(3)]
    inputs = _inputs(9, 4, 1, 3)
    described = DescriptorSet(tuple(_image(array, Format.RGBA32_UINT) for array in arrays), ())
    found = _run(either, text, inputs, memory=Memory(list(arrays)), sets=(None, None, described))
    for lane, (x, y, _, slot) in enumerate(inputs[:, :4]):
        texel = _at(arrays[chosen(int(slot))], x, y)
        assert np.array_equal(found[lane], np.zeros(4, np.uint32) if texel is None else texel)


def test_textures_from_half_registers(executor: Executor) -> None:
    """s2en without bindless: the texture, then the sampler, in a pair of half registers."""
    arrays = [_texels(Format.RGBA32_UINT, (1, 4, 9), seed) for seed in range(3)]
    inputs = _inputs(9, 4, 1, 3)
    bound = tuple(_image(array, Format.RGBA32_UINT) for array in arrays)
    text = (
        "cov.u32u16 hr1.x, r4.w\nmov.u16u16 hr1.y, 0\n(rpt5)nop\n"
        "isam.s2en.nonuniform.1d (u32)(xyzw)r8.x, r4.x, hr1.x"
    )
    found = _run(executor, text, inputs, memory=Memory(list(arrays)), textures=bound)
    for lane, (x, y, _, slot) in enumerate(inputs[:, :4]):
        texel = _at(arrays[slot], x, y)
        assert np.array_equal(found[lane], np.zeros(4, np.uint32) if texel is None else texel)


# ---- words of buffers


def _buffer(size: int, bits: int) -> tuple[Array, Image]:
    array = aligned((size,), f"uint{bits}")
    array[...] = np.random.default_rng(bits).integers(0, 1 << bits, size)
    form = Format.R32_UINT if bits == 32 else Format.R16_UINT
    return array, Image(array.ctypes.data, size, 1, array.nbytes, form)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("bits", [16, 32])
def test_words_of_buffers(either: Executor, bits: int, count: int) -> None:
    """Coordinates count words; each word that is outside reads as zero and is not written."""
    array, described = _buffer(300, bits)
    inputs = _inputs(0, 0, 0)
    inputs[:, 0] = np.random.default_rng(4).permutation(77)[:LANES] * 4
    inputs[:3, 0] = 297, 298, 0xFFFFFFFF
    half, register = bits == 16, "hr" if bits == 16 else "r"
    load = f"ldib.b.untyped.1d.u{bits}.{count}.imm {register}8.x, r4.x, 0"
    found = _run(either, load, inputs, half, memory=Memory([array]), images=(described,))
    words = array.tolist()
    for lane, x in enumerate(inputs[:, 0].tolist()):
        want = [words[x + n] if x + n < 300 else 0 for n in range(count)]
        assert found[lane].tolist() == [*want, *[0xAAAA] * (4 - count)]
    store = f"stib.b.untyped.1d.u{bits}.{count}.uniform {register}5.x, r4.x, r4.w"
    _run(either, store, inputs, half, memory=Memory([array]), images=(described,))
    for x, *data in inputs[:, [0, 4, 5, 6, 7]].tolist():
        for n in range(count):
            if x + n < 300:
                words[x + n] = data[n] & (1 << bits) - 1
    assert array.tolist() == words


def test_bytes_of_buffers(executor: Executor) -> None:
    """As Mesa does it: a typed access with a descriptor of bytes."""
    array = aligned((100,), "uint8")
    array[...] = np.arange(100)
    described = Image(array.ctypes.data, 100, 1, 100, Format.R8_UINT)
    inputs = _inputs(100, 0, 0)
    inputs[:, 0] = np.arange(LANES) + 40
    inputs[:, 4] &= 255
    load = "ldib.b.typed.1d.u16.1.imm hr8.x, r4.x, 0"
    found = _run(executor, load, inputs, True, memory=Memory([array]), images=(described,))
    assert found[:, 0].tolist() == [x if x < 100 else 0 for x in range(40, 104)]
    store = "stib.b.typed.1d.u16.4.imm hr5.x, r4.x, 0"
    _run(executor, store, inputs, True, memory=Memory([array]), images=(described,))
    assert array.tolist() == [*range(40), *inputs[:60, 4].tolist()]


# ---- atomics

Operation = Callable[[int, int, int], int]
MASK = (1 << 32) - 1


def _signed(word: int, bits: int) -> int:
    return word - (1 << bits) if word >> bits - 1 else word


def _operations(bits: int) -> dict[str, Operation]:
    return {
        "add": lambda old, value, _: old + value,
        "sub": lambda old, value, _: old - value,
        "xchg": lambda old, value, _: value,
        "cmpxchg": lambda old, value, compare: value if old == compare else old,
        "min": lambda old, value, _: min(old, value),
        "max": lambda old, value, _: max(old, value),
        "min signed": lambda old, value, _: min(old, value, key=lambda word: _signed(word, bits)),
        "max signed": lambda old, value, _: max(old, value, key=lambda word: _signed(word, bits)),
        "and": lambda old, value, _: old & value,
        "or": lambda old, value, _: old | value,
        "xor": lambda old, value, _: old ^ value,
    }


@pytest.mark.parametrize("typed", [False, True], ids=["words", "texels"])
@pytest.mark.parametrize("operation", _operations(32))
def test_atomics_by_descriptor(either: Executor, operation: str, typed: bool) -> None:
    """The old value comes back in the register before the operand; outside nothing changes."""
    name, _, signed = operation.partition(" ")
    array = _draw((2, 3, 4, 1), 5)
    form = Format.R32_SINT if signed else Format.R32_UINT
    described = _image(array, form) if typed else Image(array.ctypes.data, 24, 1, 96, form)
    inputs = _inputs(4, 3, 2)
    inputs[:, 3] = 1
    if not typed:
        inputs[:, 0] = np.random.default_rng(3).integers(0, 26, LANES)
    if name == "cmpxchg":
        inputs[::2, 6] = array.reshape(-1)[np.arange(LANES // 2) % 24]
    shape = "typed.3d" if typed else "untyped.1d"
    text = f"(rpt2)mov.u32u32 r8.y, (r)r5.x\n(rpt5)nop\natomic.b.{name}.{shape}.{'s' if signed else 'u'}32"
    text += ".1.uniform r8.x, r4.x, r4.w"
    if name == "cmpxchg":
        inputs[:, 5] = inputs[:, 6]
    words, want = array.reshape(-1).tolist(), []
    apply = _operations(32)[operation]
    for x, y, z, _, value, compare, *_ in inputs.tolist():
        inside = x < 4 and y < 3 and z < 2 if typed else x < 24
        place = z * 12 + y * 4 + x if typed else x
        want.append(words[place] if inside else 0)
        if inside:
            words[place] = apply(words[place], value, compare) & MASK
    found = _run(either, text, inputs, memory=Memory([array]), images=(described, described))
    assert found[:, 0].tolist() == want
    assert array.reshape(-1).tolist() == words


@pytest.mark.parametrize("operation", [name for name in _operations(64) if "signed" not in name])
def test_atomics_of_64_bits(either: Executor, operation: str) -> None:
    """On global memory: pairs of registers, the low word first."""
    array = aligned((8,), "uint64")
    array[...] = _draw((16,), 6).view(np.uint64)
    inputs = _inputs(0, 0, 0)
    inputs[:, 0] = np.random.default_rng(3).integers(0, 8, LANES) * 8
    if operation == "cmpxchg":
        inputs[:16, 6:] = np.tile(array.view(np.uint32).reshape(-1, 2), (2, 1))
    words, want = array.tolist(), []
    for place, low, high, low2, high2 in inputs[:, [0, 4, 5, 6, 7]].tolist():
        at = place // 8
        want.append(words[at])
        apply = _operations(64)[operation]
        words[at] = apply(words[at], low | high << 32, low2 | high2 << 32) & (1 << 64) - 1
    inputs[:, :2] = (
        (np.uint64(array.ctypes.data) + inputs[:, 0].astype(np.uint64)).view(np.uint32).reshape(-1, 2)
    )
    text = f"atomic.g.{operation}.untyped.1d.u64.1.g r8.x, r4.x, r5.x"
    found = _run(either, text, inputs, memory=Memory([array]))
    assert np.ascontiguousarray(found[:, :2]).view(np.uint64)[:, 0].tolist() == want
    assert array.tolist() == words


# ---- sizes


def test_sizes(either: Executor) -> None:
    """Three registers, whatever the instruction says of dimensions."""
    images = (
        Image(0, 7, 5, 64, Format.RGBA8_UINT, depth=3, layer_pitch=4096),
        Image(0, 100_000, 1, 400_000, Format.R32_UINT),
    )
    inputs = _inputs(0, 0, 0, 2)
    text = "resinfo.b.untyped.2d.u32.1.nonuniform r8.x, r4.w"
    found = _run(either, text, inputs, memory=Memory(), images=images)
    sizes = [[7, 5, 3, 0xAAAA], [100_000, 1, 1, 0xAAAA]]
    assert found.tolist() == [sizes[slot] for slot in inputs[:, 3]]


# ---- uniform buffers


@pytest.mark.parametrize("form", ["imm", "uniform", "bindless"])
@pytest.mark.parametrize("offset,count", [(0, 4), (1, 1), (2, 2), (3, 1)])
def test_uniform_buffers(either: Executor, form: str, offset: int, count: int) -> None:
    """vec4 by their number, from a component on; zeros beyond the size."""
    arrays = [_draw((4 * size,), size) for size in (5, 9)]
    buffers = tuple(Uniforms(array.ctypes.data, array.nbytes) for array in arrays)
    inputs = _inputs(10, 0, 0, 2)
    slot = {"imm": "imm r8.x, r4.x, 1", "uniform": "uniform r8.x, r4.x, r4.w"}
    slot["bindless"] = "nonuniform.base4 r8.x, r4.x, r4.w"
    text = f"ldc.offset{offset}.{count}.{slot[form]}"
    sets = (None, None, None, None, DescriptorSet((None, None), buffers))
    found = _run(either, text, inputs, memory=Memory(list(arrays)), uniforms=buffers, sets=sets)
    for lane, (x, _, _, slot_) in enumerate(inputs[:, :4].tolist()):
        array = arrays[1 if form == "imm" else slot_]
        words = [4 * x + offset + n for n in range(count)]
        want = [int(array[word]) if word < len(array) else 0 for word in words]
        assert found[lane].tolist() == [*want, *[0xAAAA] * (4 - count)]


def test_uniform_buffers_by_a_number(executor: Executor) -> None:
    array = _draw((16,), 4)
    text = "ldc.offset1.2.imm r8.x, 3, 0"
    found = _run(
        executor, text, _inputs(0, 0, 0), memory=Memory([array]),
        uniforms=(Uniforms(array.ctypes.data, array.nbytes),),
    )  # fmt: skip
    assert (found[:, :2] == array[13:15]).all()


# ---- what is wrong

HEAD = r"GPU fault at instruction 19 \(.*\), wave 0 of workgroup \(0, 0, 0\), lane 0: "
WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "uniform slot": (
        "ldc.offset0.1.imm r8.x, r4.x, 3", {},
        "slot 3 is not bound: the launch has 0 uniform buffers; bind it or use another slot",
    ),
    "set": (
        "isam.base3.1d (u32)(xyzw)r8.x, r4.x, s#0, t#4", {},
        "descriptor 4 of bindless base 3 is not there; point the base to as many",
    ),
    "uniform set": (
        "ldc.offset0.1.imm.base1 r8.x, r4.x, 4", {},
        "descriptor 4 of bindless base 1 is not there; point the base to as many",
    ),
    "no image": (
        "isam.base0.1d (u32)(xyzw)r8.x, r4.x, s#0, t#0", {"sets": (DescriptorSet((None,), ()),)},
        "the descriptor in slot 0 is of no image that this access could use (mapped, linear, for atomics "
        "texels of 32 bits); correct it",
    ),
    "atomic texels": (
        "atomic.b.add.typed.2d.u32.1.uniform r8.x, r4.x, r4.z",
        {"images": (Image(64, 8, 8, 64, Format.RGBA8_UINT, depth=1), Image(64, 8, 8, 64, Format.RG16_UINT))},
        "not mapped as a whole",
    ),
    "wide texels": (
        "atomic.b.add.typed.2d.u32.1.uniform r8.x, r4.x, r4.z",
        {"images": (Image(64, 8, 8, 64, Format.RGBA16_UINT),)},
        "the descriptor in slot 0 is of no image that this access could use (mapped, linear, for atomics "
        "texels of 32 bits); correct it",
    ),
    "image that is not mapped": (
        "ldib.b.untyped.1d.u32.1.imm r8.x, r4.x, 0", {"images": (Image(4096, 8, 1, 64, Format.R32_UINT),)},
        "the image at 0x1000 is not mapped as a whole: far from every array; correct its descriptor",
    ),
    "uniforms that are not mapped": (
        "ldc.offset2.1.imm r8.x, r4.x, 0", {"uniforms": (Uniforms(1 << 20, 64),)},
        "4 bytes of a uniform buffer at 0x100008 are not mapped: far from every array; correct its "
        "descriptor",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_descriptor(executor: Executor, name: str) -> None:
    text, fields, message = WRONG[name]
    inputs = aligned((LANES, 8), "uint32")
    with pytest.raises(GpuFault, match=HEAD) as caught:
        _run(executor, text, inputs, memory=Memory(), **fields)
    assert message in str(caught.value)


def test_atomics_are_aligned(executor: Executor) -> None:
    array, inputs = aligned((8,), "uint64"), aligned((LANES, 8), "uint32")
    address = array.ctypes.data + 4
    inputs[:, :2] = address & MASK, address >> 32
    text = "atomic.g.add.untyped.1d.u64.1.g r8.x, r4.x, r5.x"
    with pytest.raises(GpuFault, match=f"an atomic access of 8 bytes at {address:#x} is not aligned to them"):
        _run(executor, text, inputs, memory=Memory([array]))


@pytest.mark.parametrize("example", REFUSED, ids=lambda row: row[0])
def test_what_is_not_executed(executor: Executor, example: tuple[str, str]) -> None:
    text, form = example
    reason = {refusal.form: refusal.reason for refusal in REFUSALS}[form]
    with pytest.raises(GpuFault) as caught:
        _run(executor, text, aligned((LANES, 8), "uint32"), memory=Memory(), shared_bytes=1024)
    assert str(caught.value).endswith(f": {reason}; the virtual A630 does not execute it")


# ---- races

HARNESS = r"stg\.u32 .*writes what .*stg\.u32 .*wrote"  # which stores in the same places in every workgroup
RACES = {
    "stib.b.untyped.1d.u32.2.imm r5.x, r4.x, 0": r"array 0: .*19 \(stib.*\(1, 0, 0\) writes .*\(stib.*wrote",
    "ldib.b.untyped.1d.u32.1.uniform r8.x, r4.x, r4.w": HARNESS,
    "stib.b.typed.3d.u32.4.imm r5.x, r4.x, 1": r"array 1: .*19 \(stib.*writes what .*19 \(stib.*wrote",
    "atomic.b.add.untyped.1d.u32.1.uniform r8.x, r4.x, r4.w": HARNESS,
    "ldc.offset0.1.imm r8.x, r4.x, 0\n(sy)stib.b.untyped.1d.u32.1.imm r5.x, r4.x, 0": (
        r"byte 0 of array 0: .*19 \(ldc.*\(1, 0, 0\) reads what .*20 \(.*stib.*\(0, 0, 0\) wrote"
    ),
    "ldib.b.typed.3d.u32.4.imm r8.x, r4.x, 1\n(sy)stib.b.typed.3d.u32.4.imm r5.x, r4.x, 1": (
        r"array 1: .*19 \(ldib.*reads what .*20 \(.*stib.*wrote"
    ),
    "atomic.b.add.untyped.1d.u32.1.uniform r8.x, r4.x, r4.w\n(sy)stib.b.untyped.1d.u32.1.imm r5.x, r4.x, 0": (
        r"array 0: .*19 \(atomic.*changes what .*20 \(.*stib.*wrote"
    ),
}


@pytest.mark.parametrize("text", RACES)
def test_races(cache_dir: Path, text: str) -> None:
    """Three workgroups do the same; only reads and atomic changes go together."""
    array, described = _buffer(300, 32)
    texels = _texels(Format.R8_UINT, (2, 3, 70))
    inputs = _inputs(64, 3, 2)
    inputs[:, 0] = np.arange(LANES)
    inputs[:, 1:4] = 0
    with pytest.raises(RaceError, match=RACES[text]):
        _run(
            Executor(cache_dir=cache_dir, races=True),
            text,
            inputs,
            memory=Memory([array, texels]),
            images=(described, _image(texels, Format.R8_UINT)),
            uniforms=(Uniforms(array.ctypes.data, array.nbytes),),
            groups=(3, 1, 1),
        )
