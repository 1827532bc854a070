"""Mesa's legalizer as the judge of waits: text without a wait in, the machine code that Mesa makes of it out.

``ir3_parse``, ``ir3_legalize`` and ``ir3_shader_assemble`` of tinymesa. The parser does not know how many
components an operand covers, so the caller says it, as Mesa's own delay test does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
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
    return libc, library


def legalize(lines: Sequence[Line], merged: bool = False) -> bytes:
    """The machine code of ``lines`` and an ``end``, with the waits that Mesa puts in."""
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
    _set_coverage(ctypes.cast(program, ctypes.POINTER(mesa.struct_ir3)).contents, lines)
    library.ir3_legalize(program, variant, ctypes.byref(ctypes.c_int()))
    image = mesa.ir3_shader_assemble(variant)
    code = ctypes.string_at(image, variant.contents.info.size)
    mesa.ralloc_free(ctypes.cast(variant, ctypes.c_void_p))
    return code


def _set_coverage(program: Any, lines: Sequence[Line]) -> None:
    """Sets the write masks that the parser leaves at one component."""
    block_node = program.block_list.next
    block = ctypes.cast(block_node, ctypes.POINTER(mesa.struct_ir3_block)).contents
    node = block.instr_list.next
    offset = 144  # of ``node`` in struct ir3_instruction
    for line in lines:
        address = ctypes.cast(node, ctypes.c_void_p).value or 0
        instr = ctypes.cast(address - offset, ctypes.POINTER(mesa.struct_ir3_instruction)).contents
        registers = [instr.dsts[i].contents for i in range(instr.dsts_count)]
        registers += [instr.srcs[i].contents for i in range(instr.srcs_count)]
        for register, components in zip(registers, line.covers, strict=False):
            register.wrmask = (1 << components) - 1
        node = node.contents.next
