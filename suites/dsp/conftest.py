"""What programs for the DSP need."""

from __future__ import annotations

import pytest

from pytest_qcom.dsp import runner


@pytest.fixture(scope="session")
def qemu() -> None:
    """Skips where DSP programs cannot be compiled or run, and says what is missing."""
    reasons = runner.missing("qemu")
    if reasons:
        pytest.skip(f"DSP programs under QEMU: {', '.join(reasons)}")
