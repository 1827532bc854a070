"""What tinygrad's QCOM runtime lacks to launch any QCOM CL binary, as classes of its own that add it.

tinygrad (0.14.0, unmodified) loads programs that its compilers made. Added are the wave size and the register
mode of a launch, images of bytes, and giving memory back before the process ends.
"""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
from tinygrad.device import BufferSpec, TinyELF
from tinygrad.dtype import dtypes
from tinygrad.helpers import Target
from tinygrad.renderer import Renderer
from tinygrad.runtime import ops_qcom
from tinygrad.runtime.autogen import kgsl
from tinygrad.runtime.support.hcq import HCQCompiled

from pytest_qcom.devices.device import Tensor
from pytest_qcom.virtual import registers as regs
from pytest_qcom.virtual.dispatch import Format

_IMAGE_TYPES = {
    np.dtype(np.float16): dtypes.half,
    np.dtype(np.float32): dtypes.float,
    np.dtype(np.uint32): dtypes.uint,  # tinygrad's descriptor is the float one; 32-bit words pass unchanged
    np.dtype(np.int8): dtypes.int8,  # read as fractions of 127
}
_IMAGE_DIMENSIONS = 3
SPEC = BufferSpec(cpu_access=True, nolru=True)
"""Of memory that the host reads and writes, given back when it is freed."""
_THREADSIZE = {
    regs.SP_CS_CNTL_0.address: (0, regs.SP_CS_CNTL_0["THREADSIZE"].mask),
    regs.SP_CS_NDRANGE_0.address: (
        regs.SP_CS_WGE_CNTL.address - regs.SP_CS_NDRANGE_0.address,
        regs.SP_CS_WGE_CNTL["THREADSIZE"].mask,
    ),
}  # the two register writes that hold the wave size: which of their values, which bit
_numbers = itertools.count()


class Queue(ops_qcom.QCOMComputeQueue):  # type: ignore[misc]
    """tinygrad's command stream, with the wave size and register mode of the program that is launched."""

    _program: Program | None = None

    def exec(self, prg: Program, *args: Any) -> Any:
        self._program = prg
        return super().exec(prg, *args)

    def reg(self, reg: int, *vals: int) -> None:
        values = [*self.dev.forced.get(reg, vals)]
        if self._program is not None:
            if self._program.thread128 and reg in _THREADSIZE:
                index, bit = _THREADSIZE[reg]
                values[index] |= bit
            if self._program.merged and reg == regs.SP_CS_CNTL_0.address:
                values[0] |= regs.SP_CS_CNTL_0["MERGEDREGS"].mask
        super().reg(reg, *values)


class Arguments(ops_qcom.QCOMArgsState):  # type: ignore[misc]
    """tinygrad's arguments of a launch, with the format of images of bytes, which it does not know."""

    def __init__(self, buf: Any, prg: Program, bufs: tuple[Any, ...], vals: tuple[Any, ...] = ()) -> None:
        super().__init__(buf, prg, bufs, vals)
        images = [kind for _, _, kind, shape in prg.signature if len(shape) == _IMAGE_DIMENSIONS]
        for index, kind in enumerate(images[prg.ibo_cnt :]):
            if kind is dtypes.int8:
                word = ops_qcom.qreg.a6xx_tex_const_0(
                    0x8, swiz_x=0, swiz_y=1, swiz_z=2, swiz_w=3, fmt=Format.RGBA8_SNORM.value
                )
                self.bind_sints_to_buf(word, buf=self.buf, fmt="I", offset=prg.tex_off + 0x40 * index)


class Program(ops_qcom.QCOMProgram):  # type: ignore[misc]
    """A QCOM CL binary, loaded."""

    thread128 = False
    merged = False

    def __init__(self, dev: Runtime, obj: TinyELF) -> None:
        super().__init__(dev, obj)
        self.args_state_t = Arguments


class Runtime(ops_qcom.QCOMDevice):  # type: ignore[misc]
    """tinygrad's device, apart from the one that ``Tensor`` programs use, and for QCOM CL binaries alone."""

    def __init__(self) -> None:
        # Signals are shared within a peer group; a group of our own keeps two devices apart.
        self.iface = SimpleNamespace(peer_group=f"pytest-qcom {next(_numbers)}", count=1)
        super().__init__("QCOM")
        self.forced: dict[int, tuple[int, ...]] = {}
        self.hw_compute_queue_t = functools.partial(Queue, self)

    @property
    def renderer(self) -> Renderer:
        """None that compiles: the runtime only asks whether its binaries are Mesa's."""
        return Renderer(Target("QCOM", arch=self.arch))

    def settle(self) -> None:
        """Ends what was submitted but will not end by itself: tinygrad waits for nothing any more."""
        self.error_state = None
        self.timeline_signal.value = self.timeline_value - 1

    def release(self) -> None:
        """Gives back the context and the memory that tinygrad keeps until the process ends, some 100 MB.

        Programs that are collected later free their own memory; there is no signal left to wait for.
        """
        self.allocator.free_cache()
        stack = [self._stack] if hasattr(self, "_stack") else []
        pages = HCQCompiled.signal_pages[self.peer_group]
        kept = [*self.allocator.b, self.cmd_buf, self.kernargs_buf, self.border_color_buf, *stack, *pages]
        for table in (HCQCompiled.peer_groups, HCQCompiled.signal_pages, HCQCompiled.signal_pool):
            table.pop(self.peer_group, None)
        del self.timeline_signal
        for buffer in kept:
            self._gpu_free(buffer)
        kgsl.IOCTL_KGSL_DRAWCTXT_DESTROY(self.fd, drawctxt_id=self.ctx)


class Handle:
    """Memory of a device, freed with its last user, or by a reset; or a part of another handle's.

    ``whole``: the handle that a part is of, which it keeps.
    """

    def __init__(self, runtime: Runtime, buffer: Any, whole: Handle | None = None) -> None:
        self.runtime = runtime
        self.buffer = buffer
        self.whole = whole
        self.free: weakref.finalize[..., Handle]
        if whole is not None:
            self.free = whole.free
            return
        self.free = weakref.finalize(self, runtime.allocator.free, buffer, buffer.size, SPEC)
        self.free.atexit = False


def signature_of(index: int, tensor: Tensor) -> tuple[str, int, Any, tuple[int, ...]]:
    """An argument as tinygrad describes it; only an image's shape and type matter to the runtime."""
    if tensor.image:
        return (f"data{index}", index, _IMAGE_TYPES[tensor.dtype], tensor.shape)
    nbytes = math.prod(tensor.shape) * tensor.dtype.itemsize
    return (f"data{index}", index, dtypes.uint8, (nbytes,))
