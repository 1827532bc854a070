"""A device that is closed leaves nothing behind: the memory that tinygrad holds goes back to the node."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import numpy as np
import pytest

from pytest_qcom.devices import virtual
from pytest_qcom.devices.runtime import RuntimeDevice
from pytest_qcom.devices.virtual import gpu
from pytest_qcom.errors import DeviceUnavailable, GpuFault
from pytest_qcom.virtual import kgsl
from suites.devices import programs

BOUND = 1 << 20
"""Bytes that ten devices may leave: of each the one page whose object tinygrad itself loses."""
GROUP = (64, 1, 1)


def _mapped() -> int:
    """Bytes of this process at addresses that it shares with the GPU."""
    spans = re.findall(r"^(7[0-9a-f]{8})-([0-9a-f]+) ", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return sum(int(end, 16) - int(start, 16) for start, end in spans)


def _use(device: RuntimeDevice) -> None:
    out = device.empty((64,), np.uint32)
    device.launch(programs.number(), "k", [out], (1, 1, 1), GROUP)
    assert np.array_equal(device.download(out), np.arange(7, 71))


def test_ten_devices_leave_nothing() -> None:
    """Also what outlives its device: tensors, other streams, programs that a traceback keeps."""
    kept: list[object] = []
    before = _mapped()
    for _ in range(10):
        with virtual.opened("virtual", "Adreno 630", "strict") as device:
            assert _mapped() - before > 64 << 20
            _use(device)
            stream = device.stream()
            _use(stream)
            kept += [device.empty((1 << 20,), np.uint8), dict(device._programs)]
            stream.close()
            _use(device)
        with pytest.raises(DeviceUnavailable, match="device virtual: it is closed; open it again"):
            _use(device)
    kept.clear()
    gc.collect()
    assert _mapped() - before < BOUND


def test_a_node_gets_back_what_a_device_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A context and all objects but that one page; also where a device is opened anew after a fault."""
    machine = gpu("off")
    node = kgsl.Node(machine)
    device = RuntimeDevice("virtual", "Adreno 630", "", opening=lambda: kgsl.installed(node))
    _use(device)
    contexts = len(machine._contexts)
    short = device.empty((1,), np.uint32)
    machine.memory.limit(int(short.handle.buffer.va_addr), 4)
    with pytest.raises(GpuFault):
        device.launch(programs.number(), "k", [short], (1, 1, 1), GROUP)
    monkeypatch.setattr(device._runtime, "error_state", RuntimeError("no answer"))
    device.reset()
    assert len(machine._contexts) == contexts
    _use(device)
    device.close()
    gc.collect()
    assert not machine._contexts
    assert [buffer.size for buffer in machine.memory.buffers] == [0x1000] * 2
