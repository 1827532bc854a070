"""What a product's program does with a sum before it stores it, as an expression to be used elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import accesses, lowered, products
from pytest_qcom.openpilot.accesses import NoProduct
from pytest_qcom.openpilot.graph import Program
from pytest_qcom.openpilot.products import Product

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

COLUMN, ELEMENT = "column", "element"
"""What an argument of an epilogue is indexed by: the column, as a bias is, or the place in the output."""


@dataclass(frozen=True, eq=False)
class Epilogue:
    """A value that is stored, as an expression of its sum and of elements of other arguments.

    Attributes:
        value, total: the expression, and the sum in it.
        leaves: the loads in it, each with the argument's number and what it is indexed by.
        key: equal for expressions that do the same with arguments in the same order.
    """

    value: UOp
    total: UOp
    leaves: Mapping[UOp, tuple[int, str]]
    key: str

    @property
    def arguments(self) -> dict[int, str]:
        """By what each further argument is indexed, by the argument's number."""
        return dict(sorted(set(self.leaves.values())))

    def of(self, total: UOp, loaded: Mapping[int, UOp]) -> UOp:
        """The value for another sum and other loads of the arguments."""

        def change(node: UOp, _: tuple[UOp, ...]) -> UOp | None:
            if node is self.total:
                return total
            return loaded[self.leaves[node][0]] if node in self.leaves else None

        return _rebuilt(self.value, change, {self.total, *self.leaves})


def _rebuilt(value: UOp, change: Any, stops: set[UOp]) -> UOp:
    """An expression with some nodes replaced; what those were made of is not looked at."""
    done: dict[UOp, UOp] = {}

    def build(node: UOp) -> UOp:
        if node not in done:
            sources = () if node in stops else tuple(build(source) for source in node.src)
            new = change(node, sources)
            done[node] = (
                new if new is not None else node if sources == node.src else node.replace(src=sources)
            )
        return done[node]

    return build(value)


@functools.lru_cache(maxsize=256)
def epilogue(program: Program, product: Product) -> Epilogue:
    """The epilogue of a product.

    Raises:
        GraphError: it is not the same for each element, or an argument is indexed in another way.
    """
    sink = lowered.body(program)
    try:
        found = [
            _lane(program, product, slot, store, lane, value)
            for slot, store in lowered.stores(sink)
            for lane, value in enumerate(lowered.lanes(store))
        ]
    except NoProduct as error:
        raise GraphError(str(error)) from error
    if len({each.key for each in found}) != 1:
        raise GraphError("it does not do the same with each sum")
    return found[0]


def _lane(program: Program, product: Product, slot: int, store: UOp, lane: int, value: UOp) -> Epilogue:
    from tinygrad.uop.ops import Ops

    (total,) = products.totals(value)
    leaves: dict[UOp, tuple[int, str]] = {}

    def text(node: UOp) -> str:
        if node is total:
            return "sum"
        if (number := lowered.constant(node)) is not None:
            return repr(float(number))
        if node.op in (Ops.LOAD, Ops.INDEX):
            access = accesses.access(node)
            leaves[node] = (
                access.slot,
                _indexed(program, product, accesses.Access(slot, store.src[0].src[1:], lane), access),
            )
            return f"{leaves[node][1]}{access.slot}"
        if node.op in (Ops.SPECIAL, Ops.RANGE, Ops.AFTER):
            raise GraphError(f"it depends on a {node.op.name.lower()} besides its sum")
        return f"{node.op.name}:{node.dtype}({', '.join(map(text, node.src))})"

    key = text(value)
    return Epilogue(value, total, leaves, key)


def _indexed(program: Program, product: Product, stored: accesses.Access, read: accesses.Access) -> str:
    """By what an argument is indexed."""
    places = accesses.mesh(list(dict.fromkeys((*accesses.symbols(stored), *accesses.symbols(read)))))
    count = max((len(axis) for axis in places.values()), default=1)
    out = np.broadcast_to(accesses.elements(stored, program, places), count)
    element = np.broadcast_to(accesses.elements(read, program, places), count)
    if np.array_equal(element, (out - product.out_start) % max(product.out_stride, 1)):
        return COLUMN  # of a single row, also one that is indexed by place
    if np.array_equal(element, out):
        return ELEMENT
    raise GraphError(f"its argument {read.slot} is indexed by neither column nor place")
