"""Where everything lies in the memory that generated code works on: byte offsets and record layouts.

A *wave state* is a header of fixed layout followed by the register files: a row a scalar register, a
lane an element, so that one row is what a vector instruction reads. Full rows hold 32-bit elements, half
rows 16-bit ones; in merged mode there are no half rows and a half register is half of each element.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from pytest_qcom.isa.registers import FIRST_SHARED

CHUNK = 32
"""Lanes that straight-line code works on at a time: one AVX-512 register of halves, two of full values."""

LANES = 128
"""Lanes that header arrays are sized for: the larger of the two wave sizes."""

WAVE_COST = 256
"""Issue cycles that a wave's start counts as in a launch's budget: about the host's time for it."""

SHARED_SCALARS = 32
"""Scalars that a wave's fibers share: r48.x to r55.w."""


class Header:
    """Byte offsets in a wave state's header."""

    STATUS = 0  # i32, what the kernel returned last
    RESUME = 4  # i32, where it goes on: 0 is the program's entry, then the barriers in program order
    CHUNKS = 8  # i32, chunks that contain live lanes
    GROUP = 12  # i32, the number of the wave's workgroup
    LIVE = 16  # a bit a lane: exists and has not ended
    ACTIVE = 32  # lanes that execute now
    MASK = 48  # lanes that `park` is asked to park
    PREDICATES = 64  # p0.x to p0.w, 16 bytes each, a bit a lane
    INSTRUCTIONS = 128  # i64, issued so far
    ISSUE = 136  # i64, issue cycles so far
    LIMIT = 144  # i64, issue cycles after which the wave counts as hung
    JOB = 152
    CONSTANTS = 160
    LDS = 168
    PRIVATE = 176
    FAULT_KIND = 184  # i32
    FAULT_PC = 188  # i32, instruction index
    FAULT_LANE = 192  # i32
    FAULT_SIZE = 196  # i32, bytes
    FAULT_ADDRESS = 200  # i64
    LATE_CLOCK = 224  # i64, issue slots and waits of the wave so far (late results only)
    LATE_NEXT = 232  # i64, when something of its queue is due
    LATE_COUNT = 240  # i64, entries of the queue
    LATE_LAST = 248  # i64, when the last of them that reads sources does so
    SHARED = 256  # r48.x to r55.w, one i32 each
    ADDRESS = 384  # a0.x and a1.x, a row of i16 each
    RANGE = ADDRESS + 2 * 2 * LANES  # two i64 each: the mapped range that an instruction last accessed
    RANGES = 16
    PCS = RANGE + 16 * RANGES  # an i32 a lane: the block where a parked lane goes on
    SCRATCH = PCS + 4 * LANES  # rows for operands that are in no register
    SCRATCH_ROW = 4 * LANES
    SCRATCH_ROWS = 28
    RECENT = SCRATCH + SCRATCH_ROW * SCRATCH_ROWS  # an i64 each: where loads from global memory last began
    RECENTS = 128
    END = RECENT + 8 * RECENTS


class Status:
    """What a kernel function returns."""

    DONE = 0
    BARRIER = 1
    FAULT = 2
    HANG = 3
    RUN = 4  # never returned: a wave that has not finished


class Fault:
    """Why a wave stopped."""

    NONE = 0
    GLOBAL = 1
    LOCAL = 2
    PRIVATE = 3
    IMAGE_SLOT = 4
    IMAGE_MEMORY = 5
    UNSUPPORTED = 6
    BUDGET = 7
    RUNAWAY = 8  # ran past the last instruction
    DEADLOCK = 9
    CONSTANT = 10
    BRANCH = 11  # a branch to outside the program
    RELATIVE = 12  # a register-relative operand outside the file
    FOOTPRINT = 13  # a write to a register that the launch does not declare (late results only)
    LACKING = 14  # an instruction at which this chip hangs (late results only)
    DESCRIPTOR = 16  # a slot that holds something else
    UNIFORM_MEMORY = 17
    ALIGNMENT = 18  # an atomic access across words
    DERIVATIVES = 19  # a sample whose result depends on them
    TOTAL = 15  # the launch as a whole used up its budget; no single wave's


@dataclass(frozen=True, slots=True)
class Layout:
    """The register files of one program's wave states.

    Attributes:
        wave: fibers of a wave, 64 or 128.
        full, half: scalar registers that the files hold; ``half`` is 0 in merged mode.
        merged: whether half registers are parts of full ones.
        late_bytes: room behind the files for late results.
    """

    wave: int
    full: int
    half: int
    merged: bool
    late_bytes: int = 0

    @property
    def files(self) -> int:
        """Offset of the first full row."""
        return Header.END

    @property
    def size(self) -> int:
        """Bytes of a wave state, a multiple of 128."""
        return (self.late + self.late_bytes + 127) // 128 * 128

    @property
    def late(self) -> int:
        """Offset of what late results need."""
        size = self.files + self.wave * (4 * self.full + 2 * self.half)
        return (size + 127) // 128 * 128

    def full_row(self, num: int) -> int:
        """Offset of the row of full register ``num`` (below 192)."""
        return self.files + 4 * self.wave * num

    def half_row(self, num: int) -> int:
        """Offset of the row of half register ``num`` in split mode."""
        return self.files + 4 * self.wave * self.full + 2 * self.wave * num


def shared_offset(num: int) -> int:
    """Offset of shared scalar ``num`` (192 and up)."""
    return Header.SHARED + 4 * (num - FIRST_SHARED)


class TextureRecord(ctypes.Structure):
    """An image as generated code sees it."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("pitch", ctypes.c_int64),
        ("width", ctypes.c_int32),
        ("height", ctypes.c_int32),
        ("format", ctypes.c_int32),
        ("mapped", ctypes.c_int32),  # 1 if all of it lies in mapped memory
        ("plain", ctypes.c_int32),  # 1 if the swizzle is xyzw
        ("depth", ctypes.c_int32),  # 0: no image
        ("swizzle", ctypes.c_int32 * 4),
        ("layer", ctypes.c_int64),  # bytes between layers
        ("texel", ctypes.c_int64),  # bytes of one
        ("further", ctypes.c_void_p),  # records of the other levels of detail, one behind the other
        ("levels", ctypes.c_int32),
        ("samples", ctypes.c_int32),
        ("cube", ctypes.c_int32),  # 1 for a cube, of which every six layers are the faces
        ("least", ctypes.c_int32),  # level of detail, in 1/256
    )


class SamplerRecord(ctypes.Structure):
    """A sampler as generated code sees it."""

    _fields_ = (
        ("wraps", ctypes.c_int32 * 3),
        ("magnified", ctypes.c_int32),
        ("minified", ctypes.c_int32),
        ("unnormalized", ctypes.c_int32),
        ("bias", ctypes.c_int32),  # levels of detail, in 1/256
        ("least", ctypes.c_int32),
        ("most", ctypes.c_int32),
        ("border", ctypes.c_uint32 * 4),
        ("mips", ctypes.c_int32),
        ("single", ctypes.c_int32),
        ("compare", ctypes.c_int32),
        ("seamless", ctypes.c_int32),
        ("bound", ctypes.c_int32),  # 0: no sampler
    )


class UniformRecord(ctypes.Structure):
    """A uniform buffer as generated code sees it."""

    _fields_ = (("address", ctypes.c_uint64), ("size", ctypes.c_int64))


class Table(ctypes.Structure):
    """Records of what is bound: images or uniform buffers."""

    _fields_ = (("records", ctypes.c_void_p), ("count", ctypes.c_int64))


SETS_COUNT = 5
"""Bindless bases of a launch (Mesa, ``SP_CS_BINDLESS_BASE``)."""


class Tables:
    """Numbers of a job's tables: bound ones, then those of the bindless sets."""

    TEXTURES = 0
    IMAGES = 1
    SETS = 2
    UNIFORMS = SETS + SETS_COUNT
    UNIFORM_SETS = UNIFORMS + 1
    SAMPLERS = UNIFORM_SETS + SETS_COUNT
    SAMPLER_SETS = SAMPLERS + 1
    COUNT = SAMPLER_SETS + SETS_COUNT


class Job(ctypes.Structure):
    """One dispatch, shared by all threads."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("constant_bytes", ctypes.c_int64),
        ("textures", ctypes.c_void_p),
        ("texture_count", ctypes.c_int64),
        ("images", ctypes.c_void_p),
        ("image_count", ctypes.c_int64),
        ("tables", ctypes.c_void_p),  # by the numbers of Tables
        ("ranges", ctypes.c_void_p),
        ("range_count", ctypes.c_int64),
        ("next_group", ctypes.c_int64),
        ("group_count", ctypes.c_int64),
        ("stop", ctypes.c_int64),  # the lowest group that failed so far
        ("groups_x", ctypes.c_int64),
        ("groups_y", ctypes.c_int64),
        ("waves", ctypes.c_int64),  # a group
        ("stride", ctypes.c_int64),  # bytes between the states of resident waves; 0: one at a time
        ("clear", ctypes.c_int64),  # bytes of register files to zero
        ("masks", ctypes.c_void_p),  # 16 bytes a wave: its lanes
        ("local_ids", ctypes.c_void_p),  # a wave: four rows of i32 (x, y, z, linear)
        ("shared_bytes", ctypes.c_int64),
        ("private_bytes", ctypes.c_int64),  # a fiber
        ("limit", ctypes.c_int64),
        ("spent", ctypes.c_int64),  # issue cycles of all finished workgroups, and WAVE_COST for each wave
        ("total", ctypes.c_int64),  # what they may spend
        ("local_id_row", ctypes.c_int64),  # offsets in the wave state, 0: not wanted
        ("linear_id_row", ctypes.c_int64),
        ("group_id", ctypes.c_int64),
        ("group_offset", ctypes.c_int64),
        ("local_size", ctypes.c_int64),
        ("shadows", ctypes.c_void_p),  # where races are looked for: what is known of each range
        ("shadow_shift", ctypes.c_int64),  # of addresses, to pieces
        ("races", ctypes.c_int64),
        ("race_address", ctypes.c_uint64),
        ("race_kinds", ctypes.c_int64),  # of the first race: what it does, and the slot of what was done
        ("race_now", ctypes.c_int64),
        ("race_before", ctypes.c_int64),
        ("splat", ctypes.c_int64),  # bit 0, 1, 2: group id, offset, size go to rows, not to shared scalars
        ("local_x", ctypes.c_int32),
        ("local_y", ctypes.c_int32),
        ("local_z", ctypes.c_int32),
        ("pad", ctypes.c_int32),
    )


class Arena(ctypes.Structure):
    """What one thread works in, and what it reports."""

    _fields_ = (
        ("states", ctypes.c_void_p),
        ("lds", ctypes.c_void_p),
        ("private", ctypes.c_void_p),
        ("instructions", ctypes.c_int64),
        ("issue", ctypes.c_int64),
        ("failed_group", ctypes.c_int64),  # -1: none
        ("failed_wave", ctypes.c_int64),
    )


def field(record: type[ctypes.Structure], name: str) -> int:
    """Byte offset of a record's field."""
    return int(getattr(record, name).offset)
