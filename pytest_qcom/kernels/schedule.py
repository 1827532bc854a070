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
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.choices import wrong_unroll
from pytest_qcom.kernels.launch import Tile, emit_kept, emit_place
from pytest_qcom.kernels.registers import Block, RegisterPlan
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.writer import Writer, constant_name

ORDERS = ("kk_row_col", "kk_col_row", "row_col_kk", "row_kk_col", "col_kk_row")
"""Nestings of the loops over k within a texel, rows and columns, outermost first."""

ALL_K = (0, 1, 2, 3)
"""The k of a step."""


@dataclass(frozen=True, slots=True)
class Load:
    """Samples for one K step: the texels of rows of ``A``, or the four k of vec4 columns of ``B``.

    Attributes:
        which: rows of ``A`` or columns of ``B``.
        kk: those k of ``B``.
        ahead: K steps by which the samples are early; nothing is sampled beyond the last step.
        bank: which of several sets of texel registers, see :meth:`Schedule.texels`.
    """

    operand: str  # "A" or "B"
    which: tuple[int, ...]
    kk: tuple[int, ...] = ALL_K
    ahead: int = 0
    bank: int = 0


@dataclass(frozen=True, slots=True)
class Multiply:
    """Products into the accumulators of these rows and vec4 columns.

    Attributes:
        kk: the k of the step that are multiplied.
        behind: samples that are issued behind the first product, which has waited for earlier ones.
        bank: which of several sets of texel registers.
        sync: whether the phase starts with (sy); None leaves that to the schedule.
    """

    rows: tuple[int, ...]
    cols: tuple[int, ...]
    kk: tuple[int, ...] = ALL_K
    behind: tuple[Load, ...] = ()
    bank: int = 0
    sync: bool | None = None

    def uses(self, load: Load) -> bool:
        """Whether a product needs one of the samples."""
        if load.bank != self.bank:
            return False
        if load.operand == "A":
            return not set(self.rows).isdisjoint(load.which)
        return not set(self.cols).isdisjoint(load.which) and not set(self.kk).isdisjoint(load.kk)


@dataclass(frozen=True, slots=True)
class Step:
    """Which K step is being written: ``index`` of ``count``; ``final`` if none follows at run time.

    ``end``: of the last step of a loop body, the K steps after which the loop is left.
    """

    index: int
    count: int
    final: bool
    end: int | None = None


class Action(Protocol):
    """A phase of a family's own, for what samples and products alone do not say."""

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None: ...


Phase = Load | Multiply | Action
Phases = tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What one K step multiplies and adds.

    Attributes:
        texel: the type of a sample's components.
        multiply: ``dst = src1 * src2 + dst``, src1 the scalar of A or the vector of B.
        lanes: columns that one instruction covers, 4 with a repeat.
        columns: columns of a vector that are multiplied, from the first on; fewer than 4 is a probe.
        idle: slots behind each instruction.
        samplers: 1, or 2 where each texture has its own.
    """

    texel: str = "f16"
    multiply: str = "mad.f16"
    lanes: int = 4
    columns: int = 4
    idle: int = 0
    samplers: int = 1

    def sample(self, w: Writer, texel: Reg, pair: Reg, texture: int) -> None:
        """The texel of a texture at the coordinates in ``pair``."""
        w.isam(texel, pair, texture, self.texel, texture if self.samplers > 1 else 0)

    def emit(self, w: Writer, acc: Reg, scalar: Reg, vector: Reg, scalar_first: bool, sy: bool) -> None:
        """``acc += scalar * vector`` over four columns."""
        repeated = "(r)" if self.lanes > 1 else ""
        for lane in range(0, self.columns, self.lanes):
            factors = [str(scalar), f"{repeated}{vector + lane}"]
            first, second = factors if scalar_first else factors[::-1]
            target = acc + lane
            w.emit(self.multiply, target, first, second, f"{repeated}{target}", rpt=self.lanes - 1, sy=sy)
            if self.idle:
                w.emit("nop", rpt=self.idle - 1)
            sy = False


class Coordinates(Protocol):
    """How sample coordinates are made and kept."""

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        """Before the first step. Row and column stand in the plan's ``row`` and ``col``."""
        ...

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Writes the samples of ``load``, and what must be done to coordinates before them."""
        ...

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Once the first product has waited for the samples of ``load``: its coordinates are free."""
        ...

    def finish(self, w: Writer, schedule: Schedule, step: Step) -> None:
        """Behind the last product. By then p0.x must be set, if ``step.end`` K steps are done then."""
        ...


class Epilogue(Protocol):
    """How accumulators reach memory."""

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None: ...

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        """Constants that it needs, as (scalar number, value), for rows of C of ``row_bytes``."""
        ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """A GEMM inner product for one fiber.

    Attributes:
        plan: registers by name: ``a0``... the texel of a row, ``b0``... the four texels of a column
            (``b0`` and ``b1`` are reused by later columns), ``acc``, ``row``, ``col``, ``scratch``, and
            what coordinates and epilogue need.
        phases: the K step, or what gives it for each step of a loop body.
        primed: samples before the first step, for phases whose samples are ahead; those must leave a step
            as they find it.
        arithmetic: types and instruction of the products.
        interleaved: a texel of A is four rows of one k, in ``a0`` to ``a3`` for the four k of a step.
        peel: at least so many K steps follow the loop, for phases that work ahead.
        order: nesting of the products, see :data:`ORDERS`.
        scalar_first: the scalar of A is the first source of the MAD, else the vector of B.
        sync: whether a product phase starts with (sy): (phase number among the products, step) to bool.
        waits: who puts the other waits into the K steps: ``legal``, all that are missing are added;
            ``slots``, only idle slots, no (sy) or (ss); ``written``, nothing is added.
        unroll: K steps in a loop body; what is left over follows the loop.
        far: the loop is closed by a jump, over which the branch of its test goes out; else by that branch.
        initial: what full accumulators start at, 32 bits.
        reserved: (row, column) of a vector that is not multiplied.
        spread: half accumulators start as a repeated move of the first scalar of each vec4.
        zero_from_first: they start as repeated moves of the very first one, which nothing waits for.
        b_index: which vec4 of the plan's ``b`` holds the texel of (column, k), where columns do not have
            texel registers of their own, ``b0`` and so on.
        partial: each k of a step has accumulators of its own, one set behind the other.
    """

    tile: Tile
    plan: RegisterPlan
    phases: Phases | Callable[[Step], Phases]
    coordinates: Coordinates
    epilogue: Epilogue
    order: str = "row_col_kk"
    scalar_first: bool = False
    sync: Callable[[int, Step], bool] = lambda products, step: False
    waits: str = "legal"
    unroll: int = 4
    far: bool = False
    arithmetic: Arithmetic = Arithmetic()
    interleaved: bool = False
    peel: int = 0
    primed: tuple[Load, ...] = ()
    initial: int = 0
    b_index: Callable[[int, int], int] | None = None
    partial: bool = False
    reserved: tuple[int, int] | None = None
    spread: bool = False
    zero_from_first: bool = False

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise KernelError(f"alu-order is {self.order!r}; give one of {', '.join(ORDERS)}")
        if problem := wrong_unroll(self.unroll):
            raise KernelError(problem)

    def at(self, step: Step) -> Phases:
        """The phases of a step."""
        return self.phases(step) if callable(self.phases) else self.phases

    def slot(self, col: int, bank: int = 0) -> str:
        """The name of the texels of column ``col``; those of the first bank where it is the only one."""
        slots = sum(f"b{index}" in self.plan for index in range(self.tile.cols))
        name = self.texels("b", col % slots, bank)
        return name if name in self.plan else self.texels("b", col % slots)

    def row(self, index: int, bank: int = 0) -> Block:
        """The texel of a row of A; that of the first bank where it is the only one."""
        name = self.texels("a", index, bank)
        return self.plan[name if name in self.plan else self.texels("a", index)]

    def vector(self, col: int, kk: int, bank: int = 0) -> Reg:
        """The first register of B's texel of a column, for k number ``kk`` of the step."""
        if self.b_index:
            return self.plan["b"].vec(self.b_index(col, kk))
        return self.plan[self.slot(col, bank)].vec(kk)

    def accumulator(self, row: int, col: int, kk: int) -> Reg:
        """The first register of the sum of a row and column, or of its part of one k."""
        place = row * self.tile.cols + col
        return self.plan["acc"].vec(place + kk * self.tile.rows * self.tile.cols * self.partial)

    @staticmethod
    def texels(operand: str, index: int, bank: int = 0) -> str:
        """The name of texel registers: ``a0`` in the first bank, ``a0.1`` in the second."""
        return f"{operand}{index}.{bank}" if bank else f"{operand}{index}"

    def scalar(self, row: int, kk: int, bank: int = 0) -> Reg:
        """The register of A's element in a tile row, for k number ``kk`` of the step."""
        index, lane = (kk, row) if self.interleaved else (row, kk)
        return self.row(index, bank)[lane]


END_CONSTANT = 92
"""c23.x: the K steps of the loop, where they are too many for an immediate."""
LARGEST_IMMEDIATE = 1023
"""Of a two-source instruction: signed 11 bits."""


def generate(schedule: Schedule, k: int, bare: bool = False) -> Program:
    """The program that computes C = A B for the tile of each fiber, with ``k`` a multiple of 4.

    ``bare``: without its K steps, which leaves a probe of what is around them.

    Raises:
        KernelError: a register plan that lacks something, or a k that the schedule cannot do.
    """
    if k < 4 or k % 4:
        raise KernelError(f"k is {k}; a texel holds four of them, give a positive multiple of 4")
    w = Writer()
    plan, steps = schedule.plan, k // 4
    emit_kept(w, plan)
    emit_place(w, schedule.tile, plan["row"][0], plan["col"][0], plan["scratch"])
    schedule.coordinates.prepare(w, schedule)
    if schedule.zero_from_first:
        w.zero_from_first(plan["acc"])
    else:
        w.zero(plan["acc"], schedule.initial, spread=schedule.spread)
    for load in schedule.primed:
        schedule.coordinates.sample(w, schedule, load, Step(0, steps, final=False))
    looped = max(0, steps - schedule.peel) // schedule.unroll * schedule.unroll
    start = len(w)
    if bare:
        pass
    elif looped > schedule.unroll:
        w.label("loop")
        _emit_steps(w, schedule, schedule.unroll, end=looped)
        if schedule.far:
            w.emit("br", "p0.x", "behind")
            w.emit("jump", "loop")
            w.label("behind")
        else:
            w.branch("loop")
        _emit_steps(w, schedule, steps - looped, end=None)
    else:  # one pass needs no loop
        _emit_steps(w, schedule, steps, end=None)
    inner = range(start, len(w))
    schedule.epilogue.emit(w, schedule.tile, plan)
    w.end()
    return insert_waits(
        w.program(),
        written={*w.exact, *(inner if schedule.waits == "written" else ())},
        unflagged=inner if schedule.waits == "slots" else range(0),
        merged=plan.merged,
    )


def loop_constants(k: int, unroll: int, peel: int = 0) -> tuple[tuple[int, int], ...]:
    """The constant that the test of a loop over K steps needs, if any."""
    looped = max(0, k // 4 - peel) // unroll * unroll
    return ((END_CONSTANT, looped),) if looped > LARGEST_IMMEDIATE else ()


def limit(end: int) -> int | str:
    """The K steps of the loop as an operand of its test."""
    return end if end <= LARGEST_IMMEDIATE else constant_name(END_CONSTANT)


def _emit_steps(w: Writer, schedule: Schedule, count: int, end: int | None) -> None:
    """``count`` K steps; with ``end``, the last one prepares the loop's branch."""
    waiting = list(schedule.primed)
    for index in range(count):
        last = index == count - 1
        step = Step(index, count, final=last and end is None, end=end if last else None)
        products = 0
        for phase in schedule.at(step):
            if isinstance(phase, Load):
                _emit_load(w, schedule, phase, waiting, step)
            elif isinstance(phase, Multiply):
                sync = schedule.sync(products, step) if phase.sync is None else phase.sync
                _emit_products(w, schedule, phase, waiting, step, sync)
                products += 1
            else:
                phase.emit(w, schedule, step)
        schedule.coordinates.finish(w, schedule, step)


def _emit_load(w: Writer, schedule: Schedule, load: Load, waiting: list[Load], step: Step) -> None:
    """The samples of ``load``, which join those that are waited for."""
    if load.ahead and step.final:
        return
    schedule.coordinates.sample(w, schedule, load, step)
    waiting.append(load)


def _emit_products(
    w: Writer, schedule: Schedule, phase: Multiply, waiting: list[Load], step: Step, sync: bool
) -> None:
    """The products of a phase.

    The first one waits for the samples that the phase needs, so their coordinates change behind it.
    """
    places = (place for place in nested(schedule.order, phase) if place[:2] != schedule.reserved)
    for number, (row, col, kk) in enumerate(places):
        acc = schedule.accumulator(row, col, kk)
        scalar, vector = schedule.scalar(row, kk, phase.bank), schedule.vector(col, kk, phase.bank)
        schedule.arithmetic.emit(w, acc, scalar, vector, schedule.scalar_first, sy=sync and not number)
        if number:
            continue
        arrived = [load for load in waiting if schedule.interleaved or phase.uses(load)]
        waiting[:] = [load for load in waiting if load not in arrived]
        for load in arrived:
            schedule.coordinates.release(w, schedule, load, step)
        for load in phase.behind:
            _emit_load(w, schedule, load, waiting, step)


def nested(order: str, phase: Multiply) -> Iterator[tuple[int, int, int]]:
    """(row, col, kk) of each product of ``phase``, in ``order``."""
    loops = {"row": phase.rows, "col": phase.cols, "kk": phase.kk}
    names = order.split("_")
    for values in itertools.product(*(loops[name] for name in names)):
        place = dict(zip(names, values, strict=True))
        yield place["row"], place["col"], place["kk"]
