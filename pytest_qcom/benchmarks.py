"""What pytest-benchmark is told of a session, and what it is not asked since it would pass it silently."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qcom import baselines
from pytest_qcom.errors import BaselineError, DeviceUnavailable

if TYPE_CHECKING:
    from pytest_qcom.session import Session

DEFAULT_STORAGE = "file://./.benchmarks"


def prepare(session: Session, option: Any) -> None:
    """Points pytest-benchmark at the device's stored floors.

    Args:
        option: the command line's values, of which those of pytest-benchmark are changed.

    Raises:
        DeviceUnavailable: the tests would run on the one device from several processes.
        BaselineError: the file that is to be rewritten or compared with is missing, malformed, or holds
            another device's or mode's times; or comparing is asked where benchmarks are off, or limits of it
            without comparing.
    """
    settings, workers = session.settings, getattr(option, "numprocesses", None)
    if settings.asked and workers and not session.entry.shared and option.dist != "loadgroup":
        raise DeviceUnavailable(
            f"device {session.entry.name} with -n: it is one device, for one process at a time; "
            f"run without -n, or with --dist loadgroup"
        )
    if settings.update and baselines.newest(settings.baselines, settings.device):
        _ = session.baseline
    if not settings.asked or getattr(option, "benchmark_storage", None) != DEFAULT_STORAGE:
        return
    _refuse_silence(option, workers)
    if option.benchmark_compare:
        _check_comparable(session)
    folder = settings.baselines / settings.device
    if folder.is_dir():
        option.benchmark_storage = f"file://{folder}"
    if isinstance(option.benchmark_compare, str):
        option.benchmark_compare = _stored(option.benchmark_compare, folder)


def _refuse_silence(option: Any, workers: Any) -> None:
    """Limits that nothing would be held to."""
    if option.benchmark_compare_fail and workers:
        raise BaselineError(
            "--benchmark-compare-fail with -n: pytest-xdist turns benchmarks off, so nothing would be "
            "compared; run without -n (floors are checked either way)"
        )
    if option.benchmark_compare_fail and not option.benchmark_compare:
        raise BaselineError(
            "--benchmark-compare-fail without --benchmark-compare: nothing would be compared; give both "
            "(floors are checked either way)"
        )


def _check_comparable(session: Session) -> None:
    stored, machine = session.baseline.document["machine_info"], session.machine
    if stored != machine.info():
        raise BaselineError(
            f"compare on {machine.name}: {session.baseline.path} was measured on {stored}, this is "
            f"{machine.info()}; measure again with --qcom-update-baselines"
        )


def _stored(name: str, folder: Path) -> str:
    """``--benchmark-compare=name`` as pytest-benchmark takes it, which has no use for a file's whole name.

    Raises:
        BaselineError: no file is called so, and pytest-benchmark would compare with nothing.
    """
    from pytest_benchmark.storage.file import FileStorage
    from pytest_benchmark.utils import get_machine_id

    named = (folder / name).resolve()
    if named.is_file():
        return str(named)
    try:
        found = FileStorage(folder, None, get_machine_id()).query(name)
    except ValueError:  # a path of several parts that is no file
        found = []
    if not found:
        there = ", ".join(sorted(path.name for path in folder.glob("*.json")))
        raise BaselineError(
            f"--benchmark-compare={name}: no such file in {folder}; there are {there}, and without a name it "
            f"is the newest one",
            path=str(folder),
        )
    return name
