"""Counts of instructions that the notes publish for a configuration, and why ours differ where they do."""

from __future__ import annotations

from dataclasses import dataclass

_OURS = "prologue and addresses are ours"
_FOUR = f"{_OURS}: no slice of a compiled kernel, and addresses for all columns at once, not for each of four"
_EIGHT = f"{_OURS}: no slice of a compiled kernel, and 34 instructions of addresses, not 56"
_LOOP = (
    "the notes count an unrolled step with the two additions behind it; behind the last are five, for a test"
)


@dataclass(frozen=True, slots=True)
class Count:
    """One published figure.

    Attributes:
        what: ``instructions`` of the whole shader, of its ``loop`` without the branch, or by kind, as
            :func:`~pytest_qcom.kernels.rewrite.counts` has them.
        difference: ours less the published one.
        why: where there is a difference.
    """

    kernel: str
    case: str
    what: str
    published: int
    difference: int = 0
    why: str = ""


_BEST_4 = ("gemm_4xn_fp16_published", "p101")
_FIRST_8, _BEST_8 = ("gemm_8x8_fp16_published", "p017"), ("gemm_8x8_fp16_published", "p028")
_SINGLE, _LOW = ("gemm_4x4_fp32_published", "p170"), ("gemm_4x8_fp32_published", "p188")

COUNTS = (
    Count(*_BEST_4, "instructions", 677, -146, _FOUR),
    Count(*_BEST_4, "loop", 417),
    Count(*_BEST_4, "isam", 80),
    Count(*_BEST_4, "mad", 256),
    Count(*_BEST_4, "sy", 2),
    Count("gemm_4xn_fp16_published", "p099", "sy", 2),
    Count(*_FIRST_8, "instructions", 602, -37, _EIGHT),
    Count(*_FIRST_8, "loop", 4 * 110, 3, _LOOP),
    Count(*_FIRST_8, "isam", 64),
    Count(*_FIRST_8, "sy", 2),
    Count(*_BEST_8, "instructions", 1022, -36, _EIGHT),
    Count(*_BEST_8, "loop", 8 * 109, 3, _LOOP),
    Count(*_BEST_8, "isam", 128),
    Count(*_BEST_8, "sy", 2),
    Count(
        "gemm_8x8_fp16_published",
        "persistent",
        "loop",
        100,
        -3,
        "the first pair of A is the counter, and the test is far enough from the branch to need no idle slot",
    ),
    Count(
        *_SINGLE,
        "instructions",
        161,
        -67,
        f"{_OURS}: no slices of a compiled kernel, of 27 and 46 instructions",
    ),
    Count(*_SINGLE, "loop", 47),
    Count(*_SINGLE, "isam", 8),
    Count(*_SINGLE, "sy", 2),
    Count(*_LOW, "loop", 73),
    Count(*_LOW, "isam", 12),
    Count(*_LOW, "sy", 2),
)
"""In the order of the page of kernels."""
