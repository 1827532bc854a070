"""Typed bit ranges of an instruction word, and layouts that account for all 64 bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pytest_qcom.errors import DecodeError, EncodeError

WORD_BITS = 64


@dataclass(frozen=True, slots=True)
class Field:
    """Bits ``hi:lo`` of a word, both included, read as an unsigned or two's complement number.

    Attributes:
        legal: the values that have a meaning; empty: all.
        bias: what is added to the stored number, as for a count that is stored less one.
        upper: (lo, hi) of further bits, above those at ``hi:lo``, for a number that stands in two places.
    """

    name: str
    lo: int
    hi: int
    signed: bool = False
    legal: tuple[int, ...] = ()
    bias: int = 0
    upper: tuple[int, int] | None = None

    @property
    def mask(self) -> int:
        """The bits of the word that the field owns."""
        return _ones(self.lo, self.hi) | (_ones(*self.upper) if self.upper else 0)

    @property
    def width(self) -> int:
        """How many bits the number has."""
        return self.mask.bit_count()

    def get(self, word: int) -> int:
        """The field's number in ``word``."""
        bits = self.hi - self.lo + 1
        value = word >> self.lo & (1 << bits) - 1
        if self.upper is not None:
            low, high = self.upper
            value |= (word >> low & (1 << high - low + 1) - 1) << bits
            bits += high - low + 1
        return (value - (1 << bits) if self.signed and value >> bits - 1 else value) + self.bias

    def put(self, value: int, owner: str) -> int:
        """``value`` at the field's place.

        Raises:
            EncodeError: when the field cannot hold it; ``owner`` is named.
        """
        width = self.width
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if self.signed else (0, (1 << width) - 1)
        low, high = low + self.bias, high + self.bias
        if not low <= value <= high:
            raise EncodeError(
                f"{owner}: {self.name} is {value}, its {width} bits hold {low} to {high}; "
                "choose a value in range",
                field=self.name,
                value=value,
                low=low,
                high=high,
            )
        if self.legal and value not in self.legal:
            raise EncodeError(
                f"{owner}: {self.name} is {value}, which has no meaning; "
                f"choose one of {', '.join(map(str, self.legal))}",
                field=self.name,
                value=value,
            )
        stored = value - self.bias & (1 << width) - 1
        bits = self.hi - self.lo + 1
        word = (stored & (1 << bits) - 1) << self.lo
        return word | stored >> bits << self.upper[0] if self.upper is not None else word


def _ones(lo: int, hi: int) -> int:
    return (1 << hi + 1) - (1 << lo)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Bits ``hi:lo`` that have one value. Where Mesa does not care, ours must be zero: see ``care``."""

    lo: int
    hi: int
    value: int = 0
    care: bool = True  # False: Mesa ignores the bits, with a warning; a set one is refused here

    @property
    def mask(self) -> int:
        """The bits of the word that are fixed."""
        return _ones(self.lo, self.hi)


@dataclass(frozen=True)
class Layout:
    """Which bits of a word mean what. Every bit stands in exactly one field or fixed range."""

    fields: tuple[Field, ...]
    fixed: tuple[Fixed, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all fields."""
        return frozenset(part.name for part in self.fields)

    @cached_property
    def restricted(self) -> tuple[Field, ...]:
        """Fields of which some values have no meaning."""
        return tuple(part for part in self.fields if part.legal)

    @cached_property
    def mask(self) -> int:
        """All bits with one legal value."""
        return sum(part.mask for part in self.fixed)

    @cached_property
    def match(self) -> int:
        """The legal value of the bits in :attr:`mask`."""
        return sum(part.value << part.lo for part in self.fixed)

    @cached_property
    def selecting(self) -> int:
        """The fixed bits that tell one instruction from another."""
        return sum(part.mask for part in self.fixed if part.care)

    def unclaimed(self) -> Iterator[int]:
        """Bits that are defined never or more than once; empty for a sound layout."""
        masks = [*(part.mask for part in self.fields), *(part.mask for part in self.fixed)]
        for bit in range(WORD_BITS):
            if sum(mask >> bit & 1 for mask in masks) != 1:
                yield bit

    def unpack(self, word: int, owner: str) -> dict[str, int]:
        """The fields of ``word``.

        Raises:
            DecodeError: when a fixed bit has the wrong value.
        """
        wrong = (word ^ self.match) & self.mask
        if wrong:
            raise self._unexpected(word, wrong, owner)
        for part in self.restricted:
            if part.get(word) not in part.legal:
                raise bad_bits(word, part.lo, part.hi, owner, f"a {part.name} without a meaning")
        return {part.name: part.get(word) for part in self.fields}

    def pack(self, values: Mapping[str, int], owner: str) -> int:
        """The word with these fields; one that is not given is stored as 0.

        Raises:
            EncodeError: when a value is out of its range, or belongs to no field.
        """
        word = self.match
        for name in values.keys() - self.names:
            if values[name]:
                raise EncodeError(f"{owner} has no field {name}; it has {', '.join(sorted(self.names))}")
        for part in self.fields:
            value = values.get(part.name, part.bias)
            if value or part.legal or part.bias:
                word |= part.put(value, owner)
        return word

    def _unexpected(self, word: int, wrong: int, owner: str) -> DecodeError:
        part = next(part for part in self.fixed if part.mask & wrong)
        return bad_bits(word, part.lo, part.hi, owner, f"must be {part.value:#x}")


def bad_bits(word: int, lo: int, hi: int, owner: str, reason: str) -> DecodeError:
    """The error for bits ``hi:lo`` of ``word`` that no A630 instruction has."""
    value = word >> lo & (1 << hi - lo + 1) - 1
    return DecodeError(
        f"word {word:016x}: bits {hi}:{lo} of {owner} are {value:#x}, {reason}; this is no A630 instruction",
        word=word,
        low=lo,
        high=hi,
        value=value,
    )
