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
