"""Random matrices that a test can draw again: seeded from its node id."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError

Shape = tuple[int, ...]

NUMERIC = "biufc"
"""Kinds of numpy types to which a drawn number can be rounded."""


def seed(node_id: str, session_seed: int) -> int:
    """A 64-bit seed: equal on every machine, different for each test and each ``--qcom-seed``."""
    digest = hashlib.blake2b(f"{session_seed}:{node_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _normal(generator: np.random.Generator, shape: Shape) -> NDArray[Any]:
    return generator.standard_normal(shape)


def _uniform(generator: np.random.Generator, shape: Shape) -> NDArray[Any]:
    return generator.uniform(-1, 1, shape)


def _integers(generator: np.random.Generator, shape: Shape) -> NDArray[Any]:
    return generator.integers(-8, 9, shape)


def _permutation(generator: np.random.Generator, shape: Shape) -> NDArray[Any]:
    """At most one 1 a row and a column: shows which element a kernel really read."""
    rows, columns = shape
    matrix = np.zeros(shape)
    count = min(rows, columns)
    matrix[generator.permutation(rows)[:count], generator.permutation(columns)[:count]] = 1
    return matrix


DISTRIBUTIONS: Mapping[str, Callable[[np.random.Generator, Shape], NDArray[Any]]] = {
    "normal": _normal,
    "uniform": _uniform,
    "integers": _integers,
    "permutation": _permutation,
}


def matrix(generator: np.random.Generator, shape: Shape, dtype: Any, distribution: str) -> NDArray[Any]:
    """A random array.

    Args:
        shape: positive sizes.
        dtype: what the drawn values are rounded to; an unsigned type needs values that it can hold.
        distribution: ``normal`` (mean 0, deviation 1), ``uniform`` (-1 to 1), ``integers`` (-8 to 8, exact in
            every type), ``permutation`` (a 2D matrix with at most one 1 a row and column).

    Raises:
        KernelError: a shape that is no tuple of positive whole numbers, or larger than memory; an unknown
            type or distribution, or values that the type cannot hold.
    """
    sizes, target = _sizes(shape), _dtype(dtype)
    if not isinstance(distribution, str) or distribution not in DISTRIBUTIONS:
        known = ", ".join(DISTRIBUTIONS)
        raise KernelError(f"random matrix of distribution {distribution!r}: there are {known}")
    if distribution == "permutation" and len(sizes) != 2:
        raise KernelError(f"random matrix of distribution 'permutation': shape {shape} is not 2D")
    if target.kind in "iu" and distribution in ("normal", "uniform"):
        raise KernelError(
            f"random matrix of {target}: distribution {distribution!r} rounds to little more than 0; "
            f"use 'integers'"
        )
    try:
        values = DISTRIBUTIONS[distribution](generator, sizes)
        return (np.abs(values) if target.kind == "u" else values).astype(target)
    except (MemoryError, ValueError) as error:  # more elements or dimensions than an array can have
        raise KernelError(f"random matrix of shape {shape}: {error}; draw a smaller one") from error


def _sizes(shape: Any) -> Shape:
    whole = isinstance(shape, tuple | list) and all(
        isinstance(size, int | np.integer) and not isinstance(size, bool) and size > 0 for size in shape
    )
    if not whole:
        raise KernelError(
            f"random matrix of shape {shape!r}: no tuple of positive whole numbers; give one such as "
            f"(64, 128)"
        )
    return tuple(int(size) for size in shape)


def _dtype(dtype: Any) -> np.dtype[Any]:
    try:
        target: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # by what numpy makes of it
        target = np.dtype(object)
    if dtype is None or target.kind not in NUMERIC:
        raise KernelError(
            f"random matrix of dtype {dtype!r}: no type of numbers; give one such as 'float16' or 'int8'"
        )
    return target
