"""Compiled matmul loops written anew: the same bits, no hazards, and what is left alone with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.analysis.findings import errors
from pytest_qcom.analysis.hazards import lint
from pytest_qcom.conformance import Outcome
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.compiled import compile_matmul
from pytest_qcom.kernels.edit import replace_instructions
from pytest_qcom.kernels.families.matmul_patch_fp32 import original
from pytest_qcom.kernels.published import options_from_notes
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.kernels.rewrite import AutoRepeat, Refusal, WaitStrip, apply
from pytest_qcom.kernels.rewrite import counts as instruction_counts
from pytest_qcom.kernels.rewrites.accumulators import recognise
from pytest_qcom.kernels.rewrites.compact import compact, regroup
from pytest_qcom.kernels.rewrites.loop import Mismatch
from pytest_qcom.kernels.rewrites.matmul import rewrite
from pytest_qcom.kernels.rewrites.pipelines import parse
from pytest_qcom.kernels.rewrites.schedule import Schedule
from pytest_qcom.kernels.waits import slots

KERNEL = KERNELS["matmul_patch_fp32"]
SMALL = 128


def output(device: Device, n: int, patch: str, seed: int = 0) -> Any:
    """C of random matrices; it has been held against the oracle."""
    options = KERNEL.configure(dict(m=n, n=n, k=n, patch=patch))
    run = conformance.prepare(device, KERNEL, options, np.random.default_rng(seed))
    run.launch()
    assert run.judge().checked == n * n
    return run.outputs()["C"]


@pytest.fixture(scope="module")
def unpatched(device: Device) -> Any:
    """C of the compiled program itself."""
    return output(device, SMALL, "noop")


EXACT = [
    "auto_rpt_f32",
    "rpt1_f32_pairs",
    "reorder_rpt_f32_default",
    "reorder_rpt_f32_compact",
    "rpt3",
    "rpt3_unroll2",
    "rpt3_unroll32",
    "rpt3_postinc",
    "rpt3_postinc_unroll8",
    "rpt3_postinc_unroll4_nosnop",
    "rpt3_unroll4_nosnop_lastcmp0",
    "rpt3_b0low_acc3210",
    "rpt3_accmajor_unroll2",
    "rpt3_b0_last_nonopctl",
    "rpt3_hoist31_hoist33_unroll2",
    "rpt3_f14_unroll4",
    "rpt3_hoisty",
    "rpt3_hoisty_postinc_unroll4_nosnop",
    "rpt3_incoords",
    "rpt3_incoords_postinc_unroll4_nosnop",
    "rpt3_prefetch",
    "rpt3_prefetch_unroll4_postinc",
    "rpt3_prefetch_a02_unroll2_lastcmp0_accmajor",
    "rpt3_incoords_prefetch_unroll4_b0low_a1_early",
    "rpt3_afirst_f13pack_unroll2",
]


@pytest.mark.parametrize("patch", EXACT)
def test_patched_computes_the_same_bits(device: Device, unpatched: Any, patch: str) -> None:
    np.testing.assert_array_equal(output(device, SMALL, patch), unpatched, strict=True)


@pytest.mark.parametrize(
    ("n", "patch"),
    [(320, "rpt3_l23_postinc_unroll8_nosnop"), (384, "rpt3_n384_unroll16")],
)
def test_loops_of_other_sizes(device: Device, n: int, patch: str) -> None:
    np.testing.assert_array_equal(output(device, n, patch), output(device, n, "noop"), strict=True)


@pytest.mark.parametrize("n", [96, 192])
def test_three_accumulators_are_recognised_too(device: Device, n: int) -> None:
    assert len(recognise(compile_matmul(n).program).vectors) in (2, 3)
    np.testing.assert_array_equal(output(device, n, "rpt3_postinc"), output(device, n, "noop"), strict=True)


def test_another_order_of_k_only_rounds_otherwise(device: Device, unpatched: Any) -> None:
    """Within the bound of any order, but not bit by bit: that is what the option says."""
    other = output(device, SMALL, "rpt3_k3210")
    assert not np.array_equal(unpatched, other)
    np.testing.assert_allclose(other, unpatched, rtol=0, atol=1e-4)


@pytest.mark.parametrize("patch", ["rpt3_half", "rpt3_half_postinc_unroll4_nosnop"])
def test_halves_are_within_their_own_bound(device: Device, unpatched: Any, patch: str) -> None:
    """Other numbers than the compiled program's: held against the oracle of float16 inputs and sums."""
    halves = output(device, SMALL, patch)
    assert 1e-3 < np.abs(halves - unpatched).max() < 1


@pytest.mark.parametrize("patch", ["rpt3_block1", "rpt3_block4_postinc_unroll8_nosnop"])
def test_blocks_of_halves_are_within_their_bound(device: Device, unpatched: Any, patch: str) -> None:
    """Nearer to the floats than half sums are: the error is that of a block, not of all of k."""
    blocks, halves = output(device, SMALL, patch), output(device, SMALL, "rpt3_half")
    errors = [np.sqrt(((found - unpatched) ** 2).mean()) for found in (blocks, halves)]
    assert 1e-4 < errors[0] < errors[1] / 2


@pytest.mark.parametrize("n", [512, 704, 1024])
def test_halves_sample_and_multiply_halves_only(n: int) -> None:
    program = parse("rpt3_half_postinc").apply(compile_matmul(n).program)
    fregs, hregs = program.footprint()
    assert hregs == 12
    assert not errors(lint(program, fregs=fregs, hregs=hregs))
    names = {instr.op.name for instr in program.instrs if instr.rpt == 3 and instr.op.cat == 3}
    assert names == {"mad.f16"}
    assert all(instr.dst.half for instr in program.instrs if instr.op.cat == 5 and instr.dst is not None)


PUBLISHED = [
    (704, "rpt3_l25_postinc_unroll22"),
    (704, "rpt3_l25_unroll16_nosnop_lastcmp0"),
    (512, "rpt3_n512_unroll16"),
    (1024, "rpt3_accum_f32_default"),
    (1024, "reorder_rpt_f32_compact"),
]


@pytest.mark.long
@pytest.mark.parametrize(("n", "patch"), PUBLISHED)
def test_published_patches_compute_the_same_bits(device: Device, n: int, patch: str) -> None:
    np.testing.assert_array_equal(output(device, n, patch), output(device, n, "noop"), strict=True)


@pytest.mark.parametrize(
    ("n", "registers", "counter", "passes"),
    [
        (512, ["r4.z", "r3.z", "r2.z", "r1.z"], "r1.y", 128),
        (704, ["r5.w", "r4.w", "r3.w", "r2.w"], "r2.y", 176),
        (1024, ["r5.x", "r4.x", "r3.x", "r2.x"], "r1.w", 256),
    ],
)
def test_loop_is_recognised(n: int, registers: Sequence[str], counter: str, passes: int) -> None:
    """The accumulators stand where the notes found them."""
    matmul = recognise(compile_matmul(n).program)
    assert [str(vector.registers[0]) for vector in matmul.vectors] == registers
    assert (str(matmul.counter), matmul.passes) == (counter, passes)
    assert len(matmul.found.samples) == 8
    assert all(len(vector.products) == 4 for vector in matmul.vectors)


@pytest.mark.parametrize("n", [512, 704, 1024])
@pytest.mark.parametrize("patch", ["noop", *EXACT])
def test_no_hazard_is_left(n: int, patch: str) -> None:
    if patch.endswith("unroll32") and n == 704:
        patch = "rpt3_unroll44"
    program = parse(patch).apply(compile_matmul(n).program)
    fregs, hregs = program.footprint()
    assert not errors(lint(program, fregs=fregs, hregs=hregs))
    assert fregs <= (19 if "hoist" in patch or "incoords" in patch else 16)


@pytest.mark.parametrize(
    ("n", "patch", "fregs"),
    [(704, "rpt3_l25_postinc_unroll22", 16), (1024, "rpt3_accum_f32_default", 14),
     (512, "rpt3_n512_unroll16", 16), (512, "rpt3_n512_b0low_k3210_unroll16", 15)],
)  # fmt: skip
def test_registers_are_as_many_as_published(n: int, patch: str, fregs: int) -> None:
    assert parse(patch).apply(compile_matmul(n).program).footprint() == (fregs, 0)


def test_own_pairs_take_constant_halves_out_of_the_loop() -> None:
    compiled = compile_matmul(704).program
    inside = {
        registers: counts(rewrite(compiled, Schedule(unroll=11, postinc=True, registers=registers)))
        for registers in (0, 16, 48)
    }
    assert inside[0]["instructions"] > inside[16]["instructions"] > inside[48]["instructions"]


def counts(program: Program) -> dict[str, int]:
    return dict(instruction_counts(program))


@pytest.mark.parametrize(
    ("config", "n", "mads", "isam"),
    [
        ("patch=rpt3_l25_postinc_unroll22", 704, 352, 176),  # as published
        ("patch=rpt3_l25_postinc_unroll22 no-store skip-a-loads", 704, 352, 88),
        ("patch=rpt3_l25_postinc_unroll22 no-store skip-a-loads skip-b-loads", 704, 352, 0),
        ("patch=b0low postinc unroll22", 704, 352, 176),
        ("patch=rpt3_n512_b0low_k3210_unroll16_nosnop", 512, 256, 128),
        ("patch=rpt3_accum_f32_default", 1024, 16, 8),
        ("patch=rpt3_accum_f32_b0_last_k3210_unroll8", 1024, 128, 64),
        ("patch=rpt3_l25 postinc unroll16 k0123 acc1032 f15", 704, 256, 128),
        ("patch=rpt3_n384_unroll16", 384, 192, 112),
        ("patch=half_f16_tight", 1024, 16, 8),
    ],
)
def test_published_rows_are_built(config: str, n: int, mads: int, isam: int) -> None:
    size = str(n)
    kernel, options = options_from_notes("matmul_patch_fp32", config, {"m": size, "n": size, "k": size})
    found = counts(kernel.build(options).program)
    assert (found["rpt3"], found["isam"]) == (mads, isam)
    assert found["mad"] == mads


@pytest.mark.parametrize("patch", ["noop", "reorder_rpt_f32_compact", "rpt3_unroll4"])
def test_samples_of_either_kind_can_be_left_out(patch: str) -> None:
    """Of a program as it is or packed, too: four samples of each kind a step, and one k."""
    given = dict(m=SMALL, n=SMALL, k=SMALL, patch=patch, no_store=True)
    steps = 4 if patch.endswith("4") else 1
    for skipped, count in (((), 8), (("skip_a_loads",), 4), (("skip_b_loads",), 4)):
        options = KERNEL.configure({**given, **dict.fromkeys(skipped, True)})
        assert counts(KERNEL.build(options).program)["isam"] == count * steps


def test_operands_have_the_names_of_the_published_patches() -> None:
    """What ``skip_b_loads`` leaves are A0 to A3, the vectors of the repeated products."""
    options = KERNEL.configure(dict(m=SMALL, n=SMALL, k=SMALL, patch="rpt3_unroll4", skip_b_loads=True))
    program = KERNEL.build(options).program
    sampled = {instr.dst.value for instr in program.instrs if instr.op.cat == 5 and instr.dst is not None}
    products = [instr for instr in program.instrs if instr.op.cat == 3 and instr.rpt]
    assert sampled == {source.value for instr in products for source in instr.srcs[:2] if source.repeat}


def test_throughput_variants_store_and_sample_nothing() -> None:
    options = KERNEL.configure(dict(no_store=True, skip_a_loads=True, skip_b_loads=True))
    program = KERNEL.build(options).program
    assert not [instr for instr in program.instrs if instr.op.cat in (5, 6)]
    assert KERNEL.oracle(options, {}) == {}


MATMUL = """
mov.u32u32 r1.w, 0
mov.u32u32 r5.x, 0
mov.u32u32 r5.y, 0
mov.u32u32 r5.z, 0
mov.u32u32 r5.w, 0
loop:
mov.u32u32 r6.x, r1.w
mov.u32u32 r6.y, r0.x
mov.u32u32 r7.x, r0.y
mov.u32u32 r7.y, r1.w
(rpt5)nop
isam.1d (f32)(xyzw)r2.x, r6.x, s#0, t#0
isam.1d (f32)(xyzw)r3.x, r7.x, s#1, t#1
add.u r1.z, r1.w, 1
(rpt2)nop
cmps.s.ge p0.x, r1.z, 8
(sy)mad.f32 r5.x, r2.y, r3.x, r5.x
mad.f32 r5.y, r2.y, r3.y, r5.y
mad.f32 r5.z, r2.y, r3.z, r5.z
mad.f32 r4.x, r2.y, r3.w, r5.w
(rpt5)nop
br p0.x, #out
mov.u32u32 r1.w, r1.z
mov.u32u32 r5.w, r4.x
(rpt2)nop
jump #loop
out:
mov.u32u32 r5.w, r4.x
mov.u32u32 r6.x, r0.x
mov.u32u32 r6.y, r0.y
(rpt5)nop
stib.b.typed.2d.f32.4.imm r5.x, r6.x, 0
end
"""
"""A small loop with all that counts: a lane that moves between registers, coordinates, a copied counter."""


def program(*changes: tuple[str, str]) -> Program:
    text = MATMUL
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    return Assembler().parse(text).program()


def test_text_before_and_after() -> None:
    """One vector product a step; the lane that the compiler kept elsewhere is moved out behind the loop."""
    after = rewrite(program(), Schedule(postinc=True, nosnop=True)).listing().splitlines()
    assert after[5 : after.index("stib.b.typed.2d.f32.4.imm r5.x, r6.x, 0")] == [
        "l5:",
        "mov.u32u32 r0.z, r1.w",
        "mov.u32u32 r2.y, r1.w",
        "mov.u32u32 r0.w, r0.x",
        "mov.u32u32 r2.x, r0.y",
        "(rpt5)nop",
        "isam.1d (f32)(xyzw)r2.x, r2.x, s#1, t#1",
        "isam.1d (f32)(xyzw)r0.z, r0.z, s#0, t#0",
        "add.u r1.w, r1.w, 1",
        "(sy)(rpt3)mad.f32 r5.x, r0.w, (r)r2.x, (r)r5.x",
        "cmps.s.ge p0.x, r1.w, 8",
        "(rpt5)nop",
        "br p0.x, #l18",
        "jump #l5",
        "l18:",
        "mov.u32u32 r4.x, r5.w",
        "(rpt2)nop",
        "mov.u32u32 r5.w, r4.x",
        "mov.u32u32 r6.x, r0.x",
        "mov.u32u32 r6.y, r0.y",
        "(rpt5)nop",
    ]


def test_places_advance_in_place_by_what_they_grow() -> None:
    """4 k and what is made of it by 4, k by 1; nothing else is computed in the loop."""
    changes = ("mov.u32u32 r6.x, r1.w", "shl.b r6.x, r1.w, 2\n(rpt2)nop\nadd.s r6.x, r6.x, 3")
    after = rewrite(program(changes), Schedule(unroll=2, postinc=True, incoords=True)).listing().splitlines()
    inside = after[after.index("l11:") :]
    advances = [line.partition("add.s ")[2] for line in inside if "add.s" in line]
    assert advances == ["r3.x, r3.x, 4", "r3.w, r3.w, 1"] * 2
    assert not any("shl.b" in line for line in inside)


def test_prefetch_samples_behind_the_last_product_of_a_vector() -> None:
    """The first step's are sampled before the loop. The compiler's first products are those of k = 1."""
    compiled = compile_matmul(SMALL).program
    kinds = [
        "".join("s" if i.op.name == "isam" else "m" for i in p.instrs if i.op.name in ("isam", "mad.f32"))
        for p in (rewrite(compiled, Schedule(unroll=2, prefetch=k)) for k in ((), (0, 1, 2, 3), (1,)))
    ]
    assert kinds == [
        ("s" * 8 + "m" * 16) * 2,
        "s" * 4 + ("s" * 4 + "m" * 8 + "smmmm" * 2 + "ss") * 2,
        "s" + ("s" * 7 + "m" * 8 + "s" + "m" * 8) * 2,
    ]


def test_lastcmp0_compares_once_a_pass() -> None:
    for schedule, compares in (
        (Schedule(unroll=4), 4),
        (Schedule(unroll=4, lastcmp0=True), 1),
        (Schedule(unroll=4, postinc=True), 1),
    ):
        instrs = rewrite(program(), schedule).instrs
        assert sum(instr.op.name == "cmps.s" for instr in instrs) == compares


def test_nosnop_has_no_ss_nop_in_the_loop() -> None:
    for nosnop, count in ((False, 2), (True, 0)):
        instrs = rewrite(program(), Schedule(unroll=2, nosnop=nosnop)).instrs
        assert sum(instr.ss for instr in instrs) == count


LAST = "mad.f32 r4.x, r2.y, r3.w, r5.w"
SAMPLE = "isam.1d (f32)(xyzw)r2.x, r6.x, s#0, t#0"


@pytest.mark.parametrize(
    ("changes", "schedule", "reason"),
    [
        ([("jump #loop", "nop")], {}, "the program has 0 loops; the rewrite is for one"),
        ([("(rpt2)nop\njump", "br p0.x, #loop\njump")], {}, "the program has 2 loops; "),
        (
            [("add.u r1.z", "br p0.x, #over\nover:\nadd.u r1.z")],
            {},
            "the loop at #5 to #25 has 2 branches inside; one is to leave it",
        ),
        ([("br p0.x", "br !p0.x")], {}, "the loop is left at #20 by something else than `br p0.x`"),
        (
            [("out:\nmov.u32u32 r5.w, r4.x", "mov.u32u32 r5.w, r4.x\nout:")],
            {},
            "the loop is left to #26, not to #25 behind it",
        ),
        ([("r1.w, 0\n", "r1.w, 1\n")], {}, "the counter r1.w does not start at 0"),
        ([("r1.z, r1.w, 1", "r1.z, r1.w, 2")], {}, "the loop does not end on a counter that advances by 1"),
        ([("cmps.s.ge", "cmps.s.eq")], {}, "the loop does not end where its counter reaches a number"),
        ([("r1.z, 8", "r1.z, c3.x")], {}, "the loop does not end where its counter reaches a number"),
        ([("cmps.s.ge p0.x", "cmps.s.ge r8.x")], {}, "the loop does not compute the p0.x that ends it"),
        ([("t#1\n", "t#1\nstg.u32 g[r0.x], r0.x, 1\n")], {}, "#12 stg in the loop is neither arithmetic nor"),
        ([("add.u r1.z", "mov.u16u16 hr0.x, 3\nadd.u r1.z")], {}, "#12 mov in the loop writes someth"),
        ([("add.u r1.z", "mov.u32u32 r9.x, c<a0.x + 1>\nadd.u r1.z")], {}, "#12 mov in the loop reads at "),
        ([("(f32)(xyzw)r3", "(f32)(xyz)r3")], {}, "#11 isam is no sample of four words at a pair"),
        ([(LAST, LAST.replace("r3.w", "r3.z"))], {}, "r5.z is accumulated from lanes of samples that"),
        ([(LAST, LAST.replace("r2.y", "r2.z"))], {}, "r5.x, r5.y, r5.z accumulate the same pro"),
        ([(LAST, LAST.replace("r2.y", "r0.x"))], {}, "r5.w is carried by the loop and is no sum of"),
        ([(LAST, LAST.replace("r3.w", "(neg)r3.w"))], {}, "r5.w is carried by the loop and takes"),
        ([(LAST, "(sat)" + LAST)], {}, "#18 mad.f32 in the loop is neither arithmetic nor a sample"),
        ([(LAST, LAST + "\nadd.u r0.y, r0.y, 1")], {}, "r0.y is carried by the loop and is no sum of"),
        ([(LAST, LAST + "\nmov.u32u32 r8.x, r2.x"), ("(rpt5)nop\nstib.b.typed.2d.f32.4.imm r5.x",
           "(rpt5)nop\nstib.b.typed.2d.f32.4.imm r8.x")], {}, "r8.x leaves the loop with something"),
        (
            [("mov.u32u32 r7.y, r1.w", "mov.u32u32 r7.y, r2.x"), (f"{SAMPLE}\n", ""),
             ("mov.u32u32 r7.x, r0.y", f"(rpt5)nop\n{SAMPLE}\nmov.u32u32 r7.x, r0.y")],
            {}, "a sample's place is computed from another sample",
        ),
        ([("r5.y, 0\n", "r5.y, 1\n")], {"half": True}, "the accumulator r5.y does not start at 0"),
        ([], {"unroll": 3}, "the loop has 8 passes, which unroll=3 does not divide"),
        (
            [("mov.u32u32 r6.x, r1.w", "mul.s24 r6.x, r1.w, r1.w")], {"incoords": True},
            "the place of the sample at #10 grows unevenly",
        ),
        ([], {"acc_order": (1, 0)}, "the loop has 1 accumulators and 1 products each; orders differ"),
    ],
)  # fmt: skip
def test_near_misses_are_refused(
    changes: list[tuple[str, str]], schedule: dict[str, Any], reason: str
) -> None:
    before = program(*changes)
    kept = before.encode()
    with pytest.raises(Mismatch) as error:
        rewrite(before, Schedule(**schedule))
    assert str(error.value).startswith(reason)
    assert before.encode() == kept


def test_a_rewritten_loop_is_a_loop_that_can_be_rewritten() -> None:
    once = rewrite(program(), Schedule(postinc=True, nosnop=True))
    assert rewrite(once, Schedule(postinc=True, nosnop=True)) == once
    with pytest.raises(Mismatch, match="the loop does not end on a counter that advances by 1"):
        rewrite(rewrite(program(), Schedule(unroll=2)), Schedule(unroll=2))


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        ("rpt3_l25_postinc", "patch rpt3_l25_postinc is about a loop at #25; the program's is at #"),
        ("rpt3_posting", "patch rpt3_posting: 'posting' is unknown; words are postinc, nosnop, "),
        ("rpt3_unroll0", "patch rpt3_unroll0: unroll0 is no number of steps; give 1 or more"),
        ("rpt3_block3_unroll4", "blocks of 3 steps do not divide unroll=4"),
        ("rpt3_unroll5", "the loop has 32 passes, which unroll=5 does not divide"),
    ],
)
def test_patches_that_do_not_fit_say_why(patch: str, reason: str) -> None:
    with pytest.raises(KernelError) as error:
        KERNEL.build(KERNEL.configure(dict(m=SMALL, n=SMALL, k=SMALL, patch=patch)))
    assert str(error.value).startswith(reason)


def test_shapes_that_are_not_compiled() -> None:
    with pytest.raises(KernelError, match="128 x 64 x 64 is no square product; give one size"):
        KERNEL.build(KERNEL.configure(dict(m=128, n=64, k=64)))
    with pytest.raises(KernelError, match="a compiled matmul of 100: give a multiple of 32 from 64 on"):
        KERNEL.build(KERNEL.configure(dict(m=100, n=100, k=100)))
    with pytest.raises(Mismatch, match="patch noop has no postinc; it writes no loop anew"):
        parse("noop", postinc=True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gemm_4x4_fp16", "the loop at #"),
        ("texture_bw", "the loop at #"),
        ("alu_peak", "the loop at #"),
        ("branch_probe", "the program has 0 loops; the rewrite is for one"),
    ],
)
def test_other_programs_are_left_alone(name: str, reason: str) -> None:
    """Kernels with other loops: each gives a reason, none is changed."""
    kernel = KERNELS[name]
    before = kernel.build(kernel.configure({}, kernel.cases[0].name)).program
    after, why = parse("rpt3_postinc").attempt(before)
    assert after is before
    assert why.startswith(reason)


def test_an_attempt_that_fits_has_no_reason() -> None:
    compiled = compile_matmul(704).program
    pipeline = parse("rpt3_l25_postinc_unroll22")
    assert pipeline.attempt(compiled) == (pipeline.apply(compiled), "")
    assert parse("noop").attempt(compiled)[0] is compiled


# ---- packing, regrouping, compaction


@pytest.mark.parametrize("n", [SMALL, 512, 704, 1024])
def test_packing_and_compaction_are_done_once(n: int) -> None:
    compiled = compile_matmul(n).program
    for step in (regroup, compact, lambda p: apply(AutoRepeat(), p), lambda p: apply(WaitStrip(), p)):
        once = step(compiled)
        assert step(once) == once


def test_regrouping_is_what_makes_packing_possible() -> None:
    compiled = compile_matmul(1024).program
    packed, regrouped = apply(AutoRepeat(), compiled), apply(AutoRepeat(), regroup(compiled))
    mads = counts(compiled)["mad"]
    assert counts(packed)["mad"] > 0.9 * mads
    assert counts(regrouped)["mad"] < 0.65 * mads


NAMES = [f"mad.f32 r4.{c}, r0.x, r1.{c}, r4.{c}" for c in "xyzw"]


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        (NAMES[:2], ["(rpt1)mad.f32 r4.x, r0.x, (r)r1.x, (r)r4.x"]),
        (NAMES[:3], ["(rpt2)mad.f32 r4.x, r0.x, (r)r1.x, (r)r4.x"]),
        (NAMES, ["(rpt3)mad.f32 r4.x, r0.x, (r)r1.x, (r)r4.x"]),
        ([NAMES[0], "(sy)" + NAMES[1], *NAMES[2:]],
         [NAMES[0], "(sy)(rpt2)mad.f32 r4.y, r0.x, (r)r1.y, (r)r4.y"]),
        ([NAMES[0], NAMES[2]], [NAMES[0], NAMES[2]]),
        ([NAMES[0], NAMES[1].replace("r0.x", "r0.z")], [NAMES[0], NAMES[1].replace("r0.x", "r0.z")]),
    ],
)  # fmt: skip
def test_auto_rpt(lines: list[str], after: list[str]) -> None:
    def made(text: list[str]) -> Program:
        return Assembler().parse("\n".join((*text, "end"))).program()

    assert apply(AutoRepeat(), made(lines)) == made(after)


@pytest.mark.parametrize(
    ("between", "moves"),
    [
        ("add.f r7.x, r7.y, r7.z", True),
        ("add.f r4.y, r7.y, r7.z", False),  # writes what the MAD adds to
        ("add.f r7.x, r4.y, r7.z", False),  # reads it
        ("add.f r0.x, r7.y, r7.z", False),  # writes its factor
        ("(ss)add.f r7.x, r7.y, r7.z", False),
        ("isam.1d (f32)(xyzw)r8.x, r7.x, s#0, t#0", False),
    ],
)
def test_regrouping_respects_what_is_between(between: str, moves: bool) -> None:
    text = "\n".join((NAMES[0], between, NAMES[1], "end"))
    before = Assembler().parse(text).program()
    after = regroup(before)
    position = [instr.op.name for instr in after.instrs].index("mad.f32")
    assert (after.instrs[position + 1] == before.instrs[2]) == moves


def test_compaction_fixes_branches_and_keeps_needed_slots() -> None:
    before = program(("isam.1d (f32)(xyzw)r2.x", "(rpt5)nop\nnop\nisam.1d (f32)(xyzw)r2.x"))
    after = compact(before)
    assert len(after.instrs) <= len(before.instrs)
    assert sum(map(slots, after.instrs)) <= sum(map(slots, before.instrs)) - 7
    assert [index for index, instr in enumerate(after.instrs) if instr.op.name == "isam"] == [11, 13]
    (jump,) = (index for index, instr in enumerate(after.instrs) if instr.op.name == "jump")
    assert after.target(jump) == 5
    fregs, hregs = after.footprint()
    assert not errors(lint(after, fregs=fregs, hregs=hregs))
    assert compact(after) is after


def test_compaction_leaves_half_registers_alone() -> None:
    half = Assembler().parse("nop\nadd.f hr0.x, hr0.y, hr0.z\nend").program()
    with pytest.raises(Mismatch, match="the program uses half registers"):
        compact(half)


def test_ss_nop_that_waits_for_nothing_goes() -> None:
    sample = "isam.1d (f32)(xyzw)r8.x, r0.x, s#0, t#0"
    idle = Assembler().parse(f"(ss)nop\n{sample}\n(ss)nop\nmov.u32u32 r2.x, 1\nend").program()
    assert len(apply(WaitStrip(), idle).instrs) == 3
    needed = Assembler().parse(f"{sample}\n(ss)nop\n{sample.replace('r8', 'r0')}\nend").program()
    assert WaitStrip().find(needed) == (
        (),
        (Refusal(1, "what it waits for may still be read or on its way"),),
    )


def test_a_wrong_rewrite_is_noticed(device: Device) -> None:
    """The comparison of bits is no formality: one lane of one product exchanged shows."""
    options = KERNEL.configure(dict(m=SMALL, n=SMALL, k=SMALL, patch="rpt3"))
    build = KERNEL.build(options)
    at = next(index for index, instr in enumerate(build.program.instrs) if instr.rpt == 3)
    mad = build.program.instrs[at]
    wrong = replace(mad, srcs=(replace(mad.srcs[0], value=mad.srcs[0].value ^ 1), *mad.srcs[1:]))
    changed = replace(build, program=replace_instructions(build.program, {at: (wrong,)}))
    run = conformance.prepare(device, KERNEL, options, np.random.default_rng(0), build=changed)
    run.launch()
    assert not run.compare().ok
    assert original(options) == compile_matmul(SMALL).program


@pytest.mark.qcom_kernel("matmul_patch_fp32")
def test_patched_matmul_is_right_and_holds_its_floor(kernel_run: Callable[[], Outcome]) -> None:
    outcome = kernel_run()
    assert outcome.ok
    assert outcome.checked > 0
