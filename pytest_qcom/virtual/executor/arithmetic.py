"""Arithmetic of a kernel: what the instruction table computes, on the rows of a wave."""

from __future__ import annotations

from pytest_qcom.isa import access
from pytest_qcom.isa.instruction import (
    Instr,
    Kind,
    Operand,
)
from pytest_qcom.isa.registers import ADDRESS, FIRST_SHARED, Ty
from pytest_qcom.isa.semantics import evaluate
from pytest_qcom.virtual.executor.emission import Emission
from pytest_qcom.virtual.executor.layout import CHUNK, Header, shared_offset
from pytest_qcom.virtual.executor.llvm_builder import Value, vector


class Arithmetic(Emission):
    """Categories 1 to 4, and lane numbers."""

    def _alu(self, index: int, instr: Instr) -> None:
        if any(o.kind in (Kind.REL_GPR, Kind.REL_CONST) for o in (*instr.srcs, instr.dst) if o is not None):
            self._relative(index, instr)
            return
        values = []
        parallel = access.parallel(instr)
        assert instr.dst is not None
        for element in range(access.elements(instr)):
            value = evaluate(self.builder, instr, element, self._open().read)
            number = access.destination(instr, element).value
            if parallel and not FIRST_SHARED <= number < ADDRESS:
                values.append((number, value))
            else:
                self._write(number, instr.dst.half, value)
        for number, value in values:
            self._write(number, instr.dst.half, value)

    def _relative(self, index: int, instr: Instr) -> None:
        """Operands that a0.x displaces: lane by lane through scratch rows, an element at a time."""
        assert instr.dst is not None
        for element in range(access.elements(instr)):
            rows: dict[Operand, Value] = {}
            places: dict[Operand, int] = {}
            self._close()
            for operand in instr.srcs:
                if operand.kind in (Kind.REL_GPR, Kind.REL_CONST) and operand not in places:
                    places[operand] = self._fetch_relative(index, operand, element, len(places))
            segment = self._open()
            for operand, offset in places.items():
                short = operand.half and not self._demotes(operand)
                rows[operand] = segment.get(("t" if short else "s", offset))

            def fetch(operand: Operand, step: int, ty: Ty, rows: dict[Operand, Value] = rows) -> Value:
                if operand not in rows:
                    return self._open().read(operand, step, ty)
                return self._open().demote(rows[operand], ty) if self._demotes(operand) else rows[operand]

            value = evaluate(self.builder, instr, element, fetch)
            if instr.dst.kind is not Kind.REL_GPR:
                self._write(access.destination(instr, element).value, instr.dst.half, value)
                continue
            offset = Header.SCRATCH
            segment.put(("t" if instr.dst.half else "s", offset), value)
            self._close()
            self._move_relative(index, "put", instr.dst, element, offset)

    def _fetch_relative(self, index: int, operand: Operand, element: int, slot: int) -> int:
        offset = Header.SCRATCH + slot * Header.SCRATCH_ROW
        step = element if operand.repeat else 0
        if operand.kind is Kind.REL_GPR:
            self._move_relative(index, "get", operand, step, offset)
            return offset
        arguments = (("ptr", self._at(offset)), ("ptr", self._at(Header.ADDRESS)))
        bits = 16 if operand.half and not self.demoted else 32
        numbers = (("i32", str(operand.value + step)), ("i32", str(index)))
        self._checked(f"constant_{bits}", *arguments, *numbers)
        return offset

    def _demotes(self, operand: Operand) -> bool:
        return operand.kind is Kind.REL_CONST and operand.half and self.demoted

    def _move_relative(self, index: int, way: str, operand: Operand, element: int, offset: int) -> None:
        half, merged = operand.half, self.layout.merged
        file = self.layout.half_row(0) if half and not merged else self.layout.full_row(0)
        arguments = [("ptr", self._at(at)) for at in (offset, file, Header.ADDRESS)]
        numbers = [("i32", str(n)) for n in (operand.value + element, FIRST_SHARED, index)]
        kind = "32" if not half else "merged" if merged else "16"
        self._checked(f"{way}_{kind}", *arguments, *numbers)

    def _active_mask(self, instr: Instr) -> None:
        """The active fibers as bits, 32 a register; words beyond the wave are zero."""
        for element in range(access.elements(instr)):
            number, inside = access.destination(instr, element).value, 32 * element < self.layout.wave
            offset = Header.ACTIVE + 4 * element
            if FIRST_SHARED <= number < ADDRESS:
                self._close()
                pointer = self._at(offset)
                scalar = self.builder.emit(f"load i32, ptr {pointer}, align 4") if inside else "0"
                self._set(shared_offset(number), "i32", scalar)
            else:
                segment = self._open()
                word = segment.scalar(offset) if inside else self.builder.const(Ty.U32, 0)
                self._write(number, False, word)

    def _fiber_id(self, instr: Instr) -> None:
        assert instr.dst is not None
        segment = self._open()
        numbers = ", ".join(f"i32 {lane}" for lane in range(CHUNK))
        first = self.builder.emit(f"mul i64 {segment.index}, {CHUNK}")
        first32 = self.builder.emit(f"trunc i64 {first} to i32")
        ty = vector("i32")
        single = self.builder.emit(f"insertelement {ty} poison, i32 {first32}, i64 0")
        base = self.builder.emit(f"shufflevector {ty} {single}, {ty} poison, {ty} zeroinitializer")
        lane = Value(self.builder.emit(f"add {ty} {base}, <{numbers}>"), "i32")
        half = instr.dst.half
        self._write(instr.dst.value, half, self.builder.resize(lane, 16 if half else 32, False))
