"""Devices for the length of a context: one to launch kernels on, or one for any tinygrad program.

tinygrad reads ``DEV`` when it is first imported and keeps the devices that it opened for good. So the
environment is set before anything here imports tinygrad, a tinygrad that is there already is told, and the
virtual GPU under its ``QCOM`` device is one for the process.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_qcom.errors import DeviceUnavailable, QcomError

if TYPE_CHECKING:
    from pytest_qcom.devices.device import Device
    from pytest_qcom.devices.registry import Entry
    from pytest_qcom.virtual.findings import Finding
    from pytest_qcom.virtual.kgsl import Node

TARGET = "QCOM:IR3"
"""What ``DEV`` is set to where it names no QCOM target: Mesa's compiler, which runs on any machine."""

_process_node: Node | None = None


@contextlib.contextmanager
def opened(entry: Entry, hazards: str) -> Iterator[Device]:
    """The device ``entry``, as :meth:`~pytest_qcom.devices.registry.Entry.open` has found it there.

    Raises:
        DeviceUnavailable: it does not open.
    """
    if entry.kind == "virtual":
        from pytest_qcom.devices import virtual

        with virtual.opened(entry.name, entry.chip, hazards) as device:
            yield device
    elif entry.kind == "ssh":
        from pytest_qcom.devices import remote

        with remote.opened(entry.name, entry.device, hazards, remote.over_ssh(entry)) as far:
            yield far
    else:
        from pytest_qcom.devices import local

        with local.opened(entry.name, entry.chip) as device:
            yield device


@contextlib.contextmanager
def installed(entry: Entry, hazards: str) -> Iterator[None]:
    """While entered, tinygrad's ``QCOM`` device in this process is ``entry``, and the default device.

    Raises:
        DeviceUnavailable: it does not open, or tinygrad has opened another QCOM device before.
        QcomError: on leaving, what the virtual GPU ran into and nobody was told yet.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_default_device(entry.kind))
        if entry.kind == "virtual":
            stack.enter_context(_virtual_node(entry, hazards))
        else:
            entry.require()
        yield


def check() -> None:
    """Raises what the installed virtual GPU ran into and nobody was told yet; nothing without one.

    Raises:
        QcomError: what it ran into.
    """
    if _process_node is not None:
        _process_node.gpu.check()


def findings() -> tuple[Finding, ...]:
    """What the installed virtual GPU's command streams said that the hardware ignores or misreads."""
    return tuple(_process_node.gpu.findings) if _process_node is not None else ()


def run_script(entry: Entry, hazards: str, script: Path, arguments: Sequence[str]) -> None:
    """Runs a Python program with ``entry`` as its QCOM device, as ``python script arguments`` would.

    The device stays until the process ends: tinygrad finishes its own devices at exit.

    Raises:
        QcomError: the script is no file, the device is behind ssh, or what the GPU ran into.
        SystemExit: the script's own.
    """
    import atexit

    if not script.is_file():
        what = "a folder" if script.is_dir() else "no such file"
        raise QcomError(f"exec {script}: {what}; give the path of a Python program")
    if b"\0" in script.read_bytes():
        raise QcomError(f"exec {script}: no text, as its zero bytes show; give the path of a Python program")
    entry.require_here()
    stack = contextlib.ExitStack()
    atexit.register(stack.close)  # before tinygrad's own, hence run after them
    stack.enter_context(installed(entry, hazards))
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except QcomError:
        raise
    except Exception as error:  # the script's own, told as Python does: from the script's first line on
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames)
        raise SystemExit(1) from None
    check()


@contextlib.contextmanager
def _default_device(kind: str) -> Iterator[None]:
    """Makes QCOM tinygrad's default, whether it is imported yet or not."""
    before = os.environ.get("DEV")
    helpers = sys.modules.get("tinygrad.helpers")
    os.environ["DEV"] = _qcom_first(before or "", kind)
    value = None
    if helpers is not None:
        value = helpers.DEV.value
        helpers.DEV.value = _qcom_first(";".join(map(repr, value)), kind)
    try:
        yield
    finally:
        if before is None:
            del os.environ["DEV"]
        else:
            os.environ["DEV"] = before
        if helpers is not None:
            helpers.DEV.value = value


def _qcom_first(targets: str, kind: str) -> str:
    """A ``DEV`` setting (``[INTERFACE+]DEVICE[:RENDERER[:ARCH]];...``), its QCOM target or ours in front.

    A virtual device's target without a renderer gets Mesa's: the vendor's compiler is on the phone only.
    """
    named = [(_device(target), target) for target in targets.split(";")]
    own = [target for device, target in named if device == "QCOM"]
    if own and kind == "virtual" and ":" not in own[0].rpartition("+")[2]:
        own = [own[0] + TARGET.removeprefix("QCOM")]
    return ";".join(
        [*(own[:1] or [TARGET]), *(target for device, target in named if device not in ("QCOM", ""))]
    )


def _device(target: str) -> str:
    return target.rpartition("+")[2].split(":")[0].upper()


@contextlib.contextmanager
def _virtual_node(entry: Entry, hazards: str) -> Iterator[None]:
    global _process_node
    from tinygrad.device import Device

    from pytest_qcom.devices import virtual
    from pytest_qcom.virtual import kgsl

    if _process_node is None:
        if any(name.split(":")[0] == "QCOM" for name in Device._opened_devices):
            raise DeviceUnavailable(
                f"device {entry.name}: tinygrad has opened another QCOM device in this process before; "
                "start the session first"
            )
        _process_node = kgsl.Node(virtual.gpu(hazards))
    node = _process_node
    virtual.set_up(node.gpu, hazards)
    with kgsl.installed(node):
        yield
    node.gpu.check()
