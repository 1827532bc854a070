"""Requests to another process, here or on another machine: what is asked there, over execnet.

The process at the other end needs this package. Errors come back as what they are, with the device's name in
front; arrays travel as their bytes.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom import errors
from pytest_qcom.errors import DeviceUnavailable, GpuHang, QcomError

HERE = f"popen//python={sys.executable}"
"""An execnet address: a new process on this machine."""

TIMEOUT = 600.0
"""Seconds that an answer may take. A launch has its own, shorter limit in its process."""

Packed = tuple[bytes, str, tuple[int, ...]]
"""An array as it travels."""


@contextlib.contextmanager
def connected(name: str, address: str, served: str) -> Iterator[Any]:
    """A channel to a new process, until the context ends.

    Args:
        name: what the device is called here, in errors.
        address: an execnet address, such as ``ssh=comma@tc3//python=python3``.
        served: the module whose ``serve(channel)`` answers there.

    Raises:
        DeviceUnavailable: no process there.
    """
    import execnet

    group = execnet.Group()
    try:
        gateway = group.makegateway(address)
    except (OSError, EOFError, execnet.HostNotFound) as error:
        raise DeviceUnavailable(
            f"device {name}: no process at {address} ({error}); check the address, and that Python is there",
            device=name,
        ) from error
    try:
        yield gateway.remote_exec(f"from {served} import serve; serve(channel)")
    finally:
        group.terminate(timeout=5.0)


class Caller:
    """This end of a channel."""

    def __init__(self, name: str, channel: Any) -> None:
        self.name = name
        self._channel = channel

    def _ask(self, what: str, *arguments: Any) -> Any:
        """The answer of the other process to a request."""
        import execnet

        try:
            self._channel.send((what, arguments))
            kind, *answer = self._channel.receive(TIMEOUT)
        except (EOFError, OSError, execnet.RemoteError) as error:
            line = last_line(str(error)) or type(error).__name__  # of a remote one it says what it was
            raise DeviceUnavailable(
                f"device {self.name}: its process ended during {what} ({line}); open it again",
                device=self.name,
            ) from error
        except self._channel.TimeoutError as error:
            raise GpuHang(
                f"device {self.name}: no answer to {what} within {TIMEOUT:g} s; open it again",
                device=self.name,
            ) from error
        if kind == "error":
            found, text = answer
            made: QcomError = getattr(errors, found, QcomError)(
                f"device {self.name}: {text}", device=self.name
            )
            raise made
        return answer[0]


def answer(channel: Any, server: Any, between: Callable[[], object] = lambda: None) -> None:
    """The other end: answers each request by the server's method ``answer_…``, until the channel ends.

    Args:
        between: called behind each answer.
    """
    for what, arguments in channel:
        try:
            channel.send(("answer", getattr(server, f"answer_{what}")(*arguments)))
        except QcomError as error:
            channel.send(("error", type(error).__name__, str(error)))
        between()


def pack(array: NDArray[Any]) -> Packed:
    """An array for the way."""
    return np.ascontiguousarray(array).tobytes(), array.dtype.str, tuple(map(int, array.shape))


def unpack(packed: Packed) -> NDArray[Any]:
    """What :func:`pack` was given."""
    data, dtype, shape = packed
    return np.frombuffer(data, np.dtype(dtype), math.prod(shape)).reshape(shape).copy()


def last_line(text: str) -> str:
    """The last line of a text; empty where there is none."""
    return (text.strip().splitlines() or [""])[-1]
