"""A tinygrad program for ``qcom exec``: where the machine code that tinygrad gets is not what was meant.

Usage: tinygrad_differences.py OUT.npz
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from tinygrad import Context, Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType, KernelInfo

from pytest_qcom.errors import HazardError

ANGLES = np.array([1.0, 3.0, 100.0, 1e3, 1e4, 1e5, 524287.5, 1e6, -1e6], dtype=np.float32)
FLOATS = np.array([1 + 2**-11 + 2**-12, -(1 + 2**-11 + 2**-12), 65519.0, 70000.0, 1.0], dtype=np.float32)
INTEGERS = np.array([19958399, 16777219, -16777219, 7], dtype=np.int32)
HALVES = np.array([6.2e-5, 6e-5, 1e-5, 2.0], dtype=np.float16)
SUMMANDS = np.array([1, 2, 3, 4, 5], dtype=np.float32)


def kept_sum(total: UOp, values: UOp) -> UOp:
    """total[0] = 0, then total[0] += values[i]: each step loads what the one before stored."""
    i = UOp.range(values.shape[0], 0, axis_type=AxisType.REDUCE)
    total = total[0].set(0.0)
    total = total[0].set(total.after(i)[0] + values[i], end=i)
    return total.sink(arg=KernelInfo(name="kept_sum", opts_to_apply=()))


def emulated_half() -> str:
    """What the checker says of a float16 kernel in tinygrad's emulation of the type."""
    with Context(EMULATED_DTYPES="half"):
        try:
            (Tensor([1, 2, 3, 4], dtype=dtypes.half) + Tensor([1, 2, 3, 4], dtype=dtypes.ushort)).realize()
        except HazardError as error:
            return str(error)
    return ""


def main(out: str) -> None:
    results: dict[str, Any] = {
        "sin": Tensor(ANGLES).sin().numpy(),
        "half": Tensor(FLOATS).half().numpy(),
        "float": Tensor(INTEGERS).cast(dtypes.float).numpy(),
        "log2": Tensor(HALVES).log2().numpy(),
        "sum": Tensor.custom_kernel(Tensor.empty(1), Tensor(SUMMANDS), fxn=kept_sum)[0].numpy(),
        "emulated": np.array(emulated_half()),
    }
    np.savez(out, **results)


if __name__ == "__main__":
    main(sys.argv[1])
