"""The sweep over partitions of the cache of descriptors (SP_CS_TSIZE, SP_CS_USIZE), timed on any device.

The notes found every pair alike in time and in output, but for a TSIZE of 1: zeros, of a kernel with two
textures. The virtual device has no such cache; there every pair is alike.
"""

from __future__ import annotations

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.devices.device import Device
from pytest_qcom.devices.runtime import RuntimeDevice
from pytest_qcom.kernels.registry import KERNELS

PAIRS = ((128, 64), (1, 64), (64, 1), (32, 32), (64, 32), (128, 32), (64, 64), (2, 64), (4, 64))
TINYGRAD = PAIRS[0]
TEXTURES = 2
ROUNDS = 3
SPREAD = 0.1
"""What clocks move between two rounds on hardware."""


@pytest.fixture(scope="module")
def sweep(device: Device) -> dict[tuple[int, int], tuple[float, bool]]:
    """(best device seconds, whether C is right) of a product by pair of partitions."""
    if not isinstance(device, RuntimeDevice):
        pytest.skip("registers of a launch are set where tinygrad's runtime is")
    kernel = KERNELS["gemm_4xn_fp16"]
    options = kernel.configure({"m": 64, "n": 512, "k": 64})
    found = {}
    for pair in PAIRS:
        run = conformance.prepare(device, kernel, options, np.random.default_rng(5))
        with device.partitions(*pair):
            seconds = min(run.launch() for _ in range(ROUNDS))
        found[pair] = seconds, run.compare().ok
    return found


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def test_a_pair_is_as_right_and_fast_as_tinygrads(
    device: Device, sweep: dict[tuple[int, int], tuple[float, bool]], pair: tuple[int, int]
) -> None:
    seconds, right = sweep[pair]
    assert right == (pair[0] >= TEXTURES or device.mode != "hardware")
    if right:
        assert seconds == pytest.approx(sweep[TINYGRAD][0], rel=SPREAD if device.mode == "hardware" else 1e-9)


def test_partitions_are_tinygrads_again(device: Device) -> None:
    if not isinstance(device, RuntimeDevice):
        pytest.skip("registers of a launch are set where tinygrad's runtime is")
    with pytest.raises(ZeroDivisionError), device.partitions(1, 1):
        raise ZeroDivisionError
    assert device._runtime.forced == {}


@pytest.mark.parametrize("pair", [(3, 64), (1, 64)])
def test_a_launch_states_its_partitions(pair: tuple[int, int]) -> None:
    """It reaches the command stream: too few slots are a finding that counts, more a harmless one."""
    from pytest_qcom.analysis.clock import Clock
    from pytest_qcom.devices import virtual
    from pytest_qcom.virtual import kgsl

    machine = virtual.gpu("strict")
    node = kgsl.Node(machine)
    device = RuntimeDevice("virtual", "Adreno 630", Clock.mode, opening=lambda: kgsl.installed(node))
    kernel = KERNELS["gemm_4xn_fp16"]
    run = conformance.prepare(device, kernel, kernel.configure({"m": 16, "n": 512, "k": 32}))
    with device.partitions(*pair):
        run.launch()
    found = {
        (finding.value, finding.harmless) for finding in machine.findings if finding.register == "SP_CS_TSIZE"
    }
    device.close()
    assert found == {(pair[0], pair[0] > TEXTURES)}
