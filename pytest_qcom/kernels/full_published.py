"""What the published float32 kernels have in common: their options, their loops as written, their launch.

Prologue, addresses and stores are ours. What the loops compute is right wherever the hardware waits by
itself: coordinates are rewritten under outstanding samples and samples read coordinates that have just been
written, so the published delays, found by trying, decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import flat, matmul, notes, single
from pytest_qcom.kernels.choices import word
from pytest_qcom.kernels.counted import Counted
from pytest_qcom.kernels.full import arithmetic, launch
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Epilogue, Load, Phases, Schedule, Step
from pytest_qcom.kernels.stores import POINTER, Constant, ImageStore, NoStore, RowMajor
from pytest_qcom.kernels.writer import Writer, constant_name

Cases = Mapping[str, Mapping[str, Any]]
"""Options by the name of their case."""
NOTES = "QUALCOMM.md of tinygrad's QCOM GEMM experiments, tinygrad commit f072c2bf97"
POSTED = 1024.0
"""What post-constant stores."""


@dataclass(frozen=True, slots=True)
class Published:
    """What the published float32 kernels have in common, by the names of the notes.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``threads`` / 32 tiles, n of the tile's columns, k of 4.
        threads: fibers of a workgroup.
        thread128: waves of 128 fibers.
        direct_f32_loads: samples are float32; else half, and converted.
        sampler_per_texture: each texture has its sampler.
        coord_delay: nop repeats between a coordinate and its sample; -1 is none.
        alu_order: nesting of the MADs.
        scalar_mad: no repeated MADs.
        no_store: the products are dropped: a throughput probe.
        skip_a_loads, skip_b_loads: nothing is sampled there: a probe, whose output means nothing.
        post_constant: 1024 is stored in place of the products.
        hand_store: addresses by dependent arithmetic without waits, a vector at a time.
        stride: elements from one row of C to the next; 0 is n.
        float_inputs: A and B are float32 images.
        ncols: vec4 columns of a fiber; those of the family, which 0 means.
        fregs_override: full vec4 declared; 0 is what the kernel uses. Fewer corrupts or hangs hardware.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    threads: int = 128
    thread128: bool = True
    direct_f32_loads: bool = False
    sampler_per_texture: bool = False
    coord_delay: int = 5
    alu_order: str = "kk_row_col"
    scalar_mad: bool = False
    no_store: bool = False
    skip_a_loads: bool = False
    skip_b_loads: bool = False
    post_constant: bool = False
    hand_store: bool = False
    stride: int = 0
    float_inputs: bool = False
    ncols: int = 0
    fregs_override: int = 0


def problem(options: Published) -> single.Plain:
    """The product that a kernel with these options computes."""
    names = ("interleaved_a", "image_store", "half_output", "int8_a", "int8_b")
    form = {name: bool(getattr(options, name, False)) for name in names}
    return single.Plain(options.m, options.n, options.k, options.float_inputs, **form)


def check(name: str, options: Published, ncols: int = 0) -> None:
    """What every published kernel needs; ``ncols`` are the columns of the family, 0 if it has several.

    Raises:
        KernelError: a shape or a delay that makes no kernel.
    """
    check_shape(name, options)
    if not -1 <= options.coord_delay <= 7:
        raise KernelError(f"{name}: coord-delay is {options.coord_delay}; give -1 (none) to 7")
    if ncols and options.ncols not in (0, ncols):
        raise KernelError(f"{name}: ncols is {options.ncols}; this family has {ncols}, leave it out")
    if options.no_store and (options.post_constant or options.hand_store):
        raise KernelError(f"{name}: no-store with a store; give one of them")
    for option in ("float_inputs", "int8_a", "int8_b"):
        if getattr(options, option, False) and not options.direct_f32_loads:
            raise KernelError(f"{name}: {word(option)} sampled as half; give direct-f32-loads=true too")
    if options.hand_store and problem(options).image_store:
        raise KernelError(f"{name}: hand-store into an image; give image-store=false too")
    stride = options.stride or options.n
    if options.hand_store and stride & (stride - 1):
        raise KernelError(f"{name}: hand-store shifts a row by its stride, {stride}; give a power of 2")


def published(
    name: str,
    options: Published,
    tile: Tile,
    plan: RegisterPlan,
    coordinates: Counted,
    phases: Phases | Callable[[Step], Phases],
    syncs: tuple[int, ...] = (0,),
    *,
    unroll: int = 1,
    peel: int = 0,
    primed: tuple[Load, ...] = (),
    least: int = 0,
    interleaved: bool = False,
) -> Build:
    """The launch of a published loop; the phases of products that are in ``syncs`` wait for samples.

    ``least``: full vec4 that are declared even if fewer are used.
    """
    schedule = Schedule(
        tile=tile,
        plan=plan,
        phases=phases,
        primed=primed,
        peel=peel,
        coordinates=coordinates,
        epilogue=_epilogue(options),
        order=options.alu_order,
        scalar_first=True,
        sync=lambda products, step: products in syncs,
        waits="written",
        unroll=unroll,
        arithmetic=arithmetic(options.sampler_per_texture, options.scalar_mad),
        interleaved=interleaved,
    )
    if coordinates.convert:
        schedule = replace(schedule, plan=plan.place("half", "hr0.x", 4))
    built = launch(name, problem(options), schedule, options.thread128, stride=options.stride)
    return replace(built, fregs=options.fregs_override or max(built.fregs, least))


def _epilogue(options: Published) -> Epilogue:
    if options.no_store:
        return NoStore()
    store: RowMajor | ImageStore = RowMajor(element=4)
    if options.hand_store:
        store = HandStore(stride=options.stride or options.n)
    elif problem(options).image_store:
        store = ImageStore(gap=getattr(options, "store_gap", 0))
    return Constant(store) if options.post_constant else store


@dataclass(frozen=True, slots=True)
class HandStore(RowMajor):
    """The notes' first store of floats: one vector at a time, arithmetic without the slots that it needs.

    On hardware it left zeros mostly: each operation reads what its source was before the one that makes it.
    """

    stride: int = 0
    element: int = 4

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        low, high = constant_name(POINTER), constant_name(POINTER + 1)
        addresses, offsets, carry = plan["addresses"], plan["offsets"], plan["carries"][0]
        row, col = plan["row"][0], plan["col"][0]
        with w.as_written():
            for line in range(tile.rows):
                for column in range(tile.cols):
                    w.alu("add.s", offsets[0], row, line)
                    w.alu("add.s", offsets[1], col, tile.lanes * column)
                    w.alu("shl.b", offsets[0], offsets[0], self.stride.bit_length() - 1)
                    w.alu("shl.b", offsets[1], offsets[1], 2)
                    w.alu("add.s", offsets[0], offsets[0], offsets[1])
                    w.alu("shl.b", offsets[0], offsets[0], 2)
                    w.alu("add.u", addresses[0], offsets[0], low)
                    w.alu("cmps.u.lt", carry, addresses[0], low)
                    w.alu("add.u", addresses[1], carry, high)
                    w.emit("nop", ss=True)
                    w.store_full(addresses[0], plan["acc"].vec(line * tile.cols + column), 0)
                    w.emit("nop", ss=True)


def noted(options: Published, **form: bool) -> Counted:
    """Coordinates as published."""
    return Counted(
        ahead=3,
        delay=options.coord_delay,
        convert=not options.direct_f32_loads,
        noted=True,
        skip="A" * options.skip_a_loads + "B" * options.skip_b_loads,
        **form,
    )


def texels(
    plan: RegisterPlan,
    *,
    b: int,
    banks: int,
    a: int,
    acc: int,
    cols: int,
    rows: int = 4,
    rows_apart: int = 1,
) -> RegisterPlan:
    """Texels and accumulators from the given vec4; with ``rows_apart`` 0 the rows of A share one."""
    for bank in range(banks):
        plan = plan.place(f"b{bank}", f"r{b + 4 * bank}.x", 16)
    for row in range(rows):
        earlier = tuple(f"a{other}" for other in range(row)) if not rows_apart else ()
        plan = plan.place(f"a{row}", f"r{a + row * rows_apart}.x", 4, over=earlier)
    return plan.place("acc", f"r{acc}.x", 4 * rows * cols)


def low_state(plan: RegisterPlan, following: str = "r0.x") -> RegisterPlan:
    """Loop state where the half kernels have it; ``following`` is the next counter."""
    for name, at in (("ky", "r6.y"), ("k4", "r6.z"), ("row", "r7.x"), ("col", "r7.y")):
        plan = plan.place(name, at, 1)
    return plan.place("next", following, 1, over=("b0",))


def state(
    plan: RegisterPlan, vec: str, following: str = "r0.x", over: tuple[str, ...] = ("b0",)
) -> RegisterPlan:
    """Loop state in one vec4, the next counter over a texel of B."""
    for name, component in (("row", "x"), ("col", "y"), ("ky", "z"), ("k4", "w")):
        plan = plan.place(name, f"{vec}.{component}", 1)
    return plan.place("next", following, 1, over=over)


def over_texels(plan: RegisterPlan, rows: int = 4) -> RegisterPlan:
    """What prologue and epilogue need, over everything but the accumulators and the place."""
    dead = tuple(block.name for block in plan.blocks if block.name not in ("acc", "row", "col"))
    plan = plan.place("scratch", "r1.x", 4, over=dead)
    dead = (*dead, "scratch")
    plan = plan.place("addresses", "r0.x", 2 * rows, over=dead)
    plan = plan.place("carries", f"r{rows // 2}.x", rows, over=dead)
    return plan.place("offsets", f"r{rows // 2 + rows // 4}.x", 2, over=dead)


def declare(
    name: str,
    options: type[Published],
    build: Callable[[Any], Build],
    rows: Cases,
    family: str = "",
    reads: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
    implied: Callable[[Mapping[str, str]], Mapping[str, str]] = dict,
) -> Kernel:
    """The published configurations of a family; those that store nothing are throughput figures.

    ``implied``: what rows leave out, beside the compiler's store, which is what there is without another.
    """
    family = family or name.removesuffix("_published")
    return Kernel(
        name=name,
        summary=f"{family} as published: right if the hardware waits where the code does not",
        options=options,
        build=build,
        inputs=lambda options, rng: single.random(problem(options), rng),
        oracle=_product,
        tolerance=_tolerance,
        patterns={name: _pattern(name) for name in single.PATTERNS},
        unit="GFLOPS",
        cases=tuple(Case(row, given) for row, given in rows.items()),
        claim="as-published",
        family=family,
        reads=reads,
        implied=lambda given: implied(notes.without(given, "donor_store", "native_store", "eight_row")),
        source=NOTES,
    )


def _product(options: Published, arrays: Arrays) -> Arrays:
    """Samples that are half flush what is below the smallest normal half; float32 ones do not."""
    if options.no_store or (not options.post_constant and (options.skip_a_loads or options.skip_b_loads)):
        return {}
    if options.post_constant:
        return _apart(options, np.full((options.m, options.n), POSTED))
    found = single.product(problem(options), arrays)["C"]
    if not options.direct_f32_loads:
        halves = matmul.images(options, *single.matrices(problem(options), arrays))
        found = matmul.product(options, halves)["C"]
    return _apart(options, found)


def _apart(options: Published, values: single.Float) -> Arrays:
    """Rows as far apart as they are, in the shape of C."""
    wide = flat.apart(values.reshape(options.m, options.n), options.stride)
    return {"C": wide.reshape(options.m, -1, 4) if problem(options).image_store else wide}


def _tolerance(options: Published, arrays: Arrays) -> Arrays:
    """:func:`~pytest_qcom.kernels.single.bound` of one chain over k."""
    return _apart(options, single.bound(problem(options), arrays)["C"])


def _pattern(name: str) -> Callable[[Any], Arrays]:
    return lambda options: single.PATTERNS[name](problem(options))
