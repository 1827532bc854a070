"""What the executor suites share: launches over numpy buffers, whose addresses are GPU addresses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from pytest_qcom.virtual.dispatch import Dispatch, Execution, Image
from pytest_qcom.virtual.executor import Executor

Array = NDArray[Any]
UNUSED = 252


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Zeros at an address that is a multiple of 64, as KGSL's pages are."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    zeros: Array = raw[start : start + size].view(dtype).reshape(shape)
    return zeros


@dataclass
class Memory:
    """A table of numpy arrays in place of KGSL's."""

    arrays: list[Array] = field(default_factory=list)

    def add(self, array: Array) -> int:
        """Maps ``array``; its address."""
        self.arrays.append(array)
        return int(array.ctypes.data)

    def ranges(self) -> NDArray[np.uint64]:
        spans = sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in self.arrays)
        return np.array(spans, np.uint64).reshape(-1, 2)

    def describe(self, address: int) -> str:
        for number, array in enumerate(self.arrays):
            offset = address - array.ctypes.data
            if -64 <= offset < array.nbytes + 64:
                return f"byte {offset} of array {number}"
        return "far from every array"


def constants(*values: int) -> bytes:
    """A constant file: 64-bit values, two scalars each."""
    return np.array(values, np.uint64).tobytes()


def launch(program: Program | bytes, constant_file: bytes = b"", **changes: Any) -> Dispatch:
    """One workgroup of one wave, group id in r48.x, local id in r0.x; ``changes`` are launch fields."""
    code = program if isinstance(program, bytes) else program.encode()
    wave = 128 if changes.get("thread128") else 64
    fields: dict[str, Any] = {
        "code": code,
        "code_address": 0,
        "entry": 0,
        "constants": constant_file,
        "textures": (),
        "images": (),
        "local_size": (wave, 1, 1),
        "groups": (1, 1, 1),
        "thread128": False,
        "fregs": 48,
        "hregs": 48,
        "merged": False,
        "branchstack": 0,
        "shared_bytes": 0,
        "private_bytes": 0,
        "private_base": 0,
        "constant_demotion": True,
        "group_id_regid": 192,
        "local_size_regid": UNUSED,
        "group_offset_regid": UNUSED,
        "local_id_regid": 0,
        "linear_local_id_regid": UNUSED,
    }
    return Dispatch(**{**fields, **changes})


def lane_address(
    a: Assembler, register: int, lane: str, base: str, shift: int, scratch: int = 180, settled: bool = False
) -> None:
    """Emits: address in ``register`` and the next = constant pair ``base`` + (``lane`` << ``shift``).

    ``settled``: with the waits between that late results need.
    """
    low, high, work = name(register), name(register + 1), name(scratch)
    file, component = base.split(".")
    upper = f"{file}.{'xyzw'['xyzw'.index(component) + 1]}"
    a.emit("shl.b", work, lane, shift)
    for operation, *operands in (
        ("add.u", low, base, work),
        ("cmps.u.lt", work, low, base),
        ("add.u", high, upper, work),
    ):
        if settled:
            a.emit("nop", rpt=5)
        a.emit(operation, *operands)


def name(number: int, half: bool = False) -> str:
    """The name of scalar register ``number``."""
    return f"{'hr' if half else 'r'}{number // 4}.{'xyzw'[number % 4]}"


def image(array: Array, form: Any, swizzle: tuple[int, int, int, int] = (0, 1, 2, 3)) -> Image:
    """The descriptor of an array of shape (height, width, 4)."""
    height, width, _ = array.shape
    return Image(array.ctypes.data, width, height, array.strides[0], form, swizzle)


def run(executor: Executor, dispatch: Dispatch, memory: Memory) -> Execution:
    """Runs a launch."""
    return executor.run(dispatch, memory)
