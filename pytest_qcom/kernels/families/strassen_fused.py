"""Products of Strassen's and Winograd's forms that add the blocks of A and B up themselves; in UOps.

A, B are sampled as float32 images, matrices one above the other. A fiber of the leaf-fused kernel computes
some rows by one vec4 column of one product; of the terminal-fused kernel, the same place in every block of C:
a loop over k for each of the seven products, whose sums join those of the blocks of C.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import strassen, uops
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import LANES
from pytest_qcom.kernels.strassen import PRODUCTS, Place, Rounded
from pytest_qcom.kernels.uops import THREADS, Array

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

LEAF_NAME, TERMINAL_NAME = "strassen_leaf_fused", "strassen_terminal_fused"
LEAF_LEVELS = 2
_BAND = THREADS // LANES  # fibers below each other
_SOURCE = "{} of tinygrad's QCOM GEMM experiments"


@dataclass(frozen=True, slots=True)
class Leaf:
    """Options of the leaf-fused kernel.

    Attributes:
        m, n, k: of the whole product. A block is 1 / 2**levels of each: m a multiple of 4 ``rows``, n of 128,
            k of 4.
        batch: products of A and B, each alone.
        levels: 1 or 2.
        product: the number of the product of blocks that is computed.
        form: ``strassen`` or ``winograd``.
        rows: of a fiber.
        image_store: the products are an image; with ``half_output`` a half one.
        half_output: the products are half.
    """

    m: int = 512
    n: int = 512
    k: int = 512
    batch: int = 1
    levels: int = 1
    product: int = 0
    form: str = "strassen"
    rows: int = 4
    image_store: bool = True
    half_output: bool = False


@dataclass(frozen=True, slots=True)
class Terminal:
    """Options of the terminal-fused kernel.

    Attributes:
        m, n, k: of the product; m a multiple of 8 ``rows``, n of 256, k of 8.
        batch: products, each alone.
        form: ``strassen`` or ``winograd``.
        rows: of a fiber in each block of C.
        image_store: C is an image.
    """

    m: int = 512
    n: int = 512
    k: int = 512
    batch: int = 1
    form: str = "strassen"
    rows: int = 2
    image_store: bool = True


def _check(name: str, options: Leaf | Terminal, levels: int) -> None:
    strassen.check_form(options.form, levels, LEAF_LEVELS)
    if options.rows not in (1, 2, 4, 8):
        raise KernelError(f"{name}: rows is {options.rows}; give 1, 2, 4 or 8")
    side = 2**levels
    units = tuple(side * unit for unit in (_BAND * options.rows, 4 * LANES, 4))
    sides = (options.m, options.n, options.k)
    if options.batch < 1 or any(given < 1 or given % unit for given, unit in zip(sides, units, strict=True)):
        raise KernelError(
            f"{name}: {options.batch} of {' x '.join(map(str, sides))} are not made of {side} x {side} "
            f"blocks of whole tiles; give multiples of {' x '.join(map(str, units))}"
        )


@dataclass(frozen=True, slots=True)
class _Fiber:
    """Where a fiber is: which product, which row and vec4 column of a block; and its images."""

    options: Leaf | Terminal
    side: int
    a: UOp
    b: UOp

    @property
    def batch(self) -> UOp:
        from tinygrad.uop.ops import UOp

        return UOp.special(self.options.batch, "gidx2")

    @property
    def row(self) -> UOp:
        from tinygrad.uop.ops import UOp

        rows = self.options.rows
        group = UOp.special(self.options.m // self.side // (_BAND * rows), "gidx1")
        return (group * _BAND + UOp.special(THREADS, "lidx0") // LANES) * rows

    @property
    def col(self) -> UOp:
        from tinygrad.uop.ops import UOp

        group = UOp.special(self.options.n // self.side // (4 * LANES), "gidx0")
        return group * LANES + UOp.special(THREADS, "lidx0") % LANES

    @property
    def steps(self) -> int:
        """K steps of four k."""
        return self.options.k // self.side // 4

    def left(self, row: int, step: UOp, place: Place) -> list[UOp]:
        """A texel of a block of A."""
        options, (i, j) = self.options, place
        line = self.batch * options.m + i * (options.m // self.side) + self.row + row
        return uops.vector(self.a, line * (options.k // 4) + j * self.steps + step)

    def right(self, kk: int, step: UOp, place: Place) -> list[UOp]:
        """A texel of a block of B."""
        options, (i, j) = self.options, place
        width = options.n // 4
        line = self.batch * options.k + i * (options.k // self.side) + step * 4 + kk
        return uops.vector(self.b, line * width + j * (width // self.side) + self.col)

    def product(self, levels: int, product: int, slot: int = 0) -> list[UOp]:
        """The sums of a product of blocks over k, in a loop of its own: four for each row."""
        from tinygrad.uop.ops import AxisType, UOp

        form, step = self.options.form, UOp.range(self.steps, slot, AxisType.REDUCE)
        sums = uops.Sums(4 * self.options.rows, "float32", slot=slot)

        def lane(texel: Callable[[Place], list[UOp]], number: int, place: Place) -> UOp:
            return texel(place)[number]

        def summed(side: str, texel: Callable[[Place], list[UOp]]) -> list[UOp]:
            lanes = [functools.partial(lane, texel, number) for number in range(4)]
            return [strassen.operand_sum(form, side, levels, product, block) for block in lanes]

        right = [summed("B", functools.partial(self.right, kk, step)) for kk in range(4)]
        values = []
        for row in range(self.options.rows):
            left = summed("A", functools.partial(self.left, row, step))
            for column in range(4):
                value = sums.within(4 * row + column, step)
                for kk in range(4):
                    value = value + left[kk] * right[kk][column]
                values.append(value)
        return sums.after(values, step)


def _arrays(options: Leaf | Terminal, output: Array) -> tuple[Array, ...]:
    """The image C or M first, or the buffer last."""
    inputs = (
        Array("A", (options.batch * options.m, options.k), "float16", image=True),
        Array("B", (options.batch * options.k, options.n), "float16", image=True),
    )
    return (output, *inputs) if output.image else (*inputs, output)


@functools.cache
def build_leaf(options: Leaf) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: options that do not go together.
    """
    name, side, count = LEAF_NAME, 2**options.levels, PRODUCTS**options.levels
    _check(name, options, options.levels)
    if not 0 <= options.product < count:
        raise KernelError(f"{name}: product is {options.product}; give 0 to {count - 1}")
    if options.half_output and not options.image_store:
        raise KernelError(f"{name}: half-output into a buffer of float32; give image-store=true too")
    m, n = options.m // side, options.n // side
    kind = "float16" if options.half_output else "float32"
    output = Array("M", (options.batch * count, m, n), kind, written=True, image=options.image_store)
    arrays = _arrays(options, output)
    named = dict(zip((array.name for array in arrays), uops.parameters(arrays), strict=True))
    fiber = _Fiber(options, side, named["A"], named["B"])
    totals = fiber.product(options.levels, options.product)
    stores = []
    for row in range(options.rows):
        line = (fiber.batch * count + options.product) * m + fiber.row + row
        stores += uops.put(named["M"], line * (n // 4) + fiber.col, totals[4 * row : 4 * row + 4])
    work = 2e-9 * options.batch * m * n * (options.k // side)
    return uops.compile_uops(name, uops.sink(name, stores), arrays, work)


@functools.cache
def build_terminal(options: Terminal) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: options that do not go together.
    """
    name, side = TERMINAL_NAME, 2
    _check(name, options, 1)
    output = Array(
        "C", (options.batch, options.m, options.n), "float32", written=True, image=options.image_store
    )
    arrays = _arrays(options, output)
    named = dict(zip((array.name for array in arrays), uops.parameters(arrays), strict=True))
    fiber = _Fiber(options, side, named["A"], named["B"])
    products = [fiber.product(1, number, slot=number) for number in range(PRODUCTS)]
    stores = []
    width = options.n // 4
    for row in range(options.rows):
        lanes = [strassen.result_sums(options.form, 1, [p[4 * row + x] for p in products]) for x in range(4)]
        for i, j in lanes[0]:
            line = fiber.batch * options.m + i * (options.m // side) + fiber.row + row
            at = line * width + j * (width // side) + fiber.col
            stores += uops.put(named["C"], at, [lane[i, j] for lane in lanes])
    work = 2e-9 * options.batch * options.m * options.n * options.k
    return uops.compile_uops(name, uops.sink(name, stores), arrays, work)


def _matrices(options: Leaf | Terminal, arrays: Arrays) -> Arrays:
    return {
        "A": arrays["A"].reshape(options.batch, options.m, options.k),
        "B": arrays["B"].reshape(options.batch, options.k, options.n),
    }


def _leaf_bounded(options: Leaf, arrays: Arrays) -> Rounded:
    """M: the product, and NaN where the others have their places."""
    count, side = PRODUCTS**options.levels, 2**options.levels
    left, right = (
        strassen.operands(
            strassen.exact(matrices), options.form, side, options.levels, strassen.SINGLE, options.product
        )
        for side, matrices in _matrices(options, arrays).items()
    )
    ours = slice(options.product, None, count)
    found = strassen.multiplied(left, right, strassen.SINGLE)
    if options.half_output:
        found = strassen.stored_as_half(found)
    shape = (options.batch * count, options.m // side, options.n // side)
    value, error = np.full(shape, np.nan), np.zeros(shape)
    value[ours], error[ours] = found.value, found.error
    return _shaped(build_leaf(options), Rounded(value, error))


def _terminal_bounded(options: Terminal, arrays: Arrays) -> Rounded:
    left, right = (
        strassen.operands(strassen.exact(matrices), options.form, side, 1, strassen.SINGLE)
        for side, matrices in _matrices(options, arrays).items()
    )
    products = strassen.multiplied(left, right, strassen.SINGLE)
    found = strassen.results(products, options.form, 1, strassen.SINGLE)
    return _shaped(build_terminal(options), found)


def _shaped(build: Build, found: Rounded) -> Rounded:
    """In the shape of the launch's output."""
    shape = next(argument.shape for argument in build.arguments if argument.written)
    return Rounded(found.value.reshape(shape), found.error.reshape(shape))


def _inputs(build: Build, draw: Callable[[tuple[int, ...]], NDArray[Any]]) -> Arrays:
    return {
        argument.name: draw(argument.shape).astype(np.float16)
        for argument in build.arguments
        if not argument.written
    }


def _ternary(build: Build) -> Arrays:
    """Entries plus or minus 2**-3, of which no sum rounds: indices alone decide the result."""
    rng = np.random.default_rng(29)
    return _inputs(build, lambda shape: rng.choice((-1.0, 1.0), shape) / 8)


LEAF = Kernel(
    name=LEAF_NAME,
    summary="a product of a Strassen or Winograd form that adds the blocks of A and B up itself; UOps",
    options=Leaf,
    build=build_leaf,
    inputs=lambda options, rng: _inputs(build_leaf(options), rng.standard_normal),
    oracle=lambda options, arrays: {"M": _leaf_bounded(options, arrays).value},
    tolerance=lambda options, arrays: {"M": _leaf_bounded(options, arrays).error},
    patterns={"exact": lambda options: _ternary(build_leaf(options))},
    unit="GFLOPS",
    cases=(
        Case("n256", dict(m=256, n=256, k=256)),
        Case("winograd", dict(m=64, n=256, k=128, product=3, form="winograd", batch=2)),
        Case("buffer", dict(m=64, n=256, k=64, product=5, rows=8, image_store=False, batch=3)),
        Case("half-output", dict(m=32, n=256, k=64, product=4, half_output=True)),
        Case("two-levels", dict(m=64, n=512, k=64, product=38, levels=2)),
    ),
    source=_SOURCE.format("qcom_strassen_leaf_fused_check.py"),
)

TERMINAL = Kernel(
    name=TERMINAL_NAME,
    summary="a whole product of one Strassen or Winograd level in one launch; UOps",
    options=Terminal,
    build=build_terminal,
    inputs=lambda options, rng: _inputs(build_terminal(options), rng.standard_normal),
    oracle=lambda options, arrays: {"C": _terminal_bounded(options, arrays).value},
    tolerance=lambda options, arrays: {"C": _terminal_bounded(options, arrays).error},
    patterns={"exact": lambda options: _ternary(build_terminal(options))},
    unit="GFLOPS",
    cases=(
        Case("buffer", dict(m=16, n=256, k=256, image_store=False)),
        Case("winograd", dict(m=16, n=256, k=128, batch=2, form="winograd")),
    ),
    source=_SOURCE.format("qcom_strassen_terminal_fused_check.py"),
)

KERNELS = (LEAF, TERMINAL)
