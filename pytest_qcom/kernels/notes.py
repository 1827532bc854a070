"""Configurations as the published notes write them: words that name options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PHRASES = {
    "swapped before B1": "split-next-a-first",
    "stream-b with sync": "stream-b sync",
    "stream-b1 with sync": "stream-b1 stream-b1-sync",
    "groups pattern, sources hr0.x and hr4.x repeated": "groups-pattern groups=32 unroll=1 loops=256",
    "groups pattern, r1 (source1 relative)": "groups-pattern groups=16 unroll=1 loops=256 r1",
    "compiled (five sy, scalar MADs)": "",  # the 4x4 kernel without a patch
    "interleaved B, four sy": "interleaved-b",
    "eight rows": "rows=8",
    "hand: hregs=24 with the compiled epilogue": "hand hregs-override=24",
    "local-memory staging": "",  # what the kernel does
    "buffer loads": "",
}
"""What a configuration says in words, as the options that it means; none where that is the default."""


def words(config: str) -> Iterator[tuple[str, str]]:
    """(option, value as text) of each word; a name alone is a flag that is set."""
    for phrase, option in PHRASES.items():
        config = config.replace(phrase, option)
    for item in config.split():
        name, separator, value = item.partition("=")
        yield name, value if separator else "true"


def options(config: str) -> dict[str, Any]:
    """The options that ``config`` names, as a case of a kernel has them."""
    return {name.replace("-", "_"): _value(value) for name, value in words(config)}


def _value(text: str) -> bool | int | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text
