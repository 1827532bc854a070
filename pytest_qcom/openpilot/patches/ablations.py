"""Patches that leave something out: they change what a model computes, to show what the rest takes."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import lowered, products
from pytest_qcom.openpilot.graph import Call, Program
from pytest_qcom.openpilot.patch import Patch, Tolerance, in_place, single
from pytest_qcom.openpilot.products import Product

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


@functools.lru_cache(maxsize=256)
def raw(program: Program) -> tuple[Program, tuple[int, ...]] | str:
    """A product's program that stores its sums as they are, and which arguments it still has; or why there
    is none."""
    try:
        return _raw(program)
    except GraphError as error:
        return str(error)


def _raw(program: Program) -> tuple[Program, tuple[int, ...]]:
    from tinygrad.uop.ops import Ops

    sink = lowered.body(program)
    values = {store: _sum_of(store.src[1]) for _, store in lowered.stores(sink)}
    if all(bare for _, bare in values.values()):
        raise GraphError("it stores its sums as they are")

    def change(node: UOp, sources: tuple[UOp, ...]) -> UOp | None:
        if node not in values:
            return None
        return node.replace(src=(sources[0], values[node][0], *sources[2:]))

    made = lowered.transformed(sink, change)
    kept = tuple(sorted({node.arg.slot for node in made.toposort() if node.op is Ops.PARAM}))

    def numbered(node: UOp, _: tuple[UOp, ...]) -> UOp | None:
        if node.op is not Ops.PARAM:
            return None
        return node.replace(arg=replace(node.arg, slot=kept.index(node.arg.slot)))

    made = lowered.transformed(made, numbered)
    return lowered.compiled(program, made, f"raw_{program.function}"), kept


def _sum_of(value: UOp) -> tuple[UOp, bool]:
    """The sums of which a stored value is made, in its type; and whether it is no more than they are."""
    from tinygrad.uop.ops import Ops

    stacked = value.op is Ops.STACK
    parts, bare = [], True
    for each in value.src if stacked else (value,):
        (total,) = products.totals(each)
        below = each
        while below.op is Ops.CAST:
            below = below.src[0]
        bare = bare and below is total
        parts.append(total if total.dtype == each.dtype else total.cast(each.dtype))
    return (value.replace(src=tuple(parts)) if stacked else parts[0]), bare


def _judge(call: Call, program: Program) -> tuple[dict[str, Any], tuple[Program, tuple[int, ...]]] | str:
    if not isinstance(products.product(call), Product):
        return ""
    found = raw(program)
    if isinstance(found, str):
        return found
    return {"left out": [slot for slot in range(len(call.views)) if slot not in found[1]]}, found


def _leave_out(call: Call, found: tuple[Program, tuple[int, ...]]) -> tuple[Call]:
    program, kept = found
    return (replace(call, program=program, views=tuple(call.views[slot] for slot in kept)),)


PATCHES = (
    Patch(
        name="raw-sums",
        summary="products store their sums, without bias, activation or residual: an ablation",
        find=single(_judge),
        rewrite=in_place(_leave_out),
        models=("vision-mlp", "heads", "shared-heads", "attention"),
        tolerance=Tolerance(math.inf, "it changes what the model computes, to show what epilogues take"),
        source="how much of a product's time and instructions is what it does behind its loop",
    ),
)
