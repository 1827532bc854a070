"""Which options of the published 4-row FP16 GEMMs go together."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import notes
from pytest_qcom.kernels.choices import check_delays, check_range, check_unroll, exclude, require, word
from pytest_qcom.kernels.four_rows import GROUPED, ROWS, Published, read
from pytest_qcom.kernels.gemm import LARGEST_IMAGE, check_shape
from pytest_qcom.kernels.noted_checks import check_order, check_steps, check_stride
from pytest_qcom.kernels.stores import GAPS

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
)
BY_HAND = ("repeat_first", "repeat_each", "repair_row1", "store_gap")
"""What the store by hand, which the vendor compiler's are too, has beside its columns."""
_OTHER_STORES = ("safe_store", "linear_store", "image_store", "thread_store")
PROBES = (
    "no_store",
    "store_constant",
    "post_constant",
    "copy_b_probe",
    "skip_a_loads",
    "skip_b_loads",
    "alu_reps",
)


def check(name: str, options: Published) -> None:
    """That the options make a kernel.

    Raises:
        KernelError: they do not; one line with what to change.
    """
    check_shape(name, options)
    _check_numbers(name, options)
    for group in (_LOOPS, _TEXELS, (*GROUPED, "preload_b_safe_coords")):
        exclude(name, options, group)
    _check_store(name, options)
    exclude(name, options, ("store_constant", "post_constant", "copy_b_probe", "no_store"))
    for other in ("stable_bx", "quad_a", "persistent_coords"):
        exclude(name, options, ("dynamic_split_k", other))
    exclude(name, options, ("preserve_coords", "inc_coords"))
    for grouped in (*GROUPED, "preload_b_safe_coords"):
        exclude(name, options, (grouped, "interleave_second_pair"))
    exclude(name, options, ("dynamic_split_k", "k_start"))
    exclude(name, options, ("dynamic_split_k", "k_count"))
    exclude(name, options, ("safe_b_y", "sync_b_y", *GROUPED, "preload_b_safe_coords"))
    for option, needed in (
        ("low_a_coords", "stable_ay"),
        ("preload_b_safe_coords", "preload_b"),
        ("reuse_separate_b_y", "separate_b_coords"),
        ("stream_b_no_sync", "stream_b"),
        ("thread_store_lid_reg", "thread_store"),
        ("thread_store_group_regs", "thread_store"),
        ("high_store", "image_store"),
        ("output_float", "image_store"),
        ("first_cols_offset", "first_cols_only"),
        ("persistent_coords", "stable_ay"),
        ("persistent_coords", "inc_coords"),
    ):
        require(name, options, option, needed)
    _check_columns(name, options)


def implied(given: Mapping[str, str]) -> Mapping[str, str]:
    """What a row leaves out: four columns where an option is about those, ``direct`` where nothing else goes.

    The store by hand is what there is without another, and stream-b waits unless it is told not to;
    native-store of two columns is donor2-store.
    """
    found = notes.without(given, "hand_store", "sync")
    names = notes.given_names(read(found))
    if "ncols" not in names and names & {*FOUR, "stable_bx"}:
        found["ncols"] = "4"
    ncols = found.get("ncols", "2")
    if not names & {"direct", "partial"} and (ncols in ("3", "4") or names & set(_LOOPS)):
        found.setdefault("direct", "true")
    if ncols == "2" and "native-store" in found:
        found["donor2-store"] = found.pop("native-store")
    return found


FOUR = ("stream_b", "interleave_second_pair", "b_kk_pipeline", "pipeline", "single_cols_all")
"""Orders of four columns."""


def _check_numbers(name: str, options: Published) -> None:
    check_unroll(name, options.k_unroll)
    if options.alu_reps < 1:
        raise KernelError(f"{name}: alu-reps is {options.alu_reps}; give 1 or more")
    ranges = dict(ncols=(1, 4), alu_reps=(1, 64), first_cols_offset=(0, 1), store_row_base=(0, LARGEST_IMAGE))
    check_range(name, options, {**ranges, **dict.fromkeys(("fregs_override", "hregs_override"), (0, 48))})
    check_order(name, options.alu_order, "auto")
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
    check_steps(name, options)
    if options.steps % options.unroll:
        raise KernelError(
            f"{name}: {options.steps} K steps do not divide by k-unroll {options.unroll}; the published "
            "kernels have no remainder"
        )
    check_range(name, options, {"acc_hr": (0, 48 - ROWS * options.ncols)})  # which end at hr47


def _check_store(name: str, options: Published) -> None:
    """Where C is and what of it is stored, and how."""
    exclude(name, options, STORES)
    if not options.columns:
        raise KernelError(f"{name}: first-cols-only and selected-cols leave no column; give others")
    if options.store_gap not in GAPS:
        raise KernelError(
            f"{name}: store-gap is {options.store_gap}; give one of {', '.join(map(str, GAPS))}"
        )
    for option in BY_HAND:
        for other in _OTHER_STORES:
            exclude(name, options, (option, other))
    for option in ("stride", "store_row_base"):
        exclude(name, options, (option, "thread_store"))
    exclude(name, options, ("repeat_first", "repeat_each"))
    check_stride(name, options)
    rows = options.store_row_base + options.m * max(1, options.dynamic_split_k)
    if options.image_store and rows > LARGEST_IMAGE:
        raise KernelError(f"{name}: C of {rows} rows is beyond an image's {LARGEST_IMAGE}; give fewer")


def _check_columns(name: str, options: Published) -> None:
    """What goes with some numbers of columns."""
    for option, counts in (
        ("stable_bx", (4,)),
        ("persistent_b_x", (2,)),
        ("native_store", (1, 4)),
        ("donor4_store", (4,)),
        ("donor2_store", (2, 4)),
        ("hybrid_store", (3, 4)),
        *((option, (4,)) for option in FOUR),
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
    if options.interleave_second_pair and options.order != "kk_col_row":
        raise KernelError(f"{name}: interleave-second-pair goes with alu-order=kk_col_row; give that")
    if options.isolated and (options.stable_ay or options.low_a_coords or options.save_output_coords):
        raise KernelError(f"{name}: isolated has registers of its own; leave those of coordinates out")
    if options.pipeline and (options.stable_ay or options.stable_bx or options.inc_coords):
        raise KernelError(
            f"{name}: pipeline has coordinates of its own; leave stable-ay, -bx and inc-coords out"
        )
