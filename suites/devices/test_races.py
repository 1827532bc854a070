"""Races on the device: kernels and programs in which workgroups share what one of them writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pytest_qcom.cli import main
from pytest_qcom.devices import registry, virtual
from pytest_qcom.devices.races import RACES_VARIABLE, looking_for_races
from pytest_qcom.envelope import Argument, ArgumentKind, Envelope
from pytest_qcom.errors import DeviceUnavailable, RaceError
from pytest_qcom.isa.assembler import Assembler

GROUP = (64, 1, 1)
QCOM = (sys.executable, "-c", "import sys; from pytest_qcom.cli import main; sys.exit(main())")
TINYGRAD = """
import numpy as np
from tinygrad import Tensor, dtypes
rng = np.random.default_rng(3)
a, b = (rng.standard_normal((70, 90), dtype=np.float32) for _ in range(2))
c = rng.standard_normal((90, 65), dtype=np.float32)
def near(tensor, wanted):
    np.testing.assert_allclose(tensor.numpy(), wanted, rtol=1e-3, atol=1e-3)
near(Tensor(a) @ Tensor(c), a @ c)
near((Tensor(a) + Tensor(b)).sum(axis=1), (a + b).sum(axis=1))
np.testing.assert_allclose(Tensor(a).softmax().sum().item(), 70, rtol=1e-4)
x, w = (rng.standard_normal((side, 4, size, size), dtype=np.float32) for side, size in ((1, 9), (4, 3)))
assert Tensor(x).conv2d(Tensor(w)).numpy().shape == (1, 4, 7, 7)
whole = rng.integers(0, 200, (300,), dtype=np.uint8)
assert (Tensor(whole) // 3).numpy().tolist() == (whole // 3).tolist()
"""


def _one_word() -> bytes:
    """Every workgroup stores its fibers' numbers to the same 64 words."""
    a = Assembler()
    a.parse("shl.b r1.x, r0.x, 2\n(rpt2)nop\nadd.u r2.x, r1.x, c0.x\nmov.u32u32 r2.y, c0.y\n(rpt5)nop")
    a.parse("stg.u32 g[r2.x], r0.x, 1\nend")
    return Envelope(
        name="k", image=a.program().encode(), fregs=3, hregs=0, arguments=(Argument(ArgumentKind.BUFFER, 0),)
    ).to_bytes()


def test_a_racy_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error where races are looked for, and only there; the device goes on."""
    with virtual.opened("virtual", "Adreno 630", "strict") as device:
        device.launch(_one_word(), "k", [device.empty((64,), np.uint32)], (2, 1, 1), GROUP)
    monkeypatch.setenv(RACES_VARIABLE, "1")
    with virtual.opened("virtual", "Adreno 630", "strict") as device:
        out = device.empty((64,), np.uint32)
        with pytest.raises(RaceError, match=r"byte 0 of buffer #\d+ .*\(1, 0, 0\) writes what .* \(64 such"):
            device.launch(_one_word(), "k", [out], (2, 1, 1), GROUP)
        device.reset()
        out = device.empty((64,), np.uint32)
        device.launch(_one_word(), "k", [out], (1, 1, 1), GROUP)
        assert np.array_equal(device.download(out), np.arange(64))
    with pytest.raises(DeviceUnavailable) as info:
        virtual.gpu("emulate")
    assert str(info.value) == (
        "virtual device with hazards mode emulate and QCOM_RACES: races are looked for with every wait in "
        "its place; choose hazards mode strict or off"
    )
    for value in ("0", ""):
        monkeypatch.setenv(RACES_VARIABLE, value)
        virtual.gpu("emulate")


@pytest.mark.parametrize("command", [["run", "gemm_dp4"], ["exec", __file__]], ids=lambda words: words[0])
def test_the_environment_says_yes_or_no(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(RACES_VARIABLE, "banana")
    assert main(command) != 0
    assert capsys.readouterr().err == (
        "qcom: environment variable QCOM_RACES is 'banana': it is 1 to look for races, else 0; correct it\n"
    )


def test_hardware_does_not_tell() -> None:
    entry = registry.Entry("tc3", "ssh", "comma@tc3", source=".qcom-devices.toml")
    with pytest.raises(DeviceUnavailable, match="tc3 and races: hardware does not tell who accessed what"):
        looking_for_races(entry).__enter__()


def test_kernels_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "gemm_dp4", "--races"]) == 0
    assert "ok: True" in capsys.readouterr().out


@pytest.mark.parametrize("image", ["0", "1"])
def test_tinygrads_kernels_are_clean(tmp_path: Path, image: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(TINYGRAD)
    result = subprocess.run(
        [*QCOM, "exec", "--races", "--hazards", "off", str(script)],
        env=os.environ | {"IMAGE": image},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
