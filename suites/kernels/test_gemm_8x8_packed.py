"""FP16 8x8 GEMM from texels of eight halves: random matrices and floors, what it saves, options."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pytest_qcom.analysis import hazards
from pytest_qcom.conformance import Outcome
from pytest_qcom.errors import KernelError
from pytest_qcom.isa.instruction import Sample
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
    ],
)
def test_bad_options_are_explained(change: dict[str, object], message: str) -> None:
    kernel = KERNELS[NAME]
    with pytest.raises(KernelError) as caught:
        kernel.build(kernel.configure(change))
    assert str(caught.value).startswith(f"{NAME}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
