"""Devices that the suites run on: one interface; virtual and local ones; the registry."""
