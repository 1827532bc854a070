"""The turns that published notes report, measured on a device: the cycle model takes them too."""

from __future__ import annotations

from functools import cache

import pytest

from pytest_qcom.analysis.cycles import estimate
from pytest_qcom.kernels.published import options_from_notes
from pytest_qcom.timings import launched

DIRECT = (
    "ncols=4 direct compact-acc stable-bx stable-ay inc-coords persistent-coords alu-order=row_col_kk "
    "coord-delay=-1 k-unroll=4 first-sync-only"
)
SPLIT = (
    "split-a split-k-unroll={} b-coord-delay=0 donor8-add256-store split-prefetch-next-b split-fast-coords "
    "fregs-override=8 add256-store-mode=tight"
)
L25 = "patch=rpt3_l25_postinc_unroll22"


@cache
def speed(family: str, words: str, n: int = 1024, threads: str = "128", thread128: bool = True) -> float:
    """The model's speed of a published kernel, in its unit; ``n`` is the size of a square product."""
    columns = {"m": str(n), "n": str(n), "k": str(n), "threads": threads, "thread128": str(int(thread128))}
    kernel, options = options_from_notes(family, words, columns)
    build = kernel.build(options)
    return build.work / estimate(launched(build, thread128), build.program).seconds


def test_b_first_beats_a_first() -> None:
    assert speed("gemm_4xn_fp16", f"{DIRECT} b-first") > speed("gemm_4xn_fp16", DIRECT)


def test_64_threads_lose() -> None:
    words = f"{DIRECT} b-first low-a-coords"
    share = speed("gemm_4xn_fp16", words, threads="64") / speed("gemm_4xn_fp16", words)
    assert share == pytest.approx(260 / 428, rel=0.1)


def test_unrolling_beyond_the_instruction_cache_loses() -> None:
    share = speed("gemm_8x8_fp16", SPLIT.format(16)) / speed("gemm_8x8_fp16", SPLIT.format(8))
    assert share == pytest.approx(391 / 460, rel=0.1)


def test_the_tight_store_passes_460() -> None:
    """Published: 460 to 469 GFLOPS."""
    assert speed("gemm_8x8_fp16", SPLIT.format(8)) > 460


def test_without_b_more_is_gained_than_without_a() -> None:
    words = f"{DIRECT} b-first no-store"
    whole, no_a, no_b = (
        speed("gemm_4xn_fp16", f"{words}{skip}") for skip in ("", " skip-a-loads", " skip-b-loads")
    )
    assert whole < no_a < no_b
    assert no_b / no_a == pytest.approx(590 / 453, rel=0.1)


def test_wide_waves_double_the_half_peak() -> None:
    narrow, wide = (speed("mad_peak", "dtype=fp16", threads="256", thread128=flag) for flag in (False, True))
    assert wide / narrow == pytest.approx(690 / 346, rel=0.05)


def test_wide_waves_do_not_double_the_full_peak() -> None:
    narrow, wide = (speed("mad_peak", "dtype=fp32", threads="256", thread128=flag) for flag in (False, True))
    assert wide / narrow == pytest.approx(468 / 346, rel=0.05)


def test_wide_waves_lose_in_the_compiled_full_loop() -> None:
    narrow, wide = (speed("matmul_patch_fp32", L25, 704, "", flag) for flag in (False, True))
    assert wide / narrow == pytest.approx(256 / 270, rel=0.1)
