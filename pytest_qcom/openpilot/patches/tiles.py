"""Patches that give a fiber a larger tile: what two fibers computed, with what both loaded loaded once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import lowered, products
from pytest_qcom.openpilot.graph import Call, Graph, Kind, Program
from pytest_qcom.openpilot.patch import Findings, Patch, in_place, single
from pytest_qcom.openpilot.products import Product

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

_FACTOR = 2
SUMS = 16
"""Sums that a fiber may have before: four rows of a vec4. Twice as many still have registers."""


@functools.lru_cache(maxsize=256)
def coarsened(program: Program, axis: str) -> Program:
    """The program with half as many groups or fibers along an axis, each doing what two did.

    Args:
        axis: ``gidx0`` to ``lidx2``, as the UOps call it.

    Raises:
        GraphError: fibers exchange values, or there is an odd number along the axis.
    """
    from tinygrad.dtype import AddrSpace
    from tinygrad.uop.ops import Ops, UOp

    sink = lowered.body(program)
    if lowered.has_local_memory(sink):
        raise GraphError("its fibers exchange values within a workgroup")
    done: dict[UOp, tuple[UOp, ...]] = {}

    def variants(node: UOp) -> tuple[UOp, ...]:
        if node.op is Ops.SPECIAL and node.arg == axis:
            twice = _halved(node) * lowered.number(_FACTOR)
            return tuple(twice + lowered.number(copy) for copy in range(_FACTOR))
        if node.op is Ops.BUFFER and node.arg.addrspace is AddrSpace.REG:
            slots = [replace(node.arg, slot=node.arg.slot * _FACTOR + copy) for copy in range(_FACTOR)]
            return tuple(node.replace(arg=slot) for slot in slots)
        sources = [done[source] for source in node.src]
        if node.op is Ops.END:  # one loop for both
            return (node.replace(src=(UOp.group(*dict.fromkeys(sources[0])), *node.src[1:])),) * _FACTOR
        if node.op is Ops.SINK:
            parts = dict.fromkeys(part for source in sources for part in source)
            return (node.replace(src=tuple(parts)),) * _FACTOR
        made = tuple(node.replace(src=tuple(s[copy] for s in sources)) for copy in range(_FACTOR))
        if node.op is Ops.RANGE and made[0] is not made[1]:
            raise GraphError("its loops depend on the fiber")
        return made

    for node in sink.toposort():
        done[node] = variants(node)
    return lowered.compiled(program, done[sink][0])


def _halved(node: UOp) -> UOp:
    """A SPECIAL of half the size."""
    size = int(lowered.constant(node.src[0]) or 0)
    if size % _FACTOR:
        raise GraphError(f"there are {size} along {node.arg}, which is no even number")
    return node.replace(src=(lowered.number(size // _FACTOR),))


def _loads(sink: UOp) -> Iterator[tuple[int, UOp, bool]]:
    """(argument, index, whether only under a condition) of each load of an argument."""
    from tinygrad.uop.ops import Ops

    for node in sink.toposort():
        if node.op is Ops.LOAD and node.src[0].op is Ops.INDEX and node.src[0].src[0].op is Ops.PARAM:
            for index in node.src[0].src[1:]:
                yield node.src[0].src[0].arg.slot, index, len(node.src) > 1


def _axes(call: Call, program: Program) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Axes along which fibers share what they multiply with, those along which they share what is multiplied;
    and whether something is loaded under a condition only, as at the edges of a convolution."""
    from tinygrad.uop.ops import Ops

    sink = lowered.body(program)
    depends: dict[bool, set[str]] = {True: set(), False: set()}
    largest = max(
        (slot for slot, view in enumerate(call.views) if view.memory.kind is Kind.WEIGHT),
        key=lambda slot: call.views[slot].nbytes,
        default=-1,
    )
    guarded = False
    for slot, index, under in _loads(sink):
        guarded = guarded or under
        kind = call.views[slot].memory.kind
        if slot != largest and kind is Kind.WEIGHT:
            continue
        names = {n.arg for n in index.toposort() if n.op is Ops.SPECIAL}
        depends[slot == largest] |= names
    special = [n for n in sink.toposort() if n.op is Ops.SPECIAL and (lowered.constant(n.src[0]) or 0) > 1]
    order = sorted((n.arg for n in special), key=lambda name: (name[0] != "g", name))
    rows = tuple(name for name in order if name in depends[False] - depends[True])
    columns = tuple(name for name in order if name in depends[True] - depends[False])
    return rows, columns, guarded


def _sums(program: Program) -> int:
    """How many sums a fiber carries through its loops."""
    from tinygrad.dtype import AddrSpace
    from tinygrad.uop.ops import Ops

    registers = [
        node
        for node in lowered.body(program).toposort()
        if node.op is Ops.BUFFER and node.arg.addrspace is AddrSpace.REG
    ]
    return sum(int(node.max_numel()) for node in registers)


def _coarser(
    call: Call, program: Program, convolution: bool, columns: bool
) -> tuple[dict[str, str], Program] | str:
    """The axis along which to give fibers twice as much, and the program; nothing for calls of another kind.

    Raises:
        GraphError: why there is none.
    """
    if not any(view.memory.kind is Kind.WEIGHT for view in call.ins):
        return ""
    sums = _sums(program)
    if not sums or isinstance(products.product(call), Product) == convolution:
        return ""
    rows, across, guarded = _axes(call, program)
    if convolution and not guarded:
        return ""
    if sums > SUMS:
        raise GraphError(f"its fibers have {sums} sums already; twice as many have no registers")
    reason = "no axis has an even number along which fibers share what they load"
    for axis in across if columns else rows:
        try:
            return {"axis": axis}, coarsened(program, axis)
        except GraphError as error:
            reason = str(error)
    return reason


def _find(convolution: bool, columns: bool) -> Callable[[Graph], Findings]:
    return single(lambda call, program: _coarser(call, program, convolution, columns))


_coarsen = in_place(lambda call, program: program)


PATCHES = (
    Patch(
        name="firstconv-tile8",
        summary="a convolution's fibers compute twice as many places, and load each weight for all of them",
        find=_find(convolution=True, columns=False),
        rewrite=_coarsen,
        models=("stem",),
        source="eight places share a weight where four did",
    ),
    Patch(
        name="forward-tile8",
        summary="a product's fibers compute eight rows, and load each weight for all of them",
        find=_find(convolution=False, columns=False),
        rewrite=_coarsen,
        models=("vision-mlp",),
        source="weights are half of what a product of four rows samples",
    ),
    Patch(
        name="forward-tile8x4",
        summary="a product's fibers compute two vec4 columns, and load each row's element for both",
        find=_find(convolution=False, columns=True),
        rewrite=_coarsen,
        models=("vision-mlp",),
        source="rows are the other half",
    ),
)
