"""Published FP16 GEMMs of 8 rows by 1, 2 or 4 vec4 columns a fiber, as their code did it.

Loops are written as published, with their delays and their few (sy), and nothing else waits: pairs are
rewritten under outstanding samples, and with one (sy) a loop body most texels are multiplied whether or not
they have arrived. Stores are published too, as far as results depend on it: repeated moves without (r) store
lane x of each vector four times, and a stepped address loses its carry. Prologues and the addresses of the
first column are ours. What all this does on all-ones inputs the notes call correct; random inputs show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import eight_forms, matmul, noted_outputs, notes
from pytest_qcom.kernels.choices import about, made, word
from pytest_qcom.kernels.eight_checks import PROBES, check, implied
from pytest_qcom.kernels.eight_ends import epilogue
from pytest_qcom.kernels.eight_forms import Form
from pytest_qcom.kernels.eight_persistent import persistent
from pytest_qcom.kernels.eight_rows import (
    ROWS,
    Published,
    Published8x4,
    Published8x12,
    Published8x16,
    read,
)
from pytest_qcom.kernels.gemm import HalfGemm, build_gemm
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import LANES, Tile
from pytest_qcom.kernels.published_stores import keeping
from pytest_qcom.kernels.quads import by_halves
from pytest_qcom.kernels.schedule import Load, Phases, Schedule, Step
from pytest_qcom.kernels.split_a import declared, split

_NOTES = "QUALCOMM.md of tinygrad's QCOM GEMM experiments, tinygrad commit f072c2bf97"


def build_8x4(options: Published) -> Build:
    """A published kernel of 8 rows by 1 vec4 column."""
    return _build("gemm_8x4_fp16_published", options, 1)


def build_8x8(options: Published) -> Build:
    """A published kernel of 8 rows by 2 vec4 columns."""
    return _build("gemm_8x8_fp16_published", options, 2)


def build_8x12(options: Published) -> Build:
    """A published kernel of 8 rows by 3 vec4 columns."""
    return _build("gemm_8x12_fp16_published", options, 3)


def build_8x16(options: Published) -> Build:
    """A published kernel of 8 rows by 4 vec4 columns."""
    return _build("gemm_8x16_fp16_published", options, 4)


def build_waited(options: Published) -> Build:
    """A published schedule of 8 rows by 2 vec4 columns, with every wait and all lanes stored.

    Raises:
        KernelError: options that do not go together or are a probe.
    """
    name, unset = "gemm_8x8_fp16_waited", Published()
    for option in PROBES:
        if getattr(options, option) != getattr(unset, option):
            raise KernelError(
                f"{name}: {word(option)} does not give C; leave it out, or take the published one"
            )
    return _build(name, options, 2, waits="legal")


def _build(name: str, options: Published, ncols: int, waits: str = "written") -> Build:
    forms = _FORMS[ncols]
    form = check(name, options, ncols, tuple(forms))
    with about(name):
        schedule, (fregs, hregs) = made(options, lambda given: _keeping(given, forms[form](name, given)))
    if waits != "written":
        store = epilogue(options, waits) if schedule.waits == "written" else schedule.epilogue
        schedule = replace(schedule, waits=waits, sync=_nothing, epilogue=store, zero_from_first=False)
        if options.split_quad_a and not options.mergedregs:
            schedule = replace(schedule, plan=by_halves(schedule.plan, sampled=1, fibers=4))
            hregs = max(hregs, schedule.plan.footprint()[1])
    if options.profile == "isam":
        schedule = replace(schedule, phases=_samples_only(schedule))
    rest = schedule.peel if form == "persistent" else 0
    if options.steps <= rest or (options.steps - rest) % schedule.unroll:
        behind = f" with {rest} left" if rest else ""
        raise KernelError(
            f"{name}: {options.steps} K steps do not divide by {schedule.unroll}{behind}; the published "
            "kernels have no remainder"
        )
    tile = schedule.tile
    built = build_gemm(
        name,
        matmul.Sides(options.m, options.n, 4 * options.steps),
        schedule,
        noted_outputs.arguments(options, tile, options.m, tile.groups(name, options.m, options.n)),
        stride=options.stride,
        thread128=options.thread128,
    )
    if options.mergedregs:
        fregs, hregs = built.fregs, built.hregs
    return replace(built, fregs=options.fregs_override or fregs, hregs=options.hregs_override or hregs)


def _keeping(options: Published, form: Form) -> Form:
    """The form with the registers that keep ids for the store."""
    schedule, (fregs, hregs) = form
    plan = keeping(schedule.plan, options.thread_store_lid_reg, options.thread_store_group_regs)
    if plan is not schedule.plan:
        fregs = max(fregs, plan.footprint()[0])
    return replace(schedule, plan=plan), (fregs, hregs)


def _nothing(products: int, step: Step) -> bool:
    return False


def _samples_only(schedule: Schedule) -> Callable[[Step], Phases]:
    """The phases without their products."""
    return lambda step: tuple(phase for phase in schedule.at(step) if isinstance(phase, Load))


def _split(name: str, options: Published) -> Form:
    return split(name, options), declared(options)


_FORMS: Mapping[int, Mapping[str, Callable[[str, Published], Form]]] = {
    1: {
        "donor_store": eight_forms.donor,
        "pipeline": eight_forms.pipeline,
        "pipeline4": eight_forms.pipeline,
        "batch2": eight_forms.pipeline,
        "serial": eight_forms.serial,
        "preload": eight_forms.preload,
    },
    2: {
        "donor_store": eight_forms.donor,
        "serial": eight_forms.serial,
        "preload": eight_forms.preload,
        "experimental_twopass": eight_forms.twopass,
        "pipeline": eight_forms.pipeline,
        "pipeline4": eight_forms.pipeline,
        "batch2": eight_forms.pipeline,
        "persistent": persistent,
        "lifetime": eight_forms.lifetime,
        "self_coords": eight_forms.self_coords,
        "split_a": _split,
    },
    3: {"serial": eight_forms.serial, "preload": eight_forms.preload},
    4: {"donor_store": eight_forms.serial, "serial": eight_forms.serial, "split_a": _split},
}
"""What each number of vec4 columns has; with 4 of them a preload needs more than 48 half vec4."""


def _cut(options: Published, arrays: Arrays) -> tuple[matmul.Sides, Arrays]:
    """The k that are multiplied as a problem of its own."""
    return matmul.part(options, arrays, slice(4 * options.k_start, 4 * (options.k_start + options.steps)))


def _shaped(options: Published, c: NDArray[Any]) -> NDArray[Any]:
    """C as the store leaves it, NaN where it stores nothing and 0 where nothing is multiplied."""
    if options.split_reserved_out >= 0:
        row, column = divmod(options.split_reserved_out, 2)
        lines = c.reshape(len(c) // ROWS, ROWS, -1, options.ncols, 4 * LANES).copy()
        lines[:, row, :, column] = 0
        c = lines.reshape(c.shape)
    return noted_outputs.laid_out(options, Tile(ROWS, options.ncols, options.threads, options.swap_grid), c)


def _oracle(options: Published, arrays: Arrays) -> Arrays:
    """``A @ B`` over the k that are multiplied, in float64, as the store lays it out."""
    return {"C": _shaped(options, matmul.product(*_cut(options, arrays))["C"])}


def _tolerance(options: Published, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """:func:`~pytest_qcom.kernels.matmul.half_bound` over the k that are multiplied."""
    return {"C": _shaped(options, matmul.half_bound(*_cut(options, arrays))["C"])}


def _kernel(
    ncols: int,
    options: type[Any],
    build: Callable[[Published], Build],
    cases: tuple[Case, ...],
    waited: bool = False,
) -> Kernel:
    tile, end = f"8x{4 * ncols}", "in the published orders, with every wait" if waited else "as published"
    return HalfGemm(
        name=f"gemm_{tile}_fp16_{'waited' if waited else 'published'}",
        summary=f"FP16 GEMM of 8 rows by {4 * ncols} columns a fiber, {end}",
        options=options,
        build=build,
        oracle=_oracle,
        tolerance=_tolerance,
        cases=cases,
        claim="correct" if waited else "as-published",
        family="" if waited else f"gemm_{tile}_fp16",
        reads=read,
        implied=implied,
        source=_NOTES,
    )


def _cases(rows: Mapping[str, str]) -> tuple[Case, ...]:
    """Cases by the number of their row in the published tables."""
    return tuple(Case(name, notes.options(config)) for name, config in rows.items())


_BEST = (
    "split-a split-k-unroll=8 b-coord-delay=0 donor8-add256-store split-prefetch-next-b split-fast-coords "
    "fregs-override=8"
)
_TIGHT = f"{_BEST} add256-store-mode=tight"
_FOUR = "split-a split-k-unroll=4 b-coord-delay=3 donor8-add256-store"

_SMALL = "m=32 n=512 k=48 a-coord-delay=-1 b-coord-delay=-1"
_SPLIT, _AHEAD = "split-a split-k-unroll=2", "split-a split-k-unroll=4 split-prefetch-next-b"
_WAITED = {
    "donor": "donor-store",
    "serial": "serial donor4-store alu-order=row_col_kk",
    "twopass": "experimental-twopass overlap-b1",
    "preload": "preload",
    "pipeline": "pipeline no-next-sy",
    "pipeline4": "pipeline4 threads=64",
    "batch2": "batch2 row-sync",
    "split": "split-a donor8-add256-store add256-direct-sources",
    "part-of-k": f"{_SPLIT} k-start=3 k-count=6",
    "fast": f"{_SPLIT} split-fast-coords split-hoist-b0-coord split-low-a swap-grid n=1024",
    "grouped": f"{_SPLIT} grouped-b split-high-a split-add-a-rows",
    "grouped-cols": f"{_SPLIT} grouped-b-cols split-mid-acc",
    "pairs": f"{_SPLIT} split-pair-b-coords split-unroll-gap=2",
    "inline": f"{_SPLIT} split-inline-b-wait split-base-b-y",
    "buffer-a": f"{_AHEAD} split-buffer-a split-high-a",
    "preload-a8": f"{_AHEAD} split-preload-a8 split-low-a",
    "next-a": f"{_AHEAD} split-prefetch-next-a split-stream-next-b1",
    "next-a-first": f"{_AHEAD} split-prefetch-next-a split-next-a-first split-interleave-next-b",
    "loop-b": f"{_AHEAD} split-prefetch-loop-b split-stream-next-b0",
    "stream-b1": f"{_SPLIT} stream-b1 split-separate-coords",
    "stream-b1-ahead": f"{_AHEAD} stream-b1 stream-b1-sync split-pair-b-coords",
    "interleave-a4": f"{_SPLIT} stream-b1 split-interleave-a4 split-separate-coords",
    "reuse-b": f"{_SPLIT} split-reuse-b image-store",
    "row-stream": f"{_SPLIT} split-row-stream",
    "phase-stream": f"{_SPLIT} split-phase-stream split-low-pairs",
    "stream-b-a8": f"{_SPLIT} split-stream-b-a8 split-high-a split-low-pairs",
    "one-sync-tile": f"{_SPLIT} split-one-sync-tile split-separate-coords split-triple-coords "
    "split-dual-a-coords",
    "high-inputs": f"{_SPLIT} split-high-inputs",
    "high-coord": f"{_SPLIT} split-single-high-coord split-serial-safe-coords",
    "low-pairs": f"{_SPLIT} split-low-pairs split-high-pair-b split-fast-coords",
    "low-pairs-high-a": f"{_SPLIT} split-low-pairs split-high-a",
    "low-stable": f"{_SPLIT} split-low-stable-coords split-mid-acc",
    "safe": f"{_AHEAD} split-safe-coords split-sampler-source-sync split-source-hold-delay=0",
    "thread-store": "split-a thread-store n=1024 m=64",
    "thread-store-kept": "split-a thread-store m=64 thread128=false thread-store-lid-reg=r28.x "
    "thread-store-group-regs=r36.y,r36.z",
    "persistent": "persistent k-start=2",
    "pipeline-b": "persistent pipeline-b b-reuse-gap=1",
    "double-b": "persistent double-b",
    "rotate-b": "persistent rotate-b k-count=10",
    "pipeline-a": "persistent pipeline-a image-store",
    "dual-a-tile": "persistent dual-a-tile",
    "stagger-b": "persistent stagger-b stagger-rows=1",
    "lagged-a4": "persistent lagged-a4",
    "stream-a4": "persistent stream-a4-gap=0",
    "masked-a4": "persistent masked-prefetch-a4",
    "one-sync": "persistent one-sync",
    "dynamic-a4": "persistent dynamic-a4-dual k-start=1",
    "dynamic-b": "persistent dynamic-a4-dual dynamic-b-prefetch dynamic-b-rows=2",
    "rotate-low": "persistent rotate-low-banks k-count=7",
    "rotate-low-plain": "persistent rotate-low-banks rotate-no-prefetch k-count=7",
    "lifetime": "lifetime image-store image-store-gap=8",
    "self-coords": "self-coords split-k-unroll=2 k-start=2 stride=640",
    "self-coords-merged": "self-coords split-k-unroll=2 image-store mergedregs",
    "high-inputs-merged": f"{_SPLIT} split-high-inputs image-store mergedregs",
    "quad": f"{_SPLIT} split-quad-a",
    "quad-fast": f"{_AHEAD} split-quad-a split-fast-coords split-high-a",
    "high-pair-coords": f"{_SPLIT} split-high-pair-coords split-pre-mad-nops=0",
    "relaxed": f"{_AHEAD} split-relaxed-sync split-sync-mask=9 split-sync-wait=2 split-stream-next-b1",
    "reserved-out": f"{_SPLIT} split-reserved-out=5 stream-b1 split-interleave-a4 split-separate-coords "
    "split-interleave-a-reuse-gap=16",
}

KERNELS = (
    _kernel(
        1,
        Published8x4,
        build_8x4,
        _cases({"p011": "donor-store", "p058": "pipeline a-coord-delay=0"}),
    ),
    _kernel(
        2,
        Published,
        build_8x8,
        _cases(
            {
                "p012": "donor-store",
                "p013": "experimental-twopass",
                "p014": "serial donor8-store",
                "p015": "split-a donor8-add256-store no-next-sy",
                "p016": "split-a split-k-unroll=2 donor8-add256-store",
                "p017": _FOUR,
                "p018": "split-a split-k-unroll=8 b-coord-delay=3 donor8-add256-store",
                "p019": "split-a split-k-unroll=4 donor8-add256-store split-prefetch-next-b "
                "split-fast-coords fregs-override=8",
                "p020": _BEST,
                "p021": f"{_BEST} add256-store-mode=pairs",
                "p023": f"{_TIGHT} fregs-override=9 split-hoist-b0-coord",
                "p028": f"{_TIGHT} threads=64",
                "p030": f"{_TIGHT} split-prefetch-next-a",
                "p031": f"{_TIGHT} split-prefetch-next-a swapped before B1",
                "p032": f"{_TIGHT} split-interleave-next-b",
                "p034": f"{_TIGHT} split-high-a",
                "p035": f"{_TIGHT} fregs-override=9 split-high-a split-hoist-b0-coord",
                "p036": f"{_TIGHT} fregs-override=10 split-low-a",
                "p038": f"{_TIGHT} split-stream-next-b1",
                "p039": f"{_TIGHT} b-coord-delay=3 swap-grid",
                "p040": f"{_TIGHT} split-k-unroll=16",
                "p049": "split-a split-k-unroll=4 b-coord-delay=-1 donor8-add256-store grouped-b",
                "p050": "split-a split-k-unroll=4 b-coord-delay=-1 donor8-add256-store grouped-b-cols",
                "p051": "split-a split-k-unroll=8 b-coord-delay=-1 donor8-add256-store grouped-b",
                "p052": f"{_FOUR} threads=64",
                "p054": "pipeline a-coord-delay=4",
                "p055": "pipeline a-coord-delay=4 b-coord-delay=-1 no-next-sy",
                "p056": "pipeline4",
                "persistent": "persistent",
            }
        ),
    ),
    _kernel(
        2,
        Published,
        build_waited,
        _cases({name: f"{_SMALL} {config}" for name, config in _WAITED.items()}),
        waited=True,
    ),
    _kernel(
        3,
        Published8x12,
        build_8x12,
        _cases({"serial": "m=32 n=384 k=16 serial", "preload": "m=32 n=384 k=16 preload"}),
    ),
    _kernel(
        4,
        Published8x16,
        build_8x16,
        _cases({"p059": "split-a split-k-unroll=4", "p060": "donor-store threads=64"}),
    ),
)
