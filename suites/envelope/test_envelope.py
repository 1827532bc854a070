"""The QCOM CL binary: tinygrad's own parser reads what we build; what we parse we write back unchanged."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinygrad.runtime.ops_qcom import QCOMProgram

from pytest_qcom.envelope import Argument, ArgumentKind, Constant, Envelope, parse
from pytest_qcom.errors import EnvelopeError

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
FOOTPRINTS = st.integers(0, 48)
PLACES = st.integers(0, 510).map(lambda word: 4 * word)
GOOD = Envelope(name="gemm_h", image=bytes(128), fregs=8, hregs=28)
BUFFERS = st.builds(Argument, st.just(ArgumentKind.BUFFER), PLACES)


@st.composite
def constants(draw: st.DrawFn) -> Constant:
    size = draw(st.sampled_from((2, 4)))
    return Constant(size * draw(st.integers(0, 2048 // size - 1)), draw(st.integers(0, 256**size - 1)), size)


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    images = [Argument(ArgumentKind.WRITTEN_IMAGE)] * draw(st.integers(0, 3))
    images += [Argument(ArgumentKind.READ_IMAGE)] * draw(st.integers(0, 5))
    arguments: list[Argument] = []
    for image in images:  # buffers may stand anywhere
        arguments += [*draw(st.lists(BUFFERS, max_size=1)), image]
    return Envelope(
        name=draw(NAMES),
        image=draw(st.binary(min_size=8, max_size=64).map(lambda data: data[: len(data) // 8 * 8])),
        fregs=draw(FOOTPRINTS),
        hregs=draw(FOOTPRINTS),
        arguments=tuple(arguments + draw(st.lists(BUFFERS, max_size=3))),
        samplers=draw(st.integers(0, 1)),
        constants=tuple(draw(st.lists(constants(), max_size=4))),
        branchstack=draw(st.integers(0, 64)),
        private_bytes=draw(st.integers(0, 4096)),
        shared_bytes=draw(st.integers(0, 32768)),
        merged=draw(st.sampled_from((None, True, False))),
        entry=draw(st.integers(0, 2**32 - 1)),
    )


def tinygrad_parse(data: bytes, name: str) -> Any:
    """The fields as tinygrad's unmodified runtime reads them, with no device behind it."""
    program = QCOMProgram.__new__(QCOMProgram)
    program.name = name
    program._parse_lib(data)
    return program


def noisy(envelope: Envelope, seed: int) -> bytes:
    """A binary with other offsets and with bytes of unknown meaning everywhere, as a compiler would leave."""
    rng = random.Random(seed)
    registers = 0x114 + 4 * rng.randrange(8)
    descriptor = registers + 0x40 + 4 * rng.randrange(8)
    start = (descriptor + 0x158 + len(envelope.name) + 3) // 4 * 4 + 8 * envelope.samplers
    lengths = [32 + 4 * rng.randrange(5) for _ in envelope.arguments]
    table = start + sum(lengths) + 32 + 4 * rng.randrange(6)
    image = table + 40 * len(envelope.constants) + rng.randrange(40)
    data = bytearray(rng.randbytes(image + len(envelope.image) + rng.randrange(100)))
    merged = 0 if envelope.merged is None else 1 << 31

    def put(place: int, word: int) -> None:
        struct.pack_into("<I", data, place, word)

    for place, word in ((0x34, registers), (0xAC, table), (0xB0, len(envelope.constants)), (0xC0, image)):
        put(place, word)
    put(0x100, len(envelope.image))
    put(0x110, descriptor)
    put(registers + 0x14, envelope.fregs | (merged if envelope.merged else 0))
    put(registers + 0x18, envelope.hregs | (0 if envelope.merged else merged))
    put(descriptor + 0xC4, envelope.entry)
    put(descriptor + 0xC8, envelope.private_bytes)
    put(descriptor + 0xD8, envelope.shared_bytes)
    put(descriptor + 0xDC, envelope.samplers)
    put(descriptor + 0x108, 2 * envelope.branchstack + rng.randrange(2))
    data[descriptor + 0x158 :][: len(envelope.name)] = b"?" * len(envelope.name)
    data[descriptor + 0x158 : descriptor + 0x158 + len(envelope.name)] = envelope.name.encode()
    for argument, length in zip(envelope.arguments, lengths, strict=True):
        put(start, length)
        put(start + 12, argument.offset // 4)
        put(start + 28, argument.kind.value)
        start += length
    put(start, 0)
    for index, constant in enumerate(envelope.constants):
        put(table + 40 * index, constant.value)
        put(table + 40 * index + 16, constant.offset // constant.size)
        put(table + 40 * index + 24, constant.size // 4)
    data[image : image + len(envelope.image)] = envelope.image
    return bytes(data)


@given(envelopes())
def test_built_binary_reads_back(envelope: Envelope) -> None:
    assert parse(envelope.to_bytes()) == envelope
    assert parse(envelope.to_bytes(), envelope.name) == envelope


@given(envelopes())
def test_tinygrad_reads_what_we_build(envelope: Envelope) -> None:
    program = tinygrad_parse(envelope.to_bytes(), envelope.name)
    kinds = [argument.kind for argument in envelope.arguments]
    assert program.image == envelope.image
    assert program.image_size == len(envelope.image)
    flag = 1 << 31
    assert program.fregs == envelope.fregs | (flag if envelope.merged is True else 0)
    assert program.hregs == envelope.hregs | (flag if envelope.merged is False else 0)
    assert program.brnchstck == envelope.branchstack
    assert (program.pvtmem, program.shmem) == (envelope.private_bytes, envelope.shared_bytes)
    assert program.prg_offset == envelope.entry
    assert program.samp_cnt == 2 * envelope.samplers  # the runtime duplicates it
    assert program.tex_cnt == kinds.count(ArgumentKind.READ_IMAGE)
    assert program.ibo_cnt == kinds.count(ArgumentKind.WRITTEN_IMAGE)
    assert program.buf_offs == [a.offset for a in envelope.arguments if a.kind is ArgumentKind.BUFFER]
    assert program.consts_info == [(c.value, c.offset, c.size) for c in envelope.constants]


@given(envelopes(), st.integers(0, 2**32))
def test_unknown_bytes_survive(envelope: Envelope, seed: int) -> None:
    data = noisy(envelope, seed)
    parsed = parse(data, envelope.name)
    assert parsed == envelope
    assert parsed.to_bytes() == data
    again = replace(parsed, fregs=48 - parsed.fregs).to_bytes()
    assert sum(a != b for a, b in zip(again, data, strict=True)) <= 1
    assert tinygrad_parse(again, envelope.name).fregs & 63 == 48 - envelope.fregs


@given(envelopes(), st.integers(0, 2**32), st.integers(1, 40), FOOTPRINTS, FOOTPRINTS)
def test_inject_keeps_everything_else(
    envelope: Envelope, seed: int, instructions: int, fregs: int, hregs: int
) -> None:
    image = random.Random(seed).randbytes(8 * instructions)
    data = noisy(envelope, seed)
    injected = parse(data, envelope.name).inject(image, fregs, hregs).to_bytes()
    assert parse(injected, envelope.name) == replace(envelope, image=image, fregs=fregs, hregs=hregs)
    assert tinygrad_parse(injected, envelope.name).image == image
    if len(image) <= len(envelope.image):
        assert len(injected) == len(data)


@pytest.mark.parametrize("trailing", [b"", b"\0\0\0", b"\0\0\0\0\1\2\3\4"])
def test_inject_where_the_file_ends_with_the_arguments(trailing: bytes) -> None:
    envelope = replace(
        GOOD, arguments=(Argument(ArgumentKind.READ_IMAGE), Argument(ArgumentKind.BUFFER, 320))
    )
    built = envelope.to_bytes()
    data = bytearray(built + built[0x160:0x300] + trailing)  # descriptor and both records, no end mark
    struct.pack_into("<I", data, 0x110, len(built))
    assert parse(bytes(data)) == envelope
    injected = parse(bytes(data)).inject(bytes(range(128)) * 3, 9, 29).to_bytes()
    assert parse(injected) == replace(envelope, image=bytes(range(128)) * 3, fregs=9, hregs=29)
    assert tinygrad_parse(injected, "gemm_h").image == bytes(range(128)) * 3


def test_inject_refuses_to_invent_an_argument() -> None:
    built = replace(GOOD, arguments=(Argument(ArgumentKind.BUFFER, 320),)).to_bytes()
    data = bytearray(built + built[0x160:0x2E0] + b"\40\0\0\0")
    struct.pack_into("<I", data, 0x110, len(built))
    with pytest.raises(EnvelopeError, match="ends within 4 bytes behind its arguments"):
        parse(bytes(data)).inject(bytes(256), 8, 28).to_bytes()


@given(envelopes(), st.data())
@settings(max_examples=300)
def test_damaged_binary_is_an_envelope_error_or_harmless(envelope: Envelope, data: st.DataObject) -> None:
    binary = bytearray(envelope.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        bit = data.draw(st.integers(0, 8 * len(binary) - 1))
        binary[bit // 8] ^= 1 << bit % 8
    damaged = (
        bytes(binary[: data.draw(st.integers(0, len(binary)))]) if data.draw(st.booleans()) else bytes(binary)
    )
    try:
        parsed = parse(damaged, data.draw(st.sampled_from((None, envelope.name))))
    except EnvelopeError as error:
        assert isinstance(error.facts["offset"], int)
    else:
        assert parsed.to_bytes() == damaged


@given(envelopes())
def test_every_truncation_is_noticed(envelope: Envelope) -> None:
    binary = envelope.to_bytes()
    for size in range(0, len(binary), 7):
        with pytest.raises(EnvelopeError, match=r"truncated|leaves the file") as caught:
            parse(binary[:size])
        assert caught.value.facts["offset"] <= len(binary)


def damaged(place: int, word: int) -> bytes:
    data = bytearray(GOOD.to_bytes())
    struct.pack_into("<I", data, place, word)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has 0 bytes, but the image offset should stand at byte 0xc0: it is truncated or damaged"),
        (
            damaged(0x100, 1 << 20),
            "is damaged at byte 0x100: the shader of 1048576 bytes at 0x300 leaves the file",
        ),
        (damaged(0x23C, 2), "is damaged at byte 0x23c: 2 samplers, the runtime takes 0 or 1"),
        (damaged(0x2B8, 0), "is damaged at byte 0x2b8: no kernel name stands there"),
        (damaged(0x2C0, 8), "is damaged at byte 0x2c0: an argument record of 8 bytes, one has at least 32"),
        (damaged(0x2C0, 4096), "is damaged at byte 0x2c0: an argument record of 4096 bytes leaves the file"),
    ],
)
def test_damage_is_explained(data: bytes, message: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        parse(data)
    assert str(caught.value) == f"binary {message}; compile or fetch it again"
    assert "offset" in caught.value.facts


def test_impossible_footprint_is_explained() -> None:
    with pytest.raises(EnvelopeError) as caught:
        parse(damaged(0x154, 64))
    assert str(caught.value) == (
        "binary of 'gemm_h': fregs is 64; the register file has 0 to 63 vec4 (at byte 0x154)"
    )


def test_wrong_name_is_explained() -> None:
    with pytest.raises(EnvelopeError, match="at byte 0x2b8: 'gemm_f', the kernel's name, is not there"):
        parse(GOOD.to_bytes(), "gemm_f")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "name is 3; give text"),
        ({"image": "x"}, "image is 'x'; give bytes"),
        ({"fregs": "x"}, "fregs is 'x'; give a whole number"),
        ({"hregs": 2.0}, "hregs is 2.0; give a whole number"),
        ({"samplers": True}, "samplers is True; give a whole number"),
        ({"merged": 1}, "merged is 1; give True, False or None"),
        ({"arguments": None}, "arguments is None; give a tuple of Argument"),
        ({"arguments": (3,)}, "arguments[0] is 3; give Argument"),
        ({"arguments": (Argument(0),)}, "arguments[0].kind is 0; give an ArgumentKind"),  # type: ignore[arg-type]
        (
            {"constants": (Constant(0, 1), Constant(4, 1.5))},  # type: ignore[arg-type]
            "constants[1].value is 1.5; give a whole number",
        ),
        ({"name": "4x4"}, "the name is no C identifier; give the kernel function's name"),
        ({"image": b""}, "0 bytes of shader; give whole 8-byte instructions"),
        ({"image": bytes(12)}, "12 bytes of shader; give whole 8-byte instructions"),
        ({"fregs": 49}, "fregs is 49; the register file has 0 to 48 vec4"),
        ({"hregs": -1}, "hregs is -1; the register file has 0 to 48 vec4"),
        ({"samplers": 2}, "2 samplers; the runtime takes 0 or 1"),
        ({"shared_bytes": -4}, "shared_bytes is -4; give a 32-bit count"),
        (
            {"arguments": (Argument(ArgumentKind.READ_IMAGE), Argument(ArgumentKind.WRITTEN_IMAGE))},
            "a read image stands before a written one; put written images first",
        ),
        (
            {"arguments": (Argument(ArgumentKind.BUFFER, 2044),)},
            "argument 0 at constant byte 2044; give a word in 0 to 2040",
        ),
        (
            {"constants": (Constant(2, 1, 4),)},
            "constant 0 at byte 2; give a multiple of its size in the first 2048",
        ),
        ({"constants": (Constant(0, 1 << 16, 2),)}, "constant 0 is 0x10000; it has 2 bytes"),
        ({"constants": (Constant(0, 1, 8),)}, "constant 0 is 0x1 in 8 bytes; give 2 or 4 bytes"),
    ],
)
def test_what_cannot_be_built_is_explained(change: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        replace(GOOD, **change)
    assert str(caught.value) == f"binary of {change.get('name', 'gemm_h')!r}: {message}"


def test_structure_of_a_parsed_binary_stays() -> None:
    parsed = parse(GOOD.to_bytes())
    with pytest.raises(
        EnvelopeError, match="samplers of a parsed binary cannot change in place; build a new one"
    ):
        replace(parsed, samplers=1).to_bytes()
