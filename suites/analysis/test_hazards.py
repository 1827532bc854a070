"""Each rule of the checker: a program that breaks it, with the whole finding, and one that just does not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pytest_qcom.analysis.findings import RULES
from pytest_qcom.analysis.hazards import check, lint, preset, to_json, to_sarif
from pytest_qcom.errors import HazardError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Reg
from pytest_qcom.timings import Launch


@dataclass(frozen=True)
class Case:
    """``bad`` breaks ``rule`` once, with the message ``said``; ``good`` differs by the fix."""

    rule: str
    bad: str | Program
    good: str
    said: str
    launch: dict[str, Any] = field(default_factory=dict)
    good_launch: dict[str, Any] | None = None


def launched_as(local: tuple[int, int, int], groups: tuple[int, int, int] = (1, 1, 1)) -> Launch:
    """A launch in THREAD64 mode with the ids where CL binaries have them."""
    return Launch(local, groups, False, 12, 12, False, 0, 0, b"")


def twice(text: str) -> Program:
    """The program whose first instruction has its first source as its second too."""
    first, *others = program(text).instrs
    return Program((replace(first, srcs=first.srcs[:1] * 2), *others))


def far(text: str) -> Program:
    """The program whose second instruction has 1024 as its second source."""
    before, instr, *others = program(text).instrs
    wide = replace(instr, srcs=(instr.srcs[0], replace(instr.srcs[1], value=1024)))
    return Program((before, wide, *others))


def program(text: str | Program) -> Program:
    return Assembler().parse(text).program() if isinstance(text, str) else text


WALK = """
    (rpt3)mov.f32f32 r2.x, (1.0)
    mov.u32u32 r1.y, 0
    mov.u32u32 r1.z, r51.w
    (rpt2)nop
    shl.b r1.x, r1.z, 6
    (rpt2)nop
    add.s r1.x, r1.x, r0.x
    (rpt5)nop
    loop:
    (sy)nop
    nop
    stib.b.typed.2d.f32.4.imm r2.x, r1.x, 0
    add.s r1.w, r1.y, 1
    (rpt2)nop
    cmps.s.lt p0.x, r1.w, {last}
    (ss)nop
    add.s r1.y, r1.y, 1
    (rpt5)nop
    br p0.x, #loop
    end
"""

FOUR = "(rpt3)mov.f32f32 r1.x, (1.0)\n"

CASES = {
    "ALU to ALU": Case(
        "early-read",
        "add.f r1.x, r0.x, r0.y\n(nop1)add.f r1.y, r0.x, r0.y\nmul.f r1.z, r1.x, r0.x\nend",
        "add.f r1.x, r0.x, r0.y\n(nop2)add.f r1.y, r0.x, r0.y\nmul.f r1.z, r1.x, r0.x\nend",
        "early-read r1.x at #2 `mul.f r1.z, r1.x, r0.x` of #0 `add.f r1.x, r0.x, r0.y`, "
        "2 slots apart, 3 needed: reads r1.x from before the write; fix: (nop2) on #1",
    ),
    "addend": Case(
        "early-read",
        "mul.f r1.x, r0.x, r0.y\nmad.f32 r1.y, r0.x, r0.y, r1.x\nend",
        "(nop1)mul.f r1.x, r0.x, r0.y\nmad.f32 r1.y, r0.x, r0.y, r1.x\nend",
        "early-read r1.x at #1 `mad.f32 r1.y, r0.x, r0.y, r1.x` of #0 `mul.f r1.x, r0.x, r0.y`, "
        "0 slots apart, 1 needed: reads r1.x from before the write; fix: (nop1) on #0",
    ),
    "ALU to sample coordinate": Case(
        "early-read",
        "mov.u32u32 r1.x, r0.x\nmov.u32u32 r1.y, r0.y\n(rpt4)nop\n"
        "isam.1d (f32)(xyzw)r2.x, r1.x, s#0, t#0\nend",
        "mov.u32u32 r1.x, r0.x\nmov.u32u32 r1.y, r0.y\n(rpt5)nop\n"
        "isam.1d (f32)(xyzw)r2.x, r1.x, s#0, t#0\nend",
        "early-read r1.y at #3 `isam.1d (f32)(xyzw)r2.x, r1.x, s#0, t#0` of #1 `mov.u32u32 r1.y, r0.y`, "
        "5 slots apart, 6 needed: reads r1.y from before the write; fix: (rpt5)nop at #2",
    ),
    "ALU to special function": Case(
        "early-read",
        "add.f r1.x, r0.x, r0.y\nrcp r1.y, r1.x\nend",
        "add.f r1.x, r0.x, r0.y\n(rpt5)nop\nrcp r1.y, r1.x\nend",
        "early-read r1.x at #1 `rcp r1.y, r1.x` of #0 `add.f r1.x, r0.x, r0.y`, 0 slots apart, 6 needed: "
        "reads r1.x from before the write; fix: (rpt5)nop before #1",
    ),
    "repeats overlap in time": Case(
        "early-read",
        "(rpt2)mov.f32f32 r1.x, (1.0)\nadd.f r2.x, r1.z, r0.x\nend",
        "(rpt2)mov.f32f32 r1.x, (1.0)\n(rpt2)nop\nadd.f r2.x, r1.z, r0.x\nend",
        "early-read r1.z at #1 `add.f r2.x, r1.z, r0.x` of #0 `(rpt2)mov.f32f32 r1.x, (1.000000)`, "
        "0 slots apart, 3 needed: reads r1.z from before the write; fix: (rpt2)nop before #1",
    ),
    "predicate to branch": Case(
        "early-predicate",
        "cmps.s.eq p0.x, r48.x, 0\n(rpt4)nop\nbr p0.x, #1\nend",
        "cmps.s.eq p0.x, r48.x, 0\n(rpt5)nop\nbr p0.x, #1\nend",
        "early-predicate p0.x at #2 `br p0.x, #1` of #0 `cmps.s.eq p0.x, r48.x, 0`, 5 slots apart, 6 needed: "
        "reads p0.x from before the write; fix: (rpt5)nop at #1",
    ),
    "address to relative access": Case(
        "early-address",
        "mov.u16u16 hr0.x, 4\n(rpt2)nop\nmova a0.x, hr0.x\nmov.f32f32 r2.x, c<a0.x + 3>\nend",
        "mov.u16u16 hr0.x, 4\n(rpt2)nop\nmova a0.x, hr0.x\n(rpt5)nop\nmov.f32f32 r2.x, c<a0.x + 3>\nend",
        "early-address a0.x at #3 `mov.f32f32 r2.x, c<a0.x + 3>` of #2 `mova a0.x, hr0.x`, "
        "0 slots apart, 6 needed: reads a0.x from before the write; fix: (rpt5)nop before #3",
    ),
    "result of a sample": Case(
        "missing-sy",
        "isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0\n(rpt5)nop\nadd.f r1.x, r2.y, r0.x\nend",
        "isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0\n(rpt5)nop\n(sy)add.f r1.x, r2.y, r0.x\nend",
        "missing-sy r2.y at #2 `add.f r1.x, r2.y, r0.x` of #0 `isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0`, "
        "6 slots apart and no (sy), the result takes 51 cycles or more: "
        "reads r2.y from before the result; fix: (sy) on #2",
    ),
    "result of a sample, far behind": Case(
        "missing-sy",
        "isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0\n" + 10 * "(rpt5)nop\n" + "add.f r1.x, r2.y, r0.x\nend",
        "isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0\n" + 10 * "(rpt5)nop\n" + "(sy)add.f r1.x, r2.y, r0.x\nend",
        "missing-sy r2.y at #11 `add.f r1.x, r2.y, r0.x` of #0 `isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0`, "
        "60 slots apart and no (sy), the result takes 51 cycles or more: "
        "may read r2.y from before the result; fix: (sy) on #11",
    ),
    "result of a special function": Case(
        "missing-ss",
        "rcp r1.x, r0.x\nadd.f r2.x, r1.x, r0.y\nend",
        "rcp r1.x, r0.x\n(ss)add.f r2.x, r1.x, r0.y\nend",
        "missing-ss r1.x at #1 `add.f r2.x, r1.x, r0.y` of #0 `rcp r1.x, r0.x`, "
        "0 slots apart and no (ss), the result takes 8 cycles or more: "
        "reads r1.x from before the result; fix: (ss) on #1",
    ),
    "(sy) does not await special functions": Case(
        "missing-ss",
        "rcp r1.x, r0.x\n(sy)add.f r2.x, r1.x, r0.y\nend",
        "rcp r1.x, r0.x\n(ss)add.f r2.x, r1.x, r0.y\nend",
        "missing-ss r1.x at #1 `(sy)add.f r2.x, r1.x, r0.y` of #0 `rcp r1.x, r0.x`, "
        "0 slots apart and no (ss), the result takes 8 cycles or more: "
        "reads r1.x from before the result; fix: (ss) on #1",
    ),
    "a sample has no (ss)": Case(
        "missing-ss",
        "ldl.u32 r1.x, l[r0.x], 2\nisam.1d (f32)(xyzw)r2.x, r1.x, s#0, t#0\nend",
        "ldl.u32 r1.x, l[r0.x], 2\n(ss)nop\nisam.1d (f32)(xyzw)r2.x, r1.x, s#0, t#0\nend",
        "missing-ss r1.x, r1.y at #1 `isam.1d (f32)(xyzw)r2.x, r1.x, s#0, t#0` of #0 "
        "`ldl.u32 r1.x, l[r0.x], 2`, 0 slots apart and no (ss), the result takes 10 cycles or more: "
        "reads r1.x, r1.y from before the "
        "result; fix: (ss)nop before #1",
    ),
    "late result over a newer value": Case(
        "overwrite-sy",
        "isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0\nmov.f32f32 r2.w, (1.0)\nend",
        "isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0\n(sy)mov.f32f32 r2.w, (1.0)\nend",
        "overwrite-sy r2.w at #1 `mov.f32f32 r2.w, (1.000000)` of #0 "
        "`isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0`, 0 slots apart and no (sy), the result "
        "takes 51 cycles or more: writes r2.w, and the late result then overwrites it; "
        "fix: (sy) on #1",
    ),
    "special function over a newer value": Case(
        "overwrite-ss",
        "rcp r1.x, r0.x\nmov.f32f32 r1.x, (1.0)\nend",
        "rcp r1.x, r0.x\n(ss)mov.f32f32 r1.x, (1.0)\nend",
        "overwrite-ss r1.x at #1 `mov.f32f32 r1.x, (1.000000)` of #0 `rcp r1.x, r0.x`, "
        "0 slots apart and no (ss), the result takes 8 cycles or more: "
        "writes r1.x, and the late result then overwrites it; "
        "fix: (ss) on #1",
    ),
    "coordinate of a sample": Case(
        "source-overwrite",
        "isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0\nadd.s r0.y, r0.y, 1\nend",
        "isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0\n(sy)add.s r0.y, r0.y, 1\nend",
        "source-overwrite r0.y at #1 `add.s r0.y, r0.y, 1` of #0 `isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0`: "
        "changes r0.y before the earlier instruction has read it: that one may use the new value; "
        "fix: (ss) on #1 or (sy) on #1, or another register",
    ),
    "data of a store": Case(
        "source-overwrite",
        "stg.u32 g[r0.x], r0.z, 1\n(sy)mov.u32u32 r0.z, 1\nend",
        "stg.u32 g[r0.x], r0.z, 1\n(ss)mov.u32u32 r0.z, 1\nend",
        "source-overwrite r0.z at #1 `(sy)mov.u32u32 r0.z, 1` of #0 `stg.u32 g[r0.x], r0.z, 1`: "
        "changes r0.z before the earlier instruction has read it: that one may use the new value; "
        "fix: (ss) on #1, or another register",
    ),
    "behind a barrier": Case(
        "barrier-wait",
        "bar.g\nmov.f32f32 r1.x, (1.0)\nend",
        "bar.g\n(ss)nop\n(sy)mov.f32f32 r1.x, (1.0)\nend",
        "barrier-wait at #1 `mov.f32f32 r1.x, (1.000000)` of #0 `bar.g`: "
        "runs before the barrier's memory accesses are done; fix: (ss) on #1 and (sy) on #1",
    ),
    "full registers": Case(
        "full-footprint",
        "mov.f32f32 r8.x, (1.0)\nmov.f32f32 r9.x, (1.0)\nend",
        "mov.f32f32 r8.x, (1.0)\nmov.f32f32 r9.x, (1.0)\nend",
        "full-footprint r8.x at #0 `mov.f32f32 r8.x, (1.000000)`: "
        "reaches beyond fregs=8 into registers of another wave; fix: fregs=10",
        {"fregs": 8},
        {"fregs": 10},
    ),
    "half registers": Case(
        "half-footprint",
        "(rpt3)mov.f16f16 hr5.x, h(1.0)\nend",
        "(rpt3)mov.f16f16 hr5.x, h(1.0)\nend",
        "half-footprint hr5.w at #0 `(rpt3)mov.f16f16 hr5.x, h(1.000000)`: "
        "reaches beyond hregs=5 into registers of another wave; fix: hregs=6",
        {"hregs": 5},
        {"hregs": 6},
    ),
    "half registers in merged mode": Case(
        "half-footprint",
        "mov.f16f16 hr8.x, h(1.0)\nend",
        "mov.f16f16 hr7.w, h(1.0)\nend",
        "half-footprint hr8.x at #0 `mov.f16f16 hr8.x, h(1.000000)`: "
        "reaches beyond hregs=0 into registers of another wave; fix: hregs=9",
        {"fregs": 4, "hregs": 0, "merged": True},
    ),
    "no room for a wave": Case(
        "register-budget",
        "end",
        "end",
        "register-budget at #0 `end`: fregs=40 and hregs=24 take 52 vec4 a fiber of 48: no wave starts; "
        "fix: fewer registers or THREAD64",
        {"fregs": 40, "hregs": 24, "thread128": True},
        {"fregs": 40, "hregs": 24},
    ),
    "never written": Case(
        "uninitialized",
        "mov.f16f16 hr2.x, h(1.0)\n(rpt2)nop\nadd.f r2.x, r1.x, r0.x\nend",
        "mov.f32f32 r1.x, (1.0)\n(rpt2)nop\nadd.f r2.x, r1.x, r0.x\nend",
        "uninitialized r1.x at #2 `add.f r2.x, r1.x, r0.x`: reads in r1.x what an earlier wave left there; "
        "fix: write r1.x before #2; hr2.x, which is written, is another register in split mode",
    ),
    "written at the other width": Case(
        "alias",
        FOUR + "mov.f16f16 hr2.x, h(1.0)\n(rpt5)nop\nadd.f r2.x, r1.x, r0.x\nend",
        FOUR + "mov.f16f16 hr4.x, h(1.0)\n(rpt5)nop\nadd.f r2.x, r1.x, r0.x\nend",
        "alias r1.x at #3 `add.f r2.x, r1.x, r0.x` of #1 `mov.f16f16 hr2.x, h(1.000000)`: "
        "r1.x lies on hr2.x: reads the bits of that value, not an earlier one of r1.x; "
        "fix: another register than hr2.x, or split registers",
        {"merged": True},
    ),
    "out of the program": Case(
        "branch-range",
        "nop\njump #5\nend",
        "nop\njump #1\nend",
        "branch-range at #1 `jump #5`: jumps to #6, outside #0 to #2; fix: a target within the program",
    ),
    "store behind the end": Case(
        "after-end",
        "mov.u32u32 r0.z, 1\n(rpt5)nop\nend\nstg.u32 g[r0.x], r0.z, 1\nend",
        "mov.u32u32 r0.z, 1\n(rpt5)nop\nstg.u32 g[r0.x], r0.z, 1\nend",
        "after-end at #3 `stg.u32 g[r0.x], r0.z, 1` of #2 `end`: never runs: the program ends at #2; "
        "fix: the store before #2, or nothing",
    ),
    "branch behind the end": Case(
        "after-end",
        "end\njump #1\nend",
        "jump #1\nend",
        "after-end at #1 `jump #1` of #0 `end`: never runs: the program ends at #0; "
        "fix: the branch before #0, or nothing",
    ),
    "immediate of a narrow move": Case(
        "immediate-width",
        "mov.u8u8 hr0.x, 300\nend",
        "mov.u8u8 hr0.x, 255\nend",
        "immediate-width at #0 `mov.u8u8 hr0.x, 300`: reads 0x2c, the low 8 bits of 0x12c; "
        "fix: 0x2c, or a wider type",
    ),
    "two constants": Case(
        "illegal-operand",
        twice("add.f r1.x, c0.x, r0.x\nend"),
        "add.f r1.x, c0.x, r0.x\nend",
        "illegal-operand at #0 `add.f r1.x, c0.x, c0.x`: reads c0.x and c0.x, but only one source may be a "
        "constant or shared; fix: move one to a register",
    ),
    "value that a field cannot hold": Case(
        "immediate-width",
        far("nop\nadd.s r1.x, r0.x, 1\nend"),
        "nop\nadd.s r1.x, r0.x, 1023\nend",
        "immediate-width at #1 `add.s r1.x, r0.x, 1024`: has no encoding: add.s: immediate is 1024, the "
        "encoding holds -1024 to 1023; choose a value in range; fix: a value that fits, or a register",
    ),
    "waves of a workgroup": Case(
        "workgroup-waves",
        "end",
        "end",
        "workgroup-waves at #0 `end`: a workgroup of 704 fibers is 11 waves, and fregs=12 and hregs=12 leave "
        "room for 10: it never starts; fix: at most 640 fibers, or fewer registers",
        {"launch": launched_as((704, 1, 1))},
        {"launch": launched_as((640, 1, 1))},
    ),
    "coordinates of a sample": Case(
        "outside-image",
        "mov.u32u32 r1.x, r0.x\nmov.u32u32 r1.y, 4\n(rpt5)nop\n"
        "isam.1d (f32)(xyzw)r2.x, r1.x, s#0, t#0\n(sy)nop\nend",
        "mov.u32u32 r1.x, r0.x\nmov.u32u32 r1.y, 3\n(rpt5)nop\n"
        "isam.1d (f32)(xyzw)r2.x, r1.x, s#0, t#0\n(sy)nop\nend",
        "outside-image r1.y at #3 `isam.1d (f32)(xyzw)r2.x, r1.x, s#0, t#0` of #1 "
        "`mov.u32u32 r1.y, 4`: reads zeros at (0, 4) of an image of 64 by 4 texels, in fiber 0 of workgroup "
        "(0, 0, 0); fix: coordinates within the image, or a larger image",
        {"launch": launched_as((64, 1, 1)), "textures": [(64, 4)]},
    ),
    "coordinates behind a loop": Case(
        "outside-image",
        WALK.format(last=9),
        WALK.format(last=8),
        "outside-image r1.y at #10 `stib.b.typed.2d.f32.4.imm r2.x, r1.x, 0` of #15 `add.s r1.y, r1.y, 1`: "
        "writes nothing at (0, 8) of an image of 128 by 8 texels, in fiber 0 of workgroup (0, 0, 0); "
        "fix: coordinates within the image, or a larger image",
        {"launch": launched_as((64, 1, 1), (2, 1, 1)), "images": [(128, 8)]},
    ),
    "coordinates of the last workgroup": Case(
        "outside-image",
        WALK.format(last=8),
        WALK.format(last=8),
        "outside-image r1.x at #10 `stib.b.typed.2d.f32.4.imm r2.x, r1.x, 0` of #6 `add.s r1.x, r1.x, r0.x`: "
        "writes nothing at (127, 0) of an image of 127 by 8 texels, in fiber 63 of workgroup (1, 0, 0); "
        "fix: coordinates within the image, or a larger image",
        {"launch": launched_as((64, 1, 1), (2, 1, 1)), "images": [(127, 8)]},
        {"launch": launched_as((64, 1, 1), (2, 1, 1)), "images": [(128, 8)]},
    ),
    "no end": Case(
        "missing-end",
        "nop\nnop",
        "nop\nend",
        "missing-end at #1 `nop`: runs on into what lies behind the program; fix: append end",
    ),
    "dead code": Case(
        "unreachable",
        "jump #3\nnop\nnop\nend",
        "jump #1\nnop\nnop\nend",
        "unreachable at #1 `nop`: #1 to #2 never run; fix: remove them, or branch there",
    ),
    "barrier for some": Case(
        "divergent-barrier",
        "cmps.s.eq p0.x, r0.x, 0\n(rpt5)nop\nbr p0.x, #3\nbar.g\n(ss)(sy)nop\n(jp)nop\nend",
        "cmps.s.eq p0.x, r48.x, 0\n(rpt5)nop\nbr p0.x, #3\nbar.g\n(ss)(sy)nop\n(jp)nop\nend",
        "divergent-barrier at #3 `bar.g` of #2 `br p0.x, #3`: "
        "waits for fibers that took the other way: the workgroup never goes on; "
        "fix: a barrier that every fiber reaches",
    ),
    "join": Case(
        "missing-join",
        "cmps.s.eq p0.x, r0.x, 0\n(rpt5)nop\nbr p0.x, #2\nmov.f32f32 r1.x, (1.0)\nnop\nend",
        "cmps.s.eq p0.x, r0.x, 0\n(rpt5)nop\nbr p0.x, #2\nmov.f32f32 r1.x, (1.0)\n(jp)nop\nend",
        "missing-join at #4 `nop` of #2 `br p0.x, #2`: goes on without the fibers that took the other way; "
        "fix: (jp) on #4",
    ),
    "join behind equal moves": Case(  # both sides of the predication leave the same value, or not
        "missing-join",
        "cmps.s.eq p0.x, r0.x, 0\n(rpt5)nop\npredt\nmov.u32u32 r1.x, r48.x\npredf\nmov.u32u32 r1.x, 1\n"
        "prede\n(rpt5)nop\ncmps.s.eq p0.x, r1.x, 0\n(rpt5)nop\nbr p0.x, #2\nmov.f32f32 r1.z, (1.0)\n"
        "nop\nend",
        "cmps.s.eq p0.x, r0.x, 0\n(rpt5)nop\npredt\nmov.u32u32 r1.x, r48.x\npredf\nmov.u32u32 r1.x, r48.x\n"
        "prede\n(rpt5)nop\ncmps.s.eq p0.x, r1.x, 0\n(rpt5)nop\nbr p0.x, #2\nmov.f32f32 r1.z, (1.0)\n"
        "nop\nend",
        "missing-join at #12 `nop` of #10 `br p0.x, #2`: goes on without the fibers that took the other way; "
        "fix: (jp) on #12",
    ),
    "join behind a parallel move": Case(  # each value of it goes its own way
        "missing-join",
        "swz.u32u32 r2.x, r1.x, r0.x, r48.x\n(rpt5)nop\ncmps.s.eq p0.x, r2.x, 0\n(rpt5)nop\n"
        "br p0.x, #2\nmov.f32f32 r1.z, (1.0)\nnop\nend",
        "swz.u32u32 r1.x, r2.x, r0.x, r48.x\n(rpt5)nop\ncmps.s.eq p0.x, r2.x, 0\n(rpt5)nop\n"
        "br p0.x, #2\nmov.f32f32 r1.z, (1.0)\nnop\nend",
        "missing-join at #6 `nop` of #4 `br p0.x, #2`: goes on without the fibers that took the other way; "
        "fix: (jp) on #6",
    ),
}


def said(text: str | Program, launch: dict[str, Any]) -> list[str]:
    return [str(finding) for finding in lint(program(text), **{"fregs": 12, "hregs": 12} | launch)]


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    case = CASES[name]
    assert said(case.bad, case.launch) == [case.said]
    assert said(case.good, case.launch if case.good_launch is None else case.good_launch) == []


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES.values()} == {rule.name for rule in RULES}
    assert all(case.said.startswith(case.rule) for case in CASES.values())


def test_coordinates_that_were_loaded_are_not_known() -> None:
    text = "ldg.u32 r1.x, g[r0.x], 2\n(sy)(rpt5)nop\nisam.1d (f32)(xyzw)r2.x, r1.x, s#0, t#0\n(sy)nop\nend"
    assert said(text, {"launch": launched_as((64, 1, 1)), "textures": [(1, 1)]}) == []


def test_a_hazard_around_a_loop() -> None:
    text = """
        isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0
        mov.u32u32 r1.x, 0
        (rpt2)nop
        loop:
        add.s r1.x, r1.x, 1
        (rpt2)nop
        cmps.s.lt p0.x, r1.x, 9
        (rpt5)nop
        {flag}add.f r3.x, r2.x, r2.y
        isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0
        br p0.x, #loop
        (sy)nop
        end
    """
    assert said(text.format(flag="(sy)"), {}) == []
    finding = lint(program(text.format(flag="")), fregs=12, hregs=12)[0]
    assert (finding.rule.name, finding.consumer.index) == ("missing-sy", 7)
    assert finding.producer is not None and finding.producer.index == 8  # around the loop is nearer


def test_a_short_loop_is_late_for_itself() -> None:
    text = "mov.u32u32 r1.x, 0\n(rpt5)nop\nloop:\nadd.s r1.x, r1.x, 1\nbr {0}, #loop\nend"
    late = said(text.format("p0.x"), {})
    assert any("early-read r1.x at #2" in line and "1 slots apart, 3 needed" in line for line in late)


def test_sides_of_a_predicated_region_do_not_wait_for_each_other() -> None:
    text = """
        cmps.s.eq p0.x, r0.x, 0
        (rpt5)nop
        predt
        isam.1d (f32)(xyzw)r2.x, r0.x, s#0, t#0
        predf
        (rpt3)mov.f32f32 r2.x, (1.0)
        prede
        {flag}add.f r3.x, r2.x, r2.y
        end
    """
    assert said(text.format(flag="(sy)"), {}) == []
    assert [line.split()[0] for line in said(text.format(flag="(rpt2)nop\n"), {})] == ["missing-sy"]


def test_split_files_do_not_wait_for_each_other() -> None:
    text = "add.f r1.x, r0.x, r0.y\nmov.f16f16 hr3.x, hr2.x\nend"
    inputs = {"inputs": {Reg(0), Reg(1), Reg(8, half=True)}}
    assert said(text, inputs) == []
    assert said(text, inputs | {"merged": True})[0].startswith("early-read hr2.x at #1")


def test_a_flag_that_waits_gives_the_alu_time() -> None:
    text = "mul.f r1.x, r0.x, r0.y\nrcp r2.x, r0.x\n(ss)add.f r2.y, r2.x, r1.x\nend"
    assert said(text, {}) == []
    assert [line.split()[0] for line in said(text, {"as_mesa": True})] == ["early-read"]


def test_presets_of_a_launch() -> None:
    class Launch:
        group_id_regid = 192
        local_size_regid = 252
        group_offset_regid = 252
        local_id_regid = 0
        linear_local_id_regid = 4

    assert preset(Launch()) == {Reg(n) for n in (0, 1, 2, 4, 192, 193, 194)}
    assert said("mov.f32f32 r2.x, r1.x\nend", {"inputs": preset(Launch())}) == []
    assert said("mov.f32f32 r2.x, r1.y\nend", {"inputs": preset(Launch())}) != []


def test_check_raises_one_line_with_all_findings() -> None:
    bad = program("rcp r1.x, r0.x\nadd.f r2.x, r1.x, r0.y\nadd.f r3.x, r2.x, r0.y\nend")
    message = (
        "missing-ss r1.x at #1 `add.f r2.x, r1.x, r0.y` of #0 `rcp r1.x, r0.x`, "
        "0 slots apart and no (ss), the result takes 8 cycles or more: "
        "reads r1.x from before the result; fix: (ss) on #1 (and 1 more)"
    )
    with pytest.raises(HazardError) as error:
        check(bad, fregs=12, hregs=12)
    assert str(error.value) == message
    assert [found["rule"] for found in error.value.facts["findings"]] == ["missing-ss", "early-read"]


def test_check_lets_warnings_pass() -> None:
    check(program("jump #2\nnop\nend"), fregs=1, hregs=0)


def test_empty_program() -> None:
    assert [finding.rule.name for finding in lint(Program(()), fregs=1, hregs=0)] == ["missing-end"]


def test_json_and_sarif() -> None:
    found = lint(program(CASES["addend"].bad), fregs=12, hregs=12)
    (entry,) = json.loads(to_json(found))
    assert entry["rule"] == "early-read"
    assert entry["consumer"] == {"index": 1, "text": "mad.f32 r1.y, r0.x, r0.y, r1.x"}
    assert (entry["available"], entry["needed"], entry["fix"]) == (0, 1, "(nop1) on #0")
    log = json.loads(to_sarif(found, "kernel.asm"))
    (run,) = log["runs"]
    (result,) = run["results"]
    assert log["version"] == "2.1.0"
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "early-read"
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "kernel.asm"
    assert location["region"]["startLine"] == 2
    assert result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 1
