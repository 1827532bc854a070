"""What a declared kernel is. Suites, command line, benchmarks, docs and baselines derive from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.program import Program

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Argument:
    """A kernel argument. ``shape`` of an image is (height, width, 4)."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # numpy name
    image: bool
    written: bool


@dataclass(frozen=True, slots=True)
class Build:
    """A kernel built for one set of options: everything needed to launch and judge it."""

    program: Program
    fregs: int
    hregs: int
    arguments: tuple[Argument, ...]
    groups: tuple[int, int, int]
    local: tuple[int, int, int]
    thread128: bool
    work: float  # what one launch does, in ``Kernel.unit`` times seconds: flops, bytes
    constants: tuple[tuple[int, int], ...] = ()  # (scalar constant number, 32-bit value)
    merged: bool = False
    branchstack: int = 0
    private_bytes: int = 0
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """One set of options under which a kernel is checked. ``name`` is part of test ids and baseline keys."""

    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel, declared once.

    Attributes:
        options: a frozen dataclass; field names are those of the published notes.
        build: options to a :class:`Build`. Raises :class:`KernelError` on options that do not go together.
        inputs: (options, generator) to the named input arrays, random.
        oracle: (options, inputs) to the expected outputs, in float64 or wider.
        tolerance: (options, inputs) to the largest allowed absolute error an element, derived in its docstring.
        unit: what ``Build.work`` divided by device seconds means: ``GFLOPS`` or ``GB/s``.
        claim: what a run may assert: ``correct`` (output checked), ``as-published`` (known to be wrong on
            random inputs; says so), ``probe`` (a throughput figure, output means nothing).
    """

    name: str
    summary: str
    options: type[Any]
    build: Callable[[Any], Build]
    inputs: Callable[[Any, np.random.Generator], Arrays]
    oracle: Callable[[Any, Arrays], Arrays]
    tolerance: Callable[[Any, Arrays], Mapping[str, NDArray[Any] | float]]
    unit: str
    cases: tuple[Case, ...]
    claim: str = "correct"
    source: str = ""

    def case(self, name: str) -> Case:
        """The case called ``name``.

        Raises:
            KernelError: when there is none.
        """
        for case in self.cases:
            if case.name == name:
                return case
        known = ", ".join(case.name for case in self.cases)
        raise KernelError(f"kernel {self.name} has no case {name!r}; it has {known}")
