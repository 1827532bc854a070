"""Whole pytest sessions in a folder of their own, on a device that takes the time it is told to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_qcom import baselines
from pytest_qcom.baselines import Machine, Measurement

FLOORS = [
    Measurement(
        key=f"copy[{case}]",
        kernel="copy",
        case=case,
        options={"n": size},
        shape=str(size),
        unit="GFLOPS",
        work=1e-3 * size,
        seconds=(1e-3,),
        floor=None,
        max_error=0.0,
        hazards="strict",
        claim="correct",
    )
    for case, size in (("small", 64), ("large", 128))
]

QUICK = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
"""Hypothesis alone takes longer to import than all that these sessions do."""

Run = Callable[..., pytest.RunResult]

KERNEL_TEST = """
import pytest

@pytest.mark.qcom_kernel("copy")
def test_kernel(kernel_run):
    kernel_run()
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run(*arguments, test=SOURCE, **environment)``: one session, in a process of its own."""
    for name in list(os.environ):
        if name.startswith(("PYTEST_", "QCOM_", "DEV", "FAKE_")) and name != "PYTEST_VERSION":
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)

    def session(*arguments: str, test: str | None = None, **environment: str) -> pytest.RunResult:
        if test is not None:
            pytester.makepyfile(test_made=test)
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            return pytester.runpytest_subprocess(*QUICK, *arguments, timeout=60)

    return session


@pytest.fixture
def desk(run: Run) -> Run:
    """As ``run``, on the fake device ``desk``."""

    def session(*arguments: str, test: str | None = KERNEL_TEST, **environment: str) -> pytest.RunResult:
        return run("-p", "fakes", "--qcom-device", "desk", *arguments, test=test, **environment)

    return session


@pytest.fixture
def measured(pytester: pytest.Pytester) -> Path:
    """The floors of ``desk``, as a session of the fake device stores them."""
    machine = Machine("desk", "Adreno 630", "fake", tolerance=1e-3)
    versions = {"tinygrad": "0.14.0", "tinymesa": "25.2.7.2"}
    return baselines.update(pytester.path / "baselines", machine, FLOORS, versions)
