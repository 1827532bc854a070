"""What holds of the checker for any program: waits only help, and what is taken out is missed."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from pytest_qcom import linting
from pytest_qcom.analysis.findings import Finding, errors
from pytest_qcom.analysis.graph import targeted
from pytest_qcom.analysis.hazards import lint
from pytest_qcom.isa.instruction import Instr
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.kernels.waits import nop
from suites.analysis.mutations import mutants
from suites.analysis.test_legalizer import WAITS

NAMES = (
    "gemm_4x4_fp16",
    "gemm_4xn_fp16_published",
    "gemm_8x4_fp16",
    "gemm_8x8_fp16",
    "gemm_8x8_fp16_published",
    "gemm_4x8_fp32",
    "gemm_4x8_fp32_rotate",
    "gemm_4x8_fp32_splitk",
    "gemm_8x4_fp32_published",
    "gemm_dp4",
    "gemm_int8_fp32",
    "pack_banked",
    "shfl_probe",
)
"""Kernels with all kinds of waits."""
LARGEST = 240  # instructions


@functools.cache
def builds() -> dict[str, Build]:
    """The first short case of each."""
    found: dict[str, Build] = {}
    for name in NAMES:
        kernel = KERNELS[name]
        made = (kernel.build(kernel.configure({}, case.name)) for case in kernel.cases[:6])
        found[name] = next(build for build in made if len(build.program.instrs) <= LARGEST)
    return found


def hazards(build: Build, program: Program, as_mesa: bool = False) -> tuple[Finding, ...]:
    """The errors of a program under a build's registers."""
    return errors(lint(program, **linting.registers(build), as_mesa=as_mesa))


def inserted(program: Program, at: int, new: Instr) -> Program:
    """The program with an instruction before number ``at``; branches lead where they led."""
    instrs = []
    for index, instr in enumerate(program.instrs):
        if index == at:
            instrs.append(new)
        if targeted(instr):
            target = index + instr["target"]
            moved = (target + (target >= at)) - (index + (index >= at))
            attrs = tuple((name, moved if name == "target" else value) for name, value in instr.attrs)
            instr = replace(instr, attrs=attrs)
        instrs.append(instr)
    return Program(tuple(instrs))


def waiting(program: Program, draw: random.Random) -> Program:
    """The program with one wait more: a nop, a slot of a nop, (nopN), (ss) or (sy)."""
    at = draw.randrange(len(program.instrs))
    instr = program.instrs[at]
    more = []
    if instr.op.cat in (0, 1, 2, 3, 4, 7) and not instr.ss:
        more.append(replace(instr, ss=True))
    if not instr.sy:
        more.append(replace(instr, sy=True))
    if instr.op.cat in (2, 3) and not instr.rpt and instr.nop < 3:
        more.append(replace(instr, nop=instr.nop + 1))
    if not more or draw.random() < 0.4:
        return inserted(program, at, replace(nop(draw.randrange(6)), ss=draw.random() < 0.3))
    return Program((*program.instrs[:at], draw.choice(more), *program.instrs[at + 1 :]))


def test_a_wait_more_keeps_a_program_clean() -> None:
    draw = random.Random(3)
    tried = 0
    for name, build in builds().items():
        if hazards(build, build.program):
            continue
        program = build.program
        for _ in range(4):
            for _ in range(5):
                program = waiting(program, draw)
            tried += 1
            assert not hazards(build, program), name
    assert tried >= 36


def test_a_wait_more_never_adds_to_the_hazards() -> None:
    """Of programs whose waits are taken out bit by bit, and of those that were published without."""
    draw = random.Random(4)
    worse = 0
    for name, build in builds().items():
        program = build.program
        made = list(mutants(program))
        for number in (draw.randrange(len(made)) for _ in range(4)):
            before = hazards(build, made[number].program)
            after = hazards(build, waiting(made[number].program, draw))
            assert len(after) <= len(before), (name, [str(finding) for finding in after])
            worse += bool(before)
    assert worse >= 36


def _kinds(build: Build, each: int) -> Iterator[tuple[str, bool, bool]]:
    """(kind of wait, noticed, noticed in Mesa's view) of some programs that lack one wait of the build's."""
    all_of_them = list(mutants(build.program))
    for number in np.random.default_rng(6).permutation(len(all_of_them))[:each]:
        mutant = all_of_them[number]
        ours, mesas = (
            any(finding.rule in WAITS for finding in hazards(build, mutant.program, as_mesa))
            for as_mesa in (False, True)
        )
        yield mutant.wait, ours, mesas


def _share(each: int) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Waits taken out of kernels that are right, by kind: all, noticed, and those only Mesa would mind."""
    made, caught, explained = Counter[str](), Counter[str](), Counter[str]()
    for build in builds().values():
        if hazards(build, build.program):
            continue
        for wait, ours, mesas in _kinds(build, each):
            made[wait] += 1
            caught[wait] += ours
            explained[wait] += mesas and not ours
    print(f"taken out {dict(made)}, noticed {dict(caught)}, in Mesa's view alone {dict(explained)}")
    return made, caught, explained


def test_waits_that_kernels_need_are_missed() -> None:
    """Our kernels have few waits that they do not need, such as a (sy) a group."""
    made, caught, _ = _share(each=6)
    assert sum(made.values()) > 50
    assert sum(caught.values()) >= 0.85 * sum(made.values())


@pytest.mark.long
def test_waits_that_kernels_need_are_missed_everywhere() -> None:
    made, caught, _ = _share(each=100)
    assert sum(caught.values()) >= 0.85 * sum(made.values())
