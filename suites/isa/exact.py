"""Scalar arithmetic in exact rationals, rounded once: an oracle that shares nothing with the table.

Numbers are bit patterns. Subnormals are zeros of their sign, going in and coming out.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor


@dataclass(frozen=True)
class Float:
    """An IEEE binary format."""

    width: int
    mantissa: int  # stored bits

    @property
    def bias(self) -> int:
        return (1 << self.width - self.mantissa - 2) - 1

    @property
    def infinity(self) -> int:
        return (1 << self.width - self.mantissa - 1) - 1 << self.mantissa

    @property
    def nan(self) -> int:
        return self.infinity | 1 << self.mantissa - 1

    @property
    def sign_bit(self) -> int:
        return 1 << self.width - 1

    @property
    def largest(self) -> int:
        return self.infinity - 1

    def sign(self, bits: int) -> int:
        return bits >> self.width - 1

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign_bit > self.infinity

    def is_infinite(self, bits: int) -> bool:
        return bits & ~self.sign_bit == self.infinity

    def value(self, bits: int) -> Fraction:
        """The number, for finite ``bits``; 0 for subnormals."""
        exponent = (bits & self.infinity) >> self.mantissa
        if exponent == 0:
            return Fraction(0)
        significand = bits & (1 << self.mantissa) - 1 | 1 << self.mantissa
        magnitude = significand * Fraction(2) ** (exponent - self.bias - self.mantissa)
        return -magnitude if self.sign(bits) else magnitude

    def encode(self, exact: Fraction, negative: bool, rounding: str = "even") -> int:
        """``exact`` rounded once; ``negative`` is the sign of a zero."""
        negative = exact < 0 or (exact == 0 and negative)
        magnitude, sign = abs(exact), self.sign_bit if negative else 0
        least = 1 - self.bias
        exponent = max(least, magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1)
        while magnitude >= Fraction(2) ** (exponent + 1):
            exponent += 1
        quantum = Fraction(2) ** (exponent - self.mantissa)
        steps = round_integer(magnitude / quantum, _toward(rounding, negative))
        if steps >> self.mantissa + 1:
            steps, exponent = steps >> 1, exponent + 1
        if steps < 1 << self.mantissa:
            return sign
        if exponent > self.bias:
            to_infinity = rounding == "even" or rounding == ("down" if negative else "up")
            return sign | (self.infinity if to_infinity else self.largest)
        return sign | (exponent + self.bias << self.mantissa) + (steps - (1 << self.mantissa))


def _toward(rounding: str, negative: bool) -> str:
    """The rounding of a magnitude whose sign is known."""
    return {"up": "down", "down": "up"}.get(rounding, rounding) if negative else rounding


def round_integer(exact: Fraction, rounding: str) -> int:
    """``exact`` as an integer: zero, even, up, down or away (halves away from zero)."""
    below = floor(exact)
    if exact == below:
        return below
    if rounding == "zero":
        return below if exact > 0 else below + 1
    if rounding in ("up", "down"):
        return below + (rounding == "up")
    rest = exact - below
    if rest != Fraction(1, 2):
        return below + (rest > Fraction(1, 2))
    if rounding == "away":
        return below + (exact > 0)
    return below + below % 2


F16, F32 = Float(16, 10), Float(32, 23)


def add(f: Float, a: int, b: int) -> int:
    if f.is_nan(a) or f.is_nan(b) or (f.is_infinite(a) and f.is_infinite(b) and a != b):
        return f.nan
    if f.is_infinite(a) or f.is_infinite(b):
        return a if f.is_infinite(a) else b
    both_negative = bool(f.sign(a) and f.sign(b))
    return f.encode(f.value(a) + f.value(b), both_negative)


def multiply(f: Float, a: int, b: int) -> int:
    negative = f.sign(a) != f.sign(b)
    zero = [not f.is_nan(x) and not f.is_infinite(x) and f.value(x) == 0 for x in (a, b)]
    infinite = [f.is_infinite(x) for x in (a, b)]
    if f.is_nan(a) or f.is_nan(b) or (any(zero) and any(infinite)):
        return f.nan
    if any(infinite):
        return f.infinity | (f.sign_bit if negative else 0)
    return f.encode(f.value(a) * f.value(b), negative)


def compare(f: Float, a: int, b: int) -> int | None:
    """-1, 0 or 1; ``None`` if unordered."""
    if f.is_nan(a) or f.is_nan(b):
        return None
    x, y = (_ordered(f, bits) for bits in (a, b))
    return (x > y) - (x < y)


def _ordered(f: Float, bits: int) -> Fraction:
    if f.is_infinite(bits):
        return Fraction(2) ** 200 * (-1 if f.sign(bits) else 1)
    return f.value(bits)


def flush(f: Float, bits: int) -> int:
    """``bits`` without a subnormal."""
    return bits & f.sign_bit if not bits & f.infinity else bits


def integral(f: Float, bits: int, rounding: str) -> int:
    """To a whole number; the sign stays on zeros."""
    if f.is_nan(bits) or f.is_infinite(bits):
        return bits
    return f.encode(Fraction(round_integer(f.value(bits), rounding)), bool(f.sign(bits)))


def convert(source: Float, target: Float, bits: int, rounding: str) -> int:
    """From one format to another."""
    sign = target.sign_bit if source.sign(bits) else 0
    if source.is_nan(bits):
        return target.nan
    if source.is_infinite(bits):
        return target.infinity | sign
    return target.encode(source.value(bits), bool(source.sign(bits)), rounding)


def to_integer(source: Float, bits: int, width: int, signed: bool, rounding: str) -> int:
    """To an integer of ``width`` bits that stops at its ends; NaN gives 0."""
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    if source.is_nan(bits):
        return 0
    if source.is_infinite(bits):
        return low if source.sign(bits) else high
    return min(max(round_integer(source.value(bits), rounding), low), high)


def signed(value: int, width: int) -> int:
    """The two's complement reading of ``width`` bits."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> width - 1 else value
