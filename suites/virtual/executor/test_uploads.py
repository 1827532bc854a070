"""Uniform buffers copied to the constant file by the shader, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_qcom.errors import GpuFault, RaceError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.virtual.dispatch import DescriptorSet, Uniforms
from pytest_qcom.virtual.executor import Executor
from suites.virtual.executor.rig import Array, Memory, aligned, constants, lane_address, launch

LANES, PLACE, VECTORS = 64, 40, 6  # the first constant, and how many vec4


def _run(executor: Executor, text: str, place: int = PLACE, **fields: Any) -> Array:
    """The constants from PLACE on as all fibers read them after ``text``; a1.x is ``place``."""
    memory: Memory = fields.pop("memory")
    target = aligned((LANES, 32), "uint32")
    file = constants(memory.add(target)).ljust(512, b"\xaa")
    a = Assembler()
    lane_address(a, 40, "r0.x", "c0.x", 7, settled=True)
    a.parse(f"mova1 a1.x, {place}\nmov.u32u32 r3.x, 2\nmov.u32u32 r3.y, 1\n(rpt5)nop")
    a.parse(f"{text}\n(sy)(rpt5)nop")
    for vector in range(VECTORS):
        a.parse(f"(rpt3)mov.u32u32 r4.x, (r)c{PLACE // 4 + vector}.x\n(rpt5)nop")
        a.parse(f"stg.u32 g[r10.x+{16 * vector}], r4.x, 4\n(ss)(rpt5)nop")
    a.emit("end")
    executor.run(launch(a.program(), file, local_size=(LANES, 1, 1), **fields), memory)
    return target[:, : 4 * VECTORS]


@pytest.mark.parametrize("form", ["imm", "uniform", "nonuniform.base2"])
@pytest.mark.parametrize("count", [1, 3, VECTORS])
def test_uploads(machine: Executor, form: str, count: int) -> None:
    """From vec4 number 2 on, zeros beyond the buffer; constants behind stay as they are."""
    rng = np.random.default_rng(count)
    arrays = [aligned((4 * size,), "uint32") for size in (9, 6)]
    for array in arrays:
        array[...] = rng.integers(0, 1 << 32, array.shape, np.uint64)
    buffers = tuple(Uniforms(array.ctypes.data, array.nbytes) for array in arrays)
    sets = (None, None, DescriptorSet((), buffers))
    slot = "1" if form == "imm" else "r3.y"
    found = _run(
        machine, f"ldc.{count}.k.{form} c[a1.x], {'2' if count == 1 else 'r3.x'}, {slot}",
        memory=Memory(list(arrays)), uniforms=buffers, sets=sets,
    )  # fmt: skip
    source = np.concatenate([arrays[1][8:], np.zeros(99, np.uint32)])
    want = np.full(4 * VECTORS, 0xAAAAAAAA, np.uint32)
    want[: 4 * count] = source[: 4 * count]
    assert np.array_equal(found, np.tile(want, (LANES, 1)))


def test_what_goes_wrong(executor: Executor) -> None:
    array = aligned((64,), "uint32")
    bound = (Uniforms(array.ctypes.data, array.nbytes), Uniforms(1 << 40, 512))
    wrong = {
        ("ldc.1.k.imm c[a1.x], 0, 2", PLACE): "slot 2 is not bound: the launch has 2 uniform buffers",
        ("ldc.1.k.imm c[a1.x], 3, 1", PLACE): f"4 bytes of a uniform buffer at {(1 << 40) + 48:#x} are not",
        ("ldc.2.k.imm c[a1.x], 0, 0", 2060): "constant 2060 is outside of the constant file",
    }
    for (text, place), message in wrong.items():
        with pytest.raises(GpuFault) as caught:
            _run(executor, text, place, memory=Memory([array]), uniforms=bound)
        assert message in str(caught.value)


def test_races(cache_dir: Path) -> None:
    """A workgroup writes the uniform buffer that others copy."""
    array = aligned((64,), "uint32")
    low, high = (int(word) for word in np.array([array.ctypes.data], np.uint64).view(np.uint32))
    text = f"mov.u32u32 r8.x, {low}\nmov.u32u32 r8.y, {high}\n(rpt5)nop\nstg.u32 g[r8.x], r0.x, 1"
    with pytest.raises(RaceError, match=r"\(ldc\.2\.k.* of workgroup .*reads what .*\(stg\.u32 .*wrote"):
        _run(
            Executor(cache_dir=cache_dir, races=True), f"ldc.2.k.imm c[a1.x], 0, 0\n{text}",
            memory=Memory([array]), uniforms=(Uniforms(array.ctypes.data, array.nbytes),), groups=(3, 1, 1),
        )  # fmt: skip
