"""How far rounding may take a planned product by Strassen's or Winograd's form from the exact one.

The bound of each element of C follows the launches: the magnitudes and errors that a launch starts from give
those of what it leaves, in the arithmetic in which it computes (:mod:`strassen` derives each step). Nothing
of it is measured or norm-wise. With inputs that are nothing but error, and no rounding, the same walk gives
the largest sum of magnitudes that any addition can see, which is what inputs must keep small to be exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pytest_qcom.kernels import strassen
from pytest_qcom.kernels.families import strassen_combine, strassen_transform
from pytest_qcom.kernels.kernel import Arrays
from pytest_qcom.kernels.strassen import Arithmetic, Rounded
from pytest_qcom.kernels.strassen_options import Options, Stage, stages
from pytest_qcom.kernels.strassen_plan import combine_options, transform_options

Sides = Mapping[str, Rounded]
"""Matrices A and B."""
_NOTHING = Arithmetic(0.0, 0.0)
_LARGE = 2**19
"""Elements of A and B beyond which products are taken one by one: caches do not hold the others."""


def rounded(options: Options, arrays: Arrays) -> Rounded:
    """C exactly, and how far the launches may be from it."""
    source = strassen.exact if stages(options)[0].fused else strassen.flushed
    return _Walk(options).result({side: source(arrays[side][None]) for side in "AB"})


def largest(options: Options, arrays: Arrays) -> tuple[float, float]:
    """The largest sums of magnitudes that any addition can see: of products in memory, and of C.

    Only the blocks count into which the levels divide the matrices, so that where the magnitudes of B are all
    the same, each block of B may be one of them, and a row of a block of A the sum of its own.
    """
    walk = _Walk(options, rounds=False)
    sizes = {side: np.abs(arrays[side][None].astype(np.float64)) for side in "AB"}
    found = walk.result({side: _only_error(size) for side, size in sizes.items()})
    return walk.stored, float(found.error.max())


@dataclass(slots=True)
class _Walk:
    """From A and B to C, as the launches go.

    Attributes:
        rounds: sums and what is stored are rounded.
        stored: the largest magnitude of a product between launches.
    """

    options: Options
    rounds: bool = True
    stored: float = 0.0

    def result(self, sides: Sides) -> Rounded:
        """C of A and B."""
        return self._result(stages(self.options), sides)

    def _result(self, found: tuple[Stage, ...], sides: Sides) -> Rounded:
        """C of the matrices that some stages start from."""
        if not found:
            return self._products(sides["A"], sides["B"])
        stage, *rest = found
        if stage.m * stage.k + stage.k * stage.n > _LARGE:
            products = self._one_by_one(stage, tuple(rest), sides)
        else:
            operands = {side: self._operands(stage, side, source) for side, source in sides.items()}
            products = self._result(tuple(rest), operands)
        return self._combined(stage, products)

    def _one_by_one(self, stage: Stage, rest: tuple[Stage, ...], sides: Sides) -> Rounded:
        """The products of a stage one after the other, which takes the memory of one of them."""
        each = (
            strassen.each_operand(
                sides[side], self.options.form, side, stage.levels, self._arithmetic(stage, side)
            )
            for side in "AB"
        )
        parts = [self._result(rest, {"A": a, "B": b}) for a, b in zip(*each, strict=True)]
        return Rounded(
            np.concatenate([part.value for part in parts]), np.concatenate([part.error for part in parts])
        )

    def _operands(self, stage: Stage, side: str, source: Rounded) -> Rounded:
        arithmetic = self._arithmetic(stage, side)
        return strassen.operands(source, self.options.form, side, stage.levels, arithmetic)

    def _arithmetic(self, stage: Stage, side: str) -> Arithmetic:
        """Of the sums of A's or B's blocks."""
        if not self.rounds:
            return _NOTHING
        if stage.fused:
            return strassen.SINGLE
        if self.options.host_sums and stage.number > 1:
            return strassen.SINGLE if self.options.float_operands else strassen.SINGLE_TO_HALF
        return strassen_transform.arithmetic(transform_options(self.options, stage, side))

    def _products(self, left: Rounded, right: Rounded) -> Rounded:
        if not self.rounds:
            return self._noted(_only_error(left.error @ right.error))
        found = strassen.multiplied(left, right, strassen.SINGLE if self.options.floats else strassen.HALF)
        return strassen.stored_as_half(found) if self.options.half_products else found

    def _combined(self, stage: Stage, products: Rounded) -> Rounded:
        arithmetic = strassen_combine.arithmetic(combine_options(self.options, stage))
        found = strassen.results(
            products, self.options.form, stage.levels, arithmetic if self.rounds else _NOTHING
        )
        return self._noted(found) if stage.number > 1 else found

    def _noted(self, found: Rounded) -> Rounded:
        self.stored = max(self.stored, float(found.error.max()))
        return found


def _only_error(size: strassen.Float) -> Rounded:
    return Rounded(np.zeros_like(size), size)
