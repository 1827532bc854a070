"""The chip's facts: Mesa's own records hold what they hold, and every fact says where it comes from."""

from __future__ import annotations

from typing import Any

import pytest
from tinygrad.runtime.autogen import mesa

from pytest_qcom.chip import A630, Certainty, Fact
from suites.analysis.legalizer import compiler

TINYMESA = {
    "cores.shader_processors": lambda info, cc: info.num_sp_cores,
    "waves.fibers": lambda info, cc: info.threadsize_base,
    "waves.per_sp": lambda info, cc: info.max_waves,
    "waves.granularity": lambda info, cc: info.wave_granularity,
    "waves.fibers_per_sp": lambda info, cc: info.fibers_per_sp,
    "waves.branchstack": lambda info, cc: cc.branchstack_size,
    "waves.workgroup": lambda info, cc: cc.max_variable_workgroup_size,
    "registers.vec4": lambda info, cc: info.a6xx.reg_size_vec4,
    "registers.predicates": lambda info, cc: cc.num_predicates,
    "memories.local_bytes": lambda info, cc: info.cs_shared_mem_size,
    "memories.constant_vec4": lambda info, cc: cc.max_const_compute,
    "memories.constant_unit": lambda info, cc: cc.const_upload_unit,
    "memories.instruction_cache": lambda info, cc: info.a6xx.instr_cache_size * 128,
    "memories.private_align": lambda info, cc: cc.pvtmem_per_fiber_align,
    "code.align": lambda info, cc: cc.instr_align,
    "delays.alu_to_alu": lambda info, cc: cc.delay_slots.alu_to_alu,
    "delays.non_alu": lambda info, cc: cc.delay_slots.non_alu,
    "delays.mad_addend": lambda info, cc: cc.delay_slots.cat3_src2_read,
}


@pytest.fixture(scope="module")
def info() -> Any:
    return mesa.fd_dev_info(compiler().dev_id)


@pytest.mark.parametrize("path", TINYMESA)
def test_facts_are_mesas(info: Any, path: str) -> None:
    fact = dict(A630.facts())[path]
    assert fact.value == TINYMESA[path](info, compiler().cc)
    assert fact.certainty is Certainty.MEASURED


def test_every_fact_has_a_source() -> None:
    facts = dict(A630.facts())
    assert len(facts) > 60
    assert all(isinstance(fact, Fact) and len(fact.source) > 5 for fact in facts.values())


def test_chip_id_is_the_compilers() -> None:
    assert A630.chip_id.value == compiler().dev_id.chip_id


def test_choices_are_named_once_and_found() -> None:
    names = [choice.name for choice in A630.choices]
    assert len(set(names)) == len(names)
    assert A630.choice("mad-rounding").certainty is Certainty.DOCUMENTED
    with pytest.raises(KeyError):
        A630.choice("no-such")


def test_clock_follows_from_the_measured_peak() -> None:
    cores = A630.cores
    lanes = cores.shader_processors.value * cores.issue_partitions.value * cores.lanes.value
    assert A630.rates.mad_half64.value == pytest.approx(2 * lanes * A630.clocks.core.value, rel=1e-3)
