"""Devices in other processes, and a product over two of them of which one fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from pytest_qcom import split
from pytest_qcom.devices import remote
from pytest_qcom.devices.device import Device, Tensor
from pytest_qcom.devices.remote import RemoteDevice
from pytest_qcom.errors import DeviceUnavailable, HazardError, KernelError, LaunchError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.kernels import single
from pytest_qcom.kernels.families.gemm_4x8_fp32_rotate import Options

M, N, K = 32, 256, 64


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[RemoteDevice, RemoteDevice]]:
    with remote.opened("first") as first, remote.opened("second") as second:
        yield first, second


@pytest.fixture(scope="module")
def matrices() -> tuple[Any, Any]:
    rng = np.random.default_rng(1001)
    return (rng.standard_normal((M, K)) / 32).astype(np.float16), (rng.standard_normal((K, N)) / 32).astype(
        np.float16
    )


def bound(a: Any, b: Any) -> Any:
    options = Options(a.shape[0], N, K, threads=split.THREADS, image_store=False)
    return single.bound(options, single.images(options, a, b))["C"]


def test_a_remote_device_is_a_device(pair: tuple[RemoteDevice, RemoteDevice]) -> None:
    device: Device = pair[0]
    assert (device.name, device.chip) == ("first", "Adreno 630")
    assert len({os.getpid(), pair[0].pid, pair[1].pid}) == 3
    array = np.arange(4096, dtype=np.float32).reshape(64, 64)
    whole = device.upload(array)
    np.testing.assert_array_equal(device.download(whole), array)
    np.testing.assert_array_equal(device.download(device.view(whole, (3,), False, 5)), [5, 6, 7])
    assert np.isnan(device.download(device.empty((2, 16, 4), np.float16, image=True))).all()
    with pytest.raises(LaunchError, match=r"device second: a tensor of shape .* is of another device"):
        pair[1].download(whole)
    with pytest.raises(LaunchError, match="device first: image of shape"):
        device.image(array)
    device.reset()
    with pytest.raises(LaunchError, match="device first: a tensor was freed by a reset"):
        device.download(whole)


def test_two_devices_give_all_rows(
    pair: tuple[RemoteDevice, RemoteDevice], matrices: tuple[Any, Any]
) -> None:
    a, b = matrices
    found = split.product(pair, a, b, rounds=2)
    assert not found.failures
    assert [(part.device, part.first, part.rows.shape) for part in found.parts] == [
        ("first", 0, (M // 2, N)),
        ("second", M // 2, (M // 2, N)),
    ]
    error = np.abs(found.matrix() - a.astype(np.float64) @ b.astype(np.float64))
    assert (error <= bound(a, b)).all()
    assert found.seconds == max(part.seconds[0] for part in found.parts) > 0


class Failing:
    """A device that does something to itself before a launch."""

    def __init__(self, device: RemoteDevice, launch: int, act: Any) -> None:
        self.device = device
        self.left = launch
        self.act = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def launch(self, binary: bytes, name: str, args: Sequence[Tensor], *rest: Any) -> float:
        self.left -= 1
        return self.device.launch(self.act(binary) if self.left < 0 else binary, name, args, *rest)


def test_a_process_that_dies_costs_its_own_rows(matrices: tuple[Any, Any]) -> None:
    """Killed between its second and third launch."""
    a, b = matrices
    with remote.opened("left") as left, remote.opened("right") as right:

        def kill(binary: bytes) -> bytes:
            os.kill(right.pid, signal.SIGKILL)
            return binary

        found = split.product([left, Failing(right, 2, kill)], a, b, rounds=4)
        assert [part.device for part in found.parts] == ["left"]
        error = np.abs(found.parts[0].rows - (a[: M // 2].astype(np.float64) @ b.astype(np.float64)))
        assert (error <= bound(a[: M // 2], b)).all()
        assert len(found.parts[0].seconds) == 4
        failure = found.failures["right"]
        assert isinstance(failure, DeviceUnavailable)
        assert str(failure).startswith("device right: its process ended during launch (")
        assert failure.facts["device"] == "right"
        with pytest.raises(KernelError, match=r"right failed \(device right: .*kept is left's rows from 0"):
            found.matrix()
        assert left.download(left.upload(a)).tobytes() == a.tobytes()  # the other one goes on


def test_a_fault_of_one_names_it(pair: tuple[RemoteDevice, RemoteDevice], matrices: tuple[Any, Any]) -> None:
    """The second device gets a program with a hazard, and is as good as before afterwards."""
    from dataclasses import replace

    from pytest_qcom.envelope import parse

    a, b = matrices
    assembler = Assembler()
    assembler.parse("mov.f32f32 r0.x, (1.000000)\nrcp r0.y, r0.x\nend")
    image = assembler.program().encode()

    def broken(binary: bytes) -> bytes:
        return replace(parse(binary), image=image).to_bytes()

    found = split.product([pair[0], Failing(pair[1], 1, broken)], a, b, rounds=2)
    assert [part.device for part in found.parts] == ["first"]
    failure = found.failures["second"]
    assert isinstance(failure, HazardError)
    assert str(failure).startswith("device second: ")
    assert not split.product(pair, a, b).failures


def test_what_cannot_be_split_or_opened(pair: tuple[RemoteDevice, RemoteDevice]) -> None:
    a, b = np.zeros((24, K), np.float16), np.zeros((K, N), np.float16)
    with pytest.raises(KernelError, match="product over 2 devices: 24 rows; give a multiple of 8 for each"):
        split.product(pair, a, b)
    with (
        pytest.raises(DeviceUnavailable, match="device ghost: device 'nothing': unknown"),
        remote.opened("ghost", device="nothing"),
    ):
        pass
    with (
        pytest.raises(DeviceUnavailable, match="device ghost: no process at popen//python=/no/such"),
        remote.opened("ghost", address="popen//python=/no/such"),
    ):
        pass
