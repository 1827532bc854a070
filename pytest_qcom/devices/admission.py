"""What a device refuses before the runtime is asked: geometry, arguments, registers, images.

Every check raises a :class:`~pytest_qcom.errors.LaunchError` that says what the A630 allows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pytest_qcom.analysis.occupancy import group_waves, register_cost, register_waves, wave_fibers
from pytest_qcom.chip import A630
from pytest_qcom.devices.device import Tensor
from pytest_qcom.envelope import ArgumentKind, Envelope
from pytest_qcom.errors import LaunchError
from pytest_qcom.virtual import registers as regs

_IMAGE_TYPES = ("float16", "float32", "uint32", "int8")
_IMAGE_NAMES = "float16, float32, uint32 or int8"


def check_geometry(name: str, groups: tuple[int, ...], local: tuple[int, ...]) -> None:
    """A grid of whole, positive sizes within the chip's fields."""
    for what, size in (("groups", groups), ("local size", local)):
        whole = isinstance(size, tuple | list) and len(size) == 3
        whole = whole and all(isinstance(count, int | np.integer) for count in size)
        if not whole or min(size) < 1:
            raise LaunchError(f"launch of {name} with {what} {size}: give three positive integers")
    most = A630.waves.workgroup.value
    if math.prod(local) > most:
        raise LaunchError(
            f"launch of {name} with local size {local}: {math.prod(local)} fibers in a workgroup, the "
            f"A630 allows {most}; choose a smaller local size"
        )
    if max(int(count) * int(fibers) for count, fibers in zip(groups, local, strict=True)) >= 1 << 32:
        raise LaunchError(
            f"launch of {name} with groups {groups} of {local}: a side has 2**32 work items or more; "
            "launch in parts"
        )


def check_tensors(what: str, tensors: tuple[Any, ...]) -> None:
    """Memory of a device, and not the host's."""
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise LaunchError(
                f"{what} with a {type(tensor).__name__}: it is no memory of the device; give what "
                "device.upload, device.image or device.empty returned"
            )


def check_array(what: str, array: Any) -> None:
    """Numbers of the host, in an array that says their shape and type."""
    if not isinstance(array, np.ndarray | np.generic):
        raise LaunchError(
            f"{what} of a {type(array).__name__}: it has no shape and dtype; give a numpy array"
        )


def check_image(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """An image that the texture pipe can address."""
    if len(shape) != 3 or shape[2] != 4 or dtype.name not in _IMAGE_TYPES:
        raise LaunchError(
            f"image of shape {shape} and {dtype}: an image is (height, width, 4) of {_IMAGE_NAMES}; "
            "reshape or convert the array"
        )
    height, width, _ = shape
    side, align = A630.images.side.value, A630.images.pitch_align.value
    if max(height, width) > side:
        raise LaunchError(
            f"image of {width}x{height} texels: the A630 allows {side} texels a side; split the array"
        )
    pitch = width * 4 * dtype.itemsize
    if pitch % align:
        raise LaunchError(
            f"image of {width} texels of {4 * dtype.itemsize} bytes a row: rows of {pitch} bytes are no "
            f"multiple of {align}; make the width a multiple of {align // (4 * dtype.itemsize)}"
        )


def check_arguments(name: str, content: Envelope, args: tuple[Tensor, ...]) -> None:
    """One tensor for each argument, of its kind."""
    if len(args) != len(content.arguments):
        raise LaunchError(
            f"launch of {name} with {len(args)} arguments: the binary has {len(content.arguments)}; "
            "give one tensor for each"
        )
    for index, (tensor, argument) in enumerate(zip(args, content.arguments, strict=True)):
        wanted = argument.kind is not ArgumentKind.BUFFER
        if tensor.image != wanted:
            found = "an image" if tensor.image else "a linear buffer"
            raise LaunchError(
                f"launch of {name}: argument {index} is {found} of shape {tensor.shape}, the binary takes "
                f"{'an image' if wanted else 'a linear buffer'}; "
                f"{'create it with device.image' if wanted else 'create it with device.upload'}"
            )


def check_resources(name: str, content: Envelope) -> None:
    """What the registers of a launch can hold."""
    registers = A630.registers.full.value // 4
    stack, private = regs.SP_CS_CNTL_0["BRANCHSTACK"], regs.SP_CS_PVT_MEM_PARAM["MEMSIZEPERITEM"]
    for what, value, most in (
        ("full vec4 registers", content.fregs, registers),
        ("half vec4 registers", content.hregs, registers),
        ("entries of branch stack", content.branchstack, stack.get(stack.mask)),
        ("bytes of private memory", content.private_bytes, private.get(private.mask)),
        ("bytes of local memory", content.shared_bytes, A630.memories.local_bytes.value),
        ("bytes before its first instruction", content.entry, len(content.image) - 1),
    ):
        if value > most:
            raise LaunchError(f"launch of {name} with {value} {what}: the A630 allows {most}; use less")


def check_registers(name: str, content: Envelope, local: tuple[int, int, int], thread128: bool) -> None:
    """A workgroup whose waves fit the register file together."""
    cost = register_cost(content.fregs, content.hregs, bool(content.merged))
    waves = register_waves(cost, thread128)
    if group_waves(math.prod(local), thread128) > waves:
        mode = "THREAD128" if thread128 else "THREAD64"
        raise LaunchError(
            f"launch of {name} with local size {local} in {mode}: {content.fregs} full and {content.hregs} "
            f"half vec4 registers leave room for {waves * wave_fibers(thread128)} fibers in a workgroup; "
            "choose a smaller local size or use fewer registers"
        )
