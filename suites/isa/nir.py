"""Shaders that tinygrad does not write: NIR built by hand and compiled by Mesa for the a630.

:func:`programs` covers what compute can ask of a6xx beyond tinygrad's renderer: storage and uniform buffers,
images of every shape, atomics, bindless descriptors, votes, shuffles, reductions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from functools import partial

from tinygrad.dtype import dtypes
from tinygrad.renderer.nir import nchannel
from tinygrad.runtime.autogen import mesa

from suites.isa.nir_builder import Compiled, Nir, Value

SETS = 5
"""Bindless bases."""

ATOMICS = ("iadd", "imin", "umin", "imax", "umax", "iand", "ior", "ixor", "xchg")
REDUCTIONS = ("iadd", "imul", "umin", "umax", "imin", "imax", "iand", "ior", "ixor", "fadd", "fmin", "fmax")
SHIFT = 0.09375  # of texture coordinates: three eighths of a texel of four
_READ_ONLY = mesa.ACCESS_CAN_REORDER | mesa.ACCESS_NON_WRITEABLE

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

    def indexed(n: Nir) -> None:
        """A uniform buffer whose offset differs between fibers: constants that a0.x displaces."""
        n.preamble = n.push = True
        offset = n.alu("ishl", n.alu("iand", n.lane, n.number(7)), n.number(4))
        fields = {"vector": 4, "ALIGN_MUL": 16, "RANGE_BASE": 0, "RANGE": 128}
        n.store(n.intrinsic("load_ubo", n.number(1), offset, **fields))

    yield "indexed", indexed


def _resources() -> Iterator[tuple[str, Make]]:
    """What storage and images are bindless; memory in order; arrays in registers."""

    def resource(n: Nir, index: int) -> Value:
        return n.intrinsic("bindless_resource_ir3", n.number(index), result=1, DESC_SET=1)

    def image(n: Nir) -> None:
        zero, three = n.number(0), n.number(3)
        parts = [n.alu("iand", n.alu("ushr", n.lane, n.number(2 * axis)), three) for axis in range(2)]
        at, value = n.alu("vec4", *parts, zero, zero), n.load(1)
        fields = {"result": 1, "IMAGE_DIM": mesa.GLSL_SAMPLER_DIM_2D, "FORMAT": mesa.PIPE_FORMAT_R32_UINT}
        added = n.intrinsic(
            "bindless_image_atomic", resource(n, 2), at, zero, value, ATOMIC_OP=mesa.nir_atomic_op_iadd,
            **fields,
        )  # fmt: skip
        swapped = n.intrinsic(
            "bindless_image_atomic_swap", resource(n, 2), at, zero, added, value,
            ATOMIC_OP=mesa.nir_atomic_op_cmpxchg, **fields,
        )  # fmt: skip
        n.store(swapped)

    def size(n: Nir) -> None:
        fields = {"vector": 2, "IMAGE_DIM": mesa.GLSL_SAMPLER_DIM_2D}
        n.store(n.intrinsic("bindless_image_size", resource(n, 1), n.number(0), **fields))

    def storage(n: Nir) -> None:
        """Loaded, changed atomically and stored; buffers stand behind the images."""
        place, fields = n.offset(), {"vector": 1, "ALIGN_MUL": 4}
        value = n.intrinsic("load_ssbo", resource(n, 6), place, **fields)
        old = n.intrinsic(
            "ssbo_atomic", resource(n, 7), place, value, result=1, ATOMIC_OP=mesa.nir_atomic_op_iadd
        )
        n.intrinsic("store_ssbo", old, resource(n, 5), place, WRITE_MASK=1, **fields)

    def exchange(modes: int, scope: int, n: Nir) -> None:
        """A word of another fiber, through local memory."""
        n.info.shared_size = 1024
        n.intrinsic("store_shared", n.load(1), n.offset(), vector=1, ALIGN_MUL=4, WRITE_MASK=1)
        n.intrinsic("barrier", EXECUTION_SCOPE=scope, MEMORY_SCOPE=mesa.SCOPE_DEVICE,
                    MEMORY_SEMANTICS=mesa.NIR_MEMORY_ACQ_REL, MEMORY_MODES=modes)  # fmt: skip
        place = n.alu("ishl", n.alu("ixor", n.lane, n.number(33)), n.number(2))
        n.store(n.intrinsic("load_shared", place, vector=1, ALIGN_MUL=4))

    def array(bits: int, n: Nir) -> None:
        """Eight numbers, one of which a fiber replaces and one of which it takes."""
        fields = {"NUM_COMPONENTS": 1, "NUM_ARRAY_ELEMS": 8, "BIT_SIZE": bits, "DIVERGENT": 1}
        register, words = n.intrinsic("decl_reg", result=1, **fields), n.load(1, vector=4)

        def narrow(value: Value) -> Value:
            return n.alu("u2u16", value) if bits == 16 else value

        for place in range(8):
            value = narrow(n.alu("iadd", nchannel(n.b, words, place % 4), n.number(place)))
            n.intrinsic("store_reg", value, register, vector=1, WRITE_MASK=1, BASE=place)
        into = n.alu("iand", n.lane, n.number(7))
        n.intrinsic("store_reg_indirect", narrow(n.lane), register, into, vector=1, WRITE_MASK=1)
        taken = n.alu("iand", n.alu("ushr", n.lane, n.number(1)), n.number(7))
        n.store(n.intrinsic("load_reg_indirect", register, taken, vector=1, bits=bits))

    yield "bindless_image_atomics", image
    yield "bindless_image_size", size
    yield "bindless_storage", storage
    yield "bindless_storage_size", lambda n: n.store(n.intrinsic("get_ssbo_size", resource(n, 6), result=1))
    local, shared = mesa.nir_var_mem_shared, mesa.nir_var_mem_ssbo | mesa.nir_var_mem_global
    yield "exchange_barrier", partial(exchange, local, mesa.SCOPE_WORKGROUP)
    yield "exchange_fence", partial(exchange, local | shared | mesa.nir_var_image, mesa.SCOPE_NONE)
    for bits in (16, 32):
        yield f"array_{bits}", partial(array, bits)


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

    def count(name: str, n: Nir) -> None:
        words, zero = n.load(1, vector=2), n.number(0)
        mask = n.alu("vec4", nchannel(n.b, words, 0), nchannel(n.b, words, 1), zero, zero)
        n.store(n.intrinsic(name, mask, result=1))

    def same(name: str, mask: int, n: Nir) -> None:
        value = n.alu("u2f32", n.alu("iand", n.load(1), n.number(mask)))
        n.store(n.intrinsic(name, value, vector=1, result=1, bits=1))

    def known(name: str, count: int, n: Nir) -> None:
        n.store(n.intrinsic(f"load_{name}", result=count))

    for name in ("subgroup_size", "subgroup_id", "num_subgroups", "subgroup_invocation", "work_dim"):
        yield name, partial(known, name, 1)
    for name in ("num_workgroups", "workgroup_size", "workgroup_id", "base_workgroup_id"):
        yield name, partial(known, name, 3)
    for name in ("reduce", "inclusive", "exclusive"):
        yield f"count_{name}", partial(count, f"ballot_bit_count_{name}")
    for name in ("lsb", "msb"):
        yield f"count_{name}", partial(count, f"ballot_find_{name}")
    for name in ("ieq", "feq"):
        yield f"vote_{name}_same", partial(same, f"vote_{name}", 64)
        yield f"vote_{name}_apart", partial(same, f"vote_{name}", 1)


_MAKES = dict(
    (
        *_atomics(), *_buffers(), *_images(), *_resources(), *_textures(), *_preambles(), *_waves(),
    )
)  # fmt: skip
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
