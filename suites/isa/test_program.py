"""Programs: images, blocks, footprints, and what a broken image is told."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qcom.errors import DecodeError, EncodeError, QcomError
from pytest_qcom.isa.assembler import Assembler, assemble
from pytest_qcom.isa.decoder import decode
from pytest_qcom.isa.encoder import encode
from pytest_qcom.isa.instruction import Instr
from pytest_qcom.isa.program import Block, Program
from pytest_qcom.isa.table import BY_NAME
from suites.isa import strategies


def program(source: str) -> Program:
    return Assembler().parse(source).program()


def test_padding_is_mesas() -> None:
    """A multiple of 16 instructions with at least four nops behind end."""
    for count, length in ((1, 16), (12, 16), (13, 32), (28, 32), (29, 48)):
        image = program("nop\n" * (count - 1) + "end").encode()
        assert len(image) == 8 * length
        assert not any(image[8 * count :])
        assert len(Program.decode(image).instrs) == count


def test_blocks_of_a_loop() -> None:
    found = program(
        """
        mov.u32u32 r0.x, 0
        loop:
        cmps.s.ge p0.x, r0.x, 4
        br p0.x, #out
        add.u r0.x, r0.x, 1
        jump #loop
        out:
        end
        """
    ).blocks()
    assert found == (Block(0, 1, (1,)), Block(1, 3, (5, 3)), Block(3, 5, (1,)), Block(5, 6, ()))


def test_a_branch_to_the_next_instruction_is_one_edge() -> None:
    assert program("br p0.x, #next\nnext:\nend").blocks() == (Block(0, 1, (1,)), Block(1, 2, ()))


def test_blocks_end_behind_end() -> None:
    found = program("br p0.x, #two\nend\ntwo:\nnop\nend").blocks()
    assert [block.start for block in found] == [0, 1, 2]
    assert found[1].successors == ()


def test_a_program_without_end_runs_off() -> None:
    """It decodes: whether it ends is the watchdog's business. The last block has no successor."""
    found = program("nop\nnop")
    assert found.blocks() == (Block(0, 2, ()),)


@pytest.mark.parametrize(
    ("source", "footprint"),
    [
        ("end", (0, 0)),
        ("mov.u32u32 r3.w, r1.x\nend", (4, 0)),
        ("add.f hr7.x, hr1.x, hr2.x\nend", (0, 8)),
        ("(rpt3)mov.u32u32 r3.y, (r)r0.x\nend", (5, 0)),
        ("ldg.f32 r3.z, g[r0.x], 4\nend", (5, 0)),
        ("stg.f16 g[r2.w], hr0.z, 4\nend", (4, 2)),
        ("isam.1d (f16)(xyzw)hr4.x, r0.w, s#0, t#0\nend", (2, 5)),
        ("isam.1d (f32)(x)r4.x, r0.x, s#0, t#0\nend", (5, 0)),
        ("stib.b.typed.2d.f32.4.imm r0.x, r1.w, 0\nend", (3, 0)),
        ("mov.u32u32 r0.x, r<a0.x + 10>\nend", (3, 0)),
        ("mov.u32u32 r48.x, r0.x\nend", (1, 0)),
        ("cmps.u.lt p0.x, r0.y, 3\nend", (1, 0)),
        ("mov.u32u32 r0.x, c500.x\nend", (1, 0)),
        ("gat.u32u32 r0.z, r9.x, r0.x, r0.x, r0.x\nend", (10, 0)),
    ],
)
def test_footprint(source: str, footprint: tuple[int, int]) -> None:
    assert program(source).footprint() == footprint


def test_truncated_image() -> None:
    image = program("nop\nend").encode()
    with pytest.raises(DecodeError) as caught:
        Program.decode(image[:13])
    assert str(caught.value) == (
        "program of 13 bytes: an image is a whole number of 8-byte instructions, "
        "at least one; it is truncated"
    )
    assert caught.value.facts["offset"] == 8
    with pytest.raises(DecodeError, match=r"^program of 0 bytes"):
        Program.decode(b"")


def test_unknown_opcode() -> None:
    with pytest.raises(DecodeError) as caught:
        Program.decode(struct.pack("<2Q", 0, 0x4100_0000_0000_0000))
    assert str(caught.value) == (
        "instruction 1 at byte 0x8: word 4100000000000000: bits 63:61 are category 2, "
        "which has no opcode (8); this is no A630 instruction"
    )
    assert caught.value.facts["offset"] == 8


def test_unexpected_bits() -> None:
    word = encode(assemble("add.f r0.x, r1.x, r2.x")) | 1 << 48
    with pytest.raises(DecodeError) as caught:
        decode(word)
    assert str(caught.value) == (
        f"word {word:016x}: bits 50:48 of add.f are 0x1, must be 0x0; this is no A630 instruction"
    )
    assert caught.value.facts == {"word": word, "low": 48, "high": 50, "value": 1}


def test_no_operand() -> None:
    word = encode(assemble("add.f r0.x, r1.x, r2.x")) | 3 << 24
    with pytest.raises(DecodeError) as caught:
        decode(word)
    assert str(caught.value) == (
        f"word {word:016x}: bits 31:16 of add.f are 0x308, no source operand; this is no A630 instruction"
    )


def test_words_of_more_than_64_bits() -> None:
    with pytest.raises(DecodeError, match=r"^word 0x10000000000000000 has more than 64 bits"):
        decode(1 << 64)


def test_branch_out_of_the_program() -> None:
    found = program("br !p0.x, #5\nend")
    with pytest.raises(DecodeError) as caught:
        found.blocks()
    assert str(caught.value) == (
        "instruction 0 (br !p0.x, #5) jumps to 5, outside of the program's 2 instructions; "
        "the branch offset is wrong"
    )


def test_encoding_errors_say_which_instruction() -> None:
    broken = Program((assemble("nop"), Instr(BY_NAME["add.f"])))
    with pytest.raises(EncodeError) as caught:
        broken.encode()
    assert str(caught.value) == "instruction 1: add.f with 0 sources; it takes 2"


@settings(max_examples=60)
@given(strategies.seeds, st.integers(1, 64), st.integers(0, 63))
def test_damaged_images_raise_or_mean_what_they_say(seed: int, length: int, bit: int) -> None:
    """A flipped bit or a cut never crashes: it is an error of ours, or a program with exactly those bits."""
    image = bytearray(
        program("nop\nadd.f r0.x, r1.x, (1.0)\nisam.1d (f16)(x)hr0.x, r1.x, s#0, t#0\nend").encode()
    )
    image[seed % len(image)] ^= 1 << bit % 8
    cut = bytes(image[: max(1, len(image) * length // 64)])
    try:
        found = Program.decode(cut)
        found.blocks()
        found.footprint()
        found.listing()
    except QcomError:
        return
    words = [encode(instr) for instr in found.instrs]
    assert struct.pack(f"<{len(words)}Q", *words) == cut[: 8 * len(words)]
