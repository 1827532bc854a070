"""What the encoding can hold and the hardware cannot execute."""

from __future__ import annotations

import pytest

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.assembler import Assembler, assemble
from pytest_qcom.isa.legality import violations
from pytest_qcom.isa.program import Program
from suites.isa.corpus import corpus

ROWS = [
    ("add.f r0.x, c0.x, c1.x",
     "reads c0.x and c1.x, but only one source may be a constant or shared; move one to a register"),
    ("add.f r0.x, c<a0.x + 1>, r48.x",
     "reads c<a0.x + 1> and r48.x, but only one source may be a constant or shared; move one to a register"),
    ("add.u r0.x, 1, 2", "has two immediates; move one to a register"),
    ("mov.u32u32 r<a0.x + 1>, r<a0.x + 2>",
     "has a relative source and a relative destination; move the source first"),
    ("mad.f32 r0.x, r1.x, r48.x, r2.x",
     "reads the shared register r48.x as its second source; make it another"),
    ("rcp r0.x, c1.x", "reads c1.x, but the special functions read registers only"),
    ("rcp r0.x, (2.0)", "reads (2.0), but the special functions read registers only"),
    ("isam.1d (f32)(x)r0.x, r48.x, s#0, t#0",
     "reads the shared register r48.x; textures read fiber registers"),
    ("atomic.add.untyped.1d.u32.1.l r0.x, l[r1.x], 5", "takes the number 5, but atomics read registers only"),
    ("mov.u32u32 r56.x, r0.x", "touches r56.x, which does not exist: the file ends at r55.w"),
    ("ldg.f32 r47.z, g[r0.x], 4", "runs from r47.w into the shared register r48.x; start lower"),
    ("(rpt3)mov.u32u32 r0.x, (r)r47.z", "runs from r47.w into the shared register r48.x; start lower"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "violation"), ROWS, ids=[row[0] for row in ROWS])
def test_violations(line: str, violation: str) -> None:
    assert violations(assemble(line)) == (violation,)
    with pytest.raises(EncodeError) as caught:
        Assembler().parse(f"nop\n{line}\nend").program()
    assert str(caught.value).startswith("instruction 1 (")
    assert str(caught.value).endswith(f") {violation}")


@pytest.mark.parametrize(
    "line",
    [
        "add.f r0.x, c0.x, r1.x",
        "add.u r0.x, r48.x, 5",
        "mad.f32 r0.x, c1.x, r2.x, c3.x",
        "sad.s32 r2.y, c20.y, (neg)r4.y, r4.x",
        "sub.u r0.x, 1, c2.x",
        "mov.u32u32 r47.w, r0.x",
        "ldg.f32 r47.x, g[r0.x], 4",
        "mov.u32u32 r48.z, r0.x",
        "(rpt1)mov.u32u32 r48.x, (r)r0.x",
        "shfl.xor.u32 r0.x, r1.x, r48.x",
        "cmps.s.eq p0.x, r1.x, 300",
    ],
)
def test_near_misses_are_fine(line: str) -> None:
    assert violations(assemble(line)) == ()


def test_compilers_emit_none() -> None:
    """Mesa is the judge: nothing that it compiles for the a630 is called illegal."""
    checked = 0
    for shader in corpus():
        for instr in Program.decode(shader.code).instrs:
            assert violations(instr) == ()
            checked += 1
    assert checked > 10_000
