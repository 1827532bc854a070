"""The 4x8 float32 GEMM of a quad: its four fibers work on one tile, each on every fourth k.

A is interleaved, so that the texel of a k has the four rows: three samples a fiber and K step, one of A and
one for each column of B, feed eight repeated MADs. At the end the quad adds up its sums by two exchanges, and
each fiber stores one row. The counter of k differs from fiber to fiber; the one that ends the loop does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels import single
from pytest_qcom.kernels.full import arithmetic, launch
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import LOCAL_ID, Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Load, Schedule, Step, limit
from pytest_qcom.kernels.stores import ImageStore, RowMajor
from pytest_qcom.kernels.tiled import Stored, check_output
from pytest_qcom.kernels.writer import Writer

NAME = "gemm_4x8_fp32_splitk"
ROWS, COLS, QUAD = 4, 2, 4
_SOURCE = "QUALCOMM.md and qcom_fp32_wide_check.py of tinygrad's QCOM GEMM experiments"


@dataclass(frozen=True, slots=True)
class Options(Stored):
    """Options of the quad kernel; m a multiple of ``threads`` / 8, n of 64, k of 4.

    Attributes:
        k_count: the K steps that are summed, from the first; 0 for all.
        no_reduce: each fiber stores the row of its own part of the sum: that of its k.
    """

    image_store: bool = True
    k_count: int = 0
    no_reduce: bool = False

    @property
    def interleaved_a(self) -> bool:
        """Always: a texel of A is four rows of one k."""
        return True

    @property
    def part(self) -> slice:
        """The k that are summed."""
        return slice(0, 4 * self.k_count or self.k)


@dataclass(frozen=True, slots=True)
class Quad:
    """Coordinates and the K step of a fiber: k number ``lane`` of each four."""

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        plan = schedule.plan
        w.alu("and.b", plan["lane"][0], LOCAL_ID, QUAD - 1)
        w.mov(plan["k4"][0], 0)
        w.alu("shr.b", plan["quads"][0], plan["row"][0], 2)
        w.mov(plan["own_k"][0], plan["lane"][0])

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        plan, lanes = schedule.plan, schedule.tile.lanes
        a, columns = plan["a"][0], [plan["b"].vec(col) for col in range(COLS)]
        own_k, k4 = plan["own_k"][0], plan["k4"][0]
        _set(w, a, own_k, QUAD * step.index)
        w.mov(a + 1, plan["quads"][0])
        for col, texel in enumerate(columns):
            _set(w, texel, plan["col"][0], lanes * col)
            _set(w, texel + 1, own_k, QUAD * step.index)
        if step.end is not None:
            w.alu("add.s", k4, k4, schedule.unroll)
            w.alu("add.s", own_k, own_k, QUAD * schedule.unroll)
        schedule.arithmetic.sample(w, a, a, texture=0)
        for col, texel in enumerate(columns):
            if step.end is not None and col == COLS - 1:
                w.alu("cmps.s.eq", "p0.x", k4, limit(step.end))
            schedule.arithmetic.sample(w, texel, texel, texture=1)
        for row in range(ROWS):
            for col, texel in enumerate(columns):
                acc = plan["acc"].vec(row * COLS + col)
                schedule.arithmetic.emit(w, acc, a + row, texel, scalar_first=True, sy=False)

    def sample(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Not used: a step samples by itself."""

    def release(self, w: Writer, schedule: Schedule, load: Load, step: Step) -> None:
        """Not used."""

    def finish(self, w: Writer, schedule: Schedule, step: Step) -> None:
        """Nothing: the loop has been counted."""


@dataclass(frozen=True, slots=True)
class QuadStore:
    """The sums of the quad into all its fibers, then the row of each by the ``stored`` epilogue.

    An exchange with the neighbour to the side, then with that above or below: every fiber adds the same two
    sums of two, so that all have the same bits.
    """

    stored: RowMajor | ImageStore
    reduce: bool = True

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return self.stored.constants(self._row(tile), row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        acc, lane = plan["acc"], plan["lane"][0]
        vectors = [acc.vec(index) for index in range(ROWS * COLS)]
        temporaries = [plan["exchanged"].vec(index) for index in range(plan["exchanged"].size // 4)]
        for exchange in ("horiz", "vert") if self.reduce else ():
            for start in range(0, len(vectors), len(temporaries)):
                batch = list(zip(vectors[start : start + len(temporaries)], temporaries, strict=False))
                for vector, temporary in batch:
                    w.emit(f"quad_shuffle.{exchange}", f"(u32)(xyzw){temporary}", vector)
                for vector, temporary in batch:
                    w.emit("add.f", vector, f"(r){vector}", f"(r){temporary}", rpt=3)
        for row in range(1, ROWS):
            w.alu("cmps.s.eq", plan["mine"][row - 1], lane, row)
        for row in range(1, ROWS):
            for col in range(COLS):
                own, other = vectors[col], vectors[row * COLS + col]
                w.emit("sel.b32", own, f"(r){other}", plan["mine"][row - 1], f"(r){own}", rpt=3)
        w.alu("add.s", plan["row"][0], plan["row"][0], lane)
        self.stored.emit(w, self._row(tile), plan)

    @staticmethod
    def _row(tile: Tile) -> Tile:
        """What a fiber stores."""
        return Tile(1, tile.cols, tile.threads, share=tile.share)


def _set(w: Writer, dst: Reg, src: Reg, number: int) -> None:
    if number:
        w.alu("add.s", dst, src, number)
    else:
        w.mov(dst, src)


def build(options: Options) -> Build:
    """The quad kernel.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    check_shape(NAME, options)
    check_output(NAME, options)
    steps = options.k // 4
    if not 0 <= options.k_count <= steps:
        raise KernelError(f"{NAME}: k-count is {options.k_count} of {steps} K steps; give a part, 0 for all")
    quad = Quad()
    schedule = Schedule(
        tile=Tile(ROWS, COLS, options.threads, share=QUAD),
        plan=_plan(),
        phases=(quad,),
        coordinates=quad,
        epilogue=QuadStore(
            ImageStore() if options.image_store else RowMajor(element=4), not options.no_reduce
        ),
        unroll=options.k_unroll,
        arithmetic=arithmetic(options.sampler_per_texture),
    )
    built = launch(NAME, options, schedule, options.thread128, steps=options.k_count or steps)
    return replace(built, work=built.work * (options.k_count or steps) / steps)


def _plan() -> RegisterPlan:
    plan = RegisterPlan().place("a", "r1.x", 4).place("b", "r2.x", 8).place("acc", "r4.x", 4 * ROWS * COLS)
    places = ("r12.x", "r12.y", "r12.z", "r12.w", "r13.x", "r13.y")
    for name, at in zip(("row", "col", "k4", "own_k", "quads", "lane"), places, strict=True):
        plan = plan.place(name, at, 1)
    texels = ("a", "b")
    plan = plan.place("exchanged", "r0.x", 16, over=texels).place(
        "scratch", "r2.x", 4, over=("b", "exchanged")
    )
    dead = (*texels, "exchanged", "scratch")
    plan = plan.place("mine", "r0.x", 3, over=dead).place("addresses", "r1.x", 2, over=dead)
    plan = plan.place("carries", "r2.x", 1, over=dead).place("offsets", "r3.x", 2, over=dead)
    return plan.place("at", "r2.x", 4, over=(*dead, "carries"))


def _parts(options: Options) -> list[slice]:
    """The k of each fiber of a quad."""
    return [slice(lane, options.part.stop, QUAD) for lane in range(QUAD)]


def _product(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64 over the k that are summed; with ``no_reduce``, over those of each row's fiber."""
    a, b = single.matrices(options, arrays)
    if not options.no_reduce:
        return {"C": single.shaped(options, a[:, options.part] @ b[options.part])}
    rows = [a[lane::QUAD, part] @ b[part] for lane, part in enumerate(_parts(options))]
    return {"C": single.shaped(options, np.stack(rows, axis=1).reshape(options.m, options.n))}


def bound(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """:func:`~pytest_qcom.kernels.single.bound` of four sums that are added in pairs, then the pairs."""
    parts = _parts(options)
    total = np.abs(_product(options, arrays)["C"])
    if options.no_reduce:  # no row has more than the whole sum's error
        return {"C": sum((single.bound(options, arrays, [part])["C"] for part in parts), 0 * total)}
    pairs = [
        np.asarray(single.bound(options, arrays, parts[start : start + 2])["C"])
        for start in range(0, QUAD, 2)
    ]
    error = sum(pairs, np.zeros_like(total))
    return {"C": error + single.ROUNDOFF * (total + error) + 2 * single.TINY}


KERNELS = (
    Kernel(
        name=NAME,
        summary="4x8 GEMM of half matrices in float32: the fibers of a quad share a tile and split k",
        options=Options,
        build=build,
        inputs=single.random,
        oracle=_product,
        tolerance=bound,
        patterns=single.PATTERNS,
        unit="GFLOPS",
        cases=(
            Case("n256", dict(m=256, n=256, k=256)),
            Case("small", dict(m=16, n=64, k=36)),
            Case("one-step", dict(m=16, n=64, k=4)),
            Case("wide", dict(m=16, n=448, k=20)),
            Case("tall", dict(m=80, n=64, k=20)),
            Case("unroll", dict(m=16, n=128, k=44, k_unroll=4)),
            Case("buffer", dict(m=32, n=128, k=36, image_store=False)),
            Case("half-output", dict(m=16, n=64, k=36, half_output=True)),
            Case("float-inputs", dict(m=16, n=64, k=36, float_inputs=True)),
            Case("int8", dict(m=16, n=64, k=36, int8_a=True, int8_b=True)),
            Case("thread128", dict(m=16, n=64, k=36, thread128=True)),
            Case("no-reduce", dict(m=16, n=64, k=36, no_reduce=True)),
            Case("k-count", dict(m=16, n=128, k=64, k_count=5)),
            Case("threads-256", dict(m=32, n=64, k=36, threads=256)),
        ),
        source=_SOURCE,
    ),
)
