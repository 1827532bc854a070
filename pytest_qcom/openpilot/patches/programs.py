"""Patches of compiled programs: the call stays, its instructions change."""

from __future__ import annotations

import functools
from dataclasses import replace

from pytest_qcom.isa.instruction import Barrier, Sync
from pytest_qcom.isa.program import Program as Code
from pytest_qcom.kernels import rewrite
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.openpilot import library, nodes, schedules
from pytest_qcom.openpilot.graph import Graph, Program
from pytest_qcom.openpilot.patch import Edit, Findings, Patch, Refusal, Site


def with_code(program: Program, code: Code) -> Program:
    """The program with other instructions, and the registers that these need at least."""
    binary = library.with_program(program.binary, program.renderer, program.function, code)
    return replace(program, binary=binary, node=nodes.with_binary(program.node, binary))


def _packed(code: Code) -> Code:
    """Scalar MADs of neighbouring lanes as repeated ones, longest runs first, with the waits they need."""
    return insert_waits(rewrite.apply(rewrite.AutoRepeat(), code))


@functools.lru_cache(maxsize=256)
def _runs(code: Code) -> tuple[int, str]:
    sites, refusals = rewrite.AutoRepeat().find(code)
    return len(sites), refusals[0].reason if refusals else ""


def _find_runs(graph: Graph) -> Findings:
    sites, refusals = [], []
    for number, call in enumerate(graph.calls):
        if call.program is None:
            continue
        count, reason = _runs(call.program.code)
        if count:
            sites.append(Site((number,), {"packed": count}))
        elif reason:
            refusals.append(Refusal(number, reason))
    return tuple(sites), tuple(refusals)


def _pack(graph: Graph, site: Site) -> Edit:
    (number,) = site.calls
    call = graph.calls[number]
    assert call.program is not None
    packed = with_code(call.program, _packed(call.program.code))
    return Edit(calls={number: (replace(call, program=packed),)})


@functools.lru_cache(maxsize=256)
def _scheduled(code: Code) -> Code:
    return schedules.loads_first(code)


def _find_late_samples(graph: Graph) -> Findings:
    sites, refusals = [], []
    for number, call in enumerate(graph.calls):
        if call.program is None:
            continue
        code = call.program.code
        late = [instr for instr in code.instrs if instr.op.sync is Sync.SY]
        if len(late) < _SAMPLES:
            continue
        if any(instr.op.cat != _SAMPLE for instr in late):
            refusals.append(Refusal(number, "it also loads from buffers, whose order is kept"))
            continue
        if any(isinstance(instr.op.effect, Barrier) for instr in code.instrs):
            refusals.append(Refusal(number, "its fibers wait for each other, and for what they exchanged"))
            continue
        before, after = schedules.issue_slots(code), schedules.issue_slots(_scheduled(code))
        if after < before:
            sites.append(Site((number,), {"slots": [before, after]}))
        else:
            refusals.append(
                Refusal(number, f"samples in one run take {after} issue slots, not fewer than {before}")
            )
    return tuple(sites), tuple(refusals)


_SAMPLE = 5  # category of samples
_SAMPLES = 4  # fewer are not worth the while


def _schedule(graph: Graph, site: Site) -> Edit:
    (number,) = site.calls
    call = graph.calls[number]
    assert call.program is not None
    return Edit(
        calls={number: (replace(call, program=with_code(call.program, _scheduled(call.program.code))),)}
    )


PATCHES = (
    Patch(
        name="schedule-projection",
        summary="samples of a block follow each other in one run, where that saves issue slots",
        find=_find_late_samples,
        rewrite=_schedule,
        models=(),
        source="a compiler that waits behind each coordinate for its sample, as the vendor's does",
    ),
    Patch(
        name="inverse-full-rpt",
        summary="scalar MADs of neighbouring lanes become repeated ones, a vector of four where they can",
        find=_find_runs,
        rewrite=_pack,
        models=("vision-mlp", "stem"),
        source="one instruction of three repeats is fetched and issued once for four lanes",
    ),
)
