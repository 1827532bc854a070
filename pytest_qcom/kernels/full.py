"""Kernels whose texels are full registers: their register plans, K steps and launches.

A tile's plan is texels of B, texels of A, accumulators and counters; what only the prologue or the epilogue
needs lies over texels. A K step samples and multiplies all columns at once, or one after the other where they
share registers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import single
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.counted import Advance, Aim, Counted, Fetch
from pytest_qcom.kernels.gemm import gemm_launch
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import (
    ALL_K,
    Action,
    Arithmetic,
    Load,
    Multiply,
    Phases,
    Schedule,
    Step,
    generate,
    loop_constants,
)
from pytest_qcom.kernels.stores import POINTER


def launch(
    name: str,
    problem: single.Problem,
    schedule: Schedule,
    thread128: bool,
    steps: int | None = None,
    constants: tuple[tuple[int, int], ...] = (),
    stride: int = 0,
) -> Build:
    """The launch of a float32 schedule over ``steps`` K steps, by default all of the problem's.

    ``stride``: elements from one row of C to the next; 0 is n.

    Raises:
        KernelError: the output is not made of whole workgroup tiles, or its rows overlap.
    """
    if stride and (stride < problem.n or stride % 4):
        raise KernelError(
            f"{name}: stride is {stride}; give a multiple of 4 from n = {problem.n} on, or 0 for n"
        )
    groups = schedule.tile.groups(name, problem.m, problem.n)
    k = problem.k if steps is None else 4 * steps
    constants = (
        *constants,
        *schedule.epilogue.constants(schedule.tile, row_bytes=4 * (stride or problem.n)),
        *loop_constants(k, schedule.unroll, schedule.peel),
    )
    return gemm_launch(
        problem,
        schedule.tile,
        schedule.plan,
        generate(schedule, k),
        constants,
        groups,
        arguments=single.arguments(problem, POINTER, stride),
        thread128=thread128,
    )


def arithmetic(sampler_per_texture: bool, scalar_mad: bool = False) -> Arithmetic:
    """Products of float32."""
    return Arithmetic(
        texel="f32",
        multiply="mad.f32",
        lanes=1 if scalar_mad else 4,
        samplers=2 if sampler_per_texture else 1,
    )


class Form(Protocol):
    """Which of the register plans."""

    @property
    def preload_b(self) -> bool: ...
    @property
    def pipeline_b(self) -> bool: ...
    @property
    def component_stream(self) -> bool: ...
    @property
    def own_pairs(self) -> bool: ...
    @property
    def ahead(self) -> bool: ...
    @property
    def interleaved_a(self) -> bool: ...


def plan(tile: Tile, options: Form) -> RegisterPlan:
    """Texels of B and A, accumulators, counters; what only the start or the end needs lies over texels."""
    banks = tile.cols if options.preload_b else 2 if options.pipeline_b else 1
    result = RegisterPlan()
    for bank in range(banks):
        result = result.place(f"b{bank}", f"r{4 * bank}.x", 16)
    for index in range(4 if options.interleaved_a else tile.rows):
        result = result.place(f"a{index}", f"r{4 * banks + index}.x", 4)
    first = 4 * banks + (4 if options.interleaved_a else tile.rows)
    if options.ahead:
        for index in range(tile.rows):
            result = result.place(f"a{index}.1", f"r{first + index}.x", 4)
        for bank in range(banks):  # B has one bank, for steps of either number
            result = result.place(f"b{bank}.1", f"r{4 * bank}.x", 16, over=(f"b{bank}",))
        first += tile.rows
    result = result.place("acc", f"r{first}.x", 4 * tile.rows * tile.cols)
    state = first + tile.rows * tile.cols
    dead = tuple(block.name for block in result.blocks if block.name != "acc")
    if options.own_pairs:
        result = result.place("b_pairs", f"r{state}.x", 8 * tile.cols)
        result = result.place("a_pairs", f"r{state + 2 * tile.cols}.x", 2 * tile.rows)
        pairs = ("a_pairs", "b_pairs")
        result = result.place("row", f"r{state + 2 * tile.cols}.y", 1, over=pairs)
        result = result.place("col", f"r{state}.x", 1, over=pairs)
    else:
        for name, component in (("k4", "x"), ("row", "y"), ("col", "z"), ("ky", "w")):
            result = result.place(name, f"r{state}.{component}", 1)
        if options.interleaved_a:
            result = result.place("quads", f"r{state + 1}.x", 1)
    return _over_texels(result, tile, dead)


def _over_texels(result: RegisterPlan, tile: Tile, dead: tuple[str, ...]) -> RegisterPlan:
    """Registers of prologue and epilogue over those of the texels."""
    result = result.place("scratch", "r1.x", 4, over=dead)
    dead = (*dead, "scratch")
    addresses = -(-tile.rows // 2)
    carries = -(-tile.rows // 4)
    result = result.place("addresses", "r0.x", 2 * tile.rows, over=dead)
    result = result.place("carries", f"r{addresses}.x", tile.rows, over=dead)
    result = result.place("offsets", f"r{addresses + carries}.x", 2, over=dead)
    return result.place("at", "r0.x", 8, over=(*dead, "addresses", "carries", "offsets"))


def phases(tile: Tile, options: Form, coordinates: Persistent | Counted) -> Phases | Callable[[Step], Phases]:
    """A K step: columns that have registers at once, with the rows of A sampled before the first products."""
    rows, cols = tuple(range(tile.rows)), tuple(range(tile.cols))
    if options.ahead:
        return functools.partial(_refilled, rows, cols)
    a = Load("A", tuple(range(4)) if options.interleaved_a else rows)
    if isinstance(coordinates, Persistent):
        return (Load("B", cols), a, Multiply(rows, cols))
    if options.component_stream:
        return _streamed(rows, cols, a, coordinates)
    if options.pipeline_b:
        return _pipelined(rows, cols, a, coordinates)
    groups = [cols] if options.preload_b else [(col,) for col in cols]
    steps: list[Load | Multiply | Action] = []
    for number, group in enumerate(groups):
        loads = (Load("B", group),) if number else (a, Load("B", group))
        steps.append(Aim(coordinates, loads))
        last = number == len(groups) - 1
        if last:
            steps.append(Advance(coordinates))
        steps += [Fetch(coordinates, loads, test=last), Multiply(rows, group)]
    return tuple(steps)


def _pipelined(rows: tuple[int, ...], cols: tuple[int, ...], a: Load, coordinates: Counted) -> Phases:
    """Two columns are sampled, then each next one into what the last products have left."""
    steps: list[Load | Multiply | Action] = []
    for col in cols:
        loads = (a, Load("B", cols[:2])) if col == 0 else (Load("B", (col + 1,)),)
        if col == 0 or col + 1 < len(cols):
            last = max(col + 1, 1) == len(cols) - 1
            steps.append(Aim(coordinates, loads))
            if last:
                steps.append(Advance(coordinates))
            steps.append(Fetch(coordinates, loads, test=last))
        steps.append(Multiply(rows, (col,)))
    return tuple(steps)


def _streamed(rows: tuple[int, ...], cols: tuple[int, ...], a: Load, coordinates: Counted) -> Phases:
    """The products of a column k by k.

    Behind those of one k comes the coordinate of that k of the next column, and one k later its sample.
    """
    first = (a, Load("B", cols[:1]))
    steps: list[Load | Multiply | Action] = [Aim(coordinates, first), Fetch(coordinates, first)]
    for col in cols:
        late: tuple[Load, ...] = ()
        for kk in ALL_K:
            steps.append(Multiply(rows, (col,), (kk,)))
            if col + 1 == len(cols):
                continue
            load = (Load("B", (col + 1,), (kk,)),)
            last = col + 2 == len(cols) and kk == ALL_K[-1]
            steps += [Aim(coordinates, load), *([Advance(coordinates)] if last else [])]
            steps += [Fetch(coordinates, late), *([Fetch(coordinates, load, test=last)] if kk == 3 else [])]
            late = load
    return tuple(steps)


def _refilled(rows: tuple[int, ...], cols: tuple[int, ...], step: Step) -> Phases:
    """The products k by k; what a k of B leaves free is sampled for the next step at once."""
    bank = step.index % 2
    early = Load("A", rows, ahead=1, bank=1 - bank)
    steps: list[Load | Multiply] = []
    for kk in ALL_K:
        steps.append(Multiply(rows, cols, (kk,), behind=() if kk else (early,), bank=bank))
        steps.append(Load("B", cols, (kk,), ahead=1, bank=1 - bank))
    return tuple(steps)


def primed(tile: Tile) -> tuple[Load, ...]:
    """The samples of the first step, as the others have them."""
    cols = tuple(range(tile.cols))
    return (Load("A", tuple(range(tile.rows))), *(Load("B", cols, (kk,)) for kk in ALL_K))
