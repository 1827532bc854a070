"""The virtual node: each ioctl of the runtime, and the kernel's refusals."""

from __future__ import annotations

import ctypes
import errno
import mmap
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tinygrad.runtime import ops_qcom
from tinygrad.runtime.autogen import kgsl, libc
from tinygrad.runtime.support.hcq import FileIOInterface
from tinygrad.runtime.support.system import System

from pytest_qcom.errors import GpuFault, GpuHang
from pytest_qcom.virtual.kgsl import PATH, Node, installed
from suites.virtual.bench import Bench, signal, wait

CPU_MAP = kgsl.KGSL_MEMFLAGS_USE_CPU_MAP


class Driver:
    """The node as a process sees it, with the calls of the runtime."""

    def __init__(self) -> None:
        self.bench = Bench(wait_limit=0.05)
        self.node = Node(self.bench.gpu)
        with installed(self.node):
            self.file: Any = ops_qcom.FileIOInterface(PATH, 2)

    def alloc(self, size: int) -> tuple[int, int]:
        """Number and address of a GPU object."""
        item = kgsl.IOCTL_KGSL_GPUOBJ_ALLOC(self.file, size=size, flags=CPU_MAP, mmapsize=size)
        return item.id, self.file.mmap(0, item.mmapsize, mmap.PROT_READ, mmap.MAP_SHARED, item.id * 0x1000)

    def context(self) -> int:
        number: int = kgsl.IOCTL_KGSL_DRAWCTXT_CREATE(self.file, flags=0).drawctxt_id
        return number

    def command(self, context: int, words: list[int], **changes: Any) -> int:
        """Submits dwords; their timestamp."""
        _, address = self.alloc(4096)
        ctypes.memmove(address, struct.pack(f"<{len(words)}I", *words), 4 * len(words))
        fields = {"gpuaddr": address, "size": 4 * len(words), "flags": kgsl.KGSL_CMDLIST_IB}
        item = kgsl.struct_kgsl_command_object(**fields | changes.pop("item", {}))
        call = {
            "cmdlist": ctypes.addressof(item),
            "numcmds": 1,
            "cmdsize": ctypes.sizeof(item),
            "context_id": context,
        }
        timestamp: int = kgsl.IOCTL_KGSL_GPU_COMMAND(self.file, **call | changes).timestamp
        return timestamp


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_memory_is_mapped_zeroed_and_guarded(driver: Driver) -> None:
    memory = driver.bench.gpu.memory
    number, address = driver.alloc(5000)
    assert memory.ranges().tolist() == [[address, address + 8192]]
    assert ctypes.string_at(address, 8192) == bytes(8192)
    ctypes.memset(address, 7, 8192)
    assert memory.read(address + 8188, 4, "test") == b"\7" * 4
    _, other = driver.alloc(4096)
    assert not memory.contains(address + 8192, 1) and not memory.contains(other + 4096, 1)
    kgsl.IOCTL_KGSL_GPUOBJ_FREE(driver.file, id=number)
    assert memory.ranges().tolist() == [[other, other + 4096]]
    assert memory.describe(address) == f"byte 0 of buffer #0 (8192 bytes at {address:#x}), which was freed"
    assert libc.munmap(address, 8192) == 0


def test_an_object_that_was_never_mapped_can_be_freed(driver: Driver) -> None:
    item = kgsl.IOCTL_KGSL_GPUOBJ_ALLOC(driver.file, size=1, flags=CPU_MAP)
    assert (item.size, item.mmapsize, item.va_len) == (4096, 4096, 4096)
    kgsl.IOCTL_KGSL_GPUOBJ_FREE(driver.file, id=item.id)
    assert len(driver.bench.gpu.memory.buffers) == 0


def test_user_memory_is_mapped_as_often_as_it_is_asked_for(driver: Driver) -> None:
    memory = driver.bench.gpu.memory
    array = np.zeros(3 * 4096, dtype=np.uint8)
    page = -(-array.ctypes.data // 4096) * 4096
    for _ in range(2):
        call = kgsl.IOCTL_KGSL_MAP_USER_MEM(driver.file, hostptr=page, len=8192, memtype=2)
        assert call.gpuaddr == page
    for left in (True, False):
        kgsl.IOCTL_KGSL_SHAREDMEM_FREE(driver.file, gpuaddr=page)
        assert memory.contains(page, 8192) == left
    assert (
        memory.describe(page)
        == f"byte 0 of buffer #0 'user memory' (8192 bytes at {page:#x}), which was freed"
    )


def test_the_device_says_what_it_is(driver: Driver) -> None:
    info = kgsl.struct_kgsl_devinfo()
    kgsl.IOCTL_KGSL_DEVICE_GETPROPERTY(
        driver.file, type=kgsl.KGSL_PROP_DEVICE_INFO, value=ctypes.addressof(info), sizebytes=40
    )
    assert (info.chip_id, info.gpu_id, info.mmu_enabled) == (0x06030001, 630, 1)


def test_commands_have_timestamps_of_their_context(driver: Driver) -> None:
    _, place = driver.alloc(4096)
    first, second = driver.context(), driver.context()
    assert [driver.command(first, signal(place, 5)) for _ in range(2)] == [1, 2]
    assert driver.command(second, signal(place, 6)) == 1
    assert driver.bench.word(place) == 6
    for context, timestamp in ((first, 2), (second, 1), (first, 0)):
        kgsl.IOCTL_KGSL_DEVICE_WAITTIMESTAMP_CTXTID(
            driver.file, context_id=context, timestamp=timestamp, timeout=0xFFFFFFFF
        )


def test_what_the_gpu_runs_into_comes_out_of_the_ioctl(driver: Driver) -> None:
    _, place = driver.alloc(4096)
    context = driver.context()
    with pytest.raises(GpuFault, match=r"^packet header 0x00000000 at dword 0"):
        driver.command(context, [0])
    timestamp = driver.command(context, wait(place, 1))
    with pytest.raises(GpuHang, match=r"^CP_WAIT_REG_MEM at dword 0"):
        kgsl.IOCTL_KGSL_DEVICE_WAITTIMESTAMP_CTXTID(
            driver.file, context_id=context, timestamp=timestamp, timeout=0xFFFFFFFF
        )


def test_a_wait_can_be_bounded(driver: Driver) -> None:
    driver.bench.gpu.wait_limit = 30
    _, place = driver.alloc(4096)
    context = driver.context()
    timestamp = driver.command(context, wait(place, 1))
    with pytest.raises(TimeoutError) as caught:
        kgsl.IOCTL_KGSL_DEVICE_WAITTIMESTAMP_CTXTID(
            driver.file, context_id=context, timestamp=timestamp, timeout=5
        )
    assert caught.value.errno == errno.ETIMEDOUT
    assert caught.value.strerror == "Connection timed out: WAITTIMESTAMP for 1 within 5 ms"
    kgsl.IOCTL_KGSL_DRAWCTXT_DESTROY(driver.file, drawctxt_id=context)
    assert not driver.bench.gpu.has_context(context)


def test_a_wait_for_ever_comes_back_for_its_caller_to_ask_again(driver: Driver) -> None:
    driver.bench.gpu.wait_limit = 30
    _, place = driver.alloc(4096)
    context = driver.context()
    timestamp = driver.command(context, wait(place, 1) + signal(place + 8, 1))
    call = {"context_id": context, "timestamp": timestamp, "timeout": 0xFFFFFFFF}
    kgsl.IOCTL_KGSL_DEVICE_WAITTIMESTAMP_CTXTID(driver.file, **call)
    assert driver.bench.word(place + 8) == 0
    driver.bench.gpu.memory.write(place, struct.pack("<I", 1), "test")
    kgsl.IOCTL_KGSL_DEVICE_WAITTIMESTAMP_CTXTID(driver.file, **call)
    assert driver.bench.word(place + 8) == 1


INVALID = "Invalid argument: "
ADDRESS = "Bad address: "


def _mapped_twice(driver: Driver) -> None:
    number, _ = driver.alloc(4096)
    driver.file.mmap(0, 4096, 0, 0, number * 0x1000)


def _mapped_short(driver: Driver) -> None:
    item = kgsl.IOCTL_KGSL_GPUOBJ_ALLOC(driver.file, size=8192, flags=CPU_MAP)
    driver.file.mmap(0, 4096, 0, 0, item.id * 0x1000)


def _mapped_gap(driver: Driver) -> None:
    """Three pages, of which the process must not touch the middle one."""
    size, none = 3 * mmap.PAGESIZE, 0
    address = libc.mmap(
        0, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
    )
    libc.mprotect(address + mmap.PAGESIZE, mmap.PAGESIZE, none)
    try:
        kgsl.IOCTL_KGSL_MAP_USER_MEM(driver.file, hostptr=address, len=size, memtype=2)
    except OSError as error:
        raise OSError(error.errno, str(error.strerror).replace(f"{address:#x}", "it")) from None
    finally:
        libc.munmap(address, size)


def _large_stream(driver: Driver) -> None:
    _, address = driver.alloc(1 << 23)
    driver.command(driver.context(), [0], item={"gpuaddr": address, "size": 1 << 22})


def _own_object(driver: Driver) -> None:
    driver.node._next_object = 1
    _, address = driver.alloc(4096)
    call = kgsl.struct_kgsl_map_user_mem(hostptr=address, len=4096, memtype=2)
    try:
        driver.node.ioctl(0xC0300915, call)
    except OSError as error:
        text = (error.strerror or "").replace(f"{address:#x}", "it")
        raise OSError(error.errno, text) from None


def _property(driver: Driver, **fields: Any) -> None:
    kgsl.IOCTL_KGSL_DEVICE_GETPROPERTY(driver.file, **{"type": 1, "value": 8, "sizebytes": 40} | fields)


def _constraint(driver: Driver, context: int) -> None:
    data = ctypes.create_string_buffer(struct.pack("<IIQQ", 1, context, 0, 4))
    kgsl.IOCTL_KGSL_SETPROPERTY(
        driver.file, type=kgsl.KGSL_PROP_PWR_CONSTRAINT, value=ctypes.addressof(data), sizebytes=24
    )


def _wait(driver: Driver, context: int, timestamp: int) -> None:
    kgsl.IOCTL_KGSL_DEVICE_WAITTIMESTAMP_CTXTID(driver.file, context_id=context, timestamp=timestamp)


REFUSED: dict[str, tuple[Any, int, str]] = {
    "request": (
        lambda d: d.file.ioctl(0xC0100999, bytearray(16)),
        errno.ENOTTY,
        "Inappropriate ioctl for device: request 0xc0100999 is none that the virtual node answers",
    ),
    "argument": (
        lambda d: d.file.ioctl(0xC0300945, 5),
        errno.EFAULT,
        ADDRESS + "request 0xc0300945 needs a buffer: memoryview: a bytes-like object is required, not 'int'",
    ),
    "short": (
        lambda d: d.file.ioctl(0xC0300945, bytearray(47)),
        errno.EFAULT,
        ADDRESS + "request 0xc0300945 needs a writable buffer of 48 bytes",
    ),
    "read-only": (
        lambda d: d.file.ioctl(0xC0300945, bytes(48)),
        errno.EFAULT,
        ADDRESS + "request 0xc0300945 needs a writable buffer of 48 bytes",
    ),
    "nothing": (
        lambda d: kgsl.IOCTL_KGSL_GPUOBJ_ALLOC(d.file, size=0, flags=CPU_MAP),
        errno.EINVAL,
        INVALID + "GPUOBJ_ALLOC of 0 bytes",
    ),
    "flags": (
        lambda d: kgsl.IOCTL_KGSL_GPUOBJ_ALLOC(d.file, size=1),
        errno.EINVAL,
        INVALID + "GPUOBJ_ALLOC without KGSL_MEMFLAGS_USE_CPU_MAP: addresses are the host's here",
    ),
    "memory": (
        lambda d: kgsl.IOCTL_KGSL_GPUOBJ_ALLOC(d.file, size=1 << 40, flags=CPU_MAP),
        errno.ENOMEM,
        "Cannot allocate memory: GPUOBJ_ALLOC of 1099511627776 bytes: 0 of 68719476736 are in use",
    ),
    "mmap": (
        lambda d: d.file.mmap(0, 4096, 0, 0, 0x5000),
        errno.EINVAL,
        INVALID + "mmap at offset 0x5000 is no GPU object",
    ),
    "mmap twice": (
        _mapped_twice,
        errno.EBUSY,
        "Device or resource busy: mmap of GPU object 1, which is mapped already",
    ),
    "mmap short": (_mapped_short, errno.EINVAL, INVALID + "mmap of 4096 bytes of an object of 8192"),
    "free": (
        lambda d: kgsl.IOCTL_KGSL_GPUOBJ_FREE(d.file, id=9),
        errno.EINVAL,
        INVALID + "GPUOBJ_FREE of object 9, which does not exist",
    ),
    "user type": (
        lambda d: kgsl.IOCTL_KGSL_MAP_USER_MEM(d.file, hostptr=4096, len=4096, memtype=3),
        errno.EINVAL,
        INVALID + "MAP_USER_MEM of type 3; the virtual node takes addresses",
    ),
    "user pages": (
        lambda d: kgsl.IOCTL_KGSL_MAP_USER_MEM(d.file, hostptr=4097, len=4096, memtype=2),
        errno.EINVAL,
        INVALID + "MAP_USER_MEM of 4096 bytes at 0x1001: give whole pages",
    ),
    "user hole": (
        lambda d: kgsl.IOCTL_KGSL_MAP_USER_MEM(d.file, hostptr=4096, len=4096, memtype=2),
        errno.EFAULT,
        ADDRESS + "4096 bytes at 0x1000 are not all memory that the process may write",
    ),
    "user gap": (
        _mapped_gap,
        errno.EFAULT,
        ADDRESS + "12288 bytes at it are not all memory that the process may write",
    ),
    "user object": (_own_object, errno.EFAULT, ADDRESS + "MAP_USER_MEM of it, which is a GPU object"),
    "user free": (
        lambda d: kgsl.IOCTL_KGSL_SHAREDMEM_FREE(d.file, gpuaddr=4096),
        errno.EINVAL,
        INVALID + "SHAREDMEM_FREE of 0x1000, which is not mapped user memory",
    ),
    "property": (
        lambda d: _property(d, type=2),
        errno.EINVAL,
        INVALID + "GETPROPERTY of 2; the virtual node has DEVICE_INFO",
    ),
    "property size": (
        lambda d: _property(d, sizebytes=8),
        errno.EINVAL,
        INVALID + "DEVICE_INFO of 8 bytes, it has 40",
    ),
    "property place": (_property, errno.EFAULT, ADDRESS + "40 bytes at 0x8 are no memory of the process"),
    "constraint": (
        lambda d: kgsl.IOCTL_KGSL_SETPROPERTY(d.file, type=1),
        errno.EINVAL,
        INVALID + "SETPROPERTY of 1; the virtual node takes PWR_CONSTRAINT",
    ),
    "constraint size": (
        lambda d: kgsl.IOCTL_KGSL_SETPROPERTY(d.file, type=0x12, sizebytes=3),
        errno.EINVAL,
        INVALID + "PWR_CONSTRAINT of 3 bytes, it has 24",
    ),
    "constraint place": (
        lambda d: kgsl.IOCTL_KGSL_SETPROPERTY(d.file, type=0x12, sizebytes=24),
        errno.EFAULT,
        ADDRESS + "24 bytes at 0x0 are no memory of the process",
    ),
    "constraint context": (
        lambda d: _constraint(d, 7),
        errno.EINVAL,
        INVALID + "context 7 does not exist",
    ),
    "context": (lambda d: d.command(7, [0]), errno.EINVAL, INVALID + "context 7 does not exist"),
    "destroy": (
        lambda d: kgsl.IOCTL_KGSL_DRAWCTXT_DESTROY(d.file, drawctxt_id=7),
        errno.EINVAL,
        INVALID + "context 7 does not exist",
    ),
    "sync points": (
        lambda d: d.command(d.context(), [0], numsyncs=1),
        errno.EINVAL,
        INVALID + "GPU_COMMAND with sync points or objects; the virtual node takes commands",
    ),
    "no commands": (
        lambda d: d.command(d.context(), [0], numcmds=0),
        errno.EINVAL,
        INVALID + "GPU_COMMAND with 0 commands of 32 bytes, not 32",
    ),
    "command list": (
        lambda d: d.command(d.context(), [0], cmdlist=16),
        errno.EFAULT,
        ADDRESS + "32 bytes at 0x10 are no memory of the process",
    ),
    "command flags": (
        lambda d: d.command(d.context(), [0], item={"flags": 3}),
        errno.EINVAL,
        INVALID + "GPU_COMMAND object with flags 0x3, not KGSL_CMDLIST_IB",
    ),
    "command memory": (
        lambda d: d.command(d.context(), [0], item={"gpuaddr": 64}),
        errno.EINVAL,
        INVALID + "GPU_COMMAND of 4 bytes at 0x40: give dwords of mapped memory",
    ),
    "command length": (
        _large_stream,
        errno.EINVAL,
        INVALID + "GPU_COMMAND of 4194304 bytes: an indirect buffer has 4194300 at most",
    ),
    "wait": (lambda d: _wait(d, 7, 1), errno.EINVAL, INVALID + "context 7 does not exist"),
    "future": (
        lambda d: _wait(d, d.context(), 1),
        errno.EINVAL,
        INVALID + "WAITTIMESTAMP for 1, the newest is 0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_kernel_would_refuse(driver: Driver, name: str) -> None:
    act, number, text = REFUSED[name]
    with pytest.raises(OSError) as caught:
        act(driver)
    assert (caught.value.errno, caught.value.strerror) == (number, text)


@pytest.fixture
def untouched() -> Iterator[None]:
    """The names that the node replaces, compared before and after."""

    def names() -> list[Any]:
        found = [getattr(ops_qcom, name) for name in ("FileIOInterface", "System", "dcache_flush")]
        return [*found, getattr(ops_qcom.QCOMAllocator, "_do_map", None)]

    before = names()
    yield
    assert names() == before


@pytest.mark.usefixtures("untouched")
def test_the_runtime_is_given_back_as_it_was(driver: Driver) -> None:
    with installed(driver.node), installed(Node(Bench().gpu)):
        assert issubclass(ops_qcom.FileIOInterface, FileIOInterface)
        assert ops_qcom.FileIOInterface(PATH).node is not driver.node
    with pytest.raises(ZeroDivisionError), installed(driver.node):
        raise ZeroDivisionError


@pytest.mark.usefixtures("untouched")
def test_only_the_node_is_virtual(driver: Driver) -> None:
    with installed(driver.node):
        with pytest.raises(FileNotFoundError) as caught:
            ops_qcom.FileIOInterface("/dev/kgsl-3d1", 2)
        assert caught.value.strerror == (
            "No such file or directory: '/dev/kgsl-3d1' is not /dev/kgsl-3d0, the only file that is virtual"
        )
        with pytest.raises(FileNotFoundError):
            ops_qcom.System.write_sysfs("/sys/class/net/lo", "1", "")
        ops_qcom.System.write_sysfs("/sys/class/kgsl/kgsl-3d0/idle_timer", "4000", "", expected="42")
        assert ops_qcom.System.atomic_lib is System.atomic_lib
    assert driver.node.sysfs == {"idle_timer": "42"}


@pytest.mark.usefixtures("untouched")
def test_what_the_runtime_lacks_for_a_second_context(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Added where it is missing, and then a finding; a runtime that has it keeps its own."""
    findings = driver.bench.gpu.findings
    with installed(driver.node):
        assert not len(findings)
        ops_qcom.QCOMAllocator._do_map(None, None)
    assert [str(found) for found in findings] == [
        "QCOMAllocator._do_map = 0x0: is missing: on a device the runtime's second context ends in a "
        "NotImplementedError"
    ]
    with monkeypatch.context() as context:
        context.setattr(ops_qcom.QCOMAllocator, "_do_map", lambda allocator, buffer: 7, raising=False)
        with installed(driver.node):
            assert ops_qcom.QCOMAllocator._do_map(None, None) == 7
