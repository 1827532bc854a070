"""For each patch, graphs that look like a site and are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_qcom.openpilot.accesses import reads
from pytest_qcom.openpilot.graph import Graph, Kind, Memory, View
from pytest_qcom.openpilot.patches.attention import Sums, sums_of
from pytest_qcom.openpilot.products import Product, product, products
from pytest_qcom.openpilot.registry import PATCHES

Miss = tuple[str, Callable[[Graph], Graph]]
"""A model, and what is changed in its graph."""


def with_other_weights(graph: Graph) -> Graph:
    """Every weight differs from every other one in one element, the first that is read of it."""
    changed: dict[Memory, Memory] = {}
    for call in graph.calls:
        for slot, view in enumerate(call.views):
            if view.memory.kind is Kind.WEIGHT and view.memory not in changed and call.program:
                read = reads(call.program, slot)
                array = view.array().copy()
                array[0 if read is None else read[0]] = len(changed)
                changed[view.memory] = replace(view.memory, contents=array.tobytes())
    places = {memory: View.of(other) for memory, other in changed.items()}
    return replace(graph, calls=tuple(call.substituted(places) for call in graph.calls))


def once(graph: Graph) -> Graph:
    """The graph after what removes repeated calls."""
    from pytest_qcom.openpilot.patch import apply

    return apply(PATCHES["dedupe-head"], graph).graph


def only_first_level(graph: Graph) -> Graph:
    """Its calls of one level: any order is one by level."""
    same = graph.calls[0].label
    kept = [call for n, call in enumerate(graph.calls) if graph.levels()[n] == 0 and call.label == same]
    return replace(graph, calls=tuple(kept))


def after(name: str) -> Callable[[Graph], Graph]:
    """The graph once a patch was applied: what is left looks like its sites and is none."""
    from pytest_qcom.openpilot.patch import apply

    return lambda graph: apply(PATCHES[name], graph).graph


def as_it_is(graph: Graph) -> Graph:
    """The model's own graph."""
    return graph


def with_changing_weights(graph: Graph) -> Graph:
    """What multiplies is memory that could change from run to run."""
    weights = [memory for memory in graph.memories if memory.kind is Kind.WEIGHT]
    places = {memory: View.of(replace(memory, kind=Kind.FIXED)) for memory in weights}
    return replace(graph, calls=tuple(call.substituted(places) for call in graph.calls))


def with_another_reader(graph: Graph) -> Graph:
    """The last call also reads what is between the first two products."""
    (_, first), *_ = products(graph.calls).items()
    between = next(call for call in graph.calls if isinstance(product(call), Product)).views[first.out]
    last = graph.calls[-1]
    views = (last.views[0], between, *last.views[2:])
    return replace(graph, calls=(*graph.calls[:-1], replace(last, views=views)))


def within_a_word(graph: Graph) -> Graph:
    """Each argument of bytes starts at the second byte of a word of its memory."""

    def moved(view: View) -> View:
        longer = replace(view.memory, kind=Kind.FIXED, nbytes=view.memory.nbytes + 4)
        return View(longer, view.start + 1, view.nbytes, view.dtype) if view.dtype == "uint8" else view

    calls = [replace(call, views=tuple(map(moved, call.views))) for call in graph.calls]
    return replace(graph, calls=tuple(calls))


def _scores(graph: Graph) -> int:
    """The first product of what other calls made."""
    return next(
        number
        for number, call in enumerate(graph.calls)
        if call.program
        and isinstance(sums_of(call.program), Sums)
        and all(view.memory.kind is Kind.TEMPORARY for view in call.ins)
    )


def with_scores_returned(graph: Graph) -> Graph:
    """The last call adds the scores to the mixture."""
    last = graph.calls[-1]
    views = (last.views[0], graph.calls[_scores(graph)].views[0], *last.views[2:])
    return replace(graph, calls=(*graph.calls[:-1], replace(last, views=views)))


def with_exchanged_rows(graph: Graph) -> Graph:
    """What is subtracted from scores and what they are divided by are exchanged: no softmax."""
    calls = list(graph.calls)
    number = _scores(graph) + 3
    out, scores, highest, total = calls[number].views
    calls[number] = replace(calls[number], views=(out, scores, total, highest))
    return replace(graph, calls=tuple(calls))


NEAR_MISSES: dict[str, tuple[Miss, ...]] = {
    "recompile": (("stem", as_it_is),),
    "fast-gelu": (("attention", as_it_is), ("vision-mlp", after("fast-gelu"))),  # a softmax; no exponential
    "blocked-forward": (("attention", after("blocked-forward")), ("stem", after("native-fp16"))),
    "blocked-forward-2": (("heads", as_it_is), ("attention", after("blocked-forward-2"))),  # two turns in all
    "blocked-forward-4": (("heads", as_it_is), ("vision-mlp", after("blocked-forward-4"))),
    "native-fp16": (("attention", after("native-fp16")), ("stem", after("blocked-forward"))),
    "skip-mlp": (("vision-mlp", with_changing_weights), ("vision-mlp", after("fuse-mlp"))),
    "fuse-mlp": (("vision-mlp", with_changing_weights), ("vision-mlp", after("replace-up4x16"))),
    "batch-head": (("heads", as_it_is), ("shared-heads", after("batch-head"))),
    "head-gemv": (("shared-heads", with_changing_weights), ("heads", after("head-gemv"))),
    "quant-head": (("shared-heads", with_changing_weights), ("heads", after("quant-head"))),
    "replace-up4x16": (("attention", as_it_is), ("vision-mlp", after("replace-up4x16"))),  # 64 columns
    "large-fp16": (("attention", as_it_is), ("vision-mlp", after("large-fp16"))),
    "int8-weights": (("vision-mlp", with_changing_weights), ("vision-mlp", after("int8-weights"))),
    "quant-forward": (("attention", as_it_is), ("vision-mlp", after("quant-forward"))),
    "firstconv-tile8": (("stem", after("firstconv-tile8")), ("stem", with_changing_weights)),
    "forward-tile8": (("heads", as_it_is), ("vision-mlp", after("forward-tile8"))),
    "forward-tile8x4": (("heads", as_it_is), ("vision-mlp", after("forward-tile8"))),
    "pack-conv-weights": (("vision-mlp", after("pack-conv-weights")), ("attention", as_it_is)),
    "fuse-attention": (
        ("attention", after("fuse-attention")),
        ("attention", with_scores_returned),
        ("attention", with_exchanged_rows),
    ),
    "input-pack": (("input-pack", after("input-pack")), ("input-pack", within_a_word)),
    "geometry": (("heads", as_it_is), ("stem", as_it_is)),  # they exchange values; no multiple divides
    "schedule-projection": (("vision-mlp", as_it_is), ("input-pack", as_it_is)),  # well as it is; buffers
    "inverse-full-rpt": (("attention", as_it_is),),
    "dedupe-head": (("heads", lambda graph: with_other_weights(once(graph))),),
    "level-schedule": (("heads", only_first_level),),
    "raw-sums": (("vision-mlp", after("raw-sums")), ("stem", as_it_is)),  # a convolution is no product
}
