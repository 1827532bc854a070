"""Rows of published tables to options: names, values, prose, and what is not known."""

from __future__ import annotations

import pytest

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import family_names, notes
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


REPEATED = "strip-sync pack-repeats merge-pairs"


@pytest.mark.parametrize(
    ("family", "prose", "config"),
    [
        ("gemm_4x4_fp16", "patched", REPEATED),
        ("gemm_4x4_fp16", "compiled (one sy, scalar MADs)", "strip-sync"),
        ("gemm_4x4_fp16", "patched: one sy, (rpt3) MADs", REPEATED),
        ("gemm_4x4_fp16", "patched (sy stripped, MADs repeated)", REPEATED),
        ("gemm_4x4_fp16", "accumulator remap and MAD repeat", "remap-accumulators pack-repeats merge-pairs"),
        ("gemm_4x4_fp16", "hand loop: hregs=32 with the compiled epilogue", "hand hregs-override=32"),
        ("gemm_4x4_fp16", "eight rows, one sy", "rows=8 strip-sync"),
        ("gemm_4x4_fp16", "interleaved B, four sy", "interleaved-b"),
        ("alu_peak", "groups pattern, rpt=1, one-shot", "groups-pattern rpt=1 loops=1"),
        ("alu_peak", "gemm pattern, rows=8", "gemm-pattern rows=8"),
        ("local_gemm", "local memory of A and B", ""),
        ("globalb_gemm", "B from a buffer", ""),
        ("gemm_8x8_fp16", "split-a stream-b1 with sync", "split-a stream-b1 stream-b1-sync"),
        ("gemm_4xn_fp16", "ncols=4 direct stream-b with sync", "ncols=4 direct stream-b"),
        ("matmul_patch_fp32", "patch=rpt3_l25_unroll16 nosnop", "patch=rpt3_l25_unroll16_nosnop"),
    ],
)
def test_prose_is_what_it_says(family: str, prose: str, config: str) -> None:
    assert options_from_notes(family, prose) == options_from_notes(family, config)


@pytest.mark.parametrize(
    ("family", "short", "config"),
    [
        ("gemm_8x8_fp16", "split-k-unroll=4 grouped-b", "split-a split-k-unroll=4 grouped-b"),
        ("gemm_8x8_fp16", "donor8-store no-store=false", "serial donor8-store"),
        ("gemm_8x8_fp16", "stagger-b stagger-rows=1", "persistent stagger-b stagger-rows=1"),
        ("gemm_8x8_fp16", "overlap-b1", "experimental-twopass overlap-b1"),
        ("gemm_8x8_fp16", "pipeline coord-delay=3", "pipeline a-coord-delay=3 b-coord-delay=3"),
        ("gemm_8x8_fp16", "split-a fregs=8 hregs=27 iters=20", "split-a fregs-override=8 hregs-override=27"),
        ("gemm_4xn_fp16", "ncols=4 compact-acc hand-store", "ncols=4 direct compact-acc"),
        ("gemm_4xn_fp16", "stable-bx", "ncols=4 direct stable-bx"),
        ("gemm_4xn_fp16", "ncols=2 direct native-store", "ncols=2 direct donor2-store"),
        ("gemm_4x8_fp32", "stream-b", "low-4x8-fp32 stream-b"),
        ("gemm_4x8_fp32", "preload-b batch-coords", "low-4x8-fp32 preload-b batch-coords"),
        ("gemm_4x4_fp32", "quad-b coord-delay=-1", "compact-preload quad-map quad-b coord-delay=-1"),
        ("gemm_8x8_fp32", "direct-f32-loads donor-store", "direct-f32-loads"),
    ],
)
def test_what_a_row_leaves_out(family: str, short: str, config: str) -> None:
    kernel, options = options_from_notes(family, short)
    assert (kernel, options) == options_from_notes(family, config)
    kernel.build(options)


def test_options_given_one_by_one_are_taken_as_they_are() -> None:
    """Only rows leave something out: on the command line a case may have said it already."""
    kernel = KERNELS["gemm_8x8_fp16_published"]
    assert not kernel.configure({"split-k-unroll": "4"}).split_a


@pytest.mark.parametrize(
    ("family", "config", "name"),
    [
        ("gemm_4x8_fp32", "rotate k-unroll=6", "gemm_4x8_fp32_rotate_published"),
        ("gemm_4x8_fp32", "quad-splitk identity-b", "gemm_4x8_fp32_splitk"),
        ("gemm_8x4_fp32", "eight-row", "gemm_8x4_fp32_published"),
        ("gemm_4x8_fp32", "waksman no-q", "gemm_4x8_fp32_waksman"),
        ("gemm_4x8_fp32", "preload-b", "gemm_4x8_fp32_published"),
        ("gemm_8x8_fp16", "planar prefetch=a", "gemm_8x8_fp16_planar"),
        ("dp4", "coord-delay=3", "gemm_dp4_published"),
        ("image_local_gemm", "bk4=4", "gemm_image_local_fp16"),
        ("waksman", "", "gemm_4x8_fp32_waksman"),
        ("rotate", "", "gemm_4x8_fp32_rotate_published"),
        ("packed8_gemm", "", "gemm_8x8_fp16_packed_published"),
        ("divergent_branch", "", "branch_probe"),
        ("gemm_8xn_fp16", "ncols=4 serial", "gemm_8x16_fp16_published"),
    ],
)
def test_words_that_name_a_kernel(family: str, config: str, name: str) -> None:
    kernel, _ = options_from_notes(family, config)
    assert kernel is KERNELS[name]


@pytest.mark.parametrize("family", sorted(family_names.OTHERS))
def test_other_names_of_families_are_about_kernels_that_build(family: str) -> None:
    kernel, options = options_from_notes(family, "")
    assert kernel.build(options).program.instrs


def test_tiles_of_a_family_of_all_widths() -> None:
    assert options_from_notes("gemm_4x16_fp16", "b-first") == options_from_notes(
        "gemm_4xn_fp16", "ncols=4 b-first"
    )


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
        ("gemm", "", "no declared kernel is of family 'gemm'; did you mean"),
        ("gemm_8x8_fp16", "split-a split-b", "has no option 'split-b'; did you mean split-a"),
        ("gemm_8x8_fp16", "split-a split-k-unroll=many", "option split-k-unroll is 'many'; give a whole"),
        ("gemm_8x8_fp16", "split-a swapped", "has no option 'swapped'"),
        ("gemm_8x8_fp16", "split-a separate-regs=maybe", "option mergedregs is 'maybe'; give true or false"),
    ],
)
def test_what_is_not_known_is_explained(family: str, config: str, message: str) -> None:
    with pytest.raises(KernelError) as caught:
        options_from_notes(family, config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "given", "meant"),
    [
        ("gemm_4x8_fp32_rotate", {"rotate-buffer": "1"}, {"image_store": False}),
        ("gemm_4x8_fp32_rotate", {"rotate_buffer": "0", "column-z": "1"}, {"col_from_z": True}),
        ("gemm_4x8_fp32_waksman", {"waksman-no-q": "1"}, {"no_q": True}),
        ("gemm_8x8_fp16_published", {"separate-regs": "No"}, {"mergedregs": True}),
        ("gemm_4xn_fp16_published", {"partial": "1"}, {"direct": False}),
        ("gemm_wide_fp32_published", {"square8": "1"}, {"rows": 8, "ncols": 2}),
        ("gemm_wide_fp32_published", {"rows8": "1", "output-half": "1"}, {"half_output": True, "ncols": 1}),
        ("gemm_4x4_fp32_blocked", {"block": "2", "outer-iters": "5"}, {"block": 2, "k_count": 10}),
        ("gemm_4x4_fp32_blocked", {"block": "4", "no-back-edge": "1"}, {"k_count": 4}),
    ],
)
def test_options_that_scripts_say_in_other_words(
    name: str, given: dict[str, str], meant: dict[str, object]
) -> None:
    found = KERNELS[name].configure(given)
    assert {option: getattr(found, option) for option in meant} == meant
