"""Names of devices, from files that people write."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_qcom.devices import registry
from pytest_qcom.devices.registry import PROJECT_FILE, USER_FILE, Entry, known
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


@pytest.mark.parametrize("file", [PROJECT_FILE, f".config/{USER_FILE}"])
def test_a_folder_or_a_dead_link_in_the_place_of_a_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """Passed over, the devices in the file that was meant would be unknown, and nobody would know why."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / file
    path.mkdir(parents=True)
    with pytest.raises(DeviceUnavailable, match=rf"^device file {path}: is not readable TOML \(.*directory"):
        known(tmp_path)
    path.rmdir()
    path.symlink_to(tmp_path / "nothing")
    with pytest.raises(DeviceUnavailable, match=rf"^device file {path}: is not readable TOML \(.*No such"):
        known(tmp_path)
    path.unlink()
    assert set(known(tmp_path)) == {entry.name for entry in registry.BUILT_IN}


def test_a_user_without_a_home_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert set(known(tmp_path)) == {entry.name for entry in registry.BUILT_IN}


def test_a_device_behind_ssh_is_not_called_there_before_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry("tc3", "ssh", host="comma@tc3")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert entry.state() == "configured at comma@tc3, not tried"
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert entry.state() == (
        "device tc3 (built in): reaching comma@tc3 takes ssh, which is not installed; install it "
        "(ssh itself, and the package's extra 'ssh')"
    )
    assert Entry("virtual", "virtual").state() == "available"
