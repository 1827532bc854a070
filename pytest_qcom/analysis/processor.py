"""One shader processor at work: waves that issue in order, partitions, pipes, waits hidden by other waves.

A partition issues one instruction at a time, of that of its waves which can go first and of several the
oldest. Its ALU is busy for every repeat. A sample enters the texture pipe as soon as its queue has room; (sy)
waits for the last result, (ss) until the pipes have taken their sources. A wave that ends is followed by the
next one, which is then the youngest.

The functions here are compiled (:mod:`.native`): a launch is hundreds of thousands of instructions.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from pytest_qcom.analysis.native import Floats, Ints, compiled


class Pipe(enum.IntEnum):
    """Where an instruction works."""

    ALU = 0
    TEXTURE = 1
    MEMORY = 2
    LOCAL = 3  # local memory, special functions, shuffles
    IDLE = 4  # flow and idle slots


class Jobs(NamedTuple):
    """The path of a wave over its different instructions, and of each of those what it costs, in cycles.

    Attributes:
        path: numbers of instructions, in order.
        pipe, ss, sy: where it works and what it waits for.
        work: for which its pipe is busy; of the ALU, the partition's.
        gap: until the wave's next instruction.
        latency: from the end of the work to the result.
        word: for which it takes the issue of its partition.
    """

    path: Ints
    pipe: Ints
    ss: Ints
    sy: Ints
    work: Floats
    gap: Floats
    latency: Floats
    word: Floats


class State(NamedTuple):
    """A processor: of each slot, of each partition, of each pipe; all times are cycles.

    Attributes:
        ready, pipe: when a wave has all that its next instruction waits for, and the pipe of that.
        place: where it is in the path; -1 where there is none any more.
        age: number of the wave in the order of launch.
        taken: when the pipes have the sources of all that a wave issued.
        sync, release: when its last results are there, of those that (sy) awaits and of the others.
        front, alu: until when a partition's issue and its ALU are busy.
        free, busy: when a pipe is free again, and for how long it worked.
        marks: when as many waves were done as there are slots, and when twice as many.
        log, most: what was issued first, four numbers each, and how many of those are kept.
        queue: of work that the texture pipe takes in advance.
    """

    ready: Floats
    pipe: Ints
    place: Ints
    age: Ints
    taken: Floats
    sync: Floats
    release: Floats
    front: Floats
    alu: Floats
    free: Floats
    busy: Floats
    marks: Floats
    log: Floats
    most: int
    resident: int
    partitions: int
    queue: float


def state(resident: int, partitions: int, queue: float, most: int = 0) -> State:
    """A processor before anything happened."""
    return State(
        ready=np.zeros(resident),
        pipe=np.zeros(resident, np.int64),
        place=np.zeros(resident, np.int64),
        age=np.arange(resident, dtype=np.int64),
        taken=np.zeros(resident),
        sync=np.zeros(resident),
        release=np.zeros(resident),
        front=np.zeros(partitions),
        alu=np.zeros(partitions),
        free=np.zeros(len(Pipe)),
        busy=np.zeros(len(Pipe)),
        marks=np.zeros(2),
        log=np.zeros(4 * most),
        most=most,
        resident=resident,
        partitions=partitions,
        queue=queue,
    )


@compiled
def run(jobs: Jobs, machine: State, length: int, waves: int, start: float) -> float:
    """Cycles until ``waves`` waves are done, each ``start`` cycles after its slot is free.

    ``length`` is that of the path. A slot takes a wave after the other until all are dealt.
    """
    slot = 0
    while slot < machine.resident:
        machine.ready[slot] = start
        machine.pipe[slot] = jobs.pipe[jobs.path[0]]
        slot += 1
    done, logged, end, at = 0, 0, 0.0, 0.0
    while done < waves:
        slot = first(machine)
        job = jobs.path[machine.place[slot]]
        at = earliest(machine, slot)
        following = issue(jobs, machine, slot, job, at)
        if logged < machine.most:
            machine.log[4 * logged] = slot
            machine.log[4 * logged + 1] = job
            machine.log[4 * logged + 2] = at
            machine.log[4 * logged + 3] = at + max(jobs.work[job], 1.0)
            logged += 1
        machine.place[slot] += 1
        if machine.place[slot] == length:
            end = max(end, max(following, machine.taken[slot]))
            done += 1
            if done == machine.resident or done == 2 * machine.resident:
                machine.marks[done // machine.resident - 1] = end
            machine.place[slot] = -1
            if done + machine.resident > waves:
                continue
            machine.place[slot] = 0
            machine.age[slot] = machine.resident + done
            machine.sync[slot] = 0.0
            machine.release[slot] = 0.0
            machine.taken[slot] = 0.0
            following += start
        machine.ready[slot] = awaited(jobs, machine, slot, following)
    return end


@compiled
def first(machine: State) -> int:
    """The slot whose wave can issue first; of several, that of the oldest."""
    found, best, index = -1, 0.0, 0
    while index < machine.resident:
        if machine.place[index] >= 0 and (found < 0 or machine.ready[index] <= best):
            at = earliest(machine, index)
            if found < 0 or at < best or (at == best and machine.age[index] < machine.age[found]):
                found, best = index, at
        index += 1
    return found


@compiled
def earliest(machine: State, slot: int) -> float:
    """When a wave can issue its next instruction, as far as it is known by now."""
    lane = slot % machine.partitions
    at: float = max(machine.ready[slot], machine.front[lane])
    if machine.pipe[slot] <= Pipe.TEXTURE:
        at = max(at, machine.alu[lane])
    if machine.pipe[slot] == Pipe.TEXTURE:
        at = max(at, machine.free[Pipe.TEXTURE] - machine.queue)
    return at


@compiled
def awaited(jobs: Jobs, machine: State, slot: int, at: float) -> float:
    """When a wave that could go on at ``at`` has what its next instruction waits for."""
    job, found = jobs.path[machine.place[slot]], at
    machine.pipe[slot] = jobs.pipe[job]
    if jobs.sy[job]:
        found = max(found, machine.sync[slot])
    if jobs.ss[job]:
        found = max(found, max(machine.release[slot], machine.taken[slot]))
    return found


@compiled
def issue(jobs: Jobs, machine: State, slot: int, job: int, at: float) -> float:
    """Issues ``job`` at cycle ``at``; when the wave may issue its next."""
    lane = slot % machine.partitions
    pipe = jobs.pipe[job]
    machine.front[lane] = at + jobs.word[job]
    machine.busy[pipe] += jobs.work[job]
    if pipe == Pipe.ALU:
        machine.alu[lane] = at + jobs.work[job]
    elif pipe != Pipe.IDLE:
        begin = max(machine.free[pipe], at + 1.0)
        done = begin + jobs.work[job]
        machine.free[pipe] = done
        machine.taken[slot] = max(machine.taken[slot], begin if pipe == Pipe.TEXTURE else done)
        if pipe == Pipe.LOCAL:
            machine.release[slot] = done + jobs.latency[job]
        elif jobs.latency[job] > 0.0:
            machine.sync[slot] = max(machine.sync[slot], done + jobs.latency[job])
    following: float = at + jobs.gap[job]
    return following
