"""What a session prints: the header line, the table of kernels at the end, the seeds of failed tests."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

from pytest_qcom.baselines import Measurement

COLUMNS = ("shape", "speed", "floor", "margin", "max error", "hazards")


def row(measurement: Measurement) -> tuple[str, ...]:
    """The cells of one kernel in the summary table."""
    floor = measurement.floor
    return (
        measurement.key,
        measurement.shape,
        f"{measurement.speed:.2f} {measurement.unit}",
        "none" if floor is None else f"{floor:.2f}",
        "" if floor is None else f"{measurement.speed / floor - 1:+.1%}",
        "not checked" if measurement.max_error is None else f"{measurement.max_error:.2e}",
        measurement.hazards,
    )


def table(what: str, rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of the summary: the first column left, the others right; column names first.

    Args:
        what: name of the first column.
    """
    cells = [(what, *COLUMNS), *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def versions() -> dict[str, str]:
    """Versions of what compiles for and drives the device, without importing it."""
    return {name: _version(name) for name in ("tinygrad", "tinymesa")}


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def header(name: str, chip: str, mode: str, hazards: str, baseline: str) -> str:
    """The session's header line."""
    found = versions()
    return (
        f"qcom: {name} ({chip}, {mode}), hazards {hazards}, tinygrad {found['tinygrad']}, "
        f"Mesa {found['tinymesa']}, baseline {baseline}"
    )


def seed_note(seed: int, session_seed: int) -> str:
    """What a failed test with random inputs prints."""
    return (
        f"random inputs drawn with seed {seed:#018x} (from the node id and --qcom-seed {session_seed}); "
        f"qcom run and qcom graph take it as --seed"
    )


def trust(mode: str) -> list[str]:
    """How far times of this meaning agree with a device; nothing for a device itself."""
    from pytest_qcom.analysis.cycles import MODE

    if mode != MODE:
        return []
    from pytest_qcom import fidelity

    return [fidelity.summary()]
