"""What an instruction is: the form shared by assembler, decoder, executor and analysis.

An :class:`Op` is an entry of the instruction table, declared once. An :class:`Instr` is one use of it:
operands and modifiers. Nothing outside the table knows a bit position or a mnemonic.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_qcom.isa.registers import Reg, Ty


class Kind(enum.Enum):
    """Where an operand's value comes from."""

    GPR = "gpr"  # value: scalar register number; also p0.* and a0.x
    CONST = "const"  # value: scalar constant number, c3.y is 13
    IMM = "imm"  # value: signed integer in cat2, unsigned in cat3 and cat6, the raw 32 bits in cat1
    FLUT = "flut"  # value: index into the float immediate table
    REL_GPR = "rel_gpr"  # value: signed offset in scalars from a0.x
    REL_CONST = "rel_const"


@dataclass(frozen=True, slots=True)
class Operand:
    """A source or destination. ``repeat`` is the (r) flag: the register advances under (rptN).

    ``half`` is true also for the 16-bit data of local memory, whose registers Mesa prints as full ones.
    A predicate destination is never half. ``last`` is a hint of newer chips, without effect here.
    """

    kind: Kind
    value: int
    half: bool = False
    neg: bool = False
    abs: bool = False
    repeat: bool = False
    last: bool = False

    @property
    def reg(self) -> Reg:
        """The register of a ``GPR`` operand."""
        return Reg(self.value, self.half)


class Latency(enum.Enum):
    """How long a result takes, by class; the cycles stand in ``chip.py``."""

    NONE = "none"  # no result
    ALU = "alu"  # cat1 to cat3: fixed pipeline
    SFU = "sfu"  # cat4
    TEXTURE = "texture"  # cat5 samples
    LOCAL = "local"  # LDS loads and atomics, shuffles through LDS
    GLOBAL = "global"  # ldg, ldp, ldib, ldc, global atomics


class Sync(enum.Enum):
    """Which flag a consumer of the result must carry."""

    NONE = "none"
    SS = "ss"
    SY = "sy"


class Flow(enum.Enum):
    """What a cat0 instruction does to the program counter."""

    NEXT = "next"
    END = "end"
    JUMP = "jump"
    BRANCH = "branch"  # taken where p0[comp1], inverted if inv1, holds
    BRANCH_OR = "branch_or"  # taken where it or p0[comp2], inverted if inv2, holds
    BRANCH_AND = "branch_and"
    ANY = "any"  # taken by the whole wave if any fiber's predicate holds
    ALL = "all"
    ELECT = "elect"  # taken by all active fibers but the first
    PREDT = "predicate true"
    PREDF = "predicate false"
    PREDE = "predicate end"


class Space(enum.Enum):
    """An address space of loads, stores and atomics."""

    GLOBAL = "global"
    LOCAL = "local"
    PRIVATE = "private"
    UBO = "ubo"
    IMAGE = "image"  # typed, through an IBO/UAV descriptor


@dataclass(frozen=True, slots=True)
class Load:
    """Memory to registers. srcs: (address,) or (address, register offset); image: (coordinate,)."""

    space: Space


@dataclass(frozen=True, slots=True)
class Store:
    """Registers to memory. srcs: (address, data) or (address, register offset, data).

    Images: (coordinate, data).
    """

    space: Space


@dataclass(frozen=True, slots=True)
class Atomic:
    """Read-modify-write; returns the old value. srcs: (address or coordinate, data).

    The data registers hold the operand, and behind it what cmpxchg compares with. On images the result comes
    first: data is (result, operand[, compare]), one register each, or two where the type is 64 bits wide.
    """

    space: Space
    operation: str  # add sub xchg inc dec cmpxchg min max and or xor


class Detail(enum.Enum):
    """Where a sample's level of detail comes from."""

    BASE = "base"  # the largest level
    SOURCE = "source"  # the last of the second source
    GRADIENTS = "gradients"  # the derivatives of the coordinates in x and y, from the fifth scalar on
    IMPLICIT = "implicit"  # the differences between the coordinates of neighbours, which graphics has


@dataclass(frozen=True, slots=True)
class Sample:
    """A texel of a texture. srcs: (coordinates[, offsets and level of detail][, texture and sampler]).

    Behind the coordinates stand, in this order, what a shadow sampler compares with (``.s``), the layer
    (``.a``), the number of a sample, gradients (Mesa, ``emit_tex``).

    Attributes:
        filtered: coordinates are floats and the sampler says what they mean; else they are a texel's.
        gather: the component that is taken of the four texels that a filter would mix; -1: they are mixed.
        detail: where the level of detail comes from.
        multisampled: a texel has several samples, of which one is wanted.
    """

    filtered: bool = False
    gather: int = -1
    detail: Detail = Detail.BASE
    multisampled: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """How large an image or a buffer is: width, height, depth or layers; elements of a buffer.

    Of textures (category 5) at a level of detail, the only source, and with the layers last.
    """


class Fact(enum.Enum):
    """What a :class:`Query` asks for."""

    ELEMENTS = "elements"  # of a buffer
    LEVELS = "levels"  # of detail
    SAMPLES = "samples"  # of a texel


@dataclass(frozen=True, slots=True)
class Query:
    """What a texture's descriptor says. No sources; ``facts`` are the four components of the result.

    The component of a fact that is ``None`` is not documented.
    """

    facts: tuple[Fact | None, ...]


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A value of another fiber. srcs: (value, index).

    ``mode`` is quad_brcst, quad_horiz, quad_vert or quad_diag; or "" where the attribute ``shuffle``
    chooses among ``modes``: xor, up, down, rup, rdown.
    """

    mode: str
    modes: tuple[tuple[int, str], ...] = ()

    def of(self, instr: Instr) -> str:
        """The mode of one use."""
        return dict(self.modes)[instr["shuffle"]] if self.modes else self.mode


@dataclass(frozen=True, slots=True)
class Barrier:
    """``bar`` (waits for the workgroup) or ``fence`` (orders memory)."""

    waits: bool


@dataclass(frozen=True, slots=True)
class Preset:
    """stc: registers of one fiber to the constant file, for all that the launch runs after. srcs: (data,)."""


@dataclass(frozen=True, slots=True)
class Upload:
    """ldc.k: vec4 of a uniform buffer to the constant file, as :class:`Preset`. srcs: (address,)."""


@dataclass(frozen=True, slots=True)
class FiberId:
    """getfiberid: the lane number within the wave."""


@dataclass(frozen=True, slots=True)
class ActiveMask:
    """movmsk: a bit for each active fiber, 32 a register."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Decodes and prints; executing it is an error that gives ``reason``."""

    reason: str


Effect = (
    Flow
    | Load
    | Store
    | Atomic
    | Sample
    | Size
    | Shuffle
    | Barrier
    | FiberId
    | ActiveMask
    | Preset
    | Upload
    | Query
    | Unsupported
)
Compute = Callable[[Any, Sequence[Any], "Instr"], Any]
"""Semantics of an ALU instruction: (builder, source values, instruction) to the result, before conversion."""


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """An entry of the instruction table. There is one object an entry, so that they compare by identity.

    Attributes:
        name: Mesa's mnemonic without type suffixes that are fields (``mov``, ``add.f``, ``mad.f16``).
        cat: instruction category, 0 to 7.
        compute: semantics of an ALU instruction, else ``None`` and ``effect`` says what it does.
        reads: the class of each ALU source, a letter each: ``f`` float, ``u`` unsigned, ``s`` signed,
            ``b`` bits ((neg) is NOT), ``g`` bits ((neg) flips the sign bit); ``t`` for cat1: by ``src_type``.
        result: the class of the ALU result: ``f u s b`` as above, ``c`` a condition (1 or 0 in a register).
        confidence: how sure the semantics are: ``documented``, ``measured``, ``inferred``.
        source: where the fact comes from.
        late_source: the source that is read ``chip.delays.mad_addend`` slots after issue: 2 on ``mad`` and
            ``madsh``, whose addend may arrive late (Mesa, ``ir3_src_read_delay``); ``None`` elsewhere.
    """

    name: str
    cat: int
    latency: Latency
    sync: Sync = Sync.NONE
    compute: Compute | None = None
    reads: str = ""
    result: str = ""
    effect: Effect | None = None
    confidence: str = "documented"
    source: str = ""
    late_source: int | None = None
    layout: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """One scalar register touched by an instruction.

    ``element`` is the repeat index (the cycle after issue at which an ALU instruction touches it), or the
    component of a multi-register memory operand. ``operand`` is the source number, -1 for the destination.
    """

    reg: Reg
    element: int
    operand: int


@dataclass(frozen=True, slots=True)
class Instr:
    """One instruction. Immutable and hashable.

    ``attrs`` are the fields that only some categories have, read with ``instr["name"]``:
    ``cond`` (cat2 compare: lt le gt ge eq ne as 0 to 5), ``src_type``/``dst_type``/``round`` (cat1),
    ``type`` (cat5, cat6: a :class:`Ty` code), ``wrmask``/``samp``/``tex`` (cat5), ``count`` (cat6
    components), ``offset`` (cat6 bytes), ``shift``/``slot`` (cat6), ``target`` (cat0: branch offset in
    instructions from this one), ``inv1``/``comp1``/``inv2``/``comp2`` (cat0 predicates), ``dst1`` to
    ``dst3`` (swz, sct: register numbers of the further destinations), ``mode`` (cat6: 0 if ``slot`` is a
    number, else it is a register), ``s2en`` (cat5: texture and sampler from a register or bindless).
    """

    op: Op
    dst: Operand | None = None
    srcs: tuple[Operand, ...] = ()
    rpt: int = 0  # (rptN): N more executions
    nop: int = 0  # (nopN): N idle slots behind it
    sy: bool = False
    ss: bool = False
    jp: bool = False
    sat: bool = False
    ul: bool = False
    ei: bool = False
    attrs: tuple[tuple[str, int], ...] = ()

    def __getitem__(self, name: str) -> int:
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(name)

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self.attrs)

    def get(self, name: str, default: int = 0) -> int:
        """The attribute ``name``, or ``default`` where the category has none."""
        return next((value for key, value in self.attrs if key == name), default)

    @property
    def type(self) -> Ty:
        """The data type of a cat5 or cat6 instruction."""
        return Ty(self["type"])
