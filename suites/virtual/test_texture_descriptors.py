"""Descriptors of textures with levels of detail, cubes, samples and samplers, from streams to launches."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from pytest_qcom.errors import GpuFault, LaunchError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.virtual.dispatch import Compare, Dispatch, Format, Image, Sampler, Wrap
from pytest_qcom.virtual.executor import Executor
from suites.virtual.bench import Bench, descriptor, halves, load
from suites.virtual.test_descriptors import _bases, _only, void

FLOAT = Format.RGBA32_FLOAT
BINDLESS_SAMP = 1 << 1
_1D, _2D, _CUBE, _3D = range(4)


def _texture(
    address: int,
    size: tuple[int, int, int],
    kind: int = _2D,
    levels: int = 1,
    samples: int = 0,
    align: int = 0,
    pages: tuple[int, int] = (0, 0),
    least: int = 0,
) -> list[int]:
    """Texels of 16 bytes; ``pages``: 4096 bytes between layers, and at least; ``least``: in 1/256."""
    low, high = halves(address)
    width, height, depth = size
    pitch = -(-width * 16 * (1 << samples) // (64 << align)) * (64 << align)
    words = descriptor(
        address, width, height, pitch, FLOAT.value, w2=kind << 29 | pitch << 7 | align,
        w3=pages[0] | pages[1] << 23, w4=low, w5=high | depth << 17, w6=least,
    )  # fmt: skip
    words[0] |= levels - 1 << 16 | samples << 20
    return words


def _image(bench: Bench, place: int, **described: object) -> Image:
    """The texture of a launch."""
    dispatch = _only(bench, bench.launch(textures=[_texture(place, **described)]))  # type: ignore[arg-type]
    return dispatch.textures[0]


def test_levels_within_layers() -> None:
    """Each layer has all levels; their rows are a multiple of 256 bytes apart, as the descriptor says."""
    bench = Bench()
    place = bench.buffer(4 * 4096)
    found = _image(bench, place, size=(20, 6, 2), levels=4, align=2, pages=(2, 0), least=384)
    assert found == Image(
        place, 20, 6, 512, FLOAT, depth=2, layer_pitch=8192, levels=4, pitch_align=256, least_lod=1.5
    )
    sizes = [(20, 6, 512), (10, 3, 256), (5, 1, 256), (2, 1, 256)]
    start = place
    for number, (width, height, pitch) in enumerate(sizes):
        assert found.level(number) == Image(
            start, width, height, pitch, FLOAT, depth=2, layer_pitch=8192, pitch_align=256, least_lod=1.5
        )
        start += height * pitch
    assert found.size == 8192 + 6 * 512 + 3 * 256 + 256 + 2 * 16


def test_levels_of_three_dimensions() -> None:
    """Level by level; slices get closer until the least distance."""
    bench = Bench()
    place = bench.buffer(64 * 4096)
    found = _image(bench, place, size=(64, 32, 5), kind=_3D, levels=4, pages=(8, 1))
    assert (found.solid, found.least_layer) == (True, 4096)
    levels = [found.level(number) for number in range(4)]
    assert [(level.address - place) // 4096 for level in levels] == [0, 40, 44, 45]
    assert [level.layer_pitch // 4096 for level in levels] == [8, 2, 1, 1]
    assert [(level.width, level.height, level.depth) for level in levels] == [
        (64, 32, 5), (32, 16, 2), (16, 8, 1), (8, 4, 1),
    ]  # fmt: skip


def test_cubes_rows_and_samples() -> None:
    bench = Bench()
    place = bench.buffer(64 * 4096)
    cube = _image(bench, place, size=(8, 8, 2), kind=_CUBE, pages=(1, 0))
    assert (cube.cube, cube.depth, cube.layer_pitch) == (True, 12, 4096)
    bench.executor.launches.clear()
    row = _image(bench, place, size=(8, 1, 3), kind=_1D, pages=(1, 0))
    assert row == Image(place, 8, 1, 128, FLOAT, depth=3, layer_pitch=4096)
    bench.executor.launches.clear()
    samples = _image(bench, place, size=(8, 4, 1), samples=2)
    assert (samples.samples, samples.pitch, samples.texel_bytes) == (4, 512, 64)
    assert samples.size == 4 * 512


WRONG = {
    "texture 0 of 4x4 texels with 4 levels: 3 are all that differ; correct MIPLVLS": {
        "size": (4, 4, 1), "levels": 4,
    },
    "texture 0 of 8x8 texels and 3 levels in layers 4096 bytes apart: one has 7168; correct ARRAY_PITCH": {
        "size": (8, 8, 2), "levels": 3, "pages": (1, 0), "align": 3,
    },
    "texture 0 of 8x9 texels is a cube, whose faces are square; correct WIDTH or HEIGHT": {
        "size": (8, 9, 1), "kind": _CUBE, "pages": (1, 0),
    },
    "texture 0 has TYPE 5; there are 0 to 4: images of one and two dimensions, cubes, those of three "
    "dimensions, buffers; correct the descriptor": {"size": (8, 8, 1), "kind": 5},
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be(message: str) -> None:
    bench = Bench()
    place = bench.buffer(16 * 4096)
    with pytest.raises(LaunchError) as caught:
        _image(bench, place, **WRONG[message])
    assert str(caught.value) == message


def test_all_levels_are_mapped() -> None:
    bench = Bench()
    place = bench.buffer(4096)
    with pytest.raises(GpuFault, match=r"texture 0 of 16x16 texels of 5376 bytes at"):
        _image(bench, place, size=(16, 16, 1), levels=3)


def test_what_a_sampler_says_about_levels_and_cubes() -> None:
    bench = Bench()
    data = struct.pack(
        "<12I", 1 | 1 << 3, 4 << 1 | 1 << 4, 0, 0, 0, 1 << 6 | 7 << 1, 0, 0, 1, 6 << 1 | 1, 0, 0
    )
    words = load(5, 0, bench.buffer(data), 3)
    launch = bench.launch()
    dispatch = _only(bench, [*launch[:4], *words, *launch[4:]])
    repeat = (Wrap.REPEAT,) * 3
    assert dispatch.samplers == (
        Sampler(repeat, minified=True, mips=True, compare=Compare.GREATER, seamless=False),
        Sampler(repeat, single=True, compare=Compare.ALWAYS),
        Sampler(repeat, mips=True, compare=Compare.GEQUAL),
    )


def _bound(bench: Bench, items: list[list[int]], config: int, **fields: int) -> Dispatch:
    table = bench.buffer(b"".join(struct.pack("<16I", *item) for item in items))
    registers = _bases(table)
    registers["SP_CS_CONFIG"] |= config
    return _only(bench, bench.launch(**registers | fields))


def test_samplers_of_sets() -> None:
    """Where BINDLESS_SAMP is set, descriptors may be samplers: at their start, if their words are ones."""
    bench = Bench()
    items = [[1 | 1 << 1, 3 << 8, *[0] * 14], [7 << 5, *[0] * 15]]
    (found,) = [found for found in _bound(bench, items, BINDLESS_SAMP).sets if found is not None]
    first = Sampler((Wrap.REPEAT,) * 3, magnified=True, mips=True, lods=(0.0, 3 / 256))
    assert found.samplers[:2] == (first, None)
    bench.executor.launches.clear()
    (found,) = [found for found in _bound(bench, items, 0).sets if found is not None]
    assert found.samplers == ()


def test_from_the_stream_to_the_registers() -> None:
    """A shader samples level 1 with a bindless texture and sampler, and stores what it gets."""
    a = Assembler()
    a.parse("mov.u32u32 r2.x, 0x3e800000\nmov.u32u32 r2.y, 0x3f400000\nmov.u32u32 r3.x, 0x3f800000")
    a.parse("(rpt5)nop\nsaml.base1 (f32)(xyzw)r4.x, r2.x, r3.x, s#1, t#0\n(sy)(rpt5)nop")
    a.parse("shl.b r0.x, r0.x, 2\n(rpt5)nop\nstib.b.untyped.1d.u32.4.imm.base1 r4.x, r0.x, 2\nend")
    bench = Bench()
    texels = np.arange(8 * 4 * 4 + 4 * 2 * 4, dtype=np.float32)
    texture = bench.buffer(texels.tobytes())
    target = bench.buffer(4096)
    low, high = halves(target)
    storage = [
        Format.R32_UINT.value << 22 | 0x6880, 256, 4 << 29 | 1 << 4, 0, low, high, *[0] * 10,
    ]  # fmt: skip
    items = [_texture(texture, (8, 4, 1), levels=2), [0, 4 << 16, *[0] * 14], storage]
    executor = Executor(threads=1)
    bench.executor.act = lambda dispatch, memory: void(executor.run(dispatch, memory))
    code = bench.buffer(a.program().encode().ljust(256, b"\0"))
    table = bench.buffer(b"".join(struct.pack("<16I", *item) for item in items))
    registers = _bases(table)
    registers["SP_CS_CONFIG"] |= BINDLESS_SAMP
    fields = {"SP_CS_CNTL_0": 8 << 7, "SP_CS_CONST_CONFIG_0": 0xFCFCFC, "SP_CS_INSTR_SIZE": 2}
    bench.submit(bench.launch(code=code, **fields, **registers))
    bench.gpu.check()
    found = np.frombuffer(bench.gpu.memory.read(target, 1024, "test"), np.float32).reshape(64, 4)
    start = 8 * 4 * 4 + (4 * 1 + 1) * 4  # texel (1, 1) of level 1
    assert np.array_equal(found, np.tile(texels[start : start + 4], (64, 1)))
