"""What is refused is what Mesa's compiler does not emit, as far as it can be asked here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tinygrad.dtype import dtypes
from tinygrad.renderer.nir import nchannel
from tinygrad.runtime.autogen import mesa

from pytest_qcom.isa.assembler import assemble
from pytest_qcom.isa.instruction import Detail, Instr, Load, Preset, Sample, Space, Unsupported
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.refusals import REFUSALS, refusal
from pytest_qcom.isa.table import OPS
from suites.isa import nir, nir_textures
from suites.isa.corpus import _renderer
from suites.isa.nir_builder import Nir
from suites.isa.refused import REFUSED


@pytest.mark.parametrize(("text", "form"), REFUSED, ids=[row[0] for row in REFUSED])
def test_each_has_its_reason(text: str, form: str) -> None:
    """And no other form is what keeps the example from running."""
    instr = assemble(text)
    assert [found.form for found in REFUSALS if found.holds(instr)] == [form]
    assert refusal(instr) == next(found.reason for found in REFUSALS if found.form == form)


def test_all_forms_have_an_example() -> None:
    assert {form for _, form in REFUSED} == {found.form for found in REFUSALS}


def test_every_instruction_does_something_or_says_why_not() -> None:
    """And what a reason names is Mesa's, or that its compiler builds no such instruction."""
    for op in OPS:
        assert op.compute is not None or op.effect is not None, op.name
        if isinstance(op.effect, Unsupported):
            assert "Mesa" in op.effect.reason or "graphics" in op.effect.reason, op.name


def test_programs_of_mesa_hold_none() -> None:
    for name, compiled in (nir.programs() | nir_textures.programs()).items():
        for instr in Program.decode(compiled.shader.code).instrs:
            assert refusal(instr) is None, name


def test_what_the_compiler_knows_of_the_chip() -> None:
    """The conditions that the reasons name."""
    chip = _renderer(False).compiler.cc
    assert chip.gen == 6
    lacking = ["has_isam_v", "has_ssbo_imm_offsets", "has_getfiberid", "has_scalar_alu", "has_early_preamble"]
    lacking += ["load_shader_consts_via_preamble", "load_inline_uniforms_via_preamble_ldgk", "has_alias_tex"]
    assert not any(getattr(chip, name) for name in lacking)


def _compiled(make: Callable[[Nir], None]) -> list[Instr]:
    n = Nir()
    make(n)
    return list(Program.decode(n.compile("refused").shader.code).instrs)


def _refused(instrs: list[Instr]) -> set[str]:
    return {instr.op.name for instr in instrs if refusal(instr) is not None}


DERIVED = {"tex": "", "txb": "bias", "lod": ""}


@pytest.mark.parametrize("operation", DERIVED)
def test_derivatives_come_with_a_group_that_drivers_do_not_offer(operation: str) -> None:
    """Without it Mesa gives the level of detail itself; with it the instructions that are refused, or sam.

    To ask for the level of detail itself is not asked without a group: Mesa's pass would end the process.
    """

    def sampled(group: int, n: Nir) -> None:
        n.info.derivative_group = group
        place = n.alu("vec2", *[n.alu("u2f32", n.lane)] * 2)
        further = {DERIVED[operation]: n.number(0.5, dtypes.float)} if DERIVED[operation] else {}
        count = 2 if operation == "lod" else 4
        n.store(n.texture(operation, mesa.GLSL_SAMPLER_DIM_2D, count=count, coord=place, **further))

    grouped = _compiled(partial(sampled, mesa.DERIVATIVE_GROUP_LINEAR))
    samples = [instr for instr in grouped if instr.op.cat == 5]
    assert len(samples) == 1 and (_refused(grouped) or _implicit(samples[0]))
    if operation != "lod":
        plain = _compiled(partial(sampled, mesa.DERIVATIVE_GROUP_NONE))
        assert not _refused(plain) and not any(map(_implicit, plain))


def _implicit(instr: Instr) -> bool:
    return isinstance(instr.op.effect, Sample) and instr.op.effect.detail is Detail.IMPLICIT


def test_derivatives_of_numbers_are_refused() -> None:
    """Nothing keeps them out of NIR but the frontends, which want the same group."""
    for name in ("ddx", "ddy", "ddx_fine", "ddy_fine"):
        instrs = _compiled(lambda n, name=name: n.store(  # type: ignore[misc]
            n.intrinsic(name, n.alu("u2f32", n.load(1)), vector=1)
        ))  # fmt: skip
        assert _refused(instrs), name


def test_atomics_of_64_bits_on_storage_buffers_are_refused() -> None:
    """Mesa's compiler makes them if it is asked; its drivers do not ask for the A630."""

    def change(n: Nir) -> None:
        found = n.intrinsic(
            "ssbo_atomic_swap", n.number(2), n.offset(3), n.load(1, 64), n.load(0, 64), result=1, bits=64,
            ATOMIC_OP=mesa.nir_atomic_op_cmpxchg,
        )  # fmt: skip
        n.store(n.alu("u2u32", found))

    (found,) = [instr for instr in _compiled(change) if refusal(instr) is not None]
    assert [row.form for row in REFUSALS if row.holds(found)] == ["`atomic.b` of 64 bits"]


def test_read_only_memory_is_loaded_before_it_becomes_constants() -> None:
    """As ldg and stc in the preamble, where later chips copy it at once."""

    def load(n: Nir) -> None:
        n.preamble = n.push = True
        words = n.intrinsic("load_ubo", n.number(1), n.number(32), vector=2, ALIGN_MUL=16, RANGE=0xFFFFFFFF)
        place = n.alu("pack_64_2x32_split", nchannel(n.b, words, 0), nchannel(n.b, words, 1))
        access = mesa.ACCESS_NON_WRITEABLE | mesa.ACCESS_CAN_SPECULATE | mesa.ACCESS_CAN_REORDER
        found = n.intrinsic("load_global", place, vector=4, ALIGN_MUL=16, ACCESS=access)
        n.store(n.alu("fadd", found, n.load(1, vector=4)))

    instrs = _compiled(load)
    effects = [type(instr.op.effect) for instr in instrs]
    assert not _refused(instrs) and effects.count(Preset) == 1
    assert any(
        isinstance(instr.op.effect, Load) and instr.op.effect.space is Space.GLOBAL for instr in instrs
    )
