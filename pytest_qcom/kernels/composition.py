"""What a sequence of launches is that computes one thing: memories, and what is done between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pytest_qcom.kernels.kernel import Arrays, Build, Declared


@dataclass(frozen=True, slots=True)
class Memory:
    """A buffer on the device. An input has the name of the composition's, an output that of the oracle's."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    written: bool = True


@dataclass(frozen=True, slots=True)
class Use:
    """A memory as an argument of a launch, from element ``start``; shape and form are the argument's."""

    memory: str
    start: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A launch. ``uses`` gives each argument of the build, by its name, a memory.

    Attributes:
        part: what the launch belongs to, for the times of parts.
    """

    part: str
    kernel: str
    build: Build
    uses: dict[str, Use]


@dataclass(frozen=True, slots=True)
class HostStep:
    """What this machine computes between launches, beside those that do not need it.

    Attributes:
        part: as for a launch; its time is the host's, and no part of the device's.
        reads: whole memories, by the names that ``compute`` has for them.
        writes: where what ``compute`` returns goes.
    """

    part: str
    reads: Mapping[str, str]
    writes: Mapping[str, Use]
    compute: Callable[[Arrays], Arrays]


@dataclass(frozen=True, slots=True)
class Plan:
    """A composition for one set of options. ``work`` as in :class:`Build`, of the whole."""

    memories: tuple[Memory, ...]
    steps: tuple[Step | HostStep, ...]
    work: float

    @property
    def launches(self) -> tuple[Step, ...]:
        """What the device does."""
        return tuple(step for step in self.steps if isinstance(step, Step))


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition(Declared):
    """A sequence of launches, declared once.

    Attributes:
        plan: options to a :class:`Plan`. Raises :class:`KernelError` on options that do not go together.
        long: names of cases that take minutes on the virtual device.
    """

    verb: ClassVar[str] = "compose"
    kind: ClassVar[str] = "composition"

    plan: Callable[[Any], Plan]
    long: tuple[str, ...] = ()
