"""Several products in one launch, their arrays stacked: where a fiber's one starts, inputs and oracles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels import full, single
from pytest_qcom.kernels.counted import Counted
from pytest_qcom.kernels.gemm import LARGEST_IMAGE
from pytest_qcom.kernels.kernel import Argument, Arrays, Build
from pytest_qcom.kernels.launch import GROUP_Z, emit_multiply
from pytest_qcom.kernels.schedule import Schedule
from pytest_qcom.kernels.stores import POINTER
from pytest_qcom.kernels.writer import Writer

LAYOUTS = ("row", "z")
"""What says of which product a fiber's tile is: its row, or workgroup z."""
_LARGEST_FACTOR = 1023

_Judge = Callable[[Any, Arrays], Mapping[str, NDArray[Any]]]
"""Of one product and its inputs: an oracle or a bound."""


class Options(single.Problem, Protocol):
    """Options of such a launch; ``m``, ``n`` and ``k`` are those of each product."""

    @property
    def batches(self) -> int: ...
    @property
    def thread128(self) -> bool: ...


def check(name: str, options: Options, layout: str = "row") -> None:
    """What a launch of several products needs of their number and shape.

    Raises:
        KernelError: a layout that there is not, or a shape that is not made for it.
    """
    if layout not in LAYOUTS:
        raise KernelError(f"{name}: layout is {layout!r}; give one of {', '.join(LAYOUTS)}")
    if layout == "row" and options.m & (options.m - 1):
        raise KernelError(f"{name}: m is {options.m}; where the row says which product, give a power of 2")
    if any(side > _LARGEST_FACTOR and side & (side - 1) for side in (options.m, options.k)):
        raise KernelError(
            f"{name}: m {options.m} and k {options.k}; beyond {_LARGEST_FACTOR} give powers of 2"
        )
    highest = max(options.m, options.k)
    if options.batches < 1 or options.batches * highest > LARGEST_IMAGE:
        raise KernelError(
            f"{name}: {options.batches} products of {options.m} x {options.n} x {options.k}; images are up "
            f"to {LARGEST_IMAGE} texels high, give 1 to {LARGEST_IMAGE // highest}"
        )


def emit_start(w: Writer, layout: str, shape: tuple[int, int], row: Reg, ky: Reg, scratch: Reg) -> None:
    """Puts the first row of the product's B into ``ky``; by workgroup z, moves ``row`` to the product too.

    ``shape``: m and k of a product.
    """
    m, k = shape
    if layout == "row":
        w.alu("shr.b", ky, row, m.bit_length() - 1)
    else:
        w.mov(ky, GROUP_Z)
        emit_multiply(w, scratch, ky, m)
        w.alu("add.s", row, row, scratch)
    emit_multiply(w, ky, ky, k)


@dataclass(frozen=True, slots=True)
class Stacked(Counted):
    """Counters that begin in the product that the fiber works on."""

    layout: str = "row"
    m: int = 1
    k: int = 1

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        k4, ky, row = (schedule.plan[name][0] for name in ("k4", "ky", "row"))
        emit_start(w, self.layout, (self.m, self.k), row, ky, k4)
        if self.ahead:
            w.alu("add.s", ky, ky, self.ahead)
        w.mov(k4, 0)


def launch(name: str, options: Options, schedule: Schedule, layout: str = "row") -> Build:
    """That of one product with all of them: workgroups below each other, or by ``layout`` behind in z.

    Raises:
        KernelError: a product is not made of whole workgroup tiles.
    """
    one, count = full.launch(name, options, schedule, options.thread128), options.batches
    columns, rows, _ = one.groups
    return replace(
        one,
        groups=(columns, rows, count) if layout == "z" else (columns, rows * count, 1),
        arguments=_arguments(options),
        work=one.work * count,
    )


def _arguments(options: Options) -> tuple[Argument, ...]:
    """Those of one product, each as many times as high."""
    return tuple(
        replace(argument, shape=(options.batches * argument.shape[0], *argument.shape[1:]))
        for argument in single.arguments(options, POINTER)
    )


def random(options: Options, rng: np.random.Generator) -> Arrays:
    """Those of one product, drawn anew for each."""
    return _stacked([single.random(options, rng) for _ in range(options.batches)])


def product(options: Options, arrays: Arrays) -> Arrays:
    """Each ``A @ B`` in float64."""
    return _each(single.product, options, arrays)


def bound(options: Options, arrays: Arrays) -> Arrays:
    """:func:`~pytest_qcom.kernels.single.bound` of each product."""
    return _each(single.bound, options, arrays)


def _pattern(name: str, options: Options) -> Arrays:
    """A pattern of one product, rolled by a row and a column from product to product."""
    a, b = single.matrices(options, single.PATTERNS[name](options))
    rolled = [
        single.images(options, np.roll(a, part, 0), np.roll(b, part, 1)) for part in range(options.batches)
    ]
    return _stacked(rolled)


PATTERNS: Mapping[str, Callable[[Any], Arrays]] = {
    name: functools.partial(_pattern, name) for name in single.PATTERNS
}


def _each(judge: _Judge, options: Options, arrays: Arrays) -> Arrays:
    """What ``judge`` says of each product, stacked."""
    parts = {name: np.split(arrays[name], options.batches) for name in "AB"}
    own = [{"A": a, "B": b} for a, b in zip(parts["A"], parts["B"], strict=True)]
    return {"C": np.concatenate([judge(options, inputs)["C"] for inputs in own])}


def _stacked(products: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([arrays[name] for arrays in products]) for name in "AB"}
