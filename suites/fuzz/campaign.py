"""Many inputs in processes of their own, so that one that kills or stops its process is noticed.

An input is known by its target, seed and number. A worker notes each in a file that it shares with the
process that watches it, before it uses it.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from suites.fuzz.targets import TARGETS

PATIENCE = 60.0
"""Seconds after which an input, which takes milliseconds, counts as hung: of processor time, or ten times as
many of the clock, since the machine may be busy."""

_ROOM = 1 << 20
_HEAD = 12  # the number of the input, its length
_DONE, _SETUP = (1 << 64) - 1, (1 << 64) - 2
_SETUP_PATIENCE = 10 * PATIENCE
_BUSY = 10
_ROOT = Path(__file__).parents[2]


@dataclass
class Result:
    """What became of a target's inputs.

    Attributes:
        outcomes: how many were accepted, refused, or found something; without some of those right before
            one that killed its process.
        found: paths of the reports on inputs that ended badly, each with its input beside it.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    found: list[Path] = field(default_factory=list)


def work(target: str, seed: int, start: int, stop: int, folder: Path) -> None:
    """The worker: inputs ``start`` to ``stop``; outcomes go to a file of counts in the folder."""
    outcomes: Counter[str] = Counter()
    with (folder / "input").open("r+b") as file, mmap.mmap(file.fileno(), _ROOM) as shared:
        made = TARGETS[target](folder / "objects")
        for number in range(start, stop):
            shared[:_HEAD] = struct.pack("<QI", number, 0)

            def save(data: bytes, number: int = number) -> None:
                data = data[: _ROOM - _HEAD]
                shared[: _HEAD + len(data)] = struct.pack("<QI", number, len(data)) + data

            try:
                outcomes[made.run(random.Random(f"{target} {seed} {number}"), save)] += 1
            except Exception:
                outcomes["found"] += 1
                report(folder, target, seed, number, traceback.format_exc(), bytes(shared))
                (folder / "outcomes").write_text(json.dumps(outcomes))
            if number % 256 == 0:
                (folder / "outcomes").write_text(json.dumps(outcomes))
        shared[:8] = struct.pack("<Q", _DONE)
    (folder / "outcomes").write_text(json.dumps(outcomes))


def report(folder: Path, target: str, seed: int, number: int, text: str, shared: bytes) -> Path:
    """Saves an input and what it did."""
    size = struct.unpack_from("<I", shared, 8)[0]
    path = folder / f"{target}-{seed}-{number}"
    path.with_suffix(".input").write_bytes(shared[_HEAD : _HEAD + size])
    path.with_suffix(".txt").write_text(
        f"{text}\nagain: python -m suites.fuzz --only {number} --target {target} 1 {seed}\n"
    )
    return path.with_suffix(".txt")


def processor_seconds(process: int) -> float:
    """Processor time that a process has used so far; 0 where that cannot be known."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Worker:
    """A process at work on a range of inputs, and its watch."""

    def __init__(self, target: str, seed: int, start: int, stop: int, findings: Path) -> None:
        self.target, self.seed, self.stop, self.findings = target, seed, stop, findings
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        (self.folder / "outcomes").write_text("{}")
        self.outcomes: Counter[str] = Counter()
        self.launch(start)

    def launch(self, start: int) -> None:
        """A new process, from input ``start`` on."""
        self.seen, self.since = _SETUP, (time.monotonic(), 0.0)
        (self.folder / "input").write_bytes(struct.pack("<QI", _SETUP, 0) + bytes(_ROOM - _HEAD))
        arguments = [self.target, str(self.seed), str(start), str(self.stop), str(self.folder)]
        environment = os.environ | {"PYTHONFAULTHANDLER": "1", "PYTHONPATH": str(_ROOT)}
        self.errors = (self.folder / "errors").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "suites.fuzz", "--worker", *arguments],
            cwd=_ROOT,
            env=environment,
            stdout=self.errors,
            stderr=self.errors,
        )

    def poll(self) -> bool:
        """Whether the work is done; a process that died or stands still is replaced."""
        shared = (self.folder / "input").read_bytes()
        number = struct.unpack_from("<Q", shared)[0]
        now = time.monotonic(), processor_seconds(self.process.pid)
        if number != self.seen:
            self.seen, self.since = number, now
        code = self.process.poll()
        patience = _SETUP_PATIENCE if number == _SETUP else PATIENCE
        waited, used = (later - before for later, before in zip(now, self.since, strict=True))
        if code is None and used < patience and waited < _BUSY * patience:
            return False
        if code is None:
            self.process.kill()
            self.process.wait()
        self.errors.close()
        self.outcomes.update(json.loads((self.folder / "outcomes").read_text()))
        if code == 0 and number == _DONE:
            return True
        if number == _SETUP:
            raise RuntimeError(f"{self.target} is not ready: {(self.folder / 'errors').read_text()[-2000:]}")
        what = f"no end within {PATIENCE:g} s" if code is None else f"the process ended with {code}"
        text = what + "\n" + (self.folder / "errors").read_text(errors="replace")
        self.outcomes["found"] += 1
        report(self.folder, self.target, self.seed, number, text, shared)
        (self.folder / "outcomes").write_text("{}")
        if number + 1 >= self.stop:
            return True
        self.launch(number + 1)
        return False

    def close(self) -> list[Path]:
        """Moves the reports to where they are kept, and removes the rest."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        kept = []
        for path in sorted(self.folder.glob(f"{self.target}-*")):
            self.findings.mkdir(parents=True, exist_ok=True)
            shutil.move(path, self.findings / path.name)
            if path.suffix == ".txt":
                kept.append(self.findings / path.name)
        shutil.rmtree(self.folder)
        return kept


def campaign(
    target: str, seed: int, count: int, findings: Path, workers: int = 1, first: int = 0, batch: int = 20000
) -> Result:
    """``count`` inputs of a target, ``batch`` of them a process."""
    result, running = Result(), list[Worker]()
    starts = iter(range(first, first + count, batch))
    pending = next(starts, None)
    try:
        while running or pending is not None:
            while pending is not None and len(running) < workers:
                stop = min(pending + batch, first + count)
                running.append(Worker(target, seed, pending, stop, findings))
                pending = next(starts, None)
            time.sleep(0.2)
            for worker in [worker for worker in running if worker.poll()]:
                running.remove(worker)
                result.outcomes.update(worker.outcomes)
                result.found += worker.close()
    finally:
        for worker in running:
            result.found += worker.close()
    return result
