"""Textures, samplers and what one lane makes of them, in numpy: the oracle of samples.

It has texels as arrays of its own; where they lie in memory follows Mesa's ``fdl6_layout``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_qcom.virtual.dispatch import Compare, Format, Image, Sampler, Wrap
from suites.virtual.executor.rig import Array, aligned
from suites.virtual.executor.test_filters import F32, _clean, _mixed, _place, _wrapped
from suites.virtual.executor.test_surfaces import DTYPES, LANES, _numbers

SHAPES = ("2d", "array", "3d", "cube", "cube array")
SUFFIX = {"2d": "", "array": ".a", "3d": ".3d", "cube": ".3d", "cube array": ".3d.a"}
FIRST, SECOND = 12, 4  # words of a lane's sources: r4 to r6, r7


# ---- textures


@dataclass
class Texture:
    """Levels of detail, each (layers or slices, height, width, components), and their memory."""

    form: Format
    shape: str
    levels: list[Array]
    memory: Array
    image: Image

    @property
    def cube(self) -> bool:
        return self.shape.startswith("cube")


def make_texture(
    rng: np.random.Generator,
    form: Format,
    shape: str,
    count: int,
    align: int = 64,
    samples: int = 1,
    flat: bool = False,
) -> Texture:
    """A texture of random texels; ``flat``: of one row."""
    width, height, depth = {"3d": (13, 9, 6), "cube": (9, 9, 6), "cube array": (9, 9, 12)}.get(
        shape, (21, 1 if flat else 10, 3 if shape == "array" else 1)
    )
    solid, texel = shape == "3d", form.texel_bytes * samples
    pitch = -(-width * texel // align) * align
    starts: list[int] = []
    pitches: list[int] = []
    layers: list[int] = []
    sizes: list[tuple[int, int, int]] = []
    end = least = 0
    for level in range(count):
        w, h = max(1, width >> level), max(1, height >> level)
        d = max(1, depth >> level) if solid else depth
        pitches.append(-(-(pitch >> level) // align) * align)
        layer = pitches[-1] * h
        if solid:  # in pages, a quarter of the level before or what its rows need
            layer = -(-layer // 4096) * 4096 if not level else max(layers[0] >> 2 * level, 4096)
            least = 4096
        sizes.append((d, h, w))
        starts.append(end)
        layers.append(layer)
        end += layer * (d if solid else 1)
    pages = -(-end // 4096) * 4096
    total = end if solid else pages * depth
    memory = aligned((total // 4,), "uint32")
    found = []
    for level, (d, h, w) in enumerate(sizes):
        array = _draw(rng, form, (d, h, w * samples))
        for layer, row in itertools.product(range(d), range(h)):
            place = starts[level] + layer * (layers[level] if solid else pages) + row * pitches[level]
            raw = np.ascontiguousarray(array[layer, row]).view(np.uint8).reshape(-1)
            memory.view(np.uint8)[place : place + len(raw)] = raw
        found.append(array)
    image = Image(
        memory.ctypes.data, width, height, pitch, form, depth=depth,
        layer_pitch=layers[0] if solid else pages, levels=count, pitch_align=align,
        solid=solid and count > 1, least_layer=least if count > 1 else 0,
        cube=shape.startswith("cube"), samples=samples,
    )  # fmt: skip
    return Texture(form, shape, found, memory, image)


def _draw(rng: np.random.Generator, form: Format, shape: tuple[int, ...]) -> Array:
    dtype = np.dtype(f"{DTYPES[form.kind]}{form.bits}")
    if form.kind == "FLOAT":
        return rng.normal(size=(*shape, form.components)).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, (*shape, form.components), dtype, endpoint=True)


# ---- what a sampler makes of it

FACES = {
    0: (0, 1, ((2, -1), (1, -1))), 1: (0, -1, ((2, 1), (1, -1))), 2: (1, 1, ((0, 1), (2, 1))),
    3: (1, -1, ((0, 1), (2, -1))), 4: (2, 1, ((0, 1), (1, -1))), 5: (2, -1, ((0, -1), (1, -1))),
}  # fmt: skip
"""By face: its axis and direction, and the components that are its x and y with their signs (OpenGL 4.6,
table 8.19)."""


def _face(direction: Any) -> int:
    x, y, z = np.abs(direction)
    axis = 2 if z >= x and z >= y else 1 if y >= x else 0
    return 2 * axis + bool(direction[axis] < 0)


@dataclass
class Oracle:
    """One lane's sample.

    Attributes:
        layer: of an array, as the source has it, a float.
    """

    texture: Texture
    sampler: Sampler
    where: Array
    layer: float = 0.0
    reference: float | None = None
    offsets: tuple[int, int, int] = (0, 0, 0)
    gather: int = -1

    def detail(self, level: int) -> int:
        """A level of detail, in 1/256, with bias and bounds."""
        sampler = self.sampler
        level += round(256 * sampler.lod_bias)
        least, most = (round(256 * bound) for bound in sampler.lods)
        return max(min(max(level, least), most), round(256 * self.texture.image.least_lod))

    def read(self, level: int) -> Array:
        level = self.detail(level)
        sampler, top = self.sampler, len(self.texture.levels) - 1
        mixes = (sampler.magnified if level <= 0 else sampler.minified) and not self.texture.form.integer
        linear = bool(mixes) or self.gather >= 0
        if level <= 0 or sampler.single or self.gather >= 0:
            return self.level(0, linear)
        if not sampler.mips:
            nearest = int(np.ceil(level / 256 + 0.5)) - 1
            return self.level(min(nearest, top), linear)
        first, weight = divmod(level, 256)
        if first >= top:
            return self.level(top, linear)
        left = self.level(first, linear)
        return _mixed(left, self.level(first + 1, linear), weight) if weight else left

    def level(self, number: int, linear: bool) -> Array:
        texture, sampler = self.texture, self.sampler
        where: Any = self.where
        depth, height, width = texture.levels[number].shape[:3]
        layers = depth // 6 if texture.cube else depth
        z, fz = 0, 0
        if "array" in texture.shape:
            z = min(max(int(np.floor(self.layer)), 0), layers - 1)
        if texture.cube:
            face = _face(where)
            axis, sign, places = FACES[face]
            major = F32(sign) * where[axis]
            where = [F32(F32(F32(s) * where[c] / major) * F32(0.5)) + F32(0.5) for c, s in places]
            z = 6 * z + face
        (x, fx), (y, fy) = (_place(where[n], s, sampler, linear) for n, s in enumerate((width, height)))
        x, y = x + self.offsets[0], y + self.offsets[1]
        if texture.shape == "3d":
            z, fz = _place(where[2], depth, sampler, linear)
            z += self.offsets[2]
        if self.gather >= 0:
            around = ((x, y + 1), (x + 1, y + 1), (x + 1, y), (x, y))
            return np.array([self.tap(number, *at, z)[self.gather] for at in around], np.uint32)
        planes = []
        for slice_ in (z, z + 1)[: 1 + bool(fz)]:
            rows = []
            for row in (y, y + 1)[: 1 + bool(fy)]:
                pair = [self.tap(number, column, row, slice_) for column in (x, x + 1)[: 1 + bool(fx)]]
                rows.append(_mixed(pair[0], pair[-1], fx))
            planes.append(_mixed(rows[0], rows[-1], fy))
        return _mixed(planes[0], planes[-1], fz)

    def tap(self, number: int, x: int, y: int, z: int) -> Array:
        found = self.found(number, x, y, z)
        if self.reference is None:
            return found
        mine, value = F32(self.reference), _clean(found[:1].view(F32))[0]
        if self.texture.form.kind == "UNORM":
            mine = min(max(mine, F32(0)), F32(1))
        passes = {
            Compare.NEVER: False, Compare.LESS: mine < value, Compare.EQUAL: mine == value,
            Compare.LEQUAL: mine <= value, Compare.GREATER: mine > value, Compare.NOTEQUAL: mine != value,
            Compare.GEQUAL: mine >= value, Compare.ALWAYS: True,
        }[self.sampler.compare]  # fmt: skip
        return np.full(4, passes, F32).view(np.uint32)

    def found(self, number: int, x: int, y: int, z: int) -> Array:
        """A texel of any number."""
        level = self.texture.levels[number]
        if self.texture.cube and self.sampler.seamless:
            return self.across(level, x, y, z)
        places = []
        for axis, (value, count) in enumerate(zip((x, y, z), level.shape[2::-1], strict=True)):
            wraps = axis < 2 or self.texture.shape == "3d"
            place = _wrapped(value, count, self.sampler.wraps[axis]) if wraps else value
            if place is None:
                return np.array(self.sampler.border, np.uint32)
            places.append(place)
        return _numbers(self.texture.form, level[places[2], places[1], places[0]])

    def across(self, level: Array, x: int, y: int, z: int) -> Array:
        """Of a cube: beyond an edge what a direction just outside of the face points at."""
        count, (cube, face), form = level.shape[1], divmod(z, 6), self.texture.form
        inner = [min(max(value, 0), count - 1) for value in (x, y)]
        own = _numbers(form, level[z, inner[1], inner[0]])
        if inner == [x, y]:
            return own
        if inner[0] == x or inner[1] == y:
            axis, sign, places = FACES[face]
            direction = np.zeros(3)
            direction[axis] = sign
            for (component, way), value in zip(places, (x, y), strict=True):
                direction[component] = way * ((2 * value + 1) / count - 1)
            other = _face(direction)
            axis, sign, places = FACES[other]
            at = [
                int(np.floor((way * direction[c] / (sign * direction[axis]) + 1) / 2 * count))
                for c, way in places
            ]
            return _numbers(form, level[6 * cube + other, at[1], at[0]])
        if form.integer:
            return own
        parts = [own, self.across(level, x, inner[1], z), self.across(level, inner[0], y, z)]
        first, second, third = (part.view(F32) for part in parts)
        return ((first + second + third) / F32(3)).view(np.uint32)


def make_sampler(rng: np.random.Generator) -> Sampler:
    wraps = [Wrap(int(number)) for number in rng.integers(0, 5, 3)]
    return Sampler(
        wraps=(wraps[0], wraps[1], wraps[2]), magnified=bool(rng.integers(2)),
        minified=bool(rng.integers(2)), lod_bias=float(rng.integers(-512, 512)) / 256,
        lods=(0.0, float(rng.integers(0, 1100)) / 256), mips=bool(rng.integers(2)),
        single=rng.random() < 0.2, compare=Compare(int(rng.integers(8))), seamless=rng.random() < 0.7,
        border=tuple(rng.normal(size=4).astype(F32).view(np.uint32).tolist()),
    )  # fmt: skip


# ---- sources


@dataclass
class Asked:
    """What the lanes of a wave ask for: rows of both sources."""

    first: Array
    second: Array
    count: int  # scalars in the first
    where: Array
    layers: Array
    references: Array | None
    offsets: Array


def make_asked(rng: np.random.Generator, texture: Texture, shadow: bool, offset: bool) -> Asked:
    """Coordinates from before to behind the texture, or directions with ties; what a layer and so on are."""
    first, second = aligned((LANES, FIRST), "uint32"), aligned((LANES, SECOND), "uint32")
    axes = 3 if texture.shape in ("3d", "cube", "cube array") else 2
    where = rng.uniform(-1.2, 2.2, (LANES, 3))
    where = np.where(rng.random(where.shape) < 0.5, np.round(64 * where) / 64, where)
    if texture.cube:
        where = rng.uniform(-1, 1, (LANES, 3))
        edges = rng.integers(-1, 2, (LANES, 3)) * rng.uniform(0.9, 1, (LANES, 3))
        where = np.where(rng.random((LANES, 1)) < 0.6, edges, where)
        where[np.abs(where).max(axis=1) == 0, 2] = 0.5
    where = where.astype(F32)
    layers = rng.uniform(-1, 4, LANES).astype(F32)
    references = rng.uniform(-0.5, 1.5, LANES).astype(F32)
    texels = _numbers_of(texture)
    references = np.where(rng.random(LANES) < 0.4, rng.choice(texels, LANES), references)
    columns = [where[:, n] for n in range(axes)] + [references] * shadow
    columns += [layers] * ("array" in texture.shape)
    first[:, : len(columns)] = np.stack(columns, 1).astype(F32).view(np.uint32)
    offsets = rng.integers(-8, 8, (LANES, 3)) * offset
    if axes == 2:
        offsets[:, 2] = 0
    second[:, :3] = offsets
    return Asked(first, second, len(columns), where, layers, references if shadow else None, offsets)


def _numbers_of(texture: Texture) -> Array:
    """The first components of some texels, as registers have them."""
    flat = texture.levels[0].reshape(-1, texture.form.components)[:64]
    return np.array([_numbers(texture.form, texel)[:1].view(F32)[0] for texel in flat], F32)


def lane_oracle(texture: Texture, sampler: Sampler, asked: Asked, lane: int, gather: int = -1) -> Oracle:
    reference = None if asked.references is None else float(asked.references[lane])
    x, y, z = (int(value) for value in asked.offsets[lane])
    where, layer = asked.where[lane], float(asked.layers[lane])
    return Oracle(texture, sampler, where, layer, reference, (x, y, z), gather)


def suffix(shape: str, shadow: bool, offset: bool) -> str:
    return SUFFIX[shape] + ".o" * offset + ".s" * shadow


def same(found: Array, want: Array, *about: Any) -> None:
    """Bits, but any NaN for a NaN."""
    numbers = found.view(F32), want.view(F32)
    equal = (found == want) | (np.isnan(numbers[0]) & np.isnan(numbers[1]))
    assert equal.all(), (*about, found, want)


def square(texture: Texture, where: Array, vector: Array) -> float:
    """Of a derivative's length in texels."""
    depth, height, width = texture.levels[0].shape[:3]
    change = vector.astype(np.float64)
    if not texture.cube:
        parts = change * (width, height, depth if texture.shape == "3d" else 0)
        return float(parts @ parts)
    axis, sign, places = FACES[_face(where)]
    major, step = sign * float(where[axis]), sign * change[axis]
    total = 0.0
    for component, way in places:
        slope = way * (major * change[component] - float(where[component]) * step)
        total += (0.5 * slope / major**2 * width) ** 2
    return total
