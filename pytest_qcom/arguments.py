"""Words of a command line as numbers: types for argparse, whose messages say what is wanted."""

from __future__ import annotations

import argparse


def integer(text: str) -> int:
    """A whole number, decimal or as ``0x…``; the name is part of argparse's message."""
    return int(text, 0)


def natural(text: str) -> int:
    """A whole number from 0 on, as seeds are."""
    return _at_least(0, text)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    return _at_least(1, text)


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 1")
    return number


def _at_least(least: int, text: str) -> int:
    try:
        number = integer(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
    return number
