"""The compiled program in a captured graph: Mesa's container, or the QCOM CL binary of the vendor's compiler.

tinygrad's runtime (0.14.0, ``ops_qcom.py`` ``QCOMProgram``) reads from Mesa's structures where the code is,
which registers it uses and where arguments and constants go. :class:`Library` is what it reads; it is parsed
from such a container and built into one, so that a hand kernel can stand in a graph that Mesa compiled.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from dataclasses import dataclass, replace
from typing import Any

from pytest_qcom import envelope
from pytest_qcom.errors import DecodeError, GraphError
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import NO_REGISTER, Reg
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.launch import GROUP_X, LOCAL_ID

_VECTOR = 4
_TEXTURES = 16  # of a compute shader, as many as tinygrad loads descriptors for


@dataclass(frozen=True, slots=True)
class Library:
    """A program with what a launch of it needs; constants are counted in 32-bit words.

    Attributes:
        textures: of each texture slot, the number of the read image among the arguments.
        written_images: how many images are written.
        constants: words of the constant file from ``first_constant`` on.
        pointer: word of the first buffer's address; the others follow, two words each.
        group_id, local_id: registers that a launch presets.
        local_size: word at which the workgroup's size is expected, or ``None``.
    """

    program: Program
    fregs: int
    hregs: int
    textures: tuple[int, ...] = ()
    written_images: int = 0
    first_constant: int = 0
    constants: tuple[int, ...] = ()
    pointer: int = 0
    group_id: int = NO_REGISTER
    local_id: int = NO_REGISTER
    local_size: int | None = None
    branchstack: int = 0
    private_bytes: int = 0
    shared_bytes: int = 0

    def to_bytes(self) -> bytes:
        """Mesa's container."""
        mesa = _mesa()
        variant, state = mesa.struct_ir3_shader_variant(), mesa.struct_ir3_const_state()
        image = self.program.encode()
        variant.info.size = len(image)
        variant.info.max_reg, variant.info.max_half_reg = self.fregs - 1, self.hregs - 1
        variant.branchstack = self.branchstack
        variant.pvtmem_size, variant.shared_size = self.private_bytes, self.shared_bytes
        variant.imm_state.count = len(self.constants)
        variant.image_mapping.num_tex = len(self.textures)
        for slot, image_number in enumerate(self.textures):
            variant.image_mapping.tex_to_image[slot] = image_number
        variant.num_uavs = len(self.textures) + self.written_images
        variant.cs.work_group_id, variant.cs.local_invocation_id = self.group_id, self.local_id
        state.ubo_state.range[0].offset = 4 * self.pointer
        state.allocs.max_const_offset_vec4 = self.first_constant // _VECTOR
        if self.local_size is not None:
            parameters = state.allocs.consts[mesa.IR3_CONST_ALLOC_DRIVER_PARAMS]
            parameters.size_vec4, parameters.offset_vec4 = 1, (self.local_size - 8) // _VECTOR
        words = struct.pack(f"<{len(self.constants)}I", *self.constants)
        return bytes(variant) + bytes(state) + words + image


@functools.cache
def _mesa() -> Any:
    from tinygrad.runtime.autogen import mesa

    return mesa


@functools.lru_cache(maxsize=512)
def parse(data: bytes) -> Library:
    """The library in Mesa's container.

    Raises:
        GraphError: it is no such container.
        DecodeError: its code is none of the A630.
    """
    mesa = _mesa()
    least = ctypes.sizeof(mesa.struct_ir3_shader_variant) + ctypes.sizeof(mesa.struct_ir3_const_state)
    if len(data) < least:
        raise _damaged(f"{len(data)} bytes, one has at least {least}")
    variant = mesa.struct_ir3_shader_variant.from_buffer_copy(data)
    behind = data[ctypes.sizeof(mesa.struct_ir3_shader_variant) :]
    state = mesa.struct_ir3_const_state.from_buffer_copy(behind)
    behind = behind[ctypes.sizeof(mesa.struct_ir3_const_state) :]
    count, size = variant.imm_state.count, variant.info.size
    if 4 * count + size > len(behind) or variant.image_mapping.num_tex > _TEXTURES:
        raise _damaged(f"{count} constants and {size} bytes of code in {len(behind)} bytes")
    parameters = state.allocs.consts[mesa.IR3_CONST_ALLOC_DRIVER_PARAMS]
    textures = variant.image_mapping.num_tex
    return Library(
        program=Program.decode(behind[4 * count : 4 * count + size]),
        fregs=variant.info.max_reg + 1,
        hregs=variant.info.max_half_reg + 1,
        textures=tuple(variant.image_mapping.tex_to_image[slot] for slot in range(textures)),
        written_images=variant.num_uavs - textures,
        first_constant=_VECTOR * state.allocs.max_const_offset_vec4,
        constants=struct.unpack_from(f"<{count}I", behind),
        pointer=state.ubo_state.range[0].offset // 4,
        group_id=variant.cs.work_group_id,
        local_id=variant.cs.local_invocation_id,
        local_size=_VECTOR * parameters.offset_vec4 + 8 if parameters.size_vec4 else None,
        branchstack=variant.branchstack,
        private_bytes=variant.pvtmem_size,
        shared_bytes=variant.shared_size,
    )


def content(data: bytes, renderer: str) -> bytes:
    """A compiled program without what says nothing of it.

    Mesa's container holds addresses of the process that compiled it: the same program is other bytes each
    time. One that is damaged is what it is.
    """
    if renderer != "IR3":
        return data
    try:
        return parse(data).to_bytes()
    except (GraphError, DecodeError):
        return data


def _damaged(found: str) -> GraphError:
    return GraphError(
        f"compiled program: no container of Mesa's ({found}); it is damaged or of another version of Mesa: "
        "capture the graph again with tinymesa 25.2"
    )


def of_build(build: Build, name: str) -> Library:
    """A hand kernel as Mesa's container has it.

    Raises:
        GraphError: it needs what tinygrad cannot launch: waves of 128, merged registers, scattered pointers.
    """
    if build.thread128 or build.merged:
        what = "waves of 128 fibers" if build.thread128 else "merged registers"
        raise GraphError(f"kernel {name}: {what}, which tinygrad does not launch; choose options without")
    buffers = [argument for argument in build.arguments if not argument.image]
    pointers = [argument.pointer for argument in buffers]
    if pointers != [pointers[0] + 2 * number for number in range(len(pointers))] if pointers else False:
        raise GraphError(f"kernel {name}: its pointers at words {pointers} do not follow each other")
    values = dict(build.constants)
    first = min(values, default=0) // _VECTOR * _VECTOR
    read = [argument for argument in build.arguments if argument.image and not argument.written]
    return Library(
        program=build.program,
        fregs=build.fregs,
        hregs=build.hregs,
        textures=tuple(range(len(read))),
        written_images=sum(argument.image and argument.written for argument in build.arguments),
        first_constant=first,
        constants=tuple(values.get(word, 0) for word in range(first, max(values, default=-1) + 1)),
        pointer=pointers[0] if pointers else 0,
        group_id=Reg.parse(GROUP_X).num,
        local_id=Reg.parse(LOCAL_ID).num,
        branchstack=build.branchstack,
        private_bytes=build.private_bytes,
        shared_bytes=build.shared_bytes,
    )


def program_of(data: bytes, renderer: str, name: str) -> tuple[Program, int, int]:
    """(program, fregs, hregs) of a compiled program of either kind.

    Args:
        renderer: which compiler made it, as tinygrad calls it: ``IR3`` is Mesa.

    Raises:
        GraphError, EnvelopeError, DecodeError: it is damaged.
    """
    if renderer == "IR3":
        library = parse(data)
        return library.program, library.fregs, library.hregs
    content = envelope.parse(data, name)
    return Program.decode(content.image), content.fregs, content.hregs


def with_program(data: bytes, renderer: str, name: str, program: Program) -> bytes:
    """The compiled program with other code, and the footprint that this code has at least.

    Raises:
        GraphError, EnvelopeError, DecodeError: it is damaged.
    """
    fregs, hregs = program.footprint()
    if renderer == "IR3":
        library = parse(data)
        fregs, hregs = max(fregs, library.fregs), max(hregs, library.hregs)
        return replace(library, program=program, fregs=fregs, hregs=hregs).to_bytes()
    content = envelope.parse(data, name)
    fregs, hregs = max(fregs, content.fregs), max(hregs, content.hregs)
    return content.inject(program.encode(), fregs, hregs).to_bytes()
