"""Instruction counts of the schedules, against those that were published where the structure is the same."""

from __future__ import annotations

import pytest

from pytest_qcom import catalogue
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.edit import branches
from pytest_qcom.kernels.published_counts import COUNTS, Count
from pytest_qcom.kernels.rewrite import counts
from suites.kernels.conftest import built


def loop_length(program: Program) -> int:
    """Instructions of the loop without its branch, as the notes count them."""
    instrs = enumerate(program.instrs)
    (branch,) = [at for at, instr in instrs if branches(instr) and program.target(at) <= at]
    return branch - program.target(branch)


def case(kernel: str, name: str) -> dict[str, int]:
    build = built(kernel, name)
    loop = loop_length(build.program)
    return {**dict(counts(build.program)), "loop": loop, "fregs": build.fregs, "hregs": build.hregs}


def test_best_published_4x16() -> None:
    """Published: 677 instructions, loop 417, 80 isam, 256 MADs, 2 (sy), f10 h28.

    The loop is the published one, instruction by instruction in number. Around it 146 are fewer: the donor's
    prologue is not there, and its store, which computed four addresses for each of four columns by itself, is
    one of four addresses and 16 stores with an offset.
    """
    found = case("gemm_4xn_fp16_published", "p101")
    assert {name: found[name] for name in ("loop", "isam", "mad", "rpt3", "sy", "fregs", "hregs")} == {
        "loop": 417,
        "isam": 80,
        "mad": 256,
        "rpt3": 256,
        "sy": 2,
        "fregs": 10,
        "hregs": 28,
    }
    assert found["instructions"] == 677 - 146


@pytest.mark.parametrize("count", COUNTS, ids=lambda count: f"{count.kernel}[{count.case}] {count.what}")
def test_published_counts(count: Count) -> None:
    """As published, or different by what is said; a difference has its reason, and nothing else has one."""
    found = catalogue.measured(built(count.kernel, count.case).program, count.what)
    assert found - count.published == count.difference
    assert bool(count.why) == bool(count.difference)


@pytest.mark.parametrize(
    ("name", "footprint"),
    [("p097", (8, 32)), ("p098", (8, 28)), ("p099", (8, 28)), ("p101", (10, 28)), ("p123", (10, 28))],
)
def test_published_footprints(name: str, footprint: tuple[int, int]) -> None:
    found = case("gemm_4xn_fp16_published", name)
    assert (found["fregs"], found["hregs"]) == footprint


@pytest.mark.parametrize(("name", "syncs"), [("p098", 5), ("p099", 2), ("p101", 2), ("p123", 5), ("p137", 2)])
def test_published_syncs(name: str, syncs: int) -> None:
    """One a K step, or one a loop, and the prologue's."""
    assert case("gemm_4xn_fp16_published", name)["sy"] == syncs


def test_ours_is_as_short_as_the_best_published() -> None:
    """A K step of 20 samples, 20 additions and 64 MADs, and one test a loop: 417, with every wait in
    flags."""
    found = case("gemm_4xn_fp16", "n1024")
    assert {name: found[name] for name in ("loop", "isam", "mad", "rpt3", "fregs", "hregs", "ss")} == {
        "loop": 417,
        "isam": 80,
        "mad": 256,
        "rpt3": 256,
        "fregs": 10,
        "hregs": 28,
        "ss": 0,
    }
    assert found["sy"] == 8  # one for each of two column pairs of four K steps


def test_compiled_4x4_and_patched() -> None:
    """Five (sy), 60 MAD instructions for 64 products; patched one (sy) and 15 repeated MADs and a torn
    pair."""
    compiled = case("gemm_4x4_fp16", "compiled")
    assert (compiled["sy"], compiled["mad"], compiled["rpt3"], compiled["isam"]) == (5, 60, 0, 8)
    patched = case("gemm_4x4_fp16", "patched")
    assert (patched["sy"], patched["mad"], patched["rpt3"], patched["isam"]) == (1, 17, 15, 8)
    assert (compiled["fregs"], compiled["hregs"]) == (patched["fregs"], patched["hregs"]) == (8, 31)


def test_alu_peak_bodies() -> None:
    """Published: h8 for the compiler pattern, f8 h28 for the GEMM pattern. f9 of the former is our f8."""
    first = built("alu_peak", "compiler")
    assert (first.fregs, first.hregs) == (8, 8)
    assert dict(counts(first.program))["mad"] == 80
    second = built("alu_peak", "gemm")
    assert (second.fregs, second.hregs) == (8, 28)
    assert dict(counts(second.program))["rpt3"] == 16 * 4 * 3 * 4


@pytest.mark.parametrize("loads", range(4, 33, 4))
def test_texture_bandwidth_footprint(loads: int) -> None:
    """Published: f8, and 16 half vec4 more than there are samples in flight."""
    found = case("texture_bw", f"loads-{loads}")
    assert (found["isam"], found["sy"], found["fregs"], found["hregs"]) == (loads, 1, 8, 16 + loads)
