"""The rules against Mesa's legalizer: what it accepts is clean, and every wait that it puts in is needed.

Straight-line programs of random instructions over few registers, so that nearly every one depends on another.
"""

from __future__ import annotations

import numpy as np
import pytest

from pytest_qcom.analysis import findings
from pytest_qcom.analysis.findings import Finding
from pytest_qcom.analysis.hazards import lint
from pytest_qcom.isa.program import Program
from suites.analysis.legalizer import Line, legalize
from suites.analysis.mutations import mutants

WAITS = {
    findings.EARLY_READ,
    findings.EARLY_PREDICATE,
    findings.EARLY_ADDRESS,
    findings.MISSING_SY,
    findings.MISSING_SS,
    findings.OVERWRITE_SY,
    findings.OVERWRITE_SS,
    findings.SOURCE_OVERWRITE,
    findings.BARRIER_WAIT,
}
PRODUCERS = {
    "move": Line("mov.f32f32 r0.x, c0.x", (1, 1)),
    "add": Line("add.f r0.x, r4.x, r4.y", (1, 1, 1)),
    "mad": Line("mad.f32 r0.x, r4.x, r4.y, r4.z", (1, 1, 1, 1)),
    "shift": Line("shl.b r0.x, r4.x, 3", (1, 1, 1)),
    "repeat": Line("(rpt2)add.f r0.x, (r)r4.x, r4.y", (3, 3, 1)),
    "half": Line("add.f hr0.x, hr8.x, hr8.y", (1, 1, 1)),
    "predicate": Line("cmps.s.lt p0.x, r4.x, 5", (1, 1, 1)),
    "special": Line("rcp r0.x, r4.x", (1, 1)),
    "sample": Line("isam (f32)(xyzw)r0.x, r4.x, s#0, t#0", (4, 2)),
    "load": Line("ldg.u32 r0.x, g[r4.x], 1", (1, 2)),
    "local load": Line("ldl.u32 r0.x, l[r4.x], 1", (1, 1)),
}
CONSUMERS = {
    "move": Line("mov.f32f32 r2.x, r0.x", (1, 1)),
    "add": Line("add.f r2.x, r0.x, r5.x", (1, 1, 1)),
    "mad factor": Line("mad.f32 r2.x, r5.x, r0.x, r5.y", (1, 1, 1, 1)),
    "mad addend": Line("mad.f32 r2.x, r5.x, r5.y, r0.x", (1, 1, 1, 1)),
    "select": Line("sel.b32 r2.x, r5.x, r5.y, r0.x", (1, 1, 1, 1)),
    "repeat": Line("(rpt1)add.f r2.x, (r)r0.x, r5.x", (2, 2, 1)),
    "half": Line("add.f hr4.x, hr0.x, hr8.x", (1, 1, 1)),
    "special": Line("rcp r2.x, r0.x", (1, 1)),
    "sample": Line("isam (f32)(xyzw)r2.x, r0.x, s#0, t#0", (4, 2)),
    "store data": Line("stg.u32 g[r5.x], r0.x, 1", (1, 2, 1, 1)),
    "load address": Line("ldg.u32 r2.x, g[r0.x], 1", (1, 2)),
    "branch": Line("br p0.x, #1"),
    "overwrite": Line("add.f r0.x, r5.x, r5.y", (1, 1, 1)),
    "source overwrite": Line("add.f r4.x, r5.x, r5.y", (1, 1, 1)),
}


def waits(program: Program) -> list[Finding]:
    """What a program fails to wait for, in Mesa's view of registers."""
    found = lint(program, fregs=48, hregs=0, as_mesa=True)
    return [finding for finding in found if finding.rule in WAITS]


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_every_class_waits_as_long_as_mesa_makes_it(producer: str, consumer: str) -> None:
    program = Program.decode(legalize([PRODUCERS[producer], CONSUMERS[consumer]]))
    assert waits(program) == []
    for mutant in mutants(program):
        assert waits(mutant.program), (mutant.wait, mutant.index, program.text())


class Random:
    """Random instructions over r1.x to r4.w and hr2.x to hr5.w, which overlap in merged mode.

    Not r0.x: Mesa's parser gives stores a destination that they do not have, and that is r0.x.
    """

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)

    def full(self, components: int = 1, first: int = 1) -> str:
        index, component = self.draw.integers(first, first + 4), self.draw.integers(0, 5 - components)
        return f"r{index}.{'xyzw'[component]}"

    def half(self, components: int = 1) -> str:
        return f"h{self.full(components, first=2)}"

    def line(self) -> Line:
        kinds = (self.alu, self.alu, self.alu, self.repeated, self.mixed, self.special, self.memory)
        return kinds[self.draw.integers(0, len(kinds))]()

    def alu(self) -> Line:
        half = self.draw.integers(0, 2)
        r = self.half if half else self.full
        width = 16 if half else 32
        choice = self.draw.integers(0, 5)
        if choice == 0:
            return Line(f"add.f {r()}, {r()}, {r()}", (1, 1, 1))
        if choice == 1:
            return Line(f"mad.f{width} {r()}, {r()}, {r()}, {r()}", (1, 1, 1, 1))
        if choice == 2:
            return Line(f"mov.f{width}f{width} {r()}, {r()}", (1, 1))
        if choice == 3:
            return Line(f"sel.b{width} {r()}, {r()}, {r()}, {r()}", (1, 1, 1, 1))
        return Line(f"cmps.f.lt p0.x, {r()}, {r()}", (1, 1, 1))

    def repeated(self) -> Line:
        half = self.draw.integers(0, 2)
        r = self.half if half else self.full
        more = int(self.draw.integers(1, 4))
        count = more + 1
        if self.draw.integers(0, 2):
            return Line(f"(rpt{more})add.f {r(count)}, (r){r(count)}, {r()}", (count, count, 1))
        text = f"(rpt{more})mad.f{16 if half else 32} {r(count)}, {r()}, (r){r(count)}, (r){r(count)}"
        return Line(text, (count, 1, count, count))

    def mixed(self) -> Line:
        if self.draw.integers(0, 2):
            return Line(f"cov.f32f16 {self.half()}, {self.full()}", (1, 1))
        return Line(f"cov.f16f32 {self.full()}, {self.half()}", (1, 1))

    def special(self) -> Line:
        return Line(f"rcp {self.full()}, {self.full()}", (1, 1))

    def memory(self) -> Line:
        choice, count = self.draw.integers(0, 5), int(self.draw.integers(1, 5))
        if choice == 0:
            return Line(f"isam (f32)(xyzw){self.full(4)}, {self.full(2)}, s#0, t#0", (4, 2))
        if choice == 1:
            return Line(f"ldg.u32 {self.full(count)}, g[{self.full(2)}], {count}", (count, 2))
        if choice == 2:
            return Line(f"stg.u32 g[{self.full(2)}], {self.full(count)}, {count}", (1, 2, 1, count))
        if choice == 3:
            return Line(f"ldl.u32 {self.full(count)}, l[{self.full()}], {count}", (count, 1))
        return Line(f"isam (f16)(xyzw){self.half(4)}, {self.full(2)}, s#0, t#0", (4, 2))


def _compare(seeds: range) -> int:
    """Checks random programs and all of their mutants; how many mutants there were."""
    made = 0
    for seed in seeds:
        source = Random(seed)
        program = Program.decode(legalize([source.line() for _ in range(16)]))
        assert waits(program) == [], (seed, program.text())
        for mutant in mutants(program):
            made += 1
            assert waits(mutant.program), (seed, mutant.wait, mutant.index, program.text())
    return made


def test_random_programs_wait_as_mesa_makes_them() -> None:
    assert _compare(range(100)) > 600


@pytest.mark.long
def test_many_random_programs_wait_as_mesa_makes_them() -> None:
    assert _compare(range(1000, 3000)) > 12000
