"""The FP16 GEMMs with B in four textures and of compiled tile shapes: what they are made of, bad options."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_qcom import conformance, linting
from pytest_qcom.analysis.findings import errors
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.edit import branches
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.kernels.rewrite import counts
from suites.kernels.conftest import built


def test_planar_b_needs_ten_additions_a_step() -> None:
    """16 samples and 64 products as any 8x8; 8 x of A and 2 y of B are advanced, not 16; one test a loop."""
    build = built("gemm_8x8_fp16_planar", "plain")
    (branch,) = [index for index, instr in enumerate(build.program.instrs) if branches(instr)]
    assert branch - build.program.target(branch) == 16 + 64 + 10 + 1
    whole = built("gemm_8x8_fp16", "plain-one")
    assert build.fregs == whole.fregs - 1 == 7
    assert [argument.name for argument in build.arguments] == ["A", "B0", "B1", "B2", "B3", "C"]


def test_planes_are_told_apart(device: Device) -> None:
    """With two planes exchanged the product is another: each texture is sampled for its own k."""
    kernel = KERNELS["gemm_8x8_fp16_planar"]
    options = kernel.configure({"m": 32, "n": 256, "k": 16})
    given = dict(kernel.patterns["integers"](options))
    given["B1"], given["B2"] = given["B2"], given["B1"]
    run = conformance.prepare(device, replace(kernel, inputs=lambda options, generator: given), options)
    run.launch()
    assert run.judge().ok
    run.inputs = kernel.patterns["integers"](options)
    assert not run.compare().ok


PUBLISHED = KERNELS["gemm_8x8_fp16_planar_published"]


@pytest.mark.parametrize("case", [case.name for case in PUBLISHED.cases])
def test_published_planes_are_right_where_hardware_waits(device: Device, lenient: Device, case: str) -> None:
    """On random matrices; a pair is rewritten under its sample, and the store's texels are not declared."""
    options = replace(PUBLISHED.configure({}, case), m=32, n=256, k=64)
    options = replace(options, k_count=options.k_count and 8)
    run = conformance.prepare(lenient, PUBLISHED, options, np.random.default_rng(5))
    run.launch()
    outcome = run.compare()
    assert outcome.ok
    assert bool(outcome.checked) != options.no_store
    if device.mode == "hardware":
        return
    rules = {finding.rule.name for finding in errors(linting.lint(run.build))}
    expected = set() if options.control_only else {"source-overwrite-sy", "early-read"}
    assert rules <= expected | {"full-footprint"}
    assert ("full-footprint" in rules) == (case == "declared")


def test_published_planes_in_numbers() -> None:
    """10 moves, 16 samples, 8 delays, 64 products and 4 of rows a step, 5 of control, two between steps."""
    build = PUBLISHED.build(PUBLISHED.configure({}, "unroll-4"))
    (branch,) = [index for index, instr in enumerate(build.program.instrs) if branches(instr)]
    assert branch - build.program.target(branch) == 4 * (2 + 8 + 4 + 8 * 3 + 64) + 5 + 3 * 2
    assert dict(counts(build.program))["isam"] == 4 * 16
    assert (build.fregs, build.hregs) == (20, 28)


@pytest.mark.parametrize(
    ("case", "rows", "ncols"), [("8x4", 8, 1), ("8x8", 8, 2), ("8x16", 8, 4), ("4x16", 4, 4)]
)
def test_a_compiled_shape_has_its_products_and_samples(case: str, rows: int, ncols: int) -> None:
    found = dict(counts(built("gemm_compiled_fp16", case).program))
    assert found["isam"] == rows + 4 * ncols
    build = built("gemm_compiled_fp16", case)
    products = sum(
        instr.rpt + 1 for instr in build.program.instrs if instr.op.name in ("mad.f16", "mul.f") and instr.dst
    )
    assert products >= 16 * rows * ncols


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gemm_8x8_fp16_planar", {"prefetch": "ab"}, "prefetch is 'ab'; give none or b"),
        ("gemm_8x8_fp16_planar", {"k_unroll": 0}, "k-unroll is 0; give 1 or more"),
        ("gemm_8x8_fp16_planar", {"m": 40}, "an output of 40 x 1024 is not made of tiles of 32 x 256"),
        (
            "gemm_8x8_fp16_planar_published",
            {"k_unroll": 3},
            "256 K steps do not divide by k-unroll 3; the pub",
        ),
        (
            "gemm_8x8_fp16_planar_published",
            {"k_count": 257},
            "K steps 0 to 257 of 256; give k-start and k-cou",
        ),
        ("gemm_8x8_fp16_planar_published", {"a_coord_delay": 8}, "a-coord-delay is 8; give -1 (none) to 7"),
        ("gemm_8x8_fp16_planar_published", {"no_store": True, "post_constant": True}, "no-store with post-c"),
        ("gemm_compiled_fp16", {"rows": 6}, "rows is 6; give one of (4, 8)"),
        ("gemm_compiled_fp16", {"ncols": 3}, "ncols is 3; give one of (1, 2, 4)"),
        ("gemm_compiled_fp16", {"k": 48}, "k is 48; rows of images have no padding here"),
    ],
)
def test_bad_options_are_explained(name: str, options: dict[str, Any], message: str) -> None:
    kernel = KERNELS[name]
    with pytest.raises(KernelError) as caught:
        kernel.build(kernel.configure(options))
    assert str(caught.value).startswith(f"{name}: {message}")
    assert "\n" not in str(caught.value)


def test_compiled_shapes_differ_in_waves() -> None:
    """What the table is for: the registers that the compiler took for each shape."""
    footprints = {case: built("gemm_compiled_fp16", case).hregs for case in ("4x4", "4x8", "8x8", "8x16")}
    assert np.all(np.diff(list(footprints.values())) > 0)


def test_compiling_needs_no_usable_device(tmp_path: Path) -> None:
    """A machine without a compiler for its processor has no default device of tinygrad's."""
    program = "from pytest_qcom.kernels.compiled import compile_matmul as c; print(len(c(64).program.instrs))"
    command = [sys.executable, "-c", program]
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0 and int(done.stdout) > 100, done.stderr
