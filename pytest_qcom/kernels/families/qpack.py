"""Rows of half activations to signed bytes with a scale a row, as a dp4 GEMM takes them; in UOps.

A workgroup has a row: its largest magnitude through local memory gives the scale, then its fibers pack four
values a word and sum up what they packed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import integer, uops
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.uops import THREADS, Array

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

NAME = "qpack"
_FIRST, _SECOND = 8, 16  # fibers whose values one sums up, then those sums
_NEAR = 2.0**-12
"""How near to a half a quotient may be rounded either way."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the packing kernel.

    Attributes:
        m: rows of A.
        k: of a row, a multiple of 4; ``m * k`` one of 256.
    """

    m: int = 128
    k: int = 384


def build(options: Options) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: a shape that is no image, or a row that is no whole number of texels.
    """
    m, k = options.m, options.k
    if m < 1 or k < 4 or k % 4 or m * k % 256:
        raise KernelError(f"{NAME}: {m} x {k}; give k a multiple of 4 and m * k one of 256")
    arrays = (
        Array("A", (m, k), "float16", image=True),
        Array("O", (m, k // 4), "uint32", written=True),
        Array("S", (m,), "float32", written=True),
        Array("SUM", (m,), "uint32", written=True),
    )
    return uops.compile_uops(NAME, _program(options, arrays), arrays, 2e-9 * m * k)


def _program(options: Options, arrays: tuple[Array, ...]) -> Any:
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import UOp

    texels = options.k // 4
    a, packed, scales, sums = uops.parameters(arrays)
    row, fiber = UOp.special(options.m, "gidx0"), UOp.special(THREADS, "lidx0")
    rounds = -(-texels // THREADS)
    places = [fiber + THREADS * number for number in range(rounds)]
    inside = [place < texels for place in places]
    zero, one = UOp.const(0.0, dtypes.float), UOp.const(1.0, dtypes.float)
    values = [
        [taken.where(value, zero) for value in uops.vector(a, row * texels + taken.where(place, 0))]
        for place, taken in zip(places, inside, strict=True)
    ]
    magnitudes = [value.maximum(-value) for texel in values for value in texel]
    largest = _over_fibers(fiber, functools.reduce(UOp.maximum, magnitudes), UOp.maximum, dtypes.float, 0)
    scale = (largest > zero).where(largest * (1.0 / integer.LIMIT), one)
    inverse = one / scale

    def byte(value: UOp) -> UOp:
        """To the nearest whole number, cut off at the largest."""
        quotient = value * inverse
        half = (quotient < zero).where(UOp.const(-0.5, dtypes.float), UOp.const(0.5, dtypes.float))
        whole = (quotient + half).cast(dtypes.int)
        return whole.maximum(-integer.LIMIT).minimum(integer.LIMIT)

    bytes_ = [[byte(value) for value in texel] for texel in values]
    words = [_word(texel) for texel in bytes_]
    total = functools.reduce(UOp.__add__, (value for texel in bytes_ for value in texel))
    summed = _over_fibers(fiber, total, UOp.__add__, dtypes.int, 2)
    stores = [
        packed.index(row * texels + place.valid(taken)).store(word)
        for place, taken, word in zip(places, inside, words, strict=True)
    ]
    alone = row.valid(fiber.eq(0))
    stores += [scales.index(alone).store(scale), sums.index(alone).store(summed.cast(dtypes.uint))]
    return uops.sink(NAME, stores)


def _word(texel: list[UOp]) -> UOp:
    """Four signed bytes as a word, the first one lowest."""
    from tinygrad.dtype import dtypes

    found = [(value & 255).cast(dtypes.uint) * (1 << 8 * lane) for lane, value in enumerate(texel)]
    return found[0] + found[1] + found[2] + found[3]


def _over_fibers(fiber: UOp, value: UOp, joined: Callable[[UOp, UOp], UOp], dtype: Any, slot: int) -> UOp:
    """``joined`` over all fibers of the workgroup, in all of them, through two tables in local memory."""
    from tinygrad.dtype import AddrSpace
    from tinygrad.uop.ops import UOp

    def table(number: int, stored: UOp) -> UOp:
        memory = UOp.placeholder((THREADS,), dtype, slot + number, AddrSpace.LOCAL)
        return memory.after(memory.index(fiber).store(stored))

    first = table(0, value)
    some = [first.index(fiber % _SECOND + _SECOND * number).load() for number in range(_FIRST)]
    second = table(1, functools.reduce(joined, some))
    return functools.reduce(joined, [second.index(UOp.const(number)).load() for number in range(_SECOND)])


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    """Standard normal rows of very different size, one of them zeros."""
    sizes = 2.0 ** rng.integers(-6, 7, (options.m, 1))
    values = (rng.standard_normal((options.m, options.k)) * sizes).astype(np.float16)
    values[options.m // 2] = 0
    return uops.shaped(build(options), {"A": values})


def _quotients(options: Options, arrays: Arrays) -> tuple[Any, Any]:
    """(values over their scale, scales) in float64."""
    values = np.asarray(arrays["A"]).reshape(options.m, options.k).astype(np.float64)
    largest = np.abs(values).max(axis=1)
    scales = np.where(largest > 0, largest / integer.LIMIT, 1.0)
    return values / scales[:, None], scales


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """Bytes to nearest as words, scales, and the sums of the bytes modulo 2**32."""
    quotients, scales = _quotients(options, arrays)
    whole = np.trunc(quotients + np.copysign(0.5, quotients)).astype(np.int64)
    words = np.ascontiguousarray((whole & 255).astype(np.uint8)).view("<u4")
    return {"O": words.astype(np.float64), "S": scales, "SUM": (whole.sum(axis=1) % 2**32).astype(np.float64)}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """Where a quotient is near to a half, its byte may be the other one.

    The scale is a product of two roundings, the quotient one of a reciprocal: ``2**-20`` of each at most, so
    that a quotient of up to 127 is off by less than ``2**-13``. A byte that may be another one counts for its
    place in the word, and for the sum.
    """
    quotients, scales = _quotients(options, arrays)
    near = np.abs(np.abs(quotients) % 1 - 0.5) < _NEAR
    places = (256.0 ** np.arange(4)).reshape(1, 1, 4) * near.reshape(options.m, -1, 4)
    return {"O": places.sum(axis=2), "S": 2.0**-20 * scales, "SUM": near.sum(axis=1).astype(np.float64)}


QPACK = Kernel(
    name=NAME,
    summary="half activations to signed bytes with a scale and a sum a row; UOps",
    options=Options,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    unit="GFLOPS",
    cases=(
        Case("m128k384", {}),
        Case("m128k1536", dict(k=1536)),
        Case("short", dict(m=32, k=64)),
        Case("odd", dict(m=64, k=388)),
    ),
    source="qcom_dp4_openpilot_graph.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (QPACK,)
