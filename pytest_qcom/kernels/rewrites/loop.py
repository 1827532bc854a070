"""The one loop of a compiled program, as values instead of registers.

A body is walked once, in the order in which it runs; registers stand for values: what they held when the pass
began, an operation on other values, or a lane of a sample. Moves make no value. So what a loop computes can
be read without regard to where the compiler has put it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.access import advance, destination, elements, reads, writes
from pytest_qcom.isa.instruction import Flow, Instr, Kind, Operand, Sample
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.edit import branches


class Mismatch(KernelError):
    """A program that a rewrite does not apply to; the message says why."""


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A 32-bit value of a pass; two are the same only if they are one object.

    Attributes:
        entry: the register whose content at the start of the pass it is, else ``None``.
        instr: the operation, of one element, whose operands' numbers mean nothing; ``None`` for an entry.
        srcs: what the operation reads: values, and operands that are no registers of a fiber.
        lane: of a sample, which of its results.
        index: the instruction that made it; -1 for an entry.
    """

    entry: Reg | None = None
    instr: Instr | None = None
    srcs: tuple[Value | Operand, ...] = ()
    lane: int = 0
    index: int = -1

    @property
    def sampled(self) -> bool:
        """Whether it comes out of a texture."""
        return self.instr is not None and isinstance(self.instr.op.effect, Sample)


@dataclass(slots=True)
class Pass:
    """One pass of a loop.

    Attributes:
        header: index of the first instruction of the loop.
        branch: index of the branch that leaves it where its predicate holds.
        leave: index of the first instruction behind the loop.
        back: register contents where the pass is over and the next one begins.
        out: register contents where the branch leaves.
        samples: the first lane of each sample, in order.
        entries: the values at the start, by register.
    """

    header: int
    branch: int
    leave: int
    back: dict[Reg, Value] = field(default_factory=dict)
    out: dict[Reg, Value] = field(default_factory=dict)
    samples: list[Value] = field(default_factory=list)
    entries: dict[Reg, Value] = field(default_factory=dict)

    def entry(self, reg: Reg) -> Value:
        """What ``reg`` holds at the start."""
        return self.entries.setdefault(reg, Value(entry=reg))


def find(program: Program) -> Pass:
    """The loop of ``program`` and what a pass of it does.

    Raises:
        Mismatch: not exactly one loop of the form *body, leave where p0.x, moves, jump back*, or an
            instruction in it that has other effects than on registers.
    """
    found = _bounds(program)
    state: dict[Reg, Value] = {}
    for index in range(found.header, found.branch):
        _step(program, index, state, found)
    found.out = dict(state)
    for index in range(found.branch + 1, found.leave - 1):
        _step(program, index, state, found)
    found.back = state
    return found


def _bounds(program: Program) -> Pass:
    jumps = [index for index, instr in enumerate(program.instrs) if branches(instr)]
    backward = [index for index in jumps if program.target(index) <= index]
    if len(backward) != 1:
        raise Mismatch(f"the program has {len(backward)} loops; the rewrite is for one")
    (last,) = backward
    header = program.target(last)
    inside = [index for index in jumps if header <= index < last]
    if len(inside) != 1 or program.instrs[last].op.effect is not Flow.JUMP:
        raise Mismatch(
            f"the loop at #{header} to #{last} has {len(inside)} branches inside; one is to leave it"
        )
    (branch,) = inside
    leaving = program.instrs[branch]
    if leaving.op.effect is not Flow.BRANCH or leaving.get("inv1") or leaving.get("comp1"):
        raise Mismatch(f"the loop is left at #{branch} by something else than `br p0.x`")
    if program.target(branch) != last + 1:
        raise Mismatch(f"the loop is left to #{program.target(branch)}, not to #{last + 1} behind it")
    if any(header < program.target(index) <= last for index in jumps):
        raise Mismatch(f"a branch goes into the loop at #{header}")
    return Pass(header, branch, last + 1)


def _step(program: Program, index: int, state: dict[Reg, Value], found: Pass) -> None:
    """Moves ``state`` over one instruction."""
    instr = program.instrs[index]
    if instr.op.effect is Flow.NEXT or (instr.op.cat == 0 and not instr.srcs and instr.dst is None):
        return
    if isinstance(instr.op.effect, Sample):
        _sample(instr, index, state, found)
        return
    if instr.op.cat not in (1, 2, 3) or instr.sat or instr.ei or instr.ul:
        raise Mismatch(f"#{index} {instr.op.name} in the loop is neither arithmetic nor a sample")
    made = {}
    for element in range(elements(instr)):
        into = destination(instr, element)
        if into.kind is not Kind.GPR or into.half or into.reg.address or into.reg.shared:
            raise Mismatch(f"#{index} {instr.op.name} in the loop writes something else than words")
        value = _operation(instr, element, index, state, found)
        made[into.reg] = value
        if "src_type" not in instr:  # parallel moves read all before they write
            state[into.reg] = value
    state.update(made)


def _operation(instr: Instr, element: int, index: int, state: dict[Reg, Value], found: Pass) -> Value:
    operands = instr.srcs
    if "src_type" in instr and len(instr.srcs) > 1:
        operands = (instr.srcs[element],)
    srcs: list[Value | Operand] = []
    for operand in operands:
        read = advance(operand, element if len(operands) == len(instr.srcs) else 0)
        if read.kind is Kind.GPR and not read.reg.shared:
            if read.half or read.reg.address or read.reg.predicate:
                raise Mismatch(f"#{index} {instr.op.name} in the loop reads something else than words")
            srcs.append(state[read.reg] if read.reg in state else found.entry(read.reg))
        elif read.kind in (Kind.REL_GPR, Kind.REL_CONST):
            raise Mismatch(f"#{index} {instr.op.name} in the loop reads at an offset from a0.x")
        else:
            srcs.append(read)
    if copies(instr) and isinstance(srcs[0], Value):
        return srcs[0]
    plain = replace(instr, rpt=0, nop=0, sy=False, ss=False, jp=False)
    return Value(instr=plain, srcs=tuple(srcs), index=index)


def copies(instr: Instr) -> bool:
    """Whether it moves words as they are."""
    return "src_type" in instr and instr["src_type"] == instr["dst_type"] and not any(
        source.neg or source.abs for source in instr.srcs
    )  # fmt: skip


def _sample(instr: Instr, index: int, state: dict[Reg, Value], found: Pass) -> None:
    pair = [access.reg for access in reads(instr)]
    if instr.dst is None or instr.dst.half or len(pair) != 2 or instr["wrmask"] != 15 or instr.get("s2en"):
        raise Mismatch(f"#{index} {instr.op.name} is no sample of four words at a pair of coordinates")
    srcs = tuple(state[reg] if reg in state else found.entry(reg) for reg in pair)
    plain = replace(instr, sy=False, jp=False)
    for lane, access in enumerate(writes(instr)):
        value = Value(instr=plain, srcs=srcs, lane=lane, index=index)
        state[access.reg] = value
        if not lane:
            found.samples.append(value)


def walk(value: Value, seen: set[Value]) -> Iterator[Value]:
    """``value`` and what it is made of, operands first, each once; samples are not entered."""
    if value in seen:
        return
    seen.add(value)
    if not value.sampled:
        for source in value.srcs:
            if isinstance(source, Value):
                yield from walk(source, seen)
    yield value


def live_out(program: Program, start: int) -> set[Reg]:
    """Registers that the code from ``start`` on reads before it writes them."""
    blocks = {block.start: block for block in program.blocks()}
    needed: dict[int, set[Reg]] = {block: set() for block in blocks}
    changed = True
    while changed:
        changed = False
        for first, block in reversed(blocks.items()):
            live = set().union(*(needed[successor] for successor in block.successors))
            for index in range(block.stop - 1, first - 1, -1):
                instr = program.instrs[index]
                live -= {access.reg for access in writes(instr)}
                live |= {access.reg for access in reads(instr)}
            if live != needed[first]:
                needed[first], changed = live, True
    return needed[start]


def constant_before(program: Program, reg: Reg, end: int) -> int | None:
    """The immediate that ``reg`` holds at ``end``, if the last write of it before is a move of one."""
    for index in range(end - 1, -1, -1):
        instr = program.instrs[index]
        if any(access.reg == reg for access in writes(instr)):
            immediate = copies(instr) and len(instr.srcs) == 1 and instr.srcs[0].kind is Kind.IMM
            return instr.srcs[0].value if immediate else None
    return None


Contents = Mapping[Reg, Value]
