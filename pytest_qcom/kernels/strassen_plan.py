"""The launches of a product by Strassen's or Winograd's form: its sums and products, and their memories."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pytest_qcom.kernels import strassen
from pytest_qcom.kernels.composition import HostStep, Memory, Plan, Step, Use
from pytest_qcom.kernels.families import (
    gemm_4x4_fp32_halfwave,
    gemm_4x8_fp32_batched,
    gemm_8x8_fp16_batched,
    gemm_8x8_fp32_batched,
    strassen_combine,
    strassen_fused,
    strassen_products,
    strassen_transform,
)
from pytest_qcom.kernels.families.strassen_combine import Combine
from pytest_qcom.kernels.families.strassen_transform import Transform
from pytest_qcom.kernels.gemm import LARGEST_IMAGE
from pytest_qcom.kernels.kernel import Arrays, Build
from pytest_qcom.kernels.strassen_options import SUMS, Options, Stage, check, stages
from pytest_qcom.kernels.uops import THREADS

_POSITIONS = 4  # vectors that a workgroup takes through local memory


@functools.cache
def plan(options: Options) -> Plan:
    """The launches.

    Raises:
        KernelError: options that do not go together.
    """
    check(options)
    planner = _Planner(options)
    found = stages(options)
    planner.memory("A", found[0].side("A"), "float16", written=False)
    planner.memory("B", found[0].side("B"), "float16", written=False)
    planner.memory("C", found[0].side("C"), SUMS[options.accumulate])
    if options.host_sums:
        planner.beside_host(*found)
    elif options.stream:
        planner.streamed(found)
    else:
        planner.whole(found, {side: Use(side) for side in "ABC"})
    work = 2e-9 * options.m * options.n * options.k
    return Plan(tuple(planner.memories.values()), tuple(planner.steps), work)


Uses = dict[str, Use]
"""Of A, B and C."""


@dataclass(slots=True)
class _Planner:
    """Collects memories and steps. A ``slot`` is a suffix of memories that are there twice."""

    options: Options
    memories: dict[str, Memory] = field(default_factory=dict)
    steps: list[Step | HostStep] = field(default_factory=list)

    def memory(self, name: str, shape: tuple[int, ...], dtype: str, written: bool = True) -> Use:
        """A memory, new or the same again, from its beginning."""
        self.memories[name] = Memory(name, shape, dtype, written)
        return Use(name)

    def whole(self, found: tuple[Stage, ...], uses: Uses, slot: str = "") -> None:
        """All launches of some stages."""
        for stage in found:
            if not stage.fused:
                uses = {**uses, **{side: self.transform(stage, side, uses[side], slot) for side in "AB"}}
        targets = [uses["C"]]  # of the combination of each stage
        for stage in found[1:]:
            shape = (stage.batch, stage.m, stage.n)
            targets.append(self.memory(f"M{stage.number - 1}{slot}", shape, self.options.product))
        last, operands = found[-1], {side: uses[side] for side in "AB"}
        if self.options.leaf == "terminal":
            self.terminal(last, {**operands, "C": targets.pop()})
        else:
            source = self.products(last, operands, slot)
            self.combine(last, source, targets.pop())
        for stage in reversed(found[:-1]):
            self.combine(stage, Use(f"M{stage.number}{slot}"), targets.pop())

    def streamed(self, found: tuple[Stage, ...]) -> None:
        """The products of the outer stage, one after the other; then their combination."""
        outer = found[0]
        for path in range(outer.products):
            uses = {side: self.transform(outer, side, Use(side), "", path) for side in "AB"}
            self.whole(found[1:], {**uses, "C": self.outer_product(outer, path)})
        self.combine(outer, Use("M1"), Use("C"))

    def beside_host(self, outer: Stage, inner: Stage) -> None:
        """The same, where the host prepares the next part and combines the last one while a part is made."""
        self.prepared(outer, inner, 0)
        for path in range(outer.products):
            if path + 1 < outer.products:
                self.prepared(outer, inner, path + 1)
            slot = f".{path % 2}"
            source = self.products(inner, {side: Use(f"{side}2{slot}") for side in "AB"}, slot)
            target = self.outer_product(outer, path)
            make = functools.partial(_host_result, self.options, inner)
            self.steps.append(HostStep("host", {"M": source.memory}, {"C": target}, make))
        self.combine(outer, Use("M1"), Use("C"))

    def prepared(self, outer: Stage, inner: Stage, path: int) -> None:
        """The operands of a part: its own sums on the device, those of the inner levels on the host."""
        slot = f".{path % 2}"
        for side in "AB":
            source = self.transform(outer, side, Use(side), slot, path)
            rows, cols = (length // 2**inner.levels for length in inner.side(side))
            target = self.memory(f"{side}2{slot}", (inner.products, rows, cols), self.options.operand)
            make = functools.partial(_host_operands, self.options, inner, side)
            self.steps.append(HostStep("host", {"X": source.memory}, {"O": target}, make))

    def outer_product(self, outer: Stage, path: int) -> Use:
        """A product of the outer stage among all of them."""
        m, n = (length // 2**outer.levels for length in outer.side("C"))
        memory = self.memory("M1", (outer.products, m, n), self.options.product)
        return Use(memory.memory, path * m * n)

    def transform(self, stage: Stage, side: str, source: Use, slot: str, path: int = -1) -> Use:
        """The sums of A or B."""
        build = strassen_transform.build(transform_options(self.options, stage, side, path))
        name = f"{side}{stage.number}{slot}"
        rows, cols = (length // 2**stage.levels for length in stage.side(side))
        count = stage.batch * (1 if path >= 0 else stage.products)
        target = self.memory(name, (count, rows, cols), self.options.operand)
        self.steps.append(Step("transform", strassen_transform.NAME, build, {"X": source, "O": target}))
        return target

    def combine(self, stage: Stage, source: Use, target: Use) -> None:
        """The sums of products."""
        split = self.options.split_combine and stage.number == 1
        for block in range(4**stage.levels) if split else (-1,):
            build = strassen_combine.build(combine_options(self.options, stage, block))
            self.steps.append(Step("combine", strassen_combine.NAME, build, {"M": source, "C": target}))

    def products(self, stage: Stage, operands: Uses, slot: str) -> Use:
        """The products of the last stage."""
        m, n, k = (length // 2**stage.levels for length in (stage.m, stage.n, stage.k))
        count = stage.batch * stage.products
        target = self.memory(f"M{slot}", (count, m, n), self.options.product)
        if self.options.leaf == "fused":
            for product in range(stage.products):
                build = strassen_fused.build_leaf(leaf_options(self.options, stage, product))
                self.steps.append(Step("gemm", strassen_fused.LEAF_NAME, build, {**operands, "M": target}))
            return target
        most = count if self.options.leaf == "buffers" else max(1, LARGEST_IMAGE // max(m, k))
        for first in range(0, count, most):
            name, build = _leaves(self.options, m, n, k, min(most, count - first))
            uses = {
                "A": Use(operands["A"].memory, operands["A"].start + first * m * k),
                "B": Use(operands["B"].memory, operands["B"].start + first * k * n),
                "C": Use(target.memory, first * m * n),
            }
            self.steps.append(Step("gemm", name, build, uses))
        return target

    def terminal(self, stage: Stage, uses: Uses) -> None:
        """The last level in one launch."""
        build = strassen_fused.build_terminal(
            strassen_fused.Terminal(
                stage.m, stage.n, stage.k, stage.batch, self.options.form, image_store=False
            )
        )
        self.steps.append(Step("gemm", strassen_fused.TERMINAL_NAME, build, uses))


@functools.cache
def _leaves(options: Options, m: int, n: int, k: int, batches: int) -> tuple[str, Build]:
    """(name, build) of a launch of products."""
    half = options.floats and options.half_products
    if options.leaf == "buffers":
        rows = next((rows for rows in (4, 2) if m % rows == 0 and m // rows * (n // 4) % 64 == 0), 1)
        given = strassen_products.Options(
            m=m,
            n=n,
            k=k,
            batches=batches,
            rows=rows,
            float_inputs=options.float_operands,
            float_sums=options.floats,
            half_output=half,
        )
        return strassen_products.NAME, strassen_products.build(given)
    if not options.floats:
        halves = gemm_8x8_fp16_batched.Options(m=m, n=n, k=k, batches=batches, layout="z")
        return gemm_8x8_fp16_batched.GEMM.name, gemm_8x8_fp16_batched.build(halves)
    return _singles(options, m, n, k, batches)


def _singles(options: Options, m: int, n: int, k: int, batches: int) -> tuple[str, Build]:
    """(name, build) of products that are summed in float32."""
    half = options.half_products
    given: dict[str, Any] = dict(
        m=m,
        n=n,
        k=k,
        batches=batches,
        threads=options.leaf_threads,
        k_unroll=options.leaf_unroll,
        image_store=half,
        half_output=half,
        float_inputs=options.float_operands,
    )
    if options.leaf_tile == "halfwave":
        halves = gemm_4x4_fp32_halfwave.Options(**given)
        return gemm_4x4_fp32_halfwave.NAME, gemm_4x4_fp32_halfwave.KERNELS[0].build(halves)
    layout = "z" if m & (m - 1) else "row"
    if options.leaf_tile == "8x8":
        wide = gemm_8x8_fp32_batched.Options(**given, layout=layout)
        return gemm_8x8_fp32_batched.NAME, gemm_8x8_fp32_batched.build(wide)
    singles = gemm_4x8_fp32_batched.Options(**given, layout=layout)
    return gemm_4x8_fp32_batched.NAME, gemm_4x8_fp32_batched.build(singles)


def leaf_options(options: Options, stage: Stage, product: int) -> strassen_fused.Leaf:
    """Of a product that does the sums of its stage."""
    return strassen_fused.Leaf(
        stage.m,
        stage.n,
        stage.k,
        stage.batch,
        stage.levels,
        product,
        options.form,
        image_store=options.half_products,
        half_output=options.half_products,
    )


Lanes = tuple[int, int]
"""(vec, threads) of a launch of sums."""


def _lanes(options: Options, shape: tuple[int, int], levels: int, most: int, given: Lanes) -> Lanes:
    """What is given; for a 0 the longest vector that leaves each fiber of a workgroup one, its threads."""
    block = shape[0] * shape[1] // 4**levels
    vec, threads = given
    taken = _POSITIONS if options.local else threads or THREADS // 2
    if not vec:
        fits = (vec for vec in (4, 2) if vec <= most and block % (taken * vec) == 0)
        vec = 4 if options.images else next(fits, 1)
    whole = options.local or block % (THREADS * vec) == 0
    return vec, threads or (THREADS if whole else THREADS // 2)


def transform_options(options: Options, stage: Stage, side: str, path: int = -1) -> Transform:
    """Of a stage's sums of A or B; beyond the longest vectors that are asked for, Mesa spills."""
    rows, cols = stage.side(side)
    floats = options.float_sums or options.float_operands
    most = {1: 4, 2: 2 if floats else 4}.get(stage.levels, 1)
    given = (options.transform_vec, options.transform_threads)
    vec, threads = _lanes(options, (rows, cols), stage.levels, most, given)
    return Transform(
        rows,
        cols,
        stage.batch,
        stage.levels,
        side,
        options.form,
        vec,
        threads,
        float_sums=options.float_sums,
        float_inputs=options.float_operands and stage.number > 1,
        float_operands=options.float_operands,
        image_input=options.images,
        image_output=options.images,
        path=path,
        positions=_POSITIONS if options.local and path < 0 else 0,
    )


def combine_options(options: Options, stage: Stage, block: int = -1) -> Combine:
    """Of a stage's sums of products."""
    most = 1 if stage.levels > 2 or (stage.levels == 2 and options.floats) else 2
    given = (options.combine_vec, options.combine_threads)
    vec, threads = _lanes(options, stage.side("C"), stage.levels, most, given)
    halves = options.half_combine and stage.number > 1
    return Combine(
        stage.m,
        stage.n,
        stage.batch,
        stage.levels,
        options.form,
        vec,
        threads,
        float_products=options.product == "float32",
        float_sums=options.floats and not halves,
        half_output=options.half_products and stage.number > 1 and not halves,
        image_input=options.images,
        image_output=options.images,
        block=block,
        positions=_POSITIONS if options.local and block < 0 else 0,
    )


def _host_operands(options: Options, stage: Stage, side: str, arrays: Arrays) -> Arrays:
    """The operands of a stage of one matrix, summed by numpy in float32."""
    blocks = strassen.split(arrays["X"].reshape(1, *stage.side(side)), stage.levels)[0]
    places = [(i, j) for i in range(2**stage.levels) for j in range(2**stage.levels)]
    found = np.empty((stage.products, *blocks.shape[2:]), options.operand)

    def fill(rows: slice) -> None:
        named = {place: blocks[place][rows].astype(np.float32) for place in places}
        for product, total in enumerate(strassen.operand_sums(options.form, side, stage.levels, named)):
            found[product, rows] = total

    _in_bands(fill, blocks.shape[2], options.host_threads)
    return {"O": found}


def _host_result(options: Options, stage: Stage, arrays: Arrays) -> Arrays:
    """C of a stage's products, summed by numpy in float32."""
    products, side = arrays["M"], 2**stage.levels
    whole = np.empty((side, products.shape[1], side, products.shape[2]), options.product)

    def fill(rows: slice) -> None:
        given = [product[rows].astype(np.float32) for product in products]
        for (i, j), total in strassen.result_sums(options.form, stage.levels, given).items():
            whole[i, rows, j] = total

    _in_bands(fill, products.shape[1], options.host_threads)
    return {"C": whole.reshape(side * products.shape[1], -1)}


def _in_bands(fill: Callable[[slice], None], rows: int, threads: int) -> None:
    """All rows, in as many bands as there are threads."""
    size = -(-rows // threads)
    bands = [slice(start, start + size) for start in range(0, rows, size)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, bands))
