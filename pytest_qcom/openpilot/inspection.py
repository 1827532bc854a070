"""What a captured graph looks like: calls, levels, times, and where two graphs differ."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_qcom.arguments import counted
from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import execution, lanes
from pytest_qcom.openpilot.graph import Call, Graph, Kind, Memory, View
from pytest_qcom.openpilot.patch import difference, named_calls
from pytest_qcom.openpilot.patches import launches

Facts = dict[str, Any]


def show(graph: Graph) -> Facts:
    """The graph: its inputs, results, memory by kind, and each call."""
    sizes: Counter[str] = Counter()
    for memory in graph.memories:
        sizes[memory.kind.value] += memory.nbytes
    before, levels = graph.dependencies(), graph.levels()
    return {
        "digest": graph.digest,
        "inputs": [
            {"name": memory.name, "dtype": memory.dtype, "shape": list(shape), "bytes": memory.nbytes}
            for memory, shape in zip(graph.inputs, graph.shapes, strict=True)
        ],
        "results": [view.memory.name for view in graph.results],
        "bytes": dict(sorted(sizes.items())),
        "calls": [
            {"call": number, "level": levels[number], "after": sorted(before[number]), **_call(call)}
            for number, call in enumerate(graph.calls)
        ],
    }


def _call(call: Call) -> Facts:
    views = {"writes": list(map(_view, call.outs)), "reads": list(map(_view, call.ins))}
    if call.program is None:
        return {"program": "copy", **views}
    fregs, hregs = call.program.footprint
    return {
        "program": call.program.label,
        "digest": call.program.digest,
        "groups": list(call.program.groups),
        "local": list(call.program.local),
        "instructions": len(call.program.code.instrs),
        "fregs": fregs,
        "hregs": hregs,
        **views,
    }


def _view(view: View) -> str:
    return view.memory.name if view.whole else f"{view.memory.name}[{view.start}:{view.start + view.nbytes}]"


def show_lines(facts: Facts) -> Iterator[str]:
    """:func:`show` as text."""
    yield f"graph {facts['digest']}: {counted(len(facts['calls']), 'call')}"
    for item in facts["inputs"]:
        yield f"input {item['name']}: {item['dtype']}{item['shape']}"
    yield ", ".join(f"{kind} {size / 1024:.1f} KiB" for kind, size in facts["bytes"].items())
    for item in facts["calls"]:
        launch = f" {item['groups']}x{item['local']}" if "groups" in item else ""
        yield (
            f"{item['call']:4} level {item['level']:3} {item['program']}{launch}: "
            f"{', '.join(item['reads'])} -> {', '.join(item['writes'])}"
        )


def levels(graph: Graph) -> Facts:
    """The calls of each level, which could run at the same time."""
    found: dict[int, list[int]] = {}
    for number, level in enumerate(graph.levels()):
        found.setdefault(level, []).append(number)
    return {
        "levels": [
            {
                "level": level,
                "calls": numbers,
                "programs": dict(Counter(graph.calls[number].label for number in numbers)),
            }
            for level, numbers in sorted(found.items())
        ]
    }


def levels_lines(facts: Facts) -> Iterator[str]:
    """:func:`levels` as text."""
    for item in facts["levels"]:
        programs = ", ".join(f"{count} {name}" for name, count in item["programs"].items())
        yield f"level {item['level']:3}: {programs}"


def listing(graph: Graph, only: int | None = None) -> Facts:
    """The instructions of each program, once; of a call alone with ``only``."""
    found: dict[str, Facts] = {}
    for number, call in enumerate(graph.calls):
        if call.program is None or only not in (None, number):
            continue
        entry = found.setdefault(
            call.program.digest,
            {"program": call.program.label, "calls": [], "text": call.program.code.listing()},
        )
        entry["calls"].append(number)
    return {"programs": [{"digest": digest, **entry} for digest, entry in found.items()]}


def listing_lines(facts: Facts) -> Iterator[str]:
    """:func:`listing` as text."""
    for item in facts["programs"]:
        yield f"; {item['program']} {item['digest']}, calls {', '.join(map(str, item['calls']))}"
        yield from item["text"].splitlines()


def profile(
    graph: Graph,
    generator: np.random.Generator,
    run: execution.Execute = execution.run,
    rounds: int = 1,
    only: Collection[str] = (),
) -> Facts:
    """Device seconds of each program and of the chain of calls that takes longest.

    Args:
        rounds: runs of the graph; of each call the fastest counts.
        only: calls whose programs are listed, by number or by their program's name. Nothing is all.

    Raises:
        GraphError, LaunchError, GpuFault, GpuHang, HazardError: the graph does not run.
    """
    named = named_calls(graph, only)
    inputs = execution.random_inputs(graph, generator)
    seconds = [min(each) for each in zip(*(run(graph, inputs).seconds for _ in range(rounds)), strict=True)]
    programs: dict[str, list[int]] = {}
    for number, call in enumerate(graph.calls):
        if only and number not in named:
            continue
        programs.setdefault(call.program.digest if call.program else "copy", []).append(number)
    rows = [
        {
            "program": graph.calls[numbers[0]].label,
            "digest": digest,
            "calls": numbers,
            "seconds": sum(seconds[number] for number in numbers),
        }
        for digest, numbers in programs.items()
    ]
    path = graph.critical_path(seconds)
    return {
        "seconds": sum(seconds),
        "critical_path": list(path),
        "critical_seconds": sum(seconds[number] for number in path),
        "programs": sorted(rows, key=lambda row: -float(row["seconds"])),
        "by_call": list(seconds),
    }


def profile_lines(facts: Facts) -> Iterator[str]:
    """:func:`profile` as text."""
    yield f"{1e3 * facts['seconds']:.4f} ms in {counted(len(facts['by_call']), 'call')}"
    yield (
        f"{1e3 * facts['critical_seconds']:.4f} ms along the critical path of "
        f"{len(facts['critical_path'])}: {', '.join(map(str, facts['critical_path']))}"
    )
    for row in facts["programs"]:
        count = len(row["calls"])
        yield f"{1e3 * row['seconds']:9.4f} ms  {count:3} x {row['program']} {row['digest']}"


def sweep(
    graph: Graph,
    number: int,
    generator: np.random.Generator,
    run: execution.Execute = execution.run,
    rounds: int = 1,
) -> Facts:
    """Device seconds of one call with its work divided into workgroups of each size that there is.

    Args:
        rounds: runs with each size, of which the fastest counts.

    Raises:
        GraphError: its workgroups cannot be divided otherwise, or the graph does not run.
        LaunchError, GpuFault, GpuHang, HazardError: what the device ran into.
    """
    call = graph.calls[number]
    sizes = list(launches.candidates(call.program)) if call.program else []
    if len(sizes) < 2:
        reason = launches.against(call.program, call.program.local) if call.program else "it is a copy"
        raise GraphError(
            f"sweep of call {number} ({call.label}): {reason or 'it has one size'}; choose another"
        )
    inputs = execution.random_inputs(graph, generator)
    rows = []
    for size in sizes:
        assert call.program is not None
        program = launches.divided(call.program, size)
        calls = (*graph.calls[:number], replace(call, program=program), *graph.calls[number + 1 :])
        divided = graph.with_calls(calls)
        seconds = min(run(divided, inputs, stop=number + 1).seconds[number] for _ in range(rounds))
        rows.append({"local": list(size), "groups": list(program.groups), "seconds": seconds})
    return {
        "call": number,
        "program": call.label,
        "sizes": sorted(rows, key=lambda row: (row["seconds"], row["local"])),
    }


def sweep_lines(facts: Facts) -> Iterator[str]:
    """:func:`sweep` as text, the fastest first."""
    yield f"call {facts['call']}, {facts['program']}"
    for row in facts["sizes"]:
        yield f"{1e3 * row['seconds']:9.4f} ms  {row['groups']} groups of {row['local']}"


def compare(
    before: Graph,
    after: Graph,
    generator: np.random.Generator,
    threshold: float = 0.0,
    run: execution.Execute = execution.run,
) -> Facts:
    """Where two graphs differ, run on the same random inputs.

    Each pair of :func:`matched` calls is compared in what it writes, both graphs having run up to there as
    they are.

    Args:
        threshold: differences up to this share of an output's largest magnitude count as none.

    Raises:
        GraphError, LaunchError, GpuFault, GpuHang, HazardError: a graph does not run.
    """
    pairs = matched(before, after)
    inputs = execution.random_inputs(before, generator)
    one = run(before, inputs, watch=[pair[0] for pair in pairs])
    other = run(after, inputs, watch=[pair[1] for pair in pairs])
    rows = []
    for first, second in pairs:
        gap = max(map(difference, one.outputs[first], other.outputs[second]), default=0.0)
        rows.append(
            {
                "calls": [first, second],
                "programs": [before.calls[first].label, after.calls[second].label],
                "changed": changes(before.calls[first], after.calls[second]),
                "lanes": lanes.orders(before.calls[first], after.calls[second]),
                "difference": gap,
            }
        )
    results = [difference(mine, theirs) for mine, theirs in zip(one.results, other.results, strict=False)]
    differing = [row for row in rows if float(row["difference"]) > threshold]  # type: ignore[arg-type]
    return {
        "digests": [before.digest, after.digest],
        "equal": before.digest == after.digest,
        "calls": [len(before.calls), len(after.calls)],
        "matched": len(pairs),
        "results": results,
        "seconds": [sum(one.seconds), sum(other.seconds)],
        "first_divergence": differing[0] if differing else None,
        "differences": [row for row in rows if row["changed"] or row in differing],
    }


def matched(before: Graph, after: Graph) -> list[tuple[int, int]]:
    """Pairs of calls of both graphs.

    First those that compute the same of the same by construction; then, of the others, those that write as
    much under the same program name, or in the same place between such.
    """
    keys = [values(before), values(after)]
    places: dict[str, list[int]] = {}
    for number, key in enumerate(keys[1]):
        places.setdefault(key, []).append(number)
    found = [(number, places[key].pop(0)) for number, key in enumerate(keys[0]) if places.get(key)]
    rest = [
        [number for number in range(len(graph.calls)) if number not in {pair[side] for pair in found}]
        for side, graph in enumerate((before, after))
    ]
    return sorted(found + _aligned(before, after, rest[0], rest[1]))


def values(graph: Graph) -> list[str]:
    """Of each call, a digest of what it computes: its program, and all that its inputs come from."""
    of: dict[Memory, str] = {}
    found = []
    for call in graph.calls:
        digest = hashlib.sha256((call.program.digest if call.program else "copy").encode())
        for view in call.ins:
            memory = view.memory
            if memory not in of:
                known = memory.contents if memory.kind is Kind.WEIGHT else memory.name.encode()
                of[memory] = hashlib.sha256(known or b"").hexdigest()
            digest.update(f"{of[memory]} {view.start} {view.nbytes} {view.dtype};".encode())
        for number, view in enumerate(call.outs):
            of[view.memory] = f"{digest.hexdigest()} {number}"
        found.append(digest.hexdigest())
    return found


def _aligned(before: Graph, after: Graph, ones: list[int], others: list[int]) -> list[tuple[int, int]]:
    """Calls of two lists in the same order, by program name and bytes written, or else by place and bytes."""
    sizes = [
        [tuple(view.nbytes for view in graph.calls[number].outs) for number in numbers]
        for graph, numbers in ((before, ones), (after, others))
    ]
    keys = [
        [(graph.calls[number].label, size) for number, size in zip(numbers, sizes[side], strict=True)]
        for side, (graph, numbers) in enumerate(((before, ones), (after, others)))
    ]
    found: list[tuple[int, int]] = []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        for i, j in zip(range(i1, i2), range(j1, j2), strict=False):
            if tag == "equal" or (tag == "replace" and sizes[0][i] == sizes[1][j]):
                found.append((ones[i], others[j]))
    return found


def changes(before: Call, after: Call) -> list[str]:
    """In what two calls differ without being run: code, launch, types, contents of weights."""
    found = []
    one, other = before.program, after.program
    if (one is None) != (other is None):
        return ["kind"]
    if one is not None and other is not None:
        found += ["code"] if one.binary != other.binary else []
        found += ["launch"] if (one.groups, one.local) != (other.groups, other.local) else []
        found += ["parameters"] if one.parameters != other.parameters else []
    if list(_weights(before.views)) != list(_weights(after.views)):
        found.append("weights")
    return found


def _weights(views: Sequence[View]) -> Iterator[bytes]:
    return (view.array().tobytes() for view in views if view.memory.kind is Kind.WEIGHT)


def compare_lines(facts: Facts) -> Iterator[str]:
    """:func:`compare` as text."""
    yield f"{' and '.join(map(str, facts['calls']))} calls, {facts['matched']} matched"
    yield f"{' and '.join(f'{1e3 * seconds:.4f}' for seconds in facts['seconds'])} ms"
    for row in facts["differences"]:
        yield (
            f"{row['calls'][0]:4} {row['programs'][0]} -> {row['calls'][1]} {row['programs'][1]}: "
            f"{', '.join(row['changed']) or 'the same'}, differs by {row['difference']:.3g}"
        )
        for slot, order in row["lanes"].items():
            yield f"     argument {slot} has lanes {', '.join(map(str, order))} of each {lanes.WIDTH} halves"
    first = facts["first_divergence"]
    yield f"first divergence: call {first['calls'][0]}" if first else "no call differs"
    yield f"results differ by {', '.join(f'{gap:.3g}' for gap in facts['results'])}"
