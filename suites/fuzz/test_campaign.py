"""The fuzzer: inputs come again by their numbers, and one that kills or stops its process is told."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from suites.fuzz import campaign as fuzz
from suites.fuzz.targets import GOOD, REFUSED, TARGETS, Save

SHARES = {"words": 200_000, "shaders": 10_000, "streams": 150_000, "ioctls": 240_000, "containers": 400_000}
"""A million inputs."""


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_come_again(target: str, tmp_path: Path) -> None:
    """The same number is the same input with the same end."""
    seen: list[tuple[str, bytes]] = []
    for _ in range(2):
        made = TARGETS[target](tmp_path)
        for number in range(3):
            saved: list[bytes] = [b""]
            seen.append((made.run(random.Random(f"{target} 7 {number}"), saved.append), saved[-1]))
    if target in ("words", "containers"):  # others hold addresses of this process
        assert seen[:3] == seen[3:]
    assert {outcome for outcome, _ in seen} <= {GOOD, REFUSED}


class Broken:
    """A target whose inputs 1, 2 and 3 raise, kill the process and never end."""

    def __init__(self, folder: Path) -> None:
        self.count = int((folder.parent / "at").read_text()) if (folder.parent / "at").exists() else 0
        self.folder = folder.parent

    def run(self, source: random.Random, save: Save) -> str:
        number = self.count
        self.count += 1
        (self.folder / "at").write_text(str(self.count))
        save(f"input {number}".encode())
        if number == 1:
            raise ValueError("wrong")
        if number == 2:
            os.abort()
        while number == 3:
            time.sleep(0.1)
        return GOOD


def test_what_goes_wrong_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its input and how to have it again; the inputs behind are used all the same."""
    program = (
        "import sys; from pathlib import Path; from suites.fuzz import campaign, targets\n"
        "from suites.fuzz.test_campaign import Broken\ntargets.TARGETS['broken'] = Broken\n"
        "t, seed, start, stop, folder = sys.argv[-5:]\n"
        "campaign.work(t, int(seed), int(start), int(stop), Path(folder))"
    )
    original = subprocess.Popen

    def popen(command: list[str], **options: object) -> object:
        return original([sys.executable, "-c", program, *command[-5:]], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(fuzz.subprocess, "Popen", popen)  # type: ignore[attr-defined]
    monkeypatch.setattr(fuzz, "PATIENCE", 3.0)
    monkeypatch.setattr(fuzz, "_BUSY", 1)
    result = fuzz.campaign("broken", 5, 6, tmp_path / "found")
    assert [path.name for path in result.found] == ["broken-5-1.txt", "broken-5-2.txt", "broken-5-3.txt"]
    raised, died, hung = (path.read_text() for path in result.found)
    assert "ValueError: wrong" in raised and "python -m suites.fuzz --only 1 --target broken 1 5" in raised
    assert died.startswith("the process ended with -6") and "Fatal Python error: Aborted" in died
    assert hung.startswith("no end within 3 s")
    assert [path.with_suffix(".input").read_bytes() for path in result.found] == [
        b"input 1", b"input 2", b"input 3",
    ]  # fmt: skip
    assert result.outcomes["found"] == 3


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("target", SHARES)
def test_a_million_inputs(target: str, tmp_path: Path) -> None:
    """Hours on one processor; ``pytest -m long suites/fuzz``, or by hand as ``python -m suites.fuzz``."""
    result = fuzz.campaign(target, 1, SHARES[target], tmp_path, workers=len(os.sched_getaffinity(0)))
    reports = "\n".join(path.read_text() for path in result.found)
    assert not result.found, reports
    assert sum(result.outcomes.values()) == SHARES[target]
