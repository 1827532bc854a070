"""What a matrix product must give: inputs, patterns, oracle, and how far rounding may take a kernel from it.

``A`` is (m, k), ``B`` (k, n), ``C`` (m, n), all float16. As images, a texel of ``A`` is four consecutive k of
a row and a texel of ``B`` four consecutive columns of one k. A texture's rows are a multiple of 64 bytes, so
``A`` is as wide as that needs; the texels behind column k are no part of the matrix and hold noise, which
shows a kernel that reads them.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
_RISK = 1e-12
"""The probability with which a correct element may fall outside of its bound."""
_DEVIATIONS = math.sqrt(2 * math.log(2 / _RISK))


class Shape(Protocol):
    """Options that a matrix product has: C is (m, n), the sum runs over k."""

    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Sides:
    """A shape without other options."""

    m: int
    n: int
    k: int


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


def part(shape: Shape, arrays: Arrays, ks: slice) -> tuple[Sides, Arrays]:
    """The product over some of k, as a problem of its own: its shape and its inputs."""
    a, b = matrices(shape, arrays)
    sides = Sides(shape.m, shape.n, ks.stop - ks.start)
    return sides, images(sides, a[:, ks], b[ks])


def random(shape: Shape, rng: np.random.Generator) -> Arrays:
    """Standard normal matrices."""
    return images(
        shape,
        rng.standard_normal((shape.m, shape.k)).astype(np.float16),
        rng.standard_normal((shape.k, shape.n)).astype(np.float16),
    )


_KEPT = 4
"""Results that are remembered: cases of one shape with the same inputs come one after the other."""


def _remembered(function: Callable[..., Arrays]) -> Callable[..., Arrays]:
    """The function with its last results known, by shape and by what the arrays hold. They are read-only."""
    known: OrderedDict[tuple[Any, ...], Arrays] = OrderedDict()
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(shape: Shape, arrays: Arrays, *more: int, **named: int) -> Arrays:
        given = signature.bind(shape, arrays, *more, **named)
        given.apply_defaults()
        contents = hashlib.blake2b(digest_size=16)
        for name in sorted(arrays):
            contents.update(np.ascontiguousarray(arrays[name]).view(np.uint8).data)
        key = (shape.m, shape.n, shape.k, contents.digest(), *given.args[2:])
        if key not in known:
            known[key] = function(*given.args)
            for array in known[key].values():
                array.setflags(write=False)
            if len(known) > _KEPT:
                known.popitem(last=False)
        known.move_to_end(key)
        return dict(known[key])

    return call


@_remembered
def product(shape: Shape, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64, inputs below the smallest normal float16 taken as 0."""
    a, b = (_flushed(matrix) for matrix in matrices(shape, arrays))
    return {"C": a @ b}


def _flushed(matrix: Half) -> Float:
    wide = matrix.astype(np.float64)
    return np.where(np.abs(wide) < HALF_TINY, 0.0, wide)


@_remembered
def half_bound(shape: Shape, arrays: Arrays, chains: int = 1) -> Arrays:
    """The largest absolute error that float16 accumulation makes in an element of ``C``.

    The smaller of two bounds over ``n`` steps. One step computes ``p = fl(a b)`` and ``s' = fl(s + p)``, each
    rounded to nearest and flushed to 0 below ``t = 2**-14`` (``mad.f16`` is unfused). With ``u = 2**-11``,
    ``S`` the exact prefix sum behind the step and ``E`` the bound of all errors, the product's rounding is at
    most ``u |a b|`` and the sum's ``u (|S| + E)``; what is flushed is ``t`` each.

    * *Certain*: all errors have one sign: ``E = (1 + u)**n (sum of u |a b| + u |S| + 2 t)``.
    * *Probable*: errors are of zero mean given those before, as with inputs drawn at random. Their sum is a
      martingale; by Azuma's inequality it leaves ``L`` times the root of the sum of their squared bounds with
      a probability of at most ``2 exp(-L**2 / 2)``, and ``L`` is chosen for :data:`_RISK` an element. As
      ``E`` is in each bound, ``E = (L sqrt(sum of (u |a b|)**2 + (u |S|)**2) + 2 n t) / (1 - L u sqrt(n))``.

    Within a block of steps from ``S0`` to ``S1``, over products whose absolute values sum up to ``M``, a
    prefix sum is within ``(|S0| + |S1| + M) / 2``, being within what precedes it of the one and within what
    follows it of the other. That needs two matrix products a block instead of an (m, n, k) array. ``chains``
    partial sums over ``k mod chains`` are bounded together; adding them up is ``chains - 1`` more steps.
    """
    a, b = (_flushed(matrix) for matrix in matrices(shape, arrays))
    steps = shape.k + chains - 1
    growth = 1 - _DEVIATIONS * HALF_ROUNDOFF * math.sqrt(steps)
    power = 2 if growth * math.sqrt(steps) > _DEVIATIONS else 1  # squares where the probable one is smaller
    total, errors = np.zeros((shape.m, shape.n)), np.zeros((shape.m, shape.n))
    for chain in range(chains):
        total += _add_chain(errors, a[:, chain::chains], b[chain::chains], power)
        if chain:
            errors += (HALF_ROUNDOFF * np.abs(total)) ** power
    flushed = 2 * steps * HALF_TINY
    if power == 1:
        return {"C": (errors + flushed) * (1 + HALF_ROUNDOFF) ** steps}
    return {"C": (_DEVIATIONS * np.sqrt(errors) + flushed) / growth}


def blocks_bound(shape: Shape, arrays: Arrays, block: int) -> Float:
    """:func:`half_bound` of the sum of float16 sums of ``block`` k each, which all begin at 0.

    What adds them up is another matter. The errors of all blocks are one martingale.
    """
    a, b = (_flushed(matrix) for matrix in matrices(shape, arrays))
    growth = 1 - _DEVIATIONS * HALF_ROUNDOFF * math.sqrt(block)
    power = 2 if growth * math.sqrt(shape.k) > _DEVIATIONS else 1
    errors = np.zeros((shape.m, shape.n))
    for start in range(0, shape.k, block):
        _add_chain(errors, a[:, start : start + block], b[start : start + block], power)
    flushed = 2 * shape.k * HALF_TINY
    if power == 1:
        return np.asarray((errors + flushed) * (1 + HALF_ROUNDOFF) ** block)
    return np.asarray((_DEVIATIONS * np.sqrt(errors) + flushed) / growth)


def _add_chain(errors: Float, a: Float, b: Float, power: int) -> Float:
    """The exact sum of a chain of steps; adds what each may round, to a power, to ``errors``."""
    steps = a.shape[1]
    prefix = np.zeros_like(errors)
    block = _BLOCK if steps <= _LONG else _LONG_BLOCK
    for start in range(0, steps, block):
        ours = slice(start, start + block)
        magnitude = np.abs(a[:, ours]) @ np.abs(b[ours])
        following = prefix + a[:, ours] @ b[ours]
        largest = (np.abs(prefix) + np.abs(following) + magnitude) * (HALF_ROUNDOFF / 2)
        errors += min(block, steps - start) * largest**power
        errors += (HALF_ROUNDOFF * magnitude) ** power  # of squares at least their sum
        prefix = following
    return prefix


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


def _integers(shape: Shape) -> Arrays:
    """Random whole numbers, so small that no partial sum in any order is beyond what a half holds."""
    largest = max(1, math.isqrt(_EXACT // shape.k))
    rng = np.random.default_rng(shape.k)
    a = rng.integers(-largest, largest + 1, (shape.m, shape.k))
    return images(shape, a, rng.integers(-largest, largest + 1, (shape.k, shape.n)))


HALF_PATTERNS: Mapping[str, Callable[[Any], Arrays]] = {**PATTERNS, "integers": _integers}
"""Those of kernels that add halves; ``integers`` are random and exact, for k up to 2048."""
