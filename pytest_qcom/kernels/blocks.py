"""Fibers over the blocks of matrices, for kernels that add blocks up; in UOps.

A matrix is 2**levels x 2**levels blocks, and what is made of it, or what it is made of, are the matrices of
7**levels products, each as large as a block, one behind the other. A fiber takes the same vector of every
block; or, through local memory, a workgroup takes some vectors of every block, and its fibers share the sums
of each level.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_qcom.chip import A630
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import strassen, uops
from pytest_qcom.kernels.launch import check_threads
from pytest_qcom.kernels.strassen import PRODUCTS, Place

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

VECTORS = (1, 2, 4, 8, 16)
REGISTER_LEVELS, LOCAL_LEVELS = 3, 4
"""Levels of one launch: what registers hold, and what local memory does."""
QUARTERS = 4
_TEXEL = 4
_WORD_NUMBERS = 16  # numbers of two bits in a word
_LOCAL_BYTES = A630.memories.local_bytes.value

Values = list["UOp"]
"""One of each lane of a vector."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """What a launch of sums works on.

    Attributes:
        name: of the kernel, for errors.
        rows, cols, batch: ``batch`` matrices of rows x cols.
        vec: consecutive elements of a row for a fiber.
        threads: fibers of a workgroup.
        positions: 0, or how many vectors of a block a workgroup takes through local memory.
    """

    name: str
    rows: int
    cols: int
    batch: int
    levels: int
    form: str
    vec: int
    threads: int
    positions: int = 0

    def check(self, images: bool) -> None:
        """Raises what does not go together.

        Raises:
            KernelError: a shape, a vector or a form that the launch cannot have.
        """
        most = LOCAL_LEVELS if self.positions else REGISTER_LEVELS
        strassen.check_form(self.form, self.levels, most)
        if self.vec not in VECTORS or (images and self.vec != _TEXEL):
            wanted = "4, a texel" if images else "1, 2, 4, 8 or 16"
            raise KernelError(f"{self.name}: vec is {self.vec}; give {wanted}")
        check_threads(self.name, self.threads)
        if min(self.rows, self.cols, self.batch) < 1 or self.rows % self.side or self.cols % self.side:
            raise KernelError(
                f"{self.name}: {self.batch} of {self.rows} x {self.cols} are not {self.side} x {self.side} "
                "blocks each"
            )
        taken = self.positions or self.threads
        if taken < 0 or self.cols // self.side % self.vec or self.vectors % taken:
            raise KernelError(
                f"{self.name}: a block of {self.block_rows} x {self.cols // self.side} is not made of "
                f"{taken} fibers' vectors of {self.vec}; give rows and cols such that it is"
            )

    @property
    def side(self) -> int:
        """Blocks along a side."""
        return int(2**self.levels)

    @property
    def products(self) -> int:
        """Products of a matrix."""
        return int(PRODUCTS**self.levels)

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return self.rows // self.side

    @property
    def width(self) -> int:
        """Vectors in a row of a block."""
        return self.cols // self.side // self.vec

    @property
    def vectors(self) -> int:
        """Vectors of a block."""
        return self.block_rows * self.width

    def places(self) -> list[Place]:
        """(row, column) of each block."""
        return [(i, j) for i in range(self.side) for j in range(self.side)]

    def fiber(self) -> tuple[UOp, UOp]:
        """(matrix, vector of a block) of a fiber."""
        from tinygrad.uop.ops import UOp

        group = UOp.special(self.vectors // self.threads, "gidx0")
        return UOp.special(self.batch, "gidx1"), group * self.threads + UOp.special(self.threads, "lidx0")

    def in_matrix(self, matrix: UOp, vector: UOp, i: UOp | int, j: UOp | int) -> UOp:
        """The number of a block's vector among those of the matrices."""
        row = (matrix * self.side + i) * self.block_rows + vector // self.width
        return row * (self.width * self.side) + vector % self.width + j * self.width

    def in_product(self, matrix: UOp, vector: UOp, product: UOp | int) -> UOp:
        """The number of a product's vector among those of the products."""
        return (matrix * self.products + product) * self.vectors + vector


def load(buffer: UOp, vec: int, number: UOp, dtype: str, valid: UOp | None = None) -> Values:
    """A vector of a buffer or an image, as another type; zeros where it is not ``valid``."""
    kind = uops.kind(dtype)
    places = [number * vec + lane for lane in range(vec)]
    if valid is not None:
        places = [place.valid(valid) for place in places]
    return [buffer.index(place).load().cast(kind) for place in places]


def store(buffer: UOp, number: UOp, values: Values, dtype: str) -> list[UOp]:
    """Stores of a vector as another type; images take floats, and their format converts."""
    return uops.put(buffer, number, [value.cast(uops.kind(dtype)) for value in values])


def by_lane(make: Callable[[Sequence[UOp]], list[UOp]], vectors: Sequence[Values]) -> list[Values]:
    """Sums of vectors, made lane by lane."""
    lanes = [make([values[lane] for values in vectors]) for lane in range(len(vectors[0]))]
    return [list(values) for values in zip(*lanes, strict=True)]


def chosen(loop: UOp, numbers: Sequence[int], dtype: str) -> UOp:
    """``numbers[loop]`` at run time, of numbers that are 0, 1 or -1: two bits each of one word.

    A choice between constants would do, but Mesa makes half constants of it.
    """
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import UOp

    word = sum((number + 1) << 2 * place for place, number in enumerate(numbers))
    kind = dtypes.int if len(numbers) < _WORD_NUMBERS else dtypes.uint
    return (((UOp.const(word, kind) >> (loop * 2).cast(kind)) % 4).cast(dtypes.int) - 1).cast(
        uops.kind(dtype)
    )


@dataclass(frozen=True, slots=True)
class Spot:
    """Which sum of a stage a fiber makes, of which vector: sum ``number`` of the rest ``rest``."""

    matrix: UOp
    vector: UOp
    at: UOp
    number: UOp
    rest: UOp


Read = Callable[[Spot, int], Values]
"""(spot, number in the sum) to what the sum starts from."""
Write = Callable[[Spot, int, Values], list["UOp"]]
"""(spot, number in the sum, values) to their stores."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The sums of a launch through local memory, a level a stage, with a barrier in between.

    Attributes:
        taken, given: what each sum of a level starts from, and how many it gives: 4 and 7 or 7 and 4.
        make: the sums of one level.
        dtype: the type of sums, also in local memory.
    """

    blocks: Blocks
    taken: int
    given: int
    make: Callable[[Sequence[UOp]], list[UOp]]
    dtype: str

    def check(self) -> None:
        """Raises what local memory cannot hold.

        Raises:
            KernelError: too much for a workgroup.
        """
        size = sum(self._size(level) for level in range(self.blocks.levels - 1))
        size *= 4 if self.dtype == "float32" else 2
        if size > _LOCAL_BYTES:
            raise KernelError(
                f"{self.blocks.name}: {self.blocks.levels} levels of {self.blocks.positions} vectors of "
                f"{self.blocks.vec} are {size} bytes of local memory, the A630 has {_LOCAL_BYTES}; give fewer"
            )

    def stores(self, read: Read, write: Write) -> list[UOp]:
        """The stores of the last stage; ``read`` is what the first starts from."""
        from tinygrad.dtype import AddrSpace
        from tinygrad.uop.ops import UOp

        for level in range(self.blocks.levels - 1):
            kind = uops.kind(self.dtype)
            memory = UOp.placeholder((self._size(level),), kind, level, AddrSpace.LOCAL)
            filled = self._stage(level, read, functools.partial(self._keep, memory, level))
            read = functools.partial(self._fetch, memory.after(UOp.group(*filled)), level + 1)
        return self._stage(self.blocks.levels - 1, read, write)

    def _split(self, level: int) -> tuple[int, int]:
        """(numbers, rests) of a stage's sums."""
        rest = self.blocks.levels - 1 - level
        if self.taken == QUARTERS:
            return int(PRODUCTS**level), int(QUARTERS**rest)
        return int(PRODUCTS**rest), int(QUARTERS**level)

    def _size(self, level: int) -> int:
        """Elements that a stage leaves."""
        return math.prod(self._split(level)) * self.given * self.blocks.positions * self.blocks.vec

    def _stage(self, level: int, read: Read, write: Write) -> list[UOp]:
        from tinygrad.uop.ops import UOp

        blocks, (numbers, rests) = self.blocks, self._split(level)
        group = UOp.special(blocks.vectors // blocks.positions, "gidx0")
        matrix, local = UOp.special(blocks.batch, "gidx1"), UOp.special(blocks.threads, "lidx0")
        items = numbers * rests * blocks.positions
        stores: list[UOp] = []
        for start in range(0, items, blocks.threads):
            item = local + start
            if start + blocks.threads > items:  # the last fibers do again what the first have done
                item = item % items
            at, work = item % blocks.positions, item // blocks.positions
            spot = Spot(matrix, group * blocks.positions + at, at, work // rests, work % rests)
            totals = by_lane(self.make, [read(spot, which) for which in range(self.taken)])
            for which, total in enumerate(totals):
                stores += write(spot, which, total)
        return stores

    def _keep(self, memory: UOp, level: int, spot: Spot, which: int, values: Values) -> list[UOp]:
        return uops.put(memory, self._place(level, spot, self.given, which), values)

    def _fetch(self, memory: UOp, level: int, spot: Spot, which: int) -> Values:
        return load(memory, self.blocks.vec, self._place(level, spot, self.taken, which), self.dtype)

    def _place(self, level: int, spot: Spot, count: int, which: int) -> UOp:
        """Where a stage has a value in local memory, in vectors."""
        _, rests = self._split(level)
        return ((spot.number * count + which) * rests + spot.rest) * self.blocks.positions + spot.at


def digits(quarter: int, rest: UOp, levels: int) -> tuple[UOp, UOp]:
    """(row, column) of a block from its quarter of the matrix and its number within it, a digit a level."""
    i, j = rest * 0 + (quarter >> 1) * 2 ** (levels - 1), rest * 0 + (quarter & 1) * 2 ** (levels - 1)
    for level in range(levels - 1):
        digit = rest // QUARTERS**level % QUARTERS
        i, j = i + digit // 2 * 2**level, j + digit % 2 * 2**level
    return i, j
