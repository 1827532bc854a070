"""Which elements of its arguments a program loads and stores, by fiber and by turn of its loops."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import lowered
from pytest_qcom.openpilot.graph import LANES, Program

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

Indices = NDArray[np.int64]


class NoProduct(Exception):
    """It is no product, for the reason that it says; no error of a graph."""


@dataclass(frozen=True, slots=True)
class Access:
    """A load of an element: the argument, its index by dimension, the lane of what is loaded."""

    slot: int
    index: tuple[UOp, ...]
    lane: int


def access(node: UOp) -> Access:
    from tinygrad.uop.ops import Ops

    while node.op is Ops.CAST:
        node = node.src[0]
    lane = 0
    if node.op is Ops.INDEX:
        lane, node = int(lowered.constant(node.src[1]) or 0), node.src[0]
    if node.op is not Ops.LOAD or node.src[0].op is not Ops.INDEX or node.src[0].src[0].op is not Ops.PARAM:
        raise NoProduct(f"a factor is a {node.op.name.lower()} and no load of an argument")
    if len(node.src) != 1:
        raise NoProduct("a factor is loaded only where a condition holds")
    return Access(node.src[0].src[0].arg.slot, node.src[0].src[1:], lane)


def size(node: UOp) -> int:
    """How many values a SPECIAL or RANGE takes."""
    return int(lowered.constant(node.src[0]) or 0)


def evaluate(node: UOp, values: Mapping[UOp, Indices], default: int | None = None) -> Indices:
    """An index for values of the symbols in it; those that are not given are ``default``."""
    from tinygrad.uop.ops import Ops

    two = {
        Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.SHL: np.left_shift, Ops.SHR: np.right_shift,
        Ops.AND: np.bitwise_and, Ops.CDIV: np.floor_divide, Ops.CMOD: np.remainder,
    }  # fmt: skip

    def value(at: UOp) -> Any:
        if at in values:
            return values[at]
        if at.op in (Ops.SPECIAL, Ops.RANGE):  # what a loop waits for is no part of the index
            if default is None:
                raise NoProduct(f"an index depends on {at.arg}")
            return np.int64(default)
        if at.op is Ops.CONST:
            return np.int64(at.arg)
        if at.op is Ops.CAST:
            return value(at.src[0])
        if at.op in two:
            return two[at.op](value(at.src[0]), value(at.src[1]))
        raise NoProduct(f"an index is computed with a {at.op.name.lower()}")

    return np.asarray(value(node), np.int64)


def elements(access: Access, program: Program, values: Mapping[UOp, Indices]) -> Indices:
    """The element of its argument that an access is to."""
    shape = program.parameters[access.slot].shape
    index = [evaluate(part, values, default=0) for part in access.index]
    if len(index) == 1:
        return index[0] + access.lane
    if len(index) != 2 or not program.parameters[access.slot].image:
        raise NoProduct(f"argument {access.slot} is indexed in {len(index)} dimensions")
    return (index[0] * shape[1] + index[1]) * LANES + access.lane


def symbols(access: Access) -> Iterator[UOp]:
    from tinygrad.uop.ops import Ops

    pending = list(access.index)
    while pending:
        node = pending.pop()
        if node.op is Ops.SPECIAL:
            yield node
        elif node.op is not Ops.RANGE:
            pending += node.src


def mesh(nodes: list[UOp]) -> dict[UOp, Indices]:
    """Every combination of the values of some symbols, one after the other."""
    axes = np.meshgrid(*(np.arange(size(node)) for node in nodes), indexing="ij")
    return {node: axis.ravel() for node, axis in zip(nodes, axes, strict=True)}


_MESH = 1 << 22  # combinations of fibers and turns of loops that are looked at


@functools.lru_cache(maxsize=1024)
def reads(program: Program, slot: int) -> Indices | None:
    """Which elements of an argument a program loads; ``None`` where that cannot be told.

    What lies between rows of an image is not loaded, and holds whatever was there before.
    """
    from tinygrad.uop.ops import Ops

    try:
        sink = lowered.body(program)
        found = []
        for node in sink.toposort():
            if node.op is Ops.PARAM or not any(
                part.op is Ops.PARAM and part.arg.slot == slot for part in node.src
            ):
                continue
            if node.op is not Ops.INDEX:
                return None
            place = Access(slot, node.src[1:], 0)
            places = mesh(sorted({*symbols(place), *loops_of(place)}, key=lambda each: str(each.arg)))
            if max((len(axis) for axis in places.values()), default=1) > _MESH:
                return None
            lanes = LANES if program.parameters[slot].image else 1
            found += [elements(place, program, places) + lane for lane in range(lanes)]
        return np.unique(np.concatenate([each.ravel() for each in found])) if found else None
    except (NoProduct, GraphError):
        return None


def loops_of(access: Access) -> set[UOp]:
    """The loops that an index depends on."""
    from tinygrad.uop.ops import Ops

    found: set[UOp] = set()
    pending = list(access.index)
    while pending:
        node = pending.pop()
        if node.op is Ops.RANGE:
            found.add(node)
        elif node.op is not Ops.SPECIAL:
            pending += node.src
    return found
