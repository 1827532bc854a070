"""Options that go together and those that do not: one way to say so."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pytest_qcom.errors import KernelError

_Kind = TypeVar("_Kind")

NO_DELAY = -1
"""A delay of no slot at all; delay d is ``(rptd)nop``."""
LONGEST_DELAY = 7
"""What the three bits of a repeat hold."""


def word(option: str) -> str:
    """An option as the notes write it."""
    return option.replace("_", "-")


def exclude(name: str, options: Any, group: Sequence[str]) -> None:
    """At most one of a group is given.

    Raises:
        KernelError: two are.
    """
    given = [option for option in group if getattr(options, option)]
    if len(given) > 1:
        raise KernelError(f"{name}: {word(given[0])} with {word(given[1])}; give one of them")


def require(name: str, options: Any, option: str, needed: str) -> None:
    """An option is given only with another.

    Raises:
        KernelError: the other one is missing.
    """
    if getattr(options, option) and not getattr(options, needed):
        raise KernelError(f"{name}: {word(option)} needs {word(needed)}; give it too")


def check_delays(name: str, options: Any, names: Sequence[str]) -> None:
    """Delays that can be encoded.

    Raises:
        KernelError: one that cannot.
    """
    for option in names:
        if not NO_DELAY <= getattr(options, option) <= LONGEST_DELAY:
            raise KernelError(
                f"{name}: {word(option)} is {getattr(options, option)}; give -1 (none) to {LONGEST_DELAY}"
            )


@contextlib.contextmanager
def about(name: str) -> Iterator[None]:
    """What is wrong inside, such as registers that options put in one place, is said of ``name``.

    Raises:
        KernelError: the same, with the name in front if it lacks that.
    """
    try:
        yield
    except KernelError as error:
        if str(error).startswith(f"{name}: "):
            raise
        raise KernelError(f"{name}: {error}") from error


def extended(kind: type[_Kind], base: Any, **more: Any) -> _Kind:
    """A dataclass of ``kind`` with the fields of ``base``, a dataclass that it extends, and ``more``."""
    shared = {item.name: getattr(base, item.name) for item in dataclasses.fields(base)}
    return kind(**shared, **more)
