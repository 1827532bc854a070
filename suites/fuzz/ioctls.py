"""Sequences of ioctls and mmaps: what the runtime does, and the same with something wrong in it."""

from __future__ import annotations

import ctypes
import random
import struct
from typing import Any

import numpy as np
from tinygrad.runtime.autogen import kgsl, libc

from pytest_qcom.errors import QcomError
from pytest_qcom.virtual.kgsl import Node
from suites.fuzz.streams import INTERESTING
from suites.virtual.bench import Bench, signal

PAGE = 4096
CALLS = [
    call for name, call in vars(kgsl).items() if name.startswith("IOCTL_KGSL_") and hasattr(call, "args")
]
_USER = np.zeros(5 * PAGE, np.uint8)  # memory of the process that may be mapped for the GPU


class Client:
    """A process that uses the node as the runtime does, and sometimes not.

    Attributes:
        wrong: how often a call has something wrong in it: 0 never, 1 always.
    """

    def __init__(self, source: random.Random, wrong: float) -> None:
        self.source, self.wrong = source, wrong
        self.node = Node(Bench(wait_limit=0.002).gpu)
        self.objects: list[tuple[int, int]] = []  # number and size, not mapped yet
        self.mapped: list[tuple[int, int, int]] = []  # number, address, size
        self.user: list[int] = []
        self.contexts: list[int] = []
        self.timestamps: list[tuple[int, int]] = []
        self.pages: list[tuple[int, int]] = []
        self.kept: list[Any] = []

    def run(self, steps: int) -> bool:
        """Some steps; whether all were accepted."""
        sound = True
        for _ in range(steps):
            try:
                self.step()
            except (OSError, QcomError) as error:
                assert str(error)
                sound = False
        self.close()
        return sound

    def close(self) -> None:
        """Gives all memory back to the host."""
        for address, size in self.pages:
            libc.munmap(address, size)

    def step(self) -> None:
        """One call that makes sense now, of those that can be made."""
        steps = [self.alloc, self.context, self.map_user, self.property, self.anything]
        steps += [self.map] * 2 * bool(self.objects)
        steps += [self.command, self.command, self.constraint, self.destroy] * bool(self.contexts)
        steps += [self.wait] * 2 * bool(self.timestamps)
        steps += [self.unmap_user] * bool(self.user) + [self.free] * bool(self.mapped)
        self.source.choice(steps)()

    # what the runtime does

    def alloc(self) -> None:
        size = self.source.choice((1, 4096, 5000, 1 << 16))
        call = self.call(kgsl.IOCTL_KGSL_GPUOBJ_ALLOC, size=size, flags=kgsl.KGSL_MEMFLAGS_USE_CPU_MAP)
        self.objects.append((call.id, call.mmapsize))

    def map(self) -> None:
        number, size = self.source.choice(self.objects)
        offset = self.spoilt(number * PAGE)
        address = self.node.mmap(self.spoilt(size), offset)
        self.pages.append((address, size + PAGE))
        self.objects.remove((number, size))
        self.mapped.append((number, address, size))

    def free(self) -> None:
        number, address, size = self.source.choice(self.mapped)
        self.call(kgsl.IOCTL_KGSL_GPUOBJ_FREE, id=number)
        self.mapped.remove((number, address, size))

    def context(self) -> None:
        self.contexts.append(self.call(kgsl.IOCTL_KGSL_DRAWCTXT_CREATE, flags=0x100).drawctxt_id)

    def destroy(self) -> None:
        number = self.source.choice(self.contexts)
        self.call(kgsl.IOCTL_KGSL_DRAWCTXT_DESTROY, drawctxt_id=number)
        self.contexts.remove(number)
        self.timestamps = [(context, stamp) for context, stamp in self.timestamps if context != number]

    def map_user(self) -> None:
        page = -(-_USER.ctypes.data // PAGE) * PAGE
        size = self.source.choice((1, 2, 4)) * PAGE
        call = self.call(
            kgsl.IOCTL_KGSL_MAP_USER_MEM, hostptr=page, len=size, memtype=kgsl.KGSL_USER_MEM_TYPE_ADDR
        )
        self.user.append(call.gpuaddr)

    def unmap_user(self) -> None:
        address = self.source.choice(self.user)
        self.call(kgsl.IOCTL_KGSL_SHAREDMEM_FREE, gpuaddr=address)
        self.user.remove(address)

    def property(self) -> None:
        info = self.keep(kgsl.struct_kgsl_devinfo())
        self.call(
            kgsl.IOCTL_KGSL_DEVICE_GETPROPERTY,
            type=kgsl.KGSL_PROP_DEVICE_INFO, value=ctypes.addressof(info), sizebytes=ctypes.sizeof(info),
        )  # fmt: skip

    def constraint(self) -> None:
        wanted = self.keep(
            kgsl.struct_kgsl_device_constraint(type=1, context_id=self.source.choice(self.contexts))
        )
        self.call(
            kgsl.IOCTL_KGSL_SETPROPERTY, type=kgsl.KGSL_PROP_PWR_CONSTRAINT,
            value=ctypes.addressof(wanted), sizebytes=ctypes.sizeof(wanted),
        )  # fmt: skip

    def command(self) -> None:
        """Sets a word of its own buffer."""
        if not self.mapped:
            return
        _, address, _ = self.source.choice(self.mapped)
        words = signal(address, 7)
        ctypes.memmove(address, struct.pack(f"<{len(words)}I", *words), 4 * len(words))
        count = self.source.choice((1, 1, 3))
        items = self.keep((kgsl.struct_kgsl_command_object * count)())
        for item in items:
            item.gpuaddr, item.size, item.flags = address, 4 * len(words), kgsl.KGSL_CMDLIST_IB
            self.spoil(item)
        context = self.source.choice(self.contexts)
        call = self.call(
            kgsl.IOCTL_KGSL_GPU_COMMAND, cmdlist=ctypes.addressof(items), numcmds=count,
            cmdsize=ctypes.sizeof(kgsl.struct_kgsl_command_object), context_id=context,
        )  # fmt: skip
        self.timestamps.append((context, call.timestamp))

    def wait(self) -> None:
        context, timestamp = self.source.choice(self.timestamps)
        self.call(
            kgsl.IOCTL_KGSL_DEVICE_WAITTIMESTAMP_CTXTID, context_id=context, timestamp=timestamp, timeout=50
        )

    # and what it does not

    def anything(self) -> None:
        """A call that nobody makes: any ioctl, any fields, rarely with a number that is none."""
        if self.source.random() >= self.wrong:
            return
        binding = self.source.choice(CALLS)
        layout = binding.args[3]
        argument = bytearray(ctypes.sizeof(layout) if layout is not None else 8)
        for _ in range(self.source.randrange(6)):
            size = self.source.choice((4, 8))
            at = self.source.randrange(0, max(1, len(argument) - size + 1), 4)
            argument[at : at + size] = struct.pack("<Q", self.value() & (1 << 64) - 1)[:size]
        self.node.ioctl(self.request(binding), argument[: ctypes.sizeof(layout) if layout else 8])

    def call(self, binding: Any, **fields: Any) -> Any:
        """An ioctl, maybe spoilt; its structure with the results."""
        argument = binding.args[3](**fields)
        self.spoil(argument)
        self.spare(argument, fields)
        view = bytearray(bytes(argument))
        self.node.ioctl(self.request(binding), view)
        return binding.args[3].from_buffer_copy(view)

    def request(self, binding: Any) -> int:
        direction, group, number, layout = binding.args
        size = ctypes.sizeof(layout) if layout is not None else 0
        request: int = direction << 30 | size << 16 | group << 8 | number
        return request ^ 1 << self.source.randrange(32) if self.source.random() < self.wrong / 16 else request

    def spoil(self, structure: Any) -> None:
        """Sets a field to a value that it should not have, if it is time for that."""
        if self.source.random() >= self.wrong:
            return
        size = self.source.choice((4, 8))
        at = self.source.randrange(0, max(1, ctypes.sizeof(structure) - size + 1), 4)
        data = struct.pack("<Q", self.value() & (1 << 64) - 1)[:size]
        ctypes.memmove(ctypes.addressof(structure) + at, data, min(size, ctypes.sizeof(structure) - at))

    def spare(self, structure: Any, fields: dict[str, int]) -> None:
        """Leaves the process's own memory alone: what the node is told to write to, or to map, is no heap."""
        for name in ("value", "cmdlist", "hostptr"):
            if name in fields and getattr(structure, name) != fields[name]:
                buffers = [buffer.address for buffer in self.node.gpu.memory.buffers]
                setattr(structure, name, self.source.choice([0, 1, PAGE, 1 << 63, (1 << 64) - 8, *buffers]))
        if "hostptr" in fields and structure.len != fields["len"]:
            structure.len = self.source.choice((0, 1, PAGE - 1, 1 << 45, (1 << 64) - PAGE))

    def spoilt(self, value: int) -> int:
        return self.value() if self.source.random() < self.wrong else value

    def value(self) -> int:
        """Small, large, or one that means something here."""
        buffers = self.node.gpu.memory.buffers
        real = [buffer.address for buffer in buffers] + [buffer.size for buffer in buffers]
        real += [number * PAGE for number, _ in self.objects] + self.contexts
        return self.source.choice([*INTERESTING, *real, self.source.getrandbits(64)])

    def keep(self, structure: Any) -> Any:
        """Holds what a call points to."""
        self.kept.append(structure)
        return structure


def attack(source: random.Random) -> bool:
    """Some ioctls and mmaps on a new node; whether all were accepted."""
    return Client(source, source.choice((0.0, 0.05, 0.05, 0.2, 1.0))).run(source.randrange(4, 24))
