"""Attention in one launch: scores, a softmax over them as they come, and what it weighs.

Found by what is computed, not by names: a sum of products of what other calls made (the mixture) whose one
factor comes, through calls that together are a softmax, from another such sum (the scores). That they are one
is tried on random scores.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from pytest_qcom.errors import GraphError, KernelError
from pytest_qcom.kernels import uops
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.uops import Array
from pytest_qcom.openpilot import inserted, interpreter, lowered, products
from pytest_qcom.openpilot.accesses import Indices, NoProduct
from pytest_qcom.openpilot.graph import LANES, Call, Graph, Kind, Memory, Program, View, weight
from pytest_qcom.openpilot.patch import Edit, Findings, Patch, Refusal, Site, Tolerance

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

_ARGUMENTS = 3  # the result and two factors
_FIBERS = 128
_DEPTH = 64  # elements of a query that a fiber keeps
_LOWEST = -3.0e38  # no score is lower
_CLOSE = 1e-6  # of a softmax in float64 whose constants are float32


@dataclass(frozen=True, eq=False)
class Sums:
    """A call's sums: of each, in the order of what is stored, where it and its factors start; and the steps.

    Attributes:
        scale: what each is multiplied with before it is stored.
    """

    stored: Indices
    left: Indices
    right: Indices
    left_steps: Indices
    right_steps: Indices
    scale: float


@dataclass(frozen=True, eq=False)
class Attention:
    """Calls that are one attention.

    Attributes:
        calls: the one of the scores first, the one of the mixture last.
        rows: of each row of what weighs the values, in the order of their places, the row of scores.
    """

    calls: tuple[int, ...]
    scores: Sums
    mixture: Sums
    rows: Indices


@functools.lru_cache(maxsize=256)
def sums_of(program: Program) -> Sums | str:
    """The sums of products of arguments 1 and 2 that a program stores in argument 0; or why it does not."""
    try:
        sink = lowered.body(program)
        found = list(products.sums(sink))
        slots = {(one.slot, other.slot) for each in found for one, other in each.pairs}
        if slots != {(1, 2)} or len(program.parameters) != _ARGUMENTS:
            raise GraphError("its sums are not of one argument and another one")
        table, left, right = products.tabled(found, sink, program, 1)
        stored = table[:, np.argsort(table[0], kind="stable")]
        return Sums(stored[0], stored[1], stored[2], left, right, _scale(sink))
    except (GraphError, NoProduct) as error:
        return str(error)


def _scale(sink: UOp) -> float:
    from tinygrad.uop.ops import Ops

    found: set[float | None] = set()
    for _, store in lowered.stores(sink):
        for value in lowered.lanes(store):
            totals = products.totals(value)
            if value in totals:
                found.add(1.0)
            elif value.op is Ops.MUL and value.src[0] in totals:
                found.add(lowered.constant(value.src[1]))
            else:
                found.add(None)
    if len(found) != 1 or None in found:
        raise GraphError("it does more with its sums than to scale them")
    return float(found.pop() or 0.0)


def _attention(graph: Graph, number: int, mixture: Sums) -> Attention:
    """The attention whose mixture a call is.

    Raises:
        GraphError: there is none.
    """
    between: list[int] = []
    scores: set[int] = set()
    pending = [(number, graph.calls[number].views[1])]
    while pending:
        reader, view = pending.pop()
        writer = graph.writer(view, reader)
        if view.memory.kind is not Kind.TEMPORARY or writer is None:
            raise GraphError("what it multiplies is not made of sums alone")
        program = graph.calls[writer].program
        if program is not None and isinstance(sums_of(program), Sums):
            scores.add(writer)
        elif writer not in between:
            between.append(writer)
            pending += [(writer, each) for each in graph.calls[writer].ins]
    if len(scores) != 1 or not between:
        raise GraphError("what it multiplies is not made of one call's sums")
    own = (*scores, *sorted(between), number)
    for each in own[:-1]:
        for view in graph.calls[each].outs:
            if not set(graph.readers(view.memory)) <= set(own[1:]):
                raise GraphError("what is between scores and mixture is read by others, too")
    program = graph.calls[own[0]].program
    found = sums_of(program) if program is not None else ""
    assert isinstance(found, Sums)
    return Attention(own, found, mixture, _softmax(graph, own, found, mixture))


def _softmax(graph: Graph, own: tuple[int, ...], scores: Sums, mixture: Sums) -> Indices:
    """Which row of scores each row that weighs the values is the softmax of.

    Raises:
        GraphError: it is of none.
    """
    memory: dict[Memory, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
    for number in own:
        for view in graph.calls[number].views:
            if not view.whole:
                raise GraphError("what is between scores and mixture is part of some memory")
            memory[view.memory] = np.zeros(view.nbytes // np.dtype(view.dtype).itemsize)
    keys = len(mixture.left_steps)
    if len(scores.stored) % keys:
        raise GraphError(f"its {len(scores.stored)} scores are no rows of {keys}")
    rows = np.random.default_rng(0).standard_normal((len(scores.stored) // keys, keys)) * LANES
    memory[graph.calls[own[0]].views[0].memory][scores.stored] = rows.ravel()
    for number in own[1:-1]:
        call = graph.calls[number]
        if call.program is None:
            raise GraphError("a copy is between scores and mixture")
        interpreter.interpret(call.program, {n: memory[view.memory] for n, view in enumerate(call.views)})
    weights = memory[graph.calls[own[-1]].views[1].memory]
    places = np.unique(mixture.left)[:, None] + mixture.left_steps
    expected = np.exp(rows - rows.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    if places.shape != rows.shape:
        raise GraphError(f"its scores are {rows.shape[0]} rows, it weighs with {places.shape[0]}")
    of = np.empty(len(rows), np.int64)
    of[np.argsort(weights[places[:, 0]])] = np.argsort(expected[:, 0])
    if not np.allclose(weights[places], expected[of], rtol=0, atol=_CLOSE):
        raise GraphError("what is between scores and mixture is no softmax")
    return of


# The kernel


def _blocks(steps: Indices) -> tuple[int, int]:
    """(from block to block of four, within a block) of places that step so.

    Raises:
        GraphError: they do not.
    """
    if len(steps) % LANES or len(steps) <= LANES:
        raise GraphError(f"{len(steps)} keys are no blocks of {LANES}")
    outer, inner = int(steps[LANES] - steps[0]), int(steps[1] - steps[0])
    places = np.arange(len(steps) // LANES)[:, None] * outer + np.arange(LANES) * inner
    if not np.array_equal(places.ravel(), steps - steps[0]):
        raise GraphError("keys do not lie at regular places")
    return outer, inner


@dataclass(frozen=True, eq=False)
class Plan:
    """Where a fiber starts, and how it goes on.

    Attributes:
        starts: (4, fibers): the first texel of the query, of the keys and of the values; of the results, the
            first element.
        depth: texels from four keys' first element to the others.
        keys: texels from four keys to the next four.
        values: of each key, how many texels behind the first one's values its own are.
    """

    starts: Indices
    depth: Indices
    keys: int
    values: tuple[int, int]


def plan(found: Attention) -> Plan:
    """How fibers of four results of one query each do an attention.

    Raises:
        GraphError: its operands do not lie at regular places.
    """
    scores, mixture = found.scores, found.mixture
    count = len(mixture.left_steps)
    queries, keys = scores.left.reshape(-1, count), scores.right.reshape(-1, count)
    if not (queries == queries[:, :1]).all() or not (np.diff(keys) == np.diff(keys[:1])).all():
        raise GraphError("the scores of a query do not lie one after the other")
    if len(mixture.stored) % (LANES * _FIBERS) or len(scores.left_steps) > _DEPTH:
        raise GraphError(
            f"{len(mixture.stored)} results of {len(scores.left_steps)} elements a query are not divided by "
            f"workgroups of {_FIBERS} fibers"
        )
    stored, left, right = (each.reshape(-1, LANES) for each in (mixture.stored, mixture.left, mixture.right))
    together = (right - right[:, :1] == np.arange(LANES)).all() and (np.diff(stored) == 1).all()
    if not together or not (left == left[:, :1]).all():
        raise GraphError("four results do not lie one after the other, as their values do")
    row = found.rows[np.searchsorted(np.unique(mixture.left), left[:, 0])]
    starts = np.stack([queries[row, 0], keys[row, 0], right[:, 0]])
    (key_blocks, key_lanes), values = _blocks(keys[0]), _blocks(mixture.right_steps)
    texels = (starts, scores.right_steps, np.array([key_blocks, *values]))
    if key_lanes != 1 or len(scores.left_steps) % LANES or any((each % LANES).any() for each in texels):
        raise GraphError(
            "its operands do not lie in texels: four elements of a query, four keys, four values"
        )
    if not np.array_equal(scores.left_steps, np.arange(len(scores.left_steps))):
        raise GraphError("a query's elements do not lie one after the other")
    return Plan(
        np.concatenate([starts // LANES, stored[None, :, 0]]),
        scores.right_steps // LANES,
        key_blocks // LANES,
        (values[0] // LANES, values[1] // LANES),
    )


def kernel(found: Attention, sizes: dict[str, int], types: dict[str, str]) -> Build:
    """The kernel: ``query``, ``key``, ``value``, ``starts`` (4, fibers), ``out``.

    A running maximum, the sum of exponentials and four results are kept in floats, and multiplied with what
    a new maximum makes of them.
    """
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import AxisType, UOp

    places, scores = plan(found), found.scores
    count = places.starts.shape[1]
    arrays = (
        *(Array(name, (sizes[name],), types[name], image=True) for name in ("query", "key", "value")),
        Array("starts", (len(places.starts), count), "uint32"),
        Array("out", (sizes["out"],), types["out"], written=True),
    )
    query, key, value, starts, out = uops.parameters(arrays)
    fiber = UOp.special(count // _FIBERS, "gidx0") * _FIBERS + UOp.special(_FIBERS, "lidx0")
    at = [starts.index(fiber + n * count).load().cast(dtypes.int) for n in range(len(places.starts))]

    own = [each for n in range(len(scores.left_steps) // LANES) for each in uops.vector(query, at[0] + n)]
    loop = UOp.range(len(found.mixture.left_steps) // LANES, 0, AxisType.REDUCE)
    kept = uops.Sums(2 + LANES, "float32", 1, (_LOWEST, *(0.0,) * (1 + LANES)))
    highest, total, *mixed = (kept.within(n, loop) for n in range(kept.count))
    texels = [uops.vector(key, at[1] + loop * places.keys + int(step)) for step in places.depth]
    scale = scores.scale * math.log2(math.e)
    found_scores = [
        functools.reduce(add, (mine * texel[each] for mine, texel in zip(own, texels, strict=True))) * scale
        for each in range(LANES)
    ]
    above = functools.reduce(lambda a, b: a.maximum(b), found_scores, highest)
    fade = (highest - above).exp2()
    shares = [(score - above).exp2() for score in found_scores]
    total, mixed = total * fade, [each * fade for each in mixed]
    for each, share in enumerate(shares):
        texel = uops.vector(value, at[2] + loop * places.values[0] + each * places.values[1])
        total = total + share
        mixed = [old + share * other for old, other in zip(mixed, texel, strict=True)]
    _, total, *mixed = kept.after([above, total, *mixed], loop)
    stores = [
        out.index(at[3] + lane).store((each / total).cast(uops.kind(types["out"])))
        for lane, each in enumerate(mixed)
    ]
    work = (
        2e-9
        * len(found.mixture.left_steps)
        * (len(scores.left_steps) * len(np.unique(scores.left)) + len(found.mixture.stored))
    )
    return uops.compile_uops("attention", uops.sink("attention", stores), arrays, work)


def _views(graph: Graph, found: Attention) -> dict[str, View]:
    first, last = graph.calls[found.calls[0]], graph.calls[found.calls[-1]]
    return {"query": first.views[1], "key": first.views[2], "value": last.views[2], "out": last.views[0]}


def _launch(graph: Graph, found: Attention) -> Call:
    views = _views(graph, found)
    types = {name: np.dtype(view.dtype).name for name, view in views.items()}
    sizes = {name: view.nbytes // np.dtype(view.dtype).itemsize for name, view in views.items()}
    starts = weight(plan(found).starts.astype(np.uint32))
    build = kernel(found, sizes, types)
    like = graph.calls[found.calls[-1]]
    return inserted.hand(like, "attention", build, {**views, "starts": View.of(starts)}, {})


def _find(graph: Graph) -> Findings:
    sites, refusals = [], []
    for number, call in enumerate(graph.calls):
        mixture = sums_of(call.program) if call.program is not None else ""
        if isinstance(mixture, str) or call.views[2].memory.kind is Kind.WEIGHT:
            continue
        try:
            if mixture.scale != 1.0:
                raise GraphError("it scales its sums")
            found = _attention(graph, number, mixture)
            launch = _launch(graph, found)
        except (GraphError, KernelError) as error:
            refusals.append(Refusal(number, str(error)))
        else:
            sites.append(Site(found.calls, {"keys": len(mixture.left_steps)}, launch))
    return tuple(sites), tuple(refusals)


def _fuse(graph: Graph, site: Site) -> Edit:
    return Edit(calls={**dict.fromkeys(site.calls, ()), site.calls[-1]: (site.found,)})


PATCHES = (
    Patch(
        name="fuse-attention",
        summary="scores, softmax and mixture become one launch, with a softmax of the scores as they come",
        find=_find,
        rewrite=_fuse,
        models=("attention",),
        tolerance=Tolerance(
            2e-3,
            "what weighs the values is no longer rounded to halves, 2^-11 each, and scaled behind the sum",
        ),
        source="scores and their softmax are the square of the rows, written and read several times",
    ),
)
