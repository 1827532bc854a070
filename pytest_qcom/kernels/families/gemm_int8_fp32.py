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
from pytest_qcom.kernels import matmul, single
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.counted import Counted
from pytest_qcom.kernels.full import arithmetic, phases, plan
from pytest_qcom.kernels.gemm import check_shape, gemm_launch
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Epilogue, Schedule, generate, loop_constants
from pytest_qcom.kernels.stores import POINTER, ImageStore, RowMajor
from pytest_qcom.kernels.tiled import Columns, check_output, check_pairs, check_turns, check_words
from pytest_qcom.kernels.writer import Writer

NAME = "gemm_int8_fp32"
_TILES = {4: (1, 2, 3, 4), 8: (1, 2)}
"""Vec4 columns with so many rows: what the registers hold."""
_NOTES = "qcom_int8_cached_weights.py of tinygrad's QCOM GEMM experiments"


@dataclass(frozen=True, slots=True)
class Options(Columns):
    """Options of the kernel with 8-bit weights; k a multiple of 4.

    Attributes:
        rows, ncols: the tile of a fiber: 4 rows by 1 to 4 vec4 columns, or 8 by 1 or 2.
        pipeline_b: columns in turn in the registers of two: one is sampled before the products of another.
        component_stream: columns in turn in the registers of one, each k sampled anew behind its products.
        per_channel: a scale for each column of weights; else one for all of them.
        int8_a: the activations are bytes too, fractions of 127 as they are.
        image_store: C is an image; with ``half_output`` a half one.
    """

    rows: int = 4
    ncols: int = 2
    pipeline_b: bool = False
    component_stream: bool = False
    per_channel: bool = True
    int8_a: bool = False
    image_store: bool = False
    half_output: bool = False

    @property
    def float_inputs(self) -> bool:
        """Never."""
        return False

    @property
    def int8_b(self) -> bool:
        """Always."""
        return True


@dataclass(frozen=True, slots=True)
class ColumnScale:
    """Each vec4 column times its texel of texture 2, then the store."""

    store: Epilogue

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return self.store.constants(tile, row_bytes)

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
        self.store.emit(w, tile, plan)


def build(options: Options) -> Build:
    """The kernel.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    check_shape(NAME, options)
    if options.ncols not in _TILES.get(options.rows, ()):
        raise KernelError(
            f"{NAME}: a tile of {options.rows} rows and {options.ncols} columns; give 4 and 1 to 4, or 8 and "
            "1 or 2"
        )
    check_pairs(NAME, options)
    check_turns(NAME, options, options.ncols)
    check_output(NAME, options)
    check_words(NAME, options.m, options.n)
    tile = Tile(options.rows, options.ncols, options.threads)
    coordinates: Persistent | Counted = Persistent() if options.own_pairs else Counted(early=True)
    registers = _plan(tile, options)
    schedule = Schedule(
        tile=tile,
        plan=registers,
        phases=phases(tile, options, coordinates),
        coordinates=coordinates,
        epilogue=ColumnScale(ImageStore() if options.image_store else RowMajor(element=4)),
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
    """Those of any such product, the image of scales behind that of B."""
    given = single.arguments(options, POINTER)
    behind = next(number for number, argument in enumerate(given) if argument.name == "B") + 1
    columns = Argument("columns", (1, options.n // 4, 4), "float32", image=True, written=False)
    return (*given[:behind], columns, *given[behind:])


def arrays(options: Options, activations: NDArray[Any], weights: NDArray[Any]) -> Arrays:
    """Activations and weights as what the kernel takes.

    Weights come by the largest value of their column, or of all; activations that are bytes are those of
    their value times 127, cut off beyond 1.
    """
    largest = np.abs(weights).max(axis=0 if options.per_channel else None).astype(np.float32)
    largest = np.broadcast_to(np.where(largest == 0, np.float32(1), largest), (options.n,))
    columns = largest.astype(np.float32).reshape(1, options.n // 4, 4)
    return {**single.images(options, activations, weights / largest), "columns": columns}


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    sizes = 2.0 ** rng.integers(-6, 7, options.n)
    weights = rng.standard_normal((options.k, options.n)) * sizes
    size = 0.4 if options.int8_a else 1.0  # few are cut off
    return arrays(options, size * rng.standard_normal((options.m, options.k)), weights)


def _scales(given: Arrays) -> single.Float:
    return given["columns"].reshape(1, -1).astype(np.float64)


def product(options: Options, given: Arrays) -> Arrays:
    """The product of the quantized weights, in float64."""
    a, b = single.matrices(options, given)
    return {"C": single.shaped(options, (a @ b) * _scales(given))}


def bound(options: Options, given: Arrays) -> Mapping[str, single.Float]:
    """The error of the sums and of their scaling.

    Derivation. The sum as in :func:`~pytest_qcom.kernels.single.bound`. The last product scales that error
    and rounds once more, and so does a half output.
    """
    columns = _scales(given)
    total, error = single.chain(*single.matrices(options, given), *single.roundings(options))
    scaled = np.abs(columns) * error
    scaled = scaled + single.ROUNDOFF * (np.abs(columns * total) + scaled) + single.TINY
    return {"C": single.shaped(options, scaled + single.output_error(options, columns * total, scaled))}


def _pattern(name: str) -> Callable[[Any], Arrays]:
    """A pattern whose B is of zeros and ones: those are exact as fractions, and so are they in A."""

    def make(options: Options) -> Arrays:
        a, b = matmul.matrices(options, matmul.PATTERNS[name](options))
        return arrays(options, np.minimum(a, 1) if options.int8_a else a, b)

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
            Case("one-scale", dict(m=16, n=256, k=36, per_channel=False)),
            Case("int8-a", dict(m=16, n=256, k=36, int8_a=True)),
            Case("4x16", dict(m=16, n=512, k=36, ncols=4, preload_b=False)),
            Case("4x16-preload", dict(m=16, n=512, k=28, ncols=4, k_unroll=2, image_store=True)),
            Case("4x16-pipeline", dict(m=32, n=512, k=28, ncols=4, preload_b=False, pipeline_b=True)),
            Case(
                "4x16-stream",
                dict(m=16, n=1024, k=36, ncols=4, preload_b=False, component_stream=True, image_store=True),
            ),
            Case("4x16-n1024", dict(ncols=4, preload_b=False, component_stream=True)),
            Case("4x12", dict(m=16, n=384, k=20, ncols=3, preload_b=False, int8_a=True)),
            Case("half-output", dict(m=16, n=256, k=36, image_store=True, half_output=True)),
            Case("int8-a-8x8", dict(m=32, n=256, k=20, rows=8, int8_a=True, per_channel=False)),
        ),
        source=_NOTES,
    ),
)
