"""The captured models, each once a session, on the process's QCOM device."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from pytest_qcom.openpilot import models, patch, reading, registry
from pytest_qcom.openpilot.graph import Graph
from pytest_qcom.openpilot.page import Apply


@pytest.fixture(scope="session")
def pickled() -> Callable[[str], bytes]:
    """The pickle of a declared model."""
    return cache(lambda name: models.find(name).pickled())


@pytest.fixture(scope="session")
def captured(pickled: Callable[[str], bytes]) -> Callable[[str], Graph]:
    """The graph of a declared model."""
    return cache(lambda name: reading.read(pickled(name), name))


@pytest.fixture(scope="session")
def applied(captured: Callable[[str], Graph]) -> Apply:
    """A patch, by its name, applied to a declared model."""
    return cache(lambda name, model: patch.apply(registry.find(name), captured(model)))
