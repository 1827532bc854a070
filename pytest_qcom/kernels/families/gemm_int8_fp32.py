"""GEMM of half activations by 8-bit weights, accumulated in float32: the texture pipe converts.

Weights are normalized bytes, which a sample gives as fractions of 127: half the memory of halves, and no
instruction more in the loop. The largest magnitude of each column comes on at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import integer, matmul, single
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.counted import Counted
from pytest_qcom.kernels.full import arithmetic, phases, plan
from pytest_qcom.kernels.gemm import check_shape, gemm_launch
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Schedule, generate, loop_constants
from pytest_qcom.kernels.stores import POINTER, RowMajor
from pytest_qcom.kernels.writer import Writer

NAME = "gemm_int8_fp32"
_WORDS = RowMajor(element=4)
_NOTES = "qcom_int8_cached_weights.py of tinygrad's QCOM GEMM experiments"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the kernel with 8-bit weights.

    Attributes:
        m, n, k: C is (m, n); both in whole workgroup tiles, k a multiple of 4.
        rows, ncols: the tile of a fiber: 4 or 8 rows, 1 or 2 vec4 columns.
        threads: fibers of a workgroup: 64, 128 or 256.
        thread128: waves of 128 fibers; else of 64.
        k_unroll: K steps of the loop body.
        preload_b: all columns of B have registers; else they share those of one column.
        own_pairs: a coordinate of its own for each sample, kept over the loop.
        alu_order: nesting of the MADs.
        sampler_per_texture: A and B each have a sampler.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    rows: int = 4
    ncols: int = 2
    threads: int = 128
    thread128: bool = False
    k_unroll: int = 1
    preload_b: bool = True
    own_pairs: bool = False
    alu_order: str = "kk_col_row"
    sampler_per_texture: bool = True

    @property
    def interleaved_a(self) -> bool:
        """Never."""
        return False

    @property
    def ahead(self) -> bool:
        """Never."""
        return False

    @property
    def pipeline_b(self) -> bool:
        """Never."""
        return False

    @property
    def component_stream(self) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, slots=True)
class ColumnScale:
    """Each vec4 column times its texel of texture 2, then words to a row-major C."""

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return _WORDS.constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        texels = [plan["columns"].vec(col) for col in range(tile.cols)]
        for col, texel in enumerate(texels):
            w.alu("add.s", texel, plan["col"][0], tile.lanes * col)
            w.mov(texel + 1, 0)
        for texel in texels:
            w.isam(texel, texel, 2, "f32")
        for row in range(tile.rows):
            for col, texel in enumerate(texels):
                acc = plan["acc"].vec(row * tile.cols + col)
                w.alu("mul.f", acc, f"(r){acc}", f"(r){texel}", rpt=3)
        _WORDS.emit(w, tile, plan)


def build(options: Options) -> Build:
    """The kernel.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    check_shape(NAME, options)
    if options.rows not in (4, 8) or options.ncols not in (1, 2):
        raise KernelError(
            f"{NAME}: a tile of {options.rows} rows and {options.ncols} columns; give 4 or 8, and 1 or 2"
        )
    if options.own_pairs and not options.preload_b:
        raise KernelError(f"{NAME}: own-pairs without preload-b; columns in turn have no pairs, give it too")
    tile = Tile(options.rows, options.ncols, options.threads)
    coordinates: Persistent | Counted = Persistent() if options.own_pairs else Counted(early=True)
    registers = _plan(tile, options)
    schedule = Schedule(
        tile=tile,
        plan=registers,
        phases=phases(tile, options, coordinates),
        coordinates=coordinates,
        epilogue=ColumnScale(),
        order=options.alu_order,
        unroll=options.k_unroll,
        arithmetic=arithmetic(options.sampler_per_texture),
    )
    constants = (
        *schedule.epilogue.constants(tile, row_bytes=4 * options.n),
        *loop_constants(options.k, schedule.unroll),
    )
    groups, program = tile.groups(NAME, options.m, options.n), generate(schedule, options.k)
    return gemm_launch(
        options, tile, registers, program, constants, groups, _arguments(options), options.thread128
    )


def _plan(tile: Tile, options: Options) -> RegisterPlan:
    """That of the float32 kernels, and the scales over texels."""
    result = plan(tile, options)
    keep = ("acc", "row", "col", "a_pairs", "b_pairs")
    dead = tuple(block.name for block in result.blocks if block.name not in keep)
    return result.place("columns", "r0.x", 4 * tile.cols, over=dead)


def _arguments(options: Options) -> tuple[Argument, ...]:
    return (
        Argument("A", (options.m, matmul.a_texels(options.k), 4), "float16", image=True, written=False),
        Argument("B", (options.k, options.n // 4, 4), "int8", image=True, written=False),
        Argument("columns", (1, options.n // 4, 4), "float32", image=True, written=False),
        Argument("C", (options.m, options.n), "float32", image=False, written=True, pointer=POINTER),
    )


def arrays(options: Options, activations: NDArray[Any], weights: NDArray[Any]) -> Arrays:
    """Activations and weights as what the kernel takes: each column of weights by its largest value."""
    quantized, _ = integer.quantized(weights, axis=0)
    largest = np.abs(weights).max(axis=0).astype(np.float32)
    return {
        "A": matmul.images(options, activations, np.zeros((options.k, options.n)))["A"],
        "B": quantized.astype(np.int8).reshape(options.k, options.n // 4, 4),
        "columns": np.where(largest == 0, np.float32(1), largest).reshape(1, options.n // 4, 4),
    }


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    sizes = 2.0 ** rng.integers(-6, 7, options.n)
    weights = rng.standard_normal((options.k, options.n)) * sizes
    return arrays(options, rng.standard_normal((options.m, options.k)), weights)


def _matrices(options: Options, given: Arrays) -> tuple[single.Float, single.Float, single.Float]:
    """Activations, fractions, scales of columns."""
    a = given["A"].reshape(options.m, -1)[:, : options.k].astype(np.float64)
    b = given["B"].reshape(options.k, options.n).astype(np.float64) / integer.LIMIT
    return a, b, given["columns"].reshape(1, -1).astype(np.float64)


def product(options: Options, given: Arrays) -> Arrays:
    """The product of the quantized weights, in float64."""
    a, b, columns = _matrices(options, given)
    return {"C": (a @ b) * columns}


def bound(options: Options, given: Arrays) -> Mapping[str, single.Float]:
    """The error of the sums and of their scaling.

    Derivation. A fraction is ``q / 127`` to nearest [how the texture pipe rounds is not documented], so
    with the rounding of the product a term is off by ``2 u`` of itself and a little; the sum as in
    :func:`~pytest_qcom.kernels.single.bound`. The last product scales that error and rounds once more.
    """
    a, b, columns = _matrices(options, given)
    total, error = single.chain(a, b, 2.01 * single.ROUNDOFF, 2 * single.TINY)
    scaled = np.abs(columns) * error
    return {"C": scaled + single.ROUNDOFF * (np.abs(columns * total) + scaled) + single.TINY}


def _pattern(name: str) -> Callable[[Any], Arrays]:
    """A pattern whose B is of zeros and ones: those are exact as fractions."""

    def make(options: Options) -> Arrays:
        a, b = matmul.matrices(options, matmul.PATTERNS[name](options))
        return arrays(options, a, b)

    return make


KERNELS = (
    Kernel(
        name=NAME,
        summary="GEMM of half activations by 8-bit weights with a scale a column, in float32",
        options=Options,
        build=build,
        inputs=_random,
        oracle=product,
        tolerance=bound,
        patterns={name: _pattern(name) for name in ("ones", "identity-b", "rows")},
        unit="GFLOPS",
        cases=(
            Case("n1024", {}),
            Case("small", dict(m=16, n=256, k=36)),
            Case("one-step", dict(m=16, n=256, k=4)),
            Case("wide", dict(m=16, n=512, k=20)),
            Case("tall", dict(m=48, n=256, k=20)),
            Case("4x4", dict(m=16, n=128, k=36, ncols=1)),
            Case("8x8", dict(m=32, n=256, k=20, rows=8)),
            Case("own-pairs", dict(m=16, n=256, k=36, own_pairs=True, k_unroll=2)),
            Case("one-bank", dict(m=16, n=256, k=36, preload_b=False)),
            Case("thread128", dict(m=16, n=256, k=36, thread128=True)),
        ),
        source=_NOTES,
    ),
)
