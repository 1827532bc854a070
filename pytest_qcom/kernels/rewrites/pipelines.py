"""The patches of compiled matmuls that the notes name, as rewrites in a row.

A name is words: ``rpt3_l25_postinc_unroll22``. What a word means here is what it does to the loop that data
flow finds, not which instructions of one compiler version it moves; a program that has no such loop, or not
the one that the name is about, is a mismatch.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.rewrite import AutoRepeat, PairMerge, PairRepeat, SyncStrip, apply
from pytest_qcom.kernels.rewrites.accumulators import recognise
from pytest_qcom.kernels.rewrites.compact import compact, regroup
from pytest_qcom.kernels.rewrites.loop import Mismatch
from pytest_qcom.kernels.rewrites.matmul import rewrite, unsampled
from pytest_qcom.kernels.rewrites.schedule import Schedule

STARTS = {"l25": 25, "n512": 21, "accum": 21, "n1024": 21, "l23": 23, "n384": 19}
"""Where the loop starts that a name is about, as an instruction number; ``accum`` is for N = 1024."""

REGISTERS = {"l25": 16, "n512": 16, "accum": 14, "n1024": 14, "l23": 16, "n384": 12}
"""The vec4 that the notes' versions of these declare; with ``b0low`` one less."""

_ALL = 48
_HOISTED = {"hoist31": 17, "hoist33": 18, "hoisty": _ALL}
"""Vec4 for pairs of their own, so that what is constant in them is written once, before the loop."""
_IGNORED = frozenset({"rpt3", "f32", "default", "nonopctl", "repack"})
"""What ours does anyway: vectors as products, floats, no idle slot in the loop's control, low registers."""
_ALL_K = (0, 1, 2, 3)
_FLAGS = {
    "postinc": ("postinc",),
    "nosnop": ("nosnop",),
    "lastcmp0": ("lastcmp0",),
    "accmajor": ("accmajor",),
    "b0low": ("b_last", "b_low"),
    "b0last": ("b_last",),
    "incoords": ("incoords",),
    "half": ("half",),
    "compact": ("nosnop", "lastcmp0"),
    "tight": ("nosnop", "postinc"),
}
"""Words that set fields of the schedule; ``compact`` and ``tight`` are the halves' forms with fewer slots."""


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
        whole = _WHOLE[name]
        others = set(changes) - {"skip_scalars", "skip_vectors"}
        if others:
            raise Mismatch(f"patch {name} has no {', '.join(sorted(others))}; it writes no loop anew")
        if not changes:
            return whole
        return replace(whole, steps=(*whole.steps, functools.partial(unsampled, **changes)))  # type: ignore[arg-type]
    schedule, start = Schedule(), None
    words = functools.reduce(lambda name, pair: name.replace(*pair), _JOINED, name).split("_")
    for word in sorted(words, key=lambda word: word not in STARTS):  # what it is about comes first
        if word in STARTS:
            start = STARTS[word]
            schedule = replace(schedule, registers=REGISTERS[word])
        elif word not in _IGNORED:
            schedule = _word(name, word, schedule)
    fixed = any(re.fullmatch(_FOOTPRINT, word) or word in _HOISTED for word in words)
    if schedule.b_low and schedule.registers and not fixed:
        schedule = replace(schedule, registers=schedule.registers - 1)
    return Pipeline(name, start, replace(schedule, **changes))  # type: ignore[arg-type]


def _word(name: str, word: str, schedule: Schedule) -> Schedule:
    if match := re.fullmatch(r"unroll(\d+)", word):
        if int(match[1]) < 1:
            raise Mismatch(f"patch {name}: {word} is no number of steps; give 1 or more")
        return replace(schedule, unroll=int(match[1]))
    if match := re.fullmatch(r"block([1-9]\d?)", word):
        return replace(schedule, half=True, block=int(match[1]))
    if match := re.fullmatch(r"(k|acc)([0-3]{4})", word):
        order = tuple(int(digit) for digit in match[2])
        return replace(schedule, k_order=order) if match[1] == "k" else replace(schedule, acc_order=order)
    if match := re.fullmatch(r"prefetch(?:a([0-3]+))?", word):
        vectors = tuple(map(int, match[1])) if match[1] else _ALL_K
        return replace(schedule, prefetch=schedule.prefetch + vectors)
    if match := re.fullmatch(r"a([0-3]+)early|afirst", word):
        vectors = tuple(map(int, match[1])) if match[1] else _ALL_K
        return replace(schedule, early=schedule.early + vectors)
    if match := re.fullmatch(_FOOTPRINT, word):
        return replace(schedule, registers=int(match[1]))
    if word in _HOISTED:
        return replace(schedule, registers=max(schedule.registers, _HOISTED[word]))
    if word not in _FLAGS:
        known = ", ".join((*_FLAGS, *_HOISTED, *_PATTERNS))
        raise Mismatch(f"patch {name}: {word!r} is unknown; words are {known}")
    return replace(schedule, **dict.fromkeys(_FLAGS[word], True))  # type: ignore[arg-type]


_FOOTPRINT = r"f(1\d|[2-4]\d)(?:pack)?"
_PATTERNS = ("unrollN", "kNNNN", "accNNNN", "fNN", "blockN", "prefetch", "prefetchaN", "aNearly", "afirst")
_JOINED = (
    ("b0_last", "b0last"),
    ("half_f16", "half"),
    ("prefetch_a", "prefetcha"),
    *((f"a{k}_early", f"a{k}early") for k in _ALL_K),
)
"""Words of two parts, as one."""


def is_word(word: str) -> bool:
    """Whether a word by itself is one of a patch's name."""
    if word in STARTS or word in _IGNORED:
        return True
    try:
        _word(word, word, Schedule())
    except Mismatch:
        return False
    return True


def _packed(program: Program) -> Program:
    for step in (SyncStrip(), AutoRepeat(), PairMerge()):
        program = apply(step, program)
    return program


def _paired(program: Program) -> Program:
    return apply(PairRepeat(), program)


_WHOLE = {
    pipeline.name: pipeline
    for pipeline in (
        Pipeline("noop", None, None),
        Pipeline("auto_rpt_f32", None, None, (_packed,)),
        Pipeline("rpt1_f32_pairs", None, None, (_paired,)),
        Pipeline("reorder_rpt_f32_default", None, None, (regroup, _packed)),
        Pipeline("reorder_rpt_f32_compact", None, None, (regroup, _packed, compact)),
    )
}
