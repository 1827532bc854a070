"""Puts the waits into a program that has none: the fewest slots and flags that the hardware needs.

A schedule of ours is written as what it computes and in which order; :func:`insert_waits` adds what Mesa's
legalizer would add (``ir3_legalize.c``, ``ir3_delay.c``): slots between an ALU result and its reader, (sy)
where a sample or load is consumed, (ss) where a local or special result or a shared register is consumed or a
register is written that a sample, load or store may still have to read, both behind a barrier. Flags that the
schedule already carries are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from pytest_qcom.chip import A630
from pytest_qcom.isa.access import reads, writes
from pytest_qcom.isa.decoder import decode
from pytest_qcom.isa.instruction import Access, Barrier, Flow, Instr, Sync
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import FIRST_SHARED, NO_REGISTER, Reg
from pytest_qcom.kernels.edit import branches, replace_instructions

_ALU_TO_ALU = A630.delays.alu_to_alu.value
_NON_ALU = A630.delays.non_alu.value
_PREDICATE = A630.delays.predicate.value
_ADDRESS = A630.delays.address.value
_MISMATCH = A630.delays.mismatch.value
_ADDEND = A630.delays.mad_addend.value
_LONGEST_NOP = A630.code.trailing.value + 1  # slots of one nop
_FORGET = 2 * _NON_ALU  # older results are ready for anybody
_ALU = (1, 2, 3)  # categories with a fixed latency
_BARRIER = Reg(NO_REGISTER)  # stands for memory behind a barrier, which every instruction waits for
_SIDES = (Flow.PREDT, Flow.PREDF)


@dataclass(slots=True)
class State:
    """What is on its way at a point of the program.

    ``ages``: ALU results by register, as slots since they were written. ``sy`` and ``ss``: registers whose
    value arrives with that flag. ``sy_sources`` and ``ss_sources``: registers that a sample or load, or a
    store, local or special instruction, may still have to read. ``merged``: registers of the two widths share
    storage, so that what is on its way in one is so in the other. ``head``: what it was where the predicated
    region began that this place is in, or a side of it ended: what other fibers come with to its end.
    """

    merged: bool = False
    ages: dict[Reg, int] = field(default_factory=dict)
    sy: set[Reg] = field(default_factory=set)
    ss: set[Reg] = field(default_factory=set)
    sy_sources: set[Reg] = field(default_factory=set)
    ss_sources: set[Reg] = field(default_factory=set)
    head: State | None = None

    def copy(self) -> State:
        return State(
            self.merged,
            dict(self.ages),
            set(self.sy),
            set(self.ss),
            set(self.sy_sources),
            set(self.ss_sources),
            self.head,
        )

    def join(self, other: State) -> bool:
        """Adds what another way to the same place leaves outstanding; whether that changed anything."""
        before = self.copy()
        for reg, age in other.ages.items():
            self.ages[reg] = min(age, self.ages.get(reg, age))
        self.sy |= other.sy
        self.ss |= other.ss
        self.sy_sources |= other.sy_sources
        self.ss_sources |= other.ss_sources
        if other.head is not None:
            head = other.head.copy()
            if self.head is not None:
                head.join(self.head)
            self.head = head
        return self != before

    def twins(self, reg: Reg) -> tuple[Reg, ...]:
        """The registers of the other width on the storage of ``reg``."""
        if not self.merged or reg.num >= FIRST_SHARED:
            return ()
        if reg.half:
            return (Reg(reg.num // 2),)
        return Reg(2 * reg.num, half=True), Reg(2 * reg.num + 1, half=True)

    def elapse(self, slots: int) -> None:
        self.ages = {reg: age + slots for reg, age in self.ages.items() if age + slots <= _FORGET}

    def wait(self, sy: bool, ss: bool) -> None:
        """What (sy) and (ss) settle: each its class of results, (ss) also every late read."""
        if sy:
            self.sy.clear()
            self.sy_sources.clear()
        if ss:
            self.ss.clear()
            self.sy_sources.clear()
            self.ss_sources.clear()

    def reach(self, instr: Instr) -> None:
        """Before ``instr``: where another side of a predicated region begins or it ends, ways meet."""
        effect = instr.op.effect
        if self.head is not None and (effect in _SIDES or effect is Flow.PREDE):
            self.join(self.head)
            self.head = None
            if effect in _SIDES:
                self.head = self.copy()

    def issue(self, instr: Instr) -> None:
        """Leaves the state behind ``instr``."""
        self.wait(instr.sy, instr.ss)
        written = list(writes(instr))
        if isinstance(instr.op.effect, Barrier):
            self.sy.add(_BARRIER)
            self.ss.add(_BARRIER)
        if instr.op.effect in _SIDES and self.head is None:
            self.head = self.copy()
        if instr.op.cat in _ALU:
            for access in written:  # element k is written k slots after issue
                if access.reg.shared:
                    self.ss.add(access.reg)
                else:
                    self.ages[access.reg] = -access.element
        elif instr.op.cat >= 4:
            for access in written:  # synchronised by a flag from here on
                for reg in (access.reg, *self.twins(access.reg)):
                    self.ages.pop(reg, None)
            late = self.sy_sources if instr.op.sync is Sync.SY else self.ss_sources
            late.update(access.reg for access in reads(instr))
            if instr.op.sync is not Sync.NONE:
                pending = self.sy if instr.op.sync is Sync.SY else self.ss
                pending.update(access.reg for access in written)
        self.elapse(slots(instr))


def slots(instr: Instr) -> int:
    """Issue slots that count towards a distance; samples, memory and branches do not."""
    if instr.op.cat > 3 or branches(instr):
        return 0
    return 1 + instr.rpt + instr.nop


def needed_distance(instr: Instr, access: Access) -> int:
    """Slots that must lie between an ALU result and its reader."""
    if access.reg.address:
        return _ADDRESS
    if access.reg.predicate:
        return _PREDICATE if isinstance(instr.op.effect, Flow) else _ALU_TO_ALU
    if instr.op.cat not in _ALU:
        return _NON_ALU
    return _ALU_TO_ALU - (_ADDEND if access.operand == instr.op.late_source else 0)


def missing_slots(state: State, instr: Instr) -> int:
    """Slots that must pass before ``instr`` may issue."""
    missing = 0
    for access in reads(instr):
        for reg in (access.reg, *state.twins(access.reg)):
            age = state.ages.get(reg)
            if age is not None:
                elapsed = age + (access.element if instr.op.cat in _ALU else 0) - 1
                needed = needed_distance(instr, access)
                if reg.half != access.reg.half:
                    needed = max(needed, _ALU_TO_ALU + _MISMATCH)
                missing = max(missing, needed - elapsed)
    return missing


def needed_flags(state: State, instr: Instr) -> tuple[bool, bool]:
    """(sy, ss) that ``instr`` must carry."""
    used = {reg for access in reads(instr) for reg in (access.reg, *state.twins(access.reg))}
    written = {reg for access in writes(instr) for reg in (access.reg, *state.twins(access.reg))}
    touched = used | written
    if instr.op.effect is not Flow.NEXT:  # a nop waits for nothing
        touched.add(_BARRIER)
    sy = bool(touched & state.sy)
    late = state.ss_sources if sy else state.sy_sources | state.ss_sources
    return sy, bool(touched & state.ss or written & late)


def insert_waits(
    program: Program, written: Collection[int] = (), unflagged: Collection[int] = (), merged: bool = False
) -> Program:
    """The program with every wait that it needs, in split register files or in ``merged`` ones.

    Instructions in ``written`` stay as they are; those in ``unflagged`` get idle slots but no flags.
    """
    entries = _entry_states(program, merged)
    edits: dict[int, list[Instr]] = {}
    for block in program.blocks():
        state = entries.get(block.start, State(merged)).copy()
        for index in range(block.start, block.stop):
            instr = program.instrs[index]
            state.reach(instr)
            if index in written:
                state.issue(instr)
                continue
            edits[index] = list(_legal(state, instr, flagged=index not in unflagged))
    return replace_instructions(program, edits)


def _legal(state: State, instr: Instr, flagged: bool) -> Iterable[Instr]:
    """``instr`` with its waits before it; moves ``state`` behind it."""
    sy, ss = needed_flags(state, instr) if flagged else (False, False)
    lead = []
    if ss and instr.op.cat > 4:  # these have no (ss)
        lead.append(replace(nop(0), ss=True))
        state.issue(lead[0])
        ss = False
    missing = missing_slots(state, instr)
    while missing > 0:
        lead.append(nop(min(missing, _LONGEST_NOP) - 1))
        state.issue(lead[-1])
        missing -= _LONGEST_NOP
    instr = replace(instr, sy=instr.sy or sy, ss=instr.ss or ss)
    if lead and instr.jp:  # fibers join where the branch leads
        lead[0], instr = replace(lead[0], jp=True), replace(instr, jp=False)
    state.issue(instr)
    return (*lead, instr)


def nop(repeat: int) -> Instr:
    """``repeat + 1`` idle slots."""
    return replace(decode(0), rpt=repeat)


def _entry_states(program: Program, merged: bool) -> dict[int, State]:
    """What may be outstanding at the start of each block, over every way there.

    A worse start can only add slots within a block; each block is done again from its final start, so what
    is joined into its successors covers what it really leaves.
    """
    blocks = {block.start: block for block in program.blocks()}
    entries = {0: State(merged)}
    pending = [0]
    while pending:
        start = pending.pop()
        state = entries[start].copy()
        for instr in program.instrs[start : blocks[start].stop]:
            state.reach(instr)
            sy, ss = needed_flags(state, instr)
            state.wait(sy, ss)
            state.elapse(max(0, missing_slots(state, instr)))
            state.issue(instr)
        for successor in blocks[start].successors:
            if successor not in entries:
                entries[successor] = state.copy()
                pending.append(successor)
            elif entries[successor].join(state):
                pending.append(successor)
    return entries
