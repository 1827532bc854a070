"""Patches of compiled programs: the call stays, its instructions change."""

from __future__ import annotations

import functools
from dataclasses import replace

from pytest_qcom.isa.instruction import Barrier, Sync
from pytest_qcom.isa.program import Program as Code
from pytest_qcom.kernels import rewrite
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.openpilot import library, nodes, schedules
from pytest_qcom.openpilot.graph import Call, Program
from pytest_qcom.openpilot.patch import Patch, in_place, single


def with_code(program: Program, code: Code) -> Program:
    """The program with other instructions, and the registers that these need at least."""
    binary = library.with_program(program.binary, program.renderer, program.function, code)
    return replace(program, binary=binary, node=nodes.with_binary(program.node, binary))


def _packed(code: Code) -> Code:
    """Scalar MADs of neighbouring lanes as repeated ones, longest runs first, with the waits they need."""
    return insert_waits(rewrite.apply(rewrite.AutoRepeat(), code))


@functools.lru_cache(maxsize=256)
def _repeated(code: Code) -> tuple[dict[str, int], Code] | str:
    sites, refusals = rewrite.AutoRepeat().find(code)
    if not sites:
        return refusals[0].reason if refusals else ""
    return {"packed": len(sites)}, _packed(code)


@functools.lru_cache(maxsize=256)
def _scheduled(code: Code) -> tuple[dict[str, list[int]], Code] | str:
    late = [instr for instr in code.instrs if instr.op.sync is Sync.SY]
    if len(late) < _SAMPLES:
        return ""
    if any(instr.op.cat != _SAMPLE for instr in late):
        return "it also loads from buffers, whose order is kept"
    if any(isinstance(instr.op.effect, Barrier) for instr in code.instrs):
        return "its fibers wait for each other, and for what they exchanged"
    made = schedules.loads_first(code)
    before, after = schedules.issue_slots(code), schedules.issue_slots(made)
    if after >= before:
        return f"samples in one run take {after} issue slots, not fewer than {before}"
    return {"slots": [before, after]}, made


_SAMPLE = 5  # category of samples
_SAMPLES = 4  # fewer are not worth the while


def _recoded(call: Call, code: Code) -> Program:
    assert call.program is not None
    return with_code(call.program, code)


PATCHES = (
    Patch(
        name="schedule-projection",
        summary="samples of a block follow each other in one run, where that saves issue slots",
        find=single(lambda call, program: _scheduled(program.code)),
        rewrite=in_place(_recoded),
        models=(),
        source="a compiler that waits behind each coordinate for its sample, as the vendor's does",
    ),
    Patch(
        name="inverse-full-rpt",
        summary="scalar MADs of neighbouring lanes become repeated ones, a vector of four where they can",
        find=single(lambda call, program: _repeated(program.code)),
        rewrite=in_place(_recoded),
        models=("vision-mlp", "stem"),
        source="one instruction of three repeats is fetched and issued once for four lanes",
    ),
)
