"""Descriptors of textures, images and uniform buffers, held against the chip's limits.

Layouts are those of Mesa's ``a6xx.xml`` (``A6XX_TEX_CONST``, ``A6XX_UBO``).

Every function raises LaunchError for what the chip does not allow or nobody knows the hardware's answer to,
and GpuFault for what is not in mapped memory.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from dataclasses import replace

from pytest_qcom.chip import A630
from pytest_qcom.errors import GpuFault, LaunchError
from pytest_qcom.virtual import registers as regs
from pytest_qcom.virtual.dispatch import Compare, DescriptorSet, Format, Image, Sampler, Uniforms, Wrap
from pytest_qcom.virtual.findings import Finding
from pytest_qcom.virtual.state import Block, State

_REMEMBERED = 4096  # descriptors whose decoded form is kept
_1D, _2D, _CUBE, _3D, _BUFFER = range(5)  # a6xx_tex_type
_ISAMMODE_CL, _CLAMP_TO_BORDER = 1, 3  # a6xx_isam_mode, a6xx_tex_clamp
_LINEAR = 1  # a6xx_tex_filter
_BINDLESS_64 = 3  # BINDLESS_DESCRIPTOR_64B
_MOST_BINDLESS = 4096  # descriptors of a set that are looked at


def textures(state: State) -> tuple[Image, ...]:
    """The textures that a launch reads with isam, by slot."""
    count = state.field(regs.SP_CS_CONFIG, "NTEX")
    return _descriptors(state, regs.SP_CS_TEXMEMOBJ_BASE, count, "texture", Block.TEXTURES)


def images(state: State) -> tuple[Image, ...]:
    """The images (UAVs) that it loads and stores, by slot."""
    # Slots above the loaded ones are left alone: the shader does not use them.
    count = min(state.field(regs.SP_CS_CONFIG, "NUAV"), state.units(Block.UAVS))
    return _descriptors(state, regs.SP_CS_UAV_BASE, count, "image", Block.UAVS)


def _descriptors(state: State, base: regs.Word, count: int, what: str, block: Block) -> tuple[Image, ...]:
    if not count:
        return ()
    address = state.address(base)
    load = state.loads.get(block)
    if load is None or load.address != address:
        loaded = "none is loaded" if load is None else f"those at {load.address:#x} are loaded"
        raise LaunchError(
            f"launch with {what} descriptors at {address:#x} ({base.name}), but {loaded}; "
            "load them with CP_LOAD_STATE6"
        )
    data = state.memory.read(address, count * regs.DESCRIPTOR_BYTES, f"{what} descriptors")
    words = struct.unpack(f"<{len(data) // 4}I", data)
    step = regs.DESCRIPTOR_BYTES // 4
    return tuple(
        _image(state, words[index * step : (index + 1) * step], f"{what} {index}") for index in range(count)
    )


def _image(state: State, words: tuple[int, ...], what: str) -> Image:
    """One descriptor, held against what the chip allows, and its memory against what is mapped."""
    image = state.images.get((what, words))
    if image is None:
        if len(state.images) >= _REMEMBERED:
            state.images.clear()
        image = state.images[what, words] = _decode_image(state, words, what)
    state.memory.check(image.address, image.size, f"{what} of {image.width}x{image.height} texels")
    return image


def _decode_image(state: State, words: tuple[int, ...], what: str) -> Image:
    kind = regs.DESCRIPTOR[2].get(words[2], "TYPE")
    layout = regs.BUFFER_DESCRIPTOR if kind == _BUFFER else regs.DESCRIPTOR
    for word, value in zip(layout, words, strict=False):
        if value & ~word.defined:
            bits = value & ~word.defined
            why = f"sets undefined bits {bits:#x}"
            state.findings.add(Finding(word.name, "undefined", value, value - bits, why, harmless=True))

    def field(index: int, name: str) -> int:
        return layout[index].get(words[index], name)

    form = _format(field, kind, what)
    swizzle = (field(0, "SWIZ_X"), field(0, "SWIZ_Y"), field(0, "SWIZ_Z"), field(0, "SWIZ_W"))
    if what.startswith("image"):
        swizzle = (0, 1, 2, 3)  # of a UAV the field is not used and stands at 0
    address = field(4, "BASE_LO") | field(5, "BASE_HI") << 32
    if kind == _BUFFER:
        elements = field(1, "WIDTH") | field(1, "HEIGHT") << 15
        address += field(2, "STARTOFFSETTEXELS") * form.texel_bytes
        return _check_buffer(Image(address, elements, 1, elements * form.texel_bytes, form, swizzle), what)
    levels = field(0, "MIPLVLS") + 1
    solid = kind == _3D and levels > 1
    image = Image(
        address, field(1, "WIDTH"), field(1, "HEIGHT"), field(2, "PITCH"), form, swizzle,
        depth=max(1, field(5, "DEPTH")) * (6 if kind == _CUBE else 1),
        layer_pitch=field(3, "ARRAY_PITCH"),
        levels=levels,
        pitch_align=A630.images.pitch_align.value << field(2, "PITCHALIGN") if levels > 1 else 64,
        solid=solid,
        least_layer=field(3, "MIN_LAYERSZ") if solid else 0,
        cube=kind == _CUBE,
        samples=1 << field(0, "SAMPLES"),
        least_lod=field(6, "MIN_LOD_CLAMP") / 256,
    )  # fmt: skip
    return _check_image(image, what)


def _format(field: Callable[[int, str], int], kind: int, what: str) -> Format:
    """The texel format of a descriptor whose fields are those of images that the virtual device knows."""
    code = field(0, "FMT")
    try:
        form = Format(code)
    except ValueError:
        first, *_, last = Format
        raise LaunchError(
            f"{what} has texel format {code:#x}; the virtual device knows the plain ones of 1, 2 and 4 "
            f"components, {first.name} {first.value:#x} to {last.name} {last.value:#x}"
        ) from None
    if kind > _BUFFER:
        raise LaunchError(
            f"{what} has TYPE {kind}; there are {_1D} to {_BUFFER}: images of one and two dimensions, cubes, "
            "those of three dimensions, buffers; correct the descriptor"
        )
    for name in ("TILE_MODE", "SWAP", "SRGB"):
        if field(0, name):
            raise LaunchError(
                f"{what} has {name} {field(0, name)}; the virtual device knows 0, linear images"
            )
    return form


def _check_buffer(image: Image, what: str) -> Image:
    if not image.width:
        raise LaunchError(f"{what} is a buffer of 0 elements: give its size")
    if max(image.swizzle) > 5:
        raise LaunchError(f"{what} with swizzle {image.swizzle}: 0 to 5 exist; correct the descriptor")
    return image


def _check_image(image: Image, what: str) -> Image:
    limits, texel = A630.images, image.texel_bytes
    title = f"{what} of {image.width}x{image.height} texels"
    if not 0 < image.width <= limits.side.value or not 0 < image.height <= limits.side.value:
        raise LaunchError(
            f"{title}: the A630 allows 1 to {limits.side.value} texels a side; split or reshape the image"
        )
    align = limits.pitch_align.value
    if image.pitch % align:
        raise LaunchError(
            f"{title} with a pitch of {image.pitch} bytes: rows must be a multiple of {align} bytes apart; "
            f"make the width a multiple of {align // texel}"
        )
    if image.pitch < image.width * texel:
        raise LaunchError(
            f"{title} with a pitch of {image.pitch} bytes: a row has {image.width * texel}; correct the pitch"
        )
    if image.depth > 1 and image.layer_pitch < image.height * image.pitch:
        raise LaunchError(
            f"{title} and {image.depth} layers {image.layer_pitch} bytes apart: one has "
            f"{image.height * image.pitch}; correct ARRAY_PITCH"
        )
    if max(image.swizzle) > 5:
        raise LaunchError(f"{title} with swizzle {image.swizzle}: 0 to 5 exist; correct the descriptor")
    if image.levels > 1:
        _check_levels(image, title)
    if image.cube and image.width != image.height:
        raise LaunchError(f"{title} is a cube, whose faces are square; correct WIDTH or HEIGHT")
    return image


def _check_levels(image: Image, title: str) -> None:
    """Levels of detail end where nothing is left to halve, and a layer must have room for all of them."""
    most = max(image.width, image.height, image.depth if image.solid else 1).bit_length()
    if image.levels > most:
        raise LaunchError(f"{title} with {image.levels} levels: {most} are all that differ; correct MIPLVLS")
    if image.solid or image.depth == 1:
        return
    last = image.level(image.levels - 1)
    needed = last.address - image.address + last.height * last.pitch
    if image.layer_pitch < needed:
        raise LaunchError(
            f"{title} and {image.levels} levels in layers {image.layer_pitch} bytes apart: one has {needed}; "
            "correct ARRAY_PITCH"
        )


def samplers(state: State) -> tuple[Sampler, ...]:
    """The samplers that are loaded, by slot. Where ISAMMODE is CL, they also say what isam reads outside of a
    texture: zeros, else it is reported."""
    load = state.loads.get(Block.SAMPLERS)
    if load is None:
        return ()
    data = state.memory.read(load.address, load.units * regs.SAMPLER_BYTES, "samplers")
    words = list(struct.iter_unpack("<4I", data))
    if state.field(regs.SP_MODE_CNTL, "ISAMMODE") == _ISAMMODE_CL:
        _check_samplers(state, words)
    decoded = [_sampler(entry[:3], f"sampler {index}") for index, entry in enumerate(words)]
    borders = {colour: _border(state, colour) for colour in {colour for _, colour in decoded}}
    found = tuple(_bordered(sampler, borders[colour]) for sampler, colour in decoded)
    return (Sampler(),) * load.offset + found


@functools.lru_cache(maxsize=_REMEMBERED)
def _bordered(sampler: Sampler, border: tuple[int, int, int, int] | None) -> Sampler:
    return sampler if border is None else replace(sampler, border=border)


def _border(state: State, colour: int | None) -> tuple[int, int, int, int] | None:
    """A border colour of the table; zeros without a table."""
    if colour is None:
        return None
    base = state.address(regs.TPL1_CS_BORDER_COLOR_BASE)
    if not base:
        return (0, 0, 0, 0)
    data = state.memory.read(base + colour * regs.BORDER_BYTES, 16, f"border colour {colour}")
    red, green, blue, alpha = struct.unpack("<4I", data)
    return red, green, blue, alpha


@functools.lru_cache(maxsize=_REMEMBERED)
def _sampler(words: tuple[int, ...], what: str) -> tuple[Sampler, int | None]:
    """A sampler, and the number of its border colour in the table, if it wants one."""

    def field(index: int, name: str) -> int:
        return regs.SAMPLER[index].get(words[index], name)

    filters = field(0, "XY_MAG"), field(0, "XY_MIN")
    if max(filters) > _LINEAR or field(2, "REDUCTION_MODE"):
        raise LaunchError(
            f"{what} with filters {filters} and reduction mode {field(2, 'REDUCTION_MODE')}; the virtual "
            "device knows the nearest texel, 0, and the mean of the neighbours, 1 and mode 0"
        )
    numbers = [field(0, f"WRAP_{axis}") for axis in "STR"]
    if max(numbers) > max(wrap.value for wrap in Wrap):
        raise LaunchError(f"{what} with wraps {numbers}; there are 0 to 4, correct the sampler")
    bias = field(0, "LOD_BIAS")
    sampler = Sampler(
        wraps=(Wrap(numbers[0]), Wrap(numbers[1]), Wrap(numbers[2])),
        magnified=bool(filters[0]),
        minified=bool(filters[1]),
        unnormalized=bool(field(1, "UNNORM_COORDS")),
        lod_bias=(bias - (bias >> 12 << 13)) / 256,
        lods=(field(1, "MIN_LOD") / 256, field(1, "MAX_LOD") / 256),
        mips=bool(field(0, "MIPFILTER_LINEAR_NEAR")),
        single=bool(field(1, "MIPFILTER_LINEAR_FAR")),  # Mesa sets it for no mipmaps, fd6_texture.cc
        compare=Compare(field(1, "COMPARE_FUNC")),
        seamless=not field(1, "CUBEMAPSEAMLESSFILTOFF"),
    )
    if Wrap.CLAMP_TO_BORDER not in sampler.wraps:
        return sampler, None
    if not field(2, "FASTBORDERCOLOREN"):
        return sampler, field(2, "BCOLOR")
    rgb, alpha = divmod(field(2, "FASTBORDERCOLOR"), 2)
    one = 0x3F800000
    return replace(sampler, border=(rgb * one, rgb * one, rgb * one, alpha * one)), None


def _check_samplers(state: State, words: list[tuple[int, ...]]) -> None:
    word = regs.SAMPLER[0]
    for value, *_ in words:
        for name in ("WRAP_S", "WRAP_T"):
            if word.get(value, name) != _CLAMP_TO_BORDER:
                needed = value & ~word[name].mask | word[name].put(_CLAMP_TO_BORDER)
                why = "is no clamp to a border of zeros, the only one that is modelled"
                state.findings.add(Finding(word.name, name, value, needed, why, harmless=True))


def uniforms(state: State) -> tuple[Uniforms, ...]:
    """The UBOs that are loaded: their memory is looked at when it is read."""
    load = state.loads.get(Block.UBOS)
    if load is None:
        return ()
    data = state.memory.read(load.address, load.units * regs.UBO_BYTES, "UBO descriptors")
    return (Uniforms(0, 0),) * load.offset + tuple(
        _uniform(*pair) for pair in struct.iter_unpack("<2I", data)
    )


def _uniform(low: int, high: int) -> Uniforms:
    size = regs.UBO_DESCRIPTOR[1].get(high, "SIZE") * 16
    return Uniforms(low | regs.UBO_DESCRIPTOR[1].get(high, "BASE_HI") << 32, size)


def sets(state: State) -> tuple[DescriptorSet | None, ...]:
    """What the bindless bases point to, where SP_CS_CONFIG says that the shader uses them."""
    kinds = [
        name for name in ("TEX", "SAMP", "UAV", "UBO") if state.field(regs.SP_CS_CONFIG, f"BINDLESS_{name}")
    ]
    if not kinds:
        return ()
    return tuple(_set(state, index) for index in range(len(regs.SP_CS_BINDLESS_BASE)))


def _set(state: State, index: int) -> DescriptorSet | None:
    low, mirror = regs.SP_CS_BINDLESS_BASE[index], regs.HLSQ_CS_BINDLESS_BASE[index]
    value = state.address(low)
    if not value:
        return None
    if state.address(mirror) != value:
        raise LaunchError(
            f"launch with {low.name} {value:#x} and {mirror.name} {state.address(mirror):#x}: the second is "
            "a copy of the first; write both"
        )
    if value & 3 != _BINDLESS_64:
        raise LaunchError(
            f"launch with descriptors of size {value & 3} in {low.name}; the virtual device knows "
            f"{_BINDLESS_64}, 64 bytes each"
        )
    address = value & ~3
    state.memory.check(address, regs.DESCRIPTOR_BYTES, f"descriptors of {low.name}")
    count = min(state.memory.available(address) // regs.DESCRIPTOR_BYTES, _MOST_BINDLESS)
    data = state.memory.read(address, count * regs.DESCRIPTOR_BYTES, "bindless descriptors")
    words = list(struct.iter_unpack("<16I", data))
    images = tuple(_bindless(state, entry) for entry in words)
    wanted = state.field(regs.SP_CS_CONFIG, "BINDLESS_SAMP")
    found = tuple(_bindless_sampler(state, entry[:3]) for entry in words) if wanted else ()
    return DescriptorSet(images, tuple(_uniform(*entry[:2]) for entry in words), found)


def _bindless_sampler(state: State, words: tuple[int, ...]) -> Sampler | None:
    """A sampler, if the words are one: it stands at the start of its descriptor (Mesa, ``write_sampler``)."""
    try:
        sampler, colour = _sampler(words, "bindless sampler")
        return _bordered(sampler, _border(state, colour))
    except (LaunchError, GpuFault):
        return None


def _bindless(state: State, words: tuple[int, ...]) -> Image | None:
    """An image, if the words are one whose memory is mapped; a set holds other things as well."""
    if not any(words):
        return None
    try:
        return _image(state, words, "bindless image")
    except (LaunchError, GpuFault):
        return None
