"""How fast the executor is, against numpy in the same run.

    python suites/benchmarks/executor.py [--json FILE]

Each row is a workload: what the executor took (best of several launches, compilation excluded), what numpy
took for the same, and the ratio, next to the bar that the project holds itself to. Nothing is asserted:
times depend on the host and on what else it does. numpy runs in a process of its own, with the settings
that OpenBLAS chooses by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pytest_qcom import conformance
from pytest_qcom.devices import registry
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.virtual.dispatch import Dispatch, Execution
from pytest_qcom.virtual.executor import Executor
from pytest_qcom.virtual.executor.kernels import Library
from pytest_qcom.virtual.executor.target import compiler

SIZE = 1024
REPEATS = 12
HAND: tuple[tuple[str, str | None, float | None], ...] = (
    ("gemm_4xn_fp16", "n1024", 6.0),
    ("gemm_4x16_fp32", None, None),
    ("gemm_8x8_fp32", "n1024", None),
)
"""Kernels, their cases, and the largest ratio to numpy that is good enough."""


@dataclass(frozen=True)
class Row:
    """A workload. Seconds are the best of several; ``bar`` is the largest ratio that is good enough."""

    name: str
    seconds: float
    numpy_seconds: float | None
    ratio: float | None
    bar: float | None
    unit: str  # of ``rate``
    rate: float


@dataclass(frozen=True)
class Hand:
    """What a hand-written GEMM took, and its launch."""

    speed: Row
    lanes: Row
    dispatch: Dispatch


@dataclass
class Launched:
    """A launch that was watched."""

    executor: Executor
    dispatch: Dispatch
    memory: Any
    execution: Execution
    seconds: float


@contextlib.contextmanager
def watched() -> Iterator[list[Launched]]:
    """All launches while entered."""
    launches: list[Launched] = []
    run = Executor.run

    def timed(self: Executor, dispatch: Dispatch, memory: Any) -> Execution:
        start = time.perf_counter()
        execution = run(self, dispatch, memory)
        seconds = time.perf_counter() - start
        launches.append(Launched(self, dispatch, memory, execution, seconds))
        return execution

    Executor.run = timed  # type: ignore[method-assign]
    try:
        yield launches
    finally:
        Executor.run = run  # type: ignore[method-assign]


NUMPY = f"""
import json, time
import numpy as np
rng = np.random.default_rng(0)
def best(f):
    times = []
    for _ in range({REPEATS}):
        start = time.perf_counter(); f(); times.append(time.perf_counter() - start)
    return min(times)
a, b = (rng.normal(size=({SIZE}, {SIZE})).astype(np.float32) for _ in range(2))
s, w = a[:256, :256].copy(), b[:256, :256].copy()
x = rng.normal(size=(1, 32, 66, 66)).astype(np.float32)
k = rng.normal(size=(32, 32, 3, 3)).astype(np.float32)
def softmax():
    e = np.exp(a - a.max(1, keepdims=True)); return e / e.sum(1, keepdims=True)
def conv():
    view = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    return np.tensordot(view, k, ((1, 4, 5), (1, 2, 3)))
print(json.dumps({{
    "matmul": best(lambda: a @ b), "matmul256": best(lambda: s @ w), "add": best(lambda: a + b),
    "softmax": best(softmax), "conv": best(conv),
}}))
"""


def numpy_times() -> dict[str, float]:
    """Seconds that numpy takes for each workload."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    output = subprocess.run(
        [sys.executable, "-c", NUMPY], env=environment, capture_output=True, text=True, check=True
    ).stdout
    times: dict[str, float] = json.loads(output)
    return times


def again(launches: list[Launched]) -> float:
    """The least seconds that the launches of one workload take together, when they are repeated."""
    for _ in range(3):  # until programs are compiled with full effort
        for launch in launches:
            launch.executor.run(launch.dispatch, launch.memory)
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        for launch in launches:
            launch.executor.run(launch.dispatch, launch.memory)
        best = min(best, time.perf_counter() - start)
    return best


def hand_gemm(name: str, case: str | None, bar: float | None, reference: float) -> Hand:
    """A hand-written GEMM of 1024 rows, columns and terms.

    Args:
        bar: of the ratio to numpy.
        reference: seconds of numpy's float32 product.
    """
    kernel = KERNELS[name]
    options = kernel.configure({}, case)
    with watched() as launches, registry.find("virtual", Path.cwd()).open("off") as device:
        run = conformance.prepare(device, kernel, options, np.random.default_rng(0))
        run.launch()
        seconds = again(launches[-1:])
        outcome = run.judge()
        dispatch = launches[0].dispatch
        lanes = launches[0].execution.issue_cycles * dispatch.wave_size
    if not outcome.ok:
        raise SystemExit(f"{name}: {outcome}")
    flops = 2 * SIZE**3 / seconds / 1e9
    return Hand(
        Row(f"hand {name} {SIZE}", seconds, reference, seconds / reference, bar, "GFLOPS", flops),
        Row("  its issue slots", seconds, None, None, None, "G lane-operations/s", lanes / seconds / 1e9),
        dispatch,
    )


def compilation(dispatch: Dispatch) -> dict[str, float]:
    """Seconds to the first launch of a program, cold and from the cache; the runtime is there already."""
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for name in ("cold", "from_cache"):
            library = Library(compiler(), directory)
            start = time.perf_counter()
            if name == "cold":  # the runtime is compiled once a machine, not once a program
                warm = Library(compiler(), directory)
                warm.kernel(_empty(dispatch))
                start = time.perf_counter()
            library.kernel(dispatch)
            times[name] = time.perf_counter() - start
    return times


def _empty(dispatch: Dispatch) -> Dispatch:
    """The launch of a program that only ends."""
    from dataclasses import replace

    return replace(dispatch, code=(0x03000000 << 32).to_bytes(8, "little"))


def tinygrad_rows(times: dict[str, float]) -> list[Row]:
    """Programs of tinygrad through Mesa."""
    entry = registry.find("virtual", Path.cwd())
    rows = []
    with entry.install("off"), watched() as launches:
        from tinygrad import Tensor

        rng = np.random.default_rng(0)

        def tensor(*shape: int, dtype: type[np.floating[Any]] = np.float32) -> Any:
            return Tensor(rng.normal(size=shape).astype(dtype)).realize()

        a, b, s, w = tensor(SIZE, SIZE), tensor(SIZE, SIZE), tensor(256, 256), tensor(256, 256)
        x, k = tensor(1, 32, 66, 66), tensor(32, 32, 3, 3)
        h, g = (tensor(SIZE, SIZE, dtype=np.float16) for _ in range(2))
        workloads: tuple[tuple[str, str, float | None, float, Callable[[], Any]], ...] = (
            ("tinygrad fp32 matmul 1024", "matmul", 15.0, 2 * SIZE**3, lambda: a @ b),
            ("tinygrad fp16 matmul 1024", "matmul", None, 2 * SIZE**3, lambda: h @ g),
            ("tinygrad fp32 matmul 256", "matmul256", None, 2 * 256**3, lambda: s @ w),
            ("tinygrad add 1024x1024", "add", None, SIZE**2, lambda: a + b),
            ("tinygrad softmax 1024x1024", "softmax", None, SIZE**2, lambda: a.softmax(1)),
            ("tinygrad conv 32x32x3x3 64x64", "conv", None, 2 * 64 * 64 * 32 * 32 * 9, lambda: x.conv2d(k)),
        )
        for name, key, bar, work, make in workloads:
            launches.clear()
            result = make().realize()
            seconds = again(list(launches))
            del result
            rows.append(
                Row(name, seconds, times[key], seconds / times[key], bar, "G/s", work / seconds / 1e9)
            )
    return rows


def main() -> None:
    """Runs all workloads and prints them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="also write the results there")
    path = parser.parse_args().json
    times = numpy_times()
    hands = [hand_gemm(*hand, times["matmul"]) for hand in HAND]
    compile_times = compilation(hands[0].dispatch)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = [row for hand in hands for row in (hand.speed, hand.lanes)] + tinygrad_rows(times)
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:8.2f} x numpy"
        bar = "" if row.bar is None else f" (bar {row.bar:g})"
        print(f"{row.name:32} {1e3 * row.seconds:9.2f} ms {row.rate:9.2f} {row.unit:20}{ratio}{bar}")
    cold, cached = compile_times["cold"], compile_times["from_cache"]
    print(f"compiling the first: {cold:.3f} s cold (bar 2), {1e3 * cached:.1f} ms from the cache (bar 50)")
    print(f"memory of the process with the hand GEMMs: {memory:.0f} MiB (bar 1024)")
    if path is not None:
        result = {"rows": [asdict(row) for row in rows], "compile": compile_times, "memory_mib": memory}
        path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
