"""Code for AArch64, which the boards of the A630 run: it is generated, and needs nothing unusual.

It is not run here. What it computes is the portable code's, which other tests hold against the reference.
"""

from __future__ import annotations

import functools
import random
import struct
from typing import Any

import llvmlite.binding as llvm
import pytest

from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.decoder import decode
from pytest_qcom.isa.instruction import Flow, Instr
from pytest_qcom.isa.table import OPS
from pytest_qcom.virtual.executor.late import translate_late
from pytest_qcom.virtual.executor.runtime import module_text
from pytest_qcom.virtual.executor.target import Host
from pytest_qcom.virtual.executor.translate import Translation, translate
from pytest_qcom.virtual.executor.watched import translate_watched
from suites.isa.strategies import word_of

TRIPLE, MACHINE = "aarch64-linux-gnu", 0xB7  # EM_AARCH64
HOST = Host(triple=TRIPLE, cpu="cortex-a75", features="", flushes=False, half_class=False)
LIBRARY = {"memcpy", "memmove", "memset"}
"""What generated code may ask the process for."""


@functools.cache
def _machine(level: int) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=HOST.cpu, features=HOST.features, opt=level, reloc="pic", codemodel="small"
    )


def _object(text: str, level: int) -> bytes:
    """Object code of a module that is sound."""
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple, module.data_layout = TRIPLE, str(_machine(level).target_data)
    return bytes(_machine(level).emit_object(module))


def _wanted(code: bytes) -> set[str]:
    """Names of undefined symbols of a 64-bit little-endian ELF file."""
    assert code[:6] == b"\x7fELF\2\1" and struct.unpack_from("<H", code, 18)[0] == MACHINE
    offset, size, count = (*struct.unpack_from("<Q", code, 40), *struct.unpack_from("<HH", code, 58))
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, offset + n * size) for n in range(count)]
    found = set()
    for kind, start, length, link in ((s[1], s[4], s[5], s[6]) for s in sections):
        if kind != 2:  # SHT_SYMTAB
            continue
        for at in range(start + 24, start + length, 24):
            name, _, _, section = struct.unpack_from("<IBBH", code, at)
            if section == 0:
                first = sections[link][4] + name
                found.add(code[first : code.index(b"\0", first)].decode())
    return found


@functools.cache
def _program(uses: int = 3) -> tuple[Instr, ...]:
    """Uses of every instruction that does not change the program counter, then a loop and a barrier."""
    draw, instrs = random.Random(3), []
    for op in OPS:
        if isinstance(op.effect, Flow):
            continue
        for _ in range(uses):
            try:
                instrs.append(decode(word_of(op, draw)))
            except Exception as error:
                assert type(error).__name__ == "DecodeError"
    a = Assembler()
    a.parse("again:\nadd.u r1.x, r1.x, 1\ncmps.u.lt p0.x, r1.x, r0.x\nbr p0.x, #again\n(jp)bar.g\nend")
    assert len(instrs) > uses * len(OPS) // 2
    return (*instrs, *a.program().instrs)


def _late(
    instrs: tuple[Instr, ...], entry: int, wave: int, merged: bool, demoted: bool, host: Host
) -> Translation:
    return translate_late(instrs, entry, wave, merged, demoted, (48, 48), host)


@pytest.mark.parametrize("make", [translate, translate_watched, _late], ids=["plain", "watched", "late"])
@pytest.mark.parametrize("merged", [False, True], ids=["split", "merged"])
def test_programs(make: Any, merged: bool) -> None:
    made = make(_program(1 if make is _late else 3), 0, 128 if merged else 64, merged, True, HOST)
    code = _object(made.text, 0)
    assert _wanted(code) <= {*made.imports, *LIBRARY}
    assert len(made.imports) > 10


@pytest.mark.parametrize("wave", [64, 128])
def test_the_runtime(wave: int) -> None:
    text, names = module_text(HOST, wave)
    assert _wanted(_object(text, 0)) <= LIBRARY
    made = translate(_program(), 0, wave, False, True, HOST)
    assert set(made.imports) <= set(names)
