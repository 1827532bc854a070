"""What a command stream says that the hardware would ignore or misread.

A finding is no failure: such streams run on devices. It names the field, the word that was written, and the
word that would have said what was meant, so that the driver can be corrected and the correction noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One field of a register, packet or descriptor.

    Attributes:
        register: its name in Mesa's register database.
        field: the field, or ``undefined`` for bits that the database does not define.
        value: the word as first written.
        needed: the word it would have needed, or ``None`` where none can be told.
        why: what is wrong, in a sentence's tail.
        harmless: whether what the hardware makes of it costs nothing but clarity.
    """

    register: str
    field: str
    value: int
    needed: int | None
    why: str
    harmless: bool = False

    def __str__(self) -> str:
        needed = "" if self.needed is None else f"; needs {self.needed:#x}"
        return f"{self.register}.{self.field} = {self.value:#x}: {self.why}{needed}"


class Findings:
    """The findings of a GPU's life, each field once, in the order of appearance."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], Finding] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, finding: Finding) -> None:
        """Enters a finding, or counts it when its field is known."""
        key = (finding.register, finding.field)
        self._first.setdefault(key, finding)
        self._counts[key] = self._counts.get(key, 0) + 1

    def count(self, finding: Finding) -> int:
        """How often the field of ``finding`` was found so."""
        return self._counts.get((finding.register, finding.field), 0)

    def clear(self) -> None:
        """Forgets all."""
        self._first.clear()
        self._counts.clear()

    def __iter__(self) -> Iterator[Finding]:
        return iter(tuple(self._first.values()))

    def __len__(self) -> int:
        return len(self._first)
