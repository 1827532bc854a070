"""The published FP16 GEMMs of 4 rows by 1 to 4 vec4 columns a fiber: as they were, and with every wait.

As they were: MADs take the scalar of A first; a K step has one (sy), with ``first-sync-only`` a loop body has
one; little else waits, so that most of B is multiplied before it has arrived and pairs are rewritten under
outstanding samples; and the stage of the stores by hand is filled by repeated moves without (r), so that lane
x of each vector is stored four times. Prologues and addresses are ours.

With every wait, the same samples and products in the same order are right: what an option does to
coordinates, registers and order is checked on random matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import (
    four_rows_checks,
    four_rows_order,
    four_rows_registers,
    matmul,
    noted_outputs,
    notes,
)
from pytest_qcom.kernels.choices import about, made, word
from pytest_qcom.kernels.four_rows import ROWS, Published, read
from pytest_qcom.kernels.four_rows_checks import PROBES
from pytest_qcom.kernels.gemm import HalfGemm, build_gemm
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import LANES, Tile
from pytest_qcom.kernels.published_stores import (
    Below,
    ByHand,
    Linear,
    Raised,
    Restored,
    Single,
    Summed,
    ThreadMajor,
    keeping,
)
from pytest_qcom.kernels.quads import by_halves
from pytest_qcom.kernels.schedule import Epilogue, Schedule, Step
from pytest_qcom.kernels.stores import Constant, ImageStore, NoStore

_NOTES = "QUALCOMM.md of tinygrad's QCOM GEMM experiments, tinygrad commit f072c2bf97"
PUBLISHED_NAME, WAITED_NAME = "gemm_4xn_fp16_published", "gemm_4xn_fp16_waited"


def build_published(options: Published) -> Build:
    """A published configuration as its code did it.

    Raises:
        KernelError: options that do not go together.
    """
    four_rows_checks.check(PUBLISHED_NAME, options)
    with about(PUBLISHED_NAME):
        schedule = made(options, lambda given: _schedule(given, "broadcast", "written"))
    built = _launch(PUBLISHED_NAME, options, schedule)
    return replace(built, work=built.work * options.alu_reps)  # each of them counts in the notes


def build_waited(options: Published) -> Build:
    """The same schedule with every wait, all lanes stored.

    Raises:
        KernelError: options that do not go together or are a probe.
    """
    four_rows_checks.check(WAITED_NAME, options)
    unset = Published()
    for option in PROBES:
        if getattr(options, option) != getattr(unset, option):
            raise KernelError(
                f"{WAITED_NAME}: {word(option)} does not give C; leave it out, or take {PUBLISHED_NAME}"
            )
    with about(WAITED_NAME):
        schedule = made(options, lambda given: _schedule(given, "", "legal"))
    return _launch(WAITED_NAME, options, schedule)


def _schedule(options: Published, staging: str, waits: str) -> Schedule:
    written = waits == "written"
    ids = (options.thread_store_lid_reg, options.thread_store_group_regs)
    plan = keeping(four_rows_registers.plan(options), *ids)
    if options.quad_a and not written and not options.mergedregs:
        plan = by_halves(plan, sampled=ROWS, fibers=1)
    return Schedule(
        tile=_tile(options),
        plan=plan,
        phases=lambda step: four_rows_order.phases(options, step),
        coordinates=four_rows_order.coordinates(options),
        epilogue=_store(options, staging),
        order=options.order,
        scalar_first=not options.isolated,
        sync=(_first_of_loop if options.first_sync_only else _first_of_step) if written else _nothing,
        waits=waits,
        unroll=options.unroll,
        primed=four_rows_order.PRIMED if options.pipeline else (),
        peel=2 if options.pipeline and not written else 0,
        b_index=(lambda col, kk: 4 * (kk % 2) + col) if options.b_kk_pipeline else None,
        partial=not options.direct,
        spread=options.vector_init,
    )


def _first_of_loop(products: int, step: Step) -> bool:
    return products == 0 and step.index == 0


def _first_of_step(products: int, step: Step) -> bool:
    return products == 0


def _nothing(products: int, step: Step) -> bool:
    return False


def _store(options: Published, staging: str) -> Epilogue:
    """The store, and what comes before it."""
    columns = _columns(options)
    store: Epilogue = _by_hand(options, staging)
    if options.image_store:
        store = ImageStore(columns=columns)
    elif options.thread_store:
        store = ThreadMajor(_tile(options).groups(PUBLISHED_NAME, options.m, options.n)[0], columns)
    elif options.linear_store:
        store = Linear(columns)
    elif options.safe_store:
        store = Single(columns, spaced=not staging)
    elif options.hybrid_store:
        store = _hybrid(options, staging)
    if options.post_constant or options.store_constant:
        store = Constant(store)
    if not options.direct:
        store = Summed(store)
    if options.no_store:
        store = NoStore()
    if options.store_row_base:
        store = Raised(store, options.store_row_base)
    if options.dynamic_split_k > 1:
        store = Below(store, options.m)
    return Restored(store) if options.save_output_coords else store


def _hybrid(options: Published, staging: str) -> Epilogue:
    """The first two columns by hand, the others as safe."""
    first = tuple(col for col in options.columns if col < _SAFE_FROM)
    others = tuple(col for col in options.columns if col >= _SAFE_FROM)
    by_hand = replace(_by_hand(options, staging), columns=first)
    safe = Single(others, spaced=not staging)
    if first and others:
        return _Both(by_hand, safe)
    return by_hand if first else safe


_SAFE_FROM = 2
"""The first column that the hybrid store stores as safe."""


def _columns(options: Published) -> tuple[int, ...]:
    """What the stores know as columns, where none named is all."""
    return options.columns if len(options.columns) < options.ncols else ()


def _by_hand(options: Published, staging: str) -> ByHand:
    again = tuple(range(ROWS)) if options.repeat_each else (0,) if options.repeat_first else ()
    return ByHand(
        staging=staging,
        columns=_columns(options),
        again=again,
        once=options.repeat_first,
        repaired=(1,) if options.repair_row1 else (),
        gap=options.store_gap,
    )


@dataclass(frozen=True, slots=True)
class _Both:
    """The first two columns by one store, the others by another."""

    first: Epilogue
    others: Epilogue

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return self.first.constants(tile, row_bytes)

    def emit(self, w: Any, tile: Tile, plan: Any) -> None:
        self.others.emit(w, tile, plan)  # which leaves row and column alone
        self.first.emit(w, tile, plan)


def _launch(name: str, options: Published, schedule: Schedule) -> Build:
    parts = max(1, options.dynamic_split_k)
    x, y, z = schedule.tile.groups(name, options.m, options.n)
    groups = (x * parts, y, z) if options.swap_groups else (x, y * parts, z)
    rows = options.store_row_base + options.m * parts
    kind = "float32" if options.output_float else "float16"
    built = build_gemm(
        name,
        matmul.Sides(options.m, options.n, 4 * options.steps),
        schedule,
        noted_outputs.arguments(options, schedule.tile, rows, groups, kind),
        groups,
        options.stride,
        options.thread128,
        bare=options.store_constant,
    )
    fregs, hregs = four_rows_registers.declared(options, (built.fregs, built.hregs))
    share = parts * len(options.multiplied) / options.ncols
    branches = _BRANCHSTACK if options.quad_a else 0
    return replace(built, fregs=fregs, hregs=hregs, work=built.work * share, branchstack=branches)


_BRANCHSTACK = 2
"""Entries for one branch that fibers of a wave take differently."""


def _tile(options: Published) -> Tile:
    return Tile(ROWS, options.ncols, options.threads, options.swap_groups)


def _ranges(options: Published) -> list[slice]:
    """The k of each part."""
    size = 4 * options.steps
    starts = [4 * options.k_start + part * size for part in range(max(1, options.dynamic_split_k))]
    return [slice(start, start + size) for start in starts]


def _shaped(options: Published, parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The parts as the store leaves them in C, NaN where it stores nothing."""
    c = np.concatenate(parts)
    if _columns(options):
        blocks = np.full((len(c), options.n // (4 * LANES * options.ncols), options.ncols, 4 * LANES), np.nan)
        blocks[:, :, options.columns] = c.reshape(blocks.shape)[:, :, options.columns]
        c = blocks.reshape(c.shape)
    c = np.concatenate((np.full((options.store_row_base, options.n), np.nan), c))
    return noted_outputs.laid_out(options, _tile(options), c)


def _oracle(options: Published, arrays: Arrays) -> Arrays:
    """``A @ B`` over the k that are multiplied, in float64, as the store lays it out, parts in turn."""
    parts = [matmul.product(*matmul.part(options, arrays, part))["C"] for part in _ranges(options)]
    return {"C": _shaped(options, parts)}


def _tolerance(options: Published, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """:func:`~pytest_qcom.kernels.matmul.half_bound`, of four partial sums where there are such."""
    chains = 1 if options.direct else 4
    parts = [matmul.half_bound(*matmul.part(options, arrays, part), chains)["C"] for part in _ranges(options)]
    return {"C": _shaped(options, parts)}


_FOUR = "ncols=4 direct"
"""What every case has, unless it says otherwise."""


def _kernel(
    name: str, summary: str, build: Callable[[Published], Build], claim: str, cases: Mapping[str, str]
) -> Kernel:
    return HalfGemm(
        name=name,
        summary=summary,
        options=Published,
        build=build,
        oracle=_oracle,
        tolerance=_tolerance,
        cases=tuple(Case(case, notes.options(f"{_FOUR} {config}")) for case, config in cases.items()),
        claim=claim,
        family="gemm_4xn_fp16" if claim == "as-published" else "",
        reads=read,
        implied=four_rows_checks.implied,
        source=_NOTES,
    )


_BEST = (
    "compact-acc stable-bx stable-ay inc-coords persistent-coords alu-order=row_col_kk coord-delay=-1 "
    "k-unroll=4 first-sync-only"
)
_FIRST = f"{_BEST} b-first"

PUBLISHED = _kernel(
    PUBLISHED_NAME,
    "FP16 4xN GEMM as published: right on all-ones inputs, wrong on random ones",
    build_published,
    "as-published",
    {
        "p095": "ncols=2 coord-delay=0 donor-store",
        "p096": "native-store",
        "p097": "coord-delay=4 donor-store",
        "p098": "compact-acc k-unroll=4",
        "p099": "compact-acc stable-bx k-unroll=4 first-sync-only",
        "p101": _FIRST,
        "p117": f"{_FIRST} store-shlg-offsets",
        "p119": f"{_FIRST} threads=256",
        "p120": f"{_FIRST} low-a-coords threads=64",
        "p123": _FIRST.replace(" first-sync-only", ""),
        "p124": f"{_FIRST} k-unroll=8",
        "p126": f"{_FIRST} alu-order=kk_row_col",
        "p127": f"{_FIRST} alu-order=col_kk_row",
        "p128": f"{_FIRST} alu-order=row_kk_col",
        "p132": "b-kk-pipeline",
        "p134": "stream-b",
        "p135": "stream-b stream-b-no-sync",
        "p136": "k-unroll=4",
        "p137": "compact-acc stable-bx first-sync-only k-unroll=8",
        "p139": "ncols=2 threads=256 donor-store",
        "random-checked": f"{_FIRST} separate-b-coords image-store m=128 n=1536 k=384",
    },
)

_SMALL = "m=32 n=512 k=48 coord-delay=-1"
_KEPT = f"{_SMALL} stable-bx stable-ay compact-acc"

WAITED = _kernel(
    WAITED_NAME,
    "FP16 4xN GEMMs in the published orders and registers, with every wait",
    build_waited,
    "correct",
    {
        "n1024": _BEST.replace(" first-sync-only", " b-first"),
        "plain": f"{_SMALL} k-unroll=2",
        "plain-1": f"{_SMALL} n=128 ncols=1 compact-acc inc-coords",
        "plain-2": f"{_SMALL} n=256 ncols=2 k-unroll=4 sync-b-y",
        "plain-3": f"{_SMALL} n=384 ncols=3 alu-order=kk_col_row",
        "stable-bx": f"{_SMALL} stable-bx k-unroll=2 b-first",
        "kept": f"{_KEPT} k-unroll=2 inc-coords threads=64",
        "persistent": f"{_KEPT} k-unroll=3 inc-coords persistent-coords k-start=3 k-count=9",
        "low-a": f"{_KEPT} low-a-coords alu-order=row_kk_col threads=256 m=64",
        "partial": "m=32 n=256 k=48 ncols=2 direct=false",
        "preload-b": f"{_SMALL} preload-b alu-order=col_kk_row",
        "preload-safe": f"{_SMALL} preload-b preload-b-safe-coords b-first k-unroll=2",
        "high-inputs": f"{_SMALL} high-inputs stable-bx stable-ay inc-coords persistent-coords",
        "high-inputs-low-a": f"{_SMALL} high-inputs low-a-coords stable-ay",
        "high-a-only": f"{_SMALL} high-a-only k-unroll=2 row-sync",
        "preserve": f"{_SMALL} preserve-coords compact-acc",
        "separate": f"{_KEPT} separate-b-coords image-store k-unroll=2 b-first",
        "separate-reuse": f"{_SMALL} separate-b-coords reuse-separate-b-y acc-hr=16 b-first",
        "separate-kept": f"{_SMALL} separate-b-coords stable-ay inc-coords persistent-coords k-unroll=2",
        "high-b": f"{_SMALL} high-b-coords stable-ay compact-acc b-first",
        "persistent-b": f"{_SMALL} persistent-b-coords save-output-coords k-unroll=2",
        "persistent-b-x": f"{_SMALL} n=256 ncols=2 persistent-b-x stable-ay",
        "safe-b-y": f"{_KEPT} safe-b-y",
        "serial": f"{_SMALL} serial-b-cols k-start=2 k-count=6",
        "serial-kept": f"{_KEPT} serial-b-cols inc-coords persistent-coords k-unroll=2",
        "single-cols": f"{_SMALL} single-cols-all compact-acc",
        "stream-b": f"{_SMALL} stream-b b-first k-unroll=2",
        "interleave": f"{_SMALL} interleave-second-pair alu-order=kk_col_row compact-acc",
        "b-kk": f"{_SMALL} b-kk-pipeline k-unroll=2",
        "pipeline": f"{_SMALL} pipeline",
        "isolated": f"{_SMALL} isolated image-store k-unroll=4 stable-settle-delay=2",
        "isolated-2": f"{_SMALL} n=256 ncols=2 isolated b-first",
        "isolated-acc": f"{_SMALL} isolated acc-hr=28 image-store",
        "merged-isolated": f"{_SMALL} isolated image-store mergedregs",
        "merged-high-inputs": f"{_SMALL} high-inputs stable-bx stable-ay mergedregs",
        "merged-quad": f"{_SMALL} high-inputs image-store quad-a mergedregs k-unroll=2",
        "quad": f"{_SMALL} quad-a k-unroll=2",
        "quad-kept": f"{_KEPT} quad-a inc-coords persistent-coords b-first",
        "quad-isolated": f"{_SMALL} isolated image-store quad-a",
        "split-k": "m=128 n=512 k=96 dynamic-split-k=2 k-unroll=2 coord-delay=-1 compact-acc",
        "swap-groups": f"{_SMALL} n=1024 swap-groups",
        "safe-store": f"{_SMALL} safe-store",
        "linear-store": f"{_SMALL} linear-store",
        "hybrid-store": f"{_SMALL} hybrid-store",
        "image-store": f"{_KEPT} image-store high-store",
        "thread-store": f"{_SMALL} m=64 n=1024 thread-store",
        "thread-store-kept": f"{_SMALL} m=64 n=1024 thread-store thread-store-lid-reg=r10.x",
        "row-base": f"{_SMALL} store-row-base=24 stride=640 selected-cols=0,3 repeat-first store-gap=16",
        "first-cols": f"{_SMALL} first-cols-only first-cols-offset=1 image-store output-float",
        "repairs": f"{_KEPT} repeat-each repair-row1 store-gap=8 vector-init alu-order=auto",
    },
)

KERNELS = (PUBLISHED, WAITED)
