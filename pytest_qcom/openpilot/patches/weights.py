"""Patches of how weights lie: what neighbouring fibers load at once is put side by side."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_qcom.chip import A630
from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import accesses, lowered
from pytest_qcom.openpilot.accesses import Access, Indices, NoProduct
from pytest_qcom.openpilot.graph import LANES, Call, Kind, Program, View, weight
from pytest_qcom.openpilot.patch import Patch, in_place, single

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

_ROW = 16  # texels to a multiple of which rows of an image are long, whatever their type
_LARGEST = 1 << 22  # texels of a weight that are looked at


@dataclass(frozen=True, eq=False)
class Packing:
    """Another layout of an image of weights.

    Attributes:
        program: reads it.
        texels: of each texel of the new image, the one of the old image that it holds.
        shape: of the new image.
    """

    program: Program
    texels: Indices
    shape: tuple[int, int, int]


@functools.lru_cache(maxsize=256)
def packing(program: Program, slot: int) -> Packing | str:
    """The layout in which fibers that differ in their last index load neighbouring texels; or why it stays.

    A row of the new image is what all fibers load at once; rows follow the loops.
    """
    try:
        return _packing(program, slot)
    except (NoProduct, GraphError) as error:
        return str(error)


def _packing(program: Program, slot: int) -> Packing:
    from tinygrad.uop.ops import Ops

    sink = lowered.body(program)
    loads = [
        node
        for node in sink.toposort()
        if node.op is Ops.INDEX and node.src[0].op is Ops.PARAM and node.src[0].arg.slot == slot
    ]
    own = [Access(slot, node.src[1:], 0) for node in loads]
    fibers = sorted({n for each in own for n in accesses.symbols(each)}, key=_speed)
    loops = sorted({n for each in own for n in accesses.loops_of(each)}, key=lambda node: node.arg[0])
    if not loops or not fibers:
        raise GraphError("its weights are not loaded in a loop, or are the same for all fibers")
    sizes = [accesses.size(node) for node in (*loops, *fibers)]
    height = math.prod(sizes[: len(loops)]) * len(loads)
    width = math.prod(sizes[len(loops) :])
    shape = (height, width, LANES) if width % _ROW == 0 else (1, height * width, LANES)
    if height * width > _LARGEST or max(shape) > A630.images.side.value or shape[1] % _ROW:
        raise GraphError(f"its weights would be an image of {height} rows of {width} texels")
    places = accesses.mesh([*loops, *fibers])
    read = np.stack([accesses.elements(each, program, places) // LANES for each in own])
    if _neighbours(read, accesses.size(fibers[-1])):
        raise GraphError("neighbouring fibers load neighbouring texels of its weights already")
    texels = read.reshape(len(loads), -1, width).transpose(1, 0, 2).reshape(-1)
    made = _rebuilt(sink, loads, loops, fibers, shape)
    return Packing(lowered.compiled(program, made), texels, shape)


def _speed(node: UOp) -> tuple[bool, int]:
    """Orders groups before fibers, and these such that the one along x, which varies fastest, is last."""
    return node.arg.startswith("l"), -int(node.arg[-1])


def _neighbours(read: Indices, last: int) -> bool:
    """Whether fibers whose last index differs by one read texels that differ by one."""
    rows = read.reshape(-1, last)
    return last == 1 or bool((np.diff(rows, axis=1) == 1).all())


def _rebuilt(
    sink: UOp, loads: list[UOp], loops: list[UOp], fibers: list[UOp], shape: tuple[int, int, int]
) -> UOp:
    from tinygrad.uop.ops import Ops, UOp

    def mixed(nodes: list[UOp]) -> UOp:
        total = nodes[0]
        for node in nodes[1:]:
            total = total * lowered.number(accesses.size(node)) + node
        return total

    param = loads[0].src[0]

    def change(node: UOp, sources: tuple[UOp, ...]) -> UOp | None:
        if node is param:
            return node.replace(src=(UOp(Ops.STACK, src=tuple(map(lowered.number, shape))),))
        if node in loads:
            row = mixed(loops) * lowered.number(len(loads)) + lowered.number(loads.index(node))
            column = mixed(fibers)
            if shape[0] == 1:
                width = math.prod(map(accesses.size, fibers))
                row, column = lowered.number(0), row * lowered.number(width) + column
            return node.replace(src=(sources[0], row, column))
        return None

    return lowered.transformed(sink, change)


def _slot(call: Call, program: Program) -> int | None:
    """The largest image of weights that a call reads."""
    images = [
        slot
        for slot, view in enumerate(call.views)
        if view.memory.kind is Kind.WEIGHT and program.parameters[slot].image
    ]
    return max(images, key=lambda slot: call.views[slot].nbytes, default=None)


def _judge(call: Call, program: Program) -> tuple[dict[str, Any], tuple[int, Packing]] | str:
    slot = _slot(call, program)
    if slot is None:
        return ""
    found = packing(program, slot)
    return (
        found if isinstance(found, str) else ({"argument": slot, "image": list(found.shape)}, (slot, found))
    )


def _pack(call: Call, found: tuple[int, Packing]) -> tuple[Call]:
    slot, new = found
    old = call.views[slot].array().reshape(-1, LANES)
    laid_out = View.of(weight(old[new.texels].reshape(new.shape)))
    views = (*call.views[:slot], laid_out, *call.views[slot + 1 :])
    return (replace(call, program=new.program, views=views),)


PATCHES = (
    Patch(
        name="pack-conv-weights",
        summary="weights are laid out such that neighbouring fibers load neighbouring texels",
        find=single(_judge),
        rewrite=in_place(_pack),
        models=("vision-mlp", "heads", "shared-heads", "stem"),
        source="a row of texels for all fibers is a line of the texture cache",
    ),
)
