"""Executors of the suites: one that uses this host's floating-point unit, one that relies on nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_qcom.virtual.executor import Executor


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty cache, so that every test compiles with the code under test."""
    return tmp_path_factory.mktemp("objects")


@pytest.fixture(scope="session")
def executor(cache_dir: Path) -> Executor:
    return Executor(cache_dir=cache_dir, budget=1 << 20)


@pytest.fixture(scope="session")
def portable(cache_dir: Path) -> Executor:
    """The code that hosts without AVX-512 and MXCSR get."""
    return Executor(cache_dir=cache_dir, portable=True)


@pytest.fixture(scope="module", params=["host", "portable", "late"])
def machine(
    request: pytest.FixtureRequest, executor: Executor, portable: Executor, cache_dir: Path
) -> Executor:
    """Either kind, and the one whose results come as late as on the device: programs that wait."""
    late = Executor(cache_dir=cache_dir, budget=1 << 20, late=lambda dispatch: True)
    return {"host": executor, "portable": portable, "late": late}[request.param]
