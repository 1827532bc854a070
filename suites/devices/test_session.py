"""Sessions: which device opens, what tinygrad is told, and what is given back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pytest_qcom.devices import registry, session
from pytest_qcom.errors import DeviceUnavailable
from suites.devices import programs

ROOT = Path(__file__).parents[2]
VIRTUAL, LOCAL = registry.BUILT_IN


def test_the_virtual_device_by_its_entry() -> None:
    with VIRTUAL.open("strict") as device:
        out = device.empty((64,), np.uint32)
        device.launch(programs.number(), "k", [out], (1, 1, 1), (64, 1, 1))
        np.testing.assert_array_equal(device.download(out), np.arange(64) + 7)
        assert (device.name, device.mode) == (VIRTUAL.name, VIRTUAL.mode)


@pytest.mark.skipif(registry.NODE.exists(), reason="this machine has the real node")
def test_the_local_device_where_there_is_none() -> None:
    text = (
        "device local (built in): this machine has no /dev/kgsl-3d0; run on the device itself, or choose the "
        "device virtual"
    )
    for enter in (LOCAL.open, LOCAL.install):
        with pytest.raises(DeviceUnavailable) as caught, enter("strict"):
            pytest.fail("it opened")
        assert str(caught.value) == text


def test_a_node_that_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinygrad.runtime import ops_qcom

    from pytest_qcom.devices import local

    def refuse(path: str, *_: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(ops_qcom, "FileIOInterface", refuse)
    with pytest.raises(DeviceUnavailable) as caught, local.opened("tc3", "Adreno 630"):
        pytest.fail("it opened")
    assert str(caught.value) == (
        "device tc3: /dev/kgsl-3d0 does not open (Permission denied); check that it is a Snapdragon 845 with "
        "Qualcomm's kernel driver and that you may use the node"
    )


@pytest.mark.parametrize(
    ("kind", "setting", "target"),
    [
        ("local", "QCOM", "QCOM"),
        ("virtual", "QCOM", "QCOM:IR3"),
        ("virtual", "QCOM:IR3", "QCOM:IR3"),
        ("virtual", "qcom:ir3:a630", "qcom:ir3:a630"),
        ("local", "MOCKKGSL:0+QCOM", "MOCKKGSL:0+QCOM"),
        ("virtual", "MOCKKGSL:0+QCOM", "MOCKKGSL:0+QCOM:IR3"),
        ("virtual", "QCOM:IR3;CPU:LLVM", "QCOM:IR3;CPU:LLVM"),
        ("local", "CPU:LLVM;QCOM", "QCOM;CPU:LLVM"),
        ("virtual", "CPU", "QCOM:IR3;CPU"),
        ("virtual", ":LLVM", "QCOM:IR3"),
        ("local", "", "QCOM:IR3"),
    ],
)
def test_settings_keep_what_they_say_of_each_device(kind: str, setting: str, target: str) -> None:
    assert session._qcom_first(setting, kind) == target


SCRIPT = """
import os, sys
sys.path.insert(0, {root!r})
{before}
from pytest_qcom.devices import registry, session
from pytest_qcom.errors import QcomError
entry = registry.BUILT_IN[0]
{body}
"""


def python(body: str, before: str = "", **environment: str) -> str:
    """What a Python program of its own prints."""
    script = SCRIPT.format(root=str(ROOT), before=before, body=body)
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=kept | environment, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


INSIDE = """
with session.installed(entry, "strict"):
    from tinygrad import Tensor, Device
    print(Device.DEFAULT, os.environ["DEV"], (Tensor([1.0, 2.0]) * 3).tolist())
from tinygrad.helpers import DEV
print(DEV, os.environ.get("DEV"))
"""


def test_tinygrad_imported_before_or_within() -> None:
    first = "QCOM QCOM:IR3{} [3.0, 6.0]\n"
    assert python(INSIDE, DEV="CPU") == first.format(";CPU") + "QCOM:IR3;CPU CPU\n"
    assert python(INSIDE, "import tinygrad", DEV="CPU") == first.format(";CPU") + "CPU CPU\n"
    assert python(INSIDE, "import tinygrad") == first.format("") + " None\n"


TWICE = """
from tinygrad import Tensor
for mode in ("strict", "off"):
    with session.installed(entry, mode):
        print((Tensor([1.0, 2.0]) * 3).tolist(), session._process_node.gpu.on_program is not None)
"""


def test_one_virtual_gpu_for_the_process() -> None:
    assert python(TWICE) == "[3.0, 6.0] True\n[3.0, 6.0] False\n"


SETTINGS = """
from pytest_qcom.devices.races import RACES_VARIABLE
executors = []
for mode, races in (("strict", "0"), ("emulate", "0"), ("off", "1"), ("strict", "0")):
    os.environ[RACES_VARIABLE] = races
    with session.installed(entry, mode):
        from tinygrad import Tensor
        print((Tensor([1.0, 2.0]) * 3).tolist(), end=" ")
        executors.append(session._process_node.gpu.executor)
print([(e._late is not None, e._races) for e in executors], executors[0] is executors[3])
os.environ[RACES_VARIABLE] = "1"
try:
    with session.installed(entry, "emulate"):
        print("installed")
except QcomError as error:
    print("races" in str(error))
"""


def test_a_second_session_has_its_own_settings() -> None:
    """The node stays, what executes is another executor."""
    assert python(SETTINGS) == (
        "[3.0, 6.0] " * 4 + "[(False, False), (True, False), (False, True), (False, False)] True\nTrue\n"
    )


OTHER = """
from tinygrad.device import Device
Device._opened_devices.add("QCOM")
try:
    with session.installed(entry, "strict"):
        print("installed")
except QcomError as error:
    print(error)
Device._opened_devices.clear()
"""


def test_another_qcom_device_was_opened_before() -> None:
    assert python(OTHER) == (
        "device virtual: tinygrad has opened another QCOM device in this process before; start the "
        "session first\n"
    )


def test_importing_the_registry_imports_nothing_heavy() -> None:
    heavy = (
        "print(sorted({'numpy', 'tinygrad', 'llvmlite'} & {name.partition('.')[0] for name in sys.modules}))"
    )
    assert python(heavy) == "[]\n"


FINDINGS = """
print(session.findings())
with session.installed(entry, "strict"):
    from tinygrad import Tensor
    (Tensor([1.0, 2.0]) * 3).realize()
print([found.field for found in session.findings() if not found.harmless])
"""


def test_what_is_found_in_a_session() -> None:
    assert python(FINDINGS) == "()\n['CONSTLEN', 'OFFSET']\n"
