"""Devices in other processes, and a product over two of them of which one fails."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_qcom import cli, split
from pytest_qcom.devices import remote
from pytest_qcom.devices.device import Device, Tensor
from pytest_qcom.devices.registry import PROJECT_FILE
from pytest_qcom.devices.remote import Launch, RemoteDevice
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
    assert [len(part.seconds) for part in found.parts] == [2, 2]
    assert found.missing() == []
    assert 0 <= found.apart < 1e9  # both waited for one instant, and not for each other's work


def test_clocks_and_instants(pair: tuple[RemoteDevice, RemoteDevice]) -> None:
    """The other process has this machine's clock, and begins not before the instant that it is told."""
    offset, unsure = pair[0].clock()
    assert abs(offset) <= unsure + 1_000_000
    before = time.time_ns()
    remote.sleep_until(before + 20_000_000)
    assert time.time_ns() >= before + 20_000_000


def test_a_device_that_cannot_start_does_not_hold_up_the_other(
    pair: tuple[RemoteDevice, RemoteDevice], matrices: tuple[Any, Any]
) -> None:
    """Its first warming launch fails, before the common start."""
    a, b = matrices

    def unready(binary: bytes) -> bytes:
        raise LaunchError("device second: not today")

    found = split.product([pair[0], Failing(pair[1], 0, unready)], a, b)
    assert [part.device for part in found.parts] == ["first"]
    assert {name: str(error) for name, error in found.failures.items()} == {
        "second": "device second: not today"
    }
    assert found.missing() == [(M // 2, M)]
    again = split.resume(found, [pair[0]], a, b)
    assert again.parts[0] is found.parts[0] and not again.failures
    error = np.abs(again.matrix() - a.astype(np.float64) @ b.astype(np.float64))
    assert (error <= bound(a, b)).all()
    with pytest.raises(KernelError, match="kept are rows of a 32 x 256 C, given is one of 16 x 256"):
        split.resume(found, [pair[0]], a[:16], b)


def test_a_process_that_dies_amid_its_rounds(matrices: tuple[Any, Any]) -> None:
    """Killed while it launches by itself, with nothing asked or answered in between."""
    a, b = matrices
    with remote.opened("left") as left, remote.opened("right") as right:

        def kill() -> None:
            os.kill(right.pid, signal.SIGKILL)

        class Long(RemoteDevice):
            """It is asked for more rounds than it lives."""

            def rounds(self, launch: Launch, count: int, instant: int) -> tuple[int, tuple[float, ...]]:
                threading.Timer(0.2, kill).start()
                return super().rounds(launch, 1_000_000, instant)

        right.__class__ = Long
        found = split.product([left, right], a, b, rounds=3)
        assert [part.device for part in found.parts] == ["left"]
        assert len(found.parts[0].seconds) == 3
        assert isinstance(found.failures["right"], DeviceUnavailable)
        assert str(found.failures["right"]).startswith("device right: its process ended during rounds (")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / PROJECT_FILE).write_text('[tc3]\nkind = "virtual"\n[tc4]\nkind = "virtual"\n')
    return tmp_path


def test_devices_of_the_devices_file(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name, from the command line: each virtual one in a process of its own."""
    monkeypatch.chdir(project)
    words = ["split", "tc3", "tc4", "--m", "32", "--n", "256", "--k", "32", "--rounds", "2", "--json"]
    assert cli.main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ok"], facts["devices"], facts["shape"]) == (True, ["tc3", "tc4"], "32x256x32")
    assert [(part["device"], part["first"], part["ok"]) for part in facts["parts"]] == [
        ("tc3", 0, True),
        ("tc4", 16, True),
    ]
    assert facts["device_seconds"] == max(part["device_seconds"] for part in facts["parts"])
    assert facts["gflops"] == pytest.approx(2e-9 * 32 * 256 * 32 / facts["device_seconds"])
    assert cli.main(["split", "tc3", "tc5"]) == cli.BAD_INPUT
    said = capsys.readouterr().err
    assert said.startswith("qcom: device 'tc5': unknown, name it in ") and "; did you mean tc" in said
    assert cli.main(["split", "tc3", "tc3"]) == cli.BAD_INPUT
    assert "tc3 twice; give each device once" in capsys.readouterr().err


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
    """Killed between its second and third launch, both before the start."""
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
