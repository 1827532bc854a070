"""Distances against Mesa's own functions: every class of producer and consumer, the same slots between them.

What the checker demands is measured: the fewest idle slots between the two with which it finds nothing.
"""

from __future__ import annotations

import pytest

from pytest_qcom.analysis import findings
from pytest_qcom.analysis.hazards import lint
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from suites.analysis.legalizer import Line, delays, legalize

EARLY = {findings.EARLY_READ, findings.EARLY_PREDICATE, findings.EARLY_ADDRESS}
MOST = 12  # slots; more are never needed

PRODUCERS = {
    "move": Line("mov.f32f32 r1.x, c0.x", (1, 1)),
    "move to half": Line("cov.f32f16 hr1.x, r8.x", (1, 1)),
    "add": Line("add.f r1.x, r8.x, r8.y", (1, 1, 1)),
    "half add": Line("add.f hr1.x, hr8.x, hr8.y", (1, 1, 1)),
    "half add widened": Line("add.f r1.x, hr8.x, hr8.y", (1, 1, 1)),
    "shift": Line("shl.b r1.x, r8.x, 3", (1, 1, 1)),
    "multiply": Line("mull.u r1.x, r8.x, r8.y", (1, 1, 1)),
    "compare": Line("cmps.s.lt r1.x, r8.x, 5", (1, 1, 1)),
    "mad": Line("mad.f32 r1.x, r8.x, r8.y, r8.z", (1, 1, 1, 1)),
    "half mad": Line("mad.f16 hr1.x, hr8.x, hr8.y, hr8.z", (1, 1, 1, 1)),
    "select": Line("sel.b32 r1.x, r8.x, r8.y, r8.z", (1, 1, 1, 1)),
    "repeat 1": Line("(rpt1)add.f r1.x, (r)r8.x, r9.x", (2, 2, 1)),
    "repeat 2": Line("(rpt2)mov.f32f32 r1.x, c0.x", (3, 1)),
    "repeat 3": Line("(rpt3)mad.f32 r1.x, r8.x, (r)r9.x, (r)r10.x", (4, 1, 4, 4)),
    "half repeat 3": Line("(rpt3)mad.f16 hr1.x, hr8.x, (r)hr9.x, (r)hr10.x", (4, 1, 4, 4)),
    "predicate": Line("cmps.s.lt p0.x, r8.x, 5", (1, 1, 1)),
    "address": Line("mova a0.x, hr8.x", (1, 1)),
}
CONSUMERS = {
    "move": Line("mov.f32f32 r2.x, r1.x", (1, 1)),
    "conversion": Line("cov.f32f16 hr20.x, r1.x", (1, 1)),
    "first source": Line("add.f r2.x, r1.x, r9.x", (1, 1, 1)),
    "second source": Line("add.f r2.x, r9.x, r1.x", (1, 1, 1)),
    "half source": Line("add.f hr20.x, hr1.x, hr9.x", (1, 1, 1)),
    "low half of a full one": Line("mov.f16f16 hr20.x, hr2.x", (1, 1)),
    "high half of a full one": Line("add.f hr20.x, hr2.y, hr9.x", (1, 1, 1)),
    "full over two halves": Line("add.f r2.x, r0.z, r9.x", (1, 1, 1)),
    "half source widened": Line("mul.f r2.x, hr9.x, hr1.x", (1, 1, 1)),
    "mad factor": Line("mad.f32 r2.x, r1.x, r9.x, r9.y", (1, 1, 1, 1)),
    "mad second factor": Line("mad.f32 r2.x, r9.x, r1.x, r9.y", (1, 1, 1, 1)),
    "mad addend": Line("mad.f32 r2.x, r9.x, r9.y, r1.x", (1, 1, 1, 1)),
    "half mad addend": Line("mad.f16 hr20.x, hr9.x, hr9.y, hr1.x", (1, 1, 1, 1)),
    "madsh addend": Line("madsh.m16 r2.x, r9.x, r9.y, r1.x", (1, 1, 1, 1)),
    "select condition": Line("sel.b32 r2.x, r9.x, r1.x, r9.y", (1, 1, 1, 1)),
    "select third": Line("sel.b32 r2.x, r9.x, r9.y, r1.x", (1, 1, 1, 1)),
    "shift and or third": Line("shrg r2.x, r9.x, r9.y, r1.x", (1, 1, 1, 1)),
    "repeat 1": Line("(rpt1)add.f r2.x, (r)r1.x, r9.x", (2, 2, 1)),
    "repeat 3": Line("(rpt3)mul.f r4.x, (r)r1.x, (r)r9.x", (4, 4, 4)),
    "repeat that stays": Line("(rpt3)mul.f r4.x, r1.x, (r)r9.x", (4, 1, 4)),
    "repeat behind": Line("(rpt1)mov.f32f32 r4.x, (r)r1.z", (2, 2)),
    "repeated addend": Line("(rpt3)mad.f32 r4.x, r9.x, (r)r10.x, (r)r1.x", (4, 1, 4, 4)),
    "repeated half addend": Line("(rpt3)mad.f16 hr20.x, hr9.x, (r)hr10.x, (r)hr1.x", (4, 1, 4, 4)),
    "special": Line("rcp r2.x, r1.x", (1, 1)),
    "sample": Line("isam (f32)(xyzw)r4.x, r1.x, s#0, t#0", (4, 2)),
    "load address": Line("ldg.u32 r2.x, g[r1.x], 1", (1, 2)),
    "local load": Line("ldl.u32 r2.x, l[r1.x], 1", (1, 1)),
    "branch": Line("br p0.x, #1"),
    "displaced constant": Line("mov.f32f32 r2.x, c<a0.x + 4>", (1, 1)),
    "displaced register": Line("mov.f32f32 r2.x, r<a0.x + 4>", (1, 1)),
}


def demanded(producer: Line, consumer: Line, merged: bool) -> int:
    """The fewest idle slots between the two with which the checker has no distance to complain of."""
    for slots in range(MOST):
        idle = f"(rpt{slots - 1})nop\n" if 1 < slots <= 6 else "nop\n" * slots
        text = f"{producer.text}\n{idle}{consumer.text}\nend"
        program = Assembler().parse(_ours(text)).program()
        found = lint(program, fregs=48, hregs=48, merged=merged, as_mesa=True)
        if not any(finding.rule in EARLY for finding in found):
            return slots
    raise AssertionError(f"{producer.text} and {consumer.text}: more than {MOST} slots")


def padded(producer: Line, consumer: Line, merged: bool) -> int:
    """The slots that Mesa's legalizer puts between the two."""
    instrs = Program.decode(legalize([producer, consumer], merged)).instrs
    kind = Assembler().parse(_ours(consumer.text)).program().instrs[0].op
    last = max(index for index, instr in enumerate(instrs) if instr.op is kind)
    return sum(1 + instr.rpt for instr in instrs[1:last]) + sum(instr.nop for instr in instrs[:last])


def _ours(text: str) -> str:
    return text.replace("isam (f32)", "isam.1d (f32)")


COARSE = (
    "sample",
    "load address",
    "low half of a full one",
    "high half of a full one",
    "full over two halves",
)
"""Consumers of which, behind a repeat, Mesa's two differ: the function, a heuristic of the scheduler, does
not ask when the register is written that counts. The legalizer does, and has the last word."""
DISPLACED = ("displaced constant", "displaced register")
"""Consumers by a0.x, which Mesa's parser does not tie to what wrote it: only the function is asked."""


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_every_pair_of_classes_waits_as_mesa_says(producer: str, merged: bool) -> None:
    """As the delay function says, which schedules, and as the legalizer does."""
    first = PRODUCERS[producer]
    wrong = {}
    for name, consumer in CONSUMERS.items():
        ours = demanded(first, consumer, merged)
        judges = []
        if not (name in COARSE and "repeat" in producer):
            judges.append(max(delays(first, consumer, merged), default=0))
        if name not in DISPLACED:
            judges.append(padded(first, consumer, merged))
        if any(slots != ours for slots in judges):
            wrong[name] = (ours, judges)
    assert wrong == {}
