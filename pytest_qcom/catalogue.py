"""The page of the declared kernels: what each computes, how it is judged, what its code is like.

Run ``qcom list --markdown > docs/kernels.md`` to renew it.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_qcom import baselines
from pytest_qcom.analysis.occupancy import occupancy
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.compositions import COMPOSITIONS
from pytest_qcom.kernels.edit import branches
from pytest_qcom.kernels.kernel import Build, Declared, Kernel
from pytest_qcom.kernels.published_counts import COUNTS
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.kernels.rewrite import counts
from pytest_qcom.targets import Target

PUBLISHED_DEVICE = "tc3"
"""Whose baseline holds the published figures."""

_COUNTS = ("instructions", "loop", "isam", "mad", "rpt3", "sy")
_COLUMNS = ("case", "options", "f/h", "waves", *_COUNTS, "published")


def loops(program: Program) -> tuple[int, ...]:
    """Instructions of each loop without its branch, as the notes count them, in program order."""
    found = []
    for index, instr in enumerate(program.instrs):
        if branches(instr) and program.target(index) <= index:
            found.append(index - program.target(index))
    return tuple(found)


def published(root: Path) -> dict[str, str]:
    """The figures of the notes by kernel and case, as a baseline of ``root`` holds them.

    Raises:
        BaselineError: a broken file.
    """
    path = baselines.newest(root, PUBLISHED_DEVICE)
    if path is None:
        return {}
    found = {}
    for floor in baselines.parse(path, PUBLISHED_DEVICE).floors.values():
        if measured := sorted(set(floor.provenance.get("measured", ()))):
            found[floor.key] = f"{' to '.join(f'{rate:g}' for rate in measured)} {floor.unit}"
    return found


def page(root: Path) -> str:
    """The page as Markdown.

    Args:
        root: the folder of the baselines.

    Raises:
        BaselineError: the published figures are broken.
        KernelError: a declared case that cannot be built.
    """
    return "\n".join(_lines(published(root))) + "\n"


def _lines(figures: Mapping[str, str]) -> Iterator[str]:
    cases = sum(len(kernel.cases) for kernel in KERNELS.values())
    yield "# Kernels"
    yield ""
    yield f"Made from {len(KERNELS)} declarations with {cases} cases by `qcom list --markdown`. Footprints"
    yield "f/h are vec4 of full and half registers; waves are those in flight, with 64 or 128 fibers. A"
    yield "loop's count is without its branch; several stand in program order. Published are the figures of"
    yield f"the notes for this very configuration on {PUBLISHED_DEVICE}; one whose output was wrong has none."
    for kernel in KERNELS.values():
        yield from _section(kernel, figures)
    yield from _published_counts()
    yield from ("", "# Sequences of launches", "", "Run by `qcom compose`.")
    for composition in COMPOSITIONS.values():
        yield from _head(composition)
        yield from ("", _row(("case", "options", "marked")), _row(["---"] * 3))
        for case in composition.cases:
            marked = "long" if case.name in composition.long else ""
            yield _row((case.name, _options(composition, composition.configure({}, case.name)), marked))


def _section(kernel: Kernel, figures: Mapping[str, str]) -> Iterator[str]:
    yield from _head(kernel)
    yield from ("", _row(_COLUMNS), _row(["---"] * len(_COLUMNS)))
    for case in kernel.cases:
        options = kernel.configure({}, case.name)
        cells = _code(kernel.build(options))
        figure = figures.get(baselines.key(kernel.name, case.name), "")
        yield _row((case.name, _options(kernel, options), *cells, figure))


def _published_counts() -> Iterator[str]:
    """The counts of the notes beside ours."""
    columns = ("case", "count", "published", "ours", "because")
    yield from ("", "# Published instruction counts", "", _row(columns), _row(["---"] * len(columns)))
    for count in COUNTS:
        found = measured(Target(KERNELS[count.kernel], count.case).build().program, count.what)
        key = baselines.key(count.kernel, count.case)
        yield _row((f"`{key}`", count.what, count.published, found, count.why))


def measured(program: Program, what: str) -> int:
    """Instructions of a kind, of the whole program or of its only ``loop``."""
    if what == "loop":
        (length,) = loops(program)
        return length
    return dict(counts(program))[what]


def _head(kernel: Declared) -> Iterator[str]:
    names = ", ".join(f"`{option.name.replace('_', '-')}`" for option in dataclasses.fields(kernel.options))
    yield from ("", f"## {kernel.name}", "", f"{kernel.summary}.", "")
    yield f"* claim: {kernel.claim}; unit: {kernel.unit}"
    yield f"* options: {names}"
    yield f"* oracle: {_meaning(kernel.oracle)}"
    yield f"* tolerance: {_meaning(kernel.tolerance)}"
    if kernel.patterns:
        yield f"* exact patterns: {', '.join(kernel.patterns)}"
    if kernel.source:
        yield f"* source: {kernel.source}"


def _options(kernel: Declared, options: Any) -> str:
    """The shape, and what differs from the defaults beside it."""
    shape = "x".join(str(getattr(options, side)) for side in "mnk" if hasattr(options, side))
    words = [
        word for word in kernel.arguments(options).split() if word.partition("=")[0] not in ("m", "n", "k")
    ]
    return " ".join([shape, *words]).strip()


def _code(build: Build) -> tuple[str, ...]:
    """Footprints, waves and counts of a build."""
    held = occupancy(
        build.fregs,
        build.hregs,
        thread128=build.thread128,
        fibers=math.prod(build.local),
        branchstack=build.branchstack,
        shared_bytes=build.shared_bytes,
        merged=build.merged,
    )
    number = dict(counts(build.program))
    found = {name: str(number[name]) for name in _COUNTS if name != "loop"}
    found["loop"] = ", ".join(map(str, loops(build.program)))
    return (
        f"{build.fregs}/{build.hregs}",
        f"{held.waves} of {held.wave_fibers}",
        *(found[name] for name in _COUNTS),
    )


def _meaning(function: Callable[..., Any]) -> str:
    """The first sentence of a function's documentation; where it has none, its module's."""
    text = inspect.getdoc(function) or ""
    if not text:
        module = inspect.getmodule(function)
        return f"see `{module.__name__}`" if module is not None else ""
    return " ".join(text.partition("\n\n")[0].split())


def _row(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
