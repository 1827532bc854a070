"""Textures of all shapes, built in NIR and compiled by Mesa for the a630.

A fiber has four words from each of the storage buffers 1 to 3: coordinates and layer; level of detail, what a
shadow sampler compares with, and four more numbers that derivatives are made of; offsets. It leaves four
words in buffer 0.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tinygrad.renderer.nir import nchannel
from tinygrad.runtime.autogen import mesa

from suites.isa.nir_builder import Compiled, Nir, Value

DIMS = {"1d": ("1D", 1), "2d": ("2D", 2), "3d": ("3D", 3), "cube": ("CUBE", 3), "rect": ("RECT", 2)}
DIMS |= {"samples": ("MS", 2), "buffer": ("BUF", 1)}
DERIVATIVES = ((0, 1, 2), (3, 2, 0))
"""Which of the four numbers of buffer 2 the derivatives in x and y are."""

BINDLESS = {"same": (3, 5, 1, 1), "other": (3, 5, 1, 2), "large": (33, 45, 1, 2), "each": (-1, -1, 1, 1)}
BINDLESS |= {"each_other": (-1, -1, 1, 2)}
"""Texture, sampler and their bases; -1: as the fiber's number says."""


@dataclass(frozen=True)
class Shape:
    """What a program samples.

    Attributes:
        operation: of NIR: tex, txb, txl, txd, txf, txf_ms, tg4, txs, query_levels, texture_samples.
        half: coordinates and level have 16 bits.
    """

    operation: str
    stem: str
    layered: bool = False
    shadow: bool = False
    offset: bool = False
    bindless: str = ""
    half: bool = False

    @property
    def axes(self) -> int:
        """Coordinates but for the layer."""
        return DIMS[self.stem][1]

    @property
    def name(self) -> str:
        """Of the program."""
        flags = ("array", self.layered), ("shadow", self.shadow), ("offset", self.offset), ("half", self.half)
        words = [self.operation, self.stem, *(word for word, there in flags if there), self.bindless]
        return "_".join(word for word in words if word)


def _shapes() -> list[Shape]:
    found = []
    for stem, layered in (("1d", False), ("1d", True), ("2d", False), ("2d", True), ("3d", False),
                          ("cube", False), ("cube", True)):  # fmt: skip
        for operation in ("tex", "txb", "txl", "txd", "txf", "tg4", "txs"):
            for shadow in (False, True):
                for offset in (False, True):
                    shape = Shape(operation, stem, layered, shadow, offset)
                    if _exists(shape):
                        found.append(shape)
    found += [Shape("tex", "rect"), Shape("txf_ms", "samples"), Shape("txf_ms", "samples", True)]
    found += [Shape("query_levels", "2d"), Shape("texture_samples", "2d"), Shape("txs", "buffer")]
    found += [Shape("txl", "2d", bindless=way) for way in BINDLESS]
    found += [Shape("query_levels", "2d", bindless="large"), Shape("txs", "2d", bindless="large")]
    return [*found, Shape("txl", "2d", half=True), Shape("txf", "2d", half=True)]


def _exists(shape: Shape) -> bool:
    """Whether GLSL has it."""
    operation, stem = shape.operation, shape.stem
    if shape.offset and (stem == "cube" or operation in ("txs", "tex", "txb")):
        return False
    if shape.shadow and (stem == "3d" or operation in ("txf", "txs", "tex", "txb")):
        return False
    if stem == "cube" and (operation == "txf" or (shape.shadow and shape.layered and operation == "txd")):
        return False
    return operation != "tg4" or stem in ("2d", "cube")


def _words(n: Nir, buffer: int, *places: int) -> list[Value]:
    loaded = n.load(buffer, vector=4)
    return [nchannel(n.b, loaded, place) for place in places]


def _vector(n: Nir, parts: list[Value]) -> Value:
    return n.alu(f"vec{len(parts)}", *parts) if len(parts) > 1 else n.alu("mov", parts[0])


def _narrow(n: Nir, shape: Shape, parts: list[Value]) -> list[Value]:
    """Numbers that went through 16 bits, which Mesa then takes as sources."""
    if not shape.half:
        return parts
    if shape.operation == "txf":
        return [n.alu("i2i32", n.alu("i2i16", part)) for part in parts]
    return [n.alu("f2f32", n.alu("f2f16_rtz", part)) for part in parts]


def _handles(n: Nir, shape: Shape) -> dict[str, Value]:
    if not shape.bindless:
        return {}
    texture, sampler, *bases = BINDLESS[shape.bindless]
    found = {}
    for what, index, base in (("texture", texture, bases[0]), ("sampler", sampler, bases[1])):
        number = n.alu("iand", n.lane, n.number(3)) if index < 0 else n.number(index)
        resource = n.intrinsic("bindless_resource_ir3", number, result=1, DESC_SET=base)
        if what == "texture" or shape.operation == "txl":
            found[f"{what}_handle"] = resource
    return found


def _build(shape: Shape, n: Nir) -> None:
    dim = getattr(mesa, f"GLSL_SAMPLER_DIM_{DIMS[shape.stem][0]}")
    handles = _handles(n, shape)
    if shape.operation in ("query_levels", "texture_samples"):
        n.store(n.texture(shape.operation, dim, False, 1, "int32", **handles))
        return
    (level, reference) = _narrow(n, shape, _words(n, 2, 0, 1))
    if shape.operation == "txs":
        count = (2 if shape.stem == "cube" else shape.axes) + shape.layered
        lod = n.number(0) if shape.stem == "buffer" else n.alu("iand", n.lane, n.number(1))
        n.store(n.texture("txs", dim, shape.layered, count, "int32", lod=lod, **handles))
        return
    places = [*range(shape.axes), *([3] * shape.layered)]
    sources = {"coord": _vector(n, _narrow(n, shape, _words(n, 1, *places)))}
    if shape.operation in ("txl", "txf"):
        sources["lod"] = level
    if shape.operation == "txb":
        sources["bias"] = level
    if shape.operation == "txf_ms":
        sources["ms_index"] = n.alu("iand", n.lane, n.number(3))
    if shape.shadow:
        sources["comparator"] = reference
    if shape.offset:
        sources["offset"] = _vector(n, _words(n, 3, *range(shape.axes)))
    if shape.operation == "txd":
        numbers = _words(n, 2, 0, 1, 2, 3)
        for name, picks in zip(("ddx", "ddy"), DERIVATIVES, strict=True):
            sources[name] = _vector(n, [numbers[pick] for pick in picks[: shape.axes]])
    count = 1 if shape.shadow and shape.operation != "tg4" else 4
    n.store(n.texture(shape.operation, dim, shape.layered, count, shadow=shape.shadow, **sources, **handles))


SHAPES = {shape.name: shape for shape in _shapes()}


@functools.cache
def programs() -> dict[str, Compiled]:
    """All of them, by name."""
    found = {}
    for name, shape in SHAPES.items():
        n = Nir()
        _build(shape, n)
        found[name] = n.compile(name)
    return found
