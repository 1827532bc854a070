"""``qcom disasm``, ``asm`` and ``lint``: the program of a kernel, of a CL binary or of text, from a shell."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qcom.arguments import FAILED, Answer, add_case
from pytest_qcom.errors import DecodeError, EncodeError, EnvelopeError, KernelError

if TYPE_CHECKING:
    from pytest_qcom.isa.program import Program
    from pytest_qcom.targets import Target


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """What names a program."""
    sub.add_argument("kernel", nargs="?", metavar="KERNEL", help="a declared kernel, see 'qcom list'")
    add_case(sub)
    instead = sub.add_mutually_exclusive_group()
    instead.add_argument("--binary", type=Path, metavar="FILE", help="a QCOM CL binary instead of a kernel")
    instead.add_argument("--text", type=Path, metavar="FILE", help="assembly text, as Mesa writes it")


def add_asm_arguments(sub: argparse.ArgumentParser) -> None:
    """The arguments of ``asm``."""
    add_arguments(sub)
    sub.add_argument(
        "--output", type=Path, help="write the instruction image there instead of printing words"
    )


def add_lint_arguments(sub: argparse.ArgumentParser) -> None:
    """The arguments of ``lint``."""
    add_arguments(sub)
    sub.add_argument("--sarif", action="store_true", help="print a SARIF log, for code review tools")


def disassemble(options: argparse.Namespace) -> Answer:
    """The text of a program, as Mesa writes it."""
    program, launch = _named(options)
    lines = program.text().splitlines()
    return {"instructions": lines, **launch}, lines, 0


def assemble(options: argparse.Namespace) -> Answer:
    """The instruction words of a program."""
    program, launch = _named(options)
    image = program.encode()
    words = [f"{int.from_bytes(image[at : at + 8], 'little'):016x}" for at in range(0, len(image), 8)]
    if options.output is not None:
        _write(options.output, image)
        return {"bytes": len(image), "output": str(options.output), **launch}, [f"{len(image)} bytes"], 0
    return {"words": words, **launch}, words, 0


def lint(options: argparse.Namespace) -> Answer:
    """The hazards of a program; exit code 1 when there is one."""
    from pytest_qcom import linting
    from pytest_qcom.analysis import hazards
    from pytest_qcom.analysis.findings import errors

    if options.binary is None and options.text is None:
        found = linting.lint(_target(options).build())
    else:
        program, launch = _named(options)
        found = hazards.lint(program, **launch)
    lines = [str(finding) for finding in found] or ["no hazards"]
    if options.sarif:
        if options.json:
            raise KernelError("lint with --json and --sarif: give one of them")
        named = options.binary or options.text or options.kernel
        lines = [hazards.to_sarif(found, f"{named}.asm")]
    return [finding.facts() for finding in found], lines, FAILED if errors(found) else 0


def _target(options: argparse.Namespace) -> Target:
    """The kernel, case and options that a command line names.

    Raises:
        KernelError: an unknown one, or no kernel at all.
    """
    from pytest_qcom import targets

    if options.kernel is None:
        raise KernelError("no kernel named; give KERNEL, --binary or --text ('qcom list' shows the kernels)")
    return targets.named(options.kernel, options.case, options.options)


def _named(options: argparse.Namespace) -> tuple[Program, Mapping[str, Any]]:
    """The program that a command line names, and how it is launched: footprints, merged, thread128.

    Raises:
        KernelError: neither a kernel nor a file that is readable, or both.
        EnvelopeError, DecodeError, EncodeError: a file that is no binary, or text that is no program.
    """
    file = options.binary or options.text
    if file is None:
        build = _target(options).build()
        footprint = {"fregs": build.fregs, "hregs": build.hregs, "merged": build.merged}
        return build.program, {**footprint, "thread128": build.thread128}
    if options.kernel is not None or options.case is not None:
        raise KernelError(f"file {file} and a kernel or case: it is one or the other; leave one out")
    with _of_file(file):
        return _of_binary(file) if options.binary is not None else _of_text(file)


def _of_binary(path: Path) -> tuple[Program, Mapping[str, Any]]:
    from pytest_qcom import envelope
    from pytest_qcom.isa.program import Program

    content = envelope.parse(_read(path))
    footprint = {"fregs": content.fregs, "hregs": content.hregs, "merged": bool(content.merged)}
    return Program.decode(content.image), footprint


def _of_text(path: Path) -> tuple[Program, Mapping[str, Any]]:
    from pytest_qcom.isa.assembler import Assembler

    try:
        text = _read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise KernelError(
            f"file {path}: no text (byte {error.start}); give --binary for a CL binary, or Mesa's text"
        ) from error
    program = Assembler().parse(text).program()
    if not program.instrs:
        raise KernelError(f"file {path}: no instruction in it; write Mesa's text, one a line")
    fregs, hregs = program.footprint()
    return program, {"fregs": fregs, "hregs": hregs}


@contextlib.contextmanager
def _of_file(path: Path) -> Iterator[None]:
    """Errors in what a file holds say which file it is."""
    try:
        yield
    except (EncodeError, DecodeError, EnvelopeError) as error:
        raise type(error)(f"file {path}: {error}", **error.facts) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KernelError(f"file {path}: not readable ({error.strerror}); name an existing file") from error


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise KernelError(f"file {path}: cannot be written ({error.strerror}); name another") from error
