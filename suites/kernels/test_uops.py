"""Kernels written as UOps: right on the device, at their floor; what Mesa leaves out; bad options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.conformance import Outcome
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import HazardError, KernelError
from pytest_qcom.isa.instruction import Barrier
from pytest_qcom.kernels import matmul, uops
from pytest_qcom.kernels.edit import replace_instructions
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.kernels.uops import Array
from suites.kernels.conftest import built


@pytest.mark.qcom_kernel("gemm_local_fp16")
@pytest.mark.qcom_kernel("gemm_image_local_fp16")
@pytest.mark.qcom_kernel("gemm_globalb_fp16")
@pytest.mark.qcom_kernel("pack_banked")
@pytest.mark.qcom_kernel("packed_alias")
def test_right_and_at_its_floor(kernel_run: Callable[[], Outcome]) -> None:
    outcome = kernel_run()
    assert outcome.ok
    assert outcome.checked > 0


def test_words_are_counted_through(device: Device) -> None:
    kernel = KERNELS["packed_alias"]
    run = conformance.prepare(device, kernel, kernel.configure({"groups": 3}), pattern="count")
    run.launch()
    np.testing.assert_array_equal(run.outputs()["O"].ravel(), np.arange(3 * 128 * 8) % 2048)


def test_halves_of_sampled_words_are_registers_of_one_file(device: Device, lenient: Device) -> None:
    """Bit for bit, denormals and infinities too; in separate files nothing wrote what is stored."""
    kernel = KERNELS["packed_alias_published"]
    run = conformance.prepare(device, kernel, kernel.configure({"groups": 3}), np.random.default_rng(8))
    run.launch()
    assert run.judge().ok
    stored = run.outputs()["O"].view(np.uint16)
    np.testing.assert_array_equal(stored.ravel(), run.inputs["X"].view(np.uint16).ravel())
    separate = kernel.configure({}, "separate")
    if device.mode != "hardware":
        with pytest.raises(HazardError, match=r"hr8\.x"):
            conformance.prepare(device, kernel, separate, np.random.default_rng(8)).launch()
    wrong = conformance.prepare(lenient, kernel, separate, np.random.default_rng(8))
    wrong.launch()
    assert not wrong.compare().ok


@pytest.mark.parametrize("name", ["gemm_local_fp16", "gemm_image_local_fp16"])
def test_a_barrier_before_a_loop_needs_its_wait(device: Device, name: str) -> None:
    """Without what is put behind it, the program is as Mesa made it, and a hazard."""
    if device.mode == "hardware":
        pytest.skip("hardware does not explain hazards")
    kernel, case = KERNELS[name], KERNELS[name].cases[1].name
    build = built(name, case)
    barriers = [i for i, instr in enumerate(build.program.instrs) if isinstance(instr.op.effect, Barrier)]
    bare = replace_instructions(build.program, {barriers[-1] + 1: ()})
    run = conformance.prepare(device, kernel, kernel.configure({}, case), build=replace(build, program=bare))
    with pytest.raises(HazardError, match="barrier-wait"):
        run.launch()


def test_a_tile_that_is_not_copied_shows(lenient: Device) -> None:
    """The first store into local memory left out: the suite's own comparison notices."""
    kernel = KERNELS["gemm_local_fp16"]
    build = built("gemm_local_fp16", "odd")
    index = next(i for i, instr in enumerate(build.program.instrs) if instr.op.name.startswith("stl"))
    bare = replace(build, program=replace_instructions(build.program, {index: ()}))
    run = conformance.prepare(
        lenient, kernel, kernel.configure({}, "odd"), np.random.default_rng(5), build=bare
    )
    run.launch()
    assert not run.compare().ok


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gemm_local_fp16", {"m": 33}, r"33 x 1536 x 384 is not made of tiles of 32 x 64 x 16"),
        ("gemm_local_fp16", {"unroll": 3}, "unroll is 3; give 1, 2, 4, 8 or 16"),
        ("gemm_image_local_fp16", {"staged": "a"}, "staged is 'a'; give one of ab, b, none"),
        ("gemm_image_local_fp16", {"global_b": True}, "nothing goes through local memory; give staged=none"),
        ("gemm_image_local_fp16", {"bk4": 3}, "bk4 is 3; give one of 1, 2, 4, 8, 16"),
        ("gemm_image_local_fp16", {"rows": 3}, "rows is 3; give 1, 2, 4 or 8"),
        (
            "gemm_image_local_fp16",
            {"stride": 1024},
            "stride is 1024; give a multiple of 4 from n = 1536 on, or 0",
        ),
        ("gemm_image_local_fp16", {"m": 16}, "is not made of tiles of 32 x 128 x 32"),
        ("gemm_globalb_fp16", {"n": 100}, "is not made of tiles of 16 x 128 x 4"),
        ("pack_banked", {"m": 6}, "6 x 768; give multiples of 4 whose product is one of 512"),
        ("packed_alias", {"groups": 0}, "groups is 0; give 1 to 4096"),
        ("packed_alias_published", {"groups": 129}, "groups is 129; give 1 to 128"),
    ],
)
def test_bad_options(name: str, options: dict[str, object], message: str) -> None:
    kernel = KERNELS[name]
    with pytest.raises(KernelError, match=message):
        kernel.build(kernel.configure(options))


def test_arguments_are_those_of_the_program() -> None:
    arrays = (Array("X", (256,), "float16"), Array("O", (256,), "float16", written=True))
    first, second = uops.parameters(arrays)
    program = uops.sink("copy", uops.put(second, 0, uops.vector(first, 0)))
    with pytest.raises(KernelError, match=r"copy: declared are 1 arguments, the program uses \[0, 1\]"):
        uops.compile_uops("copy", program, arrays[:1], 1.0)


def test_an_image_has_whole_rows() -> None:
    arrays = (Array("X", (36,), "float32", image=True), Array("O", (36,), "float32", written=True))
    first, second = uops.parameters(arrays)
    program = uops.sink("copy", uops.put(second, 0, uops.vector(first, 0)))
    with pytest.raises(KernelError, match="copy: tinygrad makes images of nothing; give shapes such that"):
        uops.compile_uops("copy", program, arrays, 1.0)


def test_b_only_is_the_notes_word_for_one_staged_operand() -> None:
    kernel = KERNELS["gemm_image_local_fp16"]
    assert kernel.configure({"b-only": "true"}) == kernel.configure({"staged": "b"})
    assert kernel.configure({"b_only": False}) == kernel.configure({})


def test_halves_of_a_buffer_are_flushed_once_they_are_floats(device: Device) -> None:
    kernel = KERNELS["gemm_image_local_fp16"]
    given = {"m": 32, "n": 256, "k": 64, "bk4": 1, "staged": "none", "global_b": True, "fp32_acc": True}
    run = conformance.prepare(device, kernel, kernel.configure(given), np.random.default_rng(1))
    b = np.abs(run.inputs["B"])
    assert np.any((b > 0) & (b < matmul.HALF_TINY))
    run.launch()
    assert run.compare().ok
