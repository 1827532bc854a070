"""Whether virtual devices look for races between workgroups, as the environment says to all processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from pytest_qcom.devices.registry import Entry
from pytest_qcom.errors import DeviceUnavailable

RACES_VARIABLE = "QCOM_RACES"
"""Set to 1 in the environment: virtual devices look for races between workgroups; to 0 or nothing: not."""


def races_wanted() -> bool:
    """Whether the environment has virtual devices look for races.

    Raises:
        DeviceUnavailable: it says something else.
    """
    value = os.environ.get(RACES_VARIABLE, "")
    if value not in ("", "0", "1"):
        raise DeviceUnavailable(
            f"environment variable {RACES_VARIABLE} is {value!r}: it is 1 to look for races, else 0; "
            "correct it"
        )
    return value == "1"


@contextlib.contextmanager
def looking_for_races(entry: Entry) -> Iterator[None]:
    """While entered, virtual devices that are opened look for races between workgroups.

    Raises:
        DeviceUnavailable: ``entry`` is hardware, which does not tell.
    """
    if not entry.deterministic:
        raise DeviceUnavailable(
            f"device {entry.name} and races: hardware does not tell who accessed what; "
            "use the virtual device",
            device=entry.name,
        )
    before = os.environ.get(RACES_VARIABLE)
    os.environ[RACES_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[RACES_VARIABLE]
        else:
            os.environ[RACES_VARIABLE] = before
