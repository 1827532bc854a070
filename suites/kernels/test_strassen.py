"""The kernels of Strassen's and Winograd's forms: within their bounds, at their floors, exact patterns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.conformance import Outcome
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import strassen
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.targets import Target
from suites.kernels.conftest import built


@pytest.mark.qcom_kernel("strassen_transform")
@pytest.mark.qcom_kernel("strassen_combine")
@pytest.mark.qcom_kernel("strassen_products")
@pytest.mark.qcom_kernel("strassen_leaf_fused")
@pytest.mark.qcom_kernel("strassen_terminal_fused")
@pytest.mark.qcom_kernel("strassen_terminal_hand")
@pytest.mark.qcom_kernel("gemm_4x8_fp32_batched")
@pytest.mark.qcom_kernel("gemm_8x8_fp32_batched")
def test_right_at_its_floor_and_exact_where_no_sum_rounds(
    kernel_run: Callable[[], Outcome], kernel_target: Target, device: Device
) -> None:
    """Random inputs are within the bound; of exact ones, an index that is off by one anywhere shows."""
    outcome = kernel_run()
    assert outcome.ok
    assert outcome.checked > 0
    kernel, options = kernel_target.kernel, kernel_target.options
    pattern = "exact" if "exact" in kernel.patterns else "identity-a"
    run = conformance.prepare(device, kernel, options, pattern=pattern)
    run.launch()
    assert run.compare().max_abs == 0.0
    expected = np.concatenate([array.ravel() for array in kernel.oracle(options, run.inputs).values()])
    assert len(np.unique(expected)) > 8


def test_a_form_is_declared_by_its_sums() -> None:
    """18 additions of Strassen's, 15 of Winograd's, whose sums are shared."""

    class Counted:
        added = 0

        def __add__(self, other: Counted) -> Counted:
            Counted.added += 1
            return Counted()

        __sub__ = __add__

    for form, wanted in (("strassen", 18), ("winograd", 15)):
        Counted.added = 0
        for which, values in (("A", 4), ("B", 4), ("C", 7)):
            strassen.one_level(form, which, [Counted() for _ in range(values)])
        assert Counted.added == wanted


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("form", strassen.FORMS)
def test_sums_of_several_levels_are_those_of_their_coefficients(form: str, levels: int) -> None:
    rng = np.random.default_rng(5)
    blocks = {(i, j): rng.integers(-9, 9, 3) for i in range(2**levels) for j in range(2**levels)}
    stacked = np.array(list(blocks.values())).reshape(2**levels, 2**levels, 3)
    found = strassen.operand_sums(form, "A", levels, blocks)
    np.testing.assert_array_equal(
        found, np.einsum("pij,ijx->px", strassen.operand(form, "A", levels), stacked)
    )
    products = list(rng.integers(-9, 9, (7**levels, 3)))
    result = strassen.result_sums(form, levels, products)
    table = np.einsum("ijp,px->ijx", strassen.result(form, levels), np.array(products))
    assert all((values == table[place]).all() for place, values in result.items())


def test_a_loop_over_the_outer_level_is_a_fraction_of_the_code() -> None:
    """Three levels in one launch: 343 operands of 64 blocks from a loop body of 49."""
    build = built("strassen_transform", "three-levels")
    stores = [instr for instr in build.program.instrs if instr.op.name.startswith("stg")]
    assert len(stores) == 49
    assert len(build.program.instrs) < 2000


def test_the_hand_kernel_samples_the_blocks_that_sums_need() -> None:
    """Strassen's operands have 12 terms of A and 12 of B: two rows and four k of each are sampled."""
    program = built("strassen_terminal_hand", "n256").program
    assert sum(instr.op.name.startswith("isam") for instr in program.instrs) == 12 * 2 + 12 * 4
    assert sum(instr.op.name == "br" for instr in program.instrs) == 7


def test_local_memory_holds_each_stage_once() -> None:
    """Two stages of three are kept: (7 * 16 + 49 * 4) vectors of 4 halves, at 4 places."""
    assert built("strassen_transform", "local-three").shared_bytes == (7 * 16 + 49 * 4) * 4 * 4 * 2


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("strassen_transform", {"side": "C"}, "side is 'C'; give A or B"),
        ("strassen_transform", {"form": "karatsuba"}, "form 'karatsuba'; give one of strassen, winograd"),
        ("strassen_transform", {"levels": 4}, "4 levels at once; give 1 to 3"),
        ("strassen_transform", {"levels": 5, "positions": 1}, "5 levels at once; give 1 to 4"),
        ("strassen_transform", {"rows": 9}, "1 of 9 x 1024 are not 2 x 2 blocks each"),
        ("strassen_transform", {"vec": 3}, "vec is 3; give 1, 2, 4, 8 or 16"),
        ("strassen_transform", {"vec": 2, "image_input": True}, "vec is 2; give 4, a texel"),
        ("strassen_transform", {"threads": 96}, r"threads is 96; give one of \(64, 128, 256\)"),
        ("strassen_transform", {"path": 7}, "path is 7; give one of 7 products, and no positions, or -1"),
        ("strassen_transform", {"path": 2, "positions": 4}, "path is 2; give one of 7 products, and no"),
        (
            "strassen_transform",
            {"levels": 4, "positions": 4, "float_sums": True},
            "4 levels of 4 vectors of 4 are 166656 bytes of local memory, the A630 has 32768; give fewer",
        ),
        (
            "strassen_combine",
            {"rows": 4, "cols": 8},
            "a block of 2 x 4 is not made of 128 fibers' vectors of 2",
        ),
        ("strassen_combine", {"block": 4}, "block is 4; give one of 4, and no positions, or -1"),
        ("strassen_combine", {"half_output": True}, "half-output with half sums"),
        (
            "strassen_transform",
            {"levels": 2, "parallel": True},
            "parallel with 2 levels, path or positions; give it alone, with one level",
        ),
        (
            "strassen_combine",
            {"levels": 3, "parallel": True},
            "parallel with 3 levels, block or positions; give it alone, with 1 or 2 levels",
        ),
        ("strassen_products", {"rows": 3}, "rows is 3 and threads 64; give 1, 2 or 4"),
        ("strassen_products", {"m": 8, "n": 8}, "49 products of 8 x 8 x 64 are not made of whole workgroups"),
        ("strassen_products", {"half_output": True}, "half-output with half sums"),
        ("strassen_leaf_fused", {"product": 7}, "product is 7; give 0 to 6"),
        ("strassen_leaf_fused", {"levels": 3}, "3 levels at once; give 1 to 2"),
        ("strassen_leaf_fused", {"m": 48}, "give multiples of 32 x 256 x 8"),
        (
            "strassen_leaf_fused",
            {"image_store": False, "half_output": True},
            "half-output into a buffer of float32; give image-store=true too",
        ),
        ("strassen_terminal_fused", {"rows": 3}, "rows is 3; give 1, 2, 4 or 8"),
        ("strassen_terminal_fused", {"n": 128}, "give multiples of 16 x 256 x 8"),
        ("strassen_terminal_hand", {"rows": 3}, "rows is 3; give 1, 2 or 4"),
        ("strassen_terminal_hand", {"k": 12}, "512 x 512 x 12; give m in multiples of 2, n and k of 8"),
        ("strassen_terminal_hand", {"m": 520}, "260 x 256 is not made of tiles of 8 x 128"),
        ("strassen_terminal_hand", {"form": "karatsuba"}, "form 'karatsuba'; give one of strassen, winograd"),
        ("gemm_4x8_fp32_batched", {"layout": "stacked"}, "layout is 'stacked'; give one of row, z"),
        ("gemm_4x8_fp32_batched", {"m": 24}, "m is 24; where the row says which product, give"),
        ("gemm_8x8_fp32_batched", {"layout": "column"}, "layout is 'column'; give one of row, z"),
        ("gemm_8x8_fp32_batched", {"m": 48}, "m is 48; where the row says which product, give a power of 2"),
        ("gemm_8x8_fp32_batched", {"half_output": True}, "half-output into a buffer of float32"),
        ("gemm_8x8_fp32_batched", {"m": 8}, "an output of 8 x 256 is not made of tiles of 16 x 256"),
        ("gemm_4x8_fp32_batched", {"batches": 65}, "65 products of 256 x 256 x 256; images are up to 16384"),
        ("gemm_4x8_fp32_batched", {"half_output": True}, "half-output into a buffer of float32"),
        ("gemm_4x8_fp32_batched", {"k_unroll": 4}, "k-unroll is 4; the banks turn in 3 steps"),
        ("gemm_4x8_fp32_batched", {"m": 1032, "layout": "z"}, "m 1032 and k 256; beyond 1023 give powers"),
    ],
)
def test_bad_options(name: str, options: dict[str, object], message: str) -> None:
    kernel = KERNELS[name]
    with pytest.raises(KernelError, match=message):
        kernel.build(kernel.configure(options))
