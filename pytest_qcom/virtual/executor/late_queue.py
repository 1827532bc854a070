"""The queue of a wave's late results, as LLVM functions: what :mod:`pytest_qcom.virtual.executor.late` calls.

An entry is an operation that has been issued: first it still has to read its sources (stage 0), then its
result is on its way (stage 1). ``when`` is the wave's clock, in issue slots, of the next of both. Events take
place in the order of their times; at equal times sources are read first, then it is the order of issue.
``late_read`` and ``late_commit`` are the program's own: what an operation does, by number.
"""

from __future__ import annotations

from pytest_qcom.virtual.executor.layout import Header

ENTRY = 64
"""Bytes of an entry: op, stage, when, ready, class (i64 each), the lanes it is for at 48."""
CAPACITY = 128
NEVER = (1 << 63) - 1
SS, SY = 1, 2
"""Classes of results, bits of ``late_sync``: (ss), (sy). Class 0 is waited for by distance."""
SOURCES = 4
"""Bit of ``late_sync`` alone: that all sources are read, with which stores are done."""


def functions(queue: int, wave: int, reads: list[int], commits: list[int], lead: int) -> list[str]:
    """The functions.

    Args:
        queue: offset of the entries in the wave state.
        wave: fibers of a wave.
        reads, commits: the operations that have a ``late_read.N``, a ``late_commit.N``.
        lead: slots from issue to the reading of sources, in an empty queue.
    """
    return [
        *_switch("late_read", "i32", reads),
        *_switch("late_commit", "void", commits),
        *_advance(queue, f"i{wave}").splitlines(),
        *_push(queue, f"i{wave}", lead).splitlines(),
        *_sync(queue).splitlines(),
        *_finish(queue).splitlines(),
        *_poll().splitlines(),
    ]


def _switch(name: str, result: str, numbers: list[int]) -> list[str]:
    cases = " ".join(f"i64 {n}, label %o{n}" for n in numbers)
    lines = [f"define internal {result} @{name}(ptr %w, i64 %op) nounwind {{", "entry:"]
    lines += [f"  switch i64 %op, label %none [ {cases} ]", "none:"]
    lines += ["  ret void" if result == "void" else "  ret i32 0"]
    for n in numbers:
        call = f"call {result} @{name}.{n}(ptr %w)"
        lines.append(f"o{n}:")
        lines += (
            [f"  {call}", "  ret void"] if result == "void" else [f"  %s{n} = {call}", f"  ret i32 %s{n}"]
        )
    return [*lines, "}"]


def _advance(queue: int, word: str) -> str:
    """late_advance(w, until): what happens up to a time; the status of a read that failed."""
    return f"""
define internal i32 @late_advance(ptr %w, i64 %until) nounwind {{
entry:
  %p.count = getelementptr i8, ptr %w, i64 {Header.LATE_COUNT}
  %p.next = getelementptr i8, ptr %w, i64 {Header.LATE_NEXT}
  %p.active = getelementptr i8, ptr %w, i64 {Header.ACTIVE}
  %queue = getelementptr i8, ptr %w, i64 {queue}
  br label %again
again:
  %count = load i64, ptr %p.count, align 8
  br label %scan
scan:
  %i = phi i64 [ 0, %again ], [ %i1, %look ]
  %best = phi i64 [ 0, %again ], [ %best1, %look ]
  %min = phi i64 [ {NEVER}, %again ], [ %min1, %look ]
  %was = phi i64 [ 0, %again ], [ %was1, %look ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %found
look:
  %o = mul i64 %i, {ENTRY}
  %e = getelementptr i8, ptr %queue, i64 %o
  %e.when = getelementptr i8, ptr %e, i64 16
  %when = load i64, ptr %e.when, align 8
  %lower = icmp slt i64 %when, %min
  %ties = icmp eq i64 %when, %min
  %e.look = getelementptr i8, ptr %e, i64 8
  %look.stage = load i64, ptr %e.look, align 8
  %unread = icmp eq i64 %look.stage, 0
  %before = icmp ne i64 %was, 0
  %first.read = and i1 %unread, %before
  %ahead = and i1 %ties, %first.read
  %less = or i1 %lower, %ahead
  %was1 = select i1 %less, i64 %look.stage, i64 %was
  %min1 = select i1 %less, i64 %when, i64 %min
  %best1 = select i1 %less, i64 %i, i64 %best
  %i1 = add i64 %i, 1
  br label %scan
found:
  store i64 %min, ptr %p.next, align 8
  %due = icmp sle i64 %min, %until
  br i1 %due, label %act, label %out
act:
  %ao = mul i64 %best, {ENTRY}
  %a = getelementptr i8, ptr %queue, i64 %ao
  %op = load i64, ptr %a, align 8
  %a.stage = getelementptr i8, ptr %a, i64 8
  %stage = load i64, ptr %a.stage, align 8
  %a.mask = getelementptr i8, ptr %a, i64 48
  %mask = load {word}, ptr %a.mask, align 8
  %active = load {word}, ptr %p.active, align 8
  store {word} %mask, ptr %p.active, align 8
  %first = icmp eq i64 %stage, 0
  br i1 %first, label %read, label %commit
read:
  %status = call i32 @late_read(ptr %w, i64 %op)
  store {word} %active, ptr %p.active, align 8
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %fail, label %was.read
was.read:
  store i64 1, ptr %a.stage, align 8
  %a.ready = getelementptr i8, ptr %a, i64 24
  %ready = load i64, ptr %a.ready, align 8
  %a.when = getelementptr i8, ptr %a, i64 16
  store i64 %ready, ptr %a.when, align 8
  br label %again
commit:
  call void @late_commit(ptr %w, i64 %op)
  store {word} %active, ptr %p.active, align 8
  %left = sub i64 %count, 1
  %behind = sub i64 %left, %best
  %bytes = mul i64 %behind, {ENTRY}
  %following = getelementptr i8, ptr %a, i64 {ENTRY}
  call void @llvm.memmove.p0.p0.i64(ptr %a, ptr %following, i64 %bytes, i1 false)
  store i64 %left, ptr %p.count, align 8
  br label %again
fail:
  ret i32 %status
out:
  ret i32 0
}}
"""


def _push(queue: int, word: str, lead: int) -> str:
    """late_push(w, op, stage, delay, service, latency, class): issues an operation.

    At stage 1 the result is there in ``delay`` slots. At stage 0 the sources are read when the operations
    before have been served, and the result is there ``latency`` later.
    """
    return f"""
define internal i32 @late_push(
    ptr %w, i64 %op, i64 %stage, i64 %delay, i64 %service, i64 %latency, i64 %class
) nounwind {{
entry:
  %p.clock = getelementptr i8, ptr %w, i64 {Header.LATE_CLOCK}
  %p.next = getelementptr i8, ptr %w, i64 {Header.LATE_NEXT}
  %p.count = getelementptr i8, ptr %w, i64 {Header.LATE_COUNT}
  %p.last = getelementptr i8, ptr %w, i64 {Header.LATE_LAST}
  %p.active = getelementptr i8, ptr %w, i64 {Header.ACTIVE}
  %had = load i64, ptr %p.count, align 8
  %full = icmp uge i64 %had, {CAPACITY}
  br i1 %full, label %wait, label %go
wait:
  %oldest = load i64, ptr %p.next, align 8
  %status = call i32 @late_advance(ptr %w, i64 %oldest)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %fail, label %entry.again
entry.again:
  %now.had = load i64, ptr %p.count, align 8
  %still = icmp uge i64 %now.had, {CAPACITY}
  br i1 %still, label %wait, label %go
go:
  %count = load i64, ptr %p.count, align 8
  %o = mul i64 %count, {ENTRY}
  %queue = getelementptr i8, ptr %w, i64 {queue}
  %e = getelementptr i8, ptr %queue, i64 %o
  %clock = load i64, ptr %p.clock, align 8
  %last = load i64, ptr %p.last, align 8
  %issue = add i64 %clock, {lead}
  %served = add i64 %last, %service
  %busy = icmp sgt i64 %served, %issue
  %reads = select i1 %busy, i64 %served, i64 %issue
  %first = icmp eq i64 %stage, 0
  %moved = select i1 %first, i64 %reads, i64 %last
  store i64 %moved, ptr %p.last, align 8
  %arrives = add i64 %clock, %delay
  %when = select i1 %first, i64 %reads, i64 %arrives
  %ready = add i64 %when, %latency
  %next = load i64, ptr %p.next, align 8
  %sooner = icmp slt i64 %when, %next
  %min = select i1 %sooner, i64 %when, i64 %next
  store i64 %min, ptr %p.next, align 8
  store i64 %op, ptr %e, align 8
  %e1 = getelementptr i8, ptr %e, i64 8
  store i64 %stage, ptr %e1, align 8
  %e2 = getelementptr i8, ptr %e, i64 16
  store i64 %when, ptr %e2, align 8
  %e3 = getelementptr i8, ptr %e, i64 24
  store i64 %ready, ptr %e3, align 8
  %e4 = getelementptr i8, ptr %e, i64 32
  store i64 %class, ptr %e4, align 8
  %e5 = getelementptr i8, ptr %e, i64 48
  %active = load {word}, ptr %p.active, align 8
  store {word} %active, ptr %e5, align 8
  %more = add i64 %count, 1
  store i64 %more, ptr %p.count, align 8
  ret i32 0
fail:
  ret i32 %status
}}
"""


def _sync(queue: int) -> str:
    """late_sync(w, classes): (ss), (sy) or both: the clock goes on to where what they wait for is done.

    (ss) waits for its results, and for all sources to be read; (sy) for its results. A barrier waits for the
    sources alone.
    """
    return f"""
define internal i32 @late_sync(ptr %w, i64 %classes) nounwind {{
entry:
  %p.clock = getelementptr i8, ptr %w, i64 {Header.LATE_CLOCK}
  %p.count = getelementptr i8, ptr %w, i64 {Header.LATE_COUNT}
  %queue = getelementptr i8, ptr %w, i64 {queue}
  %count = load i64, ptr %p.count, align 8
  %clock = load i64, ptr %p.clock, align 8
  %sources = and i64 %classes, {SS | SOURCES}
  %ss = icmp ne i64 %sources, 0
  br label %scan
scan:
  %i = phi i64 [ 0, %entry ], [ %i1, %look ]
  %until = phi i64 [ %clock, %entry ], [ %until2, %look ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %o = mul i64 %i, {ENTRY}
  %e = getelementptr i8, ptr %queue, i64 %o
  %e1 = getelementptr i8, ptr %e, i64 8
  %stage = load i64, ptr %e1, align 8
  %e2 = getelementptr i8, ptr %e, i64 16
  %when = load i64, ptr %e2, align 8
  %e3 = getelementptr i8, ptr %e, i64 24
  %ready = load i64, ptr %e3, align 8
  %e4 = getelementptr i8, ptr %e, i64 32
  %class = load i64, ptr %e4, align 8
  %unread = icmp eq i64 %stage, 0
  %held = and i1 %unread, %ss
  %later = icmp sgt i64 %when, %until
  %take = and i1 %held, %later
  %until1 = select i1 %take, i64 %when, i64 %until
  %both = and i64 %class, %classes
  %ours = icmp ne i64 %both, 0
  %longer = icmp sgt i64 %ready, %until1
  %take2 = and i1 %ours, %longer
  %until2 = select i1 %take2, i64 %ready, i64 %until1
  %i1 = add i64 %i, 1
  br label %scan
out:
  store i64 %until, ptr %p.clock, align 8
  %status = call i32 @late_advance(ptr %w, i64 %until)
  ret i32 %status
}}
"""


def _finish(queue: int) -> str:
    """late_finish(w, op): an operation is issued again, so its last result must have arrived."""
    return f"""
define internal i32 @late_finish(ptr %w, i64 %op) nounwind {{
entry:
  %p.count = getelementptr i8, ptr %w, i64 {Header.LATE_COUNT}
  %p.next = getelementptr i8, ptr %w, i64 {Header.LATE_NEXT}
  %queue = getelementptr i8, ptr %w, i64 {queue}
  br label %again
again:
  %count = load i64, ptr %p.count, align 8
  br label %scan
scan:
  %i = phi i64 [ 0, %again ], [ %i1, %differs ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %o = mul i64 %i, {ENTRY}
  %e = getelementptr i8, ptr %queue, i64 %o
  %other = load i64, ptr %e, align 8
  %same = icmp eq i64 %other, %op
  br i1 %same, label %wait, label %differs
differs:
  %i1 = add i64 %i, 1
  br label %scan
wait:
  %oldest = load i64, ptr %p.next, align 8
  %status = call i32 @late_advance(ptr %w, i64 %oldest)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %fail, label %again
fail:
  ret i32 %status
out:
  ret i32 0
}}
"""


def _poll() -> str:
    """late_poll(w, ahead): what has happened ``ahead`` slots from now."""
    return f"""
define internal i32 @late_poll(ptr %w, i64 %ahead) nounwind {{
entry:
  %p.clock = getelementptr i8, ptr %w, i64 {Header.LATE_CLOCK}
  %p.next = getelementptr i8, ptr %w, i64 {Header.LATE_NEXT}
  %clock = load i64, ptr %p.clock, align 8
  %until = add i64 %clock, %ahead
  %next = load i64, ptr %p.next, align 8
  %due = icmp sle i64 %next, %until
  br i1 %due, label %go, label %out
go:
  %status = call i32 @late_advance(ptr %w, i64 %until)
  ret i32 %status
out:
  ret i32 0
}}
"""
