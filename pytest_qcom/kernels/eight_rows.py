"""The options of the published 8-row FP16 GEMMs, by the names of the notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_qcom.kernels import notes

ROWS = 8
UPPER, LOWER = (0, 1, 2, 3), (4, 5, 6, 7)
"""Rows of a fiber that share their texels of A in many schedules."""


_OTHER_NAMES = {
    "pipelined": "pipeline",
    "selfcoord": "self_coords",
    "stream_col1": "stream_b1",
    "stream_col1_sync": "stream_b1_sync",
    "split_stream_col1": "stream_b1",
    "split_stream_col1_sync": "stream_b1_sync",
    "a_reuse_gap": "split_interleave_a_reuse_gap",
    "adelay": "a_coord_delay",
    "base": "split_a",
    "bdelay": "b_coord_delay",
    "fast": "split_fast_coords",
    "fregs": "fregs_override",
    "gap": "split_unroll_gap",
    "grouped_cols": "grouped_b_cols",
    "hregs": "hregs_override",
    "kunroll": "split_k_unroll",
    "persistent8": "persistent",
    "persistent_double_b": "double_b",
    "persistent_one_sync": "one_sync",
    "persistent_one_sync_wait": "one_sync_wait",
    "persistent_pipeline": "pipeline_b",
    "persistent_pipeline_a": "pipeline_a",
    "persistent_rotate_b": "rotate_b",
    "persistent_stagger_b": "stagger_b",
    "pmad": "split_pre_mad_nops",
    "prefetch": "split_prefetch_next_b",
    "prefetch_a": "split_prefetch_next_a",
    "source_sync": "split_sampler_source_sync",
    "store_mode": "add256_store_mode",
}
"""What the notes' scripts call an option."""


def read(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options by the names of the scripts too, ``mode`` and what they lack: the ``split-`` in front."""
    known = Published.__dataclass_fields__
    found = {}
    for key, value in notes.renamed(given, _OTHER_NAMES).items():
        name = key.replace("-", "_")
        if name == "mode" and value in _MODES:
            found[value] = True
        elif name == "separate_regs":
            apart = notes.flag(value)
            found["mergedregs"] = value if apart is None else not apart
        else:
            found[f"split_{name}" if name not in known and f"split_{name}" in known else key] = value
    return found


_MODES = ("pipeline", "pipeline4", "batch2")
"""Forms that one of the scripts names so."""


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
        overlap_b1: of that, column 1 is sampled behind the first product.
        preload: all columns, then all rows, through one pair; a (sy) on every sample.
        pipeline, pipeline4: two sets of texels over 2 or 4 K steps, the next sampled before the products.
        batch2: both sets are sampled before one (sy).
        persistent: immutable coordinates and every wait: the published kernel that is right.
        pipeline_b, double_b, rotate_b: of that, B is sampled a K step early: behind its last products; into
            texels of its own; into the free one of three groups. b_reuse_gap: idle slots before the first.
        pipeline_a, dual_a_tile: rows 4 to 7 have texels of their own, sampled behind the first product or
            before.
        stagger_b: the columns are refilled behind ``stagger_rows`` of rows 4 to 7.
        lagged_a4, stream_a4_gap: rows 4 to 7 one by one, a row behind; or at once, with idle slots, from 0
            on.
        masked_prefetch_a4: rows 4 to 7 are sampled early and dropped.
        one_sync: one (sy) a K step, and one_sync_wait idle slots in place of the second.
        dynamic_a4_dual: rows 4 to 7 with the pairs of column 0, dynamic_a4_wait slots before their products.
        dynamic_b_prefetch: and B early, behind dynamic_b_rows of those rows and dynamic_b_gap slots.
        rotate_low_banks: columns and rows 0 to 3 change places from step to step; rotate_no_prefetch: nothing
            is early.
        lifetime: the same with few pairs and one register for row and k, written anew, and every wait.
        self_coords: and with pairs where, in merged mode, their results would lie.
        split_a: rows 0 to 3, then 4 to 7, through the same texels of A.
        split_k_unroll: K steps of the loop body of ``split_a`` and of those two; 0 is the form's own: 4 for
            ``lifetime``, 1 for ``self_coords`` and one with a (sy) a group for ``split_a``.
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
        split_quad_a: a fiber of four samples a row of A and hands it around; split_quad_map: the fibers that
            have rows 0 to 3.
        stream_b1: column 1 is sampled behind the first product. stream_b1_sync: and waited for.
            split_interleave_a4: and rows 4 to 7 one by one behind the products of the row whose texels they
            take, and behind split_interleave_a_reuse_gap: 8, an idle slot, or 16, a wait; 0 is none.
        split_reuse_b: one column after the other through the same texels, all rows for each.
        split_row_stream, split_phase_stream: one row of A after the other, each waited for.
        split_stream_b_a8: all rows stay; a texel of B at a time, in two slots in turns.
        split_one_sync_tile: everything is sampled, then one (sy), then the products.
        split_mid_acc, split_high_inputs: accumulators from hr20; texels above them.
        split_single_high_coord: the one pair is r14.
        split_low_pairs, split_separate_coords, split_low_stable_coords, split_safe_coords: a pair a sample of
            a column of B (r4, r0, r8, r20) and of a group of A (r8, r2, r8, r16).
        split_triple_coords: with separate ones, column 1 and A have others; split_dual_a_coords: rows 4 to 7
            too.
        split_high_pair_a, split_high_pair_b: those pairs of A, or of column 1, are r10 and r11; without
            split_low_pairs those of both columns. split_high_pair_coords: A and B take turns in them.
        split_serial_safe_coords: A's delay stands before every sample.
        split_sampler_source_sync: (ss) on each write of a coordinate.
        split_source_hold_delay: nop repeats behind each sample; -1 is none.
        split_unroll_gap: nop repeats between the unrolled steps, 0 is none.
        split_relaxed_sync, split_sync_mask: a (sy) a group of products, of those whose number modulo 3 is a
            bit; bit 3 is about the first of those whose texels are refilled k by k. split_sync_wait: idle
            slots before a group that has none.
        split_pre_mad_nops: nop repeats before each group of products; -1 is none.
        split_reserved_out: the number (2 row + column) of a vector that is not multiplied, whose place in C
            is 0; -1 is none.
        row_sync: the first product of each row waits.
        grouped_b, grouped_b_cols: B's pairs are all written before their samples; or a column's.
        a_coord_delay, b_coord_delay: nop repeats between coordinates and their sample; -1 is none. Split-A
            has none before its samples of A where it is unrolled, as it is published.
        no_next_sy: no (sy) before the second group or set.
        alu_order: nesting of the MADs; nothing is the form's own.
        k_start, k_count: the K steps that are multiplied; a count of 0 is all that follow.
        strip_mad_sy: no (sy) before any product.
        donor8_store: the compiler's store, staged; what a kernel has where nothing else is said.
        donor8_add256_store: one address a row, stepped by 256 bytes.
        add256_store_mode, add256_gap, add256_direct_sources, add256_offset_before_gap: see ``Stepped``.
        donor4_store: the compiler's store of four rows, twice. image_store: C is an image. thread_store: each
            fiber's tile in one piece. image_store_gap: 8, an idle slot behind each store, or 16, a wait; 0 is
            none.
        thread_store_lid_reg, thread_store_group_regs: full registers that keep the local id and, by a comma
            apart, workgroup y and x for that; without them the id is made again. The notes have r28.x
            and ``r36.y,r36.z``, with which waves have 64 fibers.
        stride: elements from one row of C to the next, a multiple of 4; 0 is n.
        no_store: the products are dropped; post_constant: 1024 is stored in their place, post_sequence: the
            number of each vector of the tile, from 1 on. All are probes.
        skip_a_loads, skip_b_loads: nothing is sampled there; a probe.
        profile: a probe without a store: ``alu`` does not sample, ``isam`` does not multiply.
        swap_grid: workgroup x counts rows, y columns.
        mergedregs: both register files are one, ``hr(2k)`` and ``hr(2k+1)`` the halves of full scalar ``k``:
            for options that leave no two values in one place then, such as self_coords and split_high_inputs.
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
    overlap_b1: bool = False
    preload: bool = False
    pipeline: bool = False
    pipeline4: bool = False
    batch2: bool = False
    persistent: bool = False
    pipeline_b: bool = False
    b_reuse_gap: int = 0
    double_b: bool = False
    rotate_b: bool = False
    pipeline_a: bool = False
    dual_a_tile: bool = False
    stagger_b: bool = False
    stagger_rows: int = 2
    lagged_a4: bool = False
    stream_a4_gap: int = -1
    masked_prefetch_a4: bool = False
    one_sync: bool = False
    one_sync_wait: int = 0
    dynamic_a4_dual: bool = False
    dynamic_a4_wait: int = 0
    dynamic_b_prefetch: bool = False
    dynamic_b_rows: int = 1
    dynamic_b_gap: int = 0
    rotate_low_banks: bool = False
    rotate_no_prefetch: bool = False
    lifetime: bool = False
    self_coords: bool = False
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
    split_quad_map: str = "0123"
    split_interleave_a4: bool = False
    split_interleave_a_reuse_gap: int = 0
    split_reuse_b: bool = False
    split_row_stream: bool = False
    split_phase_stream: bool = False
    split_stream_b_a8: bool = False
    split_one_sync_tile: bool = False
    split_mid_acc: bool = False
    split_high_inputs: bool = False
    split_single_high_coord: bool = False
    split_low_pairs: bool = False
    split_separate_coords: bool = False
    split_low_stable_coords: bool = False
    split_safe_coords: bool = False
    split_triple_coords: bool = False
    split_dual_a_coords: bool = False
    split_high_pair_a: bool = False
    split_high_pair_b: bool = False
    split_high_pair_coords: bool = False
    split_serial_safe_coords: bool = False
    split_sampler_source_sync: bool = False
    split_source_hold_delay: int = -1
    split_unroll_gap: int = 0
    split_relaxed_sync: bool = False
    split_sync_mask: int = 7
    split_sync_wait: int = 0
    split_pre_mad_nops: int = -1
    split_reserved_out: int = -1
    stream_b1: bool = False
    stream_b1_sync: bool = False
    grouped_b: bool = False
    grouped_b_cols: bool = False
    a_coord_delay: int = 4
    b_coord_delay: int = 4
    alu_order: str = ""
    k_start: int = 0
    k_count: int = 0
    row_sync: bool = False
    no_next_sy: bool = False
    strip_mad_sy: bool = False
    donor8_store: bool = False
    donor4_store: bool = False
    image_store: bool = False
    image_store_gap: int = 0
    thread_store: bool = False
    thread_store_lid_reg: str = ""
    thread_store_group_regs: str = ""
    stride: int = 0
    donor8_add256_store: bool = False
    add256_store_mode: str = "donor"
    add256_gap: int = 16
    add256_direct_sources: bool = False
    add256_offset_before_gap: bool = False
    no_store: bool = False
    post_constant: bool = False
    post_sequence: bool = False
    skip_a_loads: bool = False
    skip_b_loads: bool = False
    profile: str = ""
    swap_grid: bool = False
    mergedregs: bool = False
    fregs_override: int = 0
    hregs_override: int = 0

    @property
    def stream_a4(self) -> bool:
        """Whether rows 4 to 7 of the persistent form come one by one."""
        return self.stream_a4_gap >= 0

    @property
    def steps(self) -> int:
        """K steps that a fiber does."""
        return self.k_count or self.k // 4 - self.k_start


@dataclass(frozen=True, slots=True)
class Published8x4(Published):
    """The same for one vec4 column."""

    ncols: int = 1


@dataclass(frozen=True, slots=True)
class Published8x12(Published):
    """The same for three vec4 columns."""

    ncols: int = 3


@dataclass(frozen=True, slots=True)
class Published8x16(Published):
    """The same for four vec4 columns."""

    ncols: int = 4
