"""Fits the constants of the cycle model to published measurements, and says how well they fit.

    python -m suites.analysis.fit_cycles measurements.csv [--seconds 300]

Rows whose kernel can be built are used; a random half is left out of the fit and judged by itself.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pytest_qcom.analysis.cycles import DEFAULT, Constants, Estimate, simulate
from pytest_qcom.analysis.trace import Trace, trace
from pytest_qcom.errors import QcomError
from pytest_qcom.kernels.kernel import Build, Kernel
from pytest_qcom.kernels.registry import KERNELS

SHAPE = ("m", "n", "k", "threads")
FITTED = ("coordinates", "turn", "texture_latency", "texels", "full", "word", "store_bytes", "miss")


@dataclasses.dataclass(frozen=True)
class Launch:
    """A build as the model wants to see it, by the launch convention of CL binaries."""

    local_size: tuple[int, int, int]
    groups: tuple[int, int, int]
    thread128: bool
    fregs: int
    hregs: int
    merged: bool
    branchstack: int
    shared_bytes: int
    constants: bytes
    group_id_regid: int = 4 * 51 + 3
    local_size_regid: int = 4 * 48
    group_offset_regid: int = 4 * 51
    local_id_regid: int = 0
    linear_local_id_regid: int = 4 * 63


@dataclasses.dataclass(frozen=True)
class Row:
    """A measured figure with the launch that it is about."""

    name: str
    family: str
    launch: Launch
    build: Build
    path: Trace
    unit: str
    measured: float

    def predict(self, constants: Constants) -> tuple[float, Estimate]:
        """The figure that the model gives, in the row's unit."""
        estimate = simulate(self.launch, self.build.program, self.path, constants)
        return self.build.work / estimate.seconds, estimate


def launched(build: Build, thread128: bool) -> Launch:
    """The launch of a build."""
    constants = bytearray(4 * 1024)
    for number, value in build.constants:
        constants[4 * number : 4 * number + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")
    return Launch(
        build.local,
        build.groups,
        thread128,
        build.fregs,
        build.hregs,
        build.merged,
        build.branchstack,
        build.shared_bytes,
        bytes(constants),
    )


def rows(path: Path) -> Iterator[Row | str]:
    """The rows of a table; the name of one that cannot be built."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            build = _build(row)
            if build is None or row["unit"] not in ("GFLOPS", "GB/s"):
                yield row["id"]
                continue
            launch = launched(build, row["thread128"] == "1")
            measured = (float(row["low"]) + float(row["high"])) / 2
            yield Row(
                row["id"], row["family"], launch, build, trace(launch, build.program), row["unit"], measured
            )


def _build(row: dict[str, str]) -> Build | None:
    """The kernel of a row: as published where that is declared, else ours."""
    family = [kernel for kernel in KERNELS.values() if (kernel.family or kernel.name) == row["family"]]
    for kernel in sorted(family, key=lambda kernel: kernel.claim != "as-published"):
        build = _configured(kernel, row)
        if build is not None:
            return build
    return None


def _configured(kernel: Kernel, row: dict[str, str]) -> Build | None:
    known = {option.name for option in dataclasses.fields(kernel.options)}
    given = {name: row[name] for name in SHAPE if row[name] and name in known}
    for word in row["config"].split():
        name, separator, value = word.partition("=")
        given[name.replace("-", "_")] = value if separator else "true"
    try:
        return kernel.build(kernel.configure(given))
    except QcomError:  # a configuration that the kernel does not offer
        return None


def loss(table: Sequence[Row], constants: Constants) -> float:
    """Mean and median of the absolute log error, added."""
    found = sorted(abs(math.log(row.predict(constants)[0] / row.measured)) for row in table)
    return sum(found) / len(found) + found[len(found) // 2]


def fit(table: Sequence[Row], seconds: float, start: Constants = DEFAULT) -> Constants:
    """The constants that fit best, by steps along one of them at a time."""
    until, best, value, step = time.monotonic() + seconds, start, loss(table, start), 1.25
    while step > 1.03 and time.monotonic() < until:
        moved = False
        for name in FITTED:
            for factor in (step, 1 / step):
                tried = dataclasses.replace(best, **{name: getattr(best, name) * factor})
                at = loss(table, tried)
                if at < value - 1e-5:
                    best, value, moved = tried, at, True
                    break
        print(f"loss {value:.4f} step {step:.3f} {best}", flush=True)
        if not moved:
            step = 1 + (step - 1) / 2
    return best


def summary(table: Sequence[Row], constants: Constants) -> str:
    """Errors of a table: median, 90th percentile, rank correlation."""
    found = np.array([row.predict(constants)[0] for row in table])
    measured = np.array([row.measured for row in table])
    errors = np.abs(found / measured - 1)
    ranks = [np.argsort(np.argsort(values)) for values in (found, measured)]
    spearman = np.corrcoef(ranks[0], ranks[1])[0, 1]
    return (
        f"{len(table)} rows: median error {np.median(errors):.3f}, 90th percentile "
        f"{np.quantile(errors, 0.9):.3f}, Spearman {spearman:.3f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--seconds", type=float, default=0.0, help="how long to fit; 0 only judges")
    options = parser.parse_args(arguments)
    found = list(rows(options.table))
    table = [row for row in found if isinstance(row, Row)]
    print(f"{len(table)} rows built, {len(found) - len(table)} not")
    order = np.random.default_rng(0).permutation(len(table))
    half = [table[index] for index in order[::2]]
    rest = [table[index] for index in order[1::2]]
    constants = fit(half, options.seconds) if options.seconds else DEFAULT
    for row in table:
        value, estimate = row.predict(constants)
        print(
            f"{row.name} {row.family} measured {row.measured:.1f} predicted {value:.1f} "
            f"({value / row.measured - 1:+.1%}) {estimate.waves} waves, {estimate.limiter}"
        )
    print(constants)
    for name, part in (("fitted", half), ("left out", rest), ("all", table)):
        print(f"{name}: {summary(part, constants)}")


if __name__ == "__main__":
    main()
