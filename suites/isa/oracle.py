"""Mesa's disassembler as the judge of words and text: ``ir3_isa_disasm`` of tinymesa."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from tinygrad.runtime.autogen import mesa

_libc = ctypes.CDLL(None)
_libc.open_memstream.restype = ctypes.c_void_p
_libc.fclose.argtypes = [ctypes.c_void_p]
_libc.free.argtypes = [ctypes.c_void_p]


def disassemble(words: Sequence[int]) -> list[str]:
    """Mesa's text of each word, branch offsets as numbers, errors behind a ``;`` or as ``no match``."""
    buffer, size = ctypes.c_void_p(), ctypes.c_size_t()
    stream = _libc.open_memstream(ctypes.byref(buffer), ctypes.byref(size))
    image = struct.pack(f"<{len(words)}Q", *words)
    options = mesa.struct_isa_decode_options(630, True, 0, False)
    mesa.ir3_isa_disasm(image, len(image), ctypes.cast(stream, ctypes.POINTER(mesa.struct__IO_FILE)), options)
    _libc.fclose(stream)
    lines = ctypes.string_at(buffer, size.value).decode().splitlines()
    _libc.free(buffer)
    assert len(lines) == len(words), (len(lines), len(words))
    return lines


def accepts(text: str) -> bool:
    """Whether Mesa took the word without a complaint."""
    return "no match" not in text and "\t;" not in text
