"""A word of each fiber's own through one shuffle or quad broadcast: what a kernel does with either.

The notes took the vendor compiler's shuffle of a buffer's words and put a quad broadcast in its place, with
the fiber's number and the result in several registers: onto one another, with the sources exchanged, apart.
What they differ in is a choice here; every result is checked on random words. Where the fibers of a quad give
different numbers each gets its own here; no document says so of the hardware.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.choices import NO_DELAY, check_delays, check_range, word
from pytest_qcom.kernels.families.shuffle import SHUFFLES, Shuffle
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import LOCAL_ID, check_threads
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.rewritten import delay
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE
from pytest_qcom.kernels.stores import POINTER
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.words import emit_fiber_number, emit_word_load, emit_word_store
from pytest_qcom.kernels.writer import Writer

NAME = "subgroup_probe"
_TARGETS = ("index", "own", "apart")
_LOADED = POINTER + 2
_BLOCKS = (0, 1, 3, 7, 15, 31, 63)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the probe.

    Attributes:
        api: xor, up, down, rup or rdown: a shuffle between fibers of a wave.
        selector: its distance.
        lane_mask: the distance is the fiber's number and this instead, one less than a power of 2: with
            ``api=up`` a block of fibers gets the word of its first.
        qbc: a quad broadcast instead.
        qbc_selector: the number of the fiber whose word the quad gets; its two low bits count.
        qbc_target: where the result goes: ``index``, onto the number; ``own``, a register of its own;
            ``apart``, one further on, from where it is moved.
        qbc_by_value: each fiber's own word is the number, and what the others of the quad get differs.
        qbc_swap: the sources are exchanged: the number goes around, and the word says whose.
        qbc_wait: nop repeats behind it; -1 is none.
        mergedregs: launched with one register file; half registers are not used.
        threads, thread128, groups: the launch.
    """

    api: str = "xor"
    selector: int = 1
    lane_mask: int = 0
    qbc: bool = False
    qbc_selector: int = 3
    qbc_target: str = "index"
    qbc_by_value: bool = False
    qbc_swap: bool = False
    qbc_wait: int = NO_DELAY
    mergedregs: bool = False
    threads: int = 128
    thread128: bool = True
    groups: int = 2

    @property
    def wave(self) -> int:
        """Fibers of a wave."""
        return min(128 if self.thread128 else 64, self.threads)


def build(options: Options) -> Build:
    """The probe's launch.

    Raises:
        KernelError: options that do not go together.
    """
    _check(options)
    plan = RegisterPlan(merged=options.mergedregs).place("lid", "r0.x", 1).place("scratch", "r1.x", 4)
    plan = plan.place("number", "r2.x", 1).place("word", "r2.y", 1).place("index", "r2.z", 1)
    plan = plan.place("result", "r2.w", 1)
    if options.qbc and options.qbc_target == "apart":
        plan = plan.place("apart", "r3.x", 1)
    w = Writer()
    emit_fiber_number(w, plan["number"][0], plan["scratch"][0], options.groups, options.threads)
    index, result = plan["index"][0], plan["result"][0]
    if options.lane_mask and not options.qbc:
        w.alu("and.b", index, LOCAL_ID, options.lane_mask)
    emit_word_load(w, plan["number"][0], plan["word"][0], plan["scratch"], _LOADED)
    if options.qbc:
        result = _emit_broadcast(w, plan, options)
    else:
        by = index if options.lane_mask else options.selector
        w.emit(f"shfl.{options.api}.u32", result, plan["word"][0], by)
    emit_word_store(w, plan["number"][0], [result], plan["scratch"])
    w.end()
    fregs, hregs = plan.footprint()
    fibers = options.groups * options.threads
    return Build(
        program=insert_waits(w.program(), merged=plan.merged),
        fregs=fregs,
        hregs=hregs,
        arguments=(
            Argument("C", (fibers, 1), "uint32", False, True, pointer=POINTER),
            Argument("X", (fibers,), "uint32", False, False, pointer=_LOADED),
        ),
        groups=(options.groups, 1, 1),
        local=(options.threads, 1, 1),
        thread128=options.thread128,
        work=1e-9 * fibers,
        merged=plan.merged,
    )


def _emit_broadcast(w: Writer, plan: RegisterPlan, options: Options) -> Any:
    """The broadcast; returns where its result is."""
    word, index = plan["word"][0], plan["index"][0]
    if not options.qbc_by_value:
        w.mov(index, options.qbc_selector)
    sources = (word, word if options.qbc_by_value else index)
    target = plan[{"own": "result"}.get(options.qbc_target, options.qbc_target)][0]
    w.emit(
        "quad_shuffle.brcst", target, *(sources[::-1] if options.qbc_swap else sources), type="u32", wrmask=1
    )
    delay(w, options.qbc_wait)
    if options.qbc_target != "apart":
        return target
    w.mov(plan["result"][0], target)
    return plan["result"][0]


def _check(options: Options) -> None:
    if options.api not in SHUFFLES:
        raise KernelError(f"{NAME}: api is {options.api!r}; give one of {', '.join(SHUFFLES)}")
    if options.lane_mask not in _BLOCKS:
        raise KernelError(
            f"{NAME}: lane-mask is {options.lane_mask}; give one less than a power of 2, up to 63"
        )
    check_threads(NAME, options.threads)
    ranges = {"selector": (0, 63), "groups": (1, LARGEST_IMMEDIATE), "qbc_selector": (0, LARGEST_IMMEDIATE)}
    check_range(NAME, options, ranges)
    check_delays(NAME, options, ("qbc_wait",))
    unset = Options()
    given = [name for name in _BROADCAST if getattr(options, name) != getattr(unset, name)]
    if given and not options.qbc:
        raise KernelError(f"{NAME}: {word(given[0])} is about qbc; give that too")
    if options.qbc_target not in _TARGETS:
        raise KernelError(f"{NAME}: qbc-target is {options.qbc_target!r}; give one of {', '.join(_TARGETS)}")
    if options.qbc_by_value and options.qbc_swap:
        raise KernelError(f"{NAME}: qbc-by-value with qbc-swap: both sources are one; give one of them")


_BROADCAST = ("qbc_selector", "qbc_target", "qbc_by_value", "qbc_swap", "qbc_wait")


_FORMS: Mapping[str, Mapping[str, Any]] = {
    "qbc_zero": {"qbc_selector": 0, "qbc_target": "own"},
    "qbc_no_waw": {"qbc_selector": 0, "qbc_target": "own"},
    "qbc_dst1": {"qbc_selector": 0, "qbc_target": "apart", "qbc_wait": 5},
    "qbc_known": {"qbc_by_value": True, "qbc_target": "apart"},
    "qbc_const_idx": {"qbc_selector": 0, "qbc_target": "own"},
    "merged0": {},
}
"""The notes' forms of the broadcast, as the choices that they are here; files are separate anyway."""


def _words(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options, the notes' forms, and a selector as they write it: a number, or ``i&31``."""
    forms = {name.replace("-", "_"): value for name, value in given.items()}
    found = {name: value for name, value in given.items() if name.replace("-", "_") not in _FORMS}
    for name, meant in _FORMS.items():
        if forms.get(name) in (True, "true", "1"):
            found = {**meant, **found}
    if block := re.fullmatch(r"i&(\d+)", str(found.get("selector", ""))):
        del found["selector"]
        found["lane_mask"] = int(block[1])
    return found


def _inputs(options: Options, rng: np.random.Generator) -> Arrays:
    """Random words."""
    return {"X": rng.integers(0, 1 << 32, options.groups * options.threads, np.uint32)}


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """The words of the fibers that each one reads."""
    words = arrays["X"].astype(np.int64).reshape(-1, options.wave)
    if not options.qbc:
        return {"C": words[:, _shuffled(options)].astype(np.float64).reshape(-1, 1)}
    numbers = np.full_like(words, options.qbc_selector)
    moved, whose = (numbers, words) if options.qbc_swap else (words, numbers)
    if options.qbc_by_value:
        whose = words
    return {"C": _handed(moved, np.arange(options.wave) // 4 * 4 + whose % 4).reshape(-1, 1)}


def _shuffled(options: Options) -> NDArray[np.int64]:
    """The fiber of the wave that each one reads by a shuffle."""
    found = np.empty(options.wave, np.int64)
    for lane in range(options.wave):
        by = lane & options.lane_mask if options.lane_mask else options.selector
        found[lane] = Shuffle("shfl", options.api, by).source(np.array([lane]), options.wave)[0]
    return found


def _handed(words: NDArray[np.int64], lanes: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.take_along_axis(words, lanes, axis=1).astype(np.float64)


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """0: words are moved."""
    return {"C": 0.0}


def _cases() -> tuple[Case, ...]:
    shuffles = (Case(api, dict(api=api, selector=5)) for api in SHUFFLES)
    forms = {
        "qbc": {},
        "qbc-zero": _FORMS["qbc_zero"],
        "qbc-apart": _FORMS["qbc_dst1"],
        "qbc-by-value": _FORMS["qbc_known"],
        "qbc-swap": dict(qbc_swap=True, qbc_target="own"),
        "qbc-merged": dict(qbc_selector=1, mergedregs=True),
        "qbc-64": dict(qbc_selector=2, threads=256, thread128=False),
    }
    return (
        *shuffles,
        Case("blocks-of-32", dict(api="up", lane_mask=31)),
        Case("blocks-of-8-64", dict(api="up", lane_mask=7, threads=64, thread128=False)),
        *(Case(name, {"qbc": True, **form}) for name, form in forms.items()),
    )


PROBE = Kernel(
    name=NAME,
    summary="each fiber's word through a shuffle or a quad broadcast",
    options=Options,
    build=build,
    inputs=_inputs,
    oracle=_oracle,
    tolerance=_tolerance,
    unit="Gfibers/s",
    reads=_words,
    cases=_cases(),
    claim="probe",
    source="qcom_subgroup_broadcast_probe.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (PROBE,)
