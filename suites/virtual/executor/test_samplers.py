"""What a sample's sources can hold, against numpy: levels of detail, cubes, shadows, offsets, gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_qcom.errors import GpuFault
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.virtual.dispatch import DescriptorSet, Format, Image, Sampler
from pytest_qcom.virtual.executor import Executor
from suites.virtual.executor.rig import Array, Memory, aligned, constants, lane_address, launch
from suites.virtual.executor.sampling import (
    FIRST,
    SECOND,
    SHAPES,
    Asked,
    Texture,
    lane_oracle,
    make_asked,
    make_sampler,
    make_texture,
    same,
    square,
    suffix,
)
from suites.virtual.executor.test_filters import F32, _half
from suites.virtual.executor.test_surfaces import LANES, _numbers

FORMS = (Format.RGBA32_FLOAT, Format.RGBA16_FLOAT, Format.RGBA8_UNORM, Format.R16_UNORM, Format.RG8_SINT)


def _run(
    executor: Executor,
    text: str,
    first: Array,
    second: Array,
    half: bool = False,
    narrow: str = "",
    **fields: Any,
) -> Array:
    """Runs an instruction; lane i has ``first[i]`` from r4 on and ``second[i]`` from r7 on.

    Args:
        half: the result is hr8.
        narrow: source registers are half ones; a letter each of r7: f a float, i an integer.

    Returns:
        Shape (lanes, 4): r8, which was 0xAAAA everywhere.
    """
    memory: Memory = fields.pop("memory")
    inputs, target = aligned((LANES, 16), "uint32"), aligned((LANES, 4), "uint32")
    inputs[:, :FIRST], inputs[:, FIRST:] = first, second
    file = constants(memory.add(inputs), memory.add(target))
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 6, settled=True)
    lane_address(a, 44, "r0.x", "c0.z", 4, settled=True)
    a.emit("nop", rpt=5)
    for vector in range(4):
        a.parse(f"ldg.u32 r{4 + vector}.x, g[r10.x+{16 * vector}], 4")
    a.parse("(rpt3)mov.u32u32 r8.x, 0xaaaa\n(sy)(rpt5)nop")
    if narrow:
        a.parse("(rpt3)cov.f32f16 hr4.x, (r)r4.x\n(rpt3)cov.f32f16 hr5.x, (r)r5.x\n(rpt5)nop")
        for place, letter in enumerate(narrow):
            kind = "f32f16" if letter == "f" else "u32u16"
            a.parse(f"cov.{kind} hr7.{'xyzw'[place]}, r7.{'xyzw'[place]}")
        text = text.replace(" r4", " hr4").replace(" r7", " hr7")
    if half:
        a.parse("(rpt3)cov.u32u16 hr8.x, (r)r8.x")
        text = text.replace("(f32)", "(f16)").replace("r8.x", "hr8.x")
    a.parse("mova1 a1.x, 42\n(rpt5)nop")
    a.parse(text)
    a.parse("(ss)(sy)(rpt5)nop")
    if half:
        a.parse("(rpt3)cov.u16u32 r8.x, (r)hr8.x\n(rpt5)nop")
    a.emit("stg.u32", "g[r11.x]", "r8.x", 4)
    a.emit("end")
    executor.run(launch(a.program(), file, local_size=(LANES, 1, 1), **fields), memory)
    return target


CASES = [
    (shape, shadow, offset)
    for shape in SHAPES
    for shadow in (False, True)
    for offset in (False, True)
    if not (offset and shape.startswith("cube")) and not (shadow and shape == "3d")
]


@pytest.mark.parametrize(("shape", "shadow", "offset"), CASES)
@pytest.mark.parametrize("operation", ["saml", "samgq"])
def test_levels(machine: Executor, operation: str, shape: str, shadow: bool, offset: bool) -> None:
    rng = np.random.default_rng([SHAPES.index(shape), shadow, offset, len(operation)])
    for round_, form in enumerate(FORMS):
        if shadow and form.integer:
            continue
        texture = make_texture(rng, form, shape, int(rng.integers(1, 5)), 64 << int(rng.integers(0, 2)))
        if round_ == 1:
            texture.image = replace(texture.image, least_lod=0.75)
        sampler, asked = make_sampler(rng), make_asked(rng, texture, shadow, offset)
        levels = _details(rng, operation, texture, asked, offset)
        second = operation == "saml" or offset
        text = f"{operation}{suffix(shape, shadow, offset)} ({'s32' if form.integer else 'f32'})"
        text += f"({'x' if shadow else 'xyzw'})r8.x, r4.x{', r7.x' * second}, s#1, t#0"
        found = _run(
            machine, text, asked.first, asked.second, memory=Memory([texture.memory]),
            textures=(texture.image,), samplers=(Sampler(), sampler),
        )  # fmt: skip
        for lane, got in enumerate(found):
            want = lane_oracle(texture, sampler, asked, lane).read(int(levels[lane]))
            if shadow:
                want = np.array([want[0], *[0xAAAA] * 3], np.uint32)
            same(got, want, form.name, sampler, lane, texture.image, asked.where[lane], levels[lane])


def _details(rng: np.random.Generator, operation: str, texture: Texture, asked: Asked, offset: bool) -> Array:
    """The lanes' levels of detail in 1/256; puts them, or the derivatives they come from, into sources."""
    axes = 3 if texture.shape in ("3d", "cube", "cube array") else 2
    if operation == "saml":
        given = rng.uniform(-2, 5, LANES).astype(F32)
        given = np.where(rng.random(LANES) < 0.5, np.round(2 * given) / F32(2), given).astype(F32)
        asked.second[:, axes * offset] = given.view(np.uint32)
        rounded: Array = np.rint(given * F32(256)).astype(int)
        return rounded
    start = max(4, asked.count)
    pair = rng.normal(size=(LANES, 2, 3)) * 2.0 ** rng.integers(-9, 1, (LANES, 1, 1))
    pair[rng.random(LANES) < 0.05] = 0
    pair = pair.astype(F32)
    asked.first[:, start : start + 2 * axes] = pair[:, :, :axes].reshape(LANES, -1).view(np.uint32)
    levels = []
    for lane in range(LANES):
        squares = [square(texture, asked.where[lane], vector) for vector in pair[lane]]
        with np.errstate(divide="ignore"):
            exact = np.floor(128 * np.log2(max(squares)) + 0.5)
        levels.append(max(exact, -1e5))
    return np.array(levels)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "3d"])
@pytest.mark.parametrize("letter", "rgba")
def test_gathers(executor: Executor, letter: str, shape: str) -> None:
    """Always of the largest level; with an offset where there is one; compared ones too."""
    rng = np.random.default_rng([SHAPES.index(shape), ord(letter)])
    for form, shadow in ((FORMS[0], False), (FORMS[2], True), (FORMS[4], False)):
        offset = not shape.startswith("cube") and bool(rng.integers(2))
        texture = make_texture(rng, form, shape, 3)
        sampler, asked = make_sampler(rng), make_asked(rng, texture, shadow, offset)
        text = f"gather4{letter}{suffix(shape, shadow, offset)} ({'s32' if form.integer else 'f32'})"
        text += f"(xyzw)r8.x, r4.x{', r7.x' * offset}, s#0, t#0"
        found = _run(
            executor, text, asked.first, asked.second, memory=Memory([texture.memory]),
            textures=(texture.image,), samplers=(sampler,),
        )  # fmt: skip
        for lane, got in enumerate(found):
            same(
                got, lane_oracle(texture, sampler, asked, lane, "rgba".index(letter)).read(0), form.name, lane
            )


@pytest.mark.parametrize("half", [False, True], ids=["f32", "f16"])
def test_half_sources(executor: Executor, half: bool) -> None:
    """Coordinates, references and levels of 16 bits; offsets are integers. Also half results."""
    rng = np.random.default_rng(half)
    for shape, offset in (("2d", True), ("cube array", False), ("3d", False)):
        texture = make_texture(rng, FORMS[0], shape, 3)
        sampler, asked = make_sampler(rng), make_asked(rng, texture, False, offset)
        narrow = [asked.where.astype(np.float16).astype(F32), asked.layers.astype(np.float16).astype(F32)]
        axes = 3 if shape in ("3d", "cube array") else 2
        asked.where, asked.layers = narrow
        if texture.cube:
            asked.where[np.abs(asked.where).max(axis=1) == 0, 2] = 0.5
        asked.first[:, :axes] = asked.where[:, :axes].copy().view(np.uint32)
        if "array" in shape:
            asked.first[:, axes] = asked.layers.view(np.uint32)
        levels = rng.integers(-512, 1024, LANES)
        asked.second[:, axes * offset] = (levels / 256).astype(F32).view(np.uint32)
        text = f"saml{suffix(shape, False, offset)} (f32)(xyzw)r8.x, r4.x, r7.x, s#0, t#0"
        found = _run(
            executor, text, asked.first, asked.second, half, "i" * axes * offset + "f",
            memory=Memory([texture.memory]), textures=(texture.image,), samplers=(sampler,),
        )  # fmt: skip
        for lane, got in enumerate(found):
            want = lane_oracle(texture, sampler, asked, lane).read(int(levels[lane]))
            same(got, _half(want).astype(np.uint32) if half else want, shape, lane)


@pytest.mark.parametrize("offset", [False, True], ids=["", "o"])
@pytest.mark.parametrize("shape", ["2d", "array", "3d"])
def test_texels_of_levels(machine: Executor, shape: str, offset: bool) -> None:
    """isaml: zeros outside of a level, and of one that is not there."""
    rng = np.random.default_rng([SHAPES.index(shape), offset, 7])
    axes = 3 if shape == "3d" else 2
    for form in FORMS:
        texture = make_texture(rng, form, shape, 4)
        first, second = aligned((LANES, FIRST), "uint32"), aligned((LANES, SECOND), "uint32")
        first[:, 0], first[:, 1] = rng.integers(-2, 14, LANES), rng.integers(-2, 9, LANES)
        first[:, 2] = rng.integers(-1, 5, LANES)
        moves = rng.integers(-2, 3, (LANES, axes)) * offset
        if offset:
            second[:, :axes] = moves
        level = rng.integers(-1, 5, LANES)
        second[:, axes * offset] = level
        kind = "s32" if form.integer else "f32"
        found = _run(
            machine, f"isaml{suffix(shape, False, offset)} ({kind})(xyzw)r8.x, r4.x, r7.x, s#0, t#0",
            first, second, memory=Memory([texture.memory]), textures=(texture.image,),
        )  # fmt: skip
        for lane, got in enumerate(found):
            place = first[lane, :3].view(np.int32).copy()
            place[:axes] += moves[lane]
            place[2] *= shape != "2d"
            want = np.zeros(4, np.uint32)
            if 0 <= level[lane] < 4:
                array = texture.levels[level[lane]]
                if all(0 <= p < s for p, s in zip(place, array.shape[2::-1], strict=True)):
                    want = _numbers(form, array[place[2], place[1], place[0]])
            same(got, want, form.name, lane, place, level[lane])


@pytest.mark.parametrize("shape", ["2d", "array"])
@pytest.mark.parametrize("samples", [2, 4])
def test_samples_of_texels(machine: Executor, samples: int, shape: str) -> None:
    """isamm: the samples of a texel lie behind each other; zeros from one that is not there."""
    rng = np.random.default_rng(samples)
    texture = make_texture(rng, Format.RGBA16_FLOAT, shape, 1, samples=samples)
    first = aligned((LANES, FIRST), "uint32")
    first[:, 0], first[:, 1] = rng.integers(-1, 22, LANES), rng.integers(-1, 11, LANES)
    layered = shape == "array"
    first[:, 2] = rng.integers(-1, 4, LANES)
    first[:, 2 + layered] = rng.integers(0, samples + 1, LANES)
    found = _run(
        machine, f"isamm{'.a' * layered} (f32)(xyzw)r8.x, r4.x, s#0, t#0", first,
        aligned((LANES, SECOND), "uint32"), memory=Memory([texture.memory]), textures=(texture.image,),
    )  # fmt: skip
    for lane, got in enumerate(found):
        x, y, z = (int(value) for value in first[lane, :3].view(np.int32))
        z, sample = (z if layered else 0), int(first[lane, 2 + layered])
        inside = 0 <= x < 21 and 0 <= y < 10 and 0 <= z < (3 if layered else 1) and sample < samples
        want = np.zeros(4, np.uint32)
        if inside:
            want = _numbers(texture.form, texture.levels[0][z, y, samples * x + sample])
        same(got, want, lane)


def test_queries(machine: Executor) -> None:
    """Levels and samples of textures; sizes at a level, of a cube array with the number of its cubes."""
    rng = np.random.default_rng(5)
    cube = make_texture(rng, FORMS[0], "cube array", 3)
    many = make_texture(rng, FORMS[1], "2d", 1, samples=4)
    buffer = Image(cube.memory.ctypes.data, 999, 1, 999 * 4, Format.R32_UINT)
    second = aligned((LANES, SECOND), "uint32")
    first = aligned((LANES, FIRST), "uint32")
    first[:, 0] = np.arange(LANES) % 3
    bound: dict[str, Any] = {"textures": (cube.image, many.image, buffer)}
    wants = {
        "getinfo (s32)(zw)r8.x, t#0": [0xAAAA, 0xAAAA, 3, 1],
        "getinfo (s32)(w)r8.x, t#1": [0xAAAA, 0xAAAA, 0xAAAA, 4],
        "getbuf (s32)(x)r8.x, t#2": [999, 0xAAAA, 0xAAAA, 0xAAAA],
    }
    for text, want in wants.items():
        found = _run(machine, text, first, second, memory=Memory([cube.memory, many.memory]), **bound)
        assert np.array_equal(found, np.tile(np.array(want), (LANES, 1))), text
    text = "getsize.3d.a (s32)(xyw)r8.x, r4.x, t#0"
    found = _run(machine, text, first, second, memory=Memory([cube.memory, many.memory]), **bound)
    for lane, got in enumerate(found):
        assert got.tolist() == [9 >> lane % 3, 9 >> lane % 3, 0xAAAA, 2]


BINDLESS = {
    "saml.base1 (f32)(xyzw)r8.x, r4.x, r7.x, s#3, t#2": (1, 1),
    "saml.base1 (f32)(xyzw)r8.x, r4.x, r7.x, s#3, a1.x": (1, 2),  # a1.x is 42: texture 5, base 2
    "saml.s2en.uniform.base1 (f32)(xyzw)r8.x, r4.x, r7.x, r6.z": (1, 1),
    "saml.s2en.nonuniform.base1 (f32)(xyzw)r8.x, r4.x, r7.x, r6.z, a1.x": (1, 2),
    "saml.s2en.nonuniform (f32)(xyzw)r8.x, r4.x, r7.x, hr6.z": (-1, -1),
}


@pytest.mark.parametrize("text", BINDLESS)
def test_descriptors(machine: Executor, text: str) -> None:
    """Textures and samplers of sets, of two sets, and of slots that every lane has for itself."""
    rng = np.random.default_rng(len(text))
    textures = [make_texture(rng, FORMS[0], "2d", 2) for _ in range(6)]
    samplers = [[make_sampler(rng) for _ in range(6)] for _ in range(3)]
    images = tuple(texture.image for texture in textures)
    sets = tuple(DescriptorSet(images, (), (*row[:5], None, row[5])) for row in samplers)
    asked = make_asked(rng, textures[0], False, False)
    levels = rng.integers(-300, 600, LANES)
    asked.second[:, 0] = (levels / 256).astype(F32).view(np.uint32)
    where = rng.integers(0, 5, (2, LANES))
    asked.first[:, 10], asked.first[:, 11] = where
    if "hr6" in text:  # both registers of halves hold a number below 2 ** 16
        text = f"cov.u32u16 hr6.z, r6.z\ncov.u32u16 hr6.w, r6.w\n(rpt5)nop\n{text}"
    found = _run(
        machine, text, asked.first, asked.second, memory=Memory([t.memory for t in textures]), sets=sets,
        textures=images, samplers=tuple(samplers[0]),
    )  # fmt: skip
    base = max(BINDLESS[text.splitlines()[-1]][1], 0)
    fixed = "s#3" in text
    for lane, got in enumerate(found):
        texture = textures[(5 if "a1.x" in text else 2) if fixed else where[0, lane]]
        sampler = samplers[base][3 if fixed else where[1, lane]]
        same(got, lane_oracle(texture, sampler, asked, lane).read(int(levels[lane])), lane)


def test_a_descriptor_that_is_no_sampler(executor: Executor) -> None:
    texture = make_texture(np.random.default_rng(1), FORMS[0], "2d", 1)
    sets = (DescriptorSet((texture.image,), (), (None,)),)
    nothing = aligned((LANES, FIRST), "uint32"), aligned((LANES, SECOND), "uint32")
    for slot in (0, 1):
        with pytest.raises(GpuFault, match=f"sampler {slot} of bindless base 0 is not there; point the base"):
            _run(
                executor, f"saml.base0 (f32)(xyzw)r8.x, r4.x, r7.x, s#{slot}, t#0", *nothing,
                memory=Memory([texture.memory]), sets=sets,
            )  # fmt: skip


@pytest.mark.parametrize(("count", "minified"), [(1, True), (2, True), (1, False)])
def test_derivatives_that_nobody_gave(machine: Executor, count: int, minified: bool) -> None:
    """sam, which Mesa emits for rectangles: where the level of detail does not count, it is as saml."""
    rng = np.random.default_rng(9)
    texture = make_texture(rng, FORMS[0], "2d", count)
    sampler = Sampler(magnified=True, minified=minified, unnormalized=True)
    asked = make_asked(rng, texture, False, False)
    asked.where = (asked.where * F32(10)).astype(F32)
    asked.first[:, :2] = asked.where[:, :2].copy().view(np.uint32)
    fields: dict[str, Any] = {"textures": (texture.image,), "samplers": (sampler,)}
    fields["memory"] = Memory([texture.memory])
    text = "sam (f32)(xyzw)r8.x, r4.x, s#0, t#0"
    if (count, minified) != (1, True):
        with pytest.raises(GpuFault, match="comes from the derivatives of neighbours, which compute lacks"):
            _run(machine, text, asked.first, asked.second, **fields)
        return
    found = _run(machine, text, asked.first, asked.second, **fields)
    for lane, got in enumerate(found):
        same(got, lane_oracle(texture, sampler, asked, lane).read(0), lane)
