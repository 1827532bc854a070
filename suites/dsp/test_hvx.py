"""Meanings of the HVX operations: against loops written by hand, and against QEMU where it is installed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pytest_qcom.dsp import emulation, hvx, runner
from pytest_qcom.dsp.hvx import OPERATIONS, Kind, Operation
from pytest_qcom.dsp.listing import Address, Buffer, Listing, Load, Statement, Step, Store
from suites.dsp.scalar import MEANINGS

LITERALS = {"vdealvdd": (1, 2, 64, 127, 0b0101010), "divide": (1, 7, 1000, 4096, 2**31 - 1)}
WORDS = (0, 1, -1, 999, -999, 1000, -1000, 255, 256, 32767, 32768, -32768, -32769, 2**31 - 1, -(2**31))
"""Where a division or a saturation changes what it gives."""


def cases() -> Iterator[tuple[Operation, tuple[int, ...]]]:
    """Each operation with each of its literals."""
    for operation in OPERATIONS:
        for literal in LITERALS.get(operation.name, (None,)):
            yield operation, () if literal is None else (literal,)


def drawn(generator: np.random.Generator, kind: Kind, *axes: int) -> hvx.Bytes:
    """Random bytes, or words around those where results change: narrow ones are part of them too."""
    data = generator.integers(0, 256, (*axes, kind.size), np.uint8)
    edges = generator.choice(np.array(WORDS, "<i4"), (*axes, kind.size // 4)).view(np.uint8)
    return np.where(generator.random((*axes, 1)) < 0.5, data, edges)


def test_every_operation_has_a_meaning_by_hand() -> None:
    assert {operation.name for operation in OPERATIONS} == set(MEANINGS)
    assert len(MEANINGS) == len(OPERATIONS)


@pytest.mark.parametrize(
    ("operation", "literals"), list(cases()), ids=lambda value: getattr(value, "name", None)
)
def test_meanings_are_those_of_loops_by_hand(operation: Operation, literals: tuple[int, ...]) -> None:
    generator = np.random.default_rng(len(operation.name))
    kinds = [kind for kind in operation.operands if kind is not Kind.LITERAL]
    operands = [drawn(generator, kind, 24) for kind in kinds]
    found = np.broadcast_to(operation.execute(*operands, *literals), (24, operation.result.size))
    for index in range(24):
        wanted = MEANINGS[operation.name](*(operand[index].tolist() for operand in operands), *literals)
        assert found[index].tolist() == wanted


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_iterations_are_broadcast(operation: Operation) -> None:
    """Operands that differ in other loops give what they give one by one."""
    generator = np.random.default_rng(1)
    literals = [LITERALS[operation.name][1]] if operation.name in LITERALS else []
    kinds = [kind for kind in operation.operands if kind is not Kind.LITERAL]
    shapes = ((3, 1), (1, 2), (3, 2))
    operands = [drawn(generator, kind, *shape) for kind, shape in zip(kinds, shapes, strict=False)]
    found = operation.execute(*operands, *literals)
    whole = [np.broadcast_to(operand, (3, 2, operand.shape[-1])) for operand in operands]
    for place in np.ndindex(3, 2):
        single = operation.execute(*(np.array(operand[place]) for operand in whole), *literals)
        assert np.array_equal(np.broadcast_to(found, (3, 2, single.size))[place], single)


def every_operation() -> Listing:
    """Stores what each operation, with each of its literals, makes of three vectors and a word."""
    vectors = ("a", "b", "c")
    body: list[Statement] = [
        Load(name, Kind.VECTOR, Address("given", (), 128 * at)) for at, name in enumerate(vectors)
    ]
    body += [
        Load("number", Kind.WORD, Address("given", (), 128 * 3 + 8)),
        Step("both", hvx.VSHUFOEB, ("c", "a")),
    ]
    stored = 0
    for index, (operation, literals) in enumerate(cases()):
        names = {Kind.VECTOR: iter(vectors), Kind.PAIR: iter(["both"]), Kind.WORD: iter(["number"])}
        operands = [next(names[kind]) for kind in operation.operands if kind is not Kind.LITERAL]
        results = [f"result{index}"]
        body.append(Step(results[0], operation, (*operands, *literals)))
        if operation.result is Kind.PAIR:
            results = [f"low{index}", f"high{index}"]
            body += [
                Step(name, half, (f"result{index}",))
                for name, half in zip(results, (hvx.LO, hvx.HI), strict=True)
            ]
        for name in results:
            body.append(Store(name, Address("results", (), 128 * stored)))
            stored += 1
    return Listing("every", (Buffer("results", 128 * stored, True), Buffer("given", 128 * 4)), tuple(body))


@pytest.mark.usefixtures("qemu")
def test_meanings_are_those_of_qemu() -> None:
    """One program of all operations: QEMU's results are those of the meanings here, byte by byte."""
    listing = every_operation()
    assert sum(isinstance(statement, Store) for statement in listing.body) == len(list(cases())) + 6
    given = drawn(np.random.default_rng(2), Kind.VECTOR, 4).reshape(-1)
    found, wanted = (
        {"results": np.zeros(listing.buffers[0].size, np.uint8), "given": given} for _ in range(2)
    )
    emulation.run(listing, wanted)
    assert len(np.unique(wanted["results"])) > 100
    speed = runner.PLACES["qemu"].run(listing, found, 1)
    assert np.array_equal(found["results"].reshape(-1, 128), wanted["results"].reshape(-1, 128))
    assert speed.instructions is not None and speed.instructions > len(listing.body)
