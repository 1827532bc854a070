"""Texture programs that Mesa compiled from NIR give what numpy makes of the same textures and samplers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_qcom.isa.program import Program
from pytest_qcom.virtual.dispatch import DescriptorSet, Format, Image, Sampler
from pytest_qcom.virtual.executor import Executor
from suites.isa.nir_textures import BINDLESS, DERIVATIVES, SHAPES, programs
from suites.virtual.executor.rig import Array, Memory, aligned, launch
from suites.virtual.executor.sampling import Oracle, Texture, make_sampler, make_texture, same, square
from suites.virtual.executor.test_filters import F32
from suites.virtual.executor.test_surfaces import _numbers

LANES = 64
LEVELS, SAMPLES, ELEMENTS = 3, 4, 777
KINDS = {"1d": "2d", "2d": "2d", "3d": "3d", "cube": "cube", "rect": "2d", "samples": "2d", "buffer": "2d"}


class Scene:
    """What a program works on: four storage buffers, 48 textures and samplers, of which it reads some."""

    def __init__(self, name: str) -> None:
        self.name, self.shape = name, SHAPES[name]
        self.rng = rng = np.random.default_rng(sum(name.encode()))
        shape = self.shape
        kind = KINDS[shape.stem] + " array" * (shape.layered and shape.stem == "cube")
        if shape.layered and shape.stem != "cube":
            kind = "array"
        levels = 1 if shape.stem in ("rect", "samples", "buffer") else LEVELS
        samples = SAMPLES if shape.stem == "samples" or shape.operation == "texture_samples" else 1
        self.count = 48 if shape.bindless == "large" else 8 if shape.bindless else 1
        self.textures = [
            make_texture(rng, Format.RGBA32_FLOAT, kind, levels, samples=samples, flat=shape.stem == "1d")
            for _ in range(self.count)
        ]
        self.samplers = [[self._sampler() for _ in range(self.count)] for _ in range(3)]
        self.buffers = [aligned((LANES, 4), "uint32") for _ in range(4)]
        self._fill()

    def _sampler(self) -> Sampler:
        if self.shape.stem == "rect":
            return Sampler(magnified=True, minified=True, unnormalized=True)
        return make_sampler(self.rng)

    def _fill(self) -> None:
        rng, shape = self.rng, self.shape
        where = rng.uniform(-1, 2, (LANES, 4)) * (10 if shape.stem == "rect" else 1)
        numbers = rng.uniform(-1, 3, (LANES, 4)) * 2.0 ** rng.integers(-6, 1, (LANES, 1))
        if shape.half:
            where, numbers = where.astype(np.float16), numbers.astype(np.float16)
        if shape.operation.startswith("txf"):
            self.buffers[1][...] = rng.integers(-1, 9, (LANES, 4))
            self.buffers[2][...] = rng.integers(-1, 4, (LANES, 4))
        else:
            self.buffers[1][...] = where.astype(F32).view(np.uint32)
            self.buffers[2][...] = numbers.astype(F32).view(np.uint32)
        self.buffers[3][...] = rng.integers(-8, 8, (LANES, 4))

    def launch(self, memory: Memory) -> Any:
        found = programs()[self.name]
        memory.arrays += [*self.buffers, *(texture.memory for texture in self.textures)]
        buffers = tuple(
            Image(array.ctypes.data, array.size, 1, array.nbytes, Format.R32_UINT) for array in self.buffers
        )
        images = tuple(texture.image for texture in self.textures)
        sets = tuple(DescriptorSet(images, (), tuple(samplers)) for samplers in self.samplers)
        if self.shape.stem == "buffer":
            images = (Image(images[0].address, ELEMENTS, 1, 4 * ELEMENTS, Format.R32_UINT),)
        shader = found.shader
        return launch(
            shader.code, found.constants, fregs=shader.fregs, hregs=shader.hregs, local_size=(LANES, 1, 1),
            group_id_regid=found.group_id, local_id_regid=found.local_id, images=buffers, sets=sets,
            textures=images, samplers=tuple(self.samplers[0]),
        )  # fmt: skip

    # what a lane makes of it

    def want(self, lane: int) -> Array:
        shape, operation = self.shape, self.shape.operation
        texture, sampler = self._bound(lane)
        if operation in ("txs", "query_levels", "texture_samples"):
            return self._facts(lane, texture)
        if operation.startswith("txf"):
            return self._texel(lane, texture)
        where = self.buffers[1][lane].view(F32)
        numbers = self.buffers[2][lane].view(F32)
        point = where[:3].copy()
        if shape.stem == "1d":
            point[1] = 0.5
        offsets = [int(n) for n in self.buffers[3][lane, :3].view(np.int32) * np.int32(shape.offset)]
        offsets[shape.axes :] = [0] * (3 - shape.axes)
        gather = 0 if operation == "tg4" else -1
        oracle = Oracle(
            texture, sampler, point, float(where[3] + F32(0.5)), float(numbers[1]) if shape.shadow else None,
            (offsets[0], offsets[1], offsets[2]), gather,
        )  # fmt: skip
        return oracle.read(self._level(operation, texture, point, numbers))

    def _bound(self, lane: int) -> tuple[Texture, Sampler]:
        if not self.shape.bindless:
            return self.textures[0], self.samplers[0][0]
        texture, sampler, _, base = BINDLESS[self.shape.bindless]
        each = lane & 3
        chosen = self.samplers[base][each if sampler < 0 else sampler]
        return self.textures[each if texture < 0 else texture], chosen

    def _level(self, operation: str, texture: Texture, point: Array, numbers: Array) -> int:
        if operation == "txl":
            return int(np.rint(numbers[0] * F32(256)))
        if operation == "txb":  # of level 0, which is all that compute can mean
            return int(np.rint(numbers[0] * F32(256)))
        if operation != "txd":
            return 0
        squares = []
        for picks in DERIVATIVES:
            vector = np.array([numbers[pick] for pick in picks], F32)
            vector[self.shape.axes :] = 0
            squares.append(square(texture, point, vector))
        return int(np.floor(128 * np.log2(max(squares)) + 0.5))

    def _texel(self, lane: int, texture: Texture) -> Array:
        shape = self.shape
        place = self.buffers[1][lane].view(np.int32)
        level, sample = int(self.buffers[2][lane, 0].view(np.int32)), 0
        if shape.operation == "txf_ms":
            level, sample = 0, lane & 3
        parts = [int(value) for value in place[: shape.axes]]
        if shape.offset:
            parts = [a + int(b) for a, b in zip(parts, self.buffers[3][lane].view(np.int32), strict=False)]
        x, y, z = [*parts, 0, 0][:3]
        if shape.layered:
            z = int(place[3])
        if not 0 <= level < len(texture.levels):
            return np.zeros(4, np.uint32)
        array = texture.levels[level]
        depth, height, width = array.shape[:3]
        if not (0 <= x < width // texture.image.samples and 0 <= y < height and 0 <= z < depth):
            return np.zeros(4, np.uint32)
        return _numbers(texture.form, array[z, y, x * texture.image.samples + sample])

    def _facts(self, lane: int, texture: Texture) -> Array:
        shape = self.shape
        if shape.operation != "txs":
            found = [LEVELS if shape.operation == "query_levels" else SAMPLES]
        elif shape.stem == "buffer":
            found = [ELEMENTS]
        else:
            depth, height, width = texture.levels[lane & 1].shape[:3]
            sizes = {"1d": [width], "3d": [width, height, depth]}
            found = sizes.get(shape.stem, [width, height])
            found += [depth // 6 if shape.stem == "cube" else depth] * shape.layered
        return np.array(found, np.uint32)


def _run(executor: Executor, name: str) -> None:
    scene, memory = Scene(name), Memory()
    executor.run(scene.launch(memory), memory)
    shape = scene.shape
    width = len(scene.want(0)) if shape.operation not in ("txl", "txd") or not shape.shadow else 1
    step = {1: 1, 2: 2, 3: 4, 4: 4}[width]
    found = scene.buffers[0].reshape(-1)[: LANES * step].reshape(LANES, step)
    for lane in range(LANES):
        text = Program.decode(programs()[name].shader.code).text() if lane == 0 else ""
        same(found[lane, :width], scene.want(lane)[:width], name, lane, text)


@pytest.mark.parametrize("name", SHAPES)
def test_programs(executor: Executor, name: str) -> None:
    _run(executor, name)


@pytest.mark.parametrize("name", list(SHAPES)[::3])
def test_programs_whose_results_are_late(cache_dir: Path, name: str) -> None:
    """Mesa's programs wait for all of them."""
    _run(Executor(cache_dir=cache_dir, budget=1 << 20, late=lambda dispatch: True), name)


def test_all_shapes_are_there() -> None:
    assert len(programs()) == 101
    assert len({(shape.operation, shape.stem, shape.layered) for shape in SHAPES.values()}) > 40
