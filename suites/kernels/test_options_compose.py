"""Options of the float32 and integer kernels in combinations that nobody declared: right, or refused.

A combination starts from a declared case on a small shape and changes a few options at random, with a fixed
seed. What is built must be right on random matrices, of ours with every hazard checked; what does not go
together must be refused by an error of ours.
"""

from __future__ import annotations

import dataclasses
import random
import re
import typing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.kernel import Kernel
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.kernels.schedule import ORDERS

FAMILY = re.compile(r"^gemm_(?!4xn|8x8_fp16|8xn|4x4_fp16|image|local|globalb|blocked)")
MINE = [kernel for name, kernel in KERNELS.items() if FAMILY.match(name) and "fp16" not in name]
VALUES: dict[str, tuple[Any, ...]] = {
    "alu_order": ORDERS,
    "coord_delay": (-1, 0, 3, 4, 5),
    "threads": (64, 128),
    "quad_b_shfl_mode": (0, 1, 2, 6),
    "k_unroll": (1, 2, 3),
    "initial_acc": (0, 5, (1 << 32) - 1),
    "block": (1, 2),
    "k_count": (0, 3),
    "k_start": (0, 2),
    "component_sync_kk": (0, 3),
}
"""What an option that is no flag may become; others stay as they are."""
TRIES, ENOUGH, CHANGES = 24, 3, 2
"""Combinations at most, those built after which it is enough, and options changed in each."""


def combinations(kernel: Kernel) -> Iterator[Any]:
    """Options of a declared case on a small shape, some of them changed."""
    rng = random.Random(kernel.name)
    kinds = typing.get_type_hints(kernel.options)
    free = [name for name in kinds if name not in "mnk" and (kinds[name] is bool or name in VALUES)]
    for _ in range(TRIES):
        options = kernel.configure({}, rng.choice(kernel.cases).name)
        for name in rng.sample(free, min(CHANGES, len(free))):
            value = not getattr(options, name) if kinds[name] is bool else rng.choice(VALUES[name])
            options = dataclasses.replace(options, **{name: value})
        rows = getattr(
            options, "rows", int(re.findall(r"_(\d)x", kernel.name)[0]) if "x" in kernel.name else 4
        )
        shape = dict(m=rows * 8, n=384 if "x12" in kernel.name else 512, k=48)
        if hasattr(options, "batches"):
            shape = dict(m=64, n=256, k=48, batches=2)
        if getattr(options, "combined_b_height", 0):
            shape["combined_b_height"] = 12
        yield dataclasses.replace(options, **shape)


@pytest.mark.parametrize("kernel", MINE, ids=lambda kernel: kernel.name)
def test_options_compose_or_are_refused(device: Device, lenient: Device, kernel: Kernel) -> None:
    built = 0
    for options in combinations(kernel):
        try:
            build = kernel.build(options)
        except KernelError as error:
            assert "\n" not in str(error)
            continue
        chosen = lenient if kernel.claim == "as-published" else device
        run = conformance.prepare(chosen, kernel, options, np.random.default_rng(1), build=build)
        run.launch()
        assert run.compare().ok, kernel.arguments(options)
        built += 1
        if built == ENOUGH:
            return
    pytest.fail(f"{kernel.name}: {built} of {TRIES} combinations go together")


def test_all_families_are_taken() -> None:
    names = {kernel.name for kernel in MINE}
    assert {
        "gemm_dp4_published",
        "gemm_wide_fp32_published",
        "gemm_4x8_fp32_splitk",
        "gemm_int8_fp32",
    } <= names
    assert len(names) >= 24
