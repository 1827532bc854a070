"""How much precision a graph needs: its weights, what rounding them does, what corrects an approximation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import accesses, execution, products
from pytest_qcom.openpilot.graph import Graph, Kind, Memory, View
from pytest_qcom.openpilot.patch import difference

Facts = dict[str, Any]
Floats = NDArray[np.float64]
_ENERGY = 0.99  # of a matrix's squared singular values, that its rank here holds
_BYTE = 127

ROUNDINGS: Mapping[str, Callable[[Floats], Floats]] = {
    "half": lambda values: values.astype(np.float16).astype(np.float64),
    "byte": lambda values: _steps(values, _BYTE),
    "nibble": lambda values: _steps(values, 7),
}
"""What a weight may be rounded to: halves, or steps of its largest magnitude."""


def _steps(values: Floats, count: int) -> Floats:
    largest = np.abs(values).max(initial=0.0) or 1.0
    return np.asarray(np.rint(values / largest * count) * largest / count)


def used(graph: Graph) -> dict[Memory, NDArray[np.int64]]:
    """Of each weight of floats, the elements that some call reads."""
    found: dict[Memory, list[NDArray[np.int64]]] = {}
    for call in graph.calls:
        for slot, view in enumerate(call.views):
            if (
                call.program is None
                or view.memory.kind is not Kind.WEIGHT
                or np.dtype(view.dtype).kind != "f"
            ):
                continue
            read = accesses.reads(call.program, slot)
            count = view.nbytes // np.dtype(view.dtype).itemsize
            whole = np.arange(count) if read is None else read[read < count]
            found.setdefault(view.memory, []).append(whole + view.start // np.dtype(view.dtype).itemsize)
    return {memory: np.unique(np.concatenate(parts)) for memory, parts in found.items()}


def weights(graph: Graph) -> Facts:
    """Of each weight: range, size, what roundings cost, and the rank of those that are a product's matrix."""
    matrices: dict[Memory, Floats] = {}
    for number, product in products.products(graph.calls).items():
        view = graph.calls[number].views[product.right]
        if view.memory.kind is Kind.WEIGHT:
            matrices[view.memory] = product.matrix(graph.calls[number]).astype(np.float64)
    rows = []
    for memory, read in used(graph).items():
        values = memory.array()[read].astype(np.float64)
        scale = float(np.sqrt(np.mean(values**2))) or 1.0
        row: Facts = {
            "weight": memory.name,
            "dtype": memory.dtype,
            "elements": int(values.size),
            "largest": float(np.abs(values).max()),
            "mean": float(values.mean()),
            "rms": scale,
            "calls": list(graph.readers(memory)),
            "rounding": {
                name: float(np.sqrt(np.mean((rounding(values) - values) ** 2)) / scale)
                for name, rounding in ROUNDINGS.items()
            },
        }
        if memory in matrices:
            energy = np.cumsum(np.linalg.svd(matrices[memory], compute_uv=False) ** 2)
            row["shape"] = list(matrices[memory].shape)
            row["rank"] = int(np.searchsorted(energy, _ENERGY * energy[-1]) + 1)
        rows.append(row)
    return {"weights": rows}


def weights_lines(facts: Facts) -> Iterator[str]:
    """:func:`weights` as text."""
    for row in facts["weights"]:
        rounding = ", ".join(f"{name} {error:.2g}" for name, error in row["rounding"].items())
        rank = f", rank {row['rank']} of {min(row['shape'])}" if "rank" in row else ""
        yield (
            f"{row['weight']:10} {row['dtype']} {row['elements']:8} elements, rms {row['rms']:.3g}, largest "
            f"{row['largest']:.3g}, rounding costs {rounding}{rank}"
        )


def rounded(graph: Graph, chosen: Sequence[Memory], rounding: str) -> Graph:
    """The graph with some weights rounded.

    Raises:
        GraphError: an unknown rounding.
    """
    if rounding not in ROUNDINGS:
        raise GraphError(f"rounding {rounding!r}: there are {', '.join(ROUNDINGS)}; give one of them")
    reads = used(graph)
    places = {}
    for memory in chosen:
        array = memory.array().copy()
        values = array[reads[memory]].astype(np.float64)
        array[reads[memory]] = ROUNDINGS[rounding](values).astype(array.dtype)
        places[memory] = View.of(replace(memory, contents=array.tobytes(), node=_changed(memory, array)))
    return graph.with_calls([call.substituted(places) for call in graph.calls])


def _changed(memory: Memory, array: NDArray[Any]) -> Any:
    from pytest_qcom.openpilot import nodes

    return nodes.buffer(nodes.fresh_slot(), memory.dtype, array.size, "QCOM", array.tobytes())


def scan(
    graph: Graph,
    generator: np.random.Generator,
    rounding: str,
    chunks: int,
    run: execution.Execute = execution.run,
) -> Facts:
    """How far results move with the weights of each of some chunks rounded, and with all.

    Raises:
        GraphError: an unknown rounding, or the graph does not run.
        LaunchError, GpuFault, GpuHang, HazardError: what the device ran into.
    """
    inputs = execution.random_inputs(graph, generator)
    exact = run(graph, inputs).results
    known = list(used(graph))

    def error(chosen: Sequence[Memory]) -> float:
        results = run(rounded(graph, chosen, rounding), inputs).results
        return max(map(difference, exact, results), default=0.0)

    parts = [part.tolist() for part in np.array_split(np.arange(len(known)), min(chunks, len(known)))]
    return {
        "rounding": rounding,
        "all": error(known),
        "chunks": [
            {"weights": [known[n].name for n in part], "error": error([known[n] for n in part])}
            for part in parts
        ],
    }


def scan_lines(facts: Facts) -> Iterator[str]:
    """:func:`scan` as text, the most sensitive first."""
    yield f"all weights as {facts['rounding']}: results move by {facts['all']:.3g}"
    for row in sorted(facts["chunks"], key=lambda row: -float(row["error"])):
        yield f"{row['error']:9.3g}  {', '.join(row['weights'])}"


def correction(
    before: Graph,
    after: Graph,
    generator: np.random.Generator,
    cases: int,
    run: execution.Execute = execution.run,
) -> Facts:
    """Whether the error of an approximation is one that a constant or a line for each result takes away.

    Each case is corrected by what the others say.

    Raises:
        GraphError: fewer than three cases, or a graph that does not run.
        LaunchError, GpuFault, GpuHang, HazardError: what the device ran into.
    """
    if cases < 3:
        raise GraphError(
            f"correction of {cases} cases: a line needs two besides the one that is held out; give 3"
        )
    exact: list[Floats] = []
    fast: list[Floats] = []
    for _ in range(cases):
        inputs = execution.random_inputs(before, generator)
        for graph, into in ((before, exact), (after, fast)):
            results = run(graph, inputs).results
            into.append(np.concatenate([np.asarray(result, np.float64).ravel() for result in results]))
    x, y = np.stack(fast), np.stack(exact)
    held: dict[str, list[Floats]] = {"constant": [], "line": []}
    for case in range(cases):
        others = np.arange(cases) != case
        held["constant"].append(y[case] - x[case] - (y[others] - x[others]).mean(axis=0))
        slope, start = _line(x[others], y[others])
        held["line"].append(y[case] - slope * x[case] - start)
    return {
        "cases": cases,
        "none": _error(y - x),
        **{name: _error(np.stack(errors)) for name, errors in held.items()},
    }


def _line(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """(slope, start) of the line through the cases, for each result; slope 1 where they do not vary."""
    middle_x, middle_y = x.mean(axis=0), y.mean(axis=0)
    spread = ((x - middle_x) ** 2).sum(axis=0)
    along = ((x - middle_x) * (y - middle_y)).sum(axis=0)
    slope = np.divide(along, spread, out=np.ones_like(along), where=spread > 1e-12)
    return slope, middle_y - slope * middle_x


def _error(errors: Floats) -> Facts:
    size = np.abs(errors)
    return {"largest": float(size.max()), "mean": float(size.mean())}


def correction_lines(facts: Facts) -> Iterator[str]:
    """:func:`correction` as text."""
    for name in ("none", "constant", "line"):
        error = facts[name]
        yield f"correction {name:8}: largest error {error['largest']:.3g}, mean {error['mean']:.3g}"
