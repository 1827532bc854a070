"""A whole product of one Strassen or Winograd level in one launch, by hand: seven loops over k.

A fiber has some rows of one vec4 column in each of the four blocks of C. A product's loop samples the blocks
that its operands are sums of, each texel's coordinate in the texel's own registers, adds them up and
multiplies; behind the loop its sums join those of the blocks of C. No operand and no product is stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels import single, strassen
from pytest_qcom.kernels.full import arithmetic
from pytest_qcom.kernels.gemm import check_shape, gemm_launch
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile, emit_place
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE
from pytest_qcom.kernels.strassen import PRODUCTS, Place, Rounded
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.writer import Writer, constant_name

NAME = "strassen_terminal_hand"
_BLOCKS = tuple(itertools.product((0, 1), repeat=2))
_CONSTANTS = 84  # c21.x and up


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the hand-written terminal-fused kernel.

    Attributes:
        m, n, k: of the product; m a multiple of ``rows`` ``threads`` / 16, n of 256, k of 8.
        form: ``strassen`` or ``winograd``.
        rows: of a fiber in each block of C: 1, 2 or 4. As published, 2; with 4 there are fewer samples.
        threads: fibers of a workgroup: 64, 128 or 256.
        thread128: waves of 128 fibers; else of 64.
    """

    m: int = 512
    n: int = 512
    k: int = 512
    form: str = "strassen"
    rows: int = 2
    threads: int = 128
    thread128: bool = False

    @property
    def float_inputs(self) -> bool:
        """Never."""
        return False

    @property
    def interleaved_a(self) -> bool:
        """Never."""
        return False

    @property
    def image_store(self) -> bool:
        """Always."""
        return True

    @property
    def half_output(self) -> bool:
        """Never."""
        return False


def places(form: str, side: str, product: int) -> list[tuple[Place, bool]]:
    """The blocks that an operand is the sum of, and whether it is subtracted; the first is added."""
    row = strassen.operand(form, side, 1)[product]
    found = [((int(i), int(j)), bool(row[i, j] < 0)) for i, j in np.argwhere(row)]
    return sorted(found, key=lambda term: term[1])


@dataclass(slots=True)
class _Kernel:
    """What is written, and the numbers that are too large for an immediate."""

    options: Options
    plan: RegisterPlan
    w: Writer = field(default_factory=Writer)
    constants: dict[int, int] = field(default_factory=dict)

    def write(self, tile: Tile) -> None:
        w, plan = self.w, self.plan
        emit_place(w, tile, plan["row"][0], plan["col"][0], plan["scratch"])
        w.zero(plan["acc"])
        for product in range(PRODUCTS):
            self.product(product)
        self.store()
        w.end()

    def product(self, product: int) -> None:
        """The loop of a product, and where its sums go."""
        w, plan, steps = self.w, self.plan, self.options.k // 8
        k4, ky = plan["k4"][0], plan["ky"][0]
        w.zero(plan["sums"])
        w.mov(k4, 0)
        w.mov(ky, 0)
        w.label(f"product{product}")
        self.step(product)
        w.alu("add.s", k4, k4, 1)
        w.alu("add.s", ky, ky, 4)
        w.alu("cmps.s.eq", "p0.x", k4, self.number(steps))
        w.branch(f"product{product}")
        for number, sign in enumerate(strassen.result(self.options.form, 1)[..., product].ravel()):
            for row in range(self.options.rows) if sign else ():
                acc = plan["acc"].vec(number * self.options.rows + row)
                self.add(acc, acc, plan["sums"].vec(row), bool(sign < 0))

    def step(self, product: int) -> None:
        """Four k: all samples, then their sums and products."""
        plan, samples = self.plan, arithmetic(sampler_per_texture=True)
        texels = {
            (side, index, number): plan[f"{side.lower()}{number}"].vec(index)
            for side, count in (("B", 4), ("A", self.options.rows))
            for number in range(len(places(self.options.form, side, product)))
            for index in range(count)
        }
        for (side, index, number), texel in texels.items():
            place, _ = places(self.options.form, side, product)[number]
            self.aim(side, place, index, texel)
        for (side, _, _), texel in texels.items():
            samples.sample(self.w, texel, texel, "AB".index(side))
        for (side, index, number), texel in texels.items():
            if number:
                first = texels[side, index, 0]
                self.add(first, first, texel, places(self.options.form, side, product)[number][1])
        for kk in range(4):
            for row in range(self.options.rows):
                factor = texels["A", row, 0] + kk
                samples.emit(self.w, plan["sums"].vec(row), factor, texels["B", kk, 0], True, sy=False)

    def aim(self, side: str, place: Place, index: int, texel: Reg) -> None:
        """The coordinate of a texel of a block."""
        plan, options, (i, j) = self.plan, self.options, place
        if side == "A":
            terms = (("k4", j * options.k // 8), ("row", i * options.m // 2 + index))
        else:
            terms = (("col", j * options.n // 8), ("ky", i * options.k // 2 + index))
        for component, (name, number) in enumerate(terms):
            self.offset(texel + component, plan[name][0], number)

    def store(self) -> None:
        """Each block's rows into the image of C."""
        plan, options = self.plan, self.options
        at = plan["at"]
        for number, (i, j) in enumerate(_BLOCKS):
            for row in range(self.options.rows):
                pair = at[2 * ((number * self.options.rows + row) % (at.size // 2))]
                self.offset(pair, plan["col"][0], j * options.n // 8)
                self.offset(pair + 1, plan["row"][0], i * options.m // 2 + row)
                self.w.store_texel(plan["acc"].vec(number * self.options.rows + row), pair)

    def add(self, target: Reg, left: Reg, right: Reg, negative: bool) -> None:
        """A sum of two vec4."""
        self.w.emit("add.f", target, f"(r){left}", f"{'(neg)' if negative else ''}(r){right}", rpt=3)

    def offset(self, target: Reg, source: Reg, number: int) -> None:
        """A full scalar and a number."""
        if number:
            self.w.alu("add.s", target, source, self.number(number))
        else:
            self.w.mov(target, source)

    def number(self, number: int) -> int | str:
        """An operand: what is too large for an immediate is a constant of the launch."""
        if number <= LARGEST_IMMEDIATE:
            return number
        return constant_name(self.constants.setdefault(number, _CONSTANTS + len(self.constants)))


def _plan(form: str, rows: int) -> RegisterPlan:
    """Sums of blocks and of the product, a bank of texels for each term, counters."""
    terms = {side: max(len(places(form, side, product)) for product in range(PRODUCTS)) for side in "AB"}
    plan = RegisterPlan().place("acc", "r0.x", 4 * rows * len(_BLOCKS)).allocate("sums", 4 * rows)
    for side, count in (("B", 4), ("A", rows)):
        for number in range(terms[side]):
            plan = plan.allocate(f"{side.lower()}{number}", 4 * count)
    state = plan.footprint()[0]
    for name, component in (("row", "x"), ("col", "y"), ("ky", "z"), ("k4", "w")):
        plan = plan.place(name, f"r{state}.{component}", 1)
    first = plan["b0"].first
    plan = plan.place("scratch", str(first), 4, over=("b0",))
    return plan.place("at", str(first), 8, over=("b0", "scratch"))


def build(options: Options) -> Build:
    """The kernel.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    strassen.check_form(options.form, 1)
    check_shape(NAME, options)
    if options.k % 8 or options.m % 2 or options.n % 8:
        raise KernelError(
            f"{NAME}: {options.m} x {options.n} x {options.k}; give m in multiples of 2, n and k of 8"
        )
    if options.rows not in (1, 2, 4):
        raise KernelError(f"{NAME}: rows is {options.rows}; give 1, 2 or 4")
    tile = Tile(options.rows, 1, options.threads)
    groups = tile.groups(NAME, options.m // 2, options.n // 2)
    kernel = _Kernel(options, _plan(options.form, options.rows))
    kernel.write(tile)
    return gemm_launch(
        options,
        tile,
        kernel.plan,
        insert_waits(kernel.w.program()),
        tuple((place, value) for value, place in kernel.constants.items()),
        groups,
        arguments=single.arguments(options, 0),
        thread128=options.thread128,
    )


def _bounded(options: Options, arrays: Arrays) -> Rounded:
    a, b = single.matrices(options, arrays)
    left, right = (
        strassen.operands(strassen.exact(matrix[None]), options.form, side, 1, strassen.SINGLE)
        for side, matrix in (("A", a), ("B", b))
    )
    products = strassen.multiplied(left, right, strassen.SINGLE)
    return strassen.results(products, options.form, 1, strassen.SINGLE)


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64, by the form's sums."""
    return {"C": single.shaped(options, _bounded(options, arrays).value[0])}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, single.Float]:
    """Float32 sums of sampled halves, of a chain over k and of the products; see :mod:`strassen`."""
    return {"C": single.shaped(options, _bounded(options, arrays).error[0])}


TERMINAL = Kernel(
    name=NAME,
    summary="a whole product of one Strassen or Winograd level in one launch, by hand",
    options=Options,
    build=build,
    inputs=single.random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns=single.PATTERNS,
    unit="GFLOPS",
    cases=(
        Case("n256", dict(m=256, n=256, k=256)),
        Case("rows-4", dict(m=64, n=256, k=128, rows=4)),
        Case("tile", dict(m=16, n=256, k=40)),
        Case("winograd", dict(m=32, n=512, k=64, form="winograd")),
        Case("thread128", dict(m=32, n=256, k=72, threads=256, thread128=True)),
        Case("constants", dict(m=8, n=256, k=2304, threads=64)),
    ),
    source="qcom_strassen_terminal_fused_check.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (TERMINAL,)
