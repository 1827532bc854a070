"""Patches that put hand kernels in the place of compiled products; weights are laid out anew for them.

The sums go to memory of their own, and what the product's program did with them is compiled as a program
that reads them from there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import integer
from pytest_qcom.kernels import registry as kernels
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.openpilot import inserted, products
from pytest_qcom.openpilot.graph import LANES, Call, Graph, Kind, Program, View, weight
from pytest_qcom.openpilot.patch import Findings, Patch, Tolerance, in_place, single
from pytest_qcom.openpilot.products import Product

Options = Callable[[Product], dict[str, Any]]
"""Options of a kernel for a product. Raises KernelError where there are none."""
_PITCH = 64  # bytes to a multiple of which rows of an image lie apart


def _against(call: Call, program: Program, product: Product, sums: str) -> str:
    """Why a hand kernel cannot read a product's arguments as they lie; empty if it can.

    Raises:
        GraphError: what the program does with its sums cannot stand alone.
    """
    left, right = call.views[product.left], call.views[product.right]
    if right.memory.kind is not Kind.WEIGHT or right.dtype != "float16":
        return "its right argument is no weight in halves, which could be laid out anew"
    if program.parameters[product.left].dtype != "float16":
        return "its left argument is not in halves"
    if left.start % _PITCH or product.left_start or 2 * product.left_stride % _PITCH:
        return "its left rows do not start where those of an image do"
    inserted.epilogue(program, product, sums)
    return ""


def _build(kernel: str, product: Product, options: Options) -> Build:
    """The kernel for a product, in waves of 64 fibers: tinygrad launches no others, and it is right so."""
    declared = kernels.find(kernel)
    shape = {"m": product.m, "n": product.n, "k": product.k}
    build = declared.build(declared.configure({**shape, **options(product)}))
    return replace(build, thread128=False)


Found = tuple[Product, Build]
"""A product, and the kernel in its place."""


def _find(kernel: str, options: Options, sums: str) -> Callable[[Graph], Findings]:
    def judge(call: Call, program: Program) -> tuple[dict[str, int], Found] | str:
        product = products.product(call)
        if isinstance(product, str):
            return ""
        build = _build(kernel, product, options)
        if reason := _against(call, program, product, sums):
            return reason
        return {"m": product.m, "n": product.n, "k": product.k}, (product, build)

    return single(judge)


def _left(call: Call, product: Product) -> tuple[View, tuple[int, ...]]:
    """The left argument, and its shape as an image."""
    return call.views[product.left], (product.m, product.left_stride // LANES, LANES)


def _finish(call: Call, product: Product, sums: View) -> Call:
    """The epilogue of a product whose sums are in an image."""
    assert call.program is not None
    program, others = inserted.epilogue(call.program, product, sums.dtype)
    views = (call.views[product.out], sums, *(call.views[slot] for slot in others))
    return Call(program, views, call.batch)


def _with_halves(call: Call, found: Found, kernel: str) -> tuple[Call, ...]:
    """The product by a kernel of half images A and B that stores halves."""
    product, build = found
    right = weight(product.matrix(call).reshape(product.k, product.n // LANES, LANES))
    sums = View.of(inserted.sums_memory(product, "float16"))
    left, shape = _left(call, product)
    views = {"A": left, "B": View.of(right), "C": sums}
    return inserted.hand(call, kernel, build, views, {"A": shape}), _finish(call, product, sums)


def _columns(product: Product) -> dict[str, Any]:
    """As many vec4 columns a fiber as divide the product's."""
    for ncols in (4, 3, 2):
        if product.n % (128 * ncols) == 0:
            return {"ncols": ncols}
    return {"ncols": 1}


def _large(product: Product) -> dict[str, Any]:
    if product.m < _LARGE:
        raise KernelError(f"its {product.m} rows are fewer than {_LARGE}, for which smaller tiles do")
    return {}


_LARGE = 128


# Bytes


@functools.lru_cache(maxsize=64)
def _quantize(program: Program, m: int, k: int, stride: int) -> inserted.Expressed:
    """Rows of halves to words of four signed bytes, and what belongs to a row."""

    def function(rows: Any) -> tuple[Any, Any]:
        x = rows.reshape(m, stride)[:, :k].cast("float32")
        largest = x.abs().max(axis=1, keepdim=True)
        scale = (largest == 0).where(1.0, largest / integer.LIMIT)
        value = (x / scale).round().clip(-integer.LIMIT, integer.LIMIT).cast("int32").contiguous()
        lanes = (value & 0xFF).cast("uint32").reshape(m, k // 4, 4)
        packed = (
            lanes[..., 0] + lanes[..., 1] * (1 << 8) + lanes[..., 2] * (1 << 16) + lanes[..., 3] * (1 << 24)
        )
        width = 4 * -(-k // 64) * 4
        bias = (value.sum(axis=1, keepdim=True) * integer.BIAS).bitcast("uint32")
        facts = scale.bitcast("uint32").cat(bias, dim=1)
        return packed.pad(((0, 0), (0, width - k // 4))), facts.pad(((0, 0), (0, 14)))

    return inserted.expressed(program, function, [((m * stride,), "float16")])


def _with_bytes(call: Call, found: Found) -> tuple[Call, ...]:
    """The product of quantized rows and weights, by ``gemm_dp4_scaled``."""
    product, build = found
    assert call.program is not None
    left, _ = _left(call, product)
    quantize = _quantize(call.program, product.m, product.k, product.left_stride)
    before, (words, rows) = quantize.inserted(call, [left])
    scaled, scale = integer.quantized(product.matrix(call), axis=0)
    sums = View.of(inserted.sums_memory(product, "float32"))
    views = {
        "A": words,
        "B": View.of(weight(_bytes(scaled + integer.BIAS, product))),
        "rows": rows,
        "columns": View.of(weight(scale.reshape(1, -1, LANES))),
        "C": sums,
    }
    return (*before, inserted.hand(call, _BYTES, build, views, {}), _finish(call, product, sums))


_BYTES = "gemm_dp4_scaled"


def _bytes(matrix: NDArray[Any], product: Product) -> NDArray[Any]:
    """Unsigned bytes as words of four k, (k / 4, n / 4, 4)."""
    columns = matrix.astype(np.uint8).reshape(product.k // 4, 4, product.n).transpose(0, 2, 1)
    return np.ascontiguousarray(columns).view("<u4").reshape(product.k // 4, product.n // LANES, LANES)


# Bytes under halves


@functools.lru_cache(maxsize=64)
def _by_bytes(program: Program, m: int, n: int, k: int, stride: int) -> inserted.Expressed:
    """Sums of rows of halves by signed bytes, in float32, times the scales of the columns."""

    def function(rows: Any, values: Any, scale: Any) -> tuple[Any]:
        left = rows.reshape(m, stride)[:, :k].cast("float32")
        return (left @ values.reshape(k, n).cast("float32") * scale.reshape(1, n),)

    inputs = [((m * stride,), "float16"), ((k * n,), "int8"), ((n,), "float32")]
    return inserted.expressed(program, function, inputs)


def _judge_weights(call: Call, program: Program) -> tuple[dict[str, int], Product] | str:
    product = products.product(call)
    if isinstance(product, str):
        return ""
    if 4 * product.n % _PITCH:
        return f"its {product.n} columns of sums are no rows of an image"
    if reason := _against(call, program, product, "float32"):
        return reason
    return {"m": product.m, "n": product.n, "k": product.k}, product


def _with_weights(call: Call, product: Product) -> tuple[Call, ...]:
    """The product with its weights as bytes; what the program did with its sums behind it."""
    assert call.program is not None
    made = _by_bytes(call.program, product.m, product.n, product.k, product.left_stride)
    values, scale = integer.quantized(product.matrix(call), axis=0)
    weights = (weight(values.astype(np.int8)), weight(scale.reshape(-1)))
    left, _ = _left(call, product)
    before, (sums,) = made.inserted(call, [left, *map(View.of, weights)])
    return (*before, _finish(call, product, sums))


def _patches() -> Iterator[Patch]:
    for name, kernel, options, summary, models, source in (
        (
            "replace-up4x16",
            "gemm_4xn_fp16",
            _columns,
            "products become the hand kernel of four rows by one to four vec4 columns, in halves",
            ("vision-mlp",),
            "the widest projections of a transformer are most of its work",
        ),
        (
            "large-fp16",
            "gemm_8x8_fp16",
            _large,
            f"products of {_LARGE} rows and more become the hand kernel of eight rows by two vec4 columns",
            ("vision-mlp",),
            "a larger tile samples less for each product, once there are workgroups enough",
        ),
    ):
        yield Patch(
            name=name,
            summary=summary,
            find=_find(kernel, options, "float16"),
            rewrite=in_place(functools.partial(_with_halves, kernel=kernel)),
            models=models,
            tolerance=Tolerance(5e-2, "sums are halves: some hundred additions of 2^-11 each"),
            source=source,
        )
    yield Patch(
        name="quant-forward",
        summary="products become products of bytes: rows are quantized as they come, weights once",
        find=_find(_BYTES, lambda _: {}, "float32"),
        rewrite=in_place(_with_bytes),
        models=("vision-mlp",),
        tolerance=Tolerance(5e-2, "activations and weights are rounded to 255 steps of their largest value"),
        source="four products of bytes in one instruction",
    )
    yield Patch(
        name="int8-weights",
        summary="weights of products become bytes, with a scale for each column; rows stay as they are",
        find=single(_judge_weights),
        rewrite=in_place(_with_weights),
        models=("vision-mlp",),
        tolerance=Tolerance(3e-2, "weights are rounded to 255 steps of a column's largest value"),
        source="weights that fill the cache come as half as many bytes",
    )


PATCHES = tuple(_patches())
