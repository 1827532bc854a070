"""The FP16 8x8 GEMM from texels of 128 bits: eight halves a sample, of B alone or of A and B.

A word of a texel is two halves. The low halves of four words become one half vec4 and the high halves
another, so that even and odd columns of B have accumulators of their own, which are put in order before they
are stored; of A, even and odd k, for which the rows of B are sampled in that order too. The coordinate of a
sample stands in the registers that it fills. A fiber's eight columns are neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels import flat, matmul
from pytest_qcom.kernels.choices import NO_DELAY, check_unroll
from pytest_qcom.kernels.gemm import HalfGemm, build_gemm, check_shape
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.noted_checks import check_stride
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.rewritten import delay
from pytest_qcom.kernels.schedule import (
    Load,
    Multiply,
    Phases,
    Schedule,
    Step,
    limit,
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
        merged_alias: with ``packed=b``, full and half registers are one file: a texel of B is sampled into
            the full registers over its halves, which need not be unpacked.
        threads: fibers of a workgroup.
        k_unroll: K steps of the loop body, of 4 or, with ``packed=ab``, 8.
        stride: elements from one row of C to the next, a multiple of 4; 0 is n.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    packed: str = "ab"
    merged_alias: bool = False
    threads: int = 128
    k_unroll: int = 2
    stride: int = 0


def _order(step: int) -> tuple[int, ...]:
    """The k of a step in the order of the registers of A: with 8 of them, even ones first."""
    return tuple(range(0, step, 2)) + tuple(range(1, step, 2)) if step == _HALVES else tuple(range(step))


@dataclass(frozen=True, slots=True)
class Packed:
    """Samples of words, unpacked as soon as they have arrived.

    The plan gives the counters ``k4`` (the texel of A) and ``ky`` (the row of B), ``raw``, :data:`_RAW` full
    vec4 for texels and their coordinates, ``a<row>`` for the halves of a row, ``b0`` and ``b1`` for even and
    odd columns. In merged files ``raw`` lies over the halves of B, and ``a_pairs`` are A's coordinates.

    Attributes:
        step: k of a K step: 4, where texels of A are halves, or 8.
        ahead: what ``ky`` is ahead of the first k of the step.
        delay: ``(rptN)nop`` between coordinates and their samples; -1 is none.
        aliased: nothing is unpacked: the halves of a texel are those over its words.
    """

    step: int
    aliased: bool = False
    ahead: int = 0
    delay: int = NO_DELAY

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        w.mov(schedule.plan["k4"][0], 0)
        w.mov(schedule.plan["ky"][0], self.ahead)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        plan = schedule.plan
        if load.operand == "B":
            places = [
                (plan["ky"][0], k - self.ahead, (schedule.vector(0, slot), schedule.vector(1, slot)))
                for slot, k in enumerate(_order(self.step))
            ]
            self._words(w, plan, places, x=plan["col"][0], texture=1)
            return
        targets = [(row, plan[f"a{row}"]) for row in load.which]
        if self.step == _HALVES:
            words = [(plan["row"][0], row, (block.vec(0), block.vec(1))) for row, block in targets]
            self._words(w, plan, words, x=plan["k4"][0], texture=0)
            return
        pairs = [
            plan["a_pairs"][2 * index] if "a_pairs" in plan else self._pair(plan, index)
            for index in range(len(targets))
        ]
        for pair, (row, _) in zip(pairs, targets, strict=True):
            self._aim(w, pair, plan["k4"][0], plan["row"][0], row)
        delay(w, self.delay)
        for pair, (_, block) in zip(pairs, targets, strict=True):
            w.isam(block[0], pair, texture=0)

    @staticmethod
    def _pair(plan: RegisterPlan, index: int) -> Reg:
        """Coordinates of a texel: a pair of their own, or the texel's registers."""
        return plan["pairs"][2 * index] if "pairs" in plan else plan["raw"].vec(index)

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
            for index, (y, offset, _) in enumerate(batch):
                self._aim(w, self._pair(plan, index), x, y, offset)
            delay(w, self.delay)
            for index in range(len(batch)):
                w.isam(plan["raw"].vec(index), self._pair(plan, index), texture, kind="u32")
            for index, (_, _, (low, high)) in enumerate(batch if not self.aliased else ()):
                register = plan["raw"].vec(index)
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
    check(name, options)
    check_unroll(name, options.k_unroll)
    step = step_of(options)
    tile = Tile(ROWS, COLS, options.threads, adjacent=True)
    schedule = Schedule(
        tile=tile,
        plan=_merged_plan() if options.merged_alias else _plan(step),
        phases=phases(step),
        coordinates=Packed(step, options.merged_alias),
        epilogue=RowMajor() if options.merged_alias else Ordered(),
        unroll=options.k_unroll,
        b_index=interleaved if options.merged_alias else None,
    )
    return launch(name, options, schedule)


def check(name: str, options: Options) -> None:
    """What is packed, and a K of whole texels.

    Raises:
        KernelError: it is not.
    """
    if options.packed not in ("b", "ab"):
        raise KernelError(f"{name}: packed is {options.packed!r}; give b or ab")
    if options.merged_alias and options.packed != "b":
        raise KernelError(f"{name}: merged-alias is about B alone; give packed=b")
    check_stride(name, options)
    if options.k % step_of(options):
        raise KernelError(
            f"{name}: k is {options.k}; a texel of A holds {step_of(options)} of them, give a multiple"
        )


def interleaved(col: int, slot: int) -> int:
    """Where the plan's ``b`` has the texel of a column: the two of each k side by side."""
    return COLS * slot + col


def launch(name: str, options: Options, schedule: Schedule, thread128: bool = True) -> Build:
    """The launch of a schedule over the packed images.

    Raises:
        KernelError: the output is not made of whole workgroup tiles.
    """
    steps = matmul.Sides(options.m, options.n, 4 * (options.k // step_of(options)))  # k as generate counts
    arguments = _arguments(options)
    built = build_gemm(name, steps, schedule, arguments, stride=options.stride, thread128=thread128)
    return replace(built, work=2e-9 * options.m * options.n * options.k)


def step_of(options: Options) -> int:
    """k of a K step."""
    return _HALVES if options.packed == "ab" else 4


def phases(step: int) -> Phases:
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


def _merged_plan() -> RegisterPlan:
    """Of ``merged_alias``: coordinates lie where their texels will, and words over their halves."""
    plan = RegisterPlan(merged=True).place("b", "hr0.x", 32).place("raw", "r0.x", 16, over=("b",))
    for row in range(ROWS):
        over = tuple(f"a{other}" for other in range(row))
        plan = plan.place(f"a{row}", f"hr{8 + row % 4}.x", 4, over=over)
    texels = tuple(block.name for block in plan.blocks)
    plan = plan.place("a_pairs", "r4.x", 8, over=texels).place("acc", "hr12.x", 4 * ROWS * COLS)
    for name, at in (("row", "r14.x"), ("col", "r14.y"), ("k4", "r14.z"), ("ky", "r14.w")):
        plan = plan.place(name, at, 1)
    dead = (*texels, "a_pairs", "scratch", "k4", "ky")
    plan = plan.place("scratch", "r1.x", 4, over=dead).place("addresses", "r0.x", 2 * ROWS, over=dead)
    return plan.place("carries", "r4.x", ROWS, over=dead).place("offsets", "r14.z", 2, over=dead)


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
        Argument(
            "C",
            (options.m, options.stride or options.n),
            "float16",
            image=False,
            written=True,
            pointer=POINTER,
        ),
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
    found = matmul.product(options, _plain(options, arrays))["C"]
    return {"C": flat.apart(found, options.stride)}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """As for the plain kernel; with ``packed=ab`` the k of a step are added in another order."""
    a, b = matmul.matrices(options, _plain(options, arrays))
    step = step_of(options)
    order = (np.arange(0, options.k, step)[:, None] + np.array(_order(step))).reshape(-1)
    bound = matmul.half_bound(options, matmul.images(options, a[:, order], b[order]))["C"]
    return {"C": flat.apart(bound, options.stride)}


def _pattern(name: str) -> Callable[[Any], Arrays]:
    return lambda options: _pack(options, matmul.HALF_PATTERNS[name](options))


GEMM = HalfGemm(
    name="gemm_8x8_fp16_packed",
    summary="FP16 GEMM, 8 rows by 8 columns a fiber, from texels of eight halves",
    options=Options,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={name: _pattern(name) for name in matmul.HALF_PATTERNS},
    cases=(
        Case("n1024", {}),
        Case("square", dict(m=64, n=512, k=64)),
        Case("rest", dict(m=32, n=256, k=56)),  # 7 steps of 8, in padded images
        Case("threads-64", dict(m=32, n=256, k=32, threads=64, k_unroll=1)),
        Case("stride", dict(m=32, n=256, k=24, stride=320)),
        Case("b-n1024", dict(packed="b")),
        Case("b-rest", dict(m=32, n=512, k=44, packed="b")),
        Case("merged-n1024", dict(packed="b", merged_alias=True)),
        Case("merged-rest", dict(m=32, n=512, k=44, packed="b", merged_alias=True)),
        Case("b-threads-256", dict(m=64, n=256, k=32, packed="b", threads=256, k_unroll=1)),
    ),
)

KERNELS = (GEMM,)
