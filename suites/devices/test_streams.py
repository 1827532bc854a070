"""Two command streams of one device: a product whose halves are computed side by side."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.devices import registry
from pytest_qcom.devices.device import Device
from pytest_qcom.devices.runtime import RuntimeDevice
from pytest_qcom.errors import GpuHang, HazardError, LaunchError
from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.kernel import Arrays
from pytest_qcom.kernels.registry import KERNELS
from suites.devices import programs

M, N, K = 64, 512, 64
ROUNDS = 4
OURS = ("gemm_8x8_fp16", {"k_unroll": 2})
PUBLISHED = (
    "gemm_8x8_fp16_waited",
    {
        "split_a": True,
        "split_k_unroll": 2,
        "split_fast_coords": True,
        "split_separate_coords": True,
        "stream_b1": True,
        "donor8_add256_store": True,
        "add256_store_mode": "tight",
        "a_coord_delay": -1,
        "b_coord_delay": -1,
    },
)
"""The schedule that the notes ran in two streams, with every wait."""


@pytest.fixture(scope="module")
def streams() -> Iterator[tuple[RuntimeDevice, RuntimeDevice]]:
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(registry.find("virtual", Path.cwd()).open("strict"))
        assert isinstance(first, RuntimeDevice)
        second = first.stream()
        stack.callback(second.close)
        yield first, second


@pytest.mark.parametrize(("name", "options"), [OURS, PUBLISHED], ids=["ours", "published"])
def test_halves_of_a_product_in_two_streams(
    streams: tuple[Device, Device], name: str, options: dict[str, Any]
) -> None:
    """Rows of A are split, B is uploaded to both; the halves together are the whole product, every round."""
    kernel = KERNELS[name]
    whole = kernel.configure({**options, "m": M, "n": N, "k": K})
    half = kernel.configure({**options, "m": M // 2, "n": N, "k": K})
    inputs = matmul.random(whole, np.random.default_rng(7))
    runs = []
    for index, stream in enumerate(streams):
        rows = {"A": inputs["A"][index * M // 2 : (index + 1) * M // 2], "B": inputs["B"]}
        runs.append(conformance.prepare(stream, replace(kernel, inputs=_given(rows)), half))
    seconds: list[list[float]] = [[], []]
    barrier = threading.Barrier(len(runs))

    def work(index: int) -> None:
        barrier.wait()
        for _ in range(ROUNDS):
            seconds[index].append(runs[index].launch())

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    c = np.concatenate([run.outputs()["C"] for run in runs]).astype(np.float64)
    error = np.abs(c - kernel.oracle(whole, inputs)["C"])
    assert (error <= kernel.tolerance(whole, inputs)["C"]).all()
    assert [len(times) for times in seconds] == [ROUNDS, ROUNDS]
    assert min(min(times) for times in seconds) > 0


def _given(arrays: Arrays) -> Callable[[Any, np.random.Generator], Arrays]:
    return lambda options, generator: arrays


def test_what_one_stream_runs_into_leaves_the_other_alone(streams: tuple[Device, Device]) -> None:
    first, second = streams
    out = second.empty((64,), np.uint32)
    with pytest.raises(HazardError):
        first.launch(programs.early(), "k", [first.empty((64,), np.uint32)], (1, 1, 1), (64, 1, 1))
    second.launch(programs.number(), "k", [out], (1, 1, 1), (64, 1, 1))
    np.testing.assert_array_equal(second.download(out), np.arange(64) + 7)
    with pytest.raises(GpuHang):
        second.launch(programs.endless(), "k", [out], (1, 1, 1), (64, 1, 1))
    again = first.empty((64,), np.uint32)
    first.launch(programs.number(), "k", [again], (1, 1, 1), (64, 1, 1))
    np.testing.assert_array_equal(first.download(again), np.arange(64) + 7)


def test_streams_have_memory_of_their_own(streams: tuple[Device, Device]) -> None:
    tensor = streams[0].upload(np.arange(16, dtype=np.uint32))
    with pytest.raises(LaunchError, match="that virtual does not hold: it is of another device"):
        streams[1].download(tensor)
