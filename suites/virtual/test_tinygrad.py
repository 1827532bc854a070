"""Any tinygrad program on the virtual A630: results, gradients, captured graphs, two devices, profiling."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "tinygrad_programs.py"
CLANG = re.compile(r"^(warning: .*\[-W.*\]|\d+ warnings? generated\.)\n", re.MULTILINE)
"""What a clang says of the options that tinygrad's CPU device gives it; processors differ in that."""
HALF, FULL = 2e-3, 2e-6  # of the largest value: a few roundings to float16, to float32


def execute(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs ``qcom exec --device virtual`` in an environment without settings of ours or of tinygrad."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "XDG_CACHE_HOME")}
    qcom = [sys.executable, "-c", "from pytest_qcom.cli import main; raise SystemExit(main())"]
    return subprocess.run(
        [*qcom, "exec", "--device", "virtual", *command],
        env=kept | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )


def run(folder: Path, *programs: str, **environment: str) -> int:
    """Runs programs and holds each result against what it should be; how many there were."""
    out = folder / "results.npz"
    done = execute(str(PROGRAMS), str(out), *programs, **environment)
    assert (done.returncode, CLANG.sub("", done.stderr)) == (0, "")
    with np.load(out) as arrays:
        names = sorted({name.rpartition("/")[0] for name in arrays.files})
        for name in names:
            got, wanted = arrays[f"{name}/got"], arrays[f"{name}/wanted"]
            assert got.shape == wanted.shape, name
            scale = max(1.0, float(np.abs(wanted.astype(np.float64)).max()))
            tolerance = HALF if "fp16" in name or "FLOAT16" in environment else FULL
            np.testing.assert_allclose(got / scale, wanted / scale, rtol=0, atol=tolerance, err_msg=name)
    return len(names)


def test_arithmetic_and_reductions(tmp_path: Path) -> None:
    assert run(tmp_path, "elementwise", "reductions") == 17


def test_matrices_and_a_network_with_gradients(tmp_path: Path) -> None:
    assert run(tmp_path, "matmuls", "network") == 8


def test_images(tmp_path: Path) -> None:
    assert run(tmp_path, "matmuls", "network", "jit", IMAGE="1") == 16


def test_half_images(tmp_path: Path) -> None:
    assert run(tmp_path, "matmuls", IMAGE="1", FLOAT16="1") == 4


def test_graphs_two_devices_and_time(tmp_path: Path) -> None:
    assert run(tmp_path, "jit", "two_devices", "times") == 12


@pytest.mark.skipif(shutil.which("clang") is None, reason="tinygrad's CPU device compiles with clang")
def test_transfers_between_devices(tmp_path: Path) -> None:
    assert run(tmp_path, "transfers") == 2


def test_profiling(tmp_path: Path) -> None:
    """Device times of each kernel, which tinygrad gathers and writes when the process ends."""
    environment = {"PROFILE": "1", "TMPDIR": str(tmp_path)}
    assert run(tmp_path, "jit", **environment) == 8
    (profile,) = tmp_path.glob("profile.pkl*")
    ranges = [
        event
        for event in pickle.loads(profile.read_bytes())
        if type(event).__name__ == "ProfileRangeEvent" and event.device == "QCOM"
    ]
    assert len(ranges) >= 8
    assert all(event.en > event.st for event in ranges)


@pytest.mark.parametrize(
    ("target", "default"),
    [
        ("", "QCOM:IR3"),
        ("CPU", "QCOM:IR3;CPU"),
        ("QCOM", "QCOM:IR3"),
        ("QCOM:IR3;CPU:LLVM", "QCOM:IR3;CPU:LLVM"),
        ("CPU:LLVM;QCOM", "QCOM:IR3;CPU:LLVM"),
    ],
)
def test_the_default_device(tmp_path: Path, target: str, default: str) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; from tinygrad.helpers import DEV; print(DEV, sys.argv, __name__)\n")
    done = execute(str(script), "a", "--b", **({"DEV": target} if target else {}))
    assert done.stdout == f"{default} ['{script}', 'a', '--b'] __main__\n"


PYTEST = """
import numpy as np
from tinygrad import Device, Tensor

def test_it():
    assert Device.DEFAULT == "QCOM" and Device["QCOM"].fd.node.gpu.launches == 0
    assert (Tensor([1.0, 2.0]) * 3).tolist() == [3.0, 6.0]
    assert Device["QCOM"].fd.node.gpu.launches == 1
"""


def test_anybodys_tests_run_under_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(PYTEST)
    options = ["-p", "pytest_qcom", "--qcom-device", "virtual", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, *options, str(tmp_path)]
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "XDG_CACHE_HOME")}
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


FAULT = """
import numpy as np
from tinygrad import Tensor, Device
from tinygrad.device import BufferSpec
device = Device["QCOM"]
a = Tensor(np.ones(4096, dtype=np.float32)).realize()
buffer = a.uop.buffer._buf
device.allocator._free(buffer, BufferSpec())
try:
    (a + 1).realize()
except Exception as error:
    print(type(error).__name__, "which was freed" in str(error))
b = Tensor(np.arange(4, dtype=np.float32))
print((b + 1).numpy().tolist())
device.allocator._free = lambda *_: None
import os; os._exit(0)
"""


def test_a_fault_is_raised_and_the_next_kernel_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        FAULT.replace("import os; os._exit(0)", "import os, sys; sys.stdout.flush(); os._exit(0)")
    )
    done = execute(str(script))
    assert done.stdout == "GpuFault True\n[1.0, 2.0, 3.0, 4.0]\n", done.stderr


def test_a_missing_script_is_told(tmp_path: Path) -> None:
    done = execute(str(tmp_path / "none.py"))
    assert done.returncode != 0
    assert f"exec {tmp_path / 'none.py'}: no such file; give the path of a Python program" in done.stderr
