"""Where a fiber finds out which part of the output is its own: the launch convention of CL binaries.

tinygrad's CL launch (``ops_qcom.py``, ``SP_CS_CONST_CONFIG_0`` = 0xccc0cf) puts the group id into r51.w,
r52.x and r52.y and the local id into r0.x; the workgroups here are one-dimensional.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.registers import Block, RegisterPlan
from pytest_qcom.kernels.writer import Writer

LOCAL_ID = "r0.x"
GROUP_X = "r51.w"
GROUP_Y = "r52.x"
GROUP_Z = "r52.y"

KEPT = {"lid": LOCAL_ID, "group_y": GROUP_Y, "group_x": GROUP_X}
"""Blocks of one scalar in which a plan that has them keeps these from the first instruction on."""

LANES = 32
"""Fibers side by side along a row of C; neighbours take neighbouring vec4 columns."""

CHOICES = (64, 128, 256)
"""Workgroup sizes of the hand kernels."""


def check_threads(name: str, threads: int) -> None:
    """Refuses other sizes of a workgroup.

    Raises:
        KernelError: what it says.
    """
    if threads not in CHOICES:
        raise KernelError(f"{name}: threads is {threads}; give one of {CHOICES}")


@dataclass(frozen=True, slots=True)
class Tile:
    """What a fiber computes: ``rows`` rows by ``cols`` vec4 columns, the columns ``lanes`` vec4 apart.

    Attributes:
        swapped: the grid counts rows of workgroups in x and columns in y.
        share: neighbouring fibers that work on one tile together, a power of two.
        rows_first: neighbouring fibers take tiles below each other, and only then the next column.
        adjacent: the columns of a fiber are neighbours, and its ``col`` counts all of them as one.
        side: fibers of a row of tiles, a power of two.
    """

    rows: int
    cols: int
    threads: int
    swapped: bool = False
    share: int = 1
    rows_first: bool = False
    adjacent: bool = False
    side: int = LANES

    @property
    def lanes(self) -> int:
        """Tiles side by side in a workgroup."""
        return self.side // self.share

    @property
    def group_rows(self) -> int:
        """Rows of C that a workgroup computes."""
        return self.rows * (self.threads // self.side)

    @property
    def group_columns(self) -> int:
        """Scalar columns of C that a workgroup computes."""
        return 4 * self.lanes * self.cols

    def groups(self, name: str, m: int, n: int) -> tuple[int, int, int]:
        """The grid over an (m, n) output.

        Raises:
            KernelError: the output is not made of whole workgroup tiles.
        """
        check_threads(name, self.threads)
        if m < 1 or n < 1 or m % self.group_rows or n % self.group_columns:
            raise KernelError(
                f"{name}: an output of {m} x {n} is not made of tiles of {self.group_rows} x "
                f"{self.group_columns}; give m and n in multiples of them"
            )
        columns, rows = n // self.group_columns, m // self.group_rows
        return (rows, columns, 1) if self.swapped else (columns, rows, 1)


def emit_place(w: Writer, tile: Tile, row: Reg, col: Reg, scratch: Block) -> None:
    """Puts the fiber's first row and first vec4 column into ``row`` and ``col``.

    ``scratch`` are four full scalars other than r0.x; ``col`` may be r0.x.
    """
    lane, sub_row, group_x, group_y = (scratch[index] for index in range(4))
    if tile.rows_first:
        w.alu("and.b", sub_row, LOCAL_ID, tile.threads // tile.side - 1)
        w.alu("shr.b", lane, LOCAL_ID, (tile.threads // tile.side).bit_length() - 1)
    else:
        w.alu("and.b", lane, LOCAL_ID, tile.side - 1)
        w.alu("shr.b", sub_row, LOCAL_ID, (tile.side - 1).bit_length())
    w.mov(group_x, GROUP_Y if tile.swapped else GROUP_X)
    w.mov(group_y, GROUP_X if tile.swapped else GROUP_Y)
    emit_multiply(w, sub_row, sub_row, tile.rows)
    if tile.share > 1:
        w.alu("shr.b", lane, lane, tile.share.bit_length() - 1)
    emit_multiply(w, group_x, group_x, tile.lanes * (1 if tile.adjacent else tile.cols))
    emit_multiply(w, group_y, group_y, tile.group_rows)
    w.alu("add.s", col, group_x, lane)
    w.alu("add.s", row, group_y, sub_row)


def emit_kept(w: Writer, plan: RegisterPlan) -> None:
    """What the plan keeps of the launch, which goes first: the hardware's own registers are soon others'."""
    for name, source in KEPT.items():
        if name in plan:
            w.mov(plan[name][0], source)


def emit_multiply(w: Writer, dst: Reg, src: Reg, factor: int) -> None:
    """``dst = src * factor`` for a positive factor below 1024."""
    if factor & (factor - 1) == 0:
        w.alu("shl.b", dst, src, factor.bit_length() - 1)
    else:
        w.alu("mul.s24", dst, src, factor)
