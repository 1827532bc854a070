"""Everything that pytest-qcom raises: one base class, one class a cause.

A message is one line: what was asked, what was found, what to do next. The facts in it are also
attributes, so that ``--json`` output and reports print the same ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

_NEAR = 3
_LISTED = 10


class QcomError(Exception):
    """Base of all errors of this project.

    Keyword arguments are kept in :attr:`facts`, for machine-readable reports.
    """

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


class EncodeError(QcomError):
    """An instruction that the encoding cannot hold: operand class, range or modifier."""


class DecodeError(QcomError):
    """Bits that are no A630 instruction."""


class EnvelopeError(QcomError):
    """A QCOM CL binary that is truncated, inconsistent or cannot be built as asked."""


class LaunchError(QcomError):
    """A launch that the chip does not allow: geometry, registers, images, arguments."""


class GpuFault(QcomError):
    """The GPU touched memory that is not mapped, or a packet or register that does not exist."""


class GpuHang(QcomError):
    """A shader or command stream that does not end."""


class RaceError(QcomError):
    """Two workgroups of a launch that access the same memory, one of them writing, with nothing between."""


class HazardError(QcomError):
    """A program whose waits are too short for the hardware."""


class KernelError(QcomError):
    """An unknown kernel, or options that do not go together."""


class TableError(QcomError):
    """A table of published figures that cannot be read or lacks what it is read for."""


class BaselineError(QcomError):
    """A stored baseline that is missing, malformed or of another device."""


class ExpectationError(QcomError):
    """A list of expected failures that is missing, malformed or names a test that is no more."""


class FloorError(QcomError):
    """A kernel slower than its stored floor."""


class PatchError(QcomError):
    """A rewrite of compiled code whose result is not what it promised."""


class GraphError(QcomError):
    """A captured graph that cannot be read, or is not as a captured graph is."""


class DeviceUnavailable(QcomError):
    """A device that is unknown, absent or does not answer."""


def closest(name: str, known: Iterable[str]) -> str:
    """What a message says behind an unknown name: the names that are like it, or those that there are.

    Args:
        known: the names, in the order in which they are listed; of many, the first ones and how many more.
    """
    names = list(known)
    if near := difflib.get_close_matches(name, names, _NEAR):
        return f"did you mean {', '.join(near)}?"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"there are {', '.join(names[:_LISTED]) or 'none'}{more}"
