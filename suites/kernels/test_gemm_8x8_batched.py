"""Batched FP16 8x8 GEMM: random matrices and floors, products that could be mistaken, stores, options."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.conformance import Outcome
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.published import options_from_notes
from pytest_qcom.kernels.registry import KERNELS
from suites.kernels.conftest import built

NAME = "gemm_8x8_fp16_batched"


@pytest.mark.qcom_kernel(NAME)
def test_batched_is_right_on_random_matrices_and_holds_its_floor(kernel_run: Callable[[], Outcome]) -> None:
    outcome = kernel_run()
    assert outcome.ok
    assert outcome.checked > 0


@pytest.mark.parametrize("layout", ["z", "stacked", "horizontal"])
def test_each_product_has_its_own_b(device: Device, layout: str) -> None:
    """A is the identity and element (k, n) of B is the number of its product."""
    kernel = KERNELS[NAME]
    options = kernel.configure({"m": 32, "n": 256, "k": 32, "batches": 5, "layout": layout})
    run = conformance.prepare(device, kernel, options, pattern="identity-a")
    a = np.zeros_like(run.inputs["A"]).reshape(5 * 32, -1)
    a[np.arange(160), np.arange(160) % 32] = 1
    b = np.repeat(np.arange(5), 32)[:, None] * np.ones((1, 256))
    if layout == "horizontal":
        b = np.repeat(np.arange(5), 256)[None] * np.ones((32, 1))
    inputs = {"A": a.reshape(160, -1, 4), "B": b.astype(np.float16).reshape(run.inputs["B"].shape)}
    tensors = {name: device.image(array) for name, array in inputs.items()}
    run.tensors = {**run.tensors, **tensors}
    run.launch()
    expected = np.repeat(np.arange(5), 32)[:, None] * np.ones((1, 256))
    np.testing.assert_array_equal(run.outputs()["C"], expected)


def test_image_store_gives_what_the_buffer_store_gives(device: Device) -> None:
    kernel = KERNELS[NAME]
    shape = {"m": 32, "n": 512, "k": 44, "batches": 2}
    outputs = []
    for image in (False, True):
        options = kernel.configure({**shape, "image-store": str(image).lower()})
        run = conformance.prepare(device, kernel, options, np.random.default_rng(8))
        run.launch()
        outputs.append(run.outputs()["C"].reshape(-1))
    np.testing.assert_array_equal(outputs[0], outputs[1])


def test_arguments_of_the_image_store() -> None:
    """The image C comes first, as in the published kernels that store to images."""
    build = built(NAME, "image-store")
    assert [(argument.name, argument.image) for argument in build.arguments] == [
        ("C", True),
        ("A", True),
        ("B", True),
    ]
    assert (build.fregs, build.hregs) == (8, 32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layout": "y"}, "layout is 'y'; give one of z, stacked, horizontal, repeat-b"),
        ({"layout": "repeat-b"}, "batches is 16; give 1 or more, with repeat-b and -x 1"),
        ({"batches": 0}, "batches is 0; give 1 or more"),
        ({"layout": "stacked", "m": 96}, "m is 96; with layout=stacked give a power of 2"),
        ({"layout": "horizontal", "n": 768}, "n is 768; with layout=horizontal give a power of 2"),
        ({"k": 1100}, "m 256 and k 1100; beyond 1023 give powers of 2"),
        ({"m": 40}, "40 x 256 is not made of tiles of 32 x 256"),
        ({"batches": 100}, "needs an image side beyond 16384 texels"),
        ({"k-unroll": 0}, "k-unroll is 0; give 1 or more"),
        ({"fixed-b": 4}, "fixed-b is 4 with layout=z, const-mask or no b-offset; give layout=stacked"),
        (
            {"fixed-b": 600, "batches": 3, "layout": "stacked"},
            "fixed-b is 600; give -1, or a row of B from 0 to",
        ),
        ({"fixed-b": -3}, "fixed-b is -3; give -1, or a row of B from 0 to 3840"),
        ({"b-offset": False, "layout": "horizontal"}, "no b-offset with layout=horizontal or const-mask"),
        ({"row-offset": False}, "no row-offset with layout=z; only layout=horizontal adds one to the row"),
        (
            {"const-mask": True},
            "const-mask with layout=z, m 256 and k 256; it is about layout=stacked and m = k",
        ),
    ],
)
def test_bad_options_are_explained(change: dict[str, object], message: str) -> None:
    kernel = KERNELS[NAME]
    with pytest.raises(KernelError) as caught:
        kernel.build(kernel.configure(change))
    assert str(caught.value).startswith(f"{NAME}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_words_of_the_notes() -> None:
    """The notes have these launches as options of their persistent kernel."""
    for words, expected in (
        ("persistent batch=4", {"batches": 4, "layout": "stacked"}),
        ("persistent batch-horizontal batch=4", {"batches": 4, "layout": "horizontal"}),
        ("persistent batch=4 batch-z image-store", {"batches": 4, "layout": "z", "image_store": True}),
        ("batch=2 batch-const-mask", {"batches": 2, "layout": "stacked", "const_mask": True}),
        ("batch=2 batch-fixed-b=-2", {"batches": 2, "layout": "z"}),
        ("batch=2 batch-fixed-b=-1", {"batches": 2, "layout": "stacked"}),
        ("batch=2 batch-fixed-b=8", {"batches": 2, "layout": "stacked", "fixed_b": 8}),
        (
            "batch=2 batch-horizontal batch-row-offset=false",
            {"batches": 2, "layout": "horizontal", "row_offset": False},
        ),
    ):
        kernel, options = options_from_notes("gemm_8x8_fp16", words)
        assert kernel is KERNELS[NAME]
        assert options == kernel.options(**expected)


def test_a_mask_gives_what_shifts_give(device: Device) -> None:
    """One instruction in place of a shift to the product and one back."""
    kernel = KERNELS[NAME]
    shape = {"m": 64, "n": 256, "k": 64, "batches": 2, "layout": "stacked"}
    outputs, lengths = [], []
    for masked in (False, True):
        options = kernel.configure({**shape, "const-mask": masked})
        run = conformance.prepare(device, kernel, options, np.random.default_rng(8))
        run.launch()
        outputs.append(run.outputs()["C"])
        lengths.append(len(run.build.program.instrs))
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert lengths[1] < lengths[0]


@pytest.mark.parametrize("layout", ["z", "stacked", "repeat-b"])
def test_without_an_offset_every_product_has_the_first_b(device: Device, layout: str) -> None:
    """Whose rows of its own would be others: the same inputs with the offset give something else."""
    kernel = KERNELS[NAME]
    batches = 1 if layout == "repeat-b" else 3
    shape = {"m": 32, "n": 256, "k": 16, "batches": batches, "layout": layout}
    first = kernel.configure({**shape, "b-offset": False})
    run = conformance.prepare(device, kernel, first, pattern="integers")
    run.launch()
    assert run.compare().max_abs == 0
    expected = kernel.oracle(kernel.configure(shape), run.inputs)["C"]
    rows = 8 if layout == "repeat-b" else 32
    np.testing.assert_array_equal(run.outputs()["C"][:rows], expected[:rows])
    assert (run.outputs()["C"][rows:] != expected[rows:]).any()


def test_without_an_offset_of_the_row_all_products_store_to_the_first_c(device: Device) -> None:
    kernel = KERNELS[NAME]
    options = kernel.configure(
        {"m": 32, "n": 256, "k": 16, "batches": 3, "layout": "horizontal", "row-offset": False}
    )
    run = conformance.prepare(device, kernel, options, np.random.default_rng(8))
    run.launch()
    assert run.judge().checked == 3 * 32 * 256
    assert np.isnan(run.outputs()["C"][32:]).all()
