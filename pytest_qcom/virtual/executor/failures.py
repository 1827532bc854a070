"""What a wave that stopped says: fault records as exceptions with full messages."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from pytest_qcom.errors import DecodeError, GpuFault, GpuHang, QcomError
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.refusals import refusal
from pytest_qcom.isa.text import text
from pytest_qcom.virtual.dispatch import Dispatch
from pytest_qcom.virtual.executor.launch import Launch, Mapped, Workspace
from pytest_qcom.virtual.executor.layout import Fault, Header, Status, Tables


@dataclass(frozen=True, slots=True)
class _Record:
    kind: int
    pc: int
    lane: int
    size: int
    address: int


def failure(launch: Launch, workspaces: list[Workspace], memory: Mapped) -> QcomError | None:
    """The failure of the lowest workgroup that failed, or ``None``. Independent of the number of threads."""
    failed = [w.arena for w in workspaces if w.arena.failed_group >= 0]
    if not failed:
        return None
    arena = min(failed, key=lambda a: int(a.failed_group))
    group, wave = int(arena.failed_group), int(arena.failed_wave)
    stride = launch.job.stride
    record = _record(arena.states + wave * stride)
    if record.kind == Fault.TOTAL:
        return _overspent(launch)
    if record.kind == Fault.DEADLOCK:
        return _deadlock(launch, arena.states, group)
    return _Report(launch.dispatch, memory, record, group, wave).error()


def _record(state: int) -> _Record:
    def i32(offset: int) -> int:
        return ctypes.c_int32.from_address(state + offset).value

    address = ctypes.c_uint64.from_address(state + Header.FAULT_ADDRESS).value
    return _Record(
        i32(Header.FAULT_KIND), i32(Header.FAULT_PC), i32(Header.FAULT_LANE), i32(Header.FAULT_SIZE), address
    )


def group_of(dispatch: Dispatch, index: int) -> tuple[int, int, int]:
    """A workgroup's place in the grid."""
    x, y, _ = dispatch.groups
    return (index % x, index // x % y, index // (x * y))


def instruction(dispatch: Dispatch, index: int) -> str:
    """``instruction 3 (text)``; past the end there is no text."""
    try:
        instrs = Program.decode(dispatch.code).instrs
    except DecodeError:  # the code was changed since it was compiled
        return f"instruction {index}"
    return f"instruction {index} ({text(instrs[index])})" if index < len(instrs) else f"instruction {index}"


def _overspent(launch: Launch) -> GpuHang:
    dispatch, total = launch.dispatch, launch.job.total
    return GpuHang(
        f"GPU hang: the launch of {dispatch.groups} workgroups of {dispatch.local_size} fibers used up its "
        f"budget of {total} issue cycles, not all of them have run; make it smaller, or give the executor a "
        "larger total",
        groups=dispatch.groups,
        total=total,
    )


def _deadlock(launch: Launch, states: int, group: int) -> GpuHang:
    waiting, ended = [], []
    for wave in range(launch.waves):
        state = states + wave * launch.job.stride
        status = ctypes.c_int32.from_address(state + Header.STATUS).value
        if status == Status.BARRIER:
            waiting.append((wave, ctypes.c_int32.from_address(state + Header.FAULT_PC).value))
        else:
            ended.append(wave)
    where = "; ".join(f"wave {wave} at {instruction(launch.dispatch, pc)}" for wave, pc in waiting)
    gone = ", ".join(str(wave) for wave in ended)
    position = group_of(launch.dispatch, group)
    return GpuHang(
        f"barrier deadlock in workgroup {position}: waiting are {where}; ended without it: waves {gone}; "
        "let every wave of the workgroup reach the barrier",
        group=position,
        waiting=waiting,
        ended=ended,
    )


@dataclass(frozen=True, slots=True)
class _Report:
    """One wave's failure."""

    dispatch: Dispatch
    memory: Mapped
    record: _Record
    group: int
    wave: int

    def error(self) -> QcomError:
        record, group = self.record, group_of(self.dispatch, self.group)
        where = f"{instruction(self.dispatch, record.pc)}, wave {self.wave} of workgroup {group}"
        facts = {"pc": record.pc, "wave": self.wave, "group": group}
        if record.kind in (Fault.BUDGET, Fault.RUNAWAY, Fault.FOOTPRINT, Fault.LACKING):
            return GpuHang(f"GPU hang at {where}: {self._hang()}", **facts)
        facts |= {"lane": record.lane, "address": record.address}
        if record.kind not in (Fault.UNSUPPORTED, Fault.BRANCH):
            where += f", lane {record.lane}"
        return GpuFault(f"GPU fault at {where}: {self._fault()}", **facts)

    def _hang(self) -> str:
        if self.record.kind == Fault.RUNAWAY:
            return "the program ran past its last instruction; put an end there"
        if self.record.kind == Fault.FOOTPRINT:
            return (
                f"it writes a register beyond the declared {self.dispatch.fregs} full and "
                f"{self.dispatch.hregs} half vec4: that is another wave's, whose counters and addresses are "
                "spoilt; declare what is used"
            )
        if self.record.kind == Fault.LACKING:
            return "this chip has no such instruction; compute the number from the local id"
        return (
            "the wave used up its budget of issue cycles in a loop that starts here; "
            "make the loop end, or give the executor a larger budget"
        )

    def _fault(self) -> str:
        record, dispatch = self.record, self.dispatch
        address, size = record.address, record.size
        signed = address - (1 << 64) if address >> 63 else address
        if record.kind == Fault.GLOBAL:
            near = self.memory.describe(address)
            return f"{size} bytes at {address:#x} are not mapped: {near}; correct the address"
        if record.kind == Fault.LOCAL:
            return (
                f"{size} bytes at LDS address {signed} are outside of the {dispatch.shared_bytes} bytes of "
                "local memory (LDS) that the launch declares; correct the address or declare more"
            )
        if record.kind == Fault.PRIVATE:
            return (
                f"{size} bytes at private address {signed} are outside of the {dispatch.private_bytes} bytes "
                "that the launch declares for a fiber; correct the address or declare more"
            )
        if record.kind in (Fault.IMAGE_SLOT, Fault.DESCRIPTOR):
            return self._slot()
        if record.kind == Fault.UNIFORM_MEMORY:
            near = self.memory.describe(address)
            return (
                f"{size} bytes of a uniform buffer at {address:#x} are not mapped: {near}; "
                "correct its descriptor"
            )
        if record.kind == Fault.ALIGNMENT:
            return f"an atomic access of {size} bytes at {address:#x} is not aligned to them; align it"
        if record.kind == Fault.IMAGE_MEMORY:
            near = self.memory.describe(address)
            return f"the image at {address:#x} is not mapped as a whole: {near}; correct its descriptor"
        if record.kind == Fault.CONSTANT:
            return f"constant {signed} is outside of the constant file; correct a0.x"
        if record.kind == Fault.RELATIVE:
            return f"register {signed} is outside of the register file; correct a0.x"
        if record.kind == Fault.DERIVATIVES:
            return (
                "the level of detail comes from the derivatives of neighbours, which compute lacks, and the "
                "texture has several levels or its sampler two filters; give the level, or gradients"
            )
        if record.kind == Fault.BRANCH:
            return "the branch leaves the program; correct its offset"
        return f"{self._reason()}; the virtual A630 does not execute it"

    def _slot(self) -> str:
        """A slot without what the access wants; the fault's size is the number of the table."""
        slot, table, dispatch = self.record.address, self.record.size, self.dispatch
        if table >= Tables.SAMPLER_SETS:
            base = table - Tables.SAMPLER_SETS
            return f"sampler {slot} of bindless base {base} is not there; point the base to as many"
        if self.record.kind == Fault.DESCRIPTOR:
            what = "texture" if table == Tables.TEXTURES else "image"
            return (
                f"the descriptor in slot {slot} is of no {what} that this access could use (mapped, linear, "
                "for atomics texels of 32 bits); correct it"
            )
        if table == Tables.SAMPLERS:
            return (
                f"sampler {slot} is not there: the launch has {len(dispatch.samplers)}; "
                "load it or use another slot"
            )
        if table >= Tables.UNIFORM_SETS or Tables.SETS <= table < Tables.UNIFORMS:
            base = table - (Tables.UNIFORM_SETS if table >= Tables.UNIFORM_SETS else Tables.SETS)
            return f"descriptor {slot} of bindless base {base} is not there; point the base to as many"
        if table == Tables.UNIFORMS:
            return (
                f"slot {slot} is not bound: the launch has {len(dispatch.uniforms)} uniform buffers; "
                "bind it or use another slot"
            )
        return (
            f"slot {slot} is not bound: the launch has {len(dispatch.textures)} textures and "
            f"{len(dispatch.images)} images; bind it or use another slot"
        )

    def _reason(self) -> str:
        reason = refusal(Program.decode(self.dispatch.code).instrs[self.record.pc])
        return reason or "the code was changed since it was compiled"
