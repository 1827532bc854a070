"""Options that kernels over tiles of C have in common, by the names of the notes, and what goes together.

A family adds its own; what it does not offer is a property here that says so to the plans and phases of
:mod:`~pytest_qcom.kernels.full`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pytest_qcom.errors import KernelError


@dataclass(frozen=True, slots=True)
class Tiled:
    """Options of every such kernel.

    Attributes:
        m, n, k: C is (m, n); both in whole workgroup tiles.
        threads: fibers of a workgroup: 64, 128 or 256.
        thread128: waves of 128 fibers; else of 64.
        k_unroll: K steps of the loop body. A rest is done behind the loop.
        sampler_per_texture: A and B each have a sampler.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    threads: int = 128
    thread128: bool = False
    k_unroll: int = 1
    sampler_per_texture: bool = True

    @property
    def interleaved_a(self) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, slots=True)
class Stored(Tiled):
    """Options of float32 kernels.

    Attributes:
        float_inputs: A and B are float32 images.
        int8_a, int8_b: that one is an image of normalized bytes, fractions of 127.
        image_store: C is an image; with ``half_output`` a half one.
    """

    float_inputs: bool = False
    int8_a: bool = False
    int8_b: bool = False
    image_store: bool = False
    half_output: bool = False


@dataclass(frozen=True, slots=True)
class Columns(Tiled):
    """Options of kernels whose plan and K steps are those of :mod:`~pytest_qcom.kernels.full`.

    Attributes:
        preload_b: all columns of B have registers; else they share those of one column.
        own_pairs: a coordinate of its own for each sample, kept over the loop; needs ``preload_b``.
        alu_order: nesting of the products.
    """

    preload_b: bool = True
    own_pairs: bool = False
    alu_order: str = "kk_col_row"

    @property
    def ahead(self) -> bool:
        """Never."""
        return False

    @property
    def pipeline_b(self) -> bool:
        """Never."""
        return False

    @property
    def component_stream(self) -> bool:
        """Never."""
        return False


class _Output(Protocol):
    """How C is stored."""

    @property
    def image_store(self) -> bool: ...
    @property
    def half_output(self) -> bool: ...


class _Pairs(Protocol):
    """How coordinates are kept."""

    @property
    def preload_b(self) -> bool: ...
    @property
    def own_pairs(self) -> bool: ...


class _Turns(Protocol):
    """How columns take turns."""

    @property
    def preload_b(self) -> bool: ...
    @property
    def pipeline_b(self) -> bool: ...
    @property
    def component_stream(self) -> bool: ...


def check_output(name: str, options: _Output) -> None:
    """Refuses halves that would go into a buffer.

    Raises:
        KernelError: what it says.
    """
    if options.half_output and not options.image_store:
        raise KernelError(f"{name}: half-output into a buffer of float32; give image-store=true too")


def check_turns(name: str, options: _Turns, ncols: int) -> None:
    """Refuses ways of taking columns in turn where they do not come so.

    Raises:
        KernelError: what it says.
    """
    in_turn = [flag for flag in ("pipeline_b", "component_stream") if getattr(options, flag)]
    if len(in_turn) > 1 or (in_turn and (options.preload_b or ncols < 2)):
        flags = " with ".join(flag.replace("_", "-") for flag in in_turn)
        raise KernelError(
            f"{name}: {flags} is about columns in turn; give one of them, preload-b=false and a wider tile"
        )


def check_pairs(name: str, options: _Pairs) -> None:
    """Refuses pairs for columns that come in turn.

    Raises:
        KernelError: what it says.
    """
    if options.own_pairs and not options.preload_b:
        raise KernelError(
            f"{name}: own-pairs without preload-b; columns in turn have no pairs, give preload-b=true"
        )


def check_words(name: str, m: int, n: int) -> None:
    """Refuses a C of 32-bit elements that the store's offsets cannot reach.

    Raises:
        KernelError: what it says.
    """
    if 4 * m * n >= 1 << 32:
        raise KernelError(f"{name}: C of {m} x {n} is beyond 4 GiB; give smaller m or n")


def check_tile(name: str, rows: int, ncols: int) -> None:
    """Refuses a tile other than 4 or 8 rows by one or two columns.

    Raises:
        KernelError: what it says.
    """
    if rows not in (4, 8) or ncols not in (1, 2):
        raise KernelError(f"{name}: a tile of {rows} rows and {ncols} columns; give 4 or 8, and 1 or 2")
