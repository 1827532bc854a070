"""The direct FP16 GEMM of 4 rows by 1 to 4 vec4 columns a fiber: our schedule.

Our schedule gives every sample a coordinate pair of its own that lives through the loop, waits for the
samples of each pair of columns, and stores all four lanes. Its K step is 20 samples, 20 additions and 64
repeated MADs: the instruction count of the fastest published one, with one more (sy).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.choices import check_unroll
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.gemm import HalfGemm, build_gemm, check_shape
from pytest_qcom.kernels.kernel import Build, Case
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.quads import QUAD, HandRows, OwnRow
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import ORDERS, Load, Multiply, Phase, Phases, Schedule, Step
from pytest_qcom.kernels.stores import RowMajor

ROWS = 4
_NOTES = "QUALCOMM.md of tinygrad's QCOM GEMM experiments, tinygrad commit f072c2bf97"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the 4xN kernels, by the names of the notes.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``threads`` / 8, n of 128 ``ncols``, k of 4.
        ncols: vec4 columns a fiber, 1 to 4.
        threads: fibers of a workgroup: 64, 128 or 256.
        k_unroll: K steps of the loop body. A rest is done behind the loop.
        compact_acc: accumulators from hr12, behind the texels; else from hr16.
        b_first: samples of B before those of A.
        first_sync_only: only the first MAD of the loop body waits for samples. That is a race.
        alu_order: nesting of the MADs.
        quad_a: of four neighbouring fibers each samples one row of A, as halves, and hands it to the others.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    ncols: int = 4
    threads: int = 128
    k_unroll: int = 4
    compact_acc: bool = True
    b_first: bool = True
    first_sync_only: bool = False
    alu_order: str = "row_col_kk"
    quad_a: bool = False


def build(options: Options) -> Build:
    """Our kernel: every wait that the hardware needs, all lanes stored.

    ``first_sync_only`` alone takes waits away, for those who want to see what it does.
    """
    name = "gemm_4xn_fp16"
    _check(name, options)
    schedule = _schedule(options)
    if options.first_sync_only:
        schedule = replace(schedule, sync=_first_only, waits="slots")
    return build_gemm(name, options, schedule)


def _first_only(products: int, step: Step) -> bool:
    return products == 0 and step.index == 0


def _check(name: str, options: Options) -> None:
    """Combinations that make no kernel."""
    check_shape(name, options)
    if not 1 <= options.ncols <= 4:
        raise KernelError(f"{name}: ncols is {options.ncols}; give 1 to 4")
    check_unroll(name, options.k_unroll)


def _schedule(options: Options) -> Schedule:
    tile = Tile(ROWS, options.ncols, options.threads)
    return Schedule(
        tile=tile,
        plan=_plan(options),
        phases=phases(options.ncols, options.b_first, options.quad_a),
        coordinates=OwnRow() if options.quad_a else Persistent(),
        epilogue=RowMajor(),
        order=options.alu_order,
        unroll=options.k_unroll,
    )


def phases(ncols: int, b_first: bool, quad_a: bool) -> Phases:
    """A K step: columns two by two, with the rows of A sampled once, or one of them and handed around."""
    rows = tuple(range(ROWS))
    steps: list[Phase] = []
    for first in range(0, ncols, 2):
        cols = tuple(range(first, min(first + 2, ncols)))
        loads: list[Phase] = [Load("B", cols)]
        if first == 0:
            loads.insert(1 if b_first else 0, Load("A", rows[:1] if quad_a else rows))
            loads += [HandRows()] if quad_a else []
        steps += [*loads, Multiply(rows, cols)]
    return tuple(steps)


def _plan(options: Options) -> RegisterPlan:
    """Texels and accumulators; pairs of B, then of A, with everything else over them at the start and end."""
    columns = 2 * options.ncols  # vec4 that the pairs of B take
    plan = RegisterPlan()
    for row in range(ROWS):
        plan = plan.place(f"a{row}", f"hr{row}.x", 4)
    slots = min(options.ncols, 2)
    for slot in range(slots):
        plan = plan.place(f"b{slot}", f"hr{4 + 4 * slot}.x", 16)
    first = 4 + 4 * slots if options.compact_acc else 16
    plan = plan.place("acc", f"hr{first}.x", 16 * options.ncols)
    plan = plan.place("b_pairs", "r0.x", 8 * options.ncols)
    if options.quad_a:
        return _own_row(plan, columns)
    plan = plan.place("a_pairs", f"r{columns}.x", 2 * ROWS)
    dead = ("a_pairs", "b_pairs", "row", "col", "scratch")
    plan = plan.place("row", f"r{columns}.y", 1, over=dead)
    plan = plan.place("col", "r0.x", 1, over=dead)
    plan = plan.place("scratch", f"r{columns + 1}.x", 4, over=dead)
    plan = plan.place("addresses", "r0.x", 2 * ROWS, over=dead)
    plan = plan.place("offsets", f"r{columns}.z", 2, over=dead)
    return plan.place("carries", f"r{columns + 1}.x", ROWS, over=dead)


def _own_row(plan: RegisterPlan, columns: int) -> RegisterPlan:
    """The rest with one pair of A: a vec4 less, and two more of halves, which is as many waves."""
    plan = plan.allocate("sampled", 4, half=True).allocate("indices", QUAD, half=True)
    plan = plan.place("a_pairs", f"r{columns}.x", 2).place("row", f"r{columns}.z", 1)
    dead = ("a_pairs", "b_pairs", "row", "col", "scratch")
    plan = plan.place("col", "r0.x", 1, over=dead).place("scratch", "r1.x", 4, over=dead)
    plan = plan.place("addresses", "r0.x", 2 * ROWS, over=dead)
    plan = plan.place("offsets", f"r{columns}.x", 2, over=dead)
    return plan.place("carries", "r2.x" if columns > 2 else "r3.x", ROWS, over=dead)


GEMM = HalfGemm(
    name="gemm_4xn_fp16",
    summary="FP16 GEMM, 4 rows by 1 to 4 vec4 columns a fiber, right on random matrices",
    options=Options,
    build=build,
    cases=(
        Case("n1024", {}),
        Case("square", dict(m=64, n=512, k=64)),
        Case("wide", dict(m=16, n=1536, k=32)),
        Case("tall", dict(m=256, n=512, k=32)),
        Case("rest", dict(m=32, n=512, k=44)),  # 11 K steps: 4, 4 and a rest of 3, in padded images
        Case("short", dict(m=16, n=512, k=12)),  # fewer K steps than the loop body
        Case("ncols-1", dict(m=32, n=256, k=68, ncols=1)),
        Case("ncols-2", dict(m=32, n=512, k=68, ncols=2)),
        Case("ncols-3", dict(m=32, n=768, k=36, ncols=3, k_unroll=2)),
        Case("threads-64", dict(m=32, n=512, k=64, threads=64)),
        Case("threads-256", dict(m=64, n=512, k=64, threads=256)),
        Case("unroll-1", dict(m=16, n=512, k=32, k_unroll=1)),
        Case("unroll-8", dict(m=16, n=512, k=96, k_unroll=8)),
        Case("a-first", dict(m=16, n=512, k=64, k_unroll=1, b_first=False)),
        Case("quad-a-n1024", dict(quad_a=True)),
        Case("quad-a", dict(m=32, n=1024, k=44, quad_a=True, b_first=False)),
        Case("quad-a-2", dict(m=32, n=512, k=68, ncols=2, threads=64, quad_a=True, compact_acc=False)),
        Case("quad-a-1", dict(m=64, n=128, k=20, ncols=1, threads=256, quad_a=True)),
        Case("wide-acc", dict(m=16, n=512, k=64, k_unroll=1, compact_acc=False)),
        *(
            Case(order.replace("_", "-"), dict(m=16, n=512, k=32, k_unroll=1, alu_order=order))
            for order in ORDERS
            if order != "row_col_kk"
        ),
    ),
    source=_NOTES,
)

KERNELS = (GEMM,)
