"""Rows of published tables to options: names, values, prose, and what is not known."""

from __future__ import annotations

import pytest

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import notes
from pytest_qcom.kernels.published import options_from_notes
from pytest_qcom.kernels.registry import KERNELS


def test_words_are_options() -> None:
    kernel, options = options_from_notes(
        "gemm_8x8_fp16",
        "split-a split-k-unroll=4 b-coord-delay=-1 donor8-add256-store add256-store-mode=tight",
        {"m": "512", "threads": "64", "fregs": "10", "verdict": "correct", "k": ""},
    )
    assert kernel is KERNELS["gemm_8x8_fp16_published"]
    assert options == kernel.options(
        m=512,
        threads=64,
        split_a=True,
        split_k_unroll=4,
        b_coord_delay=-1,
        donor8_add256_store=True,
        add256_store_mode="tight",
    )


def test_each_published_case_is_its_words() -> None:
    """Cases are given as the notes have them; the words lead back to the case."""
    kernel, options = options_from_notes("gemm_8x16_fp16", "split-a split-k-unroll=4")
    assert options == kernel.configure({}, "p059")
    kernel, options = options_from_notes("gemm_8x4_fp16", "ncols=1 donor-store", {"thread128": "1"})
    assert options == kernel.configure({}, "p011")
    kernel, options = options_from_notes("gemm_8x16_fp16", "donor-store", {"threads": "64"})
    assert options == kernel.configure({}, "p060")


def test_options_of_split_a_without_their_prefix() -> None:
    short = options_from_notes(
        "gemm_8x8_fp16", "split-a k-unroll=4 high-a prefetch-next-b fast-coords grouped-b"
    )
    long = "split-a split-k-unroll=4 split-high-a split-prefetch-next-b split-fast-coords grouped-b"
    assert short == options_from_notes("gemm_8x8_fp16", long)


def test_prose_is_an_option() -> None:
    assert notes.options("split-prefetch-next-a swapped before B1 k=3 off=false") == {
        "split_prefetch_next_a": True,
        "split_next_a_first": True,
        "k": 3,
        "off": False,
    }


def test_prose_may_mean_the_default() -> None:
    kernel, options = options_from_notes("gemm_4x4_fp16", "compiled (five sy, scalar MADs)")
    assert options == kernel.options()


def test_other_families_are_found() -> None:
    kernel, options = options_from_notes("gemm_4xn_fp16", "ncols=2 coord-delay=0 donor-store")
    assert kernel is KERNELS["gemm_4xn_fp16_published"]
    assert (options.ncols, options.coord_delay) == (2, 0)
    kernel, _ = options_from_notes("gemm_8x8_fp16", "packed8 coord-delay=2")
    assert kernel is KERNELS["gemm_8x8_fp16_packed_published"]
    kernel, _ = options_from_notes("alu_peak", "")
    assert kernel is KERNELS["alu_peak"]


@pytest.mark.parametrize(
    ("family", "config", "message"),
    [
        ("gemm_9x9", "", "no declared kernel is of family 'gemm_9x9'; did you mean gemm_"),
        ("gemm_8x8_fp16", "split-a split-b", "has no option 'split-b'; did you mean split-a"),
        ("gemm_8x8_fp16", "split-a split-k-unroll=many", "option split-k-unroll is 'many'; give a whole"),
        ("gemm_8x8_fp16", "split-a swapped", "has no option 'swapped'"),
    ],
)
def test_what_is_not_known_is_explained(family: str, config: str, message: str) -> None:
    with pytest.raises(KernelError) as caught:
        options_from_notes(family, config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
