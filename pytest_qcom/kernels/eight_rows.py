"""What the published 8-row GEMMs share: their options, by the names of the notes, stores and plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.rewritten import NO_DELAY
from pytest_qcom.kernels.schedule import Epilogue
from pytest_qcom.kernels.stores import NoStore, RowMajor, Stepped

ROWS = 8
UPPER, LOWER = (0, 1, 2, 3), (4, 5, 6, 7)
FORMS = (
    "donor_store",
    "serial",
    "experimental_twopass",
    "pipeline",
    "pipeline4",
    "batch2",
    "persistent",
    "split_a",
)
"""Options that choose a schedule."""
_LONGEST_DELAY = 7


@dataclass(frozen=True, slots=True)
class Published:
    """Options of the published 8xN kernels, by the names of the notes.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``threads`` / 4, n of 128 ``ncols``, k of 4 times the unroll.
        threads: fibers of a workgroup.
        thread128: waves of 128 fibers.
        ncols: vec4 columns a fiber: each kernel's own.
        donor_store: the compiler's own loop: a preset pair a sample. With 4 vec4 columns, columns in turn.
        serial: all rows of A, then the columns in turn, all through one pair.
        experimental_twopass: all rows of A and both columns of B, a preset pair a sample, then the products.
        pipeline, pipeline4: two sets of texels over 2 or 4 K steps, the next sampled before the products.
        batch2: both sets are sampled before one (sy).
        persistent: immutable coordinates and every wait: the published kernel that is right.
        split_a: rows 0 to 3, then 4 to 7, through the same texels of A.
        split_k_unroll: K steps of the loop body of ``split_a``; 0 is its own form, with a (sy) a group.
        split_prefetch_next_b: the columns of the next K step are sampled among the last products.
        split_prefetch_next_a: and its rows 0 to 3 behind them.
        split_next_a_first: those before column 1 ("swapped before B1").
        split_prefetch_loop_b: the next loop body's first columns are early too.
        split_interleave_next_b: column 0 in two halves among the products of column 1.
        split_stream_next_b0, split_stream_next_b1: that column's next texels, each behind its last products.
        split_fast_coords: col + 32 has a register.
        split_hoist_b0_coord: column 0 has a pair of its own.
        split_low_a, split_high_a: texels of A below those of B, or above the accumulators.
        split_buffer_a: rows 4 to 7 have texels of their own, sampled among the products of rows 0 to 3.
        split_preload_a8: both groups of rows before the first product, in texels of their own.
        split_add_a_rows: rows by addition instead of or.b.
        split_inline_b_wait, split_inline_b_nop: B's delay as idle slots of the addition itself.
        split_pair_b_coords: B's pairs two by two.
        split_base_b_y: B's rows by or.b to a common base.
        split_quad_a: a fiber of four samples a row of A and hands it around.
        stream_b1: column 1 is sampled behind the first product.
        grouped_b, grouped_b_cols: B's pairs are all written before their samples; or a column's.
        a_coord_delay, b_coord_delay: nop repeats between coordinates and their sample; -1 is none.
        no_next_sy: no (sy) before the second group or set.
        strip_mad_sy: no (sy) before any product.
        donor8_store: the compiler's store, staged; what a kernel has where nothing else is said.
        donor8_add256_store: one address a row, stepped by 256 bytes.
        add256_store_mode, add256_gap, add256_direct_sources: see ``Stepped``.
        no_store: the products are dropped; a probe.
        skip_a_loads, skip_b_loads: nothing is sampled there; a probe.
        profile: a probe without a store: ``alu`` does not sample, ``isam`` does not multiply.
        swap_grid: workgroup x counts rows, y columns.
        fregs_override, hregs_override: vec4 declared; 0 is what the notes declare. Fewer than are used
            corrupt or hang hardware.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    threads: int = 128
    thread128: bool = True
    ncols: int = 2
    donor_store: bool = False
    serial: bool = False
    experimental_twopass: bool = False
    pipeline: bool = False
    pipeline4: bool = False
    batch2: bool = False
    persistent: bool = False
    split_a: bool = False
    split_k_unroll: int = 0
    split_prefetch_next_b: bool = False
    split_prefetch_next_a: bool = False
    split_next_a_first: bool = False
    split_prefetch_loop_b: bool = False
    split_interleave_next_b: bool = False
    split_stream_next_b0: bool = False
    split_stream_next_b1: bool = False
    split_fast_coords: bool = False
    split_hoist_b0_coord: bool = False
    split_low_a: bool = False
    split_high_a: bool = False
    split_buffer_a: bool = False
    split_preload_a8: bool = False
    split_add_a_rows: bool = False
    split_inline_b_wait: bool = False
    split_inline_b_nop: int = 1
    split_pair_b_coords: bool = False
    split_base_b_y: bool = False
    split_quad_a: bool = False
    stream_b1: bool = False
    grouped_b: bool = False
    grouped_b_cols: bool = False
    a_coord_delay: int = 5
    b_coord_delay: int = 5
    no_next_sy: bool = False
    strip_mad_sy: bool = False
    donor8_store: bool = False
    donor8_add256_store: bool = False
    add256_store_mode: str = "donor"
    add256_gap: int = 16
    add256_direct_sources: bool = False
    no_store: bool = False
    skip_a_loads: bool = False
    skip_b_loads: bool = False
    profile: str = ""
    swap_grid: bool = False
    fregs_override: int = 0
    hregs_override: int = 0


@dataclass(frozen=True, slots=True)
class Published8x4(Published):
    """The same for one vec4 column."""

    ncols: int = 1


@dataclass(frozen=True, slots=True)
class Published8x16(Published):
    """The same for four vec4 columns."""

    ncols: int = 4


def word(option: str) -> str:
    """An option as the notes write it."""
    return option.replace("_", "-")


def check(name: str, options: Published, ncols: int, forms: tuple[str, ...]) -> str:
    """The one form that the options choose.

    Raises:
        KernelError: a shape, delay or combination that makes no kernel.
    """
    check_shape(name, options)
    if options.ncols != ncols:
        raise KernelError(f"{name}: ncols is {options.ncols}; this kernel has {ncols}, leave it out")
    given = [form for form in FORMS if getattr(options, form)]
    if len(given) != 1 or given[0] not in forms:
        found = " with ".join(map(word, given)) or "no form"
        raise KernelError(f"{name}: {found}; give one of {', '.join(map(word, forms))}")
    for option in ("a_coord_delay", "b_coord_delay"):
        if not NO_DELAY <= getattr(options, option) <= _LONGEST_DELAY:
            raise KernelError(
                f"{name}: {word(option)} is {getattr(options, option)}; give -1 (none) to {_LONGEST_DELAY}"
            )
    if options.profile not in ("", "alu", "isam"):
        raise KernelError(f"{name}: profile is {options.profile!r}; give alu or isam")
    if given[0] != "split_a":
        _needs_split(name, options)
    _check_store(name, options)
    return given[0]


def _needs_split(name: str, options: Published) -> None:
    """No option of split-a is given without it."""
    unset = Published()
    for option in Published.__slots__:
        if option.startswith(("split_", "grouped_", "stream_")) and getattr(options, option) != getattr(
            unset, option
        ):
            raise KernelError(f"{name}: {word(option)} is about split-a; give that too")


def _check_store(name: str, options: Published) -> None:
    if options.add256_store_mode not in ("donor", "pairs", "tight"):
        raise KernelError(
            f"{name}: add256-store-mode is {options.add256_store_mode!r}; give donor, pairs or tight"
        )
    if options.add256_gap not in (0, 8, 16):
        raise KernelError(
            f"{name}: add256-gap is {options.add256_gap}; 0, 8 and 16 are those that can be decoded"
        )
    if options.donor8_store and options.donor8_add256_store:
        raise KernelError(f"{name}: donor8-store with donor8-add256-store; give one of them")


def epilogue(options: Published) -> Epilogue:
    """The store of a published kernel."""
    if options.no_store or options.profile:
        return NoStore()
    if options.donor8_add256_store:
        return Stepped(options.add256_store_mode, options.add256_gap, options.add256_direct_sources)
    return RowMajor(staging="broadcast")


def skipped(options: Published) -> str:
    """The operands that are not sampled; in lower case those whose coordinates are left out too."""
    if options.profile == "alu":
        return "ab"
    return "A" * options.skip_a_loads + "B" * options.skip_b_loads


def placed(plan: RegisterPlan, blocks: Mapping[str, tuple[str, int]]) -> RegisterPlan:
    """The plan with blocks of (first register, scalars)."""
    for name, (at, size) in blocks.items():
        plan = plan.place(name, at, size)
    return plan


def ends(plan: RegisterPlan) -> RegisterPlan:
    """The plan with what prologue and store need over everything that is dead there."""
    dead = tuple(block.name for block in plan.blocks if block.name != "acc")
    plan = plan.place("scratch", "r1.x", 4, over=tuple(name for name in dead if name not in ("row", "col")))
    dead = (*dead, "scratch")
    plan = plan.place("addresses", "r4.x", 2 * ROWS, over=dead)
    plan = plan.place("carries", "r2.x", ROWS, over=dead).place("stage", "hr0.x", 4 * ROWS, over=dead)
    plan = plan.place("offsets", "r0.y", 2, over=dead).place("step", "r0.x", 1, over=dead)
    return plan.place("carry", "r2.z", 2, over=(*dead, "carries"))
