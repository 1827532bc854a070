"""A device over tinygrad's QCOM runtime: the one class for hardware and for the virtual A630.

tinygrad opens the node, allocates, builds the command stream and reads the timestamps; what it lacks for
QCOM CL binaries stands in :mod:`pytest_qcom.devices.hcq`.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad.device import TinyELF
from tinygrad.helpers import Target

from pytest_qcom import envelope
from pytest_qcom.devices.admission import (
    check_arguments,
    check_array,
    check_geometry,
    check_image,
    check_registers,
    check_resources,
    check_tensors,
)
from pytest_qcom.devices.device import Tensor
from pytest_qcom.devices.hcq import SPEC, Handle, Program, Runtime, signature_of
from pytest_qcom.envelope import Envelope
from pytest_qcom.errors import DeviceUnavailable, GpuHang, LaunchError, QcomError
from pytest_qcom.virtual import registers as regs
from pytest_qcom.virtual.gpu import collector_paused

_IMAGE_ALIGN = 64  # bytes: A6XX_TEX_CONST_4 holds an address without its low six bits
Limit = Callable[[int, int], None]
"""Holds the GPU to the size that was asked for: (address, bytes)."""
Opening = Callable[[], contextlib.AbstractContextManager[None]]


class RuntimeDevice:
    """A :class:`~pytest_qcom.devices.device.Device` over tinygrad's QCOM runtime.

    Args:
        mode: what its times mean.
        limit: called with address and size of each allocation.
        opening: entered while tinygrad opens the node.

    Raises:
        DeviceUnavailable: the node does not open.
    """

    def __init__(
        self,
        name: str,
        chip: str,
        mode: str,
        limit: Limit | None = None,
        opening: Opening = contextlib.nullcontext,
    ) -> None:
        self.name = name
        self.chip = chip
        self.mode = mode
        self._limit = limit
        self._opening = opening
        self._handles: weakref.WeakSet[Handle] = weakref.WeakSet()
        self._programs: dict[tuple[Any, ...], tuple[Program, Envelope]] = {}
        self._runtime = self._open()
        self._closed = False

    def stream(self) -> RuntimeDevice:
        """Another command stream of the same GPU, as a device: a context, timestamps and memory of its own.

        Its launches are ordered among themselves alone. It is closed by whoever asked for it.

        Raises:
            DeviceUnavailable: the node does not open once more.
        """
        self._require_open()
        return RuntimeDevice(self.name, self.chip, self.mode, self._limit, self._opening)

    def upload(self, array: NDArray[Any]) -> Tensor:
        """A linear buffer holding ``array`` (C order).

        Raises:
            LaunchError: nothing to hold, no array, or one of Python objects.
        """
        check_array("upload", array)
        tensor = self._allocate(array.shape, array.dtype, image=False)
        self._fill(tensor, array)
        return tensor

    def image(self, array: NDArray[Any]) -> Tensor:
        """A 2D image holding ``array`` of shape (height, width, 4), float16, float32, uint32 or int8.

        Raises:
            LaunchError: wrong shape or dtype, unaligned pitch, larger than the chip's limit.
        """
        check_array("image", array)
        tensor = self._allocate(array.shape, array.dtype, image=True)
        self._fill(tensor, array)
        return tensor

    def empty(self, shape: tuple[int, ...], dtype: Any, image: bool = False) -> Tensor:
        """Memory filled with NaN bytes (0xff), so that an output that is not written shows.

        Raises:
            LaunchError: as for :meth:`upload` and :meth:`image`.
        """
        tensor = self._allocate(tuple(shape), np.dtype(dtype), image)
        nbytes = math.prod(tensor.shape) * tensor.dtype.itemsize
        self._fill(tensor, np.full(nbytes, 0xFF, dtype=np.uint8))
        return tensor

    def view(self, tensor: Tensor, shape: tuple[int, ...], image: bool, start: int = 0) -> Tensor:
        """A part of a tensor's memory in another shape; ``start`` in elements. Both live as long as either.

        Raises:
            LaunchError: beyond the tensor's end, or as for :meth:`image`.
        """
        handle = self._handle(tensor, "view")
        total, count, size = math.prod(tensor.shape), math.prod(shape), tensor.dtype.itemsize
        if start < 0 or count < 1 or start + count > total:
            raise LaunchError(
                f"view of shape {shape} from element {start} of a tensor of shape {tensor.shape}: that has "
                f"{total} elements; give a part of them"
            )
        if image:
            check_image(shape, tensor.dtype)
        if image and start * size % _IMAGE_ALIGN:
            raise LaunchError(
                f"view of an image {shape} from byte {start * size}: images start at multiples of "
                f"{_IMAGE_ALIGN}; give another start"
            )
        part = handle.buffer.offset(start * size, count * size)
        return Tensor(tuple(shape), tensor.dtype, image, Handle(self._runtime, part, handle))

    def download(self, tensor: Tensor) -> NDArray[Any]:
        """A copy of the contents, in the tensor's shape and dtype.

        Raises:
            LaunchError: a tensor of another device, or freed by a reset.
        """
        handle = self._handle(tensor, "download")
        data = bytearray(math.prod(tensor.shape) * tensor.dtype.itemsize)
        with self._explained("download"):
            self._runtime.allocator._copyout(memoryview(data), handle.buffer)
        return np.frombuffer(data, dtype=tensor.dtype).reshape(tensor.shape)

    def launch(
        self,
        binary: bytes,
        name: str,
        args: Sequence[Tensor],
        groups: tuple[int, int, int],
        local: tuple[int, int, int],
        thread128: bool = False,
    ) -> float:
        """Runs a QCOM CL binary once; device seconds.

        ``args`` are in the order of the binary's arguments.

        Raises:
            EnvelopeError: a binary that is truncated or damaged.
            LaunchError: geometry, registers or arguments that do not fit.
            GpuFault, GpuHang, HazardError: what the GPU ran into.
        """
        check_geometry(name, groups, local)
        check_tensors(f"launch of {name}", tuple(args))
        program, content = self._program(binary, name, tuple(args))
        check_registers(name, content, local, thread128)
        program.thread128 = thread128
        buffers = [self._handle(tensor, f"launch of {name}").buffer for tensor in args]
        with collector_paused(), self._explained(f"launch of {name}"):
            return float(program(*buffers, global_size=groups, local_size=local, wait=True))

    @contextlib.contextmanager
    def partitions(self, textures: int, images: int) -> Iterator[None]:
        """While entered, launches have other partitions of the cache of descriptors than tinygrad gives them.

        Args:
            textures: what ``SP_CS_TSIZE`` says, 128 with tinygrad. With fewer than a kernel samples of, a
                device gave zeros.
            images: what ``SP_CS_USIZE`` says, 64 with tinygrad.
        """
        self._runtime.forced = {
            regs.SP_CS_TSIZE.address: (textures,),
            regs.SP_CS_USIZE.address: (images,),
        }
        try:
            yield
        finally:
            self._runtime.forced = {}

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Errors of the runtime as errors of ours, with tinygrad's timeline such that work can go on."""
        try:
            yield
        except QcomError:
            raise  # what the GPU ran into: it has passed the stream's signals
        except RuntimeError as error:
            raise GpuHang(
                f"{what} on {self.name}: the GPU does not answer ({error}); reset the "
                "device, and if that fails reboot it"
            ) from error
        except BaseException as error:
            self._runtime.settle()  # the signal that tinygrad counts on was never submitted
            if not isinstance(error, Exception):
                raise
            raise LaunchError(
                f"{what} on {self.name}: the runtime cannot submit it ({error}); check what it is given"
            ) from error

    def reset(self) -> None:
        """Frees what tests left behind and recovers from a fault or hang.

        Raises:
            DeviceUnavailable: the device does not open again.
        """
        self._require_open()
        lost = self._runtime.error_state is not None
        if lost:
            self._runtime.settle()  # or tinygrad refuses to free anything
        self._programs.clear()
        for handle in list(self._handles):
            handle.free()
        if lost:
            self._runtime.release()
            self._runtime = self._open()

    def close(self) -> None:
        """Gives the device back. Its tensors are gone."""
        if not self._closed:
            self.reset()
            self._closed = True
            self._runtime.release()

    def _open(self) -> Runtime:
        try:
            with self._opening():
                return Runtime()
        except OSError as error:
            raise DeviceUnavailable(
                f"device {self.name}: {ops_path(error)} does not open ({error.strerror}); check that "
                "it is a Snapdragon 845 with Qualcomm's kernel driver and that you may use the node",
                device=self.name,
            ) from error

    def _require_open(self) -> None:
        if self._closed:
            raise DeviceUnavailable(f"device {self.name}: it is closed; open it again", device=self.name)

    def _allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any], image: bool) -> Tensor:
        self._require_open()
        nbytes = math.prod(shape) * dtype.itemsize
        if dtype.kind not in "biuf" or nbytes <= 0:
            raise LaunchError(
                f"memory for shape {shape} of {dtype}: the device holds numbers, at least one; "
                "give an array of a number type"
            )
        if image:
            check_image(shape, dtype)
        try:
            buffer = self._runtime.allocator.alloc(nbytes, SPEC)
        except (MemoryError, OSError) as error:
            raise LaunchError(
                f"memory for shape {shape} of {dtype}: no {nbytes} bytes are left ({error}); use less"
            ) from error
        handle = Handle(self._runtime, buffer)
        self._handles.add(handle)
        if self._limit is not None:
            self._limit(int(handle.buffer.va_addr), nbytes)
        return Tensor(tuple(shape), dtype, image, handle)

    def _fill(self, tensor: Tensor, array: NDArray[Any]) -> None:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        with self._explained("upload"):
            self._runtime.allocator._copyin(tensor.handle.buffer, data.copy().data)

    def _handle(self, tensor: Tensor, what: str) -> Handle:
        self._require_open()
        check_tensors(what, (tensor,))
        handle = tensor.handle
        if not isinstance(handle, Handle) or handle.runtime is not self._runtime or not handle.free.alive:
            raise LaunchError(
                f"{what} with a tensor of shape {tensor.shape} that {self.name} does not hold: it is of "
                "another device or was freed by a reset; upload it again"
            )
        return handle

    def _program(self, binary: bytes, name: str, args: tuple[Tensor, ...]) -> tuple[Program, Envelope]:
        """The loaded program for a binary and the shapes of its arguments."""
        shapes = tuple((tensor.shape, tensor.dtype.str, tensor.image) for tensor in args)
        key = (binary, name, shapes)
        if key not in self._programs:
            content = envelope.parse(binary, name)
            check_arguments(name, content, args)
            check_resources(name, content)
            signature = tuple(signature_of(index, tensor) for index, tensor in enumerate(args))
            lib = binary if content.merged is None else replace(content, merged=None).to_bytes()
            with self._explained(f"launch of {name}"):
                program = Program(self._runtime, TinyELF(lib, name, Target("QCOM"), signature))
            program.merged = bool(content.merged)
            self._programs[key] = program, content
        return self._programs[key]


def ops_path(error: OSError) -> str:
    """The file that an error of the runtime is about."""
    return str(error.filename or "/dev/kgsl-3d0")
