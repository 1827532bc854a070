"""The compiler's shapes of the 4x4 GEMM as they were run: where they are right, and what makes one wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.devices import registry
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import GpuHang, HazardError, KernelError
from pytest_qcom.kernels.published import options_from_notes
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.kernels.rewrite import counts

KERNEL = KERNELS["gemm_4x4_fp16_published"]
SMALL = dict(m=64, n=128, k=64)
WRONG = ("p149",)
"""Whose epilogue reads what the launch does not declare."""


def test_rows_of_the_table_are_cases() -> None:
    for name, config in (
        ("p146", "compiled (five sy, scalar MADs)"),
        ("p149", "hand: hregs=24 with the compiled epilogue"),
        ("p151", "interleaved B, four sy"),
        ("p152", "eight rows"),
    ):
        assert options_from_notes("gemm_4x4_fp16", config) == (KERNEL, KERNEL.configure({}, name))


def test_prose_that_varies() -> None:
    for config, given in (
        ("compiled (one sy, scalar MADs)", dict(strip_sync=True)),
        ("patched (one sy, rpt3 MADs)", dict(strip_sync=True, pack_repeats=True, merge_pairs=True)),
        (
            "compiled (five sy, repeated MADs) threads=64",
            dict(pack_repeats=True, merge_pairs=True, threads=64),
        ),
        ("hand: hregs=31 with the compiled epilogue", dict(hand=True, hregs_override=31)),
    ):
        assert options_from_notes("gemm_4x4_fp16", config) == (KERNEL, KERNEL.configure(given))


@pytest.mark.parametrize("case", [case.name for case in KERNEL.cases])
def test_published_is_right_on_ones_and_at_random_where_it_was(device: Device, case: str) -> None:
    options = replace(KERNEL.configure({}, case), **SMALL)
    for pattern in ("ones", ""):
        run = conformance.prepare(device, KERNEL, options, np.random.default_rng(1), pattern)
        if case in WRONG:
            with pytest.raises(HazardError, match=r"^(device [^:]+: )?half-footprint "):
                run.launch()
            continue
        run.launch()
        assert run.compare().ok


def test_too_few_registers_spoil_another_wave(device: Device) -> None:
    """On the desk its accumulators; here its counters, too, so that the launch does not end."""
    if device.mode == "hardware":
        pytest.skip("hardware needs no emulation")
    with registry.find("virtual", Path.cwd()).open("emulate") as other:
        options = replace(KERNEL.configure({}, "p149"), **SMALL)
        run = conformance.prepare(other, KERNEL, options, pattern="ones")
        with pytest.raises(GpuHang, match="beyond the declared 8 full and 24 half vec4"):
            run.launch()


def found(**options: object) -> dict[str, int]:
    return dict(counts(KERNEL.build(KERNEL.configure(options)).program))


def test_shapes_in_numbers() -> None:
    """A (sy) a row or a k of B, the one of the prologue beside; repeats are those that the patches make."""
    plain, interleaved, eight = found(), found(interleaved_b=True), found(rows=8)
    assert [shape["sy"] for shape in (plain, interleaved, eight)] == [5, 5, 9]
    assert (eight["isam"], eight["mad"]) == (12, 128)
    hand = found(hand=True)
    assert (hand["sy"], hand["rpt3"], hand["mad"]) == (1, 15, 17)  # the torn vector stays two pairs


def test_options_that_make_no_kernel() -> None:
    for given, message in (
        ({"rows": 6}, "gemm_4x4_fp16: rows is 6; give 4 or 8"),
        ({"hand": True, "strip_sync": True}, "hand with a patch; the hand loop is what the patches make"),
        ({"rows": 8, "m": 48}, "not made of tiles of 32 x 128"),
    ):
        with pytest.raises(KernelError, match=message):
            KERNEL.build(KERNEL.configure(given))
