"""The FP16 8x8 GEMM with B in four textures, one for each k of a texel of A.

Texel (column, k4) of plane p is row 4 k4 + p of B, so that the four samples of a column have one coordinate
pair: a K step advances 10 pairs and not 16. The loop is otherwise that of :mod:`gemm_8xn_fp16`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.choices import check_unroll
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.families import gemm_8xn_fp16
from pytest_qcom.kernels.gemm import HalfGemm, build_gemm, check_shape
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case
from pytest_qcom.kernels.launch import LANES
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Load, Schedule, Step, limit
from pytest_qcom.kernels.stores import POINTER, ImageStore, RowMajor
from pytest_qcom.kernels.writer import Writer

NAME = "gemm_8x8_fp16_planar"
ROWS, COLS, PLANES = 8, 2, 4


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the planar 8x8 kernel.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``threads`` / 4, n of 256, k of 4.
        threads: fibers of a workgroup.
        k_unroll: K steps of the loop body. A rest is done behind the loop.
        prefetch: samples that are a K step early: ``none``, or ``b``, the columns of B.
        image_store: C is a half image, and the first argument.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    threads: int = 128
    k_unroll: int = 2
    prefetch: str = "b"
    image_store: bool = False


@dataclass(frozen=True, slots=True)
class Planar(Persistent):
    """A pair a row of A and a pair a column of B, through the loop; a column has samples of four textures."""

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        a_pairs, b_pairs = schedule.plan["a_pairs"], schedule.plan["b_pairs"]
        row, col = schedule.plan["row"][0], schedule.plan["col"][0]
        for index in range(1, schedule.tile.rows):
            w.alu("add.s", a_pairs[2 * index + 1], row, index)
        for column in range(schedule.tile.cols):
            if column:
                w.alu("add.s", b_pairs[2 * column], col, LANES * column)
            w.mov(b_pairs[2 * column + 1], 0)
        for index in range(schedule.tile.rows):
            w.mov(a_pairs[2 * index], 0)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        if load.operand == "A":
            Persistent.sample(self, w, schedule, load, step)
            return
        for col in load.which:
            for kk in load.kk:
                pair = schedule.plan["b_pairs"][2 * col]
                schedule.arithmetic.sample(w, schedule.vector(col, kk), pair, texture=1 + kk)

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        if step.final:
            return
        plan = schedule.plan
        pairs = plan["a_pairs" if load.operand == "A" else "b_pairs"]
        for index in load.which:
            depth = pairs[2 * index + int(load.operand == "B")]
            w.alu("add.s", depth, depth, 1)
        if load.operand == "A" and 0 in load.which and step.end is not None:
            w.alu("cmps.s.eq", "p0.x", plan["a_pairs"][0], limit(step.end))


def build(options: Options) -> Build:
    """The launch over five textures.

    Raises:
        KernelError: options that do not go together.
    """
    check_shape(NAME, options)
    check_unroll(NAME, options.k_unroll)
    if options.prefetch not in ("none", "b"):
        raise KernelError(f"{NAME}: prefetch is {options.prefetch!r}; give none or b")
    ours = gemm_8xn_fp16.Options(
        threads=options.threads, k_unroll=options.k_unroll, prefetch=options.prefetch
    )
    schedule = gemm_8xn_fp16.schedule(ours, COLS)
    schedule = replace(
        schedule,
        plan=_plan(schedule.plan, options.image_store),
        coordinates=Planar(),
        epilogue=ImageStore() if options.image_store else RowMajor(),
    )
    return build_gemm(NAME, options, schedule, arguments(options))


def _plan(ours: RegisterPlan, image: bool) -> RegisterPlan:
    """The texels of the plain kernel; pairs of B and A, with everything else over them at both ends."""
    plan = RegisterPlan(tuple(block for block in ours.blocks if block.first.half))
    plan = plan.place("b_pairs", "r0.x", 2 * COLS).place("a_pairs", "r1.x", 2 * ROWS)
    dead = ("a_pairs", "b_pairs", "row", "col", "scratch", "addresses")
    plan = plan.place("row", "r1.y", 1, over=dead).place("col", "r0.x", 1, over=dead)
    plan = plan.place("scratch", "r2.x", 4, over=dead)
    if image:
        return plan.place("at", "r2.x", 4, over=dead).place("texels", "r3.x", 8, over=dead)
    plan = plan.place("addresses", "r0.x", 2 * ROWS, over=dead)
    return plan.place("carries", "r4.x", ROWS, over=dead).place("offsets", "r6.x", 2, over=dead)


def arguments(options: Options) -> tuple[Argument, ...]:
    """A, the planes of B, and C; its image comes first."""
    a, b, c = matmul.arguments(options, POINTER)
    planes = [
        replace(b, name=f"B{plane}", shape=(options.k // 4, options.n // 4, 4)) for plane in range(PLANES)
    ]
    if options.image_store:
        return (replace(c, shape=(options.m, options.n // 4, 4), image=True, pointer=0), a, *planes)
    return (a, *planes, c)


def _split(arrays: Arrays) -> Arrays:
    """The plain kernel's B as planes."""
    planes = {f"B{plane}": np.ascontiguousarray(arrays["B"][plane::PLANES]) for plane in range(PLANES)}
    return {"A": arrays["A"], **planes}


def joined(arrays: Arrays) -> Arrays:
    """The planes as the plain kernel's B."""
    planes = np.stack([arrays[f"B{plane}"] for plane in range(PLANES)], axis=1)
    return {"A": arrays["A"], "B": planes.reshape(-1, *planes.shape[2:])}


def _shaped(options: Options, c: NDArray[Any]) -> NDArray[Any]:
    return c.reshape(options.m, options.n // 4, 4) if options.image_store else c


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    return _split(matmul.random(options, rng))


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64, inputs below the smallest normal float16 taken as 0."""
    return {"C": _shaped(options, matmul.product(options, joined(arrays))["C"])}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """:func:`~pytest_qcom.kernels.matmul.half_bound`."""
    return {"C": _shaped(options, matmul.half_bound(options, joined(arrays))["C"])}


def _pattern(name: str) -> Callable[[Any], Arrays]:
    return lambda options: _split(matmul.HALF_PATTERNS[name](options))


GEMM = HalfGemm(
    name=NAME,
    summary="FP16 GEMM, 8 rows by 8 columns a fiber, B in four textures",
    options=Options,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={name: _pattern(name) for name in matmul.HALF_PATTERNS},
    cases=(
        Case("n1024", {}),
        Case("square", dict(m=64, n=512, k=64)),
        Case("rest", dict(m=32, n=256, k=44, k_unroll=3)),
        Case("plain", dict(m=32, n=512, k=64, prefetch="none", k_unroll=1)),
        Case("threads-256", dict(m=64, n=256, k=36, threads=256)),
        Case("image-store", dict(m=32, n=512, k=32, image_store=True)),
    ),
    source="qcom_planar_b_check.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (GEMM,)
