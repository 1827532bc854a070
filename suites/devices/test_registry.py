"""Names of devices, from files that people write."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_qcom.devices.registry import PROJECT_FILE, known
from pytest_qcom.errors import DeviceUnavailable


@pytest.mark.parametrize("name", ["", "../up", "a/b", "a b", ".hidden", "größer"])
def test_a_name_that_is_no_folder_names_no_device(tmp_path: Path, name: str) -> None:
    (tmp_path / PROJECT_FILE).write_text(f'["{name}"]\nkind = "virtual"\n', encoding="utf-8")
    with pytest.raises(DeviceUnavailable) as caught:
        known(tmp_path)
    assert str(caught.value) == (
        f"device file {tmp_path / PROJECT_FILE}: {name!r} is no name of a device; use letters, digits, '.', "
        "'-' and '_'"
    )


@pytest.mark.parametrize("name", ["virtual", "local"])
def test_a_built_in_device_keeps_its_meaning(tmp_path: Path, name: str) -> None:
    (tmp_path / PROJECT_FILE).write_text(f'[{name}]\nkind = "ssh"\nhost = "a@b"\n', encoding="utf-8")
    with pytest.raises(DeviceUnavailable) as caught:
        known(tmp_path)
    assert str(caught.value) == (
        f"device file {tmp_path / PROJECT_FILE}: {name} is built in and always means the same; give the "
        "device another name"
    )
