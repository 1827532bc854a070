"""The oracle and its bound: no correct rounding falls outside, no single dropped product inside."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.families.gemm_4xn_fp16 import Options
from pytest_qcom.kernels.kernel import Arrays


def chains(shape: Options, arrays: Arrays, count: int, skip: int = -1) -> np.ndarray:
    """What float16 accumulation gives: product and sum rounded and flushed, k in order, in partial sums."""
    a, b = matmul.matrices(shape, arrays)
    sums = np.zeros((count, shape.m, shape.n), np.float16)
    for k in range(shape.k):
        if k != skip:
            product = flushed(np.multiply.outer(flushed(a[:, k]), flushed(b[k])))
            sums[k % count] = flushed(sums[k % count] + product)
    total = sums[0]
    for part in sums[1:]:
        total = flushed(total + part)
    wide: np.ndarray = total.astype(np.float64)
    return wide


def flushed(values: np.ndarray) -> np.ndarray:
    return np.where(np.abs(values) < 2.0**-14, np.float16(0), values)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("k", [4, 44, 256, 1024])
@pytest.mark.parametrize("scale", [1.0, 2.0**-6])
def test_bound_covers_the_rounding(count: int, k: int, scale: float) -> None:
    shape = Options(m=24, n=32, k=k)
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((24, k)) * scale, rng.standard_normal((k, 32)) * scale
    arrays = matmul.images(shape, a.astype(np.float16), b.astype(np.float16))
    error = np.abs(chains(shape, arrays, count) - matmul.product(shape, arrays)["C"])
    bound = matmul.half_bound(shape, arrays, count)["C"]
    assert (error <= bound).all()
    assert error.max() > 0


@pytest.mark.parametrize("k", [44, 64, 96])
def test_bound_shows_a_dropped_product(k: int) -> None:
    """At the sizes of the suites one missing k of many is far outside somewhere."""
    shape = Options(m=16, n=512, k=k)
    arrays = matmul.random(shape, np.random.default_rng(1))
    error = np.abs(chains(shape, arrays, 1, skip=k // 2) - matmul.product(shape, arrays)["C"])
    assert (error > matmul.half_bound(shape, arrays)["C"]).mean() > 0.25


def test_bound_shows_a_wrong_element_of_a_long_sum() -> None:
    """Whatever else may stand in its place: of two elements of C nearly all are told apart."""
    shape = Options(m=24, n=32, k=1024)
    arrays = matmul.random(shape, np.random.default_rng(2))
    expected, bound = matmul.product(shape, arrays)["C"], matmul.half_bound(shape, arrays)["C"]
    other = np.roll(chains(shape, arrays, 1), 1, axis=1)
    assert (np.abs(other - expected) > bound).mean() > 0.9
    assert np.median(bound) < np.abs(expected).mean() / 5


@pytest.mark.parametrize("k", [44, 1024])
def test_integers_show_a_dropped_product(k: int) -> None:
    shape = Options(m=16, n=128, k=k)
    arrays = matmul.HALF_PATTERNS["integers"](shape)
    expected = matmul.product(shape, arrays)["C"]
    np.testing.assert_array_equal(chains(shape, arrays, 1), expected)
    np.testing.assert_array_equal(chains(shape, arrays, 4), expected)
    a, b = matmul.matrices(shape, arrays)
    dropped = np.multiply.outer(a[:, k // 2].astype(float), b[k // 2].astype(float)) != 0
    np.testing.assert_array_equal(chains(shape, arrays, 1, skip=k // 2) != expected, dropped)
    assert dropped.mean() > 0.3


def test_inputs_below_the_smallest_normal_count_as_zero() -> None:
    shape = Options(m=1, n=4, k=4)
    arrays = matmul.images(shape, np.full((1, 4), 2.0**-15), np.full((4, 4), 8.0))
    assert (matmul.product(shape, arrays)["C"] == 0).all()


@pytest.mark.parametrize("name", matmul.HALF_PATTERNS)
@pytest.mark.parametrize("shape", [Options(m=16, n=512, k=12), Options(m=256, n=128, k=68)], ids=str)
def test_patterns_are_exact_and_tell_places_apart(name: str, shape: Options) -> None:
    arrays = matmul.HALF_PATTERNS[name](shape)
    expected = matmul.product(shape, arrays)["C"]
    assert np.array_equal(expected, expected.astype(np.float16))
    assert (np.abs(expected) <= 2048).all()
    if name in ("identity-a", "columns", "last-k"):
        assert (expected[:, 1:] != expected[:, :-1]).all()
    if name in ("identity-b", "rows", "last-k"):
        assert (expected[1:] != expected[:-1]).mean() > 0.9


def test_padding_of_a_is_no_part_of_it() -> None:
    shape = Options(m=16, n=512, k=12)
    arrays = matmul.random(shape, np.random.default_rng(0))
    assert arrays["A"].shape == (16, 8, 4)  # 64 bytes a row
    padding = arrays["A"].reshape(16, 32)[:, 12:]
    assert np.abs(padding).min() > 0


def test_results_are_remembered_by_what_the_arrays_hold() -> None:
    shape = Options(m=8, n=16, k=8)
    arrays = matmul.random(shape, np.random.default_rng(5))
    first = matmul.half_bound(shape, arrays)["C"]
    again = {name: array.copy() for name, array in arrays.items()}
    assert matmul.half_bound(shape, again, chains=1)["C"] is first
    assert matmul.half_bound(shape, again, 2)["C"] is not first
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 0
    again["B"][3, 1, 2] += 1
    changed = matmul.product(shape, again)["C"] - matmul.product(shape, arrays)["C"]
    assert changed[:, 6].any()
    assert not np.delete(changed, 6, axis=1).any()
