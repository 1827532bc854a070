"""What C is to the published FP16 GEMMs of 4 and 8 rows: rows, maybe apart, an image, or tiles by fiber."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from numpy.typing import NDArray

from pytest_qcom.kernels import flat, matmul
from pytest_qcom.kernels.kernel import Argument
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.published_stores import by_fiber
from pytest_qcom.kernels.stores import POINTER


class Stored(matmul.Shape, Protocol):
    """Options that say what C is."""

    @property
    def image_store(self) -> bool: ...
    @property
    def thread_store(self) -> bool: ...
    @property
    def stride(self) -> int: ...


def arguments(
    options: Stored, tile: Tile, rows: int, groups: tuple[int, int, int], dtype: str = "float16"
) -> tuple[Argument, ...]:
    """A and B as the whole K has them, and C of so many ``rows``; its image, of ``dtype``, comes first."""
    width = options.stride or options.n
    a, b, c = matmul.arguments(options, POINTER)
    if options.image_store:
        return (replace(c, shape=(rows, width // 4, 4), dtype=dtype, image=True, pointer=0), a, b)
    if options.thread_store:
        fibers = groups[0] * groups[1] * tile.threads
        return (a, b, replace(c, shape=(fibers, tile.rows, 4 * tile.cols)))
    return (a, b, replace(c, shape=(rows, width)))


def laid_out(options: Stored, tile: Tile, c: NDArray[Any]) -> NDArray[Any]:
    """A row-major C as the store leaves it, NaN between rows that lie apart."""
    if options.thread_store:
        return by_fiber(c, tile)
    c = flat.apart(c, options.stride)
    return c.reshape(len(c), -1, 4) if options.image_store else c
