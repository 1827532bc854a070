"""Shaders that tinygrad does not write: NIR built by hand and compiled by Mesa for the a630.

:func:`programs` covers what compute can ask of a6xx beyond tinygrad's renderer: storage and uniform buffers,
images of every shape, atomics, bindless descriptors, votes, shuffles, reductions. An intrinsic that Mesa does
not lower for the a630 would end the process.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.nir import nalu, nchannel, nimm, nsrc
from tinygrad.runtime.autogen import mesa
from tinygrad.runtime.support import compiler_mesa
from tinygrad.runtime.support.compiler_mesa import IR3Compiler

from suites.isa.corpus import Shader, _renderer, shader

Value = Any
SETS, COUNT = 5, 4  # bindless bases; buffers and images that every program declares

ATOMICS = ("iadd", "imin", "umin", "imax", "umax", "iand", "ior", "ixor", "xchg")
REDUCTIONS = ("iadd", "imul", "umin", "umax", "imin", "imax", "iand", "ior", "ixor", "fadd", "fmin", "fmax")
SHIFT = 0.09375  # of texture coordinates: three eighths of a texel of four
_READ_ONLY = mesa.ACCESS_CAN_REORDER | mesa.ACCESS_NON_WRITEABLE


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


Make = Callable[[Nir], None]


def _atomics() -> Iterator[tuple[str, Make]]:
    def change(operation: str, space: str, bits: int, n: Nir) -> None:
        value = n.load(1, bits)
        fields = {"result": 1, "bits": bits, "ATOMIC_OP": getattr(mesa, f"nir_atomic_op_{operation}")}
        sources = [value]
        if operation == "cmpxchg":
            sources.append(n.number(7, dtypes.long if bits == 64 else dtypes.int))
        name = f"{space}_atomic" + "_swap" * (operation == "cmpxchg")
        if space == "ssbo":
            found = n.intrinsic(name, n.number(2), n.offset(), *sources, **fields)
        elif space == "shared":
            n.info.shared_size = 1024
            found = n.intrinsic(name, n.offset(), *sources, **fields)
        else:
            found = n.intrinsic(name, n.load(3, 64), *sources, **fields)
        n.store(n.alu("u2u32", found) if bits == 64 else found)

    for operation in (*ATOMICS, "cmpxchg"):
        for space in ("ssbo", "shared", "global"):
            yield f"{space}_{operation}", partial(change, operation, space, 32)
        yield f"global_{operation}_64", partial(change, operation, "global", 64)


def _buffers() -> Iterator[tuple[str, Make]]:
    def storage(bits: int, vector: int, n: Nir) -> None:
        n.store(n.load(1, bits, vector))

    def uniform(bits: int, vector: int, n: Nir) -> None:
        fields = {"bits": bits, "vector": vector, "ALIGN_MUL": bits // 8, "RANGE": 0xFFFFFFFF}
        n.store(n.intrinsic("load_ubo", n.number(1), n.offset(4), **fields))

    def spaces(space: str, bits: int, vector: int, n: Nir) -> None:
        value, mask = n.load(1, bits, vector), (1 << vector) - 1
        fields = {"vector": vector, "ALIGN_MUL": bits // 8}
        if space == "shared":
            n.info.shared_size = 4096
            n.intrinsic("store_shared", value, n.offset(4), BASE=4, WRITE_MASK=mask, **fields)
            n.store(n.intrinsic("load_shared", n.offset(4), bits=bits, BASE=4, **fields))
        elif space == "scratch":
            n.b.shader.contents.scratch_size = 64
            place = n.alu("iand", n.lane, n.number(32))
            n.intrinsic("store_scratch", value, place, WRITE_MASK=mask, **fields)
            n.store(n.intrinsic("load_scratch", place, bits=bits, **fields))
        else:
            place = n.load(3, 64)
            n.store(n.intrinsic("load_global", place, bits=bits, **fields))
            n.intrinsic("store_global", value, place, WRITE_MASK=mask, **fields)

    for bits in (8, 16, 32, 64):
        for vector in (1, 2, 3, 4):
            if vector != 3:
                yield f"ssbo_{bits}x{vector}", partial(storage, bits, vector)
            if bits > 8:
                yield f"ubo_{bits}x{vector}", partial(uniform, bits, vector)
    for space in ("shared", "scratch", "global"):
        for bits in (8, 16, 32):
            for vector in (1, 2, 4):
                yield f"{space}_{bits}x{vector}", partial(spaces, space, bits, vector)
    fields = {"vector": 1, "ALIGN_MUL": 4}
    yield (
        "ubo_index",
        lambda n: n.store(
            n.intrinsic(
                "load_ubo", n.alu("iand", n.lane, n.number(3)), n.offset(4), RANGE=0xFFFFFFFF, **fields
            )
        ),
    )
    yield (
        "ssbo_index",
        lambda n: n.store(n.intrinsic("load_ssbo", n.alu("iand", n.lane, n.number(3)), n.offset(), **fields)),
    )
    yield "ssbo_readonly", lambda n: n.store(n.load(1, ACCESS=_READ_ONLY))
    yield "ssbo_size", lambda n: n.store(n.intrinsic("get_ssbo_size", n.number(1), result=1))


def _images() -> Iterator[tuple[str, Make]]:
    shapes = {"1d": (mesa.GLSL_SAMPLER_DIM_1D, 1), "2d": (mesa.GLSL_SAMPLER_DIM_2D, 2)}
    shapes |= {"3d": (mesa.GLSL_SAMPLER_DIM_3D, 3), "buffer": (mesa.GLSL_SAMPLER_DIM_BUF, 1)}
    shapes |= {"cube": (mesa.GLSL_SAMPLER_DIM_CUBE, 2)}

    def place(n: Nir) -> Value:
        parts = [n.alu("iand", n.alu("ushr", n.lane, n.number(2 * axis)), n.number(3)) for axis in range(3)]
        return n.alu("vec4", *parts, n.number(0))

    def copy(dim: int, layers: int, access: int, kind: str, n: Nir) -> None:
        form = mesa.PIPE_FORMAT_R32G32B32A32_UINT if kind == "uint32" else mesa.PIPE_FORMAT_R32G32B32A32_FLOAT
        fields = {"vector": 4, "IMAGE_DIM": dim, "IMAGE_ARRAY": layers, "FORMAT": form}
        ty, zero, at = getattr(mesa, f"nir_type_{kind}"), n.number(0), place(n)
        texel = n.intrinsic("image_load", zero, at, zero, zero, ACCESS=access, DEST_TYPE=ty, **fields)
        n.intrinsic("image_store", n.number(1), at, zero, texel, zero, SRC_TYPE=ty, **fields)

    def size(dim: int, layers: int, count: int, n: Nir) -> None:
        fields = {"vector": count, "IMAGE_DIM": dim, "IMAGE_ARRAY": layers}
        n.store(n.intrinsic("image_size", n.number(0), n.number(0), **fields))

    def atomic(dim: int, layers: int, n: Nir) -> None:
        fields = {"result": 1, "IMAGE_DIM": dim, "IMAGE_ARRAY": layers, "FORMAT": mesa.PIPE_FORMAT_R32_UINT}
        zero, at, value = n.number(0), place(n), n.load(1)
        first = n.intrinsic(
            "image_atomic", n.number(2), at, zero, value, ATOMIC_OP=mesa.nir_atomic_op_iadd, **fields
        )
        second = n.intrinsic(
            "image_atomic_swap", n.number(2), at, zero, first, value,
            ATOMIC_OP=mesa.nir_atomic_op_cmpxchg, **fields,
        )  # fmt: skip
        n.store(second)

    def bindless(base: int, n: Nir) -> None:
        zero, at = n.number(0), place(n)
        fields = {"vector": 4, "IMAGE_DIM": mesa.GLSL_SAMPLER_DIM_2D}
        read = {**fields, "ACCESS": _READ_ONLY, "DEST_TYPE": mesa.nir_type_float32}

        def resource(index: Value) -> Value:
            return n.intrinsic("bindless_resource_ir3", index, result=1, DESC_SET=base)

        total = n.intrinsic(
            "load_ubo", resource(n.number(2)), n.offset(4), vector=4, ALIGN_MUL=16, RANGE=1 << 20
        )
        for index in (n.number(0), n.number(20), n.alu("iand", n.lane, n.number(1))):
            texel = n.intrinsic("bindless_image_load", resource(index), at, zero, zero, **read)
            total = n.alu("fadd", total, texel)
        fields["SRC_TYPE"] = mesa.nir_type_float32
        n.intrinsic("bindless_image_store", resource(n.number(1)), at, zero, total, zero, **fields)

    for name, (dim, count) in shapes.items():
        for layers in (0, 1):
            if layers and name in ("3d", "buffer"):
                continue
            shape = name + "_array" * layers
            for access, how in ((0, ""), (_READ_ONLY, "_read_only")):
                for kind in ("uint32", "float32"):
                    yield f"image_{shape}_{kind}{how}", partial(copy, dim, layers, access, kind)
            yield f"image_size_{shape}", partial(size, dim, layers, count + layers)
            yield f"image_atomic_{shape}", partial(atomic, dim, layers)
    for base in range(SETS):
        yield f"bindless_{base}", partial(bindless, base)


def _preambles() -> Iterator[tuple[str, Make]]:
    def root(count: int, n: Nir) -> None:
        """The roots of ``count`` numbers that depend on the grid, plus what differs between fibers."""
        n.preamble = True
        groups = nchannel(n.b, n.intrinsic("load_num_workgroups", result=3), 0)
        parts = []
        for number in range(count):
            whole = n.alu("iadd", n.alu("imul", groups, n.number(3 + number)), n.number(number))
            parts.append(n.alu("f2u32", n.alu("fsqrt", n.alu("u2f32", n.alu("imul", whole, whole)))))
        total = n.load(1)
        for number, part in enumerate(parts):
            total = n.alu("ixor", n.alu("imul", total, part), n.number(number))
        n.store(total)

    for count in (1, 2, 3, 4, 9):
        yield f"preamble_{count}", partial(root, count)

    def pushed(bindless: bool, n: Nir) -> None:
        """A word of two uniform buffers added to those of the fiber; Mesa copies them to constants."""
        n.preamble = n.push = True
        total = n.load(1, vector=4)
        for buffer, offset in ((1, 32), (2, 320)):
            source = n.number(buffer)
            if bindless:
                source = n.intrinsic("bindless_resource_ir3", source, result=1, DESC_SET=buffer)
            found = n.intrinsic(
                "load_ubo", source, n.number(offset), vector=4, ALIGN_MUL=16, RANGE=0xFFFFFFFF
            )
            total = n.alu("iadd", total, found)
        n.store(total)

    yield "pushed", partial(pushed, False)
    yield "pushed_bindless", partial(pushed, True)


def _textures() -> Iterator[tuple[str, Make]]:
    dims = {"1d": mesa.GLSL_SAMPLER_DIM_1D, "2d": mesa.GLSL_SAMPLER_DIM_2D, "3d": mesa.GLSL_SAMPLER_DIM_3D}

    def place(n: Nir, axes: int, layers: bool, floats: bool = True) -> Value:
        """Texels (lane & 3, lane >> 2 & 3, lane >> 4); as floats a bit behind their starts in textures of 4,
        and the layer itself."""
        count = axes + layers
        parts = [
            n.alu("iand", n.alu("ushr", n.lane, n.number(2 * axis)), n.number(3)) for axis in range(count)
        ]
        if floats:
            parts = [n.alu("u2f32", part) for part in parts]
            quarter, shift = n.number(0.25, dtypes.float), n.number(SHIFT, dtypes.float)
            parts[:axes] = [n.alu("ffma", part, quarter, shift) for part in parts[:axes]]
        return n.alu(f"vec{count}", *parts) if count > 1 else n.alu("mov", parts[0])

    def sample(name: str, shape: str, layers: bool, n: Nir) -> None:
        level = {"tex": {}, "txl": {"lod": n.number(0.5, dtypes.float)}, "txf": {"lod": n.number(0)}}[name]
        coordinates = place(n, int(shape[0]), layers, name != "txf")
        n.store(n.texture(name, dims[shape], layers, coord=coordinates, **level))

    def gather(n: Nir) -> None:
        n.store(n.texture("tg4", dims["2d"], coord=place(n, 2, False)))

    def size(shape: str, layers: bool, n: Nir) -> None:
        count = int(shape[0]) + layers
        n.store(n.texture("txs", dims[shape], layers, count, "int32", lod=n.alu("iand", n.lane, n.number(1))))

    for shape in dims:
        for layers in (False, True):
            if layers and shape == "3d":
                continue
            for name in ("tex", "txl", "txf"):
                yield f"texture_{name}_{shape}" + "_array" * layers, partial(sample, name, shape, layers)
            yield f"texture_size_{shape}" + "_array" * layers, partial(size, shape, layers)
    yield "texture_gather", gather


def _waves() -> Iterator[tuple[str, Make]]:
    def small(n: Nir) -> Value:
        return n.alu("ult", n.load(1), n.number(9))

    yield "vote_any", lambda n: n.store(n.intrinsic("vote_any", small(n), bits=1))
    yield "vote_all", lambda n: n.store(n.intrinsic("vote_all", small(n), bits=1))
    yield "elect", lambda n: n.store(n.intrinsic("elect", bits=1))
    yield "ballot", lambda n: n.store(n.intrinsic("ballot", small(n), vector=4))
    yield (
        "ballot_all",
        lambda n: n.store(n.intrinsic("ballot", n.alu("ieq", n.number(0), n.number(0)), vector=4)),
    )

    def move(name: str, argument: int, bits: int, n: Nir) -> None:
        value = n.load(1)
        value = n.alu("u2u16", value) if bits == 16 else value
        sources = [n.number(argument)] if argument else []
        n.store(n.intrinsic(name, value, *sources, vector=1, bits=bits))

    def reduce(name: str, operation: str, bits: int, cluster: int, n: Nir) -> None:
        value = n.load(1)
        if bits == 16:
            value = n.alu("f2f16" if operation.startswith("f") else "u2u16", value)
        code = getattr(mesa, f"nir_op_{operation}")
        fields = {"CLUSTER_SIZE": cluster} if cluster else {}
        n.store(n.intrinsic(name, value, vector=1, bits=bits, REDUCTION_OP=code, **fields))

    moves = {"read_first_invocation": 0, "read_invocation": 3, "shuffle": 3, "shuffle_xor": 3, "rotate": 3}
    moves |= {"shuffle_up": 3, "shuffle_down": 3, "quad_broadcast": 3}
    moves |= {f"quad_swap_{way}": 0 for way in ("horizontal", "vertical", "diagonal")}
    for bits in (16, 32):
        for name, argument in moves.items():
            yield f"{name}_{bits}", partial(move, name, argument, bits)
        for name in ("reduce", "inclusive_scan", "exclusive_scan"):
            for operation in REDUCTIONS:
                yield f"{name}_{operation}_{bits}", partial(reduce, name, operation, bits, 0)
    yield "reduce_cluster", partial(reduce, "reduce", "iadd", 32, 4)

    def known(name: str, count: int, n: Nir) -> None:
        n.store(n.intrinsic(f"load_{name}", result=count))

    for name in ("subgroup_size", "subgroup_id", "num_subgroups", "subgroup_invocation"):
        yield name, partial(known, name, 1)
    for name in ("num_workgroups", "workgroup_size"):
        yield name, partial(known, name, 3)


_MAKES = dict((*_atomics(), *_buffers(), *_images(), *_textures(), *_preambles(), *_waves()))
NAMES = tuple(_MAKES)


@functools.cache
def programs() -> dict[str, Compiled]:
    """All of them, by name."""
    return {name: program(name) for name in _MAKES}


def program(name: str, merged: bool = False) -> Compiled:
    """One of them, also with merged registers."""
    n = Nir()
    _MAKES[name](n)
    return n.compile(name, merged)
