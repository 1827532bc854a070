"""The options of the published 4-row FP16 GEMMs, by the names of the notes, and which go together."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.choices import check_delays, exclude, require, word
from pytest_qcom.kernels.gemm import check_shape

ROWS = 4
_GROUPED = (
    "separate_b_coords",
    "high_b_coords",
    "persistent_b_coords",
    "persistent_b_x",
    "b_kk_pipeline",
    "isolated",
)
_LOOPS = (
    "serial_b_cols",
    "single_cols_all",
    "stream_b",
    "b_kk_pipeline",
    "interleave_second_pair",
    "pipeline",
    "isolated",
    "preserve_coords",
    "preload_b",
)
_TEXELS = (
    "isolated",
    "high_inputs",
    "high_a_only",
    "preload_b",
    "pipeline",
    "b_kk_pipeline",
    "preserve_coords",
)
STORES = (
    "donor_store",
    "native_store",
    "donor2_store",
    "donor4_store",
    "safe_store",
    "linear_store",
    "image_store",
    "thread_store",
    "hybrid_store",
    "no_store",
)
PROBES = ("no_store", "store_constant", "post_constant", "skip_a_loads", "skip_b_loads", "alu_reps")


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
        alu_order: nesting of the MADs. alu_reps: how often each is done; more than once is a probe.
        first_sync_only: only the first MAD of the loop body waits. row_sync: the first of each row does.
        donor_store, donor2_store, donor4_store: the vendor compiler's store code, of one, two and four
            columns.
        native_store: that of four columns, by another name; where it is of more than one 28 full vec4 are
            declared.
        safe_store, linear_store, image_store, thread_store: see ``published_stores``; hybrid_store: columns
            from 2 on as safe. What has none of them stores by hand.
        high_store: the image store works in r28 and r29.
        store_shlg_offsets, store_scalar_offsets, store_or_offsets: other ways to the same offsets.
        save_output_coords: row and column are kept in a copy for the store.
        no_store: the products are dropped. store_constant: 1024 is stored and nothing multiplied.
        post_constant: 1024 is stored in place of the products. All three are probes.
        skip_a_loads, skip_b_loads: nothing is sampled there; a probe.
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
    hybrid_store: bool = False
    high_store: bool = False
    store_shlg_offsets: bool = False
    store_scalar_offsets: bool = False
    store_or_offsets: bool = False
    save_output_coords: bool = False
    no_store: bool = False
    store_constant: bool = False
    post_constant: bool = False
    skip_a_loads: bool = False
    skip_b_loads: bool = False
    fregs_override: int = 0
    hregs_override: int = 0

    @property
    def steps(self) -> int:
        """K steps that a fiber does."""
        if self.dynamic_split_k > 1:
            return self.k // 4 // self.dynamic_split_k
        return self.k_count or self.k // 4 - self.k_start

    @property
    def unroll(self) -> int:
        """K steps of the loop body; the pipeline has two of its own."""
        return 2 * self.k_unroll if self.pipeline else self.k_unroll

    @property
    def grouped(self) -> bool:
        """Whether each sample of B of a load has a pair."""
        return self.preload_b_safe_coords or any(getattr(self, option) for option in _GROUPED)


def check(name: str, options: Published) -> None:
    """That the options make a kernel.

    Raises:
        KernelError: they do not; one line with what to change.
    """
    check_shape(name, options)
    _check_numbers(name, options)
    for group in (_LOOPS, _TEXELS, (*_GROUPED, "preload_b_safe_coords"), STORES):
        exclude(name, options, group)
    exclude(name, options, ("store_constant", "post_constant", "no_store"))
    for other in ("stable_bx", "quad_a", "persistent_coords"):
        exclude(name, options, ("dynamic_split_k", other))
    exclude(name, options, ("preserve_coords", "inc_coords"))
    for grouped in (*_GROUPED, "preload_b_safe_coords"):
        exclude(name, options, (grouped, "interleave_second_pair"))
    exclude(name, options, ("dynamic_split_k", "k_start"))
    exclude(name, options, ("dynamic_split_k", "k_count"))
    exclude(name, options, ("safe_b_y", "sync_b_y", *_GROUPED, "preload_b_safe_coords"))
    for option, needed in (
        ("low_a_coords", "stable_ay"),
        ("preload_b_safe_coords", "preload_b"),
        ("reuse_separate_b_y", "separate_b_coords"),
        ("stream_b_no_sync", "stream_b"),
        ("high_store", "image_store"),
        ("persistent_coords", "stable_ay"),
        ("persistent_coords", "inc_coords"),
    ):
        require(name, options, option, needed)
    _check_columns(name, options)


def _check_numbers(name: str, options: Published) -> None:
    for option in ("k_unroll", "alu_reps"):
        if getattr(options, option) < 1:
            raise KernelError(f"{name}: {word(option)} is {getattr(options, option)}; give 1 or more")
    if not 1 <= options.ncols <= ROWS:
        raise KernelError(f"{name}: ncols is {options.ncols}; give 1 to 4")
    check_delays(name, options, ("coord_delay", "stable_settle_delay"))
    whole, parts = options.k // 4, options.dynamic_split_k
    if (
        parts < 0
        or parts & (parts - 1)
        or whole % max(parts, 1)
        or (parts > 1 and options.m & (options.m - 1))
    ):
        raise KernelError(
            f"{name}: dynamic-split-k is {parts} for m {options.m} and {whole} K steps; give a power of 2 "
            "that divides them, and an m that is one"
        )
    if options.k_start < 0 or options.steps < 1 or options.k_start + options.steps > whole:
        raise KernelError(
            f"{name}: K steps {options.k_start} to {options.k_start + options.steps} of {whole}; give "
            "k-start and k-count within them"
        )
    if options.steps % options.unroll:
        raise KernelError(
            f"{name}: {options.steps} K steps do not divide by k-unroll {options.unroll}; the published "
            "kernels have no remainder"
        )
    if not 0 <= options.acc_hr <= 48 - ROWS * options.ncols:
        raise KernelError(f"{name}: acc-hr is {options.acc_hr}; the accumulators end beyond hr47")


def _check_columns(name: str, options: Published) -> None:
    """What goes with some numbers of columns."""
    four = ("stream_b", "interleave_second_pair", "b_kk_pipeline", "pipeline", "single_cols_all")
    for option, counts in (
        ("stable_bx", (4,)),
        ("persistent_b_x", (2,)),
        ("native_store", (1, 4)),
        ("donor4_store", (4,)),
        ("donor2_store", (2, 4)),
        ("hybrid_store", (3, 4)),
        *((option, (4,)) for option in four),
    ):
        if getattr(options, option) and options.ncols not in counts:
            known = " or ".join(map(str, counts))
            raise KernelError(f"{name}: {word(option)} is about {known} columns; there are {options.ncols}")
    if options.persistent_coords and options.ncols > 2 and not (options.stable_bx or options.grouped):
        raise KernelError(f"{name}: persistent-coords needs stable-bx too")
    if not options.direct and (options.ncols > 2 or any(getattr(options, loop) for loop in _LOOPS)):
        raise KernelError(
            f"{name}: four accumulators an output are for 1 or 2 columns in plain order; give direct"
        )
    if options.alu_reps > 1 and not (options.no_store or options.post_constant):
        raise KernelError(f"{name}: alu-reps beyond 1 is a probe; give no-store too")
    if options.interleave_second_pair and options.alu_order != "kk_col_row":
        raise KernelError(f"{name}: interleave-second-pair goes with alu-order=kk_col_row; give that")
    if options.isolated and (options.stable_ay or options.low_a_coords or options.save_output_coords):
        raise KernelError(f"{name}: isolated has registers of its own; leave those of coordinates out")
    if options.pipeline and (options.stable_ay or options.stable_bx or options.inc_coords):
        raise KernelError(
            f"{name}: pipeline has coordinates of its own; leave stable-ay, -bx and inc-coords out"
        )
