"""The registry, options and what is wrong with them."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields, replace
from typing import Any

import pytest

from pytest_qcom.envelope import ArgumentKind, parse
from pytest_qcom.errors import KernelError
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels import families, registry
from pytest_qcom.kernels.kernel import Case, Kernel
from pytest_qcom.kernels.registry import KERNELS
from suites.kernels.conftest import built, cases


def test_every_family_is_registered() -> None:
    found = {
        importlib.import_module(f"{families.__name__}.{module.name}")
        for module in pkgutil.iter_modules(families.__path__)
    }
    assert found == set(registry.FAMILIES)


def test_one_name_is_one_kernel() -> None:
    kernel = KERNELS["alu_peak"]
    with pytest.raises(KernelError, match="two kernels are called alu_peak; rename one"):
        registry.collect([kernel, kernel])
    doubled = replace(kernel, cases=(*kernel.cases, kernel.cases[0]))
    with pytest.raises(KernelError, match="kernel alu_peak has several cases called compiler; rename them"):
        registry.collect([doubled])


def test_unknown_kernel_lists_the_nearest() -> None:
    with pytest.raises(KernelError, match=r"no kernel is called 'gemm_4x4'; did you mean gemm_4x4_fp"):
        registry.find("gemm_4x4")


@pytest.mark.parametrize(("kernel", "case"), cases("correct", "probe", "as-published"))
def test_binary_holds_what_the_kernel_declares(kernel: Kernel, case: Case) -> None:
    build = built(kernel.name, case.name)
    envelope = parse(build.binary(kernel.name), kernel.name)
    assert Program.decode(envelope.image) == build.program
    assert (envelope.fregs, envelope.hregs, envelope.merged) == (
        build.fregs,
        build.hregs,
        build.merged or None,
    )
    assert {constant.offset // 4: constant.value for constant in envelope.constants} == dict(build.constants)
    pointers = [a.offset for a in envelope.arguments if a.kind is ArgumentKind.BUFFER]
    buffers = [argument for argument in build.arguments if not argument.image]
    first = 0 if kernel.summary.endswith("; UOps") else 320  # c20.x, as published
    assert pointers == [first + 8 * number for number in range(len(buffers))]


@pytest.mark.parametrize(("kernel", "case"), cases("correct", "probe", "as-published"))
def test_command_line_repeats_the_options(kernel: Kernel, case: Case) -> None:
    options = kernel.configure({}, case.name)
    words = dict(word.split("=") for word in kernel.arguments(options).split())
    assert kernel.configure(words) == options


def test_options_as_text() -> None:
    kernel = KERNELS["gemm_4xn_fp16_published"]
    options = kernel.configure({"k-unroll": "8", "compact-acc": "true", "alu-order": "row_col_kk"}, "p097")
    assert (options.k_unroll, options.compact_acc, options.alu_order) == (8, True, "row_col_kk")
    assert options.coord_delay == 4  # the case's own


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"k-unrol": 4}, "kernel gemm_4xn_fp16 has no option 'k-unrol'; did you mean k-unroll?"),
        ({"k-unroll": "four"}, "kernel gemm_4xn_fp16: option k-unroll is 'four'; give a whole number"),
        ({"b-first": "maybe"}, "kernel gemm_4xn_fp16: option b-first is 'maybe'; give true or false"),
        ({"k": 1.5}, "kernel gemm_4xn_fp16: option k is 1.5; give a whole number"),
        ({"m": True}, "kernel gemm_4xn_fp16: option m is True; give a whole number"),
        ({"alu-order": 3}, "kernel gemm_4xn_fp16: option alu-order is 3; give a word"),
    ],
)
def test_options_that_are_none(given: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError) as caught:
        KERNELS["gemm_4xn_fp16"].configure(given)
    assert str(caught.value) == message


def test_unknown_case() -> None:
    with pytest.raises(KernelError, match=r"kernel alu_peak has no case 'p006'; it has compiler, gemm, "):
        KERNELS["alu_peak"].configure({}, "p006")


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        ("gemm_4xn_fp16", {"k": 30}, "k is 30; a texel holds four of them, give a multiple of 4"),
        ("gemm_4xn_fp16", {"k": 0}, "k is 0; a texel holds four of them, give a multiple of 4"),
        (
            "gemm_4xn_fp16",
            {"m": 24},
            "an output of 24 x 1024 is not made of tiles of 16 x 512; give m and n in multiples of them",
        ),
        (
            "gemm_4xn_fp16",
            {"n": 640, "ncols": 4},
            "an output of 1024 x 640 is not made of tiles of 16 x 512; give m and n in multiples of them",
        ),
        ("gemm_4xn_fp16", {"threads": 96}, "threads is 96; give one of (64, 128, 256)"),
        ("gemm_8x8_fp16", {"threads": 2**31}, f"threads is {2**31}; give one of (64, 128, 256)"),
        ("gemm_4xn_fp16", {"ncols": 5}, "ncols is 5; give 1 to 4"),
        ("gemm_4xn_fp16", {"k_unroll": 0}, "k-unroll is 0; give 1 or more"),
        (
            "gemm_4xn_fp16",
            {"k_unroll": 10**9},
            f"k-unroll is {10**9}; no K has more than 4096 steps, give fewer",
        ),
        (
            "gemm_4xn_fp16",
            {"m": 32768},
            "32768 x 1024 x 1024 needs an image side beyond 16384 texels; give smaller m, n or k",
        ),
        (
            "gemm_4xn_fp16_published",
            {"k": 72, "k_unroll": 4},
            "18 K steps do not divide by k-unroll 4; the published kernels have no remainder",
        ),
        ("gemm_4x4_fp16", {"k": 6}, "k is 6; a texel holds four of them, give a multiple of 4"),
        (
            "alu_peak",
            {"gemm_pattern": True, "compiler_pattern": True},
            "compiler-pattern with gemm-pattern; give one of them",
        ),
        ("alu_peak", {"check_gemm": True}, "check-gemm needs gemm-pattern; give it too"),
        ("alu_peak", {"groups": 33}, "groups is 33; give 1 to 32 with rpt=3"),
        ("alu_peak", {"gemm_pattern": True, "loops": 1024}, "loops is 1024; give 1 to 1023"),
        ("alu_peak", {"gemm_pattern": True, "rows": 5}, "rows is 5; give 4 or 8"),
        ("alu_peak", {"gemm_pattern": True, "bmode": "all"}, "bmode is 'all'; give one of percol, reuse"),
        ("alu_peak", {"gemm_pattern": True, "store_group": 16}, "store-group is 16; there are 0 to 15"),
        (
            "alu_peak",
            {"gemm_pattern": True, "pairs": 0},
            "pairs, unroll, ncols and groups are counts; give 1 or more",
        ),
        ("texture_bw", {"loads": 6}, "loads is 6; give 4, 8, 12 to 32"),
        ("texture_bw", {"loads": 36}, "loads is 36; give 4, 8, 12 to 32"),
        ("texture_bw", {"k": 8192}, "k is 8192; give at most 4092"),
    ],
)
def test_options_that_do_not_go_together(kernel: str, options: dict[str, Any], message: str) -> None:
    declared = KERNELS[kernel]
    with pytest.raises(KernelError) as caught:
        declared.build(declared.configure(options))
    assert str(caught.value) == f"{kernel}: {message}"


@pytest.mark.parametrize("value", [10**30, str(10**30), -(10**10), "1" + "0" * 4000])
def test_numbers_beyond_a_word_are_refused(value: int | str) -> None:
    message = f"is a number of {int(value).bit_length()} bits; give one of 32"
    for kernel in KERNELS.values():
        names = [option.name for option in fields(kernel.options) if type(option.default) is int]
        for name in names:
            with pytest.raises(KernelError) as caught:
                kernel.configure({name: value})
            assert str(caught.value) == f"kernel {kernel.name}: option {name} {message}"


def test_unknown_order() -> None:
    kernel = KERNELS["gemm_4xn_fp16"]
    with pytest.raises(KernelError, match=r"alu-order is 'kk_kk'; give one of kk_row_col, kk_col_row, "):
        kernel.build(kernel.configure({"alu_order": "kk_kk"}))


def test_registers_over_the_file() -> None:
    kernel = KERNELS["alu_peak"]
    with pytest.raises(
        KernelError, match=r"registers 'acc': 256 scalars from hr16.x; a file ends at index 47"
    ):
        kernel.build(kernel.configure({"gemm_pattern": True, "rows": 8, "ncols": 8}))
