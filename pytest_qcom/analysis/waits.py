"""Missing (ss) and (sy): results, destinations and sources of the asynchronous pipes.

The flags wait for *all* outstanding work of their class in this wave, so the state is a handful of sets of
storage cells, joined over the paths into a block until nothing changes. Rules: Mesa, ``ir3_legalize.c``
(``ir3_required_sync_flags``, ``sync_update``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pytest_qcom.analysis import findings
from pytest_qcom.analysis.context import Context
from pytest_qcom.analysis.findings import Finding, Rule
from pytest_qcom.analysis.steps import Held, Step
from pytest_qcom.isa.instruction import Sync


@dataclass(slots=True)
class _State:
    """Cells outstanding: ``ss``/``sy`` are still to be written, ``held_*`` are still to be read."""

    ss: int = 0
    sy: int = 0
    held_ss: int = 0
    held_any: int = 0
    barrier_ss: bool = False
    barrier_sy: bool = False

    def copy(self) -> _State:
        return _State(self.ss, self.sy, self.held_ss, self.held_any, self.barrier_ss, self.barrier_sy)

    def join(self, other: _State) -> _State:
        """What is outstanding on either of two paths."""
        return _State(
            self.ss | other.ss,
            self.sy | other.sy,
            self.held_ss | other.held_ss,
            self.held_any | other.held_any,
            self.barrier_ss | other.barrier_ss,
            self.barrier_sy | other.barrier_sy,
        )

    def clear_ss(self) -> None:
        self.ss = self.held_ss = self.held_any = 0
        self.barrier_ss = False

    def clear_sy(self) -> None:
        self.sy = self.held_any = 0
        self.barrier_sy = False

    def wait(self, step: Step) -> None:
        """Honours the flags of a step."""
        if step.ss:
            self.clear_ss()
        if step.sy:
            self.clear_sy()

    def issue(self, step: Step) -> None:
        """What a step leaves outstanding, once its own flags have been honoured."""
        if step.barrier:
            self.barrier_ss = self.barrier_sy = True
        if step.result is Sync.SS:
            self.ss |= step.wait_writes
        elif step.result is Sync.SY:
            self.sy |= step.wait_writes
        if step.held is Held.SS:
            self.held_ss |= step.wait_reads
        elif step.held is Held.ANY:
            self.held_any |= step.wait_reads


def waits(context: Context) -> list[Finding]:
    """All missing waits, in program order; each is reported once, as if it stood there from then on."""
    entry = context.entries(_State(), partial(_through, context), _State.join)
    found: list[Finding] = []
    for position in context.order:
        state = entry[position].copy()
        for index in context.within(position):
            step = context.steps[index]
            state.wait(step)
            touched = step.wait_reads | step.wait_writes
            if (
                (state.ss | state.sy) & touched
                or (state.held_ss | state.held_any) & step.wait_writes
                or ((state.barrier_ss or state.barrier_sy) and not step.idle)
            ):
                found.extend(_report(context, index, state))
            state.issue(step)
    return found


def _through(context: Context, position: int, before: _State) -> _State:
    state = before.copy()
    for index in context.within(position):
        state.wait(context.steps[index])
        state.issue(context.steps[index])
    return state


def _report(context: Context, index: int, state: _State) -> list[Finding]:
    """The findings of one instruction; clears what they name, so that later users are not reported again."""
    step = context.steps[index]
    found = []
    if (state.barrier_ss or state.barrier_sy) and not step.idle:
        found.append(_barrier(context, index, state))
        state.barrier_ss = state.barrier_sy = False
    if cells := state.sy & (step.wait_reads | step.wait_writes):
        found.append(_result(context, index, cells, Sync.SY))
        state.clear_sy()
    if cells := state.ss & (step.wait_reads | step.wait_writes):
        found.append(_result(context, index, cells, Sync.SS))
        state.clear_ss()
    if cells := (state.held_ss | state.held_any) & step.wait_writes:
        found.append(_overwrite(context, index, cells, state))
        state.clear_ss()
    return found


def _wait(context: Context, index: int, flag: str) -> str:
    """How to place a flag on an instruction that may have no bit for it."""
    if flag == "ss" and context.program.instrs[index].op.cat in (5, 6):
        return f"(ss)nop before #{index}"
    return f"({flag}) on #{index}"


def _result(context: Context, index: int, cells: int, sync: Sync) -> Finding:
    step = context.steps[index]
    read = cells & step.wait_reads
    subject = read or cells
    producer = context.search(
        index,
        lambda other: other.result is sync and bool(other.wait_writes & subject),
        lambda other: other.sy if sync is Sync.SY else other.ss,
    )
    available, needed = None, None
    if producer is not None:
        available, needed = context.between(producer, index), context.steps[producer].latency
    names = context.names(index, subject, written=not read, timing=True)
    rules: tuple[Rule, Rule] = (findings.MISSING_SY, findings.OVERWRITE_SY)
    if sync is Sync.SS:
        rules = (findings.MISSING_SS, findings.OVERWRITE_SS)
    early = available is not None and needed is not None and available < needed
    if read:
        effect = f"{'reads' if early else 'may read'} {names} from before the result"
    else:
        effect = f"writes {names}, and the late result {'then overwrites' if early else 'may overwrite'} it"
    return context.finding(
        rules[0] if read else rules[1],
        index,
        effect,
        _wait(context, index, sync.value),
        producer=producer,
        register=names,
        available=available,
        needed=needed or None,
    )


def _overwrite(context: Context, index: int, cells: int, state: _State) -> Finding:
    any_flag = not cells & state.held_ss
    producer = context.search(
        index,
        lambda other: other.held is not Held.NOT and bool(other.wait_reads & cells),
        lambda other: other.ss or (any_flag and other.sy),
    )
    names = context.names(index, cells, written=True, timing=True)
    choice = _wait(context, index, "ss")
    if any_flag:
        choice += f" or (sy) on #{index}"
    return context.finding(
        findings.SOURCE_OVERWRITE,
        index,
        f"changes {names} before the earlier instruction has read it: that one may use the new value",
        f"{choice}, or another register",
        producer=producer,
        register=names,
    )


def _barrier(context: Context, index: int, state: _State) -> Finding:
    producer = context.search(index, lambda other: other.barrier, lambda other: False)
    flags = [name for name, missing in (("ss", state.barrier_ss), ("sy", state.barrier_sy)) if missing]
    return context.finding(
        findings.BARRIER_WAIT,
        index,
        "runs before the barrier's memory accesses are done",
        " and ".join(_wait(context, index, flag) for flag in flags),
        producer=producer,
    )
