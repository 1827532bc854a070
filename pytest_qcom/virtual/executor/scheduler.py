"""The runtime's scheduler: workgroups, their waves and barriers, and the lanes of a divergent wave.

A workgroup runs on one thread. Its waves take turns from barrier to barrier; without barriers they run one
after the other in one wave state, which stays in the cache.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor.irgen import I1, I8, I16, I32, I64, PTR, VOID, Function, i32, i64
from pytest_qcom.virtual.executor.layout import CHUNK, WAVE_COST, Arena, Fault, Header, Job, Status, field

_GROUP = 16
_NO_BLOCK = 0x7FFFFFFF


def emit(module: Any, wave: int, flushes: bool) -> None:
    """Adds ``run``, the entry of a thread, and the lane functions of divergent kernels to ``module``."""
    _park(module, wave)
    _choose(module, wave)
    _splat(module, wave)
    _start_wave(module, wave)
    _deadlock(module)
    _run_group(module)
    _run(module, flushes)


def _park(module: Any, wave: int) -> None:
    """park(w, block): the lanes of Header.MASK go on at ``block`` when it is their turn."""
    f = Function(module, "park", VOID, [PTR, I32])
    w, block = f.args
    vec = ir.VectorType(I32, _GROUP)
    target = f.broadcast(block, _GROUP)
    with f.loop(wave // _GROUP) as index:
        bits = f.load(I16, w, f.b.add(f.b.mul(index, i64(2)), i64(Header.MASK)), 2)
        at = f.b.add(f.b.mul(index, i64(4 * _GROUP)), i64(Header.PCS))
        old = f.load(vec, w, at, 64)
        mask = f.b.bitcast(bits, ir.VectorType(I1, _GROUP))
        f.store(f.b.select(mask, target, old), w, at, 64)
    f.b.ret_void()
    f.finish()


def _choose(module: Any, wave: int) -> None:
    """choose(w): activates the live lanes that are at the lowest block; the block.

    For the structured code that compilers emit, this is what parked fibers and (jp) give on hardware.
    """
    f = Function(module, "choose", I32, [PTR])
    (w,) = f.args
    vec = ir.VectorType(I32, _GROUP)
    far = ir.Constant(vec, [_NO_BLOCK] * _GROUP)
    least = f.local(vec, far)

    def pcs(index: Any) -> tuple[Any, Any]:
        bits = f.load(I16, w, f.b.add(f.b.mul(index, i64(2)), i64(Header.LIVE)), 2)
        values = f.load(vec, w, f.b.add(f.b.mul(index, i64(4 * _GROUP)), i64(Header.PCS)), 64)
        return f.b.bitcast(bits, ir.VectorType(I1, _GROUP)), values

    with f.loop(wave // _GROUP) as index:
        live, values = pcs(index)
        values = f.b.select(live, values, far)
        old = f.get(least, vec)
        f.b.store(f.b.select(f.b.icmp_signed("<", values, old), values, old), least)
    block = f.reduce("umin", f.get(least, vec))
    wanted = f.broadcast(block, _GROUP)
    with f.loop(wave // _GROUP) as index:
        live, values = pcs(index)
        chosen = f.b.and_(live, f.b.icmp_signed("==", values, wanted))
        offset = f.b.add(f.b.mul(index, i64(2)), i64(Header.ACTIVE))
        f.store(f.b.bitcast(chosen, I16), w, offset, 2)
    f.b.ret(block)
    f.finish()


def _splat(module: Any, wave: int) -> None:
    """system(w, offset, x, y, z, rows): three values into rows of lanes, or into shared scalars."""
    f = Function(module, "system", VOID, [PTR, I64, I32, I32, I32, I1], private=True)
    w, offset, *values, rows = f.args
    with f.when(f.b.icmp_signed("==", offset, i64(0))):
        f.b.ret_void()
    for component, value in enumerate(values):
        with f.b.if_else(rows) as (row, scalar):
            with row:
                start = f.b.add(offset, i64(4 * wave * component))
                with f.loop(wave // _GROUP) as index:
                    at = f.b.add(start, f.b.mul(index, i64(4 * _GROUP)))
                    f.store(f.broadcast(value, _GROUP), w, at, 64)
            with scalar:
                f.store(value, w, f.b.add(offset, i64(4 * component)), 4)
    f.b.ret_void()
    f.finish()


def _get(f: Function, job: Any, name: str, ty: Any = I64) -> Any:
    return f.load(ty, job, field(Job, name), 8 if ty is not I32 else 4)


def _zero(f: Function, pointer: Any, size: Any) -> None:
    arguments = [pointer, ir.Constant(I8, 0), size, ir.Constant(I1, 0)]
    f.call("llvm.memset.p0.i64", VOID, arguments)


def _start_wave(module: Any, wave: int) -> None:
    """start_wave(job, arena, w, wave index, group): a wave state as the hardware hands it over.

    Registers, local and private memory are zero, where silicon has leftovers.
    """
    f = Function(module, "start_wave", VOID, [PTR, PTR, PTR, I64, I64], private=True)
    job, arena, w, index, group = f.args
    b = f.b
    _zero(f, w, i64(Header.PCS))
    _zero(f, f.at(w, Header.END), _get(f, job, "clear"))
    masks = _get(f, job, "masks", PTR)
    mask = f.load(ir.IntType(wave), masks, b.mul(index, i64(16)), 8)
    for offset in (Header.LIVE, Header.ACTIVE):
        f.store(mask, w, offset, 8)
    f.store(i32(Status.RUN), w, Header.STATUS, 4)
    count = b.trunc(f.call(f"llvm.ctpop.i{wave}", mask.type, [mask]), I32)
    f.store(b.udiv(b.add(count, i32(CHUNK - 1)), i32(CHUNK)), w, Header.CHUNKS, 4)
    f.store(job, w, Header.JOB, 8)
    f.store(b.trunc(group, I32), w, Header.GROUP, 4)
    f.store(_get(f, job, "constants", PTR), w, Header.CONSTANTS, 8)
    f.store(_get(f, job, "limit"), w, Header.LIMIT, 8)
    f.store(f.load(PTR, arena, field(Arena, "lds"), 8), w, Header.LDS, 8)
    _private(f, job, arena, w, index, wave)
    _system_values(f, job, w, index, group, wave)
    b.ret_void()
    f.finish()


def _private(f: Function, job: Any, arena: Any, w: Any, index: Any, wave: int) -> None:
    resident = f.b.icmp_signed("!=", _get(f, job, "stride"), i64(0))
    size = f.b.mul(_get(f, job, "private_bytes"), i64(wave))
    slot = f.b.select(resident, index, i64(0))
    base = f.at(f.load(PTR, arena, field(Arena, "private"), 8), f.b.mul(slot, size))
    f.store(base, w, Header.PRIVATE, 8)
    _zero(f, base, size)


def _system_values(f: Function, job: Any, w: Any, index: Any, group: Any, wave: int) -> None:
    b = f.b
    width, height = _get(f, job, "groups_x"), _get(f, job, "groups_y")
    x, rest = b.urem(group, width), b.udiv(group, width)
    ids = [b.trunc(v, I32) for v in (x, b.urem(rest, height), b.udiv(rest, height))]
    sizes = [_get(f, job, f"local_{axis}", I32) for axis in "xyz"]
    splat = _get(f, job, "splat")
    triples = {
        "group_id": ids,
        "group_offset": [b.mul(i, s) for i, s in zip(ids, sizes, strict=True)],
        "local_size": sizes,
    }
    for bit, (name, values) in enumerate(triples.items()):
        rows = b.icmp_signed("!=", b.and_(splat, i64(1 << bit)), i64(0))
        f.call("system", VOID, [w, _get(f, job, name), *values, rows])
    table = f.at(_get(f, job, "local_ids", PTR), b.mul(index, i64(16 * wave)))
    for name, start, rows_count in (("local_id_row", 0, 3), ("linear_id_row", 3, 1)):
        offset = _get(f, job, name)
        with f.when(b.icmp_signed("!=", offset, i64(0))):
            source = f.at(table, start * 4 * wave)
            arguments = [f.at(w, offset), source, i64(rows_count * 4 * wave), ir.Constant(I1, 0)]
            f.call("llvm.memcpy.p0.p0.i64", VOID, arguments)


def _deadlock(module: Any) -> None:
    """settle(job, states): opens the barrier. 0: all done, 1: go on, 2: some waves wait for ended ones."""
    f = Function(module, "settle", I32, [PTR, PTR], private=True)
    job, states = f.args
    b = f.b
    stride = _get(f, job, "stride")
    waiting, ended = f.local(I64, i64(0)), f.local(I64, i64(0))
    with f.loop(_get(f, job, "waves")) as index:
        status = f.load(I32, states, b.mul(index, stride), 4)
        for slot, value in ((waiting, Status.BARRIER), (ended, Status.DONE)):
            more = b.zext(b.icmp_signed("==", status, i32(value)), I64)
            b.store(b.add(f.get(slot, I64), more), slot)
    none = b.icmp_signed("==", f.get(waiting, I64), i64(0))
    with f.when(none):
        b.ret(i32(0))
    with f.when(b.icmp_signed("!=", f.get(ended, I64), i64(0))):
        b.ret(i32(2))
    with f.loop(_get(f, job, "waves")) as index:
        f.store(i32(Status.RUN), states, b.mul(index, stride), 4)
    b.ret(i32(1))
    f.finish()


def _run_group(module: Any) -> None:
    """run_group(job, arena, group): the number of the wave that failed, or -1."""
    f = Function(module, "run_group", I64, [PTR, PTR, I64], private=True)
    job, arena, group = f.args
    b = f.b
    waves, stride = _get(f, job, "waves"), _get(f, job, "stride")
    states = f.load(PTR, arena, field(Arena, "states"), 8)
    _zero(f, f.load(PTR, arena, field(Arena, "lds"), 8), _get(f, job, "shared_bytes"))
    kernel = _get(f, job, "kernel", PTR)
    kernel.type = ir.FunctionType(I32, [PTR]).as_pointer()  # so that it can be called
    resident = b.icmp_signed("!=", stride, i64(0))
    with f.when(resident), f.loop(waves) as index:
        f.call("start_wave", VOID, [job, arena, f.at(states, b.mul(index, stride)), index, group])
    again = f.function.append_basic_block("round")
    b.branch(again)
    b.position_at_end(again)
    with f.loop(waves) as index:
        w = f.at(states, b.mul(index, stride))
        with f.when(b.not_(resident)):
            f.call("start_wave", VOID, [job, arena, w, index, group])
        status = f.load(I32, w, Header.STATUS, 4)
        with f.when(b.icmp_signed("==", status, i32(Status.RUN))):
            result = b.call(kernel, [w])
            f.store(result, w, Header.STATUS, 4)
            with f.when(b.icmp_signed(">=", result, i32(Status.FAULT))):
                b.ret(index)
            with f.when(b.icmp_signed("==", result, i32(Status.DONE))):
                for name, offset in (("instructions", Header.INSTRUCTIONS), ("issue", Header.ISSUE)):
                    at = field(Arena, name)
                    total = b.add(f.load(I64, arena, at, 8), f.load(I64, w, offset, 8))
                    f.store(total, arena, at, 8)
    with f.when(b.not_(resident)):
        b.ret(i64(-1))
    verdict = f.call("settle", I32, [job, states])
    with f.when(b.icmp_signed("==", verdict, i32(1))):
        b.branch(again)
    with f.when(b.icmp_signed("==", verdict, i32(0))):
        b.ret(i64(-1))
    f.store(i32(Fault.DEADLOCK), states, Header.FAULT_KIND, 4)
    b.ret(i64(0))
    f.finish()


def _overspent(f: Function, job: Any, cycles: Any) -> Any:
    """Adds a workgroup's issue cycles to what the launch has spent: whether that is too much now."""
    b = f.b
    cost = b.add(cycles, b.mul(_get(f, job, "waves"), i64(WAVE_COST)))
    before = b.atomic_rmw("add", f.at(job, field(Job, "spent")), cost, "monotonic")
    return b.icmp_signed(">", b.add(before, cost), _get(f, job, "total"))


def _run(module: Any, flushes: bool) -> None:
    """run(job, arena): takes groups until none is left or a lower one has failed."""
    f = Function(module, "run", I32, [PTR, PTR])
    job, arena = f.args
    b = f.b
    saved = f.local(I32)
    if flushes:  # round to nearest, exceptions masked, subnormals read and written as zeros
        f.call("llvm.x86.sse.stmxcsr", VOID, [saved])
        mode = f.local(I32, i32(0x9FC0))
        f.call("llvm.x86.sse.ldmxcsr", VOID, [mode])
    f.store(i64(-1), arena, field(Arena, "failed_group"), 8)
    again, out = f.function.append_basic_block("next"), f.function.append_basic_block("out")
    b.branch(again)
    b.position_at_end(again)
    counter = f.at(job, field(Job, "next_group"))
    group = b.atomic_rmw("add", counter, i64(1), "monotonic")
    beyond = b.icmp_signed(">=", group, _get(f, job, "group_count"))
    stop = b.load_atomic(f.at(job, field(Job, "stop")), "monotonic", 8, typ=I64)
    enough = b.or_(beyond, b.icmp_signed(">", group, stop))
    work = f.function.append_basic_block("work")
    b.cbranch(enough, out, work)
    b.position_at_end(work)
    issued = f.load(I64, arena, field(Arena, "issue"), 8)
    failed = f.call("run_group", I64, [job, arena, group])
    bad, good = f.function.append_basic_block("bad"), f.function.append_basic_block("good")
    b.cbranch(b.icmp_signed("<", failed, i64(0)), good, bad)
    b.position_at_end(good)
    with f.when(_overspent(f, job, b.sub(f.load(I64, arena, field(Arena, "issue"), 8), issued))):
        # behind every workgroup, so that a fault of one of them is what is reported
        f.store(_get(f, job, "group_count"), arena, field(Arena, "failed_group"), 8)
        f.store(i64(0), arena, field(Arena, "failed_wave"), 8)
        states = f.load(PTR, arena, field(Arena, "states"), 8)
        f.store(i32(Fault.TOTAL), states, Header.FAULT_KIND, 4)
        b.atomic_rmw("min", f.at(job, field(Job, "stop")), group, "monotonic")
        b.branch(out)
    b.branch(again)
    b.position_at_end(bad)
    f.store(group, arena, field(Arena, "failed_group"), 8)
    f.store(failed, arena, field(Arena, "failed_wave"), 8)
    b.atomic_rmw("min", f.at(job, field(Job, "stop")), group, "monotonic")
    b.branch(out)
    b.position_at_end(out)
    if flushes:
        f.call("llvm.x86.sse.ldmxcsr", VOID, [saved])
    b.ret(i32(0))
    f.finish()
