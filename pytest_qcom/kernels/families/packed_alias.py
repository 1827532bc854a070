"""Texels of four words that are eight halves: sampled as words and written as halves.

Which half of a word is the even one, and whether words pass a sampler unchanged, is what the probe shows: in
UOps, where the compiler takes words apart, and as the notes patched it, without those moves. There the halves
of the sampled registers themselves are stored, which they are where full and half registers are one file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import uops
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import GROUP_X, LOCAL_ID
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.stores import POINTER
from pytest_qcom.kernels.uops import THREADS, Array
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.words import emit_vector_store
from pytest_qcom.kernels.writer import Writer

NAME, PUBLISHED_NAME = "packed_alias", "packed_alias_published"
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


def _oracle(options: Options | Published, arrays: Arrays) -> Arrays:
    """The halves, the low one of each word first."""
    halves = np.ascontiguousarray(arrays["X"]).view(np.float16)
    return {"O": halves.astype(np.float64).reshape(-1, _HALVES)}


def _tolerance(options: Options | Published, arrays: Arrays) -> dict[str, float]:
    """0: words are moved."""
    return {"O": 0.0}


@dataclass(frozen=True, slots=True)
class Published:
    """Options of the patched probe.

    Attributes:
        groups: workgroups of 128 fibers, a texel each.
        mergedregs: launched with one register file; else the halves are registers that nothing writes.
    """

    groups: int = 1
    mergedregs: bool = True


def build_published(options: Published) -> Build:
    """The patched probe: a sample, and two stores of what it wrote, by the other name.

    Raises:
        KernelError: no workgroup, or more than an image of one row has texels.
    """
    if not 1 <= options.groups <= 1 << 7:
        raise KernelError(f"{PUBLISHED_NAME}: groups is {options.groups}; give 1 to {1 << 7}")
    plan = RegisterPlan(merged=options.mergedregs).place("lid", "r0.x", 1).place("scratch", "r1.x", 4)
    plan = plan.place("number", "r2.x", 1).place("pair", "r2.y", 2).place("words", "r4.x", _WORDS)
    plan = plan.place("halves", "hr8.x", _HALVES, over=("words",))
    w = Writer()
    number, pair = plan["number"][0], plan["pair"][0]
    w.mov(number, GROUP_X)
    w.alu("shl.b", number, number, THREADS.bit_length() - 1)
    w.alu("add.u", number, number, LOCAL_ID)
    w.mov(pair, number)
    w.mov(pair + 1, 0)
    w.isam(plan["words"][0], pair, texture=0, kind="u32")
    if not options.mergedregs:
        w.emit("nop", sy=True)  # the stores do not know the registers that they would wait for
    emit_vector_store(w, number, [plan["halves"].vec(0), plan["halves"].vec(1)], plan["scratch"])
    w.end()
    fregs, hregs = plan.footprint()
    texels = options.groups * THREADS
    return Build(
        program=insert_waits(w.program(), merged=plan.merged),
        fregs=fregs,
        hregs=hregs,
        arguments=(
            Argument("X", (1, texels, _WORDS), "uint32", image=True, written=False),
            Argument("O", (texels, _HALVES), "float16", image=False, written=True, pointer=POINTER),
        ),
        groups=(options.groups, 1, 1),
        local=(THREADS, 1, 1),
        thread128=True,
        work=1e-9 * 32 * texels,
        merged=plan.merged,
    )


def _halves(options: Published, rng: np.random.Generator) -> Arrays:
    """Halves of any bits but NaN."""
    bits = rng.integers(0, 1 << 16, (options.groups * THREADS, _HALVES), np.uint16)
    bits[np.isnan(bits.view(np.float16))] = 0
    return {"X": bits.view(np.uint32).reshape(1, -1, _WORDS)}


def _number(options: Published) -> Arrays:
    """As of the kernel in UOps."""
    halves = np.arange(options.groups * THREADS * _HALVES) % 2048
    return {"X": halves.astype(np.float16).view(np.uint32).reshape(1, -1, _WORDS)}


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

PUBLISHED = Kernel(
    name=PUBLISHED_NAME,
    summary="halves of sampled words without a move, as published: right where both register files are one",
    options=Published,
    build=build_published,
    inputs=_halves,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={"count": _number},
    unit="GB/s",
    cases=(Case("merged", {}), Case("separate", dict(mergedregs=False))),
    claim="as-published",
    source="qcom_packed_alias_probe.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (ALIAS, PUBLISHED)
