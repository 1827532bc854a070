"""Matrix products that are accumulated in float32: inputs, oracle, patterns, how far rounding may take them.

Inputs are half images as in :mod:`~pytest_qcom.kernels.matmul`, float images, or images of normalized bytes,
which are fractions of 127; a kernel samples each as float32. ``C`` is float32, in a buffer or an image of
(m, n / 4) texels, or a half image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.chip import A630
from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.kernel import Argument, Arrays

Float = NDArray[np.float64]

ROUNDOFF = 2.0**-24
"""Largest relative error of one rounding to float32, to nearest."""
TINY = 2.0**-126
"""Smallest normal float32; anything below becomes 0 on the A630."""

LIMIT = 127
"""The byte that is 1; larger values are cut off, and so are those below -1."""

_BLOCK, _LONG_BLOCK = 8, 64  # steps over which prefix sums are bounded together, in short and long chains
_LONG = 256  # steps


class Problem(matmul.Shape, Protocol):
    """A matrix product, and the form of its arrays.

    Options that have them say by ``int8_a`` and ``int8_b`` which inputs are images of bytes.
    """

    @property
    def float_inputs(self) -> bool:
        """A and B are float32 images."""
        ...

    @property
    def interleaved_a(self) -> bool:
        """A texel of A is four rows of one k: the image is (m / 4, k)."""
        ...

    @property
    def image_store(self) -> bool:
        """C is an image, and the first argument."""
        ...

    @property
    def half_output(self) -> bool:
        """The image C is half."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """A problem and nothing else, where options are none: of half images to a float32 buffer, unless told."""

    m: int
    n: int
    k: int
    float_inputs: bool = False
    interleaved_a: bool = False
    image_store: bool = False
    half_output: bool = False
    int8_a: bool = False
    int8_b: bool = False


def _in_bytes(problem: Problem, operand: str) -> bool:
    return bool(getattr(problem, f"int8_{operand.lower()}", False))


def input_type(problem: Problem, operand: str) -> str:
    """Of A or B, as numpy calls it."""
    if _in_bytes(problem, operand):
        return "int8"
    return "float32" if problem.float_inputs else "float16"


def texels(values: NDArray[Any], kind: str) -> NDArray[Any]:
    """Numbers as an image of a type holds them: bytes cut off beyond 1, to nearest."""
    if kind != "int8":
        return values.astype(kind)
    return np.clip(np.rint(values.astype(np.float64) * LIMIT), -LIMIT, LIMIT).astype(np.int8)


def _a_shape(problem: Problem) -> tuple[int, int, int]:
    """Of the image of A; rows are padded to what a texture's pitch needs."""
    align = A630.images.pitch_align.value // (4 * np.dtype(input_type(problem, "A")).itemsize)
    height, width = (problem.m // 4, problem.k) if problem.interleaved_a else (problem.m, problem.k // 4)
    return height, -(-width // align) * align, 4


def arguments(problem: Problem, pointer: int, stride: int = 0) -> tuple[Argument, ...]:
    """A, B and the buffer C; or the image C, A and B.

    ``stride``: elements from one row of C to the next; 0 is n.
    """
    shapes = {"A": _a_shape(problem), "B": (problem.k, problem.n // 4, 4)}
    inputs = tuple(
        Argument(name, shape, input_type(problem, name), image=True, written=False)
        for name, shape in shapes.items()
    )
    if problem.image_store:
        output = "float16" if problem.half_output else "float32"
        return (
            Argument("C", (problem.m, (stride or problem.n) // 4, 4), output, image=True, written=True),
            *inputs,
        )
    shape = (problem.m, stride or problem.n)
    return (*inputs, Argument("C", shape, "float32", image=False, written=True, pointer=pointer))


def images(problem: Problem, a: NDArray[Any], b: NDArray[Any]) -> Arrays:
    """The two matrices as the images that a kernel samples, noise in what pads them."""
    kind, shape = input_type(problem, "A"), _a_shape(problem)
    rows = texels(a, kind).reshape(problem.m, problem.k // 4, 4)
    if problem.interleaved_a:
        rows = texels(a, kind).reshape(problem.m // 4, 4, problem.k).transpose(0, 2, 1)
    image = texels(np.random.default_rng(0).standard_normal(shape), kind)
    image[:, : rows.shape[1]] = rows
    columns = np.ascontiguousarray(texels(b, input_type(problem, "B")))
    return {"A": image, "B": columns.reshape(problem.k, problem.n // 4, 4)}


def matrices(problem: Problem, arrays: Arrays) -> tuple[Float, Float]:
    """The matrices in a kernel's input images."""
    a, b = (arrays[name].astype(np.float64) / (LIMIT if _in_bytes(problem, name) else 1) for name in "AB")
    a = a[:, : problem.k].transpose(0, 2, 1) if problem.interleaved_a else a[:, : problem.k // 4]
    return a.reshape(problem.m, problem.k), b.reshape(problem.k, problem.n)


def random(problem: Problem, rng: np.random.Generator) -> Arrays:
    """Standard normal matrices; of bytes smaller ones, so that few are cut off."""
    size_a, size_b = (SMALL if _in_bytes(problem, name) else 1.0 for name in "AB")
    return images(
        problem,
        size_a * rng.standard_normal((problem.m, problem.k)),
        size_b * rng.standard_normal((problem.k, problem.n)),
    )


SMALL = 0.4
"""Deviation of random fractions."""


def product(problem: Problem, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64; a half below the smallest normal one is a float32 like any other."""
    a, b = matrices(problem, arrays)
    return {"C": shaped(problem, a @ b)}


def shaped(problem: Problem, values: Float) -> Float:
    """A matrix in the shape of ``C``."""
    return values.reshape(problem.m, problem.n // 4, 4) if problem.image_store else values


def bound(problem: Problem, arrays: Arrays, parts: Sequence[slice] = ()) -> Mapping[str, Float]:
    """The largest absolute error that float32 accumulation can make in each element of ``C``.

    Derivation. ``mad.f32`` is unfused: ``p = fl(a b)``, ``s' = fl(s + p)``, to nearest, ``u = 2**-24``. The
    product of two halves has 22 bits at most and is at least ``2**-48``: it is exact, and so no sum of such
    products can be denormal. With other inputs ``|p - a b| <= r |a b| + t``, ``t = 2**-126``, with the ``r``
    of :func:`roundings`, and a sum may lose another ``t``. The error ``e`` so far becomes at most
    ``(1 + u) (e + |p - a b|) + u |S| + t`` with the exact prefix sum ``S``; over ``n`` steps that is at most
    ``(1 + u)**n`` times the sum of its steps. ``|S|`` within a block of steps is at most ``|S|`` at its start
    plus the block's sum of ``|a b|``.
    The k of each of ``parts`` are summed alone; adding up their sums rounds once for each. A half output
    rounds once more, by ``2**-11`` of the result or half the smallest half.
    """
    a, b = matrices(problem, arrays)
    product_roundoff, tiny = roundings(problem)
    error, total = np.zeros((problem.m, problem.n)), np.zeros((problem.m, problem.n))
    for number, part in enumerate(parts or (slice(None),)):
        value, own = chain(a[:, part], b[part], product_roundoff, tiny)
        total += value
        error += own
        if number:
            error += ROUNDOFF * (np.abs(total) + error) + tiny
    return {"C": shaped(problem, error + output_error(problem, total, error))}


def output_error(problem: Problem, total: Float, error: Float) -> Float | float:
    """What storing a sum that is off by ``error`` adds."""
    if not (problem.image_store and problem.half_output):
        return 0.0
    return np.asarray(matmul.HALF_ROUNDOFF * (np.abs(total) + error) + 2.0**-25)


def roundings(problem: Problem) -> tuple[float, float]:
    """(relative, absolute) error of a product of one of A by one of B, the absolute one with its addition's.

    A byte is sampled as ``q / 127`` to nearest [how the texture pipe rounds is not documented]: with the
    rounding of the product ``2 u`` of it and a little, ``3 u`` where both are bytes.
    """
    in_bytes = sum(_in_bytes(problem, name) for name in "AB")
    if not in_bytes and not problem.float_inputs:
        return 0.0, 0.0
    return (1 + 1.01 * in_bytes) * ROUNDOFF, 2 * TINY


def chain(a: Float, b: Float, product_roundoff: float, tiny: float) -> tuple[Float, Float]:
    """(exact sum, error bound) of one chain of steps."""
    steps = a.shape[1]
    prefix, error = np.zeros((a.shape[0], b.shape[1])), np.zeros((a.shape[0], b.shape[1]))
    block = _BLOCK if steps <= _LONG else _LONG_BLOCK
    for start in range(0, steps, block):
        ours = slice(start, start + block)
        count = min(block, steps - start)
        magnitude = np.abs(a[:, ours]) @ np.abs(b[ours])
        error += product_roundoff * magnitude + ROUNDOFF * count * (np.abs(prefix) + magnitude) + count * tiny
        prefix += a[:, ours] @ b[ours]
    return prefix, error * (1 + ROUNDOFF) ** (steps + 1)


def _pattern(name: str) -> Callable[[Any], Arrays]:
    """A pattern of the half products in the form of this problem's arrays."""

    def make(problem: Problem) -> Arrays:
        a, b = matmul.matrices(problem, matmul.PATTERNS[name](problem))
        return images(problem, a, b)

    return make


PATTERNS: Mapping[str, Callable[[Any], Arrays]] = {name: _pattern(name) for name in matmul.PATTERNS}
"""Inputs under which every product and partial sum is an integer below 2048, so that results are exact."""
