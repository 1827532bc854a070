"""Register plans: no two names in one place, and the footprint that a launch must declare."""

from __future__ import annotations

import pytest

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.kernel import Case, Kernel
from pytest_qcom.kernels.registers import RegisterPlan
from suites.kernels.conftest import built, cases

AS_NOTED = ("gemm_8x8_fp16_waited", "gemm_4x4_fp32_halfwave")
"""Kernels of ours that declare what the notes do, which may be more than they use."""

TOO_SMALL = ("gemm_4x4_fp16_published[p149]", "gemm_8x8_fp16_planar_published[declared]")
"""Published configurations whose fault is that they use more than they declare."""


def test_names_and_footprint() -> None:
    plan = RegisterPlan().place("a", "hr0.x", 16).place("acc", "hr12.x", 64).place("row", "r8.y", 1)
    assert plan.footprint() == (9, 28)
    assert plan["acc"].vec(3) == Reg(60, half=True)
    assert [str(reg) for reg in plan["row"]] == ["r8.y"]
    assert "acc" in plan
    assert "b" not in plan


def test_allocation_takes_the_lowest_gap() -> None:
    plan = RegisterPlan().place("low", "r0.x", 5).place("high", "r4.x", 4)
    plan = plan.allocate("gap", 8).allocate("behind", 12).allocate("half", 4, half=True)
    assert [str(plan[name].first) for name in ("gap", "behind", "half")] == ["r2.x", "r5.x", "hr0.x"]


def test_lifetimes_may_share() -> None:
    plan = RegisterPlan().place("lid", "r0.x", 1).place("pairs", "r0.x", 8, over=("lid",))
    assert plan.footprint() == (2, 0)


@pytest.mark.parametrize(("size", "half", "full"), [(4, "hr8.x", "r4.x"), (1, "hr9.w", "r4.w")])
def test_aliasing_in_merged_mode(size: int, half: str, full: str) -> None:
    """hr(2k) and hr(2k+1) are the halves of full scalar k."""
    RegisterPlan().place("acc", half, size).place("coordinate", full, size)
    with pytest.raises(
        KernelError, match=r"'coordinate' .* overlap 'acc' .* in merged mode; move one of them"
    ):
        RegisterPlan(merged=True).place("acc", half, size).place("coordinate", full, size)
    plan = RegisterPlan(merged=True).place("acc", half, size).place("coordinate", "r6.x", size)
    assert plan.footprint()[0] == 7
    assert RegisterPlan(merged=True).place("acc", half, size).footprint() == (5, 9 if size == 4 else 10)


@pytest.mark.parametrize(
    ("name", "at", "size", "message"),
    [
        (
            "b",
            "hr3.z",
            4,
            "registers 'b' (hr3.z, 4 scalars) overlap 'a' (hr0.x, 16 scalars); move one of them",
        ),
        ("a", "r0.x", 1, "registers 'a' are placed twice, at hr0.x and r0.x"),
        ("b", "r47.x", 5, "registers 'b': 5 scalars from r47.x; a file ends at index 47"),
        ("b", "r0.x", 0, "registers 'b': 0 scalars from r0.x; a file ends at index 47"),
    ],
)
def test_what_does_not_fit(name: str, at: str, size: int, message: str) -> None:
    with pytest.raises(KernelError) as caught:
        RegisterPlan().place("a", "hr0.x", 16).place(name, at, size)
    assert str(caught.value) == message


def test_unknown_names_and_places() -> None:
    plan = RegisterPlan().place("a", "hr0.x", 4)
    with pytest.raises(KernelError, match="register plan has no 'b'; it has a"):
        plan["b"]
    with pytest.raises(KernelError, match="register block 'a' has 4 scalars; 4 is asked for"):
        plan["a"].vec(1)
    with pytest.raises(KernelError, match="no 8 free half scalars; use a smaller tile"):
        plan.place("rest", "hr1.x", 188).allocate("more", 8, half=True)


@pytest.mark.parametrize(("kernel", "case"), cases("correct", "probe", "as-published"))
def test_declared_footprint_covers_the_program(kernel: Kernel, case: Case) -> None:
    build = built(kernel.name, case.name)
    fregs, hregs = build.program.footprint()
    if build.merged:  # half registers are full ones, too
        fregs = max(fregs, -(-hregs // 2))
    options = kernel.configure({}, case.name)
    full, half = (getattr(options, name, 0) for name in ("fregs_override", "hregs_override"))
    if f"{kernel.name}[{case.name}]" in TOO_SMALL:
        assert build.fregs < fregs or build.hregs < hregs
        return
    if (kernel.claim == "as-published" or kernel.name in AS_NOTED) and not (full or half):
        assert build.fregs >= fregs and build.hregs >= hregs
        return
    assert (build.fregs, build.hregs) == (full or fregs, half or hregs)
