"""The sums of blocks before and behind the products of Strassen's and Winograd's forms; in UOps.

A fiber takes one vector of every block of a matrix: it makes the operands of all products from the blocks of
A or B, or all blocks of C from the products. Matrices are buffers, row by row, one behind the other.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import strassen, uops
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.strassen import PRODUCTS, Arithmetic
from pytest_qcom.kernels.uops import THREADS, Array

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

TRANSFORM_NAME, COMBINE_NAME = "strassen_transform", "strassen_combine"
_SOURCE = (
    "qcom_strassen_check.py, qcom_strassen2_check.py and the fused checks of tinygrad's QCOM experiments"
)
_VECTORS = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Transform:
    """Options of the sums before the products.

    Attributes:
        rows, cols: of a matrix.
        batch: matrices, each transformed alone.
        levels: 1 or 2 in this launch.
        side: ``A`` or ``B``.
        form: ``strassen`` or ``winograd``.
        vec: consecutive elements of a row for a fiber: 1, 2 or 4.
        float_sums: sums are float32 and rounded once; else half.
    """

    rows: int = 1024
    cols: int = 1024
    batch: int = 1
    levels: int = 1
    side: str = "A"
    form: str = "strassen"
    vec: int = 4
    float_sums: bool = False


@dataclass(frozen=True, slots=True)
class Combine:
    """Options of the sums behind the products.

    Attributes:
        rows, cols: of a matrix C.
        batch, levels, form, vec: as for the transforms.
        float_products: products are float32; else half.
        float_sums: sums are float32, as they are of float products, and so is C; else half.
        half_output: C is half all the same.
    """

    rows: int = 1024
    cols: int = 1024
    batch: int = 1
    levels: int = 1
    form: str = "strassen"
    vec: int = 2
    float_products: bool = False
    float_sums: bool = False
    half_output: bool = False

    @property
    def sums(self) -> str:
        """The type of sums."""
        return "float32" if self.float_products or self.float_sums else "float16"

    @property
    def output(self) -> str:
        """The type of C."""
        return "float16" if self.half_output else self.sums


def _check(name: str, options: Transform | Combine) -> int:
    """Vectors of a block; what does not fit is refused."""
    side = 2**options.levels
    strassen.result(options.form, options.levels)
    if options.vec not in _VECTORS:
        raise KernelError(f"{name}: vec is {options.vec}; give 1, 2 or 4")
    if min(options.rows, options.cols, options.batch) < 1 or options.rows % side or options.cols % side:
        raise KernelError(
            f"{name}: {options.batch} of {options.rows} x {options.cols} are not {side} x {side} blocks each"
        )
    block = options.rows // side * (options.cols // side)
    if options.cols // side % options.vec or block % (THREADS * options.vec):
        raise KernelError(
            f"{name}: a block of {options.rows // side} x {options.cols // side} is not made of {THREADS} "
            f"fibers' vectors of {options.vec}; give rows and cols such that it is"
        )
    return int(block // options.vec)


def _fiber(options: Transform | Combine, vectors: int) -> tuple[UOp, UOp, UOp]:
    """(matrix, row, vector of a row) of a fiber, the last two within a block."""
    from tinygrad.uop.ops import UOp

    width = options.cols // 2**options.levels // options.vec
    at = UOp.special(vectors // THREADS, "gidx0") * THREADS + UOp.special(THREADS, "lidx0")
    return UOp.special(options.batch, "gidx1"), at // width, at % width


def _sum(terms: list[tuple[int, UOp]]) -> UOp:
    """The terms added up one after the other."""
    (sign, first), *rest = sorted(terms, key=lambda term: term[0] < 0)
    total = first if sign > 0 else first * -1.0
    for sign, term in rest:
        total = total + term if sign > 0 else total - term
    return total


@functools.cache
def build_transform(options: Transform) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: options that do not go together.
    """
    name = TRANSFORM_NAME
    if options.side not in ("A", "B"):
        raise KernelError(f"{name}: side is {options.side!r}; give A or B")
    vectors, side = _check(name, options), 2**options.levels
    coefficients = strassen.operand(options.form, options.side, options.levels)
    products = PRODUCTS**options.levels
    rows, cols = options.rows // side, options.cols // side
    arrays = (
        Array("X", (options.batch, options.rows, options.cols), "float16"),
        Array("O", (options.batch * products, rows, cols), "float16", written=True),
    )
    source, output = uops.parameters(arrays)
    matrix, row, at = _fiber(options, vectors)
    kind = uops.kind("float32" if options.float_sums else "float16")
    blocks = {}
    for i in range(side):
        for j in range(side):
            first = ((matrix * side + i) * rows + row) * options.cols + at * options.vec + j * cols
            blocks[i, j] = [source.index(first + lane).load().cast(kind) for lane in range(options.vec)]
    stores = []
    for product in range(products):
        place = ((matrix * products + product) * rows + row) * cols + at * options.vec
        for lane in range(options.vec):
            terms = [(int(coefficients[product][key]), blocks[key][lane]) for key in blocks]
            total = _sum([term for term in terms if term[0]]).cast(uops.kind("float16"))
            stores.append(output.index(place + lane).store(total))
    moved = 2e-9 * sum(array.count for array in arrays)
    return uops.compile_uops(name, uops.sink(name, stores), arrays, moved)


@functools.cache
def build_combine(options: Combine) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: options that do not go together.
    """
    name = COMBINE_NAME
    if options.half_output and options.sums == "float16":
        raise KernelError(f"{name}: half-output with half sums, which give half C anyway; give float-sums")
    vectors, side = _check(name, options), 2**options.levels
    coefficients = strassen.result(options.form, options.levels)
    products = PRODUCTS**options.levels
    rows, cols = options.rows // side, options.cols // side
    arrays = (
        Array(
            "M", (options.batch * products, rows, cols), "float32" if options.float_products else "float16"
        ),
        Array("C", (options.batch, options.rows, options.cols), options.output, written=True),
    )
    source, output = uops.parameters(arrays)
    matrix, row, at = _fiber(options, vectors)
    loaded = []
    for product in range(products):
        place = ((matrix * products + product) * rows + row) * cols + at * options.vec
        values = [source.index(place + lane).load() for lane in range(options.vec)]
        loaded.append([value.cast(uops.kind(options.sums)) for value in values])
    stores = []
    for i in range(side):
        for j in range(side):
            first = ((matrix * side + i) * rows + row) * options.cols + at * options.vec + j * cols
            for lane in range(options.vec):
                terms = [(int(sign), loaded[p][lane]) for p, sign in enumerate(coefficients[i, j]) if sign]
                stores.append(output.index(first + lane).store(_sum(terms).cast(uops.kind(options.output))))
    moved = 1e-9 * sum(array.count * np.dtype(array.dtype).itemsize for array in arrays)
    return uops.compile_uops(name, uops.sink(name, stores), arrays, moved)


def transform_arithmetic(options: Transform) -> Arithmetic:
    """How the transform rounds."""
    return strassen.SINGLE_TO_HALF if options.float_sums else strassen.HALF


def combine_arithmetic(options: Combine) -> Arithmetic:
    """How the combination rounds."""
    if options.sums == "float16":
        return strassen.HALF
    return strassen.SINGLE_TO_HALF if options.half_output else strassen.SINGLE


def _transform_inputs(options: Transform, rng: np.random.Generator) -> Arrays:
    shape = (options.batch, options.rows, options.cols)
    return {"X": rng.standard_normal(shape).astype(np.float16)}


def _transformed(options: Transform, arrays: Arrays) -> strassen.Rounded:
    coefficients = strassen.operand(options.form, options.side, options.levels)
    source = strassen.flushed(arrays["X"])
    return strassen.transformed(source, coefficients, options.levels, transform_arithmetic(options))


def _transform_oracle(options: Transform, arrays: Arrays) -> Arrays:
    """The sums of blocks in float64."""
    return {"O": _transformed(options, arrays).value}


def _transform_tolerance(options: Transform, arrays: Arrays) -> Arrays:
    """An addition less than there are terms, each rounded, and flushed inputs; see :mod:`strassen`."""
    return {"O": _transformed(options, arrays).error}


def _combine_inputs(options: Combine, rng: np.random.Generator) -> Arrays:
    side = 2**options.levels
    shape = (options.batch * PRODUCTS**options.levels, options.rows // side, options.cols // side)
    return {"M": rng.standard_normal(shape).astype(np.float32 if options.float_products else np.float16)}


def _combined(options: Combine, arrays: Arrays) -> strassen.Rounded:
    source = strassen.flushed(arrays["M"])
    if options.float_products:
        source = strassen.Rounded(source.value, np.zeros_like(source.value))
    coefficients = strassen.result(options.form, options.levels)
    return strassen.combined(source, coefficients, options.levels, combine_arithmetic(options))


def _combine_oracle(options: Combine, arrays: Arrays) -> Arrays:
    """The sums of products in float64."""
    return {"C": _combined(options, arrays).value}


def _combine_tolerance(options: Combine, arrays: Arrays) -> Arrays:
    """An addition less than there are terms, each rounded, and flushed inputs; see :mod:`strassen`."""
    return {"C": _combined(options, arrays).error}


TRANSFORM = Kernel(
    name=TRANSFORM_NAME,
    summary="the operands of the products of one or two Strassen or Winograd levels; UOps",
    options=Transform,
    build=build_transform,
    inputs=_transform_inputs,
    oracle=_transform_oracle,
    tolerance=_transform_tolerance,
    unit="GB/s",
    cases=(
        Case("n1024", {}),
        Case("b", dict(rows=64, cols=512, side="B")),
        Case("two-levels", dict(rows=128, cols=256, levels=2)),
        Case("two-levels-b-float", dict(rows=64, cols=512, side="B", levels=2, float_sums=True)),
        Case("winograd", dict(rows=64, cols=64, batch=7, form="winograd", vec=2)),
        Case("winograd-b2", dict(rows=64, cols=128, levels=2, side="B", form="winograd", vec=1)),
    ),
    source=_SOURCE,
)

COMBINE = Kernel(
    name=COMBINE_NAME,
    summary="C from the products of one or two Strassen or Winograd levels; UOps",
    options=Combine,
    build=build_combine,
    inputs=_combine_inputs,
    oracle=_combine_oracle,
    tolerance=_combine_tolerance,
    unit="GB/s",
    cases=(
        Case("n1024", dict(vec=4)),
        Case("two-levels", dict(rows=128, cols=256, levels=2)),
        Case("two-levels-float", dict(rows=64, cols=256, levels=2, vec=1, float_products=True)),
        Case("winograd", dict(rows=64, cols=64, batch=7, form="winograd")),
        Case("half-products", dict(rows=64, cols=128, levels=2, vec=1, float_sums=True)),
        Case(
            "winograd-half", dict(rows=64, cols=128, form="winograd", float_products=True, half_output=True)
        ),
    ),
    source=_SOURCE,
)

KERNELS = (TRANSFORM, COMBINE)
