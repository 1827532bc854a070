"""Register plans: which name lives in which registers, as data that is checked.

A schedule names its registers; the plan says where they are, refuses two names in one place, and knows the
footprint that the launch must declare. Blocks may share registers only where the plan says so, by naming the
block whose lifetime has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg

FILE_SCALARS = 4 * 48
"""Scalars of either register file: r0 to r47, hr0 to hr47."""


@dataclass(frozen=True, slots=True)
class Block:
    """``size`` consecutive scalar registers with a name. ``block[i]`` is scalar ``i``."""

    name: str
    first: Reg
    size: int

    def __getitem__(self, index: int) -> Reg:
        if not 0 <= index < self.size:
            raise KernelError(f"register block {self.name!r} has {self.size} scalars; {index} is asked for")
        return self.first + index

    def __iter__(self) -> Iterator[Reg]:
        return (self.first + index for index in range(self.size))

    def vec(self, index: int) -> Reg:
        """The first scalar of the block's vec4 number ``index``."""
        return self[4 * index]

    def storage(self, merged: bool) -> range:
        """Half-register units that the block occupies; in split mode the files are 4096 units apart."""
        width = 1 if self.first.half else 2
        start = self.first.num * width + (0 if merged or self.first.half else 4096)
        return range(start, start + self.size * width)


@dataclass(frozen=True, slots=True)
class RegisterPlan:
    """Named blocks of registers, none over another.

    ``merged``: half registers ``hr(2k)``, ``hr(2k+1)`` are the halves of full scalar ``k``, so full and half
    blocks can collide; otherwise they are separate files.
    """

    blocks: tuple[Block, ...] = ()
    merged: bool = False

    def place(self, name: str, at: str, size: int, over: tuple[str, ...] = ()) -> RegisterPlan:
        """The plan with ``size`` scalars called ``name`` from register ``at``.

        ``over``: blocks whose lifetime does not meet this one's, so that they may share registers.

        Raises:
            KernelError: the name is taken, the block leaves the file or overlaps another.
        """
        block = Block(name, Reg.parse(at), size)
        end = block.first.num + size
        if size < 1 or end > FILE_SCALARS:
            raise KernelError(
                f"registers {name!r}: {size} scalars from {at}; a file ends at index 47",
                problem=f"{name!r} ends beyond index 47 of a file",
            )
        taken = set(block.storage(self.merged))
        for other in self.blocks:
            if other.name == name:
                raise KernelError(f"registers {name!r} are placed twice, at {other.first} and {at}")
            if other.name not in over and taken.intersection(other.storage(self.merged)):
                raise KernelError(
                    f"registers {name!r} ({at}, {size} scalars) overlap {other.name!r} ({other.first}, "
                    f"{other.size} scalars){' in merged mode' if self.merged else ''}; move one of them",
                    problem=f"{other.name!r} and {name!r} are in the same registers",
                )
        return RegisterPlan((*self.blocks, block), self.merged)

    def allocate(self, name: str, size: int, half: bool = False) -> RegisterPlan:
        """The plan with ``size`` scalars called ``name`` at the lowest free vec4 of the file.

        Raises:
            KernelError: the name is taken or nothing is free.
        """
        used = {unit for block in self.blocks for unit in block.storage(self.merged)}
        for start in range(0, FILE_SCALARS - size + 1, 4):
            block = Block(name, Reg(start, half), size)
            if not used.intersection(block.storage(self.merged)):
                return self.place(name, str(block.first), size)
        kind = "half" if half else "full"
        raise KernelError(f"registers {name!r}: no {size} free {kind} scalars; use a smaller tile")

    def place_free(self, name: str, places: Sequence[str], size: int) -> RegisterPlan:
        """The plan with ``size`` scalars called ``name`` at the first of ``places`` that is free.

        Where none is, at the lowest free vec4 of the file of the first of them.

        Raises:
            KernelError: the name is taken or nothing is free.
        """
        used = {unit for block in self.blocks for unit in block.storage(self.merged)}
        for at in places:
            if not used.intersection(Block(name, Reg.parse(at), size).storage(self.merged)):
                return self.place(name, at, size)
        return self.allocate(name, size, Reg.parse(places[0]).half)

    def __getitem__(self, name: str) -> Block:
        for block in self.blocks:
            if block.name == name:
                return block
        known = ", ".join(sorted(block.name for block in self.blocks)) or "none"
        raise KernelError(f"register plan has no {name!r}; it has {known}")

    def __contains__(self, name: str) -> bool:
        return any(block.name == name for block in self.blocks)

    def footprint(self) -> tuple[int, int]:
        """(fregs, hregs): the vec4 of each file that a launch must declare; of one file, fregs cover all.

        Source: Mesa ``ir3.c``, ``collect_reg_info``: with ``mergedregs`` half registers count as full ones.
        """
        ends = {True: 0, False: 0}
        for block in self.blocks:
            ends[block.first.half] = max(ends[block.first.half], block.first.num + block.size)
        fregs, hregs = -(-ends[False] // 4), -(-ends[True] // 4)
        return max(fregs, -(-hregs // 2)) if self.merged else fregs, hregs
