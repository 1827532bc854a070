"""Configurations as the published notes write them: words that name options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_REPEATED = "pack-repeats merge-pairs"
PHRASES = (
    (r"swapped before B1", "split-next-a-first"),
    (r"stream-b1 with sync", "stream-b1 stream-b1-sync"),
    (r"stream-b with sync", "stream-b sync"),
    (r"\b(groups|gemm|compiler) pattern\b", r"\1-pattern"),
    (r"sources hr0\.x and hr4\.x repeated", "groups=32 unroll=1 loops=256"),
    (r"\br1 \(source1 relative\)", "groups=16 unroll=1 loops=256 r1"),
    (r"\bone-shot\b", "loops=1"),
    (r"\bquad-split-?k\b", "splitk"),
    (r"\brpt([01])\b", r"rpt=\1"),
    (r"\binterleaved B\b", "interleaved-b"),
    (r"\beight rows\b", "rows=8"),
    (r"\bfour rows\b", "rows=4"),
    (r"\bpatched\b(?!.*(?: sy| MAD|repeat|remap|merge|strip))", f"strip-sync {_REPEATED}"),
    (r"\bone sy\b|\b(?:sync|sy) strip\b|\bsy stripped\b|\bstrip sy\b", "strip-sync"),
    (r"\b(?:two|three|four|five) sy\b|\bscalar MADs", ""),
    (r"\(?\brpt3\b\)?(?: MADs)?|\brepeated MADs|\bMADs? (?:repeated|repeat packing|repeat)\b", _REPEATED),
    (r"\bpairs? (?:merged|merge)\b", "merge-pairs"),
    (r"\baccumulators? (?:remapped|remap)\b", "remap-accumulators"),
    (r"\b(?:compiled|patched)\b(?= *(?:[(:,]|$))", ""),
    (r"\bhand loop\b", "hand"),
    (r"\bwith the compiled epilogue\b", ""),
    (r"\blocal[- ]memory(?: staging)?\b(?:,? (?:of )?(?:A and B|both operands|both))?", ""),
    (r"\bimage[- ]to[- ]local(?: staging)?\b", ""),
    (r"\bbuffer loads\b(?: of B)?|\bB from a buffer\b", ""),
)
"""What a configuration says in words, in the order in which it is read: a pattern and the options that it
means; none where that is what the kernel does anyway."""


def words(config: str) -> Iterator[tuple[str, str]]:
    """(option, value as text) of each word; a name alone is a flag that is set. Punctuation is between."""
    for pattern, option in PHRASES:
        config = re.sub(pattern, option, config)
    for item in config.split():
        name, separator, value = item.strip(",;:()").partition("=")
        if name and name != "and":
            yield name, value if separator else "true"


def options(config: str) -> dict[str, Any]:
    """The options that ``config`` names, as a case of a kernel has them."""
    return {name.replace("-", "_"): _value(value) for name, value in words(config)}


def _value(text: str) -> bool | int | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text


def given_names(given: Mapping[str, Any]) -> set[str]:
    """The options of a row that are not said to be off, by their names in Python."""
    return {word.replace("-", "_") for word, value in given.items() if flag(value) is not False}


def flag(value: Any) -> bool | None:
    """What a value says of a flag; ``None`` if it says neither."""
    return _FLAGS.get(str(value).lower())


_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def without(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """``given`` without words that say what a kernel does anyway."""
    return {word: value for word, value in given.items() if word.replace("-", "_") not in names}


def renamed(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Options by the names that a kernel has, where scripts of the notes had others.

    ``store-row-shift`` is the stride of C as the shift that made it.
    """
    found = {}
    for key, value in given.items():
        name = key.replace("-", "_")
        if name == "store_row_shift" and str(value).isdecimal() and int(value) <= _LARGEST_SHIFT:
            found["stride"] = 1 << int(value)
        else:
            found[names.get(name, key)] = value
    return found


_LARGEST_SHIFT = 16
"""Of the row in an address: 4 elements a texel of the widest image."""
