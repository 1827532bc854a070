"""Listings that make no sense, and accesses that hardware would do wrongly."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_qcom.dsp import emulation, hvx
from pytest_qcom.dsp.hvx import Kind
from pytest_qcom.dsp.listing import Address, Buffer, Listing, Load, Loop, Statement, Step, Store
from pytest_qcom.errors import KernelError

GIVEN, OUT = Buffer("given", 512), Buffer("out", 512, written=True)
LOAD = Load("a", Kind.VECTOR, Address("given"))
NUMBER = Load("number", Kind.WORD, Address("given"))
ZERO = Step("zero", hvx.VD0, ())


def listing(*body: Statement) -> Listing:
    return Listing("it", (GIVEN, OUT), body)


def run(*body: Statement) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """What ``out`` holds afterwards, where ``given`` holds its own addresses."""
    memory = {"given": np.arange(512).astype(np.uint8), "out": np.zeros(512, np.uint8)}
    emulation.run(listing(*body), memory)
    return memory["out"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([Store("a", Address("out"))], "it: a has no value where vector is read"),
        ([NUMBER, Store("number", Address("out"))], "it: number is word where vector is read"),
        ([LOAD, Step("b", hvx.LVSPLATW, ("a",))], "it: a is vector where word is read"),
        ([LOAD, Step("b", hvx.DIVIDE, ("a", "a"))], "it: a is vector where int is read"),
        ([LOAD, Step("b", hvx.VSHUFFB, (3,))], "it: 3 is int where vector is read"),
        ([LOAD, Step("b", hvx.VSHUFFB, ("a", "a"))], "it: vshuffb with 2 operands; it takes 1"),
        ([LOAD, Step("a", hvx.VSHUFOEB, ("a", "a"))], "it: a is vector and is given vector_pair; use"),
        ([Loop("i", 2, (ZERO,)), Store("zero", Address("out"))], "it: zero has no value where vector is"),
        ([Loop("i", 2, (Loop("i", 2, ()),))], "it: two loops by i; name one of them differently"),
        ([Load("a", Kind.VECTOR, Address("out"))], "it: load from out, which is only written"),
        ([LOAD, Store("a", Address("given"))], "it: store to given, which is only read; a"),
        ([LOAD, Store("a", Address("in"))], "it: no buffer in; declare it"),
        ([LOAD, Store("a", Address("out", (("i", 128),)))], "it: address in out by i, which is no loop"),
    ],
)  # fmt: skip
def test_listings_that_make_no_sense(body: list[Statement], message: str) -> None:
    with pytest.raises(KernelError) as caught:
        listing(*body)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            [Loop("i", 5, (LOAD, Store("a", Address("out", (("i", 128),)))))],
            "it: bytes 0 to 640 of out are accessed, it has 512; correct strides or counts",
        ),
        (
            [Load("a", Kind.VECTOR, Address("given", (), -128))],
            "it: bytes -128 to 0 of given are accessed, it has 512; correct strides or counts",
        ),
        (
            [Loop("i", 2, (Load("a", Kind.VECTOR, Address("given", (("i", 64),))),))],
            "it: access of 128 bytes to given at no multiple of 128; the hardware would take the multiple "
            "below it",
        ),
        (
            [Loop("i", 2, (LOAD, Store("a", Address("out"))))],
            "it: iterations store to one place of out; the last one would win, give the address a stride of "
            "every loop around it",
        ),
    ],
)
def test_accesses_that_hardware_would_do_wrongly(body: list[Statement], message: str) -> None:
    with pytest.raises(KernelError) as caught:
        run(*body)
    assert str(caught.value) == message


def test_buffers_have_the_size_that_was_declared() -> None:
    with pytest.raises(KernelError, match=r"^it: out has 256 bytes; give it 512$"):
        emulation.run(listing(), {"given": np.zeros(512, np.uint8), "out": np.zeros(256, np.uint8)})


def test_a_value_that_is_carried_makes_a_loop_run_in_turn() -> None:
    """Bytes are shuffled once more in each iteration, and stored on the way, inside of another loop."""
    load = Load("a", Kind.VECTOR, Address("given", (("row", 256),)))
    again = Step("a", hvx.VSHUFFB, ("a",))
    out = run(
        Loop(
            "row",
            2,
            (load, Loop("time", 2, (again, Store("a", Address("out", (("row", 256), ("time", 128))))))),
        )
    )
    once = [64 * (byte % 2) + byte // 2 for byte in range(128)]
    twice = [once[64 * (byte % 2) + byte // 2] for byte in range(128)]
    assert out.tolist() == [*once, *twice] * 2
