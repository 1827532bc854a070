"""What the checks need to know of an instruction: cells, cycles, what it leaves outstanding."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pytest_qcom.analysis.graph import flow
from pytest_qcom.analysis.storage import SHARED, SPECIAL, Storage, width
from pytest_qcom.chip import A630
from pytest_qcom.isa.access import elements, reads, writes
from pytest_qcom.isa.instruction import Access, Barrier, Flow, Instr, Latency, Store, Sync
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Reg

ALU_TO_ALU = A630.delays.alu_to_alu.value
NON_ALU = A630.delays.non_alu.value
ADDEND = A630.delays.mad_addend.value
MISMATCH = ALU_TO_ALU + A630.delays.mismatch.value
PREDICATE = A630.delays.predicate.value
ADDRESS = A630.delays.address.value
WINDOW = max(NON_ALU, MISMATCH, PREDICATE, ADDRESS)


class Held(enum.IntEnum):
    """Until when an asynchronous instruction may still read its sources."""

    NOT = 0
    SS = 1  # until (ss)
    ANY = 2  # until (ss), or the (sy) that awaits its result


Touch = tuple[int, int, int, int]
"""A timed access: cell, width, cycle after issue, slots that must lie between its producer and itself."""


@dataclass(slots=True)
class Step:
    """An instruction as the checks see it.

    Attributes:
        reads, writes: scalar registers touched.
        read_mask, write_mask: their cells.
        wait_reads, wait_writes: their cells on the storage on which waits are taken.
        timed_reads, timed_writes: accesses whose distance counts: no shared registers.
        latency: cycles that an asynchronous result takes at least.
        slots: issue slots that it takes from a distance, 0 for those that Mesa does not count.
        result: the flag that a consumer of its result must carry.
        held: until when its sources are busy.
    """

    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    read_mask: int
    write_mask: int
    wait_reads: int
    wait_writes: int
    timed_reads: tuple[Touch, ...]
    timed_writes: tuple[Touch, ...]
    slots: int
    alu: bool
    latency: int
    result: Sync
    held: Held
    ss: bool
    sy: bool
    idle: bool
    ends: bool
    barrier: bool


_UNCOUNTED = (Flow.JUMP, Flow.BRANCH, Flow.BRANCH_OR, Flow.BRANCH_AND)


def steps(program: Program, storage: Storage, timing: Storage, as_mesa: bool = False) -> tuple[Step, ...]:
    """The steps of a program. ``timing`` is the storage on which waits are taken, usually ``storage``.

    ``as_mesa``: branches take no slot, but for votes and elections (Mesa, ``count_instruction``).
    """
    made = tuple(_step(instr, storage, timing) for instr in program.instrs)
    if as_mesa:
        for step, instr in zip(made, program.instrs, strict=True):
            if flow(instr) in _UNCOUNTED:
                step.slots = 0
    return made


def _step(instr: Instr, storage: Storage, timing: Storage) -> Step:
    op = instr.op
    kind = flow(instr)
    alu = op.cat in (1, 2, 3)
    read, written = reads(instr), writes(instr)
    read_mask = storage.mask(access.reg for access in read)
    write_mask = storage.mask(access.reg for access in written)
    same = storage == timing
    result = op.sync
    if alu and write_mask & SHARED:
        result = Sync.SS
    counted = alu or op.cat == 0
    return Step(
        reads=read,
        writes=written,
        read_mask=read_mask,
        write_mask=write_mask,
        wait_reads=read_mask if same else timing.mask(access.reg for access in read),
        wait_writes=write_mask if same else timing.mask(access.reg for access in written),
        timed_reads=() if kind is Flow.END else _timed(instr, read, timing, alu),
        timed_writes=_timed(instr, written, timing, alu),
        slots=elements(instr) + instr.nop if counted else 0,
        alu=alu,
        latency=_latency(op.latency),
        result=result,
        held=_held(instr, result),
        ss=instr.ss,
        sy=instr.sy,
        idle=op.cat == 0 and kind is Flow.NEXT,
        ends=kind is Flow.END,
        barrier=isinstance(op.effect, Barrier),
    )


def _latency(kind: Latency) -> int:
    """The shortest time from issue to result: cached, one component, one wave."""
    times = A630.latencies
    return {
        Latency.SFU: times.sfu.value[0],
        Latency.LOCAL: times.local.value,
        Latency.TEXTURE: times.texture.value[0],
        Latency.GLOBAL: times.constant_load.value[0],
    }.get(kind, 0)


def _held(instr: Instr, result: Sync) -> Held:
    """Mesa's ``is_war_hazard_producer``: everything but ALU and flow reads its sources late."""
    if instr.op.cat not in (4, 5, 6):
        return Held.NOT
    if result is Sync.SY and not isinstance(instr.op.effect, Store):
        return Held.ANY
    return Held.SS


def _timed(instr: Instr, accesses: tuple[Access, ...], storage: Storage, alu: bool) -> tuple[Touch, ...]:
    """Accesses whose distance counts. Elements follow one another in time under (rptN)."""
    touches: list[Touch] = []
    staggered = alu or instr.rpt > 0
    for access in accesses:
        if access.reg.shared:
            continue
        offset = access.element if staggered else 0
        if access.operand >= 0 and access.operand == instr.op.late_source:
            offset += ADDEND
        need = NON_ALU
        kind = width(access.reg)
        if kind == SPECIAL:
            need = ADDRESS if access.reg.address else PREDICATE
        elif alu:
            need = ALU_TO_ALU
        touches.extend((cell, kind, offset, need) for cell in storage.cells(access.reg))
    return tuple(touches)


def registers_of(step: Step, storage: Storage, cells: int, *, written: bool) -> tuple[Reg, ...]:
    """The registers of a step that lie on ``cells``, in operand order, each once."""
    accesses = step.writes if written else step.reads
    found = (access.reg for access in accesses if storage.mask((access.reg,)) & cells)
    return tuple(dict.fromkeys(found))
