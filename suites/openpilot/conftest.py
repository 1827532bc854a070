"""The captured models, each once a session, on the process's QCOM device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_qcom.openpilot import models
from pytest_qcom.openpilot.graph import Graph


@pytest.fixture(scope="session")
def pickled() -> Callable[[str], bytes]:
    """The pickle of a declared model."""
    return models.pickled


@pytest.fixture(scope="session")
def captured() -> Callable[[str], Graph]:
    """The graph of a declared model."""
    return models.captured
