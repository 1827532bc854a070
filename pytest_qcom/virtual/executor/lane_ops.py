"""The runtime's operations between lanes: shuffles, relative registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor import lanes
from pytest_qcom.virtual.executor.irgen import I1, I16, I32, I64, PTR, VOID, Function, i32, i64
from pytest_qcom.virtual.executor.layout import Fault, Header, Job, Status, field

SHUFFLES = ("xor", "up", "down", "rup", "rdown", "quad_brcst", "quad_horiz", "quad_vert", "quad_diag")
"""Modes of a shuffle, by the number that the runtime knows them by."""


def emit(module: Any, wave: int) -> None:
    """Adds the lane functions for waves of ``wave`` fibers to ``module``."""
    for bits in (16, 32):
        _shuffle(module, wave, bits)
        _constant(module, wave, bits)
    for name in ("16", "32", "merged"):
        _relative(module, wave, name, store=False)
        _relative(module, wave, name, store=True)
    _preset(module, wave)


def _shuffle(module: Any, wave: int, bits: int) -> None:
    """shuffle_16, shuffle_32(w, destination row, value row, index row, mode).

    up and down give a lane its own value where the source lane does not exist; rup and rdown go round the
    wave. A source lane that is not active gives what its register holds.
    """
    f = Function(module, f"shuffle_{bits}", VOID, [PTR, PTR, PTR, PTR, I32])
    w, dst, value, indices, mode = f.args
    b = f.b
    size, element = wave * bits // 8, ir.IntType(bits)
    copy = f.local(ir.ArrayType(element, wave), align=64)
    arguments = [copy, value, i64(size), ir.Constant(I1, 0)]
    f.call("llvm.memcpy.p0.p0.i64", VOID, arguments)

    def move(lane: Any) -> None:
        index = b.zext(f.load(I32, indices, b.mul(lane, i64(4)), 4), I64)
        sources = {
            "xor": b.xor(lane, index),
            "up": b.sub(lane, index),
            "down": b.add(lane, index),
            "rup": b.and_(b.sub(lane, index), i64(wave - 1)),
            "rdown": b.and_(b.add(lane, index), i64(wave - 1)),
            "quad_brcst": b.or_(b.and_(lane, i64(-4)), b.and_(index, i64(3))),
            "quad_horiz": b.xor(lane, i64(1)),
            "quad_vert": b.xor(lane, i64(2)),
            "quad_diag": b.xor(lane, i64(3)),
        }
        source: Any = lane
        for number, name in enumerate(SHUFFLES):
            source = b.select(b.icmp_signed("==", mode, i32(number)), sources[name], source)
        source = b.select(b.icmp_unsigned("<", source, i64(wave)), source, lane)
        moved = f.load(element, copy, b.mul(source, i64(bits // 8)), bits // 8)
        f.store(moved, dst, b.mul(lane, i64(bits // 8)), bits // 8)

    with lanes.active(f, w) as lane:
        move(lane)
    b.ret_void()
    f.finish()


def _relative(module: Any, wave: int, kind: str, store: bool) -> None:
    """get_16, get_32, put_16, put_32(w, row, file, address row, offset, registers, pc): relative registers.

    Lane by lane, the register at a0.x plus ``offset`` is read into ``row`` or written from it. get_merged and
    put_merged: half registers that are parts of full ones.
    """
    f = Function(module, f"{'put' if store else 'get'}_{kind}", I32, [PTR, PTR, PTR, PTR, I32, I32, I32])
    w, row, file, addresses, offset, registers, pc = f.args
    b = f.b
    merged = kind == "merged"
    bits = 16 if merged else int(kind)
    step, element = bits // 8, ir.IntType(bits)

    def move(lane: Any) -> None:
        address = b.sext(f.load(I16, addresses, b.mul(lane, i64(2)), 2), I32)
        number = b.add(address, offset)
        with f.when(b.icmp_unsigned(">=", number, registers)):
            arguments = [w, i32(Fault.RELATIVE), pc, b.trunc(lane, I32), b.sext(number, I64), i32(0)]
            f.call("record", VOID, arguments)
            b.ret(i32(Status.FAULT))
        index = b.zext(number, I64)
        if merged:
            part = b.mul(b.and_(index, i64(1)), i64(step))
            at = b.add(b.mul(b.lshr(index, i64(1)), i64(4 * wave)), b.add(b.mul(lane, i64(4)), part))
        else:
            at = b.add(b.mul(index, i64(wave * step)), b.mul(lane, i64(step)))
        here = b.mul(lane, i64(step))
        if store:
            f.store(f.load(element, row, here, step), file, at, step)
        else:
            f.store(f.load(element, file, at, step), row, here, step)

    with lanes.active(f, w) as lane:
        move(lane)
    b.ret(i32(0))
    f.finish()


def _preset(module: Any, wave: int) -> None:
    """preset(w, data row, base row, offset, count, pc): words of the first active lane to constants.

    They begin at the lane's base plus ``offset``. Waves on other threads may store the same words meanwhile.
    """
    f = Function(module, "preset", I32, [PTR, PTR, PTR, I32, I32, I32])
    w, data, bases, offset, count, pc = f.args
    b = f.b
    lane = lanes.first(f, w, wave)
    at = b.mul(lane, i64(4))
    file = f.load(PTR, w, Header.CONSTANTS, 8)
    job = f.load(PTR, w, Header.JOB, 8)
    limit = b.udiv(f.load(I64, job, field(Job, "constant_bytes"), 8), i64(4))
    first = b.zext(b.add(f.load(I32, bases, at, 4), offset), I64)
    words = b.zext(count, I64)
    with f.when(b.icmp_unsigned(">", b.add(first, words), limit)):
        arguments = [w, i32(Fault.CONSTANT), pc, b.trunc(lane, I32), first, i32(0)]
        f.call("record", VOID, arguments)
        b.ret(i32(Status.FAULT))
    with f.loop(words) as index:
        value = f.load(I32, data, b.add(at, b.mul(index, i64(4 * wave))), 4)
        f.store(value, file, b.mul(b.add(first, index), i64(4)), 4)
    b.ret(i32(0))
    f.finish()


def _constant(module: Any, wave: int, bits: int) -> None:
    """constant_16, constant_32(w, row, address row, offset, pc): the constant at a0.x plus ``offset``."""
    f = Function(module, f"constant_{bits}", I32, [PTR, PTR, PTR, I32, I32])
    w, row, addresses, offset, pc = f.args
    b, step, element = f.b, bits // 8, ir.IntType(bits)
    file = f.load(PTR, w, Header.CONSTANTS, 8)
    job = f.load(PTR, w, Header.JOB, 8)
    limit = b.udiv(f.load(I64, job, field(Job, "constant_bytes"), 8), i64(step))

    def move(lane: Any) -> None:
        address = b.sext(f.load(I16, addresses, b.mul(lane, i64(2)), 2), I32)
        number = b.sext(b.add(address, offset), I64)
        with f.when(b.icmp_unsigned(">=", number, limit)):
            arguments = [w, i32(Fault.CONSTANT), pc, b.trunc(lane, I32), number, i32(0)]
            f.call("record", VOID, arguments)
            b.ret(i32(Status.FAULT))
        value = f.load(element, file, b.mul(number, i64(step)), step)
        f.store(value, row, b.mul(lane, i64(step)), step)

    with lanes.active(f, w) as lane:
        move(lane)
    b.ret(i32(0))
    f.finish()
