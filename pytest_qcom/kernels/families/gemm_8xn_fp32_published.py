"""Published GEMMs of eight rows with float32 accumulators: one vec4 column (8x4) and two (8x8).

B is sampled whole, A four rows at a time into the same registers, every coordinate through one pair. Only the
first products wait for samples: those of rows 4 to 7 read A before it has arrived.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pytest_qcom.kernels.full_published import (
    Cases,
    Published,
    check,
    declare,
    low_state,
    noted,
    over_texels,
    published,
)
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.notes import renamed
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Load, Multiply

ROWS = 8
_LOW, _HIGH = (0, 1, 2, 3), (4, 5, 6, 7)


@dataclass(frozen=True, slots=True)
class Published8xn(Published):
    """Options of the published 8-row kernels.

    Attributes:
        second_a_sync: a (sy) before the products of rows 4 to 7, which the published code lacks.
    """

    second_a_sync: bool = False


def _build(name: str, ncols: int, options: Published8xn) -> Build:
    check(name, options, ncols)
    cols = tuple(range(ncols))
    plan = RegisterPlan()
    for col in cols:
        plan = plan.place(f"b{col}", f"r{8 + 4 * col}.x", 16)
    for row in range(ROWS):
        plan = plan.place(f"a{row}", f"r{16 + row % 4}.x", 4, over=tuple(f"a{other}" for other in range(row)))
    plan = plan.place("acc", "r20.x", 4 * ROWS * ncols).place("pair", "r4.x", 2)
    plan = over_texels(low_state(plan, following="r5.x"), ROWS)
    phases = (
        Load("B", cols),
        Load("A", _LOW),
        Multiply(_LOW, cols),
        Load("A", _HIGH),
        Multiply(_HIGH, cols),
    )
    coordinates = noted(options, shared_a=True, shared_b=True)
    tile = Tile(ROWS, ncols, options.threads)
    syncs = (0, 1) if options.second_a_sync else (0,)
    return published(name, options, tile, plan, coordinates, phases, syncs)


def build_8x4(options: Published8xn) -> Build:
    """The published 8x4 kernel.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    return _build("gemm_8x4_fp32_published", 1, options)


def build_8x8(options: Published8xn) -> Build:
    """The published 8x8 kernel.

    Raises:
        KernelError: options that do not go together, or a shape that is not made of whole tiles.
    """
    return _build("gemm_8x8_fp32_published", 2, options)


_DIRECT = dict(direct_f32_loads=True, sampler_per_texture=True)
_ROWS_8X4: Cases = {
    "p167": _DIRECT,
    "converted": {},
    "second-a-sync": dict(_DIRECT, second_a_sync=True),
}
_ROWS_8X8: Cases = {
    "p168": _DIRECT,
    "p169": dict(_DIRECT, no_store=True),
    "second-a-sync": dict(_DIRECT, second_a_sync=True),
}

_words = functools.partial(renamed, names={"b_coord_delay": "coord_delay"})
KERNELS = (
    declare("gemm_8x4_fp32_published", Published8xn, build_8x4, _ROWS_8X4, reads=_words),
    declare("gemm_8x8_fp32_published", Published8xn, build_8x8, _ROWS_8X8, reads=_words),
)
