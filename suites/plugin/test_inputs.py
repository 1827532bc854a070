"""Random inputs: what each distribution is, that a seed decides it, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.inputs import DISTRIBUTIONS, matrix, seed


def draw(distribution: str, dtype: Any = "float32", shape: Any = (40, 60)) -> NDArray[Any]:
    return matrix(np.random.default_rng(1), shape, dtype, distribution)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_shape_type_and_repetition(distribution: str, dtype: str) -> None:
    drawn = draw(distribution, dtype)
    assert (drawn.shape, drawn.dtype) == ((40, 60), np.dtype(dtype))
    assert np.array_equal(drawn, draw(distribution, dtype))
    assert np.isfinite(drawn).all()


def test_whole_numbers_and_types_of_numpy_are_taken() -> None:
    drawn = draw("integers", np.int32, (np.int64(3), 4))
    assert (drawn.shape, drawn.dtype) == ((3, 4), np.dtype("int32"))


def test_normal_has_mean_0_and_deviation_1() -> None:
    drawn = draw("normal", shape=(500, 500))
    assert (abs(drawn.mean()) < 0.01, abs(drawn.std() - 1) < 0.01) == (True, True)


def test_uniform_fills_its_range() -> None:
    drawn = draw("uniform", shape=(100, 100))
    assert -1 <= drawn.min() < -0.99 < 0.99 < drawn.max() <= 1


@pytest.mark.parametrize(("dtype", "low"), [("int8", -8), ("float16", -8), ("uint8", 0)])
def test_integers_are_exact_in_every_type(dtype: str, low: int) -> None:
    drawn = draw("integers", dtype)
    assert sorted(set(drawn.ravel().tolist())) == list(range(low, 9))


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (1, 1)])
def test_permutation_has_one_1_a_row_and_column(shape: tuple[int, int]) -> None:
    drawn = draw("permutation", shape=shape)
    assert drawn.sum() == min(shape)
    assert drawn.sum(axis=0).max() == drawn.sum(axis=1).max() == 1


def test_seed_depends_on_node_and_session() -> None:
    assert seed("a::b", 0) == seed("a::b", 0)
    assert len({seed(node, session) for node in ("a::b", "a::c") for session in (0, 1, -1)}) == 6
    assert seed("suites/test_x.py::test_y", 0) == 0xFB2C624A2A17ECD4  # equal on every machine


NO_SHAPES = [(-1, 2), (0, 2), (2.0, 2), (True, 2), ("2", 2), 4, "ab", None]
NO_TYPES = ["float17", "bfloat16", "U4", "float16,float16", object, 3, None, "{"]


@pytest.mark.parametrize(
    ("distribution", "dtype", "shape", "words"),
    [
        ("cauchy", "float16", (2, 2), "there are normal, uniform, integers, permutation"),
        (
            "normal",
            "int8",
            (2, 2),
            "of int8: distribution .normal. rounds to little more than 0",
        ),
        ("permutation", "float16", (2, 2, 2), r"shape \(2, 2, 2\) is not 2D"),
        (["normal"], "float16", (2, 2), "there are normal, uniform"),
        *(("normal", "float16", shape, "no tuple of positive whole numbers") for shape in NO_SHAPES),
        ("normal", "float16", (2,) * 99, r"shape \(2, .*\): .*; draw a smaller one"),
        ("uniform", "float16", (1 << 30, 1 << 30), r"shape \(1073741824, .*\): .*; draw a smaller one"),
        *(("normal", dtype, (2, 2), "no type of numbers") for dtype in NO_TYPES),
    ],
)
def test_refused(distribution: Any, dtype: Any, shape: Any, words: str) -> None:
    with pytest.raises(KernelError, match=words):
        draw(distribution, dtype, shape)
