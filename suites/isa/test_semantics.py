"""What each ALU instruction computes, against exact scalar arithmetic written apart from the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from pytest_qcom.isa.assembler import assemble
from pytest_qcom.isa.instruction import Instr
from pytest_qcom.isa.reference import Registers, execute
from pytest_qcom.isa.table import OPS
from suites.isa import exact, operands
from suites.isa.exact import F16, F32, Float, signed

Oracle = Callable[..., int]


def run(instr: Instr, rows: Sequence[tuple[int, ...]]) -> list[int]:
    """The bits that ``instr`` writes for each row of source bits; source n is in (h)r(4+n).x."""
    registers = files(rows)
    execute(instr, registers)
    dst = instr.dst
    assert dst is not None
    if dst.reg.predicate:
        return [int(bit) for bit in registers.predicates[dst.value - 248]]
    return [int(bits) for bits in (registers.half if dst.half else registers.full)[dst.value]]


def files(rows: Sequence[tuple[int, ...]]) -> Registers:
    fibers = len(rows)
    full, half = np.zeros((192, fibers), np.uint32), np.zeros((192, fibers), np.uint16)
    for index, column in enumerate(zip(*rows, strict=True)):
        full[16 + 4 * index] = np.array(column, np.uint64).astype(np.uint32)
        half[16 + 4 * index] = np.array(column, np.uint64).astype(np.uint16)
    return Registers(
        full, half, np.zeros(64, np.uint32), np.zeros((4, fibers), bool), np.zeros((4, fibers), np.int16)
    )


def line(mnemonic: str, sources: int, width: int, dst: str = "") -> Instr:
    h = "h" if width == 16 else ""
    names = [dst or f"{h}r0.x", *(f"{h}r{4 + index}.x" for index in range(sources))]
    return assemble(f"{mnemonic} {', '.join(names)}")


def same(found: int, wanted: int, kind: Float | None) -> bool:
    return found == wanted or (kind is not None and kind.is_nan(found) and kind.is_nan(wanted))


def check(instr: Instr, rows: Sequence[tuple[int, ...]], oracle: Oracle, kind: Float | None) -> None:
    for row, found in zip(rows, run(instr, rows), strict=True):
        wanted = oracle(*row)
        shown = [f"{bits:#x}" for bits in row]
        assert same(found, wanted, kind), f"{instr.op.name} {shown}: {found:#x}, exact is {wanted:#x}"


# ---- floats of both widths

FLOATS: dict[str, tuple[int, Callable[..., int]]] = {
    "add.f": (2, exact.add),
    "mul.f": (2, exact.multiply),
    "min.f": (2, lambda f, a, b: _extreme(f, a, b, -1)),
    "max.f": (2, lambda f, a, b: _extreme(f, a, b, 1)),
    "sign.f": (1, lambda f, a: _sign(f, a)),
    "absneg.f": (1, exact.flush),
    "floor.f": (1, lambda f, a: exact.integral(f, exact.flush(f, a), "down")),
    "ceil.f": (1, lambda f, a: exact.integral(f, exact.flush(f, a), "up")),
    "rndne.f": (1, lambda f, a: exact.integral(f, exact.flush(f, a), "even")),
    "rndaz.f": (1, lambda f, a: exact.integral(f, exact.flush(f, a), "away")),
    "trunc.f": (1, lambda f, a: exact.integral(f, exact.flush(f, a), "zero")),
}


def _extreme(f: Float, a: int, b: int, direction: int) -> int:
    a, b = exact.flush(f, a), exact.flush(f, b)
    return b if f.is_nan(a) or exact.compare(f, b, a) == direction else a


def _sign(f: Float, a: int) -> int:
    order = exact.compare(f, a, 0) or 0
    return f.encode(Fraction(order), False)


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("name", FLOATS)
def test_floats(name: str, width: int) -> None:
    count, oracle = FLOATS[name]
    kind = F16 if width == 16 else F32
    rows = operands.tuples((width,) * count, (True,) * count, seed=len(name) + width)
    check(line(name, count, width), rows, lambda *row: oracle(kind, *row), kind)


@pytest.mark.parametrize("width", [16, 32])
def test_mad_rounds_twice(width: int) -> None:
    """The product is rounded and flushed before the sum: unfused."""
    kind = F16 if width == 16 else F32
    rows = operands.tuples((width,) * 3, (True,) * 3, seed=width, count=1500)
    check(
        line(f"mad.f{width}", 3, width),
        rows,
        lambda a, b, c: exact.add(kind, exact.multiply(kind, a, b), c),
        kind,
    )
    fused = sum(
        not same(_fused(kind, *row), exact.add(kind, exact.multiply(kind, row[0], row[1]), row[2]), kind)
        for row in rows
    )
    assert fused > 20, "the operands would not tell a fused mad"


def _fused(f: Float, a: int, b: int, c: int) -> int:
    if any(f.is_nan(x) or f.is_infinite(x) for x in (a, b, c)):
        return exact.add(f, exact.multiply(f, a, b), c)
    return f.encode(f.value(a) * f.value(b) + f.value(c), bool(f.sign(c)))


RELATIONS = {"lt": (-1,), "le": (-1, 0), "gt": (1,), "ge": (0, 1), "eq": (0,), "ne": (-1, 1, None)}


@pytest.mark.parametrize("target", ["register", "predicate", "other width"])
@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("relation", RELATIONS)
def test_compares(relation: str, width: int, target: str) -> None:
    """1 or 0 in a register of any width, or a predicate; on NaN only ne holds."""
    h, other = ("h", "") if width == 16 else ("", "h")
    dst = {"register": f"{h}r0.x", "predicate": "p0.z", "other width": f"{other}r0.x"}[target]
    kind = F16 if width == 16 else F32
    true = RELATIONS[relation]
    floats = operands.tuples((width,) * 2, (True, True), seed=1)
    check(
        line(f"cmps.f.{relation}", 2, width, dst),
        floats,
        lambda a, b: int(exact.compare(kind, a, b) in true),
        None,
    )
    integers = operands.tuples((width,) * 2, (False, False), seed=2)
    for letter, read in (("u", lambda x: x), ("s", lambda x: signed(x, width))):
        check(
            line(f"cmps.{letter}.{relation}", 2, width, dst),
            integers,
            lambda a, b, read=read: int((read(a) > read(b)) - (read(a) < read(b)) in true),
            None,
        )


# ---- integers


def _clz(x: int, width: int) -> int:
    return width - x.bit_length() if x else -1


def _clz_signed(x: int, width: int) -> int:
    value = signed(x, width)
    return _clz(~value if value < 0 else value, width)


INTEGERS: dict[str, tuple[int, Callable[..., int]]] = {
    "add.u": (2, lambda w, a, b: a + b),
    "add.s": (2, lambda w, a, b: a + b),
    "sub.u": (2, lambda w, a, b: a - b),
    "sub.s": (2, lambda w, a, b: a - b),
    "(sat)add.u": (2, lambda w, a, b: min(a + b, (1 << w) - 1)),
    "(sat)add.s": (2, lambda w, a, b: _clamp(signed(a, w) + signed(b, w), w)),
    "(sat)sub.u": (2, lambda w, a, b: max(a - b, 0)),
    "(sat)sub.s": (2, lambda w, a, b: _clamp(signed(a, w) - signed(b, w), w)),
    "min.u": (2, lambda w, a, b: min(a, b)),
    "min.s": (2, lambda w, a, b: min(signed(a, w), signed(b, w))),
    "max.u": (2, lambda w, a, b: max(a, b)),
    "max.s": (2, lambda w, a, b: max(signed(a, w), signed(b, w))),
    "absneg.s": (1, lambda w, a: a),
    "and.b": (2, lambda w, a, b: a & b),
    "or.b": (2, lambda w, a, b: a | b),
    "xor.b": (2, lambda w, a, b: a ^ b),
    "not.b": (1, lambda w, a: ~a),
    "mul.u24": (2, lambda w, a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    "mul.s24": (2, lambda w, a, b: signed(a, min(w, 24)) * signed(b, min(w, 24))),
    "mull.u": (2, lambda w, a, b: (a & 0xFFFF) * (b & 0xFFFF)),
    "bfrev.b": (1, lambda w, a: int(f"{a:0{w}b}"[::-1], 2)),
    "clz.b": (1, lambda w, a: _clz(a, w)),
    "clz.s": (1, lambda w, a: _clz_signed(a, w)),
    "cbits.b": (1, lambda w, a: a.bit_count()),
    "shl.b": (2, lambda w, a, b: a << b % w),
    "shr.b": (2, lambda w, a, b: a >> b % w),
    "ashr.b": (2, lambda w, a, b: signed(a, w) >> b % w),
    "getbit.b": (2, lambda w, a, b: a >> b % w & 1),
    "shrm": (3, lambda w, a, b, c: b >> a % w & c),
    "shlm": (3, lambda w, a, b, c: b << a % w & c),
    "shrg": (3, lambda w, a, b, c: b >> a % w | c),
    "shlg": (3, lambda w, a, b, c: b << a % w | c),
    "andg": (3, lambda w, a, b, c: a & b | c),
}


def _clamp(value: int, width: int) -> int:
    return max(-(1 << width - 1), min(value, (1 << width - 1) - 1))


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str, width: int) -> None:
    count, oracle = INTEGERS[name]
    rows = operands.tuples((width,) * count, (False,) * count, seed=len(name) + width)
    check(line(name, count, width), rows, lambda *row: oracle(width, *row) % (1 << width), None)


THREE: dict[str, tuple[int, Callable[..., int]]] = {
    "mad.u16": (16, lambda a, b, c: a * b + c),
    "mad.s16": (16, lambda a, b, c: signed(a, 16) * signed(b, 16) + signed(c, 16)),
    "mad.u24": (32, lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "mad.s24": (32, lambda a, b, c: signed(a, 24) * signed(b, 24) + c),
    "madsh.m16": (32, lambda a, b, c: ((a & 0xFFFF) * (b >> 16) << 16) + c),
    "sel.b16": (16, lambda a, b, c: a if b else c),
    "sel.b32": (32, lambda a, b, c: a if b else c),
    "sel.s16": (16, lambda a, b, c: a if signed(b, 16) >= 0 else c),
    "sel.s32": (32, lambda a, b, c: a if signed(b, 32) >= 0 else c),
    "sad.s16": (16, lambda a, b, c: abs(signed(a - b, 16)) + c),
    "sad.s32": (32, lambda a, b, c: abs(signed(a - b, 32)) + c),
    "dp4acc.unsigned.low": (32, lambda a, b, c: _dot(_bytes(a), _bytes(b)) + c),
    "dp4acc.mixed.low": (32, lambda a, b, c: _mixed(_bytes(a), _bytes(b)) + c),
    "dp2acc.unsigned.low": (32, lambda a, b, c: _dot(_bytes(a)[:2], _bytes(b)[:2]) + c),
    "dp2acc.mixed.high": (32, lambda a, b, c: _mixed(_bytes(a)[2:], _bytes(b)[2:]) + c),
    "(sat)dp4acc.unsigned.low": (32, lambda a, b, c: min(_dot(_bytes(a), _bytes(b)) + c, 0xFFFFFFFF)),
    "(sat)dp4acc.mixed.low": (32, lambda a, b, c: _clamp(_mixed(_bytes(a), _bytes(b)) + signed(c, 32), 32)),
}


def _bytes(word: int) -> list[int]:
    return [word >> 8 * index & 0xFF for index in range(4)]


def _dot(left: list[int], right: list[int]) -> int:
    return sum(x * y for x, y in zip(left, right, strict=True))


def _mixed(left: list[int], right: list[int]) -> int:
    return _dot([signed(x, 8) for x in left], right)


@pytest.mark.parametrize("name", THREE)
def test_three_sources(name: str) -> None:
    width, oracle = THREE[name]
    rows = operands.tuples((width,) * 3, (False,) * 3, seed=len(name))
    check(line(name, 3, width), rows, lambda *row: oracle(*row) % (1 << width), None)


@pytest.mark.parametrize("width", [16, 32])
def test_float_select(width: int) -> None:
    kind = F16 if width == 16 else F32
    rows = operands.tuples((width,) * 3, (True,) * 3, seed=9)

    def oracle(a: int, b: int, c: int) -> int:
        return exact.flush(kind, a if exact.compare(kind, b, 0) in (0, 1) else c)

    check(line(f"sel.f{width}", 3, width), rows, oracle, kind)


@pytest.mark.parametrize("letter", ["u", "s"])
def test_halving_add(letter: str) -> None:
    rows = operands.tuples((32, 32), (False, False), seed=4)

    def oracle(a: int, b: int) -> int:
        pair = (signed(a, 32), signed(b, 32)) if letter == "s" else (a, b)
        return sum(pair) >> 1 & 0xFFFFFFFF

    check(assemble(f"add.{letter} (ei)r0.x, r4.x, r5.x"), rows, oracle, None)


def test_wide_multiplication() -> None:
    """The three instructions that Mesa makes of a 32-bit product give the product."""
    rows = operands.tuples((32, 32), (False, False), seed=5)
    registers = files(rows)
    for text in (
        "mull.u r0.x, r4.x, r5.x",
        "madsh.m16 r0.x, r4.x, r5.x, r0.x",
        "madsh.m16 r0.x, r5.x, r4.x, r0.x",
    ):
        execute(assemble(text), registers)
    assert [int(x) for x in registers.full[0]] == [a * b & 0xFFFFFFFF for a, b in rows]


# ---- modifiers and destinations


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("flags", ["(neg)", "(abs)", "(absneg)"])
def test_float_modifiers(flags: str, width: int) -> None:
    """abs first, then neg, on the bits: a NaN keeps being one, zeros have signs."""
    kind = F16 if width == 16 else F32
    rows = operands.tuples((width, width), (True, True), seed=6)
    h = "h" if width == 16 else ""

    def oracle(a: int, b: int) -> int:
        b = b & ~kind.sign_bit if "abs" in flags else b
        return exact.add(kind, a, b ^ kind.sign_bit if "neg" in flags else b)

    check(assemble(f"add.f {h}r0.x, {h}r4.x, {flags}{h}r5.x"), rows, oracle, kind)


@pytest.mark.parametrize("width", [16, 32])
def test_integer_modifiers(width: int) -> None:
    h, mask = ("h" if width == 16 else ""), (1 << width) - 1
    rows = operands.tuples((width,), (False,), seed=7)
    check(assemble(f"absneg.s {h}r0.x, (neg){h}r4.x"), rows, lambda a: -a & mask, None)
    check(assemble(f"absneg.s {h}r0.x, (abs){h}r4.x"), rows, lambda a: abs(signed(a, width)) & mask, None)
    check(assemble(f"absneg.s {h}r0.x, (absneg){h}r4.x"), rows, lambda a: -abs(signed(a, width)) & mask, None)
    pairs = operands.tuples((width, width), (False, False), seed=8)
    check(assemble(f"and.b {h}r0.x, {h}r4.x, (neg){h}r5.x"), pairs, lambda a, b: a & ~b & mask, None)


@pytest.mark.parametrize("width", [16, 32])
def test_saturation_of_floats(width: int) -> None:
    kind = F16 if width == 16 else F32
    one = kind.encode(Fraction(1), False)
    rows = operands.tuples((width, width), (True, True), seed=10)

    def oracle(a: int, b: int) -> int:
        total = exact.add(kind, a, b)
        if kind.is_nan(total) or (exact.compare(kind, total, 0) or 0) < 0:
            return 0
        return one if exact.compare(kind, total, one) == 1 else total

    found = run(line("(sat)add.f", 2, width), rows)
    for row, bits in zip(rows, found, strict=True):
        wanted = oracle(*row)
        assert bits & ~kind.sign_bit == wanted & ~kind.sign_bit or bits == wanted, (
            row,
            hex(bits),
            hex(wanted),
        )


def test_results_of_the_other_width() -> None:
    """Computed at the width of the sources, then converted: f16 exactly, f32 with the cov's default."""
    half = operands.tuples((16, 16), (True, True), seed=11)
    check(
        assemble("mul.f r0.x, hr4.x, hr5.x"),
        half,
        lambda a, b: exact.convert(F16, F32, exact.multiply(F16, a, b), "even"),
        F32,
    )
    full = operands.tuples((32, 32), (True, True), seed=12)
    check(
        assemble("mul.f hr0.x, r4.x, r5.x"),
        full,
        lambda a, b: exact.convert(F32, F16, exact.multiply(F32, a, b), "zero"),
        F16,
    )
    integers = operands.tuples((16, 16), (False, False), seed=13)
    check(assemble("and.b r0.x, hr4.x, hr5.x"), integers, lambda a, b: a & b, None)
    check(assemble("add.s r0.x, hr4.x, hr5.x"), integers, lambda a, b: signed(a + b, 16) & 0xFFFFFFFF, None)
    check(
        assemble("mul.s24 r0.x, hr4.x, hr5.x"),
        integers,
        lambda a, b: signed(a, 16) * signed(b, 16) & 0xFFFFFFFF,
        None,
    )
    check(assemble("mull.u r0.x, hr4.x, hr5.x"), integers, lambda a, b: a * b, None)


def test_predicates() -> None:
    """Bit operations on predicates: a predicate reads as all ones."""
    registers = files([(0,), (1,), (0,), (1,)])
    registers.predicates[0] = [False, False, True, True]
    registers.predicates[1] = [False, True, False, True]
    for text, wanted in (
        ("and.b p0.z, p0.x, p0.y", [0, 0, 0, 1]),
        ("or.b p0.z, p0.x, p0.y", [0, 1, 1, 1]),
        ("xor.b p0.z, p0.x, p0.y", [0, 1, 1, 0]),
        ("not.b p0.z, p0.x", [1, 1, 0, 0]),
        ("and.b p0.z, r4.x, 1", [0, 1, 0, 1]),
    ):
        execute(assemble(text), registers)
        assert list(registers.predicates[2]) == wanted, text


# ---- moves and conversions

TYPES = {"f16": 16, "f32": 32, "u16": 16, "u32": 32, "s16": 16, "s32": 32, "u8": 16}
ROUNDINGS = {"": "zero", "(even)": "even", "(pos_infinity)": "up", "(neg_infinity)": "down"}


def _conversion(source: str, target: str, rounding: str, bits: int) -> int:
    """The rule of cov by its types, in integers and rationals."""
    width = 8 if target == "u8" else TYPES[target]
    if source[0] == "f":
        kind = F16 if source == "f16" else F32
        if target[0] == "f":
            return exact.convert(kind, F16 if target == "f16" else F32, bits, rounding)
        return exact.to_integer(kind, bits, width, target[0] == "s", rounding) & (1 << width) - 1
    if source == "u8":  # whether its sign is kept depends on the destination
        value = signed(bits, 8) if target[0] == "s" else bits & 0xFF
    else:
        value = signed(bits, TYPES[source]) if source[0] == "s" else bits
    if target[0] == "f":
        return (F16 if target == "f16" else F32).encode(Fraction(value), False, rounding)
    return value & (1 << width) - 1


@pytest.mark.parametrize(("source", "target"), list(permutations(TYPES, 2)))
def test_conversions(source: str, target: str) -> None:
    width = TYPES[source]
    rows = operands.tuples((width,), (source[0] == "f",), seed=14, count=300)
    kind = {"f16": F16, "f32": F32}.get(target)
    halves = ["h" if TYPES[name] == 16 else "" for name in (target, source)]
    for spelled, rounding in ROUNDINGS.items():
        text = f"cov.{source}{target} {spelled}{halves[0]}r0.x, {halves[1]}r4.x"
        check(assemble(text), rows, lambda a, r=rounding: _conversion(source, target, r, a), kind)


@pytest.mark.parametrize("name", TYPES)
def test_moves_keep_the_bits(name: str) -> None:
    h = "h" if TYPES[name] == 16 else ""
    rows = operands.tuples((TYPES[name],), (name[0] == "f",), seed=15)
    check(assemble(f"mov.{name}{name} {h}r0.x, {h}r4.x"), rows, lambda a: a, None)


def test_move_immediates() -> None:
    rows = [(0,)]
    assert run(assemble("mov.f32f32 r0.x, (-1.5)"), rows) == [0xBFC00000]
    assert run(assemble("mov.f16f16 hr0.x, h(0.625)"), rows) == [0x3900]
    assert run(assemble("mov.s16s16 hr0.x, -2"), rows) == [0xFFFE]
    assert run(assemble("mov.u32u32 r0.x, 0xdeadbeef"), rows) == [0xDEADBEEF]


def test_parallel_moves_swap() -> None:
    registers = files([(7, 9)])
    execute(assemble("swz.u32u32 r4.x, r5.x, r5.x, r4.x"), registers)
    assert (registers.full[16, 0], registers.full[20, 0]) == (9, 7)
    registers.full[0:4, 0] = (1, 2, 3, 4)
    execute(assemble("gat.u32u32 r0.x, r0.w, r0.z, r0.y, r0.x"), registers)
    assert list(registers.full[0:4, 0]) == [4, 3, 2, 1]
    execute(assemble("sct.u32u32 r0.w, r0.z, r0.y, r0.x, r0.x"), registers)
    assert list(registers.full[0:4, 0]) == [1, 2, 3, 4]


# ---- operands


def test_repeats_advance_what_is_marked() -> None:
    registers = files([(0,)])
    registers.full[0:16, 0] = range(16)
    execute(assemble("(rpt3)add.u r20.x, (r)r1.x, r0.y"), registers)
    assert list(registers.full[80:84, 0]) == [5, 6, 7, 8]


def test_relative_operands() -> None:
    """a0.x is per fiber; the offset is in scalars."""
    registers = files([(0,), (0,)])
    registers.full[0:12] = np.arange(12)[:, None] * 10
    registers.address[0] = [1, 3]
    execute(assemble("mov.u32u32 r8.x, r<a0.x + 2>"), registers)
    assert list(registers.full[32]) == [30, 50]
    execute(assemble("mov.u32u32 r<a0.x + 40>, r0.y"), registers)
    assert (registers.full[41, 0], registers.full[43, 1], registers.full[41, 1]) == (10, 10, 0)


def test_half_constants() -> None:
    """With demotion hcN converts the 32-bit constant by the operand's kind, else it is a packed half."""
    registers = files([(0,)])
    registers.constants[5] = 0x3FC00001
    execute(assemble("add.f hr0.x, hc1.y, h(0.0)"), registers)
    assert registers.half[0, 0] == 0x3E00
    execute(assemble("add.u hr0.x, hc1.y, 0"), registers)
    assert registers.half[0, 0] == 0x0001
    registers.demotion = False
    registers.constants[2] = 0x12345678
    execute(assemble("add.u hr0.x, hc1.y, 0"), registers)
    assert registers.half[0, 0] == 0x1234


FLOAT_NAMES = [
    "0.0",
    "0.5",
    "1.0",
    "2.0",
    "e",
    "pi",
    "1/pi",
    "1/log2(e)",
    "log2(e)",
    "1/log2(10)",
    "log2(10)",
    "4.0",
]


@pytest.mark.parametrize("width", [16, 32])
def test_float_table(width: int) -> None:
    """Mesa's table to the bit; that its rows are the constants they are called, to an ulp."""
    values = np.array(
        [0, 0.5, 1, 2, np.e, np.pi, 1 / np.pi, np.log(2), np.log2(np.e), np.log10(2), np.log2(10), 4]
    )
    h, dtype = ("h", np.float16) if width == 16 else ("", np.float32)
    bits = np.array([run(assemble(f"max.f {h}r0.x, {h}({n}), {h}({n})"), [(0,)])[0] for n in FLOAT_NAMES])
    found = bits.astype(np.uint16 if width == 16 else np.uint32).view(dtype).astype(np.float64)
    assert np.all(np.abs(found - values) <= np.spacing(values.astype(dtype)).astype(np.float64))


# ---- the special function unit


@pytest.mark.parametrize(
    "name", ["rcp", "rsq", "log2", "exp2", "sin", "cos", "sqrt", "hrsq", "hlog2", "hexp2"]
)
@pytest.mark.parametrize("width", [16, 32])
def test_special_functions(name: str, width: int) -> None:
    """The reference is the function rounded once; subnormals are zeros, the poles are infinities."""
    functions: dict[str, Callable[..., Any]] = {
        "rcp": lambda x: 1 / x if x else np.copysign(np.inf, x),
        "rsq": lambda x: 1 / np.sqrt(x) if x else np.copysign(np.inf, x),
        "log2": np.log2,
        "exp2": np.exp2,
        "sin": np.sin,
        "cos": np.cos,
        "sqrt": np.sqrt,
    }
    function = functions[name.removeprefix("h")]
    kind, dtype = (F16, np.float16) if width == 16 else (F32, np.float32)
    rows = operands.tuples((width,), (True,), seed=16)
    with np.errstate(all="ignore"):

        def oracle(bits: int) -> int:
            number = np.array(exact.flush(kind, bits), f"u{width // 8}").view(dtype).astype(np.float64)
            rounded = np.array(function(number)).astype(dtype)
            return exact.flush(kind, int(rounded.view(f"u{width // 8}")))

        check(line(name, 1, width), rows, oracle, kind)


def test_every_formula_is_tested() -> None:
    """The tests above cover each entry that computes; a new one must join them."""
    tested = {name.rpartition(")")[2] for name in (*FLOATS, *INTEGERS, *THREE)}
    tested = {name.split(".unsigned")[0].split(".mixed")[0] for name in tested}
    tested |= {
        "cmps.f",
        "cmps.u",
        "cmps.s",
        "mad.f16",
        "mad.f32",
        "sel.f16",
        "sel.f32",
        "mov",
        "swz",
        "gat",
        "sct",
    }
    tested |= {"rcp", "rsq", "log2", "exp2", "sin", "cos", "sqrt", "hrsq", "hlog2", "hexp2"}
    assert {op.name for op in OPS if op.compute is not None} == tested
