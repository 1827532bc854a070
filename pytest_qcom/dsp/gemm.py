"""The int8 GEMM of the Hexagon DSP: weights of N x K unsigned bytes times activations of K x M signed ones.

Declared once, as :func:`listing`: its C source, and what it computes here, follow from that.

Four rows of 128 activations are turned until each word holds the four depths of one column, and each such
word is multiplied with four weights of one row, by the instruction that adds four products to a 32-bit sum.
Turned in that way the columns lie in four vectors, the one numbered ``j`` holding columns ``4 i + j``.
Requantised sums are brought back into order as they are packed; raw sums are stored as they lie, see
:func:`output`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.dsp import csource, emulation, hvx
from pytest_qcom.dsp.hvx import VECTOR_BYTES, WORDS, Kind
from pytest_qcom.dsp.listing import Address, Buffer, Listing, Load, Loop, Statement, Step, Store
from pytest_qcom.errors import KernelError

NAME = "DSP GEMM"
DEPTH = 4
"""Products that one lane adds up in one instruction."""
MOST_ROWS = 4
"""Rows whose sums clang 19 keeps in the 32 vector registers beside what it loads ahead; not those of five."""
LARGEST_SUM = 2**31 - 1
LARGEST_BUFFER = 2**31 - 1
"""In bytes: sizes are passed to the DSP as ``int``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is multiplied, and what is stored.

    The defaults are the published shape and divisor, but for the range of the inputs. That was 0 to 15 and
    -8 to 7, whose requantised outputs are nothing but 0 and 1, so that most errors would pass.

    Attributes:
        n: rows of weights and of the output; a multiple of ``rows``.
        k: depth, a multiple of 4.
        m: columns of activations and of the output, a multiple of 128.
        raw: stores the 32-bit sums; otherwise they are divided, saturated and stored as unsigned bytes.
        divisor: what sums are divided by, toward zero, at least 1.
        rows: rows of weights that share one turning of the activations, 1 to 4.
        weight_high: the largest weight, up to 255; the smallest one is 0.
        activation_low: the smallest activation, -128 to 0.
        activation_high: the largest activation, 0 to 127.

    Raises:
        KernelError: a shape that does not fill vectors, or a range whose sums do not fit in 32 bits.
    """

    n: int = 512
    k: int = 512
    m: int = 512
    raw: bool = False
    divisor: int = 1000
    rows: int = 1
    weight_high: int = 255
    activation_low: int = -128
    activation_high: int = 127

    def __post_init__(self) -> None:
        self._between("rows", 1, MOST_ROWS)
        self._between("divisor", 1, LARGEST_SUM)
        self._between("weight_high", 0, 255)
        self._between("activation_low", -128, 0)
        self._between("activation_high", 0, 127)
        for name, unit in (("n", self.rows), ("k", DEPTH), ("m", VECTOR_BYTES)):
            value = getattr(self, name)
            if value < 1 or value % unit:
                raise KernelError(f"{NAME}: {name} is {value}; give a multiple of {unit} above 0")
        if self.largest_sum > LARGEST_SUM:
            raise KernelError(
                f"{NAME}: sums of {self.k} products reach {self.largest_sum} and 32 bits hold {LARGEST_SUM}; "
                f"choose a smaller k, weight-high or range of activations"
            )
        for buffer in buffers(self):
            if buffer.size > LARGEST_BUFFER:
                raise KernelError(
                    f"{NAME}: {buffer.name} of {buffer.size} bytes, a size has at most {LARGEST_BUFFER}; "
                    f"choose a smaller shape"
                )

    def _between(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if not low <= value <= high:
            raise KernelError(f"{NAME}: {name.replace('_', '-')} is {value}; give {low} to {high}")

    @property
    def largest_sum(self) -> int:
        """The largest magnitude of a sum, also on the way to it: every product has at most this share."""
        return self.k * self.weight_high * max(-self.activation_low, self.activation_high)

    @property
    def work(self) -> int:
        """Operations of one run: a product and an addition each."""
        return 2 * self.n * self.k * self.m

    @property
    def dtype(self) -> type[np.integer[Any]]:
        """Of the output."""
        return np.int32 if self.raw else np.uint8


Matrix = NDArray[Any]


def buffers(options: Options) -> tuple[Buffer, ...]:
    """The kernel's arguments, in their order."""
    size = np.dtype(options.dtype).itemsize
    return (
        Buffer("out", options.n * options.m * size, written=True),
        Buffer("weight", options.n * options.k),
        Buffer("activation", options.k * options.m),
    )


def listing(options: Options) -> Listing:
    """The kernel."""
    every = range(options.rows)
    block: tuple[Statement, ...] = (
        *(Step(_sum(row, column), hvx.VD0, ()) for row in every for column in range(DEPTH)),
        Loop(
            "quad",
            options.k // DEPTH,
            (*_turn(options), *(s for row in every for s in _multiply(options, row))),
        ),
        *(s for row in every for s in (_store if options.raw else _requantise)(options, row)),
    )
    columns = Loop("block", options.m // VECTOR_BYTES, block)
    return Listing("gemm", buffers(options), (Loop("group", options.n // options.rows, (columns,)),))


def _sum(row: int, column: int) -> str:
    return f"sum{row}_{column}"


def _turn(options: Options) -> Iterator[Statement]:
    """Four rows of activations to ``turned0`` to ``turned3``: a word is what four rows have in one column."""
    for depth in range(DEPTH):
        strides = (("quad", DEPTH * options.m), ("block", VECTOR_BYTES))
        yield Load(f"x{depth}", Kind.VECTOR, Address("activation", strides, depth * options.m))
    yield Step("pairs01", hvx.VSHUFOEB, ("x1", "x0"))
    yield Step("pairs23", hvx.VSHUFOEB, ("x3", "x2"))
    for parity, half in (("even", hvx.LO), ("odd", hvx.HI)):
        yield Step(f"{parity}01", half, ("pairs01",))
        yield Step(f"{parity}23", half, ("pairs23",))
        yield Step(parity, hvx.VDEALVDD, (f"{parity}23", f"{parity}01", 2))
    for column, (parity, half) in enumerate(
        (("even", hvx.LO), ("odd", hvx.LO), ("even", hvx.HI), ("odd", hvx.HI))
    ):
        yield Step(f"turned{column}", half, (parity,))


def _multiply(options: Options, row: int) -> Iterator[Statement]:
    """Four depths of one row of weights times the turned activations, added to the row's sums."""
    strides = (("group", options.rows * options.k), ("quad", DEPTH))
    yield Load(f"w{row}", Kind.WORD, Address("weight", strides, row * options.k))
    yield Step(f"weights{row}", hvx.LVSPLATW, (f"w{row}",))
    for column in range(DEPTH):
        name = _sum(row, column)
        yield Step(name, hvx.VRMPYBUSV_ACC, (name, f"weights{row}", f"turned{column}"))


def _place(options: Options, row: int, part: int) -> Address:
    """Vector ``part`` of what a row stores for a block."""
    size = np.dtype(options.dtype).itemsize
    strides = (("group", options.rows * options.m * size), ("block", VECTOR_BYTES * size))
    return Address("out", strides, row * options.m * size + part * VECTOR_BYTES)


def _store(options: Options, row: int) -> Iterator[Statement]:
    for column in range(DEPTH):
        yield Store(_sum(row, column), _place(options, row, column))


def _requantise(options: Options, row: int) -> Iterator[Statement]:
    """Divided, saturated to bytes, and, by two shuffles of halves, in the order of the columns."""
    for column in range(DEPTH):
        yield Step(_sum(row, column), hvx.DIVIDE, (_sum(row, column), options.divisor))
    low, high, packed = f"low{row}", f"high{row}", f"packed{row}"
    yield Step(low, hvx.VPACKWH_SAT, (_sum(row, 1), _sum(row, 0)))
    yield Step(high, hvx.VPACKWH_SAT, (_sum(row, 3), _sum(row, 2)))
    yield Step(packed, hvx.VPACKHUB_SAT, (high, low))
    yield Step(packed, hvx.VSHUFFB, (packed,))
    yield Step(packed, hvx.VSHUFFB, (packed,))
    yield Store(packed, _place(options, row, 0))


def source(options: Options, entry: str = "fastrpc") -> str:
    """The kernel's C source.

    Args:
        entry: ``fastrpc``, called as tinygrad's DSP runtime does; or ``stdio``, a program of its own as
            tinygrad's mock of it expects.

    Raises:
        KernelError: another entry.
    """
    return csource.program(listing(options), entry)


def output(options: Options, contents: Mapping[str, hvx.Bytes]) -> Matrix:
    """The output in the order of its columns, (n, m), from what the kernel stored.

    Raw sums lie by row, block of 128 columns, position within four columns, group of four columns.
    """
    stored = contents["out"].view(np.dtype(options.dtype).newbyteorder("<"))
    if not options.raw:
        return stored.reshape(options.n, options.m)
    lanes = stored.reshape(options.n, options.m // VECTOR_BYTES, DEPTH, WORDS)
    return lanes.swapaxes(2, 3).reshape(options.n, options.m)


def inputs(options: Options, generator: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Random weights and activations of the whole range that the options allow."""
    weight = generator.integers(0, options.weight_high, (options.n, options.k), np.uint8, endpoint=True)
    low, high = options.activation_low, options.activation_high
    return weight, generator.integers(low, high, (options.k, options.m), np.int8, endpoint=True)


def memory(options: Options, weight: Matrix, activation: Matrix) -> Mapping[str, hvx.Bytes]:
    """The bytes of each buffer before a run; the output is zero.

    Raises:
        KernelError: a matrix of another shape or type, or a value outside of the range that was promised.
    """
    _check("weight", weight, (options.n, options.k), np.uint8, 0, options.weight_high)
    low, high = options.activation_low, options.activation_high
    _check("activation", activation, (options.k, options.m), np.int8, low, high)
    given = {"weight": weight, "activation": activation}
    return {
        buffer.name: np.zeros(buffer.size, np.uint8)
        if buffer.written
        else np.ascontiguousarray(given[buffer.name]).view(np.uint8).reshape(-1)
        for buffer in buffers(options)
    }


def _check(name: str, matrix: Matrix, shape: tuple[int, int], dtype: Any, low: int, high: int) -> None:
    if matrix.shape != shape or matrix.dtype != dtype:
        wanted = f"{np.dtype(dtype)} of shape {shape}"
        raise KernelError(f"{NAME}: {name} is {matrix.dtype} of shape {matrix.shape}; give {wanted}")
    found = int(matrix.min()), int(matrix.max())
    if found[0] < low or found[1] > high:
        raise KernelError(
            f"{NAME}: {name} from {found[0]} to {found[1]}, the options say {low} to {high}; widen them "
            f"(weight-high, activation-low, activation-high)"
        )


def emulate(options: Options, weight: Matrix, activation: Matrix) -> Matrix:
    """What the kernel computes, (n, m), by the meanings of its operations.

    Raises:
        KernelError: as :func:`memory`.
    """
    contents = memory(options, weight, activation)
    emulation.run(listing(options), contents)
    return output(options, contents)


def oracle(options: Options, weight: Matrix, activation: Matrix) -> Matrix:
    """What it ought to compute, (n, m), from the product of the matrices.

    The product is taken in float64, where sums below 2**53 are exact. The division is C's, toward zero; that
    of Python goes downwards, which only the saturation of negative results to 0 makes the same.

    Raises:
        KernelError: as :func:`memory`.
    """
    memory(options, weight, activation)
    sums: Matrix = (weight.astype(np.float64) @ activation.astype(np.float64)).astype(np.int64)
    if options.raw:
        return sums.astype(np.int32)
    quotients = np.sign(sums) * (np.abs(sums) // options.divisor)
    clipped: Matrix = np.clip(quotients, 0, 255).astype(np.uint8)
    return clipped
