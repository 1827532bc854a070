"""Writing the runtime's functions: llvmlite's builder with structured loops and raw memory access."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from llvmlite import ir

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
HALF, FLOAT, PTR, VOID = ir.HalfType(), ir.FloatType(), ir.PointerType(), ir.VoidType()


def i32(value: int) -> Any:
    """A 32-bit constant."""
    return ir.Constant(I32, value)


def i64(value: int) -> Any:
    """A 64-bit constant."""
    return ir.Constant(I64, value)


def splat(element: Any, count: int, value: int) -> Any:
    """A constant vector of equal elements."""
    return ir.Constant(ir.VectorType(element, count), [ir.Constant(element, value)] * count)


class Function:
    """A function in the making. Local variables live in stack slots, which LLVM turns into registers.

    Args:
        private: only functions of its module call it, no kernel.
    """

    def __init__(
        self,
        module: Any,
        name: str,
        result: Any,
        arguments: Sequence[Any],
        private: bool = False,
    ) -> None:
        self.module = module
        self.function = ir.Function(module, ir.FunctionType(result, list(arguments)), name)
        if private:
            self.function.linkage = "internal"
        self.args = self.function.args
        self.entry = self.function.append_basic_block("entry")
        self.body = self.function.append_basic_block("body")
        self.b = ir.IRBuilder(self.body)

    def finish(self) -> Any:
        """Closes the entry block; the function."""
        ir.IRBuilder(self.entry).branch(self.body)
        return self.function

    def local(self, ty: Any, value: Any = None, align: int = 0) -> Any:
        """A stack slot, set to ``value`` here."""
        slot = ir.IRBuilder(self.entry).alloca(ty)
        slot.type = PTR  # opaque, like every other pointer here
        if align:
            slot.align = align
        if value is not None:
            self.b.store(value, slot)
        return slot

    def at(self, pointer: Any, offset: Any) -> Any:
        """``pointer`` plus bytes."""
        offset = i64(offset) if isinstance(offset, int) else offset
        return self.b.gep(pointer, [offset], source_etype=I8)

    def load(self, ty: Any, pointer: Any, offset: Any = 0, align: int = 1) -> Any:
        return self.b.load(self.at(pointer, offset), align=align, typ=ty)

    def store(self, value: Any, pointer: Any, offset: Any = 0, align: int = 1) -> Any:
        return self.b.store(value, self.at(pointer, offset), align=align)

    def get(self, slot: Any, ty: Any) -> Any:
        return self.b.load(slot, typ=ty)

    def call(self, name: str, result: Any, arguments: Sequence[Any]) -> Any:
        """Calls a function of the module or an intrinsic, declaring it if need be."""
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.b.call(function, list(arguments))

    @contextlib.contextmanager
    def loop(self, count: Any, ty: Any = I64, step: Any = None) -> Iterator[Any]:
        """Repeats its body for 0 to ``count`` - 1, or for every ``step``-th of them."""
        index = self.local(ty, ir.Constant(ty, 0))
        count = ir.Constant(ty, count) if isinstance(count, int) else count
        head, body, tail = (self.function.append_basic_block(n) for n in ("head", "loop", "tail"))
        self.b.branch(head)
        self.b.position_at_end(head)
        value = self.get(index, ty)
        self.b.cbranch(self.b.icmp_signed("<", value, count), body, tail)
        self.b.position_at_end(body)
        yield value
        if not self.b.block.is_terminated:
            self.b.store(self.b.add(value, ir.Constant(ty, 1) if step is None else step), index)
            self.b.branch(head)
        self.b.position_at_end(tail)

    @contextlib.contextmanager
    def lanes(self, mask: Any) -> Iterator[Any]:
        """Repeats its body for the number of each set bit of the i32 ``mask``, ascending, as an i64."""
        rest = self.local(I32, mask)
        head, body, tail = (self.function.append_basic_block(n) for n in ("bits", "lane", "done"))
        self.b.branch(head)
        self.b.position_at_end(head)
        value = self.get(rest, I32)
        self.b.cbranch(self.b.icmp_unsigned("!=", value, i32(0)), body, tail)
        self.b.position_at_end(body)
        yield self.b.zext(self.call("llvm.cttz.i32", I32, [value, ir.Constant(I1, 1)]), I64)
        if not self.b.block.is_terminated:
            self.b.store(self.b.and_(value, self.b.sub(value, i32(1))), rest)
            self.b.branch(head)
        self.b.position_at_end(tail)

    @contextlib.contextmanager
    def when(self, condition: Any) -> Iterator[None]:
        """Executes its body where ``condition`` holds."""
        with self.b.if_then(condition):
            yield

    def reduce(self, operation: str, value: Any) -> Any:
        """A horizontal reduction: ``umin``, ``umax``, ``or``, ``and``."""
        ty = value.type
        name = f"llvm.vector.reduce.{operation}.v{ty.count}i{ty.element.width}"
        return self.call(name, ty.element, [value])

    def broadcast(self, value: Any, count: int) -> Any:
        """A vector of equal elements."""
        ty = ir.VectorType(value.type, count)
        single = self.b.insert_element(ir.Constant(ty, ir.Undefined), value, i32(0))
        return self.b.shuffle_vector(single, ir.Constant(ty, ir.Undefined), splat(I32, count, 0))

    def blend_store(self, mask: Any, value: Any, pointer: Any) -> None:
        """Stores the elements of ``value`` whose bit in the i32 ``mask`` is set."""
        bits = self.b.bitcast(mask, ir.VectorType(I1, value.type.count))
        old = self.b.load(pointer, align=32, typ=value.type)
        self.b.store(self.b.select(bits, value, old), pointer, align=32)
