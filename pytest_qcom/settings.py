"""What a session was asked for: the options of the plugin, as a table, and their values."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_qcom.arguments import integer
from pytest_qcom.devices import HAZARD_MODES
from pytest_qcom.devices.races import RACES_VARIABLE

DEFAULT_DEVICE = "virtual"
DEVICE_VARIABLE = "QCOM_DEVICE"

OPTIONS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (
        "--qcom-device",
        {
            "metavar": "NAME",
            "default": None,
            "help": f"Device to run on, by its name in the registry ('virtual', or one such as 'tc3'). "
            f"Default: environment variable {DEVICE_VARIABLE}, ini option qcom_device, {DEFAULT_DEVICE!r}.",
        },
    ),
    (
        "--qcom-hazards",
        {
            "choices": HAZARD_MODES,
            "default": "strict",
            "help": "Programs whose waits are too short, on the virtual device: 'strict' fails them with an "
            "explanation, 'emulate' gives the wrong numbers that hardware would, 'off' runs them as if every "
            "wait were there. Default: %(default)s.",
        },
    ),
    (
        "--qcom-races",
        {
            "action": "store_true",
            "default": False,
            "help": "Fail launches on the virtual device in which two workgroups access the same memory and "
            "one of them writes, naming both instructions; several times as slow. Also: environment variable "
            f"{RACES_VARIABLE}=1.",
        },
    ),
    (
        "--qcom-expected",
        {
            "metavar": "LIST",
            "default": None,
            "help": "Tests that are known to fail, each with its message and reason: 'tinygrad' for those of "
            "tinygrad, or a TOML file. They are expected to fail, strictly: one that passes, or that fails "
            "in another way, fails the session.",
        },
    ),
    (
        "--qcom-seed",
        {
            "metavar": "N",
            "type": integer,
            "default": 0,
            "help": "Seed of the random inputs; each test mixes its node id into it. Default: %(default)s.",
        },
    ),
    (
        "--qcom-update-baselines",
        {
            "action": "store_true",
            "default": False,
            "help": "Store the speeds of this run as the device's new floors, instead of checking them.",
        },
    ),
)

INI: tuple[tuple[str, str, str], ...] = (
    ("qcom_device", "Device to run on when --qcom-device is not given.", ""),
    ("qcom_baselines", "Folder of the stored floors, one folder a device in it.", "baselines"),
)

MARKERS = (
    "qcom_kernel(name, case=None, **options): run the declared kernel NAME (see 'qcom list') in the case "
    "CASE, or in each of its cases; keyword arguments change options of the case. The test takes the fixture "
    "'kernel_run'.",
    "qcom_patch(*names, model=None, graph=None): check the declared patches of captured graphs NAMES, or "
    "all, on the declared model MODEL, on each that they fit, or on the pickle GRAPH of a TinyJit. The test "
    "takes the fixture 'patch_run'.",
    "long: takes more than a few seconds.",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The values in force.

    Attributes:
        asked: somebody named the device. Where nobody did, the plugin stays silent until a test uses it.
        races: launches whose workgroups race fail; otherwise as the environment has it.
        expected: the list of tests that are known to fail, by name or file.
        baselines: folder that holds one folder of floors a device.
    """

    device: str
    asked: bool
    hazards: str
    seed: int
    update: bool
    root: Path
    baselines: Path
    races: bool = False
    expected: str | None = None

    @classmethod
    def read(cls, option: Any, ini: Callable[[str], Any], root: Path) -> Settings:
        """From parsed options, ini values and the root folder of the session."""
        named = option.qcom_device  # also an empty one, such as a shell makes of a variable that is not set
        if named is None:
            named = os.environ.get(DEVICE_VARIABLE) or ini("qcom_device") or None
        return cls(
            device=DEFAULT_DEVICE if named is None else named,
            asked=named is not None,
            hazards=option.qcom_hazards,
            seed=option.qcom_seed,
            update=option.qcom_update_baselines,
            root=root,
            baselines=root / ini("qcom_baselines"),
            races=option.qcom_races,
            expected=option.qcom_expected,
        )
