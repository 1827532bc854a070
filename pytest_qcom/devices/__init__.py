"""Devices that the suites run on: one interface; virtual and local ones; the registry."""

RACES_VARIABLE = "QCOM_RACES"
"""Set to anything but 0 in the environment: virtual devices look for races between workgroups."""
