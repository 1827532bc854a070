"""The FP16 8x8 GEMM from texels of 128 bits: eight halves a sample, of B alone or of A and B.

A word of a texel is two halves. The low halves of four words become one half vec4 and the high halves
another, so that even and odd columns of B have accumulators of their own, which are put in order before they
are stored; of A, even and odd k, for which the rows of B are sampled in that order too. The coordinate of a
sample stands in the registers that it fills. A fiber's eight columns are neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.choices import check_unroll
from pytest_qcom.kernels.gemm import check_shape, gemm_launch
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import (
    Load,
    Multiply,
    Phases,
    Schedule,
    Step,
    generate,
    limit,
    loop_constants,
)
from pytest_qcom.kernels.stores import POINTER, RowMajor
from pytest_qcom.kernels.writer import Writer

ROWS, COLS = 8, 2
_HALVES = 8  # of a texel
_RAW = 4  # texels on their way at once
_SIDE = 4  # texels of 16 bytes that a texture's pitch is a multiple of


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the packed 8x8 kernel.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``threads`` / 4, n of 256, k of 4, with ``packed=ab`` of 8.
        packed: the operands with texels of eight halves: ``b`` or ``ab``.
        threads: fibers of a workgroup.
        k_unroll: K steps of the loop body, of 4 or, with ``packed=ab``, 8.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    packed: str = "ab"
    threads: int = 128
    k_unroll: int = 2


def _order(step: int) -> tuple[int, ...]:
    """The k of a step in the order of the registers of A: with 8 of them, even ones first."""
    return tuple(range(0, step, 2)) + tuple(range(1, step, 2)) if step == _HALVES else tuple(range(step))


@dataclass(frozen=True, slots=True)
class Packed:
    """Samples of words, unpacked as soon as they have arrived.

    The plan gives the counters ``k4`` (the texel of A) and ``ky`` (the row of B), ``raw``, :data:`_RAW` full
    vec4 for texels and their coordinates, ``a<row>`` for the halves of a row, ``b0`` and ``b1`` for even and
    odd columns.

    Attributes:
        step: k of a K step: 4, where texels of A are halves, or 8.
    """

    step: int

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        w.mov(schedule.plan["k4"][0], 0)
        w.mov(schedule.plan["ky"][0], 0)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        plan = schedule.plan
        if load.operand == "B":
            places = [
                (plan["ky"][0], k, (plan["b0"].vec(slot), plan["b1"].vec(slot)))
                for slot, k in enumerate(_order(self.step))
            ]
            self._words(w, plan, places, x=plan["col"][0], texture=1)
            return
        targets = [(row, plan[f"a{row}"]) for row in load.which]
        if self.step == _HALVES:
            words = [(plan["row"][0], row, (block.vec(0), block.vec(1))) for row, block in targets]
            self._words(w, plan, words, x=plan["k4"][0], texture=0)
            return
        for index, (row, _) in enumerate(targets):
            self._aim(w, plan["raw"].vec(index), plan["k4"][0], plan["row"][0], row)
        for index, (_, block) in enumerate(targets):
            w.isam(block[0], plan["raw"].vec(index), texture=0)

    def _words(
        self,
        w: Writer,
        plan: RegisterPlan,
        places: list[tuple[Reg, int, tuple[Reg, Reg]]],
        x: Reg,
        texture: int,
    ) -> None:
        """Texels at (x, y + offset) for each (y, offset, registers of low and of high halves)."""
        for start in range(0, len(places), _RAW):
            batch = places[start : start + _RAW]
            raw = [plan["raw"].vec(index) for index in range(len(batch))]
            for register, (y, offset, _) in zip(raw, batch, strict=True):
                self._aim(w, register, x, y, offset)
            for register in raw:
                w.isam(register, register, texture, kind="u32")
            for register, (_, _, (low, high)) in zip(raw, batch, strict=True):
                w.emit("cov.u32u16", low, f"(r){register}", rpt=3)
                w.emit("shrg", high, 16, f"(r){register}", 0, rpt=3)

    @staticmethod
    def _aim(w: Writer, pair: Reg, x: Reg, y: Reg, offset: int) -> None:
        w.mov(pair, x)
        w.alu("add.s", pair + 1, y, offset)

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Nothing: coordinates are gone with the sample."""

    def finish(self, w: Writer, schedule: Schedule, step: Step) -> None:
        k4, ky = schedule.plan["k4"][0], schedule.plan["ky"][0]
        if not step.final:
            w.alu("add.s", k4, k4, 1)
            w.alu("add.s", ky, ky, self.step)
        if step.end is not None:
            w.alu("cmps.s.eq", "p0.x", k4, limit(step.end))


@dataclass(frozen=True, slots=True)
class Ordered:
    """A row-major store that puts the columns of each row in order, through ``spare``: two half vec4."""

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return RowMajor().constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        for row in range(tile.rows):
            target, spare = plan["acc"].vec(row * tile.cols), plan["spare"]
            for part in range(tile.cols):
                w.copy_half(spare.vec(part), target + 4 * part)
            for column in range(4 * tile.cols):
                w.emit("mov.u16u16", target + column, spare[4 * (column % 2) + column // 2])
        RowMajor().emit(w, tile, plan)


def build(options: Options) -> Build:
    """The launch over packed images.

    Raises:
        KernelError: options that do not go together.
    """
    name = "gemm_8x8_fp16_packed"
    check_shape(name, options)
    if options.packed not in ("b", "ab"):
        raise KernelError(f"{name}: packed is {options.packed!r}; give b or ab")
    check_unroll(name, options.k_unroll)
    step = _step(options)
    if options.k % step:
        raise KernelError(f"{name}: k is {options.k}; a texel of A holds {step} of them, give a multiple")
    tile = Tile(ROWS, COLS, options.threads, adjacent=True)
    schedule = Schedule(
        tile=tile,
        plan=_plan(step),
        phases=_phases(step),
        coordinates=Packed(step),
        epilogue=Ordered(),
        unroll=options.k_unroll,
    )
    steps = 4 * (options.k // step)  # as generate counts
    constants = (
        *schedule.epilogue.constants(tile, 2 * options.n),
        *loop_constants(steps, schedule.unroll),
    )
    groups = tile.groups(name, options.m, options.n)
    program = generate(schedule, steps)
    arguments = _arguments(options)
    return gemm_launch(options, tile, schedule.plan, program, constants, groups, arguments)


def _step(options: Options) -> int:
    return _HALVES if options.packed == "ab" else 4


def _phases(step: int) -> Phases:
    """B, then A in groups of rows that share texels."""
    group = 2 if step == _HALVES else 4
    phases: list[Load | Multiply] = [Load("B", (0, 1), tuple(range(step)))]
    for first in range(0, ROWS, group):
        rows = tuple(range(first, first + group))
        phases += [Load("A", rows), Multiply(rows, (0, 1), tuple(range(step)))]
    return tuple(phases)


def _plan(step: int) -> RegisterPlan:
    """Texels of even and odd columns, four texels of A, accumulators; the place, counters and raw texels."""
    plan = RegisterPlan().place("b0", "hr0.x", 4 * step).place("b1", f"hr{step}.x", 4 * step)
    vectors = step // 4  # of a row of A
    for row in range(ROWS):
        over = tuple(f"a{other}" for other in range(row))
        plan = plan.place(f"a{row}", f"hr{2 * step + row * vectors % 4}.x", step, over=over)
    plan = plan.place("acc", f"hr{2 * step + 4}.x", 4 * ROWS * COLS).place(
        "spare", "hr0.x", 8, over=("b0", "b1")
    )
    for name, at in (("row", "r0.x"), ("col", "r0.y"), ("k4", "r0.z"), ("ky", "r0.w")):
        plan = plan.place(name, at, 1)
    plan = plan.place("raw", "r1.x", 4 * _RAW).place("scratch", "r1.x", 4, over=("raw",))
    dead = ("raw", "scratch", "row", "col", "k4", "ky")
    plan = plan.place("offsets", "r0.z", 2, over=dead).place("addresses", "r2.x", 2 * ROWS, over=dead)
    return plan.place("carries", "r0.x", ROWS, over=(*dead, "offsets"))


def _width(options: Options) -> int:
    """Texels of a row of A."""
    if options.packed == "b":
        return matmul.a_texels(options.k)
    return -(-options.k // _HALVES // _SIDE) * _SIDE


def _arguments(options: Options) -> tuple[Argument, ...]:
    kind = "uint32" if options.packed == "ab" else "float16"
    return (
        Argument("A", (options.m, _width(options), 4), kind, image=True, written=False),
        Argument("B", (options.k, options.n // _HALVES, 4), "uint32", image=True, written=False),
        Argument("C", (options.m, options.n), "float16", image=False, written=True, pointer=POINTER),
    )


def _pack(options: Options, arrays: Arrays) -> Arrays:
    """The halves of the plain kernel's images as words; A with noise behind column k."""
    a, b = matmul.matrices(options, arrays)
    words = {"A": arrays["A"], "B": _words(b, options.n // _HALVES)}
    if options.packed == "ab":
        padded = np.random.default_rng(0).standard_normal((options.m, _HALVES * _width(options)))
        halves = padded.astype(np.float16)
        halves[:, : options.k] = a
        words["A"] = _words(halves, _width(options))
    return words


def _words(halves: NDArray[Any], width: int) -> NDArray[np.uint32]:
    return np.ascontiguousarray(halves, np.float16).view(np.uint32).reshape(len(halves), width, 4)


def _plain(options: Options, arrays: Arrays) -> Arrays:
    """The images that the plain kernel would sample."""
    a = arrays["A"].view(np.float16).reshape(options.m, -1)[:, : options.k]
    b = arrays["B"].view(np.float16).reshape(options.k, options.n)
    return matmul.images(options, a, b)


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    return _pack(options, matmul.random(options, rng))


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64, inputs below the smallest normal float16 taken as 0."""
    return matmul.product(options, _plain(options, arrays))


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """As for the plain kernel; with ``packed=ab`` the k of a step are added in another order."""
    a, b = matmul.matrices(options, _plain(options, arrays))
    step = _step(options)
    order = (np.arange(0, options.k, step)[:, None] + np.array(_order(step))).reshape(-1)
    return matmul.half_bound(options, matmul.images(options, a[:, order], b[order]))


def _pattern(name: str) -> Callable[[Any], Arrays]:
    return lambda options: _pack(options, matmul.HALF_PATTERNS[name](options))


GEMM = Kernel(
    name="gemm_8x8_fp16_packed",
    summary="FP16 GEMM, 8 rows by 8 columns a fiber, from texels of eight halves",
    options=Options,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={name: _pattern(name) for name in matmul.HALF_PATTERNS},
    unit="GFLOPS",
    cases=(
        Case("n1024", {}),
        Case("square", dict(m=64, n=512, k=64)),
        Case("rest", dict(m=32, n=256, k=56)),  # 7 steps of 8, in padded images
        Case("threads-64", dict(m=32, n=256, k=32, threads=64, k_unroll=1)),
        Case("b-n1024", dict(packed="b")),
        Case("b-rest", dict(m=32, n=512, k=44, packed="b")),
        Case("b-threads-256", dict(m=64, n=256, k=32, packed="b", threads=256, k_unroll=1)),
    ),
)

KERNELS = (GEMM,)
