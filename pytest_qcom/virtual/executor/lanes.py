"""Loops of the runtime over the lanes of a wave."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor.irgen import I1, I32, I64, Function, i32, i64
from pytest_qcom.virtual.executor.layout import CHUNK, Header


def count(f: Function, w: Any) -> Any:
    """How many chunks contain live lanes."""
    return f.b.zext(f.load(I32, w, Header.CHUNKS, 4), I64)


def first(f: Function, w: Any, wave: int) -> Any:
    """The first active lane; lane 0 where there is none."""
    bits = f.load(ir.IntType(wave), w, Header.ACTIVE, 8)
    lane = f.call(f"llvm.cttz.i{wave}", bits.type, [bits, ir.Constant(I1, 0)])
    return f.b.and_(f.b.trunc(lane, I64) if wave > 64 else lane, i64(wave - 1))


@contextlib.contextmanager
def chunks(f: Function, w: Any) -> Iterator[tuple[Any, Any]]:
    """Repeats its body for each chunk with active lanes: a bit for each of them, and its first lane."""
    with f.loop(count(f, w)) as chunk:
        mask = f.load(I32, w, f.b.add(f.b.mul(chunk, i64(4)), i64(Header.ACTIVE)), 4)
        with f.when(f.b.icmp_signed("!=", mask, i32(0))):
            yield mask, f.b.mul(chunk, i64(CHUNK))


@contextlib.contextmanager
def active(f: Function, w: Any) -> Iterator[Any]:
    """Repeats its body for the number of each active lane, ascending."""
    with chunks(f, w) as (mask, first), f.lanes(mask) as bit:
        yield f.b.add(bit, first)
