"""Vectors of the runtime taken apart and put together."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor.irgen import I32


def picked(b: Any, vector: Any, picks: list[int]) -> Any:
    """The elements of a vector with those numbers."""
    mask = ir.Constant(ir.VectorType(I32, len(picks)), picks)
    return b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def joined(b: Any, vectors: list[Any]) -> Any:
    """Vectors one behind the other, as one; their number is a power of two."""
    while len(vectors) > 1:
        picks = ir.Constant(
            ir.VectorType(I32, 2 * vectors[0].type.count), list(range(2 * vectors[0].type.count))
        )
        vectors = [b.shuffle_vector(*vectors[n : n + 2], picks) for n in range(0, len(vectors), 2)]
    return vectors[0]


def planes(b: Any, packed: Any, count: int) -> list[Any]:
    """A chunk's elements by component. Short ones are parted in steps: pairs of them move as one."""
    size, element = packed.type.count, packed.type.element
    if count == 4 and element.width < 32:
        pairs = b.bitcast(packed, ir.VectorType(ir.IntType(2 * element.width), size // 2))
        halves = [b.bitcast(p, ir.VectorType(element, size // 2)) for p in planes(b, pairs, 2)]
        return [plane for half in halves for plane in planes(b, half, 2)]
    return [picked(b, packed, list(range(component, size, count))) for component in range(count)]
