"""Random programs of legal words: they end, or with one of our exceptions, and always in time."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from pytest_qcom.errors import DecodeError, QcomError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.decoder import decode
from pytest_qcom.isa.table import OPS
from pytest_qcom.virtual.dispatch import Format
from pytest_qcom.virtual.executor import Executor
from suites.isa.strategies import word_of
from suites.virtual.executor.rig import Memory, aligned, constants, image, launch

END = 0x03000000 << 32
PROGRAMS = 40  # for each seed


def _program(draw: random.Random) -> bytes:
    """Up to a dozen legal words of any entry, branches of a few instructions, an end."""
    words: list[int] = []
    while len(words) < draw.randrange(1, 13):
        word = word_of(draw.choice(OPS), draw)
        try:
            instr = decode(word)
        except DecodeError:
            continue
        if "target" in dict(instr.attrs):
            word = word & ~0xFFFFFFFF | draw.randrange(-8, 8) & 0xFFFFFFFF
        words.append(word)
    return struct.pack(f"<{len(words) + 1}Q", *words, END)


def test_found_a_special_function_right_behind_arithmetic(cache_dir: Path) -> None:
    """Where results are late, the arithmetic's chunk loop was never closed."""
    a = Assembler()
    a.parse("add.u r40.x, r0.x, 1\nrcp r41.x, r0.x\nsct.f16f16 (even)hr0.x, hr10.w, hr0.x, hr22.w, hr54.w")
    a.emit("end")
    executor = Executor(cache_dir=cache_dir, late=lambda dispatch: True)
    assert executor.run(launch(a.program()), Memory()).instructions == 4


def test_found_a_special_function_of_a_displaced_register(cache_dir: Path) -> None:
    """Where results are late, its operand was taken for a register of that number."""
    target = aligned((64,), np.float32)
    memory = Memory()
    a = Assembler()
    a.parse(
        "mov.s16s16 hr1.x, 5\nmov.u32u32 r2.x, 0x40800000\nmov.u32u32 r10.x, c0.x\nmov.u32u32 r10.y, c0.y"
    )
    a.parse("(rpt5)nop\nmova a0.x, hr1.x\n(rpt5)nop\n(rpt5)nop\nrcp r4.x, r<a0.x + 3>")
    a.parse("(ss)add.f r5.x, r4.x, r4.x\n(rpt5)nop\nstg.u32 g[r10.x], r5.x, 1\nend")
    executor = Executor(cache_dir=cache_dir, late=lambda dispatch: True)
    executor.run(launch(a.program(), constants(memory.add(target))), memory)
    assert target[0] == 0.5


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_end(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What they hit is reported; the guard bytes around the only mapped memory stay."""
    draw = random.Random(seed)
    executor = Executor(budget=1 << 12, cache_dir=tmp_path_factory.getbasetemp() / "fuzz")
    guarded = aligned((3, 4096), np.uint8)
    texture = guarded[1].view(np.float16).reshape(8, 64, 4)
    bound = (image(texture, Format.RGBA16_FLOAT),)
    ended = 0
    for _ in range(PROGRAMS):
        dispatch = launch(
            _program(draw), merged=draw.random() < 0.2, thread128=draw.random() < 0.3, shared_bytes=1024,
            private_bytes=512, constant_demotion=draw.random() < 0.5, textures=bound, images=bound,
        )  # fmt: skip
        try:
            executor.run(dispatch, Memory([guarded[1]]))
            ended += 1
        except QcomError as error:
            assert "pc" in error.facts or "group" in error.facts, error
    assert not guarded[0].any()
    assert not guarded[2].any()
    assert 0 < ended < PROGRAMS
