"""GEMMs of bytes by ``dp4acc``: unsigned, signed by unsigned, and with a scale for each row and column.

The A630's compiler flag for the instruction is off; that the chip has it was found by running it. A K step is
one texel of A a row and four of B a column, 16 k: the schedules are those of float32, with four instructions
in place of each repeated MAD, since ``dp4acc`` takes no repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels import integer
from pytest_qcom.kernels.choices import LONGEST_DELAY, check_delays, check_range
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.counted import Counted
from pytest_qcom.kernels.full import phases, plan
from pytest_qcom.kernels.full_published import over_texels, state, texels
from pytest_qcom.kernels.gemm import LARGEST_IMAGE, gemm_launch
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import LANES, Tile
from pytest_qcom.kernels.notes import flag, renamed
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import (
    LARGEST_IMMEDIATE,
    Arithmetic,
    Epilogue,
    Load,
    Multiply,
    Schedule,
    generate,
    loop_constants,
)
from pytest_qcom.kernels.stores import POINTER, Constant, NoStore, RowMajor
from pytest_qcom.kernels.tiled import Columns, Tiled, check_pairs, check_tile, check_words
from pytest_qcom.kernels.writer import Writer

_NOTES = "qcom_dp4_check.py and qcom_dp4_openpilot_graph.py of tinygrad's QCOM GEMM experiments"
_STEP = 16  # k of a K step
_WORDS = RowMajor(element=4)


@dataclass(frozen=True, slots=True)
class Options(Columns):
    """Options of the byte kernels; k a multiple of 16, ``k_unroll`` in K steps of 16.

    Attributes:
        rows, ncols: the tile of a fiber: 4 or 8 rows, 1 or 2 vec4 columns.
        mixed: the bytes of A are signed; those of B never are.
        initial_acc: what every sum starts at, 32 bits.
        combined_b_height: the rows of B, k / 4, if A lies below it in the same image; 0 for an image each.
    """

    rows: int = 4
    ncols: int = 1
    mixed: bool = False
    initial_acc: int = 0
    combined_b_height: int = 0


@dataclass(frozen=True, slots=True)
class Scaled(Options):
    """The same with scales: activations are signed."""

    mixed: bool = True


@dataclass(frozen=True, slots=True)
class Published(Tiled):
    """Options of the published kernel: 4x4, A a row at a time in one register, one pair for all samples.

    Attributes:
        ncols: vec4 columns of a fiber; of 2 there was a probe that multiplies lane x of each vector alone
            and stores nothing.
        mixed, initial_acc, combined_b_height: as of ours.
        coord_delay: nop repeats between a coordinate and its sample; -1 is none.
        dp4_delay: idle slots behind each product.
        constant_a, constant_b: bytes of one in place of samples; ``constant_inputs`` is both.
        constant_output: 1024.0 is stored in place of the sums: a probe of the store.
        no_store: the sums are dropped: a throughput probe.
    """

    sampler_per_texture: bool = False
    ncols: int = 1
    mixed: bool = False
    initial_acc: int = 0
    combined_b_height: int = 0
    coord_delay: int = 4
    dp4_delay: int = 0
    constant_a: bool = False
    constant_b: bool = False
    constant_inputs: bool = False
    constant_output: bool = False
    no_store: bool = False


_NAMES = {"const_a": "constant_a", "const_b": "constant_b"} | {
    f"const_{what}": f"constant_{what}" for what in ("inputs", "output")
}


def _words(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options by our names; images that are combined have A below all rows of B."""
    found = renamed(given, _NAMES)
    if flag(found.pop("combined", False)):
        k = found.get("k", Published.__dataclass_fields__["k"].default)
        found["combined_b_height"] = int(k) // 4 if str(k).isdecimal() else 0
    return found


def build(options: Options) -> Build:
    """The integer kernel: C is 32-bit sums.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    arguments = integer.arguments(options, POINTER)
    return _build("gemm_dp4", options, _WORDS, arguments)


def build_scaled(options: Scaled) -> Build:
    """The kernel with scales: C is floats.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    name = "gemm_dp4_scaled"
    if not options.mixed:
        raise KernelError(f"{name}: mixed is false; activations are signed, leave it true")
    if options.initial_acc or options.combined_b_height:
        raise KernelError(f"{name}: initial-acc or combined-b-height with scales; leave them out")
    return _build(name, options, ScaledStore(), integer.scaled_arguments(options, POINTER))


@dataclass(frozen=True, slots=True)
class ScaledStore:
    """Sums to floats: the bias off, the scales of row and column on, then :class:`RowMajor`.

    What belongs to rows and columns is sampled into registers that texels had: texture 2 gives for a row the
    bits of its scale and its bias, texture 3 the scales of a vec4 column.
    """

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return _WORDS.constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        rows = [plan["rows"].vec(row) for row in range(tile.rows)]
        cols = [plan["columns"].vec(col) for col in range(tile.cols)]
        for index, texel in enumerate(rows):
            w.mov(texel, 0)
            w.alu("add.s", texel + 1, plan["row"][0], index)
        for index, texel in enumerate(cols):
            w.alu("add.s", texel, plan["col"][0], LANES * index)
            w.mov(texel + 1, 0)
        for texel in rows:
            w.isam(texel, texel, 2, "u32")
        for texel in cols:
            w.isam(texel, texel, 3, "f32")
        accumulators = [
            (plan["acc"].vec(row * tile.cols + col), rows[row], cols[col])
            for row in range(tile.rows)
            for col in range(tile.cols)
        ]
        for acc, row_texel, _ in accumulators:
            w.alu("sub.s", acc, f"(r){acc}", str(row_texel + 1), rpt=3)
        for acc, _, _ in accumulators:
            w.emit("cov.s32f32", acc, f"(r){acc}", rpt=3)
        for acc, row_texel, _ in accumulators:
            _multiply(w, acc, str(row_texel))
        for acc, _, col_texel in accumulators:
            _multiply(w, acc, f"(r){col_texel}")
        _WORDS.emit(w, tile, plan)


def _multiply(w: Writer, acc: Reg, factor: str) -> None:
    w.alu("mul.f", acc, f"(r){acc}", factor, rpt=3)


def _build(name: str, options: Options, epilogue: Epilogue, arguments: tuple[Argument, ...]) -> Build:
    _check(name, options)
    check_tile(name, options.rows, options.ncols)
    check_pairs(name, options)
    if options.own_pairs and options.combined_b_height:
        raise KernelError(f"{name}: own-pairs with combined-b-height; give one of them")
    tile = Tile(options.rows, options.ncols, options.threads)
    coordinates: Persistent | Counted = (
        Persistent() if options.own_pairs else Counted(early=True, below=options.combined_b_height)
    )
    schedule = Schedule(
        tile=tile,
        plan=_plan(tile, options),
        phases=phases(tile, options, coordinates),
        coordinates=coordinates,
        epilogue=epilogue,
        order=options.alu_order,
        scalar_first=True,
        unroll=options.k_unroll,
        arithmetic=_arithmetic(options),
        initial=options.initial_acc,
    )
    return _launch(name, options, schedule, arguments)


def _arithmetic(options: Options | Published) -> Arithmetic:
    return Arithmetic(
        texel="u32",
        multiply="dp4acc.mixed.low" if options.mixed else "dp4acc.unsigned.low",
        lanes=1,
        samplers=2 if options.sampler_per_texture else 1,
    )


def _launch(
    name: str, options: Options | Published, schedule: Schedule, arguments: tuple[Argument, ...]
) -> Build:
    words = options.k // 4
    constants = (
        *schedule.epilogue.constants(schedule.tile, row_bytes=4 * options.n),
        *loop_constants(words, schedule.unroll),
    )
    groups = schedule.tile.groups(name, options.m, options.n)
    return gemm_launch(
        options,
        schedule.tile,
        schedule.plan,
        generate(schedule, words),
        constants,
        groups,
        arguments=arguments,
        thread128=options.thread128,
    )


@dataclass(frozen=True, slots=True)
class Noted(Counted):
    """Published coordinates; texels that are not sampled hold bytes of one."""

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        Counted.prepare(self, w, schedule)
        for operand, block in (("A", "a0"), ("B", "b0"), ("B", "b1")):
            if operand in self.skip and block in schedule.plan:
                w.zero(schedule.plan[block], _ONES)


_ONES = 0x01010101


def build_published(options: Published) -> Build:
    """The published kernel: its loop and waits as written, prologue and store of ours.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    name = "gemm_dp4_published"
    _check(name, options)
    if options.k_unroll != 1:
        raise KernelError(f"{name}: k-unroll is {options.k_unroll}; the published loop is one step, give 1")
    check_delays(name, options, ("coord_delay",))
    check_range(name, options, {"ncols": (1, 2), "dp4_delay": (0, LONGEST_DELAY + 1)})
    wide = options.ncols > 1
    if wide and (not options.no_store or options.mixed or options.initial_acc or options.combined_b_height):
        raise KernelError(
            f"{name}: ncols is 2; that was a probe: give no-store, without mixed, initial-acc and combined"
        )
    if options.no_store and options.constant_output:
        raise KernelError(f"{name}: no-store with constant-output; give one of them")
    skip = "A" * (options.constant_a or options.constant_inputs)
    skip += "B" * (options.constant_b or options.constant_inputs)
    form = dict(shared_a=True, shared_b=True, noted=True, skip=skip)
    coordinates = Noted(ahead=3, delay=options.coord_delay, below=options.combined_b_height, **form)  # type: ignore[arg-type]
    cols = tuple(range(options.ncols))
    steps: list[Load | Multiply] = [Load("B", cols)]
    for row in range(4):
        steps += [Load("A", (row,)), Multiply((row,), cols)]
    schedule = Schedule(
        tile=Tile(4, options.ncols, options.threads),
        plan=_wide_plan() if wide else _published_plan(),
        phases=tuple(steps),
        coordinates=coordinates,
        epilogue=NoStore() if options.no_store else Constant(_WORDS) if options.constant_output else _WORDS,
        order="kk_row_col",
        scalar_first=True,
        sync=lambda products, step: True,
        waits="written",
        unroll=1,
        arithmetic=replace(_arithmetic(options), columns=1 if wide else 4, idle=options.dp4_delay),
        initial=options.initial_acc,
    )
    built = _launch(name, options, schedule, integer.arguments(options, POINTER))
    return replace(built, work=built.work / 4) if wide else built  # that of one lane


def _published_plan() -> RegisterPlan:
    """The notes': B, a row of A, the pair, sums, counters."""
    plan = texels(RegisterPlan(), b=0, banks=1, a=4, acc=8, cols=1, rows_apart=0).place("pair", "r5.x", 2)
    return over_texels(state(plan, "r12", following="r5.z", over=()))


def _wide_plan() -> RegisterPlan:
    """That of their probe of two columns."""
    plan = texels(RegisterPlan(), b=0, banks=2, a=8, acc=9, cols=2, rows_apart=0).place("pair", "r18.x", 2)
    return over_texels(state(plan, "r17"))


def _published_product(options: Published, arrays: Arrays) -> Arrays:
    """:func:`integer.product`, or what the probes store."""
    if options.no_store:
        return {}
    if options.constant_output:
        return {"C": np.full((options.m, options.n), 0x44800000, np.float64)}
    a, b = integer.matrices(options, arrays)
    a = np.ones_like(a) if options.constant_a or options.constant_inputs else a
    b = np.ones_like(b) if options.constant_b or options.constant_inputs else b
    return integer.product(options, integer.images(options, a, b))


def _plan(tile: Tile, options: Options) -> RegisterPlan:
    """That of the float32 kernels, and the texels of rows and columns over those of A and B."""
    result = plan(tile, options)
    dead = tuple(block.name for block in result.blocks if block.name not in ("acc", "row", "col"))
    if options.own_pairs:  # the pairs have ended too, but for row and column in them
        dead = tuple(name for name in dead if name not in ("a_pairs", "b_pairs"))
    result = result.place("rows", "r0.x", 4 * tile.rows, over=dead)
    return result.place("columns", f"r{tile.rows}.x", 4 * tile.cols, over=dead)


def _check(name: str, options: Options | Published) -> None:
    """Shapes that make no kernel."""
    if options.k < _STEP or options.k % _STEP:
        raise KernelError(f"{name}: k is {options.k}; a texel holds 16 bytes of a row, give a multiple of 16")
    if max(options.m, options.n // 4, options.k // 4) > LARGEST_IMAGE:
        raise KernelError(
            f"{name}: {options.m} x {options.n} x {options.k} needs an image side beyond {LARGEST_IMAGE}; "
            "give smaller m, n or k"
        )
    check_words(name, options.m, options.n)
    height = options.combined_b_height
    if height and height != options.k // 4:
        raise KernelError(
            f"{name}: combined-b-height is {height}; B has {options.k // 4} rows, give that or 0"
        )
    if height > LARGEST_IMMEDIATE - 8:
        raise KernelError(f"{name}: combined-b-height is {height}; A below row 1015 is out of reach")
    if not 0 <= options.initial_acc < 1 << 32:
        raise KernelError(f"{name}: initial-acc is {options.initial_acc}; give 32 bits, 0 or more")


def _cases() -> tuple[Case, ...]:
    return (
        Case("small", dict(m=16, n=128, k=144)),
        Case("one-step", dict(m=16, n=128, k=16)),
        Case("wide", dict(m=16, n=512, k=48)),
        Case("tall", dict(m=96, n=128, k=80)),
        Case("unroll", dict(m=16, n=128, k=112, k_unroll=2)),
        Case("own-pairs", dict(m=16, n=256, k=144, own_pairs=True, k_unroll=2)),
        Case("4x8", dict(m=16, n=256, k=144, ncols=2)),
        Case("4x8-one-bank", dict(m=16, n=256, k=80, ncols=2, preload_b=False)),
        Case("8x4", dict(m=32, n=128, k=144, rows=8)),
        Case("8x8", dict(m=32, n=256, k=80, rows=8, ncols=2)),
        Case("thread128", dict(m=16, n=128, k=144, thread128=True)),
        Case("threads-64", dict(m=8, n=128, k=144, threads=64)),
        Case("row-col-kk", dict(m=16, n=128, k=80, alu_order="row_col_kk")),
    )


GEMM = Kernel(
    name="gemm_dp4",
    summary="GEMM of bytes with 32-bit sums, unsigned or signed by unsigned",
    options=Options,
    build=build,
    inputs=integer.random,
    oracle=integer.product,
    tolerance=integer.exact,
    patterns=integer.PATTERNS,
    unit="GFLOPS",
    cases=(
        Case("n1024", {}),
        *_cases(),
        Case("initial-acc", dict(m=16, n=128, k=80, initial_acc=0xFFFFFF9C, mixed=True)),
        Case("combined", dict(m=16, n=128, k=144, combined_b_height=36)),
        Case("combined-8x8", dict(m=32, n=256, k=48, rows=8, ncols=2, combined_b_height=12, k_unroll=2)),
        *(Case(f"mixed-{case.name}", {**case.options, "mixed": True}) for case in _cases()[:4]),
        Case("long", dict(m=16, n=128, k=16416)),  # more K steps than an immediate holds
    ),
    source=_NOTES,
)

SCALED = Kernel(
    name="gemm_dp4_scaled",
    summary="GEMM of quantized floats by dp4acc: a scale for each row of A and each column of B",
    options=Scaled,
    build=build_scaled,
    inputs=integer.scaled_random,
    oracle=integer.scaled_product,
    tolerance=integer.scaled_bound,
    unit="GFLOPS",
    cases=(
        Case("n1024", {}),
        *(case for case in _cases() if case.name not in ("row-col-kk", "8x8", "wide", "threads-64")),
        Case("long", dict(m=16, n=128, k=2048)),  # sums beyond 24 bits
    ),
    source=_NOTES,
)

PUBLISHED = Kernel(
    name="gemm_dp4_published",
    summary="gemm_dp4 as published: right if the hardware waits where the code does not",
    options=Published,
    build=build_published,
    inputs=integer.random,
    oracle=_published_product,
    tolerance=integer.exact,
    patterns=integer.PATTERNS,
    reads=_words,
    unit="GFLOPS",
    cases=(
        Case("unsigned", {}),
        Case("mixed", dict(mixed=True)),
        Case("initial-acc", dict(initial_acc=100)),
        Case("combined", dict(combined_b_height=256)),
        Case("constant-a", dict(constant_a=True)),
        Case("constant-b", dict(constant_b=True)),
        Case("constant-inputs", dict(constant_inputs=True)),
        Case("constant-output", dict(constant_output=True)),
        Case("no-store", dict(no_store=True)),
        Case("4x8-no-store", dict(ncols=2, no_store=True)),
        Case("4x8-constant", dict(ncols=2, no_store=True, constant_inputs=True)),
        Case("dp4-delay", dict(dp4_delay=2)),
        Case("no-delay", dict(coord_delay=-1)),
    ),
    claim="as-published",
    family="gemm_dp4",
    source=_NOTES,
)

KERNELS = (GEMM, SCALED, PUBLISHED)
