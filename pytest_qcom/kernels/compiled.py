"""Matmuls as tinygrad and Mesa compile them for the A630: no device is opened, nothing is run.

tinygrad schedules ``A @ B`` with images into copies that lay A and B out, and the matmul itself; the latter
is what is taken. Its launch convention is Mesa's; :func:`compile_matmul` gives it in that of CL binaries.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, replace

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.instruction import Instr, Kind, Operand
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import FIRST_SHARED, Reg
from pytest_qcom.kernels.launch import GROUP_X

_VECTOR = 4


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled matmul of n x n matrices of float32.

    Attributes:
        program: as Mesa made it, but group ids are read where a CL launch has them.
        constants: (scalar constant number, 32-bit value).
        groups, local: the launch.
        output, left, right: image shapes (height, width, 4) of C, A and B. C is (n, n) row by row; A is rows
            of k, each padded; B is vec4 columns, each k after k, padded.
    """

    n: int
    program: Program
    constants: tuple[tuple[int, int], ...]
    groups: tuple[int, int, int]
    local: tuple[int, int, int]
    output: tuple[int, int, int]
    left: tuple[int, int, int]
    right: tuple[int, int, int]
    branchstack: int


@functools.cache
def compile_matmul(n: int, dtype: str = "float32") -> Compiled:
    """The matmul of two (n, n) matrices, of ``float32`` or ``float16`` in memory, summed in float32.

    Raises:
        KernelError: tinygrad does not make one kernel with images of it, or for it.
    """
    from tinygrad import Tensor, dtypes
    from tinygrad.codegen import to_program
    from tinygrad.helpers import Context, Target
    from tinygrad.renderer.nir import IR3Renderer
    from tinygrad.runtime.support.compiler_mesa import IR3Compiler
    from tinygrad.uop.ops import Ops

    if n < 64 or n % 32:
        raise KernelError(f"a compiled matmul of {n}: give a multiple of 32 from 64 on")
    kind = {"float32": dtypes.float, "float16": dtypes.half}[dtype]
    # tinygrad asks for its default device though nothing is run; where none is usable, that is an error
    with Context(DEV="NULL", IMAGE=1, FLOAT16=int(dtype == "float16"), NOOPT=0):
        a, b = (Tensor.empty(n, n, dtype=kind, device="NULL") for _ in range(2))
        linear = (a @ b).schedule_linear()
        sinks = [call.src[0] for call in linear.src if call.op is Ops.CALL and call.src[0].op is Ops.SINK]
        built = to_program(sinks[-1], IR3Renderer(Target("QCOM", "IR3", "a630,IMAGE_PITCH_ALIGNMENT=64")))
    variant, _, immediates, image = IR3Compiler.unpack_lib(
        next(part.arg for part in built.src if part.op is Ops.BINARY)
    )
    shapes = {node.arg.slot: node.shape for node in built.toposort() if node.op is Ops.PARAM}
    if sorted(shapes) != [0, 1, 2] or any(len(shape) != 3 for shape in shapes.values()):
        raise KernelError(f"a compiled matmul of {n}: tinygrad gives it no three images")
    textures = tuple(variant.image_mapping.tex_to_image[:2])
    output, left, right = shapes[0], shapes[1 + textures[0]], shapes[1 + textures[1]]
    words = struct.unpack(f"<{len(immediates) // 4}I", immediates)
    return Compiled(
        n=n,
        program=as_launched(Program.decode(image[: variant.info.size])),
        constants=tuple(enumerate(words)),
        groups=_three(built.arg.global_size),
        local=_three(built.arg.local_size),
        output=output,
        left=left,
        right=right,
        branchstack=variant.branchstack,
    )


def _three(sizes: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*(int(size) for size in sizes), 1, 1, 1)[:3]
    return x, y, z


def as_launched(program: Program) -> Program:
    """The program with r48.x to r48.z, where Mesa has the group ids, read from where a CL launch has them."""
    first = Reg.parse(GROUP_X).num

    def moved(operand: Operand) -> Operand:
        shared = operand.kind is Kind.GPR and FIRST_SHARED <= operand.value < FIRST_SHARED + 3
        return replace(operand, value=first + operand.value - FIRST_SHARED) if shared else operand

    def launched(instr: Instr) -> Instr:
        return replace(instr, srcs=tuple(moved(source) for source in instr.srcs))

    return Program(tuple(map(launched, program.instrs)))
