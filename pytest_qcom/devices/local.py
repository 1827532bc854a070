"""The GPU of the machine that runs the tests: its real ``/dev/kgsl-3d0``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pytest_qcom.devices.runtime import RuntimeDevice


@contextlib.contextmanager
def opened(name: str, chip: str) -> Iterator[RuntimeDevice]:
    """The local device, until the context ends.

    Raises:
        DeviceUnavailable: the node does not open.
    """
    device = RuntimeDevice(name, chip, "hardware")
    try:
        yield device
    finally:
        device.close()
