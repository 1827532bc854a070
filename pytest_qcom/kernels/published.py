"""From a row of published tables to the declared kernel that it is about: family and words to options."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from pytest_qcom.errors import KernelError, closest
from pytest_qcom.kernels.kernel import Kernel
from pytest_qcom.kernels.notes import words
from pytest_qcom.kernels.registry import KERNELS

COLUMNS = ("m", "n", "k", "threads", "thread128")
"""Columns of such a table that are options, where a kernel has them."""
_PREFIX = "split-"


def kernels(family: str) -> tuple[Kernel, ...]:
    """The declared kernels that rows of ``family`` may be about: those as published where there are such.

    Raises:
        KernelError: no kernel has that family.
    """
    found = [kernel for kernel in KERNELS.values() if family in (kernel.family, kernel.name)]
    if not found:
        known = sorted({kernel.family or kernel.name for kernel in KERNELS.values()})
        raise KernelError(f"no declared kernel is of family {family!r}; {closest(family, known)}")
    return tuple(kernel for kernel in found if kernel.family == family) or tuple(found)


def options_from_notes(
    family: str, config: str, columns: Mapping[str, str] | None = None
) -> tuple[Kernel, Any]:
    """The kernel of ``family`` and the options that ``config`` names, with the notes' defaults.

    Words are options by the names of the notes: a name alone is a flag that is set, ``name=value`` gives its
    value. Options of split-A may leave out that ``split-`` with which they begin. ``columns`` are those of
    the table: those that are options count, empty ones do not. Whether the options go together shows when the
    kernel is built.

    Raises:
        KernelError: an unknown family or word, or a value that an option cannot have.
    """
    problems = []
    for kernel in sorted(kernels(family), key=lambda kernel: _likely(kernel, config), reverse=True):
        try:
            return kernel, configured(kernel, config, columns or {})
        except KernelError as error:
            problems.append(error)
    raise KernelError(f"{family}, {config!r}: {problems[0]}")


def _likely(kernel: Kernel, config: str) -> tuple[int, int]:
    """How likely a row is about a kernel: the words that are its options, and how many options it has."""
    known = {option.name for option in dataclasses.fields(kernel.options)}
    given = _prefixed(known, dict(words(config)))
    return sum(word.replace("-", "_") in known for word in given), len(known)


def configured(kernel: Kernel, config: str, columns: Mapping[str, str]) -> Any:
    """The options of one kernel that words and columns name; see :func:`options_from_notes`.

    Raises:
        KernelError: an unknown word, or a value that an option cannot have.
    """
    known = {option.name for option in dataclasses.fields(kernel.options)}
    given = {name: columns[name] for name in COLUMNS if columns.get(name) and name in known}
    return kernel.configure({**given, **_prefixed(known, dict(words(config)))})


def _prefixed(known: Collection[str], given: Mapping[str, str]) -> dict[str, str]:
    """``given`` with the names that options have: ``high-a`` is ``split-high-a`` where only that is known."""
    found = {}
    for word, value in given.items():
        name, longer = word.replace("-", "_"), f"{_PREFIX}{word}".replace("-", "_")
        found[longer if name not in known and longer in known else word] = value
    return found
