"""Random matrices that a test can draw again: seeded from its node id."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError

Shape = tuple[int, ...]


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
        KernelError: an unknown distribution, or values that the type cannot hold.
    """
    if distribution not in DISTRIBUTIONS:
        known = ", ".join(DISTRIBUTIONS)
        raise KernelError(f"random matrix of distribution {distribution!r}: there are {known}")
    target = np.dtype(dtype)
    if distribution == "permutation" and len(shape) != 2:
        raise KernelError(f"random matrix of distribution 'permutation': shape {shape} is not 2D")
    values = DISTRIBUTIONS[distribution](generator, shape)
    if target.kind == "u":
        values = np.abs(values)
    if target.kind in "iu" and distribution in ("normal", "uniform"):
        raise KernelError(
            f"random matrix of {target}: distribution {distribution!r} rounds to little more than 0; "
            f"use 'integers'"
        )
    return values.astype(target)
