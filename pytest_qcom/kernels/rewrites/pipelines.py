"""The patches of compiled matmuls that the notes name, as rewrites in a row.

A name is words: ``rpt3_l25_postinc_unroll22``. What a word means here is what it does to the loop that data
flow finds, not which instructions of one compiler version it moves; a program that has no such loop, or not
the one that the name is about, is a mismatch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.rewrite import AutoRepeat, PairMerge, SyncStrip, apply
from pytest_qcom.kernels.rewrites.accumulators import recognise
from pytest_qcom.kernels.rewrites.compact import compact, regroup
from pytest_qcom.kernels.rewrites.loop import Mismatch
from pytest_qcom.kernels.rewrites.matmul import Schedule, rewrite

STARTS = {"l25": 25, "n512": 21, "accum": 21, "l23": 23}
"""Where the loop starts that a name is about, as an instruction number; ``accum`` is for N = 1024."""

REGISTERS = {"l25": 16, "n512": 16, "accum": 14, "l23": 16}
"""The vec4 that the notes' versions of these declare; with ``b0low`` one less."""

_ALL = 48
_IGNORED = frozenset({"rpt3", "f32", "default", "f16"})


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A patch by name: the loop that it is about, and what becomes of it."""

    name: str
    start: int | None
    schedule: Schedule | None
    steps: tuple[Callable[[Program], Program], ...] = ()

    def apply(self, program: Program) -> Program:
        """The patched program.

        Raises:
            Mismatch: the program does not have what the patch is about.
        """
        if self.start is not None:
            header = recognise(program).found.header
            if header != self.start:
                raise Mismatch(
                    f"patch {self.name} is about a loop at #{self.start}; the program's is at #{header}"
                )
        if self.schedule is not None:
            program = rewrite(program, self.schedule)
        for step in self.steps:
            program = step(program)
        return program

    def attempt(self, program: Program) -> tuple[Program, str]:
        """The patched program and an empty reason, or the program itself and why it is left alone."""
        try:
            return self.apply(program), ""
        except Mismatch as mismatch:
            return program, str(mismatch)


def parse(name: str, **changes: object) -> Pipeline:
    """The patch called ``name``; ``changes`` are fields of the schedule that are set beside it.

    Raises:
        Mismatch: an unknown name, or a change to a patch without a schedule.
    """
    if name in _WHOLE:
        if changes:
            raise Mismatch(f"patch {name} has no {', '.join(changes)}; it writes no loop anew")
        return _WHOLE[name]
    schedule, start = Schedule(), None
    for word in name.split("_"):
        if word in STARTS:
            start = STARTS[word]
            schedule = replace(schedule, registers=REGISTERS[word])
        elif word not in _IGNORED:
            schedule = _word(name, word, schedule)
    if schedule.b_last and schedule.registers:
        schedule = replace(schedule, registers=schedule.registers - 1)
    return Pipeline(name, start, replace(schedule, **changes))  # type: ignore[arg-type]


def _word(name: str, word: str, schedule: Schedule) -> Schedule:
    if match := re.fullmatch(r"unroll(\d+)", word):
        if int(match[1]) < 1:
            raise Mismatch(f"patch {name}: {word} is no number of steps; give 1 or more")
        return replace(schedule, unroll=int(match[1]))
    if match := re.fullmatch(r"(k|acc)([0-3]{4})", word):
        order = tuple(int(digit) for digit in match[2])
        return replace(schedule, k_order=order) if match[1] == "k" else replace(schedule, acc_order=order)
    if word == "hoisty":
        return replace(schedule, registers=_ALL)
    flags = {"postinc": "postinc", "nosnop": "nosnop", "lastcmp0": "lastcmp0", "accmajor": "accmajor",
             "b0low": "b_last", "half": "half"}  # fmt: skip
    if word not in flags:
        known = ", ".join((*flags, "hoisty", "unrollN", "kNNNN", "accNNNN"))
        raise Mismatch(f"patch {name}: {word!r} is unknown; words are {known}")
    return replace(schedule, **{flags[word]: True})  # type: ignore[arg-type]


def _packed(program: Program) -> Program:
    for step in (SyncStrip(), AutoRepeat(), PairMerge()):
        program = apply(step, program)
    return program


_WHOLE = {
    pipeline.name: pipeline
    for pipeline in (
        Pipeline("noop", None, None),
        Pipeline("auto_rpt_f32", None, None, (_packed,)),
        Pipeline("reorder_rpt_f32_default", None, None, (regroup, _packed)),
        Pipeline("reorder_rpt_f32_compact", None, None, (regroup, _packed, compact)),
    )
}
