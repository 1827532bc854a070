"""The instruction table run on numpy: slow, exact, one instruction at a time.

A value is an array over fibers: ``uint16``/``uint32`` integers, ``float16``/``float32`` floats, ``bool``
conditions. The executor is tested against it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qcom.isa import access
from pytest_qcom.isa.instruction import Instr, Kind, Operand
from pytest_qcom.isa.registers import ADDRESS, PREDICATE, Ty
from pytest_qcom.isa.semantics import evaluate

Array = npt.NDArray[Any]

_UNSIGNED: dict[int, Any] = {16: np.uint16, 32: np.uint32}
_SIGNED: dict[int, Any] = {16: np.int16, 32: np.int32}
_FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32}
_RELATIONS: dict[str, Any] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_WHOLE: dict[str, Any] = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "even": np.rint}
_SFU: dict[str, Any] = {
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / np.sqrt(x),
    "log2": np.log2,
    "exp2": np.exp2,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
}


def _bits(a: Array) -> int:
    return 8 * a.dtype.itemsize


def _as_signed(a: Array) -> Array:
    return a.view(_SIGNED[_bits(a)])


class NumpyBuilder:
    """The algebra of :class:`~pytest_qcom.isa.semantics.Builder` on numpy arrays."""

    def const(self, ty: Ty, value: int | float) -> Array:
        bits = 16 if ty.half else 32
        if ty.float:
            return np.array(value, _FLOATS[bits])
        return np.array(int(value) & (1 << bits) - 1, _UNSIGNED[bits])

    # integer

    def add(self, a: Array, b: Array) -> Array:
        return np.add(a, b, dtype=a.dtype)

    def sub(self, a: Array, b: Array) -> Array:
        return np.subtract(a, b, dtype=a.dtype)

    def mul(self, a: Array, b: Array) -> Array:
        return np.multiply(a, b, dtype=a.dtype)

    def and_(self, a: Array, b: Array) -> Array:
        return np.asarray(a & b)

    def or_(self, a: Array, b: Array) -> Array:
        return np.asarray(a | b)

    def xor(self, a: Array, b: Array) -> Array:
        return np.asarray(a ^ b)

    def not_(self, a: Array) -> Array:
        return np.asarray(~a)

    def shl(self, a: Array, amount: Array) -> Array:
        return np.asarray(np.left_shift(a, amount & a.dtype.type(_bits(a) - 1), dtype=a.dtype))

    def lshr(self, a: Array, amount: Array) -> Array:
        return np.asarray(np.right_shift(a, amount & a.dtype.type(_bits(a) - 1), dtype=a.dtype))

    def ashr(self, a: Array, amount: Array) -> Array:
        distance = _as_signed(np.asarray(amount & a.dtype.type(_bits(a) - 1)))
        return np.asarray(np.right_shift(_as_signed(a), distance)).view(a.dtype)

    def icmp(self, relation: str, a: Array, b: Array, signed: bool) -> Array:
        pair = (_as_signed(a), _as_signed(b)) if signed else (a, b)
        return np.asarray(_RELATIONS[relation](*pair))

    def clz(self, a: Array) -> Array:
        smeared = a
        for distance in (1, 2, 4, 8, 16):
            if distance < _bits(a):
                smeared = smeared | smeared >> a.dtype.type(distance)
        return np.asarray(a.dtype.type(_bits(a)) - np.bitwise_count(smeared).astype(a.dtype))

    def popcount(self, a: Array) -> Array:
        return np.bitwise_count(a).astype(a.dtype)

    def bitreverse(self, a: Array) -> Array:
        result = np.zeros_like(a)
        for bit in range(_bits(a)):
            result |= (a >> a.dtype.type(bit) & a.dtype.type(1)) << a.dtype.type(_bits(a) - 1 - bit)
        return result

    def resize(self, a: Array, bits: int, signed: bool) -> Array:
        if bits == _bits(a):
            return a
        return (_as_signed(a) if signed else a).astype(_UNSIGNED[bits])

    def low(self, a: Array, bits: int, signed: bool) -> Array:
        if bits >= _bits(a):
            return a
        distance = self.const(Ty.U16 if _bits(a) == 16 else Ty.U32, _bits(a) - bits)
        lifted = self.shl(a, distance)
        return self.ashr(lifted, distance) if signed else self.lshr(lifted, distance)

    # conditions

    def select(self, cond: Array, a: Array, b: Array) -> Array:
        return np.where(cond, a, b)

    def nonzero(self, a: Array) -> Array:
        return np.asarray(a != 0)

    # floats

    def flush(self, a: Array) -> Array:
        zero = np.copysign(np.zeros_like(a), a)
        return np.where(np.abs(a) < np.finfo(a.dtype).smallest_normal, zero, a)

    def fadd(self, a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.flush(np.asarray(a + b))

    def fmul(self, a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.flush(np.asarray(a * b))

    def fmin(self, a: Array, b: Array) -> Array:
        return np.where((b < a) | np.isnan(a), b, a)

    def fmax(self, a: Array, b: Array) -> Array:
        return np.where((b > a) | np.isnan(a), b, a)

    def fneg(self, a: Array) -> Array:
        return np.asarray(-a)

    def fabs(self, a: Array) -> Array:
        return np.abs(a)

    def fcmp(self, relation: str, a: Array, b: Array) -> Array:
        return np.asarray(_RELATIONS[relation](a, b))

    def fround(self, mode: str, a: Array) -> Array:
        with np.errstate(invalid="ignore"):
            if mode != "away":
                return np.asarray(_WHOLE[mode](a))
            whole = np.trunc(a)
            step = np.copysign(np.ones_like(a), a)
            return np.where(np.abs(a - whole) >= 0.5, whole + step, whole)

    def sfu(self, function: str, a: Array) -> Array:
        with np.errstate(all="ignore"):
            exact = _SFU[function](a.astype(np.float64))
            return self.flush(np.asarray(exact).astype(a.dtype))

    # between widths and kinds

    def fconvert(self, a: Array, ty: Ty, rounding: str) -> Array:
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return self.flush(_round(a.astype(np.float64), _FLOATS[ty.bits], rounding))

    def to_int(self, a: Array, bits: int, signed: bool, rounding: str) -> Array:
        function = _WHOLE[{"zero": "trunc", "even": "even", "up": "ceil", "down": "floor"}[rounding]]
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        with np.errstate(invalid="ignore"):
            whole = np.clip(np.nan_to_num(function(a.astype(np.float64)), nan=0), low, high)
        return np.asarray(whole.astype(np.int64).astype(_UNSIGNED[max(bits, 16)]))

    def from_int(self, a: Array, ty: Ty, signed: bool, rounding: str) -> Array:
        exact = (_as_signed(a) if signed else a).astype(np.float64)
        return self.flush(_round(exact, _FLOATS[ty.bits], rounding))

    def as_float(self, a: Array) -> Array:
        return a.view(_FLOATS[_bits(a)])

    def as_int(self, a: Array) -> Array:
        return a.view(_UNSIGNED[_bits(a)])


def _round(exact: Array, dtype: type[np.floating[Any]], rounding: str) -> Array:
    """``exact``, a float64 array, as ``dtype`` with one rounding."""
    with np.errstate(all="ignore"):
        nearest = exact.astype(dtype)
        if rounding == "even":
            return nearest
        back = nearest.astype(np.float64)
        below, above = dtype(-np.inf), dtype(np.inf)
        if rounding == "up":
            return np.where(back < exact, np.nextafter(nearest, above), nearest)
        if rounding == "down":
            return np.where(back > exact, np.nextafter(nearest, below), nearest)
        too_far = np.abs(back) > np.abs(exact)
        return np.where(too_far, np.nextafter(nearest, dtype(0)), nearest)


@dataclass
class Registers:
    """The register files of a wave in split mode, a column a fiber.

    Attributes:
        full: uint32, (192, fibers); shared registers are not modelled.
        half: uint16, (192, fibers).
        constants: uint32 scalars of the constant file.
        predicates: bool, (4, fibers).
        address: int16, (4, fibers): a0.x and a1.x.
        demotion: half constants convert from the 32-bit ones, else they are packed halves.
    """

    full: Array
    half: Array
    constants: Array
    predicates: Array = field(default_factory=lambda: np.zeros((4, 1), bool))
    address: Array = field(default_factory=lambda: np.zeros((4, 1), np.int16))
    demotion: bool = True

    def read(self, operand: Operand, element: int, ty: Ty) -> Array:
        """The bits of a register or constant source: the ``fetch`` of ``evaluate``."""
        operand = access.advance(operand, element)
        relative = operand.kind in (Kind.REL_GPR, Kind.REL_CONST)
        index: Any = operand.value + self.address[0].astype(np.int64) if relative else operand.value
        if operand.kind in (Kind.CONST, Kind.REL_CONST):
            return self._constant(index, operand.half, ty)
        if not relative and operand.value >= PREDICATE:
            set_ = self.predicates[operand.value - PREDICATE]
            return np.asarray(np.negative(set_.astype(_UNSIGNED[16 if operand.half else 32])))
        if not relative and operand.value >= ADDRESS:
            bits = self.address[operand.value - ADDRESS].view(np.uint16)
            return np.asarray(bits if operand.half else bits.astype(np.uint32))
        file = self.half if operand.half else self.full
        return np.asarray(file[index, np.arange(file.shape[1])] if relative else file[index])

    def _constant(self, index: Any, half: bool, ty: Ty) -> Array:
        shape = np.zeros(self.full.shape[1], np.uint32)
        if not half:
            return np.asarray(self.constants[index] + shape)
        if not self.demotion:
            return np.asarray(self.constants.view(np.uint16)[index] + shape.astype(np.uint16))
        value = np.asarray(self.constants[index] + shape)
        if ty is Ty.F16:
            builder = NumpyBuilder()
            return builder.as_int(builder.fconvert(builder.as_float(value), Ty.F16, "zero"))
        return value.astype(np.uint16)

    def write(self, operand: Operand, value: Array, active: Array) -> None:
        """``value`` into the destination ``operand`` of the ``active`` fibers."""
        columns = np.flatnonzero(active)
        value = np.broadcast_to(value, (self.full.shape[1],))[columns]
        if operand.kind is Kind.REL_GPR:
            file = self.half if operand.half else self.full
            file[operand.value + self.address[0, columns].astype(np.int64), columns] = value
        elif operand.value >= PREDICATE:
            if operand.value < PREDICATE + 4:
                self.predicates[operand.value - PREDICATE, columns] = value
        elif operand.value >= ADDRESS:
            self.address[operand.value - ADDRESS, columns] = value.astype(np.uint16).view(np.int16)
        else:
            (self.half if operand.half else self.full)[operand.value, columns] = value


def execute(instr: Instr, registers: Registers, active: Array | None = None) -> None:
    """Run one ALU instruction (cat1 to cat4) with its repeats on ``registers``, in place.

    Args:
        active: bool a fiber, all when ``None``.
    """
    mask = np.ones(registers.full.shape[1], bool) if active is None else active
    builder = NumpyBuilder()
    pending = []
    for element in range(access.elements(instr)):
        value = evaluate(builder, instr, element, registers.read)
        target = access.destination(instr, element)
        if access.parallel(instr):
            pending.append((target, np.array(value)))  # a copy: what was read may be written next
        else:
            registers.write(target, value, mask)
    for target, value in pending:
        registers.write(target, value, mask)
