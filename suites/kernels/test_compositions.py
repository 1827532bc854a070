"""Products by seven products: identities, bounds, random matrices and exact ones on the device."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from pytest_qcom import cli, composed
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import compositions, strassen
from pytest_qcom.kernels.composition import Use
from pytest_qcom.kernels.compositions import STRASSEN

CASES = [
    pytest.param(case.name, marks=[pytest.mark.long] if case.name in STRASSEN.long else [])
    for case in STRASSEN.cases
]


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


@pytest.mark.parametrize("name", CASES)
def test_random_matrices_are_within_the_bound(device: Device, name: str) -> None:
    run = composed.prepare(device, STRASSEN, STRASSEN.configure({}, name), np.random.default_rng(17))
    assert run.launch() > 0
    outcome = run.compare()
    assert outcome.ok, str(outcome)
    assert outcome.checked == run.options.m * run.options.n
    assert set(run.parts) == {"transform", "gemm", "combine"}


@pytest.mark.parametrize("name", CASES)
def test_exact_matrices_are_exact(device: Device, name: str) -> None:
    """No sum rounds, so that an index that is off by one anywhere shows."""
    run = composed.prepare(device, STRASSEN, STRASSEN.configure({}, name), pattern="exact")
    run.launch()
    outcome = run.compare()
    assert outcome.max_abs == 0.0, str(outcome)
    assert np.count_nonzero(run.composition.oracle(run.options, run.inputs)["C"]) > run.options.m


@pytest.mark.parametrize("name", ["one", "one-winograd"])
def test_a_swapped_operand_shows(device: Device, name: str) -> None:
    """The test of the test: A's products in another order, one product's place off by one row."""
    options = STRASSEN.configure({}, name)
    run = composed.prepare(device, STRASSEN, options, pattern="exact")
    for step in run.plan.steps:
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
    table = strassen.operand("winograd", "A", 2)
    bounded = strassen.transformed(source, table, 2, strassen.HALF)
    blocks = strassen.split(source.value, 2)[0].reshape(16, 16, 16).astype(np.float16)
    worst = 0.0
    for product, signs in enumerate(table.reshape(49, 16)):
        total = np.zeros((16, 16), np.float16)
        for block, sign in zip(blocks, signs, strict=True):
            if sign:
                total = (total + np.float16(sign) * block).astype(np.float16)
        error = np.abs(total.astype(np.float64) - bounded.value[product])
        assert (error <= bounded.error[product]).all()
        worst = max(worst, float((error / np.maximum(bounded.error[product], 1e-9)).max()))
    assert worst > 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": 6}, "levels is 6; give 1 to 5"),
        ({"form": "karatsuba"}, "form is 'karatsuba'; give one of strassen, winograd"),
        ({"accumulate": "int8"}, "accumulate is 'int8'; give fp16 or fp32"),
        ({"half_products": True}, "half-products with accumulate=fp16"),
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


def test_stages_pair_levels() -> None:
    options = STRASSEN.configure({"levels": 5, "m": 1024, "n": 8192, "k": 1024})
    assert [(stage.levels, stage.batch, stage.n) for stage in compositions.stages(options)] == [
        (1, 1, 8192),
        (2, 7, 4096),
        (2, 343, 1024),
    ]


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
    assert capsys.readouterr().err == "qcom: strassen: levels is 9; give 1 to 5\n"
