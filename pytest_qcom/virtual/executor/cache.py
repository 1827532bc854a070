"""Object code on disk, so that a kernel is compiled once a machine.

An entry is one file: a digest of the rest, the length of a JSON header, the header, object code. Entries
are written to a temporary name and renamed, so that readers in other processes see all or nothing; one
that does not verify is treated as absent and overwritten.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import llvmlite

_DIGEST = 16


def default_directory() -> Path:
    """``$XDG_CACHE_HOME/pytest-qcom``, by default ``~/.cache/pytest-qcom``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pytest-qcom"


@functools.cache
def version() -> str:
    """A digest of the code that generates code: any change of it makes all entries stale."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256(llvmlite.__version__.encode())
    for folder in ("isa", "virtual/executor"):
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    for name in ("chip.py", "virtual/dispatch.py"):  # latencies and texel formats are compiled in
        digest.update((package / name).read_bytes())
    return digest.hexdigest()


class ObjectCache:
    """A directory of compiled objects.

    A directory that cannot be written is used for reading only: the cache is an optimisation.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, key: str) -> Path:
        """Where the entry of ``key`` lies; ``key`` is any text, the code's version is added to it."""
        name = hashlib.sha256(f"{version()}|{key}".encode()).hexdigest()
        return self.directory / name[:2] / f"{name[2:]}.o"

    def load(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """The header and object code of ``key``; ``None`` when absent or damaged."""
        try:
            data = self.path(key).read_bytes()
        except OSError:
            return None
        body = data[_DIGEST:]
        if len(body) < 4 or hashlib.sha256(body).digest()[:_DIGEST] != data[:_DIGEST]:
            return None
        split = 4 + int.from_bytes(body[:4], "little")
        header: dict[str, Any] = json.loads(body[4:split])
        return header, body[split:]

    def store(self, key: str, header: dict[str, Any], code: bytes) -> None:
        """Writes the entry of ``key``, atomically."""
        text = json.dumps(header).encode()
        body = len(text).to_bytes(4, "little") + text + code
        path = self.path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(hashlib.sha256(body).digest()[:_DIGEST] + body)
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise
