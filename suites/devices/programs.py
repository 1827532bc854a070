"""Small programs for devices, as QCOM CL binaries, with every wait that they need."""

from __future__ import annotations

from pytest_qcom.envelope import Argument, ArgumentKind, Constant, Envelope
from pytest_qcom.isa.assembler import Assembler

BUFFER, READ, WRITTEN = ArgumentKind.BUFFER, ArgumentKind.READ_IMAGE, ArgumentKind.WRITTEN_IMAGE

# r0.x is the local id, r51.x the first work item of the group (tinygrad's register choice for CL binaries).
WORK_ITEM = """
add.u r1.x, r0.x, r51.x
(rpt2)nop
"""
ADDRESS = """
shl.b r2.z, r1.x, 2
(rpt2)nop
add.u r2.x, r2.z, c0.x
(rpt2)nop
cmps.u.lt r2.w, r2.x, c0.x
(rpt2)nop
add.u r2.y, r2.w, c0.y
(rpt5)nop
"""


def binary(text: str, *kinds: ArgumentKind, fregs: int = 8, hregs: int = 0, **fields: object) -> bytes:
    """A binary of an assembler text; buffers have their pointers in c0.xy, c0.zw, ... in order."""
    assembler = Assembler()
    assembler.parse(text)
    image = assembler.program().encode()
    arguments, offset = [], 0
    for kind in kinds:
        arguments.append(Argument(kind, offset if kind is BUFFER else 0))
        offset += 8 if kind is BUFFER else 0
    samplers = int(READ in kinds)
    return Envelope("k", image, fregs, hregs, tuple(arguments), samplers=samplers, **fields).to_bytes()  # type: ignore[arg-type]


def number() -> bytes:
    """Writes each work item's number, plus the constant 7, to a buffer of 32-bit words."""
    add = "add.u r1.y, r1.x, c4.x\n(rpt5)nop\n"
    text = WORK_ITEM + ADDRESS + add + "stg.u32 g[r2.x], r1.y, 1\nend\n"
    return binary(text, BUFFER, constants=(Constant(64, 7),))


def copy() -> bytes:
    """Copies the first row of the read image to the written one; takes a buffer between them, unused."""
    text = "mov.u32u32 r1.y, 0\n" + WORK_ITEM + "(rpt5)nop\n"
    text += "isam.1d (f32)(xyzw)r4.x, r1.x, s#0, t#0\n(sy)nop\n"
    return binary(text + "stib.b.typed.2d.f32.4.imm r4.x, r1.x, 0\nend\n", WRITTEN, BUFFER, READ)


def early() -> bytes:
    """:func:`number` without the wait between a result and its use."""
    return binary("add.u r1.x, r0.x, r51.x\nshl.b r2.z, r1.x, 2\nend\n", BUFFER)


def endless() -> bytes:
    """Jumps to itself."""
    return binary("loop:\nnop\njump #loop\nend\n", BUFFER)
