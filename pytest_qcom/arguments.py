"""What the commands of ``qcom`` share: words as numbers, options that several take, what a command gives."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

Answer = tuple[Any, Sequence[str], int]
"""What a command gives: facts for ``--json``, or None to print nothing; lines of text; the exit code."""

FAILED = 1
"""The exit code where what was checked is wrong."""


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


def add_case(sub: argparse.ArgumentParser) -> None:
    """Which case of what is declared, and what is changed of it."""
    sub.add_argument(
        "options", nargs="*", default=(), metavar="OPTION=VALUE", help="changes an option of the case"
    )
    sub.add_argument("--case", help="the case to start from (default: the first)")


def add_seed(sub: argparse.ArgumentParser, of: str = "inputs") -> None:
    """The seed of what is random."""
    sub.add_argument("--seed", type=natural, default=0, help=f"of random {of}")


def add_pattern(sub: argparse.ArgumentParser) -> None:
    """Inputs that are not random."""
    sub.add_argument(
        "--pattern",
        default="",
        metavar="NAME",
        help="of inputs with an exact result, such as ones or rows; default: random ones",
    )


def add_rounds(sub: argparse.ArgumentParser) -> None:
    """How often something is timed."""
    sub.add_argument("--rounds", type=positive, default=1, help="launches that are timed")


def counted(number: int, noun: str) -> str:
    """``1 call``, ``2 calls``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
