"""Matrices that a kernel takes row by row, in buffers: between them and the images of the shared oracles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.kernel import Arrays


def matrices(shape: matmul.Shape, arrays: Arrays) -> Arrays:
    """The two matrices of images row by row, as buffers hold them."""
    a, b = matmul.matrices(shape, arrays)
    return {"A": np.ascontiguousarray(a), "B": np.ascontiguousarray(b)}


def images(shape: matmul.Shape, arrays: Arrays) -> Arrays:
    """The images, as :mod:`~pytest_qcom.kernels.matmul` wants them, of matrices in arrays of any shape."""
    a, b = (np.asarray(arrays[name]) for name in "AB")
    return matmul.images(shape, a.reshape(shape.m, shape.k), b.reshape(shape.k, shape.n))


def apart(values: NDArray[Any], stride: int) -> NDArray[np.float64]:
    """Rows of C ``stride`` elements apart, NaN between them: what a kernel must leave as it found it."""
    rows, columns = values.shape
    wide = np.full((rows, stride or columns), np.nan)
    wide[:, :columns] = values
    return wide


def patterns(make: Callable[[Any, Arrays], Arrays]) -> Mapping[str, Callable[[Any], Arrays]]:
    """The exact patterns for a kernel that takes its inputs otherwise: ``make`` of options and images."""

    def pattern(name: str) -> Callable[[Any], Arrays]:
        return lambda options: make(options, matmul.PATTERNS[name](options))

    return {name: pattern(name) for name in matmul.PATTERNS}
