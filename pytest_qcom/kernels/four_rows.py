"""The options of the published 4-row FP16 GEMMs, by the names of the notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import notes

ROWS = 4
GROUPED = (
    "separate_b_coords",
    "high_b_coords",
    "persistent_b_coords",
    "persistent_b_x",
    "b_kk_pipeline",
    "isolated",
)
"""Options that give each sample of B of a load a pair."""

_OTHER_NAMES = {
    "repeat_first_store": "repeat_first",
    "repeat_each_store": "repeat_each",
    "repair_row1_store": "repair_row1",
    "compact": "compact_acc",
    "dynamic_split": "dynamic_split_k",
    "fregs": "fregs_override",
    "hregs": "hregs_override",
    "image_output": "image_store",
    "inc": "inc_coords",
    "low_a": "low_a_coords",
    "persistent": "persistent_coords",
    "post": "post_constant",
    "serial": "serial_b_cols",
}
"""What the notes' scripts call an option."""
_FAST: Mapping[str, Any] = dict(
    **dict.fromkeys(("direct", "compact_acc", "stable_bx", "stable_ay", "inc_coords"), True),
    **dict.fromkeys(("persistent_coords", "b_first", "first_sync_only"), True),
    ncols=4,
    coord_delay=-1,
    alu_order="auto",
)
"""What one of them calls fast, of four columns."""


def read(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options by other names: those of the scripts, ``fast`` for several, ``partial`` for not ``direct``."""
    found = notes.renamed(given, _OTHER_NAMES)
    if notes.flag(found.get("fast", "")):
        del found["fast"]
        found = {**_FAST, **found}
    partial = notes.flag(found.get("partial", ""))
    if partial is not None:
        del found["partial"]
        found["direct"] = not partial
    return found


@dataclass(frozen=True, slots=True)
class Published:
    """Options of the published 4xN kernels, by the names of the notes.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``threads`` / 8, n of 128 ``ncols``, k of 4 times the unroll.
        ncols: vec4 columns a fiber, 1 to 4.
        threads: fibers of a workgroup. thread128: waves of 128 fibers.
        direct: one accumulator an output; without it one for each k of a texel, with 1 or 2 columns.
        k_unroll: K steps of the loop body.
        k_start, k_count: the K steps that are multiplied; a count of 0 is all that follow.
        dynamic_split_k: K in so many parts, in rows of workgroups; C has them below each other.
        swap_groups: workgroup x counts rows, y columns.
        compact_acc: accumulators from hr12, else from hr16, unless other options say where. acc_hr: from that
            one, if it is not 0.
        preload_b: all columns have texels. preload_b_safe_coords: and pairs.
        high_inputs: texels above the accumulators. high_a_only: those of A between B and them.
        stable_bx: columns 2 and 3 keep their x in registers of their own, unless each sample has a pair.
        stable_ay: A pairs keep their y. low_a_coords: those pairs lie below, and 8 full vec4 are declared.
        inc_coords: unrolled steps add to coordinates instead of writing them.
        persistent_coords: coordinates live over the back edge.
        preserve_coords: row and column in r2; the texel of row 1 goes where that of row 0 was.
        separate_b_coords: a pair for each sample of two columns, in r0 to r3; high_b_coords: in r14 to r17.
        reuse_separate_b_y: of those, columns 2 and 3 only move x.
        persistent_b_coords: a pair for each sample of B, through the loop; persistent_b_x: only x stays.
        safe_b_y: the odd column's coordinates wait in registers of their own for the samples before them.
        sync_b_y: each of its samples waits for the one before.
        coord_delay: nop repeats before the samples of written coordinates; -1 is none.
        stable_settle_delay: the same behind the pairs of the four options with pairs for each sample of B.
        b_first: samples of B before those of A.
        serial_b_cols: one column after the other; single_cols_all: in the order 0, 2, 1, 3, each waited for.
        stream_b: columns 2 and 3 are sampled k by k, each k behind the products of the first two columns.
        stream_b_no_sync: with that, no (sy) before the products of columns 2 and 3.
        interleave_second_pair: the same with all coordinates before the products.
        b_kk_pipeline: all columns k by k, the next k sampled before the products of this one.
        isolated: everything in registers of its own, accumulators lowest; the vector of B is the MAD's first
            source.
        pipeline: two K steps a loop, the next A and columns 0 and 1 sampled among the products of this one.
        quad_a: one fiber of four samples A.
        alu_order: nesting of the MADs; ``auto`` is the one that the notes found fastest. alu_reps: how often
            each is done; more than once is a probe.
        first_sync_only: only the first MAD of the loop body waits. row_sync: the first of each row does.
        donor_store, donor2_store, donor4_store: the vendor compiler's store code, of one, two and four
            columns.
        native_store: that of four columns, by another name; where it is of more than one 28 full vec4 are
            declared.
        safe_store, linear_store, image_store, thread_store: see ``published_stores``; hybrid_store: columns
            from 2 on as safe. What has none of them stores by hand.
        thread_store_lid_reg, thread_store_group_regs: full registers that keep the local id and, by a comma
            apart, workgroup y and x for that; without them the id is made again. The notes have r10.x.
        high_store: the image store works in r28 and r29. output_float: its image is of floats.
        stride: elements from one row of C to the next, a multiple of 4; 0 is n.
        store_row_base: C begins so many rows further down.
        selected_cols: columns that are stored, such as ``0,2``; nothing is all. first_cols_only: of each two
            columns only number first_cols_offset is multiplied and stored.
        repeat_first, repeat_each: the store of row 0 of the first column, or of each row, is issued twice.
        repair_row1: row 1 is staged and stored once more behind the others.
        store_gap: 8, an idle slot between the columns' stores, or 16, a wait; 0 is none.
        store_shlg_offsets, store_scalar_offsets, store_or_offsets: other ways to the same offsets.
        save_output_coords: row and column are kept in a copy for the store.
        no_store: the products are dropped. store_constant: 1024 is stored and nothing multiplied.
        post_constant: 1024 is stored in place of the products. copy_b_probe: the first row of B of the first
            K step, which is the only one, is. All four are probes.
        vector_init: accumulators are zeroed by a repeated move of the first lane of each.
        skip_a_loads, skip_b_loads: nothing is sampled there; a probe.
        mergedregs: both register files are one, ``hr(2k)`` and ``hr(2k+1)`` the halves of full scalar ``k``:
            for options that leave no two values in one place then, such as isolated and high_inputs.
        fregs_override, hregs_override: vec4 declared; 0 is what the notes declare.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    ncols: int = 2
    threads: int = 128
    thread128: bool = True
    direct: bool = False
    k_unroll: int = 1
    k_start: int = 0
    k_count: int = 0
    dynamic_split_k: int = 0
    swap_groups: bool = False
    compact_acc: bool = False
    acc_hr: int = 0
    preload_b: bool = False
    preload_b_safe_coords: bool = False
    high_inputs: bool = False
    high_a_only: bool = False
    stable_bx: bool = False
    stable_ay: bool = False
    low_a_coords: bool = False
    inc_coords: bool = False
    persistent_coords: bool = False
    preserve_coords: bool = False
    separate_b_coords: bool = False
    high_b_coords: bool = False
    reuse_separate_b_y: bool = False
    persistent_b_coords: bool = False
    persistent_b_x: bool = False
    safe_b_y: bool = False
    sync_b_y: bool = False
    coord_delay: int = 5
    stable_settle_delay: int = 5
    b_first: bool = False
    serial_b_cols: bool = False
    single_cols_all: bool = False
    stream_b: bool = False
    stream_b_no_sync: bool = False
    interleave_second_pair: bool = False
    b_kk_pipeline: bool = False
    pipeline: bool = False
    isolated: bool = False
    quad_a: bool = False
    alu_order: str = "kk_row_col"
    alu_reps: int = 1
    first_sync_only: bool = False
    row_sync: bool = False
    donor_store: bool = False
    native_store: bool = False
    donor2_store: bool = False
    donor4_store: bool = False
    safe_store: bool = False
    linear_store: bool = False
    image_store: bool = False
    thread_store: bool = False
    thread_store_lid_reg: str = ""
    thread_store_group_regs: str = ""
    hybrid_store: bool = False
    high_store: bool = False
    store_shlg_offsets: bool = False
    store_scalar_offsets: bool = False
    store_or_offsets: bool = False
    output_float: bool = False
    stride: int = 0
    store_row_base: int = 0
    selected_cols: str = ""
    first_cols_only: bool = False
    first_cols_offset: int = 0
    repeat_first: bool = False
    repeat_each: bool = False
    repair_row1: bool = False
    store_gap: int = 0
    save_output_coords: bool = False
    no_store: bool = False
    store_constant: bool = False
    post_constant: bool = False
    copy_b_probe: bool = False
    vector_init: bool = False
    skip_a_loads: bool = False
    skip_b_loads: bool = False
    mergedregs: bool = False
    fregs_override: int = 0
    hregs_override: int = 0

    @property
    def steps(self) -> int:
        """K steps that a fiber does."""
        if self.copy_b_probe:
            return 1
        if self.dynamic_split_k > 1:
            return self.k // 4 // self.dynamic_split_k
        return self.k_count or self.k // 4 - self.k_start

    @property
    def unroll(self) -> int:
        """K steps of the loop body; the pipeline has two of its own."""
        if self.copy_b_probe:
            return 1
        return 2 * self.k_unroll if self.pipeline else self.k_unroll

    @property
    def order(self) -> str:
        """The nesting of the MADs."""
        if self.alu_order != "auto":
            return self.alu_order
        return "kk_col_row" if self.interleave_second_pair else "row_col_kk"

    @property
    def multiplied(self) -> tuple[int, ...]:
        """Columns that are multiplied."""
        every = range(self.ncols)
        return tuple(col for col in every if not self.first_cols_only or col % 2 == self.first_cols_offset)

    @property
    def columns(self) -> tuple[int, ...]:
        """Columns that are stored.

        Raises:
            KernelError: ``selected_cols`` is no list of columns.
        """
        if not self.selected_cols:
            return self.multiplied
        words = self.selected_cols.split(",")
        if not all(item.isdecimal() and int(item) < self.ncols for item in words):
            raise KernelError(
                f"selected-cols is {self.selected_cols!r}; give columns below {self.ncols}, such as 0,2"
            )
        chosen = set(map(int, words))
        return tuple(col for col in self.multiplied if col in chosen)

    @property
    def grouped(self) -> bool:
        """Whether each sample of B of a load has a pair."""
        return self.preload_b_safe_coords or any(getattr(self, option) for option in GROUPED)
