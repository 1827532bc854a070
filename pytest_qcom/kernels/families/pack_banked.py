"""A float image whose texels are four rows of one k, packed into half rows; in UOps.

Texel (k, y) of the image holds rows 4 y to 4 y + 3. Fibers of a workgroup take consecutive vec4 of the packed
rows and store each as two words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul, uops
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.uops import THREADS, Array

NAME = "pack_banked"
_BYTES = 6  # of an element: a float read, a half written


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the packing: the result is (m, k), both multiples of 4, m k one of 512.

    ``constant``: ones are stored instead, which tells the cost of the stores.
    """

    m: int = 192
    k: int = 768
    constant: bool = False


def build(options: Options) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: a shape that is not made of whole workgroups.
    """
    m, k = options.m, options.k
    if min(m, k) < 1 or m % 4 or k % 4 or m * k % (4 * THREADS):
        raise KernelError(f"{NAME}: {m} x {k}; give multiples of 4 whose product is one of {4 * THREADS}")
    arrays = [Array("O", (m, k), "float16", written=True)]
    if not options.constant:
        arrays.append(Array("X", (m // 4, k, 4), "float32", image=True))
    return uops.compile_uops(NAME, _program(options, arrays), arrays, 1e-9 * _BYTES * m * k)


def _program(options: Options, arrays: list[Array]) -> Any:
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import UOp

    output, *inputs = uops.parameters(arrays)
    fiber = UOp.special(options.m * options.k // (4 * THREADS), "gidx0") * THREADS + UOp.special(
        THREADS, "lidx0"
    )
    if options.constant:
        return uops.sink(NAME, uops.put(output, fiber, [UOp.const(1.0, dtypes.half)] * 4))
    row, k4 = fiber // (options.k // 4), fiber % (options.k // 4)
    texels = [uops.vector(inputs[0], (row // 4) * options.k + k4 * 4 + kk) for kk in range(4)]
    bank = row % 4
    packed = []
    for texel in texels:
        value = texel[3]
        for lane in (2, 1, 0):
            value = bank.eq(lane).where(texel[lane], value)
        packed.append(value.cast(dtypes.half))
    return uops.sink(NAME, uops.put(output, fiber, packed))


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    """Standard normal texels."""
    if options.constant:
        return {}
    source = rng.standard_normal((options.m // 4, options.k, 4)).astype(np.float32)
    return uops.shaped(build(options), {"X": source})


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """Rows from banks, in full precision."""
    if options.constant:
        return {"O": np.ones((options.m, options.k))}
    texels = arrays["X"].astype(np.float64).reshape(options.m // 4, options.k, 4)
    return {"O": texels.transpose(0, 2, 1).reshape(options.m, options.k)}


def _tolerance(options: Options, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """One rounding to half: to nearest where Mesa's ``cov`` says so, towards zero at worst; a flush below."""
    return {"O": 2 * matmul.HALF_ROUNDOFF * np.abs(_oracle(options, arrays)["O"]) + matmul.HALF_TINY}


PACK = Kernel(
    name=NAME,
    summary="float texels of four rows packed into half rows; UOps",
    options=Options,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    unit="GB/s",
    cases=(
        Case("m192k768", {}),
        Case("m64k64", dict(m=64, k=64)),
        Case("constant", dict(m=64, k=64, constant=True)),
    ),
    source="qcom_pack_banked_check.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (PACK,)
