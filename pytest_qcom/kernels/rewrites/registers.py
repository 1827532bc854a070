"""The registers of a matmul loop that is written anew."""

from __future__ import annotations

from pytest_qcom.isa.instruction import Operand
from pytest_qcom.isa.registers import FIRST_SHARED, Reg
from pytest_qcom.kernels.rewrites.accumulators import LANES, Matmul, temporaries
from pytest_qcom.kernels.rewrites.loop import Mismatch, Value, copies
from pytest_qcom.kernels.rewrites.schedule import Schedule

FILE = FIRST_SHARED
"""Scalars of the full register file."""


class Registers:
    """Where a written loop has what it works on; whatever it needs besides is taken from what is free.

    Attributes:
        order: the samples of a step that products use.
        acc, parts: the accumulators, and what products are added to, which are the same without blocks.
        promoted: the sums of a block in float32.
        texels, pairs: of each sample its result and its coordinates, whose places may be the same.
    """

    def __init__(self, matmul: Matmul, schedule: Schedule) -> None:
        self._matmul, self._schedule = matmul, schedule
        taken = {reg.num for reg in matmul.invariants if not reg.shared} | {matmul.counter.num}
        self._free = [number not in taken for number in range(FILE)]
        self._free_half = [True] * FILE
        self.acc = [self._place(vector.registers) for vector in matmul.vectors]
        self.parts = [self.block(LANES, half=True) for _ in matmul.vectors] if schedule.block else self.acc
        order = _used(matmul)
        self.order = list(order)
        if schedule.b_last:
            first = matmul.vectors[0].products[0].scalar[0]
            self.order.remove(first)
            self.order.append(first)
            if schedule.b_low:
                order = [first, *self.order[:-1]]
        self.texels = {number: self.block(LANES, schedule.half) for number in order}
        self.pairs = dict(self.texels)
        if schedule.half or schedule.incoords:
            self.pairs = {number: self.block(2) for number in order}
        self.promoted = [self.block(LANES) for _ in matmul.vectors] if schedule.block else []
        if not (schedule.half or schedule.incoords):
            self._own_pairs()

    def _place(self, registers: tuple[Reg, ...]) -> Reg:
        """Four consecutive registers for a vector: where its lanes stand, if they do so in a row."""
        first = registers[0]
        numbers = range(first.num, first.num + LANES)
        if self._schedule.half and not self._schedule.block:
            return self.block(LANES, half=True)
        if [reg.num for reg in registers] == list(numbers) and all(self._free[number] for number in numbers):
            for number in numbers:
                self._free[number] = False
            return first
        return self.block(LANES)

    def block(self, size: int, half: bool = False) -> Reg:
        """The lowest free registers in a row; they are taken."""
        free = self._free_half if half else self._free
        for start in range(FILE - size + 1):
            if all(free[start : start + size]):
                free[start : start + size] = [False] * size
                return Reg(start, half)
        raise Mismatch("the loop needs more registers than there are")

    def free(self) -> list[int]:
        """The full scalars that nothing has."""
        return [number for number in range(FILE) if self._free[number]]

    def _own_pairs(self) -> None:
        """Pairs for samples with a constant half, as long as they and the temporaries fit the registers."""
        samples = self._matmul.found.samples
        places = {value for number in self.order for value in samples[number].srcs}
        spare = 1 + sum(value not in places for value in temporaries(self._matmul))
        limit = LANES * self._schedule.registers
        for number in self.order:
            room = [at for at in range(limit) if self._free[at]]
            starts = [at for at in room if at + 1 in room]
            if any(map(self.constant, samples[number].srcs)) and starts and len(room) - 2 >= spare:
                self.pairs[number] = Reg(starts[0])
                self._free[starts[0]] = self._free[starts[0] + 1] = False

    def constant(self, value: Value | Operand) -> bool:
        """Whether it is the same in every pass and at hand: a register that stays, or a move from outside."""
        assert isinstance(value, Value)
        if value.entry is not None:
            return value.entry in self._matmul.invariants
        return value.instr is not None and copies(value.instr)

    def hoisted(self, number: int, axis: int) -> bool:
        """Whether a half of a sample's pair is written before the loop."""
        own = self.pairs[number] != self.texels[number]
        return own and self.constant(self._matmul.found.samples[number].srcs[axis])


def _used(matmul: Matmul) -> list[int]:
    """The samples that products use, in the order in which they do: scalars of a step, then its vector."""
    found: dict[int, None] = {}
    for step in range(max(len(vector.products) for vector in matmul.vectors)):
        products = [vector.products[step] for vector in matmul.vectors if step < len(vector.products)]
        found.update(dict.fromkeys(product.scalar[0] for product in products))
        found.update(dict.fromkeys(product.vector for product in products))
    return list(found)
