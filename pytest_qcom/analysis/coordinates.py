"""Coordinates outside an image, where the launch is known: two waves are followed from start to end.

These are the first wave of the first and of the last workgroup, where products and convolutions leave their
images. Only what steers a wave is computed, see :mod:`.trace`; a value that was loaded is not known, nor is
what follows from it. A path that depends on such a value ends there, and so does one that is long.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_qcom.analysis import findings
from pytest_qcom.analysis.context import Context
from pytest_qcom.analysis.findings import Finding
from pytest_qcom.analysis.graph import flow
from pytest_qcom.analysis.occupancy import wave_fibers
from pytest_qcom.analysis.trace import Steering, launched, steering, taken
from pytest_qcom.isa.access import reads, writes
from pytest_qcom.isa.instruction import Atomic, Flow, Instr, Kind, Load, Sample, Space, Store
from pytest_qcom.isa.reference import execute
from pytest_qcom.isa.registers import Reg

Extent = tuple[int, int]
"""Width and height of an image in texels."""
_STEPS = 40_000  # instructions of a path: about a second


def coordinates(
    context: Context, launch: Steering, textures: Sequence[Extent], images: Sequence[Extent]
) -> list[Finding]:
    """The first access of each instruction that lies outside its image.

    Args:
        textures, images: of the slots that are bound, in their order.
    """
    if not any(_extent(instr, textures, images) for instr in context.program.instrs):
        return []
    last = tuple(count - 1 for count in launch.groups)
    found: dict[int, Finding] = {}
    for group in dict.fromkeys(((0, 0, 0), (last[0], last[1], last[2]))):
        _Walk(context, launch, group, textures, images, found).run()
    return list(found.values())


class _Walk:
    """One wave; what is outside goes into ``found``, once an instruction."""

    def __init__(
        self,
        context: Context,
        launch: Steering,
        group: tuple[int, int, int],
        textures: Sequence[Extent],
        images: Sequence[Extent],
        found: dict[int, Finding],
    ) -> None:
        self.context, self.group, self.found = context, group, found
        self.textures, self.images = textures, images
        fibers = wave_fibers(launch.thread128)
        x, y, z = launch.local_size
        self.active = min(fibers, x * y * z)
        self.registers = launched(launch, fibers, group)
        self.needed = steering(context.program)
        self.unknown: set[Reg] = set()
        self.writers: dict[Reg, int] = {}

    def run(self) -> None:
        program, index = self.context.program, 0
        for _ in range(_STEPS):
            instr = program.instrs[index]
            kind = flow(instr)
            if kind is Flow.END or (kind is not Flow.NEXT and self._blind(instr)):
                return
            if kind is Flow.NEXT:
                self._step(index, instr)
                index += 1
            else:
                index = program.target(index) if taken(instr, kind, self.registers) else index + 1

    def _blind(self, instr: Instr) -> bool:
        """Whether an instruction reads what is not known."""
        return bool(self.unknown) and any(access.reg in self.unknown for access in reads(instr))

    def _step(self, index: int, instr: Instr) -> None:
        effect = instr.op.effect
        if index not in self.found:
            self._look(index, instr)
        if isinstance(effect, Sample | Load | Atomic) or instr.op.compute is None:
            self.unknown.update(access.reg for access in writes(instr))
        elif index in self.needed:
            blind = self._blind(instr)
            execute(instr, self.registers)
            written = {access.reg for access in writes(instr)}
            self.writers.update(dict.fromkeys(written, index))
            self.unknown = self.unknown | written if blind else self.unknown - written

    def _look(self, index: int, instr: Instr) -> None:
        extent = _extent(instr, self.textures, self.images)
        pair = instr.srcs[0] if instr.srcs else None
        if extent is None or pair is None or pair.kind is not Kind.GPR:
            return
        registers = [Reg(pair.value + axis, pair.half) for axis in range(2)]
        if not self.unknown.isdisjoint(registers):
            return
        file = self.registers.half if pair.half else self.registers.full
        x, y = (file[reg.num, : self.active].astype(np.uint32).astype(np.int32) for reg in registers)
        for reg, axis, size in zip(registers, (x, y), extent, strict=True):
            outside = np.flatnonzero((axis < 0) | (axis >= size))
            if len(outside):
                fiber = int(outside[0])
                place = f"({x[fiber]}, {y[fiber]})"
                self.found[index] = self._finding(index, instr, reg, place, fiber, extent)
                return

    def _finding(self, index: int, instr: Instr, reg: Reg, place: str, fiber: int, extent: Extent) -> Finding:
        result = "writes nothing" if isinstance(instr.op.effect, Store) else "reads zeros"
        return self.context.finding(
            findings.OUTSIDE_IMAGE,
            index,
            f"{result} at {place} of an image of {extent[0]} by {extent[1]} texels, in fiber {fiber} "
            f"of workgroup {self.group}",
            "coordinates within the image, or a larger image",
            producer=self.writers.get(reg),
            register=str(reg),
        )


def _extent(instr: Instr, textures: Sequence[Extent], images: Sequence[Extent]) -> Extent | None:
    """Of the image that an instruction accesses by x and y; ``None`` where that is not known."""
    effect = instr.op.effect
    if isinstance(effect, Sample):
        plain = not (effect.filtered or any(instr.get(word) for word in ("s2en", "3d", "array", "o")))
        return textures[instr["tex"]] if plain and instr["tex"] < len(textures) else None
    if isinstance(effect, Load | Store) and effect.space is Space.IMAGE:
        plain = not (instr.get("mode") or instr.get("bindless")) and instr.get("dims") == 2
        return images[instr["slot"]] if plain and instr["slot"] < len(images) else None
    return None
