"""Register names and data types."""

from __future__ import annotations

import pytest

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.operands import parse_operand, register_text
from pytest_qcom.isa.registers import Reg, Ty


@pytest.mark.parametrize(
    ("name", "number", "half"),
    [
        ("r0.x", 0, False),
        ("r47.w", 191, False),
        ("r48.x", 192, False),
        ("hr0.y", 1, True),
        ("hr47.w", 191, True),
        ("a0.x", 244, True),
        ("a1.x", 245, True),
        ("p0.x", 248, False),
        ("p0.w", 251, False),
    ],
)
def test_names(name: str, number: int, half: bool) -> None:
    register = Reg.parse(name)
    assert (register.num, register.half, str(register)) == (number, half, name)


@pytest.mark.parametrize("name", ["", "r", "r0", "r0.", "r0.xy", "x0.x", "hr.x", "r-1.x", "c0.x", "r0.q"])
def test_no_names(name: str) -> None:
    with pytest.raises(EncodeError) as caught:
        Reg.parse(name)
    assert str(caught.value) == (
        f"register {name!r} is no A630 register; write r0.x to r55.w, hr0.x to hr47.w, p0.x or a0.x"
    )


@pytest.mark.parametrize(
    ("name", "last"), [("r56.x", "r55"), ("hr56.x", "hr55"), ("a2.x", "a1"), ("p1.x", "p0")]
)
def test_names_beyond_the_file(name: str, last: str) -> None:
    with pytest.raises(EncodeError) as caught:
        Reg.parse(name)
    assert str(caught.value).startswith(f"register {name!r} is beyond the file: ")
    assert f"to {last} exist" in str(caught.value)


def test_every_register_has_one_name() -> None:
    """Number to text to number, in both files; Mesa calls a1.x a0.y where it is an operand."""
    for half in (False, True):
        names = [register_text(number, half) for number in range(256)]
        assert len(set(names)) == 256
        for number, name in enumerate(names):
            operand = parse_operand(name)
            assert (operand.value, operand.half) == (number, half)


def test_classes_of_registers() -> None:
    assert [number for number in range(256) if Reg(number).predicate] == list(range(248, 252))
    assert [number for number in range(256) if Reg(number).address] == list(range(244, 248))
    assert [number for number in range(256) if Reg(number).shared] == list(range(192, 244))
    assert Reg.parse("r2.w") + 1 == Reg.parse("r3.x")


def test_types() -> None:
    assert [ty.name for ty in Ty if ty.half] == ["F16", "U16", "S16", "U8"]
    assert [ty.bits for ty in Ty] == [16, 32, 16, 32, 16, 32, 8, 8]
    assert [ty.name for ty in Ty if ty.float] == ["F16", "F32"]
    assert [ty.name for ty in Ty if ty.signed] == ["S16", "S32"]
