"""From a row of published tables to the declared kernel that it is about: family and words to options."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from pytest_qcom.errors import KernelError, closest
from pytest_qcom.kernels import family_names
from pytest_qcom.kernels.kernel import Kernel
from pytest_qcom.kernels.notes import words
from pytest_qcom.kernels.registry import KERNELS

COLUMNS = ("m", "n", "k", "threads", "thread128")
"""Columns of such a table that are options, where a kernel has them."""
_PREFIX, _SUFFIX = "split_", "_override"
_RUNS = frozenset({"iters", "runs", "seed", "disasm", "identity-b", "allow-invalid-regs"})
"""What scripts are told beside options: how often, with what, and what else to print."""


def kernels(family: str) -> tuple[Kernel, ...]:
    """The declared kernels that rows of ``family`` may be about: those as published where there are such.

    Raises:
        KernelError: no kernel has that family.
    """
    found = [kernel for kernel in KERNELS.values() if family in (kernel.family, kernel.name)]
    if not found:
        known = sorted({kernel.family or kernel.name for kernel in KERNELS.values()})
        raise KernelError(f"no declared kernel is of family {family!r}; {closest(family, known)}")
    as_published = [kernel for kernel in found if kernel.family == family]
    if not as_published and f"{family}_published" in KERNELS:
        as_published = [KERNELS[f"{family}_published"]]
    return tuple(as_published or found)


def _declared(family: str, given: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """The declared family, and the words with those that its name meant."""
    every = [*(kernel.family for kernel in KERNELS.values()), *KERNELS]
    known = {name.removesuffix("_published") for name in every if name}
    if family not in known and "ncols" in given:
        family = family_names.of_tile(family, given["ncols"])
    family, meant = family_names.declared(family, known)
    return family, {**dict(words(meant)), **given}


def options_from_notes(
    family: str, config: str, columns: Mapping[str, str] | None = None
) -> tuple[Kernel, Any]:
    """The kernel of ``family`` and the options that ``config`` names, with the notes' defaults.

    Words are options by the names of the notes: a name alone is a flag that is set, ``name=value`` gives its
    value. Options of split-A may leave out that ``split-`` with which they begin, numbers of registers that
    ``-override`` with which they end. A word may say which of a family's kernels is meant, as ``rotate``
    does. ``columns`` are those of the table: those that are options count, empty ones do not. Whether the
    options go together shows when the kernel is built.

    Raises:
        KernelError: an unknown family or word, or a value that an option cannot have.
    """
    plain = {word: value for word, value in words(config) if word not in _RUNS}
    declared, given = _declared(family, plain)
    candidates = [*((kernel, given) for kernel in kernels(declared)), *_named(declared, given)]
    problems = []
    for kernel, rest in sorted(candidates, key=lambda one: _likely(one[0], one[1], len(given)), reverse=True):
        try:
            return kernel, _configured(kernel, rest, columns or {})
        except KernelError as error:
            problems.append(error)
    raise KernelError(f"{family}, {config!r}: {problems[0]}")


def _named(family: str, given: Mapping[str, str]) -> list[tuple[Kernel, dict[str, str]]]:
    """Kernels whose name is the family's with one of the words, and the other words."""
    found = []
    for word in given:
        name = f"{family}_{word.replace('-', '_')}"
        rest = {other: value for other, value in given.items() if other != word}
        found += [(KERNELS[one], rest) for one in (f"{name}_published", name) if one in KERNELS]
    return found


def _likely(kernel: Kernel, given: Mapping[str, str], most: int) -> tuple[int, bool, int]:
    """How likely a row is about a kernel: what words it knows, if it is as published, how many options."""
    known = {option.name for option in dataclasses.fields(kernel.options)}
    unknown = sum(word.replace("-", "_") not in known for word in _prefixed(known, given))
    return most - unknown, kernel.claim == "as-published", len(known)


def configured(kernel: Kernel, config: str, columns: Mapping[str, str]) -> Any:
    """The options of one kernel that words and columns name; see :func:`options_from_notes`.

    Raises:
        KernelError: an unknown word, or a value that an option cannot have.
    """
    return _configured(kernel, dict(words(config)), columns)


def _configured(kernel: Kernel, given: Mapping[str, str], columns: Mapping[str, str]) -> Any:
    known = {option.name for option in dataclasses.fields(kernel.options)}
    from_columns = {name: columns[name] for name in COLUMNS if columns.get(name) and name in known}
    return kernel.configure(kernel.implied({**from_columns, **_prefixed(known, given)}))


def _prefixed(known: Collection[str], given: Mapping[str, str]) -> dict[str, str]:
    """``given`` with the names that options have: ``high-a`` is ``split_high_a`` where only that is known."""
    found = {}
    for word, value in given.items():
        name = word.replace("-", "_")
        longer = [other for other in (_PREFIX + name, name + _SUFFIX) if other in known]
        found[longer[0] if name not in known and longer else word] = value
    return found
