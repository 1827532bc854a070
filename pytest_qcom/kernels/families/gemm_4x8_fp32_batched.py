"""Several float32-accumulated products in one launch of the rotating 4x8 kernel.

A, B and C are stacked. A fiber finds out of which product its rows are, and where that product's B starts;
the K steps are those of :mod:`gemm_4x8_fp32_rotate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul, single
from pytest_qcom.kernels.families import gemm_4x8_fp32_rotate as rotate
from pytest_qcom.kernels.full import arithmetic
from pytest_qcom.kernels.gemm import LARGEST_IMAGE, check_shape, gemm_launch
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import GROUP_Z, Tile, emit_multiply
from pytest_qcom.kernels.schedule import Schedule, generate, loop_constants
from pytest_qcom.kernels.stores import POINTER, ImageStore, RowMajor
from pytest_qcom.kernels.writer import Writer

NAME = "gemm_4x8_fp32_batched"
LAYOUTS = ("row", "z")
_LARGEST_FACTOR = 1023


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the batched rotating kernel.

    Attributes:
        m, n, k: of each product; m a multiple of ``threads`` / 8, n of 256, k of 4.
        batches: products.
        layout: ``row``: the row says which product (the published batch-from-row), so m is a power of 2;
            ``z``: workgroup z counts products.
        threads: fibers of a workgroup: 64, 128 or 256.
        k_unroll: K steps of the loop body, a multiple of 3.
        image_store: C is an image; with ``half_output`` a half one.
        float_inputs: A and B are float32 images.
    """

    m: int = 256
    n: int = 256
    k: int = 256
    batches: int = 7
    layout: str = "row"
    threads: int = 64
    k_unroll: int = 3
    image_store: bool = False
    half_output: bool = False
    float_inputs: bool = False

    @property
    def interleaved_a(self) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, slots=True)
class Batched(rotate.Rotating):
    """The rotating kernel's counters, begun in the product that the fiber works on."""

    layout: str = "row"
    m: int = 0
    k: int = 0

    def start(self, w: Writer, schedule: Schedule) -> None:
        row, k4, ky = (schedule.plan[name][0] for name in ("row", "k4", "ky"))
        if self.layout == "row":
            w.alu("shr.b", ky, row, self.m.bit_length() - 1)
        else:
            w.mov(ky, GROUP_Z)
            emit_multiply(w, k4, ky, self.m)
            w.alu("add.s", row, row, k4)
        emit_multiply(w, ky, ky, self.k)
        w.mov(k4, 0)


def build(options: Options) -> Build:
    """One launch for all products.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    _check(options)
    tile = Tile(rotate.ROWS, rotate.COLS, options.threads)
    columns, rows, _ = tile.groups(NAME, options.m, options.n)
    batched = Batched(layout=options.layout, m=options.m, k=options.k)
    schedule = Schedule(
        tile=tile,
        plan=rotate.plan(),
        phases=(batched,),
        coordinates=batched,
        epilogue=ImageStore() if options.image_store else RowMajor(element=4),
        unroll=options.k_unroll,
        peel=1,
        arithmetic=arithmetic(sampler_per_texture=True),
    )
    constants = (
        *schedule.epilogue.constants(tile, row_bytes=4 * options.n),
        *loop_constants(options.k, schedule.unroll, schedule.peel),
    )
    z = options.layout == "z"
    built = gemm_launch(
        options,
        tile,
        schedule.plan,
        generate(schedule, options.k),
        constants,
        (columns, rows, options.batches) if z else (columns, rows * options.batches, 1),
        arguments=_arguments(options),
        thread128=False,
    )
    return replace(built, work=built.work * options.batches)


def _check(options: Options) -> None:
    rotate.check(NAME, options.k, options.k_unroll)
    check_shape(NAME, options)
    if options.layout not in LAYOUTS:
        raise KernelError(f"{NAME}: layout is {options.layout!r}; give one of {', '.join(LAYOUTS)}")
    if options.layout == "row" and options.m & (options.m - 1):
        raise KernelError(f"{NAME}: m is {options.m}; with layout=row give a power of 2")
    if options.half_output and not options.image_store:
        raise KernelError(f"{NAME}: half-output into a buffer of float32; give image-store=true too")
    if any(side > _LARGEST_FACTOR and side & (side - 1) for side in (options.m, options.k)):
        raise KernelError(
            f"{NAME}: m {options.m} and k {options.k}; beyond {_LARGEST_FACTOR} give powers of 2"
        )
    if options.batches < 1 or options.batches * max(options.m, options.k) > LARGEST_IMAGE:
        raise KernelError(
            f"{NAME}: {options.batches} products of {options.m} x {options.n} x {options.k}; images are up "
            f"to {LARGEST_IMAGE} texels high, give 1 to {LARGEST_IMAGE // max(options.m, options.k)}"
        )


@dataclass(frozen=True, slots=True)
class _One:
    """A product alone."""

    m: int
    n: int
    k: int
    float_inputs: bool
    image_store: bool
    half_output: bool
    interleaved_a: bool = False


def _one(options: Options) -> _One:
    return _One(
        options.m, options.n, options.k, options.float_inputs, options.image_store, options.half_output
    )


def _arguments(options: Options) -> tuple[Argument, ...]:
    """Those of one product, as often as there are products."""
    return tuple(
        replace(argument, shape=(options.batches * argument.shape[0], *argument.shape[1:]))
        for argument in single.arguments(_one(options), POINTER)
    )


def _stacked(products: list[Arrays]) -> Arrays:
    return {name: np.concatenate([arrays[name] for arrays in products]) for name in "AB"}


def _split(options: Options, arrays: Arrays) -> list[Arrays]:
    parts = {name: np.split(arrays[name], options.batches) for name in "AB"}
    return [{"A": a, "B": b} for a, b in zip(parts["A"], parts["B"], strict=True)]


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    """Standard normal matrices."""
    return _stacked([single.random(_one(options), rng) for _ in range(options.batches)])


def _pattern(name: str) -> Callable[[Any], Arrays]:
    """A pattern of one product, rolled by a row and a column from product to product."""

    def make(options: Options) -> Arrays:
        one = _one(options)
        a, b = single.matrices(one, single.PATTERNS[name](one))
        return _stacked(
            [single.images(one, np.roll(a, part, 0), np.roll(b, part, 1)) for part in range(options.batches)]
        )

    return make


def _each(options: Options, arrays: Arrays, judge: Callable[..., Mapping[str, NDArray[Any]]]) -> Arrays:
    return {"C": np.concatenate([judge(_one(options), own)["C"] for own in _split(options, arrays)])}


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """Each ``A @ B`` in float64."""
    return _each(options, arrays, single.product)


def _tolerance(options: Options, arrays: Arrays) -> Arrays:
    """:func:`~pytest_qcom.kernels.single.bound` of each product."""
    return _each(options, arrays, single.bound)


GEMM = Kernel(
    name=NAME,
    summary="several products in one launch of the rotating 4x8 GEMM with float32 sums",
    options=Options,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={name: _pattern(name) for name in matmul.PATTERNS},
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
