"""What the translator must know of a program before it emits code: blocks, uniformity, flushed halves.

Registers are bits of a set: full scalars (with shared, address and predicate ones at their numbers) from 0,
half scalars from 256. In merged mode a half register is the full one that contains it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_qcom.isa import access
from pytest_qcom.isa.instruction import (
    ActiveMask,
    Atomic,
    Barrier,
    FiberId,
    Flow,
    Instr,
    Kind,
    Load,
    Sample,
    Shuffle,
    Space,
)
from pytest_qcom.isa.registers import ADDRESS, FIRST_SHARED, Ty

HALF = 256
_ALL = (1 << 512) - 1
CONDITIONAL = (Flow.BRANCH, Flow.BRANCH_OR, Flow.BRANCH_AND, Flow.ELECT, Flow.PREDT, Flow.PREDF)
"""What may send the fibers of a wave different ways."""

_WHOLE_WAVE = (Flow.ANY, Flow.ALL)


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions ``start`` to ``stop`` - 1; only the last may change the program counter."""

    start: int
    stop: int
    successors: tuple[int, ...]


def flow(instr: Instr) -> Flow | None:
    """What a cat0 instruction does, ``None`` for all others."""
    return instr.op.effect if isinstance(instr.op.effect, Flow) else None


def targets(instrs: tuple[Instr, ...], index: int) -> tuple[int, ...]:
    """Where control may go from an instruction: the taken target first; past the end means a runaway.

    predt, predf and prede are branches to the next of them: fibers that do not fit skip to it. That is what
    their masks do, since the compiler does not nest them.
    """
    kind = flow(instrs[index])
    if kind is Flow.END:
        return ()
    if kind is Flow.JUMP:
        return (index + instrs[index]["target"],)
    if kind in (Flow.PREDT, Flow.PREDF):
        marks = (Flow.PREDT, Flow.PREDF, Flow.PREDE)
        skip = next((i for i in range(index + 1, len(instrs)) if flow(instrs[i]) in marks), len(instrs))
        return (skip, index + 1)
    if kind in CONDITIONAL or kind in _WHOLE_WAVE:
        return (index + instrs[index]["target"], index + 1)
    return (index + 1,)


def blocks(instrs: tuple[Instr, ...], entry: int) -> list[Block]:
    """The basic blocks, in program order. Blocks end behind barriers too, where a wave may be resumed."""
    leaders = {0, entry}
    ends = set()
    for index, instr in enumerate(instrs):
        kind = flow(instr)
        effect = instr.op.effect
        waits = isinstance(effect, Barrier) and effect.waits
        if (kind is None or kind is Flow.NEXT) and not waits:
            continue
        if kind is Flow.PREDE:
            leaders.add(index)
            continue
        ends.add(index)
        leaders.update(targets(instrs, index), (index + 1,))
    cuts = sorted(leader for leader in leaders if 0 <= leader < len(instrs))
    result = []
    for start, stop in zip(cuts, [*cuts[1:], len(instrs)], strict=True):
        result.append(Block(start, stop, targets(instrs, stop - 1)))
    return result


def key(number: int, half: bool, merged: bool) -> int:
    """The bit of a register."""
    if number >= ADDRESS:
        return number
    if not half:
        return number
    return number >> 1 if merged and number < FIRST_SHARED else HALF + number


def reads(instr: Instr, merged: bool) -> list[int]:
    """Registers that an instruction reads."""
    return [key(a.reg.num, a.reg.half, merged) for a in access.reads(instr)]


def writes(instr: Instr, merged: bool) -> list[int]:
    """Registers that an instruction writes; a relative destination gives none."""
    return [key(a.reg.num, a.reg.half, merged) for a in access.writes(instr)]


Transfer = Callable[[Instr, int], int]


def _solve(
    instrs: tuple[Instr, ...], parts: list[Block], entry: int, start: int, step: Transfer
) -> dict[int, int]:
    """The set that holds at the start of each block: what all paths to it agree on."""
    state = {block.start: _ALL for block in parts}
    state[entry] = start
    by_start = {block.start: block for block in parts}
    work, seen = [entry], {entry}
    while work:
        block = by_start[work.pop()]
        value = state[block.start]
        for index in range(block.start, block.stop):
            value = step(instrs[index], value)
        for successor in block.successors:
            if successor not in state:
                continue
            met = state[successor] & value
            if met != state[successor] or successor not in seen:
                state[successor] = met
                seen.add(successor)
                work.append(successor)
    return state


def diverges(instrs: tuple[Instr, ...], parts: list[Block], entry: int, merged: bool) -> bool:
    """Whether fibers of a wave may go different ways: whether a branch depends on a value that may differ."""
    branches = [i for i, instr in enumerate(instrs) if flow(instr) in CONDITIONAL]
    if not branches:
        return False
    if any(instr.dst is not None and instr.dst.kind is Kind.REL_GPR for instr in instrs):
        return True
    if any(flow(instrs[index]) is Flow.ELECT for index in branches):
        return True

    def step(instr: Instr, uniform: int) -> int:
        written = writes(instr, merged)
        if not written:
            return uniform
        same = _same_in_all(instr) and all(uniform >> n & 1 for n in reads(instr, merged))
        mask = 0
        for number in written:
            mask |= 1 << number
        if same and not (merged and instr.dst is not None and instr.dst.half):
            return uniform | mask
        return uniform if same else uniform & ~mask

    start = _ALL & ~((1 << FIRST_SHARED) - 1)  # full registers may hold local ids; the rest is zero
    state = _solve(instrs, parts, entry, start, step)
    for block in parts:
        index = block.stop - 1
        if flow(instrs[index]) not in CONDITIONAL:
            continue
        value = state[block.start]
        for inner in range(block.start, index):
            value = step(instrs[inner], value)
        if not all(value >> number & 1 for number in reads(instrs[index], merged)):
            return True
    return False


def _same_in_all(instr: Instr) -> bool:
    """Whether equal operands in all fibers give equal results in all fibers."""
    effect = instr.op.effect
    if isinstance(effect, Load):
        return effect.space is not Space.PRIVATE
    return not isinstance(effect, Atomic | Shuffle | FiberId | ActiveMask)


def flushed_halves(instrs: tuple[Instr, ...], parts: list[Block], entry: int) -> dict[int, int]:
    """Half registers (bits from 256) without f16 subnormals at the start of each block. Split mode only."""
    return _solve(instrs, parts, entry, _ALL, flush_step)


def flush_step(instr: Instr, clean: int) -> int:
    """What an instruction makes of the set of half registers without subnormals."""
    if instr.dst is None or not instr.dst.half:
        return clean
    if instr.dst.kind is not Kind.GPR:
        return 0
    mask = 0
    for number in writes(instr, False):
        mask |= 1 << number
    return clean | mask if _writes_clean(instr, clean) else clean & ~mask


def _writes_clean(instr: Instr, clean: int) -> bool:
    if isinstance(instr.op.effect, Sample):
        return Ty(instr["type"]) is Ty.F16  # flushed by the texture unit, see image_ops
    if instr.op.compute is None:
        return False
    if instr.op.cat != 1:
        return instr.op.result == "f"
    if Ty(instr["dst_type"]) is not Ty.F16:
        return False
    if Ty(instr["src_type"]) is not Ty.F16:
        return True
    source = instr.srcs[0]
    if source.kind is Kind.IMM:
        return source.value & 0x7C00 != 0 or source.value & 0x7FFF == 0
    return all(clean >> number & 1 for number in reads(instr, False)) and source.kind is Kind.GPR
