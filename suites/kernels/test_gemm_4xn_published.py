"""Options of the published 4xN GEMMs: what each changes in the program, probes, bad combinations."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.edit import branches
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.published import options_from_notes
from pytest_qcom.kernels.rewrite import counts

BEST = (
    "ncols=4 direct compact-acc stable-bx stable-ay inc-coords persistent-coords alu-order=row_col_kk "
    "coord-delay=-1 k-unroll=4 first-sync-only b-first"
)
LOOP = 417
"""Instructions of its loop: 80 samples, 256 products, 72 of coordinates, 9 behind the last."""


def build(words: str) -> Build:
    kernel, options = options_from_notes("gemm_4xn_fp16", words)
    return kernel.build(options)


def loop_length(found: Build) -> int:
    (branch,) = [index for index, instr in enumerate(found.program.instrs) if branches(instr)]
    return branch - found.program.target(branch)


@pytest.mark.parametrize(
    ("words", "loop", "isam", "mad"),
    [
        ("", LOOP, 80, 256),
        ("post-constant", LOOP, 80, 256),
        ("no-store", LOOP, 80, 256),
        ("no-store alu-reps=2", LOOP + 256, 80, 512),
        ("no-store alu-reps=4", LOOP + 3 * 256, 80, 1024),
        ("no-store skip-a-loads", LOOP - 16, 64, 256),  # coordinates are written all the same
        ("no-store skip-b-loads", LOOP - 64, 16, 256),
        ("no-store skip-a-loads skip-b-loads", LOOP - 80, 0, 256),
        ("store-shlg-offsets", LOOP, 80, 256),
        ("low-a-coords", LOOP + 4 * 2, 80, 256),  # the one odd pair gets its x for either column
    ],
)
def test_an_option_changes_what_it_says(words: str, loop: int, isam: int, mad: int) -> None:
    found = build(f"{BEST} {words}")
    assert loop_length(found) == loop
    assert {name: dict(counts(found.program))[name] for name in ("isam", "mad")} == {"isam": isam, "mad": mad}


@pytest.mark.parametrize(
    ("words", "footprint", "syncs"),
    [
        ("native-store", (28, 32), 2),
        ("stream-b", (8, 32), 3),
        ("stream-b stream-b-no-sync", (8, 32), 2),
        (BEST, (10, 28), 2),
        (f"{BEST} low-a-coords", (8, 28), 2),
    ],
)
def test_registers_and_syncs(words: str, footprint: tuple[int, int], syncs: int) -> None:
    found = build(words)
    assert (found.fregs, found.hregs) == footprint
    assert dict(counts(found.program))["sy"] == syncs


def test_post_constant_stores_its_number(lenient: Device) -> None:
    kernel, options = options_from_notes(
        "gemm_4xn_fp16", f"{BEST} post-constant", {"m": "16", "n": "512", "k": "32"}
    )
    run = conformance.prepare(lenient, kernel, options, np.random.default_rng(1))
    run.launch()
    assert (run.outputs()["C"] == 1024).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("alu-reps=0", "alu-reps is 0; give 1 or more"),
        ("low-a-coords", "low-a-coords is about pairs with a kept y; give stable-ay too"),
        ("stream-b ncols=2", "stream-b is about 4 columns and single products"),
        ("stream-b-no-sync", "stream-b-no-sync is about stream-b; give that too"),
        ("own-pairs coord-delay=-1 skip-a-loads", "skipped loads are about published coordinates"),
    ],
)
def test_bad_options_are_explained(words: str, message: str) -> None:
    with pytest.raises(KernelError) as caught:
        build(words)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
