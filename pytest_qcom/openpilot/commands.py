"""``qcom graph``: captured graphs from a shell."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qcom.arguments import Answer, add_rounds, add_seed, counted, fraction, positive
from pytest_qcom.errors import GraphError

if TYPE_CHECKING:
    from pytest_qcom.devices.registry import Entry
    from pytest_qcom.openpilot.graph import Graph
    from pytest_qcom.openpilot.places import Place


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    sub.add_argument("action", choices=sorted(ACTIONS), help="what to do")
    sub.add_argument("file", type=Path, metavar="FILE", help="the pickle of a TinyJit")
    sub.add_argument(
        "--with", dest="other", type=Path, metavar="FILE", help="compare, correction: the other graph"
    )
    sub.add_argument("--call", type=int, metavar="N", help="disasm, sweep: this call alone")
    sub.add_argument("--patch", action="append", default=[], metavar="NAME", help="patch: repeat for several")
    sub.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="CALL",
        help="patch, profile: this call alone, by number or by its program's name; repeat for several",
    )
    sub.add_argument("--check", action="store_true", help="patch: run before and after on the same inputs")
    sub.add_argument("--output", type=Path, metavar="FILE", help="patch: where the result is written")
    sub.add_argument("--model", metavar="NAME", help="capture: a declared small model, written to FILE")
    sub.add_argument("--onnx", type=Path, metavar="FILE", help="capture: a model in ONNX instead")
    sub.add_argument("--threshold", type=fraction, default=0.0, help="compare: share that is no difference")
    sub.add_argument("--rounding", default="half", metavar="NAME", help="scan: half, byte or nibble")
    sub.add_argument("--chunks", type=positive, default=8, metavar="N", help="scan: into how many parts")
    sub.add_argument("--cases", type=positive, default=8, metavar="N", help="correction: how many inputs")
    add_seed(sub, "inputs and weights")
    add_rounds(sub)


def run(options: argparse.Namespace) -> Answer:
    """Does what the command line asks for.

    Raises:
        QcomError: what is wrong with it, or what the device ran into.
    """
    return ACTIONS[options.action](options)


@contextlib.contextmanager
def _device(options: argparse.Namespace) -> Iterator[Place]:
    from pytest_qcom.openpilot import places

    with places.opened(_entry(options), options.hazards) as place:
        yield place


def _entry(options: argparse.Namespace) -> Entry:
    from pytest_qcom.devices import registry

    return registry.find(options.device, Path.cwd())


def _load(path: Path) -> Graph:
    from pytest_qcom.openpilot import reading

    return reading.load(path)


def _generator(options: argparse.Namespace) -> Any:
    import numpy as np

    return np.random.default_rng(options.seed)


def _show(options: argparse.Namespace) -> Answer:
    from pytest_qcom.openpilot import inspection

    facts = inspection.show(_load(options.file))
    return facts, list(inspection.show_lines(facts)), 0


def _levels(options: argparse.Namespace) -> Answer:
    from pytest_qcom.openpilot import inspection

    facts = inspection.levels(_load(options.file))
    return facts, list(inspection.levels_lines(facts)), 0


def _disasm(options: argparse.Namespace) -> Answer:
    from pytest_qcom.openpilot import inspection

    graph = _load(options.file)
    if options.call is not None:
        _require_call(options.call, graph)
    facts = inspection.listing(graph, options.call)
    return facts, list(inspection.listing_lines(facts)), 0


def _sweep(options: argparse.Namespace) -> Answer:
    from pytest_qcom.openpilot import inspection

    if options.call is None:
        raise GraphError("graph sweep: no call named; give --call with its number ('qcom graph show')")
    graph = _load(options.file)
    _require_call(options.call, graph)
    with _device(options) as place:
        facts = inspection.sweep(graph, options.call, _generator(options), place.run, options.rounds)
    return facts, list(inspection.sweep_lines(facts)), 0


def _require_call(number: int, graph: Graph) -> None:
    if not 0 <= number < len(graph.calls):
        raise GraphError(f"call {number}: the graph has {len(graph.calls)} calls; give one of them")


def _profile(options: argparse.Namespace) -> Answer:
    from pytest_qcom.openpilot import inspection

    graph = _load(options.file)
    with _device(options) as place:
        facts = inspection.profile(graph, _generator(options), place.run, options.rounds, options.only)
    return facts, list(inspection.profile_lines(facts)), 0


def _compare(options: argparse.Namespace) -> Answer:
    from pytest_qcom.openpilot import inspection

    before, after = _load(options.file), _load(_other(options))
    with _device(options) as place:
        facts = inspection.compare(before, after, _generator(options), options.threshold, place.run)
    return facts, list(inspection.compare_lines(facts)), int(facts["first_divergence"] is not None)


def _weights(options: argparse.Namespace) -> Answer:
    from pytest_qcom.openpilot import precision

    facts = precision.weights(_load(options.file))
    return facts, list(precision.weights_lines(facts)), 0


def _scan(options: argparse.Namespace) -> Answer:
    from pytest_qcom.openpilot import precision

    graph = _load(options.file)
    with _device(options) as place:
        facts = precision.scan(graph, _generator(options), options.rounding, options.chunks, place.run)
    return facts, list(precision.scan_lines(facts)), 0


def _correction(options: argparse.Namespace) -> Answer:
    from pytest_qcom.openpilot import precision

    before, after = _load(options.file), _load(_other(options))
    with _device(options) as place:
        facts = precision.correction(before, after, _generator(options), options.cases, place.run)
    return facts, list(precision.correction_lines(facts)), 0


def _other(options: argparse.Namespace) -> Path:
    if options.other is None:
        raise GraphError(f"graph {options.action}: it takes two graphs; name the other one with --with FILE")
    other: Path = options.other
    return other


def _patch(options: argparse.Namespace) -> Answer:
    from pytest_qcom.openpilot import patch, registry, writing

    if not options.patch:
        raise GraphError(f"graph patch: no patch named; give --patch with {', '.join(registry.PATCHES)}")
    patches = [registry.find(name) for name in options.patch]
    graph = _load(options.file)
    facts, lines = [], []
    with _device(options) if options.check else contextlib.nullcontext() as place:
        for each in patches:
            if place is not None:
                report = patch.check(each, graph, _generator(options), place.run, options.only)
                applied, found = report.applied, report.facts()
            else:
                applied = patch.apply(each, graph, options.only)
                found = applied.facts()
            graph = applied.graph
            facts.append(found)
            lines.append(_patch_line(found))
    if options.output is not None:
        writing.save(graph, options.output)
    return facts, lines, 0


def _patch_line(found: dict[str, Any]) -> str:
    sites = counted(len(found["sites"]), "site")
    if found["left"]:
        sites += f" of {len(found['sites']) + len(found['left'])}"
    line = f"{found['patch']}: {sites}, {found['calls'][0]} to {found['calls'][1]} calls"
    if not found["applied"]:
        line = f"{found['patch']}: not applied: {found['reason']}"
    elif "ok" in found:
        before, after = found["seconds"]
        line += f", {1e3 * before:.4f} to {1e3 * after:.4f} ms, results moved by {found['error']:.3g}"
    return line


def _capture(options: argparse.Namespace) -> Answer:
    from pytest_qcom.openpilot import capture, models, reading

    if (options.model is None) == (options.onnx is None):
        names = ", ".join(models.MODELS)
        raise GraphError(f"graph capture: name one model; give --model with {names}, or --onnx FILE")
    if options.onnx is not None:
        _entry(options).require_here()
    with _device(options) as place:
        if options.onnx is None:
            name, data = options.model, place.pickled(options.model, options.seed)
        else:
            with capture.compiling(image=True, half=True):
                name, data = options.onnx.name, capture.capture(*capture.from_onnx(options.onnx))
    try:
        options.file.write_bytes(data)
    except OSError as error:
        raise GraphError(f"{options.file}: cannot be written ({error.strerror}); name another") from error
    digest = reading.read(data, str(options.file)).digest
    facts = {"model": name, "file": str(options.file), "bytes": len(data), "digest": digest}
    return facts, [f"{name} written to {options.file}: {digest}"], 0


ACTIONS: dict[str, Callable[[argparse.Namespace], Answer]] = {
    "capture": _capture,
    "compare": _compare,
    "correction": _correction,
    "disasm": _disasm,
    "levels": _levels,
    "patch": _patch,
    "profile": _profile,
    "scan": _scan,
    "show": _show,
    "sweep": _sweep,
    "weights": _weights,
}
"""What ``qcom graph`` can do."""
