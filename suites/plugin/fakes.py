"""A device and a kernel that take the time they are told to, for sessions that test the plugin.

``-p`` loads this module before the plugin looks anything up. ``FAKE_SECONDS`` is what a launch takes,
``FAKE_WRONG`` makes it write wrong numbers and ``FAKE_REFUSE`` makes it refuse. ``FAKE_FAULT`` is a fault
that nobody was told of. ``FAKE_KIND``: how the device is reached; ``FAKE_GONE``: that it is not there;
``FAKE_SILENT``: that it does not answer.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.devices import registry
from pytest_qcom.devices.device import Device, Tensor
from pytest_qcom.errors import DeviceUnavailable, GpuFault, LaunchError
from pytest_qcom.kernels import registry as kernels
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel

NAME = "desk"


class FakeDevice:
    """Copies its first argument to its second one."""

    name = NAME
    chip = registry.CHIP
    mode = "fake"

    def __init__(self) -> None:
        self.resets = 0

    def upload(self, array: NDArray[Any]) -> Tensor:
        return Tensor(array.shape, array.dtype, False, array.copy())

    def image(self, array: NDArray[Any]) -> Tensor:
        return Tensor(array.shape, array.dtype, True, array.copy())

    def empty(self, shape: tuple[int, ...], dtype: Any, image: bool = False) -> Tensor:
        array = np.full(shape, np.nan, dtype)
        return Tensor(shape, array.dtype, image, array)

    def view(self, tensor: Tensor, shape: tuple[int, ...], image: bool, start: int = 0) -> Tensor:
        part = tensor.handle.reshape(-1)[start:][: np.prod(shape)].reshape(shape)
        return Tensor(shape, tensor.dtype, image, part)

    def download(self, tensor: Tensor) -> NDArray[Any]:
        copy: NDArray[Any] = tensor.handle.copy()
        return copy

    def launch(
        self,
        binary: bytes,
        name: str,
        args: Sequence[Tensor],
        groups: tuple[int, int, int],
        local: tuple[int, int, int],
        thread128: bool = False,
    ) -> float:
        if "FAKE_REFUSE" in os.environ:
            raise LaunchError(f"launch of {name}: refused")
        args[1].handle[...] = args[0].handle
        if "FAKE_WRONG" in os.environ:
            args[1].handle[3] += 1
        return float(os.environ.get("FAKE_SECONDS", "1e-3"))

    def reset(self) -> None:
        self.resets += 1
        print(f"device reset {self.resets}")


class FakeEntry(registry.Entry):
    """A line of the registry for the fake device."""

    @property
    def mode(self) -> str:
        return "fake"

    def require(self, hazards: str = "strict") -> None:
        if "FAKE_GONE" in os.environ:
            raise DeviceUnavailable(f"device {self.name}: it is gone; plug it in")

    @contextlib.contextmanager
    def install(self, hazards: str) -> Iterator[None]:
        os.environ["FAKE_INSTALLED"] = hazards
        yield
        del os.environ["FAKE_INSTALLED"]

    def check(self) -> None:
        if "FAKE_FAULT" in os.environ:
            raise GpuFault("GPU fault at instruction 3: nobody was told yet")

    @contextlib.contextmanager
    def open(self, hazards: str) -> Iterator[Device]:
        if "FAKE_SILENT" in os.environ:
            raise DeviceUnavailable(f"device {self.name}: it does not answer; switch it on")
        yield FakeDevice()


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the fake kernel."""

    n: int = 64


class NoProgram:
    """Stands for a program that no device of this module looks at."""

    def encode(self) -> bytes:
        return bytes(16 * 8)


def build(options: Options) -> Build:
    """A kernel of ``n`` Mflop."""
    shape = (options.n,)
    return Build(
        program=NoProgram(),  # type: ignore[arg-type]
        fregs=1,
        hregs=0,
        arguments=(
            Argument("x", shape, "float32", image=False, written=False),
            Argument("y", shape, "float32", image=False, written=True, pointer=2),
        ),
        groups=(1, 1, 1),
        local=(64, 1, 1),
        thread128=False,
        work=1e-3 * options.n,
    )


def inputs(options: Options, generator: np.random.Generator) -> Arrays:
    return {"x": generator.standard_normal(options.n).astype(np.float32)}


def oracle(options: Options, arrays: Arrays) -> Arrays:
    return {"y": arrays["x"].astype(np.float64)}


COPY = Kernel(
    name="copy",
    summary="copies",
    options=Options,
    build=build,
    inputs=inputs,
    oracle=oracle,
    tolerance=lambda options, arrays: {"y": 0.0},
    unit="GFLOPS",
    cases=(Case("small", {"n": 64}), Case("large", {"n": 128})),
)

registry.BUILT_IN = (*registry.BUILT_IN, FakeEntry(NAME, os.environ.get("FAKE_KIND", "virtual")))
kernels.KERNELS[COPY.name] = COPY
