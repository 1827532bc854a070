"""Where graphs are captured and run: on this process's QCOM device, or on one in another process.

The process at the other end needs this package. A graph reaches it as the pickle that tinygrad would load; it
is read there as data, as any other, and run call by call. Inputs and results travel, memory stays there.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pytest_qcom.devices import channel
from pytest_qcom.devices.channel import Packed, pack, unpack
from pytest_qcom.errors import DeviceUnavailable
from pytest_qcom.openpilot import execution, models, reading, writing
from pytest_qcom.openpilot.execution import Inputs, Run
from pytest_qcom.openpilot.graph import Graph

if TYPE_CHECKING:
    from pytest_qcom.devices.registry import Entry

T = TypeVar("T")


class Place(Protocol):
    """A device that captures and runs graphs."""

    def pickled(self, model: str, seed: int = 0) -> bytes:
        """The pickle of a declared model.

        Raises:
            GraphError: there is no such model.
        """
        ...

    def graph(self, model: str) -> Graph:
        """The graph of a declared model, captured once.

        Raises:
            GraphError: there is no such model.
        """
        ...

    def run(self, graph: Graph, inputs: Inputs, watch: Collection[int] = (), stop: int | None = None) -> Run:
        """Runs a graph, as :func:`pytest_qcom.openpilot.execution.run`."""
        ...


class Here:
    """This process's QCOM device."""

    def pickled(self, model: str, seed: int = 0) -> bytes:
        """The pickle of a declared model."""
        return models.pickled(model, seed)

    def graph(self, model: str) -> Graph:
        """The graph of a declared model."""
        return models.captured(model)

    def run(self, graph: Graph, inputs: Inputs, watch: Collection[int] = (), stop: int | None = None) -> Run:
        """Runs a graph."""
        return execution.run(graph, inputs, watch, stop)


HERE = Here()


@contextlib.contextmanager
def opened(entry: Entry, hazards: str) -> Iterator[Place]:
    """The device of the registry, until the context ends.

    Raises:
        DeviceUnavailable: it is not there, or does not answer.
        QcomError: on leaving, what it ran into and nobody was told yet.
    """
    if entry.kind == "ssh":
        from pytest_qcom.devices import remote

        entry.require(hazards)
        with distant(entry.name, entry.device, hazards, remote.over_ssh(entry)) as place:
            yield place
    else:
        with entry.install(hazards):
            yield HERE
            entry.check()


@contextlib.contextmanager
def distant(name: str, device: str, hazards: str, address: str) -> Iterator[Distant]:
    """A device of another process, until the context ends.

    Args:
        name: what it is called here, in errors too.
        device: what the other process has it registered as.
        address: an execnet address.

    Raises:
        DeviceUnavailable: no process there, or it cannot open the device.
    """
    with channel.connected(name, address, __name__) as connection:
        yield Distant(name, connection, device, hazards)


class Distant(channel.Caller):
    """The device at the other end of a channel.

    Raises:
        DeviceUnavailable: the other process cannot open it.
    """

    def __init__(self, name: str, connection: Any, device: str, hazards: str) -> None:
        super().__init__(name, connection)
        self._graphs: dict[str, Graph] = {}
        self._ask("open", device, hazards)

    def pickled(self, model: str, seed: int = 0) -> bytes:
        """The pickle of a declared model."""
        data: bytes = self._ask("capture", models.find(model).name, seed)
        return data

    def graph(self, model: str) -> Graph:
        """The graph of a declared model."""
        if model not in self._graphs:
            self._graphs[model] = reading.read(self.pickled(model), model)
        return self._graphs[model]

    def run(self, graph: Graph, inputs: Inputs, watch: Collection[int] = (), stop: int | None = None) -> Run:
        """Runs a graph."""
        packed = {name: pack(array) for name, array in inputs.items()}
        results, seconds, outputs = self._ask("run", writing.dumps(graph), packed, tuple(watch), stop)
        return Run(
            tuple(map(unpack, results)),
            tuple(seconds),
            {number: tuple(map(unpack, arrays)) for number, arrays in outputs.items()},
        )


def serve(connection: Any) -> None:
    """What the other process does: answers requests until the channel ends.

    Garbage is collected between requests and not within them, when tinygrad might wait for what it has not
    submitted yet.
    """
    gc.disable()
    with contextlib.ExitStack() as stack:
        channel.answer(connection, _Server(stack), gc.collect)


class _Server:
    """The device at this end."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._entry: Entry | None = None

    def answer_open(self, name: str, hazards: str) -> None:
        from pytest_qcom.devices import registry

        entry = registry.find(name, Path.cwd())
        entry.require_here()
        self._stack.enter_context(entry.install(hazards))
        self._entry = entry

    def answer_capture(self, model: str, seed: int) -> bytes:
        return self._checked(functools.partial(models.pickled, model, seed))

    def answer_run(
        self, data: bytes, packed: dict[str, Packed], watch: tuple[int, ...], stop: int | None
    ) -> tuple[Any, ...]:
        graph = reading.read(data, "graph")
        inputs = {name: unpack(array) for name, array in packed.items()}
        run = self._checked(lambda: execution.run(graph, inputs, watch, stop))
        outputs = {number: tuple(map(pack, arrays)) for number, arrays in run.outputs.items()}
        return tuple(map(pack, run.results)), tuple(run.seconds), outputs

    def _checked(self, work: Callable[[], T]) -> T:
        """What it gives; or what the device ran into while it worked."""
        if self._entry is None:
            raise DeviceUnavailable("no device is open; the first request opens one")
        found = work()
        self._entry.check()
        return found
