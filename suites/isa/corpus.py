"""Shaders of the a630, compiled by tinygrad and Mesa on any machine: no device is opened.

:func:`corpus` gives the kernels of a list of tensor expressions in several settings (buffers or images,
16-bit images, without optimizations). Each distinct program is there once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tinygrad import Tensor, dtypes
from tinygrad.codegen import to_program
from tinygrad.helpers import Context, Target
from tinygrad.renderer.nir import IR3Renderer
from tinygrad.runtime.support.compiler_mesa import IR3Compiler
from tinygrad.uop.ops import Ops, UOp

DEVICE = "NULL"
"""tinygrad's device that computes nothing; kernels are scheduled for it and compiled for the a630."""


@dataclass(frozen=True)
class Shader:
    """A compiled kernel: the instruction image and what Mesa says about it."""

    name: str
    code: bytes
    fregs: int  # vec4
    hregs: int
    branchstack: int
    shared_bytes: int
    private_bytes: int
    library: bytes  # what tinygrad hands to its runtime


Make = Callable[[], Tensor | tuple[Tensor, ...]]


def _empty(*shape: int, dtype: Any = dtypes.float) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype, device=DEVICE)


def _elementwise() -> Iterator[tuple[str, Make]]:
    for dtype in (dtypes.float, dtypes.half):
        a, b, name = _empty(45, 68, dtype=dtype), _empty(45, 68, dtype=dtype), dtype.name
        yield f"arithmetic_{name}", partial(lambda a, b: (a * b + a - b / a).maximum(b), a, b)
        yield f"functions_{name}", partial(_functions, a)
        yield f"activations_{name}", partial(lambda a: a.gelu() + a.sigmoid() + a.tanh() + a.silu(), a)
        yield f"rounding_{name}", partial(_rounding, a)
        yield f"compares_{name}", partial(lambda a, b: (a < b).where(a, (a == b).where(b, -a)), a, b)


def _functions(a: Tensor) -> Tensor:
    return a.exp2() + a.log2() + a.sin() + a.sqrt() + a.rsqrt()


def _rounding(a: Tensor) -> Tensor:
    return a.floor() + a.ceil() + a.trunc() + a.round() + a.sign().abs()


def _bitwise(a: Tensor, b: Tensor) -> Tensor:
    return (a * b + a - b).maximum(b) ^ (a & b) | (a << 2) + (b >> 3)


def _integers() -> Iterator[tuple[str, Make]]:
    names = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    for name in names:
        a, b = (_empty(30, 12, dtype=getattr(dtypes, name)) for _ in range(2))
        yield f"integers_{name}", partial(_bitwise, a, b)
        yield f"division_{name}", partial(lambda a, b: a // b + a % b, a, b)
        yield f"sum_{name}", partial(lambda a: a.sum(axis=1), a)


def _casts() -> Iterator[tuple[str, Make]]:
    names = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool", "half", "float"]
    for source in names:
        for target in names:
            if source != target:
                a = _empty(33, dtype=getattr(dtypes, source))
                yield f"cast_{source}_{target}", partial(lambda a, t: a.cast(t), a, getattr(dtypes, target))


def _shapes() -> Iterator[tuple[str, Make]]:
    a, b = _empty(64, 64), _empty(64, 64)
    h, k = _empty(64, 64, dtype=dtypes.half), _empty(64, 64, dtype=dtypes.half)
    index = _empty(20, dtype=dtypes.int)
    yield "sum_rows", lambda: a.sum(axis=1)
    yield "sum_all", lambda: _empty(2048, 64).sum()
    yield "softmax", lambda: a.softmax(axis=1)
    yield "layernorm", lambda: a.layernorm()
    yield "argmax", lambda: a.argmax(axis=1)
    yield "cumsum", lambda: _empty(300).cumsum()
    yield "sort", lambda: _empty(16).sort()[0]
    yield "gather", lambda: a[index]
    yield "pad", lambda: a.pad(((1, 2), (3, 4)))
    yield "cat", lambda: a.cat(b, dim=1).flip(0)
    yield "where_sum", lambda: (a > b).where(a, 0).sum(axis=0)
    yield "matmul_float", lambda: a @ b
    yield "matmul_half", lambda: h @ k
    yield "matmul_mixed", lambda: h.matmul(k, dtype=dtypes.float)
    yield "matvec", lambda: _empty(1, 512) @ _empty(512, 256)
    yield "conv", lambda: _empty(1, 8, 16, 16).conv2d(_empty(8, 8, 3, 3), padding=1).relu()
    yield "conv_strided", lambda: _empty(1, 4, 18, 18).conv2d(_empty(8, 4, 3, 3), stride=2)
    yield "maxpool", lambda: _empty(1, 4, 16, 16).max_pool2d()
    yield "attention", lambda: _attention()
    yield "random", lambda: _hash(index)


def _attention() -> Tensor:
    q, k, v = (_empty(1, 2, 16, 32) for _ in range(3))
    return q.scaled_dot_product_attention(k, v)


def _hash(x: Tensor) -> Tensor:
    """Integer mixing with the wide multiplications that random numbers use."""
    x = x.cast(dtypes.uint32)
    x = (x ^ (x >> 16)) * 0x45D9F3B
    return (x ^ (x >> 16)).cast(dtypes.uint64) * 0x9E3779B97F4A7C15


def _big() -> Iterator[tuple[str, Make]]:
    yield "matmul_512", lambda: _empty(512, 512) @ _empty(512, 512)
    yield "matmul_512_half", lambda: _empty(512, 512, dtype=dtypes.half) @ _empty(512, 512, dtype=dtypes.half)
    yield "conv_deep", lambda: _empty(1, 32, 32, 32).conv2d(_empty(64, 32, 3, 3), padding=1).gelu()
    yield "logsumexp", lambda: _empty(128, 1000).logsumexp(axis=1)
    yield "trig", lambda: _empty(512).tan() + _empty(512).cos() * _empty(512).asin()
    yield "pow", lambda: _empty(512) ** _empty(512)
    yield "double_index", lambda: _empty(40, 50)[_empty(9, dtype=dtypes.int), _empty(9, dtype=dtypes.int)]
    yield "std", lambda: _empty(64, 300).std(axis=1)
    yield "batchnorm", lambda: _empty(2, 8, 8, 8).batchnorm(*(_empty(8) for _ in range(4)))
    yield "topk", lambda: _empty(64).topk(4)[0]


_SETTINGS = {
    "buffers": {"IMAGE": 0, "FLOAT16": 0, "NOOPT": 0},
    "images": {"IMAGE": 1, "FLOAT16": 0, "NOOPT": 0},
    "half_images": {"IMAGE": 1, "FLOAT16": 1, "NOOPT": 0},
    "plain": {"IMAGE": 0, "FLOAT16": 0, "NOOPT": 1},
}


def _short() -> Iterator[tuple[str, str, Make]]:
    for name, make in (*_elementwise(), *_shapes()):
        yield "buffers", name, make
    for name, make in _integers():
        if "64" not in name or "division" not in name:  # 64-bit division alone takes seconds to compile
            yield "buffers", name, make
    for number, (name, make) in enumerate(_casts()):
        if number % 7 == 0:
            yield "buffers", name, make
    for name, make in _shapes():
        if name.startswith(("matmul", "conv", "softmax", "sum")):
            yield "half_images", name, make
            yield "plain", name, make


def _long() -> Iterator[tuple[str, str, Make]]:
    sources = (*_elementwise(), *_integers(), *_casts(), *_shapes(), *_big())
    for setting in _SETTINGS:
        for name, make in sources:
            yield setting, name, make


@functools.cache
def _renderer(images: bool) -> IR3Renderer:
    arch = "a630" + (",IMAGE_PITCH_ALIGNMENT=64" if images else "")
    return IR3Renderer(Target("QCOM", "IR3", arch))


def compile_tensors(name: str, make: Make, setting: str = "buffers") -> list[Shader]:
    """The kernels that computing ``make()`` needs, compiled for the a630 in ``setting``."""
    with Context(**_SETTINGS[setting]):
        tensors = make()
        first, *rest = tensors if isinstance(tensors, tuple) else (tensors,)
        linear = first.schedule_linear(*rest)
        sinks = [call.src[0] for call in linear.src if call.op is Ops.CALL and call.src[0].op is Ops.SINK]
        renderer = _renderer(bool(_SETTINGS[setting]["IMAGE"]))
        return [
            shader(f"{setting}/{name}/{index}", _binary(to_program(sink, renderer)))
            for index, sink in enumerate(sinks)
        ]


def _binary(program: UOp) -> bytes:
    binary: bytes = next(part.arg for part in program.src if part.op is Ops.BINARY)
    return binary


def shader(name: str, library: bytes) -> Shader:
    """What tinygrad's runtime reads out of ``library``."""
    variant, _, _, image = IR3Compiler.unpack_lib(library)
    return Shader(
        name,
        image[: variant.info.size],
        variant.info.max_reg + 1,
        variant.info.max_half_reg + 1,
        variant.branchstack,
        variant.shared_size,
        variant.pvtmem_size,
        library,
    )


@functools.cache
def corpus(long: bool = False) -> tuple[Shader, ...]:
    """All distinct programs; ``long`` for several times as many, which takes minutes."""
    found: dict[bytes, Shader] = {}
    for setting, name, make in _long() if long else _short():
        for one in compile_tensors(name, make, setting):
            found.setdefault(one.code, one)
    return tuple(found.values())
