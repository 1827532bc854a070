"""How a matmul loop is to be written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a matmul loop is written.

    Attributes:
        unroll: steps of a pass; they must divide the loop's passes.
        postinc: the counter advances in place behind a step's last sample and is compared once a pass; else
            its next value is computed first, beside it, and copied at the end of the step.
        lastcmp0: without ``postinc``, only the last step of a pass compares.
        nosnop: no ``(ss)nop`` stands before the last samples of a step; the compiler has one there for
            coordinates that it overwrites.
        k_order: order of a step's four products; empty for the compiler's, which keeps every bit.
        acc_order: order of the accumulators; empty for the compiler's.
        accmajor: all products of an accumulator after each other.
        b_last: the sample whose lanes are the scalars of the first product comes last.
        b_low: with it, and in the lowest registers.
        early: of which products of a step the vectors are sampled before everything else.
        prefetch: of which products of a step the vectors are sampled for the next step as soon as this step's
            last product of them is behind; the last pass does so too, beyond the matrix.
        incoords: every sample has a pair of its own, whose halves advance in place; else they are computed
            from the counter in each step.
        registers: vec4 up to which samples get pairs of their own, whose constant halves are written once,
            before the loop; 0 for none.
        half: samples, products and accumulators in float16, which the accumulators leave as float32: other
            numbers, and other registers. Only where they start at 0.
        block: with ``half``, steps whose products are summed as halves; their sum goes to the accumulators,
            which stay float32. 0 for half accumulators. It must divide ``unroll``.
        skip_scalars, skip_vectors: samples of the one or the other kind are left out, for throughput only.
    """

    unroll: int = 1
    postinc: bool = False
    lastcmp0: bool = False
    nosnop: bool = False
    k_order: tuple[int, ...] = ()
    acc_order: tuple[int, ...] = ()
    accmajor: bool = False
    b_last: bool = False
    b_low: bool = False
    early: tuple[int, ...] = ()
    prefetch: tuple[int, ...] = ()
    incoords: bool = False
    registers: int = 0
    half: bool = False
    block: int = 0
    skip_scalars: bool = False
    skip_vectors: bool = False
