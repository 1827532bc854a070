"""What tinygrad 0.14.0's command streams say that the hardware ignores or misreads: exactly this.

A tinygrad that corrects one of these fails here, so that the correction is noticed: take its line out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from suites.virtual import tinygrad_streams

UNSHIFTED = [
    # Values that the register database has stored shifted (shr), written as they are.
    "SP_CS_CONST_CONFIG.CONSTLEN = 0x100: declares 0 vec4 of constants, 256 are loaded; needs 0x140",
    "SP_CS_PVT_MEM_STACK_OFFSET.OFFSET = 0x1000: puts the call stack 8388608 bytes into private "
    "memory of 16384 "
    "bytes; needs 0x2",
]
HARMLESS = [
    "SP_CS_TSIZE.COUNT = 0x80: is more than the 1 slots of SP_CS_CONFIG.NTEX; needs 0x1",
    "SP_CS_USIZE.COUNT = 0x40: is more than the 1 slots of SP_CS_CONFIG.NUAV; needs 0x1",
]
MESA = [
    *UNSHIFTED,
    # At 512 bytes of private memory a fiber, the unshifted value no longer fits its field.
    "SP_CS_PVT_MEM_STACK_OFFSET.undefined = 0x100000: sets undefined bits 0x100000",
    # 32 textures have 32 samplers, one more than the field counts: the carry lands in NUAV.
    "SP_CS_CONFIG.NSAMP = 0x2404100: declares 0 slots, 32 are loaded",
    "SP_CS_INSTR_SIZE.UNITS = 0x18f: preloads more than the instruction cache, 64 units of 128 "
    "bytes; needs 0x40",
]
MESA_HARMLESS = [
    *HARMLESS,
    "SP_CS_CONST_CONFIG_0.dead write = 0xccc0cf: is overwritten before the launch that it was for; "
    "needs 0xfcfcc0",
    "CP_LOAD_STATE6.NUM_UNIT of textures = 0x10: brings 16 of 32 texture descriptors; the rest come from "
    "SP_CS_TEXMEMOBJ_BASE; needs 0x20",
    "TEX_CONST_0.undefined = 0x20806888: sets undefined bits 0x8; needs 0x20806880",
]
OPENCL_HARMLESS = [
    *HARMLESS,
    # A second sampler is loaded behind each one of a binary, and it is empty.
    *(
        f"TEX_SAMP_0.{field} = 0x0: is no clamp to a border of zeros, the only one that is modelled; "
        f"needs {needed}"
        for field, needed in (("WRAP_S", "0x60"), ("WRAP_T", "0x300"))
    ),
    "TEX_CONST_0.undefined = 0x18806888: sets undefined bits 0x8; needs 0x18806880",
]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What the program of :mod:`suites.virtual.tinygrad_streams` prints."""
    command = [sys.executable, "-m", "suites.virtual.tinygrad_streams"]
    root = tinygrad_streams.SOURCE.parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=100)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def lines(findings: list[dict[str, Any]], harmless: bool) -> list[str]:
    from pytest_qcom.virtual.findings import Finding

    return sorted(str(Finding(**finding)) for finding in findings if finding["harmless"] == harmless)


def test_the_programs_reach_what_they_are_for(found: dict[str, Any]) -> None:
    assert found["totals"] == {"textures": 32, "code": 51072, "private": 512}


def test_streams_of_mesas_compiler(found: dict[str, Any]) -> None:
    assert lines(found["mesa"], harmless=False) == sorted(MESA)
    assert lines(found["mesa"], harmless=True) == sorted(MESA_HARMLESS)


def test_streams_of_cl_binaries(found: dict[str, Any]) -> None:
    assert lines(found["opencl"], harmless=False) == sorted(UNSHIFTED)
    assert lines(found["opencl"], harmless=True) == sorted(OPENCL_HARMLESS)
