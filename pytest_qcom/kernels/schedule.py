"""GEMM schedules as data: tile, registers, load order, unroll, coordinates, waits and store compose.

A K step of a schedule is a sequence of phases: samples of some rows of A or columns of B, and products of
what was sampled. :func:`generate` turns a schedule and a problem into a program. What differs between
families is what they put into a :class:`Schedule`; a new one is a register plan, a list of phases and, if the
existing ones do not fit, a coordinate policy or an epilogue.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.launch import Tile, emit_place
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.writer import Writer, constant_name

ORDERS = ("kk_row_col", "kk_col_row", "row_col_kk", "row_kk_col", "col_kk_row")
"""Nestings of the loops over k within a texel, rows and columns, outermost first."""


@dataclass(frozen=True, slots=True)
class Load:
    """Samples for one K step: the texels of rows of ``A``, or the four k of vec4 columns of ``B``."""

    operand: str  # "A" or "B"
    which: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Multiply:
    """Products of all four k of the step into the accumulators of these rows and vec4 columns."""

    rows: tuple[int, ...]
    cols: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Which K step is being written: ``index`` of ``count``; ``final`` if none follows at run time."""

    index: int
    count: int
    final: bool


class Coordinates(Protocol):
    """How sample coordinates are made and kept."""

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        """Before the first step. Row and column stand in the plan's ``row`` and ``col``."""
        ...

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Writes the samples of ``load``, and what must be done to coordinates before them."""
        ...

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Once the products have waited for the samples of ``load``: its coordinates are free."""
        ...

    def test(self, w: Writer, schedule: Schedule, end: int) -> None:
        """At the end of the loop body: sets p0.x when ``end`` K steps are done."""
        ...


class Epilogue(Protocol):
    """How accumulators reach memory."""

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None: ...

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        """Constants that it needs, as (scalar number, value)."""
        ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """A GEMM inner product for one fiber.

    Attributes:
        plan: registers by name: ``a0``... the texel of a row, ``b0``... the four texels of a column
            (``b0`` and ``b1`` are reused by later columns), ``acc``, ``row``, ``col``, ``scratch``, and
            what coordinates and epilogue need.
        phases: the K step.
        order: nesting of the products, see :data:`ORDERS`.
        scalar_first: the scalar of A is the first source of the MAD, else the vector of B.
        sync: whether a product phase starts with (sy): (phase number among the products, step) to bool.
        waits: who puts the other waits into the K steps: ``legal``, all that are missing are added;
            ``slots``, only idle slots, no (sy) or (ss); ``written``, nothing is added.
        unroll: K steps in a loop body; what is left over follows the loop.
    """

    tile: Tile
    plan: RegisterPlan
    phases: tuple[Load | Multiply, ...]
    coordinates: Coordinates
    epilogue: Epilogue
    order: str = "row_col_kk"
    scalar_first: bool = False
    sync: Callable[[int, Step], bool] = lambda products, step: False
    waits: str = "legal"
    unroll: int = 4

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise KernelError(f"alu-order is {self.order!r}; give one of {', '.join(ORDERS)}")
        if self.unroll < 1:
            raise KernelError(f"k-unroll is {self.unroll}; give 1 or more")

    def slot(self, col: int) -> str:
        """The name of the texels of column ``col``."""
        slots = sum(f"b{index}" in self.plan for index in range(self.tile.cols))
        return f"b{col % slots}"


END_CONSTANT = 92
"""c23.x: the K steps of the loop, where they are too many for an immediate."""
LARGEST_IMMEDIATE = 1023
"""Of a two-source instruction: signed 11 bits."""


def generate(schedule: Schedule, k: int) -> Program:
    """The program that computes C = A B for the tile of each fiber, with ``k`` a multiple of 4.

    Raises:
        KernelError: a register plan that lacks something, or a k that the schedule cannot do.
    """
    if k < 4 or k % 4:
        raise KernelError(f"k is {k}; a texel holds four of them, give a positive multiple of 4")
    w = Writer()
    plan, steps = schedule.plan, k // 4
    emit_place(w, schedule.tile, plan["row"][0], plan["col"][0], plan["scratch"])
    schedule.coordinates.prepare(w, schedule)
    w.zero(plan["acc"])
    looped = steps // schedule.unroll * schedule.unroll
    start = len(w)
    if looped > schedule.unroll:
        w.label("loop")
        _emit_steps(w, schedule, schedule.unroll, end=looped)
        w.branch("loop")
        _emit_steps(w, schedule, steps - looped, end=None)
    else:  # one pass needs no loop
        _emit_steps(w, schedule, steps, end=None)
    inner = range(start, len(w))
    schedule.epilogue.emit(w, schedule.tile, plan)
    w.end()
    return insert_waits(
        w.program(),
        written=inner if schedule.waits == "written" else range(0),
        unflagged=inner if schedule.waits == "slots" else range(0),
    )


def loop_constants(k: int, unroll: int) -> tuple[tuple[int, int], ...]:
    """The constant that the test of a loop over K steps needs, if any."""
    looped = k // 4 // unroll * unroll
    return ((END_CONSTANT, looped),) if looped > LARGEST_IMMEDIATE else ()


def limit(end: int) -> int | str:
    """The K steps of the loop as an operand of its test."""
    return end if end <= LARGEST_IMMEDIATE else constant_name(END_CONSTANT)


def _emit_steps(w: Writer, schedule: Schedule, count: int, end: int | None) -> None:
    """``count`` K steps; with ``end``, the loop test is among the last one's coordinate updates."""
    for index in range(count):
        last = index == count - 1
        step = Step(index, count, final=last and end is None)
        waiting: list[Load] = []
        products = 0
        for number, phase in enumerate(schedule.phases):
            if isinstance(phase, Load):
                schedule.coordinates.sample(w, schedule, phase, step)
                waiting.append(phase)
                continue
            _emit_products(w, schedule, phase, schedule.sync(products, step))
            products += 1
            done = last and number == len(schedule.phases) - 1
            _release(w, schedule, waiting, step, end if done else None)
            waiting = []


def _release(w: Writer, schedule: Schedule, loads: list[Load], step: Step, end: int | None) -> None:
    """Frees coordinates; the loop test goes before the last of them, so that they fill its wait."""
    loads = sorted(loads, key=lambda load: load.operand)
    for load in loads[:-1]:
        schedule.coordinates.release(w, schedule, load, step)
    if end is not None:
        schedule.coordinates.test(w, schedule, end)
    for load in loads[-1:]:
        schedule.coordinates.release(w, schedule, load, step)


def _emit_products(w: Writer, schedule: Schedule, phase: Multiply, sync: bool) -> None:
    plan = schedule.plan
    for row, col, kk in nested(schedule.order, phase):
        acc = plan["acc"].vec(row * schedule.tile.cols + col)
        scalar, vector = plan[f"a{row}"][kk], plan[schedule.slot(col)].vec(kk)
        w.mad(acc, scalar, vector, scalar_first=schedule.scalar_first, sy=sync)
        sync = False


def nested(order: str, phase: Multiply) -> Iterator[tuple[int, int, int]]:
    """(row, col, kk) of each product of ``phase``, in ``order``."""
    loops = {"row": phase.rows, "col": phase.cols, "kk": (0, 1, 2, 3)}
    names = order.split("_")
    for values in itertools.product(*(loops[name] for name in names)):
        place = dict(zip(names, values, strict=True))
        yield place["row"], place["col"], place["kk"]
