"""``qcom graph``: facts, files, exit codes, one line for what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_qcom import cli
from pytest_qcom.openpilot import reading

Pickled = Callable[[str], bytes]


@pytest.fixture
def files(pickled: Pickled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a captured model in it, which is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("heads.pkl").write_bytes(pickled("heads"))
    return tmp_path


@pytest.fixture
def facts(files: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs ``qcom graph`` with ``--json``; what it printed, after its exit code was checked."""

    def run(*arguments: str, code: int = 0) -> Any:
        assert cli.main(["graph", *arguments, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return run


def test_show_and_levels(facts: Callable[..., Any]) -> None:
    shown = facts("show", "heads.pkl")
    graph = reading.load(Path("heads.pkl"))
    assert shown["digest"] == graph.digest
    assert shown["inputs"] == [{"name": "features", "dtype": "float32", "shape": [1, 128], "bytes": 512}]
    assert [item["level"] for item in shown["calls"]] == list(graph.levels())
    found = facts("levels", "heads.pkl")["levels"]
    assert sorted(n for item in found for n in item["calls"]) == list(range(len(graph.calls)))


def test_disasm_gives_each_program_once(facts: Callable[..., Any]) -> None:
    programs = facts("disasm", "heads.pkl")["programs"]
    assert len({item["digest"] for item in programs}) == len(programs)
    assert all(item["text"].rstrip().endswith("end") for item in programs)
    (one,) = facts("disasm", "heads.pkl", "--call", "1")["programs"]
    assert one["calls"] == [1]


def test_a_patch_takes_the_sites_that_are_named(
    facts: Callable[..., Any], pickled: Pickled, capsys: pytest.CaptureFixture[str]
) -> None:
    """By number, or all of a program; the others stay, and results are within the bound all the same."""
    Path("mlp.pkl").write_bytes(pickled("vision-mlp"))
    graph = reading.load(Path("mlp.pkl"))
    twice = [n for n, call in enumerate(graph.calls) if call.label == graph.calls[1].label]
    assert len(twice) == 2
    for words, taken in ((["1"], [[1]]), ([graph.calls[1].label], [[n] for n in twice])):
        only = [word for each in words for word in ("--only", each)]
        (report,) = facts(
            "patch", "mlp.pkl", "--patch", "native-fp16", *only, "--check", "--output", "one.pkl"
        )
        assert [site["calls"] for site in report["sites"]] == taken
        assert len(report["left"]) == 4 - len(taken)
        assert report["ok"]
        after = reading.load(Path("one.pkl"))
        changed = [n for n in range(7) if after.calls[n].program != graph.calls[n].program]
        assert changed == sorted(n for site in taken for n in site)
    (report,) = facts("patch", "mlp.pkl", "--patch", "native-fp16", "--only", "0")
    assert report["reason"].startswith("none of its 4 sites has a call that is named; the first is of 1 (")
    assert cli.main(["graph", "patch", "mlp.pkl", "--patch", "fast-gelu", "--only", "9"]) == cli.BAD_INPUT
    assert "call '9': the graph has 7 calls and none is called so; give" in capsys.readouterr().err


def test_profile_lists_the_programs_that_are_named(facts: Callable[..., Any]) -> None:
    """Times of the whole graph stay what they are, and on the virtual device every round gives the same."""
    every = facts("profile", "heads.pkl")
    number = every["programs"][0]["calls"][0]
    label = every["programs"][0]["program"]
    one = facts("profile", "heads.pkl", "--only", str(number), "--rounds", "2")
    assert [row["calls"] for row in one["programs"]] == [[number]]
    assert (one["seconds"], one["by_call"]) == (every["seconds"], every["by_call"])
    found = facts("profile", "heads.pkl", "--only", label)["programs"]
    assert found == [row for row in every["programs"] if row["program"] == label]


def test_patch_profile_and_compare(facts: Callable[..., Any]) -> None:
    chosen = ["recompile", "dedupe-head", "head-gemv", "level-schedule"]
    names = [word for name in chosen for word in ("--patch", name)]
    reports = facts("patch", "heads.pkl", *names, "--check", "--output", "after.pkl")
    assert [report["patch"] for report in reports] == chosen
    assert all(report["ok"] for report in reports if report["applied"])
    before, after = facts("profile", "heads.pkl"), facts("profile", "after.pkl")
    assert after["seconds"] < before["seconds"]
    assert sum(row["seconds"] for row in after["programs"]) == pytest.approx(after["seconds"])
    assert after["critical_seconds"] <= after["seconds"]


def test_patches_that_keep_the_bits_compare_equal(facts: Callable[..., Any]) -> None:
    names = [word for each in ("dedupe-head", "level-schedule") for word in ("--patch", each)]
    facts("patch", "heads.pkl", *names, "--output", "after.pkl")
    found = facts("compare", "heads.pkl", "--with", "after.pkl")
    assert (found["first_divergence"], max(found["results"])) == (None, 0)
    assert found["calls"] == [33, 20]


def test_sweep(facts: Callable[..., Any], pickled: Pickled) -> None:
    Path("mlp.pkl").write_bytes(pickled("vision-mlp"))
    sizes = facts("sweep", "mlp.pkl", "--call", "0")["sizes"]
    assert len(sizes) == 3
    assert [row["seconds"] for row in sizes] == sorted(row["seconds"] for row in sizes)
    fibers = {tuple(a * b for a, b in zip(row["groups"], row["local"], strict=True)) for row in sizes}
    assert len(fibers) == 1


def test_compare_after_patches(facts: Callable[..., Any]) -> None:
    facts("patch", "heads.pkl", "--patch", "native-fp16", "--output", "after.pkl")
    found = facts("compare", "heads.pkl", "--with", "after.pkl", "--threshold", "0.05")
    assert found["first_divergence"] is None
    found = facts("compare", "heads.pkl", "--with", "after.pkl", code=1)
    assert found["first_divergence"]["changed"] == ["code"]


def test_a_changed_weight_is_found(facts: Callable[..., Any]) -> None:
    data = bytearray(Path("heads.pkl").read_bytes())
    calls = reading.load(Path("heads.pkl")).calls
    number = 9  # of a head that was exported once
    (weight,) = (view.array().tobytes() for view in calls[number].ins if view.memory.contents)
    place = data.index(weight)
    for byte in range(place + 1, place + len(weight), 2):
        data[byte] ^= 0x04  # exponents of halves: twice as much, or half as much
    Path("changed.pkl").write_bytes(data)
    found = facts("compare", "heads.pkl", "--with", "changed.pkl", code=1)
    assert found["first_divergence"]["calls"] == [number, number]
    assert found["first_divergence"]["changed"] == ["weights"]
    assert found["results"][0] > 0


def test_text_is_printed_without_json(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["show"],
        ["levels"],
        ["profile"],
        ["disasm", "--call", "1"],
        ["compare", "--with", "heads.pkl"],
    ):
        assert cli.main(["graph", words[0], "heads.pkl", *words[1:]]) == 0
        assert capsys.readouterr().out.count("\n") > 2
    assert cli.main(["graph", "patch", "heads.pkl", "--patch", "dedupe-head"]) == 0
    assert capsys.readouterr().out == "dedupe-head: 13 sites, 33 to 20 calls\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "none.pkl"], "none.pkl: not readable (No such file or directory); name the pickle"),
        (["disasm", "heads.pkl", "--call", "99"], "call 99: the graph has 33 calls; give one of them"),
        (["patch", "heads.pkl"], "graph patch: no patch named; give --patch with "),
        (["patch", "heads.pkl", "--patch", "x"], "no patch is called 'x'; there are recompile, "),
        (["compare", "heads.pkl"], "graph compare: it takes two graphs; name the other one with --with FILE"),
        (["sweep", "heads.pkl"], "graph sweep: no call named; give --call with its number"),
        (["sweep", "heads.pkl", "--call", "1"], "sweep of call 1 (r_16_16_4_2_4): its fibers exchange"),
        (["capture", "new.pkl"], "graph capture: name one model; give --model with "),
        (["capture", "new.pkl", "--model", "x"], "no model is called 'x'; there are vision-mlp, "),
    ],
)
def test_what_is_wrong_is_one_line(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert cli.main(["graph", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"qcom: {message}")
    assert (printed.out, printed.err.count("\n")) == ("", 1)
