"""Rewrites of compiled programs: sync and wait strip, MAD repeat packing, pair merge.

A rewrite looks at what a program does, not at where its instructions stand: :meth:`Rewrite.find` gives the
sites at which its precondition holds and, for those that come close, why it does not; :meth:`Rewrite.apply`
gives the program with all found sites rewritten. A program without sites comes back as it is. That both
programs compute the same is checked by running them, in the suites.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from pytest_qcom.isa.access import reads, writes
from pytest_qcom.isa.instruction import Flow, Instr, Kind, Operand, Sync
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.edit import replace_instructions
from pytest_qcom.kernels.waits import insert_waits

_LANES = 4  # scalars of a vec4, the longest ALU repeat


@dataclass(frozen=True, slots=True)
class Site:
    """Instructions ``indices`` that a rewrite turns into ``becomes``, one entry an instruction."""

    indices: tuple[int, ...]
    becomes: tuple[tuple[Instr, ...], ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A place that looks like a site and is none."""

    index: int
    reason: str


Findings = tuple[tuple[Site, ...], tuple[Refusal, ...]]


class Rewrite(Protocol):
    """A rewrite of a program."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    def find(self, program: Program) -> Findings:
        """Sites in the order of the program, none over another, and the reasons against the others."""
        ...


def apply(rewrite: Rewrite, program: Program) -> Program:
    """The program with every site of ``rewrite`` rewritten; branches follow their targets."""
    sites, _ = rewrite.find(program)
    edits = {
        index: instrs for site in sites for index, instrs in zip(site.indices, site.becomes, strict=True)
    }
    return replace_instructions(program, edits) if edits else program


@dataclass(frozen=True, slots=True)
class SyncStrip:
    """Takes away each (sy) at which nothing that it waits for can be outstanding, on any way there."""

    name: str = "strip-sync"
    summary: str = "remove (sy) flags that wait for nothing"

    def find(self, program: Program) -> Findings:
        outstanding = _outstanding(program)
        sites, refusals = [], []
        for index, instr in enumerate(program.instrs):
            if not instr.sy:
                continue
            if pending := outstanding[index]:
                reg, producer = min(pending, key=lambda item: (not item[0].half, item[0].num, item[1]))
                refusals.append(Refusal(index, f"{reg}, loaded at {producer}, may not have arrived"))
            else:
                sites.append(Site((index,), ((replace(instr, sy=False),),)))
        return tuple(sites), tuple(refusals)


def _outstanding(program: Program) -> list[frozenset[tuple[Reg, int]]]:
    """Before each instruction: (register, producer) of results that still need a (sy).

    Also the sources of such instructions, which they may not have read yet.
    """
    before: list[frozenset[tuple[Reg, int]]] = [frozenset()] * len(program.instrs)
    blocks = {block.start: block for block in program.blocks()}
    entries: dict[int, frozenset[tuple[Reg, int]]] = {0: frozenset()}
    pending = [0]
    while pending:
        start = pending.pop()
        state = entries[start]
        for index in range(start, blocks[start].stop):
            before[index] = state
            instr = program.instrs[index]
            if instr.sy:
                state = frozenset()
            if instr.op.sync is Sync.SY:
                touched = {access.reg for access in (*writes(instr), *reads(instr))}
                state |= {(reg, index) for reg in touched}
        for successor in blocks[start].successors:
            joined = entries.get(successor, frozenset()) | state
            if successor not in entries or joined != entries[successor]:
                entries[successor] = joined
                pending.append(successor)
    return before


@dataclass(frozen=True, slots=True)
class MadRepeat:
    """Packs four scalar MADs with one scalar factor and neighbouring lanes into a repeated one.

    ``most``: only so many of them, the first; -1 is all.
    """

    name: str = "pack-repeats"
    summary: str = "four scalar MADs of neighbouring lanes become one (rpt3)"
    most: int = -1

    def find(self, program: Program) -> Findings:
        sites, refusals = _find_runs(program, length=_LANES, repeat=0)
        return sites[: self.most if self.most >= 0 else None], refusals


@dataclass(frozen=True, slots=True)
class PairRepeat:
    """Packs two scalar MADs with one scalar factor and neighbouring lanes into a repeated one."""

    name: str = "pair-repeats"
    summary: str = "two scalar MADs of neighbouring lanes become one (rpt1)"

    def find(self, program: Program) -> Findings:
        return _find_runs(program, length=2, repeat=0)


@dataclass(frozen=True, slots=True)
class PairMerge:
    """Merges two MADs of two lanes each into one of four."""

    name: str = "merge-pairs"
    summary: str = "two (rpt1) MADs of neighbouring lanes become one (rpt3)"

    def find(self, program: Program) -> Findings:
        return _find_runs(program, length=2, repeat=1)


@dataclass(frozen=True, slots=True)
class AutoRepeat:
    """Packs runs of two to four scalar MADs of neighbouring lanes into repeated ones, the longest first."""

    name: str = "auto-rpt"
    summary: str = "two to four scalar MADs of neighbouring lanes become a repeated one"

    def find(self, program: Program) -> Findings:
        sites: list[Site] = []
        refusals: list[Refusal] = []
        for length in range(_LANES, 1, -1):
            found, refused = _find_runs(program, length, repeat=0)
            taken = {index for site in sites for index in site.indices}
            sites += [site for site in found if not taken.intersection(site.indices)]
            refusals = [item for item in refused if item.index not in taken] if length == 2 else []
        packed = {index for site in sites for index in site.indices}
        refusals = [item for item in refusals if item.index not in packed]
        return tuple(sorted(sites, key=lambda site: site.indices)), tuple(refusals)


@dataclass(frozen=True, slots=True)
class WaitStrip:
    """Takes away each (ss)nop at which the instruction behind it needs no (ss)."""

    name: str = "nosnop"
    summary: str = "remove (ss)nop where nothing behind it writes what may still be read"

    def find(self, program: Program) -> Findings:
        sites, refusals = [], []
        edits: dict[int, tuple[Instr, ...]] = {}
        for index, instr in enumerate(program.instrs):
            if not (instr.op.effect is Flow.NEXT and instr.ss) or instr.sy or instr.jp:
                continue
            for becomes in ((), (replace(instr, ss=False),)):  # its slot may be needed where its flag is not
                without = replace_instructions(program, {**edits, index: becomes})
                if insert_waits(without) == without:
                    edits[index] = becomes
                    sites.append(Site((index,), (becomes,)))
                    break
            else:
                refusals.append(Refusal(index, "what it waits for may still be read or on its way"))
        return tuple(sites), tuple(refusals)


def _find_runs(program: Program, length: int, repeat: int) -> Findings:
    """Runs of ``length`` MADs of ``repeat + 1`` lanes that are one repeated MAD."""
    sites: list[Site] = []
    refusals: list[Refusal] = []
    entered = {block.start for block in program.blocks()}
    index = 0
    while index < len(program.instrs):
        if not is_mad(program.instrs[index], repeat):
            index += 1
            continue
        run = program.instrs[index : index + length]
        reason = _against(run, length, repeat, entered.intersection(range(index + 1, index + length)))
        if reason is None:
            merged = _merged(run, length * (repeat + 1) - 1)
            empty: tuple[tuple[Instr, ...], ...] = ((),) * (length - 1)
            sites.append(Site(tuple(range(index, index + length)), ((merged,), *empty)))
            index += length
        else:
            refusals.append(Refusal(index, reason))
            index += 1
    return tuple(sites), tuple(refusals)


def neighbours(first: Instr, second: Instr) -> bool:
    """Whether the second MAD does the lane behind that of the first, with the same first factor."""
    return _against((first, second), 2, 0, set()) is None and first.srcs[0] == second.srcs[0]


def is_mad(instr: Instr, repeat: int) -> bool:
    """Whether it multiplies and adds floats over ``repeat + 1`` lanes."""
    return instr.op.late_source == 2 and instr.op.result == "f" and instr.rpt == repeat


def _destination(instr: Instr) -> Reg:
    return min(access.reg for access in writes(instr))


def _against(run: tuple[Instr, ...], length: int, repeat: int, entered: set[int]) -> str | None:
    """Why the run is not one repeated MAD, or ``None``."""
    first = run[0]
    if len(run) < length or any(instr.op != first.op or not is_mad(instr, repeat) for instr in run):
        return f"fewer than {length} MADs of {repeat + 1} lanes in a row"
    if entered:
        return f"instruction {min(entered)} within the run is a branch target"
    if any(instr.sat != first.sat or instr.ei or instr.ul for instr in run):
        return "the MADs differ in their modifiers"
    if any(instr.sy or instr.ss or instr.jp for instr in run[1:]):
        return "a MAD within the run waits"
    if any(instr.nop for instr in run):
        return "a MAD within the run is followed by idle slots"
    lanes = repeat + 1
    for number, instr in enumerate(run):
        if _destination(instr) != _destination(first) + lanes * number:
            return f"destinations {_destination(first)} and {_destination(instr)} are not neighbours"
    for source, operands in enumerate(zip(*(instr.srcs for instr in run), strict=True)):
        if _advances(operands, lanes, repeat) is None:
            return f"source {source + 1} neither stays nor advances with the destination"
    return _dependence(run)


def _advances(operands: tuple[Operand, ...], lanes: int, repeat: int) -> bool | None:
    """Whether a source advances over the run (``True``), stays (``False``) or does neither."""
    first = operands[0]
    if any(replace(operand, value=first.value) != first for operand in operands):
        return None
    values = [operand.value for operand in operands]
    if not repeat or first.repeat:
        if values == [first.value + lanes * number for number in range(len(values))]:
            return True
        if repeat:
            return None
    return False if values == [first.value] * len(values) else None


def _dependence(run: tuple[Instr, ...]) -> str | None:
    """A MAD that reads what an earlier one of the run wrote reads it too early once they are one."""
    written: set[Reg] = set()
    for instr in run:
        if used := written.intersection(access.reg for access in reads(instr)):
            return f"{min(used)} is written and read within the run"
        written.update(access.reg for access in writes(instr))
    return None


def _merged(run: tuple[Instr, ...], repeat: int) -> Instr:
    """The one instruction that the run is."""
    first, lanes = run[0], run[0].rpt + 1
    srcs = tuple(
        _source(operands, lanes, run[0].rpt) for operands in zip(*(i.srcs for i in run), strict=True)
    )
    return replace(first, rpt=repeat, srcs=srcs)


def _source(operands: tuple[Operand, ...], lanes: int, repeat: int) -> Operand:
    advances = _advances(operands, lanes, repeat)
    # A constant that stays the same is as good as one without (r).
    return replace(operands[0], repeat=bool(advances) and operands[0].kind in (Kind.GPR, Kind.CONST))


def counts(program: Program) -> Iterator[tuple[str, int]]:
    """(what, how many) for the table of instruction counts."""
    instrs = program.instrs
    yield "instructions", len(instrs)
    yield "sy", sum(instr.sy for instr in instrs)
    yield "ss", sum(instr.ss for instr in instrs)
    yield "mad", sum(is_mad(instr, instr.rpt) for instr in instrs)
    yield "rpt3", sum(is_mad(instr, 3) for instr in instrs)
    yield "isam", sum(instr.op.cat == 5 for instr in instrs)
