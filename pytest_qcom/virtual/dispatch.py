"""One compute launch, as the command processor hands it to the executor."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Format(enum.Enum):
    """Texel formats of images (Mesa, ``a6xx.xml`` ``a6xx_format``)."""

    RGBA8_UNORM = 0x30
    RGBA8_SNORM = 0x32
    RGBA8_UINT = 0x33
    RGBA8_SINT = 0x34
    RGBA16_FLOAT = 0x62
    RGBA32_FLOAT = 0x82
    RGBA32_UINT = 0x83
    RGBA32_SINT = 0x84


@dataclass(frozen=True, slots=True)
class Image:
    """A texture or image descriptor: ``height`` rows of ``width`` texels, ``pitch`` bytes apart."""

    address: int
    width: int
    height: int
    pitch: int
    format: Format
    swizzle: tuple[int, int, int, int] = (0, 1, 2, 3)  # 4 is zero, 5 is one


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
