"""The declared compositions: products by Strassen's and Winograd's forms, of one level and more.

Sums of blocks are UOp kernels, one or two levels a launch; the products in between are declared GEMMs of
ours: the batched 8x8 kernel with FP16 sums, or the rotating 4x8 kernel with FP32 sums, one launch a product.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import strassen
from pytest_qcom.kernels.composition import Composition, Memory, Plan, Step, Use
from pytest_qcom.kernels.families import gemm_4x8_fp32_rotate, gemm_8x8_fp16_batched, strassen_sums
from pytest_qcom.kernels.families.strassen_sums import Combine, Transform
from pytest_qcom.kernels.gemm import LARGEST_IMAGE
from pytest_qcom.kernels.kernel import Arrays, Case
from pytest_qcom.kernels.strassen import PRODUCTS, Rounded
from pytest_qcom.kernels.uops import THREADS

NAME = "strassen"
_LEVELS = 5
_TEXEL_ROW = 32  # halves in the least pitch of an image
_EXACT = {"fp16": 2**11, "fp32": 2**24}
_SOURCE = "qcom_strassen*_check.py of tinygrad's QCOM GEMM experiments"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a product by seven products.

    Attributes:
        m, n, k: C is (m, n). A product is 1 / 2**levels of each side: m a multiple of 32 (FP32: 8), n of 256,
            k of 32.
        levels: 1 to 5; two of them share a launch of sums.
        form: ``strassen`` or ``winograd``.
        accumulate: ``fp16`` or ``fp32``: sums of the products, and C.
        half_products: with fp32, products are rounded to half before they are combined.
        float_sums: sums of blocks of A and B are float32, rounded once.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    levels: int = 1
    form: str = "strassen"
    accumulate: str = "fp16"
    half_products: bool = False
    float_sums: bool = False


@dataclass(frozen=True, slots=True)
class _Stage:
    """The levels of one launch of sums, and the matrices that it starts from: how many, of what shape."""

    levels: int
    batch: int
    m: int
    n: int
    k: int


def stages(options: Options) -> tuple[_Stage, ...]:
    """From the whole product to the leaves: an odd level alone, the others in pairs."""
    found, done = [], 0
    for levels in [1] * (options.levels % 2) + [2] * (options.levels // 2):
        side = 2**done
        found.append(_Stage(levels, PRODUCTS**done, options.m // side, options.n // side, options.k // side))
        done += levels
    return tuple(found)


def _leaf(options: Options) -> tuple[int, int, int]:
    side = 2**options.levels
    return options.m // side, options.n // side, options.k // side


def _check(options: Options) -> None:
    if not 1 <= options.levels <= _LEVELS:
        raise KernelError(f"{NAME}: levels is {options.levels}; give 1 to {_LEVELS}")
    if options.form not in strassen.FORMS:
        raise KernelError(f"{NAME}: form is {options.form!r}; give one of {', '.join(strassen.FORMS)}")
    if options.accumulate not in _EXACT:
        raise KernelError(f"{NAME}: accumulate is {options.accumulate!r}; give fp16 or fp32")
    if options.half_products and options.accumulate == "fp16":
        raise KernelError(f"{NAME}: half-products with accumulate=fp16; its products are half anyway")
    side = 2**options.levels
    units = (32 if options.accumulate == "fp16" else 8, 256, _TEXEL_ROW)
    sides = (options.m, options.n, options.k)
    if any(given < 1 or given % (side * unit) for given, unit in zip(sides, units, strict=True)):
        wanted = " x ".join(str(side * unit) for unit in units)
        raise KernelError(
            f"{NAME}: {' x '.join(map(str, sides))} is not made of {PRODUCTS**options.levels} products that "
            f"the GEMM can compute; give multiples of {wanted}"
        )


@functools.cache
def plan(options: Options) -> Plan:
    """The launches.

    Raises:
        KernelError: options that do not go together.
    """
    _check(options)
    floats = options.accumulate == "fp32"
    product = "float32" if floats and not options.half_products else "float16"
    output = "float32" if floats else "float16"
    memories = [
        Memory("A", (options.m, options.k), "float16", written=False),
        Memory("B", (options.k, options.n), "float16", written=False),
    ]
    steps: list[Step] = []
    for side in "AB":
        _add_transforms(options, side, memories, steps)
    m, n, _ = _leaf(options)
    count = PRODUCTS**options.levels
    memories.append(Memory("M", (count, m, n), product))
    last = len(stages(options))
    operands = {side: f"{side}{last}" for side in "AB"}
    steps += _products(options, operands)
    _add_combinations(options, memories, steps)
    memories[-1] = Memory("C", (options.m, options.n), output)
    return Plan(tuple(memories), tuple(steps), 2e-9 * options.m * options.n * options.k)


def _shape(stage: _Stage, side: str) -> tuple[int, int]:
    return (stage.m, stage.k) if side == "A" else (stage.k, stage.n)


def _transform(options: Options, stage: _Stage, side: str) -> Transform:
    rows, cols = _shape(stage, side)
    most = 2 if stage.levels == 2 and options.float_sums else 4
    vec = _vector(rows, cols, stage.levels, most)
    return Transform(
        rows, cols, stage.batch, stage.levels, side, options.form, vec, float_sums=options.float_sums
    )


def _vector(rows: int, cols: int, levels: int, most: int) -> int:
    """The longest vector up to ``most``, beyond which Mesa spills, that leaves a fiber of 128 one."""
    block = rows * cols // 4**levels
    return next((vec for vec in (4, 2) if vec <= most and block % (THREADS * vec) == 0), 1)


def _combine(options: Options, stage: _Stage, first: bool) -> Combine:
    """``first``: the stage that starts from the products themselves."""
    floats = options.accumulate == "fp32"
    most = 1 if stage.levels == 2 and floats else 2
    return Combine(
        stage.m,
        stage.n,
        stage.batch,
        stage.levels,
        options.form,
        vec=_vector(stage.m, stage.n, stage.levels, most),
        float_products=floats and not (first and options.half_products),
        float_sums=floats,
    )


def _add_transforms(options: Options, side: str, memories: list[Memory], steps: list[Step]) -> None:
    source = side
    for number, stage in enumerate(stages(options), start=1):
        build = strassen_sums.build_transform(_transform(options, stage, side))
        name = f"{side}{number}"
        output = next(argument for argument in build.arguments if argument.written)
        memories.append(Memory(name, output.shape, output.dtype))
        steps.append(
            Step("transform", strassen_sums.TRANSFORM_NAME, build, {"X": Use(source), "O": Use(name)})
        )
        source = name


def _add_combinations(options: Options, memories: list[Memory], steps: list[Step]) -> None:
    source = "M"
    for number, stage in enumerate(reversed(stages(options))):
        build = strassen_sums.build_combine(_combine(options, stage, first=number == 0))
        name = "C" if stage.batch == 1 else f"M{number + 1}"
        output = next(argument for argument in build.arguments if argument.written)
        memories.append(Memory(name, output.shape, output.dtype))
        steps.append(Step("combine", strassen_sums.COMBINE_NAME, build, {"M": Use(source), "C": Use(name)}))
        source = name


def _products(options: Options, operands: Mapping[str, str]) -> Iterator[Step]:
    """Products of leaves: as many a launch as images are high, or one with FP32 sums."""
    m, n, k = _leaf(options)
    count = PRODUCTS**options.levels
    most = 1 if options.accumulate == "fp32" else max(1, LARGEST_IMAGE // max(m, k))
    for first in range(0, count, most):
        batch = min(most, count - first)
        if options.accumulate == "fp32":
            name = gemm_4x8_fp32_rotate.NAME
            build = _single_leaf(m, n, k, options.half_products)
        else:
            name = gemm_8x8_fp16_batched.GEMM.name
            build = _half_leaf(m, n, k, batch)
        uses = {
            "A": Use(operands["A"], first * m * k),
            "B": Use(operands["B"], first * k * n),
            "C": Use("M", first * m * n),
        }
        yield Step("gemm", name, build, uses)


@functools.cache
def _half_leaf(m: int, n: int, k: int, batch: int) -> Any:
    return gemm_8x8_fp16_batched.build(gemm_8x8_fp16_batched.Options(m, n, k, batch, layout="z"))


@functools.cache
def _single_leaf(m: int, n: int, k: int, half: bool) -> Any:
    return gemm_4x8_fp32_rotate.build(
        gemm_4x8_fp32_rotate.Options(m, n, k, threads=64, image_store=half, half_output=half)
    )


def _rounded(options: Options, arrays: Arrays) -> Rounded:
    """C exactly, and how far the launches may be from it: the bounds of all stages, one upon the other."""
    sums = strassen.SINGLE_TO_HALF if options.float_sums else strassen.HALF
    sides = {side: strassen.flushed(arrays[side][None]) for side in "AB"}
    for stage in stages(options):
        for side in "AB":
            table = strassen.operand(options.form, side, stage.levels)
            sides[side] = strassen.transformed(sides[side], table, stage.levels, sums)
    floats = options.accumulate == "fp32"
    products = strassen.multiplied(sides["A"], sides["B"], strassen.SINGLE if floats else strassen.HALF)
    if options.half_products:
        products = strassen.stored_as_half(products)
    for number, stage in enumerate(reversed(stages(options))):
        arithmetic = strassen_sums.combine_arithmetic(_combine(options, stage, first=number == 0))
        products = strassen.combined(
            products, strassen.result(options.form, stage.levels), stage.levels, arithmetic
        )
    return products


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    """Standard normal matrices."""
    return {
        "A": rng.standard_normal((options.m, options.k)).astype(np.float16),
        "B": rng.standard_normal((options.k, options.n)).astype(np.float16),
    }


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64, without any of the form's sums."""
    a, b = (arrays[side].astype(np.float64) for side in "AB")
    return {"C": a @ b}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """The bounds of the sums of blocks, of the products and of their combination, carried through."""
    return {"C": _rounded(options, arrays).error[0]}


def exact(options: Options) -> Arrays:
    """Entries 0 and plus or minus powers of two such that no sum anywhere rounds: indices alone decide C.

    All values are multiples of a unit, and no sum of magnitudes on the way exceeds what the type holds
    exactly in that unit. Each row of A keeps as many random entries as that allows, all of B are there.

    Raises:
        KernelError: not even one entry of a row of A can be exact.
    """
    rng = np.random.default_rng(29)
    b = rng.choice((-1.0, 1.0), (options.k, options.n)) / 8
    signs = rng.choice((-1.0, 1.0), (options.m, options.k)) / 8
    order = rng.permuted(np.tile(np.arange(options.k), (options.m, 1)), axis=1)
    kept = options.k
    while kept:
        arrays = {"A": np.where(order < kept, signs, 0).astype(np.float16), "B": b.astype(np.float16)}
        if 64 * _largest(options, arrays) <= _EXACT["fp16" if options.half_products else options.accumulate]:
            return arrays
        kept //= 2
    raise KernelError(
        f"{NAME}: {options.levels} levels of {options.accumulate} have no exact inputs; give fewer"
    )


def _largest(options: Options, arrays: Arrays) -> float:
    """The largest sum of magnitudes that any addition on the way can see."""
    sides = {side: np.abs(arrays[side][None].astype(np.float64)) for side in "AB"}
    nothing = strassen.Arithmetic(0.0, 0.0)

    def carried(value: NDArray[Any]) -> Rounded:
        return Rounded(value, np.zeros_like(value))

    for stage in stages(options):
        for side in "AB":
            table = abs(strassen.operand(options.form, side, stage.levels))
            sides[side] = strassen.transformed(carried(sides[side]), table, stage.levels, nothing).value
    products = sides["A"] @ sides["B"]
    for stage in reversed(stages(options)):
        table = abs(strassen.result(options.form, stage.levels))
        products = strassen.combined(carried(products), table, stage.levels, nothing).value
    return float(products.max())


STRASSEN = Composition(
    name=NAME,
    summary="a product by seven products a level, in Strassen's or Winograd's form",
    options=Options,
    plan=plan,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={"exact": exact},
    unit="GFLOPS",
    cases=(
        Case("one", dict(m=64, n=512, k=64)),
        Case("one-winograd", dict(m=64, n=512, k=128, form="winograd")),
        Case("two", dict(m=128, n=1024, k=128, levels=2)),
        Case("two-fp32", dict(m=64, n=1024, k=128, levels=2, accumulate="fp32")),
        Case(
            "two-fp32-half",
            dict(m=64, n=1024, k=128, levels=2, accumulate="fp32", half_products=True, float_sums=True),
        ),
        Case("two-winograd-fp32", dict(m=32, n=1024, k=128, levels=2, accumulate="fp32", form="winograd")),
        Case("three", dict(m=256, n=2048, k=256, levels=3)),
        Case("one-n1024", {}),
        Case("two-n1024", dict(levels=2)),
        Case("two-fp32-n1024", dict(levels=2, accumulate="fp32")),
        Case("three-fp32-n2048", dict(m=2048, n=2048, k=2048, levels=3, accumulate="fp32")),
        Case("four-fp32", dict(m=512, n=4096, k=512, levels=4, accumulate="fp32")),
    ),
    long=("one-n1024", "two-n1024", "two-fp32-n1024", "three", "three-fp32-n2048", "four-fp32"),
    source=_SOURCE,
)

COMPOSITIONS: dict[str, Composition] = {composition.name: composition for composition in (STRASSEN,)}


def find(name: str) -> Composition:
    """The composition called ``name``.

    Raises:
        KernelError: there is none.
    """
    if name in COMPOSITIONS:
        return COMPOSITIONS[name]
    near = difflib.get_close_matches(name, COMPOSITIONS, 3) or list(COMPOSITIONS)
    raise KernelError(f"no composition is called {name!r}; did you mean {', '.join(near)}?")
