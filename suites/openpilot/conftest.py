"""The captured models, each once a session, on the process's QCOM device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_qcom.devices import registry
from pytest_qcom.openpilot import models
from pytest_qcom.openpilot.graph import Graph
from pytest_qcom.plugin import SESSION


@pytest.fixture(scope="session", autouse=True)
def process_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """A device behind ssh is none of this process's: what is not for ``patch_run`` uses the virtual one."""
    if request.config.stash[SESSION].entry.kind != "ssh":
        yield
        return
    with registry.find("virtual", Path.cwd()).install("strict"):
        yield


@pytest.fixture(scope="session")
def pickled() -> Callable[[str], bytes]:
    """The pickle of a declared model."""
    return models.pickled


@pytest.fixture(scope="session")
def captured() -> Callable[[str], Graph]:
    """The graph of a declared model."""
    return models.captured
