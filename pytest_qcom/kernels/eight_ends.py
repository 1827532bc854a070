"""What stands around the loops of the published 8-row FP16 GEMMs: stores, and registers of both ends."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_qcom.kernels.eight_rows import ROWS, Published
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.published_stores import Single, ThreadMajor
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Epilogue
from pytest_qcom.kernels.stores import Constant, ImageStore, NoStore, RowMajor, Stepped

_WITHIN_REACH = 2
"""Columns whose accumulators a store can read where they are."""


def epilogue(options: Published, waits: str = "written") -> Epilogue:
    """The store of a published kernel; with every wait ours where the notes' loses lanes or carries."""
    store: Epilogue = RowMajor(staging="broadcast") if waits == "written" else RowMajor()
    if options.no_store or options.profile:
        return NoStore()
    if options.image_store:
        store = ImageStore(gap=options.image_store_gap)
    elif options.thread_store:
        tile = Tile(ROWS, options.ncols, options.threads, options.swap_grid)
        store = ThreadMajor(tile.groups("thread-store", options.m, options.n)[0])
    elif options.donor4_store and options.ncols <= _WITHIN_REACH and waits == "written":
        store = Single(spaced=False)
    elif options.donor8_add256_store and waits == "written":
        store = Stepped(
            options.add256_store_mode,
            options.add256_gap,
            options.add256_direct_sources,
            options.add256_offset_before_gap,
        )
    if options.post_sequence:
        return Constant(store, counted=True)
    return Constant(store) if options.post_constant else store


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


def ends(plan: RegisterPlan, image: bool = False) -> RegisterPlan:
    """The plan with what prologue and store need over everything that is dead there."""
    dead = tuple(block.name for block in plan.blocks if block.name != "acc")
    held = tuple(name for name in dead if name not in ("row", "col"))
    plan = plan.place("scratch", "r1.x", 4, over=held)
    dead, held = (*dead, "scratch"), (*held, "scratch")
    if image:
        return plan.place("at", "r4.x", 2, over=held).place("texels", "r0.x", 4, over=held)
    plan = plan.place("addresses", "r4.x", 2 * ROWS, over=dead)
    plan = plan.place("carries", "r2.x", ROWS, over=dead).place("stage", "hr0.x", 4 * ROWS, over=dead)
    plan = plan.place("offsets", "r0.y", 2, over=dead).place("step", "r0.x", 1, over=dead)
    return plan.place("carry", "r2.z", 2, over=(*dead, "carries"))
