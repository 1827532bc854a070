"""The register file, and what CP_LOAD_STATE6 brought in for the next launch."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pytest_qcom.chip import A630
from pytest_qcom.errors import GpuFault
from pytest_qcom.virtual import registers as regs
from pytest_qcom.virtual.dispatch import Image
from pytest_qcom.virtual.findings import Finding, Findings
from pytest_qcom.virtual.memory import Memory

_VEC4 = 16
_CONSTANT_BYTES = A630.memories.constant_vec4.value * _VEC4


class Block(enum.Enum):
    """What CP_LOAD_STATE6 can load for compute: (STATE_BLOCK, STATE_TYPE)."""

    SAMPLERS = (0x5, 0)  # SB6_CS_TEX
    TEXTURES = (0x5, 1)
    SHADER = (0xD, 0)  # SB6_CS_SHADER
    CONSTANTS = (0xD, 1)
    UBOS = (0xD, 2)
    UAVS = (0xD, 3)


@dataclass(slots=True)
class _Load:
    """A pending load: where from, how many units, behind which unit."""

    address: int
    offset: int
    units: int


class State:
    """The register file and the loads that belong to the next launch."""

    def __init__(self, memory: Memory, findings: Findings) -> None:
        self.memory = memory
        self.findings = findings
        self.constants = bytearray(_CONSTANT_BYTES)
        self.constant_vec4 = 0  # loaded since the last reset
        self.loads: dict[Block, _Load] = {}
        self.images: dict[tuple[str, tuple[int, ...]], Image] = {}  # descriptors decoded before
        self.reports: dict[tuple[int, ...], list[Finding]] = {}  # register values reported on before
        self._values: dict[int, int] = {}
        self._fresh: set[int] = set()  # registers written since the last launch

    def get(self, address: int) -> int:
        """The register at ``address``; 0 if it was never written."""
        return self._values.get(address, 0)

    def word(self, word: regs.Word) -> int:
        """The value of a register."""
        return self._values.get(word.address, 0)

    def field(self, word: regs.Word, field: str) -> int:
        """The value of a field, with its shift undone."""
        return word.get(self._values.get(word.address, 0), field)

    def address(self, word: regs.Word) -> int:
        """The 64-bit value of a register and the one behind it."""
        return self.get(word.address) | self.get(word.address + 1) << 32

    def write(self, word: regs.Word, value: int) -> None:
        """Writes a register; reports bits that it does not have, and a value that was never used."""
        if value & ~word.defined:
            why = f"sets undefined bits {value & ~word.defined:#x}"
            self.findings.add(Finding(word.name, "undefined", value, None, why))
        old = self._values.get(word.address, 0)
        if word.address in self._fresh and old != value and not word.trigger:
            why = "is overwritten before the launch that it was for"
            self.findings.add(Finding(word.name, "dead write", old, value, why, harmless=True))
        self._fresh.add(word.address)
        self._values[word.address] = value
        if word is regs.SP_UPDATE_CNTL:
            self._reset_loads(value)

    def _reset_loads(self, value: int) -> None:
        """SP_UPDATE_CNTL drops what CP_LOAD_STATE6 brought in, by kind."""
        if regs.SP_UPDATE_CNTL.get(value, "CS_STATE"):
            self.constant_vec4 = 0
            for block in (Block.SAMPLERS, Block.TEXTURES, Block.SHADER, Block.CONSTANTS, Block.UBOS):
                self.loads.pop(block, None)
        if regs.SP_UPDATE_CNTL.get(value, "CS_UAV"):
            self.loads.pop(Block.UAVS, None)

    def load(self, block: Block, address: int, offset: int, units: int) -> None:
        """A CP_LOAD_STATE6 from memory of ``units`` units, behind ``offset`` units.

        Raises:
            GpuFault: nothing is mapped at ``address``, or the constant file is too small.
        """
        self.memory.check(address, 1, f"CP_LOAD_STATE6 of {block.name.lower()}")
        self.loads[block] = _Load(address, offset, units)
        if block is Block.CONSTANTS:
            self._load_constants(address, offset, units)

    def _load_constants(self, address: int, offset: int, units: int) -> None:
        start, size = offset * _VEC4, units * _VEC4
        if start + size > _CONSTANT_BYTES:
            raise GpuFault(
                f"CP_LOAD_STATE6 of {units} vec4 behind c{offset}: the constant file of compute has "
                f"{_CONSTANT_BYTES // _VEC4} vec4; load fewer"
            )
        mapped = min(size, self.memory.available(address))
        if mapped < size:
            self.findings.add(
                Finding(
                    "CP_LOAD_STATE6",
                    "NUM_UNIT of constants",
                    units,
                    mapped // _VEC4,
                    f"reads {size} bytes of constants where {mapped} are mapped; the device may fault",
                )
            )
        data = self.memory.read(address, mapped, "CP_LOAD_STATE6 of constants")
        self.constants[start : start + size] = data.ljust(size, b"\0")
        self.constant_vec4 = max(self.constant_vec4, offset + units)

    def units(self, block: Block) -> int:
        """How many units of a kind are loaded."""
        load = self.loads.get(block)
        return load.offset + load.units if load else 0

    def launched(self) -> None:
        """A launch has used what was written."""
        self._fresh.clear()
