"""A virtual GPU whose executor only records, memory to point at, and streams as Mesa would write them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad.runtime.ops_qcom import pkt4_hdr, pkt7_hdr

from pytest_qcom.virtual import registers as regs
from pytest_qcom.virtual.dispatch import Dispatch, Execution
from pytest_qcom.virtual.gpu import VirtualGpu
from pytest_qcom.virtual.memory import Memory
from pytest_qcom.virtual.pm4 import Event, Opcode

END = (0x03000000 << 32).to_bytes(8, "little")
CODE = END + bytes(120)  # end, and nops up to a whole unit
SECONDS = 1e-5  # 192 ticks of the always-on counter
TICKS = 192
UNUSED = 0xFC


class Recorder:
    """An executor that keeps the launches; ``act`` may do more or raise."""

    def __init__(self) -> None:
        self.launches: list[Dispatch] = []
        self.act: Callable[[Dispatch, Memory], None] = lambda dispatch, memory: None

    def run(self, dispatch: Dispatch, memory: Memory) -> Execution:
        self.launches.append(dispatch)
        self.act(dispatch, memory)
        return Execution(waves=1, instructions=1, issue_cycles=1)


class Bench:
    """A GPU on the bench: ``submit`` runs dwords, ``buffer`` gives it memory."""

    def __init__(self, wait_limit: float = 0.2, **options: Any) -> None:
        self.executor = Recorder()
        self.gpu = VirtualGpu(self.executor, lambda *launch: SECONDS, wait_limit=wait_limit, **options)
        self.context = self.gpu.create_context()
        self._arrays: list[NDArray[np.uint8]] = []

    def buffer(self, data: bytes | int, name: str = "", align: int = 4096) -> int:
        """The address of mapped memory that holds ``data``, or that many zeros."""
        content = bytes(data)
        array = np.zeros(len(content) + 2 * align, dtype=np.uint8)
        self._arrays.append(array)
        address = -(-array.ctypes.data // align) * align
        start = address - array.ctypes.data
        array[start : start + len(content)] = np.frombuffer(content, dtype=np.uint8)
        self.gpu.memory.map(address, len(content), name)
        return address

    def submit(self, words: list[int], context: int | None = None) -> int:
        """Puts the dwords into a command buffer and submits it; its timestamp."""
        address = self.buffer(struct.pack(f"<{len(words)}I", *words), "commands")
        return self.gpu.submit(self.context if context is None else context, [(address, 4 * len(words))])

    def word(self, address: int) -> int:
        """The dword at a mapped address."""
        value: int = struct.unpack("<I", self.gpu.memory.read(address, 4, "test"))[0]
        return value

    def launch(self, **changes: Any) -> list[int]:
        """The dwords of a launch of ``CODE`` with everything as Mesa would write it, but for ``changes``.

        ``changes`` are values of registers by name (``SP_CS_CNTL_0``), and ``code`` (address), ``groups``,
        ``opencl``, ``textures``/``uavs`` (lists of descriptors, 16 dwords each).
        """
        code = changes.pop("code", None) or self.buffer(CODE, "code")
        groups = changes.pop("groups", (1, 1, 1))
        opencl = changes.pop("opencl", False)
        textures, uavs = changes.pop("textures", []), changes.pop("uavs", [])
        constants = changes.pop("constants", None) or self.buffer(4096, "constants")
        units = changes.pop("units", 256)
        values = self._registers(code, groups, len(textures), len(uavs)) | changes
        words = [*reg(regs.SP_UPDATE_CNTL.address, 0x60), *reg(regs.SP_UPDATE_CNTL.address, 0)]
        words += load(0xD, 1, constants, units) + load(0xD, 0, code, 1)
        for block, state, base, items in ((5, 1, "TEXMEMOBJ", textures), (0xD, 3, "UAV", uavs)):
            if items:
                flat = [dword for item in items for dword in item]
                table = self.buffer(struct.pack(f"<{len(flat)}I", *flat), "descriptors")
                words += load(block, state, table, len(items))
                values[f"SP_CS_{base}_BASE"], values[f"SP_CS_{base}_BASE+1"] = halves(table)
        names = {word.name: address for address, word in regs.REGISTERS.items()}
        for name, value in values.items():
            words += reg(names[name], value)
        return words + (cmd(Opcode.CP_RUN_OPENCL, 0) if opencl else cmd(Opcode.CP_EXEC_CS, 0, *groups))

    @staticmethod
    def _registers(code: int, groups: tuple[int, ...], textures: int, uavs: int) -> dict[str, int]:
        low, high = halves(code)
        return {
            "SP_CS_BASE": low,
            "SP_CS_BASE+1": high,
            "SP_CS_INSTR_SIZE": 1,
            "SP_CS_CNTL_0": 4 << 7 | 2 << 1,
            "SP_CS_CNTL_1": 0x41,
            "SP_CS_NDRANGE_0": 3 | 63 << 2,
            **{
                f"SP_CS_NDRANGE_{1 + 2 * axis}.GLOBALSIZE_{'XYZ'[axis]}": groups[axis] * (64, 1, 1)[axis]
                for axis in range(3)
            },
            **{f"SP_CS_KERNEL_GROUP_{'XYZ'[axis]}": groups[axis] for axis in range(3)},
            **{f"SP_CS_NDRANGE_{2 + 2 * axis}.GLOBALOFF_{'XYZ'[axis]}": 0 for axis in range(3)},
            "SP_CS_PROGRAM_COUNTER_OFFSET": 0,
            "SP_CS_PVT_MEM_PARAM": 0,
            "SP_CS_CONST_CONFIG": 0x140,
            "SP_CS_CONST_CONFIG_0": UNUSED << 16 | UNUSED << 8 | 192,
            "SP_CS_WGE_CNTL": UNUSED,
            "SP_CS_CONFIG": 0x100 | textures << 9 | uavs << 22,
            "SP_CS_TSIZE": max(1, textures),
            "SP_CS_USIZE": max(1, uavs),
            "SP_MODE_CNTL": 5,
        }


def descriptor(address: int, width: int, height: int, pitch: int, form: int, **words: int) -> list[int]:
    """A texture descriptor of a linear 2D image; ``words`` replace single dwords (``w0=...``)."""
    low, high = halves(address)
    values = [
        form << 22 | 0x6880,
        width | height << 15,
        1 << 29 | pitch << 7,
        0,
        low,
        high,
        *[0] * 10,
    ]
    for name, value in words.items():
        values[int(name[1:])] = value
    return values


def halves(value: int) -> tuple[int, int]:
    """The two dwords of an address."""
    return value & 0xFFFFFFFF, value >> 32


def cmd(opcode: int, *values: int) -> list[int]:
    """A type 7 packet, with tinygrad's header."""
    return [pkt7_hdr(opcode, len(values)), *values]


def reg(address: int, *values: int) -> list[int]:
    """A type 4 packet, with tinygrad's header."""
    return [pkt4_hdr(address, len(values)), *values]


def load(block: int, state: int, address: int, units: int, offset: int = 0) -> list[int]:
    """A CP_LOAD_STATE6 from memory."""
    word = offset | state << 14 | 2 << 16 | block << 18 | units << 22
    return cmd(Opcode.CP_LOAD_STATE6_FRAG, word, *halves(address))


def signal(address: int, value: int) -> list[int]:
    """Sets a dword once everything before is done."""
    return cmd(Opcode.CP_EVENT_WRITE, Event.CACHE_FLUSH_TS, *halves(address), value)


def wait(address: int, value: int, function: int = 5, mask: int = 0xFFFFFFFF) -> list[int]:
    """Waits for a dword of memory; at least ``value`` by default."""
    return cmd(Opcode.CP_WAIT_REG_MEM, function | 1 << 4, *halves(address), value, mask, 32)


def stamp(address: int) -> list[int]:
    """Stores the always-on counter, 64 bits."""
    word = regs.CP_ALWAYS_ON_COUNTER.address | 2 << 18 | 1 << 30
    return cmd(Opcode.CP_REG_TO_MEM, word, *halves(address))
