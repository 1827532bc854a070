"""Declared kernels that no other suite of this folder names: a new one is checked without a line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_qcom.conformance import Outcome
from pytest_qcom.kernels.compositions import COMPOSITIONS
from pytest_qcom.kernels.registry import KERNELS


def _named() -> set[str]:
    """The kernels that the markers of the other suites name."""
    stems = [
        path.stem for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name
    ]
    tests = [
        test for stem in stems for test in vars(importlib.import_module(f"suites.kernels.{stem}")).values()
    ]
    marks = [mark for test in tests if callable(test) for mark in getattr(test, "pytestmark", ())]
    return {mark.args[0] for mark in marks if mark.name == "qcom_kernel"}


UNNAMED = [
    name for name, kernel in KERNELS.items() if kernel.claim != "as-published" and name not in _named()
]


def _marked(test: Callable[..., Any]) -> Callable[..., Any]:
    for name in UNNAMED:
        test = pytest.mark.qcom_kernel(name)(test)
    return test


if UNNAMED:

    @_marked
    def test_kernel_is_right_on_random_inputs_and_holds_its_floor(kernel_run: Callable[[], Outcome]) -> None:
        assert kernel_run().ok


def test_other_suites_are_read() -> None:
    assert {"alu_peak", "gemm_8x8_fp16_packed"} <= _named() <= {*KERNELS, *COMPOSITIONS}
