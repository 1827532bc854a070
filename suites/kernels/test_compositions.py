"""Products by seven products: identities, bounds, random matrices and exact ones on the device."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_qcom import cli, composed
from pytest_qcom.conformance import Outcome
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import compositions, strassen, strassen_bound, strassen_options
from pytest_qcom.kernels.composition import HostStep, Use
from pytest_qcom.kernels.compositions import STRASSEN
from pytest_qcom.kernels.strassen_options import Options
from pytest_qcom.targets import Composed


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("form", strassen.FORMS)
def test_the_coefficients_are_a_product(form: str, levels: int) -> None:
    """Block (i, j) of C is the sum over y of A's (i, y) times B's (y, j), and nothing else."""
    c = strassen.result(form, levels)
    a, b = (strassen.operand(form, side, levels) for side in "AB")
    found = np.einsum("ijp,pxy,puv->ijxyuv", c, a, b)
    one = np.eye(2**levels, dtype=np.int64)
    np.testing.assert_array_equal(found, np.einsum("ix,yu,jv->ijxyuv", one, one, one))


def test_split_and_joined_are_inverse() -> None:
    matrices = np.random.default_rng(1).standard_normal((3, 8, 12))
    np.testing.assert_array_equal(strassen.joined(strassen.split(matrices, 2)), matrices)
    np.testing.assert_array_equal(strassen.split(matrices, 1)[0, 1, 0], matrices[0, 4:, :6])


@pytest.mark.qcom_kernel("strassen")
def test_right_at_its_floor_and_exact_where_no_sum_rounds(
    kernel_run: Callable[[], Outcome], kernel_target: Composed, device: Device
) -> None:
    """Random matrices are within the bound; of exact ones, an index that is off by one anywhere shows."""
    outcome = kernel_run()
    assert outcome.ok
    assert outcome.checked > 0
    check_exact(device, kernel_target.options)


def check_exact(device: Device, options: Options) -> None:
    run = composed.prepare(device, STRASSEN, options, pattern="exact")
    run.launch()
    outcome = run.compare()
    assert outcome.max_abs == 0.0, str(outcome)
    assert np.count_nonzero(run.composition.oracle(run.options, run.inputs)["C"]) > run.options.m


@pytest.mark.long
@pytest.mark.timeout(2400)  # the bounds of eight thousand columns take minutes
@pytest.mark.parametrize("name", STRASSEN.long)
def test_long_ones_too(device: Device, name: str) -> None:
    run = composed.prepare(device, STRASSEN, STRASSEN.configure({}, name), np.random.default_rng(17))
    run.launch()
    outcome = run.judge()
    assert outcome.checked == run.options.m * run.options.n
    check_exact(device, run.options)


def test_parts_are_timed_and_a_wrong_result_says_how_to_repeat_it(device: Device) -> None:
    run = composed.prepare(device, STRASSEN, STRASSEN.configure({}, "four-host"), np.random.default_rng(17))
    run.launch()
    assert set(run.parts) == {step.part for step in run.plan.launches} == {"transform", "gemm", "combine"}
    assert run.seconds == [pytest.approx(sum(run.parts.values()))]
    assert run.host_seconds > 0
    run.inputs = {**run.inputs, "A": run.inputs["A"][::-1]}
    with pytest.raises(
        KernelError, match=r"strassen \(128x512x64\): wrong in \d+ of 65536 .* repeat with: qcom compose str"
    ):
        run.judge()


@pytest.mark.parametrize("name", ["one", "one-winograd"])
def test_a_swapped_operand_shows(device: Device, name: str) -> None:
    """The test of the test: A's products in another order, one product's place off by one row."""
    options = STRASSEN.configure({}, name)
    run = composed.prepare(device, STRASSEN, options, pattern="exact")
    for step in run.plan.launches:
        if step.part == "gemm":
            uses = {**step.uses, "C": Use("M", 0), "B": Use("A1", 0)}
            broken = replace(step, uses=uses)
            run.plan = replace(run.plan, steps=tuple(broken if s is step else s for s in run.plan.steps))
            break
    run.tensors = {**run.tensors, "A1": run.tensors["B1"], "B1": run.tensors["B1"]}
    run.launch()
    assert not run.compare().ok


def test_the_bound_holds_for_rounded_arithmetic_of_numpy() -> None:
    """The same sums in numpy's float16, one rounding each, stay within the bounds, and come near them."""
    rng = np.random.default_rng(3)
    source = strassen.flushed(rng.standard_normal((1, 64, 64)).astype(np.float16))
    bounded = strassen.operands(source, "winograd", "A", 2, strassen.HALF)
    blocks = strassen.split(source.value, 2)[0].astype(np.float16)
    places = {(i, j): blocks[i, j] for i in range(4) for j in range(4)}
    found = np.array(strassen.operand_sums("winograd", "A", 2, places)).astype(np.float64)
    error = np.abs(found - bounded.value)
    assert (error <= bounded.error).all()
    assert (error / np.maximum(bounded.error, 1e-9)).max() > 0.2


def higham(options: Options, roundoff: float, arrays: dict[str, NDArray[Any]]) -> float:
    """The norm-wise bound, to first order in the roundoff, of a product in one precision throughout.

    N. Higham, Accuracy and Stability of Numerical Algorithms, second edition, theorems 23.2 and 23.3: of
    square matrices, the largest error is this times the product of the largest entries.
    """
    n, leaf = options.n, options.n // 2**options.levels
    growth, terms = (12, 5) if options.form == "strassen" else (18, 6)
    factor = growth**options.levels * (leaf**2 + terms * leaf) - terms * n
    return float(factor * roundoff * np.abs(arrays["A"]).max() * np.abs(arrays["B"]).max())


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("form", strassen.FORMS)
def test_bounds_are_below_the_norm_wise_ones(form: str, levels: int) -> None:
    """Bounds of elements are sharper than the textbook's worst case, and never sharper than one rounding."""
    options = Options(
        m=64, n=64, k=64, levels=levels, form=form, accumulate="fp32", float_operands=True, leaf="buffers"
    )
    rng = np.random.default_rng(11)
    arrays = {side: rng.uniform(0.5, 1, (64, 64)).astype(np.float16) for side in "AB"}
    bounded = strassen_bound.rounded(options, arrays)
    np.testing.assert_allclose(bounded.value[0], arrays["A"].astype(float) @ arrays["B"].astype(float))
    assert bounded.error.max() < higham(options, 2.0**-24, arrays)
    assert (bounded.error > 2.0**-24 * np.abs(bounded.value)).all()


def test_streaming_bounds_the_same() -> None:
    """Parts one after the other give the bounds of all at once; levels that share a launch wider ones."""
    rng = np.random.default_rng(4)
    given: dict[str, Any] = dict(
        m=64, n=64, k=64, levels=3, leaf="buffers", accumulate="fp32", float_operands=True
    )
    arrays = {side: rng.standard_normal((64, 64)).astype(np.float16) for side in "AB"}
    apart = strassen_bound.rounded(Options(**given, together=1), arrays)
    streamed = strassen_bound.rounded(Options(**given, together=1, stream=1), arrays)
    np.testing.assert_allclose(streamed.value, apart.value)
    np.testing.assert_allclose(streamed.error, apart.error)
    assert (strassen_bound.rounded(Options(**given, together=3), arrays).error > apart.error).all()


def test_exact_inputs_of_many_levels_keep_rows_apart() -> None:
    """Of five levels with half products rows of A that are added up have entries in one of them alone."""
    given: dict[str, Any] = dict(m=256, n=1024, k=256, levels=5, leaf="buffers", half_products=True)
    options = Options(**given, accumulate="fp32", stream=2)
    filled = compositions.exact(options)["A"].reshape(32, 8, 256).any(2)
    np.testing.assert_array_equal(filled.sum(0), 1)


@pytest.mark.parametrize("form", strassen.FORMS)
def test_operands_one_by_one_are_those_of_all(form: str) -> None:
    source = strassen.flushed(np.random.default_rng(5).standard_normal((1, 16, 32)).astype(np.float16))
    together = strassen.operands(source, form, "B", 2, strassen.HALF)
    for number, one in enumerate(strassen.each_operand(source, form, "B", 2, strassen.HALF)):
        np.testing.assert_allclose(one.value[0], together.value[number], rtol=1e-14)
        np.testing.assert_allclose(one.error[0], together.error[number], rtol=1e-14)


def test_sums_are_bounded_in_any_order() -> None:
    """A compiler need not keep to the levels: a chain of all blocks, one after the other, in half."""
    rng = np.random.default_rng(9)
    source = strassen.exact(rng.uniform(0.5, 1, (1, 256, 256)).astype(np.float16))
    bounded = strassen.operands(source, "strassen", "A", 2, strassen.HALF)
    blocks = strassen.split(source.value, 2)[0].astype(np.float16)
    for product, table in enumerate(strassen.operand("strassen", "A", 2)):
        places = np.argwhere(table)
        for order in (places, places[::-1]):
            total = np.zeros((64, 64), np.float16)
            for i, j in order:
                total = total + blocks[i, j] * np.float16(table[i, j])
            assert (np.abs(total - bounded.value[product]) <= bounded.error[product]).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_the_host_sums_as_the_device_does(threads: int) -> None:
    """What numpy makes of a matrix is what the transform's coefficients say, and both are inverse."""
    options = Options(
        m=128,
        n=128,
        k=128,
        levels=3,
        accumulate="fp32",
        leaf="buffers",
        stream=1,
        host_sums=True,
        host_threads=threads,
    )
    (plan, inner), rng = (
        (STRASSEN.plan(options), strassen_options.stages(options)[1]),
        np.random.default_rng(2),
    )
    steps = [step for step in plan.steps if isinstance(step, HostStep)]
    assert [step.part for step in steps] == ["host"] * 7 * 3
    values = rng.integers(-3, 4, (1, 64, 64)).astype(np.float16)
    found = steps[0].compute({"X": values})["O"]
    expected = strassen.operands(strassen.exact(values), "strassen", "A", inner.levels, strassen.SINGLE)
    np.testing.assert_array_equal(found, expected.value)
    collect = next(step for step in steps if "M" in step.reads)
    products = rng.integers(-3, 4, (49, 16, 16)).astype(np.float32)
    combined = strassen.results(strassen.exact(products), "strassen", 2, strassen.SINGLE)
    np.testing.assert_array_equal(collect.compute({"M": products})["C"], combined.value[0])


def test_the_next_part_is_prepared_before_a_part_is_made() -> None:
    """So that the host works beside the device: two parts have their memories, in turns."""
    plan = STRASSEN.plan(STRASSEN.configure({}, "four-host"))
    order = [
        (next(iter(step.writes.values())).memory if isinstance(step, HostStep) else step.part)
        for step in plan.steps
        if isinstance(step, HostStep) or step.part == "gemm"
    ]
    assert order[:10] == ["A2.0", "B2.0", "A2.1", "B2.1", "gemm", "M1", "A2.0", "B2.0", "gemm", "M1"]
    assert order.count("gemm") == order.count("M1") == 7


def test_streaming_needs_the_memory_of_one_part() -> None:
    given: dict[str, Any] = dict(m=8192, n=8192, k=8192, levels=5, accumulate="fp32", half_products=True)
    strassen_options.check(Options(**given))
    sizes = {}
    for stream in (0, 2):
        found = strassen_options.stages(Options(**given, stream=stream))
        last = found[-1]
        count = last.batch * last.products
        sizes[stream] = count * (last.m // 2**last.levels) * (last.k // 2**last.levels)
    assert sizes[0] == 49 * sizes[2] == 7**5 * 256**2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": 6}, "levels is 6; give one of 1, 2, 3, 4, 5"),
        ({"form": "karatsuba"}, "form is 'karatsuba'; give one of strassen, winograd"),
        ({"accumulate": "int8"}, "accumulate is 'int8'; give one of fp16, fp32"),
        ({"leaf": "tree"}, "leaf is 'tree'; give one of gemm, buffers, fused, terminal"),
        ({"leaf_tile": "16x4"}, "leaf-tile is '16x4'; give one of 4x8, 8x8, halfwave"),
        ({"leaf_threads": 256}, "leaf-threads is 256; give one of 64, 128"),
        (
            {"leaf_tile": "8x8"},
            "leaf-tile=8x8 and leaf-threads=64 with leaf=gemm and accumulate=fp16; give leaf=gemm and",
        ),
        (
            {"leaf_tile": "halfwave", "accumulate": "fp32", "m": 40, "leaf_threads": 128},
            "40 x 1024 x 1024 is not made of 7 products .* give multiples of 64 x 128 x 64",
        ),
        ({"host_threads": 0}, "host-threads is 0; give 1 to 64"),
        ({"host_threads": 2}, "host-threads=2 without host-sums; give host-sums=true too"),
        ({"half_combine": True, "accumulate": "fp32"}, "half-combine without half-products; its sums are"),
        ({"transform_vec": 3}, "strassen_transform: vec is 3; give 1, 2, 4, 8 or 16"),
        ({"combine_threads": 96}, "strassen_combine: threads is 96; give one of"),
        ({"together": 4}, "together is 4; give one of 1, 2, 3"),
        ({"stream": 3, "levels": 4}, "stream is 3; give one of 0, 1, 2"),
        ({"half_products": True}, "half-products with accumulate=fp16"),
        ({"float_operands": True}, "float-operands with accumulate=fp16; its products take halves"),
        ({"leaf": "fused"}, "leaf=fused with accumulate=fp16; its sums are float32"),
        (
            {"leaf": "fused", "accumulate": "fp32", "float_operands": True},
            "leaf=fused with float-operands; it samples halves",
        ),
        (
            {"leaf": "terminal", "accumulate": "fp32", "half_products": True},
            "leaf=terminal with half-products; it stores float32",
        ),
        ({"images": True, "local": True}, "images with local; local memory is filled from buffers"),
        ({"host_sums": True, "accumulate": "fp32"}, "host-sums without stream; give stream=1 or 2"),
        ({"host_sums": True, "stream": 1, "levels": 2}, "host-sums with accumulate=fp16; they are float32"),
        (
            {"host_sums": True, "stream": 1, "levels": 2, "accumulate": "fp32", "leaf": "fused"},
            "host-sums with leaf=fused; the host does not multiply",
        ),
        ({"stream": 1}, "stream=1 of 1 levels; leave one to do at once"),
        ({"m": 32}, "32 x 1024 x 1024 is not made of 7 products that the GEMM can compute"),
        ({"levels": 3}, "give multiples of 256 x 2048 x 256"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        STRASSEN.plan(STRASSEN.configure(options))


def test_unknown_names() -> None:
    with pytest.raises(KernelError, match="no composition is called 'straßen'; did you mean strassen"):
        compositions.find("straßen")
    options = STRASSEN.configure({}, "one")
    with pytest.raises(KernelError, match="composition strassen has no pattern 'ones'; it has exact"):
        composed.prepare(None, STRASSEN, options, pattern="ones")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, [(1, 1, 8192), (2, 7, 4096), (2, 343, 1024)]),
        ({"together": 3}, [(2, 1, 8192), (3, 49, 2048)]),
        ({"stream": 2}, [(2, 1, 8192), (1, 1, 2048), (2, 7, 1024)]),
        ({"leaf": "terminal"}, [(2, 1, 8192), (2, 49, 2048), (1, 2401, 512)]),
        ({"stream": 1, "host_sums": True}, [(1, 1, 8192), (4, 1, 4096)]),
    ],
)
def test_stages_share_launches(given: dict[str, object], wanted: list[tuple[int, int, int]]) -> None:
    """(levels, matrices, n) of each, from the whole product to the leaves."""
    options = STRASSEN.configure(
        {"levels": 5, "m": 1024, "n": 8192, "k": 1024, "accumulate": "fp32", **given}
    )
    found = strassen_options.stages(options)
    assert [(stage.levels, stage.batch, stage.n) for stage in found] == wanted
    assert [stage.fused for stage in found].count(True) == (options.leaf == "terminal")


def test_the_command_line_runs_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Its facts, a line that repeats it, and the exit code of bad options."""
    words = ["compose", "strassen", "m=64", "n=512", "k=64", "form=winograd", "--seed", "3", "--json"]
    assert cli.main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ok"], facts["launches"], facts["checked"]) == (True, 4, 64 * 512)
    assert facts["repeat"] == "qcom compose strassen m=64 n=512 k=64 form=winograd --seed 3"
    assert facts["device_seconds"] == pytest.approx(
        facts["transform_seconds"] + facts["gemm_seconds"] + facts["combine_seconds"]
    )
    assert cli.main(["compose", "strassen", "levels=9"]) == cli.BAD_INPUT
    assert capsys.readouterr().err == "qcom: strassen: levels is 9; give one of 1, 2, 3, 4, 5\n"
