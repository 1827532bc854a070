"""The rooms of the package: what may import what, and where instruction knowledge may stand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_qcom
from pytest_qcom.isa.table import ALIASES, OPS

ROOT = Path(pytest_qcom.__file__).parent

ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "arguments": set(),
    "isa": {"errors"},
    "chip": {"errors"},
    "envelope": {"isa"},
    "virtual": {"isa", "chip"},
    "analysis": {"isa", "chip"},
    "kernels": {"isa", "envelope", "chip"},
    "openpilot": {"arguments", "chip", "devices", "kernels", "isa", "envelope"},
    "dsp": {"arguments"},
    "devices": {"virtual", "envelope", "analysis", "chip", "isa"},
    "inputs": set(),
    "expected": set(),
    "settings": {"arguments", "devices"},
    "baselines": {"devices"},
    "tables": set(),
    "measurements": {"baselines", "tables"},
    "targets": {"baselines", "kernels"},
    "conformance": {"devices", "kernels", "targets"},
    "composed": {"conformance", "devices", "kernels", "targets"},
    "patched": {"baselines", "openpilot"},
    "split": {"conformance", "devices", "kernels"},
    "catalogue": {"analysis", "baselines", "isa", "kernels", "targets"},
    "timings": {"analysis", "kernels", "measurements", "tables"},
    "calibration": {"analysis", "timings"},
    "prediction": {"analysis", "chip", "isa", "kernels", "targets", "timings"},
    "programs": {"analysis", "arguments", "envelope", "isa", "linting", "targets"},
    "linting": {"analysis", "kernels", "timings"},
    "verdicts": {"analysis", "chip", "conformance", "devices", "kernels", "linting", "tables", "timings"},
    "fidelity": {"analysis", "calibration", "chip", "timings", "verdicts"},
    "report": {"analysis", "baselines", "fidelity"},
}
"""Room to the rooms that it may use; ``errors`` is for all."""
TOP = {"", "session", "benchmarks", "plugin", "cli"}
"""What puts the rooms together; they may use every room."""


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> Iterator[str]:
    """Modules of the package that ``path`` imports, at its top or inside of functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pytest_qcom"):
            yield node.module
            if node.module == "pytest_qcom":
                yield from (f"pytest_qcom.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("pytest_qcom"))
        assert not (isinstance(node, ast.ImportFrom) and node.level), (
            f"{path}: a relative import hides its room"
        )


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_arrows_point_down(path: Path) -> None:
    own = room(dotted(path))
    if own in TOP:
        return
    assert own in ARROWS, f"{dotted(path)} is in no room; add it to the table with what it may use"
    allowed = ARROWS[own] | {own, "errors", ""}
    wrong = sorted({module for module in imports(path) if room(module) not in allowed})
    assert not wrong, f"{own} may use {sorted(ARROWS[own])}, but {dotted(path)} imports {', '.join(wrong)}"


def test_no_import_cycles() -> None:
    """Between modules, imports inside of functions left out, since they run late on purpose."""
    graph = {dotted(path): set(top_imports(path)) for path in modules()}
    done: set[str] = set()

    def visit(module: str, chain: tuple[str, ...]) -> None:
        assert module not in chain, f"import cycle: {' -> '.join((*chain, module))}"
        if module in done:
            return
        for target in sorted(graph.get(module, set()) - {module}):  # a package names its own modules
            visit(target, (*chain, module))
        done.add(module)

    for module in sorted(graph):
        visit(module, ())


def top_imports(path: Path) -> Iterator[str]:
    """Modules whose names ``path`` needs to be loaded; of a package only the modules that it names."""
    known = {dotted(other) for other in modules()}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pytest_qcom."):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & known
            if names - known:
                yield node.module


def test_no_drawers() -> None:
    """No module whose name says nothing."""
    drawers = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}
    assert not [dotted(path) for path in modules() if path.stem in drawers]


MNEMONICS = {op.name for op in OPS} | set(ALIASES)
"""Names of instructions, of which those that are plain words are no sign of a leak."""

WORDS = {
    "add", "bar", "call", "conv", "cos", "cut", "emit", "end", "exp2", "fence", "floor", "jump", "kill",
    "log2", "lock", "mov", "nop", "rcp", "ret", "rsq", "sin", "sleep", "sqrt", "shb", "sam", "br", "isam",
}  # fmt: skip
"""Mnemonics that are also English or mathematics; as whole strings they may name something else."""

LEAK_ROOMS = {"isa/table", "kernels", "openpilot"}
"""Where mnemonics may stand: the table, and programs written in them."""


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """String constants with their lines, docstrings apart."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_mnemonics_stand_in_the_table_only(path: Path) -> None:
    place = path.relative_to(ROOT).as_posix()
    if any(place.startswith(f"{allowed}/") for allowed in LEAK_ROOMS):
        return
    leaks = [f"{line}: {value!r}" for line, value in strings(path) if value in MNEMONICS - WORDS]
    assert not leaks, (
        f"{place} knows instructions by name, at {', '.join(leaks)}; add an attribute to the table"
    )
