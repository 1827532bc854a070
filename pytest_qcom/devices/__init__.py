"""Devices that the suites run on: one interface; virtual and local ones; the registry."""

HAZARD_MODES = ("strict", "emulate", "off")
"""What a virtual device does with programs whose waits are too short."""
