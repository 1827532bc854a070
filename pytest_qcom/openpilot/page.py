"""The page of the declared patches: what each looks for, how far results may move, what it does to a model.

Run ``python -m pytest_qcom.openpilot.page > docs/patches.md`` to renew it; the models are captured for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from pytest_qcom.openpilot import registry
from pytest_qcom.openpilot.models import MODELS, captured
from pytest_qcom.openpilot.patch import Patch
from pytest_qcom.openpilot.registry import PATCHES


def page() -> str:
    """The page as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Patches of captured graphs"
    yield ""
    yield f"Made from {len(PATCHES)} declarations, in the order in which a pipeline applies them. Each is"
    yield "checked by running the graph before and after it on the same random inputs; results may move"
    yield "by the given share of their largest magnitude. `qcom graph patch FILE --patch NAME --check`"
    yield "applies one and prints what it does to the time, `--only CALL` at the sites with a call that is"
    yield "named. A test with the marker `qcom_patch` and the fixture `patch_run` does the same, and holds"
    yield "the patched graph to a floor in runs a second:"
    yield ""
    yield "    @pytest.mark.qcom_patch('dedupe-head', graph='model.pkl')"
    yield "    def test_heads(patch_run):"
    yield "        assert patch_run().error == 0"
    yield ""
    yield "`qcom_patch('dedupe-head', model='heads')` names a model of the table below, and `qcom_patch()`"
    yield "all patches, each on the models that it fits. A patch that does not fit fails with the reason."
    yield ""
    yield "# Models that they are checked on"
    yield ""
    yield "| model | what | inputs | calls |"
    yield "| --- | --- | --- | --- |"
    for model in MODELS.values():
        inputs = ", ".join(f"{name} {shape.dtype}{list(shape.dims)}" for name, shape in model.inputs.items())
        yield f"| {model.name} | {model.summary} | {inputs} | {len(captured(model.name).calls)} |"
    for each in PATCHES.values():
        yield from _section(each)


def _section(each: Patch) -> Iterator[str]:
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
        made = registry.applied(each.name, model)
        yield f"| {model} | {len(made.sites)} | {len(made.before.calls)} | {len(made.graph.calls)} |"


def main() -> None:
    """Prints the page."""
    from pytest_qcom.devices import registry as devices

    with devices.find("virtual", Path.cwd()).install("strict"):
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
