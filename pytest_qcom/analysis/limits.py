"""What an instruction or a launch cannot hold: immediates, operands, code behind the end, workgroups."""

from __future__ import annotations

from pytest_qcom.analysis import findings
from pytest_qcom.analysis.context import Context
from pytest_qcom.analysis.findings import Finding, Rule
from pytest_qcom.analysis.graph import flow, targeted
from pytest_qcom.analysis.occupancy import group_waves, register_cost, register_waves, wave_fibers
from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.encoder import encode
from pytest_qcom.isa.instruction import Atomic, Flow, Instr, Kind, Store
from pytest_qcom.isa.legality import violations
from pytest_qcom.isa.registers import Ty

_BITS = {Ty.F16: 16, Ty.U16: 16, Ty.S16: 16, Ty.U8: 8, Ty.U8_32: 8}
"""Of the types that are narrower than the immediate of a move."""


def operands(context: Context) -> list[Finding]:
    """Immediates that do not fit, and operands that the hardware cannot take; each instruction once."""
    found = []
    known: dict[Instr, tuple[Rule, str, str] | None] = {}
    for position in context.order:
        for index in context.within(position):
            instr = context.program.instrs[index]
            if instr not in known:
                known[instr] = _wrong(instr)
            wrong = known[instr]
            if wrong is not None:
                rule, effect, fix = wrong
                found.append(context.finding(rule, index, effect, fix))
    return found


def _wrong(instr: Instr) -> tuple[Rule, str, str] | None:
    """(rule, effect, fix) of an instruction that cannot do what it says."""
    too_wide = _wide(instr)
    if too_wide is not None:
        return findings.IMMEDIATE_WIDTH, *too_wide
    try:
        encode(instr)
    except EncodeError as error:
        return findings.IMMEDIATE_WIDTH, f"has no encoding: {error}", "a value that fits, or a register"
    for phrase in violations(instr):
        effect, _, fix = phrase.partition("; ")
        return findings.ILLEGAL_OPERAND, effect, fix or "other operands"
    return None


def _wide(instr: Instr) -> tuple[str, str] | None:
    """What the hardware makes of an immediate that is wider than the instruction's data."""
    for operand in instr.srcs:
        if operand.kind is not Kind.IMM or "src_type" not in instr:
            continue
        bits = _BITS.get(Ty(instr["src_type"]), 32)
        kept = operand.value & (1 << bits) - 1
        if operand.value != kept:
            return (
                f"reads {kept:#x}, the low {bits} bits of {operand.value:#x}",
                f"{kept:#x}, or a wider type",
            )
    return None


def after_end(context: Context) -> tuple[list[Finding], int]:
    """Stores and branches that nothing reaches behind an ``end``; and the first node with one."""
    instrs, graph = context.program.instrs, context.graph
    ends = [
        i for i, instr in enumerate(instrs) if flow(instr) is Flow.END and graph.reachable[graph.node_of[i]]
    ]
    found, first = [], len(graph.nodes)
    for position, live in enumerate(graph.reachable):
        before = [end for end in ends if end < graph.nodes[position].start]
        if live or not before:
            continue
        for index in context.within(position):
            what = _lost(instrs[index])
            if what:
                first = min(first, position)
                effect = f"never runs: the program ends at #{before[-1]}"
                fix = f"{what} before #{before[-1]}, or nothing"
                found.append(context.finding(findings.AFTER_END, index, effect, fix, producer=before[-1]))
                break
    return found, first


def _lost(instr: Instr) -> str:
    """What is missing if an instruction never runs."""
    if isinstance(instr.op.effect, Store | Atomic):
        return "the store"
    return "the branch" if targeted(instr) else ""


def workgroup(context: Context, fregs: int, hregs: int, thread128: bool, fibers: int) -> list[Finding]:
    """Workgroups, of ``fibers``, whose waves do not fit the register file together."""
    waves = register_waves(register_cost(fregs, hregs, context.storage.merged), thread128)
    needed = group_waves(fibers, thread128)
    if needed <= waves or not waves or not context.steps:  # no wave at all is another rule's
        return []
    effect = (
        f"a workgroup of {fibers} fibers is {needed} waves, and fregs={fregs} and hregs={hregs} leave room "
        f"for {waves}: it never starts"
    )
    fix = f"at most {waves * wave_fibers(thread128)} fibers, or fewer registers"
    return [context.finding(findings.WORKGROUP_WAVES, 0, effect, fix)]
