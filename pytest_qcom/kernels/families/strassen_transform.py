"""The sums of blocks before the products of Strassen's and Winograd's forms; in UOps.

A fiber takes one vector of every block of A or B and makes the operands of all products, or of one; through
local memory, a workgroup does so. Matrices are buffers, row by row, one behind the other, or images of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import blocks as blocks_
from pytest_qcom.kernels import strassen, uops
from pytest_qcom.kernels.blocks import QUARTERS, REGISTER_LEVELS, Blocks, Spot, Tree, Values
from pytest_qcom.kernels.kernel import Arrays, Build, Case, Kernel
from pytest_qcom.kernels.strassen import PRODUCTS, Arithmetic, Place
from pytest_qcom.kernels.uops import THREADS, Array

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

Load = Callable[..., Values]
Store = Callable[..., list["UOp"]]
NAME = "strassen_transform"
_SOURCE = (
    "qcom_strassen_fused_transform_check.py, qcom_strassen4_fused2_fp32_check.py and the other Strassen "
    "checks of tinygrad's QCOM experiments"
)


@dataclass(frozen=True, slots=True)
class Transform:
    """Options of the sums before the products.

    Attributes:
        rows, cols: of a matrix.
        batch: matrices, each transformed alone.
        levels: 1 to 3 in this launch, through local memory to 4.
        side: ``A`` or ``B``.
        form: ``strassen`` or ``winograd``.
        vec: consecutive elements of a row for a fiber: 1, 2, 4, 8 or 16; of an image 4.
        threads: fibers of a workgroup.
        float_sums: sums are float32 and rounded once; else half.
        float_inputs: the matrices are float32, and so are sums.
        float_operands: the operands are float32, and so are sums.
        image_input, image_output: the matrices, the operands are images.
        path: the number of the only product whose operand is made; -1: all are.
        parallel: of one level: a fiber makes one operand, and workgroup z says which.
        positions: 0: a fiber sums in registers; or how many vectors of a block a workgroup takes through
            local memory.
    """

    rows: int = 1024
    cols: int = 1024
    batch: int = 1
    levels: int = 1
    side: str = "A"
    form: str = "strassen"
    vec: int = 4
    threads: int = THREADS
    float_sums: bool = False
    float_inputs: bool = False
    float_operands: bool = False
    image_input: bool = False
    image_output: bool = False
    path: int = -1
    parallel: bool = False
    positions: int = 0

    @property
    def sums(self) -> str:
        """The type of sums."""
        return "float32" if self.float_sums or self.float_inputs or self.float_operands else "float16"

    @property
    def operands(self) -> int:
        """Operands of a matrix."""
        return 1 if self.path >= 0 else int(PRODUCTS**self.levels)

    def blocks(self) -> Blocks:
        """What the launch works on."""
        return Blocks(
            NAME,
            self.rows,
            self.cols,
            self.batch,
            self.levels,
            self.form,
            self.vec,
            self.threads,
            self.positions,
        )


def _arrays(options: Transform) -> tuple[Array, Array]:
    """X and O."""
    side = 2**options.levels
    shape = (options.batch * options.operands, options.rows // side, options.cols // side)
    return (
        Array(
            "X",
            (options.batch, options.rows, options.cols),
            "float32" if options.float_inputs else "float16",
            image=options.image_input,
        ),
        Array(
            "O",
            shape,
            "float32" if options.float_operands else "float16",
            written=True,
            image=options.image_output,
        ),
    )


@functools.cache
def build(options: Transform) -> Build:
    """The kernel as Mesa compiles it.

    Raises:
        KernelError: options that do not go together.
    """
    blocks = options.blocks()
    if options.side not in ("A", "B"):
        raise KernelError(f"{NAME}: side is {options.side!r}; give A or B")
    blocks.check(images=options.image_input or options.image_output)
    if not -1 <= options.path < blocks.products or (options.path >= 0 and options.positions):
        raise KernelError(
            f"{NAME}: path is {options.path}; give one of {blocks.products} products, and no positions, or -1"
        )
    if options.parallel and (options.levels != 1 or options.path >= 0 or options.positions):
        raise KernelError(
            f"{NAME}: parallel with {options.levels} levels, path or positions; give it alone, with one level"
        )
    source, output = _arrays(options)
    arrays = (output, source) if options.image_output else (source, output)
    named = dict(zip((array.name for array in arrays), uops.parameters(arrays), strict=True))
    load = functools.partial(blocks_.load, named["X"], options.vec, dtype=options.sums)
    store = functools.partial(blocks_.store, named["O"], dtype="float32" if output.image else output.dtype)
    way = _in_parallel if options.parallel else _through_local if options.positions else _in_registers
    stores = way(options, blocks, load, store)
    table = strassen.operand(options.form, options.side, options.levels)
    used = np.count_nonzero(table[options.path]) / blocks.side**2 if options.path >= 0 else 1
    used = blocks.products if options.parallel else used
    moved = 1e-9 * (used * source.bytes + output.bytes)
    return uops.compile_uops(NAME, uops.sink(NAME, stores), arrays, moved)


def _in_registers(options: Transform, blocks: Blocks, load: Load, store: Store) -> list[UOp]:
    matrix, vector = blocks.fiber()
    loaded = {(i, j): load(number=blocks.in_matrix(matrix, vector, i, j)) for i, j in blocks.places()}
    if options.levels == REGISTER_LEVELS and options.path < 0:
        return _outer_loop(options, blocks, loaded, store)
    if options.path >= 0:
        return store(number=matrix * blocks.vectors + vector, values=_operand(options, loaded))
    stores = []
    for product, total in enumerate(_operands(options, options.levels, loaded)):
        stores += store(number=blocks.in_product(matrix, vector, product), values=total)
    return stores


def _in_parallel(options: Transform, blocks: Blocks, load: Load, store: Store) -> list[UOp]:
    """One operand a fiber, of all blocks with a coefficient that is chosen at run time."""
    from tinygrad.uop.ops import UOp

    matrix, vector = blocks.fiber()
    product = UOp.special(blocks.products, "gidx2")
    table = strassen.operand(options.form, options.side, 1)
    terms = []
    for i, j in blocks.places():
        sign = blocks_.chosen(product, table[:, i, j].tolist(), options.sums)
        terms.append([value * sign for value in load(number=blocks.in_matrix(matrix, vector, i, j))])
    total = [sum(lane[1:], lane[0]) for lane in zip(*terms, strict=True)]
    return store(number=blocks.in_product(matrix, vector, product), values=total)


def _outer_loop(
    options: Transform, blocks: Blocks, loaded: Mapping[Place, Values], store: Store
) -> list[UOp]:
    """A turn for each product of the outer level, whose coefficients are chosen at run time.

    The code is a seventh of what it would be, and so are the constants of its addresses.
    """
    from tinygrad.uop.ops import AxisType, UOp

    loop, inner = UOp.range(PRODUCTS, 0, AxisType.LOOP), options.levels - 1
    table, half = strassen.operand(options.form, options.side, 1), 2**inner
    signs = {
        (i, j): blocks_.chosen(loop, [int(row[i, j]) for row in table], options.sums)
        for i in (0, 1)
        for j in (0, 1)
    }
    mixed = {}
    for i in range(half):
        for j in range(half):
            terms = [
                [value * sign for value in loaded[i + half * down, j + half * across]]
                for (down, across), sign in signs.items()
            ]
            mixed[i, j] = [sum(lane[1:], lane[0]) for lane in zip(*terms, strict=True)]
    matrix, vector = blocks.fiber()
    stores = []
    for number, total in enumerate(_operands(options, inner, mixed)):
        product = loop * PRODUCTS**inner + number
        stores += store(number=blocks.in_product(matrix, vector, product), values=total)
    return [UOp.group(*stores).end(loop)]


def _operands(options: Transform, levels: int, vectors: Mapping[Place, Values]) -> list[Values]:
    def make(values: Sequence[UOp]) -> list[UOp]:
        named = dict(zip(vectors, values, strict=True))
        return strassen.operand_sums(options.form, options.side, levels, named)

    return blocks_.by_lane(make, list(vectors.values()))


def _operand(options: Transform, vectors: Mapping[Place, Values]) -> Values:
    """Of the one product."""

    def value(place: Place, lane: int) -> UOp:
        return vectors[place][lane]

    lanes = (functools.partial(value, lane=lane) for lane in range(options.vec))
    return [
        strassen.operand_sum(options.form, options.side, options.levels, options.path, block)
        for block in lanes
    ]


def _through_local(options: Transform, blocks: Blocks, load: Load, store: Store) -> list[UOp]:
    make = functools.partial(strassen.one_level, options.form, options.side)
    tree = Tree(blocks, QUARTERS, PRODUCTS, make, options.sums)
    tree.check()

    def read(spot: Spot, which: int) -> Values:
        i, j = blocks_.digits(which, spot.rest, options.levels)
        return load(number=blocks.in_matrix(spot.matrix, spot.vector, i, j))

    def write(spot: Spot, which: int, values: Values) -> list[UOp]:
        product = spot.number * PRODUCTS + which
        return store(number=blocks.in_product(spot.matrix, spot.vector, product), values=values)

    return tree.stores(read, write)


def arithmetic(options: Transform) -> Arithmetic:
    """How the transform rounds."""
    if options.float_operands:
        return strassen.SINGLE
    return strassen.SINGLE_TO_HALF if options.sums == "float32" else strassen.HALF


def _bounded(options: Transform, arrays: Arrays) -> Mapping[str, strassen.Rounded]:
    """The operands of all products, or of the one, in the shape of the launch's argument."""
    shape = next(argument.shape for argument in build(options).arguments if argument.name == "O")
    matrices = arrays["X"].reshape(options.batch, options.rows, options.cols)
    source = strassen.exact(matrices) if options.float_inputs else strassen.flushed(matrices)
    found = strassen.operands(
        source, options.form, options.side, options.levels, arithmetic(options), options.path
    )
    return {"O": strassen.Rounded(found.value.reshape(shape), found.error.reshape(shape))}


def _inputs(options: Transform, values: NDArray[Any]) -> Arrays:
    source = next(argument for argument in build(options).arguments if argument.name == "X")
    return {"X": values.astype(source.dtype).reshape(source.shape)}


def _random(options: Transform, rng: np.random.Generator) -> Arrays:
    """Standard normal matrices."""
    return _inputs(options, rng.standard_normal((options.batch, options.rows, options.cols)))


def _oracle(options: Transform, arrays: Arrays) -> Arrays:
    """The sums of blocks in float64."""
    return {name: found.value for name, found in _bounded(options, arrays).items()}


def _tolerance(options: Transform, arrays: Arrays) -> Arrays:
    """An addition less than there are terms, each rounded, and flushed inputs; see :mod:`strassen`."""
    return {name: found.error for name, found in _bounded(options, arrays).items()}


def _exact(options: Transform) -> Arrays:
    """Different multiples of 2**-5 in neighbouring elements, so small that no sum rounds."""
    rng = np.random.default_rng(29)
    most = 2048 // 4**options.levels
    return _inputs(options, rng.integers(-most, most + 1, (options.batch, options.rows, options.cols)) / 32)


_IMAGES = dict(image_input=True, image_output=True)
TRANSFORM = Kernel(
    name=NAME,
    summary="the operands of the products of one to four Strassen or Winograd levels; UOps",
    options=Transform,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={"exact": _exact},
    unit="GB/s",
    cases=(
        Case("n1024", {}),
        Case("b", dict(rows=64, cols=512, side="B", vec=8)),
        Case("two-levels", dict(rows=128, cols=256, levels=2)),
        Case("two-levels-b-float", dict(rows=64, cols=512, side="B", levels=2, vec=2, float_sums=True)),
        Case("winograd", dict(rows=64, cols=64, batch=7, form="winograd", vec=2)),
        Case("winograd-b2", dict(rows=64, cols=128, levels=2, side="B", form="winograd", vec=1)),
        Case("images", dict(rows=64, cols=256, threads=64, **_IMAGES)),
        Case("float-operands", dict(rows=64, cols=64, float_inputs=True, float_operands=True, vec=2)),
        Case("path", dict(rows=64, cols=256, batch=3, levels=2, path=38, threads=256, image_input=True)),
        Case("parallel", dict(rows=64, cols=256, batch=2, parallel=True)),
        Case("parallel-images", dict(rows=64, cols=256, side="B", threads=64, parallel=True, **_IMAGES)),
        Case("three-levels", dict(rows=64, cols=128, batch=2, levels=3, vec=1)),
        Case("local-three", dict(rows=64, cols=128, levels=3, side="B", positions=4, form="winograd")),
        Case("local-four", dict(rows=32, cols=128, levels=4, vec=1, positions=1, float_operands=True)),
    ),
    source=_SOURCE,
)

KERNELS = (TRANSFORM,)
