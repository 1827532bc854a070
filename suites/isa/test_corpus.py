"""Compiled shaders: every word decodes with Mesa's text, and the image comes back byte for byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_qcom.isa.decoder import decode
from pytest_qcom.isa.encoder import encode
from pytest_qcom.isa.instruction import Store, Unsupported
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Ty
from pytest_qcom.isa.text import text
from suites.isa import nir, nir_alu, nir_textures, oracle
from suites.isa.corpus import Shader, corpus


def check(shaders: Sequence[Shader]) -> None:
    words = sorted({word for shader in shaders for (word,) in struct.iter_unpack("<Q", shader.code)})
    for word, mesa in zip(words, oracle.disassemble(words), strict=True):
        instr = decode(word)
        assert (text(instr), encode(instr)) == (mesa, word)
        assert not isinstance(instr.op.effect, Unsupported), f"{mesa} is compiled but cannot be executed"
    for shader in shaders:
        program = Program.decode(shader.code)
        assert program.encode() == shader.code, shader.name
        assert program.footprint() == (shader.fregs, shader.hregs), shader.name
        blocks = program.blocks()
        starts = {block.start for block in blocks}
        assert all(successor in starts for block in blocks for successor in block.successors)
        assert sum(block.stop - block.start for block in blocks) == len(program.instrs)


def test_compiled_shaders() -> None:
    shaders = corpus()
    assert len(shaders) > 90
    check(shaders)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_compiled_shaders() -> None:
    shaders = corpus(long=True)
    assert len(shaders) > 350
    check(shaders)


def test_programs_that_tinygrad_does_not_write() -> None:
    """Buffers, images, atomics and exchange within a wave, see :mod:`suites.isa.nir`."""
    shaders = [found.shader for found in nir.programs().values()]
    wide = [shader for shader in shaders if _stores_bytes(shader)]
    check([shader for shader in shaders if shader not in wide])
    assert (len(shaders), len(wide)) == (303, 8)
    for shader in wide:  # one byte is stored of the four registers that the instruction names
        fregs, hregs = Program.decode(shader.code).footprint()
        assert fregs == shader.fregs and 0 <= hregs - shader.hregs <= 1
        check([replace(shader, hregs=hregs)])


def test_programs_with_textures() -> None:
    """Of all shapes, see :mod:`suites.isa.nir_textures`."""
    check([found.shader for found in nir_textures.programs().values()])


@pytest.mark.long
def test_programs_of_single_operations() -> None:
    """Of NIR's arithmetic, see :mod:`suites.isa.nir_alu`."""
    check([nir_alu.program(operation).shader for operation in nir_alu.OPERATIONS])


def _stores_bytes(shader: Shader) -> bool:
    return any(
        isinstance(instr.op.effect, Store) and instr.get("typed") and instr.type is Ty.U16
        for instr in Program.decode(shader.code).instrs
    )
