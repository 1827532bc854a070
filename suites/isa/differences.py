"""Words that Mesa prints and this project refuses: each kind with its reason and an example.

Everything else must agree. A kind whose example Mesa no longer prints, or which we no longer refuse, fails
its test, so that the list cannot grow stale.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """``matches(word, mesa_text, our_error)`` says whether a refused word is of this kind."""

    name: str
    reason: str
    example: int
    matches: Callable[[int, str, str], bool]


def _error(pattern: str) -> Callable[[int, str, str], bool]:
    return lambda word, text, error: re.search(pattern, error) is not None


DIFFERENCES = (
    Difference(
        "varyings",
        "bary.f and flat.b read varyings, which only fragment shaders have",
        0x4730_8A02_0000_2000,
        lambda word, text, error: re.search(r"bary\.f|flat\.b", text) is not None,
    ),
    Difference(
        "scalar moves",
        "movs came with later chips: Mesa's device record of the A630 has has_movs off",
        0x2082_1300_8000_0000,
        lambda word, text, error: re.search(r"\bmovs\.", text) is not None,
    ),
    Difference(
        "numbers without meaning",
        "a field value without a name in Mesa's enumeration, which it prints as a number: compare conditions "
        "6 and 7, slot mode 3, shuffle modes 0, 4 and 5, float table entries from 12 on",
        0x42B6_00F8_2001_0004,
        lambda word, text, error: "without a meaning" in error or _beyond_table(word, error),
    ),
    Difference(
        "float immediates of the other width",
        "a table entry whose width bit contradicts the instruction's; Mesa prints h(1.0) beside full ones",
        0x4010_0007_6C00_0008,
        _error("a float immediate of the other width"),
    ),
    Difference(
        "hidden bits of shuffles",
        "texture, sampler and second-source bits that Mesa does not print for shuffles and broadcasts",
        0xB7E0_3104_0210_0001,
        lambda word, text, error: re.search(r"quad_shuffle|brcst\.active", text) is not None,
    ),
    Difference(
        "stores without bit 40",
        "Mesa's encoder always sets it and its disassembler does not look at it",
        0xC0C2_0000_0080_00FC,
        _error(r"bits 40:40 of stg(\.a)? are 0x0"),
    ),
    Difference(
        "bit 11 of scaled addresses",
        "always 0; a newer disassembler does not look at it",
        0xD000_00A0_05D4_8971,
        _error(r"bits 11:11 of (ldg|stg)\.a are 0x1"),
    ),
)


def _beyond_table(word: int, error: str) -> bool:
    """Whether a source is a float immediate with an index that the table does not have."""
    found = re.search(r"are 0x([0-9a-f]+), no source operand", error)
    return found is not None and int(found[1], 16) >> 11 & 7 == 5


def explain(word: int, text: str, error: str) -> str | None:
    """The kind of a refused word that Mesa prints, ``None`` if it is on no list."""
    for difference in DIFFERENCES:
        if difference.matches(word, text, error):
            return difference.name
    return None
