"""A device behind ssh, with an ``ssh`` that runs its command on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pytest_qcom import cli, conformance, targets
from pytest_qcom.devices import registry
from pytest_qcom.devices.registry import PROJECT_FILE, Entry
from pytest_qcom.errors import DeviceUnavailable, HazardError

SSH = """#!/bin/sh
for word do [ "$word" = desk@tc3 ] && break; shift; done
[ "$1" = desk@tc3 ] || { echo "no route to host" >&2; exit 255; }
shift
exec sh -c "$*"
"""
HAZARD = "mov.f32f32 r0.x, (1.000000)\nrcp r0.y, r0.x\nend"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a devices file, on a machine with our ssh."""
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / PROJECT_FILE).write_text(
        f'[tc3]\nkind = "ssh"\nhost = "desk@tc3"\npython = "{sys.executable}"\ndevice = "virtual"\n'
        f'[gone]\nkind = "ssh"\nhost = "desk@gone"\npython = "{sys.executable}"\n'
        '[bare]\nkind = "ssh"\nhost = "desk@tc3"\npython = "/no/such/python"\n'
        f'[nodeless]\nkind = "ssh"\nhost = "desk@tc3"\npython = "{sys.executable}"\n'
    )
    return tmp_path


def test_a_kernel_runs_there_and_is_judged_here(project: Path) -> None:
    entry = registry.find("tc3", project)
    assert (entry.mode, entry.shared, entry.deterministic) == ("hardware", False, False)
    target = targets.named("gemm_4xn_fp16", None, ["m=32", "n=512", "k=32"])
    with entry.open("strict") as device:
        assert device.name == "tc3"
        facts = conformance.facts(device, target, seed=3, rounds=2)
    assert facts["ok"] and facts["device"] == "tc3" and facts["device_seconds"] > 0


def test_what_goes_wrong_there_is_said_here(project: Path) -> None:
    from pytest_qcom.envelope import Envelope
    from pytest_qcom.isa.assembler import Assembler

    image = Assembler().parse(HAZARD).program().encode()
    binary = Envelope(name="k", image=image, fregs=1, hregs=0, arguments=()).to_bytes()
    with registry.find("tc3", project).open("strict") as device:
        with pytest.raises(HazardError, match=r"^device tc3: "):
            device.launch(binary, "k", [], (1, 1, 1), (64, 1, 1))
        device.reset()
        numbers = np.arange(8, dtype=np.float32)
        assert np.array_equal(device.download(device.upload(numbers)), numbers)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone", r"device gone \(.*\): .* at desk@gone does not answer over ssh \(no route to host\); check"),
        (
            "bare",
            r"device bare \(.*\): /no/such/python at desk@tc3 does not answer over ssh \(.*not found\); ",
        ),
        ("nodeless", "device nodeless: device local .*: this machine has no /dev/kgsl-3d0; "),
    ],
)
def test_a_device_that_does_not_answer(project: Path, name: str, words: str) -> None:
    if name == "nodeless" and registry.NODE.exists():
        pytest.skip("this machine has a node")
    with pytest.raises(DeviceUnavailable, match=words), registry.find(name, project).open("strict"):
        pytest.fail("it opened")


def test_a_machine_without_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        DeviceUnavailable, match=r"device tc3 \(.*\): reaching a@b takes ssh, which is not inst"
    ):
        Entry("tc3", "ssh", "a@b").require()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ('kind = "ssh"', "kind 'ssh' and host ''"),
        ('kind = "local"\nhost = "a@b"', "kind 'local' and host 'a@b'"),
        ('kind = "local"\npython = "python3"', "python 'python3'; an ssh device alone has one"),
        ('kind = "ssh"\nhost = "-oProxyCommand=x"', "host '-oProxyCommand=x'; give one word"),
        ('kind = "ssh"\nhost = "a@b"\npython = "python3; reboot"', "python 'python3; reboot'; give one word"),
        ('kind = "ssh"\nhost = "a@b"\nport = 22', "tc3 has port; the fields are kind, host, python, device"),
        ('kind = "ssh"\nhost = 7', "host 7; give one word"),
    ],
)
def test_fields_that_make_no_address(tmp_path: Path, fields: str, words: str) -> None:
    (tmp_path / PROJECT_FILE).write_text(f"[tc3]\n{fields}\n")
    with pytest.raises(DeviceUnavailable) as caught:
        registry.known(tmp_path)
    assert words in str(caught.value)


TEST = """
import pytest

@pytest.mark.qcom_kernel("gemm_4xn_fp16", case="square", m=32, n=512, k=32)
def test_it(kernel_run):
    assert kernel_run().mean_abs < 0.1

@pytest.mark.qcom_patch("input-pack")
def test_patch(patch_run):
    assert patch_run().error == 0
"""


def test_a_session_on_it_stores_its_floors(project: Path) -> None:
    (project / "test_desk.py").write_text(TEST)
    (project / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--qcom-device", "tc3"]
    done = subprocess.run(
        [*command, "--qcom-update-baselines"], cwd=project, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0 and "2 floors of tc3 written to " in done.stdout, done.stdout + done.stderr
    again = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=100)
    assert again.returncode == 0 and "2 passed" in again.stdout, again.stdout + again.stderr


def test_graphs_run_there_from_a_shell(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    there = ["--device", "tc3"]
    assert cli.main(["graph", "capture", "pack.pkl", "--model", "input-pack", *there]) == 0
    assert cli.main(["graph", "profile", "pack.pkl", *there]) == 0
    assert cli.main(["graph", "patch", "pack.pkl", "--patch", "input-pack", "--check", *there]) == 0
    said = capsys.readouterr().out
    assert " ms in 1 call\n" in said and "input-pack: 1 site, 1 to 1 calls, " in said
    assert cli.main(["graph", "profile", "pack.pkl", "--device", "gone"]) == cli.BAD_INPUT
    assert capsys.readouterr().err.startswith(f"qcom: device gone ({project / PROJECT_FILE}): ")
    assert cli.main(["graph", "capture", "x.pkl", "--onnx", "x.onnx", *there]) == cli.BAD_INPUT
    assert capsys.readouterr().err.startswith("qcom: device tc3 is behind ssh, and tinygrad programs run in ")
