"""NIR built by hand and compiled by Mesa for the a630.

An intrinsic that Mesa does not lower for the a630 would end the process.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.nir import nalu, nchannel, nimm, nsrc
from tinygrad.runtime.autogen import mesa
from tinygrad.runtime.support import compiler_mesa
from tinygrad.runtime.support.compiler_mesa import IR3Compiler

from suites.isa.corpus import Shader, _renderer, shader

Value = Any
COUNT = 4
"""Buffers and images that every program declares."""


@dataclass(frozen=True)
class Compiled:
    """A shader with what a launch must know of it.

    Attributes:
        constants: the constant file: Mesa's literals, and driver parameters for waves of 64 and one
            workgroup.
        group_id, local_id: register numbers; 252 where they are not wanted.
    """

    shader: Shader
    constants: bytes
    group_id: int
    local_id: int
    merged: bool = False


@contextlib.contextmanager
def _variants(**fields: bool) -> Iterator[None]:
    """Gives fields to the variants of shaders that tinygrad's compiler makes, which leaves them 0."""
    make = compiler_mesa.rzalloc

    def made(kind: Any, context: Any = None, **given: Any) -> Any:
        return make(kind, context, **given | (fields if kind is mesa.struct_ir3_shader_variant else {}))

    compiler_mesa.rzalloc = made
    try:
        yield
    finally:
        compiler_mesa.rzalloc = make


class Nir:
    """A compute shader in the making; 64 fibers a workgroup."""

    def __init__(self) -> None:
        options = mesa.nir_shader_compiler_options.from_buffer_copy(_renderer(False).nir_options)
        self.b = mesa.nir_builder_init_simple_shader(mesa.MESA_SHADER_COMPUTE, options, b"shader")
        self.info = self.b.shader.contents.info
        for axis, size in enumerate((64, 1, 1)):
            self.info.workgroup_size[axis] = size
        self.preamble = False  # what is the same for all fibers is computed ahead
        self.push = False  # and uniform buffers are copied to the constant file there
        self.info.num_ssbos = self.info.num_ubos = self.info.num_images = COUNT

    def number(self, value: int | float, dtype: DType = dtypes.int) -> Value:
        return nimm(self.b, value, dtype)

    def alu(self, operation: str, *sources: Value) -> Value:
        return nalu(self.b, operation, *sources)

    def intrinsic(
        self, name: str, *sources: Value, result: int = 0, bits: int = 32, vector: int = 0, **indices: int
    ) -> Value:
        """An intrinsic: ``result`` components of the result, ``vector`` those that it is told of."""
        code = getattr(mesa, f"nir_intrinsic_{name}")
        known = mesa.nir_intrinsic_infos[code]
        instr = mesa.nir_intrinsic_instr_create(self.b.shader, code)
        instr.contents.num_components = vector
        if known.has_dest:
            mesa.nir_def_init(instr.contents.instr, instr.contents._def, result or vector or 1, bits)
        for index, value in indices.items():
            place = known.index_map[getattr(mesa, f"NIR_INTRINSIC_{index}")]
            assert place > 0, (name, index)
            instr.contents.const_index[place - 1] = value
        for number, source in enumerate(sources):
            ctypes.cast(instr.contents.src, ctypes.POINTER(mesa.nir_src))[number] = nsrc(source)
        mesa.nir_builder_instr_insert(self.b, instr.contents.instr)
        return instr.contents._def if known.has_dest else None

    @functools.cached_property
    def lane(self) -> Value:
        """The number of the fiber in its workgroup."""
        return nchannel(self.b, self.intrinsic("load_local_invocation_id", result=3), 0)

    def offset(self, shift: int = 2) -> Value:
        """A byte offset of its own for each fiber."""
        return self.alu("ishl", self.lane, self.number(shift))

    def load(self, buffer: int, bits: int = 32, vector: int = 1, **indices: int) -> Value:
        """A fiber's element of a storage buffer, ``vector`` components of ``bits``."""
        shift = (vector * bits // 8).bit_length() - 1
        return self.intrinsic(
            "load_ssbo", self.number(buffer), self.offset(shift),
            bits=bits, vector=vector, ALIGN_MUL=bits // 8, **indices,
        )  # fmt: skip

    def store(self, value: Value, buffer: int = 0) -> None:
        """A fiber's result; what is narrower than a word is extended with zeros."""
        if value.bit_size == 1:
            value = self.alu("b2i32", value)
        elif value.bit_size in (8, 16) and value.num_components == 1:
            value = self.alu("u2u32", value)
        count, width = value.num_components, value.bit_size // 8
        shift = (count * width - 1).bit_length()
        self.intrinsic(
            "store_ssbo", value, self.number(buffer), self.offset(shift),
            vector=count, WRITE_MASK=(1 << count) - 1, ALIGN_MUL=width,
        )  # fmt: skip

    def texture(
        self,
        name: str,
        dim: int,
        layers: bool = False,
        count: int = 4,
        kind: str = "float32",
        shadow: bool = False,
        **sources: Value,
    ) -> Value:
        """A texture instruction on texture and sampler 0; ``sources`` by Mesa's names."""
        self.info.num_textures = COUNT
        instr = mesa.nir_tex_instr_create(self.b.shader, len(sources)).contents
        instr.op, instr.sampler_dim = getattr(mesa, f"nir_texop_{name}"), dim
        instr.is_array, instr.dest_type = layers, getattr(mesa, f"nir_type_{kind}")
        instr.is_shadow, instr.is_new_style_shadow = shadow, shadow and count == 1
        if "coord" in sources:
            instr.coord_components = sources["coord"].num_components
        places = ctypes.cast(instr.src, ctypes.POINTER(mesa.nir_tex_src))
        for number, (what, value) in enumerate(sources.items()):
            places[number].src_type = getattr(mesa, f"nir_tex_src_{what}")
            places[number].src = nsrc(value)
        mesa.nir_def_init(instr.instr, instr._def, count, 32)
        mesa.nir_builder_instr_insert(self.b, instr.instr)
        return instr._def

    def compile(self, name: str, merged: bool = False) -> Compiled:
        """The shader, through the compiler that tinygrad uses.

        Args:
            merged: with half registers in full ones, as Mesa's drivers have it on the A630.
        """
        mesa.nir_validate_shader(self.b.shader, b"as built")
        blob = mesa.struct_blob()
        mesa.nir_serialize(blob, self.b.shader, False)
        source = base64.b64encode(ctypes.string_at(blob.data, blob.size)).decode()
        mesa.ralloc_free(self.b.shader)
        compiler = _renderer(False).compiler
        compiler.cc.has_preamble = self.preamble
        compiler.cc.options.push_ubo_with_preamble = self.push
        try:
            with _variants(mergedregs=merged):
                library = compiler.compile(source)
        finally:
            compiler.cc.has_preamble = compiler.cc.options.push_ubo_with_preamble = False
        variant, state, literals, _ = IR3Compiler.unpack_lib(library)
        file = bytearray(4096)
        parameters = state.allocs.consts[mesa.IR3_CONST_ALLOC_DRIVER_PARAMS]
        if parameters.size_vec4:  # ir3_driver_params_cs: the grid and the wave
            words = (1, 1, 1, 3, 0, 0, 0, 64, 64, 1, 1, 6)
            data = b"".join(word.to_bytes(4, "little") for word in words)
            file[16 * parameters.offset_vec4 : 16 * parameters.offset_vec4 + len(data)] = data
        place = 16 * state.allocs.max_const_offset_vec4
        file[place : place + len(literals)] = literals
        ids = variant.cs.work_group_id, variant.cs.local_invocation_id
        return Compiled(shader(name, library), bytes(file), *ids, merged)
