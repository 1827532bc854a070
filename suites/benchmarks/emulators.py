"""tinygrad's tests and a product of matrices: how fast on the virtual A630 and on tinygrad's AMD emulator.

    python suites/benchmarks/emulators.py CHECKOUT [--json FILE]

CHECKOUT is a checkout of tinygrad: its tests run on both, and its ``test/mockgpu`` is the emulator. Needed
are clang (on ``PATH``, or named by ``CC``), ``LLVM_PATH`` with a libLLVM of version 19 or newer, torch,
hypothesis and pytest-xdist. Both run one after the other with empty caches; nothing is asserted, as times
depend on the host.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

SIZE = 256
REPEATS = 10
TESTS = "test/backend/test_ops.py"
WORKERS = 2
SETTINGS = {"SKIP_SLOW_TEST": "1", "FORWARD_ONLY": "1"}

QCOM = [sys.executable, "-c", "from pytest_qcom.cli import main; raise SystemExit(main())"]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(WORKERS), TESTS]


@dataclass(frozen=True)
class Emulator:
    """How tests and scripts run on an emulator."""

    name: str
    pytest: tuple[str, ...]
    script: tuple[str, ...]
    environment: Mapping[str, str]


EMULATORS = (
    Emulator(
        "virtual A630",
        ("-p", "pytest_qcom", "--qcom-device", "virtual"),
        (*QCOM, "exec", "--device", "virtual"),
        {},
    ),
    Emulator("AMD emulator", (), (sys.executable,), {"DEV": "MOCKKFD+AMD:LLVM"}),
)

PRODUCT = f"""
import json, sys, time
import numpy as np
from tinygrad import Device, Tensor, TinyJit
rng = np.random.default_rng(0)
x, y = (rng.normal(size=({SIZE}, {SIZE})).astype(np.float32) for _ in range(2))
a, b = Tensor(x).realize(), Tensor(y).realize()
eager = lambda: (a @ b).realize()
captured = TinyJit(eager)
def times(run):
    for _ in range(3):
        run()
    Device[Device.DEFAULT].synchronize()
    found = []
    for _ in range({REPEATS}):
        wall, processor = time.perf_counter(), time.process_time()
        result = run()
        Device[Device.DEFAULT].synchronize()
        found.append((time.perf_counter() - wall, time.process_time() - processor))
    np.testing.assert_allclose(result.numpy(), x @ y, rtol=1e-3, atol=1e-3)
    return found
with open(sys.argv[1], "w") as file:
    json.dump({{"captured": times(captured), "eager": times(eager)}}, file)
"""


@dataclass(frozen=True)
class Result:
    """What an emulator took: seconds of wall and of processor time, of children too."""

    emulator: str
    passed: int
    failed: int
    skipped: int
    wall: float
    processor: float
    captured_wall: float
    captured_processor: float
    eager_wall: float
    eager_processor: float


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[float, float]:
    """Wall and processor seconds of a command; its output is shown if it cannot be run to its end."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=dict(environment), capture_output=True, text=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):  # 1: pytest ran, and some tests failed
        raise SystemExit(
            f"{' '.join(command[:6])} ...: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(emulator: Emulator, checkout: Path) -> Result:
    """Runs the tests and the products on an emulator, with empty caches."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        environment = {**os.environ, **SETTINGS, **emulator.environment, "XDG_CACHE_HOME": name}
        environment["PYTHONPATH"] = os.pathsep.join([str(checkout), os.environ.get("PYTHONPATH", "")])
        report = work / "report.xml"
        wall, processor = run([*PYTEST, *emulator.pytest, f"--junitxml={report}"], checkout, environment)
        suite = next(ElementTree.parse(report).iter("testsuite")).attrib
        failed = int(suite["failures"]) + int(suite["errors"])
        skipped = int(suite["skipped"])
        script, times = work / "product.py", work / "times.json"
        script.write_text(PRODUCT)
        run([*emulator.script, str(script), str(times)], checkout, environment)
        if not times.exists():
            raise SystemExit(f"{emulator.name}: the product of matrices failed")
        products = json.loads(times.read_text())
    return Result(
        emulator.name,
        int(suite["tests"]) - failed - skipped,
        failed,
        skipped,
        wall,
        processor,
        min(wall for wall, _ in products["captured"]),
        statistics.median(seconds for _, seconds in products["captured"]),
        min(wall for wall, _ in products["eager"]),
        statistics.median(seconds for _, seconds in products["eager"]),
    )


def needs(checkout: Path) -> list[str]:
    """What is missing."""
    missing = []
    if not (checkout / TESTS).exists() or not (checkout / "test/mockgpu").is_dir():
        missing.append(f"{checkout} is no checkout of tinygrad: {TESTS} or test/mockgpu is not there")
    compiler = os.environ.get("CC", "clang")
    if shutil.which(compiler) is None:
        missing.append(f"{compiler} is not on PATH; install clang, or name it in CC")
    if not Path(os.environ.get("LLVM_PATH", "")).is_file():
        missing.append("LLVM_PATH names no file; set it to a libLLVM, such as that of Debian's libllvm19")
    return missing


ROWS = (
    (f"{TESTS}, wall", "wall"),
    (f"{TESTS}, processor", "processor"),
    (f"{SIZE}x{SIZE}x{SIZE} captured, wall, best", "captured_wall"),
    (f"{SIZE}x{SIZE}x{SIZE} captured, processor, median", "captured_processor"),
    (f"{SIZE}x{SIZE}x{SIZE} (A @ B).realize(), wall, best", "eager_wall"),
    (f"{SIZE}x{SIZE}x{SIZE} (A @ B).realize(), processor, median", "eager_processor"),
)


def main() -> None:
    """Runs both and prints them side by side."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="a checkout of tinygrad")
    parser.add_argument("--json", type=Path, help="also write the results there")
    arguments = parser.parse_args()
    checkout = arguments.checkout.resolve()
    if missing := needs(checkout):
        raise SystemExit("\n".join(missing))
    results = [measure(emulator, checkout) for emulator in EMULATORS]
    for result in results:
        print(f"{result.emulator}: {result.passed} passed, {result.failed} failed, {result.skipped} skipped")
    ours, theirs = (asdict(result) for result in results)
    print(f"{'seconds':60} {results[0].emulator:>14} {results[1].emulator:>14}    ratio")
    for title, field in ROWS:
        print(f"{title:60} {ours[field]:14.4f} {theirs[field]:14.4f} {ours[field] / theirs[field]:8.4f}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")


if __name__ == "__main__":
    main()
