"""Which calls are matrix products, and where their operands lie: read from loads and stores of their UOps.

A program is a product if each value that it stores depends on one sum of products, over loops or over the
fibers of a workgroup, of an element of one argument and one of another, such that the sums form a matrix:
rows of the left argument times columns of the right one. What is done with a sum before it is stored (a bias,
an activation, a residual) is its epilogue, which plays no part here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import lowered
from pytest_qcom.openpilot.accesses import (
    Access,
    Indices,
    NoProduct,
    access,
    elements,
    evaluate,
    mesh,
    size,
    symbols,
)
from pytest_qcom.openpilot.graph import Call, Kind, Program

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

_PROBES = 8  # fibers at which the pattern of a sum is held against that of the first


@dataclass(frozen=True, eq=False)
class Product:
    """out[row, column] = f(sum over k of left[row, k] * right[k, column]); places are counted in elements.

    Attributes:
        out, left, right: numbers of the arguments.
        left_start, left_stride: of the left argument's rows, each of which is k elements in a row.
        out_start, out_stride: of the stored rows, each of which is n elements in a row.
        columns: where in the right argument each column starts.
        steps: how far behind that its k-th element is.
    """

    out: int
    left: int
    right: int
    m: int
    n: int
    k: int
    left_start: int
    left_stride: int
    out_start: int
    out_stride: int
    columns: Indices
    steps: Indices

    def matrix(self, call: Call) -> NDArray[Any]:
        """The right argument's contents as (k, n).

        Raises:
            GraphError: it is no weight.
        """
        flat = call.views[self.right].array()
        return np.asarray(flat[self.steps[:, None] + self.columns[None, :]])

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.m * self.n * self.k


def product(call: Call) -> Product | str:
    """The product that a call computes, or why it computes none."""
    if call.program is None:
        return "it is a copy"
    weights = tuple(n for n, view in enumerate(call.views) if view.memory.kind is Kind.WEIGHT)
    return _product(call.program, weights)


@functools.lru_cache(maxsize=512)
def _product(program: Program, weights: tuple[int, ...]) -> Product | str:
    try:
        return _found(lowered.body(program), program, weights)
    except (NoProduct, GraphError) as error:
        return str(error)


@dataclass(frozen=True, slots=True)
class Sum:
    """What one stored value adds up: pairs of accesses, over the loops; and where it goes."""

    store: Access
    pairs: tuple[tuple[Access, Access], ...]
    loops: tuple[UOp, ...]


def sums(sink: UOp) -> Iterator[Sum]:
    """The sum of products behind each stored value.

    Raises:
        GraphError: a stored value that depends on none, or on several.
    """
    try:
        yield from _sums(sink)
    except NoProduct as error:
        raise GraphError(f"sums of products: {error}") from error


def _sums(sink: UOp) -> Iterator[Sum]:
    for slot, store in lowered.stores(sink):
        for lane, each in enumerate(lowered.lanes(store)):
            accumulated = totals(each)
            if len(accumulated) != 1:
                raise NoProduct(f"a stored value depends on {len(accumulated)} sums, of a product on one")
            pairs, loops = _addends(*accumulated)
            yield Sum(Access(slot, store.src[0].src[1:], lane), tuple(pairs), loops)


def totals(node: UOp) -> list[UOp]:
    """The loads of sums that a loop carried, on which a value depends; sums within a sum do not count."""
    found: dict[UOp, None] = {}
    seen: set[UOp] = set()
    pending = [node]
    while pending:
        at = pending.pop()
        if at in seen:
            continue
        seen.add(at)
        if _loop(at) is not None:
            found[at] = None
        else:
            pending += at.src
    return list(found)


def _loop(node: UOp) -> UOp | None:
    """The AFTER of a load from registers behind a loop."""
    from tinygrad.dtype import AddrSpace
    from tinygrad.uop.ops import Ops

    if node.op is not Ops.LOAD or node.src[0].op is not Ops.INDEX or node.src[0].src[0].op is not Ops.AFTER:
        return None
    after = node.src[0].src[0]
    registers = after.src[0].op is Ops.BUFFER and after.src[0].arg.addrspace is AddrSpace.REG
    return after if registers and any(part.op is Ops.END for part in after.src[1:]) else None


def _addends(node: UOp) -> tuple[list[tuple[Access, Access]], tuple[UOp, ...]]:
    """What a sum that is loaded behind its loop adds up, and the loops."""
    from tinygrad.uop.ops import Ops

    after = _loop(node)
    place = lowered.constant(node.src[0].src[1])
    if after is None or place is None:
        raise NoProduct("a sum is not kept at a fixed place")
    stores, loops = _ended(after.src[1:])
    carried = [store for store in stores if _at(store.src[0], after.src[0]) == place]
    if len(carried) != 1:
        raise NoProduct("a sum is added to at several places")
    before, _ = _ended(carried[0].src[0].src[0].src[1:])
    first = [store for store in before if _at(store.src[0], after.src[0]) == place]
    if [lowered.constant(store.src[1]) for store in first] != [0]:
        raise NoProduct("a sum does not start at zero")
    pairs: list[tuple[Access, Access]] = []
    for leaf in lowered.addends(carried[0].src[1]):
        if leaf.op is Ops.LOAD and leaf.src[0] is carried[0].src[0]:
            continue
        more, inner_loops = _pairs(leaf, tuple(loops))
        pairs += more
        loops += inner_loops
    return pairs, tuple(dict.fromkeys(loops))


def _ended(nodes: tuple[UOp, ...]) -> tuple[list[UOp], list[UOp]]:
    """The stores that must have happened, and the loops around them."""
    from tinygrad.uop.ops import Ops

    stores: list[UOp] = []
    loops: list[UOp] = []
    for node in nodes:
        if node.op is Ops.STORE:
            stores.append(node)
        elif node.op in (Ops.GROUP, Ops.END):
            inner, own = _ended(node.src[:1] if node.op is Ops.END else node.src)
            stores, loops = stores + inner, loops + own
            loops += [loop for loop in node.src[1:] if node.op is Ops.END and loop.op is Ops.RANGE]
    return stores, loops


def _at(index: UOp, buffer: UOp) -> float | int | None:
    """Where in a buffer an INDEX is; ``None`` for another buffer's, and for other places."""
    from tinygrad.uop.ops import Ops

    if index.op is not Ops.INDEX:
        return None
    below = index.src[0]
    while below.op is Ops.AFTER:
        below = below.src[0]
    return lowered.constant(index.src[1]) if below is buffer else None


def _pairs(leaf: UOp, loops: tuple[UOp, ...]) -> tuple[list[tuple[Access, Access]], tuple[UOp, ...]]:
    """The products that an addend is, and their own loops: one, or those that fibers have put together."""
    from tinygrad.uop.ops import Ops

    if leaf.op is Ops.MUL:
        return [(access(leaf.src[0]), access(leaf.src[1]))], ()
    pairs: list[tuple[Access, Access]] = []
    own: tuple[UOp, ...] = ()
    for each in lowered.addends(_shared(leaf, loops)):
        if _loop(each) is not None:
            more, inner = _addends(each)
            pairs, own = pairs + more, own + inner
        elif each.op is Ops.MUL:
            pairs.append((access(each.src[0]), access(each.src[1])))
        else:
            raise NoProduct(f"a sum adds a {each.op.name.lower()}, not a product of two loads")
    return pairs, own


def _shared(leaf: UOp, loops: tuple[UOp, ...]) -> UOp:
    """What another fiber of the workgroup has stored to local memory, as an expression of the loop."""
    from tinygrad.dtype import AddrSpace
    from tinygrad.uop.ops import Ops

    lane = 0
    if leaf.op is Ops.INDEX:
        lane, leaf = int(lowered.constant(leaf.src[1]) or 0), leaf.src[0]
    place = leaf.src[0] if leaf.op is Ops.LOAD else leaf
    if place.op not in (Ops.SHRINK, Ops.INDEX) or place.src[0].op is not Ops.AFTER or len(loops) != 1:
        raise NoProduct("a sum adds what is no product of two loads")
    memory = place.src[0].src[0]
    if memory.op is not Ops.BUFFER or memory.arg.addrspace is not AddrSpace.LOCAL:
        raise NoProduct("a sum adds what is no product of two loads")
    stored = [n for n in place.src[0].toposort() if n.op is Ops.STORE and n.src[0].src[0] is memory]
    fibers = {node for store in stored for node in symbols(Access(0, (store.src[0].src[1],), 0))}
    if len(stored) != 1 or len(fibers) != 1:
        raise NoProduct("a workgroup's sums are put together in a way of their own")
    (fiber,) = fibers
    value = stored[0].src[1]
    value = value.src[lane] if value.op is Ops.STACK else value
    turns = np.arange(size(loops[0]))
    wrote, read = (
        evaluate(stored[0].src[0].src[1], {fiber: turns}),
        evaluate(place.src[1], {loops[0]: turns}),
    )
    if size(fiber) != len(turns) or not np.array_equal(wrote, read):
        raise NoProduct("a workgroup's sums are put together in a way of their own")
    return lowered.transformed(value, lambda node, _: loops[0] if node is fiber else None)


def _found(sink: UOp, program: Program, weights: tuple[int, ...]) -> Product:
    found = list(_sums(sink))
    slots = {frozenset((one.slot, other.slot)) for each in found for one, other in each.pairs}
    outs = {each.store.slot for each in found}
    if len(slots) != 1 or len(outs) != 1 or len(next(iter(slots))) != 2:
        raise NoProduct(f"its sums are of {len(slots)} pairs of arguments and go to {len(outs)}")
    right = max(next(iter(slots)), key=lambda slot: (slot in weights, slot))
    (left,) = next(iter(slots)) - {right}
    table, left_steps, right_steps = tabled(found, sink, program, left)
    return _matrix(table, left_steps, right_steps, (outs.pop(), left, right))


def tabled(found: list[Sum], sink: UOp, program: Program, left: int) -> tuple[Indices, Indices, Indices]:
    """Where sums are and what they add up, in elements.

    Returns:
        Rows of (stored element, first left one, first right one), one column a sum; and how far behind the
        first ones the others are, left and right, which is the same for all sums.

    Raises:
        NoProduct: it is not.
    """
    from tinygrad.uop.ops import Ops

    loops = tuple(dict.fromkeys(loop for each in found for loop in each.loops))
    grid = [node for node in sink.toposort() if node.op is Ops.SPECIAL]
    used = {node for each in found for place in _accesses(each) for node in symbols(place)}
    fibers = [node for node in grid if node in used]
    places = mesh(fibers)
    rows = [_places(each, program, places, left) for each in found]
    left_steps, right_steps = _steps(found[0], program, loops, left, {})
    generator = np.random.default_rng(0)
    for each in found:
        for _ in range(_PROBES):
            at = {node: np.int64(generator.integers(size(node))) for node in fibers}
            if not np.array_equal(_steps(each, program, loops, left, at), (left_steps, right_steps)):
                raise NoProduct("its sums do not step through their arguments alike")
    return np.concatenate(rows, axis=1), left_steps, right_steps


def _accesses(each: Sum) -> Iterator[Access]:
    yield each.store
    for pair in each.pairs:
        yield from pair


def _sided(pair: tuple[Access, Access], left: int) -> tuple[Access, Access]:
    return pair if pair[0].slot == left else (pair[1], pair[0])


def _places(each: Sum, program: Program, places: Mapping[UOp, Indices], left: int) -> Indices:
    """(stored element, first left element, first right element) of each fiber."""
    one, other = _sided(each.pairs[0], left)
    parts = [elements(place, program, places) for place in (each.store, one, other)]
    size = max((len(axis) for axis in places.values()), default=1)
    return np.stack([np.broadcast_to(part, size) for part in parts])


def _steps(
    each: Sum, program: Program, loops: tuple[UOp, ...], left: int, at: Mapping[UOp, Any]
) -> tuple[Indices, Indices]:
    """How far each product's elements are behind the first's, in the order of the left ones."""
    turns = mesh(list(loops))
    sides: list[list[Indices]] = [[], []]
    count = max((len(axis) for axis in turns.values()), default=1)
    for pair in each.pairs:
        for side, one_of in enumerate(_sided(pair, left)):
            place = elements(one_of, program, {**at, **turns})
            sides[side].append(np.broadcast_to(place, count))
    one, other = (np.concatenate(side) for side in sides)
    start_one, start_other = sides[0][0][0], sides[1][0][0]
    order = np.argsort(one, kind="stable")
    return (one - start_one)[order], (other - start_other)[order]


def _matrix(
    table: Indices, left_steps: Indices, right_steps: Indices, slots: tuple[int, int, int]
) -> Product:
    """The product whose stored elements and first factors are the columns of ``table``."""
    stored, one, other = table[:, np.argsort(table[0], kind="stable")]
    rows, row = np.unique(one, return_inverse=True)
    m, n, k = len(rows), len(np.unique(other)), len(left_steps)
    if m * n != len(stored):
        raise NoProduct(f"it stores {len(stored)} values of {m} rows and {n} columns")
    if not np.array_equal(left_steps - left_steps[0], np.arange(k)):
        raise NoProduct("its left rows are not one element after the other")
    columns = other[row == row[0]]
    strides = np.diff(rows)
    out_start, out_stride = int(stored[0]), int(stored[n] - stored[0]) if m > 1 else n
    expected = out_start + out_stride * np.arange(m)[:, None] + np.arange(n)[None, :]
    regular = len(columns) == n and np.array_equal(np.tile(columns, m), other)
    if not regular or not np.array_equal(expected.ravel(), stored) or len(np.unique(strides)) > 1:
        raise NoProduct("its rows and columns are not stored in order")
    if not np.array_equal(row, np.repeat(np.arange(m), n)):
        raise NoProduct("its rows and columns are not stored in order")
    out, left, right = slots
    return Product(
        out=out,
        left=left,
        right=right,
        m=m,
        n=n,
        k=k,
        left_start=int(rows[0] + left_steps[0]),
        left_stride=int(strides[0]) if m > 1 else k,
        out_start=out_start,
        out_stride=out_stride,
        columns=columns,
        steps=right_steps,
    )


def products(calls: tuple[Call, ...]) -> dict[int, Product]:
    """The calls that are products, by number."""
    found = ((number, product(call)) for number, call in enumerate(calls))
    return {number: each for number, each in found if isinstance(each, Product)}
