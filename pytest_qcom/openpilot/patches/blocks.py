"""Patches of blocks of products: small ones side by side, two behind each other, and one left out."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_qcom.errors import GraphError, KernelError
from pytest_qcom.kernels import integer
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.openpilot import fused, inserted, products
from pytest_qcom.openpilot.epilogues import COLUMN, epilogue
from pytest_qcom.openpilot.fused import Stage
from pytest_qcom.openpilot.graph import Call, Graph, Kind, Memory, Program, View, temporary, weight
from pytest_qcom.openpilot.patch import Edit, Findings, Patch, Refusal, Site, Tolerance, in_place, single
from pytest_qcom.openpilot.products import Product

_SUMS = Tolerance(2e-3, "the same products of halves, added up in another order")


_NO_WEIGHT = "its right argument is no weight, which could be laid out anew"


def _stage(call: Call, product: Product) -> Stage:
    """A product with its epilogue.

    Raises:
        GraphError: its right argument is no weight, or as for :func:`_staged`.
    """
    assert call.program is not None
    if call.views[product.right].memory.kind is not Kind.WEIGHT:
        raise GraphError(_NO_WEIGHT)
    return _staged(call.program, product)


def _staged(program: Program, product: Product) -> Stage:
    """A product with its epilogue, whatever its right argument is.

    Raises:
        GraphError: it does not do the same with each sum, or its operands are not halves.
    """
    found = epilogue(program, product)
    parameters = program.parameters
    if {parameters[slot].dtype for slot in (product.left, product.right)} != {"float16"}:
        raise GraphError("its operands are not in halves")
    return Stage(product, found, tuple((slot, parameters[slot].dtype) for slot in found.arguments))


def _out(call: Call, product: Product) -> str:
    assert call.program is not None
    return call.program.parameters[product.out].dtype


# Rows


Row = tuple[Stage, Build]
"""A product of one row, and its kernel."""


def _judge_row(call: Call, program: Program, name: str) -> tuple[dict[str, int], Row] | str:
    product = products.product(call)
    if isinstance(product, str) or product.m != 1:
        return ""
    if call.views[product.right].memory.kind is not Kind.WEIGHT:
        return _NO_WEIGHT
    found = _row(program, product, name)
    return found if isinstance(found, str) else ({"n": product.n, "k": product.k}, found)


@functools.lru_cache(maxsize=256)
def _row(program: Program, product: Product, name: str) -> Row | str:
    """Once for all calls of a program, as heads often are."""
    try:
        stage = _staged(program, product)
        out = program.parameters[product.out].dtype
        return stage, fused.row_product(name, stage, out, name == _QUANTIZED)
    except (GraphError, KernelError) as error:
        return str(error)


def _replace_row(call: Call, found: Row, name: str) -> tuple[Call]:
    stage, build = found
    matrix = stage.product.matrix(call)
    views = {
        "out": call.views[stage.product.out],
        "left": call.views[stage.product.left],
        "right": View.of(weight(matrix)),
        **{f"e{slot}": call.views[slot] for slot, _ in stage.extra},
    }
    if name == _QUANTIZED:
        values, scale = integer.quantized(matrix, axis=0)
        words = np.ascontiguousarray((values + integer.BIAS).astype(np.uint8)).view("<u4")
        views |= {"right": View.of(weight(words)), "scale": View.of(weight(scale.reshape(-1)))}
    return (inserted.hand(call, name, build, views, {}),)


_QUANTIZED = "quant_head"


# Side by side


def _groups(graph: Graph) -> Iterator[tuple[tuple[int, ...], str]]:
    """Products of one row that multiply the same one and do the same with the sums; or why they do not."""
    levels = graph.levels()
    found: dict[Any, list[int]] = {}
    for number, product in products.products(graph.calls).items():
        call = graph.calls[number]
        if product.m != 1 or call.label == "head_batch":
            continue
        try:
            stage = _stage(call, product)
        except GraphError as error:
            yield (number,), str(error)
            continue
        out = call.views[product.out]
        kinds = {call.views[slot].memory.kind for slot in stage.epilogue.arguments}
        if set(stage.epilogue.arguments.values()) - {COLUMN} or kinds - {Kind.WEIGHT}:
            yield (number,), "it adds what is not the same for every run to its columns"
        elif out.memory.kind is not Kind.TEMPORARY or product.out_start or out.nbytes % 64:
            yield (number,), "its result is returned, or does not lie where a part of a larger one could"
        else:
            left = call.views[product.left]
            key = (levels[number], left, product.k, product.left_start, stage.epilogue.key, out.dtype)
            found.setdefault(key, []).append(number)
    for numbers in found.values():
        yield tuple(numbers), "" if len(numbers) > 1 else "no other product multiplies the same row"


def _find_groups(graph: Graph) -> Findings:
    sites, refusals = [], []
    for numbers, reason in _groups(graph):
        if not reason:
            try:
                sites.append(Site(numbers, found=_batch(graph, numbers)))
                continue
            except (GraphError, KernelError) as error:
                reason = str(error)
        refusals += [Refusal(number, reason) for number in numbers]
    return tuple(sites), tuple(refusals)


def _batch(graph: Graph, numbers: tuple[int, ...]) -> tuple[Build, Stage, list[Product]]:
    calls = [graph.calls[number] for number in numbers]
    own = [product for product in map(products.product, calls) if isinstance(product, Product)]
    stage = _stage(calls[0], own[0])
    for call, product in zip(calls, own, strict=True):
        if call.views[product.out].nbytes != product.n * np.dtype(_out(call, product)).itemsize:
            raise GraphError("its result is stored with gaps")
    whole = replace(stage, product=replace(own[0], n=sum(product.n for product in own)))
    return fused.row_product("head_batch", whole, _out(calls[0], own[0])), whole, own


def _merge(graph: Graph, site: Site) -> Edit:
    """One product with all columns; readers get their part of its result."""
    build, stage, own = site.found
    calls = [graph.calls[number] for number in site.calls]
    out = _out(calls[0], own[0])
    size = np.dtype(out).itemsize
    result = temporary(out, stage.product.n)
    matrices = [product.matrix(call) for product, call in zip(own, calls, strict=True)]
    views = {
        "out": View.of(result),
        "left": calls[0].views[own[0].left],
        "right": View.of(weight(np.concatenate(matrices, axis=1))),
    }
    for slot, _ in stage.extra:
        parts = [call.views[slot].array()[: product.n] for product, call in zip(own, calls, strict=True)]
        views[f"e{slot}"] = View.of(weight(np.concatenate(parts)))
    aliases: dict[Memory, View] = {}
    start = 0
    for product, call in zip(own, calls, strict=True):
        aliases[call.views[product.out].memory] = View(result, start, product.n * size, out)
        start += product.n * size
    launch = inserted.hand(calls[0], "head_batch", build, views, {})
    first, *others = site.calls
    return Edit(calls={first: (launch,), **{number: () for number in others}}, aliases=aliases)


# Behind each other


def _chains(graph: Graph) -> Iterator[tuple[int, int, Stage, Stage] | Refusal]:
    """A product that multiplies what another one stores, which nobody else reads."""
    found = products.products(graph.calls)
    for number, down in found.items():
        call = graph.calls[number]
        between = call.views[down.left]
        before = graph.writer(between, number)
        if before not in found or between.memory.kind is not Kind.TEMPORARY:
            continue
        up, earlier = found[before], graph.calls[before]
        if earlier.views[up.out] != between or graph.readers(between.memory) != (number,):
            yield Refusal(number, "what it multiplies is read by others, too")
        elif (up.m, up.n, up.out_start, up.out_stride) != (down.m, down.k, down.left_start, down.left_stride):
            yield Refusal(number, "what it multiplies is not the rows that the product before it stores")
        else:
            try:
                yield before, number, _stage(earlier, up), _stage(call, down)
            except GraphError as error:
                yield Refusal(number, str(error))


def _find_chains(graph: Graph) -> Findings:
    sites, refusals = [], []
    for found in _chains(graph):
        if isinstance(found, Refusal):
            refusals.append(found)
            continue
        before, number, first, second = found
        try:
            fused.rows_of(first.product, second.product)
        except GraphError as error:
            refusals.append(Refusal(number, str(error)))
        else:
            sites.append(Site((before, number), found=(first, second)))
    return _apart(sites), tuple(refusals)


def _apart(sites: list[Site]) -> tuple[Site, ...]:
    """Those that share no call with one before them: of three products behind each other two are a chain."""
    found: list[Site] = []
    for site in sites:
        if not any(set(site.calls) & set(other.calls) for other in found):
            found.append(site)
    return tuple(found)


def _fuse(graph: Graph, site: Site) -> Edit:
    before, number = site.calls
    first, second = site.found
    earlier, call = graph.calls[before], graph.calls[number]
    build = fused.chain("fused_mlp", first, second, _out(call, second.product))
    views = {
        "left": earlier.views[first.product.left],
        "right1": View.of(weight(first.product.matrix(earlier))),
        "right2": View.of(weight(second.product.matrix(call))),
        **{f"first{slot}": earlier.views[slot] for slot, _ in first.extra},
        **{f"second{slot}": call.views[slot] for slot, _ in second.extra},
        "out": call.views[second.product.out],
    }
    return Edit(calls={before: (), number: (inserted.hand(call, "fused_mlp", build, views, {}),)})


def _find_branches(graph: Graph) -> Findings:
    """Chains whose result is an intermediate one, to which something is added later."""
    sites, refusals = [], []
    for found in _chains(graph):
        if isinstance(found, Refusal):
            refusals.append(found)
            continue
        before, number, *_ = found
        call = graph.calls[number]
        if any(view.memory.kind is not Kind.TEMPORARY for view in call.outs):
            refusals.append(Refusal(number, "its result is returned"))
        else:
            sites.append(Site((before, number)))
    return _apart(sites), tuple(refusals)


def _skip(graph: Graph, site: Site) -> Edit:
    """Zeros in the place of a chain's result."""
    before, number = site.calls
    (out,) = graph.calls[number].outs
    zeros = weight(np.zeros(out.memory.nbytes // np.dtype(out.dtype).itemsize, out.dtype))
    return Edit(calls={before: (), number: ()}, aliases={out.memory: View.of(zeros)})


PATCHES = (
    Patch(
        name="skip-mlp",
        summary="zeros in the place of what two products behind each other compute: an ablation",
        find=_find_branches,
        rewrite=_skip,
        models=("vision-mlp",),
        tolerance=Tolerance(math.inf, "it changes what the model computes, to show what a block is worth"),
        source="how much of the time and of the result a block is",
    ),
    Patch(
        name="fuse-mlp",
        summary="two products behind each other become one launch; what is between stays in local memory",
        find=_find_chains,
        rewrite=_fuse,
        models=("vision-mlp",),
        tolerance=_SUMS,
        source="what is between two projections is the widest of all results, and read once",
    ),
    Patch(
        name="batch-head",
        summary="products of the same row become one product, whose readers get their part",
        find=_find_groups,
        rewrite=_merge,
        models=("shared-heads",),
        tolerance=_SUMS,
        source="a small product is as long as its launch",
    ),
    Patch(
        name="head-gemv",
        summary="products of one row become a kernel whose fibers divide k and share their sums",
        find=single(functools.partial(_judge_row, name="head_gemv")),
        rewrite=in_place(functools.partial(_replace_row, name="head_gemv")),
        models=("heads", "shared-heads"),
        tolerance=_SUMS,
        source="a row has no rows to share weights with: neighbouring fibers read neighbouring columns",
    ),
    Patch(
        name="quant-head",
        summary="weights of products of one row become bytes, with a scale for each column",
        find=single(functools.partial(_judge_row, name=_QUANTIZED)),
        rewrite=in_place(functools.partial(_replace_row, name=_QUANTIZED)),
        models=("heads", "shared-heads"),
        tolerance=Tolerance(3e-2, "weights are rounded to 255 steps of a column's largest value"),
        source="a product of one row is as long as its weights take to arrive",
    ),
)
