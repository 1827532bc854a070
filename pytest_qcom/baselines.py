"""Stored performance of a device: floors that a run must reach.

A baseline is one pytest-benchmark JSON file a device, ``baselines/<device>/NNNN_….json``, so that
``--benchmark-compare`` reads it unchanged. Entries are keyed by ``kernel[case]`` and not by node id, so
renaming a test loses nothing. What a run is held to stands in each entry's ``extra_info``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_qcom.devices.registry import Entry
from pytest_qcom.errors import BaselineError, FloorError

FILE_PATTERN = "[0-9][0-9][0-9][0-9]_*.json"
FIRST_FILE = "0001_floors.json"
EXACT_TOLERANCE = 1e-3  # a deterministic clock, rounded to ticks of the always-on counter
HARDWARE_TOLERANCE = 0.02  # clock and temperature between runs (measured on tc3, notes)
REQUIRED = ("floor", "unit", "tolerance", "device", "provenance", "model")


def key(kernel: str, case: str, options: Mapping[str, Any] | None = None) -> str:
    """The name under which a kernel's case is stored: ``kernel[case]``, changed options appended."""
    changed = "".join(f",{name}={value}" for name, value in sorted((options or {}).items()))
    return f"{kernel}[{case}{changed}]"


@dataclass(frozen=True, slots=True)
class Floor:
    """The least that a kernel must reach on a device.

    Attributes:
        value: throughput in ``unit`` (``GFLOPS``, ``GB/s``); positive.
        tolerance: fraction of ``value`` by which a run may fall short.
        model: what the times mean: ``hardware``, or the virtual device's clock.
        provenance: where the figure comes from.
    """

    key: str
    value: float
    unit: str
    tolerance: float
    device: str
    model: str
    provenance: Mapping[str, Any]
    path: Path

    @property
    def least(self) -> float:
        """The smallest throughput that still passes, in :attr:`unit`."""
        return self.value * (1 - self.tolerance)

    def margin(self, measured: float) -> float:
        """How far above the floor a throughput is, as a fraction of the floor; negative below it."""
        return measured / self.value - 1

    def check(self, measured: float, unit: str) -> float:
        """The margin of ``measured`` (a throughput in ``unit``).

        Raises:
            BaselineError: another unit than the stored one.
            FloorError: slower than the floor, less its tolerance, or no number.
        """
        __tracebackhide__ = True
        if unit != self.unit:
            raise BaselineError(
                f"floor of {self.key} on {self.device}: measured in {unit}, {self.path} has {self.unit}; "
                f"rewrite the entry with --qcom-update-baselines",
                key=self.key,
            )
        if not measured >= self.least:
            raise FloorError(
                f"{self.key} on {self.device}: {measured:.2f} {unit} is {-self.margin(measured):.2%} below "
                f"the floor of {self.value:.2f} {unit} (tolerance {self.tolerance:.2%}, {self.path}); "
                f"make the kernel faster, or accept the new speed with --qcom-update-baselines",
                key=self.key,
                measured=measured,
                floor=self.value,
                tolerance=self.tolerance,
            )
        return self.margin(measured)


@dataclass(frozen=True, slots=True)
class Baseline:
    """The validated contents of one device's file."""

    path: Path
    device: str
    document: Mapping[str, Any]
    floors: Mapping[str, Floor]

    def floor(self, key: str, mode: str) -> Floor:
        """The floor of ``kernel[case]``, for times that mean ``mode``.

        Raises:
            BaselineError: no entry of that name, or one that another model of time measured.
        """
        __tracebackhide__ = True
        if key not in self.floors:
            raise BaselineError(
                f"floor of {key} on {self.device}: {self.path} has no such entry among its "
                f"{len(self.floors)}; measure it with --qcom-update-baselines",
                key=key,
                path=str(self.path),
            )
        floor = self.floors[key]
        if floor.model != mode:
            raise BaselineError(
                f"floor of {key} on {self.device}: {self.path} has it from {floor.model!r}, the device's "
                f"times are {mode!r}; measure it again with --qcom-update-baselines",
                key=key,
                model=floor.model,
            )
        return floor


def newest(root: Path, device: str) -> Path | None:
    """The file that holds ``device``'s floors: the highest number in ``root/device``; None without any."""
    files = sorted((root / device).glob(FILE_PATTERN))
    return files[-1] if files else None


def load(root: Path, device: str) -> Baseline:
    """Reads and validates the floors of ``device`` below ``root``.

    A broken newest file is an error: an older one is never used in its place.

    Raises:
        BaselineError: no file, broken JSON, not a benchmark file, another device's file, an entry without a
            usable floor, an entry twice.
    """
    __tracebackhide__ = True
    path = newest(root, device)
    if path is None:
        raise BaselineError(
            f"baseline of {device}: no stored floors in {root / device}; store them first: "
            f"run these tests with --qcom-update-baselines --qcom-device {device}",
            device=device,
            path=str(root / device),
        )
    return parse(path, device)


def parse(path: Path, device: str) -> Baseline:
    """Reads and validates one file; raises as :func:`load` does."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _malformed(path, f"is not readable JSON ({error})") from error
    if not isinstance(document, dict) or not isinstance(document.get("benchmarks"), list):
        raise _malformed(path, "is no pytest-benchmark file: it has no list of benchmarks")
    machine = document.get("machine_info")
    node = machine.get("node") if isinstance(machine, dict) else None
    if node != device:
        raise BaselineError(
            f"baseline of {device}: {path} was measured on {node!r}; "
            f"put it into the folder of that device, or measure {device} with --qcom-update-baselines",
            device=device,
            found=node,
            path=str(path),
        )
    floors: dict[str, Floor] = {}
    for index, entry in enumerate(document["benchmarks"]):
        floor = _floor(path, device, index, entry)
        if floor.key in floors:
            raise _malformed(path, f"has {floor.key} twice")
        floors[floor.key] = floor
    return Baseline(path, device, document, floors)


def _floor(path: Path, device: str, index: int, entry: Any) -> Floor:
    name = entry.get("fullname") if isinstance(entry, dict) else None
    if not isinstance(name, str):
        raise _malformed(path, f"entry {index} has no fullname")
    info = entry.get("extra_info")
    missing = [field for field in REQUIRED if not isinstance(info, dict) or field not in info]
    if missing:
        raise _malformed(path, f"entry {name} lacks extra_info {', '.join(missing)}")
    if info["device"] != device:
        raise BaselineError(
            f"baseline of {device}: entry {name} of {path} was measured on {info['device']!r}; "
            f"measure it on {device} with --qcom-update-baselines",
            key=name,
            found=info["device"],
        )
    if not _number(info["floor"]) or info["floor"] <= 0:
        raise _malformed(path, f"entry {name} has floor {info['floor']!r}, not a positive number")
    if not _number(info["tolerance"]) or not 0 <= info["tolerance"] < 1:
        raise _malformed(path, f"entry {name} has tolerance {info['tolerance']!r}, not a fraction of 1")
    stats = entry.get("stats")
    mean: Any = stats.get("mean") if isinstance(stats, dict) else None
    if not _number(mean) or mean <= 0:
        raise _malformed(path, f"entry {name} has a mean of {mean!r}, not a positive number of seconds")
    if not isinstance(info["unit"], str) or not isinstance(info["model"], str):
        raise _malformed(path, f"entry {name} has a unit or model that is no text")
    if not isinstance(info["provenance"], dict):
        raise _malformed(path, f"entry {name} has a provenance that is no object")
    return Floor(
        key=name,
        value=float(info["floor"]),
        unit=info["unit"],
        tolerance=float(info["tolerance"]),
        device=device,
        model=info["model"],
        provenance=info["provenance"],
        path=path,
    )


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _malformed(path: Path, problem: str) -> BaselineError:
    return BaselineError(
        f"baseline {path}: {problem}; restore it from version control, or delete it and measure again with "
        f"--qcom-update-baselines",
        path=str(path),
    )


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run of a kernel measured: enough to judge it, to print it and to store it.

    Attributes:
        options: all options of the kernel, as JSON has them.
        work: what one launch does, in ``unit`` times seconds (GFLOP, GB).
        seconds: device seconds of each round.
        floor: the stored throughput it is held to; None where it is to be stored, or none is stored.
        max_error: largest absolute error of an output; None where the output means nothing.
        claim: what the kernel's output may be held to, as its declaration says.
    """

    key: str
    kernel: str
    case: str
    options: Mapping[str, Any]
    shape: str
    unit: str
    work: float
    seconds: tuple[float, ...]
    floor: float | None
    max_error: float | None
    hazards: str
    claim: str

    @property
    def speed(self) -> float:
        """Work over the mean of the rounds, in ``unit``; 0 when the clock stood still."""
        total = sum(self.seconds)
        return self.work * len(self.seconds) / total if total > 0 else 0.0

    def dumps(self) -> str:
        """As JSON text, which survives pytest-xdist and JUnit."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Measurement:
        """Back from :meth:`dumps`."""
        fields = json.loads(text)
        return cls(**{**fields, "seconds": tuple(fields["seconds"])})


@dataclass(frozen=True, slots=True)
class Machine:
    """The device that measured. It stands in the JSON in place of the host."""

    name: str
    chip: str
    mode: str
    tolerance: float

    def info(self) -> dict[str, str]:
        """pytest-benchmark's ``machine_info``."""
        return {"node": self.name, "chip": self.chip, "mode": self.mode}


def machine(entry: Entry) -> Machine:
    """The device as the JSON files name it, and the tolerance of its floors."""
    tolerance = EXACT_TOLERANCE if entry.deterministic else HARDWARE_TOLERANCE
    return Machine(entry.name, entry.chip, entry.mode, tolerance)


def extra_info(measurement: Measurement, machine: Machine, versions: Mapping[str, str]) -> dict[str, Any]:
    """What an entry says besides its times: the floor in force, or the new one where none is."""
    return {
        "floor": measurement.speed if measurement.floor is None else measurement.floor,
        "unit": measurement.unit,
        "tolerance": machine.tolerance,
        "device": machine.name,
        "model": machine.mode,
        "work": measurement.work,
        "provenance": {
            "source": "measured with --qcom-update-baselines",
            "shape": measurement.shape,
            "claim": measurement.claim,
            "hazards": measurement.hazards,
            "versions": dict(versions),
        },
    }


def entry(measurement: Measurement, machine: Machine, versions: Mapping[str, str]) -> dict[str, Any]:
    """One benchmark of the JSON file."""
    return {
        "group": measurement.kernel,
        "name": measurement.key,
        "fullname": measurement.key,
        "params": dict(measurement.options),
        "param": measurement.case,
        "extra_info": extra_info(measurement, machine, versions),
        "options": {},
        "stats": statistics(measurement.seconds),
    }


def statistics(seconds: Iterable[float]) -> dict[str, Any]:
    """pytest-benchmark's statistics of a list of rounds, in seconds."""
    from pytest_benchmark.stats import Stats

    stats = Stats()
    for second in seconds:
        stats.update(second)
    return {**stats.as_dict(), "iterations": 1}


def update(
    root: Path, machine: Machine, measured: Iterable[Measurement], versions: Mapping[str, str]
) -> Path:
    """Stores what a run measured; entries of kernels that it did not run stay as they are.

    The new file replaces the old one in one step, so that no failure loses it.

    Returns:
        The file written.

    Raises:
        BaselineError: nothing was measured or one kernel twice, the old file is malformed, or the folder
            cannot be written.
    """
    fresh: dict[str, Any] = {}
    for item in measured:
        if item.key in fresh:
            raise BaselineError(f"baseline of {machine.name}: {item.key} was measured by two tests; run one")
        if item.speed <= 0:
            raise BaselineError(
                f"baseline of {machine.name}: {item.key} took no time; check the device's clock"
            )
        fresh[item.key] = entry(replace(item, floor=None), machine, versions)
    if not fresh:
        raise BaselineError(
            f"baseline of {machine.name}: nothing was measured; the stored floors stay as they are"
        )
    return store(root, machine, lambda kept: {**kept, **fresh}, versions)


def store(
    root: Path,
    machine: Machine,
    combine: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    versions: Mapping[str, str],
    first: str = FIRST_FILE,
) -> Path:
    """Replaces the stored entries of a device by what ``combine`` makes of them.

    Whoever else stores floors of the device meanwhile waits, so that neither loses what the other wrote.

    Args:
        combine: the new entries by key, from those of the newest file; called while the folder is locked.
        first: the name of the file where the device has none yet.

    Returns:
        The file that holds the floors; as it was where ``combine`` changed nothing.

    Raises:
        BaselineError: the old file is malformed, or the folder cannot be written.
    """
    with _locked(root / machine.name, machine):
        path = newest(root, machine.name)
        kept: dict[str, Any] = {}
        if path is not None:
            kept = {item["fullname"]: item for item in parse(path, machine.name).document["benchmarks"]}
        else:
            path = root / machine.name / first
        entries = combine(kept)
        if entries != kept:  # the file has a date, but no news is no change
            write(path, machine, entries, versions)
    return path


@contextlib.contextmanager
def _locked(folder: Path, machine: Machine) -> Iterator[None]:
    """While entered, no other process (or thread) is in the same device's folder, which is made if needed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unwritable(folder, machine, error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)  # the folder itself: a lock file would stay behind
        except OSError as error:
            raise _unwritable(folder, machine, error) from error
        yield
    finally:
        os.close(handle)  # gives the lock up


def write(path: Path, machine: Machine, entries: Mapping[str, Any], versions: Mapping[str, str]) -> None:
    """Writes a device's file, sorted by name, in one step.

    Raises:
        BaselineError: the folder cannot be written; an existing file is as it was.
    """
    from pytest_benchmark import __version__ as format_version

    document = {
        "machine_info": machine.info(),
        "commit_info": {"versions": dict(versions)},
        "benchmarks": [entries[name] for name in sorted(entries)],
        "datetime": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": format_version,
    }
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    partial: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except OSError as error:
        if partial is not None:
            Path(partial).unlink(missing_ok=True)
        raise _unwritable(path, machine, error) from error


def _unwritable(path: Path, machine: Machine, error: OSError) -> BaselineError:
    return BaselineError(
        f"baseline of {machine.name}: cannot write {path} ({error}); the stored floors stay as they are",
        path=str(path),
    )
