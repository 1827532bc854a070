"""What a pass of a matmul loop is: accumulators in vectors of four, their products in order, a counter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_qcom.isa.instruction import Kind, Operand
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.rewrites.loop import Mismatch, Pass, Value, constant_before, find, live_out, walk

LANES = 4


@dataclass(frozen=True, slots=True)
class Product:
    """A step of an accumulator: += scalar * vector, the scalar a lane of one sample, the vector another.

    ``scalar_first``: the order of the two factors in the instruction.
    """

    scalar: tuple[int, int]  # number of the sample, lane
    vector: int  # number of the sample
    scalar_first: bool


@dataclass(frozen=True, slots=True)
class Vector:
    """Four accumulators that advance together. ``registers`` hold them where a pass begins."""

    registers: tuple[Reg, ...]
    values: tuple[Value, ...]  # what a pass makes of them
    products: tuple[Product, ...]


@dataclass(frozen=True, slots=True)
class Matmul:
    """A matmul loop.

    Attributes:
        found: the loop.
        vectors: the accumulators.
        mad: a value whose instruction is that of the products.
        counter: the register that counts the passes; from 0 in steps of 1.
        advance, compare: the counter's next value and the comparison that ends the loop.
        passes: how often the body runs.
        invariants: registers that the loop reads or that must live through it.
        leaves: registers that are read behind the loop, with what they must hold.
    """

    found: Pass
    vectors: tuple[Vector, ...]
    mad: Value
    counter: Reg
    advance: Value
    compare: Value
    passes: int
    invariants: frozenset[Reg]
    leaves: dict[Reg, Value]


def recognise(program: Program) -> Matmul:
    """The matmul that the program's loop is.

    Raises:
        Mismatch: it is something else; says what was found.
    """
    found = find(program)
    predicate = Reg.parse("p0.x")
    compare = found.out.get(predicate)
    if compare is None:
        raise Mismatch("the loop does not compute the p0.x that ends it")
    carried = _carried(found)
    counter, advance, passes = _counter(program, found, compare, carried)
    chains = {
        reg: list(_chain(found, found.entry(reg), value)) for reg, value in carried.items() if reg != counter
    }
    vectors = tuple(_vectors(found, carried, chains))
    if not vectors:
        raise Mismatch("the loop accumulates nothing")
    leaves = {
        reg: found.out[reg]
        for reg in sorted(live_out(program, found.leave))
        if reg in found.out and not reg.shared
    }
    accumulated = {value for vector in vectors for value in vector.values}
    for reg, value in leaves.items():
        if value not in accumulated and value.entry is None:
            raise Mismatch(f"{reg} leaves the loop with something else than an accumulator")
        if value.entry is not None and value.entry in carried:
            raise Mismatch(f"{reg} leaves the loop with {value.entry} as it was a pass before")
    through = {reg for reg in live_out(program, found.leave) if reg not in leaves}
    through |= {value.entry for value in leaves.values() if value.entry is not None}
    read = {value.entry for value in found.entries.values() if value.entry is not None}
    invariants = frozenset((through | read) - set(carried))
    (mad, *_) = vectors[0].values
    return Matmul(found, vectors, mad, counter, advance, compare, passes, invariants, leaves)


def _carried(found: Pass) -> dict[Reg, Value]:
    """Registers whose content at the start matters and changes from pass to pass, with the new one."""
    carried = {}
    for reg, value in list(found.entries.items()):
        after = found.back.get(reg, value)
        if after is not value:
            carried[reg] = after
    return carried


def _counter(
    program: Program, found: Pass, compare: Value, carried: dict[Reg, Value]
) -> tuple[Reg, Value, int]:
    """The counter, its next value and the number of passes."""
    made, *rest = compare.srcs
    if not isinstance(made, Value) or len(rest) != 1:
        raise Mismatch("the loop does not end on a comparison of its counter with a number")
    counters = [reg for reg, value in carried.items() if value is made]
    limit = rest[0]
    if len(counters) != 1 or made.instr is None or not _steps_by_one(made, found.entry(counters[0])):
        raise Mismatch("the loop does not end on a counter that advances by 1")
    ends = compare.instr is not None and compare.instr.op.name == "cmps.s" and compare.instr.get("cond") == 3
    if not isinstance(limit, Operand) or limit.kind is not Kind.IMM or not ends:
        raise Mismatch("the loop does not end where its counter reaches a number")
    if constant_before(program, counters[0], found.header) != 0:
        raise Mismatch(f"the counter {counters[0]} does not start at 0")
    return counters[0], made, limit.value


def _steps_by_one(value: Value, entry: Value) -> bool:
    assert value.instr is not None
    one = [source for source in value.srcs if isinstance(source, Operand)]
    return (
        value.instr.op.name in ("add.u", "add.s")
        and entry in value.srcs
        and len(one) == 1
        and one[0].kind is Kind.IMM
        and one[0].value == 1
    )


def _chain(found: Pass, entry: Value, value: Value) -> Iterator[tuple[Value, Value]]:
    """The factors of each product that goes into an accumulator, the first one first."""
    made = []
    while value is not entry:
        instr = value.instr
        fits = instr is not None and instr.op.late_source == 2 and instr.op.result == "f"
        factors = value.srcs[:2]
        if not fits or not all(isinstance(factor, Value) and factor.sampled for factor in factors):
            raise Mismatch(f"{entry.entry} is carried by the loop and is no sum of products of samples")
        if any(source.neg or source.abs for source in (instr.srcs if instr else ())):
            raise Mismatch(f"{entry.entry} is carried by the loop and takes the sign off a factor")
        made.append((value.srcs[0], value.srcs[1]))
        after = value.srcs[2]
        if not isinstance(after, Value):
            raise Mismatch(f"{entry.entry} is carried by the loop and is set anew in each pass")
        value = after
    yield from reversed(made)  # type: ignore[misc]


def _vectors(
    found: Pass, carried: dict[Reg, Value], chains: dict[Reg, list[tuple[Value, Value]]]
) -> Iterator[Vector]:
    """Accumulators four by four: the same scalars, and of the same samples one lane each."""
    numbers = {sample.index: number for number, sample in enumerate(found.samples)}
    groups: dict[tuple[Product, ...], dict[int, Reg]] = {}
    for scalar_first in (True, False):
        groups.clear()
        for reg, chain in chains.items():
            products, lanes = [], set()
            for first, second in chain:
                scalar, vector = (first, second) if scalar_first else (second, first)
                place = (numbers[scalar.index], scalar.lane)
                products.append(Product(place, numbers[vector.index], scalar_first))
                lanes.add(vector.lane)
            if len(lanes) == 1:
                groups.setdefault(tuple(products), {})[lanes.pop()] = reg
        if sum(len(group) for group in groups.values()) == len(chains):
            break
    covered = {reg for group in groups.values() for reg in group.values()}
    for reg in chains:
        if reg not in covered:
            raise Mismatch(
                f"{reg} is accumulated from lanes of samples that do not go with those of its neighbours"
            )
    for steps, group in groups.items():
        if sorted(group) != list(range(LANES)):
            have = ", ".join(str(reg) for reg in sorted(group.values()))
            raise Mismatch(f"{have} accumulate the same products in {len(group)} lanes, not in 4")
        registers = tuple(group[lane] for lane in range(LANES))
        yield Vector(registers, tuple(carried[reg] for reg in registers), steps)


def temporaries(matmul: Matmul) -> list[Value]:
    """What a pass computes before its samples, operands first; entries and the counter's own are left out."""
    seen: set[Value] = set()
    made = []
    for sample in matmul.found.samples:
        for source in sample.srcs:
            assert isinstance(source, Value)
            made += [value for value in walk(source, seen) if value.entry is None]
    for value in made:
        if value.sampled:
            raise Mismatch(f"a sample's place is computed from another sample, at #{value.index}")
    return made
