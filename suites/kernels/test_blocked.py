"""Half sums under float totals: on the device at their floors, where rounding goes, bad options."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.conformance import Outcome
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import blocked
from pytest_qcom.kernels.edit import branches
from pytest_qcom.kernels.kernel import Case, Kernel
from pytest_qcom.kernels.registry import KERNELS
from suites.kernels.conftest import built, cases


@pytest.mark.qcom_kernel("gemm_4x4_fp32_blocked")
@pytest.mark.qcom_kernel("gemm_blocked_fp32")
def test_gemm_is_right_on_random_matrices_and_holds_its_floor(kernel_run: Callable[[], Outcome]) -> None:
    outcome = kernel_run()
    assert outcome.ok
    assert outcome.checked > 0


@pytest.mark.parametrize(("kernel", "case"), cases("correct", of="blocked", but=("n1024", "m128")))
def test_patterns_are_exact(device: Device, kernel: Kernel, case: Case) -> None:
    options, build = kernel.configure({}, case.name), built(kernel.name, case.name)
    for pattern in kernel.patterns:
        run = conformance.prepare(device, kernel, options, pattern=pattern, build=build)
        run.launch()
        assert run.judge().max_abs == 0.0, pattern


def test_longer_blocks_round_more(device: Device) -> None:
    """What is saved by fewer promotions is paid in digits; each is within its own bound."""
    kernel = KERNELS["gemm_4x4_fp32_blocked"]
    errors = []
    for block in (1, 4, 16):
        options = kernel.configure(dict(m=16, n=128, k=512, k_unroll=16, block=block))
        run = conformance.prepare(device, kernel, options, np.random.default_rng(7))
        run.launch()
        assert run.judge().ok
        error = run.outputs()["C"] - kernel.oracle(options, run.inputs)["C"]
        errors.append(float(np.sqrt((error**2).mean())))
    assert errors[0] < 0.8 * errors[1] < 0.64 * errors[2]


def test_bound_holds_for_half_sums_and_notices_a_wrong_product() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((24, 256), (256, 32)))
    total = np.zeros((24, 32), np.float32)
    for start in range(0, 256, 16):
        part = np.zeros((24, 32), np.float16)
        for k in range(start, start + 16):
            part += a[:, k : k + 1] * b[k]
        total += part.astype(np.float32)
    bound = blocked.bound(a, b, 16)
    assert (np.abs(total - a.astype(np.float64) @ b.astype(np.float64)) <= bound).all()
    assert (np.abs(a[:, :1] * b[0]) > bound).mean() > 0.5


def test_a_jump_closes_the_loop_where_the_branch_leaves_it() -> None:
    """One instruction more; the branch goes out on the condition that the other one does not go back on."""
    kernel = KERNELS["gemm_4x4_fp32_blocked"]
    near, far = (
        kernel.build(kernel.configure({"direct_branch": direct})).program.instrs for direct in (True, False)
    )
    assert len(far) == len(near) + 1
    assert [instr.op.name for instr in near if branches(instr)] == ["br"]
    assert [instr.op.name for instr in far if branches(instr)] == ["br", "jump"]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("gemm_4x4_fp32_blocked", {"block": 3}, "k-unroll 4 with block 3; give a multiple of the block"),
        ("gemm_4x4_fp32_blocked", {"rows": 6}, "a tile of 6 rows and 1 columns; give 4 or 8, and 1 or 2"),
        ("gemm_4x4_fp32_blocked", {"k_count": 257}, "K steps 0 to 257 of 256; give k-start and k-count"),
        ("gemm_blocked_fp32", {"block4": 0}, "block4 is 0; give 1 to 16"),
        ("gemm_blocked_fp32", {"k": 392}, "128 x 1536 x 392 is not made of tiles of 16 x 128 x 16"),
        ("gemm_blocked_fp32", {"stride": 1024}, "give a multiple of 4 from n = 1536 on, or 0"),
        ("gemm_blocked_fp32", {"float_a": True, "linear": True}, "float-a with linear; a load does not conv"),
    ],
)
def test_options_that_make_no_kernel(name: str, given: dict[str, object], message: str) -> None:
    kernel = KERNELS[name]
    with pytest.raises(KernelError, match=message):
        kernel.build(kernel.configure(given))
