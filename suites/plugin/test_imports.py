"""The arrows between the rooms point down, and mnemonics stand as text in the rooms that own them alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pytest_qcom
from pytest_qcom.isa.table import BY_NAME

PACKAGE = Path(pytest_qcom.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "isa": {"errors"},
    "chip": {"errors"},
    "envelope": {"errors", "isa"},
    "virtual": {"errors", "isa", "chip"},
    "analysis": {"errors", "isa", "chip"},
    "kernels": {"errors", "isa", "envelope", "chip"},
    "devices": {"errors", "isa", "chip", "virtual", "envelope", "analysis"},
    "baselines": {"errors", "devices"},
    "conformance": {"errors", "kernels", "devices", "baselines"},
    "composed": {"errors", "kernels", "devices", "conformance"},
    "split": {"errors", "kernels", "devices"},
    "catalogue": {"isa", "kernels", "analysis", "baselines"},
    "inputs": {"errors"},
    "measurements": {"errors", "baselines"},
    "report": {"baselines"},
    "settings": {"errors"},
    "targets": {"errors", "baselines", "kernels"},
}
TOP = {"session", "plugin", "cli", "__init__"}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Rooms that a module imports when it runs; those for type checkers alone do not count."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for node in ast.walk(branch)
    }
    names: list[str] = []
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("pytest_qcom.")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_point_down(path: Path) -> None:
    if room(path) not in TOP:
        assert imported(path) - {room(path)} <= ARROWS[room(path)]


def test_every_room_is_in_the_table() -> None:
    assert {room(path) for path in MODULES} == set(ARROWS) | TOP


def test_mnemonics_stand_in_the_table_and_the_kernels_alone() -> None:
    """Knowledge by name leaks this way. Names without a dot are words, or operations of the algebra, too."""
    mnemonics = {name for name in BY_NAME if "." in name}
    assert len(mnemonics) > 50
    leaks = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for path in MODULES
        if not path.is_relative_to(PACKAGE / "isa" / "table") and room(path) != "kernels"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value.partition(" ")[0] in mnemonics
    ]
    assert leaks == []
