"""Forms of instructions that are not executed, though other forms of the same instructions are.

Each says why: what in Mesa keeps its compiler from emitting the form for compute on an A630, so that nobody
knows what the form does there. Instructions that are refused as a whole say so in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_qcom.isa import access
from pytest_qcom.isa.instruction import (
    ActiveMask,
    Atomic,
    Detail,
    Instr,
    Kind,
    Load,
    Preset,
    Query,
    Sample,
    Size,
    Space,
    Store,
    Unsupported,
    Upload,
)
from pytest_qcom.isa.registers import Ty


@dataclass(frozen=True)
class Refusal:
    """A form, why it is not executed, and whether an instruction has it."""

    form: str
    reason: str
    holds: Callable[[Instr], bool]


def refusal(instr: Instr) -> str | None:
    """Why ``instr`` is not executed, as a phrase; ``None`` if it is."""
    effect = instr.op.effect
    if isinstance(effect, Unsupported):
        return effect.reason
    return next((found.reason for found in REFUSALS if found.holds(instr)), None)


_LINEAR = (Space.GLOBAL, Space.LOCAL, Space.PRIVATE)
_BASES = 5  # Mesa, SP_CS_BINDLESS_BASE


def _moves(instr: Instr, *spaces: Space) -> bool:
    effect = instr.op.effect
    return isinstance(effect, Load | Store) and effect.space in spaces


def _texture(instr: Instr) -> bool:
    return isinstance(instr.op.effect, Sample | Query) or (
        isinstance(instr.op.effect, Size) and instr.op.cat == 5
    )


def _fetches(instr: Instr) -> bool:
    """Whether coordinates are those of texels."""
    return isinstance(instr.op.effect, Sample) and not instr.op.effect.filtered


def _plain(instr: Instr) -> bool:
    """Whether coordinates are those of texels and all that there is: no level of detail, no sample."""
    effect = instr.op.effect
    return (
        isinstance(effect, Sample)
        and not effect.filtered
        and effect.detail is Detail.BASE
        and not effect.multisampled
    )


def _odd_count(instr: Instr) -> bool:
    linear = _moves(instr, *_LINEAR) or isinstance(instr.op.effect, Preset)
    return linear and not 1 <= instr["count"] <= 4


def _narrow_atomic(instr: Instr) -> bool:
    effect = instr.op.effect
    if not isinstance(effect, Atomic) or access.atomic_words(instr) == 2:
        return False
    return instr.type.bits != Ty.U32.bits


def _wide_image_atomic(instr: Instr) -> bool:
    effect = instr.op.effect
    return isinstance(effect, Atomic) and effect.space is Space.IMAGE and access.atomic_words(instr) == 2


def _compares_more(instr: Instr) -> bool:
    effect = instr.op.effect
    return (
        isinstance(effect, Sample)
        and effect.filtered
        and effect.gather < 0
        and access.shadow(instr)
        and instr["wrmask"] > 1
    )


def _unknown_fact(instr: Instr) -> bool:
    effect = instr.op.effect
    return isinstance(effect, Query) and any(
        fact is None and instr["wrmask"] >> place & 1 for place, fact in enumerate(effect.facts)
    )


def _image_offset(instr: Instr) -> bool:
    return _moves(instr, Space.IMAGE) and bool(instr.get("offset"))


def _base(instr: Instr) -> bool:
    if instr.op.cat == 5:
        bindless = bool(instr.get("s2en")) and instr["mode"] not in (0, 4)
        return _texture(instr) and bindless and instr["base"] >= _BASES
    effect = instr.op.effect
    by_slot = isinstance(effect, Upload | Size) or _moves(instr, Space.UBO, Space.IMAGE)
    by_slot |= isinstance(effect, Atomic) and effect.space is Space.IMAGE
    return by_slot and bool(instr.get("bindless")) and instr["base"] >= _BASES


def _dimensions(instr: Instr) -> bool:
    effect = instr.op.effect
    image = _moves(instr, Space.IMAGE) or (isinstance(effect, Atomic) and effect.space is Space.IMAGE)
    return image and instr["dims"] > 3


def _asks_otherwise(instr: Instr) -> bool:
    asks = _texture(instr) and not isinstance(instr.op.effect, Sample)
    return asks and (instr.type.half or bool(instr.get("o")) or access.shadow(instr))


REFUSALS = (
    Refusal(
        "loads, stores and `stc` of no component, or of more than four",
        "it moves one to four components in Mesa (cat6.iim_val is a NIR vector's), what more do is not known",
        _odd_count,
    ),
    Refusal(
        "`stc` of types other than 32 bits",
        "Mesa stores constants as u32 (ir3_compiler_nir.c, store_const_ir3)",
        lambda instr: isinstance(instr.op.effect, Preset) and instr.type.bits != Ty.U32.bits,
    ),
    Refusal(
        "atomics of 8 and 16 bits",
        "Mesa emits atomics as u32, s32 and, on 64-bit addresses, u64 (ir3_compiler_nir.c, "
        "emit_intrinsic_atomic_shared)",
        _narrow_atomic,
    ),
    Refusal(
        "`atomic.b` of 64 bits",
        "Mesa's drivers offer atomics of 64 bits on storage buffers where has_64b_ssbo_atomics is set, which "
        "is on A7xx; what the coordinate counts is not known",
        _wide_image_atomic,
    ),
    Refusal(
        "image accesses with an offset",
        "Mesa gives them one where has_ssbo_imm_offsets is set, which is not so on the A630",
        _image_offset,
    ),
    Refusal(
        "image accesses of four dimensions",
        "images have three at most (ir3_image.c, ir3_get_image_coords)",
        _dimensions,
    ),
    Refusal(
        "bindless bases 5 to 7",
        "the A630 has five of them (SP_CS_BINDLESS_BASE)",
        _base,
    ),
    Refusal(
        "`movmsk` into a register that a0.x displaces",
        "Mesa gives it a register of its own (ir3_compiler_nir.c, ballot)",
        lambda instr: (
            isinstance(instr.op.effect, ActiveMask) and (instr.dst is None or instr.dst.kind is Kind.REL_GPR)
        ),
    ),
    Refusal(
        "samples with `.p`",
        "Mesa divides coordinates itself (ir3_nir.c, lower_txp)",
        lambda instr: _texture(instr) and bool(instr.get("p")),
    ),
    Refusal(
        "`isam.v`, and `isam` with an offset",
        "Mesa emits it where has_isam_v is set, which is not so on the A630",
        lambda instr: "inv_1d" in instr and bool(instr["sv"] or instr["immediate"] or instr.get("offset")),
    ),
    Refusal(
        "`isam.o`",
        "images have no offsets of coordinates (ir3_compiler_nir.c, emit_intrinsic_load_image)",
        lambda instr: _plain(instr) and bool(instr.get("o")),
    ),
    Refusal(
        "texels of cube arrays by number, `.3d.a`",
        "cubes have no texels by number in NIR (txf), and as images they are arrays (ir3_image.c)",
        lambda instr: _fetches(instr) and access.coordinates(instr) > 3,
    ),
    Refusal(
        "texels by number with `.s`",
        "there is nothing to compare with in NIR (txf)",
        lambda instr: _fetches(instr) and access.shadow(instr),
    ),
    Refusal(
        "shadow samples of more than x",
        "a comparison has one result in NIR (is_new_style_shadow)",
        _compares_more,
    ),
    Refusal(
        "sizes and queries with `.o`, `.s` or of 16 bits",
        "Mesa emits them plain, of 32 bits (ir3_compiler_nir.c, emit_tex_txs, emit_tex_info)",
        _asks_otherwise,
    ),
    Refusal(
        "`getinfo` of x and y, `getbuf` of more than x",
        "Mesa asks for levels, samples and elements only (emit_tex_info), what the others are is not known",
        _unknown_fact,
    ),
)
"""Every form, in the order in which they are asked for."""
