"""Registers that are not there, or not yet: beyond the footprint, never written, written at another width."""

from __future__ import annotations

import operator
from collections.abc import Callable

from pytest_qcom.analysis import findings
from pytest_qcom.analysis.context import Context
from pytest_qcom.analysis.findings import Finding
from pytest_qcom.analysis.occupancy import register_cost, register_waves
from pytest_qcom.analysis.steps import Step
from pytest_qcom.analysis.storage import FULL, GENERAL, HALF, width
from pytest_qcom.chip import A630
from pytest_qcom.isa.registers import Reg


def footprint(context: Context, fregs: int, hregs: int) -> list[Finding]:
    """Registers beyond the declared ``fregs`` and ``hregs`` (vec4), the first use of each file only."""
    storage = context.storage
    halves = 4 * hregs
    if storage.merged:
        halves = max(halves, 2 * 4 * fregs)
    within = storage.mask(Reg(number) for number in range(4 * fregs))
    within |= storage.mask(Reg(number, half=True) for number in range(halves))
    found: list[Finding] = []
    reported = set()
    for position in context.order:
        for index in context.within(position):
            step = context.steps[index]
            outside = (step.read_mask | step.write_mask) & GENERAL & ~within
            if not outside:
                continue
            beyond = [
                access.reg for access in (*step.writes, *step.reads) if storage.mask((access.reg,)) & outside
            ]
            for kind in (FULL, HALF):
                outer = max((reg for reg in beyond if width(reg) == kind), default=None)
                if outer is not None and kind not in reported:
                    reported.add(kind)
                    found.append(_outside(context, index, outer, fregs, hregs))
    return found


def _outside(context: Context, index: int, reg: Reg, fregs: int, hregs: int) -> Finding:
    used = context.program.footprint()
    name, declared, need = ("hregs", hregs, used[1]) if reg.half else ("fregs", fregs, used[0])
    return context.finding(
        findings.HALF_FOOTPRINT if reg.half else findings.FULL_FOOTPRINT,
        index,
        f"reaches beyond {name}={declared} into registers of another wave",
        f"{name}={max(need, reg.num // 4 + 1)}",
        register=str(reg),
    )


def budget(context: Context, fregs: int, hregs: int, thread128: bool) -> list[Finding]:
    """A declared footprint that leaves no room for a wave."""
    cost = register_cost(fregs, hregs, context.storage.merged)
    if register_waves(cost, thread128) or not context.steps:
        return []
    room = A630.registers.vec4.value // (2 if thread128 else 1)
    effect = f"fregs={fregs} and hregs={hregs} take {cost} vec4 a fiber of {room}: no wave starts"
    fix = "fewer registers" + (" or THREAD64" if thread128 else "")
    return [context.finding(findings.REGISTER_BUDGET, 0, effect, fix)]


def _reach(context: Context, first: int, transfer: Callable[[int, Step], int]) -> dict[int, int]:
    """Union over all paths of a bit set that grows and shrinks by ``transfer``: its value at each entry."""

    def through(position: int, state: int) -> int:
        for index in context.within(position):
            state = transfer(state, context.steps[index])
        return state

    return context.entries(first, through, operator.or_)


def uninitialized(context: Context, preset: int) -> list[Finding]:
    """Reads of registers that nothing has written on any path; the launch fills the cells ``preset``."""
    entry = _reach(context, preset, lambda state, step: state | step.write_mask)
    found = []
    for position in context.order:
        known = entry[position]
        for index in context.within(position):
            step = context.steps[index]
            missing = step.read_mask & ~known
            if missing:
                found.append(_unwritten(context, index, missing))
                known |= missing
            known |= step.write_mask
    return found


def _unwritten(context: Context, index: int, cells: int) -> Finding:
    names = context.names(index, cells, written=False)
    first = next(a.reg for a in context.steps[index].reads if context.storage.mask((a.reg,)) & cells)
    fix = f"write {names} before #{index}"
    twin = _twin(first)
    written = (access.reg for step in context.steps for access in step.writes)
    if twin is not None and not context.storage.merged and twin in written:
        fix += f"; {twin}, which is written, is another register in split mode"
    effect = f"reads in {names} what an earlier wave left there"
    return context.finding(findings.UNINITIALIZED, index, effect, fix, register=names)


def _twin(reg: Reg) -> Reg | None:
    """The register of the other width that would share storage in merged mode."""
    if reg.num >= A630.registers.full.value:
        return None
    if reg.half:
        return Reg(reg.num // 2)
    return Reg(2 * reg.num, half=True) if 2 * reg.num < A630.registers.half.value else None


def aliases(context: Context) -> list[Finding]:
    """Merged mode only: a read at one width of what was last written at the other."""
    if not context.storage.merged:
        return []
    shift = GENERAL.bit_length()
    plain = [(_by_width(context, step, True), _by_width(context, step, False)) for step in context.steps]
    masks = dict(zip(map(id, context.steps), plain, strict=True))

    def transfer(state: int, step: Step) -> int:
        full, half = masks[id(step)][0]
        return (state & ~(half | full << shift)) | full | half << shift

    entry = _reach(context, 0, transfer)
    found = []
    for position in context.order:
        state = entry[position]
        for index in context.within(position):
            full, half = plain[index][1]
            by_full, by_half = state & GENERAL, state >> shift
            crossed = (full & by_half & ~by_full) | (half & by_full & ~by_half)
            if crossed:
                found.append(_crossed(context, index, crossed))
            state = transfer(state, context.steps[index])
    return found


def _by_width(context: Context, step: Step, written: bool) -> tuple[int, int]:
    """The general cells that a step touches as full and as half registers."""
    accesses = step.writes if written else step.reads
    full = context.storage.mask(a.reg for a in accesses if width(a.reg) == FULL) & GENERAL
    half = context.storage.mask(a.reg for a in accesses if width(a.reg) == HALF) & GENERAL
    return full, half


def _crossed(context: Context, index: int, cells: int) -> Finding:
    names = context.names(index, cells, written=False)
    producer = context.search(index, lambda step: bool(step.write_mask & cells), lambda step: False)
    written = "" if producer is None else context.names(producer, cells, written=True)
    return context.finding(
        findings.ALIAS,
        index,
        f"{names} lies on {written}: reads the bits of that value, not an earlier one of {names}",
        f"another register than {written}, or split registers",
        producer=producer,
        register=names,
    )
