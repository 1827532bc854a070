"""Results of the ALU read before they are there: issue slots between producer and consumer.

A write is remembered by its cycle, relative to the current one; blocks join by the latest write. Rules: Mesa,
``ir3_legalize.c`` (``ir3_required_delay``, ``delay_update``) and ``ir3_delay.c``. One difference: branches
take a slot here, since in a finished program they are there to be issued; Mesa leaves them out because it may
still remove them.
"""

from __future__ import annotations

from pytest_qcom.analysis import findings
from pytest_qcom.analysis.context import Context
from pytest_qcom.analysis.findings import Finding
from pytest_qcom.analysis.steps import MISMATCH, WINDOW, Step, Touch
from pytest_qcom.analysis.storage import SPECIAL
from pytest_qcom.chip import A630

Recent = dict[int, int]
"""Cycle of the latest write, by ``4 * cell + width of the write``."""


def distances(context: Context) -> list[Finding]:
    """All results read too early, in program order; each as if it had been mended from then on."""
    entry = _fixed_point(context)
    found: list[Finding] = []
    mixed = context.timing.merged
    for position in context.order:
        node = context.graph.nodes[position]
        recent, cycle = dict(entry[position]), 0
        for index in range(node.start, node.stop):
            step = context.steps[index]
            if recent:
                worst = _worst(step, recent, cycle, mixed)
                if worst is not None:
                    finding, short = _report(context, index, node.start, *worst)
                    found.append(finding)
                    cycle += short
            cycle = _issue(step, recent, cycle)
    return found


def _fixed_point(context: Context) -> list[Recent]:
    nodes = context.graph.nodes
    entry: list[Recent] = [{} for _ in nodes]
    todo = list(reversed(context.order))
    queued = set(todo)
    while todo:
        position = todo.pop()
        queued.discard(position)
        node = nodes[position]
        recent, cycle = dict(entry[position]), 0
        for step in context.steps[node.start : node.stop]:
            cycle = _issue(step, recent, cycle)
        leaving = {key: at - cycle for key, at in recent.items() if at + WINDOW > cycle}
        for successor in node.successors:
            target, changed = entry[successor], False
            for key, at in leaving.items():
                if target.get(key, -WINDOW) < at:
                    target[key] = at
                    changed = True
            if changed and successor not in queued:
                queued.add(successor)
                todo.append(successor)
    return entry


def _issue(step: Step, recent: Recent, cycle: int) -> int:
    """Enters the writes of a step that starts at ``cycle``; the cycle at which the next one starts."""
    if step.alu:
        for cell, kind, offset, _ in step.timed_writes:
            recent[4 * cell + kind] = cycle + 1 + offset
    else:  # an asynchronous write is ordered behind the ALU's
        for cell, _, _, _ in step.timed_writes:
            recent.pop(4 * cell, None)
            recent.pop(4 * cell + 1, None)
    return cycle + step.slots


def _worst(step: Step, recent: Recent, cycle: int, mixed: bool) -> tuple[Touch, int, int] | None:
    """The read that comes earliest before its value: access, slots missing, slots needed."""
    worst, most, slots = None, 0, 0
    for touch in step.timed_reads:
        cell, kind, offset, need = touch
        at = recent.get(4 * cell + kind)
        if at is not None and at + need - cycle - offset > most:
            worst, most, slots = touch, at + need - cycle - offset, need
        if mixed and kind != SPECIAL:
            at = recent.get(4 * cell + 1 - kind)
            late = max(need, MISMATCH)
            if at is not None and at + late - cycle - offset > most:
                worst, most, slots = touch, at + late - cycle - offset, late
    return None if worst is None else (worst, most, slots)


def _report(
    context: Context, index: int, start: int, touch: Touch, short: int, need: int
) -> tuple[Finding, int]:
    cell, kind, offset, _ = touch
    names = _name(context, index, touch)
    mask = 1 << cell
    timing = context.timing
    producer = context.search(
        index,
        lambda other: other.alu and any(1 << c & mask for c, _, _, _ in other.timed_writes),
        lambda other: False,
    )
    rule = findings.EARLY_READ
    if kind == SPECIAL:
        special = next(a.reg for a in context.steps[index].reads if cell in timing.cells(a.reg))
        rule = findings.EARLY_ADDRESS if special.address else findings.EARLY_PREDICATE
    needed = _between(context, producer, cell, offset, need)
    return (
        Finding(
            rule=rule,
            register=names,
            consumer=context.site(index),
            producer=None if producer is None else context.site(producer),
            available=needed - short,
            needed=needed,
            effect=f"reads {names} as it was before the write",
            fix=_fix(context, index, start, short),
        ),
        short,
    )


def _between(context: Context, producer: int | None, cell: int, offset: int, need: int) -> int:
    """Slots needed between the end of the producer and the start of the consumer, for this element."""
    if producer is None:
        return need
    written = max(at for c, _, at, _ in context.steps[producer].timed_writes if c == cell)
    return max(need - offset - (context.program.instrs[producer].rpt - written), 0)


def _name(context: Context, index: int, touch: Touch) -> str:
    for access in context.steps[index].reads:
        if touch[0] in context.timing.cells(access.reg):
            return str(access.reg)
    return ""


def _fix(context: Context, index: int, start: int, short: int) -> str:
    """The smallest change: a (nopN) on the instruction before, a longer nop, or a new one."""
    if index > start:
        before = context.program.instrs[index - 1]
        if before.op.cat in (2, 3) and not before.rpt and before.nop + short <= A630.code.nop.value:
            return f"(nop{before.nop + short}) on #{index - 1}"
        if context.steps[index - 1].idle and before.rpt + short <= A630.code.trailing.value:
            return f"(rpt{before.rpt + short})nop at #{index - 1}"
    return f"{'nop' if short == 1 else f'(rpt{short - 1})nop'} before #{index}"
