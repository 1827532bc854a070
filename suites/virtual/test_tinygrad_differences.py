"""Tests of tinygrad's own that the A630 fails: what their machine code computes, bit for bit.

docs/tinygrad.md explains each. A tinygrad or Mesa that changes one of them is noticed here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from suites.virtual import tinygrad_differences as programs

SCRIPT = Path(programs.__file__)
KEPT = ("PATH", "HOME", "XDG_CACHE_HOME")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NDArray[Any]]:
    """What the virtual A630 computed."""
    out = tmp_path_factory.mktemp("differences") / "results.npz"
    qcom = [sys.executable, "-c", "from pytest_qcom.cli import main; raise SystemExit(main())"]
    done = subprocess.run(
        [*qcom, "exec", "--device", "virtual", str(SCRIPT), str(out)],
        env={name: value for name, value in os.environ.items() if name in KEPT},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with np.load(out) as arrays:
        return dict(arrays)


def toward_zero(exact: NDArray[np.float64], dtype: type[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """Rounds toward zero, to the largest finite number at most."""
    with np.errstate(over="ignore"):
        nearest = exact.astype(dtype)
    inward = np.nextafter(nearest, dtype(0))
    return np.where(np.abs(nearest.astype(np.float64)) > np.abs(exact), inward, nearest)


def test_sine_reduces_its_argument_in_float32(results: dict[str, NDArray[Any]]) -> None:
    one, half = np.float32(0.15915494), np.float32(0.5)
    turns = programs.ANGLES * one + half
    turns = turns - np.floor(turns)
    angle = turns * np.float32(6.2831853) - np.float32(3.14159265)
    np.testing.assert_array_equal(results["sin"], np.sin(angle.astype(np.float64)).astype(np.float32))
    far = np.abs(programs.ANGLES) == 1e6
    error = np.abs(results["sin"] - np.sin(programs.ANGLES.astype(np.float64)))
    assert (error[far] > 0.03).all()


def test_float_to_half_rounds_toward_zero(results: dict[str, NDArray[Any]]) -> None:
    wanted = toward_zero(programs.FLOATS.astype(np.float64), np.float16)
    np.testing.assert_array_equal(results["half"], wanted)
    assert results["half"][3] == 65504  # to nearest, 70000 is infinite


def test_integer_to_float_rounds_toward_zero(results: dict[str, NDArray[Any]]) -> None:
    wanted = toward_zero(programs.INTEGERS.astype(np.float64), np.float32)
    np.testing.assert_array_equal(results["float"], wanted)
    assert (results["float"] != programs.INTEGERS.astype(np.float32)).sum() == 3


def test_subnormal_halves_are_zeros_to_arithmetic(results: dict[str, NDArray[Any]]) -> None:
    low, below, far_below, two = results["log2"].tolist()
    assert abs(low - np.log2(6.2e-5)) < 0.02
    assert (below, far_below, two) == (-np.inf, -np.inf, 1.0)


def test_a_load_behind_a_store_to_the_same_address_is_left_out(
    results: dict[str, NDArray[Any]],
) -> None:
    assert results["sum"].tolist() == [programs.SUMMANDS[-1]]  # 0 + the last, as nothing is loaded again


def test_a_conversion_that_mesa_leaves_out_is_found(results: dict[str, NDArray[Any]]) -> None:
    message = str(results["emulated"])
    assert message.startswith("uninitialized hr6.z at #205 `or.b hr6.z, hr6.z, hr8.w`: reads in hr6.z what")
