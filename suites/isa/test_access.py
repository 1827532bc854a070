"""Which registers an instruction touches, and when."""

from __future__ import annotations

import random

import pytest

from pytest_qcom.errors import DecodeError
from pytest_qcom.isa import access
from pytest_qcom.isa.assembler import assemble
from pytest_qcom.isa.decoder import decode
from pytest_qcom.isa.instruction import Kind
from pytest_qcom.isa.reference import Registers
from pytest_qcom.isa.registers import Reg
from pytest_qcom.isa.semantics import evaluate
from pytest_qcom.isa.table import OPS
from suites.isa import strategies

ROWS = [
    ("add.f r0.x, r1.x, r2.x", "r1.x r2.x", "r0.x"),
    ("(rpt2)add.f r0.x, (r)r1.x, r2.x", "r1.x r1.y r1.z r2.x", "r0.x r0.y r0.z"),
    ("(rpt1)mad.f16 hr0.x, hr1.x, (r)hr2.x, (r)hr0.x", "hr0.x hr0.y hr1.x hr2.x hr2.y", "hr0.x hr0.y"),
    ("mul.f r0.x, hr0.x, hc1.x", "hr0.x", "r0.x"),
    ("add.u r0.x, r0.x, 5", "r0.x", "r0.x"),
    ("cmps.u.lt p0.y, r1.x, c2.x", "r1.x", "p0.y"),
    ("mov.u32u32 r0.x, r<a0.x + 4>", "a0.x", "r0.x"),
    ("mov.u32u32 r<a0.x + 4>, r2.x", "a0.x r2.x", ""),
    ("mova a0.x, hr1.x", "hr1.x", "a0.x"),
    ("swz.u32u32 r0.x, r1.x, r2.x, r3.x", "r2.x r3.x", "r0.x r1.x"),
    ("gat.u32u32 r0.x, r4.x, r5.x, r6.x, r7.x", "r4.x r5.x r6.x r7.x", "r0.x r0.y r0.z r0.w"),
    ("sct.f32f32 r0.x, r1.x, r2.x, r3.x, r4.x", "r4.x r4.y r4.z r4.w", "r0.x r1.x r2.x r3.x"),
    ("movmsk.w128 r4.x", "", "r4.x r4.y r4.z r4.w"),
    ("rcp hr0.x, hr1.x", "hr1.x", "hr0.x"),
    ("isam.1d (f16)(xw)hr2.x, r4.z, s#0, t#0", "r4.z r4.w", "hr2.x hr2.w"),
    ("isam.3d.1d (f32)(x)r2.x, r4.z, s#0, t#0", "r4.z r4.w r5.x", "r2.x"),
    ("isam.a.1d (u16)(y)hr2.x, r4.z, s#0, t#0", "r4.z r4.w r5.x", "hr2.y"),
    ("isam.s2en.uniform.1d (f32)(x)r2.x, r4.z, hr0.x", "hr0.x hr0.y r4.z r4.w", "r2.x"),
    ("isam.s2en.uniform.base1.1d (f32)(x)r2.x, r4.z, r7.x", "r4.z r4.w r7.x r7.y", "r2.x"),
    ("isam.base1.1d (f32)(x)r2.x, r4.z, s#0, a1.x", "a1.x r4.z r4.w", "r2.x"),
    ("quad_shuffle.brcst (u32)(x)r0.x, r1.x, r2.x", "r1.x r2.x", "r0.x"),
    ("ldg.f32 r0.x, g[r2.x+4], 3", "r2.x r2.y", "r0.x r0.y r0.z"),
    ("ldg.a.u16 hr0.x, g[r2.x+(r3.z<<1)], 2", "r2.x r2.y r3.z", "hr0.x hr0.y"),
    ("stg.f16 g[r2.x], hr0.x, 2", "hr0.x hr0.y r2.x r2.y", ""),
    ("stg.a.f32 g[r2.x+(r3.z<<2)], r5.x, 2", "r2.x r2.y r3.z r5.x r5.y", ""),
    ("ldl.u16 r4.x, l[r1.x], 2", "r1.x", "hr4.x hr4.y"),
    ("stl.u32 l[r1.x], r4.x, 2", "r1.x r4.x r4.y", ""),
    ("ldp.u32 r4.x, p[r1.x], 2", "r1.x", "r4.x r4.y"),
    ("stp.u8 p[r1.x], r4.x, 1", "hr4.x r1.x", ""),
    ("ldc.offset0.2.uniform r0.x, 0, r3.x", "r3.x", "r0.x r0.y"),
    ("ldib.b.typed.2d.f32.4.imm r0.x, r4.x, 0", "r4.x r4.y", "r0.x r0.y r0.z r0.w"),
    ("stib.b.typed.2d.f32.4.imm r0.x, r4.x, 0", "r0.x r0.y r0.z r0.w r4.x r4.y", ""),
    ("stib.b.untyped.1d.u16.1.nonuniform.base0 hr0.z, r4.x, r7.y", "hr0.z r4.x r7.y", ""),
    ("atomic.add.untyped.1d.u32.1.l r0.x, l[r1.x], r2.x", "r1.x r2.x", "r0.x"),
    ("atomic.cmpxchg.untyped.1d.u32.1.l r0.x, l[r1.x], r2.x", "r1.x r2.x r2.y", "r0.x"),
    ("atomic.g.add.untyped.1d.u32.1.g r0.x, r1.x, r2.x", "r1.x r1.y r2.x", "r0.x"),
    ("atomic.g.add.untyped.1d.u64.1.g r0.x, r1.x, r2.x", "r1.x r1.y r2.x r2.y", "r0.x r0.y"),
    ("atomic.g.cmpxchg.untyped.1d.u64.1.g r0.x, r1.x, r2.x", "r1.x r1.y r2.x r2.y r2.z r2.w", "r0.x r0.y"),
    ("atomic.b.add.typed.3d.u32.1.uniform r0.x, r1.x, r7.x", "r0.y r1.x r1.y r1.z r7.x", "r0.x"),
    ("atomic.b.cmpxchg.untyped.1d.s32.1.imm r0.x, r1.x, 2", "r0.y r0.z r1.x", "r0.x"),
    ("atomic.b.xchg.untyped.1d.u64.1.imm r0.x, r1.x, 2", "r0.z r0.w r1.x", "r0.x r0.y"),
    ("resinfo.b.untyped.1d.u32.1.imm r0.x, 3", "", "r0.x r0.y r0.z"),
    ("shfl.up.u16 hr0.x, hr1.x, r2.x", "hr1.x r2.x", "hr0.x"),
    ("getfiberid.u32 r0.x", "", "r0.x"),
    ("br p0.z, #2", "p0.z", ""),
    ("braa p0.x, !p0.w, #2", "p0.w p0.x", ""),
    ("getone #2", "", ""),
    ("predt", "p0.x", ""),
    ("prede", "", ""),
    ("bar.g", "", ""),
]


def names(registers: list[Reg]) -> str:
    return " ".join(sorted(str(register) for register in registers))


@pytest.mark.parametrize(("line", "reads", "writes"), ROWS, ids=[row[0] for row in ROWS])
def test_registers(line: str, reads: str, writes: str) -> None:
    instr = assemble(line)
    found = sorted({touched.reg for touched in access.reads(instr)})
    assert names(found) == " ".join(sorted(reads.split()))
    assert names([touched.reg for touched in access.writes(instr)]) == " ".join(sorted(writes.split()))


def test_when_and_which_operand() -> None:
    instr = assemble("(rpt1)mad.f32 r0.x, r1.x, (r)r2.x, (r)r0.x")
    found = {(str(touched.reg), touched.element, touched.operand) for touched in access.reads(instr)}
    assert found == {
        ("r1.x", 0, 0),
        ("r1.x", 1, 0),
        ("r2.x", 0, 1),
        ("r2.y", 1, 1),
        ("r0.x", 0, 2),
        ("r0.y", 1, 2),
    }
    assert [(str(w.reg), w.element, w.operand) for w in access.writes(instr)] == [
        ("r0.x", 0, -1),
        ("r0.y", 1, -1),
    ]


class _Watch(Registers):
    """Register files that note what is read."""

    def watch(self) -> None:
        self.seen: set[tuple[int, bool]] = set()

    def read(self, operand, element, ty):  # type: ignore[no-untyped-def]
        moved = access.advance(operand, element)
        if moved.kind is Kind.GPR:
            self.seen.add((moved.value, moved.half))
        return super().read(operand, element, ty)


@pytest.mark.parametrize("op", [op for op in OPS if op.compute is not None], ids=lambda op: op.name)
def test_reads_are_what_the_formula_fetches(op) -> None:  # type: ignore[no-untyped-def]
    """The declared reads of random uses equal the registers that evaluation really asks for."""
    import numpy as np

    from pytest_qcom.isa.reference import NumpyBuilder

    draw = random.Random(op.name)
    files = _Watch(
        np.zeros((300, 2), np.uint32), np.zeros((300, 2), np.uint16), np.zeros(2100, np.uint32),
        np.zeros((4, 2), bool), np.zeros((4, 2), np.int16),
    )  # fmt: skip
    checked = 0
    for _ in range(300):
        try:
            instr = decode(strategies.word_of(op, draw))
        except DecodeError:
            continue
        registers = [source for source in instr.srcs if source.kind is not Kind.IMM]
        if any(source.kind in (Kind.REL_GPR, Kind.REL_CONST) or source.value > 186 for source in registers):
            continue
        files.watch()
        for element in range(access.elements(instr)):
            evaluate(NumpyBuilder(), instr, element, files.read)
        declared = {
            (touched.reg.num, touched.reg.half)
            for touched in access.reads(instr)
            if touched.operand != access.ADDRESSING
        }
        assert files.seen == declared
        checked += 1
    assert checked > 3
