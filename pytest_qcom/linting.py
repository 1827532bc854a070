"""What the hazard checker is told of a kernel's build: registers, launch, images."""

from __future__ import annotations

from typing import Any

from pytest_qcom.analysis import hazards
from pytest_qcom.analysis.findings import Finding
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.timings import launched


def registers(build: Build) -> dict[str, Any]:
    """What :func:`.analysis.hazards.lint` must know of a launch."""
    return {
        "fregs": build.fregs,
        "hregs": build.hregs,
        "merged": build.merged,
        "thread128": build.thread128,
    }


def circumstances(build: Build) -> dict[str, Any]:
    """All that it can use, for a CL binary. Coordinates take it as long as the waves that it follows."""
    return {
        **registers(build),
        "launch": launched(build),
        "textures": _extents(build, written=False),
        "images": _extents(build, written=True),
    }


def lint(build: Build) -> tuple[Finding, ...]:
    """All findings of a build's program under its own launch."""
    return hazards.lint(build.program, **circumstances(build))


def _extents(build: Build, written: bool) -> tuple[tuple[int, int], ...]:
    """Width and height of the images that are read, or written, in the order of their slots."""
    found = [argument.shape for argument in build.arguments if argument.image and argument.written == written]
    return tuple((shape[1], shape[0]) for shape in found)
