"""A divergent branch: fibers of one wave take different ways and meet again.

Every fiber stores its number modulo ``period`` and 1 where it took the branch. A join that is not marked, or
a branch that the whole wave takes, shows in the second word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import LOCAL_ID, check_threads
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE
from pytest_qcom.kernels.stores import POINTER
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.words import emit_fiber_number, emit_word_store
from pytest_qcom.kernels.writer import Writer


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the branch probe.

    Attributes:
        period: every ``period``-th fiber takes the branch: a power of 2.
        turns: fiber ``i`` goes round a loop ``1 + i modulo period`` times instead, and counts.
        threads, thread128, groups_x, groups_y: the launch.
    """

    period: int = 4
    turns: bool = False
    threads: int = 128
    thread128: bool = True
    groups_x: int = 1
    groups_y: int = 1


def build(options: Options) -> Build:
    """The probe's launch."""
    name = "branch_probe"
    if options.period not in (1, 2, 4, 8, 16, 32, 64, 128):
        raise KernelError(f"{name}: period is {options.period}; give a power of 2 up to 128")
    check_threads(name, options.threads)
    if not (1 <= options.groups_x <= LARGEST_IMMEDIATE and options.groups_y >= 1):
        raise KernelError(f"{name}: groups are counts; give 1 or more, in x at most {LARGEST_IMMEDIATE}")
    plan = RegisterPlan().place("lid", "r0.x", 1).place("scratch", "r1.x", 4).place("number", "r2.x", 1)
    plan = plan.place("results", "r3.x", 2)
    rest, taken = plan["results"]
    w = Writer()
    emit_fiber_number(w, plan["number"][0], plan["scratch"][0], options.groups_x, options.threads)
    w.alu("and.b", rest, LOCAL_ID, options.period - 1)
    w.mov(taken, 0)
    if options.turns:
        w.label("again")
        w.alu("cmps.s.ge", "p0.x", taken, rest)
        w.alu("add.s", taken, taken, 1)
        w.branch("again")
        w.emit("nop", jp=True)
    else:
        w.alu("cmps.s.eq", "p0.x", rest, 0)
        w.branch("over")
        w.mov(taken, 1)
        w.label("over")
        w.emit("nop", jp=True)
    emit_word_store(w, plan["number"][0], [rest, taken], plan["scratch"])
    w.end()
    fregs, hregs = plan.footprint()
    fibers = options.groups_x * options.groups_y * options.threads
    return Build(
        program=insert_waits(w.program()),
        fregs=fregs,
        hregs=hregs,
        arguments=(Argument("C", (fibers, 2), "uint32", image=False, written=True, pointer=POINTER),),
        groups=(options.groups_x, options.groups_y, 1),
        local=(options.threads, 1, 1),
        thread128=options.thread128,
        work=1e-9 * fibers,
        branchstack=2,
    )


def _words(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options without the word by which the notes' shuffle probe has this one."""
    return {name: value for name, value in given.items() if (name, value) not in _NAMES}


_NAMES = (("branch", True), ("branch", "true"))


def _inputs(options: Options, rng: np.random.Generator) -> Arrays:
    """None: the fibers' numbers decide."""
    return {}


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """The remainder, and whether the branch is taken, or how often the loop is gone round."""
    rest = np.tile(np.arange(options.threads) % options.period, options.groups_x * options.groups_y)
    second = rest + 1 if options.turns else rest == 0
    return {"C": np.stack([rest, second], axis=1).astype(np.float64)}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """0: integers."""
    return {"C": 0.0}


BRANCH = Kernel(
    name="branch_probe",
    summary="a divergent branch and where its fibers meet",
    options=Options,
    build=build,
    inputs=_inputs,
    oracle=_oracle,
    tolerance=_tolerance,
    unit="Gfibers/s",
    reads=_words,
    family="shfl_probe",
    cases=(
        Case("every-4th", {}),
        Case("every-4th-64", dict(threads=64, thread128=False)),
        Case("halves", dict(period=2, threads=256, groups_x=2)),
        Case("last-alone", dict(period=128)),
        Case("all", dict(period=1)),
        Case("turns", dict(turns=True, period=16)),
    ),
    claim="probe",
    source="qcom_shfl_probe.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (BRANCH,)
