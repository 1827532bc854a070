"""Devices that the suites run on: one interface; virtual and local ones; the registry."""

import os

from pytest_qcom.errors import DeviceUnavailable

HAZARD_MODES = ("strict", "emulate", "off")
"""What a virtual device does with programs whose waits are too short."""

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
