"""The 4x4 float32 GEMM of small products, many in a launch: 16 fibers side by side, 64 columns.

A, B and C are stacked. The row says of which product a fiber's tile is, and so where its B starts. What the
notes use as the leaf of a recursion of 64 x 64 products, theirs with waits as written and ours with those
that are needed.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import stacks
from pytest_qcom.kernels.counted import Advance, Aim, Fetch
from pytest_qcom.kernels.full import arithmetic
from pytest_qcom.kernels.full_published import NOTES
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.kernel import Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Load, Multiply, Phases, Schedule
from pytest_qcom.kernels.stores import ImageStore, RowMajor
from pytest_qcom.kernels.tiled import Stored, check_output

NAME = "gemm_4x4_fp32_halfwave"
ROWS, SIDE = 4, 16
_ROWS = tuple(range(ROWS))


@dataclass(frozen=True, slots=True)
class Options(Stored):
    """Options of the halfwave kernel; ``m``, ``n`` and ``k`` are those of each product.

    Attributes:
        m, n, k: m a power of 2 and a multiple of ``threads`` / 4, n of 64, k of 4.
        batches: products in a launch.
    """

    m: int = 64
    n: int = 64
    k: int = 64
    threads: int = 64
    image_store: bool = True
    batches: int = 64


def build(name: str, published: bool, options: Options) -> Build:
    """The kernel, with the waits that it needs or as published.

    Raises:
        KernelError: options that do not go together, or shapes that are not made of whole tiles.
    """
    _check(name, published, options)
    coordinates = stacks.Stacked(
        early=not published, noted=published, ahead=3 * published, m=options.m, k=options.k
    )
    loads = (Load("A", _ROWS), Load("B", (0,)))
    phases: Phases = (
        Aim(coordinates, loads),
        *(() if published else (Advance(coordinates),)),
        Fetch(coordinates, loads, test=not published),
        Multiply(_ROWS, (0,)),
    )
    schedule = Schedule(
        tile=Tile(ROWS, 1, options.threads, side=SIDE),
        plan=_plan(),
        phases=phases,
        coordinates=coordinates,
        epilogue=ImageStore() if options.image_store else RowMajor(element=4),
        order="kk_row_col",
        scalar_first=True,
        sync=lambda products, step: published,
        waits="written" if published else "legal",
        unroll=options.k_unroll,
        arithmetic=arithmetic(options.sampler_per_texture),
    )
    return stacks.launch(name, options, schedule)


def _check(name: str, published: bool, options: Options) -> None:
    check_shape(name, options)
    check_output(name, options)
    stacks.check(name, options)
    if published and options.k_unroll != 1:
        raise KernelError(f"{name}: k-unroll is {options.k_unroll}; the published loop is one step, give 1")


def _plan() -> RegisterPlan:
    """The notes' one, of 14 vec4: B, A, accumulators, counters, and one for the next counter."""
    plan = RegisterPlan().place("b0", "r0.x", 16)
    for row in _ROWS:
        plan = plan.place(f"a{row}", f"r{4 + row}.x", 4)
    plan = plan.place("acc", "r8.x", 16)
    for name, component in (("row", "x"), ("col", "y"), ("ky", "z"), ("k4", "w")):
        plan = plan.place(name, f"r12.{component}", 1)
    plan = plan.place("next", "r13.x", 1)
    dead: tuple[str, ...] = ("b0", "a0", "a1", "a2", "a3")
    plan = plan.place("scratch", "r1.x", 4, over=dead)
    dead = (*dead, "scratch")
    plan = plan.place("addresses", "r0.x", 8, over=dead).place("carries", "r2.x", 4, over=dead)
    plan = plan.place("offsets", "r3.x", 2, over=dead)
    return plan.place("at", "r4.x", 8, over=dead)


def _declare(name: str, published: bool, cases: tuple[Case, ...]) -> Kernel:
    return Kernel(
        name=name,
        summary="many small products in one launch of a 4x4 float32 GEMM, 64 columns a workgroup"
        + (", as published" if published else ""),
        options=Options,
        build=functools.partial(build, name, published),
        inputs=stacks.random,
        oracle=stacks.product,
        tolerance=stacks.bound,
        patterns=stacks.PATTERNS,
        unit="GFLOPS",
        cases=cases,
        claim="as-published" if published else "correct",
        source=NOTES,
    )


KERNELS = (
    _declare(
        NAME,
        False,
        (
            Case("n64x64", {}),
            Case("one", dict(m=16, k=36, batches=1)),
            Case("few", dict(m=16, n=128, k=20, batches=5)),
            Case("unroll", dict(m=32, k=28, k_unroll=2, batches=3)),
            Case("buffer", dict(m=16, k=36, batches=4, image_store=False)),
            Case("half-output", dict(m=16, k=36, batches=4, half_output=True)),
            Case("float-inputs", dict(m=16, k=36, batches=4, float_inputs=True)),
            Case("threads-128", dict(m=32, k=36, batches=2, threads=128, thread128=True)),
        ),
    ),
    _declare(f"{NAME}_published", True, (Case("n64x64", {}), Case("few", dict(m=16, batches=5)))),
)
