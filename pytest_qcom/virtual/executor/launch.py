"""One dispatch on the host's threads: the job record, the threads' arenas, the totals."""

from __future__ import annotations

import ctypes
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.isa.registers import ADDRESS, FIRST_SHARED
from pytest_qcom.virtual.dispatch import Dispatch, Execution, Image, Sampler, Uniforms
from pytest_qcom.virtual.executor.kernels import Compiled
from pytest_qcom.virtual.executor.layout import (
    Arena,
    Header,
    Job,
    SamplerRecord,
    Table,
    Tables,
    TextureRecord,
    UniformRecord,
    shared_offset,
)

_CONSTANTS = 512 * 16 + 64  # bytes that a constant operand can reach with its repeats
_SMALL = 2048  # waves times instructions below which a second thread costs more than it gives
_NEVER = (1 << 63) - 1
POISON, POISON_HALF = 0x7FFFBAD0, 0x7FFF
"""What another wave's registers read as: NaN, so that it spreads."""
_MANY = 1 << 62


class Mapped(Protocol):
    """What the executor needs of :class:`pytest_qcom.virtual.memory.Memory`."""

    def ranges(self) -> NDArray[np.uint64]: ...

    def describe(self, address: int) -> str: ...


@functools.lru_cache(maxsize=64)
def _geometry(local: tuple[int, int, int], wave: int) -> tuple[int, NDArray[np.int32], NDArray[np.uint64]]:
    """Waves of a workgroup, local ids (waves, 4, wave) and lane masks (waves, 2). Fibers count x fastest."""
    fibers = local[0] * local[1] * local[2]
    waves = -(-fibers // wave)
    linear = np.arange(waves * wave, dtype=np.int32)
    ids = np.stack(
        [linear % local[0], linear // local[0] % local[1], linear // (local[0] * local[1]), linear]
    )
    ids = np.ascontiguousarray(ids.reshape(4, waves, wave).transpose(1, 0, 2))
    masks = np.zeros((waves, 2), np.uint64)
    for index in range(waves):
        lanes = (1 << min(wave, fibers - index * wave)) - 1
        masks[index] = (lanes & (1 << 64) - 1, lanes >> 64)
    return waves, ids, masks


def _records(images: tuple[Image | None, ...], ranges: NDArray[np.uint64]) -> Any:
    """A record an image; behind them those of further levels of detail."""
    further = sum(image.levels - 1 for image in images if image is not None)
    table = (TextureRecord * (max(1, len(images)) + further))()
    free = max(1, len(images))
    for index, image in enumerate(images):
        if image is None:
            continue
        size, levels = _described(image)
        mapped = int(size > 0 and _contains(ranges, image.address, size))
        table[index] = levels[0]
        table[index].mapped = mapped
        if image.levels == 1:
            continue
        table[index].further = ctypes.addressof(table) + free * ctypes.sizeof(TextureRecord)
        for level in levels[1:]:
            table[free] = level
            table[free].mapped = mapped
            free += 1
    return table


@functools.lru_cache(maxsize=4096)
def _described(image: Image) -> tuple[int, tuple[TextureRecord, ...]]:
    """An image's size and the records of its levels of detail, whether it is mapped left open."""
    return image.size, tuple(_describe(image, level) for level in range(image.levels))


def _describe(whole: Image, level: int) -> TextureRecord:
    image = whole.level(level)
    record = TextureRecord()
    record.address, record.pitch, record.layer = image.address, image.pitch, image.layer_pitch
    record.width, record.height, record.depth = image.width, image.height, image.depth
    record.format, record.texel = image.format.value, image.texel_bytes
    record.plain = int(image.swizzle == (0, 1, 2, 3))
    record.swizzle[:] = image.swizzle
    record.levels, record.samples, record.cube = whole.levels, image.samples, image.cube
    record.least = _fixed(image.least_lod)
    return record


def _fixed(lod: float) -> int:
    """A level of detail in 1/256."""
    return round(256 * lod)


def _samplers(samplers: tuple[Sampler | None, ...]) -> Any:
    table = (SamplerRecord * max(1, len(samplers)))()
    for record, sampler in zip(table, samplers, strict=False):
        if sampler is None:
            continue
        record.wraps[:] = [wrap.value for wrap in sampler.wraps]
        record.magnified, record.minified = sampler.magnified, sampler.minified
        record.unnormalized, record.bias = sampler.unnormalized, _fixed(sampler.lod_bias)
        record.least, record.most = map(_fixed, sampler.lods)
        record.border[:] = sampler.border
        record.mips, record.single, record.seamless = sampler.mips, sampler.single, sampler.seamless
        record.compare, record.bound = sampler.compare.value, 1
    return table


def _uniforms(buffers: tuple[Uniforms, ...]) -> Any:
    table = (UniformRecord * max(1, len(buffers)))()
    for record, buffer in zip(table, buffers, strict=False):
        record.address, record.size = buffer.address, buffer.size
    return table


def _contains(ranges: NDArray[np.uint64], address: int, size: int) -> bool:
    index = int(np.searchsorted(ranges[:, 0], np.uint64(address), side="right")) - 1
    return index >= 0 and address + size <= int(ranges[index, 1])


class _Memory:
    """Aligned zeroed bytes."""

    def __init__(self, size: int) -> None:
        self._array = np.zeros(size + 64, np.uint8)
        self.address = -(-self._array.ctypes.data // 64) * 64
        self.size = size


class Workspace:
    """A thread's memory, kept from launch to launch."""

    def __init__(self) -> None:
        self.arena = Arena()
        self._parts: dict[str, _Memory] = {}

    def prepare(self, **sizes: int) -> None:
        """Makes ``states``, ``lds`` and ``private`` at least as large as asked."""
        for name, size in sizes.items():
            part = self._parts.get(name)
            if part is None or part.size < size:
                part = self._parts[name] = _Memory(max(size, 4096))
            setattr(self.arena, name, part.address)
        self.arena.instructions = self.arena.issue = 0
        self.arena.failed_group = -1


class Launch:
    """A dispatch in the form that generated code takes. Holds everything the records point to."""

    def __init__(self, dispatch: Dispatch, memory: Mapped, kernel: Compiled, limit: int, total: int) -> None:
        self.dispatch, self.kernel = dispatch, kernel
        self.waves, ids, masks = _geometry(dispatch.local_size, dispatch.wave_size)
        ranges = np.ascontiguousarray(memory.ranges(), dtype=np.uint64)
        self.constants = ctypes.create_string_buffer(
            dispatch.constants, max(_CONSTANTS, len(dispatch.constants))
        )
        self.textures = _records(dispatch.textures, ranges)
        self.images = _records(dispatch.images, ranges)
        self.tables = self._tables(ranges)
        self.kept = (ids, masks, ranges)
        self.job = job = Job()
        job.kernel = kernel.address
        job.constants = ctypes.addressof(self.constants)
        job.constant_bytes = len(self.constants)
        job.textures, job.texture_count = ctypes.addressof(self.textures), len(dispatch.textures)
        job.images, job.image_count = ctypes.addressof(self.images), len(dispatch.images)
        job.tables = ctypes.addressof(self.tables)
        job.ranges, job.range_count = ranges.ctypes.data, len(ranges)
        job.masks, job.local_ids = masks.ctypes.data, ids.ctypes.data
        groups = dispatch.groups[0] * dispatch.groups[1] * dispatch.groups[2]
        job.group_count = min(groups, _MANY)  # the launch's budget ends long before
        job.stop = _NEVER
        job.groups_x, job.groups_y = dispatch.groups[:2]
        job.waves = self.waves
        job.stride = kernel.layout.size if kernel.barriers else 0
        job.clear = 0 if kernel.layout.late_bytes else kernel.layout.size - Header.END
        job.shared_bytes, job.private_bytes = dispatch.shared_bytes, dispatch.private_bytes
        job.limit, job.total = limit, total
        job.local_x, job.local_y, job.local_z = dispatch.local_size
        self._system_values()

    def _tables(self, ranges: NDArray[np.uint64]) -> Any:
        """All that is bound, by the numbers of :class:`~.layout.Tables`."""
        dispatch, tables = self.dispatch, (Table * Tables.COUNT)()
        self.bound: list[Any] = []  # keeps the records alive

        def fill(number: int, records: Any, count: int) -> None:
            self.bound.append(records)
            tables[number].records, tables[number].count = ctypes.addressof(records), count

        fill(Tables.TEXTURES, self.textures, len(dispatch.textures))
        fill(Tables.IMAGES, self.images, len(dispatch.images))
        if dispatch.uniforms:
            fill(Tables.UNIFORMS, _uniforms(dispatch.uniforms), len(dispatch.uniforms))
        if dispatch.samplers:
            fill(Tables.SAMPLERS, _samplers(dispatch.samplers), len(dispatch.samplers))
        for index, found in enumerate(dispatch.sets):
            if found is not None:
                fill(Tables.SETS + index, _records(found.images, ranges), len(found.images))
                fill(Tables.UNIFORM_SETS + index, _uniforms(found.uniforms), len(found.uniforms))
                fill(Tables.SAMPLER_SETS + index, _samplers(found.samplers), len(found.samplers))
        return tables

    def _system_values(self) -> None:
        dispatch, job = self.dispatch, self.job
        job.local_id_row = self._row(dispatch.local_id_regid)
        job.linear_id_row = self._row(dispatch.linear_local_id_regid)
        names = ("group_id", "group_offset", "local_size")
        for bit, name in enumerate(names):
            regid: int = getattr(dispatch, f"{name}_regid")
            if FIRST_SHARED <= regid < ADDRESS:
                setattr(job, name, shared_offset(regid))
            else:
                setattr(job, name, self._row(regid))
                job.splat |= 1 << bit

    def _row(self, regid: int) -> int:
        """Offset of a register's row; 0 where it is not wanted, or the program never touches it."""
        layout = self.kernel.layout
        return layout.full_row(regid) if regid + 3 <= layout.full else 0

    def run(self, workspaces: list[Workspace], pool: ThreadPoolExecutor | None) -> Execution:
        """Runs on a thread for each workspace, the caller's included. Failures are in the arenas."""
        layout, dispatch = self.kernel.layout, self.dispatch
        resident = self.waves if self.kernel.barriers else 1
        for workspace in workspaces:
            private = dispatch.private_bytes * layout.wave * resident
            workspace.prepare(states=layout.size * resident, lds=dispatch.shared_bytes, private=private)
            if layout.late_bytes:
                self._power_up(workspace.arena.states, resident)
        run, job = self.kernel.runtime.run, ctypes.addressof(self.job)
        first, *others = (ctypes.addressof(workspace.arena) for workspace in workspaces)
        futures = [pool.submit(run, job, arena) for arena in others] if pool is not None else []
        run(job, first)
        for future in futures:
            future.result()
        return Execution(
            waves=self.job.group_count * self.waves,
            instructions=sum(workspace.arena.instructions for workspace in workspaces),
            issue_cycles=sum(workspace.arena.issue for workspace in workspaces),
        )

    def _power_up(self, states: int, resident: int) -> None:
        """Wave states before the first wave: registers are zero, those beyond the footprint poison.

        A wave with late results finds what the one before it left, and writes nothing beyond its footprint.
        """
        layout, dispatch = self.kernel.layout, self.dispatch
        for first in range(states, states + layout.size * resident, layout.size):
            ctypes.memset(first, 0, layout.size)
            for row, end, own, word in (
                (layout.full_row, layout.full, 4 * dispatch.fregs, POISON),
                (layout.half_row, layout.half, 4 * dispatch.hregs, POISON_HALF),
            ):
                count = max(0, end - own) * layout.wave
                kind = ctypes.c_uint32 if word is POISON else ctypes.c_uint16
                place = (kind * count).from_address(first + row(min(own, end)))
                place[:] = [word] * count

    def worth(self, threads: int) -> int:
        """How many threads the launch is worth; one where a wave finds what another left."""
        if self.kernel.layout.late_bytes:
            return 1
        if self.job.group_count * self.waves * (len(self.dispatch.code) // 8) < _SMALL:
            return 1
        return max(1, min(threads, int(self.job.group_count)))
