"""The semantics algebra in LLVM IR: a value is a vector with one element for each lane of a chunk.

IR is written as text. A kernel has thousands of operations, and building it as text costs a tenth of what
the object builder of llvmlite costs, which would be most of the time to a first launch.
"""

from __future__ import annotations

import struct

from pytest_qcom.isa.registers import Ty
from pytest_qcom.virtual.executor.layout import CHUNK
from pytest_qcom.virtual.executor.target import Host

_RELATIONS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}
_MANGLED = {"half": "f16", "float": "f32", "double": "f64", "i16": "i16", "i32": "i32", "i8": "i8"}
_ROUNDS = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "even": "roundeven", "away": "round"}
_SUBNORMAL = 0x20  # vfpclass category

EXACT, PENDING, CLEAN = 0, 1, 2
"""What is known of subnormals in a float: bits must stay; to be read as zeros, not done yet; has none."""


def vector(element: str) -> str:
    """The LLVM type of a chunk of ``element``."""
    return f"<{CHUNK} x {element}>"


class Value:
    """An SSA value or constant: its text, LLVM element type, and for floats what is known of subnormals."""

    __slots__ = ("element", "flush", "ref")

    def __init__(self, ref: str, element: str, flush: int = EXACT) -> None:
        self.ref = ref
        self.element = element
        self.flush = flush

    @property
    def bits(self) -> int:
        return {"half": 16, "float": 32, "i16": 16, "i32": 32, "i1": 1}[self.element]


def constant(element: str, value: int | float) -> str:
    """The text of a chunk of equal constants."""
    if element == "float":
        number = struct.unpack("<f", struct.pack("<f", value))[0]
        return f"splat (float 0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X})"
    if element == "double":
        return f"splat (double 0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X})"
    if element == "half":
        return f"splat (half 0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X})"
    bits = int(element[1:])
    return f"splat ({element} {int(value) & (1 << bits) - 1})"


def _element(ty: Ty) -> str:
    if ty.float:
        return "half" if ty.half else "float"
    return "i16" if ty.half else "i32"


class LlvmBuilder:
    """Implements :class:`~pytest_qcom.isa.semantics.Builder`, emitting into :attr:`lines`.

    Attributes:
        lines: IR text of the function in the making.
        declarations: what it calls.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self._count = 0
        self._casts: dict[tuple[str, str], str] = {}
        self._flushed: dict[str, Value] = {}

    # text

    def name(self) -> str:
        """A fresh SSA name."""
        self._count += 1
        return f"%v{self._count}"

    def emit(self, text: str) -> str:
        """Appends an instruction; the name of its result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def forget(self) -> None:
        """Starts a region that earlier values do not reach."""
        self._casts.clear()
        self._flushed.clear()

    def call(self, result: str, function: str, *arguments: tuple[str, str]) -> str:
        """Calls an intrinsic or runtime function on (type, value) arguments."""
        types = ", ".join(ty for ty, _ in arguments)
        self.declarations.add(f"declare {result} @{function}({types})")
        text = f"call {result} @{function}({', '.join(f'{ty} {value}' for ty, value in arguments)})"
        if result == "void":
            self.lines.append(f"  {text}")
            return ""
        return self.emit(text)

    def intrinsic(self, function: str, a: Value, *rest: tuple[str, str]) -> Value:
        """An elementwise intrinsic that keeps the type of ``a``."""
        ty = vector(a.element)
        name = f"llvm.{function}.v{CHUNK}{_MANGLED[a.element]}"
        return Value(self.call(ty, name, (ty, a.ref), *rest), a.element, a.flush)

    def _binary(self, operation: str, a: Value, b: Value) -> Value:
        return Value(self.emit(f"{operation} {vector(a.element)} {a.ref}, {b.ref}"), a.element)

    def _cast(self, operation: str, a: Value, element: str) -> Value:
        return Value(self.emit(f"{operation} {vector(a.element)} {a.ref} to {vector(element)}"), element)

    def _bitcast(self, ref: str, source: str, element: str) -> str:
        key = (ref, element)
        known = self._casts.get(key)
        if known is None:
            known = self.emit(f"bitcast {vector(source)} {ref} to {vector(element)}")
            self._casts[key] = known
            self._casts[known, source] = ref
        return known

    # constants and integers

    def const(self, ty: Ty, value: int | float) -> Value:
        element = _element(ty)
        return Value(constant(element, value), element, CLEAN if ty.float else EXACT)

    def add(self, a: Value, b: Value) -> Value:
        return self._binary("add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self._binary("sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self._binary("mul", a, b)

    def and_(self, a: Value, b: Value) -> Value:
        return self._binary("and", a, b)

    def or_(self, a: Value, b: Value) -> Value:
        return self._binary("or", a, b)

    def xor(self, a: Value, b: Value) -> Value:
        return self._binary("xor", a, b)

    def not_(self, a: Value) -> Value:
        return self._binary("xor", a, Value(constant(a.element, -1), a.element))

    def _shift(self, operation: str, a: Value, amount: Value) -> Value:
        mask = Value(constant(a.element, a.bits - 1), a.element)
        return self._binary(operation, a, self._binary("and", self._width(amount, a), mask))

    def _width(self, value: Value, like: Value) -> Value:
        return value if value.element == like.element else self.resize(value, like.bits, False)

    def shl(self, a: Value, amount: Value) -> Value:
        return self._shift("shl", a, amount)

    def lshr(self, a: Value, amount: Value) -> Value:
        return self._shift("lshr", a, amount)

    def ashr(self, a: Value, amount: Value) -> Value:
        return self._shift("ashr", a, amount)

    def icmp(self, relation: str, a: Value, b: Value, signed: bool) -> Value:
        prefix = "" if relation in ("eq", "ne") else "s" if signed else "u"
        return Value(self.emit(f"icmp {prefix}{relation} {vector(a.element)} {a.ref}, {b.ref}"), "i1")

    def clz(self, a: Value) -> Value:
        return self.intrinsic("ctlz", a, ("i1", "false"))

    def popcount(self, a: Value) -> Value:
        return self.intrinsic("ctpop", a)

    def bitreverse(self, a: Value) -> Value:
        return self.intrinsic("bitreverse", a)

    def resize(self, a: Value, bits: int, signed: bool) -> Value:
        if a.bits == bits:
            return self.as_int(a)
        return self._cast("trunc" if bits < a.bits else "sext" if signed else "zext", a, f"i{bits}")

    def low(self, a: Value, bits: int, signed: bool) -> Value:
        if bits >= a.bits:
            return a
        if not signed:
            return self.and_(a, Value(constant(a.element, (1 << bits) - 1), a.element))
        amount = Value(constant(a.element, a.bits - bits), a.element)
        return self._binary("ashr", self._binary("shl", a, amount), amount)

    # conditions

    def select(self, cond: Value, a: Value, b: Value) -> Value:
        ty = vector(a.element)
        ref = self.emit(f"select {vector('i1')} {cond.ref}, {ty} {a.ref}, {ty} {b.ref}")
        flush = EXACT if EXACT in (a.flush, b.flush) else min(a.flush, b.flush)
        return Value(ref, a.element, flush)

    def nonzero(self, a: Value) -> Value:
        if a.element == "i1":
            return a
        bits = self.as_int(a)
        return self.icmp("ne", bits, Value("zeroinitializer", bits.element), False)

    # floats

    def flush(self, a: Value) -> Value:
        return a if a.flush == CLEAN else Value(a.ref, a.element, PENDING)

    def _clean(self, a: Value) -> Value:
        """``a`` without subnormals, unless its bits were asked for."""
        if a.flush != PENDING:
            return a
        known = self._flushed.get(a.ref)
        if known is None:
            known = self._flush_half(a) if a.element == "half" else self._flush_float(a)
            self._flushed[a.ref] = known
        return known

    def _flush_half(self, a: Value) -> Value:
        if not self.host.half_class:
            return self._flush_bits(a, "i16", 0x7C00, 0x8000)
        ty = vector("half")
        name = f"llvm.x86.avx512fp16.fpclass.ph.{16 * CHUNK}"
        cond = self.call(vector("i1"), name, (ty, a.ref), ("i32", str(_SUBNORMAL)))
        zero = self.emit(f"fmul {ty} {a.ref}, zeroinitializer")  # a zero of the same sign
        return Value(self.emit(f"select {vector('i1')} {cond}, {ty} {zero}, {ty} {a.ref}"), "half", CLEAN)

    def _flush_float(self, a: Value) -> Value:
        if self.host.flushes:
            return Value(self.intrinsic("canonicalize", a).ref, "float", CLEAN)
        return self._flush_bits(a, "i32", 0x7F800000, 0x80000000)

    def _flush_bits(self, a: Value, element: str, exponent: int, sign: int) -> Value:
        bits = Value(self._bitcast(a.ref, a.element, element), element)
        field = self.and_(bits, Value(constant(element, exponent), element))
        zero = self.and_(bits, Value(constant(element, sign), element))
        tiny = self.icmp("eq", field, Value("zeroinitializer", element), False)
        kept = self.select(tiny, zero, bits)
        return Value(self._bitcast(kept.ref, element, a.element), a.element, CLEAN)

    def _read(self, a: Value) -> Value:
        """``a`` as an arithmetic operand: the unit may do the flush itself."""
        return a if a.element == "float" and self.host.flushes else self._clean(a)

    def _result(self, ref: str, element: str) -> Value:
        """An arithmetic result: flushed by the unit, or to be flushed."""
        return Value(ref, element, CLEAN if element == "float" and self.host.flushes else PENDING)

    def _arithmetic(self, operation: str, a: Value, b: Value) -> Value:
        a, b = self._read(a), self._read(b)
        value = self._result(self.emit(f"{operation} {vector(a.element)} {a.ref}, {b.ref}"), a.element)
        return self._clean(value)

    def fadd(self, a: Value, b: Value) -> Value:
        return self._arithmetic("fadd", a, b)

    def fmul(self, a: Value, b: Value) -> Value:
        return self._arithmetic("fmul", a, b)

    def fmin(self, a: Value, b: Value) -> Value:
        return self._extreme("lt", a, b)

    def fmax(self, a: Value, b: Value) -> Value:
        return self._extreme("gt", a, b)

    def _extreme(self, relation: str, a: Value, b: Value) -> Value:
        beyond = self.fcmp(relation, b, a)
        nan = self.emit(f"fcmp uno {vector(a.element)} {a.ref}, {a.ref}")
        either = self.emit(f"or {vector('i1')} {beyond.ref}, {nan}")
        return self.select(Value(either, "i1"), b, a)

    def fneg(self, a: Value) -> Value:
        return Value(self.emit(f"fneg {vector(a.element)} {a.ref}"), a.element, a.flush)

    def fabs(self, a: Value) -> Value:
        return self.intrinsic("fabs", a)

    def fcmp(self, relation: str, a: Value, b: Value) -> Value:
        a, b = self._read(a), self._read(b)
        kind = "une" if relation == "ne" else f"o{_RELATIONS[relation]}"
        return Value(self.emit(f"fcmp {kind} {vector(a.element)} {a.ref}, {b.ref}"), "i1")

    def fround(self, mode: str, a: Value) -> Value:
        return self.intrinsic(_ROUNDS[mode], self._clean(a))

    def sfu(self, function: str, a: Value) -> Value:
        a = self._read(a)
        if a.element == "half":
            wide = self._cast("fpext", a, "float")
            result = self._cast("fptrunc", self._sfu(function, wide), "half")
            return self._clean(Value(result.ref, "half", PENDING))
        return self._clean(self._result(self._sfu(function, a).ref, "float"))

    def _sfu(self, function: str, a: Value) -> Value:
        ty = vector("float")
        if function == "rcp":
            return Value(self.emit(f"fdiv {ty} {constant('float', 1.0)}, {a.ref}"), "float")
        if function == "sqrt":
            return self.intrinsic("sqrt", a)
        self.lines.append(f"  store {ty} {a.ref}, ptr %sfu, align 64")
        self.call("void", f"sfu_{function}", ("ptr", "%sfu"))
        return Value(self.emit(f"load {ty}, ptr %sfu, align 64"), "float")

    # between widths and kinds

    def fconvert(self, a: Value, ty: Ty, rounding: str) -> Value:
        element = _element(ty)
        a = self._read(a) if element == "half" else self._clean(a)
        if element == a.element:
            return a
        if element == "float":
            return Value(self._cast("fpext", a, "float").ref, "float", CLEAN)
        return self._clean(Value(self._narrow(a, element, rounding).ref, element, PENDING))

    def _narrow(self, a: Value, element: str, rounding: str) -> Value:
        """A shorter float: rounded to nearest by the unit, then moved by a step where that went wrong."""
        result = self._cast("fptrunc", a, element)
        if rounding == "even":
            return result
        back = self._cast("fpext", result, a.element)
        bits = self._cast("bitcast", result, f"i{16 if element == 'half' else 32}")
        ty, one = vector(bits.element), Value(constant(bits.element, 1), bits.element)
        if rounding == "zero":
            wrong = self._compare("ogt", self._magnitude(back), self._magnitude(a))
            moved = self._binary("sub", bits, one)
        else:
            wrong = self._compare("olt" if rounding == "up" else "ogt", back, a)
            away = self.emit(f"icmp {'sge' if rounding == 'up' else 'slt'} {ty} {bits.ref}, zeroinitializer")
            moved = self.select(
                Value(away, "i1"), self._binary("add", bits, one), self._binary("sub", bits, one)
            )
        return self._cast("bitcast", self.select(wrong, moved, bits), element)

    def _magnitude(self, a: Value) -> Value:
        return self.intrinsic("fabs", a)

    def _compare(self, kind: str, a: Value, b: Value) -> Value:
        return Value(self.emit(f"fcmp {kind} {vector(a.element)} {a.ref}, {b.ref}"), "i1")

    def to_int(self, a: Value, bits: int, signed: bool, rounding: str) -> Value:
        a = self._clean(a)
        if a.element == "half":
            a = Value(self._cast("fpext", a, "float").ref, "float", CLEAN)
        if rounding != "zero":
            a = self.fround({"even": "even", "up": "ceil", "down": "floor"}[rounding], a)
        element = f"i{bits}"
        name = f"llvm.fpto{'s' if signed else 'u'}i.sat.v{CHUNK}{element}.v{CHUNK}f32"
        ref = self.call(vector(element), name, (vector("float"), a.ref))
        if bits == 8:
            return self._cast("sext" if signed else "zext", Value(ref, "i8"), "i16")
        return Value(ref, element)

    def from_int(self, a: Value, ty: Ty, signed: bool, rounding: str) -> Value:
        operation = "sitofp" if signed else "uitofp"
        if a.bits == 16 or rounding == "even":  # 16 bits are exact in f32
            wide = self._cast(operation, a, "float")
        else:
            wide = self._narrow(self._cast(operation, a, "double"), "float", rounding)
        wide = Value(wide.ref, "float", CLEAN)
        # In two steps: what f32 cannot hold exactly is beyond f16 in any case.
        return wide if ty is Ty.F32 else self.fconvert(wide, Ty.F16, rounding)

    def as_float(self, a: Value) -> Value:
        element = "half" if a.bits == 16 else "float"
        if a.element == element:
            return a
        return Value(self._bitcast(a.ref, a.element, element), element, a.flush)

    def as_int(self, a: Value) -> Value:
        """The bits; of a clean float, an integer that is still known to be one when read as a float."""
        if a.element not in ("half", "float"):
            return a
        a = self._clean(a)
        element = f"i{a.bits}"
        return Value(self._bitcast(a.ref, a.element, element), element, a.flush)
