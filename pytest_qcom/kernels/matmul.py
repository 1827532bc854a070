"""What a matrix product must give: inputs, patterns, oracle, and how far rounding may take a kernel from it.

``A`` is (m, k), ``B`` (k, n), ``C`` (m, n), all float16. As images, a texel of ``A`` is four consecutive k of
a row and a texel of ``B`` four consecutive columns of one k. A texture's rows are a multiple of 64 bytes, so
``A`` is as wide as that needs; the texels behind column k are no part of the matrix and hold noise, which
shows a kernel that reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.chip import A630
from pytest_qcom.kernels.kernel import Argument, Arrays

Float = NDArray[np.float64]
Half = NDArray[np.float16]

HALF_ROUNDOFF = 2.0**-11
"""Largest relative error of one rounding to float16, to nearest."""
HALF_TINY = 2.0**-14
"""Smallest normal float16; anything below becomes 0 on the A630."""

_ROW_TEXELS = A630.images.pitch_align.value // 8  # of four halves
_EXACT = 2048  # integers up to here are exact in float16
_BLOCK, _LONG_BLOCK = 8, 32  # steps over which prefix sums are bounded together, in short and long chains
_LONG = 256  # steps


class Shape(Protocol):
    """Options that a matrix product has: C is (m, n), the sum runs over k."""

    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...


def a_texels(k: int) -> int:
    """Width of the image of ``A`` in texels."""
    return -(-k // 4 // _ROW_TEXELS) * _ROW_TEXELS


def arguments(shape: Shape, pointer: int) -> tuple[Argument, ...]:
    """Textures ``A`` and ``B`` and the buffer ``C``, its pointer at scalar constant ``pointer``."""
    return (
        Argument("A", (shape.m, a_texels(shape.k), 4), "float16", image=True, written=False),
        Argument("B", (shape.k, shape.n // 4, 4), "float16", image=True, written=False),
        Argument("C", (shape.m, shape.n), "float16", image=False, written=True, pointer=pointer),
    )


def images(shape: Shape, a: NDArray[Any], b: NDArray[Any]) -> Arrays:
    """The two matrices as the images that a kernel samples."""
    padded = np.random.default_rng(0).standard_normal((shape.m, 4 * a_texels(shape.k))).astype(np.float16)
    padded[:, : shape.k] = a
    return {
        "A": padded.reshape(shape.m, -1, 4),
        "B": np.ascontiguousarray(b, np.float16).reshape(shape.k, shape.n // 4, 4),
    }


def matrices(shape: Shape, arrays: Arrays) -> tuple[Half, Half]:
    """The matrices in a kernel's input images."""
    return (
        arrays["A"].reshape(shape.m, -1)[:, : shape.k],
        arrays["B"].reshape(shape.k, shape.n),
    )


def random(shape: Shape, rng: np.random.Generator) -> Arrays:
    """Standard normal matrices."""
    return images(
        shape,
        rng.standard_normal((shape.m, shape.k)).astype(np.float16),
        rng.standard_normal((shape.k, shape.n)).astype(np.float16),
    )


def product(shape: Shape, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64, inputs below the smallest normal float16 taken as 0."""
    a, b = (_flushed(matrix) for matrix in matrices(shape, arrays))
    return {"C": a @ b}


def _flushed(matrix: Half) -> Float:
    wide = matrix.astype(np.float64)
    return np.where(np.abs(wide) < HALF_TINY, 0.0, wide)


def half_bound(shape: Shape, arrays: Arrays, chains: int = 1) -> Mapping[str, Float]:
    """The largest absolute error that float16 accumulation can make in each element of ``C``.

    Derivation. One step computes ``p = fl(a b)`` and ``s' = fl(s + p)``, each rounded to nearest and flushed
    to 0 below ``t = 2**-14`` (``mad.f16`` is unfused). So ``|p - a b| <= u |a b| + t`` with ``u = 2**-11``,
    and with ``e`` the error so far and ``S`` the exact prefix sum behind the step
    ``e' <= (1 + u) (e + u |a b| + t) + u |S| + t``. Over a chain of ``n`` steps that is at most
    ``(1 + u)**n`` times the sum over its steps of ``u |a b| + u |S| + 2 t``. ``|S|`` within a block of
    steps is at most ``|S|`` at its start plus the block's sum of ``|a b|``, which needs two matrix products
    instead of an (m, n, k) array. ``chains`` partial sums over ``k mod chains`` are bounded one by one;
    adding them up costs ``u`` times the partial results and ``t`` each, once more.
    """
    a, b = (_flushed(matrix) for matrix in matrices(shape, arrays))
    error, total = np.zeros((shape.m, shape.n)), np.zeros((shape.m, shape.n))
    for chain in range(chains):
        part, bound = _chain_bound(a[:, chain::chains], b[chain::chains])
        error += bound
        total += part
        if chain:
            error += HALF_ROUNDOFF * (np.abs(total) + error) + HALF_TINY
    return {"C": error}


def _chain_bound(a: Float, b: Float) -> tuple[Float, Float]:
    """(exact sum, error bound) of one chain of steps."""
    steps = a.shape[1]
    prefix, error = np.zeros((a.shape[0], b.shape[1])), np.zeros((a.shape[0], b.shape[1]))
    block = _BLOCK if steps <= _LONG else _LONG_BLOCK
    for start in range(0, steps, block):
        ours = slice(start, start + block)
        count = min(block, steps - start)
        magnitude = np.abs(a[:, ours]) @ np.abs(b[ours])
        error += HALF_ROUNDOFF * (magnitude + count * (np.abs(prefix) + magnitude)) + 2 * count * HALF_TINY
        prefix += a[:, ours] @ b[ours]
    return prefix, error * (1 + HALF_ROUNDOFF) ** steps


def _ones(shape: Shape) -> Arrays:
    return images(shape, np.ones((shape.m, shape.k)), np.ones((shape.k, shape.n)))


def _identity_a(shape: Shape) -> Arrays:
    """C[i] is row i of B, which is different in every element of a 2048 neighbourhood."""
    a = np.zeros((shape.m, shape.k))
    rows = np.arange(shape.m)
    a[rows, rows % shape.k] = 1
    k, n = np.indices((shape.k, shape.n))
    return images(shape, a, (37 * k + n) % _EXACT)


def _identity_b(shape: Shape) -> Arrays:
    """C[:, j] is column j of A."""
    b = np.zeros((shape.k, shape.n))
    columns = np.arange(shape.n)
    b[columns % shape.k, columns] = 1
    m, k = np.indices((shape.m, shape.k))
    return images(shape, (m + 41 * k) % _EXACT, b)


def _rows(shape: Shape) -> Arrays:
    """Every element of C is the number of its row."""
    a, b = np.zeros((shape.m, shape.k)), np.zeros((shape.k, shape.n))
    a[:, 0] = np.arange(shape.m) % _EXACT
    b[0] = 1
    return images(shape, a, b)


def _columns(shape: Shape) -> Arrays:
    """Every element of C is the number of its column."""
    a, b = np.zeros((shape.m, shape.k)), np.zeros((shape.k, shape.n))
    a[:, 0] = 1
    b[0] = np.arange(shape.n) % _EXACT
    return images(shape, a, b)


def _last_k(shape: Shape) -> Arrays:
    """Only the last k counts: a remainder that is dropped or done twice shows."""
    a, b = np.zeros((shape.m, shape.k)), np.zeros((shape.k, shape.n))
    a[:, -1] = np.arange(shape.m) % 61 + 1
    b[-1] = np.arange(shape.n) % 31 + 1
    return images(shape, a, b)


PATTERNS: Mapping[str, Callable[[Any], Arrays]] = {
    "ones": _ones,
    "identity-a": _identity_a,
    "identity-b": _identity_b,
    "rows": _rows,
    "columns": _columns,
    "last-k": _last_k,
}
"""Inputs under which every product and partial sum is a small integer: results must be exact.

``ones`` needs k up to 2048.
"""
