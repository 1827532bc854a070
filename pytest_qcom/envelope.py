"""The QCOM CL binary: the container in which a compute shader reaches the A630.

:func:`parse` reads a binary, :class:`Envelope` is its content, :meth:`Envelope.to_bytes` writes it: a new
one from nothing, or, for one that was parsed, the same bytes with only the changed fields in them, so that
whatever we know nothing of survives. The layout is what tinygrad's runtime reads (0.14.0, ``ops_qcom.py``
``QCOMProgram._parse_lib``), and that parser is the judge of what is built here.

Offsets and sizes are bytes unless a name says otherwise; integers are little-endian 32-bit words.
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NoReturn

from pytest_qcom.errors import EnvelopeError

# Words of the file header that hold offsets and sizes.
_REGISTERS_AT = 0x34
_CONSTANTS_AT = 0xAC
_CONSTANTS_EXIST = 0xB0
_IMAGE_AT = 0xC0
_IMAGE_SIZE = 0x100
_DESCRIPTOR_AT = 0x110
_HEADER_BYTES = 0x140

# Words of the register record and of the image descriptor, relative to their start.
_FREGS, _HREGS, _REGISTER_BYTES = 0x14, 0x18, 0x20
_ENTRY, _PRIVATE, _SHARED, _SAMPLERS, _BRANCHSTACK, _NAME = 0xC4, 0xC8, 0xD8, 0xDC, 0x108, 0x158

_ARGUMENT_BYTES = 32
_CONSTANT_BYTES = 40
_SAMPLER_BYTES = 8
_INSTRUCTION_BYTES = 8
_IMAGE_ALIGN = 128  # an instruction cache line: 16 instructions
_FILE_FLAG = 1 << 31  # in fregs: merged registers; in hregs: separate files
_FOOTPRINT_FIELD = 63  # vec4, 6-bit fields of SP_CS_CNTL_0
_REGISTERS = 48  # vec4 that exist: r0 to r47, hr0 to hr47

_NUMBERS = ("fregs", "hregs", "samplers", "branchstack", "private_bytes", "shared_bytes", "entry")

CONSTANT_AREA = 2048
"""Bytes of the constant file that arguments and literals may use; descriptors follow (``ops_qcom.py``)."""


class ArgumentKind(enum.Enum):
    """What an argument is, as its record says."""

    BUFFER = 0  # a 64-bit pointer, or a scalar, in the constant file
    READ_IMAGE = 1  # the next texture slot
    WRITTEN_IMAGE = 2  # the next IBO slot


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument record. ``offset`` is the byte in the constant file at which a buffer's pointer is put."""

    kind: ArgumentKind
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal in the constant file: ``size`` bytes (2 or 4) of ``value`` at byte ``offset``."""

    offset: int
    value: int
    size: int = 4


@dataclass(frozen=True, slots=True)
class Envelope:
    """The content of a QCOM CL binary.

    Attributes:
        image: the instruction image, a multiple of 8 bytes.
        fregs, hregs: declared register footprint in vec4.
        merged: ``True`` marks merged, ``False`` separate register files, by bit 31 of the footprint words;
            ``None`` leaves both unmarked. tinygrad 0.14.0 does not mask these bits, so only an unmarked
            binary can be launched with it, and that runs with separate files.
        samplers: 0 or 1; the runtime duplicates the one.
        branchstack: outstanding reconvergence points that the shader needs (stored doubled).
        private_bytes: private memory of a fiber.
        shared_bytes: local memory of a workgroup.
        entry: where the program starts (``SP_CS_PROGRAM_COUNTER_OFFSET``; its unit is not established).
        template: the binary that was parsed; empty for a new one.
    """

    name: str
    image: bytes
    fregs: int
    hregs: int
    arguments: tuple[Argument, ...] = ()
    samplers: int = 0
    constants: tuple[Constant, ...] = ()
    branchstack: int = 0
    private_bytes: int = 0
    shared_bytes: int = 0
    merged: bool | None = None
    entry: int = 0
    template: bytes = field(default=b"", compare=False, repr=False)

    def __post_init__(self) -> None:
        for what, problem in _problems(self):
            raise EnvelopeError(f"binary of {self.name!r}: {problem}", field=what)

    def to_bytes(self) -> bytes:
        """The binary.

        Raises:
            EnvelopeError: a field was changed that a parsed binary cannot change in place.
        """
        return _rewritten(self) if self.template else _built(self)

    def inject(self, image: bytes, fregs: int, hregs: int) -> Envelope:
        """The same binary with another shader and its register footprint (vec4).

        A shader that does not fit the old one's place is put, with the constant table that must precede it,
        at the end of the file.

        Raises:
            EnvelopeError: footprint or image that no binary can hold.
        """
        return replace(self, image=image, fregs=fregs, hregs=hregs)


def parse(data: bytes, name: str | None = None) -> Envelope:
    """Reads a QCOM CL binary.

    Args:
        data: the file.
        name: the kernel's name; its length decides where the argument records start, as in tinygrad.
            Without it the identifier that stands in the file is taken.

    Raises:
        EnvelopeError: truncated or inconsistent; ``facts["offset"]`` is the byte at which it shows.
    """
    return _Reader(bytes(data)).envelope(name)


def _problems(envelope: Envelope) -> list[tuple[str, str]]:
    """What no binary can hold, as (field, message) pairs."""
    if found := list(_mistyped(envelope)):
        return found
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", envelope.name, re.ASCII):
        found.append(("name", "the name is no C identifier; give the kernel function's name"))
    if not envelope.image or len(envelope.image) % _INSTRUCTION_BYTES:
        found.append(("image", f"{len(envelope.image)} bytes of shader; give whole 8-byte instructions"))
    limit = _FOOTPRINT_FIELD if envelope.template else _REGISTERS
    for what, count in (("fregs", envelope.fregs), ("hregs", envelope.hregs)):
        if not 0 <= count <= limit:
            found.append((what, f"{what} is {count}; the register file has 0 to {limit} vec4"))
    if envelope.samplers not in (0, 1):
        found.append(("samplers", f"{envelope.samplers} samplers; the runtime takes 0 or 1"))
    for what in ("branchstack", "private_bytes", "shared_bytes", "entry"):
        count = getattr(envelope, what)
        if not 0 <= count < 1 << (31 if what == "branchstack" else 32):
            found.append((what, f"{what} is {count}; give a 32-bit count"))
    return found + _argument_problems(envelope.arguments) + _constant_problems(envelope.constants)


def _mistyped(envelope: Envelope) -> Iterator[tuple[str, str]]:
    """Values of another type than their field's, as :func:`_problems` gives them."""
    for what, types, wanted in (
        ("name", str, "text"),
        ("image", bytes, "bytes"),
        ("arguments", tuple, "a tuple of Argument"),
        ("constants", tuple, "a tuple of Constant"),
        ("merged", (bool, type(None)), "True, False or None"),
        ("template", bytes, "bytes"),
    ):
        if not isinstance(value := getattr(envelope, what), types):
            yield what, f"{what} is {value!r}; give {wanted}"
            return  # each of what follows reads these
    yield from _no_numbers(envelope, "", _NUMBERS)
    for part, record, numbers in (
        ("arguments", Argument, ("offset",)),
        ("constants", Constant, ("offset", "value", "size")),
    ):
        for index, each in enumerate(getattr(envelope, part)):
            if not isinstance(each, record):
                yield part, f"{part}[{index}] is {each!r}; give {record.__name__}"
                continue
            for _, problem in _no_numbers(each, f"{part}[{index}].", numbers):
                yield part, problem
            kind = getattr(each, "kind", ArgumentKind.BUFFER)
            if not isinstance(kind, ArgumentKind):
                yield part, f"{part}[{index}].kind is {kind!r}; give an ArgumentKind"


def _no_numbers(record: Any, prefix: str, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        value = getattr(record, name)
        if isinstance(value, bool) or not isinstance(value, Integral):
            yield name, f"{prefix}{name} is {value!r}; give a whole number"


def _argument_problems(arguments: tuple[Argument, ...]) -> list[tuple[str, str]]:
    found = []
    kinds = [argument.kind for argument in arguments if argument.kind is not ArgumentKind.BUFFER]
    # The runtime takes the first images of the signature for the written ones.
    if kinds != sorted(kinds, key=lambda kind: kind is ArgumentKind.READ_IMAGE):
        found.append(("arguments", "a read image stands before a written one; put written images first"))
    for index, argument in enumerate(arguments):
        # Of an image, the runtime ignores this word: whatever stands there is kept.
        limit = CONSTANT_AREA - 8 if argument.kind is ArgumentKind.BUFFER else (1 << 34) - 4
        if argument.offset % 4 or not 0 <= argument.offset <= limit:
            found.append(
                (
                    "arguments",
                    f"argument {index} at constant byte {argument.offset}; give a word in 0 to {limit}",
                )
            )
    return found


def _constant_problems(constants: tuple[Constant, ...]) -> list[tuple[str, str]]:
    found = []
    for index, constant in enumerate(constants):
        if constant.size not in (2, 4) or not 0 <= constant.value < 1 << 32:
            text = f"constant {index} is {constant.value:#x} in {constant.size} bytes; give 2 or 4 bytes"
            found.append(("constants", text))
        elif constant.value >> 8 * constant.size:
            found.append(
                ("constants", f"constant {index} is {constant.value:#x}; it has {constant.size} bytes")
            )
        elif constant.offset % constant.size or not 0 <= constant.offset <= CONSTANT_AREA - constant.size:
            place = f"give a multiple of its size in the first {CONSTANT_AREA}"
            text = f"constant {index} at byte {constant.offset}; {place}"
            found.append(("constants", text))
    return found


class _Reader:
    """Reads words of a binary, with an error that names the place."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def word(self, offset: int, what: str) -> int:
        if offset + 4 > len(self.data):
            raise EnvelopeError(
                f"binary has {len(self.data)} bytes, but {what} should stand at byte {offset:#x}: it is "
                "truncated or damaged; compile or fetch it again",
                offset=offset,
                size=len(self.data),
            )
        value: int = struct.unpack_from("<I", self.data, offset)[0]
        return value

    def envelope(self, name: str | None) -> Envelope:
        image_at, image_size = (
            self.word(_IMAGE_AT, "the image offset"),
            self.word(_IMAGE_SIZE, "the image size"),
        )
        if image_at + image_size > len(self.data):
            self.damaged(_IMAGE_SIZE, f"the shader of {image_size} bytes at {image_at:#x} leaves the file")
        descriptor = self.word(_DESCRIPTOR_AT, "the descriptor offset")
        registers = self.word(_REGISTERS_AT, "the register record offset")
        fregs = self.word(registers + _FREGS, "the register footprint")
        hregs = self.word(registers + _HREGS, "the half register footprint")
        if fregs & hregs & _FILE_FLAG:
            self.damaged(registers + _HREGS, "registers are marked both merged and separate")
        samplers = self.word(descriptor + _SAMPLERS, "the sampler count")
        if samplers > 1:
            self.damaged(descriptor + _SAMPLERS, f"{samplers} samplers, the runtime takes 0 or 1")
        name = self.name(descriptor + _NAME, name)
        try:
            return Envelope(
                name=name,
                image=self.data[image_at : image_at + image_size],
                fregs=fregs & ~_FILE_FLAG,
                hregs=hregs & ~_FILE_FLAG,
                arguments=tuple(a for _, _, a in self.arguments(arguments_at(descriptor, name, samplers))),
                samplers=samplers,
                constants=self.constants(image_at),
                branchstack=self.word(descriptor + _BRANCHSTACK, "the branch stack") // 2,
                private_bytes=self.word(descriptor + _PRIVATE, "the private memory size"),
                shared_bytes=self.word(descriptor + _SHARED, "the local memory size"),
                merged=True if fregs & _FILE_FLAG else False if hregs & _FILE_FLAG else None,
                entry=self.word(descriptor + _ENTRY, "the entry offset"),
                template=self.data,
            )
        except EnvelopeError as error:
            if "field" in error.facts:  # a value that no binary holds: say where it stood
                places = {"fregs": registers + _FREGS, "hregs": registers + _HREGS, "image": _IMAGE_SIZE}
                place = places.get(error.facts["field"], descriptor + _NAME)
                raise EnvelopeError(f"{error} (at byte {place:#x})", offset=place, **error.facts) from None
            raise

    def damaged(self, offset: int, what: str) -> NoReturn:
        raise EnvelopeError(
            f"binary is damaged at byte {offset:#x}: {what}; compile or fetch it again", offset=offset
        )

    def name(self, offset: int, expected: str | None) -> str:
        if expected is not None:
            if self.data[offset : offset + len(expected)] != expected.encode():
                self.damaged(offset, f"{expected!r}, the kernel's name, is not there")
            return expected
        match = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*").match(self.data, min(offset, len(self.data)))
        if match is None:
            self.damaged(offset, "no kernel name stands there")
        return match.group().decode()

    def arguments(self, offset: int) -> list[tuple[int, int, Argument]]:
        """(place, record length, argument) of each record."""
        found: list[tuple[int, int, Argument]] = []
        while offset + _ARGUMENT_BYTES <= len(self.data):
            length, _, _, words, _, _, _, kind = struct.unpack_from("<8I", self.data, offset)
            if length == 0:
                return found
            if length < _ARGUMENT_BYTES:
                self.damaged(
                    offset, f"an argument record of {length} bytes, one has at least {_ARGUMENT_BYTES}"
                )
            if offset + length > len(self.data):
                self.damaged(offset, f"an argument record of {length} bytes leaves the file")
            if kind > 2:
                self.damaged(offset + 28, f"argument kind {kind}, the runtime knows 0, 1 and 2")
            found.append((offset, length, Argument(ArgumentKind(kind), 4 * words)))
            offset += length
        return found

    def constants(self, image_at: int) -> tuple[Constant, ...]:
        if not self.word(_CONSTANTS_EXIST, "the constant table size"):
            return ()
        start = self.word(_CONSTANTS_AT, "the constant table offset")
        if start > image_at:
            self.damaged(
                _CONSTANTS_AT, f"the constant table at {start:#x} lies behind the shader at {image_at:#x}"
            )
        found = []
        for offset in range(start, image_at - _CONSTANT_BYTES + 1, _CONSTANT_BYTES):
            value, position, wide = (self.word(offset + at, "a constant") for at in (0, 16, 24))
            if wide > 1:
                self.damaged(
                    offset + 24, f"constant of size code {wide}, known are 0 (2 bytes) and 1 (4 bytes)"
                )
            found.append(Constant(position * (2 << wide), value, 2 << wide))
        return tuple(found)


def arguments_at(descriptor: int, name: str, samplers: int) -> int:
    """Where the argument records start, for a descriptor at byte ``descriptor``."""
    return -(-(descriptor + _NAME + len(name)) // 4) * 4 + _SAMPLER_BYTES * samplers


def _put(data: bytearray, offset: int, *words: int) -> None:
    struct.pack_into(f"<{len(words)}I", data, offset, *words)


def _footprint(envelope: Envelope) -> tuple[int, int]:
    """The two register words, with the file flags."""
    merged = _FILE_FLAG if envelope.merged is True else 0
    separate = _FILE_FLAG if envelope.merged is False else 0
    return envelope.fregs | merged, envelope.hregs | separate


def _constant_records(constants: tuple[Constant, ...]) -> bytes:
    records = bytearray(_CONSTANT_BYTES * len(constants))
    for index, constant in enumerate(constants):
        _put(records, _CONSTANT_BYTES * index, constant.value)
        _put(records, _CONSTANT_BYTES * index + 16, constant.offset // constant.size)
        _put(records, _CONSTANT_BYTES * index + 24, constant.size // 4)
    return bytes(records)


def _built(envelope: Envelope) -> bytes:
    """A binary from nothing: header, register record, descriptor with arguments, constants, shader."""
    registers, descriptor = _HEADER_BYTES, _HEADER_BYTES + _REGISTER_BYTES
    start = arguments_at(descriptor, envelope.name, envelope.samplers)
    end = start + _ARGUMENT_BYTES * (len(envelope.arguments) + 1)  # one of zeros ends the list
    table = _constant_records(envelope.constants)
    image_at = -(-(end + len(table)) // _IMAGE_ALIGN) * _IMAGE_ALIGN
    data = bytearray(image_at) + envelope.image
    table_at = image_at - len(table)  # the runtime reads records until the shader starts
    data[table_at:image_at] = table
    for place, word in {
        _REGISTERS_AT: registers,
        _CONSTANTS_AT: table_at,
        _CONSTANTS_EXIST: len(envelope.constants),
        _IMAGE_AT: image_at,
        _IMAGE_SIZE: len(envelope.image),
        _DESCRIPTOR_AT: descriptor,
        **_words(envelope, registers, descriptor),
    }.items():
        _put(data, place, word)
    data[descriptor + _NAME : descriptor + _NAME + len(envelope.name)] = envelope.name.encode()
    for index, argument in enumerate(envelope.arguments):
        words = (_ARGUMENT_BYTES, 0, 0, argument.offset // 4, 0, 0, 0, argument.kind.value)
        _put(data, start + _ARGUMENT_BYTES * index, *words)
    return bytes(data)


def _words(envelope: Envelope, registers: int, descriptor: int) -> Mapping[int, int]:
    """The single-word fields by their place in the file."""
    fregs, hregs = _footprint(envelope)
    return {
        registers + _FREGS: fregs,
        registers + _HREGS: hregs,
        descriptor + _ENTRY: envelope.entry,
        descriptor + _PRIVATE: envelope.private_bytes,
        descriptor + _SHARED: envelope.shared_bytes,
        descriptor + _SAMPLERS: envelope.samplers,
        descriptor + _BRANCHSTACK: 2 * envelope.branchstack,
    }


def _rewritten(envelope: Envelope) -> bytes:
    """The parsed binary with the changed fields in their places."""
    reader, old = _Reader(envelope.template), parse(envelope.template, envelope.name)
    for what in ("arguments", "samplers", "constants"):
        if getattr(envelope, what) != getattr(old, what):
            raise EnvelopeError(
                f"binary of {envelope.name!r}: {what} of a parsed binary cannot change in place; "
                "build a new one",
                field=what,
            )
    data = bytearray(envelope.template)
    registers, descriptor = reader.word(_REGISTERS_AT, "registers"), reader.word(_DESCRIPTOR_AT, "descriptor")
    before = _words(old, registers, descriptor)
    for place, word in _words(envelope, registers, descriptor).items():
        if word != before[place]:
            _put(data, place, word)
    if envelope.image != old.image:
        _replace_image(data, envelope, old)
    return bytes(data)


def _replace_image(data: bytearray, envelope: Envelope, old: Envelope) -> None:
    """Puts the shader in the old one's place if it fits, else behind everything else."""
    reader = _Reader(bytes(data))
    image_at = reader.word(_IMAGE_AT, "the image offset")
    _put(data, _IMAGE_SIZE, len(envelope.image))
    if len(envelope.image) <= len(old.image):
        data[image_at : image_at + len(old.image)] = envelope.image.ljust(
            len(old.image), b"\0"
        )  # zeros are nops
        return
    descriptor = reader.word(_DESCRIPTOR_AT, "the descriptor offset")
    start = arguments_at(descriptor, envelope.name, envelope.samplers)
    end = start + sum(length for _, length, _ in reader.arguments(start))
    if any(data[end : end + 4]):
        raise EnvelopeError(
            f"binary of {envelope.name!r} ends within {len(data) - end} bytes behind its arguments, "
            f"which a longer file would turn into one more; give a shader of at most {len(old.image)} bytes",
            field="image",
        )
    data += bytes(_ARGUMENT_BYTES)  # ends an argument list that the file's end ended so far
    table = bytes(data[reader.word(_CONSTANTS_AT, "constants") : image_at]) if envelope.constants else b""
    table = table[: _CONSTANT_BYTES * len(envelope.constants)]
    moved = -(-(len(data) + len(table)) // _IMAGE_ALIGN) * _IMAGE_ALIGN
    data += bytes(moved - len(table) - len(data)) + table + envelope.image
    _put(data, _IMAGE_AT, moved)
    if table:
        _put(data, _CONSTANTS_AT, moved - len(table))
