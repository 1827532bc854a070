"""Matrix products of bytes: packed images, exact oracles, and the scales that make them products of floats.

``dp4acc`` multiplies four bytes of a 32-bit word with four of another and adds the products to an integer. A
texel of ``A`` is 16 consecutive k of a row; a texel of ``B`` is one word each of four columns, four
consecutive k in a word. ``dp4acc.mixed`` takes the bytes of its first source as signed, those of the second
never: weights are stored with 128 added, and 128 times the sum of the row of ``A`` comes off the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.chip import A630
from pytest_qcom.kernels import matmul, single
from pytest_qcom.kernels.kernel import Argument, Arrays

Integers = NDArray[np.int64]

BIAS = 128
"""What is added to signed weights to make them unsigned."""
LIMIT = single.LIMIT
"""Largest magnitude of a quantized value: symmetric, so that a scale has no offset."""

_ROW_TEXELS = A630.images.pitch_align.value // 16  # of four words


class Problem(matmul.Shape, Protocol):
    """A product of bytes."""

    @property
    def mixed(self) -> bool:
        """The bytes of A are signed."""
        ...

    @property
    def combined_b_height(self) -> int:
        """Rows of B, where A lies below it in one image; 0 where each has its own."""
        ...

    @property
    def initial_acc(self) -> int:
        """What sums start at."""
        ...


def _a_width(k: int) -> int:
    return -(-k // 16 // _ROW_TEXELS) * _ROW_TEXELS


def arguments(problem: Problem, pointer: int) -> tuple[Argument, ...]:
    """Images A and B of words, and the buffer C of 32-bit integers."""
    return (
        *inputs(problem),
        Argument("C", (problem.m, problem.n), "int32", image=False, written=True, pointer=pointer),
    )


def inputs(problem: Problem) -> tuple[Argument, ...]:
    """Images A and B of words, or the one image AB of both."""
    if problem.combined_b_height:
        shape = (problem.combined_b_height + problem.m, _width(problem), 4)
        return (Argument("AB", shape, "uint32", image=True, written=False),)
    return (
        Argument("A", (problem.m, _a_width(problem.k), 4), "uint32", image=True, written=False),
        Argument("B", (problem.k // 4, problem.n // 4, 4), "uint32", image=True, written=False),
    )


def _width(problem: Problem) -> int:
    """Of the image of both, in texels."""
    return -(-max(_a_width(problem.k), problem.n // 4) // _ROW_TEXELS) * _ROW_TEXELS


def images(problem: Problem, a: NDArray[Any], b: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Matrices of bytes as images, noise in what pads them."""
    words = np.ascontiguousarray(a.astype(np.uint8)).view("<u4").reshape(problem.m, problem.k // 16, 4)
    padded = np.random.default_rng(0).integers(0, 1 << 32, (problem.m, _a_width(problem.k), 4), np.uint32)
    padded[:, : words.shape[1]] = words
    columns = b.astype(np.uint8).reshape(problem.k // 4, 4, problem.n).transpose(0, 2, 1)
    packed = np.ascontiguousarray(columns).view("<u4").reshape(problem.k // 4, problem.n // 4, 4)
    if not problem.combined_b_height:
        return {"A": padded, "B": packed}
    shape = inputs(problem)[0].shape
    both = np.random.default_rng(1).integers(0, 1 << 32, shape, np.uint32)
    both[: problem.combined_b_height, : packed.shape[1]] = packed
    both[problem.combined_b_height :, : padded.shape[1]] = padded
    return {"AB": both}


def matrices(problem: Problem, arrays: Arrays) -> tuple[Integers, Integers]:
    """The matrices of bytes in a kernel's images."""
    left, right = arrays.get("A"), arrays.get("B")
    if left is None or right is None:
        height = problem.combined_b_height
        left, right = arrays["AB"][height:], arrays["AB"][:height, : problem.n // 4]
    words = np.ascontiguousarray(left[:, : problem.k // 16])
    a = words.view(np.int8 if problem.mixed else np.uint8).reshape(problem.m, problem.k)
    b = np.ascontiguousarray(right).view(np.uint8).reshape(problem.k // 4, problem.n, 4).transpose(0, 2, 1)
    return a.astype(np.int64), b.reshape(problem.k, problem.n).astype(np.int64)


def random(problem: Problem, rng: np.random.Generator) -> Arrays:
    """Bytes of every value."""
    a = rng.integers(-128, 128, (problem.m, problem.k)) if problem.mixed else None
    return images(
        problem,
        rng.integers(0, 256, (problem.m, problem.k)) if a is None else a,
        rng.integers(0, 256, (problem.k, problem.n)),
    )


def product(problem: Problem, arrays: Arrays) -> Arrays:
    """``A @ B`` and what sums start at, modulo 2**32, as signed 32-bit integers: exact."""
    a, b = matrices(problem, arrays)
    total = _product(a, b) + problem.initial_acc
    return {"C": (total + 2.0**31) % 2.0**32 - 2.0**31}


def _product(a: Integers, b: Integers) -> NDArray[np.float64]:
    """Exact in float64: every partial sum is an integer below ``2**53``."""
    return a.astype(np.float64) @ b.astype(np.float64)


def exact(problem: Problem, arrays: Arrays) -> Mapping[str, float]:
    """No error is allowed."""
    return {"C": 0.0}


def _pattern(name: str) -> Callable[[Any], Arrays]:
    """A pattern of the half products, its values modulo 128."""

    def make(problem: Problem) -> Arrays:
        a, b = matmul.matrices(problem, matmul.PATTERNS[name](problem))
        return images(problem, a.astype(np.int64) % 128, b.astype(np.int64) % 128)

    return make


PATTERNS: Mapping[str, Callable[[Any], Arrays]] = {name: _pattern(name) for name in matmul.PATTERNS}


def quantized(values: NDArray[Any], axis: int) -> tuple[Integers, NDArray[np.float32]]:
    """Signed bytes and scales, one along ``axis``: the largest magnitude becomes 127, zeros have scale 1."""
    scale = (np.abs(values).max(axis=axis, keepdims=True) / LIMIT).astype(np.float32)
    scale[scale == 0] = 1.0
    rounded = np.rint(values.astype(np.float64) / scale)
    return np.clip(rounded, -LIMIT, LIMIT).astype(np.int64), scale


def scaled_arguments(problem: Problem, pointer: int) -> tuple[Argument, ...]:
    """Images of A, B, what belongs to a row and to a column; the buffer C of floats.

    ``rows`` has one texel a row in column 0: the bits of its scale, and :data:`BIAS` times its sum.
    ``columns`` has one row, a texel the scales of four columns.
    """
    return (
        *inputs(problem),
        Argument("rows", (problem.m, _ROW_TEXELS, 4), "uint32", image=True, written=False),
        Argument("columns", (1, problem.n // 4, 4), "float32", image=True, written=False),
        Argument("C", (problem.m, problem.n), "float32", image=False, written=True, pointer=pointer),
    )


def scaled(problem: Problem, activations: NDArray[Any], weights: NDArray[Any]) -> Arrays:
    """Two matrices of floats as what a scaled kernel takes, rows and columns each by their largest value."""
    a, row_scale = quantized(activations, axis=1)
    b, column_scale = quantized(weights, axis=0)
    rows = np.random.default_rng(0).integers(0, 1 << 32, (problem.m, _ROW_TEXELS, 4), np.uint32)
    rows[:, 0, 0] = row_scale[:, 0].view(np.uint32)
    rows[:, 0, 1] = (BIAS * a.sum(axis=1)).astype(np.int32).view(np.uint32)
    return {
        **images(problem, a, b + BIAS),
        "rows": rows,
        "columns": column_scale.reshape(1, problem.n // 4, 4),
    }


def scaled_random(problem: Problem, rng: np.random.Generator) -> Arrays:
    """Standard normal activations and weights, rows and columns of very different size."""
    row_size, column_size = 2.0 ** rng.integers(-6, 7, (problem.m, 1)), 2.0 ** rng.integers(-6, 7, problem.n)
    return scaled(
        problem,
        rng.standard_normal((problem.m, problem.k)) * row_size,
        rng.standard_normal((problem.k, problem.n)) * column_size,
    )


def scales(arrays: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(of rows, of columns) of a scaled kernel's inputs."""
    rows = np.ascontiguousarray(arrays["rows"][:, 0, :1]).view(np.float32)
    return rows.astype(np.float64), arrays["columns"].reshape(1, -1).astype(np.float64)


def scaled_product(problem: Problem, arrays: Arrays) -> Arrays:
    """The product of the quantized matrices, without the bias, by the scales of its row and column."""
    a, b = matrices(problem, arrays)
    rows, columns = scales(arrays)
    return {"C": _product(a, b - BIAS) * rows * columns}


def scaled_bound(problem: Problem, arrays: Arrays) -> Mapping[str, NDArray[np.float64]]:
    """How far the conversion and two products can be from :func:`scaled_product`.

    Derivation. The sum is an integer of magnitude up to ``127 * 127 k``, exact in float32 up to ``2**24``,
    that is for k up to 1040; beyond, its conversion may be off by ``2u = 2**-23`` (its rounding is not known
    to be to nearest). Two products to nearest add ``u`` each and lose at most ``t = 2**-126`` each.
    """
    conversion = 0.0 if LIMIT * LIMIT * problem.k <= 1 << 24 else 2 * single.ROUNDOFF
    relative = (1 + conversion) * (1 + single.ROUNDOFF) ** 2 - 1
    _, columns = scales(arrays)
    exact = np.abs(scaled_product(problem, arrays)["C"])
    return {"C": exact * relative + single.TINY * (2 + np.abs(columns))}


def quantization_bound(activations: NDArray[Any], weights: NDArray[Any]) -> NDArray[np.float64]:
    """How far the product of the quantized matrices can be from that of the matrices themselves.

    Each quantized value is off by at most half its scale (the largest one by the rounding of the scale, in
    float32): ``|A B - A' B'| <= |A - A'| |B| + |A'| |B - B'|``.
    """
    (a, row_scale), (_, column_scale) = quantized(activations, axis=1), quantized(weights, axis=0)
    half = 0.5 * (1 + 2.0**-15)
    size_a = (np.abs(a) * row_scale).sum(axis=1, keepdims=True)
    size_b = np.abs(weights).sum(axis=0, keepdims=True)
    return np.asarray(half * (row_scale * size_b + size_a * column_scale), np.float64)
