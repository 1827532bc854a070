"""Where the split-A schedules of the published 8-row GEMMs have their values."""

from __future__ import annotations

from pytest_qcom.kernels.eight_ends import ends
from pytest_qcom.kernels.eight_rows import LOWER, ROWS, UPPER, Published
from pytest_qcom.kernels.registers import RegisterPlan

SETS = (
    "split_low_pairs",
    "split_separate_coords",
    "split_low_stable_coords",
    "split_safe_coords",
    "split_high_inputs",
)
"""Options that give each sample of a load a pair."""
HIGH_PAIRS = ("split_high_pair_a", "split_high_pair_b", "split_high_pair_coords")
"""Options that put such pairs into r10 and r11."""
_SINGLE_TEXEL = ("split_row_stream", "split_phase_stream")
_OWN_LOWER = ("split_buffer_a", "split_preload_a8", "split_one_sync_tile", "split_stream_b_a8")


def plan(options: Published) -> RegisterPlan:
    """Registers of 8x8.

    Raises:
        KernelError: options that put two values in one place.
    """
    found = _state(_texels(RegisterPlan(merged=options.mergedregs), options), options)
    if options.split_fast_coords:
        found = found.place("right", "r19.x" if options.split_safe_coords else "r6.w", 1)
    if options.split_hoist_b0_coord:
        found = found.place("hoisted", "r8.x", 2)
    if options.split_base_b_y:
        found = found.place("base", "r5.y", 1)
    if options.grouped_b or options.grouped_b_cols or options.split_pair_b_coords:
        found = found.place("b_pairs0", "r4.x", 8, over=("pair",))
    if options.grouped_b or options.grouped_b_cols:
        found = found.place("b_pairs1", "r8.x", 8)
    if options.split_quad_a:
        quad = str(found["a0"].first.num // 8)
        found = found.place("lane", "r8.x", 1, over=("hoisted", "b_pairs1"))
        found = found.place("indices", "r9.x", 4, over=("b_pairs1",))
        found = found.place("quad", f"r{quad}.x", 8, over=("pair", "next"))
    return ends(_sets(found, options), options.image_store)


def _texels(found: RegisterPlan, options: Published) -> RegisterPlan:
    b, a, acc = 0, 8, 12
    if options.split_low_a:
        b, a = 4, 0
    elif options.split_high_a:
        a, acc = 24, 8
    elif options.split_high_inputs:
        b, a, acc = 36, 44, 20
    own_lower = any(getattr(options, option) for option in _OWN_LOWER)
    single = any(getattr(options, option) for option in _SINGLE_TEXEL)
    if options.split_reuse_b:
        a, acc = 4, 8
    elif options.split_row_stream:
        acc = 9
    elif options.split_mid_acc:
        acc = 20
    elif own_lower and not options.split_high_a and not options.split_high_inputs:
        acc = 16
    if options.split_stream_b_a8:
        found = found.place("b", "hr0.x", 8)
    else:
        for slot in range(1 if options.split_reuse_b else 2):
            found = found.place(f"b{slot}", f"hr{b + 4 * slot}.x", 16)
    lower = 12 if options.split_low_a else a + 4
    for row in UPPER:
        over = ("a0",) if single and row else ()
        found = found.place(
            f"a{row}", f"hr{a if single else a + row}.x", 4, over=(*over, *_before(row, single))
        )
    for row in LOWER:
        if own_lower:
            found = found.place(f"a{row}", f"hr{lower + row - 4}.x", 4)
        else:
            at = a if single else a + row - 4
            found = found.place(f"a{row}", f"hr{at}.x", 4, over=(f"a{row - 4}", *_before(row, single)))
    return found.place("acc", f"hr{acc}.x", 8 * ROWS)


def _before(row: int, single: bool) -> tuple[str, ...]:
    """The rows whose texel a row takes where all have one."""
    return tuple(f"a{other}" for other in range(row)) if single else ()


def _state(found: RegisterPlan, options: Published) -> RegisterPlan:
    """Counters, place and pair where the notes have them."""
    places = {"ky": "r6.y", "k4": "r6.z", "row": "r7.x", "col": "r7.y", "next": "r0.x"}
    pair = "r4.y"
    if options.split_safe_coords and options.ncols < 4:
        places = {"ky": "r18.y", "k4": "r18.x", "row": "r18.z", "col": "r18.w", "next": "r19.y"}
    elif options.split_separate_coords:
        places["next"] = "r4.x"
    if options.split_single_high_coord:
        pair = "r14.x"
    for name, at in places.items():
        found = found.place(name, at, 1)
    return found.place("pair", pair, 2)


def high_pairs_shared(options: Published) -> bool:
    """Whether A and B take turns in the pairs of r10 and r11."""
    both = options.split_high_pair_a and options.split_high_pair_b and not options.split_low_pairs
    return options.split_high_pair_coords or both


def _sets(found: RegisterPlan, options: Published) -> RegisterPlan:
    """Sets of four pairs, over the one pair where the notes have them there."""
    sets: dict[str, int] = {}
    if options.split_separate_coords:
        sets = {"b_set0": 0, "a_set0": 14 if options.split_triple_coords else 2}
        if options.split_triple_coords:
            sets["b_set1"] = 2
        if options.split_dual_a_coords:
            sets["a_set1"] = 16
    elif options.split_low_pairs:
        sets = {"b_set0": 4, "a_set0": 8}
        if options.split_high_a:
            del sets["a_set0"]
    elif options.split_low_stable_coords:
        sets = {"b_set0": 8}
    elif options.split_safe_coords:
        sets = {"b_set0": 20, "a_set0": 16}
    elif options.split_high_inputs:
        sets = {"a_set0": 8}
        found = found.place("b_set0", "r4.y", 8, over=("pair",))
    if high_pairs_shared(options):
        sets = {"b_set0": 10}
    elif options.split_high_pair_b:
        sets["b_set1" if options.split_low_pairs else "b_set0"] = 10
    if options.split_high_pair_a and not high_pairs_shared(options):
        sets["a_set0"] = 10
    for name, at in sets.items():
        found = found.place(name, f"r{at}.x", 8, over=("pair", "next", "b_set1"))
    return found


def wide_plan(options: Published) -> RegisterPlan:
    """Registers of 8x16."""
    found = RegisterPlan(merged=options.mergedregs).place("b0", "hr0.x", 16).place("b1", "hr4.x", 16)
    for row in range(ROWS):
        found = found.place(f"a{row}", f"hr{8 + row}.x", 4)
    found = _state(found.place("acc", "hr16.x", 16 * ROWS), options)
    if options.split_fast_coords:
        found = found.place("right", "r6.w", 1)
    if options.split_hoist_b0_coord:
        found = found.place("hoisted", "r8.x", 2)
    if options.split_safe_coords:
        found = found.place("b_set0", "r24.x", 8).place("a_set0", "r26.x", 2 * ROWS)
    return ends(found, options.image_store)
