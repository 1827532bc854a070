"""``qcom dsp``: the Hexagon kernel from a shell."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pytest_qcom.arguments import FAILED, Answer
from pytest_qcom.errors import KernelError, closest

if TYPE_CHECKING:
    from pytest_qcom.dsp.gemm import Options

NAME = "DSP GEMM"
WORDS = {"true": True, "false": False}


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The arguments of the command, but for seed and rounds."""
    options = "n, k, m, raw, divisor, rows, weight-high, activation-low, activation-high"
    sub.add_argument("action", choices=sorted(ACTIONS), help="run it, or print its C source")
    sub.add_argument("options", nargs="*", metavar="OPTION=VALUE", help=f"changes one of {options}")
    sub.add_argument("--on", metavar="PLACE", help="run: dsp, qemu or numpy (default: dsp, else qemu)")
    sub.add_argument(
        "--entry", metavar="NAME", default="fastrpc", help="source: fastrpc or stdio, what calls it"
    )


def run(arguments: argparse.Namespace) -> Answer:
    """Does what the command line asks for.

    Raises:
        QcomError: what is wrong with it, or what the device ran into.
    """
    return ACTIONS[arguments.action](read(arguments.options), arguments)


def read(words: Sequence[str]) -> Options:
    """Options from ``name=value`` words, dashes as in the notes; a name alone is a flag.

    Raises:
        KernelError: an unknown one, or a value that it cannot have.
    """
    from pytest_qcom.dsp.gemm import Options

    types = {name.replace("_", "-"): kind for name, kind in typing.get_type_hints(Options).items()}
    values: dict[str, Any] = {}
    for word in words:
        key, given, text = word.partition("=")
        name = key.replace("_", "-")
        if name not in types:
            raise KernelError(f"{NAME} has no option {key!r}; {closest(name, types)}")
        values[name.replace("-", "_")] = _value(key, text if given else "true", types[name])
    return Options(**values)


def _value(key: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in WORDS:
            raise KernelError(f"{NAME}: option {key} is {text!r}; give true or false")
        return WORDS[text.lower()]
    try:
        return int(text, 0)
    except ValueError:
        raise KernelError(f"{NAME}: option {key} is {text!r}; give a whole number") from None


def facts(options: Options, on: str, seed: int, rounds: int) -> dict[str, Any]:
    """Runs on random inputs and compares with the oracle: every element, exactly.

    Raises:
        KernelError, DeviceUnavailable: as :func:`runner.run`.
    """
    import numpy as np

    from pytest_qcom.dsp import gemm, runner

    weight, activation = gemm.inputs(options, np.random.default_rng(seed))
    outcome = runner.run(options, weight, activation, on, rounds)
    wanted = gemm.oracle(options, weight, activation)
    error = np.abs(outcome.output.astype(np.int64) - wanted.astype(np.int64))
    found: dict[str, Any] = {
        "on": on,
        **dataclasses.asdict(options),
        "seed": seed,
        "ok": not error.any(),
        "checked": error.size,
        "mismatches": int(np.count_nonzero(error)),
        "max_abs": int(error.max()),
        "distinct": int(np.unique(wanted).size),
    }
    speed = outcome.speed
    if speed.instructions is not None:
        found["instructions"] = speed.instructions
    if speed.seconds is not None:
        found["device_seconds"] = speed.seconds
    if speed.seconds:  # the DSP's clock counts microseconds, a small shape may take none
        found["gops"] = 1e-9 * options.work / speed.seconds
    return found


def _run(options: Options, arguments: argparse.Namespace) -> Answer:
    from pytest_qcom.dsp import runner

    found = facts(options, arguments.on or runner.choose(), arguments.seed, arguments.rounds)
    return found, [f"{name}: {value}" for name, value in found.items()], 0 if found["ok"] else FAILED


def _source(options: Options, arguments: argparse.Namespace) -> Answer:
    from pytest_qcom.dsp import gemm

    text = gemm.source(options, arguments.entry)
    return {"entry": arguments.entry, **dataclasses.asdict(options), "source": text}, text.splitlines(), 0


ACTIONS: dict[str, Callable[[Options, argparse.Namespace], Answer]] = {"run": _run, "source": _source}
"""What ``qcom dsp`` can do."""
