"""Orders of instructions: samples as early as their coordinates allow, and the waits that this needs."""

from __future__ import annotations

from dataclasses import replace

from pytest_qcom.isa.access import reads, writes
from pytest_qcom.isa.instruction import Barrier, Flow, Instr, Sync
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.edit import branches, replace_instructions
from pytest_qcom.kernels.waits import insert_waits


def loads_first(program: Program) -> Program:
    """The program with the samples of each block in one run, behind all of their coordinates.

    Instructions that neither samples nor their coordinates need follow in their order. Nothing passes what
    it depends on, a store, a barrier, or what leaves the block.
    """
    edits: dict[int, list[Instr]] = {}
    for block in program.blocks():
        places = [n for n in range(block.start, block.stop) if not branches(program.instrs[n])]
        ordered = _ordered([program.instrs[n] for n in places])
        if ordered:  # a branch keeps its place, which says where it goes
            edits |= {n: [] for n in places}
            edits[places[0]] = ordered
    return insert_waits(replace_instructions(program, edits))


def issue_slots(program: Program) -> int:
    """Slots that all instructions take, each once, idle ones included."""
    return sum(1 + instr.rpt + instr.nop for instr in program.instrs)


def _ordered(instrs: list[Instr]) -> list[Instr]:
    """A block's instructions, samples first; without the waits that the old order needed."""
    plain = [_unwaited(instr) for instr in instrs if not _idle(instr)]
    if instrs and instrs[0].jp and plain:
        plain[0] = replace(plain[0], jp=True)
    found: list[Instr] = []
    run: list[Instr] = []
    for instr in plain:
        if _fixed(instr):
            found += [*_loads_first(run), instr]
            run = []
        else:
            run.append(instr)
    return found + _loads_first(run)


def _idle(instr: Instr) -> bool:
    return instr.op.effect is Flow.NEXT and instr.op.cat == 0 and not instr.jp


def _unwaited(instr: Instr) -> Instr:
    return replace(instr, sy=False, ss=False, nop=0)


def _fixed(instr: Instr) -> bool:
    """Whether nothing may move across it."""
    return instr.op.cat in (0, 6, 7) or isinstance(instr.op.effect, Barrier) or instr.jp


def _loads_first(run: list[Instr]) -> list[Instr]:
    """A run in which samples follow their coordinates, and the rest follows the samples."""
    before = _dependencies(run)
    samples = [n for n, instr in enumerate(run) if instr.op.sync is Sync.SY]
    needed: set[int] = set()
    pending = list(samples)
    while pending:
        for earlier in before[pending.pop()]:
            if earlier not in needed:
                needed.add(earlier)
                pending.append(earlier)
    first = [n for n in range(len(run)) if n in needed and n not in samples]
    if any(before[n] & set(samples) for n in first):
        return run  # a coordinate is computed from a sample
    rest = [n for n in range(len(run)) if n not in needed and n not in samples]
    early = [n for n in rest if any(n in before[sample] for sample in samples)]
    return run if early else [run[n] for n in (*first, *samples, *rest)]


def _dependencies(run: list[Instr]) -> list[set[int]]:
    """Of each instruction, the earlier ones that it must follow."""
    written: dict[Reg, int] = {}
    read: dict[Reg, list[int]] = {}
    found: list[set[int]] = []
    for number, instr in enumerate(run):
        uses = {access.reg for access in reads(instr)}
        makes = {access.reg for access in writes(instr)}
        own = {written[reg] for reg in uses | makes if reg in written}
        own |= {reader for reg in makes for reader in read.get(reg, ())}
        for reg in makes:
            written[reg] = number
            read[reg] = []
        for reg in uses:
            read.setdefault(reg, []).append(number)
        found.append(own - {number})
    return found
