"""NIR's arithmetic, compiled by Mesa: the executor gives what NIR's own constant folding does.

Sources are drawn where NIR defines the result. Floats may differ as the A630's functions and its flushing do;
integers and conditions are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_qcom.virtual.dispatch import Format, Image
from pytest_qcom.virtual.executor import Executor
from suites.isa.nir_alu import FLOAT, OPERATIONS, UNEQUAL, Operation, folded, program, unequal
from suites.virtual.executor.rig import Array, Memory, aligned, launch

LANES = 64
EDGES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
TOLERANCE = {16: 2.0**-9, 32: 2.0**-18}
"""Of the largest of 1, the result and, where products are added, a product: some units in the last place."""


def _integers(rng: np.random.Generator) -> Array:
    """Anything, small numbers, edges."""
    kinds = rng.integers(0, 3, (LANES, 4))
    words = [
        rng.integers(0, 1 << 32, kinds.shape, np.uint64), rng.integers(0, 40, kinds.shape),
        rng.choice(EDGES, kinds.shape),
    ]  # fmt: skip
    return np.choose(kinds, words).astype(np.uint32)


def _drawn(rng: np.random.Generator, operation: Operation, number: int) -> Array:
    """Words of one source, four a fiber."""
    operand, name = operation.sources[number], operation.name
    size = operation.bits or 32
    words = _integers(rng)
    if operand.kind == FLOAT:
        floats = rng.uniform(-8, 8, words.shape)
        if name.startswith("f2u") or name in ("flog2", "fsqrt", "frsq", "fpow"):
            floats = np.abs(floats)
        if operand.bits == 16 or "half" in name or "f2f16" in name:
            floats = floats.astype(np.float16)  # which 16 bits hold
        wide: Array = floats.astype(np.float32).view(np.uint32)
        return floats.view(np.uint16).astype(np.uint32) if operand.bits == 16 else wide
    if (name == "bitfield_insert" and number != 1) or ("bitfield_extract" in name and number):
        return words % (size // 2)  # the first source shares its words with the fourth
    if name in ("udiv", "idiv", "umod", "imod", "irem") and number:
        return words % 100 + 1
    if name == "ldexp" or name.startswith(("i2f", "u2f")):
        return words % 20 if name == "ldexp" else words % 2000
    if name.startswith("unpack_half"):
        return words & 0x83FF83FF | 0x3C003C00
    if name == "pack_uvec4_to_uint":
        return words & 0xFF
    return words


def _components(operation: Operation, buffers: list[Array], lane: int) -> list[list[int]]:
    """The bits of each component of each source."""
    found = []
    for number, operand in enumerate(operation.sources):
        words = [int(word) for word in buffers[1 + number % 3][lane]]
        values = []
        for place in range(operand.count):
            word = words[place % 4] | words[(place + 1) % 4] << 32
            values.append(word & (1 << operand.bits) - 1)
        found.append(values)
    return found


def _results(operation: Operation, buffer: Array) -> Array:
    """Each fiber's components, as integers."""
    count, wide = operation.result.count, operation.result.bits == 64
    step = 1 << (count * (1 + wide) - 1).bit_length()
    rows = buffer.reshape(-1)[: LANES * step].reshape(LANES, step).astype(np.uint64)
    if wide:
        rows = rows[:, ::2] | rows[:, 1::2] << np.uint64(32)
    return rows[:, :count] & np.uint64((1 << operation.result.bits) - 1)


def _close(operation: Operation, found: int, want: int) -> bool:
    bits = operation.result.bits
    if found == want:
        return True
    if operation.result.kind != FLOAT or bits not in TOLERANCE:
        return False
    left, right = (_float(value, bits) for value in (found, want))
    scale = max(1.0, abs(right))
    if operation.name.startswith(("fdot", "fdph", "ffma", "flrp")):
        scale = max(scale, 8.0**2)
    return bool(np.isnan(left) and np.isnan(right)) or abs(left - right) <= TOLERANCE[bits] * scale


def _float(value: int, bits: int) -> float:
    words, floats = (np.uint16, np.float16) if bits == 16 else (np.uint32, np.float32)
    return float(np.array([value], words).view(floats)[0])


def _run(executor: Executor, operation: Operation) -> None:
    rng = np.random.default_rng([operation.code, operation.bits])
    found = program(operation)
    buffers = [aligned((LANES, 4 if place else 8), "uint32") for place in range(4)]
    used: dict[int, Any] = {}
    for number in range(len(operation.sources)):
        used.setdefault(1 + number % 3, _drawn(rng, operation, number))
    for place, words in used.items():
        buffers[place][...] = words
    images = tuple(Image(b.ctypes.data, b.size, 1, b.nbytes, Format.R32_UINT) for b in buffers)
    shader = found.shader
    dispatch = launch(
        shader.code, found.constants, fregs=shader.fregs, hregs=shader.hregs, local_size=(LANES, 1, 1),
        group_id_regid=found.group_id, local_id_regid=found.local_id, images=images,
        private_bytes=shader.private_bytes,
    )  # fmt: skip
    executor.run(dispatch, Memory(list(buffers)))
    if unequal(operation) is not None:
        return
    results = _results(operation, buffers[0])
    for lane in range(LANES):
        sources = _components(operation, buffers, lane)
        want = folded(operation, sources)
        for got, right in zip(results[lane].tolist(), want, strict=True):
            shown = [[hex(value) for value in values] for values in sources]
            assert _close(operation, got, right), (operation, lane, hex(got), hex(right), shown)


SHORT = 4
"""One of so many operations is for every run."""


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(
            operation, id=f"{operation.name}-{operation.bits}", marks=[pytest.mark.long] * bool(n % SHORT)
        )
        for n, operation in enumerate(OPERATIONS)
    ],
)
def test_operations(executor: Executor, operation: Operation) -> None:
    _run(executor, operation)


def test_most_are_held_against_the_folding() -> None:
    held = [operation for operation in OPERATIONS if unequal(operation) is None]
    assert len(held) > 450 and len(OPERATIONS) - len(held) < 120
    known = {operation.name for operation in OPERATIONS}
    known |= {f"{operation.name}:{operation.bits}" for operation in OPERATIONS}
    assert set(UNEQUAL) <= known
