"""How long the checker takes: a benchmark, printed and never judged."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pytest_qcom.analysis.hazards import lint
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program

LOOP = """
    (sy)(rpt3)mad.f16 hr0.x, hr4.x, (r)hr8.x, (r)hr0.x
    (rpt3)mad.f16 hr1.x, hr4.y, (r)hr8.x, (r)hr1.x
    mov.u32u32 r2.x, r0.x
    mov.u32u32 r2.y, r0.y
    (rpt5)nop
    isam.1d (f16)(xyzw)hr4.x, r2.x, s#0, t#0
    add.s r3.x, r0.x, 1
    (rpt3)mad.f32 r4.x, r5.x, (r)r6.x, (r)r4.x
    (nop3)cmps.s.lt p0.x, r3.x, 9
    (ss)(rpt2)nop
"""


@pytest.fixture(scope="module")
def program() -> Program:
    """1,000 instructions in ten loops."""
    bodies = (f"loop{i}:\n" + LOOP * 10 + f"br p0.x, #loop{i}\n" for i in range(10))
    made = Assembler().parse("".join(bodies) + "end").program()
    assert 1000 <= len(made.instrs) <= 1020
    return made


def test_lint_of_a_thousand_instructions(benchmark: BenchmarkFixture, program: Program) -> None:
    found = benchmark.pedantic(
        lambda: lint(program, fregs=12, hregs=12), rounds=5, iterations=1, warmup_rounds=1
    )
    assert isinstance(found, tuple)
