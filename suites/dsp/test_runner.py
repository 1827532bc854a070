"""Where the GEMM runs: under QEMU, as the phone would call it, and what is said where it cannot run."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_qcom import cli
from pytest_qcom.dsp import commands, csource, gemm, runner
from pytest_qcom.dsp.gemm import Options
from pytest_qcom.errors import DeviceUnavailable, KernelError
from suites.dsp import fastrpc

QUANTISED = Options(n=6, k=20, m=256, rows=3, divisor=77)
RAW = Options(n=4, k=8, m=128, raw=True)


def matrices(options: Options, seed: int = 0) -> tuple[Any, Any]:
    return gemm.inputs(options, np.random.default_rng(seed))


@pytest.mark.usefixtures("qemu")
def test_the_compiled_program_gives_the_product() -> None:
    """The quickest of two launches; each gives the same count."""
    given = matrices(QUANTISED)
    outcome = runner.run(QUANTISED, *given, on="qemu", rounds=2)
    assert np.array_equal(outcome.output, gemm.oracle(QUANTISED, *given))
    assert len(np.unique(outcome.output)) > 50
    products = QUANTISED.n * QUANTISED.k * QUANTISED.m // 128
    assert outcome.speed.seconds is None
    assert outcome.speed.instructions is not None
    assert products < outcome.speed.instructions < 20 * products


@pytest.mark.long
@pytest.mark.usefixtures("qemu")
@pytest.mark.parametrize("raw", [False, True])
def test_the_compiled_program_of_the_published_shape(raw: bool) -> None:
    """As many rows at once as are allowed take fewest instructions, on the whole shape."""
    counts = {}
    for rows in (1, 2, 4):
        options = Options(rows=rows, raw=raw)
        given = matrices(options)
        outcome = runner.run(options, *given, on="qemu")
        assert np.array_equal(outcome.output, gemm.oracle(options, *given))
        counts[rows] = outcome.speed.instructions or 0
    assert 0 < 2 * counts[4] < 1.1 * counts[1]
    assert counts[4] < counts[2] < counts[1]


@pytest.mark.usefixtures("qemu")
def test_memory_and_programs_of_tinygrad_s_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of the phone over a device of tinygrad, of which QEMU is the processor."""
    from tinygrad.runtime import ops_dsp

    real = ops_dsp.getenv
    mocked: Callable[..., Any] = lambda key, *default: 1 if key == "MOCKDSP" else real(key, *default)  # noqa: E731
    monkeypatch.setattr(ops_dsp, "getenv", mocked)
    device = ops_dsp.DSPDevice("DSP")
    machine = runner.hardware(device)
    assert machine.entry == "fastrpc"
    machine = dataclasses.replace(machine, entry="stdio", compiler=runner.mock().compiler)
    given = matrices(RAW)
    memory = gemm.memory(RAW, *given)
    with runner._named_for_tinygrad():
        seconds = runner.launch(machine, gemm.listing(RAW), memory, 1)
    assert np.array_equal(gemm.output(RAW, memory), gemm.oracle(RAW, *given))
    assert seconds > 0


@pytest.fixture(scope="module")
def shell(qemu: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fastrpc.build(gemm.source(RAW), tmp_path_factory.mktemp("dsp"))


def test_the_entry_is_what_tinygrad_calls(shell: Path) -> None:
    """Buffers at offsets, given back in full, timed; the vote for power is tinygrad's own, byte by byte."""
    given = gemm.memory(RAW, *matrices(RAW))
    sizes, offsets = (2048, 32, 1024), (256, 128, 384)
    memory = np.full((3, fastrpc.LIMIT), 0xA5, np.uint8)
    for row, name, size, offset in zip(memory, given, sizes, offsets, strict=True):
        row[offset : offset + size] = given[name]
    report = fastrpc.call(shell, memory, sizes, offsets)
    assert (report.result, report.microseconds) == (0, fastrpc.TICK)
    assert report.mapped == report.unmapped == sum(sizes) + sum(offsets)
    found = gemm.output(RAW, {"out": report.memory[0, 256 : 256 + 2048]})
    assert np.array_equal(found, gemm.oracle(RAW, *matrices(RAW)))
    memory[0, 256 : 256 + 2048] = report.memory[0, 256 : 256 + 2048]
    assert np.array_equal(report.memory, memory)  # nothing else was written
    ours, tinygrads = report.votes
    assert ours == tinygrads and any(ours)


def test_calls_that_cannot_be_served(shell: Path) -> None:
    """Nothing is written, and what was mapped is given back; opening and closing do nothing at all."""
    memory = np.full((3, fastrpc.LIMIT), 1, np.uint8)
    sizes, offsets = (2048, 32, 1024), (0, 0, 0)
    refused: tuple[tuple[int, int, dict[str, Any]], ...] = (
        (-1, 2048 + 1024, {"sizes": (2048, 31, 1024)}),
        (-1, 2048 + 32, {"descriptors": (0, 1, 7)}),
        (-1, 32 + 1024, {"offsets": (64, 0, 0)}),
        (0, 0, {"method": 0}),
        (0, 0, {"method": 1}),
    )
    for result, mapped, arguments in refused:
        report = fastrpc.call(shell, memory, **{"sizes": sizes, "offsets": offsets, **arguments})
        assert (report.result, report.mapped, report.unmapped) == (result, mapped, mapped)
        assert report.microseconds == 0
        assert np.array_equal(report.memory, memory)


@pytest.mark.usefixtures("qemu")
def test_the_library_is_what_the_phone_s_loader_takes() -> None:
    """Sections of tinygrad's linker script alone, and nothing undefined but what the shell there has."""
    from tinygrad.runtime.ops_dsp import DSPCompiler

    compiler = DSPCompiler()
    library = compiler.compile(gemm.source(QUANTISED))
    placed = set(re.findall(r"(\S+) : ALIGN", Path(compiler.link_ld.name).read_text()))
    found = sections(library)
    assert len(placed) > 10
    assert {name for name, (loaded, _) in found.items() if loaded} <= placed
    names = {name.decode() for name in found[".dynstr"][1].split(b"\0")}
    assert names == {*re.findall(r"\bHAP_\w+", csource.FASTRPC), "entry", ""}


def sections(library: bytes) -> dict[str, tuple[bool, bytes]]:
    """By name of an ELF file of 32 bits: whether it is loaded, and its bytes."""
    start, size, count, names = (
        *struct.unpack_from("<I", library, 32),
        *struct.unpack_from("<3H", library, 46),
    )
    headers = [struct.unpack_from("<6I", library, start + size * index) for index in range(count)]
    texts = library[headers[names][4] :]
    return {
        texts[name:].split(b"\0", 1)[0].decode(): (bool(flags & 2), library[offset : offset + length])
        for name, _, flags, _, offset, length in headers
    }


@pytest.mark.long
@pytest.mark.usefixtures("qemu")
@pytest.mark.parametrize("raw", [False, True])
def test_sums_stay_in_registers(raw: bool) -> None:
    """The compiler puts no vector on the stack, which costs loads and stores in the innermost loop."""
    from tinygrad import helpers

    assembly = {}
    for rows in range(1, gemm.MOST_ROWS + 1):
        source = gemm.source(Options(n=12 * rows, rows=rows, raw=raw))
        compiler = runner.mock().compiler
        arguments = [word for word in compiler.args.split() if word.startswith("-m") or "target" in word]
        command = [helpers.getenv("CC", "clang"), *arguments, "-O2", "-fPIC", "-ffreestanding", "-S", "-xc"]
        done = subprocess.run(
            [*command, "-", "-o", "-"], input=source, capture_output=True, text=True, check=True
        )
        assembly[rows] = done.stdout
        assert "vrmpy" in done.stdout
    assert [rows for rows, text in assembly.items() if re.search(r"vmemu?\(r(29|30)", text)] == []


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where programs are looked for, empty; ``CC`` names nothing."""
    from tinygrad import helpers
    from tinygrad.runtime import ops_dsp

    real = helpers.getenv
    unnamed: Callable[..., Any] = lambda key, *default: "clang" if key == "CC" else real(key, *default)  # noqa: E731
    monkeypatch.setattr(helpers, "getenv", unnamed)
    monkeypatch.setattr(ops_dsp, "getenv", unnamed)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_what_is_missing_is_named(bare: Path) -> None:
    compiler = "no clang, which CC can name otherwise"
    assert runner.missing("qemu") == ("no qemu-hexagon-static or qemu-hexagon", compiler)
    assert runner.missing("numpy") == ()
    script(bare / "qemu-hexagon", "exit 1")
    assert runner.missing("qemu") == (compiler,)
    script(bare / "clang", 'case "$1" in --print-targets) echo x86-64;; *) echo ld.lld;; esac')
    assert runner.missing("qemu") == ("clang has no target hexagon", "clang finds no ld.lld")
    script(bare / "ld.lld", "exit 1")
    script(bare / "clang", 'case "$1" in --print-targets) echo hexagon;; *) echo ld.lld;; esac')
    assert runner.missing("qemu") == ()
    (bare / "qemu-hexagon").rename(bare / "qemu-hexagon-static")
    assert runner.missing("qemu") == ()


@pytest.mark.skipif(Path(runner.DEVICE_FILES[0]).exists(), reason="this machine has the DSP")
def test_places_that_are_not_there(bare: Path) -> None:
    given = matrices(RAW)
    with pytest.raises(
        DeviceUnavailable, match=r"^DSP program on dsp: no /dev/adsprpc-smd, .*; install it, or"
    ):
        runner.run(RAW, *given, on="dsp")
    with pytest.raises(DeviceUnavailable, match=r"^DSP program on 'desk': there are dsp, qemu, numpy$"):
        runner.run(RAW, *given, on="desk")
    with pytest.raises(
        DeviceUnavailable, match=r"^no place to run a DSP program \(dsp: no /dev.*; qemu: no qemu-"
    ):
        runner.choose()
    with pytest.raises(KernelError, match=r"^DSP GEMM: 0 rounds; give 1 or more$"):
        runner.run(RAW, *given, on="numpy", rounds=0)


def test_an_emulator_of_another_name_is_found(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that counts five instructions and gives back what it was given."""
    from tinygrad.runtime import ops_dsp

    monkeypatch.setattr(ops_dsp.DSPCompiler, "compile", lambda self, source: source.encode())
    listing, memory = gemm.listing(RAW), dict(gemm.memory(RAW, *matrices(RAW)))
    script(bare / "qemu-hexagon", r"printf '\005\000\000\000'; /bin/cat")
    memory["out"] = np.arange(2048).astype(np.uint8)
    assert runner.PLACES["qemu"].run(listing, memory, 1) == runner.Speed(instructions=5)
    assert np.array_equal(memory["out"], np.arange(2048).astype(np.uint8))
    assert runner.missing("qemu")[0] != "no qemu-hexagon-static or qemu-hexagon"
    script(bare / "qemu-hexagon", "exit 3")
    with pytest.raises(DeviceUnavailable, match=r"^gemm: the program failed: .* status 3\.; run it again$"):
        runner.PLACES["qemu"].run(listing, memory, 1)


def test_what_the_compiler_says_is_said(bare: Path) -> None:
    with pytest.raises(KernelError, match=r"^gemm: it does not compile: .*'clang'; check the compiler$"):
        runner.launch(runner.mock(), gemm.listing(RAW), gemm.memory(RAW, *matrices(RAW)), 1)
    script(bare / "clang", "echo 'x.c:1:2: error: no such builtin' >&2; echo '1 error generated.'; exit 1")
    with pytest.raises(
        KernelError, match=r"^gemm: it does not compile: x.c:1:2: error: no such builtin; check"
    ):
        runner.launch(runner.mock(), gemm.listing(RAW), gemm.memory(RAW, *matrices(RAW)), 1)


def asked(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert cli.main(["dsp", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_run_from_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["n=4", "k=0x10", "m=256", "rows=2", "weight-high=200"]
    found = asked(capsys, "run", *words, "--on", "numpy", "--seed", "3")
    assert (found["ok"], found["checked"], found["mismatches"], found["max_abs"]) == (True, 4 * 256, 0, 0)
    assert (found["on"], found["k"], found["weight_high"], found["seed"]) == ("numpy", 16, 200, 3)
    assert found["distinct"] > 20
    assert not {"gops", "device_seconds", "instructions"} & set(found)
    assert asked(capsys, "run", "raw", "--on", "numpy", *words)["raw"] is True


def test_a_wrong_result_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A place where one element is off by 3, and which takes a microsecond."""

    def off(listing: Any, memory: Any, rounds: int) -> runner.Speed:
        runner.PLACES["numpy"].run(listing, memory, rounds)
        memory["out"].view("<i4")[5] += 3
        return runner.Speed(seconds=1e-6 * rounds)

    monkeypatch.setitem(runner.PLACES, "dsp", runner.Place(lambda: iter(()), off))
    found = asked(capsys, "run", "n=2", "k=4", "m=128", "raw=true", "--rounds", "2", code=1)
    assert (found["on"], found["ok"], found["mismatches"], found["max_abs"]) == ("dsp", False, 1, 3)
    assert found["gops"] == pytest.approx(2 * 2 * 4 * 128 / 2e-6 * 1e-9)


def test_source_from_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "source", "n=4", "raw=false", "--entry", "stdio")
    assert found["source"] == gemm.source(Options(n=4), "stdio")
    assert cli.main(["dsp", "source", "n=4"]) == 0
    assert capsys.readouterr().out == gemm.source(Options(n=4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["source", "row=2"], "DSP GEMM has no option 'row'; did you mean rows, raw?"),
        (["source", "raw=maybe"], "DSP GEMM: option raw is 'maybe'; give true or false"),
        (["source", "n=1.5"], "DSP GEMM: option n is '1.5'; give a whole number"),
        (["source", "--entry", "rpc"], "gemm: entry 'rpc'; there are fastrpc, stdio"),
        (["run", "--on", "desk"], "DSP program on 'desk': there are dsp, qemu, numpy"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert cli.main(["dsp", *arguments]) == 2
    assert capsys.readouterr().err == f"qcom: {message}\n"


def test_the_help_names_everything() -> None:
    parser = argparse.ArgumentParser()
    commands.add_arguments(parser)
    text = re.sub(r"\s+", " ", parser.format_help().replace("-\n", "-"))
    for field in dataclasses.fields(Options):
        assert re.search(rf"\b{field.name.replace('_', '-? ?')}\b", text), field.name
    assert all(name in text for name in (*runner.PLACES, *csource.ENTRIES, *commands.ACTIONS))
