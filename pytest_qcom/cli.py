"""The ``qcom`` command: the objects that the suites use, from a shell.

Each command returns facts; ``--json`` prints them as they are, otherwise they are printed as text. Errors of
ours are one line and exit code 2.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from pytest_qcom import programs
from pytest_qcom.arguments import FAILED, Answer, add_case, add_pattern, add_rounds, add_seed, positive
from pytest_qcom.devices import HAZARD_MODES, registry
from pytest_qcom.errors import QcomError
from pytest_qcom.settings import DEFAULT_DEVICE

Command = Callable[[argparse.Namespace], Answer]

_WORST = ("output", "index", "got", "expected", "bound", "ulp", "written")
"""Facts about one element, which the verdict has in words."""

BAD_INPUT = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; its exit code: 0, 1 where what was checked is wrong, 2 for bad input."""
    commands = parser()
    options, rest = commands.parse_known_args(arguments)
    words = [word for word in rest if not word.startswith("-")] if "options" in options else []
    if words != rest:
        commands.error(f"unrecognized arguments: {' '.join(rest)}")
    if words:  # behind an option; argparse takes positional arguments in one piece only
        options.options = [*options.options, *words]
    try:
        facts, lines, code = options.command(options)
    except QcomError as error:
        print(f"qcom: {error}", file=sys.stderr)
        return BAD_INPUT
    except MemoryError as error:  # numpy says how much it wanted
        print(f"qcom: out of memory ({error or 'of this machine'}); give a smaller problem", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("qcom: interrupted", file=sys.stderr)
        return INTERRUPTED
    if facts is None:
        return int(code)
    return _print(json.dumps(facts, indent=2) if options.json else "\n".join(lines), int(code))


def _print(text: str, code: int) -> int:
    """Prints the output of a command; ``code``, or another one where it cannot be written."""
    try:
        print(text, flush=True)
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):  # nothing is left for the interpreter to flush
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # which is a reader such as head that has seen enough
            print(f"qcom: output: cannot be written ({error.strerror}); send it elsewhere", file=sys.stderr)
            return BAD_INPUT
    return code


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = _Parser(prog="qcom", description="Kernels and programs for the Adreno 630.")
    top.add_argument("--version", action="version", version=f"qcom {version('pytest-qcom')}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, command, text, add in COMMANDS:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--json", action="store_true", help="print facts as JSON")
        add(sub)
        sub.set_defaults(command=command)
    return top


def _kernel_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("kernel", metavar="KERNEL", help="a declared kernel, see 'qcom list'")
    add_case(sub)


def _device_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--device", default=DEFAULT_DEVICE, metavar="NAME", help="see 'qcom devices'")
    _hazards_argument(sub)
    sub.add_argument("--races", action="store_true", help="as --qcom-races of pytest")


def _hazards_argument(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--hazards", choices=HAZARD_MODES, default="strict", help="as --qcom-hazards of pytest")


def _run_arguments(sub: argparse.ArgumentParser) -> None:
    _kernel_arguments(sub)
    _device_arguments(sub)
    add_seed(sub)
    add_pattern(sub)
    add_rounds(sub)


def _compose_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("composition", metavar="NAME", help="a sequence of launches: strassen")
    add_case(sub)
    _device_arguments(sub)
    add_seed(sub)
    add_pattern(sub)


def _exec_arguments(sub: argparse.ArgumentParser) -> None:
    _device_arguments(sub)
    sub.add_argument("script", type=Path, help="a Python program that uses tinygrad")
    sub.add_argument("arguments", nargs=argparse.REMAINDER, help="its own arguments")


def _graph_arguments(sub: argparse.ArgumentParser) -> None:
    from pytest_qcom.openpilot import commands

    commands.add_arguments(sub)
    _device_arguments(sub)


def _dsp_arguments(sub: argparse.ArgumentParser) -> None:
    from pytest_qcom.dsp import commands

    commands.add_arguments(sub)
    add_seed(sub)
    add_rounds(sub)


def _split_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("devices", nargs="+", metavar="DEVICE", help="two or more, see 'qcom devices'")
    for side in "mnk":
        sub.add_argument(f"--{side}", type=positive, default=1024, help="of the product: C is (m, n)")
    _hazards_argument(sub)
    add_seed(sub)
    add_rounds(sub)


def _import_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("table", type=Path, metavar="CSV", help="a table of published measurements")
    sub.add_argument("--device", required=True, metavar="NAME", help="the device that was measured")
    sub.add_argument("--folder", type=Path, default=Path("baselines"), help="where the devices' folders are")


def _verdict_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("table", type=Path, metavar="CSV", help="a table of a device's verdicts")
    sub.add_argument("--jobs", type=positive, metavar="N", help="processes (default: one for each processor)")


def _predict_arguments(sub: argparse.ArgumentParser) -> None:
    _kernel_arguments(sub)
    sub.add_argument("--trace", type=Path, metavar="FILE", help="write a timeline that Perfetto opens")
    sub.add_argument("--plot", type=Path, metavar="FILE", help="draw the roofline (needs the extra 'plot')")


def _timing_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("table", type=Path, metavar="CSV", help="a table of published measurements")
    sub.add_argument(
        "--cross-validate",
        action="store_true",
        help="fit each random half anew and judge it on the other one; takes minutes",
    )


def _no_arguments(sub: argparse.ArgumentParser) -> None:
    pass


def _list_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--markdown", action="store_true", help="the page of docs/kernels.md; builds every case")


def list_kernels(options: argparse.Namespace) -> Answer:
    """All declared kernels."""
    from pytest_qcom.kernels import registry as kernels

    facts = [
        {
            "kernel": kernel.name,
            "summary": kernel.summary,
            "unit": kernel.unit,
            "claim": kernel.claim,
            "source": kernel.source,
            "options": [option.name for option in dataclasses.fields(kernel.options)],
            "cases": {case.name: dict(case.options) for case in kernel.cases},
        }
        for kernel in kernels.KERNELS.values()
    ]
    if options.markdown:
        from pytest_qcom import catalogue

        return facts, catalogue.page(Path("baselines")).splitlines(), 0
    lines = [line for fact in facts for line in _kernel_lines(fact)]
    return facts, lines, 0


def _kernel_lines(fact: Mapping[str, Any]) -> list[str]:
    return [
        f"{fact['kernel']}: {fact['summary']} ({fact['unit']}, {fact['claim']})",
        f"    options: {', '.join(fact['options'])}",
        *(f"    {fact['kernel']}[{name}]" for name in fact["cases"]),
    ]


def list_devices(options: argparse.Namespace) -> Answer:
    """All devices that are known here, and whether they are there."""
    facts = []
    for entry in registry.known(Path.cwd()).values():
        facts.append({**dataclasses.asdict(entry), "mode": entry.mode, "state": entry.state()})
    lines = [
        f"{fact['name']}: {fact['chip']}, {fact['mode']} ({fact['source']}): {fact['state']}"
        for fact in facts
    ]
    return facts, lines, 0


def _where(options: argparse.Namespace) -> str:
    """The words of a command line that say where and how it ran, if not as is usual."""
    device = f" --device {options.device}" if options.device != DEFAULT_DEVICE else ""
    hazards = f" --hazards {options.hazards}" if options.hazards != "strict" else ""
    return device + hazards + (" --races" if options.races else "")


def _pattern(options: argparse.Namespace) -> str:
    return f" --pattern {options.pattern}" if options.pattern else ""


def _judged(facts: Mapping[str, Any]) -> Answer:
    """What a command that checks results gives."""
    lines = [f"{name}: {value}" for name, value in facts.items() if name not in _WORST]
    return facts, lines, 0 if facts["ok"] else FAILED


def run(options: argparse.Namespace) -> Answer:
    """Runs a kernel on random inputs, or on those of a pattern, and checks its output."""
    from pytest_qcom import conformance, targets

    target = targets.named(options.kernel, options.case, options.options)
    entry = registry.find(options.device, Path.cwd())
    with racing(options, entry), entry.open(options.hazards) as device:
        facts = conformance.facts(device, target, options.seed, options.rounds, options.pattern)
    facts["repeat"] += _pattern(options) + _where(options)
    return _judged(facts)


def compose(options: argparse.Namespace) -> Answer:
    """Runs a sequence of launches on random inputs, or on those of a pattern, and checks its output."""
    from pytest_qcom import composed, targets

    target = targets.composed(options.composition, options.case, options.options)
    _ = target.options  # a wrong one is an error before a device is opened
    entry = registry.find(options.device, Path.cwd())
    with racing(options, entry), entry.open(options.hazards) as device:
        facts = composed.facts(device, target, options.seed, options.pattern)
    facts["repeat"] += _pattern(options) + _where(options)
    return _judged(facts)


def split(options: argparse.Namespace) -> Answer:
    """A product whose rows are split over several devices, which start at the same instant."""
    from pytest_qcom import split as split_

    shape = (options.m, options.n, options.k)
    facts = split_.facts(options.devices, Path.cwd(), shape, options.seed, options.rounds, options.hazards)
    return _judged(facts)


def racing(options: argparse.Namespace, entry: registry.Entry) -> contextlib.AbstractContextManager[None]:
    """Looks for races while entered, where that was asked for."""
    from pytest_qcom.devices.races import looking_for_races

    return looking_for_races(entry) if options.races else contextlib.nullcontext()


def execute(options: argparse.Namespace) -> Answer:
    """Runs a Python program whose tinygrad device is the one named."""
    from pytest_qcom.devices import session

    entry = registry.find(options.device, Path.cwd())
    entry.require(options.hazards)
    with racing(options, entry):
        session.run_script(entry, options.hazards, options.script, options.arguments)
    return None, (), 0


def graph(options: argparse.Namespace) -> Answer:
    """What ``qcom graph`` does with a captured graph."""
    from pytest_qcom.openpilot import commands

    with racing(options, registry.find(options.device, Path.cwd())):
        return commands.run(options)


def dsp(options: argparse.Namespace) -> Answer:
    """What ``qcom dsp`` does with the kernel of the Hexagon DSP."""
    from pytest_qcom.dsp import commands

    return commands.run(options)


def predict(options: argparse.Namespace) -> Answer:
    """What the cycle model says of a kernel: speed, waves, what limits it, the roof above it."""
    from pytest_qcom import prediction, targets

    found = prediction.predict(targets.named(options.kernel, options.case, options.options))
    if options.trace is not None:
        prediction.write_trace(found, options.trace)
    if options.plot is not None:
        prediction.plot(found, options.plot)
    facts = found.facts()
    return facts, prediction.lines(facts), 0


def verify_timing(options: argparse.Namespace) -> Answer:
    """Measured speeds of published kernels against those of the cycle model; 1 where no row can be built."""
    from pytest_qcom import calibration, timings

    table = timings.read(options.table)
    facts = timings.verify(table)
    lines = timings.lines(facts)
    if options.cross_validate:
        rows = [row for row in timings.rows(table) if isinstance(row, timings.Row)]
        facts["cross_validation"] = calibration.cross_validate(rows)
        lines.append(f"cross validation: {json.dumps(facts['cross_validation'])}")
    return facts, lines, 0 if facts["built"] else FAILED


def import_baselines(options: argparse.Namespace) -> Answer:
    """Makes a table of published measurements the baseline of the device that was measured."""
    from pytest_qcom import baselines, measurements, report, targets

    entry = registry.find(options.device, Path.cwd())
    machine = baselines.machine(entry)
    imported = measurements.convert(options.table, machine, targets.published())
    stored = measurements.store(options.folder, machine, imported.entries, report.versions())
    facts = {
        "path": str(stored.path),
        "entries": len(stored.written),
        "measured": list(stored.measured),
        "left_out": dict(imported.left_out),
    }
    left_out = [f"row {row} left out: {reason}" for row, reason in imported.left_out.items()]
    return facts, [*stored.lines(), *left_out], 0


def verify_verdicts(options: argparse.Namespace) -> Answer:
    """What a device said of published kernels, against the virtual device in hazards mode emulate.

    1 where no row can be built.
    """
    from pytest_qcom import verdicts

    judged = verdicts.verify(verdicts.read(options.table), options.jobs)
    facts = verdicts.facts(judged)
    return facts, verdicts.lines(judged), 0 if facts["built"] else FAILED


COMMANDS: tuple[tuple[str, Command, str, Callable[[argparse.ArgumentParser], None]], ...] = (
    ("list", list_kernels, "the declared kernels", _list_arguments),
    ("devices", list_devices, "the known devices", _no_arguments),
    ("run", run, "run a kernel and check its output", _run_arguments),
    ("compose", compose, "run a sequence of launches and check its output", _compose_arguments),
    ("split", split, "a product over several devices, by rows of C", _split_arguments),
    ("disasm", programs.disassemble, "the text of a program", programs.add_arguments),
    ("asm", programs.assemble, "the instruction words of a program", programs.add_asm_arguments),
    ("lint", programs.lint, "the hazards of a program", programs.add_lint_arguments),
    ("predict", predict, "how fast the A630 runs a kernel, by the cycle model", _predict_arguments),
    ("import", import_baselines, "make published measurements the baseline of a device", _import_arguments),
    ("verify-timing", verify_timing, "measured speeds against the cycle model's", _timing_arguments),
    ("verify-verdicts", verify_verdicts, "a device's verdicts against those here", _verdict_arguments),
    ("graph", graph, "captured graphs: show, compare, patch and time them", _graph_arguments),
    ("dsp", dsp, "the int8 GEMM of the Hexagon DSP: run it or print its source", _dsp_arguments),
    ("exec", execute, "run a tinygrad program on a device", _exec_arguments),
)


if __name__ == "__main__":
    sys.exit(main())
