"""Float32 GEMMs in which the fibers of a quad sample for each other.

Neighbouring fibers need the same texels: those of one row of tiles the same rows of A, those of one column of
tiles the same k of B. ``quad_a`` and ``quad_b`` let each fiber of a quad sample one of four and hand it to
the others: one sample and four broadcasts in place of four samples. Whether that pays is a matter of what a
broadcast costs; a wait for the samples comes between.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import single
from pytest_qcom.kernels.counted import Advance, Aim, Counted, Fetch
from pytest_qcom.kernels.full import arithmetic, launch
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.kernel import Build, Case, Kernel
from pytest_qcom.kernels.launch import LOCAL_ID, Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import ORDERS, Load, Multiply, Schedule, Step
from pytest_qcom.kernels.stores import ImageStore, RowMajor
from pytest_qcom.kernels.tiled import Stored, check_output
from pytest_qcom.kernels.writer import Writer

ROWS, QUAD = 4, 4
_NOTES = "qcom_fp32_4x4_check.py and qcom_fp32_wide_check.py of tinygrad's QCOM GEMM experiments"


@dataclass(frozen=True, slots=True)
class Options(Stored):
    """Options of the quad kernels; ``quad_b`` needs four rows of tiles, so not 64 ``threads``.

    Attributes:
        alu_order: nesting of the MADs.
    """

    alu_order: str = "kk_col_row"


@dataclass(frozen=True, slots=True)
class QuadCounted(Counted):
    """Counters, and for each fiber what it samples for its quad: row ``lane`` of A or k ``lane`` of B."""

    shared: str = "A"

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        plan = schedule.plan
        w.alu("and.b", plan["lane"][0], LOCAL_ID, QUAD - 1)
        Counted.prepare(self, w, schedule)
        for index in range(QUAD):
            w.mov(plan["indices"][index], index)
        if self.shared == "A":
            w.alu("add.s", plan["lane"][0], plan["lane"][0], plan["row"][0])


@dataclass(frozen=True, slots=True)
class AimOne:
    """The coordinate of the fiber's own sample."""

    shared: str

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        plan, texel = schedule.plan, schedule.plan["shared"][0]
        lane, k4, ky = plan["lane"][0], plan["k4"][0], plan["ky"][0]
        if self.shared == "A":
            w.alu("add.s", texel, k4, step.index)
            w.mov(texel + 1, lane)
            return
        w.alu("add.s", texel + 1, ky, lane)
        w.mov(texel, plan["col"][0])
        if step.index:
            w.alu("add.s", texel + 1, texel + 1, 4 * step.index)


@dataclass(frozen=True, slots=True)
class FetchOne:
    """The fiber's own sample."""

    shared: str

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        texel = schedule.plan["shared"][0]
        schedule.arithmetic.sample(w, texel, texel, "AB".index(self.shared))


@dataclass(frozen=True, slots=True)
class Broadcast:
    """The samples of the quad into all its fibers."""

    shared: str

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        plan = schedule.plan
        for index in range(QUAD):
            target = plan[f"a{index}"][0] if self.shared == "A" else plan["b0"].vec(index)
            source = plan["shared"][0]
            w.emit("quad_shuffle.brcst", f"(u32)(xyzw){target}", source, plan["indices"][index])


def build(name: str, shared: str, ncols: int, options: Options) -> Build:
    """The kernel ``name``, with ``shared`` operand sampled by quads.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    check_shape(name, options)
    check_output(name, options)
    if shared == "B" and options.threads < 128:
        raise KernelError(
            f"{name}: threads is {options.threads}; a quad has four rows of tiles, give 128 or 256"
        )
    rows, cols = tuple(range(ROWS)), tuple(range(ncols))
    coordinates = QuadCounted(early=True, shared=shared)
    others = (Load("B", cols) if shared == "A" else Load("A", rows),)
    schedule = Schedule(
        tile=Tile(ROWS, ncols, options.threads, rows_first=shared == "B"),
        plan=_plan(ncols),
        phases=(
            AimOne(shared),
            Aim(coordinates, others),
            Advance(coordinates),
            FetchOne(shared),
            Fetch(coordinates, others, test=True),
            Broadcast(shared),
            Multiply(rows, cols),
        ),
        coordinates=coordinates,
        epilogue=ImageStore() if options.image_store else RowMajor(element=4),
        order=options.alu_order,
        unroll=options.k_unroll,
        arithmetic=arithmetic(options.sampler_per_texture),
    )
    return launch(name, options, schedule, options.thread128)


def _plan(ncols: int) -> RegisterPlan:
    plan, at = RegisterPlan(), 4 * ncols
    for col in range(ncols):
        plan = plan.place(f"b{col}", f"r{4 * col}.x", 16)
    for row in range(ROWS):
        plan = plan.place(f"a{row}", f"r{at + row}.x", 4)
    plan = plan.place("shared", f"r{at + 4}.x", 4)
    plan = plan.place("acc", f"r{at + 5}.x", 4 * ROWS * ncols)
    state = at + 5 + ROWS * ncols
    for name, component in (("row", "x"), ("col", "y"), ("ky", "z"), ("k4", "w")):
        plan = plan.place(name, f"r{state}.{component}", 1)
    plan = plan.place("indices", f"r{state + 1}.x", QUAD).place("lane", f"r{state + 2}.x", 1)
    texels = tuple(block.name for block in plan.blocks if block.name[0] in "ab" and block.name != "acc")
    plan = plan.place("scratch", "r1.x", 4, over=texels)
    dead = (*texels, "scratch")
    plan = plan.place("addresses", "r0.x", 2 * ROWS, over=dead).place("carries", "r2.x", ROWS, over=dead)
    return plan.place("offsets", "r3.x", 2, over=dead).place("at", "r4.x", 8, over=dead)


def _declare(shared: str, ncols: int) -> Kernel:
    name = f"gemm_4x{4 * ncols}_fp32_quad_{shared.lower()}"
    m, n = 16, 128 * ncols
    threads = 256 if shared == "B" else 64
    return Kernel(
        name=name,
        summary=f"GEMM of half matrices in float32, texels of {shared} sampled by quads and handed around",
        options=Options,
        build=functools.partial(build, name, shared, ncols),
        inputs=single.random,
        oracle=single.product,
        tolerance=single.bound,
        patterns=single.PATTERNS,
        unit="GFLOPS",
        cases=(
            Case("small", dict(m=m, n=n, k=36)),
            Case("one-step", dict(m=m, n=n, k=4)),
            Case("wide", dict(m=m, n=2 * n, k=20)),
            Case("tall", dict(m=3 * m, n=n, k=20)),
            Case("unroll", dict(m=m, n=n, k=28, k_unroll=2)),
            Case("image-store", dict(m=m, n=n, k=36, image_store=True)),
            Case("float-inputs", dict(m=m, n=n, k=36, float_inputs=True)),
            Case("int8", dict(m=m, n=n, k=36, int8_a=True, int8_b=True)),
            Case("thread128", dict(m=m, n=n, k=36, thread128=True)),
            Case(f"threads-{threads}", dict(m=threads // 8, n=n, k=20, threads=threads)),
            Case("row-kk-col", dict(m=m, n=n, k=20, alu_order=ORDERS[3])),
        ),
        source=_NOTES,
    )


KERNELS = (_declare("A", 2), _declare("A", 1), _declare("B", 1))
