"""MAD throughput with no memory in the way: two operand patterns that reach the peak, one that does not.

The compiler pattern is how the vendor compiler lowers a chain of 16-wide MADs (x = x y + y, then y = x y +
x); the GEMM pattern is the inner product of a GEMM tile whose texels stand in registers. In
the groups pattern every MAD has the same two factors; the notes measured half the rate. With ``store`` a
vector of the result is written, with ``check_gemm`` all of them, so that the arithmetic can be checked bit by
bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.choices import exclude, require
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import check_threads
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE, ORDERS, Multiply, nested
from pytest_qcom.kernels.stores import POINTER, emit_fiber_store
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.words import emit_fiber_number, emit_vector_store
from pytest_qcom.kernels.writer import Writer

BMODES = ("percol", "reuse")
_REPEATS = (0, 1, 3)
_MOST_LANES = 4 * 32  # from hr16 to the end of the file
_WIDE = 16  # elements of the compiler pattern's vectors
# Where they stand: the compiler splits off the last one, so that no repeat writes what it still reads.
_X = [Reg(2 + lane, half=True) for lane in range(_WIDE - 1)] + [Reg(0, half=True)]
_Y = [Reg(17 + lane, half=True) for lane in range(_WIDE - 1)] + [Reg(1, half=True)]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the ALU peak probe.

    Attributes:
        compiler_pattern, gemm_pattern, groups_pattern: which one; the groups pattern where none is given.
        loops: passes over the body.
        pairs: of the compiler pattern, pairs of 16-wide MADs in the body.
        rows, ncols: of the GEMM pattern, the tile in rows and vec4 columns.
        unroll: of the GEMM pattern, K steps in the body; of the groups pattern, rounds.
        groups: of the groups pattern, accumulators; all have the same factors, so the same banks are read.
        rpt: of the groups pattern, repeats of a MAD: 0, 1 or 3.
        r1: of the groups and GEMM patterns, the first factor advances with the repeats too.
        independent: of the groups pattern, the first factor is the addend, so that no sum is carried on.
        order: of the GEMM pattern, nesting of the MADs.
        bmode: of the GEMM pattern, ``percol`` texels of B for each column or ``reuse`` of one column's.
        threads, thread128, groups_x, groups_y: the launch.
        fregs: full vec4 declared; 0 is what is used.
        store: writes one vec4 a fiber: number ``store_group`` of the vectors.
        distinct: starts from different small numbers instead of from 1, so that a wrong operand shows.
        check_gemm: of the GEMM pattern, both of every accumulator.
    """

    compiler_pattern: bool = False
    gemm_pattern: bool = False
    groups_pattern: bool = False
    loops: int = 256
    pairs: int = 8
    rows: int = 4
    ncols: int = 4
    unroll: int = 1
    groups: int = 16
    rpt: int = 3
    r1: bool = False
    independent: bool = False
    order: str = "kk_row_col"
    bmode: str = "reuse"
    threads: int = 128
    thread128: bool = True
    groups_x: int = 8
    groups_y: int = 64
    fregs: int = 0
    store: bool = False
    store_group: int = 0
    distinct: bool = False
    check_gemm: bool = False


def build(options: Options) -> Build:
    """The probe's launch."""
    _check(options)
    w = Writer()
    body = _body(options)
    plan = body.plan.place("counter", "r7.w", 1).place("scratch", "r1.x", 4).place("lid", "r0.x", 1)
    body.start(w)
    w.mov(plan["counter"][0], 0)
    w.label("loop")
    body.emit(w)
    if options.loops > 1:
        w.alu("add.s", plan["counter"][0], plan["counter"][0], 1)
        w.alu("cmps.s.eq", "p0.x", plan["counter"][0], options.loops)
        w.branch("loop")
    vectors = _vectors(options)
    if options.check_gemm:
        plan = plan.place("number", "r2.x", 1)
        emit_fiber_number(w, plan["number"][0], plan["scratch"][0], options.groups_x, options.threads)
        emit_vector_store(w, plan["number"][0], [body.vector(group) for group in vectors], plan["scratch"])
    elif options.store:
        emit_fiber_store(w, body.vector(vectors[0]), plan["scratch"], options.groups_x, options.threads)
    w.end()
    fregs, hregs = plan.footprint()
    shape = (_fibers(options), 4 * len(vectors))
    return Build(
        program=insert_waits(w.program()),
        fregs=options.fregs or fregs,
        hregs=hregs,
        arguments=(Argument("C", shape, "float16", image=False, written=True, pointer=POINTER),),
        groups=(options.groups_x, options.groups_y, 1),
        local=(options.threads, 1, 1),
        thread128=options.thread128,
        work=2e-9 * _fibers(options) * options.loops * body.macs,
    )


def _check(options: Options) -> None:
    name = "alu_peak"
    exclude(name, options, ("compiler_pattern", "gemm_pattern", "groups_pattern"))
    require(name, options, "check_gemm", "gemm_pattern")
    if options.rpt not in _REPEATS:
        raise KernelError(f"{name}: rpt is {options.rpt}; give one of {', '.join(map(str, _REPEATS))}")
    most = _MOST_LANES // (options.rpt + 1)
    if not 1 <= options.groups <= most:
        raise KernelError(f"{name}: groups is {options.groups}; give 1 to {most} with rpt={options.rpt}")
    if options.bmode not in BMODES:
        raise KernelError(f"{name}: bmode is {options.bmode!r}; give one of {', '.join(BMODES)}")
    check_threads(name, options.threads)
    if not 1 <= options.loops <= LARGEST_IMMEDIATE:
        raise KernelError(f"{name}: loops is {options.loops}; give 1 to {LARGEST_IMMEDIATE}")
    if min(options.pairs, options.unroll, options.ncols, options.groups_x, options.groups_y) < 1:
        raise KernelError(f"{name}: pairs, unroll, ncols and groups are counts; give 1 or more")
    if options.groups_x > LARGEST_IMMEDIATE:
        raise KernelError(f"{name}: groups-x is {options.groups_x}; give at most {LARGEST_IMMEDIATE}")
    if options.rows not in (4, 8):
        raise KernelError(f"{name}: rows is {options.rows}; give 4 or 8")
    if options.order not in ORDERS:
        raise KernelError(f"{name}: order is {options.order!r}; give one of {', '.join(ORDERS)}")
    vectors = 3 if options.compiler_pattern else options.rows * options.ncols
    if not (options.compiler_pattern or options.gemm_pattern):
        vectors = -(-options.groups * (options.rpt + 1) // 4)
    if not 0 <= options.store_group < vectors:
        raise KernelError(f"{name}: store-group is {options.store_group}; there are 0 to {vectors - 1}")


def _fibers(options: Options) -> int:
    return options.groups_x * options.groups_y * options.threads


def _vectors(options: Options) -> tuple[int, ...]:
    """The numbers of the vectors that are stored, if any is."""
    return tuple(range(options.rows * options.ncols)) if options.check_gemm else (options.store_group,)


def _body(options: Options) -> _CompilerBody | _GemmBody | _GroupsBody:
    """The pattern that is asked for."""
    if options.compiler_pattern:
        return _CompilerBody(options)
    return _GemmBody(options) if options.gemm_pattern else _GroupsBody(options)


class _CompilerBody:
    """Two vectors of 16 halves in hr0 to hr7, each multiplied into the other in turns."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.plan = RegisterPlan().place("vectors", "hr0.x", 2 * _WIDE)
        self.macs = options.pairs * 2 * _WIDE

    def start(self, w: Writer) -> None:
        for index, (x, y) in enumerate(zip(*compiler_start(self._options), strict=True)):
            w.set_half(_X[index], _bits(x))
            w.set_half(_Y[index], _bits(y))

    def emit(self, w: Writer) -> None:
        for _ in range(self._options.pairs):
            for dst, addend in ((_X, _Y), (_Y, _X)):
                for start in range(0, _WIDE, 4):
                    lanes = 4 if start + 4 < _WIDE else 3
                    self._mad(w, dst[start], _X[start], _Y[start], addend[start], lanes)
                self._mad(w, dst[-1], _X[-1], _Y[-1], addend[-1], 1)

    def vector(self, group: int) -> Reg:
        return _X[4 * group]

    @staticmethod
    def _mad(w: Writer, dst: Reg, x: Reg, y: Reg, addend: Reg, lanes: int) -> None:
        sources = (f"(r){reg}" if lanes > 1 else reg for reg in (x, y, addend))
        w.emit("mad.f16", dst, *sources, rpt=lanes - 1)


class _GemmBody:
    """Accumulators from hr16, or behind the texels of A and B if those reach further."""

    def __init__(self, options: Options) -> None:
        self._options = options
        columns = b_columns(options)
        texels = options.rows + 4 * columns
        plan = RegisterPlan().place("a", "hr0.x", 4 * options.rows)
        plan = plan.place("b", f"hr{options.rows}.x", 16 * columns)
        self.plan = plan.place("acc", f"hr{max(16, texels)}.x", 4 * options.rows * options.ncols)
        self.macs = options.unroll * options.rows * options.ncols * 16

    def start(self, w: Writer) -> None:
        a, b = gemm_start(self._options)
        for reg, value in zip(self.plan["a"], a.flat, strict=True):
            w.set_half(reg, _bits(value))
        for reg, value in zip(self.plan["b"], b.flat, strict=True):
            w.set_half(reg, _bits(value))
        w.zero(self.plan["acc"])

    def emit(self, w: Writer) -> None:
        rows, cols = tuple(range(self._options.rows)), tuple(range(self._options.ncols))
        columns = b_columns(self._options)
        for _ in range(self._options.unroll):
            for row, col, kk in nested(self._options.order, Multiply(rows, cols)):
                a, b = self.plan["a"][4 * row + kk], self.plan["b"].vec(4 * (col % columns) + kk)
                acc = self.plan["acc"].vec(row * len(cols) + col)
                if self._options.r1:
                    w.emit("mad.f16", acc, f"(r){a}", f"(r){b}", f"(r){acc}", rpt=3)
                else:
                    w.mad(acc, a, b)

    def vector(self, group: int) -> Reg:
        return self.plan["acc"].vec(group)


class _GroupsBody:
    """Factors in hr0 and hr4, accumulators from hr16: each += hr0.x hr4, or hr0 hr4 with ``r1``.

    With fewer repeats than three the accumulators are narrower, and factors of the four lanes take turns.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        plan = RegisterPlan().place("a", "hr0.x", 4).place("b", "hr4.x", 4)
        self._width = options.rpt + 1
        self.plan = plan.place("acc", "hr16.x", -(-options.groups * self._width // 4) * 4)
        self.macs = options.unroll * options.groups * self._width

    def start(self, w: Writer) -> None:
        for name, values in zip("ab", groups_start(self._options), strict=True):
            for reg, value in zip(self.plan[name], values, strict=True):
                w.set_half(reg, _bits(value))
        w.zero(self.plan["acc"])

    def emit(self, w: Writer) -> None:
        options, repeats = self._options, self._options.rpt > 0
        for _ in range(options.unroll):
            for group in range(options.groups):
                lane = group * self._width % 4
                a, b = self.plan["a"][lane], self.plan["b"][lane]
                acc = self.plan["acc"][group * self._width]
                first = f"(r){a}" if options.r1 and repeats else a
                moving = [f"(r){reg}" if repeats else reg for reg in (b, a if options.independent else acc)]
                w.emit("mad.f16", acc, first, *moving, rpt=options.rpt)

    def vector(self, group: int) -> Reg:
        return self.plan["acc"].vec(group)


def b_columns(options: Options) -> int:
    """Columns of B that have texels of their own."""
    return options.ncols if options.bmode == "percol" else 1


def _bits(value: Any) -> int:
    return int(np.float16(value).view(np.uint16))


def compiler_start(options: Options) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """The two vectors at the start."""
    if not options.distinct:
        return np.ones(_WIDE, np.float16), np.ones(_WIDE, np.float16)
    lanes = np.arange(_WIDE)
    return (0.5 + lanes / 32).astype(np.float16), (1 - lanes / 64).astype(np.float16)


def gemm_start(options: Options) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """The texels (rows, 4 k) of A and (columns, 4 k, 4 lanes) of B: eighths, so that sums are exact."""
    columns = b_columns(options)
    if not (options.distinct or options.check_gemm):
        return np.ones((options.rows, 4), np.float16), np.ones((columns, 4, 4), np.float16)
    row, kk = np.indices((options.rows, 4))
    col, step, lane = np.indices((columns, 4, 4))
    a, b = (row * 3 + kk) % 4 + 1, (col * 7 + step * 3 + lane) % 4 + 1
    return (a / 8).astype(np.float16), (b / 8).astype(np.float16)


def groups_start(options: Options) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """The two factors of the groups pattern: eighths."""
    if not options.distinct:
        return np.ones(4, np.float16), np.ones(4, np.float16)
    a, b = np.array([3, 1, 4, 2]) / 8, np.array([1, 3, 2, 4]) / 8
    return a.astype(np.float16), b.astype(np.float16)


def _chain(options: Options) -> Iterator[NDArray[np.float16]]:
    """x of the compiler pattern after each pair, every operation rounded to float16."""
    x, y = compiler_start(options)
    for _ in range(options.loops * options.pairs):
        x = x * y + y
        y = x * y + x
        yield x


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """The stored vectors, the same in every fiber; nothing where none is."""
    if not (options.store or options.check_gemm):
        return {}
    if options.compiler_pattern:
        with np.errstate(over="ignore"):
            *_, x = _chain(options)
        vector = x[4 * options.store_group : 4 * options.store_group + 4].astype(np.float64)
    elif options.gemm_pattern:
        vector = np.concatenate([_gemm_result(options, group) for group in _vectors(options)])
    else:
        vector = _groups_result(options)
    return {"C": np.broadcast_to(vector, (_fibers(options), len(vector)))}


def _gemm_result(options: Options, group: int) -> NDArray[np.float64]:
    """An accumulator of the GEMM pattern; with ``r1`` lane l takes the factor l places behind."""
    a, b = (start.astype(np.float64) for start in gemm_start(options))
    row, col = divmod(group, options.ncols)
    factors, texels = np.concatenate([a.ravel(), b.ravel()]), b[col % len(b)]
    lanes = np.arange(4) * options.r1
    total = sum(factors[4 * row + kk + lanes] * texels[kk] for kk in range(4))
    return np.asarray(options.loops * options.unroll * total)


def _groups_result(options: Options) -> NDArray[np.float64]:
    """The stored accumulators of the groups pattern; 0 where none reaches."""
    a, b = (start.astype(np.float64) for start in groups_start(options))
    width, vector = options.rpt + 1, np.zeros(4)
    for lane in range(4):
        group, part = divmod(4 * options.store_group + lane, width)
        if group < options.groups:
            first = group * width % 4
            product = a[first + part * options.r1] * b[first + part]
            rounds = options.loops * options.unroll
            vector[lane] = product + a[first + part] if options.independent else rounds * product
    return vector


def _inputs(options: Options, rng: np.random.Generator) -> Arrays:
    """None: the operands are immediates."""
    return {}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """0: the compiler pattern's oracle rounds as the hardware does, the GEMM pattern's sums are exact.

    They are multiples of 1/64, and exact in float16 up to 32 in the loops and unrolls that are checked.
    """
    return {"C": 0.0}


_FEW = dict(groups_x=2, groups_y=2)
_SMALL = dict(_FEW, store=True, distinct=True)

_NOTED = dict(ncols=3, bmode="percol", order="row_col_kk")

PEAK = Kernel(
    name="alu_peak",
    summary="FP16 MAD throughput from registers",
    options=Options,
    build=build,
    inputs=_inputs,
    oracle=_oracle,
    tolerance=_tolerance,
    unit="GFLOPS",
    cases=(
        Case("compiler", dict(compiler_pattern=True, pairs=8, loops=64)),
        Case("gemm", dict(gemm_pattern=True, unroll=16, loops=1, **_NOTED)),
        Case("groups", dict(groups_pattern=True, groups=32)),
        Case("groups-r1", dict(groups_pattern=True, r1=True)),
        Case("groups-independent", dict(groups_pattern=True, independent=True)),
        Case("groups-checked", dict(groups_pattern=True, loops=3, unroll=2, store_group=15, **_SMALL)),
        Case("groups-narrow", dict(groups_pattern=True, loops=3, rpt=1, groups=6, store_group=2, **_SMALL)),
        Case("groups-scalar", dict(groups_pattern=True, loops=2, rpt=0, groups=9, store_group=1, **_SMALL)),
        Case(
            "groups-independent-checked",
            dict(groups_pattern=True, loops=3, r1=True, independent=True, store_group=3, **_SMALL),
        ),
        Case("groups-r1-checked", dict(groups_pattern=True, loops=3, unroll=2, r1=True, **_SMALL)),
        Case("compiler-checked", dict(compiler_pattern=True, loops=1, pairs=2, **_SMALL)),
        Case("compiler-loop", dict(compiler_pattern=True, loops=2, pairs=1, store_group=2, **_SMALL)),
        Case("gemm-checked", dict(gemm_pattern=True, unroll=16, loops=1, store_group=7, **_NOTED, **_SMALL)),
        Case("gemm-all", dict(gemm_pattern=True, unroll=2, loops=1, check_gemm=True, **_NOTED, **_FEW)),
        Case("gemm-r1", dict(gemm_pattern=True, unroll=2, loops=2, r1=True, store_group=14, **_SMALL)),
        Case("gemm-reuse", dict(gemm_pattern=True, unroll=16, loops=1, ncols=3, store_group=4, **_SMALL)),
        Case(
            "gemm-loop",
            dict(
                gemm_pattern=True,
                loops=5,
                unroll=2,
                ncols=2,
                rows=8,
                bmode="percol",
                store_group=15,
                **_SMALL,
            ),
        ),
    ),
    claim="probe",
    source="qcom_fp16_mad_peak.py and QUALCOMM.md of tinygrad's QCOM GEMM experiments",
)

KERNELS = (PEAK,)
