"""Mesa's legalizer as the judge of waits: text without a wait in, the machine code that Mesa makes of it out.

``ir3_parse``, ``ir3_legalize`` and ``ir3_shader_assemble`` of tinymesa. The parser does not know how many
components an operand covers, so the caller says it, as Mesa's own delay test does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import tinymesa
from tinygrad.runtime.autogen import mesa
from tinygrad.runtime.support.compiler_mesa import IR3Compiler, rzalloc


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction as text; ``covers``: components of its destination, then of each source.

    Stores have a destination too, of one component, and their offset is a source.
    """

    text: str
    covers: tuple[int, ...] = ()


@cache
def compiler() -> IR3Compiler:
    return IR3Compiler("a630")


@cache
def _functions() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    libc, library = ctypes.CDLL(None), ctypes.CDLL(str(tinymesa.libtinymesa))
    libc.fmemopen.restype = ctypes.c_void_p
    libc.fmemopen.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.fclose.argtypes = [ctypes.c_void_p]
    library.ir3_parse.restype = ctypes.c_void_p
    library.ir3_parse.argtypes = [ctypes.c_void_p] * 3
    library.ir3_legalize.argtypes = [ctypes.c_void_p] * 3
    library.ir3_delayslots_with_repeat.restype = ctypes.c_uint
    library.ir3_delayslots_with_repeat.argtypes = [*[ctypes.c_void_p] * 3, *[ctypes.c_uint] * 2]
    return libc, library


def legalize(lines: Sequence[Line], merged: bool = False) -> bytes:
    """The machine code of ``lines`` and an ``end``, with the waits that Mesa puts in."""
    _, library = _functions()
    program, variant = _parsed(lines, merged)
    library.ir3_legalize(program, variant, ctypes.byref(ctypes.c_int()))
    image = mesa.ir3_shader_assemble(variant)
    code = ctypes.string_at(image, variant.contents.info.size)
    mesa.ralloc_free(ctypes.cast(variant, ctypes.c_void_p))
    return code


def delays(producer: Line, consumer: Line, merged: bool = False) -> list[int]:
    """Mesa's ``ir3_delayslots_with_repeat`` for each source of ``consumer``: slots between the two."""
    _, library = _functions()
    program, variant = _parsed([producer, consumer], merged)
    first, second, *_ = _instructions(program)
    compiler_ = ctypes.byref(compiler().cc)
    slots = [
        int(
            library.ir3_delayslots_with_repeat(
                compiler_, ctypes.byref(first), ctypes.byref(second), 0, number
            )
        )
        for number in range(second.srcs_count)
        if _overlap(first.dsts[0].contents, second.srcs[number].contents)
    ]
    mesa.ralloc_free(ctypes.cast(variant, ctypes.c_void_p))
    return slots


def _overlap(dst: Any, src: Any) -> bool:
    """Whether a source reads what the destination writes; in Mesa's view files always share storage."""
    if src.flags & (mesa.IR3_REG_CONST | mesa.IR3_REG_IMMED):
        return bool(src.flags & mesa.IR3_REG_RELATIV) and dst.num == _ADDRESS
    if src.flags & mesa.IR3_REG_RELATIV and dst.num == _ADDRESS:
        return True

    def cells(reg: Any) -> set[int]:
        size = 1 if reg.flags & mesa.IR3_REG_HALF and reg.num < _ADDRESS else 2
        covered = reg.wrmask.bit_length()
        return {size * reg.num + cell for cell in range(size * covered)}

    return not cells(dst).isdisjoint(cells(src))


_ADDRESS = 4 * 61  # a0.x


def _parsed(lines: Sequence[Line], merged: bool) -> tuple[int, Any]:
    """(program, variant) of Mesa; the variant owns both."""
    libc, library = _functions()
    variant = rzalloc(
        mesa.struct_ir3_shader_variant,
        type=mesa.MESA_SHADER_COMPUTE,
        compiler=ctypes.pointer(compiler().cc),
        mergedregs=merged,
    )
    variant.contents.const_state = rzalloc(mesa.struct_ir3_const_state, variant)
    source = "".join(line.text + "\n" for line in lines).encode() + b"end\n"
    stream = libc.fmemopen(source, len(source), b"r")
    program = library.ir3_parse(variant, ctypes.create_string_buffer(4096), stream)
    libc.fclose(stream)
    if not program:
        raise ValueError(f"Mesa does not parse {source.decode()!r}")
    variant.contents.ir = ctypes.cast(program, type(variant.contents.ir))
    for line, instr in zip(lines, _instructions(program), strict=False):
        registers = [instr.dsts[i].contents for i in range(instr.dsts_count)]
        registers += [instr.srcs[i].contents for i in range(instr.srcs_count)]
        for register, components in zip(registers, line.covers, strict=False):
            register.wrmask = (1 << components) - 1  # the parser leaves it at one component
    return program, variant


def _instructions(program: int) -> Iterator[Any]:
    """Mesa's instructions of the first block, ``end`` included."""
    shader = ctypes.cast(program, ctypes.POINTER(mesa.struct_ir3)).contents
    block = ctypes.cast(shader.block_list.next, ctypes.POINTER(mesa.struct_ir3_block)).contents
    head = ctypes.addressof(block.instr_list)
    node = block.instr_list.next
    while (address := ctypes.cast(node, ctypes.c_void_p).value or head) != head:
        yield ctypes.cast(address - _NODE, ctypes.POINTER(mesa.struct_ir3_instruction)).contents
        node = node.contents.next


_NODE = 144  # offset of the list's node in struct ir3_instruction
