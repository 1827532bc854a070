"""Straight-line code: a loop over the chunks of a wave, with registers kept as SSA values inside.

A register is loaded where it is first read and stored once, where it was last written: early enough that
its value need not be carried to the end, which would only make LLVM spill it.
"""

from __future__ import annotations

from pytest_qcom.isa.instruction import Kind, Operand
from pytest_qcom.isa.registers import ADDRESS, FIRST_SHARED, PREDICATE, Ty
from pytest_qcom.virtual.executor.layout import CHUNK, SHARED_SCALARS, Header, Layout, shared_offset
from pytest_qcom.virtual.executor.llvm_builder import CLEAN, EXACT, LlvmBuilder, Value, vector

Key = tuple[str, int]
"""A row: ``f`` full and ``h`` half registers, ``p`` predicates, ``a`` addresses, ``s`` and ``t`` scratch
offsets of 32 and 16-bit rows."""

_WORD = {"f": "i32", "h": "i16", "a": "i16", "s": "i32", "t": "i16"}


def exists(number: int) -> bool:
    """Whether there is a register of that number: r0 to r55, a0.x and a1.x, p0. Others read as zero here."""
    return number < FIRST_SHARED + SHARED_SCALARS or 0 <= number - ADDRESS < 2 or 0 <= number - PREDICATE < 4


class Segment:
    """Emits one chunk loop. Values are those of the chunk that the loop is at.

    Args:
        masked: only active lanes may be written.
        demoted: half constants are converted from 32 bits (``CONSTANT_DEMOTION_ENABLE``).
        clean: half registers without subnormals, see :mod:`~pytest_qcom.virtual.executor.dataflow`.
    """

    def __init__(
        self, builder: LlvmBuilder, layout: Layout, name: str, masked: bool, demoted: bool, clean: int
    ) -> None:
        self.builder, self.layout, self.name = builder, layout, name
        self.masked, self.demoted, self.clean = masked, demoted, clean
        self._cache: dict[Key, Value] = {}
        self._writes: dict[Key, int] = {}
        self._bases: dict[str, str] = {}
        self._constants: dict[tuple[int, str], Value] = {}
        builder.forget()
        index = self.index = f"%i.{name}"
        # The block before must branch to ``name``; it is the one labelled ``before.name``.
        builder.lines += [
            f"  br label %before.{name}",
            f"before.{name}:",
            f"  br label %{name}",
            f"{name}:",
            f"  {index} = phi i64 [ 0, %before.{name} ], [ {index}.next, %{name} ]",
        ]
        self._mask = ""

    def close(self) -> None:
        """Ends the loop."""
        builder, name = self.builder, self.name
        for key, position in self._writes.items():
            builder.lines[position] = self._store_text(key, self._cache[key])
        builder.lines += [
            f"  {self.index}.next = add i64 {self.index}, 1",
            f"  %c.{name} = icmp ult i64 {self.index}.next, %chunks",
            f"  br i1 %c.{name}, label %{name}, label %after.{name}",
            f"after.{name}:",
        ]

    # rows

    def _base(self, kind: str) -> str:
        """The wave state displaced by the chunk, for rows of ``kind``."""
        step = {"f": 4, "s": 4, "h": 2, "a": 2, "t": 2, "p": 0}[kind] * CHUNK or CHUNK // 8
        known = self._bases.get(str(step))
        if known is None:
            offset = self.builder.emit(f"mul i64 {self.index}, {step}")
            known = self.builder.emit(f"getelementptr i8, ptr %w, i64 {offset}")
            self._bases[str(step)] = known
        return known

    def _offset(self, key: Key) -> int:
        kind, number = key
        if kind in "fh" and number >= (self.layout.full if kind == "f" else self.layout.half):
            raise AssertionError(
                f"row {number} of file {kind}, beyond it: its code would leave the wave state"
            )
        if kind == "f":
            return self.layout.full_row(number)
        if kind == "h":
            return self.layout.half_row(number)
        if kind == "p":
            return Header.PREDICATES + 16 * number
        if kind == "a":
            return Header.ADDRESS + 2 * 128 * number
        return number

    def _pointer(self, key: Key) -> str:
        return self.builder.emit(f"getelementptr i8, ptr {self._base(key[0])}, i64 {self._offset(key)}")

    def _load(self, key: Key) -> Value:
        pointer = self._pointer(key)
        if key[0] == "p":
            bits = self.builder.emit(f"load i32, ptr {pointer}, align 4")
            return Value(self.builder.emit(f"bitcast i32 {bits} to {vector('i1')}"), "i1")
        element = _WORD[key[0]]
        flush = CLEAN if key[0] == "h" and self.clean >> (256 + key[1]) & 1 else EXACT
        return Value(self.builder.emit(f"load {vector(element)}, ptr {pointer}, align 32"), element, flush)

    def _store_text(self, key: Key, value: Value) -> str:
        """The store of ``value``, blended with what is there for inactive lanes."""
        builder = self.builder
        saved, builder.lines = builder.lines, []
        mask = self._active() if self.masked else ""
        pointer = self._pointer(key)
        ref = value.ref
        if key[0] == "p":
            ref = builder.emit(f"bitcast {vector('i1')} {ref} to i32")
            if mask:
                old = builder.emit(f"load i32, ptr {pointer}, align 4")
                off = builder.emit(f"xor i32 %m.{self.name}, -1")
                kept, new = (
                    builder.emit(f"and i32 {old}, {off}"),
                    builder.emit(f"and i32 {ref}, %m.{self.name}"),
                )
                ref = builder.emit(f"or i32 {kept}, {new}")
            builder.lines.append(f"  store i32 {ref}, ptr {pointer}, align 4")
        else:
            ty = vector(value.element)
            if mask:
                old = builder.emit(f"load {ty}, ptr {pointer}, align 32")
                ref = builder.emit(f"select {vector('i1')} {mask}, {ty} {ref}, {ty} {old}")
            builder.lines.append(f"  store {ty} {ref}, ptr {pointer}, align 32")
        text, builder.lines = "\n".join(builder.lines), saved
        return text

    def _active(self) -> str:
        """The active lanes of the chunk."""
        return self._mask

    def prepare(self) -> None:
        """Loads what stores need, so that it precedes all of them."""
        for kind in ("f", "h", "p"):
            self._base(kind)
        if self.masked:
            pointer = self.builder.emit(f"getelementptr i8, ptr {self._base('p')}, i64 {Header.ACTIVE}")
            self.builder.lines.append(f"  %m.{self.name} = load i32, ptr {pointer}, align 4")
            self._mask = self.builder.emit(f"bitcast i32 %m.{self.name} to {vector('i1')}")

    def get(self, key: Key) -> Value:
        """The present value of a row, as an integer or condition."""
        known = self._cache.get(key)
        if known is None:
            known = self._cache[key] = self._load(key)
        return known

    def put(self, key: Key, value: Value) -> None:
        """Gives a row its next value."""
        self._cache[key] = value
        self._writes[key] = len(self.builder.lines)
        self.builder.lines.append("")

    # operands

    def read(self, operand: Operand, element: int, ty: Ty) -> Value:
        """The raw bits of a register or constant source, for :func:`~pytest_qcom.isa.semantics.evaluate`."""
        number = operand.value + (element if operand.repeat else 0)
        if operand.kind is Kind.CONST:
            return self.constant(number, operand.half, ty)
        return self.register(number, operand.half)

    def register(self, number: int, half: bool) -> Value:
        """The bits of a register."""
        if not exists(number):
            return self.builder.const(Ty.U16 if half else Ty.U32, 0)
        if number >= PREDICATE:
            cond = self.get(("p", number - PREDICATE))
            element = "i16" if half else "i32"
            ref = self.builder.emit(f"sext {vector('i1')} {cond.ref} to {vector(element)}")
            return Value(ref, element)
        if number >= ADDRESS:
            value = self.get(("a", number - ADDRESS))
            return value if half else self.builder.resize(value, 32, True)
        if number >= FIRST_SHARED:
            scalar = self.builder.emit(f"getelementptr i8, ptr %w, i64 {shared_offset(number)}")
            value = self._splat("i32", scalar)
            return self.builder.resize(value, 16, False) if half else value
        if not half:
            return self.get(("f", number))
        if not self.layout.merged:
            return self.get(("h", number))
        whole = self.get(("f", number >> 1))
        if number & 1:
            whole = self.builder.lshr(whole, self.builder.const(Ty.U32, 16))
        return self.builder.resize(whole, 16, False)

    def write(self, number: int, half: bool, value: Value) -> None:
        """Sets a register; ``value`` has its width, or is a condition for a predicate."""
        builder = self.builder
        if not exists(number):
            return
        if number >= PREDICATE:
            self.put(("p", number - PREDICATE), builder.nonzero(value))
        elif number >= ADDRESS:
            self.put(("a", number - ADDRESS), builder.resize(value, 16, False))
        elif not half:
            self.put(("f", number), value)
        elif not self.layout.merged:
            self.put(("h", number), value)
        else:
            whole = self.get(("f", number >> 1))
            kept = builder.and_(whole, builder.const(Ty.U32, 0xFFFF if number & 1 else 0xFFFF0000))
            wide = builder.resize(value, 32, False)
            if number & 1:
                wide = builder.shl(wide, builder.const(Ty.U32, 16))
            self.put(("f", number >> 1), builder.or_(kept, wide))

    def constant(self, number: int, half: bool, ty: Ty) -> Value:
        """A scalar of the constant file, in all lanes."""
        mode = f"{half}{half and self.demoted and ty is Ty.F16}"
        known = self._constants.get((number, mode))
        if known is None:
            known = self._constants[number, mode] = self._load_constant(number, half, ty)
        return known

    def _load_constant(self, number: int, half: bool, ty: Ty) -> Value:
        builder = self.builder
        size = 2 if half and not self.demoted else 4
        pointer = builder.emit(f"getelementptr i8, ptr %constants, i64 {size * number}")
        value = self._splat("i16" if size == 2 else "i32", pointer)
        return self.demote(value, ty) if half and self.demoted else value

    def scalar(self, offset: int) -> Value:
        """The word at ``offset`` of the wave state, in all lanes."""
        return self._splat("i32", self.builder.emit(f"getelementptr i8, ptr %w, i64 {offset}"))

    def demote(self, value: Value, ty: Ty) -> Value:
        """A 32-bit constant as a half one: converted as floats, or truncated [rounding undocumented]."""
        builder = self.builder
        if ty is Ty.F16:
            number = builder.flush(builder.as_float(value))
            return builder.as_int(builder.fconvert(number, Ty.F16, "zero"))
        return builder.resize(value, 16, False)

    def _splat(self, element: str, pointer: str) -> Value:
        builder, ty = self.builder, vector(element)
        scalar = builder.emit(f"load {element}, ptr {pointer}, align {int(element[1:]) // 8}")
        single = builder.emit(f"insertelement {ty} poison, {element} {scalar}, i64 0")
        zeros = f"{vector('i32')} zeroinitializer"
        return Value(builder.emit(f"shufflevector {ty} {single}, {ty} poison, {zeros}"), element)
