"""What a compiler makes of a divergent branch: one of so many fibers stores, or samples; written in UOps.

The notes looked at the vendor compiler's code for two programs: a branch that only chooses what is stored,
and one around a sample. Mesa predicates both (``predt``, ``predf``, ``prede``): fibers that do not take part
skip instructions in place, and no branch is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import uops
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import check_threads
from pytest_qcom.kernels.notes import flag
from pytest_qcom.kernels.uops import Array

NAME = "compiled_branch_probe"
_PERIODS = (2, 4, 8, 16, 32, 64)
_MOST = 64  # workgroups: an image of one row has room for so many fibers


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the probe.

    Attributes:
        image: the branch is around a sample, whose texel is stored, or zeros; else around a store of 1, or 0.
        period: every ``period``-th fiber takes it: a power of 2 from 2 to 64.
        threads, groups: the launch.
    """

    image: bool = False
    period: int = 4
    threads: int = 128
    groups: int = 1


def build(options: Options) -> Build:
    """The probe as Mesa compiles it.

    Raises:
        KernelError: a launch or a period that it cannot have.
    """
    if options.period not in _PERIODS:
        raise KernelError(f"{NAME}: period is {options.period}; give a power of 2 from 2 to 64")
    check_threads(NAME, options.threads)
    if not 1 <= options.groups <= _MOST:
        raise KernelError(f"{NAME}: groups is {options.groups}; give 1 to {_MOST}")
    fibers = options.groups * options.threads
    arrays: tuple[Array, ...] = (Array("C", (fibers,), "uint32", written=True),)
    if options.image:
        arrays = (
            Array("X", (fibers, 4), "float16", image=True),
            Array("C", (fibers, 4), "float16", written=True),
        )
    return uops.compile_uops(NAME, _program(options, arrays), arrays, 1e-9 * fibers)


def _program(options: Options, arrays: tuple[Array, ...]) -> Any:
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import UOp

    *images, output = uops.parameters(arrays)
    local = UOp.special(options.threads, "lidx0")
    fiber = UOp.special(options.groups, "gidx0") * options.threads + local
    taken = (local % options.period).eq(0)
    if images:
        texel = [images[0].index((fiber * 4 + lane).valid(taken)).load() for lane in range(4)]
        return uops.sink(NAME, uops.put(output, fiber, [value.cast(dtypes.half) for value in texel]))
    sides = ((taken, 1), (taken.logical_not(), 0))
    stores = [output.index(fiber.valid(side)).store(UOp.const(word, dtypes.uint)) for side, word in sides]
    return uops.sink(NAME, stores)


_NAMES: Mapping[str, Mapping[str, Any]] = {
    "compiled_branch": {},
    "compiled_image_branch": {"image": True},
}
"""What the notes' script calls the two programs."""


def _words(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options, and the notes' words for the programs."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        meant = _NAMES.get(name.replace("-", "_"))
        if meant is None or not flag(value):
            found[name] = value
        else:
            found |= meant
    return found


def _taken(options: Options) -> Any:
    return np.arange(options.groups * options.threads) % options.threads % options.period == 0


def _inputs(options: Options, rng: np.random.Generator) -> Arrays:
    """Random texels."""
    if not options.image:
        return {}
    texels = rng.standard_normal((options.groups * options.threads, 4)).astype(np.float16)
    return uops.shaped(PROBE.build(options), {"X": texels})


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """Which fibers take the branch; of an image, their texels, those below the smallest normal half as 0."""
    taken = _taken(options)
    if not options.image:
        return {"C": taken.astype(np.float64)}
    texels = np.asarray(arrays["X"]).reshape(-1, 4).astype(np.float64)
    texels[np.abs(texels) < _TINY] = 0.0
    return {"C": np.where(taken[:, None], texels, 0.0)}


_TINY = float(np.finfo(np.float16).tiny)


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """0: nothing is computed."""
    return {"C": 0.0}


PROBE = Kernel(
    name=NAME,
    summary="what a compiler makes of a branch that some fibers of a wave take; UOps",
    options=Options,
    build=build,
    inputs=_inputs,
    oracle=_oracle,
    tolerance=_tolerance,
    unit="Gfibers/s",
    reads=_words,
    family="shfl_probe",
    cases=(
        Case("branch", {}),
        Case("branch-64", dict(threads=64, period=2, groups=3)),
        Case("image-branch", dict(image=True)),
        Case("image-branch-64", dict(image=True, threads=64, groups=5)),
        Case("image-branch-256", dict(image=True, threads=256, period=64)),
    ),
    claim="probe",
    source="qcom_shfl_probe.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (PROBE,)
