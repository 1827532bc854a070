"""The instructions that kernels are written in, over the assembler: one method a job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import COMPONENTS, Reg
from pytest_qcom.kernels.registers import Block

Source = Reg | str | int


def constant_name(number: int) -> str:
    """The constant file's scalar ``number``, as the assembler writes it: 81 is ``c20.y``."""
    return f"c{number // 4}.{COMPONENTS[number % 4]}"


class Writer:
    """Collects instructions. Registers are :class:`Reg`, names or, as sources, integer immediates."""

    def __init__(self) -> None:
        self._assembler = Assembler()
        self._count = 0
        self.exact: set[int] = set()
        """Instructions that are meant as they stand: no wait is to be added."""

    def __len__(self) -> int:
        return self._count

    def emit(self, mnemonic: str, *operands: Source, **flags: int | bool | str) -> None:
        """One instruction, operands in Mesa's order."""
        texts = [operand if isinstance(operand, int) else str(operand) for operand in operands]
        self._assembler.emit(mnemonic, *texts, **flags)
        self._count += 1

    def alu(self, mnemonic: str, dst: Reg | str, *srcs: Source, **flags: int | bool | str) -> None:
        """An ALU instruction."""
        self.emit(mnemonic, dst, *srcs, **flags)

    def mov(self, dst: Reg | str, src: Source, **flags: int | bool | str) -> None:
        """A full register copied from a full, shared or constant one, or set to an integer."""
        self.emit("mov.u32u32", dst, src, **flags)

    def zero(self, block: Block, value: int = 0, spread: bool = False) -> None:
        """Registers set to 0, or to another number, four an instruction.

        ``spread``: the first scalar of each four is set, and a repeated move of it fills the four.
        """
        mnemonic = "mov.u16u16" if block.first.half else "mov.u32u32"
        for start in range(0, block.size, 4) if spread else ():
            self.emit(mnemonic, block[start], value)
        for start in range(0, block.size, 4):
            source = block[start] if spread else value
            self.emit(mnemonic, block[start], source, rpt=min(4, block.size - start) - 1)

    def zero_from_first(self, block: Block) -> None:
        """Half registers set to 0 as the published kernels do it: by repeated moves of the very first one.

        Nothing waits for that one, so the rest of its vec4 gets what it held before.
        """
        with self.as_written():
            self.set_half(block[0], 0)
            self.emit("mov.u16u16", block[1], block[0], rpt=2)
            for start in range(4, block.size, 4):
                self.copy_half(block[start], block[0], repeated=False)

    def set_half(self, dst: Reg, bits: int) -> None:
        """A half register set to 16 bits."""
        self.emit("mov.u16u16", dst, bits)

    def copy_half(self, dst: Reg, src: Reg, repeated: bool = True) -> None:
        """A half vec4 copied; not ``repeated``, its first scalar goes into all four."""
        self.emit("mov.u16u16", dst, f"(r){src}" if repeated else src, rpt=3)

    def isam(
        self,
        dst: Reg,
        pair: Reg,
        texture: int,
        kind: str = "f16",
        sampler: int = 0,
        sy: bool = False,
        kept: bool = True,
    ) -> None:
        """A texel of ``texture``, as ``kind``, at the integer coordinates in ``pair``.

        Not ``kept``, it is sampled and dropped, which leaves it in the cache.
        """
        mask = 15 if kept else 0
        self.emit("isam.1d", dst, pair, type=kind, wrmask=mask, samp=sampler, tex=texture, sy=sy)

    def mad(self, acc: Reg, scalar: Reg, vector: Reg, scalar_first: bool = False, sy: bool = False) -> None:
        """``acc += scalar * vector``, four halves."""
        first, second = (str(scalar), f"(r){vector}") if scalar_first else (f"(r){vector}", str(scalar))
        self.emit("mad.f16", acc, first, second, f"(r){acc}", rpt=3, sy=sy)

    def store_half(self, address: Reg, data: Reg, offset: int) -> None:
        """Four halves to the 64-bit address in a register pair, ``offset`` bytes on."""
        self.emit("stg.f16", address, data, 4, offset=offset)

    def store_full(self, address: Reg, data: Reg, offset: int) -> None:
        """Four 32-bit words to the 64-bit address in a register pair, ``offset`` bytes on."""
        self.emit("stg.f32", address, data, 4, offset=offset)

    def store_texel(self, data: Reg, pair: Reg) -> None:
        """Four full registers to the texel of image 0 at the coordinates in ``pair``."""
        self.emit("stib.b.typed.2d.f32.4.imm", data, pair, 0)

    @contextlib.contextmanager
    def as_written(self) -> Iterator[None]:
        """What is written inside gets no waits that it does not state itself."""
        start = len(self)
        yield
        self.exact.update(range(start, len(self)))

    def label(self, name: str) -> None:
        """Names the place of the next instruction."""
        self._assembler.label(name)

    def branch(self, label: str) -> None:
        """To ``label`` where p0.x is not set."""
        self.emit("br", "!p0.x", label)

    def end(self) -> None:
        self.emit("end")

    def program(self) -> Program:
        """What was written."""
        return self._assembler.program()
