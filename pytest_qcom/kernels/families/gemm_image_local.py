"""GEMMs that sample A, and sample B or load it, with or without local memory in between; in UOps.

A fiber computes ``rows`` rows by one vec4 column, a workgroup four fibers' rows by 32 columns. What is
``staged`` is copied into local memory ``bk4`` K steps at a time: ``ab``, ``b``, or ``none``; with
``global_b`` B is a buffer and nothing is staged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import flat, matmul, single, uops
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import LANES
from pytest_qcom.kernels.notes import flag
from pytest_qcom.kernels.uops import THREADS, Array

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

NAME = "gemm_image_local_fp16"
GLOBAL_NAME = "gemm_globalb_fp16"
STAGED = ("ab", "b", "none")
_BK4 = (1, 2, 4, 8, 16)
_BAND = THREADS // LANES  # fibers below each other
_SOURCE = "qcom_local_image_gemm_check.py and qcom_globalb_half_check.py of tinygrad's QCOM GEMM experiments"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the image-to-local GEMM, by the names of the published checks.

    Attributes:
        m, n, k: C is (m, n); m a multiple of 4 ``rows``, n of 128, k of 4 ``bk4``.
        bk4: K steps of four k in local memory: 1, 2, 4, 8 or 16.
        staged: which operands go through local memory: ``ab``, ``b``, ``none``.
        global_b: B is a buffer, row by row, and is loaded; ``staged`` is ``none``.
        fp32_acc: sums and C are float32.
        rows: of a fiber.
        stride: elements from one row of C to the next, ``n`` or more, a multiple of 4; 0 is ``n``. What lies
            between rows is not written.
    """

    m: int = 128
    n: int = 1536
    k: int = 384
    bk4: int = 8
    staged: str = "ab"
    global_b: bool = False
    fp32_acc: bool = False
    rows: int = 8
    stride: int = 0


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """Options of the global-B GEMM.

    Attributes:
        m, n, k: m a multiple of 16, n of 128, k of 4.
        stride: as that of the whole family.
    """

    m: int = 128
    n: int = 384
    k: int = 1536
    stride: int = 0

    def full(self) -> Options:
        """The same as options of the whole family."""
        return Options(
            self.m, self.n, self.k, bk4=1, staged="none", global_b=True, rows=4, stride=self.stride
        )


def build(options: Options) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of tiles.
    """
    return _build(NAME, options)


def build_global(options: GlobalOptions) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: a shape that is not made of tiles.
    """
    return _build(GLOBAL_NAME, options.full())


def _build(name: str, options: Options) -> Build:
    _check(name, options)
    m, n, k = options.m, options.n, options.k
    output = "float32" if options.fp32_acc else "float16"
    arrays = (
        Array("A", (m, k), "float16", image=True),
        Array("B", (k, n), "float16", image=not options.global_b),
        Array("C", (m, options.stride or n), output, written=True),
    )
    return uops.compile_uops(name, _program(name, options, arrays), arrays, 2e-9 * m * n * k)


def _check(name: str, options: Options) -> None:
    m, n, k = options.m, options.n, options.k
    if options.staged not in STAGED:
        raise KernelError(f"{name}: staged is {options.staged!r}; give one of {', '.join(STAGED)}")
    if options.global_b and options.staged != "none":
        raise KernelError(f"{name}: with global-b nothing goes through local memory; give staged=none")
    if options.bk4 not in _BK4:
        raise KernelError(f"{name}: bk4 is {options.bk4}; give one of {', '.join(map(str, _BK4))}")
    if options.rows not in (1, 2, 4, 8):
        raise KernelError(f"{name}: rows is {options.rows}; give 1, 2, 4 or 8")
    if options.stride and (options.stride < n or options.stride % 4):
        raise KernelError(f"{name}: stride is {options.stride}; give a multiple of 4 from n = {n} on, or 0")
    tile = (_BAND * options.rows, 4 * LANES, 4 * options.bk4)
    if min(m, n, k) < 1 or any(side % part for side, part in zip((m, n, k), tile, strict=True)):
        raise KernelError(f"{name}: {m} x {n} x {k} is not made of tiles of {' x '.join(map(str, tile))}")


def _program(name: str, options: Options, arrays: tuple[Array, ...]) -> Any:
    from tinygrad.uop.ops import AxisType, UOp

    k4, n4, bk4, rows = options.k // 4, options.n // 4, options.bk4, options.rows
    band = _BAND * rows
    a, b, c = uops.parameters(arrays)
    group_x, group_y = UOp.special(n4 // LANES, "gidx0"), UOp.special(options.m // band, "gidx1")
    local = UOp.special(THREADS, "lidx0")
    lane, first = local % LANES, local // LANES * rows
    tile, inner = UOp.range(k4 // bk4, 0, AxisType.REDUCE), UOp.range(bk4, 1, AxisType.REDUCE)

    staged = functools.partial(_staged, local)
    local_a, local_b, stores = a, b, list[UOp]()
    if options.staged == "ab":
        local_a, filled = staged(
            band * bk4, 0, lambda at: (group_y * band + at // bk4) * k4 + tile * bk4 + at % bk4, a
        )
        stores += filled
    if options.staged in ("ab", "b"):
        local_b, filled = staged(
            4 * bk4 * LANES,
            1,
            lambda at: (tile * (4 * bk4) + at // LANES) * n4 + group_x * LANES + at % LANES,
            b,
        )
        stores += filled
    if stores:
        copied = UOp.group(*stores)
        local_a = local_a.after(copied) if options.staged == "ab" else a
        local_b = local_b.after(copied)

    def left(row: int) -> UOp:
        if options.staged == "ab":
            return (first + row) * bk4 + inner
        return (group_y * band + first + row) * k4 + tile * bk4 + inner

    def right(kk: int) -> UOp:
        if stores:
            return (inner * 4 + kk) * LANES + lane
        return (tile * (4 * bk4) + inner * 4 + kk) * n4 + group_x * LANES + lane

    accumulated = uops.kind(arrays[2].dtype)
    b_texels = [[value.cast(accumulated) for value in uops.vector(local_b, right(kk))] for kk in range(4)]
    sums = uops.Sums(4 * rows, arrays[2].dtype, slot=2)
    values = []
    for row in range(rows):
        texel = [value.cast(accumulated) for value in uops.vector(local_a, left(row))]
        for column in range(4):
            value = sums.within(4 * row + column, inner, tile)
            for kk in range(4):
                value = value + texel[kk] * b_texels[kk][column]
            values.append(value)
    totals = sums.after(values, inner, tile)
    apart = (options.stride or options.n) // 4
    place = (group_y * band + first) * apart + group_x * LANES + lane
    written = [uops.put(c, place + row * apart, totals[4 * row : 4 * row + 4]) for row in range(rows)]
    return uops.sink(name, [store for row in written for store in row])


def _staged(
    fiber: UOp, texels: int, slot: int, source: Callable[[UOp], UOp], buffer: UOp
) -> tuple[UOp, list[UOp]]:
    """Local memory of some texels, and the stores that fill it."""
    from tinygrad.dtype import AddrSpace, dtypes
    from tinygrad.uop.ops import UOp

    memory = UOp.placeholder((4 * texels,), dtypes.half, slot, AddrSpace.LOCAL)
    stores = []
    for start in range(0, texels, THREADS):
        at = fiber + start if texels >= start + THREADS else (fiber + start) % texels
        texel = [value.cast(dtypes.half) for value in uops.vector(buffer, source(at))]
        stores += uops.put(memory, at, texel)
    return memory, stores


def _imaged(options: Options, arrays: Arrays) -> Arrays:
    """The images that the oracles of :mod:`matmul` and :mod:`single` read.

    What is staged is sampled as half, so that halves below the smallest normal one are 0 (``texel-flush`` of
    :mod:`pytest_qcom.chip`), as are those of a buffer made float; what is sampled as float is exact.
    """
    a = np.asarray(arrays["A"]).reshape(options.m, options.k)
    b = np.asarray(arrays["B"]).reshape(options.k, options.n)
    if options.fp32_acc:
        a = _flushed(a) if options.staged == "ab" else a
        b = _flushed(b) if options.staged in ("ab", "b") or options.global_b else b
    return matmul.images(options, a, b)


def _flushed(matrix: NDArray[Any]) -> NDArray[Any]:
    return np.where(np.abs(matrix) < matmul.HALF_TINY, np.float16(0), matrix)


def _inputs(options: Options, arrays: Arrays) -> Arrays:
    return uops.shaped(GEMM.build(options), dict(flat.matrices(options, arrays)))


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64; what is sampled as half is 0 below the smallest normal float16."""
    images, problem = _imaged(options, arrays), single.Plain(options.m, options.n, options.k)
    found = single.product(problem, images) if options.fp32_acc else matmul.product(options, images)
    return {"C": flat.apart(found["C"], options.stride)}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """One chain of additions over k, in either type."""
    images, problem = _imaged(options, arrays), single.Plain(options.m, options.n, options.k)
    found = single.bound(problem, images) if options.fp32_acc else matmul.half_bound(options, images)
    return {"C": flat.apart(found["C"], options.stride)}


def _global_inputs(options: GlobalOptions, arrays: Arrays) -> Arrays:
    return uops.shaped(build_global(options), dict(flat.matrices(options, arrays)))


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the notes' words too: ``b-only`` stages B alone."""
    found = dict(given)
    for name in ("b-only", "b_only"):
        if flag(found.pop(name, "")):
            found["staged"] = "b"
    return found


GEMM = Kernel(
    name=NAME,
    summary="GEMM from FP16 images through local memory, or B from a buffer; FP16 or FP32 sums; UOps",
    options=Options,
    reads=_read,
    build=build,
    inputs=lambda options, rng: _inputs(options, matmul.random(options, rng)),
    oracle=_oracle,
    tolerance=_tolerance,
    patterns=flat.patterns(_inputs),
    unit="GFLOPS",
    cases=(
        Case("m128n1536k384", {}),
        Case("ab", dict(m=64, n=256, k=64, bk4=2)),
        Case("ab-fp32", dict(m=32, n=256, k=64, bk4=4, fp32_acc=True)),
        Case("b-fp32", dict(m=32, n=256, k=64, bk4=8, staged="b", fp32_acc=True)),
        Case("b", dict(m=32, n=128, k=128, bk4=16, staged="b")),
        Case("global-b", dict(m=32, n=256, k=64, bk4=1, staged="none", global_b=True)),
        Case("images", dict(m=64, n=128, k=64, bk4=1, staged="none")),
        Case("stride", dict(m=64, n=128, k=64, bk4=2, stride=192)),
        Case("stride-fp32", dict(m=32, n=256, k=64, bk4=4, staged="b", fp32_acc=True, stride=260)),
    ),
    source=_SOURCE,
)

GLOBAL = Kernel(
    name=GLOBAL_NAME,
    summary="FP16 GEMM from an image of A and a buffer of B, 4 rows a fiber; UOps",
    options=GlobalOptions,
    build=build_global,
    inputs=lambda options, rng: _global_inputs(options, matmul.random(options, rng)),
    oracle=lambda options, arrays: _oracle(options.full(), arrays),
    tolerance=lambda options, arrays: _tolerance(options.full(), arrays),
    patterns=flat.patterns(_global_inputs),
    unit="GFLOPS",
    cases=(
        Case("m128n384k1536", {}),
        Case("tile", dict(m=16, n=128, k=16)),
        Case("odd", dict(m=48, n=384, k=64)),
        Case("stride", dict(m=32, n=128, k=64, stride=512)),
    ),
    family="globalb_gemm",
    source=_SOURCE,
)

KERNELS = (GEMM, GLOBAL)
