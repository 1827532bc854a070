"""The HVX operations that the kernel is written in: each with its C text and its meaning.

HVX is the vector unit of the Hexagon DSP, here with vectors of 128 bytes. Meanings follow the pseudocode of
the "Qualcomm Hexagon V65 HVX Programmer's Reference Manual"; where clang and QEMU are installed, the suites
hold each of them against what QEMU computes.

A value is an array of bytes whose last axis is the vector (128), the pair of vectors (256, the low one first)
or the scalar word (4); axes before it are iterations that are computed together, and broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

VECTOR_BYTES = 128
WORDS = VECTOR_BYTES // 4
"""32-bit lanes of a vector."""


class Kind(Enum):
    """What a value is: its C type and its bytes."""

    VECTOR = ("vector", VECTOR_BYTES)
    PAIR = ("vector_pair", 2 * VECTOR_BYTES)
    WORD = ("word", 4)
    LITERAL = ("int", 0)  # a number that stands in the instruction

    @property
    def c(self) -> str:
        """The C type, of :data:`TYPES`."""
        return self.value[0]

    @property
    def size(self) -> int:
        """Bytes of a value."""
        return self.value[1]


TYPES = (
    f"typedef int vector __attribute__((vector_size({VECTOR_BYTES}), may_alias));",
    f"typedef int vector_pair __attribute__((vector_size({2 * VECTOR_BYTES}), may_alias));",
    "typedef int word __attribute__((may_alias));",
)
"""The C types of values; buffers are bytes, so that they alias."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
        name: of the instruction, as clang's intrinsics have it.
        operands: kinds, in the order of the intrinsic.
        result: kind.
        execute: operands to result, as bytes; a literal is an ``int``.
        template: C text where it is no intrinsic.
    """

    name: str
    operands: tuple[Kind, ...]
    result: Kind
    execute: Callable[..., Bytes]
    template: str = ""

    def c(self, *operands: Any) -> str:
        """The C expression."""
        texts = [str(operand) for operand in operands]
        if self.template:
            return self.template.format(*texts)
        return f"__builtin_HEXAGON_V6_{self.name}_{VECTOR_BYTES}B({', '.join(texts)})"


def _lanes(values: Bytes, dtype: Any) -> NDArray[Any]:
    return values.view(np.dtype(dtype).newbyteorder("<"))


def _bytes(values: NDArray[Any], dtype: Any) -> Bytes:
    lanes = np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<"))
    return lanes.view(np.uint8)


def _interleaved(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    pairs = np.stack(np.broadcast_arrays(first, second), axis=-1)
    return pairs.reshape(*pairs.shape[:-2], -1)


def _joined(low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate(np.broadcast_arrays(low, high), axis=-1)


def _zero() -> Bytes:
    return np.zeros(VECTOR_BYTES, np.uint8)


def _splat(word: Bytes) -> Bytes:
    return np.tile(word, WORDS)


def _low(pair: Bytes) -> Bytes:
    return pair[..., :VECTOR_BYTES]


def _high(pair: Bytes) -> Bytes:
    return pair[..., VECTOR_BYTES:]


def _shuffle_even_odd_bytes(u: Bytes, v: Bytes) -> Bytes:
    """Low: even bytes of ``v`` and ``u`` by turns; high: their odd ones."""
    even = _interleaved(v[..., 0::2], u[..., 0::2])
    odd = _interleaved(v[..., 1::2], u[..., 1::2])
    return _joined(even, odd)


def _deal(u: Bytes, v: Bytes, distances: int) -> Bytes:
    """Swaps across ``u`` (high) and ``v`` (low), for each power of two in ``distances``, largest first.

    Where byte ``k`` has that bit of ``k`` clear, byte ``k`` of the high vector and byte ``k + distance`` of
    the low one change places.
    """
    low, high = (np.array(half) for half in np.broadcast_arrays(v, u))
    places = np.arange(VECTOR_BYTES)
    distance = VECTOR_BYTES // 2
    while distance:
        if distances & distance:
            lower = places[(places & distance) == 0]
            kept = high[..., lower]
            high[..., lower] = low[..., lower + distance]
            low[..., lower + distance] = kept
        distance //= 2
    return _joined(low, high)


def _multiply_accumulate(sums: Bytes, u: Bytes, v: Bytes) -> Bytes:
    """Adds to each word the sum of four products, bytes of ``u`` without sign and of ``v`` with; it wraps."""
    products = np.multiply(_lanes(u, np.uint8), _lanes(v, np.int8), dtype=np.int16)
    total = _lanes(sums, np.int32)
    for place in range(4):  # each a long sum; numpy is slow at many sums of four
        total = total + products[..., place::4]
    return _bytes(total, np.int32)


def _divide(values: Bytes, divisor: int) -> Bytes:
    """Words divided as C divides: toward zero, not downwards as Python and numpy do."""
    words = _lanes(values, np.int32).astype(np.int64)
    return _bytes(np.sign(words) * (np.abs(words) // divisor), np.int32)


def _packed(u: Bytes, v: Bytes, wide: Any, narrow: Any) -> Bytes:
    """Lanes of ``v``, then those of ``u``, in half the bytes: what does not fit is the nearest that does."""
    limits = np.iinfo(narrow)
    lanes = _joined(_lanes(v, wide), _lanes(u, wide))
    return _bytes(np.clip(lanes, limits.min, limits.max), narrow)


def _pack_words(u: Bytes, v: Bytes) -> Bytes:
    return _packed(u, v, np.int32, np.int16)


def _pack_halfwords(u: Bytes, v: Bytes) -> Bytes:
    return _packed(u, v, np.int16, np.uint8)


def _shuffle_bytes(values: Bytes) -> Bytes:
    """Bytes of the lower half and of the upper one by turns."""
    half = VECTOR_BYTES // 2
    return _interleaved(values[..., :half], values[..., half:])


_V, _P, _W, _L = Kind.VECTOR, Kind.PAIR, Kind.WORD, Kind.LITERAL

VD0 = Operation("vd0", (), _V, _zero)
LVSPLATW = Operation("lvsplatw", (_W,), _V, _splat)
LO = Operation("lo", (_P,), _V, _low)
HI = Operation("hi", (_P,), _V, _high)
VSHUFOEB = Operation("vshufoeb", (_V, _V), _P, _shuffle_even_odd_bytes)
VDEALVDD = Operation("vdealvdd", (_V, _V, _L), _P, _deal)
VRMPYBUSV_ACC = Operation("vrmpybusv_acc", (_V, _V, _V), _V, _multiply_accumulate)
DIVIDE = Operation("divide", (_V, _L), _V, _divide, template="{0} / {1}")
VPACKWH_SAT = Operation("vpackwh_sat", (_V, _V), _V, _pack_words)
VPACKHUB_SAT = Operation("vpackhub_sat", (_V, _V), _V, _pack_halfwords)
VSHUFFB = Operation("vshuffb", (_V,), _V, _shuffle_bytes)

OPERATIONS = (
    VD0, LVSPLATW, LO, HI, VSHUFOEB, VDEALVDD, VRMPYBUSV_ACC, DIVIDE, VPACKWH_SAT, VPACKHUB_SAT, VSHUFFB,
)  # fmt: skip
"""All of them."""
