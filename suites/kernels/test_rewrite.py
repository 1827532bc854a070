"""Rewrites of compiled programs: where they apply, why they do not, and that both programs compute the
same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_qcom import conformance
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.families.gemm_4x4_fp16 import PATCHES
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.kernels.rewrite import MadRepeat, PairMerge, Refusal, Rewrite, SyncStrip, apply, counts

GEMM = KERNELS["gemm_4x4_fp16"]
SAMPLE = "isam.1d (f16)(xyzw)hr0.x, r0.x, s#0, t#0"


def program(*lines: str) -> Program:
    return Assembler().parse("\n".join((*lines, "end"))).program()


def mads(dst: int, scalar: str, vector: int, count: int = 4) -> list[str]:
    """Scalar MADs of neighbouring lanes, as the compiler writes them."""
    name = [f"hr{number // 4}.{'xyzw'[number % 4]}" for number in range(128)]
    return [
        f"mad.f16 {name[dst + lane]}, {scalar}, {name[vector + lane]}, {name[dst + lane]}"
        for lane in range(count)
    ]


def outputs(device: Device, **patches: bool | int) -> np.ndarray:
    options = GEMM.configure({"m": 32, "n": 256, "k": 36, **patches})
    run = conformance.prepare(device, GEMM, options, np.random.default_rng(2))
    run.launch()
    assert run.compare().ok
    return run.outputs()["C"]


@pytest.mark.parametrize("patches", [["strip_sync"], ["strip_sync", "pack_repeats"], ["merge_pairs"],
                                     ["pack_repeats"], ["strip_sync", "pack_repeats", "merge_pairs"]],
                         ids=" ".join)  # fmt: skip
def test_patched_computes_the_same_bits(device: Device, patches: Sequence[str]) -> None:
    np.testing.assert_array_equal(
        outputs(device), outputs(device, **dict.fromkeys(patches, True)), strict=True
    )


@pytest.mark.parametrize("most", [0, 1, 7, 15, 100])
def test_only_so_many_groups_are_packed(device: Device, most: int) -> None:
    """The first ones; what is left is as it was, and so are the bits."""
    words = {"strip_sync": True, "pack_repeats": True, "max_groups": most}
    programs = [GEMM.build(GEMM.configure({**words, "max_groups": n})).program for n in (most, -1)]
    some, whole = (dict(counts(program))["rpt3"] for program in programs)
    assert some == min(most, whole)
    np.testing.assert_array_equal(outputs(device), outputs(device, **words), strict=True)


@pytest.mark.parametrize("words", [{"max_groups": 3}, {"max_groups": -2, "pack_repeats": True}])
def test_groups_that_nothing_packs(words: dict[str, Any]) -> None:
    with pytest.raises(KernelError, match=r"^gemm_4x4_fp16: max-groups is -?[23]; give pack-repeats, and -1"):
        GEMM.build(GEMM.configure(words))


@pytest.mark.parametrize("rewrite", PATCHES, ids=lambda rewrite: rewrite.name)
def test_applying_twice_changes_nothing(rewrite: Rewrite) -> None:
    compiled = GEMM.build(GEMM.configure({})).program
    sites, _ = rewrite.find(compiled)
    assert sites
    once = apply(rewrite, compiled)
    assert once != compiled
    assert apply(rewrite, once) == once
    assert rewrite.find(once)[0] == ()


def test_sync_strip_keeps_the_one_that_is_needed() -> None:
    compiled = GEMM.build(GEMM.configure({})).program
    sites, refusals = SyncStrip().find(compiled)
    assert len(sites) == 4
    (needed,) = refusals
    assert needed.reason.startswith("hr0.x, loaded at ")
    first = min(index for index, instr in enumerate(compiled.instrs) if instr.op.cat == 3)
    assert needed.index == first


def test_sync_strip_over_a_back_edge() -> None:
    """A (sy) at the top of a loop waits for what the last pass has sampled."""
    before = program("loop:", "(sy)add.f hr1.x, hr0.x, hr1.x", SAMPLE, "br !p0.x, #loop")
    assert SyncStrip().find(before) == ((), (Refusal(0, "hr0.x, loaded at 1, may not have arrived"),))
    assert apply(SyncStrip(), before) is before


def test_sync_strip_lets_only_real_waits_pass() -> None:
    before = program(SAMPLE, "(sy)add.f hr1.x, hr0.x, hr1.x", "(sy)add.f hr1.y, hr0.y, hr1.y")
    assert apply(SyncStrip(), before) == program(
        SAMPLE, "(sy)add.f hr1.x, hr0.x, hr1.x", "add.f hr1.y, hr0.y, hr1.y"
    )


def test_repeat_packing() -> None:
    before = program(*mads(32, "hr0.x", 16), *mads(36, "hr0.y", 20))
    assert apply(MadRepeat(), before) == program(
        "(rpt3)mad.f16 hr8.x, hr0.x, (r)hr4.x, (r)hr8.x", "(rpt3)mad.f16 hr9.x, hr0.y, (r)hr5.x, (r)hr9.x"
    )


def test_repeat_packing_keeps_what_the_run_waits_for() -> None:
    first, *rest = mads(32, "hr0.x", 16)
    before = program(SAMPLE, f"(sy){first}", *rest)
    assert apply(MadRepeat(), before) == program(SAMPLE, "(sy)(rpt3)mad.f16 hr8.x, hr0.x, (r)hr4.x, (r)hr8.x")


def test_repeat_packing_advances_both_factors() -> None:
    before = program(*(f"mad.f16 hr8.{c}, hr0.{c}, hr4.{c}, hr8.{c}" for c in "xyzw"))
    assert apply(MadRepeat(), before) == program("(rpt3)mad.f16 hr8.x, (r)hr0.x, (r)hr4.x, (r)hr8.x")


RUN = mads(32, "hr0.x", 16)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (RUN[:3], "fewer than 4 MADs of 1 lanes in a row"),
        ([*RUN[:2], "nop", *RUN[2:]], "fewer than 4 MADs of 1 lanes in a row"),
        ([RUN[0], RUN[1], "(sy)" + RUN[2], RUN[3]], "a MAD within the run waits"),
        ([RUN[0], "(nop1)" + RUN[1], *RUN[2:]], "a MAD within the run is followed by idle slots"),
        ([RUN[0], "(sat)" + RUN[1], *RUN[2:]], "the MADs differ in their modifiers"),
        ([RUN[0], RUN[2], RUN[1], RUN[3]], "destinations hr8.x and hr8.z are not neighbours"),
        (
            [*RUN[:3], RUN[3].replace("hr0.x", "hr0.y")],
            "source 1 neither stays nor advances with the destination",
        ),
        (
            [*RUN[:3], RUN[3].replace("hr4.w", "hr5.x")],
            "source 2 neither stays nor advances with the destination",
        ),
        (
            [*RUN[:3], RUN[3].replace("hr0.x", "(neg)hr0.x")],
            "source 1 neither stays nor advances with the destination",
        ),
        (
            [RUN[0], RUN[1], "over:", *RUN[2:], "br p0.x, #over"],
            "instruction 2 within the run is a branch target",
        ),
        (mads(32, "hr8.y", 16), "hr8.y is written and read within the run"),
        (
            [f"mad.f16 hr8.{c}, hr0.x, hr4.{c}, hr8.x" for c in "xyzw"],
            "hr8.x is written and read within the run",
        ),
    ],
)
def test_repeat_packing_refuses(lines: Sequence[str], reason: str) -> None:
    before = program(*lines)
    sites, refusals = MadRepeat().find(before)
    assert sites == ()
    assert refusals[0] == Refusal(0, reason)
    assert apply(MadRepeat(), before) is before


PAIR = "(rpt1)mad.f16 hr8.x, hr0.x, (r)hr4.x, (r)hr8.x"
NEXT = "(rpt1)mad.f16 hr8.z, hr0.x, (r)hr4.z, (r)hr8.z"


def test_pair_merge() -> None:
    merged = "(rpt3)mad.f16 hr8.x, hr0.x, (r)hr4.x, (r)hr8.x"
    assert apply(PairMerge(), program(PAIR, NEXT, "nop")) == program(merged, "nop")


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (NEXT.replace("hr8.z", "hr9.x"), "destinations hr8.x and hr9.x are not neighbours"),
        (NEXT.replace("hr0.x", "hr0.y"), "source 1 neither stays nor advances with the destination"),
        (NEXT.replace("(r)hr4.z", "hr4.x"), "source 2 neither stays nor advances with the destination"),
        ("(ss)" + NEXT, "a MAD within the run waits"),
    ],
)
def test_pair_merge_refuses(second: str, reason: str) -> None:
    sites, refusals = PairMerge().find(program(PAIR, second))
    assert sites == ()
    assert refusals[0] == Refusal(0, reason)


def halves(words: Program, start: np.ndarray) -> np.ndarray:
    """What MADs leave in the half registers, one scalar after the other, each rounded to float16."""
    registers = start.copy()
    for instr in words.instrs[:-1]:
        assert instr.dst is not None
        for element in range(instr.rpt + 1):
            a, b, c = (registers[s.value + (element if s.repeat else 0)] for s in instr.srcs)
            registers[instr.dst.value + element] = a * b + c
    return registers


def scalars(limit: int) -> st.SearchStrategy[str]:
    return st.integers(0, limit).map(lambda number: f"hr{number // 4}.{'xyzw'[number % 4]}")


@st.composite
def runs(draw: st.DrawFn) -> list[str]:
    """MADs of which some are runs and some nearly: registers are few, so that they collide."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        dst, vector = draw(st.integers(0, 12)), draw(st.integers(0, 12))
        lines += mads(dst, draw(scalars(15)), vector, draw(st.integers(2, 5)))
    changed = draw(st.integers(0, len(lines) - 1))
    if draw(st.booleans()):
        lines[changed] = f"mad.f16 {', '.join(draw(scalars(15)) for _ in range(4))}"
    return lines


@given(runs(), st.integers(0, 2**16))
def test_packing_never_changes_a_result(lines: list[str], seed: int) -> None:
    before = program(*lines)
    start = np.random.default_rng(seed).uniform(-1, 1, 24).astype(np.float16)
    after = apply(PairMerge(), apply(MadRepeat(), before))
    np.testing.assert_array_equal(halves(before, start), halves(after, start), strict=True)
