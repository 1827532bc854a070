"""Products recognized in programs: where operands lie, what weights are, what is none and why."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pytest_qcom.errors import GraphError
from pytest_qcom.kernels import registry as kernels
from pytest_qcom.openpilot import execution, inserted, library, products
from pytest_qcom.openpilot.epilogues import COLUMN, ELEMENT, epilogue
from pytest_qcom.openpilot.graph import Graph
from pytest_qcom.openpilot.products import Product

Captured = Callable[[str], Graph]


def gelu(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        ("vision-mlp", [(256, 256, 64), (256, 64, 256)] * 2),
        ("heads", [(1, 64, 128), (1, 32, 64)] * 8),
        ("shared-heads", [(1, 64, 128)] * 4 + [(1, 32, 64)] * 4),
        ("attention", [(32, 64, 64)] * 4),
        ("stem", []),
        ("input-pack", []),
    ],
)
def test_products_of_the_models(captured: Captured, model: str, shapes: list[tuple[int, int, int]]) -> None:
    found = products.products(captured(model).calls)
    assert [(each.m, each.n, each.k) for each in found.values()] == shapes


def test_operands_lie_where_the_product_says(captured: Captured) -> None:
    """Numpy computes the first block from the same memory, with the weights that were drawn for it."""
    graph = captured("vision-mlp")
    (first, up), (second, down), *_ = products.products(graph.calls).items()
    inputs = execution.random_inputs(graph, np.random.default_rng(7))
    outputs = execution.run(graph, inputs, watch=[first - 1, first, second]).outputs
    generator = np.random.default_rng(0)
    drawn = [generator.standard_normal(shape).astype(np.float32) for shape in ((64, 256), (256,), (256, 64))]
    weights = drawn[0] / np.sqrt(np.float32(64))
    np.testing.assert_array_equal(up.matrix(graph.calls[first]), weights.astype(np.float16))

    def rows(flat: np.ndarray, start: int, stride: int, m: int, width: int) -> np.ndarray:
        places = start + stride * np.arange(m)[:, None] + np.arange(width)[None, :]
        return np.asarray(flat[places], np.float64)

    left = rows(outputs[first - 1][0], up.left_start, up.left_stride, up.m, up.k)
    np.testing.assert_array_equal(left, inputs["x"].astype(np.float16))
    bias = graph.calls[first].views[3].array()
    expected = gelu(left @ up.matrix(graph.calls[first]) + bias)
    hidden = rows(outputs[first][0], up.out_start, up.out_stride, up.m, up.n)
    np.testing.assert_allclose(hidden, expected, atol=2e-3 * np.abs(expected).max())
    left = rows(outputs[first][0], down.left_start, down.left_stride, down.m, down.k)
    np.testing.assert_array_equal(left, hidden)
    expected = left @ down.matrix(graph.calls[second]).astype(np.float64)
    result = rows(outputs[second][0], down.out_start, down.out_stride, down.m, down.n)
    np.testing.assert_allclose(result, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("model", "call", "reason"),
    [
        ("stem", 0, "a stored value depends on 0 sums, of a product on one"),
        ("stem", 1, "a factor is loaded only where a condition holds"),
        ("attention", 7, "it stores 2048 values of 64 rows and 64 columns"),
        ("attention", 8, "a sum does not start at zero"),
        ("attention", 9, "a sum adds what is no product of two loads"),
    ],
)
def test_what_is_no_product_says_why(captured: Captured, model: str, call: int, reason: str) -> None:
    assert products.product(captured(model).calls[call]) == reason


def test_a_weight_has_a_matrix_and_another_argument_none(captured: Captured) -> None:
    graph = captured("vision-mlp")
    (number, found), *_ = products.products(graph.calls).items()
    call = graph.calls[number].substituted(
        {graph.calls[number].views[found.right].memory: graph.calls[number].views[found.out]}
    )
    with pytest.raises(GraphError, match=r"^contents of temporary1: it is temporary memory; only weights"):
        found.matrix(call)
    again = products.product(call)
    assert isinstance(again, Product)
    assert again.right == found.right


def test_epilogues(captured: Captured) -> None:
    """A bias by column and a GELU; a residual by place; nothing."""
    keys = {}
    for model in ("vision-mlp", "attention", "heads"):
        graph = captured(model)
        for number, found in products.products(graph.calls).items():
            program = graph.calls[number].program
            assert program is not None
            made = epilogue(program, found)
            keys[model, number] = (tuple(made.arguments.values()), made.key == "sum", "EXP2" in made.key)
    assert keys["vision-mlp", 1] == ((COLUMN,), False, True)
    assert keys["vision-mlp", 2] == ((), True, False)
    assert keys["attention", 13] == ((ELEMENT,), False, False)
    assert keys["heads", 3] == ((), True, False)


def test_what_tinygrad_cannot_launch_is_refused() -> None:
    kernel = kernels.find("gemm_8x8_fp16")
    build = kernel.build(kernel.configure({"m": 32, "n": 256, "k": 16}))
    with pytest.raises(GraphError, match=r"^kernel x: waves of 128 fibers, which tinygrad does not launch"):
        library.of_build(build, "x")


def test_an_expression_takes_inputs_of_its_size(captured: Captured) -> None:
    call = captured("stem").calls[0]
    assert call.program is not None
    made = inserted.expressed(call.program, lambda x: [(x * 2).sum(axis=1)], [((64, 4096), "float32")])
    with pytest.raises(GraphError, match=r"^expression: frames has 24576 bytes, it takes 262144 float32"):
        made.inserted(call, [call.views[1]])
