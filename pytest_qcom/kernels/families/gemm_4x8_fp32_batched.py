"""Several float32-accumulated products in one launch of the rotating 4x8 kernel.

A, B and C are stacked. A fiber finds out of which product its rows are, and where that product's B starts;
the K steps are those of :mod:`gemm_4x8_fp32_rotate`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_qcom.kernels import stacks
from pytest_qcom.kernels.families import gemm_4x8_fp32_rotate as rotate
from pytest_qcom.kernels.full import arithmetic
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.kernel import Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.schedule import Schedule
from pytest_qcom.kernels.stores import ImageStore, RowMajor
from pytest_qcom.kernels.tiled import Stored, check_output
from pytest_qcom.kernels.writer import Writer

NAME = "gemm_4x8_fp32_batched"


@dataclass(frozen=True, slots=True)
class Options(Stored):
    """Options of the batched rotating kernel; ``m``, ``n`` and ``k`` are those of each product.

    Attributes:
        m, n, k: m a multiple of ``threads`` / 8, n of 256, k of 4.
        batches: products.
        layout: ``row``: the row says which product (the published batch-from-row), so m is a power of 2;
            ``z``: workgroup z counts products.
        k_unroll: K steps of the loop body, a multiple of 3.
    """

    m: int = 256
    n: int = 256
    k: int = 256
    threads: int = 64
    k_unroll: int = 3
    batches: int = 7
    layout: str = "row"


@dataclass(frozen=True, slots=True)
class Batched(rotate.Rotating):
    """The rotating kernel's counters, begun in the product that the fiber works on."""

    layout: str = "row"
    m: int = 0
    k: int = 0

    def start(self, w: Writer, schedule: Schedule) -> None:
        row, k4, ky = (schedule.plan[name][0] for name in ("row", "k4", "ky"))
        stacks.emit_start(w, self.layout, (self.m, self.k), row, ky, k4)
        w.mov(k4, 0)


def build(options: Options) -> Build:
    """One launch for all products.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    _check(options)
    batched = Batched(layout=options.layout, m=options.m, k=options.k)
    schedule = Schedule(
        tile=Tile(rotate.ROWS, rotate.COLS, options.threads),
        plan=rotate.plan(),
        phases=(batched,),
        coordinates=batched,
        epilogue=ImageStore() if options.image_store else RowMajor(element=4),
        unroll=options.k_unroll,
        peel=1,
        arithmetic=arithmetic(options.sampler_per_texture),
    )
    return stacks.launch(NAME, options, schedule, options.layout)


def _check(options: Options) -> None:
    rotate.check(NAME, options.k, options.k_unroll)
    check_shape(NAME, options)
    stacks.check(NAME, options, options.layout)
    check_output(NAME, options)


GEMM = Kernel(
    name=NAME,
    summary="several products in one launch of the rotating 4x8 GEMM with float32 sums",
    options=Options,
    build=build,
    inputs=stacks.random,
    oracle=stacks.product,
    tolerance=stacks.bound,
    patterns=stacks.PATTERNS,
    unit="GFLOPS",
    cases=(
        Case("n256x7", {}),
        Case("row", dict(m=8, n=256, k=32, batches=49)),
        Case("z", dict(m=24, n=512, k=36, batches=3, layout="z")),
        Case("half-output", dict(m=16, n=256, k=32, batches=7, image_store=True, half_output=True)),
        Case("float-inputs", dict(m=32, n=256, k=48, batches=2, float_inputs=True, threads=128)),
        Case("image", dict(m=16, n=256, k=12, batches=5, layout="z", threads=128, image_store=True)),
    ),
    source="qcom_strassen4_fused2_fp32_check.py of tinygrad's QCOM experiments",
)

KERNELS = (GEMM,)
