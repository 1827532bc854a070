"""The published FP16 8x8 GEMM with B in four textures: its loop and waits as written.

A pair for each column of B and for each of four rows of A, written anew every K step; rows 4 to 7 take the
pairs and texels of rows 0 to 3 behind their products. Nothing else waits than a (sy) a group of rows and the
delay before each sample of A. The notes declare less than the store of their image uses.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.choices import about, check_delays, check_range, check_unroll, exclude
from pytest_qcom.kernels.eight_rows import LOWER, UPPER
from pytest_qcom.kernels.families import gemm_8x8_fp16_planar as planar
from pytest_qcom.kernels.gemm import HalfGemm, build_gemm, check_shape
from pytest_qcom.kernels.kernel import Arrays, Build, Case
from pytest_qcom.kernels.launch import LANES, Tile
from pytest_qcom.kernels.noted_checks import check_steps
from pytest_qcom.kernels.notes import renamed
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.rewritten import add, delay
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE, Load, Multiply, Phases, Schedule, Step
from pytest_qcom.kernels.stores import STEP_WAIT, Constant, ImageStore, NoStore
from pytest_qcom.kernels.writer import Writer

NAME = "gemm_8x8_fp16_planar_published"
_DECLARED = 17
"""Full vec4 that the notes declare, without those of the texels that they store."""


@dataclass(frozen=True, slots=True)
class Published:
    """Options of the published planar kernel; C is a half image.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``threads`` / 4, n of 256, k of 4 times the unroll.
        threads: fibers of a workgroup. thread128: waves of 128 fibers.
        k_unroll: K steps of the loop body.
        k_count: so many K steps are multiplied; 0 is all.
        a_coord_delay: nop repeats before each sample of A; -1 is none.
        no_store: the products are dropped. post_constant: 1024 is stored in their place.
        control_only: nothing but the loop's counter. All three are probes.
        fregs_override, hregs_override: vec4 declared; 0 is what is used.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    threads: int = 128
    thread128: bool = True
    k_unroll: int = 4
    k_count: int = 0
    a_coord_delay: int = 5
    no_store: bool = False
    post_constant: bool = False
    control_only: bool = False
    fregs_override: int = 0
    hregs_override: int = 0

    @property
    def k_start(self) -> int:
        """Always 0."""
        return 0

    @property
    def steps(self) -> int:
        """K steps that a fiber does."""
        return self.k_count or self.k // 4


@dataclass(frozen=True, slots=True)
class Noted:
    """A pair a column, whose y is k4, and four pairs of A, whose x is."""

    a_delay: int

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        plan = schedule.plan
        w.mov(plan["k4"][0], 0, sy=True)
        for col in range(planar.COLS):
            add(w, plan["b_pairs"][2 * col], plan["col"][0], LANES * col)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        plan, k4 = schedule.plan, schedule.plan["k4"][0]
        if load.operand == "B":
            for col in load.which:
                w.mov(plan["b_pairs"][2 * col + 1], k4)
            for col in load.which:
                for kk in load.kk:
                    w.isam(schedule.vector(col, kk), plan["b_pairs"][2 * col], texture=1 + kk)
            return
        pairs = [plan["a_pairs"][2 * (row % len(UPPER))] for row in load.which]
        for pair in pairs if 0 in load.which else ():
            w.mov(pair, k4)
        for row, pair in zip(load.which, pairs, strict=True):
            add(w, pair + 1, plan["row"][0], row)
            delay(w, self.a_delay)
            w.isam(plan[schedule.texels("a", row)][0], pair, texture=0)

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Nothing: pairs are written before their samples, whoever still reads them."""

    def finish(self, w: Writer, schedule: Schedule, step: Step) -> None:
        k4, following = schedule.plan["k4"][0], schedule.plan["next"][0]
        if step.end is not None:
            if step.end - 1 > LARGEST_IMMEDIATE:
                raise KernelError(
                    f"k is {4 * step.end}: the loop test counts to {LARGEST_IMMEDIATE + 1} K steps"
                )
            w.alu("add.s", following, k4, 1)
            delay(w, 2)
            w.alu("cmps.s.eq", "p0.x", k4, step.end - 1, nop=1)
            w.mov(k4, following)
            delay(w, 3)
        elif step.index < step.count - 1:
            w.alu("add.s", k4, k4, 1)
            delay(w, 2)


def build(options: Published) -> Build:
    """The published kernel.

    Raises:
        KernelError: options that do not go together.
    """
    _check(options)
    store: Any = ImageStore(gap=STEP_WAIT)
    store = Constant(store) if options.post_constant else NoStore() if options.no_store else store
    schedule = Schedule(
        tile=Tile(planar.ROWS, planar.COLS, options.threads),
        plan=_plan(),
        phases=() if options.control_only else _PHASES,
        coordinates=Noted(options.a_coord_delay),
        epilogue=store,
        scalar_first=True,
        sync=lambda products, step: True,
        waits="written",
        unroll=options.k_unroll,
    )
    shape = matmul.Sides(options.m, options.n, 4 * options.steps)
    with about(NAME):
        built = build_gemm(
            NAME, shape, schedule, planar.arguments(_whole(options)), thread128=options.thread128
        )
    fregs, hregs = options.fregs_override or built.fregs, options.hregs_override or built.hregs
    return replace(built, fregs=fregs, hregs=hregs, work=0.0 if options.control_only else built.work)


_PHASES: Phases = (
    Load("B", (0, 1)),
    Load("A", UPPER),
    Multiply(UPPER, (0, 1)),
    Load("A", LOWER),
    Multiply(LOWER, (0, 1)),
)


def _check(options: Published) -> None:
    check_shape(NAME, options)
    check_unroll(NAME, options.k_unroll)
    check_delays(NAME, options, ("a_coord_delay",))
    check_range(NAME, options, dict.fromkeys(("fregs_override", "hregs_override"), (0, 48)))
    check_steps(NAME, options)
    exclude(NAME, options, ("no_store", "post_constant"))
    if options.steps % options.k_unroll:
        raise KernelError(
            f"{NAME}: {options.steps} K steps do not divide by k-unroll {options.k_unroll}; the published "
            "kernel has no remainder"
        )


def _plan() -> RegisterPlan:
    """Where the notes have their values."""
    plan = RegisterPlan().place("b0", "hr0.x", 16).place("b1", "hr4.x", 16)
    for row in (*UPPER, *LOWER):
        plan = plan.place(f"a{row}", f"hr{8 + row % 4}.x", 4, over=(f"a{row - 4}",))
    plan = plan.place("acc", "hr12.x", 4 * planar.ROWS * planar.COLS)
    for name, at in (("k4", "r6.z"), ("row", "r7.x"), ("col", "r7.y"), ("next", "r0.x")):
        plan = plan.place(name, at, 1)
    plan = plan.place("b_pairs", "r14.x", 4).place("a_pairs", "r15.x", 8)
    plan = plan.place("scratch", "r1.x", 4)
    return plan.place("at", "r14.x", 2, over=("b_pairs",)).place("texels", "r19.x", 4)


def _whole(options: Published) -> planar.Options:
    """The same product of ours."""
    return planar.Options(options.m, options.n, options.k, image_store=True)


def _oracle(options: Published, arrays: Arrays) -> Arrays:
    """``A @ B`` over the k that are multiplied, in float64; or what the probes store."""
    if options.no_store:
        return {}
    if options.post_constant or options.control_only:
        value = 1024.0 if options.post_constant else 0.0
        return {"C": np.full((options.m, options.n // 4, 4), value)}
    return {"C": _shaped(options, matmul.product(*_part(options, arrays))["C"])}


def _tolerance(options: Published, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """:func:`~pytest_qcom.kernels.matmul.half_bound` over the k that are multiplied."""
    return {"C": _shaped(options, matmul.half_bound(*_part(options, arrays))["C"])}


def _part(options: Published, arrays: Arrays) -> tuple[matmul.Sides, Arrays]:
    return matmul.part(options, planar.joined(arrays), slice(0, 4 * options.steps))


def _shaped(options: Published, c: NDArray[Any]) -> NDArray[Any]:
    return c.reshape(options.m, options.n // 4, 4)


_NAMES = {
    "acoord_delay": "a_coord_delay",
    "build_k4": "k_count",
    "fregs": "fregs_override",
    "hregs": "hregs_override",
    "kunroll": "k_unroll",
}
PUBLISHED = HalfGemm(
    name=NAME,
    summary="FP16 GEMM, 8 rows by 8 columns a fiber, B in four textures, as published",
    options=Published,
    build=build,
    inputs=planar.GEMM.inputs,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns=planar.GEMM.patterns,
    cases=(
        Case("unroll-4", {}),
        Case("unroll-1", dict(k_unroll=1)),
        Case("part-of-k", dict(k_count=64)),
        Case("no-delay", dict(a_coord_delay=-1)),
        Case("no-store", dict(no_store=True, fregs_override=_DECLARED)),
        Case("post-constant", dict(post_constant=True)),
        Case("control-only", dict(control_only=True)),
        Case("declared", dict(fregs_override=_DECLARED)),
    ),
    claim="as-published",
    reads=functools.partial(renamed, names=_NAMES),
    source="qcom_planar_b_check.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (PUBLISHED,)
