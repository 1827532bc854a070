"""The direct FP16 GEMM of 8 rows by 1, 2 or 4 vec4 columns a fiber.

Every sample has a coordinate pair of its own that lives through the loop. With one or two vec4 columns the
rows of A go in two groups through four texels, which leaves the registers for the accumulators; with four
columns all eight rows stay and the columns go through two sets of texels. A K step of 8x8 is 16 samples, 16
additions and 64 repeated MADs.

What is sampled early is sampled as soon as its registers have had their last product, and, where the next
product waits anyway, behind that one: (sy) waits for everything that is under way, so that a sample right
before it would be waited for with all of its latency.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul, single
from pytest_qcom.kernels.choices import check_unroll
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.fresh import Fresh, Unfolded
from pytest_qcom.kernels.gemm import HalfGemm, build_gemm, check_shape
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import ALL_K, Load, Multiply, Phases, Schedule
from pytest_qcom.kernels.stores import POINTER, RowMajor

ROWS = 8
UPPER, LOWER = (0, 1, 2, 3), (4, 5, 6, 7)
PREFETCHES = ("none", "b", "ab")
COORDS = ("persistent", "self", "lifetime")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the 8xN kernels.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``threads`` / 4, n of 128 columns a vec4 column, k of 4.
        threads: fibers of a workgroup: 64, 128 or 256.
        k_unroll: K steps of the loop body. A rest is done behind the loop.
        prefetch: samples that are a K step early: ``none``; ``b``, the columns of B; ``ab``, also the first
            four rows of A, for which rows 4 to 7 have texels of their own, and with 4 vec4 columns all rows.
        swap_grid: workgroup x counts rows, y columns.
        coords: how coordinates are kept, with 1 and 2 vec4 columns: ``persistent``, a pair a sample through
            the loop; ``self``, pairs written anew where, in merged mode, their results would lie;
            ``lifetime``, few pairs and one register for row and k. The last two need ``prefetch=none``.
        int8_b: B is an image of normalized bytes, fractions of 127, which a sample gives as halves.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    threads: int = 128
    k_unroll: int = 2
    prefetch: str = "ab"
    swap_grid: bool = False
    coords: str = "persistent"
    int8_b: bool = False


def build_8x4(options: Options) -> Build:
    """8 rows by 1 vec4 column."""
    return _build("gemm_8x4_fp16", options, 1)


def build_8x8(options: Options) -> Build:
    """8 rows by 2 vec4 columns."""
    return _build("gemm_8x8_fp16", options, 2)


def build_8x16(options: Options) -> Build:
    """8 rows by 4 vec4 columns."""
    return _build("gemm_8x16_fp16", options, 4)


def _build(name: str, options: Options, ncols: int) -> Build:
    check_shape(name, options)
    check_unroll(name, options.k_unroll)
    if options.prefetch not in PREFETCHES:
        raise KernelError(f"{name}: prefetch is {options.prefetch!r}; give one of {', '.join(PREFETCHES)}")
    if options.coords not in COORDS:
        raise KernelError(f"{name}: coords is {options.coords!r}; give one of {', '.join(COORDS)}")
    if options.coords != "persistent" and (options.prefetch != "none" or ncols > 2):
        raise KernelError(
            f"{name}: coords={options.coords} is about 1 or 2 vec4 columns and samples nothing early; give "
            "prefetch=none"
        )
    a, b, c = matmul.arguments(options, POINTER)
    arguments = (a, replace(b, dtype="int8") if options.int8_b else b, c)
    return build_gemm(name, options, schedule(options, ncols), arguments)


def schedule(options: Options, ncols: int) -> Schedule:
    """The schedule of valid options for 1, 2 or 4 vec4 columns."""
    return Schedule(
        tile=Tile(ROWS, ncols, options.threads, options.swap_grid),
        plan=_plan(ncols, options.prefetch, options.coords),
        phases=_wide(options.prefetch) if ncols == 4 else _split(ncols, options.prefetch),
        coordinates=Persistent()
        if options.coords == "persistent"
        else Fresh(folded=options.coords == "lifetime"),
        epilogue=Unfolded(RowMajor()) if options.coords == "lifetime" else RowMajor(),
        unroll=options.k_unroll,
        primed=_primed(ncols, options.prefetch),
        peel=int(options.prefetch != "none"),
    )


def _primed(ncols: int, prefetch: str) -> tuple[Load, ...]:
    """What stands in registers when a K step starts."""
    columns = Load("B", tuple(range(min(ncols, 2))))
    rows = Load("A", UPPER + LOWER if ncols == 4 else UPPER)
    return {"none": (), "b": (columns,), "ab": (columns, rows)}[prefetch]


def _split(ncols: int, prefetch: str) -> Phases:
    """Rows in two groups. A column of B is sampled anew as soon as its last products are under way."""
    cols = tuple(range(ncols))
    lower = Load("A", LOWER)
    if prefetch == "none":
        return (Load("B", cols), Load("A", UPPER), Multiply(UPPER, cols), lower, Multiply(LOWER, cols))
    if prefetch == "ab":
        early = _refilled(LOWER, cols, cols, Load("A", UPPER, ahead=1))
        return (Multiply(UPPER, cols, behind=(lower,)), *early)
    phases: list[Load | Multiply] = [Load("A", UPPER), Multiply(UPPER, cols), lower]
    for col in cols:
        phases += [Multiply(LOWER, (col,)), Load("B", (col,), ahead=1)]
    return tuple(phases)


def _refilled(
    rows: tuple[int, ...], cols: tuple[int, ...], anew: tuple[int, ...], behind: Load
) -> tuple[Load | Multiply, ...]:
    """The last products of columns by k, with the next texels of ``anew`` in each k's registers behind them.

    ``behind``: samples that are issued behind the first product.
    """
    phases: list[Load | Multiply] = []
    for kk in ALL_K:
        phases.append(Multiply(rows, cols, (kk,), behind=() if kk else (behind,)))
        phases.append(Load("B", anew, (kk,), ahead=1))
    return tuple(phases)


def _wide(prefetch: str) -> Phases:
    """Four columns through two sets of texels, with all rows of A at hand."""
    rows = UPPER + LOWER
    if prefetch == "ab":
        third = Multiply(rows, (2,), behind=(Load("B", (3,)),))
        last = _refilled(rows, (3,), (1,), Load("B", (0,), ahead=1))
        first = (Multiply(rows, (0,)), Load("B", (2,)), Multiply(rows, (1,)))
        return (*first, third, *last, Load("A", rows, ahead=1))
    own, ahead = (Load("B", (0, 1)),), [Load("B", (0,), ahead=1), Load("B", (1,), ahead=1)]
    phases: list[Load | Multiply] = [*own] if prefetch == "none" else []
    phases += [Load("A", rows), Multiply(rows, (0,)), Load("B", (2,)), Multiply(rows, (1,)), Load("B", (3,))]
    phases.append(Multiply(rows, (2,)))
    phases += [*ahead[:1], Multiply(rows, (3,)), *ahead[1:]] if prefetch == "b" else [Multiply(rows, (3,))]
    return tuple(phases)


def _plan(ncols: int, prefetch: str, coords: str) -> RegisterPlan:
    """Texels of B, of A, accumulators, and what coordinates need."""
    slots = min(ncols, 2)
    plan = RegisterPlan()
    for slot in range(slots):
        plan = plan.place(f"b{slot}", f"hr{4 * slot}.x", 16)
    kept = ROWS if ncols == 4 else 4
    for row in range(kept):
        plan = plan.place(f"a{row}", f"hr{4 * slots + row}.x", 4)
    plan = plan.place("acc", f"hr{4 * slots + kept}.x", 4 * ROWS * ncols)
    for row in range(kept, ROWS):
        if prefetch == "ab":  # kept is 4: beside those of rows 0 to 3
            plan = plan.allocate(f"a{row}", 4, half=True)
        else:
            plan = plan.place(f"a{row}", str(plan[f"a{row - 4}"].first), 4, over=(f"a{row - 4}",))
    return _persistent(plan, ncols) if coords == "persistent" else _fresh(plan, ncols, coords)


def _fresh(plan: RegisterPlan, ncols: int, coords: str) -> RegisterPlan:
    """Pairs of B, of A, then the state; prologue and store over all that is dead."""
    if coords == "self":
        state = f"r{2 * ncols + 2}"
        plan = plan.place("b_pairs", "r0.x", 8 * ncols).place("a_pairs", f"r{2 * ncols}.x", 8)
        plan = plan.place("k4", f"{state}.z", 1).place("ky", f"{state}.w", 1)
        plan = plan.place("row", f"{state}.x", 1).place("col", f"{state}.y", 1)
    else:
        plan = plan.place("b_pairs", "r0.x", 8).place("a_pairs", "r2.x", 6)
        plan = plan.place("col", "r3.z", 1).place("row", "r3.w", 1).place("count", "r4.x", 1)
    dead = ("b_pairs", "a_pairs", "k4", "ky", "count", "scratch", "row", "col")
    plan = plan.place("scratch", "r1.x", 4, over=dead).place("addresses", "r0.x", 2 * ROWS, over=dead)
    carries, offsets = ("r5.x", "r4.z") if coords == "self" and ncols == 1 else ("r4.x", "r6.z")
    return plan.place("carries", carries, ROWS, over=dead).place("offsets", offsets, 2, over=dead)


def _persistent(plan: RegisterPlan, ncols: int) -> RegisterPlan:
    """Pairs of B, of A, with everything else over them at both ends."""
    columns = 2 * ncols  # vec4 that the pairs of B take
    plan = plan.place("b_pairs", "r0.x", 8 * ncols).place("a_pairs", f"r{columns}.x", 2 * ROWS)
    dead = ("a_pairs", "b_pairs", "row", "col", "scratch", "addresses")
    plan = plan.place("row", f"r{columns}.y", 1, over=dead).place("col", "r0.x", 1, over=dead)
    plan = plan.place("scratch", f"r{columns + 1}.x", 4, over=dead)
    plan = plan.place("addresses", "r0.x", 2 * ROWS, over=dead)
    if ncols == 1:  # addresses lie over row; the others are behind them
        return plan.place("carries", "r4.x", ROWS, over=dead).place("offsets", "r2.z", 2, over=dead)
    return plan.place("carries", "r4.x", ROWS, over=dead).place("offsets", "r6.x", 2, over=dead)


_CASES: tuple[tuple[str, dict[str, object]], ...] = (
    ("n1024", {}),
    ("square", dict(m=64, n=512, k=64)),
    ("rest", dict(m=32, n=512, k=44, k_unroll=3)),  # 11 K steps: 3, 3, 3 and a rest, in padded images
    ("short", dict(m=32, n=512, k=8, k_unroll=4)),  # fewer K steps than the loop body
    ("one", dict(m=32, n=512, k=4)),
    ("tall", dict(m=256, n=512, k=32, k_unroll=1)),
    ("threads-64", dict(m=32, n=512, k=64, threads=64, k_unroll=1)),
    ("threads-256", dict(m=64, n=512, k=68, threads=256, k_unroll=1)),
    ("swap-grid", dict(m=32, n=1024, k=36, k_unroll=1, swap_grid=True)),
    ("plain", dict(m=32, n=512, k=64, prefetch="none")),
    ("plain-one", dict(m=32, n=512, k=44, k_unroll=1, prefetch="none")),
    ("b-ahead", dict(m=32, n=512, k=44, prefetch="b")),
    ("b-ahead-one", dict(m=32, n=512, k=64, prefetch="b", k_unroll=1)),
    ("int8-b", dict(m=32, n=512, k=44, int8_b=True)),
)


_FRESH: tuple[tuple[str, dict[str, object]], ...] = (
    ("self", dict(m=32, n=512, k=44, prefetch="none", coords="self")),
    ("lifetime", dict(m=64, n=256, k=44, prefetch="none", coords="lifetime")),
)


def _imaged(options: Options, arrays: Arrays) -> Arrays:
    """Half images as those that the kernel samples."""
    if not options.int8_b:
        return arrays
    return {**arrays, "B": single.texels(arrays["B"], "int8")}


def _plain(options: Options, arrays: Arrays) -> Arrays:
    """The kernel's images with B as halves, to nearest."""
    if not options.int8_b:
        return arrays
    fractions = arrays["B"].astype(np.float64) / single.LIMIT
    return {**arrays, "B": fractions.astype(np.float16)}


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    arrays = matmul.random(options, rng)
    if options.int8_b:  # so that few are cut off
        arrays = {**arrays, "B": arrays["B"] * np.float16(single.SMALL)}
    return _imaged(options, arrays)


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64, inputs below the smallest normal float16 taken as 0."""
    return matmul.product(options, _plain(options, arrays))


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """:func:`~pytest_qcom.kernels.matmul.half_bound`; which way a fraction is rounded to a half is not known.

    That costs ``2**-10`` of each ``|a b|`` at most.
    """
    plain = _plain(options, arrays)
    error = matmul.half_bound(options, plain)["C"]
    if options.int8_b:
        a, b = (np.abs(matrix.astype(np.float64)) for matrix in matmul.matrices(options, plain))
        error = error + 2 * matmul.HALF_ROUNDOFF * (a @ b)
    return {"C": error}


def _pattern(name: str) -> Callable[[Any], Arrays]:
    return lambda options: _imaged(options, matmul.HALF_PATTERNS[name](options))


def _kernel(cols: int, build: Callable[[Options], Build]) -> Kernel:
    return HalfGemm(
        name=f"gemm_8x{4 * cols}_fp16",
        summary=f"FP16 GEMM, 8 rows by {4 * cols} columns a fiber, right on random matrices",
        options=Options,
        build=build,
        inputs=_random,
        oracle=_oracle,
        tolerance=_tolerance,
        patterns={name: _pattern(name) for name in matmul.HALF_PATTERNS},
        cases=tuple(Case(name, options) for name, options in (*_CASES, *(_FRESH if cols < 4 else ()))),
    )


KERNELS = (_kernel(1, build_8x4), _kernel(2, build_8x8), _kernel(4, build_8x16))
