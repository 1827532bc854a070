"""The devices by name: two that are always there, and those of the user's and the project's files.

A file is TOML, one table a device::

    [tc3]
    kind = "ssh"
    host = "comma@tc3"
    python = "/usr/local/venv/bin/python"

The project's ``.qcom-devices.toml`` wins over the user's ``$XDG_CONFIG_HOME/qcom/devices.toml``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qcom.devices import HAZARD_MODES
from pytest_qcom.errors import DeviceUnavailable, closest

if TYPE_CHECKING:
    from pytest_qcom.devices.device import Device

PROJECT_FILE = ".qcom-devices.toml"
USER_FILE = Path("qcom/devices.toml")
NODE = Path("/dev/kgsl-3d0")
CHIP = "Adreno 630"
KINDS = ("virtual", "local", "ssh")
FIELDS = ("kind", "host", "python", "device")


@dataclass(frozen=True, slots=True)
class Entry:
    """How a device is reached. Importing and reading it imports neither tinygrad nor a compiler.

    Attributes:
        kind: ``virtual``, ``local`` (this machine's own node) or ``ssh``.
        host: where an ``ssh`` device is.
        python: the interpreter there that has this package.
        device: what the device is called there.
    """

    name: str
    kind: str
    host: str = ""
    python: str = "python3"
    device: str = "local"
    chip: str = CHIP
    source: str = field(default="built in", compare=False)

    @property
    def mode(self) -> str:
        """What the device's times mean."""
        if self.kind != "virtual":
            return "hardware"
        from pytest_qcom.analysis.cycles import MODE

        return MODE

    @property
    def deterministic(self) -> bool:
        """The same program takes the same time in every run."""
        return self.kind == "virtual"

    @property
    def shared(self) -> bool:
        """Several processes may use it at once, each with a device of its own."""
        return self.kind == "virtual"

    def require(self, hazards: str = "strict") -> None:
        """Checks that the device can be opened in a hazards mode, without opening it.

        Raises:
            DeviceUnavailable: no node, an unknown mode, or nothing to reach it with.
        """
        if self.kind == "virtual" and hazards not in HAZARD_MODES:
            raise DeviceUnavailable(
                f"device {self.name} with hazards mode {hazards!r}: it has {', '.join(HAZARD_MODES)}; "
                f"choose one of them",
                device=self.name,
            )
        if self.kind == "local" and not NODE.exists():
            raise DeviceUnavailable(
                f"device {self.name} ({self.source}): this machine has no {NODE}; run on the device itself, "
                f"or choose the device virtual",
                device=self.name,
            )
        if self.kind == "ssh":
            for what, there in (
                ("ssh", shutil.which("ssh")),
                ("execnet", importlib.util.find_spec("execnet")),
            ):
                if not there:
                    raise DeviceUnavailable(
                        f"device {self.name} ({self.source}): reaching {self.host} takes {what}, which is "
                        f"not installed; install it (ssh itself, and the package's extra 'ssh')",
                        device=self.name,
                    )

    def require_here(self) -> None:
        """Checks that tinygrad programs of this process can run on the device.

        Raises:
            DeviceUnavailable: it is behind ssh, which kernels pass and tinygrad does not.
        """
        if self.kind == "ssh":
            raise DeviceUnavailable(
                f"device {self.name} is behind ssh, and tinygrad programs run in this process: start it at "
                f"{self.host} on the device {self.device}, or choose another device here",
                device=self.name,
            )

    def state(self) -> str:
        """What is known of it without opening it.

        A device behind ssh is not asked: it may take half a minute to find out that it does not answer.
        """
        try:
            self.require()
        except DeviceUnavailable as error:
            return str(error)
        return f"configured at {self.host}, not tried" if self.kind == "ssh" else "available"

    def install(self, hazards: str) -> contextlib.AbstractContextManager[None]:
        """While entered, tinygrad's ``QCOM`` device in this process is this one (and ``DEV`` names it).

        One behind ssh is only what the fixture ``device`` gives: tinygrad's own here finds no node.
        """
        self.require(hazards)
        from pytest_qcom.devices.session import installed

        return installed(self, hazards)

    def check(self) -> None:
        """Raises what the installed device ran into and no program was told yet.

        Raises:
            QcomError: what it ran into.
        """
        from pytest_qcom.devices.session import check

        check()

    def open(self, hazards: str) -> contextlib.AbstractContextManager[Device]:
        """The device, until the context ends.

        Raises:
            DeviceUnavailable: as :meth:`require`, or it does not answer.
        """
        self.require(hazards)
        from pytest_qcom.devices.session import opened

        return opened(self, hazards)


BUILT_IN: tuple[Entry, ...] = (Entry("virtual", "virtual"), Entry("local", "local"))


def known(project: Path) -> dict[str, Entry]:
    """All devices by name, as seen from the folder ``project``.

    Raises:
        DeviceUnavailable: a malformed file.
    """
    entries = {entry.name: entry for entry in BUILT_IN}
    for path in (*_user_files(), project / PROJECT_FILE):
        if os.path.lexists(path):  # a folder of this name, or a link to nothing, is told and not passed over
            entries.update(_read(path))
    return entries


def _user_files() -> tuple[Path, ...]:
    """Where the user's own devices may stand: nowhere for one without a home."""
    if config := os.environ.get("XDG_CONFIG_HOME"):
        return (Path(config) / USER_FILE,)
    try:
        return (Path.home() / ".config" / USER_FILE,)
    except RuntimeError:
        return ()


def find(name: str, project: Path) -> Entry:
    """The device called ``name``.

    Raises:
        DeviceUnavailable: unknown; the message lists the known ones.
    """
    entries = known(project)
    if name not in entries:
        raise DeviceUnavailable(
            f"device {name!r}: unknown, name it in {project / PROJECT_FILE}; "
            f"{closest(name, sorted(entries))}",
            device=name,
            known=sorted(entries),
        )
    return entries[name]


def _read(path: Path) -> dict[str, Entry]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DeviceUnavailable(f"device file {path}: is not readable TOML ({error}); correct it") from error
    return {name: _entry(path, name, table) for name, table in tables.items()}


def _entry(path: Path, name: str, table: Any) -> Entry:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name, re.ASCII):  # it names the folder of its floors
        raise DeviceUnavailable(
            f"device file {path}: {name!r} is no name of a device; use letters, digits, '.', '-' and '_'"
        )
    if not isinstance(table, Mapping):
        raise DeviceUnavailable(
            f"device file {path}: {name} is no table; write [{name}] and its fields below"
        )
    if unknown := set(table) - set(FIELDS):
        raise DeviceUnavailable(
            f"device file {path}: {name} has {', '.join(sorted(unknown))}; the fields are {', '.join(FIELDS)}"
        )
    if any(name == entry.name for entry in BUILT_IN):  # floors and suites go by what these names mean
        raise DeviceUnavailable(
            f"device file {path}: {name} is built in and always means the same; give the device another name"
        )
    kind, host = table.get("kind"), table.get("host", "")
    if kind not in KINDS or bool(host) != (kind == "ssh"):
        raise DeviceUnavailable(
            f"device file {path}: {name} has kind {kind!r} and host {host!r}; "
            f"kind is one of {', '.join(KINDS)}, and an ssh device alone has a host"
        )
    for key, value in table.items():  # they become words of an ssh command
        if (
            not isinstance(value, str)
            or not re.fullmatch(r"[A-Za-z0-9_./~:@\[\]-]+", value)
            or value[0] == "-"
        ):
            raise DeviceUnavailable(
                f"device file {path}: {name} has {key} {value!r}; "
                "give one word of letters, digits and ._/~:@[]-"
            )
        if key in ("python", "device") and kind != "ssh":
            raise DeviceUnavailable(
                f"device file {path}: {name} has {key} {value!r}; an ssh device alone has one"
            )
    return Entry(source=str(path), **{"name": name, **table})
