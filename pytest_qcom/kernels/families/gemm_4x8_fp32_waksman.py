"""The 4x8 float32 GEMM by Waksman's identity: half as many products of A and B, for more additions.

With two k of a step, ``x`` the first column of a vec4, ``j`` another, all over the four rows of a fiber::

    p = a0 (b0x + a1)                     q_j = b1j (b0x + b0j)
    c_x += p + a1 (b1x - a0)
    c_j += (a0 + b1j) (a1 + b0x + b0j) - p - q_j

``p`` and ``q`` serve all columns and all rows of the fiber. On a machine whose addition costs as much as its
multiply-add this gains nothing; the cancellation makes it less exact. It is here because it was tried.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels import single
from pytest_qcom.kernels.counted import Advance, Aim, Counted, Fetch
from pytest_qcom.kernels.full import arithmetic, launch
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.notes import renamed
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Action, Load, Schedule, Step
from pytest_qcom.kernels.stores import ImageStore, RowMajor
from pytest_qcom.kernels.tiled import Stored, check_output
from pytest_qcom.kernels.writer import Writer

NAME = "gemm_4x8_fp32_waksman"
ROWS, COLS = 4, 2
_SOURCE = (
    "qcom_fp32_wide_check.py of tinygrad's QCOM GEMM experiments; A. Waksman, IEEE Trans. Comput. C-19 (1970)"
)


@dataclass(frozen=True, slots=True)
class Options(Stored):
    """Options of the kernel by Waksman's identity; m a multiple of ``threads`` / 8, n of 256, k of 4.

    Attributes:
        interleaved_a: a texel of A is four rows of one k, as the products want it; else it is turned.
        no_q: ``q`` is not taken off, which leaves it in the result: what tells the two corrections apart.
    """

    image_store: bool = True
    interleaved_a: bool = False
    no_q: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """Four rows of four k into four k of four rows."""

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        for kk in range(4):
            for row in range(ROWS):
                w.mov(schedule.plan["turned"].vec(kk) + row, schedule.plan[f"a{row}"][kk])


@dataclass(frozen=True, slots=True)
class Products:
    """The identity for one vec4 column, the k of a step in two pairs."""

    col: int
    no_q: bool = False

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        plan = schedule.plan
        columns = [plan["acc"].vec(4 * self.col + lane) for lane in range(4)]
        for first in (0, 2):
            a0, a1 = (plan["turned"].vec(first + index) for index in range(2))
            b0, b1 = (plan["b0"].vec(first + index) for index in range(2))
            self._pair(w, plan, columns, (a0, a1, b0, b1))

    def _pair(
        self, w: Writer, plan: RegisterPlan, columns: list[Reg], values: tuple[Reg, Reg, Reg, Reg]
    ) -> None:
        a0, a1, b0, b1 = values
        p, q, sums, left, right = (plan["temporaries"].vec(index) for index in range(5))
        _add(w, sums, f"(r){b0}", str(b0))
        _add(w, p, f"(r){a1}", str(b0))
        w.alu("mul.f", q, f"(r){b1}", f"(r){sums}", rpt=3)
        w.alu("mul.f", p, f"(r){a0}", f"(r){p}", rpt=3)
        _add(w, left, f"(neg)(r){a0}", str(b1))
        _add(w, columns[0], f"(r){columns[0]}", f"(r){p}")
        _multiply_add(w, columns[0], a1, left)
        for lane in range(1, 4):
            _add(w, left, f"(r){a0}", str(b1 + lane))
            _add(w, right, f"(r){a1}", str(sums + lane))
            _multiply_add(w, columns[lane], left, right)
            _add(w, columns[lane], f"(r){columns[lane]}", f"(neg)(r){p}")
            if not self.no_q:
                _add(w, columns[lane], f"(r){columns[lane]}", f"(neg){q + lane}")


def _add(w: Writer, dst: Reg, first: str, second: str) -> None:
    w.alu("add.f", dst, first, second, rpt=3)


def _multiply_add(w: Writer, acc: Reg, first: Reg, second: Reg) -> None:
    w.emit("mad.f32", acc, f"(r){first}", f"(r){second}", f"(r){acc}", rpt=3)


@dataclass(frozen=True, slots=True)
class GatherStore:
    """Accumulators are four rows of a column: turned into four columns of a row, then ``stored``."""

    stored: RowMajor | ImageStore

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return self.stored.constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        for row in range(ROWS):
            for col in range(COLS):
                for lane in range(4):
                    gathered = plan["gathered"].vec(row * COLS + col) + lane
                    w.mov(gathered, plan["acc"].vec(4 * col + lane) + row)
        self.stored.emit(w, tile, plan)


def build(options: Options) -> Build:
    """The kernel by Waksman's identity.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    check_shape(NAME, options)
    check_output(NAME, options)
    coordinates = Counted(early=True)
    stored = ImageStore("gathered") if options.image_store else RowMajor("gathered", element=4)
    schedule = Schedule(
        tile=Tile(ROWS, COLS, options.threads),
        plan=_plan(options.interleaved_a),
        phases=_phases(options.interleaved_a, options.no_q, coordinates),
        coordinates=coordinates,
        epilogue=GatherStore(stored),
        unroll=options.k_unroll,
        arithmetic=arithmetic(options.sampler_per_texture),
        interleaved=options.interleaved_a,
    )
    return launch(NAME, options, schedule, options.thread128)


def _phases(interleaved: bool, no_q: bool, coordinates: Counted) -> tuple[Action, ...]:
    """A K step: A, turned if need be, then each column of B with its products."""
    a, (first, second) = (Load("A", (0, 1, 2, 3)),), ((Load("B", (col,)),) for col in range(COLS))
    turn: tuple[Action, ...] = () if interleaved else (Turn(),)
    return (
        Aim(coordinates, a),
        Fetch(coordinates, a),
        *turn,
        Aim(coordinates, first),
        Fetch(coordinates, first),
        Products(0, no_q),
        Aim(coordinates, second),
        Advance(coordinates),
        Fetch(coordinates, second, test=True),
        Products(1, no_q),
    )


def _plan(interleaved: bool) -> RegisterPlan:
    plan = RegisterPlan().place("b0", "r0.x", 16).place("turned", "r4.x", 16).place("acc", "r8.x", 32)
    for index in range(4):
        base, over = (4, "turned") if interleaved else (0, "b0")
        plan = plan.place(f"a{index}", f"r{base + index}.x", 4, over=(over,))
    for name, component in (("row", "x"), ("col", "y"), ("ky", "z"), ("k4", "w")):
        plan = plan.place(name, f"r16.{component}", 1)
    plan = plan.place("temporaries", "r17.x", 20)
    if interleaved:
        plan = plan.place("quads", "r22.x", 1)
    texels = ("b0", "turned", "a0", "a1", "a2", "a3")
    plan = plan.place("gathered", "r17.x", 32, over=("temporaries", "quads"))
    plan = plan.place("scratch", "r1.x", 4, over=texels)
    dead = (*texels, "scratch")
    plan = plan.place("addresses", "r0.x", 2 * ROWS, over=dead).place("carries", "r2.x", ROWS, over=dead)
    return plan.place("offsets", "r3.x", 2, over=dead).place("at", "r4.x", 8, over=dead)


def _product(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64; with ``no_q``, and ``q`` beside it in columns 1 to 3 of each four."""
    found = single.product(options, arrays)
    if not options.no_q:
        return found
    _, b = single.matrices(options, arrays)
    first_of_four = np.repeat(b[0::2, 0::4], 4, axis=1)
    q = (b[1::2] * (b[0::2] + first_of_four)).sum(axis=0)
    q[0::4] = 0.0
    return {"C": single.shaped(options, found["C"].reshape(options.m, options.n) + q)}


def bound(options: Options, arrays: Arrays) -> Mapping[str, NDArray[np.float64]]:
    """How far the identity in float32 can be from the product.

    Derivation, ``u = 2**-24``, for a pair of k, magnitudes in bars. Let ``M = (|a0| + |b1|)(|a1| + |b0x| +
    |b0|)``, which is at least ``|p| + |q|`` in magnitudes, and half of what column x adds. The product of the
    two sums has four roundings and ``p`` and ``q`` two each: ``6 u M``. Each of the three additions rounds a
    partial sum, of magnitude ``|S| + 2 M`` at most with the exact sum ``S`` so far: ``3 u (|S| + 2 M)``. So a
    pair adds ``u (12 M + 3 |S|)``, and errors grow by ``1 + u`` an operation, eight of them a pair. Inputs
    that are bytes are off by ``u`` themselves, which costs ``2 u`` of each product: ``4 u M`` more.
    """
    a, b = (np.abs(matrix) for matrix in single.matrices(options, arrays))
    first_of_four = np.repeat(b[0::2, 0::4], 4, axis=1)
    a0, a1, b1, sums = a[:, 0::2], a[:, 1::2], b[1::2], b[0::2] + first_of_four
    magnitude = (a0 * a1).sum(axis=1)[:, None] + (b1 * sums).sum(axis=0) + a0 @ sums + a1 @ b1
    pairs = options.k // 2
    largest = a @ b  # no prefix is larger than the sum of magnitudes
    if options.no_q:  # which stays in what is stored
        largest = largest + (b1 * sums).sum(axis=0)
    of_m = 16 if options.int8_a or options.int8_b else 12
    error = single.ROUNDOFF * (of_m * magnitude + 3 * pairs * largest) * (1 + single.ROUNDOFF) ** (8 * pairs)
    if options.image_store and options.half_output:
        error = error + 2.0**-11 * (largest + error) + 2.0**-25
    return {"C": single.shaped(options, error)}


KERNELS = (
    Kernel(
        name=NAME,
        summary="4x8 GEMM of half matrices in float32 by Waksman's identity: fewer products, more sums",
        options=Options,
        build=build,
        inputs=single.random,
        oracle=_product,
        tolerance=bound,
        patterns=single.PATTERNS,
        unit="GFLOPS",
        reads=functools.partial(renamed, names={"waksman_no_q": "no_q", "output_half": "half_output"}),
        cases=(
            Case("small", dict(m=16, n=256, k=36)),
            Case("one-step", dict(m=16, n=256, k=4)),
            Case("wide", dict(m=16, n=512, k=20)),
            Case("tall", dict(m=48, n=256, k=20)),
            Case("unroll", dict(m=16, n=256, k=28, k_unroll=2)),
            Case("interleaved", dict(m=16, n=256, k=36, interleaved_a=True)),
            Case("buffer", dict(m=16, n=256, k=36, image_store=False)),
            Case("half-output", dict(m=16, n=256, k=36, half_output=True)),
            Case("float-inputs", dict(m=16, n=256, k=36, float_inputs=True)),
            Case("int8", dict(m=16, n=256, k=36, int8_a=True, int8_b=True)),
            Case("thread128", dict(m=16, n=256, k=36, thread128=True)),
        ),
        source=_SOURCE,
    ),
)
