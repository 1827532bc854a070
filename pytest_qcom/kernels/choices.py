"""Options that go together and those that do not: one way to say so."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pytest_qcom.errors import KernelError

_Kind = TypeVar("_Kind")
_Options = TypeVar("_Options")

NO_DELAY = -1
"""A delay of no slot at all; delay d is ``(rptd)nop``."""
LONGEST_DELAY = 7
"""What the three bits of a repeat hold."""
MOST_STEPS = 4096
"""K steps of the longest K: an image of B has no more than four times as many rows."""


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


def check_range(name: str, options: Any, ranges: Mapping[str, tuple[int, int]]) -> None:
    """Numbers between a smallest and a largest one.

    Raises:
        KernelError: one that is not.
    """
    for option, (least, most) in ranges.items():
        value = getattr(options, option)
        if not least <= value <= most:
            raise KernelError(f"{name}: {word(option)} is {value}; give {least} to {most}")


def wrong_unroll(steps: int, option: str = "k-unroll") -> str:
    """What is wrong with that many K steps in a loop body; fewer K steps than that need no loop."""
    if steps < 1:
        return f"{option} is {steps}; give 1 or more"
    if steps > MOST_STEPS:
        return f"{option} is {steps}; no K has more than {MOST_STEPS} steps, give fewer"
    return ""


def check_unroll(name: str, steps: int, option: str = "k-unroll") -> None:
    """K steps of a loop body that can be.

    Raises:
        KernelError: none, or more than any K has.
    """
    if problem := wrong_unroll(steps, option):
        raise KernelError(f"{name}: {problem}")


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


def made(options: _Options, make: Callable[[_Options], _Kind]) -> _Kind:
    """What ``make`` makes of the options; where registers do not suffice for them, it says for which.

    Those are the ones without which it would not be so.

    Raises:
        KernelError: the options that do not go together.
    """
    try:
        return make(options)
    except KernelError as error:
        problem = error.facts.get("problem")
        guilty = [option for option in _given(options) if _cures(options, option, make)] if problem else []
        if not guilty:
            raise
        words = " with ".join(map(word, guilty))
        tail = "leave it out" if len(guilty) == 1 else "leave one of them out"
        if any(type(getattr(options, option)) is int for option in guilty):
            tail += ", or give another number"
        raise KernelError(f"{words}: {problem}; {tail}") from error


def _given(options: Any) -> list[str]:
    """The options that do not have their default."""
    return [item.name for item in dataclasses.fields(options) if getattr(options, item.name) != item.default]


def _cures(options: Any, option: str, make: Callable[[Any], object]) -> bool:
    """Whether nothing is wrong without an option."""
    default = next(item.default for item in dataclasses.fields(options) if item.name == option)
    try:
        make(dataclasses.replace(options, **{option: default}))
    except KernelError:
        return False
    return True


def extended(kind: type[_Kind], base: Any, **more: Any) -> _Kind:
    """A dataclass of ``kind`` with the fields of ``base``, a dataclass that it extends, and ``more``."""
    shared = {item.name: getattr(base, item.name) for item in dataclasses.fields(base)}
    return kind(**shared, **more)
