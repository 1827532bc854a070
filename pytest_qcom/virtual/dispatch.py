"""One compute launch, as the command processor hands it to the executor."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, replace


class Format(enum.Enum):
    """Texel formats of images (Mesa, ``a6xx.xml`` ``a6xx_format``): components, bits of each, their kind."""

    R8_UNORM = 0x03
    R8_SNORM = 0x04
    R8_UINT = 0x05
    R8_SINT = 0x06
    RG8_UNORM = 0x0F
    RG8_SNORM = 0x10
    RG8_UINT = 0x11
    RG8_SINT = 0x12
    R16_UNORM = 0x15
    R16_SNORM = 0x16
    R16_FLOAT = 0x17
    R16_UINT = 0x18
    R16_SINT = 0x19
    RGBA8_UNORM = 0x30
    RGBA8_SNORM = 0x32
    RGBA8_UINT = 0x33
    RGBA8_SINT = 0x34
    RG16_UNORM = 0x43
    RG16_SNORM = 0x44
    RG16_FLOAT = 0x45
    RG16_UINT = 0x46
    RG16_SINT = 0x47
    R32_FLOAT = 0x4A
    R32_UINT = 0x4B
    R32_SINT = 0x4C
    RGBA16_UNORM = 0x60
    RGBA16_SNORM = 0x61
    RGBA16_FLOAT = 0x62
    RGBA16_UINT = 0x63
    RGBA16_SINT = 0x64
    RG32_FLOAT = 0x67
    RG32_UINT = 0x68
    RG32_SINT = 0x69
    RGBA32_FLOAT = 0x82
    RGBA32_UINT = 0x83
    RGBA32_SINT = 0x84

    @functools.cached_property
    def components(self) -> int:
        """1, 2 or 4."""
        return len(self.name.partition("_")[0].rstrip("0123456789"))

    @functools.cached_property
    def bits(self) -> int:
        """Of a component: 8, 16 or 32."""
        return int(self.name.partition("_")[0].lstrip("RGBA"))

    @functools.cached_property
    def kind(self) -> str:
        """``UNORM``, ``SNORM``, ``UINT``, ``SINT`` or ``FLOAT``."""
        return self.name.partition("_")[2]

    @functools.cached_property
    def integer(self) -> bool:
        """Whether components are integers, not numbers between bounds."""
        return self.kind in ("UINT", "SINT")

    @functools.cached_property
    def texel_bytes(self) -> int:
        """Bytes of a texel in memory: 1 to 16."""
        return self.components * self.bits // 8


@dataclass(frozen=True, slots=True)
class Image:
    """A texture or image descriptor: ``height`` rows of ``width`` texels, ``pitch`` bytes apart.

    ``depth`` slices or layers of that lie ``layer_pitch`` bytes apart. A buffer is one row. A cube has six
    layers, which ``depth`` counts as well.

    Further levels of detail are half as large each, their rows ``pitch_align`` bytes apart or a multiple of
    that. They follow each other within a layer; of a ``solid`` image (three dimensions) all slices of a level
    stand together, and their distance is a quarter of that of the level before, ``least_layer`` bytes at
    least (Mesa, ``fdl6_layout``).
    """

    address: int
    width: int
    height: int
    pitch: int
    format: Format
    swizzle: tuple[int, int, int, int] = (0, 1, 2, 3)  # 4 is zero, 5 is one
    depth: int = 1
    layer_pitch: int = 0
    levels: int = 1
    pitch_align: int = 64
    solid: bool = False
    least_layer: int = 0
    cube: bool = False
    samples: int = 1  # of a texel, behind each other in memory
    least_lod: float = 0.0  # that a sampler gets

    @property
    def texel_bytes(self) -> int:
        """Bytes from a texel to the next of its row."""
        return self.format.texel_bytes * self.samples

    @property
    def size(self) -> int:
        """Bytes from the first texel to behind the last of the last level."""
        last = self.level(self.levels - 1)
        rows = (last.depth - 1) * last.layer_pitch + (last.height - 1) * last.pitch
        return last.address - self.address + rows + last.width * last.texel_bytes

    def level(self, number: int) -> Image:
        """A level of detail as an image of one level."""
        if not number and self.levels == 1:
            return self
        start, layer = self.address, self.layer_pitch
        for level in range(number):
            slices = max(1, self.depth >> level) if self.solid else 1
            extent = layer if self.solid else self._pitch(level) * max(1, self.height >> level)
            start += slices * extent
            layer = max(self.layer_pitch >> 2 * (level + 1), self.least_layer) if self.solid else layer
        return replace(
            self,
            address=start,
            width=max(1, self.width >> number),
            height=max(1, self.height >> number),
            depth=max(1, self.depth >> number) if self.solid else self.depth,
            pitch=self._pitch(number),
            layer_pitch=layer,
            levels=1,
        )

    def _pitch(self, level: int) -> int:
        return -(-(self.pitch >> level) // self.pitch_align) * self.pitch_align if level else self.pitch


class Wrap(enum.Enum):
    """What a sampler makes of coordinates outside of a texture (Mesa, ``a6xx_tex_clamp``)."""

    REPEAT = 0
    CLAMP_TO_EDGE = 1
    MIRROR_REPEAT = 2
    CLAMP_TO_BORDER = 3
    MIRROR_CLAMP = 4  # mirrored once, then as CLAMP_TO_EDGE


class Compare(enum.Enum):
    """When a shadow sampler's number passes against a texel (Mesa, ``adreno_compare_func``)."""

    NEVER = 0
    LESS = 1
    EQUAL = 2
    LEQUAL = 3
    GREATER = 4
    NOTEQUAL = 5
    GEQUAL = 6
    ALWAYS = 7


@dataclass(frozen=True, slots=True)
class Sampler:
    """How a texture is read at coordinates: its wraps in x, y and z, and whether the nearest texel counts, or
    those around are mixed: ``magnified`` where the level of detail is 0 or less, else ``minified``.

    The level of detail is ``lod_bias`` more than a program says, and within ``lods``; the nearest level
    counts, or with ``mips`` a mix of the two around it, with ``single`` only the largest. Coordinates count
    texels with ``unnormalized``, else the texture's size is 1. ``border``: four components, as words.
    ``compare`` is what a shadow sampler asks of its number and a texel. With ``seamless`` the neighbours
    across the edges of a cube's faces are those of the next face.
    """

    wraps: tuple[Wrap, Wrap, Wrap] = (Wrap.CLAMP_TO_BORDER,) * 3
    magnified: bool = False
    minified: bool = False
    unnormalized: bool = False
    lod_bias: float = 0.0
    lods: tuple[float, float] = (0.0, 0.0)
    border: tuple[int, int, int, int] = (0, 0, 0, 0)
    mips: bool = False
    single: bool = False
    compare: Compare = Compare.NEVER
    seamless: bool = True


@dataclass(frozen=True, slots=True)
class Uniforms:
    """A uniform buffer (UBO): ``size`` bytes, a multiple of 16."""

    address: int
    size: int


@dataclass(frozen=True, slots=True)
class DescriptorSet:
    """What a bindless base points to. A descriptor is an image, a uniform buffer or a sampler as the access
    says.

    ``images`` holds ``None`` where the words are no image that is mapped, ``samplers`` where they are no
    sampler.
    """

    images: tuple[Image | None, ...]
    uniforms: tuple[Uniforms, ...]
    samplers: tuple[Sampler | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A compute launch, decoded from registers and state loads.

    ``*_regid`` are full-register scalar numbers (252: not wanted) into which the hardware writes, for each
    wave or fiber, three consecutive scalars: group id, local size, group offset (work items), local id.
    """

    code: bytes  # the instruction image; branch offsets never leave it
    code_address: int
    entry: int  # first instruction, as an index into ``code``
    constants: bytes  # the constant file, 16 bytes a vec4
    textures: tuple[Image, ...]
    images: tuple[Image, ...]  # IBO/UAV slots
    local_size: tuple[int, int, int]
    groups: tuple[int, int, int]
    thread128: bool
    fregs: int  # declared footprint in vec4
    hregs: int
    merged: bool
    branchstack: int
    shared_bytes: int
    private_bytes: int  # a fiber
    private_base: int
    constant_demotion: bool  # hcN.c reads and converts cN.c, instead of packed halves
    group_id_regid: int
    local_size_regid: int
    group_offset_regid: int
    local_id_regid: int
    linear_local_id_regid: int
    uniforms: tuple[Uniforms, ...] = ()
    sets: tuple[DescriptorSet | None, ...] = ()  # by bindless base
    samplers: tuple[Sampler, ...] = ()

    @property
    def wave_size(self) -> int:
        """Fibers of a wave: 64, or 128 in THREAD128 mode."""
        return 128 if self.thread128 else 64

    @property
    def fibers(self) -> int:
        """Fibers of a workgroup."""
        return self.local_size[0] * self.local_size[1] * self.local_size[2]


@dataclass(frozen=True, slots=True)
class Execution:
    """What a launch did: totals over all of its waves. Equal on every host and for every thread count."""

    waves: int
    instructions: int  # issued, a repeated one counted once
    issue_cycles: int  # issue slots: 1 + repeats + nops for each issued instruction
