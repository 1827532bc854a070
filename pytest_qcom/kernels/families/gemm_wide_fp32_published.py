"""Published float32 GEMMs of other tiles, stored into an image: 4 rows by up to four columns, 5 to 8 rows.

With four rows the columns come in turn, in the texels of one or of two; with more rows all texels have
registers. Loops as written, see :mod:`pytest_qcom.kernels.full_published`: no delay stands between a
coordinate and its sample, but the coordinates of what is sampled together come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.counted import Aim, Counted, Fetch
from pytest_qcom.kernels.full_published import Cases, Published, check, declare, noted, published, state
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.notes import flag, renamed
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import ALL_K, Action, Load, Multiply, Schedule, Step
from pytest_qcom.kernels.stores import GAPS
from pytest_qcom.kernels.tiled import check_output
from pytest_qcom.kernels.writer import Writer

NAME = "gemm_wide_fp32_published"
_TILES = {4: (2, 3, 4), 5: (2,), 6: (2,), 8: (1, 2)}
"""Columns that were tried with so many rows."""


@dataclass(frozen=True, slots=True)
class Options(Published):
    """Options of the published wide kernels.

    Attributes:
        rows, ncols: the tile of a fiber: 4 by 2 to 4, 5 or 6 by 2, 8 by 1 or 2 vec4 columns.
        sync_each_col: of four rows, a (sy) before the products of every column; else of the first alone.
        pipeline_b: of four rows, a column is sampled before the products of the one before it.
        component_stream: of four rows, each k of the next column is sampled behind the products of that k.
        component_sync_kk: with it, the k of a later column whose products wait.
        image_store: C is an image; ``half_output`` a half one.
        int8_a, int8_b: that one is an image of normalized bytes, fractions of 127.
        store_gap: behind each store into an image 8, an idle slot, or 16, a wait; 0 is nothing.
    """

    thread128: bool = False
    direct_f32_loads: bool = True
    sampler_per_texture: bool = True
    coord_delay: int = -1
    rows: int = 4
    ncols: int = 4
    sync_each_col: bool = True
    pipeline_b: bool = False
    component_stream: bool = False
    component_sync_kk: int = 0
    image_store: bool = True
    half_output: bool = False
    int8_a: bool = False
    int8_b: bool = False
    store_gap: int = 0


def build(options: Options) -> Build:
    """A published wide kernel.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    check(NAME, options)
    check_output(NAME, options)
    if options.ncols not in _TILES.get(options.rows, ()):
        tiles = ", ".join(f"{rows} by {' or '.join(map(str, cols))}" for rows, cols in _TILES.items())
        raise KernelError(f"{NAME}: a tile of {options.rows} by {options.ncols}; give {tiles}")
    in_turn = [word for word in ("pipeline_b", "component_stream") if getattr(options, word)]
    if len(in_turn) > 1 or (in_turn and options.rows != 4):
        words = " with ".join(word.replace("_", "-") for word in in_turn)
        raise KernelError(f"{NAME}: {words} is one way of four rows; give one of them, and rows=4")
    if options.component_sync_kk not in ALL_K:
        raise KernelError(f"{NAME}: component-sync-kk is {options.component_sync_kk}; give 0 to 3")
    if options.store_gap not in GAPS or (options.store_gap and (options.no_store or not options.image_store)):
        raise KernelError(
            f"{NAME}: store-gap is {options.store_gap}; give one of {', '.join(map(str, GAPS))}, behind the "
            "stores into an image"
        )
    coordinates = noted(options)
    phases, syncs = _phases(options, coordinates)
    tile = Tile(options.rows, options.ncols, options.threads)
    return published(NAME, options, tile, _plan(options), coordinates, phases, syncs)


def _plan(options: Options) -> RegisterPlan:
    """The notes': texels of B, of A, accumulators, and the counters in the last vec4."""
    banks = options.ncols if options.rows != 4 else 2 if options.pipeline_b else 1
    plan = RegisterPlan()
    for bank in range(banks):
        plan = plan.place(f"b{bank}", f"r{4 * bank}.x", 16)
    for row in range(options.rows):
        plan = plan.place(f"a{row}", f"r{4 * banks + row}.x", 4)
    acc = 4 * banks + options.rows
    plan = plan.place("acc", f"r{acc}.x", 4 * options.rows * options.ncols)
    plan = state(plan, f"r{acc + options.rows * options.ncols}", following="r0.x")
    dead = tuple(block.name for block in plan.blocks if block.name not in ("acc", "row", "col"))
    plan = plan.place("scratch", "r1.x", 4, over=dead)
    dead = (*dead, "scratch")
    plan = plan.place("addresses", "r0.x", 2 * options.rows, over=dead)
    plan = plan.place("carries", f"r{-(-options.rows // 2)}.x", options.rows, over=dead)
    plan = plan.place("offsets", f"r{-(-options.rows // 2) + -(-options.rows // 4)}.x", 2, over=dead)
    return plan.place("at", "r0.x", 8, over=(*dead, "addresses", "carries", "offsets"))


Steps = list[Load | Multiply | Action]


def _phases(options: Options, coordinates: Counted) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """The K step, and which of its phases of products wait."""
    rows, cols = tuple(range(options.rows)), tuple(range(options.ncols))
    a = Load("A", rows)

    def sampled(*loads: Load) -> Steps:
        """Coordinates of what is sampled together, then the samples; a delay stands before each."""
        if options.coord_delay >= 0:
            return list(loads)
        return [Aim(coordinates, loads), Fetch(coordinates, loads)]

    if options.rows != 4:
        return (*sampled(Load("B", cols), a), Multiply(rows, cols)), (0,)
    if options.component_stream:
        waits = (0, *(4 * col + options.component_sync_kk for col in cols[1:]))
        return (*sampled(Load("B", (0,)), a), *_streamed(rows, cols, coordinates)), waits
    if options.pipeline_b:
        steps = sampled(Load("B", (0, 1)), a)
        for col in cols:
            steps.append(Multiply(rows, (col,)))
            steps += sampled(Load("B", (col + 2,))) if col + 2 < len(cols) else []
        return tuple(steps), cols[::2]
    steps = [*sampled(Load("B", (0,)), a), Multiply(rows, (0,))]
    for col in cols[1:]:
        steps += [*sampled(Load("B", (col,))), Multiply(rows, (col,))]
    return tuple(steps), cols if options.sync_each_col else (0,)


def _streamed(rows: tuple[int, ...], cols: tuple[int, ...], coordinates: Counted) -> Steps:
    """Behind the products of a k its texel's next coordinate, and the sample one k later."""
    steps: Steps = []
    for col in cols:
        late: tuple[Load, ...] = ()
        for kk in ALL_K:
            steps.append(Multiply(rows, (col,), (kk,)))
            if col + 1 == len(cols):
                continue
            load = (Load("B", (col + 1,), (kk,)),)
            steps += [Aim(coordinates, load), Fetch(coordinates, late)]
            if kk == ALL_K[-1]:
                steps += [Released(), Fetch(coordinates, load)]
            late = load
    return steps


@dataclass(frozen=True, slots=True)
class Released:
    """A (ss)nop: what samples still read may be written behind it."""

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        w.emit("nop", ss=True)


_CASES: Cases = {
    "4x16": {},
    "4x12": dict(ncols=3, n=1152),
    "4x8": dict(ncols=2),
    "one-sync": dict(sync_each_col=False),
    "pipeline-b": dict(pipeline_b=True),
    "component-stream": dict(component_stream=True),
    "component-sync-2": dict(component_stream=True, component_sync_kk=2),
    "delay": dict(coord_delay=5),
    "post-constant": dict(post_constant=True),
    "half-output": dict(half_output=True),
    "int8": dict(int8_a=True, int8_b=True),
    "int8-b-stream": dict(int8_b=True, component_stream=True),
    "buffer": dict(image_store=False),
    "store-gap": dict(store_gap=16),
    "stride": dict(stride=1536),
    "5x8": dict(rows=5, ncols=2, m=1040),
    "6x8": dict(rows=6, ncols=2, m=1032),
    "8x4": dict(rows=8, ncols=1),
    "8x8": dict(rows=8, ncols=2),
}

_TALL = {"rows8": dict(rows=8, ncols=1), "square8": dict(rows=8, ncols=2)}
"""Tiles that have a name of their own."""


def _words(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options by the names of the scripts too."""
    found = renamed(given, {"custom_rows": "rows", "output_half": "half_output"})
    for name, tile in _TALL.items():
        if flag(found.get(name, "")):
            del found[name]
            found |= tile
    return found


KERNELS = (declare(NAME, Options, build, _CASES, family="gemm_wide_fp32", reads=_words),)
