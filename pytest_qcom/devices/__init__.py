"""Devices that the suites run on: one interface; virtual and local ones; the registry."""

import os

HAZARD_MODES = ("strict", "emulate", "off")
"""What a virtual device does with programs whose waits are too short."""

RACES_VARIABLE = "QCOM_RACES"
"""Set to anything but 0 in the environment: virtual devices look for races between workgroups."""


def races_wanted() -> bool:
    """Whether the environment has virtual devices look for races."""
    return os.environ.get(RACES_VARIABLE, "0") not in ("", "0")
