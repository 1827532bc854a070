"""The sums of products behind Strassen's and Winograd's forms; in UOps.

A fiber takes one vector of every product and makes the blocks of C, or one of them; through local memory, a
workgroup does so. Matrices are buffers, row by row, one behind the other, or images of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import blocks as blocks_
from pytest_qcom.kernels import strassen, uops
from pytest_qcom.kernels.blocks import QUARTERS, REGISTER_LEVELS, Blocks, Spot, Tree, Values
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.strassen import PRODUCTS, Arithmetic
from pytest_qcom.kernels.uops import THREADS, Array

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

Load = Callable[..., Values]
Store = Callable[..., list["UOp"]]

NAME = "strassen_combine"
_PARALLEL_LEVELS = 2
_SOURCE = (
    "qcom_strassen_fused_combine_check.py, qcom_strassen4_fused2_fp32_check.py and the other Strassen checks "
    "of tinygrad's QCOM experiments"
)


@dataclass(frozen=True, slots=True)
class Combine:
    """Options of the sums behind the products.

    Attributes:
        rows, cols: of a matrix C.
        batch, levels, form, vec, threads, positions: as for the transforms.
        float_products: products are float32; else half.
        float_sums: sums are float32, as they are of float products, and so is C; else half.
        half_output: C is half all the same.
        image_input, image_output: the products, C are images.
        block: the number, row by row, of the only block of C that is made; -1: all are.
        parallel: a fiber makes one block, and workgroup z says which: of one or two levels.
    """

    rows: int = 1024
    cols: int = 1024
    batch: int = 1
    levels: int = 1
    form: str = "strassen"
    vec: int = 2
    threads: int = THREADS
    float_products: bool = False
    float_sums: bool = False
    half_output: bool = False
    image_input: bool = False
    image_output: bool = False
    block: int = -1
    parallel: bool = False
    positions: int = 0

    @property
    def sums(self) -> str:
        """The type of sums."""
        return "float32" if self.float_products or self.float_sums else "float16"

    @property
    def output(self) -> str:
        """The type of C."""
        return "float16" if self.half_output else self.sums

    def blocks(self) -> Blocks:
        """What the launch works on."""
        return Blocks(
            NAME,
            self.rows,
            self.cols,
            self.batch,
            self.levels,
            self.form,
            self.vec,
            self.threads,
            self.positions,
        )


def _arrays(options: Combine) -> tuple[Array, Array]:
    """M and C; of one block, C is (batch, rows, cols) of it."""
    side = 2**options.levels
    rows, cols = options.rows // side, options.cols // side
    kind = "float32" if options.float_products else "float16"
    shape = (options.batch * PRODUCTS**options.levels, rows, cols)
    output = (options.batch, options.rows, options.cols)
    return (
        Array("M", shape, kind, image=options.image_input),
        Array("C", output, options.output, written=True, image=options.image_output),
    )


def _check(options: Combine, blocks: Blocks) -> None:
    if options.half_output and options.sums == "float16":
        raise KernelError(f"{NAME}: half-output with half sums, which give half C anyway; give float-sums")
    blocks.check(images=options.image_input or options.image_output)
    if not -1 <= options.block < blocks.side**2 or (options.block >= 0 and options.positions):
        raise KernelError(
            f"{NAME}: block is {options.block}; give one of {blocks.side**2}, and no positions, or -1"
        )

    if options.parallel and (options.block >= 0 or options.positions or options.levels > _PARALLEL_LEVELS):
        raise KernelError(
            f"{NAME}: parallel with {options.levels} levels, block or positions; give it alone, with 1 or 2 "
            "levels"
        )


@functools.cache
def build(options: Combine) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: options that do not go together.
    """
    blocks = options.blocks()
    _check(options, blocks)
    source, output = _arrays(options)
    arrays = (output, source) if options.image_output else (source, output)
    named = dict(zip((array.name for array in arrays), uops.parameters(arrays), strict=True))
    load = functools.partial(blocks_.load, named["M"], options.vec, dtype=options.sums)
    store = functools.partial(blocks_.store, named["C"], dtype="float32" if output.image else output.dtype)
    if options.parallel:
        stores = _in_parallel(options, blocks, named["M"], store)
    else:
        stores = (_through_local if options.positions else _in_registers)(options, blocks, load, store)
    table, part = _coefficients(options), 1 / (blocks.side**2 if options.block >= 0 else 1)
    used = np.count_nonzero(table if options.parallel else table.any((0, 1))) / blocks.products
    return uops.compile_uops(
        NAME, uops.sink(NAME, stores), arrays, 1e-9 * (used * source.bytes + part * output.bytes)
    )


def _in_registers(options: Combine, blocks: Blocks, load: Load, store: Store) -> list[UOp]:
    matrix, vector = blocks.fiber()
    if options.levels == REGISTER_LEVELS and options.block < 0:
        return _outer_loop(options, blocks, load, store)
    products = [load(number=blocks.in_product(matrix, vector, product)) for product in range(blocks.products)]
    stores = []
    for (i, j), total in zip(blocks.places(), _results(options, options.levels, products), strict=True):
        if options.block in (-1, i * blocks.side + j):
            stores += store(number=blocks.in_matrix(matrix, vector, i, j), values=total)
    return stores


def _in_parallel(options: Combine, blocks: Blocks, products: UOp, store: Store) -> list[UOp]:
    """One block a fiber: it loads the products that have a part in it, and no other."""
    from tinygrad.uop.ops import UOp

    matrix, vector = blocks.fiber()
    block = UOp.special(blocks.side**2, "gidx2")
    table = strassen.result(options.form, options.levels).reshape(blocks.side**2, blocks.products)
    total: Values = []
    for product, numbers in enumerate(table.T.tolist()):
        sign = blocks_.chosen(block, numbers, options.sums)
        number = blocks.in_product(matrix, vector, product)
        some = blocks_.load(products, options.vec, number, options.sums, valid=sign.ne(0))
        parts = [value * sign for value in some]
        total = [sum_ + part for sum_, part in zip(total, parts, strict=True)] if total else parts
    return store(
        number=blocks.in_matrix(matrix, vector, block // blocks.side, block % blocks.side), values=total
    )


def _outer_loop(options: Combine, blocks: Blocks, load: Load, store: Store) -> list[UOp]:
    """A turn for each product of the outer level, which joins the sums that it has a part in."""
    from tinygrad.uop.ops import AxisType, UOp

    matrix, vector = blocks.fiber()
    loop, inner = UOp.range(PRODUCTS, 0, AxisType.REDUCE), options.levels - 1
    count = PRODUCTS**inner
    products = [
        load(number=blocks.in_product(matrix, vector, loop * count + product)) for product in range(count)
    ]
    parts = _results(options, inner, products)
    table, half = strassen.result(options.form, 1), 2**inner
    sums = uops.Sums(blocks.side**2 * options.vec, options.sums, slot=0)
    values: list[UOp] = []
    places: list[strassen.Place] = []
    for down in (0, 1):
        for across in (0, 1):
            sign = blocks_.chosen(loop, [int(number) for number in table[down, across]], options.sums)
            for number, part in enumerate(parts):
                places.append((down * half + number // half, across * half + number % half))
                for value in part:
                    values.append(sums.within(len(values), loop) + value * sign)
    totals = sums.after(values, loop)
    stores = []
    for number, (i, j) in enumerate(places):
        total = totals[number * options.vec : (number + 1) * options.vec]
        stores += store(number=blocks.in_matrix(matrix, vector, i, j), values=total)
    return stores


def _results(options: Combine, levels: int, products: Sequence[Values]) -> list[Values]:
    """The blocks of C row by row."""

    def make(values: Sequence[UOp]) -> list[UOp]:
        found = strassen.result_sums(options.form, levels, values)
        return [found[place] for place in sorted(found)]

    return blocks_.by_lane(make, products)


def _through_local(options: Combine, blocks: Blocks, load: Load, store: Store) -> list[UOp]:
    make = functools.partial(strassen.one_level, options.form, "C")
    tree = Tree(blocks, PRODUCTS, QUARTERS, make, options.sums)
    tree.check()

    def read(spot: Spot, which: int) -> Values:
        product = spot.number * PRODUCTS + which
        return load(number=blocks.in_product(spot.matrix, spot.vector, product))

    def write(spot: Spot, which: int, values: Values) -> list[UOp]:
        i, j = blocks_.digits(which, spot.rest, options.levels)
        return store(number=blocks.in_matrix(spot.matrix, spot.vector, i, j), values=values)

    return tree.stores(read, write)


def _coefficients(options: Combine) -> strassen.Ints:
    """Of the blocks that are made, (down, across, products)."""
    table = strassen.result(options.form, options.levels)
    if options.block < 0:
        return table
    i, j = divmod(options.block, 2**options.levels)
    return table[i : i + 1, j : j + 1]


def arithmetic(options: Combine) -> Arithmetic:
    """How the combination rounds."""
    if options.sums == "float16":
        return strassen.HALF
    return strassen.SINGLE_TO_HALF if options.half_output else strassen.SINGLE


def _bounded(options: Combine, arrays: Arrays) -> Mapping[str, strassen.Rounded]:
    """C in the shape of the launch's argument."""
    shape = next(argument.shape for argument in build(options).arguments if argument.name == "C")
    products = arrays["M"].reshape(_arrays(options)[0].shape)
    source = strassen.exact(products) if options.float_products else strassen.flushed(products)
    found = strassen.results(source, options.form, options.levels, arithmetic(options))
    if options.block >= 0:
        found = _alone(options, found)
    return {"C": strassen.Rounded(found.value.reshape(shape), found.error.reshape(shape))}


def _alone(options: Combine, found: strassen.Rounded) -> strassen.Rounded:
    """The one block, and around it the NaN that a launch leaves of memory that it does not write."""
    value, error = np.full_like(found.value, np.nan), np.zeros_like(found.error)
    i, j = divmod(options.block, 2**options.levels)
    rows, cols = options.rows // 2**options.levels, options.cols // 2**options.levels
    ours = (slice(None), slice(i * rows, (i + 1) * rows), slice(j * cols, (j + 1) * cols))
    value[ours], error[ours] = found.value[ours], found.error[ours]
    return strassen.Rounded(value, error)


def _inputs(options: Combine, values: NDArray[Any]) -> Arrays:
    source = next(argument for argument in build(options).arguments if argument.name == "M")
    return {"M": values.astype(source.dtype).reshape(source.shape)}


def _random(options: Combine, rng: np.random.Generator) -> Arrays:
    """Standard normal products."""
    return _inputs(options, rng.standard_normal(_arrays(options)[0].shape))


def _oracle(options: Combine, arrays: Arrays) -> Arrays:
    """The sums of products in float64."""
    return {name: found.value for name, found in _bounded(options, arrays).items()}


def _tolerance(options: Combine, arrays: Arrays) -> Arrays:
    """An addition less than there are terms, each rounded, and flushed inputs; see :mod:`strassen`."""
    return {name: found.error for name, found in _bounded(options, arrays).items()}


def _exact(options: Combine) -> Arrays:
    """Different multiples of 2**-5 in neighbouring elements, so small that no sum rounds."""
    rng = np.random.default_rng(29)
    terms = int(np.abs(strassen.result(options.form, options.levels)).sum(2).max())
    most = 2048 // terms
    return _inputs(options, rng.integers(-most, most + 1, _arrays(options)[0].shape) / 32)


_IMAGES = dict(image_input=True, image_output=True)
COMBINE = Kernel(
    name=NAME,
    summary="C from the products of one to four Strassen or Winograd levels; UOps",
    options=Combine,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={"exact": _exact},
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
        Case("images", dict(rows=64, cols=256, vec=4, threads=64, float_products=True, **_IMAGES)),
        Case("block", dict(rows=64, cols=256, batch=2, levels=2, vec=4, block=9, float_products=True)),
        Case(
            "parallel", dict(rows=64, cols=256, batch=2, levels=2, vec=4, parallel=True, float_products=True)
        ),
        Case("parallel-half", dict(rows=64, cols=128, form="winograd", parallel=True)),
        Case("three-levels", dict(rows=64, cols=128, levels=3, vec=1, float_products=True)),
        Case("local-three", dict(rows=64, cols=128, levels=3, positions=4, form="winograd")),
        Case("local-four", dict(rows=32, cols=128, levels=4, vec=1, positions=1, float_products=True)),
    ),
    source=_SOURCE,
)

KERNELS = (COMBINE,)
