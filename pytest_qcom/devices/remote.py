"""A device in another process, here or on another machine: the device interface over execnet.

The process at the other end needs this package. It opens the device that it is told to, and does there what
is asked here; memory stays there. Errors come back as what they are, with the device's name in front, and a
process that ends takes nothing with it but its own device.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.devices import channel, registry
from pytest_qcom.devices.channel import HERE, Packed, last_line, pack, unpack
from pytest_qcom.devices.device import Device, Tensor
from pytest_qcom.errors import DeviceUnavailable, LaunchError

CONNECT_TIMEOUT = 15
"""Seconds until a machine behind ssh must have answered; Python may take as long again to start there."""

_LOOKS = 5  # at the other machine's clock
_AWAKE = 2_000_000  # ns before an instant

Launch = tuple[bytes, str, Sequence[Tensor], tuple[int, int, int], tuple[int, int, int], bool]
"""What a device's ``launch`` is given."""


def over_ssh(entry: registry.Entry) -> str:
    """The execnet address of a device behind ssh, once this package has answered from there.

    It asks for no password: nobody may be there to give one.

    Raises:
        DeviceUnavailable: no way there, no such interpreter, or it does not have this package.
    """
    ssh = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_TIMEOUT}", entry.host]
    command = ["ssh", *ssh, entry.python, "-c", "'import pytest_qcom.devices.remote'"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * CONNECT_TIMEOUT, check=False
        )
        problem = last_line(done.stderr) or f"exit code {done.returncode}" if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = last_line(str(error))
    if problem:
        raise DeviceUnavailable(
            f"device {entry.name} ({entry.source}): {entry.python} at {entry.host} does not answer over ssh "
            f"({problem}); check that ssh gets there without a password, and that this package is installed",
            device=entry.name,
        )
    return f"ssh={' '.join(ssh)}//python={entry.python}"


@contextlib.contextmanager
def opened(
    name: str, device: str = "virtual", hazards: str = "strict", address: str = HERE
) -> Iterator[RemoteDevice]:
    """A device of another process, until the context ends.

    Args:
        name: what it is called here, in errors too.
        device: what the other process has it registered as.
        address: an execnet address, such as ``ssh=comma@tc3//python=python3``.

    Raises:
        DeviceUnavailable: no process there, or it cannot open the device.
    """
    with channel.connected(name, address, __name__) as connection:
        yield RemoteDevice(name, connection, device, hazards)


class RemoteDevice(channel.Caller):
    """A :class:`~pytest_qcom.devices.device.Device` at the other end of a channel.

    Raises:
        DeviceUnavailable: the other process cannot open the device.
    """

    def __init__(self, name: str, connection: Any, device: str, hazards: str) -> None:
        super().__init__(name, connection)
        self.chip, self.mode, self.pid = self._ask("open", device, hazards)

    def upload(self, array: NDArray[Any]) -> Tensor:
        """A linear buffer holding ``array`` (C order)."""
        return self._tensor(array.shape, array.dtype, False, self._ask("upload", pack(array)))

    def image(self, array: NDArray[Any]) -> Tensor:
        """A 2D image holding ``array``."""
        return self._tensor(array.shape, array.dtype, True, self._ask("image", pack(array)))

    def empty(self, shape: tuple[int, ...], dtype: Any, image: bool = False) -> Tensor:
        """Memory filled with NaN bytes."""
        kind = np.dtype(dtype)
        return self._tensor(shape, kind, image, self._ask("empty", tuple(shape), kind.str, image))

    def view(self, tensor: Tensor, shape: tuple[int, ...], image: bool, start: int = 0) -> Tensor:
        """A part of a tensor's memory in another shape."""
        number = self._ask("view", self._number(tensor), tuple(shape), image, start)
        return self._tensor(shape, tensor.dtype, image, number)

    def download(self, tensor: Tensor) -> NDArray[Any]:
        """A copy of the contents."""
        return unpack(self._ask("download", self._number(tensor)))

    def launch(
        self,
        binary: bytes,
        name: str,
        args: Sequence[Tensor],
        groups: tuple[int, int, int],
        local: tuple[int, int, int],
        thread128: bool = False,
    ) -> float:
        """Runs a QCOM CL binary once; device seconds."""
        numbers = tuple(self._number(tensor) for tensor in args)
        return float(self._ask("launch", binary, name, numbers, tuple(groups), tuple(local), thread128))

    def rounds(self, launch: Launch, count: int, instant: int) -> tuple[int, tuple[float, ...]]:
        """Several launches in a row, the first at an instant; nothing is asked or answered in between.

        Args:
            launch: what :meth:`launch` is given.
            instant: of this machine's clock, in ns as ``time.time_ns`` counts. The other machine's clock may
                show another time: see :meth:`clock`.

        Returns:
            When the first launch was begun, by this machine's clock, and device seconds of each.
        """
        binary, name, args, groups, local, thread128 = launch
        numbers = tuple(self._number(tensor) for tensor in args)
        offset, _ = self.clock()
        given = (binary, name, numbers, tuple(groups), tuple(local), thread128)
        begun, seconds = self._ask("rounds", given, count, instant + offset)
        return begun - offset, tuple(seconds)

    def clock(self) -> tuple[int, int]:
        """How far the other machine's clock is ahead of this one's, and how far off that may be; ns.

        The other end looks at its clock between our request and its answer: of a few of those, the one that
        came back soonest says most.
        """
        found = []
        for _ in range(_LOOKS):
            before = time.time_ns()
            there = self._ask("time")
            after = time.time_ns()
            found.append(((after - before) // 2, there - (before + after) // 2))
        unsure, offset = min(found)
        return offset, unsure

    def reset(self) -> None:
        """Frees what was left behind and recovers from a fault or hang."""
        self._ask("reset")

    def _tensor(self, shape: tuple[int, ...], dtype: np.dtype[Any], image: bool, number: int) -> Tensor:
        return Tensor(tuple(shape), dtype, image, (self, number))

    def _number(self, tensor: Tensor) -> int:
        owner, number = tensor.handle if isinstance(tensor.handle, tuple) else (None, 0)
        if owner is not self:
            raise LaunchError(
                f"device {self.name}: a tensor of shape {tensor.shape} is of another device; upload it here"
            )
        return int(number)


def serve(connection: Any) -> None:
    """What the other process does: answers requests until the channel ends."""
    with contextlib.ExitStack() as stack:
        channel.answer(connection, _Server(stack))


class _Server:
    """The device at this end and its tensors by number."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._numbers = itertools.count()
        self._tensors: dict[int, Tensor] = {}
        self._device: Device | None = None

    @property
    def device(self) -> Device:
        if self._device is None:
            raise DeviceUnavailable("no device is open; the first request opens one")
        return self._device

    def answer_open(self, name: str, hazards: str) -> tuple[str, str, int]:
        import os

        self._device = self._stack.enter_context(registry.find(name, Path.cwd()).open(hazards))
        return self.device.chip, self.device.mode, os.getpid()

    def answer_upload(self, packed: Packed) -> int:
        return self._keep(self.device.upload(unpack(packed)))

    def answer_image(self, packed: Packed) -> int:
        return self._keep(self.device.image(unpack(packed)))

    def answer_empty(self, shape: tuple[int, ...], dtype: str, image: bool) -> int:
        return self._keep(self.device.empty(shape, np.dtype(dtype), image))

    def answer_view(self, number: int, shape: tuple[int, ...], image: bool, start: int) -> int:
        return self._keep(self.device.view(self._tensor(number), shape, image, start))

    def answer_download(self, number: int) -> Packed:
        return pack(self.device.download(self._tensor(number)))

    def answer_launch(
        self,
        binary: bytes,
        name: str,
        numbers: tuple[int, ...],
        groups: tuple[int, int, int],
        local: tuple[int, int, int],
        thread128: bool,
    ) -> float:
        tensors = [self._tensor(number) for number in numbers]
        return self.device.launch(binary, name, tensors, groups, local, thread128)

    def answer_time(self) -> int:
        return time.time_ns()

    def answer_rounds(
        self, given: tuple[Any, ...], count: int, instant: int
    ) -> tuple[int, tuple[float, ...]]:
        sleep_until(instant)
        begun = time.time_ns()
        return begun, tuple(self.answer_launch(*given) for _ in range(count))

    def answer_reset(self) -> None:
        self.device.reset()
        self._tensors.clear()

    def _keep(self, tensor: Tensor) -> int:
        number = next(self._numbers)
        self._tensors[number] = tensor
        return number

    def _tensor(self, number: int) -> Tensor:
        if number not in self._tensors:
            raise LaunchError("a tensor was freed by a reset; upload it again")
        return self._tensors[number]


def sleep_until(instant: int) -> None:
    """Until ``time.time_ns`` shows ``instant``; the last of it awake, as a sleep ends late."""
    while (left := instant - time.time_ns()) > 0:
        if left > _AWAKE:
            time.sleep((left - _AWAKE) / 1e9)
