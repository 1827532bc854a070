"""Where the published 4-row FP16 GEMMs have their values."""

from __future__ import annotations

from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.four_rows import ROWS, Published
from pytest_qcom.kernels.four_rows_order import coordinates
from pytest_qcom.kernels.registers import RegisterPlan

_KEPT = ("acc", "row", "col", "part", "saved")
"""What the store still reads when it begins."""


def plan(options: Published) -> RegisterPlan:
    """Where the notes have their values.

    Raises:
        KernelError: two of them in one place.
    """
    found = _state(_texels(RegisterPlan(merged=options.mergedregs), options), options)
    dead = tuple(block.name for block in found.blocks)
    found = found.place("scratch", "r3.x" if options.preserve_coords else "r2.x", 4, over=dead)
    if options.store_row_base:
        found = found.place("raised", "r6.w", 1, over=tuple(name for name in dead if name not in _KEPT))
    dead = tuple(name for name in (*dead, "scratch", "raised") if name not in ("acc", "part", "saved"))
    if options.image_store:
        at, texels = ("r29.x", "r28.x") if options.high_store else ("r4.x", "r0.x")
        if options.isolated:
            at, texels = "r21.x", "r22.x"
        return found.place("at", at, 2, over=dead).place("texels", texels, 4, over=dead)
    low = "r3.x" if options.preserve_coords else "r2.x"  # there row and column stand in r2
    free = dead if not options.preserve_coords else tuple(name for name in dead if name not in ("row", "col"))
    if options.safe_store or options.hybrid_store:
        free = tuple(name for name in dead if name not in ("row", "col"))
    found = found.place("addresses", low, 2 * ROWS, over=free)
    found = found.place("carries", "r5.x" if options.preserve_coords else "r4.x", ROWS, over=free)
    return found.place("offsets", "r6.z", 2, over=free).place(
        "stage", "hr16.x" if options.isolated else "hr0.x", 4 * ROWS, over=dead
    )


def _texels(found: RegisterPlan, options: Published) -> RegisterPlan:
    """Half registers: a texel of each row of A, texels of B, accumulators."""
    slots = min(options.ncols, 1 if options.serial_b_cols or options.single_cols_all else 2)
    a: tuple[int, ...] = (3, 2, 1, 0)
    b = [4 + 4 * slot for slot in range(slots)]
    acc = 12 if options.compact_acc else 16
    if options.preload_b:
        b, acc = [4 + 4 * slot for slot in range(options.ncols)], 20
    elif options.high_inputs:
        top = 43 if options.low_a_coords else 47
        a, b = tuple(top - row for row in range(ROWS)), [top - 7, top - 11][:slots]
        acc = 16 if options.low_a_coords else 20
    elif options.high_a_only:
        a, b, acc = (16, 17, 18, 19), [8, 0][:slots], 20
    elif options.isolated:
        a, b, acc = (16, 17, 18, 19), [20, 24][:slots], 0
    elif options.pipeline:
        a, b, acc = (0, 1, 2, 3), [4, 8, 12, 16], 24
    elif options.preserve_coords:
        a = (3, 3, 1, 0)
    for row, vec in enumerate(a):
        found = found.place(f"a{row}", f"hr{vec}.x", 4, over=("a0",) if a.index(vec) < row else ())
    if options.pipeline:
        for row in range(ROWS):
            found = found.place(f"a{row}.1", f"hr{20 + row}.x", 4)
    if options.b_kk_pipeline:
        found = found.place("b", "hr4.x", 32)
    for slot, vec in enumerate(b if not options.b_kk_pipeline else ()):
        found = found.place(f"b{slot}", f"hr{vec}.x", 16)
    size = 16 * options.ncols * (1 if options.direct else 4)
    return found.place("acc", f"hr{options.acc_hr or acc}.x", size)


def _state(found: RegisterPlan, options: Published) -> RegisterPlan:
    """Full registers: pairs, counters, place."""
    if options.isolated:
        return _isolated(found, options)
    kept = coordinates(options).stable_ay
    low = options.low_a_coords and kept
    a_pairs = "r2.x" if low else "r8.x" if kept or options.preserve_coords else "r2.y"
    row, col = ("r2.x", "r2.y") if options.preserve_coords else ("r7.x", "r7.y")
    found = found.place("row", row, 1).place("col", col, 1)
    found = found.place("ky", "r6.y", 1).place("k4", "r6.z", 1)
    found = _b_pairs(found, options, low)
    if "a_pairs" not in found:
        found = found.place("a_pairs", a_pairs, 2 * ROWS)
    if options.dynamic_split_k > 1:
        found = found.place("part", "r19.x", 1).place("count", "r6.w", 1)
    if options.save_output_coords:
        found = found.place_free("saved", ("r10.x", "r18.x"), 2)
    if options.safe_b_y:
        found = found.place("odd_copies", "r14.x", 5)
    if options.quad_a:
        found = _quad(found, low)
    if not options.persistent_coords:
        dead = tuple(
            block.name for block in found.blocks if block.name.startswith(("pairs", "later", "zero", "quad"))
        )
        found = found.place("next", _next(options), 1, over=dead)
    return found


def _isolated(found: RegisterPlan, options: Published) -> RegisterPlan:
    for name, at in (("row", "r14.x"), ("col", "r14.y"), ("k4", "r14.z"), ("ky", "r14.w")):
        found = found.place(name, at, 1)
    found = _blocks(found.place("a_pairs", "r15.x", 2 * ROWS), 17, min(options.ncols, 2))
    found = found.place_free("next", ("r0.x", "r21.z"), 1)  # in one file the accumulators are in r0
    if options.dynamic_split_k > 1:
        found = found.place("part", "r21.x", 1).place("count", "r21.y", 1)
    found = _quad(found, low=False) if options.quad_a else found
    return found.place("odd_copies", "r22.x", 5) if options.safe_b_y else found


def _quad(found: RegisterPlan, low: bool) -> RegisterPlan:
    """What hands A around: full registers over its texels, as merged files have them, whatever they hold."""
    texels = min(found[f"a{row}"].first.num for row in range(ROWS))
    found = found.place_free("lane", ("r6.w", "r12.x"), 1)
    found = found.place_free("zero", ("r10.x" if low else "r2.x", "r12.y"), 1)
    every = tuple(block.name for block in found.blocks)
    return found.place("quad", str(Reg(texels // 2)), 2 * ROWS, over=every)


def _next(options: Published) -> str:
    """The register of the loop control that nothing else has then."""
    if options.preserve_coords:
        return "r2.z"
    if options.grouped or options.pipeline or options.interleave_second_pair:
        return "r0.x"
    return "r2.x" if not options.low_a_coords else "r0.x" if not options.stable_bx else "r8.x"


def _b_pairs(found: RegisterPlan, options: Published, low: bool) -> RegisterPlan:
    if options.preload_b_safe_coords:
        return _blocks(found, 20, options.ncols)
    if options.persistent_b_coords or options.persistent_b_x:
        return _blocks(found, 10, options.ncols)
    if options.separate_b_coords or options.high_b_coords:
        return _blocks(found, 0 if options.separate_b_coords else 14, min(options.ncols, 2))
    if options.b_kk_pipeline:
        found = found.place("pairs0", "r4.y", 8)
        return (
            found.place("pairs1", "r8.x", 8) if not options.stable_ay else found.place("pairs1", "r10.x", 8)
        )
    found = found.place("even", "r4.y", 8).place("odd", "r7.z", 2)
    if options.interleave_second_pair:
        found = found.place("later", "r0.x", 16, over=("row", "col"))
        if not options.stable_ay:
            found = found.place("a_pairs", "r8.x", 2 * ROWS)
    if options.stable_bx:
        found = found.place("even2", "r0.x", 8)
        own = coordinates(options).stable_ay and not low  # else the odd column's pair takes x from a register
        found = found.place("odd2", "r3.w", 2) if own else found.place("x3", "r6.w", 1)
    return found


def _blocks(found: RegisterPlan, first: int, count: int) -> RegisterPlan:
    for index in range(count):
        found = found.place(f"pairs{index}", f"r{first + 2 * index}.x", 8)
    return found


def declared(options: Published, footprint: tuple[int, int]) -> tuple[int, int]:
    """(fregs, hregs) that the notes declare; at least what is used."""
    fregs = 8 if options.low_a_coords or not coordinates(options).stable_ay else 10
    if options.native_store or options.donor2_store or options.donor4_store:
        fregs = 28
    elif options.high_store:
        fregs = 30
    elif options.preload_b_safe_coords:
        fregs = 20 + 2 * options.ncols
    return options.fregs_override or max(fregs, footprint[0]), options.hregs_override or footprint[1]
