"""One shader processor at work: waves that issue in order, partitions, pipes, waits hidden by other waves.

A partition issues one instruction at a time, of the first of its waves that could go (a lower slot first
where several could). Its ALU is busy for every repeat. A sample holds the partition while it hands over its
coordinates, as soon as the texture pipe's queue has room; (sy) waits for the last result, (ss) until the
pipes have taken their sources. A wave that ends is followed by the next one.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Sequence
from typing import NamedTuple


class Pipe(enum.IntEnum):
    """Where an instruction works."""

    ALU = 0
    TEXTURE = 1
    MEMORY = 2
    LOCAL = 3  # local memory, special functions, shuffles
    IDLE = 4  # flow and idle slots


class Job(NamedTuple):
    """An instruction as the processor sees it; all values are cycles.

    Attributes:
        work: for which its pipe is busy; of the ALU, the partition's.
        hold: for which a sample holds its partition.
        gap: until the wave's next instruction, without the processor's ``turn``.
        latency: from the end of the work to the result.
        word: for which the instruction takes the issue of its partition.
        place: the instruction in the program.
    """

    pipe: int
    work: float
    hold: float
    gap: float
    latency: float
    word: float
    ss: bool
    sy: bool
    place: int


class Event(NamedTuple):
    """An issued instruction, for timelines."""

    slot: int
    place: int
    pipe: int
    start: float
    end: float


class Processor:
    """The pipes of a shader processor and what its resident waves wait for; all values are cycles."""

    def __init__(self, resident: int, partitions: int, turn: float, queue: float) -> None:
        """
        Args:
            turn: until a wave may issue again, beyond what its instruction takes.
            queue: of work that the texture pipe takes in advance.
        """
        self.turn, self.queue, self.partitions = turn, queue, partitions
        self.front, self.alu = [0.0] * partitions, [0.0] * partitions
        self.free, self.busy = [0.0] * len(Pipe), [0.0] * len(Pipe)
        self.taken = [0.0] * resident  # when the pipes have the sources of all that a wave issued
        self.sy, self.ss = [0.0] * resident, [0.0] * resident  # when its last results are there
        self.waited = dict.fromkeys(("sync", "texture"), 0.0)

    def run(self, jobs: Sequence[Job], waves: int, start: float, events: list[Event] | None = None) -> float:
        """Cycles until ``waves`` waves are done, each ``start`` cycles after its slot is free."""
        resident = len(self.taken)
        places, pending, end = [0] * resident, waves - resident, 0.0
        heap = [(start, slot) for slot in range(resident)]
        while heap:
            ready, slot = heapq.heappop(heap)
            job = jobs[places[slot]]
            at = self._earliest(slot, job)
            if at > ready and heap and at >= heap[0][0]:  # another wave may go first
                heapq.heappush(heap, (at, slot))
                continue
            at = max(at, ready)
            following = self._issue(slot, job, at)
            if events is not None:
                events.append(Event(slot, job.place, job.pipe, at, at + max(job.work, job.hold, 1.0)))
            places[slot] += 1
            if places[slot] == len(jobs):
                end = max(end, following, self.taken[slot])
                if pending <= 0:
                    continue
                pending -= 1
                places[slot], following = 0, following + start
                self.sy[slot] = self.ss[slot] = self.taken[slot] = 0.0
            heapq.heappush(heap, (following, slot))
        return end

    def _earliest(self, slot: int, job: Job) -> float:
        """When a wave could issue ``job``."""
        lane = slot % self.partitions
        at = self.front[lane]
        if job.pipe <= Pipe.TEXTURE and self.alu[lane] > at:
            at = self.alu[lane]
        if job.pipe == Pipe.TEXTURE:
            at = max(at, self.free[Pipe.TEXTURE] - self.queue)
        if job.sy and self.sy[slot] > at:
            at = self.sy[slot]
        if job.ss:
            at = max(at, self.ss[slot], self.taken[slot])
        return at

    def _issue(self, slot: int, job: Job, at: float) -> float:
        """Issues ``job`` at cycle ``at``; when the wave may issue its next."""
        lane = slot % self.partitions
        self.front[lane] = at + job.word
        self.busy[job.pipe] += job.work
        if job.pipe == Pipe.ALU:
            self.alu[lane] = at + job.work
        elif job.pipe != Pipe.IDLE:
            begin = at
            if job.pipe == Pipe.TEXTURE:
                self.alu[lane] = at + job.hold
                begin = at + job.gap
                self.busy[Pipe.ALU] += job.hold
            done = self.free[job.pipe] = max(self.free[job.pipe], begin) + job.work
            self.taken[slot] = max(self.taken[slot], done)
            if job.pipe == Pipe.LOCAL:
                self.ss[slot] = done + job.latency
            elif job.latency:
                self.sy[slot] = max(self.sy[slot], done + job.latency)
        return at + job.gap + self.turn
