"""The ``qcom`` command: facts on standard output, errors as one line, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_qcom import cli, conformance, measurements, programs
from pytest_qcom.arguments import FAILED
from pytest_qcom.kernels.registry import KERNELS

SMALL = ["gemm_4xn_fp16", "m=16", "n=512", "k=16", "k-unroll=1"]


@pytest.fixture
def facts(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command with ``--json``; what it printed, after its exit code was checked."""

    def run(*arguments: str, code: int = 0) -> Any:
        assert cli.main([*arguments, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that is refused; its one line."""

    def run(*arguments: str) -> str:
        assert cli.main(arguments) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        return printed.err

    return run


def test_list_shows_every_kernel_and_case(
    facts: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    listed = {fact["kernel"]: set(fact["cases"]) for fact in facts("list")}
    assert listed == {name: {case.name for case in kernel.cases} for name, kernel in KERNELS.items()}
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "    gemm_4xn_fp16[n1024]" in lines


def test_devices_says_what_is_missing(facts: Callable[..., Any]) -> None:
    found = {fact["name"]: fact["state"] for fact in facts("devices")}
    assert found["virtual"] == "available"
    assert found["local"] == "available" or "this machine has no /dev/kgsl-3d0" in found["local"]


def test_run_prints_what_a_bench_needs(facts: Callable[..., Any]) -> None:
    found = facts("run", *SMALL, "--seed", "0x12")
    assert found["ok"] is True
    assert (found["shape"], found["seed"], found["checked"]) == ("16x512x16", 0x12, 16 * 512)
    assert found["gflops"] == pytest.approx(2e-9 * 16 * 512 * 16 / found["device_seconds"])
    assert 0 < found["mean_abs"] < found["max_abs"] < found["bound"] * 10
    assert facts("run", *SMALL, "--seed", "0x12") == found
    assert facts("run", *SMALL, "--seed", "3")["max_abs"] != found["max_abs"]


def test_run_of_a_published_configuration_says_that_it_is_wrong(facts: Callable[..., Any]) -> None:
    small = ["m=32", "n=512", "k=32"]
    found = facts("run", "gemm_4xn_fp16_published", "--case", "p098", "--hazards", "off", *small, code=1)
    assert found["ok"] is False
    assert found["claim"] == "as-published"


def test_run_repeats_with_the_line_it_prints(facts: Callable[..., Any]) -> None:
    found = facts("run", *SMALL)
    command, *words = found["repeat"].split()
    assert command == "qcom"
    assert facts(*words)["max_abs"] == found["max_abs"]


def test_run_and_compose_take_inputs_whose_result_is_exact(
    facts: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Off by nothing, with a line that repeats it; an unknown one is an error."""
    found = facts("run", *SMALL, "--pattern", "rows")
    assert (found["max_abs"], found["bound"]) == (0.0, 0.0)
    assert found["repeat"].endswith(" --pattern rows")
    words = ["m=64", "n=512", "k=64", "form=winograd"]
    assert facts("compose", "strassen", *words, "--pattern", "exact")["max_abs"] == 0.0
    assert cli.main(["run", *SMALL, "--pattern", "stripes"]) == cli.BAD_INPUT
    assert "has no pattern 'stripes'; it has ones, identity-a" in capsys.readouterr().err


def test_predict_gives_time_and_occupancy(facts: Callable[..., Any]) -> None:
    found = facts("predict", *SMALL)
    assert found["model"].startswith("model: ")
    assert found["speed"] == pytest.approx(2e-9 * 16 * 512 * 16 / found["device_seconds"])
    assert (found["waves"] > 0, found["wave_fibers"], found["limited_by"]) == (True, 128, "registers")


def test_lint_names_hazards_and_fails(facts: Callable[..., Any]) -> None:
    assert [finding for finding in facts("lint", *SMALL) if finding["severity"] == "error"] == []
    findings = facts("lint", *SMALL, "first-sync-only", code=1)
    assert all(finding["fix"] for finding in findings)


def test_text_and_words_of_a_program_agree(tmp_path: Path, facts: Callable[..., Any]) -> None:
    instructions = facts("disasm", *SMALL)["instructions"]
    text = tmp_path / "kernel.asm"
    text.write_text("\n".join(instructions))
    assert facts("asm", "--text", str(text))["words"] == facts("asm", *SMALL)["words"]
    image = tmp_path / "image"
    assert facts("asm", *SMALL, "--output", str(image))["bytes"] == image.stat().st_size


def test_a_binary_instead_of_a_kernel(tmp_path: Path, facts: Callable[..., Any]) -> None:
    kernel = KERNELS["gemm_4xn_fp16"]
    build = kernel.build(kernel.configure({}, "square"))
    binary = tmp_path / "binary"
    binary.write_bytes(build.binary("gemm"))
    found = facts("disasm", "--binary", str(binary))
    assert found["instructions"] == build.program.text().splitlines()
    assert (found["fregs"], found["hregs"]) == (build.fregs, build.hregs)
    facts("lint", "--binary", str(binary))


def test_exec_runs_a_program_on_the_device(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom tinygrad import Device, Tensor\n"
        "print(Device.DEFAULT, (Tensor([1.0, 2.0]) + 1).tolist(), sys.argv[1:], __name__)\n"
    )
    command = [sys.executable, "-m", "pytest_qcom.cli", "exec", str(script), "--flag", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.stdout, done.returncode) == ("QCOM [2.0, 3.0] ['--flag', 'x'] __main__\n", 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "gemm"], "qcom: no kernel is called 'gemm'; did you mean gemm_"),
        (["run", "alu_peak", "--case", "x"], "qcom: kernel alu_peak has no case 'x'; it has compiler"),
        (["compose", "strassen", "--case", ""], "qcom: composition strassen has no case ''; it has one, "),
        (["run", "alu_peak", "loop=3"], "qcom: kernel alu_peak has no option 'loop'; did you"),
        (
            ["run", "alu_peak", "loops=many"],
            "qcom: kernel alu_peak: option loops is 'many'; give",
        ),
        (["run", *SMALL, "--device", "tc9"], "qcom: device 'tc9': unknown, name it in "),
        (["run", *SMALL, "--device", "tc3"], "qcom: device tc3 ("),
        (
            ["run", *SMALL, "k=3"],
            "qcom: gemm_4xn_fp16: k is 3; a texel holds four of them",
        ),
        (["run", *SMALL, "--pattern", "x"], "qcom: kernel gemm_4xn_fp16 has no pattern 'x'; it has ones, "),
        (
            ["run", "gemm_8x8_fp32_batched", "batches=0"],
            "qcom: gemm_8x8_fp32_batched: 0 products of 256 x 256 x 256; images are up to 16384 texels high",
        ),
        (["compose", "strassen", "m=-64"], "qcom: strassen: -64 x 512 x 64 is not made of 7 products "),
        (
            ["split", "virtual", "local", "--m", "16000000000"],
            "qcom: gemm_4x8_fp32_rotate: 8000000000 x 1024 x 1024 needs an image side beyond 16384 texels",
        ),
        (["lint"], "qcom: no kernel named; give KERNEL, --binary or --text ('qcom list' shows the kernels)"),
        (
            ["disasm", "--binary", "/none"],
            "qcom: file /none: not readable (No such file or directory); name an",
        ),
        (["disasm", "--binary", "/dev/null"], "qcom: "),
        (["exec", "/none.py"], "qcom: exec /none.py: no such file; "),
        (
            ["exec", "--device", "tc3", __file__],
            "qcom: device tc3 is behind ssh, and tinygrad programs run in this process: start it at ",
        ),
        (["disasm", "alu_peak", "--binary", "/none"], "qcom: file /none and a kernel"),
        (["lint", "--case", "gemm", "--text", "/none"], "qcom: file /none and a kernel"),
        (["asm", "alu_peak", "--output", "/none/image"], "qcom: file /none/image: cannot be written"),
        (["import", "/none.csv", "--device", "tc3"], "qcom: table /none.csv: not readable ("),
        (["import", "/dev/null", "--device", "tc3"], "qcom: table /dev/null: no column id, family, "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line(refusal: Callable[..., str], arguments: list[str], words: str) -> None:
    assert refusal(*arguments).startswith(words)


def test_what_this_machine_cannot_hold_is_one_line(
    refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(*_: object) -> NoReturn:
        raise MemoryError("Unable to allocate 32.0 GiB")

    monkeypatch.setattr(conformance, "drawn", drawn)
    assert refusal("run", *SMALL) == (
        "qcom: out of memory (Unable to allocate 32.0 GiB); give a smaller problem\n"
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run"], "qcom run: the following arguments are required: KERNEL; see qcom run --help\n"),
        (["run", *SMALL, "--fast"], "qcom: unrecognized arguments: --fast; see qcom --help\n"),
        (["split"], "qcom split: the following arguments are required: DEVICE; see qcom split --help\n"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert capsys.readouterr().err == line


def test_a_table_of_which_no_row_can_be_built_is_not_judged(
    tmp_path: Path, facts: Callable[..., Any]
) -> None:
    table = tmp_path / "table.csv"
    columns = measurements.COLUMNS
    values = {
        "id": "p1",
        "family": "gemm_9x9",
        "unit": "GFLOPS",
        "low": "1",
        "high": "2",
        "verdict": "correct",
    }
    table.write_text(",".join(columns) + "\n" + ",".join(values.get(name, "") for name in columns) + "\n")
    for command in ("verify-timing", "verify-verdicts"):
        assert facts(command, str(table), code=FAILED)["not_built"] == 1


@pytest.mark.parametrize("rounds", ["0", "-3", "many"])
def test_a_number_of_rounds_that_times_nothing(rounds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["run", *SMALL, "--rounds", rounds])
    assert f"argument --rounds: '{rounds}' is no whole number from 1 on" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["run", *SMALL], ["compose", "strassen"], ["split", "virtual", "local"], ["dsp", "run"]]
)
def test_a_seed_below_zero(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main([*command, "--seed", "-1"])
    assert "argument --seed: '-1' is no whole number from 0 on" in capsys.readouterr().err


def test_a_split_over_one_device(refusal: Callable[..., str]) -> None:
    assert refusal("split", "virtual").startswith("qcom: a product split over 1 device; name two or more")


def test_an_interrupted_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(programs, "_read", interrupt)
    assert cli.main(["disasm", "--text", "any"]) == 130
    assert capsys.readouterr().err == "qcom: interrupted\n"


def test_output_that_cannot_be_written() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "pytest_qcom.cli", "devices"]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "qcom: output: cannot be written (No space left on device); send it elsewhere\n"


def test_what_repeats_a_run_says_where_it_ran(facts: Callable[..., Any]) -> None:
    found = facts("run", *SMALL, "--hazards", "off", "--seed", "5")
    assert found["repeat"].endswith(" --seed 5 --hazards off")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"; nothing yet\n", "no instruction in it; write Mesa's text, one a line"),
        (b"nop\n\xff", "no text (byte 4); give --binary for a CL binary, or Mesa's text"),
    ],
)
def test_text_that_is_no_program(
    tmp_path: Path, refusal: Callable[..., str], content: bytes, words: str
) -> None:
    path = tmp_path / "empty.asm"
    path.write_bytes(content)
    assert refusal("disasm", "--text", str(path)).rstrip() == f"qcom: file {path}: {words}"


def test_broken_assembly_text(tmp_path: Path, refusal: Callable[..., str]) -> None:
    path = tmp_path / "broken.asm"
    path.write_text("add.f r0.x, r1.x\nend\n")
    assert refusal("asm", "--text", str(path)).startswith(f"qcom: file {path}: line 1: ")
