"""The FP16 GEMM of 4 rows by one vec4 column a fiber, in the vendor compiler's shape and patched.

The shape: one accumulator for each of the four k of a step, so 64 of them, in registers that are mostly but
not always neighbours; scalar MADs with some pairs; coordinates written anew each step; five (sy), of which
one is needed. All of it is generated here. The patches (:mod:`pytest_qcom.kernels.rewrite`) work on the
program by data flow, as they would on a compiled one.

Two more shapes were tried on the compiler: eight rows a fiber, and B sampled k by k between its products.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.gemm import HalfGemm, check_shape, gemm_launch
from pytest_qcom.kernels.kernel import Arrays, Build, Case
from pytest_qcom.kernels.launch import Tile, emit_place
from pytest_qcom.kernels.notes import renamed
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.rewrite import MadRepeat, PairMerge, Rewrite, SyncStrip, apply
from pytest_qcom.kernels.rewrites.remap import AccumulatorRemap
from pytest_qcom.kernels.schedule import limit, loop_constants
from pytest_qcom.kernels.stores import RowMajor
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.writer import Writer

CHOICES = (4, 8)
# The accumulators of (row, k of the step), as half scalars: pairs where a vec4 is torn.
_TORN = {(2, 2): (122, 123, 54, 55), (2, 3): (56, 57, 58, 59)}
_PLACED = {0: 82, 1: 98, 2: 114, 3: 66}
_FIRST_OF_EIGHT = 48  # with eight rows they are neighbours
_NAME = "gemm_4x4_fp16"
PATCHES: tuple[Rewrite, ...] = (SyncStrip(), AccumulatorRemap(), MadRepeat(), PairMerge())
"""In the order in which they are applied: the strip first, since a (sy) within a run refuses it."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the compiled 4x4 kernel.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``threads`` / 32 times ``rows``, n of 128, k of 4.
        threads: fibers of a workgroup: 64, 128 or 256.
        rows: of a fiber, 4 or 8.
        interleaved_b: each k of B is sampled before its products, those of all rows, and waited for: four
            (sy) in place of one a row.
        strip_sync, remap_accumulators, pack_repeats, merge_pairs: the patches, applied in this order.
        max_groups: of four MADs each, which ``pack_repeats`` packs, the first ones; -1 is all.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    threads: int = 128
    rows: int = 4
    interleaved_b: bool = False
    strip_sync: bool = False
    remap_accumulators: bool = False
    pack_repeats: bool = False
    merge_pairs: bool = False
    max_groups: int = -1


@dataclass(frozen=True, slots=True)
class Published(Options):
    """The same as they were run, in waves of 64 fibers.

    Attributes:
        hand: the loop by hand, with the compiler's prologue and epilogue: repeated MADs and one (sy), as all
            patches together leave it.
        hregs_override: half vec4 declared; 0 is what the kernel uses. The notes' hand loop came with fewer
            than the compiler's epilogue reads.
    """

    hand: bool = False
    hregs_override: int = 0


def build(options: Options) -> Build:
    """The kernel, compiled or patched.

    Raises:
        KernelError: a tile that no compiler was given, or a shape that is not made of whole tiles.
    """
    return _build(options, _wanted(options))


def build_published(options: Published) -> Build:
    """The kernel as it was run.

    Raises:
        KernelError: as :func:`build`, or a hand loop that is to be patched.
    """
    wanted = _wanted(options)
    if options.hand and any(wanted):
        raise KernelError(f"{_NAME}: hand with a patch; the hand loop is what the patches make, give one")
    built = _build(options, (SyncStrip(), MadRepeat(), PairMerge()) if options.hand else wanted)
    return replace(built, hregs=options.hregs_override or built.hregs, thread128=False)


def _wanted(options: Options) -> tuple[Rewrite, ...]:
    """The patches that the options name, in their order."""
    wanted = (
        options.strip_sync,
        options.remap_accumulators,
        options.pack_repeats,
        options.merge_pairs,
    )
    found = itertools.compress(PATCHES, wanted)
    return tuple(
        replace(patch, most=options.max_groups) if isinstance(patch, MadRepeat) else patch for patch in found
    )


def _build(options: Options, patches: tuple[Rewrite, ...]) -> Build:
    check_shape(_NAME, options)
    if options.rows not in CHOICES:
        raise KernelError(f"{_NAME}: rows is {options.rows}; give 4 or 8")
    if options.max_groups < -1 or (options.max_groups >= 0 and not options.pack_repeats):
        raise KernelError(f"{_NAME}: max-groups is {options.max_groups}; give pack-repeats, and -1 or more")
    tile = Tile(options.rows, 1, options.threads)
    groups = tile.groups(_NAME, options.m, options.n)
    program = compiled(options)
    for rewrite in patches:
        program = apply(rewrite, program)
    constants = (*_STORE.constants(tile, row_bytes=2 * options.n), *loop_constants(options.k, unroll=1))
    return gemm_launch(options, tile, _PLANS[options.rows], program, constants, groups)


def accumulators(row: int, kk: int, rows: int = 4) -> tuple[Reg, ...]:
    """The four half registers that sum up ``A[row, kk] * B[kk]`` of a tile of ``rows``."""
    first = _FIRST_OF_EIGHT + 16 * row + 4 * kk if rows > 4 else _PLACED[row] + 4 * kk
    numbers = _torn(row, kk, rows) or range(first, first + 4)
    return tuple(Reg(number, half=True) for number in numbers)


def _torn(row: int, kk: int, rows: int) -> tuple[int, ...]:
    return _TORN.get((row, kk), ()) if rows == 4 else ()


def _plan_of_four() -> RegisterPlan:
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


def _plan_of_eight() -> RegisterPlan:
    plan = RegisterPlan()
    for row in range(8):
        plan = plan.place(f"a{row}", f"hr{7 - row}.x", 4)
    plan = plan.place("b0", "hr8.x", 16).place("acc", "hr12.x", 128)
    plan = plan.place("a_pairs", "r2.y", 16).place("b_pairs", "r6.y", 8)
    plan = plan.place("ky", "r8.y", 1).place("k4", "r8.z", 1).place("next", "r8.w", 1)
    plan = plan.place("row", "r9.x", 1).place("col", "r9.y", 1)
    dead = tuple(block.name for block in plan.blocks)
    plan = plan.place("scratch", "r2.x", 4, over=dead).place("out", "hr0.x", 32, over=dead)
    dead = (*dead, "scratch")
    plan = plan.place("addresses", "r2.x", 16, over=dead).place("carries", "r6.x", 8, over=dead)
    return plan.place("offsets", "r8.z", 2, over=dead)


_PLANS = {4: _plan_of_four(), 8: _plan_of_eight()}


_STORE = RowMajor(source="out")


def compiled(options: Options) -> Program:
    """The program in its compiled shape, with the waits that it needs."""
    w = Writer()
    plan, rows = _PLANS[options.rows], options.rows
    tile = Tile(rows, 1, options.threads)
    emit_place(w, tile, plan["row"][0], plan["col"][0], plan["scratch"])
    w.mov(plan["ky"][0], 3, sy=True)
    w.mov(plan["k4"][0], 0)
    for index in range(4):
        w.mov(plan["b_pairs"][2 * index], plan["col"][0])
    for row in range(rows):
        y = plan["a_pairs"][2 * row + 1]
        if row:
            w.alu("add.s", y, plan["row"][0], row)
        else:
            w.mov(y, plan["row"][0])
    for block in ("low_acc", "acc"):
        if block in plan:
            w.zero(plan[block])
    w.label("loop")
    _emit_coordinates(w, plan, rows)
    for row in range(rows):
        w.isam(plan[f"a{row}"][0], plan["a_pairs"][2 * row], texture=0)
    if options.interleaved_b:
        for kk in range(4):
            w.isam(plan["b0"].vec(kk), plan["b_pairs"][2 * kk], texture=1)
            _emit_products(w, plan, rows, [(row, kk) for row in range(rows)])
    else:
        for kk in range(4):
            w.isam(plan["b0"].vec(kk), plan["b_pairs"][2 * kk], texture=1)
        for row in range(rows):  # the compiler waits at the start of every row
            _emit_products(w, plan, rows, [(row, kk) for kk in range(4)])
    _emit_control(w, plan, options.k // 4)
    for row in range(rows):
        _emit_sum(w, plan, row, rows)
    _STORE.emit(w, tile, plan)
    w.end()
    return insert_waits(w.program())


def _emit_coordinates(w: Writer, plan: RegisterPlan, rows: int) -> None:
    """The coordinates of the step."""
    for row in range(rows):
        w.mov(plan["a_pairs"][2 * row], plan["k4"][0])
    for kk in range(4):
        y = plan["b_pairs"][2 * kk + 1]
        if kk < 3:
            w.alu("add.s", y, plan["ky"][0], kk - 3)
        else:
            w.mov(y, plan["ky"][0])


def _emit_products(w: Writer, plan: RegisterPlan, rows: int, places: list[tuple[int, int]]) -> None:
    """The products of some (row, k of the step), four accumulators each; a (sy) at their start."""
    sy = True
    for row, kk in places:
        acc, scalar, vector = accumulators(row, kk, rows), plan[f"a{row}"][kk], plan["b0"].vec(kk)
        if _torn(row, kk, rows):
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


def _emit_sum(w: Writer, plan: RegisterPlan, row: int, rows: int) -> None:
    """The four partial sums of a row added up, lane by lane."""
    for kk in range(1, 4):
        for lane in range(4):
            out = plan["out"][4 * row + lane]
            first = accumulators(row, 0, rows)[lane] if kk == 1 else out
            w.alu("add.f", out, first, accumulators(row, kk, rows)[lane])


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """:func:`~pytest_qcom.kernels.matmul.half_bound` of four partial sums."""
    return matmul.half_bound(options, arrays, chains=4)


_words = functools.partial(renamed, names={"patch_sync": "strip_sync", "hregs": "hregs_override"})
_PATCHED = dict(strip_sync=True, pack_repeats=True, merge_pairs=True)

_SOURCE = "qcom_gemm.py of tinygrad's QCOM GEMM experiments; the donor's register map in qcom_asm_gemm.py"

GEMM = HalfGemm(
    name=_NAME,
    summary="FP16 GEMM, 4 rows by one vec4 column a fiber, in its compiled shape and patched",
    options=Options,
    build=build,
    tolerance=_tolerance,
    reads=_words,
    cases=(
        Case("compiled", dict(m=64, n=128, k=64)),
        Case("compiled-wide", dict(m=16, n=512, k=20)),
        Case("strip-sync", dict(m=64, n=128, k=64, strip_sync=True)),
        Case("pack-repeats", dict(m=64, n=128, k=64, strip_sync=True, pack_repeats=True)),
        Case("pack-some", dict(m=64, n=128, k=64, strip_sync=True, pack_repeats=True, max_groups=7)),
        Case("patched", dict(m=64, n=128, k=64, **_PATCHED)),
        Case("patched-tall", dict(m=128, n=128, k=32, **_PATCHED)),
        Case("patched-64", dict(m=16, n=256, k=40, threads=64, **_PATCHED)),
        Case("remapped", dict(m=64, n=128, k=64, strip_sync=True, remap_accumulators=True)),
        Case("remapped-packed", dict(m=16, n=256, k=40, **_PATCHED, remap_accumulators=True)),
        Case("interleaved-b", dict(m=64, n=128, k=64, interleaved_b=True)),
        Case("interleaved-b-patched", dict(m=16, n=256, k=40, interleaved_b=True, **_PATCHED)),
        Case("eight-rows", dict(m=32, n=256, k=36, rows=8)),
        Case("eight-rows-patched", dict(m=96, n=128, k=20, rows=8, **_PATCHED)),
    ),
    source=_SOURCE,
)

PUBLISHED = HalfGemm(
    name="gemm_4x4_fp16_published",
    summary="FP16 GEMM in its compiled shapes as they were run, and a hand loop between compiled ends",
    options=Published,
    build=build_published,
    tolerance=_tolerance,
    reads=_words,
    cases=(
        Case("p146", {}),
        Case("p149", dict(hand=True, hregs_override=24)),
        Case("p151", dict(interleaved_b=True)),
        Case("p152", dict(rows=8)),
    ),
    claim="as-published",
    family=_NAME,
    source=_SOURCE,
)

KERNELS = (GEMM, PUBLISHED)
