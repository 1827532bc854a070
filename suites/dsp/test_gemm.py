"""The int8 GEMM of the DSP: what its listing computes, on any machine, against an exact product."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qcom.dsp import csource, emulation, gemm, hvx
from pytest_qcom.dsp.gemm import Options
from pytest_qcom.dsp.listing import Address, Listing, Load, Loop, Statement, Step, Store
from pytest_qcom.errors import KernelError

SMALL = Options(n=6, k=12, m=256, rows=2, divisor=100)


@st.composite
def options(draw: st.DrawFn) -> Options:
    """Any small shape, output and range."""
    rows = draw(st.integers(1, gemm.MOST_ROWS))
    return Options(
        n=rows * draw(st.integers(1, 3)),
        k=4 * draw(st.integers(1, 12)),
        m=128 * draw(st.integers(1, 3)),
        raw=draw(st.booleans()),
        divisor=draw(st.sampled_from((1, 2, 77, 1000, 1 << 20))),
        rows=rows,
        weight_high=draw(st.sampled_from((1, 15, 255))),
        activation_low=draw(st.sampled_from((-128, -8, 0))),
        activation_high=draw(st.sampled_from((127, 7, 0))),
    )


@given(options(), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_the_listing_computes_the_product(chosen: Options, seed: int) -> None:
    matrices = gemm.inputs(chosen, np.random.default_rng(seed))
    assert np.array_equal(gemm.emulate(chosen, *matrices), gemm.oracle(chosen, *matrices))


@pytest.mark.long
@pytest.mark.parametrize("raw", [False, True])
def test_the_published_shape(raw: bool) -> None:
    chosen = Options(raw=raw)
    assert (chosen.n, chosen.k, chosen.m, chosen.divisor) == (512, 512, 512, 1000)
    matrices = gemm.inputs(chosen, np.random.default_rng(0))
    assert np.array_equal(gemm.emulate(chosen, *matrices), gemm.oracle(chosen, *matrices))


def test_the_oracle_is_the_product_in_whole_numbers() -> None:
    """Python's own numbers, divided toward zero; the largest and smallest sums are among them."""
    chosen = Options(n=2, k=8, m=128, divisor=7)
    weight, activation = gemm.inputs(chosen, np.random.default_rng(5))
    weight[0], activation[:, 0], activation[:, 1] = 255, 127, -128
    raw = gemm.oracle(dataclasses.replace(chosen, raw=True), weight, activation)
    quantised = gemm.oracle(chosen, weight, activation)
    for row, column in np.ndindex(2, 128):
        total = sum(int(weight[row, depth]) * int(activation[depth, column]) for depth in range(8))
        assert raw[row, column] == total
        assert quantised[row, column] == max(0, min(255, int(total / 7)))
    assert (raw.max(), raw.min()) == (8 * 255 * 127, -8 * 255 * 128)


def test_weights_have_no_sign_and_activations_have_one() -> None:
    """Bytes above 127 are where the two readings differ; every element shows which one it was."""
    chosen = Options(n=1, k=4, m=128, raw=True)
    weight = np.full((1, 4), 255, np.uint8)
    activation = np.full((4, 128), -1, np.int8)
    assert np.array_equal(gemm.emulate(chosen, weight, activation), np.full((1, 128), 4 * 255 * -1))


@pytest.mark.parametrize("raw", [False, True])
def test_every_element_lands_in_its_place(raw: bool) -> None:
    """One weight of a row is 1 and chooses a row of activations, all of whose columns are different."""
    chosen = Options(n=9, k=8, m=256, raw=raw, divisor=1, rows=3)
    generator = np.random.default_rng(3)
    weight = np.zeros((9, 8), np.uint8)
    chosen_rows = generator.integers(0, 8, 9)
    weight[np.arange(9), chosen_rows] = 1
    activation = np.stack([generator.permutation(256) for _ in range(8)])
    activation = (activation // 2).astype(np.int8)
    assert np.array_equal(gemm.emulate(chosen, weight, activation), activation[chosen_rows])


def test_raw_sums_lie_by_position_within_four_columns() -> None:
    """Memory as a user without :func:`gemm.output` reads it."""
    chosen = Options(n=2, k=4, m=256, raw=True)
    matrices = gemm.inputs(chosen, np.random.default_rng(4))
    memory = gemm.memory(chosen, *matrices)
    emulation.run(gemm.listing(chosen), memory)
    words = memory["out"].view("<i4")
    wanted = gemm.oracle(chosen, *matrices)
    for row, column in np.ndindex(2, 256):
        block, within = divmod(column, 128)
        assert words[256 * row + 128 * block + 32 * (within % 4) + within // 4] == wanted[row, column]


@pytest.mark.parametrize("total", [-1999, -1000, -999, -1, 0, 999, 1000, 254999, 255000, 256000, 10**6])
def test_division_is_toward_zero_and_saturates(total: int) -> None:
    """On both sides of zero and of each bound; without saturation, a division downwards would show."""
    chosen = Options(n=1, k=40, m=128)
    weight, activation = np.zeros((1, 40), np.uint8), np.zeros((40, 128), np.int8)
    rest, sign = abs(total), -1 if total < 0 else 1
    for depth in range(39):  # whole products, then what is left
        part = min(rest // 255, 127)
        weight[0, depth], activation[depth], rest = 255, sign * part, rest - 255 * part
    weight[0, 39], activation[39] = rest, sign
    assert gemm.oracle(dataclasses.replace(chosen, raw=True), weight, activation)[0, 0] == total
    wanted = min(255, max(0, abs(total) // 1000 * sign))
    assert (gemm.emulate(chosen, weight, activation) == wanted).all()
    words = np.full(32, total, "<i4").view(np.uint8)
    assert (hvx.DIVIDE.execute(words, 1000).view("<i4") == abs(total) // 1000 * sign).all()


DEEPEST = gemm.LARGEST_SUM // (255 * 128) // 4 * 4
"""The greatest depth of the whole range: the sum nearest to what 32 bits hold."""


@pytest.mark.long
def test_largest_sums_are_exact() -> None:
    chosen = Options(n=1, k=DEEPEST, m=128, raw=True)
    weight = np.full((1, DEEPEST), 255, np.uint8)
    activation = np.full((DEEPEST, 128), -128, np.int8)
    found = gemm.emulate(chosen, weight, activation)
    assert (found == -255 * 128 * DEEPEST).all()


def test_sums_that_may_wrap_are_refused() -> None:
    """From the depth on whose largest sum is one bit too wide; there the operation does wrap."""
    assert Options(k=DEEPEST).largest_sum == 255 * 128 * DEEPEST
    with pytest.raises(KernelError, match=f"sums of {DEEPEST + 4} products reach .* choose a smaller k"):
        Options(k=DEEPEST + 4)
    lowest = [np.full(32, -255 * 128 * DEEPEST, "<i4").view(np.uint8), np.full(128, 255, np.uint8)]
    wrapped = hvx.VRMPYBUSV_ACC.execute(*lowest, np.full(128, 128, np.uint8))
    assert (wrapped.view("<i4") == 2**32 - 255 * 128 * (DEEPEST + 4)).all()


def test_iterations_one_by_one_give_the_same() -> None:
    """What the emulation computes together, a loop in C computes in turn."""
    matrices = gemm.inputs(SMALL, np.random.default_rng(6))
    listing = gemm.listing(SMALL)
    memory = gemm.memory(SMALL, *matrices)
    for statement in unrolled(listing.body, {}):
        emulation.run(Listing("one", listing.buffers, statement), memory)
    assert np.array_equal(gemm.output(SMALL, memory), gemm.oracle(SMALL, *matrices))


def unrolled(body: tuple[Statement, ...], indices: dict[str, int]) -> list[tuple[Statement, ...]]:
    """The innermost blocks of the outer two loops, one for each iteration, in order."""
    (loop,) = body
    assert isinstance(loop, Loop)
    blocks = []
    for iteration in range(loop.count):
        inside = {**indices, loop.variable: iteration}
        if len(loop.body) == 1:
            blocks += unrolled(loop.body, inside)
        else:
            blocks.append(tuple(fixed(statement, inside) for statement in loop.body))
    return blocks


def fixed(statement: Statement, indices: dict[str, int]) -> Statement:
    """A statement in one iteration of the loops around it."""
    if isinstance(statement, Loop):
        body = tuple(fixed(inner, indices) for inner in statement.body)
        return dataclasses.replace(statement, body=body)
    if isinstance(statement, Step):
        return statement
    address = statement.address
    offset = address.offset + sum(stride * indices.get(name, 0) for name, stride in address.strides)
    strides = tuple((name, stride) for name, stride in address.strides if name not in indices)
    return dataclasses.replace(statement, address=Address(address.buffer, strides, offset))


def changed(body: tuple[Statement, ...], where: Any, how: Any) -> tuple[Statement, ...]:
    """The statements with ``how`` applied to those where ``where`` holds."""
    found: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop):
            statement = dataclasses.replace(statement, body=changed(statement.body, where, how))
        found.append(how(statement) if where(statement) else statement)
    return tuple(found)


def step_of(operation: hvx.Operation) -> Any:
    return lambda statement: isinstance(statement, Step) and statement.operation is operation


def reordered(*order: int) -> Any:
    return lambda step: dataclasses.replace(step, operands=tuple(step.operands[index] for index in order))


def moved(offset: Any) -> Any:
    """An access at another offset, computed from its own."""
    return lambda access: dataclasses.replace(
        access, address=dataclasses.replace(access.address, offset=offset(access.address.offset))
    )


MUTATIONS: dict[str, tuple[Any, Any]] = {
    "bytes shuffled the other way": (step_of(hvx.VSHUFOEB), reordered(1, 0)),
    "halfwords dealt the other way": (step_of(hvx.VDEALVDD), reordered(1, 0, 2)),
    "bytes dealt": (
        step_of(hvx.VDEALVDD),
        lambda step: Step(step.result, hvx.VDEALVDD, (*step.operands[:2], 1)),
    ),
    "words packed the other way": (step_of(hvx.VPACKWH_SAT), reordered(1, 0)),
    "halfwords packed the other way": (step_of(hvx.VPACKHUB_SAT), reordered(1, 0)),
    "weights with sign, activations without": (step_of(hvx.VRMPYBUSV_ACC), reordered(0, 2, 1)),
    "low half for high": (
        lambda statement: isinstance(statement, Step) and statement.result == "turned3",
        lambda step: dataclasses.replace(step, operation=hvx.LO),
    ),
    "another divisor": (
        step_of(hvx.DIVIDE),
        lambda step: Step(step.result, hvx.DIVIDE, (step.operands[0], 99)),
    ),
    "bytes not shuffled back": (
        step_of(hvx.VSHUFFB),
        lambda step: Step(step.result, hvx.VPACKHUB_SAT, step.operands * 2),
    ),
    "one quad of depths less": (
        lambda statement: isinstance(statement, Loop) and statement.variable == "quad",
        lambda loop: dataclasses.replace(loop, count=loop.count - 1),
    ),
    "a row of activations twice": (
        lambda statement: isinstance(statement, Load) and statement.result == "x3",
        moved(lambda offset: offset - SMALL.m),
    ),
    "rows in each other's place": (
        lambda statement: isinstance(statement, Store),
        moved(lambda offset: SMALL.m - offset),
    ),
}
"""Errors of a listing: the statements that are wrong, and how."""


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_wrong_listing_computes_something_else(mutation: str) -> None:
    matrices = gemm.inputs(SMALL, np.random.default_rng(7))
    listing = gemm.listing(SMALL)
    wrong = dataclasses.replace(listing, body=changed(listing.body, *MUTATIONS[mutation]))
    assert wrong != listing
    memory = gemm.memory(SMALL, *matrices)
    emulation.run(wrong, memory)
    assert np.mean(gemm.output(SMALL, memory) != gemm.oracle(SMALL, *matrices)) > 0.05


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("entry", csource.ENTRIES)
def test_the_source_has_the_listing_s_operations(raw: bool, entry: str) -> None:
    """Each step is one line, in order, and each buffer one argument of the kernel."""
    chosen = dataclasses.replace(SMALL, raw=raw)
    text = gemm.source(chosen, entry)
    wanted = [step.operation for step in steps(gemm.listing(chosen).body) if not step.operation.template]
    assert re.findall(r"__builtin_HEXAGON_V6_(\w+)_128B", text) == [operation.name for operation in wanted]
    assert text.count(" / 100;") == (0 if raw else 4 * chosen.rows)
    assert [int(count) for count in re.findall(r"\w+ < (\d+); \w+\+\+", text)] == [3, 2, 3]
    assert re.search(
        r"void gemm\(unsigned char \*restrict out, const unsigned char \*restrict weight, "
        r"const unsigned char \*restrict activation\)",
        text,
    )
    assert text == gemm.source(chosen, entry)


def steps(body: tuple[Statement, ...]) -> list[Step]:
    found: list[Step] = []
    for statement in body:
        if isinstance(statement, Loop):
            found += steps(statement.body)
        elif isinstance(statement, Step):
            found.append(statement)
    return found


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"m": 130}, "DSP GEMM: m is 130; give a multiple of 128 above 0"),
        ({"k": 0}, "DSP GEMM: k is 0; give a multiple of 4 above 0"),
        ({"n": 5, "rows": 2}, "DSP GEMM: n is 5; give a multiple of 2 above 0"),
        ({"n": 510, "rows": 5}, "DSP GEMM: rows is 5; give 1 to 4"),
        ({"divisor": 0}, "DSP GEMM: divisor is 0; give 1 to 2147483647"),
        ({"weight_high": 256}, "DSP GEMM: weight-high is 256; give 0 to 255"),
        ({"activation_low": 1}, "DSP GEMM: activation-low is 1; give -128 to 0"),
        ({"activation_high": 128}, "DSP GEMM: activation-high is 128; give 0 to 127"),
        (
            {"n": 1 << 20, "m": 1 << 10, "raw": True},
            "DSP GEMM: out of 4294967296 bytes, a size has at most 2147483647; choose a smaller shape",
        ),
    ],
)
def test_options_that_cannot_be(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError) as caught:
        Options(**wrong)
    assert str(caught.value) == message


@pytest.mark.parametrize("judge", [gemm.emulate, gemm.oracle])
def test_inputs_that_are_not_as_the_options_say(judge: Any) -> None:
    chosen = Options(n=2, k=4, m=128, weight_high=15, activation_low=-8, activation_high=7)
    weight, activation = gemm.inputs(chosen, np.random.default_rng(8))
    for matrices, message in (
        ((weight.T, activation), r"weight is uint8 of shape \(4, 2\); give uint8 of shape \(2, 4\)"),
        ((weight, activation.view(np.uint8)), r"activation is uint8 .*; give int8 of shape \(4, 128\)"),
        ((weight + np.uint8(16), activation), r"weight from \d+ to \d+, the options say 0 to 15; widen them"),
        ((weight, activation - np.int8(9)), r"activation from -1\d to -?\d, the options say -8 to 7"),
    ):
        with pytest.raises(KernelError, match=message):
            judge(chosen, *matrices)
    with pytest.raises(KernelError, match=r"^gemm: entry 'rpc'; there are fastrpc, stdio$"):
        gemm.source(chosen, "rpc")
