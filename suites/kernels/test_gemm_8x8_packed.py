"""FP16 8x8 GEMM from texels of eight halves: random matrices and floors, what it saves, options."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.analysis import hazards
from pytest_qcom.conformance import Outcome
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import HazardError, KernelError
from pytest_qcom.isa.instruction import Sample
from pytest_qcom.kernels.published import options_from_notes
from pytest_qcom.kernels.registry import KERNELS
from suites.kernels.conftest import built

NAME = "gemm_8x8_fp16_packed"


@pytest.mark.qcom_kernel(NAME)
def test_packed_is_right_on_random_matrices_and_holds_its_floor(kernel_run: Callable[[], Outcome]) -> None:
    outcome = kernel_run()
    assert outcome.ok
    assert outcome.checked > 0


def test_words_hold_the_halves_in_order() -> None:
    kernel = KERNELS[NAME]
    options = kernel.configure({}, "rest")
    inputs = kernel.inputs(options, np.random.default_rng(2))
    assert [inputs[name].dtype for name in "AB"] == [np.uint32, np.uint32]
    assert [inputs[name].shape for name in "AB"] == [(32, 8, 4), (56, 32, 4)]
    a = inputs["A"].view(np.float16).reshape(32, 64)[:, :56].astype(np.float64)
    b = inputs["B"].view(np.float16).reshape(56, 256).astype(np.float64)
    np.testing.assert_allclose(kernel.oracle(options, inputs)["C"], a @ b, atol=1e-2)


@pytest.mark.parametrize(("case", "written", "isam"), [("square", 2, 16), ("b-rest", 2 + 1, 12)])
def test_samples(case: str, written: int, isam: int) -> None:
    """8 of A and 8 of B for 8 k, half as many as plain; or 8 of A and 4 of B for 4 k.

    ``written``: K steps in the program, those of the loop body and the rest.
    """
    instrs = built(NAME, case).program.instrs
    assert sum(isinstance(instr.op.effect, Sample) for instr in instrs) == isam * written


@pytest.mark.parametrize(("case", "footprint"), [("n1024", (6, 36)), ("b-n1024", (6, 28))])
def test_footprint_leaves_four_waves(case: str, footprint: tuple[int, int]) -> None:
    """24 full vec4 a fiber is what four waves of 128 fibers allow."""
    build = built(NAME, case)
    assert (build.fregs, build.hregs) == footprint
    assert build.fregs + build.hregs // 2 <= 24
    found = hazards.lint(build.program, fregs=build.fregs, hregs=build.hregs, thread128=True)
    assert not found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"packed": "a"}, "packed is 'a'; give b or ab"),
        ({"k": 44}, "k is 44; a texel of A holds 8 of them, give a multiple"),
        ({"k": 6, "packed": "b"}, "k is 6; a texel holds four of them, give a multiple of 4"),
        ({"m": 40}, "40 x 1024 is not made of tiles of 32 x 256"),
        ({"k-unroll": 0}, "k-unroll is 0; give 1 or more"),
        ({"merged-alias": True}, "merged-alias is about B alone; give packed=b"),
    ],
)
def test_bad_options_are_explained(change: dict[str, object], message: str) -> None:
    kernel = KERNELS[NAME]
    with pytest.raises(KernelError) as caught:
        kernel.build(kernel.configure(change))
    assert str(caught.value).startswith(f"{NAME}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_merged_files_need_no_unpacking() -> None:
    """Words of B are sampled over their halves: 8 instructions a texel fewer, and 15 vec4 in place of 20."""
    plain, merged = built(NAME, "b-n1024"), built(NAME, "merged-n1024")
    assert (merged.merged, merged.fregs, merged.hregs) == (True, 15, 28)
    moves = [sum(instr.op.cat in (1, 3) for instr in found.program.instrs) for found in (plain, merged)]
    assert moves[1] < moves[0]
    assert not any(instr.op.name in ("cov", "shrg") for instr in merged.program.instrs)
    found = hazards.lint(merged.program, fregs=15, hregs=28, merged=True, thread128=True)
    assert {finding.rule.name for finding in found} == {"alias"}  # which is what it is about


@pytest.mark.parametrize(
    ("words", "footprint", "verdict"),
    [
        ("packed8", (14, 36), "right"),
        ("packed-b8", (12, 28), "right"),
        ("packed-b8 merged-alias", (8, 28), ""),
    ],
)
def test_published_registers(device: Device, words: str, footprint: tuple[int, int], verdict: str) -> None:
    """Published: f/h. What samples over halves of merged files is launched with separate ones."""
    kernel, options = options_from_notes("gemm_8x8_fp16", words, {"m": "32", "n": "512", "k": "48"})
    assert kernel is KERNELS[f"{NAME}_published"]
    found = kernel.build(options)
    assert (found.fregs, found.hregs, found.merged) == (*footprint, False)
    run = conformance.prepare(device, kernel, options, np.random.default_rng(2), build=found)
    if not verdict and device.mode != "hardware":
        with pytest.raises(HazardError, match=r"r0\.x, which is written, is another register in split mode"):
            run.launch()
        return
    run.launch()
    assert run.compare().ok == bool(verdict)


def test_published_delays() -> None:
    """Two groups of B and one of each two rows of A."""
    lengths = []
    for delay in (-1, 2):
        kernel, options = options_from_notes("gemm_8x8_fp16", f"packed8 coord-delay={delay}")
        lengths.append(len(kernel.build(options).program.instrs))
    assert lengths[1] <= lengths[0] + 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("packed8 k-unroll=2", "k-unroll is 2; the published loops have 1 K step"),
        ("packed8 coord-delay=8", "coord-delay is 8; give -1 (none) to 7"),
        ("packed8 packed-b-alias", "merged-alias is about B alone; give packed=b"),
        ("packed8 hregs-override=50", "hregs-override is 50; give 0 to 48"),
    ],
)
def test_bad_published_options_are_explained(words: str, message: str) -> None:
    kernel, options = options_from_notes("gemm_8x8_fp16", words)
    with pytest.raises(KernelError) as caught:
        kernel.build(options)
    assert str(caught.value) == f"{NAME}_published: {message}"
