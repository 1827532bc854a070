"""GEMMs with half inputs and float32 accumulators, 4 to 8 rows by 1 to 4 vec4 columns a fiber.

A float32 tile of a fiber is as large in registers as it is in work, so its schedules differ in what they keep
besides it. Ours writes each coordinate into the registers that the sample then fills, all of a step before
the first sample, so that nothing waits but the last; the loop's counters and its test stand in that wait.
With ``paired_coords`` a coordinate is one repeated instruction, and the 4x8 loop 61 instructions.
With ``own_pairs`` every sample has a coordinate that lives through the loop: half as many additions, more
registers. With fewer B banks than columns (``preload_b`` off), columns are sampled and multiplied in turn.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import flat, single
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.counted import Counted, pair_constants
from pytest_qcom.kernels.full import arithmetic, launch, phases, plan, primed
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.schedule import ORDERS, Epilogue, Schedule
from pytest_qcom.kernels.stores import ImageStore, RowMajor
from pytest_qcom.kernels.tiled import Columns, check_output, check_pairs, check_turns, check_words

_NOTES = "QUALCOMM.md and qcom_fp32_check.py of tinygrad's QCOM GEMM experiments"


@dataclass(frozen=True, slots=True)
class Options(Columns):
    """Options of the float32 kernels; k a multiple of 4.

    Attributes:
        pipeline_b: columns in turn in the registers of two: one is sampled before the products of another.
        component_stream: columns in turn in the registers of one, each k sampled anew behind its products.
        ahead: samples for the next step between the products of this one, those of A into a second bank;
            needs ``own_pairs`` and an even ``k_unroll``.
        paired_coords: both parts of a coordinate by one repeated addition; needs ``k_unroll`` 1.
        scalar_mad: one column an instruction, without repeats.
        interleaved_a: a texel of A is four rows of one k; for tiles of four rows.
        float_inputs: A and B are float32 images.
        int8_a, int8_b: that one is an image of normalized bytes, fractions of 127.
        image_store: C is an image; with ``half_output`` a half one.
        stride: elements from one row of C to the next; 0 is n. What lies between is not written.
    """

    pipeline_b: bool = False
    component_stream: bool = False
    ahead: bool = False
    paired_coords: bool = False
    scalar_mad: bool = False
    interleaved_a: bool = False
    float_inputs: bool = False
    int8_a: bool = False
    int8_b: bool = False
    image_store: bool = False
    half_output: bool = False
    stride: int = 0


def build(name: str, rows: int, ncols: int, options: Options) -> Build:
    """The kernel ``name`` for tiles of ``rows`` by ``ncols`` vec4 columns.

    Raises:
        KernelError: options that do not go together, a shape that is not made of whole tiles.
    """
    _check(name, rows, ncols, options)
    tile = Tile(rows, ncols, options.threads)
    coordinates: Persistent | Counted = (
        Persistent() if options.own_pairs else Counted(early=True, paired=options.paired_coords)
    )
    schedule = Schedule(
        tile=tile,
        plan=plan(tile, options),
        phases=phases(tile, options, coordinates),
        primed=primed(tile) if options.ahead else (),
        peel=1 if options.ahead else 0,
        coordinates=coordinates,
        epilogue=epilogue(options),
        order=options.alu_order,
        unroll=options.k_unroll,
        arithmetic=arithmetic(options.sampler_per_texture, options.scalar_mad),
        interleaved=options.interleaved_a,
    )
    constants = pair_constants(tile) if options.paired_coords else ()
    return launch(name, options, schedule, options.thread128, constants=constants, stride=options.stride)


def epilogue(options: Options) -> Epilogue:
    """Texels or words straight from the accumulators."""
    return ImageStore() if options.image_store else RowMajor(element=4)


def _apart(options: Options, arrays: Arrays) -> Arrays:
    """Rows of C as far apart as they are, a texel of an image as four elements."""
    values = flat.apart(arrays["C"].reshape(options.m, options.n), options.stride)
    return {"C": values.reshape(options.m, -1, 4) if options.image_store else values}


def _check(name: str, rows: int, ncols: int, options: Options) -> None:
    """Combinations that make no kernel."""
    check_shape(name, options)
    if options.interleaved_a and rows != 4:
        raise KernelError(f"{name}: interleaved-a with {rows} rows; a texel holds four, leave it out")
    check_pairs(name, options)
    check_turns(name, options, ncols)
    if options.paired_coords and (options.own_pairs or options.interleaved_a or options.k_unroll != 1):
        raise KernelError(f"{name}: paired-coords with own-pairs, interleaved-a or k-unroll; give it alone")
    if options.ahead and (not options.own_pairs or options.k_unroll % 2):
        raise KernelError(
            f"{name}: ahead needs own-pairs=true and an even k-unroll; give both or leave it out"
        )
    if options.own_pairs and options.interleaved_a:
        raise KernelError(f"{name}: own-pairs with interleaved-a; give one of them")
    check_output(name, options)
    check_words(name, options.m, options.stride or options.n)


def _declare(rows: int, ncols: int, cases: tuple[Case, ...]) -> Kernel:
    name = f"gemm_{rows}x{4 * ncols}_fp32"
    return Kernel(
        name=name,
        summary=f"GEMM of half matrices accumulated in float32, {rows} rows by {ncols} vec4 columns a fiber",
        options=Options,
        build=functools.partial(build, name, rows, ncols),
        inputs=single.random,
        oracle=lambda options, arrays: _apart(options, single.product(options, arrays)),
        tolerance=lambda options, arrays: _apart(options, single.bound(options, arrays)),
        patterns=single.PATTERNS,
        unit="GFLOPS",
        cases=cases,
        source=_NOTES,
    )


def _cases(rows: int, ncols: int, k: int = 36) -> tuple[Case, ...]:
    """What is checked of every tile: the two ways of coordinates, both wave sizes, a rest, both stores."""
    m, n = 4 * rows, 128 * ncols
    return (
        Case("small", dict(m=m, n=n, k=k)),
        Case("wide", dict(m=m, n=2 * n, k=8)),
        Case("tall", dict(m=3 * m, n=n, k=20)),
        Case("one-step", dict(m=m, n=n, k=4)),
        Case("unroll", dict(m=m, n=n, k=28, k_unroll=2)),
        Case("own-pairs", dict(m=m, n=n, k=k, own_pairs=True)),
        Case("own-pairs-unroll", dict(m=m, n=2 * n, k=28, own_pairs=True, k_unroll=2)),
        Case("ahead", dict(m=m, n=n, k=28, own_pairs=True, ahead=True, k_unroll=2)),
        Case("paired-coords", dict(m=m, n=2 * n, k=k, paired_coords=True)),
        Case("ahead-one", dict(m=m, n=n, k=4, own_pairs=True, ahead=True, k_unroll=2)),
        Case("thread128", dict(m=m, n=n, k=k, thread128=True)),
        Case("threads-64", dict(m=2 * rows, n=n, k=k, threads=64)),
        Case("image-store", dict(m=m, n=n, k=k, image_store=True)),
        Case("half-output", dict(m=m, n=n, k=k, image_store=True, half_output=True)),
        Case("float-inputs", dict(m=m, n=n, k=k, float_inputs=True)),
        Case("int8", dict(m=m, n=n, k=k, int8_a=True, int8_b=True)),
        Case("stride", dict(m=m, n=n, k=k, stride=2 * n)),
        Case("image-stride", dict(m=m, n=n, k=k, stride=n + 64, image_store=True)),
    )


_ORDERED = tuple(
    Case(order.replace("_", "-"), dict(m=16, n=256, k=20, alu_order=order))
    for order in ORDERS
    if order != "kk_col_row"
)


def _few(rows: int, ncols: int) -> tuple[Case, ...]:
    """What is checked of the less usual tiles."""
    names = {"small", "unroll", "own-pairs-unroll", "image-store", "one-bank-unroll", "pipeline-b"}
    names |= {"component-stream", "int8"}
    every = (*_cases(rows, ncols), *(_banks(rows, ncols) if ncols > 1 else ()))
    return tuple(case for case in every if case.name in names)


def _banks(rows: int, ncols: int) -> tuple[Case, ...]:
    """Columns in turn, in the registers of one."""
    m, n = 4 * rows, 128 * ncols
    return (
        Case("one-bank", dict(m=m, n=n, k=36, preload_b=False)),
        Case("one-bank-unroll", dict(m=m, n=2 * n, k=28, preload_b=False, k_unroll=2)),
        Case("one-bank-paired", dict(m=m, n=n, k=20, preload_b=False, paired_coords=True)),
        Case("one-bank-image", dict(m=m, n=n, k=20, preload_b=False, image_store=True)),
        Case("pipeline-b", dict(m=m, n=n, k=28, preload_b=False, pipeline_b=True)),
        Case("component-stream", dict(m=m, n=n, k=28, preload_b=False, component_stream=True, k_unroll=2)),
    )


_N1024 = Case("n1024", dict(paired_coords=True))

KERNELS = (
    _declare(
        4,
        1,
        (
            _N1024,
            *_cases(4, 1),
            Case("unroll-4", dict(m=16, n=128, k=44, k_unroll=4)),
            Case("scalar-mad", dict(m=16, n=128, k=36, scalar_mad=True)),
            Case("interleaved", dict(m=16, n=128, k=36, interleaved_a=True)),
        ),
    ),
    _declare(
        4,
        2,
        (
            _N1024,
            *_cases(4, 2),
            *_ORDERED,
            *_banks(4, 2),
            Case("interleaved", dict(m=16, n=256, k=36, interleaved_a=True, k_unroll=2)),
            Case("interleaved-one-bank", dict(m=16, n=256, k=20, interleaved_a=True, preload_b=False)),
        ),
    ),
    _declare(4, 3, _few(4, 3)),
    _declare(4, 4, _few(4, 4)),
    _declare(5, 2, _few(5, 2)),
    _declare(6, 2, _few(6, 2)),
    _declare(8, 1, (Case("n1024", {}), *_few(8, 1))),
    _declare(8, 2, (Case("n1024", dict(own_pairs=True, k_unroll=4)), *_cases(8, 2), *_banks(8, 2))),
)
