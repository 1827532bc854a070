"""Every declared kernel on the device: random matrices and its floor, then patterns that must be exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.conformance import Outcome
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import HazardError, KernelError
from pytest_qcom.kernels.kernel import Case, Kernel
from pytest_qcom.kernels.registry import KERNELS
from suites.kernels.conftest import cases


@pytest.mark.qcom_kernel("gemm_4x4_fp16")
@pytest.mark.qcom_kernel("gemm_4xn_fp16")
def test_gemm_is_right_on_random_matrices_and_holds_its_floor(kernel_run: Callable[[], Outcome]) -> None:
    outcome = kernel_run()
    assert outcome.ok
    assert outcome.checked > 0


@pytest.mark.qcom_kernel("alu_peak")
@pytest.mark.qcom_kernel("texture_bw")
def test_probe_holds_its_floor(kernel_run: Callable[[], Outcome]) -> None:
    assert kernel_run().ok


def test_probes_that_store_are_checked() -> None:
    """The probes' own arithmetic is compared wherever a case stores it."""
    for name in ("alu_peak", "texture_bw"):
        kernel = KERNELS[name]
        stored = [case for case in kernel.cases if name == "texture_bw" or case.options.get("store")]
        assert stored
        for case in stored:
            options = kernel.configure({}, case.name)
            assert kernel.oracle(options, kernel.inputs(options, np.random.default_rng(0)))


SMALL = cases("correct", of="_fp16", but=("n1024", "n256"))


@pytest.mark.parametrize(("kernel", "case"), SMALL)
def test_patterns_are_exact(device: Device, kernel: Kernel, case: Case) -> None:
    """Identity, row, column and last-k inputs: a layout error cannot hide in a tolerance."""
    options = kernel.configure({}, case.name)
    assert set(kernel.patterns) >= {"ones", "identity-a", "identity-b", "rows", "columns", "last-k"}
    for pattern in kernel.patterns:
        run = conformance.prepare(device, kernel, options, pattern=pattern)
        run.launch()
        outcome = run.judge()
        assert outcome.max_abs == 0.0, pattern


@pytest.mark.parametrize(
    "change",
    [
        {"m": 128, "n": 1024, "k": 384},
        {"m": 32, "n": 2048, "k": 8},
        {"m": 512, "n": 512, "k": 4},
        {"m": 16, "n": 512, "k": 4100, "k_unroll": 1},  # more K steps than an immediate holds
    ],
    ids=lambda change: "x".join(map(str, change.values())),
)
def test_other_shapes(device: Device, change: dict[str, int]) -> None:
    kernel = KERNELS["gemm_4xn_fp16"]
    run = conformance.prepare(device, kernel, kernel.configure(change), np.random.default_rng(7))
    run.launch()
    assert run.judge().checked == change["m"] * change["n"]


def shrunk(kernel: Kernel, case: Case) -> Any:
    """A published case on a small shape, K long enough for several passes of its loop."""
    ncols, threads = (kernel.configure({}, case.name).__getattribute__(name) for name in ("ncols", "threads"))
    return kernel.configure({"m": threads // 4, "n": 128 * ncols, "k": 64}, case.name)


PUBLISHED = [(kernel, case) for kernel in [KERNELS["gemm_4xn_fp16_published"]] for case in kernel.cases]


WRONG = [(kernel, case) for kernel, case in PUBLISHED if case.name != "random-checked"]
"""The other one is right on random inputs too: see the suite of the published 4xN GEMMs."""


@pytest.mark.parametrize(("kernel", "case"), WRONG, ids=[case.name for _, case in WRONG])
def test_published_is_right_on_ones_and_wrong_on_random(lenient: Device, kernel: Kernel, case: Case) -> None:
    """The two facts about each published configuration, even where hardware would wait."""
    options = shrunk(kernel, case)
    ones = conformance.prepare(lenient, kernel, options, pattern="ones")
    ones.launch()
    assert ones.judge().ok
    random = conformance.prepare(lenient, kernel, options, np.random.default_rng(3))
    random.launch()
    outcome = random.judge()  # raises nothing: it is declared as what it is
    assert not outcome.ok
    # Lane x of every stored vector is right, the other three hold it too.
    columns = conformance.prepare(lenient, kernel, options, pattern="columns")
    columns.launch()
    got = columns.outputs()["C"]
    expected = np.arange(options.n) // 4 * 4
    np.testing.assert_array_equal(got, np.broadcast_to(expected, got.shape))


@pytest.mark.parametrize(("kernel", "case"), PUBLISHED, ids=[case.name for _, case in PUBLISHED])
def test_published_is_a_hazard(device: Device, kernel: Kernel, case: Case) -> None:
    if device.mode == "hardware":
        pytest.skip("hardware does not explain hazards")
    run = conformance.prepare(device, kernel, shrunk(kernel, case), pattern="ones")
    with pytest.raises(HazardError, match=r"early-read|source-overwrite|missing-sy"):
        run.launch()


def test_first_sync_only_of_ours_is_right_only_if_waits_are_there(device: Device, lenient: Device) -> None:
    kernel = KERNELS["gemm_4xn_fp16"]
    options = kernel.configure({"m": 32, "n": 512, "k": 64, "first-sync-only": "true"})
    run = conformance.prepare(lenient, kernel, options, np.random.default_rng(5))
    if device.mode != "hardware":
        run.launch()
        assert run.judge().ok
        with pytest.raises(HazardError, match=r"(missing|overwrite)-sy"):
            conformance.prepare(device, kernel, options).launch()


def test_wrong_output_is_explained(device: Device) -> None:
    """The worst element, what it should be, by how much, and the command that repeats it."""
    kernel = KERNELS["gemm_4xn_fp16"]
    options = kernel.configure({"m": 16, "n": 512, "k": 16, "k-unroll": 1})
    run = conformance.prepare(device, kernel, options, pattern="columns")
    run.launch()
    run.inputs = kernel.patterns["rows"](options)
    with pytest.raises(KernelError) as caught:
        run.judge()
    text = str(caught.value)
    assert text.startswith("gemm_4xn_fp16 (16x512x16, columns): wrong in ")
    assert " worst is C[0, 511] = 511, expected 0, off by " in text
    assert text.endswith("repeat with: qcom run gemm_4xn_fp16 m=16 n=512 k=16 k-unroll=1")
    assert caught.value.facts["index"] == [0, 511]
    assert "\n" not in text


@pytest.mark.parametrize(
    ("got", "message"),
    [
        ([1.0, 2.0, 3.0], "right; worst is C[0] = 1, expected 1, off by 0 (0 ulp), allowed 0.5"),
        (
            [1.0, np.nan, 3.0],
            "wrong in 1 of 3 elements; worst is C[1] = nan, expected 2, off by nan (inf ulp), allowed 0.5",
        ),
        (
            [1.0, 2.25, 4.0],
            "wrong in 1 of 3 elements; worst is C[2] = 4, expected 3, off by 1 (512 ulp), allowed 0.5",
        ),
    ],
)
def test_comparison(got: list[float], message: str) -> None:
    outcome = conformance.compare(
        {"C": np.array(got, np.float16)}, {"C": np.array([1.0, 2.0, 3.0])}, {"C": 0.5}
    )
    assert str(outcome) == message
    assert outcome.facts()["ok"] == message.startswith("right")


@pytest.mark.parametrize(
    ("got", "message"),
    [
        ([1.0, np.nan, 3.5], "right; worst is C[2] = 3.5, expected 3, off by 0.5 (256 ulp), allowed 0.5"),
        ([1.0, np.nan, 3.0], "right; worst is C[0] = 1, expected 1, off by 0 (0 ulp), allowed 0.5"),
        ([1.0, 7.0, 3.0], "wrong in 1 of 3 elements; worst is C[1] = 7, which was to be left as it was"),
    ],
)
def test_elements_that_are_to_be_left(got: list[float], message: str) -> None:
    expected = np.array([1.0, np.nan, 3.0])
    outcome = conformance.compare({"C": np.array(got, np.float16)}, {"C": expected}, {"C": 0.5})
    assert str(outcome) == message


def test_output_that_was_never_written_is_wrong(device: Device) -> None:
    kernel = KERNELS["gemm_4xn_fp16"]
    options = kernel.configure({"m": 16, "n": 512, "k": 16, "k-unroll": 1})
    run = conformance.prepare(device, kernel, options)
    outcome = run.compare()
    assert outcome.wrong == 16 * 512 and not outcome.written
    words = "wrong in 8192 of 8192 elements; worst is C[0, 0], which was never written, expected "
    assert str(outcome).startswith(words)


def test_unknown_pattern_is_explained(device: Device) -> None:
    kernel = KERNELS["alu_peak"]
    with pytest.raises(KernelError, match="kernel alu_peak has no pattern 'ones'; it has none"):
        conformance.prepare(device, kernel, kernel.configure({}, "gemm"), pattern="ones")
