"""Textures at coordinates: wraps, borders, filters, gathers, levels and sizes, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_qcom.errors import GpuFault
from pytest_qcom.virtual.dispatch import Format, Sampler, Wrap
from pytest_qcom.virtual.executor import Executor
from suites.virtual.executor.rig import Array, Memory, aligned
from suites.virtual.executor.test_surfaces import LANES, _image, _numbers, _run, _texels

WIDTH, HEIGHT, DEPTH = 9, 4, 3
F32 = np.float32
SHAPES = {"": 2, ".a": 3, ".3d": 3}
FORMS = (
    Format.RGBA32_FLOAT, Format.RGBA16_FLOAT, Format.RGBA8_UNORM, Format.R32_FLOAT, Format.RG16_SNORM,
    Format.RGBA32_UINT, Format.R8_SINT,
)  # fmt: skip


def _sampler(rng: np.random.Generator) -> Sampler:
    wraps = [Wrap(int(number)) for number in rng.integers(0, 5, 3)]
    return Sampler(
        wraps=(wraps[0], wraps[1], wraps[2]),
        magnified=bool(rng.integers(2)),
        minified=bool(rng.integers(2)),
        unnormalized=rng.random() < 0.3,
        lod_bias=float(rng.integers(-64, 64)) / 16,
        lods=(0.0, float(rng.integers(0, 2))),
        border=tuple(rng.normal(size=4).astype(F32).view(np.uint32).tolist()),
    )


def _inputs(rng: np.random.Generator, sampler: Sampler) -> Array:
    """x, y and z from well before to well behind the texture, many on the borders of texels; levels."""
    inputs = aligned((LANES, 8), "uint32")
    for axis, size in enumerate((WIDTH, HEIGHT, DEPTH)):
        fine = rng.uniform(-2.5 * size, 3.5 * size, LANES)
        fine = np.where(rng.random(LANES) < 0.5, np.round(512 * fine) / 512, fine)
        inputs[:, axis] = (fine if sampler.unnormalized else fine / size).astype(F32).view(np.uint32)
    inputs[:, 3] = rng.choice([-3.0, -0.5, 0.0, 0.25, 2.0], LANES).astype(F32).view(np.uint32)
    return inputs


def _wrapped(number: int, count: int, wrap: Wrap) -> int | None:
    """The texel that stands for one of any number, ``None`` for the border."""
    if wrap is Wrap.CLAMP_TO_BORDER:
        return number if number in range(count) else None
    if wrap is Wrap.REPEAT:
        return number % count
    if wrap is Wrap.MIRROR_REPEAT:
        there_and_back: list[int] = [*range(count), *reversed(range(count))]
        return there_and_back[number % len(there_and_back)]
    return min(max(-1 - number if wrap is Wrap.MIRROR_CLAMP and number < 0 else number, 0), count - 1)


def _place(coordinate: Any, count: int, sampler: Sampler, linear: bool) -> tuple[int, int]:
    """The first of two texels, and how many 1/256 the second counts."""
    scaled = coordinate if sampler.unnormalized else F32(coordinate * F32(count))
    if linear:
        return divmod(int(np.rint((scaled - F32(0.5)) * F32(256))), 256)
    return int(np.floor(scaled)), 0


def _clean(values: Array) -> Array:
    return np.where(np.abs(values) < F32(2.0**-126), np.copysign(F32(0), values), values)


def _mixed(left: Array, right: Array, weight: int) -> Array:
    if not weight:
        return left
    shares = F32((256 - weight) / 256), F32(weight / 256)
    parts = [
        _clean(_clean(words.view(F32)) * share) for words, share in zip((left, right), shares, strict=True)
    ]
    mixed: Array = _clean(parts[0] + parts[1]).astype(F32).view(np.uint32)
    return mixed


class _Texture:
    """What one lane reads."""

    def __init__(self, form: Format, texels: Array, sampler: Sampler) -> None:
        self.form, self.texels, self.sampler = form, texels, sampler

    def texel(self, x: int, y: int, z: int, deep: bool) -> Array:
        places = []
        for axis, (number, count) in enumerate(zip((x, y, z), (WIDTH, HEIGHT, DEPTH), strict=True)):
            plain = axis == 2 and not deep
            place = number if plain else _wrapped(number, count, self.sampler.wraps[axis])
            if place is None:
                return np.array(self.sampler.border, np.uint32)
            places.append(place)
        return _numbers(self.form, self.texels[places[2], places[1], places[0]])

    def read(self, lane: Array, shape: str, gather: int) -> Array:
        sampler, where = self.sampler, lane[:3].view(F32)
        level = min(max(lane[3:4].view(F32)[0] + F32(sampler.lod_bias), sampler.lods[0]), sampler.lods[1])
        linear = (sampler.magnified if level <= 0 else sampler.minified) and not self.form.integer
        linear |= gather >= 0
        (x, fx), (y, fy) = (
            _place(where[axis], size, sampler, linear) for axis, size in enumerate((WIDTH, HEIGHT))
        )
        z, fz = 0, 0
        if shape == ".3d":
            z, fz = _place(where[2], DEPTH, sampler, linear)
        elif shape == ".a":
            z = min(max(int(np.floor(where[2])), 0), DEPTH - 1)
        deep = shape == ".3d"
        if gather >= 0:
            around = ((x, y + 1), (x + 1, y + 1), (x + 1, y), (x, y))
            return np.array([self.texel(*at, z, deep)[gather] for at in around], np.uint32)
        planes = []
        for layer in (z, z + 1)[: 1 + bool(fz)]:
            rows = [
                _mixed(self.texel(x, row, layer, deep), self.texel(x + 1, row, layer, deep), fx)
                for row in (y, y + 1)
            ]
            planes.append(_mixed(rows[0], rows[1], fy))
        return _mixed(planes[0], planes[-1], fz)


def _half(words: Array) -> Array:
    """f32 words as f16 ones, to nearest, without subnormals."""
    with np.errstate(over="ignore"):
        halves = words.view(F32).astype(np.float16)
    tiny = np.abs(halves) < np.float16(2.0**-14)
    return np.where(tiny, np.copysign(np.float16(0), halves), halves).view(np.uint16)


READS = {
    **{f"saml{shape}": (f"saml{shape} (T)(xyzw)r8.x, r4.x, r4.w, s#1, t#0", shape, -1) for shape in SHAPES},
    **{
        f"gather4{letter}": (f"gather4{letter} (T)(xyzw)r8.x, r4.x, s#1, t#0", "", number)
        for number, letter in enumerate("rgba")
    },
}


@pytest.mark.parametrize("half", [False, True], ids=["f32", "f16"])
@pytest.mark.parametrize("name", READS)
def test_samplers(machine: Executor, name: str, half: bool) -> None:
    text, shape, gather = READS[name]
    rng = np.random.default_rng(len(name) + half)
    if half:
        text = text.replace("r8.x", "hr8.x").replace("T", "f16")
    for form in FORMS:
        if half and form.integer:
            continue
        texels = _texels(form, (DEPTH, HEIGHT, WIDTH), 5)
        for _ in range(4):
            sampler = _sampler(rng)
            inputs, memory = _inputs(rng, sampler), Memory([texels])
            found = _run(
                machine, text.replace("T", "u32" if form.integer else "f32"), inputs, half, memory=memory,
                textures=(_image(texels, form),), samplers=(Sampler(), sampler),
            )  # fmt: skip
            for number, lane in enumerate(inputs):
                want = _Texture(form, texels, sampler).read(lane, shape, gather)
                want = _half(want) if half else want
                assert np.array_equal(found[number], want), (form.name, sampler, lane[:4].view(F32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-41, -0.0])
def test_far_coordinates(executor: Executor, value: float) -> None:
    """The edge where there is one; what is no number counts as 0."""
    texels = _texels(Format.RGBA32_FLOAT, (1, HEIGHT, WIDTH))
    sampler = Sampler((Wrap.CLAMP_TO_EDGE,) * 3, unnormalized=True)
    inputs = aligned((LANES, 8), "uint32")
    inputs[:, 0] = F32(value).view(np.uint32)
    found = _run(
        executor, READS["saml"][0].replace("T", "f32"), inputs, memory=Memory([texels]),
        textures=(_image(texels, Format.RGBA32_FLOAT),), samplers=(sampler,) * 2,
    )  # fmt: skip
    edge = WIDTH - 1 if value > 1 else 0
    assert np.array_equal(found, np.tile(texels[0, 0, edge].view(np.uint32), (LANES, 1)))


@pytest.mark.parametrize("shape", ["", ".3d", ".a"])
def test_levels_of_texels(machine: Executor, shape: str) -> None:
    """isaml: zeros from a level that is not there."""
    texels = _texels(Format.RGBA32_UINT, (DEPTH, HEIGHT, WIDTH))
    rng = np.random.default_rng(2)
    inputs = aligned((LANES, 8), "uint32")
    for axis, size in enumerate((WIDTH, HEIGHT, DEPTH)):
        inputs[:, axis] = rng.integers(-1, size + 1, LANES)
    inputs[:, 3] = rng.integers(0, 3, LANES)
    found = _run(
        machine, f"isaml{shape} (u32)(xyzw)r8.x, r4.x, r4.w, s#0, t#0", inputs, memory=Memory([texels]),
        textures=(_image(texels, Format.RGBA32_UINT),),
    )  # fmt: skip
    for number, (x, y, z, level) in enumerate(inputs[:, :4]):
        z = z if shape else 0
        inside = x < WIDTH and y < HEIGHT and z < DEPTH and level == 0
        assert np.array_equal(found[number], texels[z, y, x] if inside else np.zeros(4)), number


@pytest.mark.parametrize("mask", ["xyzw", "xy", "xyw", "z"])
def test_sizes_of_textures(machine: Executor, mask: str) -> None:
    texels = _texels(Format.RGBA8_UNORM, (DEPTH, HEIGHT, WIDTH))
    inputs = aligned((LANES, 8), "uint32")
    inputs[:, 0] = np.arange(LANES) % 5
    found = _run(
        machine, f"getsize.a (s32)({mask})r8.x, r4.x, t#0", inputs, memory=Memory([texels]),
        textures=(_image(texels, Format.RGBA8_UNORM),),
    )  # fmt: skip
    level = inputs[:, 0]
    sizes = [np.maximum(size >> level, 1) for size in (WIDTH, HEIGHT, DEPTH)] + [np.full(LANES, DEPTH)]
    for place, letter in enumerate("xyzw"):
        assert np.array_equal(found[:, place], sizes[place] if letter in mask else np.full(LANES, 0xAAAA))


def test_a_sampler_that_is_not_there(executor: Executor) -> None:
    texels = _texels(Format.RGBA32_FLOAT, (1, HEIGHT, WIDTH))
    with pytest.raises(GpuFault) as caught:
        _run(
            executor, READS["saml"][0].replace("T", "f32"), aligned((LANES, 8), "uint32"),
            memory=Memory([texels]), textures=(_image(texels, Format.RGBA32_FLOAT),), samplers=(Sampler(),),
        )  # fmt: skip
    assert "sampler 1 is not there: the launch has 1; load it or use another slot" in str(caught.value)
