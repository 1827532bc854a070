"""Descriptors of layers, buffers, uniform buffers and bindless sets, from command streams to launches."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from pytest_qcom.errors import GpuFault, LaunchError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.virtual import registers as regs
from pytest_qcom.virtual.dispatch import Dispatch, Format, Image, Sampler, Uniforms, Wrap
from pytest_qcom.virtual.executor import Executor
from suites.virtual.bench import Bench, descriptor, halves, load

FLOAT = Format.RGBA32_FLOAT.value
BINDLESS = 0b1101  # textures, UAVs, UBOs


def _only(bench: Bench, words: list[int]) -> Dispatch:
    """The one launch of a stream."""
    bench.submit(words)
    bench.gpu.check()
    (dispatch,) = bench.executor.launches
    return dispatch


def _layers(address: int, kind: int) -> list[int]:
    """5x3 texels, 7 layers of 4096 bytes."""
    low, high = halves(address)
    return descriptor(
        address, 5, 3, 128, FLOAT, w2=kind << 29 | 128 << 7, w3=1, w4=low, w5=high | 7 << 17
    )  # ARRAY_PITCH is in units of 4096


@pytest.mark.parametrize("kind", [1, 3], ids=["array", "3d"])
def test_layers(kind: int) -> None:
    bench = Bench()
    place = bench.buffer(7 * 4096)
    dispatch = _only(bench, bench.launch(textures=[_layers(place, kind)], uavs=[_layers(place, kind)]))
    image = Image(place, 5, 3, 128, Format.RGBA32_FLOAT, depth=7, layer_pitch=4096)
    assert dispatch.textures == dispatch.images == (image,)
    assert image.size == 6 * 4096 + 2 * 128 + 5 * 16


def test_all_layers_are_mapped() -> None:
    bench = Bench()
    place = bench.buffer(6 * 4096)
    with pytest.raises(GpuFault, match=rf"texture 0 of 5x3 texels of {6 * 4096 + 336} bytes at .*"):
        bench.submit(bench.launch(textures=[_layers(place, 3)]))
        bench.gpu.check()


def _buffer(address: int, elements: int, offset: int = 0) -> list[int]:
    """32-bit elements, as Mesa describes a storage buffer."""
    low, high = halves(address)
    return [
        Format.R32_UINT.value << 22 | 0x6880, elements & 0x7FFF | elements >> 15 << 15,
        4 << 29 | 1 << 4 | offset << 16, 0, low, high, *[0] * 10,
    ]  # fmt: skip


def test_buffers() -> None:
    """Elements take both fields of a size; the first lies some elements behind the address."""
    bench = Bench()
    place = bench.buffer(4 * 100_000 + 64)
    dispatch = _only(bench, bench.launch(uavs=[_buffer(place, 100_000, 3), _buffer(place, 9)]))
    assert dispatch.images == (
        Image(place + 12, 100_000, 1, 400_000, Format.R32_UINT),
        Image(place, 9, 1, 36, Format.R32_UINT),
    )
    assert not [found for found in bench.gpu.findings if found.field == "undefined"]


def test_uniform_buffers_are_loaded_behind_each_other() -> None:
    bench = Bench()
    place = bench.buffer(4096)
    low, high = halves(place)
    table = bench.buffer(struct.pack("<4I", low, high | 3 << 17, low + 64, high | 1 << 17))
    words = bench.launch()
    first = words.index(load(0xD, 1, 0, 256)[0])
    words[first:first] = load(0xD, 2, table, 2, offset=1)
    assert _only(bench, words).uniforms == (
        Uniforms(0, 0), Uniforms(place, 48), Uniforms(place + 64, 16),
    )  # fmt: skip
    bench.executor.launches.clear()
    assert _only(bench, bench.launch()).uniforms == ()  # SP_UPDATE_CNTL drops them


def _bases(address: int, mirror: int | None = None, size: int = 3) -> dict[str, int]:
    """The registers of base 1."""
    low, high = halves(address | size)
    low2, high2 = halves((address if mirror is None else mirror) | size)
    return {
        "SP_CS_BINDLESS_BASE_1": low, "SP_CS_BINDLESS_BASE_1+1": high,
        "HLSQ_CS_BINDLESS_BASE_1": low2, "HLSQ_CS_BINDLESS_BASE_1+1": high2,
        "SP_CS_CONFIG": 0x100 | BINDLESS,
    }  # fmt: skip


def test_bindless_sets() -> None:
    """All descriptors up to the end of the mapped memory; what is no image may be a uniform buffer."""
    bench = Bench()
    place = bench.buffer(7 * 4096)
    low, high = halves(place)
    items = [_layers(place, 3), [low, high | 5 << 17, *[0] * 14], _buffer(place, 9), [0] * 16]
    table = bench.buffer(b"".join(struct.pack("<16I", *item) for item in items))
    sets = _only(bench, bench.launch(**_bases(table))).sets
    image = Image(place, 5, 3, 128, Format.RGBA32_FLOAT, depth=7, layer_pitch=4096)
    words = Image(place, 9, 1, 36, Format.R32_UINT)
    (found,) = [found for found in sets if found is not None]
    assert sets.index(found) == 1 and len(sets) == len(regs.SP_CS_BINDLESS_BASE)
    assert found.images == (image, None, words, None)
    assert found.uniforms[1] == Uniforms(place, 80)
    bench.executor.launches.clear()
    assert _only(bench, bench.launch(**_bases(table) | {"SP_CS_CONFIG": 0x100})).sets == ()


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"mirror": 64}, "HLSQ_CS_BINDLESS_BASE_1 0x43: the second is a copy of the first; write both"),
        (
            {"size": 1},
            "launch with descriptors of size 1 in SP_CS_BINDLESS_BASE_1; the virtual device knows 3",
        ),
    ],
)
def test_bases_that_cannot_be(changes: dict[str, int], message: str) -> None:
    bench = Bench()
    words = bench.launch(**_bases(bench.buffer(64), **changes))
    with pytest.raises(LaunchError) as caught:
        bench.submit(words)
        bench.gpu.check()
    assert message in str(caught.value)


def test_a_base_that_is_not_mapped() -> None:
    bench = Bench()
    with pytest.raises(GpuFault, match=r"descriptors of SP_CS_BINDLESS_BASE_1 of 64 bytes at 0x40000000"):
        bench.submit(bench.launch(**_bases(1 << 30)))
        bench.gpu.check()


def test_from_the_stream_to_the_registers() -> None:
    """A shader reads a uniform buffer and adds to a storage buffer, both through a bindless set."""
    a = Assembler()
    a.parse("ldc.offset0.1.imm.base1 r0.w, 2, 0\nmov.u32u32 r1.x, 1\n(sy)(rpt5)nop")
    a.parse("atomic.b.add.untyped.1d.u32.1.uniform.base1 r0.z, r0.x, r1.x\nend")
    a.parse("nop")
    bench = Bench()
    numbers = np.arange(64, dtype=np.uint32)
    uniforms, storage = bench.buffer(numbers.tobytes()), bench.buffer(numbers.tobytes())
    low, high = halves(uniforms)
    items = [[low, high | 4 << 17, *[0] * 14], _buffer(storage, 64)]
    table = bench.buffer(b"".join(struct.pack("<16I", *item) for item in items))
    code = a.program().encode().ljust(128, b"\0")
    executor = Executor(threads=1)
    bench.executor.act = lambda dispatch, memory: void(executor.run(dispatch, memory))
    bench.submit(
        bench.launch(
            code=bench.buffer(code),
            **{"SP_CS_CNTL_0": 4 << 7, "SP_CS_CONST_CONFIG_0": 0xFCFCFC, **_bases(table)},
        )
    )
    bench.gpu.check()
    found = np.frombuffer(bench.gpu.memory.read(storage, 256, "test"), np.uint32)
    assert np.array_equal(found, numbers + 8)


def void(_: object) -> None:
    """Nothing, of something."""


@pytest.mark.parametrize("mode,wrap,found", [(1, 3, False), (1, 1, True), (2, 1, False)])
def test_samplers_count_in_cl_mode(mode: int, wrap: int, found: bool) -> None:
    """tinygrad's are 0x1b60 and 0x30: clamp to border, coordinates of texels."""
    bench = Bench()
    words = [0x1B60 & ~(7 << 8) | wrap << 8, 0x30, 0, 0]
    stream = bench.launch(SP_MODE_CNTL=1 | mode << 1)
    first = stream.index(load(0xD, 1, 0, 256)[0])
    stream[first:first] = load(5, 0, bench.buffer(struct.pack("<4I", *words)), 1)
    assert _only(bench, stream)
    lines = [str(entry) for entry in bench.gpu.findings if entry.register == "TEX_SAMP_0"]
    assert lines == found * [
        "TEX_SAMP_0.WRAP_T = 0x1960: is no clamp to a border of zeros, the only one that is "
        "modelled; needs 0x1b60"
    ]


def _samplers(bench: Bench, table: int, count: int, **registers: int) -> list[int]:
    """A launch with samplers loaded from ``table``."""
    words = load(5, 0, table, count)
    texture = [_layers(bench.buffer(7 * 4096), 1)]
    launch = bench.launch(textures=texture, **registers)
    return [*launch[:4], *words, *launch[4:]]  # behind SP_UPDATE_CNTL, which forgets what was loaded


def test_samplers() -> None:
    """Every field, and the three ways to say a border."""
    bench = Bench()
    colours = struct.pack("<128x4I112x", *struct.unpack("<4I", struct.pack("<4f", 0.25, -1, 2, 1e-3)))
    low, high = halves(bench.buffer(colours))
    bias = -300 & 0x1FFF
    data = struct.pack(
        "<16I",
        1 << 1 | 0 << 3 | 0 << 5 | 1 << 8 | 2 << 11 | bias << 19, 1 << 5 | 640 << 8 | 128 << 20, 0, 0,
        1 << 3 | 3 << 5 | 4 << 8 | 4 << 11, 0, 1 << 7, 0,
        3 << 11, 0, 1 << 4 | 2 << 2, 0,
        3 << 11, 0, 1 << 4 | 1 << 2, 0,
    )  # fmt: skip
    names = {"TPL1_CS_BORDER_COLOR_BASE": low, "TPL1_CS_BORDER_COLOR_BASE+1": high}
    dispatch = _only(bench, _samplers(bench, bench.buffer(data), 4, **names))
    one = 0x3F800000
    own = struct.unpack("<4I", colours[128:144])
    assert dispatch.samplers == (
        Sampler(
            (Wrap.REPEAT, Wrap.CLAMP_TO_EDGE, Wrap.MIRROR_REPEAT), magnified=True, unnormalized=True,
            lod_bias=-300 / 256, lods=(0.5, 2.5),
        ),
        Sampler(
            (Wrap.CLAMP_TO_BORDER, Wrap.MIRROR_CLAMP, Wrap.MIRROR_CLAMP), minified=True,
            border=(own[0], own[1], own[2], own[3]),
        ),
        Sampler((Wrap.REPEAT, Wrap.REPEAT, Wrap.CLAMP_TO_BORDER), border=(one, one, one, 0)),
        Sampler((Wrap.REPEAT, Wrap.REPEAT, Wrap.CLAMP_TO_BORDER), border=(0, 0, 0, one)),
    )  # fmt: skip


def test_borders_without_a_table_are_zeros() -> None:
    bench = Bench()
    dispatch = _only(bench, _samplers(bench, bench.buffer(struct.pack("<4I", 3 << 5, 0, 0, 0)), 1))
    assert dispatch.samplers == (Sampler((Wrap.CLAMP_TO_BORDER, Wrap.REPEAT, Wrap.REPEAT)),)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            (2 << 1, 0, 0),
            "sampler 0 with filters (2, 0) and reduction mode 0; the virtual device knows the nearest texel, "
            "0, and the mean of the neighbours, 1 and mode 0",
        ),
        (
            (0, 0, 1),
            "sampler 0 with filters (0, 0) and reduction mode 1; the virtual device knows the nearest texel, "
            "0, and the mean of the neighbours, 1 and mode 0",
        ),
        ((7 << 8, 0, 0), "sampler 0 with wraps [0, 7, 0]; there are 0 to 4, correct the sampler"),
    ],
)
def test_samplers_that_are_not_modelled(words: tuple[int, int, int], message: str) -> None:
    bench = Bench()
    with pytest.raises(LaunchError) as caught:
        bench.submit(_samplers(bench, bench.buffer(struct.pack("<4I", *words, 0)), 1))
        bench.gpu.check()
    assert str(caught.value) == message
