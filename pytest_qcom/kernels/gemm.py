"""From a GEMM schedule and a shape to a kernel that can be launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Schedule, generate, loop_constants
from pytest_qcom.kernels.stores import POINTER

LARGEST_IMAGE = 16384
"""Texels a side."""
_ADDRESS_BYTES = 1 << 32  # what the 32-bit offset arithmetic of the epilogues reaches


def check_shape(name: str, shape: matmul.Shape) -> None:
    """What every GEMM here needs of its shape.

    Raises:
        KernelError: a shape that no launch can have.
    """
    if shape.k < 4 or shape.k % 4:
        raise KernelError(f"{name}: k is {shape.k}; a texel holds four of them, give a multiple of 4")
    if max(shape.m, shape.k, shape.n // 4, shape.k // 4) > LARGEST_IMAGE:
        raise KernelError(
            f"{name}: {shape.m} x {shape.n} x {shape.k} needs an image side beyond {LARGEST_IMAGE} texels; "
            "give smaller m, n or k"
        )
    if 2 * shape.m * shape.n >= _ADDRESS_BYTES:
        raise KernelError(f"{name}: C of {shape.m} x {shape.n} is beyond 4 GiB; give smaller m or n")


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfGemm(Kernel):
    """A product of half matrices that adds halves: what holds unless a declaration says otherwise."""

    inputs: Callable[[Any, np.random.Generator], Arrays] = matmul.random
    oracle: Callable[[Any, Arrays], Arrays] = matmul.product
    tolerance: Callable[[Any, Arrays], Mapping[str, NDArray[Any] | float]] = matmul.half_bound
    patterns: Mapping[str, Callable[[Any], Arrays]] = field(default_factory=lambda: matmul.HALF_PATTERNS)
    unit: str = "GFLOPS"


def build_gemm(
    name: str,
    shape: matmul.Shape,
    schedule: Schedule,
    arguments: tuple[Argument, ...] = (),
    groups: tuple[int, int, int] | None = None,
    stride: int = 0,
    thread128: bool = True,
    bare: bool = False,
) -> Build:
    """The launch of ``schedule`` over a shape that :func:`check_shape` has passed.

    Args:
        arguments: others than half images A and B and a half buffer C.
        groups: another grid than that of the tiles of C.
        stride: elements from one row of C to the next; 0 is n.
        bare: without its K steps.

    Raises:
        KernelError: the output is not made of whole workgroup tiles.
    """
    groups = groups or schedule.tile.groups(name, shape.m, shape.n)  # before a program that has no such tiles
    constants = (
        *schedule.epilogue.constants(schedule.tile, row_bytes=2 * (stride or shape.n)),
        *loop_constants(shape.k, schedule.unroll, schedule.peel),
    )
    return gemm_launch(
        shape,
        schedule.tile,
        schedule.plan,
        generate(schedule, shape.k, bare),
        constants,
        groups,
        arguments,
        thread128,
    )


def gemm_launch(
    shape: matmul.Shape,
    tile: Tile,
    plan: RegisterPlan,
    program: Program,
    constants: tuple[tuple[int, int], ...],
    groups: tuple[int, int, int],
    arguments: tuple[Argument, ...] = (),
    thread128: bool = True,
) -> Build:
    """The launch of a program that computes ``C = A B`` in tiles.

    ``arguments``: others than half images A and B and a half buffer C.
    """
    fregs, hregs = plan.footprint()
    return Build(
        program=program,
        fregs=fregs,
        hregs=hregs,
        arguments=arguments or matmul.arguments(shape, POINTER),
        groups=groups,
        local=(tile.threads, 1, 1),
        thread128=thread128,
        work=2e-9 * shape.m * shape.n * shape.k,
        constants=constants,
        merged=plan.merged,
    )
