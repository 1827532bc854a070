"""A declared patch on a declared model, or on a graph in a file: what a test is to check, and the check.

:func:`prepare` makes a :class:`Run`, its ``launch`` runs the patched graph once, its ``judge`` runs the graph
as it was on the same inputs and compares.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qcom import baselines
from pytest_qcom.errors import PatchError
from pytest_qcom.openpilot import models, patch, registry
from pytest_qcom.openpilot.patch import Applied, Patch, Report

if TYPE_CHECKING:
    import numpy as np

    from pytest_qcom.openpilot import execution
    from pytest_qcom.openpilot.graph import Graph
    from pytest_qcom.openpilot.places import Place

UNIT = "runs/s"
"""Of floors: how often a second the patched graph runs, by the device's clock."""
USAGE = "write qcom_patch(*names, model=None, graph=None)"


@dataclass(frozen=True, slots=True)
class Patched:
    """A patch on a graph.

    Attributes:
        model: a declared model, or the graph's file as the test names it.
        file: the graph's file; ``None`` for a declared model.
    """

    patch: Patch
    model: str
    file: Path | None = None

    @property
    def key(self) -> str:
        """Test id and baseline key: ``name[model]``."""
        return baselines.key(self.patch.name, self.model)

    def applied(self, place: Place) -> Applied:
        """The patch on the graph.

        Args:
            place: captures a declared model.

        Raises:
            PatchError: it does not fit, or its rewrite is wrong.
            GraphError: the file is not readable.
        """
        if self.file is None:
            graph = place.graph(self.model)
        else:
            graph = _loaded(self.file, self.file.stat().st_mtime_ns if self.file.is_file() else 0)
        found = patch.apply(self.patch, graph)
        if not found.sites:
            raise PatchError(
                f"patch {self.patch.name} on {self.model}: not applied: {found.reason}; name a graph that "
                "it fits"
            )
        return found


@functools.lru_cache(maxsize=4)
def _loaded(path: Path, changed: int) -> Graph:
    from pytest_qcom.openpilot import reading

    return reading.load(path)


def read(arguments: Sequence[Any], options: Mapping[str, Any], root: Path) -> list[Patched]:
    """From the arguments of the ``qcom_patch`` marker: each of the patches on each of its models.

    Args:
        root: the folder from which a graph's file is named.

    Raises:
        PatchError, GraphError: what is wrong with them.
    """
    given = {"names": arguments, **options}
    if wrong := [name for name in options if name not in ("model", "graph")]:
        raise PatchError(f"marker qcom_patch with {', '.join(wrong)}: it has no such argument; {USAGE}")
    texts = [*arguments, *(value for value in options.values() if value is not None)]
    if not all(isinstance(text, str) for text in texts):
        raise PatchError(f"marker qcom_patch with {given}: names are text; {USAGE}")
    patches = [registry.find(name) for name in arguments] or list(registry.PATCHES.values())
    model, graph = options.get("model"), options.get("graph")
    if model is not None and graph is not None:
        raise PatchError(f"marker qcom_patch with model {model!r} and graph {graph!r}: give one of them")
    if graph is not None:
        return _on_file(patches if arguments else [], graph, root)
    wanted = None if model is None else models.find(model).name
    if arguments and wanted:
        return [Patched(each, wanted) for each in patches]
    found = [Patched(each, name) for each in patches for name in each.models if wanted in (None, name)]
    if arguments and (bare := [each.name for each in patches if not each.models]):
        raise PatchError(f"marker qcom_patch: no declared model has a site of {bare[0]}; give graph=FILE")
    return found


def _on_file(patches: list[Patch], graph: str, root: Path) -> list[Patched]:
    path = root / graph
    if not patches:
        raise PatchError(
            f"marker qcom_patch with graph {graph!r} alone: name the patches that fit it ('qcom graph patch' "
            "tries them)"
        )
    if not path.is_file():
        raise PatchError(
            f"marker qcom_patch with graph {graph!r}: no file {path}; name the pickle of a TinyJit"
        )
    return [Patched(each, graph, path) for each in patches]


@dataclass(slots=True)
class Run:
    """A patched graph with inputs.

    Attributes:
        seconds: device time of each run so far, all calls together.
    """

    applied: Applied
    inputs: execution.Inputs
    run: execution.Execute
    after: execution.Run | None = None
    seconds: list[float] = field(default_factory=list)

    @property
    def shape(self) -> str:
        """What the patch does to the graph, for tables."""
        return f"{len(self.applied.before.calls)} to {len(self.applied.graph.calls)} calls"

    def launch(self) -> float:
        """Runs the patched graph once; device seconds.

        Raises:
            LaunchError, GpuFault, GpuHang, HazardError: what the device ran into.
        """
        self.after = self.run(self.applied.graph, self.inputs)
        self.seconds.append(sum(self.after.seconds))
        return self.seconds[-1]

    def judge(self) -> Report:
        """The results against those of the graph as it was.

        Raises:
            PatchError: they differ by more than the patch allows.
        """
        if self.after is None:
            self.launch()
        assert self.after is not None
        return patch.compare(self.applied, self.run(self.applied.before, self.inputs), self.after)


def prepare(target: Patched, generator: np.random.Generator, place: Place) -> Run:
    """Applies the patch and draws inputs.

    Args:
        place: where graphs run.

    Raises:
        PatchError, GraphError: as :meth:`Patched.applied`.
    """
    from pytest_qcom.openpilot import execution

    applied = target.applied(place)
    inputs = execution.random_inputs(applied.before, generator)
    return Run(applied, inputs, place.run)
