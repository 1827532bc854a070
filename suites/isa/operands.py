"""Operand values for semantic tests: the edges of each kind, and random ones."""

from __future__ import annotations

import itertools
import random

EDGES = {
    32: (
        0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF,
        0x800000, 0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF,
    ),
    16: (0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 127, 128, 255, 256, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF),
}  # fmt: skip
"""Integers by width: small, powers of two and their neighbours, the ends."""

FLOAT_EDGES = {
    32: (
        0x00000000, 0x80000000,  # zeros
        0x00000001, 0x807FFFFF, 0x00400000,  # subnormals
        0x00800000, 0x80800001, 0x00FFFFFF,  # least normals
        0x3F800000, 0xBF800000, 0x3F000000, 0xBF000000, 0x3FC00000, 0xC0200000, 0x3EFFFFFF, 0x3F7FFFFF,
        0x33000000, 0x33000001, 0x38800000, 0x387FC000, 0x387FE000, 0x33800000,  # around the least f16
        0x477FE000, 0x477FEFFF, 0x477FF000, 0x47800000, 0xC77FF000,  # around the largest f16
        0x437F0000, 0x43800000, 0x46FFFE00, 0x47000000, 0x4EFFFFFF, 0x4F000000, 0x4F7FFFFF, 0x4F800000,
        0xCF000000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001,
    ),
    16: (
        0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x8401, 0x3C00, 0xBC00, 0x3800, 0xB800, 0x3E00, 0xC100,
        0x37FF, 0x3BFF, 0x5BF8, 0x5C00,
        0x77FF, 0x7800, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x1400, 0x2400,
    ),
}  # fmt: skip
"""Bit patterns by width: zeros, subnormals, halves, conversion boundaries, the ends, infinities, NaNs."""


def tuples(
    widths: tuple[int, ...], floats: tuple[bool, ...], seed: int, count: int = 600
) -> list[tuple[int, ...]]:
    """Tuples of operands: all pairs of edges for two operands, a sample for three, and random ones."""
    draw = random.Random(seed)
    edges = [(FLOAT_EDGES if float_ else EDGES)[width] for width, float_ in zip(widths, floats, strict=True)]
    product = list(itertools.product(*edges)) if len(edges) < 3 else []
    if len(product) > count or not product:
        product = [tuple(draw.choice(values) for values in edges) for _ in range(count)]
    some = [
        tuple(_random(draw, width, float_) for width, float_ in zip(widths, floats, strict=True))
        for _ in range(count)
    ]
    return product + some


def _random(draw: random.Random, width: int, float_: bool) -> int:
    bits = draw.getrandbits(width)
    if float_ and draw.random() < 0.7:  # numbers of like size, so that sums and products round
        exponent_lo, exponent_hi, mantissa = (120, 134, 23) if width == 32 else (11, 19, 10)
        exponent = draw.randint(exponent_lo, exponent_hi)
        return draw.getrandbits(1) << width - 1 | exponent << mantissa | draw.getrandbits(mantissa)
    if not float_ and draw.random() < 0.3:
        return draw.randrange(1 << draw.randint(1, width))
    return bits
