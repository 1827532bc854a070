"""The FP16 GEMM of 4 rows by one vec4 column a fiber, in the vendor compiler's shape and patched.

The shape: one accumulator for each of the four k of a step, so 64 of them, in registers that are mostly but
not always neighbours; scalar MADs with some pairs; coordinates written anew each step; five (sy), of which
one is needed. All of it is generated here. The patches (:mod:`pytest_qcom.kernels.rewrite`) work on the
program by data flow, as they would on a compiled one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.gemm import check_shape, gemm_launch
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile, emit_place
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.rewrite import REWRITES, apply
from pytest_qcom.kernels.schedule import limit, loop_constants
from pytest_qcom.kernels.stores import RowMajor
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.writer import Writer

ROWS = 4
# The accumulators of (row, k of the step), as half scalars: pairs where a vec4 is torn.
_TORN = {(2, 2): (122, 123, 54, 55), (2, 3): (56, 57, 58, 59)}
_PLACED = {0: 82, 1: 98, 2: 114, 3: 66}


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the compiled 4x4 kernel.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``threads`` / 8, n of 128, k of 4.
        threads: fibers of a workgroup: 64, 128 or 256.
        strip_sync, pack_repeats, merge_pairs: the patches, applied in this order.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    threads: int = 128
    strip_sync: bool = False
    pack_repeats: bool = False
    merge_pairs: bool = False


def build(options: Options) -> Build:
    """The kernel, compiled or patched."""
    name = "gemm_4x4_fp16"
    check_shape(name, options)
    tile = Tile(ROWS, 1, options.threads)
    groups = tile.groups(name, options.m, options.n)
    program = compiled(options)
    wanted = (options.strip_sync, options.pack_repeats, options.merge_pairs)
    for rewrite in itertools.compress(REWRITES, wanted):
        program = apply(rewrite, program)
    constants = (*_STORE.constants(tile, row_bytes=2 * options.n), *loop_constants(options.k, unroll=1))
    return gemm_launch(options, tile, _PLAN, program, constants, groups)


def accumulators(row: int, kk: int) -> tuple[Reg, ...]:
    """The four half registers that sum up ``A[row, kk] * B[kk]``."""
    numbers = _TORN.get((row, kk)) or range(_PLACED[row] + 4 * kk, _PLACED[row] + 4 * kk + 4)
    return tuple(Reg(number, half=True) for number in numbers)


def _plan() -> RegisterPlan:
    plan = RegisterPlan()
    for row, vec in enumerate((3, 2, 1, 0)):
        plan = plan.place(f"a{row}", f"hr{vec}.x", 4)
    plan = plan.place("b0", "hr4.x", 16).place("low_acc", "hr13.z", 6).place("acc", "hr16.z", 58)
    plan = plan.place("a_pairs", "r2.y", 8).place("b_pairs", "r4.y", 8)
    plan = plan.place("ky", "r6.y", 1).place("k4", "r6.z", 1).place("next", "r6.w", 1)
    plan = plan.place("row", "r7.x", 1).place("col", "r7.y", 1)
    dead = tuple(block.name for block in plan.blocks)
    plan = plan.place("scratch", "r2.x", 4, over=dead).place("out", "hr0.x", 16, over=dead)
    dead = (*dead, "scratch")
    plan = plan.place("addresses", "r2.x", 8, over=dead).place("carries", "r4.x", 4, over=dead)
    return plan.place("offsets", "r6.z", 2, over=dead)


_PLAN = _plan()


_STORE = RowMajor(source="out")


def compiled(options: Options) -> Program:
    """The program in its compiled shape, with the waits that it needs."""
    w = Writer()
    plan = _PLAN
    tile = Tile(ROWS, 1, options.threads)
    emit_place(w, tile, plan["row"][0], plan["col"][0], plan["scratch"])
    w.mov(plan["ky"][0], 3, sy=True)
    w.mov(plan["k4"][0], 0)
    for index in range(4):
        w.mov(plan["b_pairs"][2 * index], plan["col"][0])
        if index:
            w.alu("add.s", plan["a_pairs"][2 * index + 1], plan["row"][0], index)
        else:
            w.mov(plan["a_pairs"][1], plan["row"][0])
    w.zero(plan["low_acc"])
    w.zero(plan["acc"])
    w.label("loop")
    _emit_samples(w, plan)
    for row in range(ROWS):
        _emit_row(w, plan, row)
    _emit_control(w, plan, options.k // 4)
    for row in range(ROWS):
        _emit_sum(w, plan, row)
    _STORE.emit(w, tile, plan)
    w.end()
    return insert_waits(w.program())


def _emit_samples(w: Writer, plan: RegisterPlan) -> None:
    """Coordinates of the step, then all of its samples."""
    for index in range(4):
        w.mov(plan["a_pairs"][2 * index], plan["k4"][0])
    for kk in range(4):
        y = plan["b_pairs"][2 * kk + 1]
        if kk < 3:
            w.alu("add.s", y, plan["ky"][0], kk - 3)
        else:
            w.mov(y, plan["ky"][0])
    for row in range(ROWS):
        w.isam(plan[f"a{row}"][0], plan["a_pairs"][2 * row], texture=0)
    for kk in range(4):
        w.isam(plan["b0"].vec(kk), plan["b_pairs"][2 * kk], texture=1)


def _emit_row(w: Writer, plan: RegisterPlan, row: int) -> None:
    """Sixteen products, four accumulators each; the compiler waits at the start of every row."""
    sy = True
    for kk in range(4):
        acc, scalar, vector = accumulators(row, kk), plan[f"a{row}"][kk], plan["b0"].vec(kk)
        if (row, kk) in _TORN:
            for lane in (0, 2):
                second, third = f"(r){vector + lane}", f"(r){acc[lane]}"
                w.emit("mad.f16", acc[lane], scalar, second, third, rpt=1, sy=sy)
                sy = False
        else:
            for lane in range(4):
                w.emit("mad.f16", acc[lane], scalar, vector + lane, acc[lane], sy=sy)
                sy = False


def _emit_control(w: Writer, plan: RegisterPlan, steps: int) -> None:
    k4, following = plan["k4"][0], plan["next"][0]
    w.alu("add.s", following, k4, 1)
    w.alu("add.s", plan["ky"][0], plan["ky"][0], 4)
    w.alu("cmps.s.eq", "p0.x", following, limit(steps))
    w.mov(k4, following)
    w.branch("loop")


def _emit_sum(w: Writer, plan: RegisterPlan, row: int) -> None:
    """The four partial sums of a row added up, lane by lane."""
    for kk in range(1, 4):
        for lane in range(4):
            out = plan["out"][4 * row + lane]
            first = accumulators(row, 0)[lane] if kk == 1 else out
            w.alu("add.f", out, first, accumulators(row, kk)[lane])


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """:func:`~pytest_qcom.kernels.matmul.half_bound` of four partial sums."""
    return matmul.half_bound(options, arrays, chains=4)


_PATCHED = dict(strip_sync=True, pack_repeats=True, merge_pairs=True)

GEMM = Kernel(
    name="gemm_4x4_fp16",
    summary="FP16 GEMM, 4 rows by one vec4 column a fiber, in its compiled shape and patched",
    options=Options,
    build=build,
    inputs=matmul.random,
    oracle=matmul.product,
    tolerance=_tolerance,
    patterns=matmul.PATTERNS,
    unit="GFLOPS",
    cases=(
        Case("compiled", dict(m=64, n=128, k=64)),
        Case("compiled-wide", dict(m=16, n=512, k=20)),
        Case("strip-sync", dict(m=64, n=128, k=64, strip_sync=True)),
        Case("pack-repeats", dict(m=64, n=128, k=64, strip_sync=True, pack_repeats=True)),
        Case("patched", dict(m=64, n=128, k=64, **_PATCHED)),
        Case("patched-tall", dict(m=128, n=128, k=32, **_PATCHED)),
        Case("patched-64", dict(m=16, n=256, k=40, threads=64, **_PATCHED)),
    ),
    source="qcom_gemm.py of tinygrad's QCOM GEMM experiments; the donor's register map in qcom_asm_gemm.py",
)

KERNELS = (GEMM,)
