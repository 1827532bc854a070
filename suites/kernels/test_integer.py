"""GEMMs of bytes on the device: exact sums, scales within their bound, and what quantizing costs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.conformance import Outcome
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import integer
from pytest_qcom.kernels.families import gemm_int8_fp32
from pytest_qcom.kernels.kernel import Case, Kernel
from pytest_qcom.kernels.registry import KERNELS
from suites.kernels.conftest import built, cases


@pytest.mark.qcom_kernel("gemm_dp4")
@pytest.mark.qcom_kernel("gemm_dp4_scaled")
def test_gemm_is_right_on_random_bytes_and_holds_its_floor(kernel_run: Callable[[], Outcome]) -> None:
    outcome = kernel_run()
    assert outcome.ok
    assert outcome.checked > 0


@pytest.mark.parametrize(
    ("kernel", "case"),
    cases("correct", of="_dp4", but=("n1024", "scaled")),
)
def test_patterns_are_exact(device: Device, kernel: Kernel, case: Case) -> None:
    options, build = kernel.configure({}, case.name), built(kernel.name, case.name)
    for pattern in kernel.patterns:
        run = conformance.prepare(device, kernel, options, pattern=pattern, build=build)
        run.launch()
        assert run.judge().max_abs == 0.0, pattern


@pytest.mark.parametrize(("value", "mixed"), [(255, False), (-128, True)])
def test_extreme_bytes(device: Device, value: int, mixed: bool) -> None:
    """All A extreme, all B 255: the largest sums there are, of either sign."""
    kernel = KERNELS["gemm_dp4"]
    options = kernel.configure({"m": 16, "n": 128, "k": 64, "mixed": mixed})
    run = conformance.prepare(device, kernel, options, np.random.default_rng(0))
    inputs = integer.images(options, np.full((16, 64), value), np.full((64, 128), 255))
    run.tensors = {**run.tensors, **{name: device.image(array) for name, array in inputs.items()}}
    run.launch()
    assert np.array_equal(run.outputs()["C"], np.full((16, 128), 64 * 255 * value))


def test_oracle_takes_sums_modulo_32_bits() -> None:
    options = KERNELS["gemm_dp4"].configure({"m": 16, "n": 128, "k": 65536})
    arrays = integer.images(options, np.full((16, 65536), 255), np.full((65536, 128), 255))
    assert (integer.product(options, arrays)["C"] == 65536 * 255 * 255 - (1 << 32)).all()


def test_images_hold_the_matrices() -> None:
    options = KERNELS["gemm_dp4"].configure({"m": 16, "n": 128, "k": 48, "mixed": True})
    rng = np.random.default_rng(2)
    a, b = rng.integers(-128, 128, (16, 48)), rng.integers(0, 256, (48, 128))
    arrays = integer.images(options, a, b)
    assert arrays["A"].shape == (16, 4, 4)  # three texels, and one that pads the row
    assert arrays["A"][3, 1, 2] == int.from_bytes(bytes(a[3, 24:28].astype(np.uint8)), "little")
    assert arrays["B"][5, 7, 1] == int.from_bytes(bytes(b[20:24, 29].astype(np.uint8)), "little")
    for got, expected in zip(integer.matrices(options, arrays), (a, b), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_scaled_product_is_that_of_the_floats(device: Device) -> None:
    """What comes out is the product of the float matrices, within what quantizing and rounding cost."""
    kernel = KERNELS["gemm_dp4_scaled"]
    options = kernel.configure({"m": 16, "n": 128, "k": 256})
    rng = np.random.default_rng(5)
    activations = rng.standard_normal((16, 256)) * 2.0 ** rng.integers(-8, 9, (16, 1))
    weights = rng.standard_normal((256, 128)) * 2.0 ** rng.integers(-8, 9, 128)
    activations[3] = 0.0  # its scale is 1
    arrays = integer.scaled(options, activations, weights)
    run = conformance.prepare(device, kernel, options, rng)
    run.tensors = {**run.tensors, **{name: device.image(array) for name, array in arrays.items()}}
    run.inputs = arrays
    run.launch()
    assert run.judge().ok
    got, expected = run.outputs()["C"].astype(np.float64), activations @ weights
    bound = integer.quantization_bound(activations, weights)
    bound += integer.scaled_bound(options, arrays)["C"]
    assert (np.abs(got - expected) <= bound).all()
    assert (got[3] == 0.0).all()
    others = np.delete(np.arange(16), 3)
    typical = np.abs(expected[others]).mean(axis=1) / bound[others].mean(axis=1)
    assert (typical > 1.5).all()  # the bound says something


def test_weights_of_8_bits_cost_half_a_step_each(device: Device) -> None:
    """What comes out is the product of the float weights, within half a step of each weight, and rounding."""
    kernel = KERNELS["gemm_int8_fp32"]
    options = kernel.configure({"m": 16, "n": 256, "k": 64})
    rng = np.random.default_rng(6)
    activations = rng.standard_normal((16, 64)).astype(np.float16)
    weights = rng.standard_normal((64, 256)) * 2.0 ** rng.integers(-8, 9, 256)
    weights[:, 7] = 0.0
    given = gemm_int8_fp32.arrays(options, activations, weights)
    run = conformance.prepare(device, kernel, options, rng)
    run.tensors = {**run.tensors, **{name: device.image(array) for name, array in given.items()}}
    run.inputs = given
    run.launch()
    assert run.judge().ok
    error = np.abs(run.outputs()["C"] - activations.astype(np.float64) @ weights)
    step = np.abs(weights).max(axis=0) / integer.LIMIT
    half = 0.5 * (1 + 2.0**-15) * step * np.abs(activations.astype(np.float64)).sum(axis=1, keepdims=True)
    assert (error <= half + gemm_int8_fp32.bound(options, given)["C"]).all()
    assert (error[:, 7] == 0.0).all()
    assert error.max() > 0.0


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("gemm_dp4", {"k": 24}, "k is 24; a texel holds 16 bytes of a row, give a multiple of 16"),
        ("gemm_dp4", {"k": 65552}, "needs an image side beyond 16384; "),
        ("gemm_dp4", {"rows": 6}, "a tile of 6 rows and 1 columns; give 4 or 8, and 1 or 2"),
        ("gemm_dp4", {"own_pairs": True, "preload_b": False}, "own-pairs without preload-b"),
        ("gemm_dp4_scaled", {"mixed": False}, "activations are signed, leave it true"),
    ],
)
def test_options_that_make_no_kernel(name: str, given: dict[str, object], message: str) -> None:
    kernel = KERNELS[name]
    with pytest.raises(KernelError, match=message):
        kernel.build(kernel.configure(given))
