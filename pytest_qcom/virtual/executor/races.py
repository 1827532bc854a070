"""Races between workgroups: which of them wrote, read or changed each piece of memory last.

Workgroups of a launch run in any order, so that what one of them writes must not be what another one reads or
writes in the same launch. A program is translated a second time with a call before each access of global
memory and of images; the launch then runs on one thread, workgroup after workgroup, and each access looks up
what the workgroups before it did there. Atomic accesses do not race with each other.

Accesses are told apart by pieces as large as the smallest type that the program accesses. Reads beside a
write of the same launch are a race however far apart they are: nothing orders workgroups.
"""

from __future__ import annotations

import mmap

import numpy as np

from pytest_qcom.errors import RaceError
from pytest_qcom.isa.instruction import Load, Space, Store
from pytest_qcom.isa.program import Program
from pytest_qcom.virtual.dispatch import Dispatch
from pytest_qcom.virtual.executor.failures import group_of, instruction
from pytest_qcom.virtual.executor.launch import Launch, Mapped
from pytest_qcom.virtual.executor.race_ops import ENTRY, PC_BITS, SLOTS

_VERBS = ("reads", "writes", "changes")


class Watch:
    """Shadow memory for one launch; to be made before it runs and asked after it."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        shift = _unit(launch.dispatch).bit_length() - 1
        ranges = launch.kept[2]
        sizes = [((int(end) - int(start)) >> shift) + 2 for start, end in ranges]
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        self._shadows = [mmap.mmap(-1, size * ENTRY, flags=flags) for size in sizes]
        views = [np.frombuffer(shadow, np.uint8) for shadow in self._shadows]
        self._kept = views, np.array([view.ctypes.data for view in views] or [0], np.uint64)
        job = launch.job
        job.shadows, job.shadow_shift = self._kept[1].ctypes.data, shift

    def error(self, memory: Mapped) -> RaceError | None:
        """The first race of the launch, if there was one."""
        job = self.launch.job
        if not job.races:
            return None
        now, before = _split(job.race_now), _split(job.race_before)
        address, kind, slot = job.race_address, job.race_kinds & 0xFF, job.race_kinds >> 8
        dispatch = self.launch.dispatch
        (group, pc), (other, other_pc) = now, before
        place, other_place = group_of(dispatch, group), group_of(dispatch, other)
        return RaceError(
            f"race at {address:#x}, {memory.describe(address)}: {instruction(dispatch, pc)} of workgroup "
            f"{place} {_VERBS[kind]} what {instruction(dispatch, other_pc)} of workgroup {other_place} "
            f"{SLOTS[slot]} in the same launch ({job.races} such accesses in all); nothing orders "
            "workgroups: let each have memory of its own, use atomics, or two launches",
            address=address,
            pcs=(other_pc, pc),
            groups=(other_place, place),
            count=job.races,
        )


def _split(word: int) -> tuple[int, int]:
    return (word >> PC_BITS) - 1, word & (1 << PC_BITS) - 1


def _unit(dispatch: Dispatch) -> int:
    """Bytes of the smallest type that a program accesses in global memory or images, at most 4."""
    least = 4
    for instr in Program.decode(dispatch.code).instrs:
        effect = instr.op.effect
        if not isinstance(effect, Load | Store):
            continue  # atomics change words of four or eight bytes, textures are only read
        if effect.space in (Space.GLOBAL, Space.IMAGE) and not instr.get("typed"):
            least = min(least, instr.type.bits // 8)
        elif effect.space is Space.IMAGE:
            bound = (*dispatch.images, *(image for found in dispatch.sets if found for image in found.images))
            least = min([least, *(image.format.texel_bytes for image in bound if image)])
    return least
