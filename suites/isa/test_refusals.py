"""What is refused is what Mesa's compiler does not emit, as far as it can be asked here."""

from __future__ import annotations

import pytest

from pytest_qcom.isa.assembler import assemble
from pytest_qcom.isa.instruction import Unsupported
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.refusals import REFUSALS, refusal
from pytest_qcom.isa.table import OPS
from suites.isa import nir, nir_textures
from suites.isa.corpus import _renderer
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
