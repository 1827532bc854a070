"""Programs that Mesa compiled from NIR run, and compute what NIR says; tinygrad writes none of them.

Every program has an oracle in numpy. The fibers of one wave read words of their own from storage buffer 1
(addresses from 3) and leave results in buffer 0; atomics change buffer 2, what 3 points to, or image 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_qcom.isa.instruction import Upload
from pytest_qcom.isa.program import Program
from pytest_qcom.virtual.dispatch import DescriptorSet, Format, Image, Sampler, Uniforms, Wrap
from pytest_qcom.virtual.executor import Executor
from suites.isa import nir
from suites.isa.nir_builder import Compiled
from suites.virtual.executor.rig import Array, Memory, aligned, launch

LANES = 64
LANE = np.arange(LANES)
WORDS = 2048  # of every buffer
FLOATS = ("fadd", "fmin", "fmax")
SAMPLER = Sampler((Wrap.CLAMP_TO_EDGE, Wrap.REPEAT, Wrap.MIRROR_REPEAT), magnified=True, lods=(0.0, 4.0))
"""Filters where the level of detail is 0."""


@dataclass
class Bound:
    """What a program works on: four buffers of words, four images of 4x4x4 texels."""

    buffers: list[Array]
    images: list[Array]
    uniforms: Array
    target: Array  # what buffer 3 points to, 16 bytes a fiber

    def words(self, buffer: int, vector: int = 1) -> Array:
        """Each fiber's element of ``vector`` words."""
        return self.buffers[buffer][: LANES * vector].reshape(LANES, vector)


def _bound(name: str) -> Bound:
    rng = np.random.default_rng(len(name))
    buffers = [aligned((WORDS,), "uint32") for _ in range(4)]
    buffers[1][...] = rng.integers(0, 1 << 32, WORDS)
    buffers[2][...] = rng.integers(0, 1 << 32, WORDS)
    if any(part in name for part in FLOATS):
        buffers[1][...] = rng.integers(-99, 99, WORDS).astype(np.float32).view(np.uint32)
    if "vote" in name or "ballot" in name:
        buffers[1][...] = rng.integers(0, 20, WORDS)
    images = [aligned((4, 4, 4, 1 if n == 2 else 4), "uint32") for n in range(4)]
    for array in images:
        array[...] = rng.integers(0, 99, array.shape).astype(np.float32).view(np.uint32)
    uniforms, target = aligned((WORDS,), "uint32"), aligned((LANES * 4,), "uint32")
    uniforms[...] = rng.integers(0, 99, WORDS).astype(np.float32).view(np.uint32)
    target[...] = rng.integers(0, 1 << 32, target.shape)
    if "cmpxchg" in name:  # some fibers find what they compare with
        buffers[2][:LANES:2] = buffers[1][:LANES:2]
        target[::8] = buffers[1][: LANES * (2 if "_64" in name else 1) : 4 if "_64" in name else 2]
        target[1::8] = buffers[1][1 : LANES * 2 : 4] if "_64" in name else target[1::8]
    pointers = (target.ctypes.data + 16 * LANE).astype(np.uint64)
    buffers[3][: 2 * LANES] = pointers.view(np.uint32)
    return Bound(buffers, images, uniforms, target)


def _launch(name: str, found: Compiled, bound: Bound, memory: Memory) -> Any:
    memory.arrays += [*bound.buffers, *bound.images, bound.uniforms, bound.target]
    form = Format.R8_UINT if "_8x" in name else Format.R32_UINT  # bytes have a descriptor of their own
    places = [array.ctypes.data for array in bound.buffers]
    buffers = tuple(
        Image(place, 4 * WORDS // form.texel_bytes if n != 3 else WORDS, 1, 4 * WORDS,
              form if n < 2 else Format.R32_UINT)
        for n, place in enumerate(places)
    )  # fmt: skip
    floats = any(word in name for word in ("float", "bindless", "texture"))
    texels = Format.RGBA32_FLOAT if floats else Format.RGBA32_UINT
    images = tuple(
        Image(
            array.ctypes.data, 4, 4, array.strides[1], Format.R32_UINT if n == 2 else texels,
            depth=4, layer_pitch=array.strides[0],
        )
        for n, array in enumerate(bound.images)
    )  # fmt: skip
    if "texture" in name and "1d" in name:  # in a single row, layers behind each other
        images = tuple(replace(i, height=1) for i in images)
    if "buffer" in name:
        images = tuple(Image(i.address, 4, 1, i.pitch, i.format, depth=1) for i in images)
    uniforms = tuple(Uniforms(bound.uniforms.ctypes.data + 256 * n, 2048) for n in range(4))
    described = DescriptorSet((*images, None, *buffers[:3], *[None] * 12, images[3]), uniforms)
    shader = found.shader
    return launch(
        shader.code, found.constants, fregs=shader.fregs, hregs=shader.hregs,
        local_size=(LANES, 1, 1), group_id_regid=found.group_id, local_id_regid=found.local_id,
        shared_bytes=shader.shared_bytes, private_bytes=shader.private_bytes, merged=found.merged,
        textures=(buffers[1] if name == "ssbo_readonly" else images[0],), images=(*buffers, *images),
        uniforms=uniforms, sets=(described,) * nir.SETS, samplers=(SAMPLER,),
    )  # fmt: skip


# ---- what the programs compute


def _elements(bound: Bound, bits: int, vector: int, array: Array | None = None) -> Array:
    """Each fiber's element, as bytes."""
    size = {3: 4}.get(vector, vector) * bits // 8
    data = (bound.buffers[1] if array is None else array).view(np.uint8)
    return data[: LANES * size].reshape(LANES, size)[:, : vector * bits // 8]


def _copied(bound: Bound, bits: int, vector: int, data: Array) -> Array:
    """The bytes that ``Nir.store`` leaves of a value: scalars of less than 32 bits are extended."""
    if vector == 1 and bits < 32:
        wide = np.zeros((LANES, 4), np.uint8)
        wide[:, : bits // 8] = data
        data = wide
    step = 1 << (data.shape[1] - 1).bit_length()
    out = np.zeros((LANES, step), np.uint8)
    out[:, : data.shape[1]] = data
    return out.reshape(-1)


OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "iadd": np.add, "imul": np.multiply, "umin": np.minimum, "umax": np.maximum, "iand": np.bitwise_and,
    "ior": np.bitwise_or, "ixor": np.bitwise_xor, "fadd": np.add, "fmin": np.minimum, "fmax": np.maximum,
    "xchg": lambda old, new: new,
    "imin": lambda a, b: np.minimum(_signed(a), _signed(b)).view(a.dtype),
    "imax": lambda a, b: np.maximum(_signed(a), _signed(b)).view(a.dtype),
}  # fmt: skip


def _signed(array: Array) -> Array:
    array = np.asarray(array)
    return array.view(array.dtype.str.replace("u", "i"))


def _atomic(name: str, bound: Bound) -> Array:
    space, operation, *wide = name.split("_")
    dtype = np.uint64 if wide else np.uint32
    value = bound.buffers[1].view(dtype)[:LANES]
    if space == "ssbo":
        old = bound.buffers[2][:LANES]
    elif space == "shared":
        old = np.zeros(LANES, dtype)
    else:
        old = bound.target.view(dtype)[:: 2 if wide else 4]
    before = old.copy()
    if operation == "cmpxchg":
        old[...] = np.where(before == value, dtype(7), before)
    else:
        old[...] = OPERATIONS[operation](before, value)
    return before.astype(np.uint32)


def _reduced(name: str, bound: Bound) -> Array:
    *kind, operation, bits = name.split("_")
    floats = operation in FLOATS
    words = bound.buffers[1][:LANES]
    values: Array
    if bits == "16":
        values = words.view(np.float32).astype(np.float16) if floats else words.astype(np.uint16)
    else:
        values = words.view(np.float32) if floats else words
    apply, way = OPERATIONS[operation], "_".join(kind)
    total: Array = values.copy()
    for lane in LANE[1:]:
        total[lane : lane + 1] = apply(total[lane - 1 : lane], values[lane : lane + 1])
    if way == "reduce":
        total = np.full(LANES, total[-1])
    elif way == "exclusive_scan":
        total = np.concatenate([[_identity(operation, values.dtype)], total[:-1]]).astype(values.dtype)
    return total.view(f"uint{bits}").astype(np.uint32)


def _identity(operation: str, dtype: Any) -> Any:
    if operation in ("fmin", "fmax"):
        return np.inf if operation == "fmin" else -np.inf
    info = None if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    most = info.max if info else 0
    named = {"imul": 1, "umin": most, "iand": most, "imin": most >> 1, "imax": (most >> 1) + 1}
    return dtype.type(named.get(operation, 0))


def _place() -> tuple[Array, Array, Array]:
    return LANE & 3, LANE >> 2 & 3, LANE >> 4 & 3


def _texel(shape: str) -> tuple[Array, Array, Array]:
    """Where each fiber's texel is in an array (z, y, x)."""
    x, y, z = _place()
    none = np.zeros_like(x)
    layered = "array" in shape
    if shape.startswith(("1d", "buffer")):
        return none, (y if layered else none), x  # the layers of stores count as rows
    return (z if layered or shape.startswith(("3d", "cube")) else none), y, x


SOURCES: dict[str, Callable[[Array], Array]] = {
    "read_first_invocation": lambda i: i * 0,
    "read_invocation": lambda i: i * 0 + 3,
    "shuffle": lambda i: i * 0 + 3,
    "shuffle_xor": lambda i: i ^ 3,
    "rotate": lambda i: (i + 3) % LANES,
    "shuffle_up": lambda i: (i - 3) % LANES,
    "shuffle_down": lambda i: (i + 3) % LANES,
    "quad_broadcast": lambda i: i | 3,
    "quad_swap_horizontal": lambda i: i ^ 1,
    "quad_swap_vertical": lambda i: i ^ 2,
    "quad_swap_diagonal": lambda i: i ^ 3,
}


def _wave(name: str, bound: Bound) -> Array | None:
    """What is exchanged in a wave, and what fibers know of it."""
    words = bound.buffers[1][:LANES]
    small = words < 9
    mask = int(sum(1 << int(lane) for lane in LANE[small]))
    vectors = {"ballot": mask, "ballot_all": (1 << 64) - 1}
    if name in vectors:
        pair = [vectors[name] & 0xFFFFFFFF, vectors[name] >> 32, 0, 0]
        return np.tile(np.array(pair, np.uint32), LANES)
    constants = {"vote_any": int(small.any()), "vote_all": int(small.all()), "subgroup_size": LANES}
    constants |= {"subgroup_id": 0, "num_subgroups": 1, "work_dim": 3}
    constants |= {f"vote_{kind}eq_{way}": int(way == "same") for kind in "if" for way in ("same", "apart")}
    if name in constants:
        return np.full(LANES, constants[name], np.uint32)
    grids = {"num_workgroups": [1, 1, 1, 0], "workgroup_size": [64, 1, 1, 0]}
    grids |= {"workgroup_id": [0] * 4, "base_workgroup_id": [0] * 4}
    if name in grids:
        return np.tile(np.array(grids[name], np.uint32), LANES)
    if name.startswith("count_"):
        return _counted(name, bound.buffers[1][: 2 * LANES].view(np.uint64))
    if name == "subgroup_invocation":
        return LANE.astype(np.uint32)
    if name == "elect":
        return np.where(LANE == 0, 1, 0).astype(np.uint32)
    if name == "reduce_cluster":
        sums: Array = np.repeat(words.reshape(-1, 4).sum(axis=1, dtype=np.uint32), 4)
        return sums
    stem, _, bits = name.rpartition("_")
    if stem in SOURCES:
        moved: Array = (words & (0xFFFF if bits == "16" else 0xFFFFFFFF))[SOURCES[stem](LANE)]
        return moved
    return None


def _counted(name: str, masks: Array) -> Array:
    """What a fiber makes of the bits of a mask of 64 fibers."""
    found = []
    for lane, mask in enumerate(int(value) for value in masks):
        ways = {
            "reduce": mask.bit_count(), "inclusive": (mask & (2 << lane) - 1).bit_count(),
            "exclusive": (mask & (1 << lane) - 1).bit_count(), "lsb": (mask & -mask).bit_length() - 1,
            "msb": mask.bit_length() - 1,
        }  # fmt: skip
        found.append(ways[name.removeprefix("count_")] & 0xFFFFFFFF)
    return np.array(found, np.uint32)


def _resource(name: str, bound: Bound) -> Array:
    """Through bindless descriptors, local memory or an array of registers."""
    words = bound.buffers[1][:LANES]
    if name == "bindless_image_size":
        return np.full(2 * LANES, 4, np.uint32)
    if name == "bindless_image_atomics":
        return _changed(_texel("2d"), bound)
    if name == "bindless_storage_size":
        return np.full(LANES, 4 * WORDS, np.uint32)
    if name == "bindless_storage":
        old: Array = bound.buffers[2][:LANES].copy()
        bound.buffers[2][:LANES] += words
        return old
    if name.startswith("exchange"):
        return np.asarray(words[LANE ^ 33])
    array = np.tile(bound.words(1, 4), 2) + np.arange(8, dtype=np.uint32)
    array[LANE, LANE & 7] = LANE
    taken: Array = array[LANE, LANE >> 1 & 7]
    return taken & (0xFFFF if name.endswith("16") else 0xFFFFFFFF)


def _expect(name: str, bound: Bound) -> Array | None:
    """Buffer 0 afterwards, as far as it is written; changes what else the program changes."""
    first, *rest = name.split("_")
    found = _wave(name, bound)
    if found is not None:
        return found
    if first in ("exchange", "array") or name.startswith(("bindless_image", "bindless_storage")):
        return _resource(name, bound)
    if first == "indexed":
        return np.asarray(bound.uniforms[64:][: 4 * 8].reshape(8, 4)[LANE & 7].reshape(-1))
    if first in ("reduce", "inclusive", "exclusive"):
        return _reduced(name, bound)
    if rest and rest[0] in (*nir.ATOMICS, "cmpxchg"):
        return _atomic(name, bound)
    if first == "preamble":
        total = bound.buffers[1][:LANES]
        for number in range(int(rest[0])):  # the grid is one workgroup
            total = total * np.uint32(3 + 2 * number) ^ np.uint32(number)
        return total
    if first == "pushed":
        total = bound.words(1, 4).copy()
        for slot, word in ((1, 8), (2, 80)):
            total += bound.uniforms[64 * slot + word :][:4]
        return total.reshape(-1)
    if first == "texture":
        return _textured(rest[0], "_".join(rest[1:]) or "2d", bound)
    if first in ("image", "bindless"):
        return _imaged(name, bound)
    if name == "ssbo_size":
        return np.full(LANES, 4 * WORDS, np.uint32)
    if name == "ssbo_readonly":
        return bound.buffers[1][:LANES]
    if name == "ssbo_index":
        return np.where(LANE & 3, np.choose(LANE & 3, [b[:LANES] for b in bound.buffers]), 0)
    if name == "ubo_index":
        return np.array([bound.uniforms[64 * (lane & 3) + 4 * lane] for lane in LANE])
    bits, vector = (int(part) for part in rest[0].split("x"))
    if first == "ubo":
        rows = bound.uniforms[64:].view(np.uint8)[: LANES * 16].reshape(LANES, 16)
        if bits * vector > 128:
            rows = np.stack([bound.uniforms[64:].view(np.uint8)[16 * n : 16 * n + 32] for n in range(LANES)])
        return _copied(bound, bits, vector, rows[:, : bits * vector // 8])
    data = _elements(bound, bits, vector)
    if first == "global":
        size = bits * vector // 8
        kept = bound.target.view(np.uint8).reshape(LANES, 16)
        before = kept[:, :size].copy()
        kept[:, :size] = data
        return _copied(bound, bits, vector, before)
    return _copied(bound, bits, vector, data)


def _imaged(name: str, bound: Bound) -> Array | None:
    kind, *rest = name.split("_")
    if kind == "bindless":
        at = _place()
        images = [bound.images[n].view(np.float32)[0, at[1], at[0]] for n in range(4)]
        uniform = bound.uniforms.view(np.float32)[128:][: 4 * LANES].reshape(LANES, 4)
        total = uniform + images[0] + images[3] + np.where((LANE & 1)[:, None] == 1, images[1], images[0])
        flat = bound.images[1].view(np.float32)
        for lane in LANE:  # several fibers store to a texel: the last one's stays
            flat[0, at[1][lane], at[0][lane]] = total[lane]
        return None
    shape = "_".join(part for part in rest if part in ("1d", "2d", "3d", "cube", "buffer", "array"))
    if rest[0] == "size":
        shape = "_".join(rest[1:])
        return _sizes(shape)
    place = _texel("_".join(rest[1:]) if rest[0] == "atomic" else shape)
    if rest[0] == "atomic":
        return _changed(place, bound)
    source = _read_place(place, shape) if name.endswith("read_only") else place
    texels = bound.images[0][source].copy()
    for lane in LANE:
        bound.images[1][tuple(int(axis[lane]) for axis in place)] = texels[lane]
    return None


def _changed(place: tuple[Array, Array, Array], bound: Bound) -> Array:
    """Texels of image 2 are added to, then swapped where they are as before."""
    old = bound.images[2][..., 0]
    value, found = bound.buffers[1][:LANES], np.zeros(LANES, np.uint32)
    firsts = []
    for lane in LANE:  # all fibers add before the first compares
        spot = tuple(int(axis[lane]) for axis in place)
        firsts.append(old[spot])
        old[spot] = (int(old[spot]) + int(value[lane])) & 0xFFFFFFFF
    for lane in LANE:
        spot = tuple(int(axis[lane]) for axis in place)
        found[lane] = old[spot]
        if old[spot] == firsts[lane]:
            old[spot] = value[lane]
    return found


def _textured(operation: str, shape: str, bound: Bound) -> Array:
    """Image 0 as texture: the texel of a place, or a mix with the next ones; sizes at level 0 or 1."""
    stem, *layered = shape.split("_")
    axes = int(stem[0])
    if operation == "size":
        level = LANE & 1
        found = [np.maximum(4 >> level, 1)] * axes + [np.full(LANE.shape, 4)] * bool(layered)
        step = {1: 1, 2: 2, 3: 4}[len(found)]
        return (
            np.stack([*found, *[np.zeros_like(LANE)] * (step - len(found))], 1).astype(np.uint32).reshape(-1)
        )
    image = bound.images[0].view(np.float32)
    x, y, z = _place()
    if axes == 1:
        y, z = 0 * y, (y if layered else 0 * y)
    elif axes == 2 and not layered:
        z = 0 * z
    if operation in ("txl", "txf"):
        return image[z, y, x].reshape(-1).view(np.uint32)
    spots = [(x - 1, np.maximum(x - 1, 0), x), (y - 1, (y - 1) % 4, y), (z - 1, np.abs(z - 1) - (z < 1), z)]
    if operation == "gather":
        corners = [image[z, row, column][:, 0] for row, column in _around(spots)]
        return np.stack(corners, 1).reshape(-1).view(np.uint32)
    share = np.float32(nir.SHIFT * 4 + 0.5)  # of the texel behind
    pairs = [spots[axis][1:] if axis < axes else ((y, z)[axis - 1],) * 2 for axis in range(3)]

    def mix(left: Array, right: Array, mixes: bool) -> Array:
        return left * (np.float32(1) - share) + right * share if mixes else right

    planes = []
    for layer in pairs[2]:
        rows = [mix(image[layer, row, pairs[0][0]], image[layer, row, pairs[0][1]], True) for row in pairs[1]]
        planes.append(mix(rows[0], rows[1], axes > 1))
    return mix(planes[0], planes[1], axes > 2).reshape(-1).view(np.uint32)


def _around(spots: list[tuple[Array, Array, Array]]) -> list[tuple[Array, Array]]:
    """Rows and columns of the four texels around, in the order of a gather."""
    (_, before, x), (_, above, y), _ = spots
    return [(y, before), (y, x), (above, x), (above, before)]


def _read_place(place: tuple[Array, Array, Array], shape: str) -> tuple[Array, Array, Array]:
    """isam counts the layers of one-dimensional arrays as layers, ldib and stib have them in y."""
    z, y, x = place
    return (y, z, x) if shape.startswith("1d") else place


def _sizes(shape: str) -> Array:
    """4 in every direction; of cubes a sixth of the layers."""
    sizes = {"1d": [4], "2d": [4, 4], "3d": [4, 4, 4], "buffer": [4], "cube": [4, 4]}
    stem, *layered = shape.split("_")
    found = [*sizes[stem], *[4 // (6 if stem == "cube" else 1)] * bool(layered)]
    step = {1: 1, 2: 2, 3: 4}[len(found)]
    return np.tile(np.array([*found, *[0] * (step - len(found))], np.uint32), LANES)


def _run(executor: Executor, name: str, merged: bool = False) -> None:
    found = nir.program(name, merged=True) if merged else nir.programs()[name]
    bound, want = _bound(name), _bound(name)
    memory = Memory()
    executor.run(_launch(name, found, bound, memory), memory)
    expected = _expect(name, want)
    if expected is not None:
        data = np.ascontiguousarray(expected).view(np.uint8)
        want.buffers[0].view(np.uint8)[: len(data)] = data
    for what, got, right in (
        *(
            (f"buffer {n}", *pair)
            for n, pair in enumerate(zip(bound.buffers[:3], want.buffers, strict=False))
        ),
        *((f"image {n}", *pair) for n, pair in enumerate(zip(bound.images, want.images, strict=True))),
        ("target", bound.target, want.target),
    ):
        bad = np.argwhere(got.reshape(-1) != right.reshape(-1))[:3, 0]
        rows = [(int(n), hex(got.reshape(-1)[n]), hex(right.reshape(-1)[n])) for n in bad]
        assert not rows, f"{name}, {what}: {rows}\n{Program.decode(found.shader.code).text()}"


@pytest.mark.parametrize("name", nir.NAMES)
def test_programs(executor: Executor, name: str) -> None:
    _run(executor, name)


@pytest.mark.parametrize("name", nir.NAMES[::4])
def test_programs_whose_results_are_late(cache_dir: Path, name: str) -> None:
    """Mesa's programs wait for all of them."""
    _run(Executor(cache_dir=cache_dir, budget=1 << 20, late=lambda dispatch: True), name)


@pytest.mark.parametrize("name", nir.NAMES)
def test_programs_with_merged_registers(executor: Executor, name: str) -> None:
    """As Mesa's drivers have them compiled for the A630; tinygrad asks for split files."""
    _run(executor, name, merged=True)


def test_all_kinds_are_there() -> None:
    assert len(nir.programs()) == len(nir.NAMES) == 303
    assert len({found.shader.code for found in nir.programs().values()}) > 220
    narrow = nir.programs()["reduce_fadd_16"].shader.code
    pushed = Program.decode(nir.programs()["pushed"].shader.code).instrs
    assert sum(isinstance(instr.op.effect, Upload) for instr in pushed) == 2
    assert narrow != nir.program("reduce_fadd_16", merged=True).shader.code
