"""Programs of several products, written as UOps: a row of small ones side by side, two behind each other.

Arguments are buffers or images as :mod:`pytest_qcom.kernels.uops` has them; what a product does with its sums
is the expression of its own program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_qcom.errors import GraphError
from pytest_qcom.kernels import uops
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.uops import Array
from pytest_qcom.openpilot.epilogues import COLUMN, Epilogue
from pytest_qcom.openpilot.graph import LANES
from pytest_qcom.openpilot.products import Product

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

FIBERS = 128
_LOCAL = 16 << 10  # bytes of local memory that one workgroup may have


@dataclass(frozen=True, eq=False)
class Stage:
    """A product with its epilogue.

    Attributes:
        extra: of each further argument, its number in the product's program and its numpy type.
    """

    product: Product
    epilogue: Epilogue
    extra: tuple[tuple[int, str], ...]


def _extra(stage: Stage, prefix: str) -> list[Array]:
    """Arrays for the further arguments, as buffers."""
    product = stage.product
    sizes = {COLUMN: product.n}
    whole = product.out_start + (product.m - 1) * product.out_stride + product.n
    return [
        Array(f"{prefix}{slot}", (sizes.get(stage.epilogue.arguments[slot], whole),), dtype)
        for slot, dtype in stage.extra
    ]


def _value(stage: Stage, total: UOp, arguments: dict[int, UOp], column: UOp, place: UOp) -> UOp:
    """The epilogue of an element."""
    from tinygrad.dtype import dtypes

    loaded = {
        slot: argument.index(column if stage.epilogue.arguments[slot] == COLUMN else place)
        .load()
        .cast(dtypes.float)
        for slot, argument in arguments.items()
    }
    return stage.epilogue.of(total, loaded)


def row_product(name: str, stage: Stage, out: str, quantized: bool = False) -> Build:
    """One row times a matrix: workgroups of 128 fibers divide k among them and put their sums together.

    Arguments: ``out``, ``left`` (k halves), ``right`` (k, n) halves as an image, then the epilogue's.

    Args:
        out: numpy type of what is stored.
        quantized: ``right`` is a buffer of words of four columns' bytes, 128 for zero, and ``scale`` has what
            each column is multiplied with.

    Raises:
        GraphError: k or n is not divided by the workgroup.
    """
    from tinygrad.uop.ops import AxisType, UOp

    product = stage.product
    n, k = product.n, product.k
    columns = _columns(n, k)
    parts = FIBERS // columns
    extra = _extra(stage, "e")
    weights = (
        (Array("right", (k, n // LANES), "uint32"), Array("scale", (n,), "float32"))
        if quantized
        else (Array("right", (k, n), "float16", image=True),)
    )
    arrays = (
        *weights,
        Array("left", (product.left_start + k,), "float16"),
        *extra,
        Array("out", (product.out_start + n,), out, written=True),
    )
    right, *scales, left = uops.parameters(arrays)[: len(weights) + 1]
    *others, stored = uops.parameters(arrays)[len(weights) + 1 :]
    group, fiber = UOp.special(n // (columns * LANES), "gidx0"), UOp.special(FIBERS, "lidx0")
    own, part = fiber % columns, fiber // columns
    loop = UOp.range(k // LANES // parts, 0, AxisType.REDUCE)
    step = part * (k // LANES // parts) + loop

    def texel(at: UOp) -> list[UOp]:
        place = at * (n // LANES) + group * columns + own
        return _bytes(right.index(place).load()) if quantized else uops.vector(right, place)

    made = _sums(left, product.left_start, texel, step, loop, slot=1)
    stores = []
    for mine, total in _together(made, fiber, columns):
        column = group * (columns * LANES) + mine
        for scale in scales:
            total = total * scale.index(column).load()
        place = column + product.out_start
        arguments = {slot: argument for (slot, _), argument in zip(stage.extra, others, strict=True)}
        value = _value(stage, total, arguments, column, place)
        stores.append(stored.index(place).store(value.cast(uops.kind(out))))
    return uops.compile_uops(name, uops.sink(name, stores), arrays, 2e-9 * n * k)


def _columns(n: int, k: int) -> int:
    """How many texels of columns a workgroup has.

    Raises:
        GraphError: its fibers do not divide the matrix.
    """
    columns = math.gcd(n // LANES, 32)
    parts = FIBERS // columns
    if n % LANES or k % (LANES * parts) or k * n % 256 or columns * parts != FIBERS:
        raise GraphError(f"a row of {k} times {n} columns is not divided by {FIBERS} fibers")
    return columns


def _together(made: list[UOp], fiber: UOp, columns: int) -> Iterator[tuple[UOp, UOp]]:
    """The sums of a workgroup's parts, put together in local memory: number of a column, and total."""
    from tinygrad.dtype import AddrSpace, dtypes
    from tinygrad.uop.ops import UOp

    shared = UOp.placeholder((FIBERS * LANES,), dtypes.float, 0, AddrSpace.LOCAL)
    put = UOp.group(*(shared.index(fiber * LANES + lane).store(value) for lane, value in enumerate(made)))
    shared = shared.after(put)
    for turn in range(-(-columns * LANES // FIBERS)):
        mine = (fiber + turn * FIBERS) % (columns * LANES)
        total = shared.index(mine).load()
        for other in range(1, FIBERS // columns):
            total = total + shared.index(mine + other * columns * LANES).load()
        yield mine, total


def _bytes(word: UOp) -> list[UOp]:
    """The four signed bytes of a word in which they have 128 added, as floats."""
    from tinygrad.dtype import dtypes

    return [((word >> 8 * lane) & 0xFF).cast(dtypes.int).cast(dtypes.float) - 128.0 for lane in range(LANES)]


def chain(name: str, first: Stage, second: Stage, out: str) -> Build:
    """Two products behind each other: what the first one stores stays in local memory.

    Arguments: ``right1``, ``right2`` as images of halves, ``left``, the epilogues', ``out``.

    Raises:
        GraphError: the rows are not divided by workgroups whose local memory holds what is between.
    """
    from tinygrad.dtype import AddrSpace, dtypes
    from tinygrad.uop.ops import UOp

    up, down = first.product, second.product
    rows = rows_of(up, down)
    extra1, extra2 = _extra(first, "first"), _extra(second, "second")
    height = up.left_start + (up.m - 1) * up.left_stride + up.k
    width = down.out_start + (down.m - 1) * down.out_stride + down.n
    arrays = (
        Array("right1", (up.k, up.n), "float16", image=True),
        Array("right2", (down.k, down.n), "float16", image=True),
        Array("left", (height,), "float16"),
        *extra1,
        *extra2,
        Array("out", (width,), out, written=True),
    )
    right1, right2, left, *others, stored = uops.parameters(arrays)
    own1 = {slot: argument for (slot, _), argument in zip(first.extra, others, strict=False)}
    own2 = {slot: arg for (slot, _), arg in zip(second.extra, others[len(extra1) :], strict=True)}
    group, fiber = UOp.special(up.m // rows, "gidx0"), UOp.special(FIBERS, "lidx0")
    hidden = UOp.placeholder((rows * up.n,), dtypes.half, 0, AddrSpace.LOCAL)
    puts = []
    for turn in range(rows * up.n // LANES // FIBERS):
        at = fiber + turn * FIBERS
        row, column = at // (up.n // LANES), at % (up.n // LANES)
        source = (group * rows + row) * up.left_stride + up.left_start
        totals = _dot(left, source, right1, up, column, 1 + 2 * turn)
        for lane, total in enumerate(totals):
            place = (group * rows + row) * up.out_stride + up.out_start + column * LANES + lane
            value = _value(first, total, own1, column * LANES + lane, place)
            puts.append(hidden.index(row * up.n + column * LANES + lane).store(value.cast(dtypes.half)))
    held = hidden.after(UOp.group(*puts))
    stores = []
    for turn in range(rows * down.n // LANES // FIBERS):
        at = fiber + turn * FIBERS
        row, column = at // (down.n // LANES), at % (down.n // LANES)
        totals = _dot(held, row * up.n, right2, down, column, 100 + 2 * turn)
        for lane, total in enumerate(totals):
            place = (group * rows + row) * down.out_stride + down.out_start + column * LANES + lane
            value = _value(second, total, own2, column * LANES + lane, place)
            stores.append(stored.index(place).store(value.cast(uops.kind(out))))
    work = 2e-9 * up.m * up.k * (up.n + down.n)
    return uops.compile_uops(name, uops.sink(name, stores), arrays, work)


def rows_of(up: Product, down: Product) -> int:
    """How many rows a workgroup does.

    Raises:
        GraphError: there is no such number.
    """
    for rows in (1, 2, 4, 8, 16, 32):
        full = all(rows * each.n % (FIBERS * LANES) == 0 for each in (up, down))
        if full and up.m % rows == 0 and 2 * rows * up.n <= _LOCAL and up.k % LANES == 0:
            return rows
    raise GraphError(
        f"{up.m} rows of {up.n} and {down.n} columns are not divided by workgroups of {FIBERS} fibers"
    )


def _dot(left: UOp, row: UOp, right: UOp, product: Product, column: UOp, slot: int) -> list[UOp]:
    """The sums of four columns, for the row that starts at ``row`` of ``left``."""
    from tinygrad.uop.ops import AxisType, UOp

    def texel(at: UOp) -> list[UOp]:
        return uops.vector(right, at * (product.n // LANES) + column)

    loop = UOp.range(product.k // LANES, slot, AxisType.REDUCE)
    return _sums(left, row, texel, loop, loop, slot + 1)


def _sums(
    left: UOp, start: UOp | int, texel: Callable[[UOp], list[UOp]], step: UOp, loop: UOp, slot: int
) -> list[UOp]:
    """The sums of four columns, of four elements of ``left`` each ``step``, from ``start`` on.

    Args:
        texel: of an element's number, what stands in its row of the matrix.
    """
    from tinygrad.dtype import dtypes

    sums = uops.Sums(LANES, "float32", slot=slot)
    totals = [sums.within(lane, loop) for lane in range(LANES)]
    for inner in range(LANES):
        at = step * LANES + inner
        factor = left.index(at + start).load().cast(dtypes.float)
        totals = [total + factor * value for total, value in zip(totals, texel(at), strict=True)]
    return sums.after(totals, loop)
