"""The page on trust: what the virtual A630 models, from where, how far it agrees, and what it leaves out.

The figures stand in ``fidelity.json`` beside this module, written by ``python -m pytest_qcom.fidelity`` from
tables of measurements and verdicts; the page follows from them and from the code.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pytest_qcom.analysis.cycles import DEFAULT, MODE, Constants
from pytest_qcom.chip import A630, Certainty

FILE = "fidelity.json"

MODELLED = (
    ("waves in flight", "registers, branch stack, local memory, workgroup; Mesa's rules, held against Mesa"),
    (
        "issue",
        "a word a cycle and partition, of the oldest wave that can go; repeats, (nopN), a wave's own turn, "
        "longer behind a branch; a nop costs its wave the slots, the others nothing",
    ),
    (
        "ALU",
        "halves at full rate in either mode; full multiply-adds of 128 fibers two cycles, of two sources the "
        "measured 1.48; whatever reads three registers takes at least four cycles",
    ),
    (
        "texture pipe",
        "16 texels a cycle and processor, a short queue before it; results from the cache as Mesa "
        "says, later where the wave has not touched the 256 bytes of a row before",
    ),
    ("waits", "(sy) and (ss) of a wave, hidden by the other waves of its partition"),
    ("stores and loads", "bytes a cycle, Mesa's latencies of cached loads"),
    ("instruction cache", "loops beyond 8 KiB"),
    (
        "rounds of waves",
        "three are simulated from the first instruction to the last; the next wave takes the place of one "
        "that ends; the last round may be partly empty",
    ),
)
"""Parts of the cycle model and what they do."""

TRIED = (
    ("a texture pipe for each partition instead of one for both", 0.134, 0.097),
    ("waves issue in turns, instead of the oldest first", 0.159, 0.097),
    ("the wave that issued last goes first", 0.125, 0.097),
    ("a wave keeps its partition until it waits for a sample", 0.210, 0.097),
    ("nops take issue slots from the other waves; fitted anew", 0.097, 0.095),
    ("a sample that waits for the texture pipe holds up its partition; fitted anew", 0.104, 0.095),
    ("lines come into the cache at a limited rate, behind the texture pipe; fitted anew", 0.095, 0.095),
    ("a cycle of the texture pipe for each cache line of a sample", 0.136, 0.097),
    ("latencies vary by a quarter from sample to sample", 0.100, 0.097),
    ("the mean over five latencies", 0.096, 0.097),
    ("every sample is late, as if the caches held nothing", 0.117, 0.097),
    ("full moves and integers of 128 fibers take 1.48 cycles", 0.103, 0.097),
    ("no cost of branches", 0.094, 0.091),
    ("behind a sample the turn of other instructions", 0.095, 0.091),
    ("blocks of 64 bytes", 0.091, 0.090),
    ("blocks of 1024 bytes; fitted anew", 0.091, 0.090),
    ("an instruction cache that keeps the 64 lines used last; 40 cycles for a line", 0.091, 0.090),
    ("samples of waves go in turns; fitted anew with the tail in the loss", 0.140, 0.125),
    ("waves start 20 cycles one after the other; with the tail in the loss", 0.131, 0.124),
)
"""Changes of the model, the loss of its fit with each, and that without, with what was in the model then."""

NOT_MODELLED = (
    "how waves and workgroups share the caches, their size, DRAM: texels that a wave touches first are "
    "always late, those that it touched before never are",
    "texel formats: a texel of 16 bytes costs what one of 8 bytes does",
    "register banks, and what the order of MADs changes",
    "the drop of the texture bandwidth probe at 16 and 20 samples a wait, half of what 12 and 24 reach: no "
    "arrangement of samples explains it, a lower clock in those runs would",
    "what makes waits dearer with many 128-fiber waves and cheaper with one a partition: kernels of "
    "two waves are predicted too slow where they wait often",
    "clock and temperature: all times are at the top clock of 710 MHz, measurements moved by 2 %",
    "launches of a queue side by side, preemption, the time of the command processor itself",
    "divergence: the path is that of the first wave, scaled by what the launch issued",
    "another compiler's code: what was measured of kernels in OpenCL C is the vendor's (local_gemm, "
    "globalb_gemm), what is predicted is Mesa's",
)


def figures() -> dict[str, Any]:
    """The figures that were measured last; empty where there are none."""
    text = resources.files("pytest_qcom").joinpath(FILE).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def summary() -> str:
    """The figures in a line, for the suites' summary."""
    timing, verdicts = figures()["timing"], figures()["verdicts"]
    return (
        f"fidelity of {MODE}: {timing['built']} published speeds, median error "
        f"{timing['median_abs_error']:.1%}, 90th percentile {timing['p90_abs_error']:.1%}, "
        f"rank correlation {timing['spearman']:.3f}; {verdicts['agree']} of {verdicts['built']} published "
        f"verdicts, {verdicts['false_alarms']} false alarms"
    )


def page() -> str:
    """``docs/fidelity.md``."""
    found = figures()
    parts = [
        "# Fidelity\n",
        "Written by `python -m pytest_qcom.fidelity`; do not edit. What a green suite on the virtual A630 is "
        "worth depends on its likeness to the device.\n",
        "## Time\n",
        f"The clock of the virtual device is `{MODE}`; a launch whose path cannot be followed has that of "
        "`model: issue-only`, and a `TimingWarning` says so.\n",
        "| part | how |\n| --- | --- |",
        *(f"| {name} | {text} |" for name, text in MODELLED),
        "\nFitted constants, the same for all kernels:\n",
        "| constant | value | meaning |\n| --- | --- | --- |",
        *(f"| {name} | {getattr(DEFAULT, name):g} | {text} |" for name, text in _meanings().items()),
        "\n### Agreement with the device\n",
        "`qcom verify-timing FILE` over the published measurements of a device "
        f"({found['timing']['built']} rows built, {found['timing']['not_built']} not):\n",
        "| family | rows | median error | 90th percentile |\n| --- | --- | --- | --- |",
        *(_row(name, row) for name, row in found["timing"]["families"].items()),
        _row("**all**", {**found["timing"], "rows": found["timing"]["built"]}),
        f"\nRank correlation over all rows: {found['timing']['spearman']:.3f}.",
        *_unknown(found.get("cross_validation", {})),
        "\n`python -m suites.analysis.fit_cycles FILE` searches the constants anew, in minutes, and with "
        "`--cross-validate` judges the search; `python -m pytest_qcom.fidelity --measurements FILE "
        "--cross-validate` writes this page.",
        "\nNot modelled:\n",
        *(f"* {text}" for text in NOT_MODELLED),
        "\nTried and left out, by the loss that the fit makes least: the mean error, of which none counts "
        "more than 35 %, and half the median; since the last rows a quarter of the 90th percentile too, "
        "the tail. Beside it stands that of the model before the change, whose constants it has where it "
        "is not fitted anew.\n",
        "| change | loss with it | without |\n| --- | --- | --- |",
        *(f"| {name} | {with_it:.3f} | {without:.3f} |" for name, with_it, without in TRIED),
        "\n## Results and hazards\n",
        "The instruction text equals Mesa's disassembly, delays equal Mesa's delay functions, and waves in "
        "flight equal Mesa's; the suites hold them against Mesa in every run. What late results do stands in "
        "[hazards.md](hazards.md).\n",
        *_mutations(found["mutations"]),
        *_verdicts(found["verdicts"]),
        "Choices where no source says what the hardware does:\n",
        "| question | chosen | source |\n| --- | --- | --- |",
        *(f"| {choice.question} | {choice.chosen} | {choice.source} |" for choice in A630.choices),
        f"\nOf {len(list(A630.facts()))} facts about the chip {_count(Certainty.DOCUMENTED)} are documented, "
        f"{_count(Certainty.MEASURED)} measured, {_count(Certainty.INFERRED)} inferred.",
    ]
    return "\n".join(parts) + "\n"


def _meanings() -> dict[str, str]:
    """The constants and what their documentation says of them."""
    text = inspect.cleandoc(Constants.__doc__ or "").partition("Attributes:")[2]
    names = [item.name for item in dataclasses.fields(Constants)]
    found: dict[str, str] = {}
    for part in re.split(r"\n(?=    \w[\w, ]*: )", text):
        head, _, meaning = part.strip().partition(": ")
        for name in head.split(", "):
            if name in names:
                found[name] = " ".join(meaning.split())
    return found


def _row(name: str, row: Mapping[str, Any]) -> str:
    return f"| {name} | {row['rows']} | {row['median_abs_error']:.1%} | {row['p90_abs_error']:.1%} |"


def _unknown(found: Mapping[str, Any]) -> list[str]:
    """How the model fares on rows that a fit did not know."""
    if not found:
        return []
    halves = found["halves"]
    rows = [
        ("rows that the fit knew", halves["fitted"]),
        ("the other random half, for both halves", halves["left_out"]),
    ]
    if "families" in found:
        rows.append(("families of which the fit knew no row", found["families"]))
    return [
        "\nThe same search from round values without some of the rows, judged on all of them:\n",
        "| rows | number | median error | 90th percentile |\n| --- | --- | --- | --- |",
        *(_row(name, row) for name, row in rows),
        f"\nRank correlation over the halves left out: {halves['left_out']['spearman']:.3f}.",
    ]


def _mutations(found: Mapping[str, Mapping[str, int]]) -> list[str]:
    """How many waits are missed when they are taken out of compiled programs."""
    removed, noticed, mesa = (
        sum(row[name] for row in found.values()) for name in ("removed", "noticed", "mesa")
    )
    return [
        f"Of {removed} waits that were taken out of programs that Mesa compiled, one at a time and drawn at "
        f"random, the checker notices {noticed} ({noticed / removed:.1%}); {mesa} are needed in Mesa's view "
        f"alone (split files, time that a flag waits, the slot of a branch), {removed - noticed - mesa} are "
        "missed:\n",
        "| taken out | times | noticed | needed in Mesa's view alone |\n| --- | --- | --- | --- |",
        *(
            f"| {_WAITS[wait]} | {row['removed']} | {row['noticed']} | {row['mesa']} |"
            for wait, row in found.items()
        ),
        "\n`python -m suites.analysis.shares FILE` counts them anew.\n",
    ]


_WAITS = {"sy": "(sy)", "ss": "(ss)", "nop": "a slot of a nop", "nopN": "a slot of (nopN)"}


def _verdicts(found: Mapping[str, Any]) -> list[str]:
    """How far verdicts agree with those of a device."""
    share = found["agree"] / found["built"]
    return [
        f"`qcom verify-verdicts FILE` over the published verdicts of a device ({found['built']} rows built, "
        f"{found['not_built']} not), with the inputs of each row's own check:\n",
        "| on the device | correct here | wrong here | hang here |\n| --- | --- | --- | --- |",
        *(
            f"| {device} | {counts['correct']} | {counts['wrong']} | {counts['hang']} |"
            for device, counts in found["confusion"].items()
            if sum(counts.values())
        ),
        f"\n{found['agree']} agree ({share:.1%}), {found['false_alarms']} are false alarms. Random inputs, "
        f"which those checks did not use, show {found['random']['wrong'] + found['random']['hang']} of the "
        f"{found['built']} programs to be wrong.\n",
    ]


def _count(certainty: Certainty) -> int:
    return sum(fact.certainty is certainty for _, fact in A630.facts())


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the figures anew, where a table is given, and writes the page."""
    from pytest_qcom import calibration, timings, verdicts

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--measurements", type=Path, help="a table of published measurements")
    parser.add_argument("--cross-validate", action="store_true", help="judge fits on rows left out; minutes")
    parser.add_argument("--verdicts", type=Path, help="a table of published verdicts; minutes")
    parser.add_argument("--mutations", type=Path, help="a file that suites.analysis.shares wrote")
    parser.add_argument("--page", type=Path, default=Path("docs/fidelity.md"))
    options = parser.parse_args(arguments)
    found = figures()
    if options.verdicts:
        facts = verdicts.facts(verdicts.verify(verdicts.read(options.verdicts)))
        found["verdicts"] = {name: facts[name] for name in facts if name != "rows"}
    if options.measurements:
        table = timings.read(options.measurements)
        facts = timings.verify(table)
        found["timing"] = {name: facts[name] for name in facts if name != "rows"}
        if options.cross_validate:
            rows = [row for row in timings.rows(table) if isinstance(row, timings.Row)]
            found["cross_validation"] = {
                "halves": calibration.cross_validate(rows),
                "families": calibration.by_family(rows),
            }
    if options.mutations:
        found["mutations"] = json.loads(options.mutations.read_text(encoding="utf-8"))
    if options.measurements or options.verdicts or options.mutations:
        text = json.dumps(found, indent=2) + "\n"
        (Path(__file__).parent / FILE).write_text(text, encoding="utf-8")
    options.page.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
