"""Strassen's and Winograd's forms of a product by seven: the sums, and how far rounding may take them.

A product of matrices of 2 x 2 blocks is seven products of sums of blocks. Block (i, j) of C is a sum of the
seven; applied to each of the seven again, a level more. A form is declared by its sums, one after the other
as a program adds them; coefficients, which are 0, 1 and -1, and the sums of several levels follow.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul, single

Float = NDArray[np.float64]
Ints = NDArray[np.int64]
Place = tuple[int, int]
"""(row, column) of a block."""

PRODUCTS = 7
FORMS = ("strassen", "winograd")
LEVELS = 5
"""As many as anything here has."""
_BLOCK, _LONG_BLOCK = 8, 32  # steps over which prefix sums are bounded together, in short and long chains
_LONG = 128  # steps
_CACHED = 2**14  # elements of products that are bounded together, so that they stay in a processor's cache
_ALONE = 2**18  # multiplications up to which BLAS uses one thread: several wait for each other by spinning
_SLACK, _LEAST = 2.0**-20, 2.0**-126  # a sum of float32 lacks less than this share, and this, a step

# Blocks 11, 12, 21, 22 are a to d, the seven products a to g. What is left of the colon are sums that several
# others need, right of it are the operands of the seven products, or the blocks of C.
_SUMS = {
    "strassen": {
        "A": ": a+d c+d a d a+b c-a b-d",
        "B": ": a+d a b-d c-a d a+b c+d",
        "C": ": a+d-e+g c+e b+d a-b+c+f",
    },
    "winograd": {
        "A": "e=c+d f=e-a g=a-c h=b-f : a b h d e f g",
        "B": "e=b-a f=d-e g=d-b h=f-c : a c d h e f g",
        "C": "h=a+f i=h+g j=h+e : a+b j+c i-d i+e",
    },
}
_TERM = re.compile(r"([+-]?)([a-z])")


def check_form(form: str, levels: int, most: int = LEVELS) -> None:
    """What every user of a form needs of it.

    Raises:
        KernelError: another form, or other levels than 1 to ``most``.
    """
    if form not in FORMS:
        raise KernelError(f"a product in form {form!r}; give one of {', '.join(FORMS)}")
    if not 1 <= levels <= most:
        raise KernelError(f"{levels} levels at once; give 1 to {most}, and more one behind the other")


def one_level(form: str, which: str, values: Sequence[Any]) -> list[Any]:
    """The sums of one level, of anything that can be added and subtracted.

    Args:
        which: ``A`` or ``B``: the seven operands of four blocks; ``C``: the four blocks of seven products.
    """
    shared, _, results = _SUMS[form][which].partition(":")
    known = {chr(ord("a") + number): value for number, value in enumerate(values)}
    for word in shared.split():
        name, _, text = word.partition("=")
        known[name] = _added(text, known)
    return [_added(text, known) for text in results.split()]


def _added(text: str, known: Mapping[str, Any]) -> Any:
    total = None
    for sign, name in _TERM.findall(text):
        value = known[name]
        total = value if total is None else total - value if sign == "-" else total + value
    return total


def operand_sums(form: str, side: str, levels: int, blocks: Mapping[Place, Any]) -> list[Any]:
    """The operands of all 7**levels products from the 2**levels x 2**levels blocks of A or B.

    Sums of the outer level are made once and serve all products of the inner ones.
    """
    if not levels:
        return [blocks[0, 0]]
    half = 2 ** (levels - 1)
    inner: list[dict[Place, Any]] = [{} for _ in range(PRODUCTS)]
    for i in range(half):
        for j in range(half):
            quarters = [blocks[i, j], blocks[i, j + half], blocks[i + half, j], blocks[i + half, j + half]]
            for number, total in enumerate(one_level(form, side, quarters)):
                inner[number][i, j] = total
    return [total for part in inner for total in operand_sums(form, side, levels - 1, part)]


def operand_sum(form: str, side: str, levels: int, product: int, block: Callable[[Place], Any]) -> Any:
    """The operand of one product, of the blocks that it needs."""
    if not levels:
        return block((0, 0))
    number, rest = divmod(product, PRODUCTS ** (levels - 1))
    row, half = operand(form, side, 1)[number], 2 ** (levels - 1)
    quarters = sorted(((int(i), int(j)) for i, j in np.argwhere(row)), key=lambda at: bool(row[at] < 0))

    def inner(place: Place) -> Any:
        first, *others = (block((place[0] + half * i, place[1] + half * j)) for i, j in quarters)
        for quarter, value in zip(quarters[1:], others, strict=True):
            first = first + value if row[quarter] > 0 else first - value
        return first

    return operand_sum(form, side, levels - 1, rest, inner)


def result_sums(form: str, levels: int, products: Sequence[Any]) -> dict[Place, Any]:
    """The blocks of C from all 7**levels products; sums of the inner levels serve all blocks of the outer."""
    if not levels:
        return {(0, 0): products[0]}
    half, count = 2 ** (levels - 1), PRODUCTS ** (levels - 1)
    inner = [
        result_sums(form, levels - 1, products[number * count : (number + 1) * count])
        for number in range(PRODUCTS)
    ]
    found: dict[Place, Any] = {}
    for i, j in inner[0]:
        quarters = one_level(form, "C", [part[i, j] for part in inner])
        places = ((i, j), (i, j + half), (i + half, j), (i + half, j + half))
        found.update(zip(places, quarters, strict=True))
    return found


@functools.cache
def operand(form: str, side: str, levels: int) -> Ints:
    """Coefficients of A's or B's blocks in each product: (7**levels, 2**levels, 2**levels).

    Raises:
        KernelError: as :func:`check_form`.
    """
    check_form(form, levels)
    count = 2**levels
    units = np.eye(count * count, dtype=np.int64)
    blocks = {(i, j): units[i * count + j] for i in range(count) for j in range(count)}
    return np.array(operand_sums(form, side, levels, blocks)).reshape(-1, count, count)


@functools.cache
def result(form: str, levels: int) -> Ints:
    """Coefficients of the products in each block of C: (2**levels, 2**levels, 7**levels).

    Raises:
        KernelError: as :func:`check_form`.
    """
    check_form(form, levels)
    found = result_sums(form, levels, list(np.eye(PRODUCTS**levels, dtype=np.int64)))
    count = 2**levels
    return np.array([[found[i, j] for j in range(count)] for i in range(count)])


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


def operands(
    source: Rounded,
    form: str,
    side: str,
    levels: int,
    arithmetic: Arithmetic,
    product: int = -1,
) -> Rounded:
    """The operands of all products from (batch, rows, cols) matrices: (batch * 7**levels, rows', cols').

    Derivation. An operand is a sum of blocks with their signs, of as many as the product of the levels'
    counts. A compiler may add them up in another order than the levels have, so nothing is taken for granted
    of it: the error is that of the blocks and what :func:`_summed` adds for that many terms in any order.

    Args:
        product: the only one whose operand is made, (batch, rows', cols'); -1: all are.
    """
    parts: tuple[Float, ...] = (source.value, np.abs(source.value), source.error)
    terms = np.ones(1, np.int64)
    for level in range(levels):
        table = operand(form, side, 1).reshape(PRODUCTS, 4)
        if product >= 0:
            digit = product // PRODUCTS ** (levels - 1 - level) % PRODUCTS
            table = table[digit : digit + 1]
        tables = (table, abs(table), abs(table))
        parts = tuple(_transformed(part, table) for part, table in zip(parts, tables, strict=True))
        terms = np.kron(terms, abs(table).sum(1))
    value, size, error = parts
    terms = np.tile(terms, len(value) // len(terms))[:, None, None]
    return _summed(value, size, error, terms, arithmetic)


def each_operand(
    source: Rounded, form: str, side: str, levels: int, arithmetic: Arithmetic
) -> Iterator[Rounded]:
    """What :func:`operands` gives, product by product; sums of the outer levels serve all that need them."""
    table = operand(form, side, 1).reshape(PRODUCTS, 4)

    def descend(parts: tuple[Float, ...], terms: int, left: int) -> Iterator[Rounded]:
        if not left:
            value, size, error = parts
            yield _summed(value, size, error, np.array(terms), arithmetic)
            return
        for row in table[:, None]:
            rows = (row, abs(row), abs(row))
            inner = tuple(_transformed(part, only) for part, only in zip(parts, rows, strict=True))
            yield from descend(inner, terms * int(abs(row).sum()), left - 1)

    yield from descend((source.value, np.abs(source.value), source.error), 1, levels)


def _transformed(matrices: Float, table: Ints) -> Float:
    """Sums of the quarters of (batch, rows, cols), a row of the table each."""
    batch, rows, cols = matrices.shape
    found = np.empty((batch, len(table), rows // 2, cols // 2))
    blocks = split(matrices, 1)
    quarters = [blocks[:, i, j] for i in (0, 1) for j in (0, 1)]
    for number, signs in enumerate(table):
        _add_up(found[:, number], quarters, signs)
    return found.reshape(batch * len(table), rows // 2, cols // 2)


def _add_up(total: Float, terms: Sequence[Float], signs: Ints) -> None:
    """Puts into ``total`` the sum of terms with signs that are 1, -1 or 0."""
    first, *others = (int(number) for number in np.flatnonzero(signs))
    np.multiply(terms[first], signs[first], out=total)
    for number in others:
        (np.add if signs[number] > 0 else np.subtract)(total, terms[number], out=total)


def results(products: Rounded, form: str, levels: int, arithmetic: Arithmetic) -> Rounded:
    """The C of (batch * 7**levels, rows, cols) products: (batch, rows * 2**levels, cols * 2**levels).

    Derivation. As for :func:`operands`: a block of C is a sum of products with their signs, in any order.
    """
    rows, cols = products.value.shape[1:]
    parts: tuple[Float, ...] = (products.value, np.abs(products.value), products.error)
    table = result(form, 1).reshape(4, PRODUCTS)
    counts, terms = abs(table).sum(1).reshape(2, 2), np.ones((1, 1), np.int64)
    for _ in range(levels):
        tables = (table, abs(table), abs(table))
        parts = tuple(_combined(part, table) for part, table in zip(parts, tables, strict=True))
        terms = np.kron(counts, terms)
    blocks = (-1, len(terms), rows, len(terms), cols)
    value, size, error = (part.reshape(blocks) for part in parts)
    found = _summed(value, size, error, terms[:, None, :, None], arithmetic)
    return Rounded(parts[0], found.error.reshape(parts[0].shape))


def _combined(products: Float, table: Ints) -> Float:
    """The quarters of C, a row of the table each, of (batch * 7, rows, cols)."""
    count, rows, cols = products.shape
    each = products.reshape(count // PRODUCTS, PRODUCTS, rows, cols)
    found = np.empty((count // PRODUCTS, 2, rows, 2, cols))
    for (i, j), signs in zip(np.ndindex(2, 2), table, strict=True):
        _add_up(found[:, i, :, j], [each[:, number] for number in range(PRODUCTS)], signs)
    return found.reshape(count // PRODUCTS, 2 * rows, 2 * cols)


def _summed(value: Float, size: Float, error: Float, terms: Ints, arithmetic: Arithmetic) -> Rounded:
    """A sum of ``terms`` numbers with errors, whose magnitudes add up to ``size``.

    Derivation. A sum of n terms in any order has n - 1 additions. Each rounds to nearest by at most u of a
    result that is at most ``(size + error) (1 + u)**(n - 1)``, and flushes at most ``t``; so all add at most
    ``((1 + u)**(n - 1) - 1) (size + error) + (n - 1) t (1 + u)**n``. Storing it in another type rounds once
    more.
    """
    growth = (1 + arithmetic.roundoff) ** (terms - 1.0)
    stored = 1 + arithmetic.stored_roundoff
    share = growth * stored - 1
    least = (terms - 1) * arithmetic.tiny * growth * (1 + arithmetic.roundoff) * stored
    return Rounded(value, error * (1 + share) + size * share + (least + arithmetic.stored_tiny))


def multiplied(left: Rounded, right: Rounded, arithmetic: Arithmetic) -> Rounded:
    """The products of (batch, m, k) and (batch, k, n), summed over k one after the other.

    Derivation. The computed operands are within their errors ``E`` and ``F`` of the exact ones, so an exact
    product of them is within ``M = E |B| + |A|' F`` of that of the exact ones, where ' is the largest
    magnitude. To this comes the error of the chain as in
    :func:`~pytest_qcom.kernels.matmul.half_bound`: within a block of steps, a prefix sum is at most that of
    the exact products at its start, ``M``, and what the block's magnitudes add up to. Sums of magnitudes are
    made in float32, and so many of its roundings larger that they are none too small.
    """
    (batch, m, count), n = left.value.shape, right.value.shape[2]
    value, error = np.empty((batch, m, n)), np.empty((batch, m, n))
    block = min(count, _BLOCK if count <= _LONG else _LONG_BLOCK)
    rows = max(1, min(m, _CACHED // n, _ALONE // (block * n)))
    together = max(1, _CACHED // (rows * n))
    for start in range(0, batch, together):
        ours = slice(start, start + together)
        b = _Factor.of(right.value[ours], right.error[ours])
        for top in range(0, m, rows):
            lines = slice(top, top + rows)
            a = _Factor.of(left.value[ours, lines], left.error[ours, lines])
            value[ours, lines], error[ours, lines] = _multiplied(a, b, block, arithmetic)
    return Rounded(value, error)


@dataclass(frozen=True, slots=True)
class _Factor:
    """Matrices to multiply: exact values; in float32 their magnitudes, these with errors, and errors."""

    value: Float
    size: NDArray[np.float32]
    largest: NDArray[np.float32]
    error: NDArray[np.float32]

    @staticmethod
    def of(value: Float, error: Float) -> _Factor:
        """Factors of some matrices."""
        size, errors = np.abs(value.astype(np.float32)), error.astype(np.float32)
        return _Factor(value, size, size + errors, errors)


def _multiplied(a: _Factor, b: _Factor, block: int, arithmetic: Arithmetic) -> tuple[Float, Float]:
    """:func:`multiplied` of as many as are done at once."""
    count, u = a.value.shape[2], arithmetic.roundoff
    value = np.zeros((*a.value.shape[:2], b.value.shape[2]))
    starts, size, moved = np.zeros_like(value), *np.zeros((2, *value.shape), np.float32)
    exact = not (a.error.any() or b.error.any())
    for start in range(0, count, block):
        ours = slice(start, start + block)
        starts += np.abs(value)
        value += a.value[:, :, ours] @ b.value[:, ours]
        size += a.largest[:, :, ours] @ b.largest[:, ours]
        if not exact:
            moved += a.error[:, :, ours] @ b.size[:, ours]
            moved += a.largest[:, :, ours] @ b.error[:, ours]
    larger = 1 + count * _SLACK
    sizes = size * larger + count * _LEAST
    moves = np.zeros_like(value) if exact else moved * larger + 2 * count * _LEAST
    chain = u * (sizes + block * (starts + sizes) + count * moves) + 2 * count * arithmetic.tiny
    return value, moves + chain * (1 + u) ** count


def flushed(matrix: NDArray[Any]) -> Rounded:
    """Half matrices as they are, each element that the A630 may take for 0 with that as its error."""
    wide = matrix.astype(np.float64)
    error = np.abs(wide)
    return Rounded(wide, np.multiply(error, error < matmul.HALF_TINY, out=error))


def exact(matrix: NDArray[Any]) -> Rounded:
    """Matrices whose elements the A630 takes for what they are."""
    return Rounded(matrix.astype(np.float64), np.zeros(matrix.shape))


def stored_as_half(products: Rounded) -> Rounded:
    """Products that a kernel rounds to half, at worst towards zero, when it stores them."""
    error = SINGLE_TO_HALF.stored_roundoff * products.largest + SINGLE_TO_HALF.stored_tiny
    return Rounded(products.value, products.error + error)
