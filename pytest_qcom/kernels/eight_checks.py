"""Which options of the published 8-row FP16 GEMMs go together."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import notes
from pytest_qcom.kernels.choices import (
    LONGEST_DELAY,
    check_delays,
    check_range,
    check_unroll,
    exclude,
    require,
    word,
)
from pytest_qcom.kernels.eight_persistent import OPTIONS
from pytest_qcom.kernels.eight_rows import LOWER, ROWS, Published, read
from pytest_qcom.kernels.gemm import check_shape
from pytest_qcom.kernels.noted_checks import check_order, check_steps, check_stride
from pytest_qcom.kernels.stores import GAPS

FORMS = (
    "donor_store",
    "serial",
    "experimental_twopass",
    "preload",
    "pipeline",
    "pipeline4",
    "batch2",
    "persistent",
    "lifetime",
    "self_coords",
    "split_a",
)
"""Options that choose a schedule."""
_PERSISTENT = (
    *(option for option in OPTIONS if option != "stream_a4"),  # which has a number
    "stream_a4_gap",
    "b_reuse_gap",
    "one_sync",
    "one_sync_wait",
    "stagger_rows",
    "dynamic_a4_wait",
    "dynamic_b_prefetch",
    "dynamic_b_rows",
    "dynamic_b_gap",
    "rotate_no_prefetch",
)
STORES = ("donor8_store", "donor4_store", "donor8_add256_store", "image_store", "thread_store")
PROBES = (
    "no_store",
    "post_constant",
    "post_sequence",
    "profile",
    "skip_a_loads",
    "skip_b_loads",
    "strip_mad_sy",
    "split_quad_map",
)
"""What does not give C."""


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
    _check_numbers(name, options)
    check_steps(name, options)
    require(name, options, "overlap_b1", "experimental_twopass")
    _needs_form(name, options, given[0])
    _check_store(name, options)
    return given[0]


def _check_numbers(name: str, options: Published) -> None:
    """Numbers and words that an option can have."""
    if options.alu_order:
        check_order(name, options.alu_order)
    if options.split_k_unroll:
        check_unroll(name, options.split_k_unroll, "split-k-unroll")
    check_delays(name, options, _DELAYS)
    check_range(name, options, _RANGES)
    if options.profile not in ("", "alu", "isam"):
        raise KernelError(f"{name}: profile is {options.profile!r}; give alu or isam")
    if sorted(options.split_quad_map) != list("0123"):
        raise KernelError(
            f"{name}: split-quad-map is {options.split_quad_map!r}; give 0, 1, 2 and 3 in some order"
        )
    for option in ("add256_gap", "image_store_gap", "split_interleave_a_reuse_gap"):
        if getattr(options, option) not in GAPS:
            raise KernelError(
                f"{name}: {word(option)} is {getattr(options, option)}; 0, 8 and 16 are those that can be "
                "decoded"
            )


_DELAYS = ("a_coord_delay", "b_coord_delay", "split_source_hold_delay", "split_pre_mad_nops", "stream_a4_gap")
_SLOTS = (
    "b_reuse_gap",
    "one_sync_wait",
    "dynamic_a4_wait",
    "dynamic_b_gap",
    "split_unroll_gap",
    "split_sync_wait",
)
_RANGES = {
    **dict.fromkeys(_SLOTS, (0, LONGEST_DELAY + 1)),
    "stagger_rows": (0, len(LOWER)),
    "dynamic_b_rows": (0, len(LOWER)),
    "split_sync_mask": (0, 15),
    "split_reserved_out": (-1, 2 * ROWS - 1),
    **dict.fromkeys(("fregs_override", "hregs_override"), (0, 48)),
}
"""The smallest and the largest number; idle slots are those of one instruction."""


def _needs_form(name: str, options: Published, form: str) -> None:
    """No option of one form is given with another."""
    unset = Published()
    for option in Published.__slots__:
        owners = _owners(option)
        if owners and form not in owners and getattr(options, option) != getattr(unset, option):
            raise KernelError(f"{name}: {word(option)} is about {word(owners[0])}; give that too")
    if form in _WAITED:
        for option in ("strip_mad_sy", "no_next_sy"):
            exclude(name, options, (form, option))


def _owners(option: str) -> tuple[str, ...]:
    """The forms that an option belongs to, if it is not about all."""
    if option == "split_k_unroll":
        return ("split_a", "lifetime", "self_coords")
    if option.startswith(("split_", "grouped_", "stream_b")) and option != "split_a":
        return ("split_a",)
    return ("persistent",) if option in _PERSISTENT else ()


def implied(given: Mapping[str, str]) -> Mapping[str, str]:
    """A row without a form has that of its options, else the serial loop; one delay is that of A and of B.

    A row that says nothing is about no form.
    """
    found = dict(given)
    if "coord-delay" in found:
        delay = found.pop("coord-delay")
        found = {"a-coord-delay": delay, "b-coord-delay": delay, **found}
    names = notes.given_names(read(found))
    if names.isdisjoint(FORMS) and not names <= _LAUNCH:
        owners = [owner for option in names for owner in (*_owners(option)[:1], *_ABOUT.get(option, ()))]
        found[word(min(owners, key=FORMS.index) if owners else "serial")] = "true"
    return found


_LAUNCH = frozenset({"m", "n", "k", "threads", "thread128"})
_ABOUT = {"overlap_b1": ("experimental_twopass",)}


_WAITED = ("persistent", "lifetime", "self_coords")
"""Forms with every wait."""


def _check_store(name: str, options: Published) -> None:
    if options.add256_store_mode not in ("donor", "pairs", "tight"):
        raise KernelError(
            f"{name}: add256-store-mode is {options.add256_store_mode!r}; give donor, pairs or tight"
        )
    exclude(name, options, STORES)
    exclude(name, options, ("post_constant", "post_sequence", "no_store", "profile"))
    exclude(name, options, ("stride", "thread_store"))
    require(name, options, "image_store_gap", "image_store")
    for option in ("thread_store_lid_reg", "thread_store_group_regs"):
        require(name, options, option, "thread_store")
    check_stride(name, options)
