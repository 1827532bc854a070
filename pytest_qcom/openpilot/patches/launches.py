"""Patches of how the work of a program is divided into workgroups; compiled anew from its UOps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import lowered
from pytest_qcom.openpilot.graph import Call, Program
from pytest_qcom.openpilot.patch import Patch, in_place, single

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

Sizes = tuple[int, int, int]
FIBERS = 128
"""Of a workgroup that fills both halves of a shader processor's issue: two waves of 64."""


def divided(program: Program, local: Sizes) -> Program:
    """The program with workgroups of another size; fibers do what they did, in other workgroups.

    Raises:
        GraphError: fibers exchange values, or the size does not divide the work in whole old rows.
    """
    from tinygrad.uop.ops import Ops, UOp

    sink = lowered.body(program)
    if reason := against(program, local):
        raise GraphError(f"workgroups of {local} for {program.label}: {reason}; choose another size")

    def special(name: str, size: int) -> UOp:
        return UOp(Ops.SPECIAL, src=(lowered.number(size),), arg=name)

    def change(node: UOp, sources: tuple[UOp, ...]) -> UOp | None:
        if node.op is not Ops.SPECIAL:
            return None
        axis = int(node.arg[-1])
        old, new = program.local[axis], local[axis]
        rows = program.groups[axis] * old // new
        group, fiber = special(f"gidx{axis}", rows), special(f"lidx{axis}", new)
        if new == old:
            return group if node.arg.startswith("g") else fiber
        if node.arg.startswith("l"):
            return fiber.alu(Ops.AND, lowered.number(old - 1))
        return group * lowered.number(new // old) + fiber.alu(Ops.SHR, lowered.number(old.bit_length() - 1))

    return lowered.compiled(program, lowered.transformed(sink, change))


def against(program: Program, local: Sizes) -> str:
    """Why the work cannot be divided in that way; empty if it can."""
    if lowered.has_local_memory(lowered.body(program)):
        return "its fibers exchange values within a workgroup"
    for axis, (old, new) in enumerate(zip(program.local, local, strict=True)):
        if new != old and old & (old - 1):
            return f"its {old} fibers along axis {axis} are no power of two"
        if new % old or program.groups[axis] * old % new:
            return f"{new} fibers along axis {axis} are no whole number of its rows of {old}"
    return ""


def candidates(program: Program, fibers: int = 512) -> Iterator[Sizes]:
    """Sizes of workgroups into which the work of a program can be divided, its own among them."""
    choices = [
        [old * factor for factor in range(1, groups + 1) if groups % factor == 0]
        for old, groups in zip(program.local, program.groups, strict=True)
    ]
    for x in choices[0]:
        for y in choices[1]:
            for z in choices[2]:
                if x * y * z <= fibers and not against(program, (x, y, z)):
                    yield x, y, z


def _wider(program: Program) -> Sizes:
    """The size nearest to :data:`FIBERS` from below that grows along the first axes first."""
    return max(candidates(program, FIBERS), key=lambda size: (math.prod(size), size), default=program.local)


def _judge(call: Call, program: Program) -> tuple[dict[str, Any], Program] | str:
    if math.prod(program.local) >= FIBERS or math.prod(program.groups) == 1:
        return ""
    if reason := against(program, program.local):
        return reason
    size = _wider(program)
    if math.prod(size) <= math.prod(program.local):
        return "no multiple of its workgroups divides the work"
    return {"local": list(size)}, divided(program, size)


PATCHES = (
    Patch(
        name="geometry",
        summary="workgroups of less than two waves become larger ones, where fibers exchange nothing",
        find=single(_judge),
        rewrite=in_place(lambda call, program: program),
        models=("vision-mlp",),
        source="a workgroup of few fibers leaves issue slots empty and takes as long to start as a full one",
    ),
)
