"""Texture bandwidth: half texels sampled as fast as they come, a number of them between two waits.

The published probe rewrites one coordinate pair under outstanding samples. Here every four samples have four
pairs, of two sets in turns; a set is rewritten once (ss) says that its samples have read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import LANES, Tile, emit_place
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE
from pytest_qcom.kernels.stores import POINTER, emit_fiber_store
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.writer import Writer

_BLOCK = 4  # samples of one vec4 column: the four k of a step
_ROWS = 4  # rows of C that a fiber would have in the GEMM whose grid this is
_ONE = 0x3C00
_TEXEL_BYTES = 8
_FILE = 48  # vec4 of either size


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the texture bandwidth probe.

    Attributes:
        m, n, k: the GEMM whose B is sampled, on its grid; of n only whole tiles of 32 ``loads`` columns.
        loads: samples between two waits: 4 to 32 in steps of 4.
        threads: fibers of a workgroup: 64, 128 or 256.
        thread128: the launch mode.
        fregs_override, hregs_override: full and half vec4 to declare beyond what is used, which costs waves;
            0 for what is used.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    loads: int = 16
    threads: int = 128
    thread128: bool = True
    fregs_override: int = 0
    hregs_override: int = 0


def _tile(options: Options) -> Tile:
    return Tile(_ROWS, options.loads // _BLOCK, options.threads)


def _groups(options: Options) -> tuple[int, int, int]:
    name = "texture_bw"
    check_shape(name, options)
    if options.loads % _BLOCK or not _BLOCK <= options.loads <= 32:
        raise KernelError(f"{name}: loads is {options.loads}; give 4, 8, 12 to 32")
    if options.k // 4 > LARGEST_IMMEDIATE:
        raise KernelError(f"{name}: k is {options.k}; give at most {4 * LARGEST_IMMEDIATE}")
    tile = _tile(options)
    return tile.groups(name, options.m, options.n // tile.group_columns * tile.group_columns)


def build(options: Options) -> Build:
    """The probe's launch. Its program adds up the last texel of every step, for the check."""
    groups = _groups(options)
    plan = (
        RegisterPlan()
        .place("lid", "r0.x", 1)
        .place("scratch", "r1.x", 4)
        .place("pairs", "r2.x", 4 * _BLOCK)
        .place("col", "r6.x", 1)
        .place("row", "r6.y", 1)
        .place("steps", "r7.w", 1)
        .place("sum", "hr0.x", 4)
        .place("one", "hr1.x", 1)
        .place("texels", "hr16.x", 4 * options.loads)
    )
    w = Writer()
    emit_place(w, _tile(options), plan["row"][0], plan["col"][0], plan["scratch"])
    w.zero(plan["sum"])
    w.set_half(plan["one"][0], _ONE)
    w.mov(plan["steps"][0], 0)
    for index in range(2 * _BLOCK):
        w.mov(plan["pairs"][2 * index + 1], index % _BLOCK)
    w.label("loop")
    _emit_step(w, plan, options)
    w.alu("cmps.s.eq", "p0.x", plan["steps"][0], options.k // 4)
    w.branch("loop")
    emit_fiber_store(w, plan["sum"][0], plan["scratch"], groups[0], options.threads)
    w.end()
    fregs, hregs = _declared(options, plan)
    fibers = groups[0] * groups[1] * options.threads
    return Build(
        program=insert_waits(w.program()),
        fregs=fregs,
        hregs=hregs,
        arguments=(
            Argument("B", (options.k, options.n // 4, 4), "float16", image=True, written=False),
            Argument("C", (fibers, 4), "float16", image=False, written=True, pointer=POINTER),
        ),
        groups=groups,
        local=(options.threads, 1, 1),
        thread128=options.thread128,
        work=1e-9 * fibers * (options.k // 4) * options.loads * _TEXEL_BYTES,
    )


def _declared(options: Options, plan: RegisterPlan) -> tuple[int, int]:
    """The footprints, or the larger ones that are asked for."""
    used = plan.footprint()
    for name, given, least in zip(
        ("fregs", "hregs"), (options.fregs_override, options.hregs_override), used, strict=True
    ):
        if given and not least <= given <= _FILE:
            raise KernelError(
                f"texture_bw: {name}-override is {given}, {least} are used; give {least} to {_FILE}, or 0"
            )
    return options.fregs_override or used[0], options.hregs_override or used[1]


def _emit_step(w: Writer, plan: RegisterPlan, options: Options) -> None:
    """All samples of a K step, one wait, one MAD."""
    blocks = options.loads // _BLOCK
    pairs, texels = plan["pairs"], plan["texels"]
    for block in range(blocks):
        first = _BLOCK * (block % 2)
        for kk in range(_BLOCK):
            x = pairs[2 * (first + kk)]
            w.alu("add.s", x, plan["col"][0], LANES * block)
        for kk in range(_BLOCK):
            w.isam(texels.vec(_BLOCK * block + kk), pairs[2 * (first + kk)], texture=0)
    w.mad(plan["sum"][0], plan["one"][0], texels.vec(options.loads - 1))
    w.alu("add.s", plan["steps"][0], plan["steps"][0], 1)
    for index in range(min(blocks, 2) * _BLOCK):
        w.alu("add.s", pairs[2 * index + 1], pairs[2 * index + 1], 4)


def _inputs(options: Options, rng: np.random.Generator) -> Arrays:
    """Small integers, whose sums are exact."""
    values = rng.integers(-2, 3, (options.k, options.n // 4, 4))
    return {"B": values.astype(np.float16)}


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """For each fiber the sum of the last k of every step in its last column."""
    width, height, _ = _groups(options)
    sums = arrays["B"][3::4].astype(np.float64).sum(axis=0)  # (n / 4, 4)
    columns = sums[: width * LANES * (options.loads // _BLOCK)].reshape(
        width, options.loads // _BLOCK, LANES, 4
    )[:, -1]
    fibers = np.broadcast_to(columns[None, :, None], (height, width, options.threads // LANES, LANES, 4))
    return {"C": fibers.reshape(-1, 4)}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """0: at most 1023 integers of at most 2 are added, so every sum is exact in float16."""
    return {"C": 0.0}


BANDWIDTH = Kernel(
    name="texture_bw",
    summary="texture bandwidth, half texels",
    options=Options,
    build=build,
    inputs=_inputs,
    oracle=_oracle,
    tolerance=_tolerance,
    unit="GB/s",
    cases=(
        *(Case(f"n1024-{loads}", dict(loads=loads)) for loads in (8, 12, 16, 20, 24)),
        *(
            Case(f"loads-{loads}", dict(m=16, n=32 * loads, k=64, loads=loads))
            for loads in range(_BLOCK, 33, _BLOCK)
        ),
        Case("threads-64", dict(m=8, n=1024, k=64, threads=64)),
        Case("threads-256", dict(m=32, n=1024, k=64, threads=256)),
        Case("thread64", dict(m=16, n=1024, k=64, thread128=False)),
        Case("few-waves", dict(m=16, n=1024, k=64, fregs_override=24)),
        Case("few-waves-half", dict(m=16, n=1024, k=64, loads=4, hregs_override=48)),
    ),
    claim="probe",
    source="qcom_texture_bw.py and QUALCOMM.md of tinygrad's QCOM GEMM experiments",
)

KERNELS = (BANDWIDTH,)
