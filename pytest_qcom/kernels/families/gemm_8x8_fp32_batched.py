"""Several float32-accumulated products in one launch of the 8x8 kernel: what the notes tried as a leaf.

A, B and C are stacked. A fiber finds out of which product its rows are, and where that product's B starts;
the K steps are those of :mod:`gemm_rxc_fp32`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_qcom.kernels import stacks
from pytest_qcom.kernels.full import arithmetic, phases, plan
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.kernel import Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.schedule import Schedule
from pytest_qcom.kernels.stores import ImageStore, RowMajor
from pytest_qcom.kernels.tiled import Columns, Stored, check_output, check_words

NAME = "gemm_8x8_fp32_batched"
ROWS, COLS = 8, 2
_FORM = Columns()
"""Both columns have registers, and coordinates stand where their texels go."""


@dataclass(frozen=True, slots=True)
class Options(Stored):
    """Options of the batched 8x8 kernel; ``m``, ``n`` and ``k`` are those of each product.

    Attributes:
        m, n, k: m a multiple of ``threads`` / 4, n of 256, k of 4.
        batches: products.
        layout: ``row``: the row says which product (the published batch-stride), so m is a power of 2;
            ``z``: workgroup z counts products.
    """

    m: int = 256
    n: int = 256
    k: int = 256
    threads: int = 64
    k_unroll: int = 2
    batches: int = 7
    layout: str = "row"


def build(options: Options) -> Build:
    """One launch for all products.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    check_shape(NAME, options)
    stacks.check(NAME, options, options.layout)
    check_output(NAME, options)
    check_words(NAME, options.batches * options.m, options.n)
    tile = Tile(ROWS, COLS, options.threads)
    coordinates = stacks.Stacked(early=True, layout=options.layout, m=options.m, k=options.k)
    schedule = Schedule(
        tile=tile,
        plan=plan(tile, _FORM),
        phases=phases(tile, _FORM, coordinates),
        coordinates=coordinates,
        epilogue=ImageStore() if options.image_store else RowMajor(element=4),
        order=_FORM.alu_order,
        unroll=options.k_unroll,
        arithmetic=arithmetic(options.sampler_per_texture),
    )
    return stacks.launch(NAME, options, schedule, options.layout)


GEMM = Kernel(
    name=NAME,
    summary="several products in one launch of the 8x8 GEMM with float32 sums",
    options=Options,
    build=build,
    inputs=stacks.random,
    oracle=stacks.product,
    tolerance=stacks.bound,
    patterns=stacks.PATTERNS,
    unit="GFLOPS",
    cases=(
        Case("n256x7", {}),
        Case("row", dict(m=16, n=256, k=28, batches=9)),
        Case("z", dict(m=48, n=512, k=36, batches=3, layout="z")),
        Case("half-output", dict(m=16, n=256, k=32, batches=7, image_store=True, half_output=True)),
        Case("float-inputs", dict(m=32, n=256, k=48, batches=2, float_inputs=True, threads=128)),
        Case("image", dict(m=16, n=256, k=12, batches=5, layout="z", k_unroll=1, image_store=True)),
    ),
    source="qcom_strassen3_fused_fp32_check.py of tinygrad's QCOM experiments",
)

KERNELS = (GEMM,)
