"""GEMMs of bytes on the device: exact sums, scales within their bound, and what quantizing costs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.conformance import Outcome
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import HazardError, KernelError
from pytest_qcom.kernels import integer, single
from pytest_qcom.kernels.families import gemm_int8_fp32
from pytest_qcom.kernels.kernel import Case, Kernel
from pytest_qcom.kernels.registry import KERNELS
from suites.kernels.conftest import built, cases


@pytest.mark.qcom_kernel("gemm_dp4")
@pytest.mark.qcom_kernel("gemm_dp4_scaled")
@pytest.mark.qcom_kernel("qpack")
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


PUBLISHED = KERNELS["gemm_dp4_published"]


def shrunk(case: Case) -> object:
    """A published case on a small shape."""
    options = PUBLISHED.configure({}, case.name)
    height = 12 if options.combined_b_height else 0
    return replace(options, m=32, n=128 * options.ncols, k=48, combined_b_height=height)


@pytest.mark.parametrize("case", PUBLISHED.cases, ids=lambda case: case.name)
def test_published_is_exact_where_hardware_waits(lenient: Device, case: Case) -> None:
    """On ones and at random: what may be wrong is time alone."""
    options = shrunk(case)
    for pattern in ("ones", ""):
        run = conformance.prepare(lenient, PUBLISHED, options, np.random.default_rng(3), pattern)
        run.launch()
        outcome = run.compare()
        assert outcome.ok
        assert bool(outcome.checked) != case.options.get("no_store", False)


@pytest.mark.parametrize("case", PUBLISHED.cases, ids=lambda case: case.name)
def test_published_coordinates_are_a_slot_too_young(device: Device, case: Case) -> None:
    """Five slots where Mesa leaves six; without samples there is nothing that could be late.

    But for the probe of two columns, whose sums are too young.
    """
    if device.mode == "hardware":
        pytest.skip("hardware does not explain hazards")
    run = conformance.prepare(device, PUBLISHED, shrunk(case), np.random.default_rng(3))
    if case.name == "constant-inputs":
        run.launch()
        return
    with pytest.raises(HazardError, match=r"^[^:]*early-read"):
        run.launch()


def test_published_footprint_is_that_of_the_notes() -> None:
    build = PUBLISHED.build(PUBLISHED.configure({}))
    assert (build.fregs, build.hregs) == (13, 0)
    assert sum(instr.op.cat == 5 for instr in build.program.instrs) == 8


def test_published_probe_of_two_columns_multiplies_one_lane() -> None:
    """Four rows by four words by two columns, 19 full vec4, twelve samples: what the notes timed."""
    build = PUBLISHED.build(PUBLISHED.configure({}, "4x8-no-store"))
    assert (build.fregs, build.hregs) == (19, 0)
    names = [instr.op.name.partition(".")[0] for instr in build.program.instrs]
    assert (names.count("dp4acc"), names.count("isam"), names.count("stg")) == (32, 12, 0)
    ours = KERNELS["gemm_dp4"].build(KERNELS["gemm_dp4"].configure({"ncols": 2}))
    assert sum(instr.op.name.startswith("dp4acc") for instr in ours.program.instrs) == 128


def test_products_with_idle_slots_behind_them() -> None:
    plain, slow = (PUBLISHED.build(PUBLISHED.configure({"dp4_delay": slots})) for slots in (0, 2))
    assert len(slow.program.instrs) - len(plain.program.instrs) == 64


@pytest.mark.parametrize("name", ["gemm_4x8_fp32", "gemm_4x8_fp32_rotate", "gemm_4x8_fp32_waksman"])
def test_images_of_bytes_are_fractions_of_127(device: Device, name: str) -> None:
    """Values beyond 1 are cut off; without bytes the same matrices give another product."""
    kernel = KERNELS[name]
    options = kernel.configure({"m": 16, "n": 256, "k": 32, "int8_a": True, "int8_b": True})
    rng = np.random.default_rng(4)
    a, b = rng.uniform(-1.5, 1.5, (16, 32)), rng.uniform(-1.5, 1.5, (32, 256))
    arrays = single.images(options, a, b)
    assert {array.dtype.name for array in arrays.values()} == {"int8"}
    run = conformance.prepare(device, kernel, options, rng)
    run.tensors = {**run.tensors, **{key: device.image(array) for key, array in arrays.items()}}
    run.inputs = arrays
    run.launch()
    assert run.judge().ok
    cut = np.rint(127 * np.clip(a, -1, 1)) / 127 @ (np.rint(127 * np.clip(b, -1, 1)) / 127)
    np.testing.assert_allclose(run.outputs()["C"].reshape(16, 256), cut, atol=1e-4)


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


def test_rows_that_were_packed_on_the_device_make_the_product_of_the_floats(device: Device) -> None:
    """qpack's bytes, scales and sums into the scaled GEMM: dynamic scales of rows, as a graph would have."""
    pack, gemm = KERNELS["qpack"], KERNELS["gemm_dp4_scaled"]
    options = gemm.configure({"m": 16, "n": 128, "k": 256})
    rng = np.random.default_rng(9)
    packed = conformance.prepare(device, pack, pack.configure({"m": 16, "k": 256}), rng)
    packed.launch()
    assert packed.judge().ok
    found = packed.outputs()
    activations = packed.inputs["A"].reshape(16, 256).astype(np.float64)
    weights = rng.standard_normal((256, 128)) * 2.0 ** rng.integers(-8, 9, 128)
    given = dict(integer.scaled(options, activations, weights))
    given["A"][:, :16] = found["O"].reshape(16, 16, 4)
    given["rows"][:, 0, 0] = found["S"].view(np.uint32)
    given["rows"][:, 0, 1] = found["SUM"] * np.uint32(integer.BIAS)
    run = conformance.prepare(device, gemm, options, rng)
    run.tensors = {**run.tensors, **{name: device.image(array) for name, array in given.items()}}
    run.inputs = given
    run.launch()
    assert run.judge().ok
    error = np.abs(run.outputs()["C"] - activations @ weights)
    bound = integer.quantization_bound(activations, weights) + integer.scaled_bound(options, given)["C"]
    assert (error <= 1.001 * bound).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [({"k": 30}, "128 x 30; give k a multiple of 4"), ({"m": 1, "k": 4}, "m * k one of 256")],
)
def test_rows_that_cannot_be_packed(given: dict[str, int], message: str) -> None:
    kernel = KERNELS["qpack"]
    with pytest.raises(KernelError, match=re.escape(message)):
        kernel.build(kernel.configure(given))


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
        (
            "gemm_dp4_scaled",
            {"initial_acc": 1},
            "initial-acc or combined-b-height with scales; leave them out",
        ),
        ("gemm_dp4", {"combined_b_height": 64}, "B has 256 rows, give that or 0"),
        ("gemm_dp4", {"k": 8192, "combined_b_height": 2048}, "A below row 1015 is out of reach"),
        ("gemm_dp4", {"own_pairs": True, "combined_b_height": 256}, "own-pairs with combined-b-height"),
        ("gemm_dp4", {"initial_acc": -1}, "initial-acc is -1; give 32 bits, 0 or more"),
        ("gemm_dp4_published", {"ncols": 2}, "ncols is 2; that was a probe: give no-store, without mixed"),
        ("gemm_dp4_published", {"dp4_delay": 9}, "dp4-delay is 9; give 0 to 8"),
        ("gemm_int8_fp32", {"rows": 8, "ncols": 3}, "8 rows and 3 columns; give 4 and 1 to 4, or 8 and 1 or"),
        ("gemm_int8_fp32", {"component_stream": True}, "component-stream is about columns in turn; give one"),
        ("gemm_int8_fp32", {"half_output": True}, "half-output into a buffer of float32; give image-store"),
        ("gemm_dp4_published", {"coord_delay": 9}, "coord-delay is 9; give -1 \\(none\\) to 7"),
        ("gemm_dp4_published", {"k_unroll": 2}, "the published loop is one step, give 1"),
        ("gemm_dp4_published", {"no_store": True, "constant_output": True}, "no-store with constant-output"),
    ],
)
def test_options_that_make_no_kernel(name: str, given: dict[str, object], message: str) -> None:
    kernel = KERNELS[name]
    with pytest.raises(KernelError, match=message):
        kernel.build(kernel.configure(given))
