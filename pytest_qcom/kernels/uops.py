"""Kernels written as tinygrad UOps: one source, which Mesa compiles here and a vendor's compiler could.

:func:`compile_uops` gives what Mesa makes of a program in the launch convention of CL binaries, so that it
runs through a device like any hand kernel; :class:`Tile` and the functions below are how the kernels of
:mod:`pytest_qcom.kernels.families` write theirs. No device is opened, nothing is run.

tinygrad makes an image of any buffer of float or half that is read or written by four, where images are on
and its size can be that of an image without padding; it chooses height and width. Here the kernel decides:
buffers that shall be none get a size that no image has. And images are declared float to tinygrad, whatever
their texels are: 0.14.0 takes samples of a half image for float, but leaves what is computed with them as
half, and stores four bytes where two belong. The sampler converts, and Mesa samples halves where the kernel
casts to half.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.assembler import assemble
from pytest_qcom.isa.instruction import Barrier, Kind
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.compiled import as_launched
from pytest_qcom.kernels.edit import replace_instructions
from pytest_qcom.kernels.kernel import Argument, Build

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

THREADS = 128
"""Fibers of a workgroup, as the published kernels have."""
_LOCAL_ID = 0  # r0.x
_UNUSED = 0xFC
_VECTOR = 4
_IMAGE_DIMENSIONS = 3


@dataclass(frozen=True, slots=True)
class Array:
    """An argument as a kernel sees it: elements of a numpy type, one after the other.

    Attributes:
        shape: of an image, only its size counts: a multiple of 256.
        image: it is sampled, four elements a texel, or written so.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    written: bool = False
    image: bool = False

    @property
    def count(self) -> int:
        """How many elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.count * int(np.dtype(self.dtype).itemsize)


def compile_uops(
    name: str,
    sink: UOp,
    arrays: Sequence[Array],
    work: float,
) -> Build:
    """The launch of a UOp program.

    Args:
        sink: its SINK; PARAM number n is ``arrays[n]``, workgroup sizes are those of its SPECIALs.
        work: as in :class:`Build`.

    Raises:
        KernelError: what Mesa made cannot be launched as a CL binary.
    """
    from tinygrad.codegen import to_program
    from tinygrad.helpers import Context, Target
    from tinygrad.renderer.nir import IR3Renderer
    from tinygrad.runtime.support.compiler_mesa import IR3Compiler
    from tinygrad.uop.ops import Ops

    with Context(IMAGE=int(any(array.image for array in arrays)), NOOPT=1):
        built = to_program(sink, IR3Renderer(Target("QCOM", "IR3", "a630,IMAGE_PITCH_ALIGNMENT=64")))
    library = next(part.arg for part in built.src if part.op is Ops.BINARY)
    variant, state, words, image = IR3Compiler.unpack_lib(library)
    program = _fenced(as_launched(Program.decode(image[: variant.info.size])))
    if variant.cs.local_invocation_id not in (_LOCAL_ID, _UNUSED):
        raise KernelError(f"{name}: Mesa wants the local id in another register than a CL launch has it in")
    if any(operand.half and operand.kind is Kind.CONST for i in program.instrs for operand in i.srcs):
        raise KernelError(
            f"{name}: Mesa reads a constant as half, which a CL launch without constant demotion cannot; "
            "write the constant such that it is an immediate"
        )
    shapes = {node.arg.slot: node.shape for node in built.toposort() if node.op is Ops.PARAM}
    first = state.allocs.max_const_offset_vec4 * _VECTOR
    values = struct.unpack(f"<{len(words) // 4}I", words)
    textures = tuple(variant.image_mapping.tex_to_image[: variant.image_mapping.num_tex])
    return Build(
        program=program,
        fregs=max(1, variant.info.max_reg + 1),
        hregs=variant.info.max_half_reg + 1,
        arguments=_arguments(name, arrays, shapes, textures, state.ubo_state.range[0].offset // 4),
        groups=_three(built.arg.global_size),
        local=_three(built.arg.local_size),
        thread128=False,
        work=work,
        constants=tuple((first + number, value) for number, value in enumerate(values)),
        branchstack=variant.branchstack,
        private_bytes=variant.pvtmem_size,
        shared_bytes=variant.shared_size,
    )


def _fenced(program: Program) -> Program:
    """The program with a wait behind each barrier that ends a block.

    Mesa (``ir3_legalize.c``) puts ``(ss)(sy)`` on what follows a barrier in the same block, and forgets it
    where the block ends there, as before a loop.
    """
    wait = assemble("(sy)(ss)nop")
    edits = {
        index: (instr, wait)
        for index, (instr, following) in enumerate(itertools.pairwise(program.instrs))
        if isinstance(instr.op.effect, Barrier) and not (following.ss and following.sy)
    }
    return replace_instructions(program, edits)


def _arguments(
    name: str,
    arrays: Sequence[Array],
    shapes: dict[int, tuple[int, ...]],
    textures: tuple[int, ...],
    pointer: int,
) -> tuple[Argument, ...]:
    """The arguments in the order of a binary: written images, images as Mesa has their textures, buffers."""
    if sorted(shapes) != list(range(len(arrays))):
        raise KernelError(f"{name}: declared are {len(arrays)} arguments, the program uses {sorted(shapes)}")
    imaged = [slot for slot in sorted(shapes) if len(shapes[slot]) == _IMAGE_DIMENSIONS]
    if imaged != [slot for slot, array in enumerate(arrays) if array.image]:
        raise KernelError(
            f"{name}: tinygrad makes images of {', '.join(arrays[slot].name for slot in imaged) or 'nothing'}"
            "; give shapes such that each image has a multiple of 256 elements"
        )
    stored = [slot for slot in imaged if arrays[slot].written]
    read = [slot for slot in imaged if not arrays[slot].written]
    if imaged != stored + read or sorted(textures) != list(range(len(read))):
        raise KernelError(f"{name}: images that are written come first, and each image is read or written")
    order = stored + [read[texture] for texture in textures]
    found = [
        Argument(
            arrays[slot].name, tuple(map(int, shapes[slot])), arrays[slot].dtype, True, arrays[slot].written
        )
        for slot in order
    ]
    buffers = [slot for slot in sorted(shapes) if slot not in imaged]
    for number, slot in enumerate(buffers):
        array = arrays[slot]
        found.append(
            Argument(array.name, array.shape, array.dtype, False, array.written, pointer=pointer + 2 * number)
        )
    return tuple(found)


def shaped(build: Build, arrays: dict[str, Any]) -> dict[str, Any]:
    """Input arrays in the shapes of a launch's arguments: an image's are what tinygrad chose."""
    shapes = {argument.name: argument.shape for argument in build.arguments}
    return {name: array.reshape(shapes[name]) for name, array in arrays.items()}


def _three(sizes: Sequence[Any]) -> tuple[int, int, int]:
    x, y, z = (*(int(size) for size in sizes), 1, 1, 1)[:3]
    return x, y, z


# What kernels are written with


def parameters(arrays: Sequence[Array]) -> list[UOp]:
    """The PARAMs of ``arrays``: images are float, buffers of float or half too long for an image."""
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import UOp

    return [
        UOp.param(slot, dtypes.float, (array.count,))
        if array.image
        else UOp.param(slot, kind(array.dtype), (array.count + _NO_IMAGE,))
        for slot, array in enumerate(arrays)
    ]


_NO_IMAGE = 4
"""Elements more than there are: with it a size is no multiple of 64 texels, nor of 64 bytes."""


def kind(name: str) -> Any:
    """tinygrad's type of a numpy type's name."""
    from tinygrad import dtypes

    kinds = {"float16": dtypes.half, "float32": dtypes.float, "uint32": dtypes.uint}
    return kinds[name]


def vector(buffer: UOp, texel: UOp | int) -> list[UOp]:
    """The four elements of a buffer from ``4 * texel``, loaded at once."""
    return [buffer.index(texel * _VECTOR + lane).load() for lane in range(_VECTOR)]


def put(buffer: UOp, texel: UOp | int, values: Sequence[UOp]) -> list[UOp]:
    """Stores of consecutive elements of a buffer from ``len(values) * texel``."""
    return [buffer.index(texel * len(values) + lane).store(value) for lane, value in enumerate(values)]


def sink(name: str, stores: Sequence[UOp]) -> UOp:
    """The program of some stores; nothing of it is optimized away from how it is written."""
    from tinygrad.uop.ops import KernelInfo, UOp

    return UOp.group(*stores).sink(arg=KernelInfo(name=name, opts_to_apply=()))


class Sums:
    """Sums in registers that a loop carries.

    Args:
        count: how many.
        dtype: their numpy type.
        slot: number of the buffer of registers, unique among a kernel's local and register buffers.
        starts: what they are before the loop; zeros by default.
    """

    def __init__(self, count: int, dtype: str, slot: int, starts: Sequence[float] = ()) -> None:
        from tinygrad.dtype import AddrSpace
        from tinygrad.uop.ops import UOp

        self.count = count
        self._buffer = UOp.placeholder((count,), kind(dtype), slot, AddrSpace.REG)
        first = starts or (0.0,) * count
        zeros = [self._at(self._buffer, n).store(UOp.const(first[n], kind(dtype))) for n in range(count)]
        self._zeroed = self._buffer.after(UOp.group(*zeros))

    @staticmethod
    def _at(buffer: UOp, number: int) -> UOp:
        from tinygrad.uop.ops import UOp

        return buffer.index(UOp.const(number))

    def within(self, number: int, *loops: UOp) -> UOp:
        """A sum so far, in the body of ``loops``."""
        return self._at(self._zeroed.after(*loops), number).load()

    def after(self, values: Sequence[UOp], *loops: UOp) -> list[UOp]:
        """The sums behind ``loops``, the innermost first, whose body makes ``values`` of them."""
        from tinygrad.uop.ops import UOp

        done = UOp.group(*(self._at(self._buffer, n).store(value) for n, value in enumerate(values)))
        for loop in loops:
            done = done.end(loop)
        return [self._at(self._zeroed.after(done), n).load() for n in range(self.count)]
