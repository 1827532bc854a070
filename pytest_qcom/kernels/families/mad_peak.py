"""MAD throughput as a program of the vendor compiler has it: two vectors of 16, each into the other.

The notes measured it from plain OpenCL: 16 multiply-adds of 16 lanes a pass, x = x y + y and y = x y + x in
turns. In halves the lanes stand as in :mod:`alu_peak`'s compiler pattern; in words they fill r0 to r7 the
same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import check_threads
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE
from pytest_qcom.kernels.stores import POINTER
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.words import emit_fiber_number, emit_word_store
from pytest_qcom.kernels.writer import Writer

_WIDE = 16
_MADS = 16  # of 16 lanes, a pass
_FIRST = 4  # index of the register that the vectors start at, behind the ids
DTYPES = {"fp16": "float16", "fp32": "float32"}


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the MAD peak probe.

    Attributes:
        dtype: ``fp16`` or ``fp32``.
        loops: passes.
        threads, thread128, groups: the launch.
        store: every fiber stores x, 16 words or halves in words, instead of nothing.
        distinct: starts from different small numbers instead of from 1.
    """

    dtype: str = "fp16"
    loops: int = 8
    threads: int = 256
    thread128: bool = True
    groups: int = 2048
    store: bool = False
    distinct: bool = False


def build(options: Options) -> Build:
    """The probe's launch."""
    _check(options)
    half = options.dtype == "fp16"
    file = "hr" if half else "r"
    first = 0 if half else _FIRST
    plan = RegisterPlan().place("lid", "r0.x", 1).place("scratch", "r1.x", 4).place("number", "r2.x", 1)
    plan = plan.place("counter", "r2.y", 1).place("vectors", f"{file}{first}.x", 2 * _WIDE)
    if half:
        plan = plan.place("words", f"r{_FIRST}.x", _WIDE)
    lanes = plan["vectors"]
    x = [lanes[2 + lane] for lane in range(_WIDE - 1)] + [lanes[0]]  # no repeat writes what it still reads
    y = [lanes[17 + lane] for lane in range(_WIDE - 1)] + [lanes[1]]
    w = Writer()
    emit_fiber_number(w, plan["number"][0], plan["scratch"][0], options.groups, options.threads)
    for register, value in zip((*x, *y), np.concatenate(start(options)), strict=True):
        w.emit("mov.u16u16" if half else "mov.u32u32", register, _bits(value))
    w.mov(plan["counter"][0], 0)
    w.label("loop")
    for number in range(_MADS):
        _mad(w, half, *((x, y) if number % 2 == 0 else (y, x)), x, y)
    w.alu("add.s", plan["counter"][0], plan["counter"][0], 1)
    w.alu("cmps.s.eq", "p0.x", plan["counter"][0], options.loops)
    w.branch("loop")
    if options.store:
        if half:
            for word, lane in zip(plan["words"], x, strict=True):
                w.emit("cov.u16u32", word, lane)
            x = list(plan["words"])
        emit_word_store(w, plan["number"][0], x, plan["scratch"])
    w.end()
    program = insert_waits(w.program())
    fregs, hregs = program.footprint()
    fibers = options.groups * options.threads
    shape = (fibers, _WIDE) if options.store else (fibers,)
    return Build(
        program=program,
        fregs=fregs,
        hregs=hregs,
        arguments=(Argument("C", shape, "uint32", image=False, written=True, pointer=POINTER),),
        groups=(options.groups, 1, 1),
        local=(options.threads, 1, 1),
        thread128=options.thread128,
        work=2e-9 * fibers * options.loops * _MADS * _WIDE,
    )


def _mad(w: Writer, half: bool, dst: list[Reg], addend: list[Reg], x: list[Reg], y: list[Reg]) -> None:
    """dst = x y + addend over all lanes: five instructions, as the compiler splits it."""
    for first in range(0, _WIDE, 4):
        count = 4 if first + 4 < _WIDE else 3
        sources = (f"(r){lane[first]}" for lane in (x, y, addend))
        w.emit("mad.f16" if half else "mad.f32", dst[first], *sources, rpt=count - 1)
    w.emit("mad.f16" if half else "mad.f32", dst[-1], x[-1], y[-1], addend[-1])


def _check(options: Options) -> None:
    name = "mad_peak"
    if options.dtype not in DTYPES:
        raise KernelError(f"{name}: dtype is {options.dtype!r}; give fp16 or fp32")
    check_threads(name, options.threads)
    if not 1 <= options.loops <= LARGEST_IMMEDIATE:
        raise KernelError(f"{name}: loops is {options.loops}; give 1 to {LARGEST_IMMEDIATE}")
    if not 1 <= options.groups <= 8192:
        raise KernelError(f"{name}: groups is {options.groups}; give 1 to 8192")


def start(options: Options) -> tuple[NDArray[Any], NDArray[Any]]:
    """The two vectors at the start."""
    dtype, lanes = DTYPES[options.dtype], np.arange(_WIDE)
    if not options.distinct:
        return np.ones(_WIDE, dtype), np.ones(_WIDE, dtype)
    return (0.5 + lanes / 64).astype(dtype), (-1 + lanes / 32).astype(dtype)


def _bits(value: Any) -> int:
    return int(value.view(np.uint16 if value.dtype == np.float16 else np.uint32))


def _inputs(options: Options, rng: np.random.Generator) -> Arrays:
    """None: the operands are immediates."""
    return {}


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """The bits of x, every product and sum rounded, subnormal ones 0; nothing without ``store``."""
    if not options.store:
        return {}
    x, y = start(options)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(options.loops * _MADS // 2):
            x = _normal(_normal(x * y) + y)
            y = _normal(_normal(x * y) + x)
    bits = x.view(np.uint16 if options.dtype == "fp16" else np.uint32).astype(np.float64)
    return {"C": np.broadcast_to(bits, (options.groups * options.threads, _WIDE))}


def _normal(values: NDArray[Any]) -> NDArray[Any]:
    """``values``, with 0 of their sign for those below the smallest normal number."""
    small = np.abs(values) < np.finfo(values.dtype).tiny
    return np.where(small, np.copysign(values.dtype.type(0), values), values)


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """0: the oracle rounds as the hardware does."""
    return {"C": 0.0}


_SMALL = dict(groups=2, loops=2, store=True, distinct=True)

PEAK = Kernel(
    name="mad_peak",
    summary="MAD throughput of a compiled program, halves and words",
    options=Options,
    build=build,
    inputs=_inputs,
    oracle=_oracle,
    tolerance=_tolerance,
    unit="GFLOPS",
    cases=(
        *(
            Case(f"{dtype}{'' if wide else '-64'}", dict(dtype=dtype, thread128=wide))
            for dtype in DTYPES
            for wide in (True, False)
        ),
        Case("fp16-checked", dict(dtype="fp16", **_SMALL)),
        Case("fp32-checked", dict(dtype="fp32", **_SMALL)),
    ),
    claim="probe",
    source="qcom_fp16_mad_peak.py of tinygrad's QCOM GEMM experiments, tinygrad PR 16229",
)

KERNELS = (PEAK,)
