"""The waits of generated kernels: none is missing, none is too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_qcom.analysis.findings import errors
from pytest_qcom.analysis.hazards import lint
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.instruction import Instr
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.edit import branches, replace_instructions
from pytest_qcom.kernels.kernel import Build, Case, Kernel
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.kernels.waits import insert_waits, slots
from suites.analysis.mutations import is_nop
from suites.analysis.test_legalizer import WAITS
from suites.isa import nir
from suites.isa.corpus import corpus
from suites.kernels.conftest import built, cases


def hazards(program: Program, build: Build) -> int:
    return len(
        errors(
            lint(
                program, fregs=build.fregs, hregs=build.hregs, thread128=build.thread128, merged=build.merged
            )
        )
    )


@pytest.mark.parametrize(("kernel", "case"), cases("correct", "probe"))
def test_no_wait_is_missing(kernel: Kernel, case: Case) -> None:
    build = built(kernel.name, case.name)
    assert hazards(build.program, build) == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gemm_4xn_fp16", {"k_unroll": 1}),
        ("gemm_4xn_fp16", {"k_unroll": 1, "ncols": 2}),
        ("gemm_4x4_fp16", {"strip_sync": True}),
        ("texture_bw", {"loads": 12}),
        ("gemm_4x8_fp32", {"paired_coords": True}),
        ("gemm_4x8_fp32", {"preload_b": False}),
        ("gemm_4x8_fp32_rotate", {}),
        ("gemm_4x8_fp32_splitk", {}),
        ("gemm_4x8_fp32_waksman", {}),
        ("gemm_4x4_fp32_quad_b", {}),
        ("gemm_dp4_scaled", {}),
        ("gemm_8x8_fp16_packed", {"packed": "b", "merged_alias": True}),
    ],
    ids=[
        *("4x16", "4x8", "compiled", "texture", "fp32", "fp32-one-bank", "rotate", "splitk", "waksman"),
        *("quad", "dp4", "merged"),
    ],
)
def test_no_wait_is_too_many(name: str, options: dict[str, bool | int]) -> None:
    """Without any flag, or with any idle slot less, there is a hazard."""
    build = KERNELS[name].build(KERNELS[name].configure(options))
    instrs = build.program.instrs
    tried = 0
    for index, instr in enumerate(instrs):
        fewer = [replace(instr, sy=False)] if instr.sy else []
        fewer += [replace(instr, ss=False)] if instr.ss else []
        idle = instr.op.cat == 0 and slots(instr) and not instr.ss and instr.op.name == "nop"
        if idle and instr.rpt:
            fewer.append(replace(instr, rpt=instr.rpt - 1))
        edits = [{index: (change,)} for change in fewer] + ([{index: ()}] if idle and not instr.rpt else [])
        for edit in edits:
            tried += 1
            changed = replace_instructions(build.program, edit)
            assert hazards(changed, build), index
    assert tried > 4


def waited(text: str) -> str:
    return insert_waits(Assembler().parse(text).program()).text()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (  # ALU to ALU: 3 slots
            "add.s r0.x, r0.x, 1\nadd.s r0.y, r0.x, 1\nend",
            "add.s r0.x, r0.x, 1\n(rpt2)nop\nadd.s r0.y, r0.x, 1\nend\n",
        ),
        (  # one that something else fills in part
            "add.s r0.x, r0.x, 1\nadd.s r1.x, r1.x, 1\nadd.s r0.y, r0.x, 1\nend",
            "add.s r0.x, r0.x, 1\nadd.s r1.x, r1.x, 1\n(rpt1)nop\nadd.s r0.y, r0.x, 1\nend\n",
        ),
        (  # the addend of a MAD may be two slots later
            "mad.f16 hr0.x, hr1.x, hr2.x, hr0.x\nmad.f16 hr0.x, hr1.x, hr2.x, hr0.x\nend",
            "mad.f16 hr0.x, hr1.x, hr2.x, hr0.x\nnop\nmad.f16 hr0.x, hr1.x, hr2.x, hr0.x\nend\n",
        ),
        (  # repeats are a chain of their own
            "(rpt3)mad.f16 hr0.x, hr1.x, (r)hr2.x, (r)hr0.x\n"
            "(rpt3)mad.f16 hr0.x, hr1.y, (r)hr3.x, (r)hr0.x\nend",
            "(rpt3)mad.f16 hr0.x, hr1.x, (r)hr2.x, (r)hr0.x\n"
            "(rpt3)mad.f16 hr0.x, hr1.y, (r)hr3.x, (r)hr0.x\nend\n",
        ),
        (  # coordinates: 6 slots; the texel: (sy); the coordinates again: free behind it
            "mov.u32u32 r0.x, 1\nisam.1d (f16)(xyzw)hr0.x, r0.x, s#0, t#0\nadd.f hr1.x, hr0.x, hr0.y\n"
            "mov.u32u32 r0.x, 2\nend",
            "mov.u32u32 r0.x, 1\n(rpt5)nop\nisam.1d (f16)(xyzw)hr0.x, r0.x, s#0, t#0\n"
            "(sy)add.f hr1.x, hr0.x, hr0.y\nmov.u32u32 r0.x, 2\nend\n",
        ),
        (  # coordinates rewritten before anybody waited for the texel
            "isam.1d (f16)(xyzw)hr0.x, r0.x, s#0, t#0\nmov.u32u32 r0.x, 2\nend",
            "isam.1d (f16)(xyzw)hr0.x, r0.x, s#0, t#0\n(ss)mov.u32u32 r0.x, 2\nend\n",
        ),
        (  # a special function's result, consumed by a store, which has no (ss)
            "rcp r0.x, r0.y\nstg.f32 g[r2.x], r0.x, 1\nend",
            "rcp r0.x, r0.y\n(ss)nop\nstg.f32 g[r2.x], r0.x, 1\nend\n",
        ),
        (  # a byte that is still on its way, and its address, written again
            "ldg.u8 hr0.x, g[r2.x], 1\nmov.u16u16 hr0.x, 0\nmov.u32u32 r2.y, 0\nend",
            "ldg.u8 hr0.x, g[r2.x], 1\n(sy)mov.u16u16 hr0.x, 0\nmov.u32u32 r2.y, 0\nend\n",
        ),
        (  # memory behind a barrier: both flags, on what is no idle slot
            "stl.u32 l[r0.x], r1.x, 1\nbar.g\nnop\nldl.u32 r2.x, l[r0.x], 1\nend",
            "stl.u32 l[r0.x], r1.x, 1\nbar.g\nnop\n(ss)nop\n(sy)ldl.u32 r2.x, l[r0.x], 1\nend\n",
        ),
        (  # a shared register has no distance
            "mov.u32u32 r48.x, r0.x\n(rpt5)nop\nadd.s r1.x, r48.x, 1\nend",
            "mov.u32u32 r48.x, r0.x\n(rpt5)nop\n(ss)add.s r1.x, r48.x, 1\nend\n",
        ),
        (  # of the fibers of one side the flag of the other is no matter
            "predt\nldg.u32 r1.x, g[r2.x], 1\npredf\n(sy)mov.u32u32 r1.x, 0\nprede\nadd.s r3.x, r1.x, 1\nend",
            "predt\nldg.u32 r1.x, g[r2.x], 1\npredf\n(sy)mov.u32u32 r1.x, 0\nprede\n"
            "(rpt1)nop\n(sy)add.s r3.x, r1.x, 1\nend\n",
        ),
        (  # a loop: the compare and its branch 6 slots; what the last pass sampled arrives in the next
            "loop:\nadd.f hr1.x, hr0.x, hr1.x\nisam.1d (f16)(xyzw)hr0.x, r0.x, s#0, t#0\n"
            "cmps.s.eq p0.x, r1.x, 3\nbr !p0.x, #loop\nend",
            "(sy)add.f hr1.x, hr0.x, hr1.x\nisam.1d (f16)(xyzw)hr0.x, r0.x, s#0, t#0\n"
            "cmps.s.eq p0.x, r1.x, 3\n(rpt5)nop\nbr !p0.x, #-4\nend\n",
        ),
        (  # fibers join on the first instruction of a branch's target, also when that is a nop
            "add.s r0.x, r0.x, 1\nbr p0.x, #over\nadd.s r1.x, r1.x, 1\nover:\n(jp)add.s r0.y, r0.x, 1\nend",
            "add.s r0.x, r0.x, 1\nbr p0.x, #2\nadd.s r1.x, r1.x, 1\n"
            "(jp)(rpt2)nop\nadd.s r0.y, r0.x, 1\nend\n",
        ),
    ],
)  # fmt: skip
def test_inserted_waits(before: str, after: str) -> None:
    assert waited(before) == after


def bare(program: Program) -> Program:
    """The program without idle slots and flags."""
    edits: dict[int, Sequence[Instr]] = {}
    for index, instr in enumerate(program.instrs):
        if is_nop(instr):
            edits[index] = (replace(instr, rpt=0, ss=False, sy=False),) if instr.jp else ()
        else:
            edits[index] = (replace(instr, nop=0, ss=False, sy=False),)
    return replace_instructions(program, edits)


def test_compiled_programs_get_their_waits_back() -> None:
    """Barriers, predication, elections, bytes and shared registers among them."""
    shaders = (*corpus(), *(compiled.shader for compiled in nir.programs().values()))
    assert len(shaders) > 330
    missing: dict[str, list[str]] = {}
    for shader in shaders:
        program = insert_waits(bare(Program.decode(shader.code)))
        for finding in lint(program, fregs=shader.fregs, hregs=shader.hregs):
            if finding.rule in WAITS:
                missing.setdefault(shader.name, []).append(str(finding))
    assert missing == {}


def test_waits_are_inserted_once() -> None:
    """A program that has its waits stays as it is."""
    for name in ("gemm_4xn_fp16", "texture_bw"):
        program = KERNELS[name].build(KERNELS[name].configure({})).program
        assert insert_waits(program) == program


def test_branches_follow_their_targets() -> None:
    program = KERNELS["gemm_4xn_fp16"].build(KERNELS["gemm_4xn_fp16"].configure({"k_unroll": 1})).program
    (branch,) = [index for index, instr in enumerate(program.instrs) if branches(instr)]
    target = program.instrs[program.target(branch)]
    nop = Assembler().parse("nop").program().instrs[0]
    longer = replace_instructions(program, {branch - 3: (nop, program.instrs[branch - 3]), 2: (nop, nop)})
    (moved,) = [index for index, instr in enumerate(longer.instrs) if branches(instr)]
    assert moved == branch + 2
    assert longer.instrs[longer.target(moved)] == target


@pytest.mark.parametrize(
    "text",
    [
        "isam.1d (u32)(xyzw)r0.x, r8.x, s#0, t#0\nadd.f hr9.x, hr0.y, hr9.y\nend",
        "isam.1d (f16)(xyzw)hr2.x, r8.x, s#0, t#0\nmov.u32u32 r10.x, r1.x\nend",
        "mov.u32u32 r0.x, r8.x\nadd.f hr9.x, hr0.y, hr9.y\nend",
        "mov.u16u16 hr0.y, hr9.x\nadd.s r9.x, r0.x, r8.x\nend",
        "isam.1d (f16)(xyzw)hr20.x, r1.x, s#0, t#0\nmov.u16u16 hr2.y, hr9.x\nend",
    ],
)
def test_merged_files_wait_for_either_width(text: str) -> None:
    """What is outstanding in one width, a register of the other on its storage waits for."""

    def late(program: Program) -> set[str]:
        found = errors(lint(program, fregs=12, hregs=24, merged=True))
        return {finding.rule.name for finding in found} - {"uninitialized"}

    program = Assembler().parse(text).program()
    assert late(insert_waits(program))
    assert not late(insert_waits(program, merged=True))
