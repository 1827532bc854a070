"""Configurations as the published notes write them: words that name options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

PHRASES = {
    "swapped before B1": "split-next-a-first",
    "stream-b with sync": "stream-b sync",
    "stream-b1 with sync": "stream-b1 stream-b1-sync",
    "groups pattern, sources hr0.x and hr4.x repeated": "groups-pattern groups=32 unroll=1 loops=256",
    "groups pattern, r1 (source1 relative)": "groups-pattern groups=16 unroll=1 loops=256 r1",
    "groups pattern,": "groups-pattern",
    "interleaved B, four sy": "interleaved-b",
    "eight rows": "rows=8",
    "local-memory staging": "",  # what the kernel does
    "buffer loads": "",
}
"""What a configuration says in words, as the options that it means; none where that is the default."""

FORMS: dict[str, str | tuple[tuple[str, str], ...]] = {
    r"hand: hregs=(\d+) with the compiled epilogue": r"hand hregs-override=\1",
    r"(?:compiled|patched) \((?:five|(one)) sy, (?:scalar|(rpt3|repeated)) MADs\)": (
        ("", "strip-sync"),
        ("", "pack-repeats merge-pairs"),
    ),
}
"""The same where the words vary: a replacement, or for each group what it means if it is there or not."""


def words(config: str) -> Iterator[tuple[str, str]]:
    """(option, value as text) of each word; a name alone is a flag that is set."""
    for phrase, option in PHRASES.items():
        config = config.replace(phrase, option)
    for pattern, meaning in FORMS.items():
        config = re.sub(pattern, meaning if isinstance(meaning, str) else _chosen(meaning), config)
    for item in config.split():
        name, separator, value = item.partition("=")
        yield name, value if separator else "true"


def _chosen(meanings: tuple[tuple[str, str], ...]) -> Callable[[re.Match[str]], str]:
    """What the groups of a match mean together."""
    return lambda found: " ".join(
        pair[group is not None] for group, pair in zip(found.groups(), meanings, strict=True)
    )


def options(config: str) -> dict[str, Any]:
    """The options that ``config`` names, as a case of a kernel has them."""
    return {name.replace("-", "_"): _value(value) for name, value in words(config)}


def _value(text: str) -> bool | int | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text


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
