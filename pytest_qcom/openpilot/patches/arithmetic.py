"""Patches of how a program computes: other sums, other approximations; compiled anew from its UOps."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import lowered, patch
from pytest_qcom.openpilot.graph import Program
from pytest_qcom.openpilot.patch import Patch, Tolerance

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

Changed = Callable[["UOp"], "UOp | str"]
"""UOps to other ones, or to why they stay."""


# GELU


_GELU_CUBE = 0.044715
_GELU_SCALE = -2 * math.sqrt(2 / math.pi) * math.log2(math.e)
_GELU_SPAN = 4.0
_GELU_DEGREE = 10
_CLOSE = 1e-3  # of a constant that was rounded to float, or to half


@functools.cache
def gelu_polynomial() -> tuple[tuple[float, ...], float]:
    """(coefficients from the constant on, largest error) of GELU on [0, 4], in t = x / 2 - 1.

    The tanh form, fitted at Chebyshev points. GELU(-x) = GELU(x) - x serves the other half; outside of it
    the error of max(x, 0) counts, which is largest at the end.
    """
    points = np.cos(np.pi * (np.arange(200) + 0.5) / 200)
    fit = np.polynomial.Polynomial.fit(points, _gelu(2 * points + 2), _GELU_DEGREE, domain=[-1, 1])
    dense = np.linspace(0, _GELU_SPAN, 20001)
    inside = np.abs(fit(dense / 2 - 1) - _gelu(dense)).max()
    beyond = np.abs(_gelu(np.array([_GELU_SPAN])) - _GELU_SPAN).max()
    return tuple(map(float, fit.coef)), float(max(inside, beyond))


def _gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(x / (1 + np.exp2(_GELU_SCALE * (x + _GELU_CUBE * x**3))), np.float64)


def _fast_gelu(sink: UOp) -> UOp | str:
    from tinygrad.uop.ops import Ops

    sites = {node for node in sink.toposort() if node.op is Ops.FDIV and _gelu_of(node) is not None}
    if not sites:
        divided = any(node.op is Ops.EXP2 for node in sink.toposort())
        return "its exponential is none of a GELU" if divided else ""

    def change(node: UOp, sources: tuple[UOp, ...]) -> UOp | None:
        return _polynomial(sources[0]) if node in sites else None

    return lowered.transformed(sink, change)


def _gelu_of(node: UOp) -> UOp | None:
    """What a division is the GELU of: v / (1 + exp2(c * (v + 0.0447 * v^3)))."""
    from tinygrad.uop.ops import Ops

    value, below = node.src
    if below.op is not Ops.ADD:
        return None
    parts = sorted(below.src, key=lambda part: lowered.constant(part) is None)
    if lowered.constant(parts[0]) != 1 or parts[1].op is not Ops.EXP2:
        return None
    powers = _powers(parts[1].src[0], value)
    if powers is None or set(powers) != {1, 3}:
        return None
    near = math.isclose(powers[1], _GELU_SCALE, rel_tol=_CLOSE)
    return value if near and math.isclose(powers[3], _GELU_SCALE * _GELU_CUBE, rel_tol=_CLOSE) else None


def _powers(node: UOp, variable: UOp) -> dict[int, float] | None:
    """An expression as a polynomial of a variable, by power; ``None`` if it is none."""
    from tinygrad.uop.ops import Ops

    if node is variable:
        return {1: 1.0}
    if (number := lowered.constant(node)) is not None:
        return {0: float(number)}
    if node.op not in (Ops.ADD, Ops.MUL):
        return None
    one, other = (_powers(part, variable) for part in node.src)
    if one is None or other is None:
        return None
    found: dict[int, float] = {}
    if node.op is Ops.ADD:
        pairs: Iterator[tuple[int, float]] = iter((*one.items(), *other.items()))
    else:
        pairs = ((p + q, a * b) for p, a in one.items() for q, b in other.items())
    for power, factor in pairs:
        found[power] = found.get(power, 0.0) + factor
    return found if max(found) <= 3 else None


def _polynomial(x: UOp) -> UOp:
    """GELU without exponential or division."""
    from tinygrad.uop.ops import Ops, UOp

    def number(value: float) -> UOp:
        return UOp.const(value).cast(x.dtype)

    zero, negative = number(0.0), x * number(-1.0)
    size = x.alu(Ops.MAX, negative)
    t = size * number(0.5) + number(-1.0)
    coefficients, _ = gelu_polynomial()
    value = t * number(coefficients[-1]) + number(coefficients[-2])
    for coefficient in reversed(coefficients[:-2]):
        value = value * t + number(coefficient)
    below = negative.alu(Ops.MAX, zero) * number(-1.0)  # min(x, 0)
    small = size.alu(Ops.CMPLT, number(_GELU_SPAN))
    return small.alu(Ops.WHERE, value + below, x.alu(Ops.MAX, zero))


# Sums


def _halved(sink: UOp, total: bool) -> UOp | str:
    """Sums of products in halves: all of a sum (``total``), or what one turn of the loop adds to a float."""
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import Ops, UOp

    sums = {node: at for node in sink.toposort() if (at := _accumulates(node)) is not None}
    if not sums:
        loops = any(node.op is Ops.RANGE for node in sink.toposort())
        return "its loop carries no float sum of products" if loops else ""
    halves = {_register(node) for node in sums} if total else set()

    def change(node: UOp, sources: tuple[UOp, ...]) -> UOp | None:
        if node in halves:
            return UOp(Ops.BUFFER, src=sources, arg=replace(node.arg, dtype=dtypes.half))
        if node in sums:
            leaves = lowered.addends(sources[1])
            before = leaves.pop(sums[node])
            products = [leaf.src[0].cast(dtypes.half) * leaf.src[1].cast(dtypes.half) for leaf in leaves]
            if total:
                return UOp(Ops.STORE, src=(sources[0], sum(products, before.src[0])))
            return UOp(
                Ops.STORE, src=(sources[0], before + sum(products[1:], products[0]).cast(dtypes.float))
            )
        if node.op is Ops.LOAD and _register(node) in halves:
            return UOp(Ops.LOAD, src=sources).cast(dtypes.float)
        if node.op is Ops.STORE and _register(node) in halves:
            return UOp(Ops.STORE, src=(sources[0], sources[1].cast(dtypes.half)))
        if node.op in (Ops.INDEX, Ops.AFTER) and sources[0].dtype != node.src[0].dtype:
            return UOp(node.op, src=sources, arg=node.arg)  # of the type of what it is of
        return None

    return lowered.transformed(sink, change)


def _blocked(sink: UOp, turns: int) -> UOp | str:
    """What so many turns of a loop add to a float, summed in halves; the loop has the fewer turns."""
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import Ops, UOp

    sums = {node: at for node in sink.toposort() if (at := _accumulates(node)) is not None}
    if not sums:
        loops = any(node.op is Ops.RANGE for node in sink.toposort())
        return "its loop carries no float sum of products" if loops else ""
    ranges = {node for each in sums for node in each.src[1].toposort() if node.op is Ops.RANGE}
    if len(ranges) > 1:
        return f"its sums are of {len(ranges)} loops, one within another"
    old = next(iter(ranges))
    count = lowered.constant(old.src[0])
    if not isinstance(count, int):
        return "its loop has as many turns as are said when it runs"
    if count % turns or count == turns:
        return f"its loop has {count} turns, not {2 * turns} or another multiple of {turns}"
    new = old.replace(src=(lowered.number(count // turns), *old.src[1:]))

    def change(node: UOp, sources: tuple[UOp, ...]) -> UOp | None:
        if node is old:
            return new
        if node not in sums:
            return None
        leaves = lowered.addends(node.src[1])
        before = lowered.addends(sources[1])[sums[node]]
        leaves.pop(sums[node])
        turned = [
            leaf.src[n]
            .substitute({old: new * lowered.number(turns) + lowered.number(turn)})
            .cast(dtypes.half)
            for turn in range(turns)
            for leaf in leaves
            for n in (0, 1)
        ]
        products = [one * other for one, other in zip(turned[::2], turned[1::2], strict=True)]
        return UOp(Ops.STORE, src=(sources[0], before + sum(products[1:], products[0]).cast(dtypes.float)))

    return lowered.transformed(sink, change)


def _register(node: UOp) -> UOp | None:
    """The buffer of floats in registers that a store or load is of."""
    from tinygrad.dtype import AddrSpace, dtypes
    from tinygrad.uop.ops import Ops

    place = node.src[0]
    while place.op in (Ops.INDEX, Ops.AFTER):
        place = place.src[0]
    found = (
        place.op is Ops.BUFFER and place.arg.addrspace is AddrSpace.REG and place.arg.dtype == dtypes.float
    )
    return place if found else None


def _accumulates(node: UOp) -> int | None:
    """Of a store that adds products to what it stores to: where the sum so far is among what is added."""
    from tinygrad.uop.ops import Ops

    if node.op is not Ops.STORE or _register(node) is None:
        return None
    leaves = lowered.addends(node.src[1])
    own = [n for n, leaf in enumerate(leaves) if leaf.op is Ops.LOAD and leaf.src[0] is node.src[0]]
    products = [leaf for leaf in leaves if leaf.op is Ops.MUL]
    return own[0] if len(own) == 1 and len(products) == len(leaves) - 1 > 0 else None


def _patch(name: str, summary: str, change: Changed, tolerance: Tolerance, models: tuple[str, ...]) -> Patch:
    @functools.lru_cache(maxsize=512)
    def judged(program: Program) -> Program | str:
        try:
            sink = change(lowered.body(program))
            return sink if isinstance(sink, str) else lowered.compiled(program, sink)
        except GraphError as error:
            return str(error)

    return Patch(
        name=name,
        summary=summary,
        find=patch.single(lambda call, program: _judged(judged(program))),
        rewrite=patch.in_place(lambda call, program: program),
        models=models,
        tolerance=tolerance,
        source=_SOURCES[name],
    )


def _judged(made: Program | str) -> tuple[dict[str, Any], Program] | str:
    return made if isinstance(made, str) else ({}, made)


@functools.lru_cache(maxsize=512)
def _again(program: Program) -> Program | str:
    try:
        fresh = lowered.compiled(program, lowered.body(program))
    except GraphError as error:
        return str(error)
    return fresh if fresh.code != program.code else "the compiler makes the same of it"


_SOURCES = {
    "fast-gelu": "the exponential and the division of a GELU are a quarter of the rate of other arithmetic",
    "native-fp16": "halves have twice the rate of floats, and need half of the registers",
    "blocked-forward": "a half sum of few products loses little, and its float total nothing",
    **dict.fromkeys(
        ("blocked-forward-2", "blocked-forward-4"),
        "the fewer sums are floats, the more of the work has the rate of halves",
    ),
}

PATCHES = (
    Patch(
        name="recompile",
        summary="compile again, from its UOps, each program that the compiler makes something else of now",
        find=patch.single(lambda call, program: _judged(_again(program))),
        rewrite=patch.in_place(lambda call, program: program),
        models=(),
        source="a graph that another version of the compiler made, or whose code was patched by hand",
    ),
    _patch(
        "fast-gelu",
        "a GELU between -4 and 4 as a polynomial, and as max(x, 0) outside",
        _fast_gelu,
        Tolerance(2e-3, "the polynomial and max(x, 0) are off by 1.4e-4 at most, and layers behind add up"),
        ("vision-mlp", "stem"),
    ),
    _patch(
        "blocked-forward",
        "the products of one turn of a loop are summed in halves, the turns in floats",
        functools.partial(_halved, total=False),
        Tolerance(1e-2, "four products rounded to halves, 2^-11 each, in sums that cancel"),
        ("vision-mlp", "heads", "shared-heads", "stem", "attention"),
    ),
    *(
        _patch(
            f"blocked-forward-{turns}",
            f"the products of {words} turns of a loop are summed in halves, and their sums in floats",
            functools.partial(_blocked, turns=turns),
            Tolerance(
                1e-2 * turns, f"{4 * turns} products rounded to halves, 2^-11 each, in sums that cancel"
            ),
            ("vision-mlp", "attention"),
        )
        for turns, words in ((2, "two"), (4, "four"))
    ),
    _patch(
        "native-fp16",
        "sums of products that a loop carries become halves",
        functools.partial(_halved, total=True),
        Tolerance(5e-2, "each of some hundred additions is rounded to 2^-11 of a sum that cancels"),
        ("vision-mlp", "heads", "shared-heads", "stem", "attention"),
    ),
)
