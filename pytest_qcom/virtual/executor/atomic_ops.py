"""The runtime's atomic accesses of global and local memory, lane by lane, and what they do to a word."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor import lanes
from pytest_qcom.virtual.executor.address_ops import lane_address
from pytest_qcom.virtual.executor.irgen import I32, I64, PTR, Function, i32, i64
from pytest_qcom.virtual.executor.layout import Fault, Header, Status

ATOMICS = ("add", "sub", "xchg", "inc", "dec", "cmpxchg", "min", "max", "umin", "umax", "and", "or", "xor")
"""Atomic operations, by the number that the runtime knows them by; ``min`` and ``max`` are signed."""


def emit(module: Any, wave: int) -> None:
    """Adds the atomic functions for waves of ``wave`` fibers to ``module``."""
    for bits in (32, 64):
        _change(module, bits)
    for space, bits in (("global", 32), ("global", 64), ("local", 32)):
        _atomic(module, wave, space, bits)


def _change(module: Any, bits: int) -> None:
    """change_32, change_64(address, operation, value, expected): the word before."""
    word = ir.IntType(bits)
    f = Function(module, f"change_{bits}", word, [I64, I32, word, word], private=True)
    address, operation, value, expected = f.args
    b = f.b
    pointer = b.inttoptr(address, PTR)
    default = f.function.append_basic_block("unknown")
    switch = b.switch(operation, default)
    for number, name in enumerate(ATOMICS):
        block = f.function.append_basic_block(name)
        switch.add_case(i32(number), block)
        b.position_at_end(block)
        if name == "cmpxchg":
            pair = b.cmpxchg(pointer, expected, value, "monotonic", "monotonic")
            b.ret(b.extract_value(pair, 0))
        elif name in ("inc", "dec"):
            kind = "add" if name == "inc" else "sub"
            b.ret(b.atomic_rmw(kind, pointer, ir.Constant(word, 1), "monotonic"))
        else:
            b.ret(b.atomic_rmw(name, pointer, value, "monotonic"))
    b.position_at_end(default)
    b.ret(ir.Constant(word, 0))
    f.finish()


class Words:
    """Rows that hold a lane's words of 32 or 64 bits; the high halves are the row behind the low ones."""

    def __init__(self, f: Function, wave: int, bits: int) -> None:
        self.f, self.wave, self.bits = f, wave, bits

    def get(self, row: Any, lane: Any) -> Any:
        b, at = self.f.b, self.f.b.mul(lane, i64(4))
        low = self.f.load(I32, row, at, 4)
        if self.bits == 32:
            return low
        high = b.zext(self.f.load(I32, row, b.add(at, i64(4 * self.wave)), 4), I64)
        return b.or_(b.zext(low, I64), b.shl(high, i64(32)))

    def put(self, value: Any, row: Any, lane: Any) -> None:
        b, at = self.f.b, self.f.b.mul(lane, i64(4))
        if self.bits == 32:
            self.f.store(value, row, at, 4)
            return
        self.f.store(b.trunc(value, I32), row, at, 4)
        high = b.trunc(b.lshr(value, i64(32)), I32)
        self.f.store(high, row, b.add(at, i64(4 * self.wave)), 4)

    def check(self, address: Any, w: Any, pc: Any, lane: Any) -> None:
        """Ends the function with a fault where a word is not at a multiple of its size."""
        f, b = self.f, self.f.b
        odd = b.icmp_signed("!=", b.and_(address, i64(self.bits // 8 - 1)), i64(0))
        with f.when(odd):
            arguments = [w, i32(Fault.ALIGNMENT), pc, b.trunc(lane, I32), address, i32(self.bits // 8)]
            f.call("record", ir.VoidType(), arguments)
            b.ret(i32(Status.FAULT))


def _atomic(module: Any, wave: int, space: str, bits: int) -> None:
    """atomic_*_*(w, destination row, address row, offset, data row, compare row, operation, pc)."""
    f = Function(module, f"atomic_{space}_{bits}", I32, [PTR, PTR, PTR, I64, PTR, PTR, I32, I32])
    w, dst, row, offset, data, compare, operation, pc = f.args
    b, words = f.b, Words(f, wave, bits)
    out = f.local(ir.ArrayType(I64, wave), align=64)
    mode = f.call(f"addresses_{space}", I32, [w, row, offset, i64(bits // 8), pc, out])
    with f.when(b.icmp_signed("<", mode, i32(0))):
        b.ret(i32(Status.FAULT))
    base = b.ptrtoint(f.load(PTR, w, Header.LDS, 8), I64) if space == "local" else i64(0)

    def change(lane: Any) -> None:
        address = lane_address(f, out, mode, i64(bits // 8), lane)
        words.check(b.sub(address, base), w, pc, lane)
        arguments = [address, operation, words.get(data, lane), words.get(compare, lane)]
        words.put(f.call(f"change_{bits}", ir.IntType(bits), arguments), dst, lane)

    with lanes.active(f, w) as lane:
        change(lane)
    b.ret(i32(0))
    f.finish()
