"""Strassen's and Winograd's forms of a product by seven: coefficients, and how far rounding may take them.

A product of matrices of 2 x 2 blocks is seven products of sums of blocks. Block (i, j) of C is a sum of the
seven; applied to each of the seven again, a level more. Coefficients are 0, 1 and -1.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul, single

Float = NDArray[np.float64]
Ints = NDArray[np.int64]

PRODUCTS = 7
FORMS = ("strassen", "winograd")
_BLOCK, _LONG_BLOCK = 8, 32  # steps over which prefix sums are bounded together, in short and long chains
_LONG = 128  # steps

# Rows are products, columns the blocks 11, 12, 21, 22 that are summed; for C, rows are blocks.
_STRASSEN = {
    "A": "1001 0011 1000 0001 1100 -0+0 0+0-",
    "B": "1001 1000 0+0- -0+0 0001 1100 0011",
    "C": "+00+-0+ 00+0+00 0+0+000 +-+00+0",
}
_WINOGRAD = {
    "A": "1000 0100 ++-- 0001 00++ -0++ +0-0",
    "B": "1000 0010 0001 +--+ -+00 +-0+ 0-0+",
    "C": "++00000 +0+0++0 +00-0++ +000+++",
}
_DIGIT = {"0": 0, "1": 1, "+": 1, "-": -1}


def _table(text: str) -> Ints:
    return np.array([[_DIGIT[letter] for letter in word] for word in text.split()], np.int64)


def _check(form: str, levels: int) -> None:
    if form not in FORMS:
        raise KernelError(f"a product in form {form!r}; give one of {', '.join(FORMS)}")
    if not 1 <= levels <= 2:
        raise KernelError(f"{levels} levels in one launch; give 1 or 2, and more by several launches")


@functools.cache
def operand(form: str, side: str, levels: int) -> Ints:
    """Coefficients of A's or B's blocks in each product: (7**levels, 2**levels, 2**levels).

    Raises:
        KernelError: another form, or more levels than one launch has.
    """
    _check(form, levels)
    one = _table((_STRASSEN if form == FORMS[0] else _WINOGRAD)[side]).reshape(PRODUCTS, 2, 2)
    return one if levels == 1 else np.array([np.kron(outer, inner) for outer in one for inner in one])


@functools.cache
def result(form: str, levels: int) -> Ints:
    """Coefficients of the products in each block of C: (2**levels, 2**levels, 7**levels).

    Raises:
        KernelError: as :func:`operand`.
    """
    _check(form, levels)
    one = _table((_STRASSEN if form == FORMS[0] else _WINOGRAD)["C"]).reshape(2, 2, PRODUCTS)
    if levels == 1:
        return one
    both: Ints = np.einsum("ijp,klq->ikjlpq", one, one)
    return both.reshape(4, 4, PRODUCTS**2)


@dataclass(frozen=True, slots=True)
class Rounded:
    """Exact values, and how far what was computed may be from each."""

    value: Float
    error: Float

    @property
    def largest(self) -> Float:
        """The largest magnitude of what was computed."""
        return np.abs(self.value) + self.error


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Roundoff and smallest normal number of sums, and of what their result is stored as."""

    roundoff: float
    tiny: float
    stored_roundoff: float = 0.0
    stored_tiny: float = 0.0


HALF = Arithmetic(matmul.HALF_ROUNDOFF, matmul.HALF_TINY)
SINGLE = Arithmetic(single.ROUNDOFF, single.TINY)
SINGLE_TO_HALF = Arithmetic(single.ROUNDOFF, single.TINY, 2 * matmul.HALF_ROUNDOFF, matmul.HALF_TINY)
"""Stored as half by a conversion that may round towards zero."""


def split(matrices: Float, levels: int) -> Float:
    """(batch, rows, cols) as (batch, blocks down, blocks across, rows, cols)."""
    batch, rows, cols = matrices.shape
    side = 2**levels
    return matrices.reshape(batch, side, rows // side, side, cols // side).transpose(0, 1, 3, 2, 4)


def joined(blocks: Float) -> Float:
    """The inverse of :func:`split`."""
    batch, down, across, rows, cols = blocks.shape
    return blocks.transpose(0, 1, 3, 2, 4).reshape(batch, down * rows, across * cols)


def transformed(source: Rounded, coefficients: Ints, levels: int, arithmetic: Arithmetic) -> Rounded:
    """The operands of all products from (batch, rows, cols) matrices: (batch * 7**levels, rows', cols')."""
    blocks = [split(part, levels) for part in (source.value, source.error, source.largest)]
    value = np.einsum("pij,bijrc->bprc", coefficients, blocks[0], optimize=True)
    error, size = (
        np.einsum("pij,bijrc->bprc", abs(coefficients), part, optimize=True) for part in blocks[1:]
    )
    terms = abs(coefficients).sum((1, 2))[:, None, None]
    error = error + _sum_error(terms, size, arithmetic)
    shape = (-1, *value.shape[2:])
    return Rounded(value.reshape(shape), error.reshape(shape))


def combined(products: Rounded, coefficients: Ints, levels: int, arithmetic: Arithmetic) -> Rounded:
    """The blocks of C from (batch * 7**levels, rows, cols) products: (batch, rows * 2**levels, ...)."""
    shape = (-1, PRODUCTS**levels, *products.value.shape[1:])
    value, error, size = (
        np.einsum("ijp,bprc->bijrc", table, part.reshape(shape), optimize=True)
        for table, part in (
            (coefficients, products.value),
            (abs(coefficients), products.error),
            (abs(coefficients), products.largest),
        )
    )
    terms = abs(coefficients).sum(2)[:, :, None, None]
    return Rounded(joined(value), joined(error + _sum_error(terms, size, arithmetic)))


def _sum_error(terms: Ints, size: Float, arithmetic: Arithmetic) -> Float:
    """What rounding adds to a sum of ``terms`` numbers whose magnitudes add up to ``size``.

    Derivation. A sum of n terms in any order has n - 1 additions. Each rounds to nearest by at most u of a
    result that is at most ``size (1 + u)**(n - 1)``, and flushes at most ``t``; so all add at most
    ``((1 + u)**(n - 1) - 1) size + (n - 1) t (1 + u)**n``. Storing it in another type rounds once more.
    """
    growth = (1 + arithmetic.roundoff) ** (terms - 1.0)
    error = (growth - 1) * size + (terms - 1) * arithmetic.tiny * growth * (1 + arithmetic.roundoff)
    return error + arithmetic.stored_roundoff * (size + error) + arithmetic.stored_tiny


def multiplied(left: Rounded, right: Rounded, arithmetic: Arithmetic) -> Rounded:
    """The products of (batch, m, k) and (batch, k, n), summed over k one after the other.

    Derivation. The computed operands are within their errors of the exact ones, so an exact product of them
    is within ``|A|' |B|' - |A| |B|`` of that of the exact ones, where ' is the largest magnitude. To this
    comes the error of the chain as in :func:`~pytest_qcom.kernels.matmul.half_bound`, of prefix sums that
    are as far from the exact ones again.
    """
    count = left.value.shape[2]
    value = np.zeros((*left.value.shape[:2], right.value.shape[2]))
    moved, error = np.zeros_like(value), np.zeros_like(value)
    u, t = arithmetic.roundoff, arithmetic.tiny
    block = _BLOCK if count <= _LONG else _LONG_BLOCK
    for start in range(0, count, block):
        ours = slice(start, start + block)
        a, b = left.value[:, :, ours], right.value[:, ours]
        steps = a.shape[2]
        size = left.largest[:, :, ours] @ right.largest[:, ours]
        error += u * (size + steps * (np.abs(value) + moved + size)) + 2 * steps * t
        value += a @ b
        moved += size - np.abs(a) @ np.abs(b)
    return Rounded(value, moved + error * (1 + u) ** count)


def flushed(matrix: NDArray[Any]) -> Rounded:
    """Half matrices as they are, each element that the A630 may take for 0 with that as its error."""
    wide = matrix.astype(np.float64)
    return Rounded(wide, np.where(np.abs(wide) < matmul.HALF_TINY, np.abs(wide), 0.0))


def stored_as_half(products: Rounded) -> Rounded:
    """Products that a kernel rounds to half, at worst towards zero, when it stores them."""
    error = SINGLE_TO_HALF.stored_roundoff * products.largest + SINGLE_TO_HALF.stored_tiny
    return Rounded(products.value, products.error + error)
