"""Texels of four words that are eight halves: sampled as words and written as halves, in UOps.

Which half of a word is the even one, and whether words pass a sampler unchanged, is what the probe shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import uops
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.uops import THREADS, Array

NAME = "packed_alias"
_HALVES, _WORDS = 8, 4


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the probe: ``groups`` workgroups of 128 fibers, a texel each."""

    groups: int = 1


def build(options: Options) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: no workgroup, or more than an image has texels.
    """
    if not 1 <= options.groups <= 1 << 12:
        raise KernelError(f"{NAME}: groups is {options.groups}; give 1 to {1 << 12}")
    texels = options.groups * THREADS
    arrays = (
        Array("X", (texels, _WORDS), "float32", image=True),
        Array("O", (texels, _HALVES), "float16", written=True),
    )
    return uops.compile_uops(NAME, _program(options, arrays), arrays, 1e-9 * 32 * texels)


def _program(options: Options, arrays: tuple[Array, ...]) -> Any:
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import UOp

    source, output = uops.parameters(arrays)
    fiber = UOp.special(options.groups, "gidx0") * THREADS + UOp.special(THREADS, "lidx0")
    halves = []
    for word in uops.vector(source, fiber):
        bits = word.bitcast(dtypes.uint)
        halves += [
            part.cast(dtypes.ushort).bitcast(dtypes.half) for part in (bits & 0xFFFF, bits // (1 << 16))
        ]
    return uops.sink(
        NAME, [*uops.put(output, 2 * fiber, halves[:4]), *uops.put(output, 2 * fiber + 1, halves[4:])]
    )


def _words(halves: np.ndarray[Any, Any], options: Options) -> Arrays:
    words = np.ascontiguousarray(halves, np.float16).view(np.float32)
    return uops.shaped(ALIAS.build(options), {"X": words})


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    """Halves from 1 to 2 and their negatives, so that no word is a denormal float or NaN."""
    values = rng.uniform(1, 2, (options.groups * THREADS, _HALVES)) * rng.choice(
        (-1, 1), (options.groups * THREADS, _HALVES)
    )
    return _words(values.astype(np.float16), options)


def _count(options: Options) -> Arrays:
    """Every half is its number, counted up to 2047 and again."""
    return _words(np.arange(options.groups * THREADS * _HALVES) % 2048, options)


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """The halves, the low one of each word first."""
    halves = np.ascontiguousarray(arrays["X"]).view(np.float16)
    return {"O": halves.astype(np.float64).reshape(-1, _HALVES)}


def _tolerance(options: Options, arrays: Arrays) -> dict[str, float]:
    """0: words are moved."""
    return {"O": 0.0}


ALIAS = Kernel(
    name=NAME,
    summary="words of a texel as pairs of halves; UOps",
    options=Options,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={"count": _count},
    unit="GB/s",
    cases=(Case("group", {}), Case("groups16", dict(groups=16))),
    source="qcom_packed_alias_probe.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (ALIAS,)
