"""Which scalar registers an instruction reads and writes, repeats and vectors included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from pytest_qcom.isa.instruction import (
    Access,
    Atomic,
    Detail,
    Flow,
    Instr,
    Kind,
    Load,
    Operand,
    Sample,
    Shuffle,
    Size,
    Space,
    Store,
)
from pytest_qcom.isa.registers import ADDRESS, NO_REGISTER, PREDICATE, Reg, Ty

DESTINATION = -1
"""``Access.operand`` of a write."""

SLOT = 3
"""``Access.operand`` of the register that holds a binding slot or descriptor index."""

ADDRESSING = 4
"""``Access.operand`` of ``a0.x`` and ``a1.x`` read for addressing."""

PREDICATED = 5
"""``Access.operand`` of a predicate that a branch reads, and one more for its second."""


def elements(instr: Instr) -> int:
    """How often an ALU instruction executes: once and its repeats; the parallel moves once a register."""
    if "src_type" in instr:
        return max(instr.rpt + 1, len(instr.srcs), sum(name.startswith("dst") for name, _ in instr.attrs))
    return instr.rpt + 1


def parallel(instr: Instr) -> bool:
    """Whether all elements read before any writes, as in swz, gat and sct."""
    return instr.op.reads == "t" and (len(instr.srcs) > 1 or "dst1" in instr)


def advance(operand: Operand, element: int) -> Operand:
    """A source as repetition ``element`` reads it: ``element`` scalars on where it carries (r)."""
    if not operand.repeat or not element or operand.kind in (Kind.IMM, Kind.FLUT):
        return operand
    return replace(operand, value=operand.value + element)


def destination(instr: Instr, element: int) -> Operand:
    """The destination that repetition ``element`` writes; it always advances."""
    dst = instr.dst
    assert dst is not None, f"{instr.op.name} has no destination"
    further = instr.get(f"dst{element}", -1)
    if element and further >= 0:
        return replace(dst, value=further)
    return replace(dst, value=dst.value + element)


def vector(instr: Instr) -> int:
    """How many scalars of data a load, store, atomic or sample moves."""
    effect = instr.op.effect
    if "wrmask" in instr:
        return instr["wrmask"].bit_length()
    if isinstance(effect, Atomic):
        return atomic_words(instr)
    if isinstance(effect, Size):
        return 3
    return instr.get("count", 1)


def atomic_words(instr: Instr) -> int:
    """Registers of one value of an atomic: type code 6 means 64 bits there (Mesa, ``TYPE_ATOMIC_U64``)."""
    effect = instr.op.effect
    assert isinstance(effect, Atomic)
    return 2 if instr.type is Ty.U8 and effect.space is not Space.LOCAL else 1


def coordinates(instr: Instr) -> int:
    """How many coordinates an image access takes. Samples have x and y even of what has one dimension."""
    if instr.op.cat == 5:
        return 2 + instr.get("3d") + instr.get("array")
    return instr.get("dims", 1)


def shadow(instr: Instr) -> bool:
    """Whether a sample compares texels with a number."""
    return bool(instr.get("sv")) and "inv_1d" not in instr


def sampled(instr: Instr) -> int:
    """How many scalars the first source of a sample has (Mesa, ``emit_tex``)."""
    effect = instr.op.effect
    assert isinstance(effect, Sample)
    count = coordinates(instr) + shadow(instr) + instr.get("p") + effect.multisampled
    if effect.detail is Detail.GRADIENTS:
        return max(4, count) + 2 * axes(instr)
    return count


def axes(instr: Instr) -> int:
    """The coordinates of a sample but for the layer; also its offsets and derivatives have as many."""
    return 2 + instr.get("3d")


def detail(instr: Instr) -> int:
    """How many scalars the second source of a sample has: offsets, then the level of detail."""
    effect = instr.op.effect
    assert isinstance(effect, Sample)
    return instr.get("o") * axes(instr) + (effect.detail is Detail.SOURCE)


def indirect(instr: Instr) -> bool:
    """Whether the last source of a sample holds the slots of texture and sampler."""
    return bool(instr.get("s2en")) and instr["mode"] in INDIRECT


INDIRECT = range(6)
"""Descriptor modes of cat5 in which texture and sampler come from a register pair, the last source."""


@lru_cache(maxsize=1 << 16)
def reads(instr: Instr) -> tuple[Access, ...]:
    """Every scalar register that ``instr`` reads: a0.x for relative operands and predicates too."""
    return tuple(_reads(instr))


@lru_cache(maxsize=1 << 16)
def writes(instr: Instr) -> tuple[Access, ...]:
    """Every scalar register that ``instr`` writes. A relative destination is not among them."""
    return tuple(_writes(instr))


def _reads(instr: Instr) -> Iterator[Access]:
    yield from _addressing(instr)
    if instr.op.cat == 0:
        yield from _predicates(instr)
    elif instr.op.cat in (5, 6):
        yield from _memory_reads(instr)
    else:
        yield from _alu_reads(instr)


def _alu_reads(instr: Instr) -> Iterator[Access]:
    count = elements(instr)
    for number, operand in enumerate(instr.srcs):
        if operand.kind is not Kind.GPR:
            continue
        if parallel(instr):
            yield from _scatter_reads(operand, number, len(instr.srcs), count)
            continue
        for element in range(count):
            yield Access(_register(advance(operand, element)), element, number)


def _scatter_reads(operand: Operand, number: int, sources: int, count: int) -> Iterator[Access]:
    if sources > 1:
        yield Access(_register(operand), number, number)
        return
    for element in range(count):
        yield Access(_register(operand) + element, element, number)


def _addressing(instr: Instr) -> Iterator[Access]:
    operands = (*instr.srcs, *([instr.dst] if instr.dst is not None else []))
    if any(operand.kind in (Kind.REL_GPR, Kind.REL_CONST) for operand in operands):
        yield Access(Reg(ADDRESS, True), 0, ADDRESSING)
    if instr.get("a1") or instr.get("vectors") or (instr.get("s2en") and instr["mode"] in (1, 3, 7)):
        yield Access(Reg(ADDRESS + 1, True), 0, ADDRESSING)


def _predicates(instr: Instr) -> Iterator[Access]:
    if instr.op.effect in (Flow.PREDT, Flow.PREDF):
        yield Access(Reg(PREDICATE), 0, PREDICATED)
    for number, name in enumerate(("comp1", "comp2")):
        if name in instr:
            yield Access(Reg(PREDICATE + instr[name]), 0, PREDICATED + number)


def _memory_reads(instr: Instr) -> Iterator[Access]:
    effect = instr.op.effect
    for number, operand in enumerate(instr.srcs):
        if operand.kind is not Kind.GPR:
            continue
        # the data of an image's atomic stand behind its result
        image = isinstance(effect, Atomic) and effect.space is Space.IMAGE and number == 1
        skip = atomic_words(instr) if image else 0
        for element in range(skip, skip + _width(instr, number)):
            yield Access(_register(operand) + element, element, number)
    if instr.op.cat == 6 and instr.get("mode") and "slot" in instr:
        yield Access(Reg(instr["slot"]), 0, SLOT)


def _width(instr: Instr, number: int) -> int:
    """Consecutive scalars that source ``number`` of a memory instruction spans."""
    effect, last = instr.op.effect, len(instr.srcs) - 1
    if isinstance(effect, Sample):
        if number == last and indirect(instr):
            return 2
        return sampled(instr) if number == 0 else max(1, detail(instr))
    if isinstance(effect, Shuffle):
        return vector(instr) if number == 0 else 1
    if not isinstance(effect, Load | Store | Atomic):
        return instr.get("count", 1) if instr.dst is None and number == last else 1
    if isinstance(effect, Store) and number == last:
        return vector(instr)
    if isinstance(effect, Atomic) and number == last:
        return atomic_words(instr) * (2 if effect.operation == "cmpxchg" else 1)
    if number == 0:
        return {Space.GLOBAL: 2, Space.IMAGE: coordinates(instr)}.get(effect.space, 1)
    return 1


def _writes(instr: Instr) -> Iterator[Access]:
    dst = instr.dst
    if dst is None or dst.kind is not Kind.GPR or dst.value >= NO_REGISTER:
        return
    if instr.op.cat == 5:
        for element in range(4):
            if instr["wrmask"] >> element & 1:
                yield Access(_register(dst) + element, element, DESTINATION)
    elif instr.op.cat == 6:
        for element in range(vector(instr)):
            yield Access(_register(dst) + element, element, DESTINATION)
    else:
        for element in range(elements(instr)):
            yield Access(_register(destination(instr, element)), element, DESTINATION)


def _register(operand: Operand) -> Reg:
    """The register of an operand; predicates are one file, address registers half ones."""
    if operand.value >= PREDICATE:
        return Reg(operand.value)
    if operand.value >= ADDRESS:
        return Reg(operand.value, half=True)
    return Reg(operand.value, operand.half)
