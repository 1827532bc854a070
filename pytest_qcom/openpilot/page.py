"""The page of the declared patches: what each looks for, how far results may move, what it does to a model.

Run ``python -m pytest_qcom.openpilot.page > docs/patches.md`` to renew it; the models are captured for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_qcom.openpilot import patch
from pytest_qcom.openpilot.graph import Graph
from pytest_qcom.openpilot.models import MODELS
from pytest_qcom.openpilot.patch import Applied, Patch
from pytest_qcom.openpilot.registry import PATCHES

Captured = Callable[[str], Graph]
"""Gives the graph of a declared model."""
Apply = Callable[[str, str], Applied]
"""Applies a patch, by its name, to the graph of a declared model."""


def page(captured: Captured, applied: Apply) -> str:
    """The page as Markdown."""
    return "\n".join(_lines(captured, applied)) + "\n"


def _lines(captured: Captured, applied: Apply) -> Iterator[str]:
    yield "# Patches of captured graphs"
    yield ""
    yield f"Made from {len(PATCHES)} declarations, in the order in which a pipeline applies them. Each is"
    yield "checked by running the graph before and after it on the same random inputs; results may move"
    yield "by the given share of their largest magnitude. `qcom graph patch FILE --patch NAME --check`"
    yield "applies one and prints what it does to the time."
    yield ""
    yield "# Models that they are checked on"
    yield ""
    yield "| model | what | inputs | calls |"
    yield "| --- | --- | --- | --- |"
    for model in MODELS.values():
        inputs = ", ".join(f"{name} {shape.dtype}{list(shape.dims)}" for name, shape in model.inputs.items())
        yield f"| {model.name} | {model.summary} | {inputs} | {len(captured(model.name).calls)} |"
    for each in PATCHES.values():
        yield from _section(each, applied)


def _section(each: Patch, applied: Apply) -> Iterator[str]:
    yield ""
    yield f"## {each.name}"
    yield ""
    yield f"{each.summary[0].upper()}{each.summary[1:]}."
    yield ""
    moved = (
        "Results keep their bits" if not each.tolerance.share else f"Results move by {each.tolerance.share:g}"
    )
    yield f"{moved}: {each.tolerance.reason}. Derived from: {each.source}."
    if not each.models:
        return
    yield ""
    yield "| model | sites | calls before | calls after |"
    yield "| --- | --- | --- | --- |"
    for model in each.models:
        made = applied(each.name, model)
        yield f"| {model} | {len(made.sites)} | {len(made.before.calls)} | {len(made.graph.calls)} |"


def main() -> None:
    """Prints the page."""
    from pytest_qcom.devices import registry

    with registry.find("virtual", Path.cwd()).install("strict"):
        graphs = {name: model.graph() for name, model in MODELS.items()}

        def applied(name: str, model: str) -> Applied:
            return patch.apply(PATCHES[name], graphs[model])

        sys.stdout.write(page(graphs.__getitem__, applied))


if __name__ == "__main__":
    main()
