"""Results of the ALU read before they are there: issue slots between producer and consumer.

A write is remembered by its cycle; blocks join by the latest write. Rules: Mesa, ``ir3_legalize.c``
(``ir3_required_delay``, ``delay_update``) and ``ir3_delay.c``. Two differences, neither in Mesa's view
(``as_mesa``): a branch takes a slot here, since in a finished program it is there to be issued, while Mesa
may still remove it; and a flag that awaits a result takes at least as long as that result has to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from pytest_qcom.analysis import findings
from pytest_qcom.analysis.context import Context
from pytest_qcom.analysis.findings import Finding
from pytest_qcom.analysis.steps import MISMATCH, WINDOW, Step, Touch
from pytest_qcom.analysis.storage import FULL, HALF, SPECIAL
from pytest_qcom.chip import A630
from pytest_qcom.isa.instruction import Sync

_NEVER = -(1 << 30)


@dataclass(slots=True)
class _Clock:
    """The state between two instructions.

    Attributes:
        cycle: the issue slot of the next instruction.
        recent: cycle of the latest write, by ``4 * cell + width of the write``.
        ss, sy: the cycle before which the flag cannot be satisfied, as far as this is known.
    """

    cycle: int = 0
    recent: dict[int, int] = field(default_factory=dict)
    ss: int = _NEVER
    sy: int = _NEVER

    def copy(self) -> _Clock:
        return _Clock(self.cycle, dict(self.recent), self.ss, self.sy)

    def wait(self, step: Step) -> None:
        """Moves on to where the flags of ``step`` can be satisfied."""
        if step.ss:
            self.cycle, self.ss = max(self.cycle, self.ss), _NEVER
        if step.sy:
            self.cycle, self.sy = max(self.cycle, self.sy), _NEVER

    def issue(self, step: Step, as_mesa: bool) -> None:
        """Enters what ``step`` writes, and moves on behind it."""
        if step.alu:
            for cell, kind, offset, _ in step.timed_writes:
                self.recent[4 * cell + kind] = self.cycle + 1 + offset
        else:  # an asynchronous write is ordered behind the ALU's
            for cell, kind, _, _ in step.timed_writes:
                self.recent.pop(4 * cell, None)
                self.recent.pop(4 * cell + 1, None)
                if as_mesa and kind == HALF:  # Mesa then forgets the whole full register
                    self.recent.pop(4 * (cell ^ 1) + FULL, None)
            if step.result is Sync.SS:
                self.ss = self.cycle + step.latency
            elif step.result is Sync.SY:
                self.sy = self.cycle + step.latency
        self.cycle += step.slots

    def leave(self) -> _Clock:
        """The same state at cycle 0, without writes that no longer matter."""
        recent = {key: at - self.cycle for key, at in self.recent.items() if at + WINDOW > self.cycle}
        ss, sy = (until - self.cycle if until > self.cycle else _NEVER for until in (self.ss, self.sy))
        return _Clock(0, recent, ss, sy)

    def join(self, other: _Clock) -> _Clock:
        """The worse of two paths, both at cycle 0."""
        recent = dict(self.recent)
        for key, at in other.recent.items():
            recent[key] = max(recent.get(key, _NEVER), at)
        return _Clock(0, recent, min(self.ss, other.ss), min(self.sy, other.sy))


def distances(context: Context) -> list[Finding]:
    """All results read too early, in program order; each as if it had been mended from then on."""
    entry = context.entries(_Clock(), partial(_through, context), _Clock.join)
    found: list[Finding] = []
    as_mesa, mixed = context.as_mesa, context.timing.merged
    for position in context.order:
        clock = entry[position].copy()
        for index in context.within(position):
            step = context.steps[index]
            if not as_mesa:
                clock.wait(step)
            if clock.recent:
                worst = _worst(step, clock.recent, clock.cycle, mixed)
                if worst is not None:
                    finding, short = _report(context, index, *worst)
                    found.append(finding)
                    clock.cycle += short
            clock.issue(step, as_mesa)
    return found


def _through(context: Context, position: int, before: _Clock) -> _Clock:
    clock = before.copy()
    for index in context.within(position):
        if not context.as_mesa:
            clock.wait(context.steps[index])
        clock.issue(context.steps[index], context.as_mesa)
    return clock.leave()


def _worst(step: Step, recent: dict[int, int], cycle: int, mixed: bool) -> tuple[Touch, int, int] | None:
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


def _report(context: Context, index: int, touch: Touch, short: int, need: int) -> tuple[Finding, int]:
    """The finding, and the slots that are missing."""
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
    finding = context.finding(
        rule,
        index,
        f"reads {names} from before the write",
        _fix(context, index, short),
        producer=producer,
        register=names,
        available=needed - short,
        needed=needed,
    )
    return finding, short


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


def _fix(context: Context, index: int, short: int) -> str:
    """The smallest change: a (nopN) on the instruction before, a longer nop, or a new one."""
    if index > context.graph.nodes[context.graph.node_of[index]].start:
        before = context.program.instrs[index - 1]
        if before.op.cat in (2, 3) and not before.rpt and before.nop + short <= A630.code.nop.value:
            return f"(nop{before.nop + short}) on #{index - 1}"
        if context.steps[index - 1].idle and before.rpt + short <= A630.code.trailing.value:
            return f"(rpt{before.rpt + short})nop at #{index - 1}"
    return f"{'nop' if short == 1 else f'(rpt{short - 1})nop'} before #{index}"
