"""``/dev/kgsl-3d0``: Qualcomm's kernel driver, as far as tinygrad's QCOM runtime uses it.

:class:`Node` answers the ioctls and maps memory; :func:`installed` puts it where the runtime
(tinygrad 0.14.0, ``tinygrad.runtime.ops_qcom``) opens the real node, and takes it away again.
Numbers, structures and flags are those of ``msm_kgsl.h``, through tinygrad's own bindings.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tinygrad.runtime import ops_qcom
from tinygrad.runtime.autogen import kgsl, libc
from tinygrad.runtime.support.hcq import FileIOInterface

from pytest_qcom.chip import A630
from pytest_qcom.virtual.findings import Finding
from pytest_qcom.virtual.gpu import VirtualGpu
from pytest_qcom.virtual.memory import Buffer

PATH = "/dev/kgsl-3d0"
SYSFS = "/sys/class/kgsl/kgsl-3d0/"
_PAGE = 0x1000
_SVM_START, _SVM_END = 0x7_0000_0000, 0x8_0000_0000
"""Addresses that a process and the GPU share (msm kernel, ``KGSL_IOMMU_SVM_BASE64``)."""
_SVM_STEP = 1 << 16
_TRIES = (_SVM_END - _SVM_START) // _SVM_STEP  # the whole range: elsewhere, addresses are other numbers
_MOST_BYTES = 1 << 36  # of one process; pages that nobody touches cost nothing
_MOST_DWORDS = (1 << 20) - 1  # Mesa, adreno_pm4.xml: IB_SIZE of CP_INDIRECT_BUFFER has 20 bits
_MOST_COMMANDS = 2000  # KGSL_MAX_NUMIBS is larger than any stream here has
_FOREVER = 0xFFFFFFFF
_PATIENCE = 0.25  # seconds


def _error(code: int, what: str) -> OSError:
    return OSError(code, f"{os.strerror(code)}: {what}")


def _request(call: Any) -> int:
    """The number of one of tinygrad's ioctl bindings, a partial of (direction, group, number, structure)."""
    direction, group, number, layout = call.args
    value: int = direction << 30 | layout.SIZE << 16 | group << 8 | number
    return value


@dataclass(slots=True)
class _Object:
    """A GPU object: allocated, and mapped once the process asks for it."""

    size: int
    buffer: Buffer | None = None


_next_hint = itertools.count(0)


def _anonymous(size: int) -> int:
    """Memory of this process where KGSL would put it, or else anywhere: addresses are numbers that programs
    see, so they are the same in every run."""
    for _ in range(_TRIES):
        hint = _SVM_START + next(_next_hint) * _SVM_STEP % (_SVM_END - _SVM_START)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        address: int = FileIOInterface.anon_mmap(hint, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, 0)
        if address == hint:
            for _ in range((size - 1) // _SVM_STEP):
                next(_next_hint)
            return address
        libc.munmap(address, size)
    return int(FileIOInterface.anon_mmap(0, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, 0))


class Node:
    """The driver's side of one process: objects, mappings and contexts on a virtual GPU.

    Every refusal is an :class:`OSError` with the kernel's number and a reason.
    """

    def __init__(self, gpu: VirtualGpu) -> None:
        self.gpu = gpu
        self.sysfs: dict[str, str] = {}
        self._objects: dict[int, _Object] = {}
        self._user: dict[int, list[Buffer]] = {}  # mapped user memory, by GPU address
        self._next_object = 1
        self._allocated = 0
        self._calls: dict[int, tuple[type[Any], Callable[[Any], None]]] = {
            _request(call): (call.args[3], handler)
            for call, handler in (
                (kgsl.IOCTL_KGSL_GPUOBJ_ALLOC, self._alloc),
                (kgsl.IOCTL_KGSL_GPUOBJ_FREE, self._free),
                (kgsl.IOCTL_KGSL_MAP_USER_MEM, self._map_user),
                (kgsl.IOCTL_KGSL_SHAREDMEM_FREE, self._unmap_user),
                (kgsl.IOCTL_KGSL_DRAWCTXT_CREATE, self._create_context),
                (kgsl.IOCTL_KGSL_DRAWCTXT_DESTROY, self._destroy_context),
                (kgsl.IOCTL_KGSL_SETPROPERTY, self._set_property),
                (kgsl.IOCTL_KGSL_DEVICE_GETPROPERTY, self._get_property),
                (kgsl.IOCTL_KGSL_GPU_COMMAND, self._command),
                (kgsl.IOCTL_KGSL_DEVICE_WAITTIMESTAMP_CTXTID, self._wait),
            )
        }

    def ioctl(self, request: int, argument: Any) -> int:
        """Answers one ioctl; results stand in ``argument``, a writable buffer.

        Raises:
            OSError: unknown request (ENOTTY), or arguments that the driver refuses.
            QcomError: what the GPU ran into, from a command or a wait.
        """
        if request not in self._calls:
            raise _error(errno.ENOTTY, f"request {request:#x} is none that the virtual node answers")
        layout, handler = self._calls[request]
        try:
            view = memoryview(argument).cast("B")
        except TypeError as error:
            raise _error(errno.EFAULT, f"request {request:#x} needs a buffer: {error}") from None
        if view.readonly or view.nbytes < layout.SIZE:
            raise _error(errno.EFAULT, f"request {request:#x} needs a writable buffer of {layout.SIZE} bytes")
        structure = layout.from_buffer(view)
        if handler == self._wait:  # others may submit meanwhile
            handler(structure)
        else:
            with self.gpu.lock:
                handler(structure)
        return 0

    def mmap(self, size: int, offset: int) -> int:
        """Maps a GPU object whose number is the page of ``offset``; its address, also the GPU's."""
        with self.gpu.lock:
            item = self._objects.get(offset // _PAGE)
            if item is None or offset % _PAGE:
                raise _error(errno.EINVAL, f"mmap at offset {offset:#x} is no GPU object")
            if item.buffer is not None:
                raise _error(errno.EBUSY, f"mmap of GPU object {offset // _PAGE}, which is mapped already")
            if size != item.size:
                raise _error(errno.EINVAL, f"mmap of {size} bytes of an object of {item.size}")
            address = _anonymous(size + _PAGE)  # the last page stays unmapped for the GPU, as KGSL's guard
            item.buffer = self.gpu.memory.map(address, size)
            return address

    def _alloc(self, call: Any) -> None:
        size = -(-call.size // _PAGE) * _PAGE
        if not size:
            raise _error(errno.EINVAL, "GPUOBJ_ALLOC of 0 bytes")
        if not call.flags & kgsl.KGSL_MEMFLAGS_USE_CPU_MAP:
            raise _error(
                errno.EINVAL, "GPUOBJ_ALLOC without KGSL_MEMFLAGS_USE_CPU_MAP: addresses are the host's here"
            )
        if self._allocated + size > _MOST_BYTES:
            raise _error(
                errno.ENOMEM, f"GPUOBJ_ALLOC of {size} bytes: {self._allocated} of {_MOST_BYTES} are in use"
            )
        self._allocated += size
        call.id, call.size, call.mmapsize, call.va_len = self._next_object, size, size, size
        self._objects[self._next_object] = _Object(size)
        self._next_object += 1

    def _free(self, call: Any) -> None:
        item = self._objects.pop(call.id, None)
        if item is None:
            raise _error(errno.EINVAL, f"GPUOBJ_FREE of object {call.id}, which does not exist")
        self._allocated -= item.size
        if item.buffer is not None:
            self.gpu.memory.unmap(item.buffer)
            libc.munmap(item.buffer.address + item.size, _PAGE)  # the caller unmaps the buffer itself

    def _map_user(self, call: Any) -> None:
        if call.memtype != kgsl.KGSL_USER_MEM_TYPE_ADDR:
            raise _error(
                errno.EINVAL, f"MAP_USER_MEM of type {call.memtype}; the virtual node takes addresses"
            )
        if not call.len or call.hostptr % _PAGE or call.len % _PAGE or call.hostptr + call.len > 1 << 64:
            raise _error(
                errno.EINVAL, f"MAP_USER_MEM of {call.len} bytes at {call.hostptr:#x}: give whole pages"
            )
        for item in self._objects.values():
            buffer = item.buffer
            if (
                buffer
                and buffer.address < call.hostptr + call.len
                and call.hostptr < buffer.address + item.size
            ):
                raise _error(errno.EFAULT, f"MAP_USER_MEM of {call.hostptr:#x}, which is a GPU object")
        if not _host_holds(call.hostptr, call.len):
            raise _error(
                errno.EFAULT,
                f"{call.len} bytes at {call.hostptr:#x} are not all memory that the process may write",
            )
        call.gpuaddr = call.hostptr
        buffer = self.gpu.memory.map(call.hostptr, call.len, "user memory")
        self._user.setdefault(call.hostptr, []).append(buffer)

    def _unmap_user(self, call: Any) -> None:
        mapped = self._user.get(call.gpuaddr)
        if not mapped:
            raise _error(
                errno.EINVAL, f"SHAREDMEM_FREE of {call.gpuaddr:#x}, which is not mapped user memory"
            )
        self.gpu.memory.unmap(mapped.pop())

    def _create_context(self, call: Any) -> None:
        call.drawctxt_id = self.gpu.create_context()

    def _destroy_context(self, call: Any) -> None:
        self._require_context(call.drawctxt_id)
        self.gpu.destroy_context(call.drawctxt_id)

    def _require_context(self, number: int) -> None:
        if not self.gpu.has_context(number):
            raise _error(errno.EINVAL, f"context {number} does not exist")

    def _set_property(self, call: Any) -> None:
        if call.type != kgsl.KGSL_PROP_PWR_CONSTRAINT:
            raise _error(errno.EINVAL, f"SETPROPERTY of {call.type}; the virtual node takes PWR_CONSTRAINT")
        layout = kgsl.struct_kgsl_device_constraint
        if call.sizebytes != layout.SIZE:
            raise _error(errno.EINVAL, f"PWR_CONSTRAINT of {call.sizebytes} bytes, it has {layout.SIZE}")
        constraint = layout.from_buffer_copy(_host_read(call.value, layout.SIZE))
        self._require_context(constraint.context_id)

    def _get_property(self, call: Any) -> None:
        if call.type != kgsl.KGSL_PROP_DEVICE_INFO:
            raise _error(errno.EINVAL, f"GETPROPERTY of {call.type}; the virtual node has DEVICE_INFO")
        layout = kgsl.struct_kgsl_devinfo
        if call.sizebytes != layout.SIZE:
            raise _error(errno.EINVAL, f"DEVICE_INFO of {call.sizebytes} bytes, it has {layout.SIZE}")
        info = layout(chip_id=A630.chip_id.value, mmu_enabled=1, gpu_id=630, gmem_sizebytes=1 << 20)
        _host_write(call.value, bytes(info))

    def _command(self, call: Any) -> None:
        self._require_context(call.context_id)
        layout = kgsl.struct_kgsl_command_object
        if call.numsyncs or call.numobjs:
            raise _error(
                errno.EINVAL, "GPU_COMMAND with sync points or objects; the virtual node takes commands"
            )
        if not 0 < call.numcmds <= _MOST_COMMANDS or call.cmdsize != layout.SIZE:
            raise _error(
                errno.EINVAL,
                f"GPU_COMMAND with {call.numcmds} commands of {call.cmdsize} bytes, not {layout.SIZE}",
            )
        data = _host_read(call.cmdlist, call.numcmds * layout.SIZE)
        buffers = []
        for index in range(call.numcmds):
            item = layout.from_buffer_copy(data, index * layout.SIZE)
            if item.flags != kgsl.KGSL_CMDLIST_IB:
                raise _error(
                    errno.EINVAL, f"GPU_COMMAND object with flags {item.flags:#x}, not KGSL_CMDLIST_IB"
                )
            if not item.size or item.size % 4 or not self.gpu.memory.contains(item.gpuaddr, item.size):
                raise _error(
                    errno.EINVAL,
                    f"GPU_COMMAND of {item.size} bytes at {item.gpuaddr:#x}: give dwords of mapped memory",
                )
            if item.size > 4 * _MOST_DWORDS:
                raise _error(
                    errno.EINVAL,
                    f"GPU_COMMAND of {item.size} bytes: an indirect buffer has {4 * _MOST_DWORDS} at most",
                )
            buffers.append((item.gpuaddr, item.size))
        call.timestamp = self.gpu.submit(call.context_id, buffers)

    def _wait(self, call: Any) -> None:
        with self.gpu.lock:
            self._require_context(call.context_id)
            newest = self.gpu.submitted(call.context_id)
        if call.timestamp > newest:
            raise _error(errno.EINVAL, f"WAITTIMESTAMP for {call.timestamp}, the newest is {newest}")
        # Who waits for ever keeps a deadline of its own, and asks again until then.
        forever = call.timeout == _FOREVER
        seconds = _PATIENCE if forever else call.timeout / 1000
        if not self.gpu.wait(call.context_id, call.timestamp, seconds) and not forever:
            raise _error(errno.ETIMEDOUT, f"WAITTIMESTAMP for {call.timestamp} within {call.timeout} ms")


def _host_read(address: int | None, size: int) -> bytes:
    """The process's memory, with an error instead of a crash where there is none."""
    with open("/proc/self/mem", "rb", buffering=0) as file:
        try:
            data = os.pread(file.fileno(), size, address or 0)
        except (OSError, OverflowError):
            data = b""
    if len(data) != size:
        raise _error(errno.EFAULT, f"{size} bytes at {address or 0:#x} are no memory of the process")
    return data


def _host_holds(address: int, size: int) -> bool:
    """Whether the process may read and write every byte of a range, which the GPU then does unasked."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        for line in file:
            extent, permissions, *_ = line.split()
            first, behind = (int(end, 16) for end in extent.split("-"))
            if behind <= address:
                continue
            if first > address or permissions[:2] != "rw":
                return False
            size -= behind - address
            address = behind
            if size <= 0:
                return True
    return False


def _host_write(address: int | None, data: bytes) -> None:
    with open("/proc/self/mem", "r+b", buffering=0) as file:
        try:
            done = os.pwrite(file.fileno(), data, address or 0)
        except (OSError, OverflowError):
            done = 0
    if done != len(data):
        raise _error(errno.EFAULT, f"{len(data)} bytes at {address or 0:#x} are no memory of the process")


def _file_class(node: Node) -> type[Any]:
    class KgslFile(FileIOInterface):  # type: ignore[misc]
        """An open file of the virtual node; the runtime asks that it be a FileIOInterface."""

        def __init__(self, path: str = "", flags: int = os.O_RDONLY, fd: int | None = None) -> None:
            if path != PATH:
                raise _error(errno.ENOENT, f"{path!r} is not {PATH}, the only file that is virtual")
            self.path = path
            self.node = node

        def __del__(self) -> None:
            """There is no file descriptor to close."""

        def ioctl(self, request: int, arg: Any) -> int:
            return node.ioctl(request, arg)

        def mmap(self, start: int, sz: int, prot: int, flags: int, offset: int) -> int:
            return node.mmap(sz, offset)

    return KgslFile


class _Sysfs:
    """Stands for tinygrad's ``System`` in the runtime: settings of the virtual GPU instead of sudo."""

    def __init__(self, node: Node, system: Any) -> None:
        self._node, self._system = node, system

    def write_sysfs(self, path: str, value: str, msg: str, expected: str | None = None) -> None:
        if not path.startswith(SYSFS):
            raise _error(errno.ENOENT, f"{path} is no setting of the virtual GPU")
        self._node.sysfs[path.removeprefix(SYSFS)] = expected or value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)


def _no_flush() -> Any:
    """The cache flush before user memory is mapped: the virtual GPU sees the host's caches."""
    return SimpleNamespace(fxn=lambda address, lines: None)


def _mapper(node: Node) -> Callable[[Any, Any], None]:
    """What the runtime's allocator lacks for a second context, and the finding that it does."""

    def map_nothing(allocator: Any, buffer: Any) -> None:
        """Nothing to do: KGSL maps memory into the process, whichever context asks."""
        why = "is missing: on a device the runtime's second context ends in a NotImplementedError"
        node.gpu.findings.add(Finding("QCOMAllocator", "_do_map", 0, None, why))

    return map_nothing


@contextlib.contextmanager
def installed(node: Node) -> Iterator[None]:
    """While entered, tinygrad's QCOM runtime opens ``node`` instead of the machine's.

    What is replaced are the names by which ``ops_qcom`` reaches the machine: its file interface, its sysfs
    writer and its AArch64 cache flush. One thing is added, as long as the runtime lacks it: the mapping
    method of its allocator, without which ``QCOM:1`` opens nowhere. Its use is a finding, so that programs of
    several devices can be tried and nobody takes it for what a device does.
    """
    replaced: list[tuple[Any, str, Any]] = [
        (ops_qcom, "FileIOInterface", _file_class(node)),
        (ops_qcom, "System", _Sysfs(node, ops_qcom.System)),
        (ops_qcom, "dcache_flush", _no_flush),
    ]
    present = getattr(ops_qcom.QCOMAllocator, "_do_map", None)
    if present is None or present.__module__ == __name__:  # ours, of a node that is installed already
        replaced.append((ops_qcom.QCOMAllocator, "_do_map", _mapper(node)))
    with contextlib.ExitStack() as stack:
        for owner, name, value in replaced:
            stack.callback(_restore, owner, name, owner.__dict__.get(name))
            setattr(owner, name, value)
        yield


def _restore(owner: Any, name: str, value: Any) -> None:
    if value is None:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
