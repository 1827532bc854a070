"""Memory and lanes of a kernel: calls of the runtime on register rows."""

from __future__ import annotations

from dataclasses import replace

from pytest_qcom.isa import access
from pytest_qcom.isa.instruction import (
    Atomic,
    Instr,
    Kind,
    Load,
    Operand,
    Shuffle,
    Space,
    Store,
)
from pytest_qcom.isa.registers import ADDRESS, FIRST_SHARED, Ty
from pytest_qcom.virtual.executor.atomic_ops import ATOMICS
from pytest_qcom.virtual.executor.emission import Emission
from pytest_qcom.virtual.executor.lane_ops import SHUFFLES
from pytest_qcom.virtual.executor.layout import Header

_RESULTS = Header.SCRATCH + 8 * Header.SCRATCH_ROW  # rows for results that do not go to plain registers

_NOTHING = Operand(Kind.IMM, 0)


class Accesses(Emission):
    """Category 6 but for images, and quads. Operands in no plain register rows are copied to scratch."""

    def _plain(self, operand: Operand, count: int) -> bool:
        """Whether the operand's ``count`` scalars lie in rows of the wave state as they are."""
        merged_half = operand.half and self.layout.merged
        return operand.kind is Kind.GPR and operand.value + count <= FIRST_SHARED and not merged_half

    def _row(self, number: int, half: bool) -> int:
        return self.layout.half_row(number) if half else self.layout.full_row(number)

    def _source_rows(self, operand: Operand, count: int, slot: int, narrow: bool = False) -> int:
        """Offset of ``count`` consecutive rows with the operand's values; copied to scratch if need be.

        ``narrow`` keeps halves as rows of 16 bits; else rows are 32 bits wide.
        """
        if self._plain(operand, count) and operand.half == narrow:
            return self._row(operand.value, operand.half)
        segment = self._open()
        offset = Header.SCRATCH + slot * Header.SCRATCH_ROW
        bits, step = (16, 2) if narrow else (32, 4)
        for index in range(count):
            if operand.kind is Kind.IMM:
                value = self.builder.const(Ty.U32, operand.value if index == 0 else 0)
            elif operand.kind is Kind.CONST:
                value = segment.constant(operand.value + index, operand.half, Ty.U32)
            else:
                value = segment.register(operand.value + index, operand.half)
            value = self.builder.resize(value, bits, False)
            segment.put(("t" if narrow else "s", offset + index * step * self.layout.wave), value)
        return offset

    def _target_rows(self, operand: Operand, count: int) -> int:
        """Offset of the rows that the runtime shall write for a destination."""
        if self._plain(operand, count):
            return self._row(operand.value, operand.half)
        return _RESULTS

    def _collect(self, operand: Operand, components: list[int], count: int) -> None:
        """Moves results from scratch to where they belong."""
        if self._plain(operand, count):
            return
        step = (2 if operand.half else 4) * self.layout.wave
        for component in components:
            segment = self._open()
            value = segment.get(("t" if operand.half else "s", _RESULTS + component * step))
            self._write(operand.value + component, operand.half, value)

    def _memory(self, index: int, instr: Instr, effect: Load | Store | Atomic) -> None:
        if isinstance(effect, Atomic):
            self._atomic(index, instr, effect)
        else:
            self._linear(index, instr, effect)

    def _linear(self, index: int, instr: Instr, effect: Load | Store) -> None:
        """Loads and stores of global, local and private memory."""
        load = isinstance(effect, Load)
        ty, count = instr.type, instr["count"]
        letter = {Space.GLOBAL: "g", Space.LOCAL: "l", Space.PRIVATE: "p"}[effect.space]
        name = f"{'ld' if load else 'st'}{letter}_{ty.bits}_{16 if ty.half else 32}"
        data = instr.dst if load else instr.srcs[-1]
        assert data is not None
        indexed = len(instr.srcs) - (not load) == 2
        address, offset = self._address(instr, effect.space, indexed)
        rows = self._target_rows(data, count) if load else self._source_rows(data, count, 2, data.half)
        self._close()
        numbers = (("i64", str(offset)), ("i32", str(count)), ("i32", str(index)))
        self._checked(name, ("ptr", self._at(rows)), ("ptr", self._at(address)), *numbers)
        if load:
            self._collect(data, list(range(count)), count)

    def _address(self, instr: Instr, space: Space, indexed: bool) -> tuple[int, int]:
        """Rows of the address, and the bytes to add to it."""
        wide = space is Space.GLOBAL
        if not indexed:
            return self._source_rows(instr.srcs[0], 2 if wide else 1, 0), instr.get("offset")
        segment, builder = self._open(), self.builder
        base, register = instr.srcs[0], instr.srcs[1]
        scaled = builder.shl(segment.register(register.value, False), builder.const(Ty.U32, instr["shift"]))
        scaled = builder.add(scaled, builder.const(Ty.U32, instr["offset"]))
        size = {8: 0, 16: 1, 32: 2}[instr.type.bits]
        scaled = builder.shl(scaled, builder.const(Ty.U32, size))
        low = segment.register(base.value, False)
        total = builder.add(low, scaled)
        carry = builder.icmp("lt", total, low, False)
        one, zero = builder.const(Ty.U32, 1), builder.const(Ty.U32, 0)
        high = builder.add(segment.register(base.value + 1, False), builder.select(carry, one, zero))
        segment.put(("s", Header.SCRATCH), total)
        segment.put(("s", Header.SCRATCH + 4 * self.layout.wave), high)
        return Header.SCRATCH, 0

    def _atomic(self, index: int, instr: Instr, effect: Atomic) -> None:
        words = access.atomic_words(instr)
        wide = effect.space is Space.GLOBAL
        swap = effect.operation == "cmpxchg"
        address = self._source_rows(instr.srcs[0], 2 if wide else 1, 0)
        data = self._source_rows(instr.srcs[1], words * (1 + swap), 4)
        assert instr.dst is not None
        target = self._target_rows(instr.dst, words)
        self._close()
        value, compare = data, data + (4 * words * self.layout.wave if swap else 0)
        pointers = [("ptr", self._at(at)) for at in (target, address)]
        operands = [("ptr", self._at(at)) for at in (value, compare)]
        numbers = (("i32", str(operation(instr, effect))), ("i32", str(index)))
        name = f"atomic_{effect.space.value}_{32 * words}"
        self._checked(name, *pointers, ("i64", "0"), *operands, *numbers)
        self._collect(instr.dst, list(range(words)), words)

    def _preset(self, index: int, instr: Instr) -> None:
        """stc: constants from here on, also of this wave."""
        count = instr["count"]
        data = self._source_rows(instr.srcs[0], count, 2)
        base = self._source_rows(Operand(Kind.GPR, ADDRESS + 1, True) if instr["a1"] else _NOTHING, 1, 0)
        self._close()
        numbers = [("i32", str(n)) for n in (instr["offset"], count, index)]
        self._checked("preset", ("ptr", self._at(data)), ("ptr", self._at(base)), *numbers)

    def _shuffle(self, instr: Instr) -> None:
        effect, value, dst = instr.op.effect, instr.srcs[0], instr.dst
        assert isinstance(effect, Shuffle) and dst is not None
        mode = effect.of(instr)
        operand = instr.srcs[1] if len(instr.srcs) > 1 else Operand(Kind.IMM, 0)
        bits = 16 if dst.half else 32
        for component in range(access.vector(instr)):
            if not instr.get("wrmask", 1) >> component & 1:
                continue
            into = replace(dst, value=dst.value + component)
            indices = self._source_rows(operand, 1, 0)
            rows = self._source_rows(replace(value, value=value.value + component), 1, 2, value.half)
            target = self._target_rows(into, 1)
            self._close()
            pointers = [("ptr", self._at(at)) for at in (target, rows, indices)]
            self._call(
                "void", f"shuffle_{bits}", ("ptr", "%w"), *pointers, ("i32", str(SHUFFLES.index(mode)))
            )
            self._collect(into, [0], 1)


def operation(instr: Instr, effect: Atomic) -> int:
    """The runtime's number of an atomic's operation."""
    name = effect.operation
    return ATOMICS.index(f"u{name}" if name in ("min", "max") and not instr.type.signed else name)
