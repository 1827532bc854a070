"""Sums of halves over a block of k, added up as floats: how far that may be from the product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.kernels import matmul, single


@dataclass(frozen=True, slots=True)
class _Shape:
    m: int
    n: int
    k: int


def bound(a: NDArray[Any], b: NDArray[Any], block: int) -> NDArray[np.float64]:
    """The largest error of ``a @ b`` with sums of ``block`` k in float16 and their sum in float32.

    Derivation. The blocks are off by their :func:`~pytest_qcom.kernels.matmul.blocks_bound`; as floats they
    are exact. Adding one rounds a total, off by as much at most, by ``2**-24`` of it.
    """
    shape = _Shape(a.shape[0], b.shape[1], a.shape[1])
    error = matmul.blocks_bound(shape, matmul.images(shape, a, b), block)
    total, largest = np.zeros_like(error), np.zeros_like(error)
    for start in range(0, shape.k, block):
        part = slice(start, start + block)
        total += a[:, part].astype(np.float64) @ b[part].astype(np.float64)
        largest += np.abs(total)
    blocks = -(-shape.k // block)
    return np.asarray(error + single.ROUNDOFF * (largest + blocks * error) * (1 + single.ROUNDOFF) ** blocks)
