"""Compiled programs: none has a finding, and one whose wait is taken out has one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from tinygrad import Tensor, dtypes

from pytest_qcom import fidelity
from pytest_qcom.analysis.findings import UNINITIALIZED, Finding
from pytest_qcom.analysis.hazards import lint
from pytest_qcom.isa.program import Program
from suites.analysis.mutations import Mutant, mutants
from suites.analysis.test_legalizer import WAITS
from suites.isa import nir, nir_textures
from suites.isa.corpus import DEVICE, Shader, compile_tensors, corpus

SMALL = 150  # instructions of a program whose mutants are all tried in the short run


def found(shader: Shader, program: Program, as_mesa: bool = False) -> tuple[Finding, ...]:
    return lint(program, fregs=shader.fregs, hregs=shader.hregs, as_mesa=as_mesa)


def _clean(shaders: tuple[Shader, ...]) -> None:
    wrong: dict[str, list[str]] = {}
    for shader in shaders:
        program = Program.decode(shader.code)
        for as_mesa in (False, True):
            for finding in found(shader, program, as_mesa):
                wrong.setdefault(shader.name, []).append(str(finding))
    assert wrong == {}


def test_compiled_programs_have_no_finding() -> None:
    assert len(corpus()) > 80
    _clean(corpus())


def test_programs_that_tinygrad_does_not_write_have_no_finding() -> None:
    """But for bytes: the store of one names four registers, three of which Mesa leaves unwritten."""
    shaders = {name: compiled.shader for name, compiled in nir.programs().items()}
    words = tuple(shader for name, shader in shaders.items() if "_8x" not in name)
    assert (len(shaders), len(words)) == (303, 291)
    _clean(words)
    _clean(tuple(compiled.shader for compiled in nir_textures.programs().values()))


class Share:
    """How many of the mutants have a finding, by kind of wait; and those that Mesa alone would mind."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.caught: Counter[str] = Counter()
        self.explained: Counter[str] = Counter()
        self.missed: list[str] = []

    def add(self, shader: Shader, mutant: Mutant) -> None:
        self.made[mutant.wait] += 1
        if self._noticed(shader, mutant, False):
            self.caught[mutant.wait] += 1
        elif self._noticed(shader, mutant, True):
            self.explained[mutant.wait] += 1
        else:
            self.missed.append(f"{shader.name} #{mutant.index} {mutant.wait}")

    def _noticed(self, shader: Shader, mutant: Mutant, as_mesa: bool) -> bool:
        return any(finding.rule in WAITS for finding in found(shader, mutant.program, as_mesa))

    def __str__(self) -> str:
        lines = [
            f"{wait}: {self.made[wait]} removed, {self.caught[wait]} noticed, {self.explained[wait]} needed "
            "only in Mesa's view (split files, time that a flag waits, slot of a branch)"
            for wait in sorted(self.made)
        ]
        return "\n".join([*lines, f"unexplained: {len(self.missed)}", *self.missed])


def _sampled(shaders: tuple[Shader, ...], each: int) -> Iterator[tuple[Shader, Mutant]]:
    random = np.random.default_rng(5)
    for shader in shaders:
        all_of_them = list(mutants(Program.decode(shader.code)))
        chosen = random.permutation(len(all_of_them))[:each]
        for number in chosen:
            yield shader, all_of_them[number]


def shares(shaders: tuple[Shader, ...], each: int) -> Share:
    share = Share()
    for shader, mutant in _sampled(shaders, each):
        share.add(shader, mutant)
    print(share)
    return share


def _judge(share: Share) -> None:
    total = sum(share.made.values())
    for flag in ("sy", "ss"):
        assert share.caught[flag] + share.explained[flag] == share.made[flag]
    assert sum(share.caught.values()) >= 0.9 * total
    # Mesa pads the address of a local access as if it had two registers
    assert len(share.missed) <= 0.002 * total, str(share)


def test_removed_waits_are_noticed() -> None:
    small = tuple(shader for shader in corpus() if len(shader.code) <= SMALL * 8)
    share = shares(small, each=12)
    assert sum(share.made.values()) > 400
    _judge(share)


@pytest.mark.long
def test_many_compiled_programs_have_no_finding() -> None:
    _clean(corpus(long=True))


@pytest.mark.long
def test_the_page_tells_what_is_noticed() -> None:
    from suites.analysis.shares import facts

    assert fidelity.figures()["mutations"] == facts()


@pytest.mark.long
def test_removed_waits_are_noticed_everywhere() -> None:
    _judge(shares(corpus(long=True), each=30))


def test_the_checker_finds_a_miscompiled_program() -> None:
    """tinygrad launches split files; Mesa compiles this product as if hr1.xy were the halves of r0.z.

    Its compiler record says merged, the shader's says split, and a move between the two goes missing.
    """
    a, b = (Tensor.empty(64, 64, dtype=dtypes.half, device=DEVICE) for _ in range(2))
    wrong: list[Finding] = []
    for shader in compile_tensors("product", lambda: a.matmul(b, dtype=dtypes.half), "images"):
        wrong += found(shader, Program.decode(shader.code))
    assert {finding.rule for finding in wrong} == {UNINITIALIZED}
    assert all("is another register in split mode" in finding.fix for finding in wrong)
