"""The register tables against tinygrad's bindings, which are generated from Mesa's register database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinygrad.runtime.autogen import mesa

from pytest_qcom.virtual import registers as regs
from pytest_qcom.virtual.dispatch import Format
from pytest_qcom.virtual.pm4 import Event, Opcode

NAMED = [word for name, word in vars(regs).items() if isinstance(word, regs.Word) and name.isupper()]
PACKETS = {
    "LOAD_STATE_0": "CP_LOAD_STATE6_0",
    "WAIT_REG_MEM_0": "CP_WAIT_REG_MEM_0",
    "REG_TO_MEM_0": "CP_REG_TO_MEM_0",
    "EVENT_WRITE_0": "CP_EVENT_WRITE_0",
    "SET_MARKER_0": "A6XX_CP_SET_MARKER_0",
}
REGISTERS = [word for word in NAMED if word.name.startswith(("SP_", "TPL1_", "CP_ALWAYS"))]
OWN_NAMES = {"COUNT", "UNITS", "BITS"}  # of registers whose whole value the database gives no field name


def _check(word: regs.Word, prefix: str) -> int:
    checked = 0
    for field in word.fields:
        if field.name in OWN_NAMES:
            continue
        name = f"{prefix}_{field.name}"
        mask = getattr(mesa, f"{name}__MASK", None) or getattr(mesa, name)
        assert field.mask == mask, name
        checked += 1
    return checked


@pytest.mark.parametrize("word", REGISTERS, ids=lambda word: word.name)
def test_registers_are_mesas(word: regs.Word) -> None:
    assert word.address == getattr(mesa, f"REG_A6XX_{word.name}")
    assert _check(word, f"A6XX_{word.name}") == sum(field.name not in OWN_NAMES for field in word.fields)


@pytest.mark.parametrize("name", PACKETS)
def test_packet_dwords_are_mesas(name: str) -> None:
    word = getattr(regs, name)
    assert _check(word, PACKETS[name]) == len(word.fields) > 0


@pytest.mark.parametrize("word", regs.DESCRIPTOR, ids=lambda word: word.name)
def test_descriptor_dwords_are_mesas(word: regs.Word) -> None:
    assert _check(word, f"A6XX_{word.name}") == len(word.fields) > 0


def test_opcodes_events_and_formats_are_mesas() -> None:
    assert {code.name: code.value for code in Opcode} == {
        code.name: getattr(mesa, code.name) for code in Opcode
    }
    assert {event.name: event.value for event in Event} == {
        event.name: getattr(mesa, event.name) for event in Event
    }
    for form in Format:
        bits = [str(form.bits)] * form.components
        assert form.value == getattr(mesa, f"FMT6_{'_'.join(bits)}_{form.kind}")
        assert form.texel_bytes == form.bits // 8 * form.components


def test_every_address_and_every_bit_has_one_meaning() -> None:
    assert len({word.name for word in regs.REGISTERS.values()}) == len(regs.REGISTERS)
    for word in [*regs.REGISTERS.values(), *NAMED, *regs.DESCRIPTOR, *regs.SAMPLER]:
        if word.name == "TEX_CONST_6":  # of planar images it is the pitch of planes
            assert word["PLANE_PITCH"].mask & word["MIN_LOD_CLAMP"].mask == 0xF00
            continue
        assert sum(field.mask for field in word.fields) == (word.defined if word.fields else 0)


@given(st.sampled_from([field for word in NAMED for field in word.fields]), st.integers(0, 2**32 - 1))
def test_put_is_the_inverse_of_get(field: regs.Field, word: int) -> None:
    assert field.put(field.get(word)) == word & field.mask
    assert word & ~field.mask | field.put(field.get(word)) == word


def test_the_only_shifts_are_those_of_the_database() -> None:
    shifted = {(word.name, field.name): field.shift for word in NAMED for field in word.fields if field.shift}
    assert shifted == {
        ("SP_CS_PVT_MEM_PARAM", "MEMSIZEPERITEM"): 9,
        ("SP_CS_PVT_MEM_SIZE", "TOTALPVTMEMSIZE"): 12,
        ("SP_CS_PVT_MEM_STACK_OFFSET", "OFFSET"): 11,
        ("SP_CS_CONST_CONFIG", "CONSTLEN"): 2,
    }
