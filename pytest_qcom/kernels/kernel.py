"""What a declared kernel is. Suites, command line, benchmarks, docs and baselines derive from it."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom import envelope
from pytest_qcom.errors import KernelError, closest
from pytest_qcom.isa.program import Program

SMALLEST, LARGEST = -(1 << 31), (1 << 32) - 1
"""Of a number that is an option: what a register or a word of a command can hold, signed or not."""
BUILDS_KEPT = 32
"""Builds of a kernel that a process keeps: several tests take the same case, and some compile for seconds."""

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Argument:
    """A kernel argument. ``shape`` of an image is (height, width, 4)."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # numpy name
    image: bool
    written: bool
    pointer: int = 0  # of a buffer: the scalar constant number of its 64-bit address

    def record(self) -> envelope.Argument:
        """The argument as a binary states it."""
        if not self.image:
            return envelope.Argument(envelope.ArgumentKind.BUFFER, 4 * self.pointer)
        kind = envelope.ArgumentKind.WRITTEN_IMAGE if self.written else envelope.ArgumentKind.READ_IMAGE
        return envelope.Argument(kind)


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

    def binary(self, name: str) -> bytes:
        """The QCOM CL binary of the kernel, called ``name``.

        Raises:
            EnvelopeError: what no binary can hold.
        """
        return envelope.Envelope(
            name=name,
            image=self.program.encode(),
            fregs=self.fregs,
            hregs=self.hregs,
            arguments=tuple(argument.record() for argument in self.arguments),
            samplers=int(any(argument.image and not argument.written for argument in self.arguments)),
            constants=tuple(envelope.Constant(4 * number, value) for number, value in self.constants),
            branchstack=self.branchstack,
            private_bytes=self.private_bytes,
            shared_bytes=self.shared_bytes,
            merged=True if self.merged else None,
        ).to_bytes()


@dataclass(frozen=True, slots=True)
class Case:
    """One set of options under which a kernel is checked. ``name`` is part of test ids and baseline keys."""

    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Something to run and to check, declared once.

    Attributes:
        options: a frozen dataclass; field names are those of the published notes.
        inputs: (options, generator) to the named input arrays, random.
        oracle: (options, inputs) to the expected outputs, in float64 or wider.
        tolerance: (options, inputs) to the largest allowed absolute error an element, derived there.
        unit: what ``Build.work`` divided by device seconds means: ``GFLOPS`` or ``GB/s``.
        claim: what a run may assert: ``correct`` (output checked), ``as-published`` (known to be wrong on
            random inputs; says so), ``probe`` (a throughput figure, output means nothing).
        family: the name under which tables of published measurements have it, if that is another.
        patterns: inputs under which rounding plays no part, so that outputs are exact; by name.
        reads: what is given as options, before they are looked up: words that mean several of them, say.
        verb: the command that runs it.
        kind: what it is called in messages.
    """

    verb: typing.ClassVar[str] = "run"
    kind: typing.ClassVar[str] = "kernel"

    name: str
    summary: str
    options: type[Any]
    inputs: Callable[[Any, np.random.Generator], Arrays]
    oracle: Callable[[Any, Arrays], Arrays]
    tolerance: Callable[[Any, Arrays], Mapping[str, NDArray[Any] | float]]
    unit: str
    cases: tuple[Case, ...]
    claim: str = "correct"
    source: str = ""
    family: str = ""
    patterns: Mapping[str, Callable[[Any], Arrays]] = field(default_factory=dict)
    reads: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict

    def case(self, name: str) -> Case:
        """The case called ``name``.

        Raises:
            KernelError: when there is none.
        """
        for case in self.cases:
            if case.name == name:
                return case
        known = ", ".join(case.name for case in self.cases)
        raise KernelError(f"{self.kind} {self.name} has no case {name!r}; it has {known}")

    def configure(self, given: Mapping[str, Any], case: str | None = None) -> Any:
        """The options object: defaults, then those of the case, then ``given``.

        Names may be written as in the notes (``k-unroll``), values as text (``4``, ``true``).

        Raises:
            KernelError: an unknown case or option, or a value that the option cannot have.
        """
        values = dict(self.case(case).options) if case is not None else {}
        types = typing.get_type_hints(self.options)
        for key, value in self.reads(given).items():
            name = key.replace("-", "_")
            if name not in types:
                known = (option.replace("_", "-") for option in types)
                raise KernelError(
                    f"{self.kind} {self.name} has no option {key!r}; {closest(name.replace('_', '-'), known)}"
                )
            values[name] = _value(f"{self.kind} {self.name}", key, value, types[name])
        return self.options(**values)

    def arguments(self, options: Any) -> str:
        """``options`` as the command line takes them; those that have their default are left out."""
        return " ".join(
            f"{item.name.replace('_', '-')}={_text(getattr(options, item.name))}"
            for item in fields(self.options)
            if getattr(options, item.name) != item.default
        )

    def command(self, options: Any, seed: int | None = None) -> str:
        """The command line that runs it with these options."""
        words = ["qcom", self.verb, self.name, self.arguments(options)]
        if seed is not None:
            words.append(f"--seed {seed}")
        return " ".join(filter(None, words))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(Declared):
    """A kernel.

    Attributes:
        build: options to a :class:`Build`, the latest of which are kept. Raises :class:`KernelError` on
            options that do not go together.
        implied: the words of a row of published tables with those that it leaves out.
    """

    build: Callable[[Any], Build]
    implied: Callable[[Mapping[str, str]], Mapping[str, str]] = dict

    def __post_init__(self) -> None:
        object.__setattr__(self, "build", functools.lru_cache(maxsize=BUILDS_KEPT)(self.build))


def _value(what: str, key: str, value: Any, kind: Any) -> Any:
    """``value`` as the type of its option."""
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if kind is bool and isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    if kind is int and isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            raise KernelError(f"{what}: option {key} is {value!r}; give a whole number") from None
    if type(value) is not kind:
        want = {bool: "true or false", int: "a whole number", str: "a word"}.get(kind, str(kind))
        raise KernelError(f"{what}: option {key} is {value!r}; give {want}")
    if kind is int:
        _check_range(what, key, value)
    return value


def _check_range(what: str, key: str, value: int) -> None:
    """Raises what no option can be; which smaller numbers one can be is the kernel's."""
    if not SMALLEST <= value <= LARGEST:
        raise KernelError(f"{what}: option {key} is a number of {value.bit_length()} bits; give one of 32")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
