"""GEMMs of bytes by ``dp4acc``: unsigned, signed by unsigned, and with a scale for each row and column.

The A630's compiler flag for the instruction is off; that the chip has it was found by running it. A K step is
one texel of A a row and four of B a column, 16 k: the schedules are those of float32, with four instructions
in place of each repeated MAD, since ``dp4acc`` takes no repeat.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels import integer
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.counted import Counted
from pytest_qcom.kernels.full import phases, plan
from pytest_qcom.kernels.gemm import LARGEST_IMAGE, gemm_launch
from pytest_qcom.kernels.kernel import Argument, Build, Case, Kernel
from pytest_qcom.kernels.launch import LANES, Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Arithmetic, Epilogue, Schedule, generate, loop_constants
from pytest_qcom.kernels.stores import POINTER, RowMajor
from pytest_qcom.kernels.writer import Writer

_NOTES = "qcom_dp4_check.py and qcom_dp4_openpilot_graph.py of tinygrad's QCOM GEMM experiments"
_STEP = 16  # k of a K step
_WORDS = RowMajor(element=4)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the byte kernels.

    Attributes:
        m, n, k: C is (m, n); both in whole workgroup tiles, k a multiple of 16.
        rows, ncols: the tile of a fiber: 4 or 8 rows, 1 or 2 vec4 columns.
        threads: fibers of a workgroup: 64, 128 or 256.
        thread128: waves of 128 fibers; else of 64.
        k_unroll: K steps of 16 in the loop body.
        mixed: the bytes of A are signed; those of B never are.
        own_pairs: a coordinate of its own for each sample, kept over the loop.
        preload_b: all columns of B have registers; else they share those of one column.
        alu_order: nesting of the products.
        sampler_per_texture: A and B each have a sampler.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    rows: int = 4
    ncols: int = 1
    threads: int = 128
    thread128: bool = False
    k_unroll: int = 1
    mixed: bool = False
    own_pairs: bool = False
    preload_b: bool = True
    alu_order: str = "kk_col_row"
    sampler_per_texture: bool = True

    @property
    def interleaved_a(self) -> bool:
        """Never: four rows of one k are no word."""
        return False

    @property
    def ahead(self) -> bool:
        """Never."""
        return False

    @property
    def pipeline_b(self) -> bool:
        """Never."""
        return False

    @property
    def component_stream(self) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, slots=True)
class Scaled(Options):
    """The same with scales: activations are signed."""

    mixed: bool = True


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
    tile = Tile(options.rows, options.ncols, options.threads)
    registers = _plan(tile, options)
    coordinates: Persistent | Counted = Persistent() if options.own_pairs else Counted(early=True)
    schedule = Schedule(
        tile=tile,
        plan=registers,
        phases=phases(tile, options, coordinates),
        coordinates=coordinates,
        epilogue=epilogue,
        order=options.alu_order,
        scalar_first=True,
        unroll=options.k_unroll,
        arithmetic=Arithmetic(
            texel="u32",
            multiply="dp4acc.mixed.low" if options.mixed else "dp4acc.unsigned.low",
            lanes=1,
            samplers=2 if options.sampler_per_texture else 1,
        ),
    )
    words = options.k // 4
    constants = (
        *epilogue.constants(tile, row_bytes=4 * options.n),
        *loop_constants(words, schedule.unroll),
    )
    groups = tile.groups(name, options.m, options.n)
    program = generate(schedule, words)
    return gemm_launch(
        options, tile, registers, program, constants, groups, arguments=arguments, thread128=options.thread128
    )


def _plan(tile: Tile, options: Options) -> RegisterPlan:
    """That of the float32 kernels, and the texels of rows and columns over those of A and B."""
    result = plan(tile, options)
    dead = tuple(block.name for block in result.blocks if block.name not in ("acc", "row", "col"))
    if options.own_pairs:  # the pairs have ended too, but for row and column in them
        dead = tuple(name for name in dead if name not in ("a_pairs", "b_pairs"))
    result = result.place("rows", "r0.x", 4 * tile.rows, over=dead)
    return result.place("columns", f"r{tile.rows}.x", 4 * tile.cols, over=dead)


def _check(name: str, options: Options) -> None:
    """Combinations that make no kernel."""
    if options.k < _STEP or options.k % _STEP:
        raise KernelError(f"{name}: k is {options.k}; a texel holds 16 bytes of a row, give a multiple of 16")
    if max(options.m, options.n // 4, options.k // 4) > LARGEST_IMAGE:
        raise KernelError(
            f"{name}: {options.m} x {options.n} x {options.k} needs an image side beyond {LARGEST_IMAGE}; "
            "give smaller m, n or k"
        )
    if 4 * options.m * options.n >= 1 << 32:
        raise KernelError(f"{name}: C of {options.m} x {options.n} is beyond 4 GiB; give smaller m or n")
    if options.rows not in (4, 8) or options.ncols not in (1, 2):
        raise KernelError(
            f"{name}: a tile of {options.rows} rows and {options.ncols} columns; give 4 or 8, and 1 or 2"
        )
    if options.own_pairs and not options.preload_b:
        raise KernelError(
            f"{name}: own-pairs without preload-b; columns in turn have no pairs, give preload-b=true"
        )


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

KERNELS = (GEMM, SCALED)
