"""Waves in flight: the published table, and Mesa's own functions on the same numbers."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import tinymesa
from tinygrad.runtime.autogen import mesa
from tinygrad.runtime.support.compiler_mesa import IR3Compiler, rzalloc

from pytest_qcom.analysis.occupancy import (
    Limiter,
    branchstack_waves,
    local_waves,
    occupancy,
    register_cost,
    register_waves,
)
from pytest_qcom.errors import LaunchError

THREAD64 = {range(1, 13): 16, range(13, 14): 14, range(14, 17): 12, range(17, 20): 10, range(20, 25): 8}
THREAD64 |= {range(25, 33): 6, range(33, 49): 4, range(49, 97): 2}
THREAD128 = {6: 16, 8: 12, 12: 8, 16: 6, 24: 4, 25: 2, 48: 2, 49: 0}


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    """Mesa, for functions that tinygrad's bindings leave out."""
    return ctypes.CDLL(str(tinymesa.libtinymesa))


@pytest.fixture(scope="module")
def compiler() -> IR3Compiler:
    return IR3Compiler("a630")


def variant(compiler: IR3Compiler, local: tuple[int, int, int], shared: int, branchstack: int) -> Any:
    made = rzalloc(
        mesa.struct_ir3_shader_variant, type=mesa.MESA_SHADER_COMPUTE, compiler=ctypes.pointer(compiler.cc)
    )
    made.contents.shared_size = shared
    made.contents.branchstack = branchstack
    for axis in range(3):
        made.contents.local_size[axis] = local[axis]
    return made


def test_published_table_of_register_waves() -> None:
    for costs, waves in THREAD64.items():
        assert {register_waves(cost, thread128=False) for cost in costs} == {waves}
    for cost, waves in THREAD128.items():
        assert register_waves(cost, thread128=True) == waves


@pytest.mark.parametrize("thread128", [False, True])
def test_register_waves_are_mesas(compiler: IR3Compiler, library: ctypes.CDLL, thread128: bool) -> None:
    for cost in range(1, 97):
        expected = library.ir3_get_reg_dependent_max_waves(ctypes.byref(compiler.cc), cost, thread128)
        assert register_waves(cost, thread128) == min(expected, 16), (
            cost
        )  # the chip bounds it elsewhere in Mesa


@pytest.mark.parametrize("thread128", [False, True])
def test_other_waves_are_mesas(compiler: IR3Compiler, library: ctypes.CDLL, thread128: bool) -> None:
    random = np.random.default_rng(1)
    for _ in range(300):
        local = (int(random.integers(1, 129)), int(random.integers(1, 9)), 1)
        shared, branchstack = int(random.integers(0, 32769)), int(random.integers(0, 65))
        made = variant(compiler, local, shared, branchstack)
        expected = library.ir3_get_reg_independent_max_waves(made, thread128)
        ours = min(local_waves(shared, local[0] * local[1], thread128), branchstack_waves(branchstack))
        assert ours == expected, (local, shared, branchstack)
        mesa.ralloc_free(made)


def test_cost_counts_two_half_registers_as_one() -> None:
    assert register_cost(10, 28) == 24
    assert register_cost(8, 25) == 21
    assert register_cost(10, 28, merged=True) == 14
    assert register_cost(20, 28, merged=True) == 20


def test_occupancy_names_what_binds() -> None:
    assert occupancy(10, 28, thread128=True).limiter is Limiter.REGISTERS
    assert occupancy(10, 28, thread128=True).waves == 4
    assert occupancy(4, 0, thread128=False).limiter is Limiter.CHIP
    assert occupancy(4, 0, thread128=False).fibers == 1024
    assert occupancy(4, 0, thread128=False, branchstack=16).limiter is Limiter.BRANCHSTACK
    bound = occupancy(4, 0, thread128=False, fibers=64, shared_bytes=16384)
    assert (bound.limiter, bound.waves) == (Limiter.LOCAL_MEMORY, 4)


def test_nothing_fits() -> None:
    message = (
        "launch in THREAD128 with fregs=49, hregs=0, branchstack=0, 0 bytes of local memory: the registers "
        "of the Adreno 630 holds no wave; declare less or use THREAD64"
    )
    with pytest.raises(LaunchError) as error:
        occupancy(49, 0, thread128=True)
    assert str(error.value) == message
