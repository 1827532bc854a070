"""The 4x8 float32 GEMM whose three banks of texels take turns: the densest plan, and always a step ahead.

Four vec4 of column 0 of B, four of column 1, four of A: each is a bank. Once the products of column 0 are
done its bank takes the coordinates and then the texels of A for the next step; as the rows of A come to their
end, they take column 1, and what was column 1 takes column 0. After three steps the banks are where they
were. All texels have been asked for when a step ends, and nothing but counters stands beside them: 21 vec4.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels import single
from pytest_qcom.kernels.full import arithmetic, launch
from pytest_qcom.kernels.full_published import POSTED
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import GROUP_Z, LANES, Tile, emit_multiply
from pytest_qcom.kernels.notes import flag, renamed, without
from pytest_qcom.kernels.registers import Block, RegisterPlan
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE, Load, Schedule, Step, limit
from pytest_qcom.kernels.stores import Constant, ImageStore, RowMajor
from pytest_qcom.kernels.tiled import Stored, check_output
from pytest_qcom.kernels.writer import Writer

NAME = "gemm_4x8_fp32_rotate"
ROWS, COLS = 4, 2
_TURN = 3  # steps until the banks are where they were
_SOURCE = "QUALCOMM.md and qcom_fp32_wide_check.py of tinygrad's QCOM GEMM experiments"


@dataclass(frozen=True, slots=True)
class Options(Stored):
    """Options of the rotating kernel; m a multiple of ``threads`` / 8, n of 256, k of 4.

    Attributes:
        k_unroll: K steps of the loop body, a multiple of 3.
        k_start, k_count: the K steps that are summed: from ``k_start``, ``k_count`` of them, 0 for all.
        swap_groups: the grid counts rows in x.
        col_from_z: the grid counts columns in z.
        post_constant: 1024 is stored in place of the products.
    """

    k_unroll: int = 3
    image_store: bool = True
    k_start: int = 0
    k_count: int = 0
    swap_groups: bool = False
    col_from_z: bool = False
    post_constant: bool = False

    @property
    def part(self) -> slice:
        """The k that are summed."""
        first = 4 * self.k_start
        return slice(first, first + 4 * self.k_count if self.k_count else self.k)


@dataclass(frozen=True, slots=True)
class Rotating:
    """Coordinates and the whole K step: see the module.

    Attributes:
        first: the K step to start with.
        col_from_z: the workgroup's z counts columns.
        noted: waits as published: a (sy) a step, and idle slots before the branch.
    """

    first: int = 0
    col_from_z: bool = False
    noted: bool = False

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        """The texels of the first step into the banks 0 (column 0), 1 (column 1) and 2 (A)."""
        plan = schedule.plan
        if self.col_from_z:
            w.mov(plan["k4"][0], GROUP_Z)
            emit_multiply(w, plan["k4"][0], plan["k4"][0], COLS * LANES)
            w.alu("add.s", plan["col"][0], plan["col"][0], plan["k4"][0])
        self.start(w, schedule)
        targets = [
            (operand, index, self._bank(plan, bank).vec(index))
            for bank, operand in enumerate(("B0", "B1", "A"))
            for index in range(4)
        ]
        for operand, index, texel in targets:
            self._aim(w, schedule, operand, index, texel, ahead=0)
        for operand, _, texel in targets:
            self._fetch(w, schedule, operand, texel)

    def start(self, w: Writer, schedule: Schedule) -> None:
        """Where the counters begin."""
        w.mov(schedule.plan["k4"][0], self.first)
        w.mov(schedule.plan["ky"][0], 4 * self.first)

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        """One K step, with the samples of the next one if there is one."""
        plan = schedule.plan
        b0, b1, a = (self._bank(plan, step.index + bank) for bank in range(_TURN))
        ahead = step.index + 1
        for row in range(ROWS):
            self._products(w, schedule, row, 0, a, b0, sy=self.noted and not row)
        if step.final:
            for row in range(ROWS):
                self._products(w, schedule, row, 1, a, b1)
            return
        for row in range(ROWS):
            self._aim(w, schedule, "A", row, b0.vec(row), ahead)
        for row in range(ROWS):
            self._products(w, schedule, row, 1, a, b1)
            self._aim(w, schedule, "B1", row, a.vec(row), ahead)
            if row == 0:
                for index in range(ROWS):
                    self._fetch(w, schedule, "A", b0.vec(index))
            else:
                self._fetch(w, schedule, "B1", a.vec(row - 1))
        for kk in range(4):
            self._aim(w, schedule, "B0", kk, b1.vec(kk), ahead)
        self._fetch(w, schedule, "B1", a.vec(3))
        self._last(w, schedule, b1, step)

    def _last(self, w: Writer, schedule: Schedule, bank: Block, step: Step) -> None:
        """The samples of column 0, whose coordinates are the last: the loop is counted while they settle."""
        k4, ky = schedule.plan["k4"][0], schedule.plan["ky"][0]
        if step.end is not None:
            w.alu("add.s", k4, k4, schedule.unroll)
            w.alu("add.s", ky, ky, 4 * schedule.unroll)
        for kk in range(4):
            if step.end is not None and kk == 3:
                w.alu("cmps.s.eq", "p0.x", k4, limit(step.end + self.first))
            self._fetch(w, schedule, "B0", bank.vec(kk))
        if step.end is not None and self.noted:
            w.emit("nop", rpt=3)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Not used: a step samples by itself."""

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Not used."""

    def finish(self, w: Writer, schedule: Schedule, step: Step) -> None:
        """Nothing: the loop has been counted."""

    @staticmethod
    def _bank(plan: RegisterPlan, number: int) -> Block:
        return plan[f"bank{number % _TURN}"]

    @staticmethod
    def _products(
        w: Writer, schedule: Schedule, row: int, col: int, a: Block, b: Block, sy: bool = False
    ) -> None:
        acc = schedule.plan["acc"].vec(row * COLS + col)
        for kk in range(4):
            scalar = a.vec(row) + kk
            schedule.arithmetic.emit(w, acc, scalar, b.vec(kk), scalar_first=True, sy=sy and not kk)

    @staticmethod
    def _aim(w: Writer, schedule: Schedule, operand: str, index: int, texel: Reg, ahead: int) -> None:
        """The coordinate of a texel of the step ``ahead`` of the counters, into the texel's registers."""
        plan = schedule.plan
        if operand == "A":
            terms = ((plan["k4"][0], ahead), (plan["row"][0], index))
        else:
            terms = ((plan["col"][0], LANES * int(operand[1])), (plan["ky"][0], 4 * ahead + index))
        for component, (register, number) in enumerate(terms):
            if number:
                w.alu("add.s", texel + component, register, number)
            else:
                w.mov(texel + component, register)

    @staticmethod
    def _fetch(w: Writer, schedule: Schedule, operand: str, texel: Reg) -> None:
        schedule.arithmetic.sample(w, texel, texel, "AB".index(operand[0]))


def build(options: Options) -> Build:
    """The rotating kernel.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    return _build(NAME, False, options)


def _build(name: str, noted: bool, options: Options) -> Build:
    """With the waits that it needs, or as published."""
    _check(name, options)
    tile = Tile(ROWS, COLS, options.threads, swapped=options.swap_groups)
    rotating = Rotating(options.k_start, options.col_from_z, noted)
    store = ImageStore() if options.image_store else RowMajor(element=4)
    schedule = Schedule(
        tile=tile,
        plan=plan(),
        phases=(rotating,),
        coordinates=rotating,
        epilogue=Constant(store) if options.post_constant else store,
        waits="written" if noted else "legal",
        unroll=options.k_unroll,
        peel=1,
        arithmetic=arithmetic(options.sampler_per_texture),
    )
    part = options.part
    count = part.stop - part.start
    built = launch(name, options, schedule, options.thread128, steps=count // 4)
    columns, rows, _ = built.groups
    groups = (1, rows, columns) if options.col_from_z else built.groups
    return replace(built, work=built.work * count / options.k, groups=groups)


def plan() -> RegisterPlan:
    """Banks, accumulators and counters: 21 vec4."""
    plan = RegisterPlan()
    for bank in range(_TURN):
        plan = plan.place(f"bank{bank}", f"r{4 * bank}.x", 16)
    plan = plan.place("acc", "r12.x", 4 * ROWS * COLS)
    for name, component in (("row", "x"), ("col", "y"), ("ky", "z"), ("k4", "w")):
        plan = plan.place(name, f"r20.{component}", 1)
    banks = tuple(f"bank{bank}" for bank in range(_TURN))
    plan = plan.place("scratch", "r1.x", 4, over=banks)
    dead = (*banks, "scratch")
    plan = plan.place("addresses", "r0.x", 2 * ROWS, over=dead).place("carries", "r2.x", ROWS, over=dead)
    plan = plan.place("offsets", "r3.x", 2, over=dead)
    return plan.place("at", "r4.x", 8, over=dead)


def check(name: str, k: int, k_unroll: int) -> None:
    """What the loop needs.

    Raises:
        KernelError: another unroll, or more steps than it counts.
    """
    if k_unroll < 1 or k_unroll % _TURN:
        raise KernelError(
            f"{name}: k-unroll is {k_unroll}; the banks turn in {_TURN} steps, give a multiple of it"
        )
    if k // 4 > LARGEST_IMMEDIATE:
        raise KernelError(f"{name}: {k // 4} K steps; the loop counts {LARGEST_IMMEDIATE}, give a smaller k")


def _check(name: str, options: Options) -> None:
    check_shape(name, options)
    check(name, options.k, options.k_unroll)
    check_output(name, options)
    if options.col_from_z and options.swap_groups:
        raise KernelError(f"{name}: col-from-z with swap-groups; give one of them")
    steps = options.k // 4
    if not (0 <= options.k_start < steps and 0 <= options.k_count <= steps - options.k_start):
        raise KernelError(
            f"{name}: {options.k_count} K steps from {options.k_start} of {steps}; give a part that there is"
        )


def _product(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64 over the k that are summed, or the constant."""
    if options.post_constant:
        return {"C": single.shaped(options, np.full((options.m, options.n), POSTED))}
    a, b = single.matrices(options, arrays)
    return {"C": single.shaped(options, a[:, options.part] @ b[options.part])}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, single.Float]:
    """:func:`~pytest_qcom.kernels.single.bound` of one chain over the k that are summed."""
    return single.bound(options, arrays, (options.part,))


def _words(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options by the names of the scripts too: ``rotate-buffer`` is a C that is no image."""
    found = renamed(given, {"column_z": "col_from_z", "output_half": "half_output"})
    buffer = flag(found.get("rotate_buffer", found.get("rotate-buffer", "")))
    return found if buffer is None else {**without(found, "rotate_buffer"), "image_store": not buffer}


KERNELS = (
    Kernel(
        name=NAME,
        summary="4x8 GEMM of half matrices in float32: three banks of texels in turns, a step ahead",
        options=Options,
        reads=_words,
        build=build,
        inputs=single.random,
        oracle=_product,
        tolerance=_tolerance,
        patterns=single.PATTERNS,
        unit="GFLOPS",
        cases=(
            Case("n1024", {}),
            *(
                Case(f"k{k}", dict(m=16, n=256, k=k))  # no loop, and rests of 1, 2 and 3 steps behind one
                for k in (4, 8, 12, 16, 28, 32, 36, 40, 44)
            ),
            Case("wide", dict(m=16, n=768, k=28)),
            Case("tall", dict(m=80, n=256, k=28)),
            Case("buffer", dict(m=16, n=512, k=36, image_store=False)),
            Case("half-output", dict(m=16, n=256, k=36, half_output=True)),
            Case("float-inputs", dict(m=16, n=256, k=36, float_inputs=True)),
            Case("int8", dict(m=16, n=256, k=36, int8_a=True, int8_b=True)),
            Case("col-from-z", dict(m=48, n=768, k=36, col_from_z=True)),
            Case("swap-groups", dict(m=48, n=512, k=36, swap_groups=True)),
            Case("unroll-6", dict(m=16, n=256, k=76, k_unroll=6)),
            Case("thread128", dict(m=16, n=256, k=36, thread128=True)),
            Case("threads-64", dict(m=8, n=256, k=36, threads=64)),
        ),
        source=_SOURCE,
    ),
    Kernel(
        name="gemm_4x8_fp32_rotate_part",
        summary="the same over a part of k, for sums that are split",
        options=Options,
        reads=_words,
        build=functools.partial(_build, f"{NAME}_part", False),
        inputs=single.random,
        oracle=_product,
        tolerance=_tolerance,
        unit="GFLOPS",
        cases=(
            Case("first", dict(m=16, n=256, k=64, k_count=8)),
            Case("middle", dict(m=16, n=256, k=64, k_start=5, k_count=9)),
            Case("rest", dict(m=16, n=512, k=64, k_start=9, image_store=False)),
            Case("one", dict(m=16, n=256, k=64, k_start=3, k_count=1)),
        ),
        source=_SOURCE,
    ),
    Kernel(
        name=f"{NAME}_published",
        summary="the same as published: one wait a step, and none for coordinates",
        options=Options,
        reads=_words,
        build=functools.partial(_build, f"{NAME}_published", True),
        inputs=single.random,
        oracle=_product,
        tolerance=_tolerance,
        patterns=single.PATTERNS,
        unit="GFLOPS",
        cases=(
            Case("image", {}),
            Case("buffer", dict(image_store=False)),
            Case("k-start", dict(k_start=2)),
            Case("unroll-6", dict(k_unroll=6)),
            Case("col-from-z", dict(col_from_z=True)),
            Case("post-constant", dict(post_constant=True)),
        ),
        claim="as-published",
        source=_SOURCE,
    ),
)
