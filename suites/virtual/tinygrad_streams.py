"""A program for a process of its own: tinygrad's kernels, compiled and submitted but not executed.

Prints what is found in its command streams, and what was launched, as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

os.environ.update(DEV="QCOM:IR3", IMAGE="1", CACHELEVEL="0")

import numpy as np
from tinygrad import Tensor

from pytest_qcom.devices.runtime import RuntimeDevice
from pytest_qcom.envelope import Argument, ArgumentKind, Envelope
from pytest_qcom.virtual import kgsl
from suites.virtual.bench import CODE, Bench

SOURCE = Path(__file__)


def submit() -> None:
    """Small and large images, many of them, wide integers with private memory and long code."""
    image = Tensor(np.ones((64, 64), dtype=np.float32))
    (image @ image).realize()
    many = [Tensor(np.full((4, 4), value, dtype=np.float32)) for value in range(40)]
    sum(many[1:], many[0]).realize()
    wide = Tensor(np.arange(64, dtype=np.int64) + 5)
    (wide // Tensor(np.arange(64, dtype=np.int64) + 3)).realize()


def main() -> None:
    """Submits, and prints."""
    bench = Bench()
    with kgsl.installed(kgsl.Node(bench.gpu)):
        submit()
        mesa = [dataclasses.asdict(finding) for finding in bench.gpu.findings]
        bench.gpu.findings.clear()
        device = RuntimeDevice("bench", "Adreno 630", "none")
        out, read = (device.empty((4, 8, 4), np.float16, image=True) for _ in range(2))
        kinds = (ArgumentKind.WRITTEN_IMAGE, ArgumentKind.READ_IMAGE)
        binary = Envelope("k", CODE, 4, 2, tuple(Argument(kind) for kind in kinds), samplers=1).to_bytes()
        device.launch(binary, "k", [out, read], (1, 1, 1), (64, 1, 1))
        opencl = [dataclasses.asdict(finding) for finding in bench.gpu.findings]
    launches = bench.executor.launches
    totals = {
        "textures": max(len(launch.textures) for launch in launches),
        "code": max(len(launch.code) for launch in launches),
        "private": max(launch.private_bytes for launch in launches),
    }
    print(json.dumps({"mesa": mesa, "opencl": opencl, "totals": totals}))


if __name__ == "__main__":
    main()
