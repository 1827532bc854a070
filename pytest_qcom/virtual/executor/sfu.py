"""The special function unit: rsq, log2, exp2, sin and cos of a chunk of f32 values, in place.

They are computed in f64 with separate multiplications and additions (never fused, so that every host gives
the same bits) and rounded once. Largest error against exact values, before that rounding: 1e-9 relative for
rsq, log2 and exp2, 1e-9 absolute for sin and cos below 2**20; so within 0.52 ulp of f32. Silicon's last bits
are not public. ``rcp`` and ``sqrt`` are single IEEE operations, correctly rounded, and need no function.

sin and cos of |x| >= 2**30 are those of zero: no range reduction reaches that far [undocumented].
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pytest_qcom.virtual.executor.layout import CHUNK
from pytest_qcom.virtual.executor.llvm_builder import LlvmBuilder, constant, vector
from pytest_qcom.virtual.executor.target import Host

_F64, _I64 = vector("double"), vector("i64")
_MAGIC = 1.5 * 2.0**52  # added, it leaves the nearest integer in the low bits
_HALF_PI = (1.57079632673412561417e00, 6.07710050650619224932e-11)  # pi/2 in two parts, the first of 33 bits


class _Doubles:
    """Arithmetic on chunks of doubles, as SSA names."""

    def __init__(self, builder: LlvmBuilder) -> None:
        self.builder = builder
        self.emit = builder.emit

    def op(self, operation: str, a: str, b: str | float) -> str:
        right = b if isinstance(b, str) else constant("double", b)
        return self.emit(f"{operation} {_F64} {a}, {right}")

    def horner(self, x: str, coefficients: list[float]) -> str:
        """The polynomial, highest coefficient first."""
        result = self.op("fadd", self.op("fmul", x, coefficients[0]), coefficients[1])
        for coefficient in coefficients[2:]:
            result = self.op("fadd", self.op("fmul", result, x), coefficient)
        return result

    def select(self, kind: str, a: str, b: str | float, yes: str | float, no: str) -> str:
        right = b if isinstance(b, str) else constant("double", b)
        true = yes if isinstance(yes, str) else constant("double", yes)
        cond = self.emit(f"fcmp {kind} {_F64} {a}, {right}")
        return self.emit(f"select {vector('i1')} {cond}, {_F64} {true}, {_F64} {no}")

    def bits(self, a: str) -> str:
        return self.emit(f"bitcast {_F64} {a} to {_I64}")

    def number(self, a: str) -> str:
        return self.emit(f"bitcast {_I64} {a} to {_F64}")

    def integer(self, operation: str, a: str, b: int) -> str:
        return self.emit(f"{operation} {_I64} {a}, {constant('i64', b)}")


def _rsq(d: _Doubles, x: str) -> str:
    name = f"llvm.sqrt.v{CHUNK}f64"
    root = d.builder.call(_F64, name, (_F64, x))
    return d.emit(f"fdiv {_F64} {constant('double', 1.0)}, {root}")


def _exp2(d: _Doubles, x: str) -> str:
    bounded = d.select("ogt", x, 200.0, 200.0, d.select("olt", x, -200.0, -200.0, x))
    shifted = d.op("fadd", bounded, _MAGIC)
    whole = d.op("fsub", shifted, _MAGIC)
    fraction = d.op("fsub", bounded, whole)
    terms = [math.log(2) ** k / math.factorial(k) for k in range(9)]
    power = d.horner(fraction, terms[::-1])
    exponent = d.integer("shl", d.integer("add", d.bits(shifted), 1023), 52)
    return d.select("uno", x, x, x, d.op("fmul", power, d.number(exponent)))


def _log2(d: _Doubles, x: str) -> str:
    bits = d.bits(x)
    half = 0x3FE6A09E667F3BCD  # sqrt(0.5): the mantissa is taken from there to sqrt(2)
    offset = d.integer("sub", bits, half)
    exponent = d.integer("ashr", offset, 52)
    removed = d.integer("shl", exponent, 52)
    mantissa = d.number(d.emit(f"sub {_I64} {bits}, {removed}"))
    s = d.emit(f"fdiv {_F64} {d.op('fsub', mantissa, 1.0)}, {d.op('fadd', mantissa, 1.0)}")
    terms = [2 / math.log(2) / (2 * k + 1) for k in range(7)]
    series = d.op("fmul", s, d.horner(d.op("fmul", s, s), terms[::-1]))
    result = d.op("fadd", series, d.emit(f"sitofp {_I64} {exponent} to {_F64}"))
    result = d.select("oeq", x, math.inf, math.inf, result)
    result = d.select("oeq", x, 0.0, -math.inf, result)
    return d.select("ult", x, 0.0, math.nan, result)


def _circular(d: _Doubles, x: str, quarter: int) -> str:
    """sin(x + quarter * pi/2)."""
    size = d.builder.call(_F64, f"llvm.fabs.v{CHUNK}f64", (_F64, x))
    far = d.emit(f"fcmp oge {_F64} {size}, {constant('double', 2.0**30)}")
    near = d.emit(f"select {vector('i1')} {far}, {_F64} zeroinitializer, {_F64} {x}")
    shifted = d.op("fadd", d.op("fmul", near, 2 / math.pi), _MAGIC)
    count = d.op("fsub", shifted, _MAGIC)
    r = d.op("fsub", near, d.op("fmul", count, _HALF_PI[0]))
    r = d.op("fsub", r, d.op("fmul", count, _HALF_PI[1]))
    square = d.op("fmul", r, r)
    odd = [(-1) ** k / math.factorial(2 * k + 1) for k in range(7)]
    even = [(-1) ** k / math.factorial(2 * k) for k in range(8)]
    sine = d.op("fmul", r, d.horner(square, odd[::-1]))
    cosine = d.horner(square, even[::-1])
    quadrant = d.integer("add", d.bits(shifted), quarter)
    swap = d.emit(f"trunc {_I64} {quadrant} to {vector('i1')}")
    result = d.emit(f"select {vector('i1')} {swap}, {_F64} {cosine}, {_F64} {sine}")
    sign = d.integer("shl", d.integer("and", quadrant, 2), 62)
    result = d.number(d.emit(f"xor {_I64} {d.bits(result)}, {sign}"))
    return d.op("fadd", result, d.emit(f"fsub {_F64} {d.op('fmul', x, 0.0)}, {d.op('fmul', x, 0.0)}"))


_FUNCTIONS: dict[str, Callable[[_Doubles, str], str]] = {
    "rsq": _rsq,
    "exp2": _exp2,
    "log2": _log2,
    "sin": lambda d, x: _circular(d, x, 0),
    "cos": lambda d, x: _circular(d, x, 1),
}

NAMES = tuple(_FUNCTIONS)
"""Functions that :func:`text` defines, without their prefix."""


def text(host: Host) -> str:
    """IR of ``sfu_rsq`` and the others: ``void (ptr)``, on a chunk of floats."""
    builder = LlvmBuilder(host)
    parts = []
    ty = vector("float")
    for name, body in _FUNCTIONS.items():
        builder.lines = []
        raw = builder.emit(f"load {ty}, ptr %p, align 64")
        result = body(_Doubles(builder), builder.emit(f"fpext {ty} {raw} to {_F64}"))
        rounded = builder.emit(f"fptrunc {_F64} {result} to {ty}")
        builder.lines.append(f"  store {ty} {rounded}, ptr %p, align 64")
        parts.append(f"define void @sfu_{name}(ptr %p) {{\n" + "\n".join(builder.lines) + "\n  ret void\n}\n")
    return "\n".join([*parts, *sorted(builder.declarations)]) + "\n"
