"""Pickles as data: what is written is what was read, and nothing hostile gets further than one line."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import pickles, reading

Pickled = Callable[[str], bytes]


def test_what_is_written_is_what_was_read(pickled: Pickled) -> None:
    once = pickles.dumps(pickles.loads(pickled("heads")))
    assert pickles.dumps(pickles.loads(once)) == once


def test_reading_makes_nothing_but_records(pickled: Pickled) -> None:
    pending, seen = [pickles.loads(pickled("stem"))], set()
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, pickles.Record):
            pending += [value.arguments, value.state]
        elif isinstance(value, tuple | list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
        else:
            assert value is None or type(value) in (bool, int, float, str, bytes, bytearray), type(value)


class Hostile:
    """Runs a command when it is unpickled."""

    def __init__(self, *command: Any) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return self.command


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ((os.system, ("touch hostile",)), "posix.system"),
        ((eval, ("1",)), "builtins.eval"),
        ((getattr, ("", "join")), "builtins.getattr"),
        ((Path, ("x",)), "pathlib.Path"),
    ],
)
def test_a_hostile_pickle_is_refused(
    command: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Hostile(*command)))
    with pytest.raises(GraphError) as caught:
        reading.load(Path("model.pkl"))
    assert str(caught.value) == (
        f"model.pkl: it names {name}, which a captured graph has no use for; "
        "load it only if you trust whoever made it, with tinygrad itself"
    )
    assert not (tmp_path / "hostile").exists()


def test_a_truncated_pickle_says_so(pickled: Pickled) -> None:
    data = pickled("stem")
    with pytest.raises(
        GraphError, match=r"^half: \d+ bytes that are no readable pickle \(pickle data was trunc"
    ):
        reading.read(data[: len(data) // 2], "half")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([1, 2], "list instead of a TinyJit"),
        (None, "NoneType instead of a TinyJit"),
        (b"", "bytes instead of a TinyJit"),
    ],
)
def test_a_pickle_of_something_else_says_what_it_is(value: Any, found: str) -> None:
    with pytest.raises(GraphError, match=f"^other: captured graph: {found}; expected is a TinyJit"):
        reading.read(pickle.dumps(value), "other")


def test_a_record_of_another_version_is_not_written(pickled: Pickled) -> None:
    target = pickles.made("tinygrad.helpers", "Target", device="QCOM")
    with pytest.raises(GraphError, match=r"a Target of device, tinygrad's here has arch, device.*0.14.0"):
        pickles.dumps(target)


@settings(max_examples=60)
@given(st.data())
def test_damaged_pickles_only_ever_raise_our_error(pickled: Pickled, data: st.DataObject) -> None:
    whole = pickled("input-pack")
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        graph = reading.read(bytes(damaged))
    except GraphError as error:
        assert "\n" not in str(error)
    else:
        graph.verify()
