"""The one interface through which kernels are run, whatever the device is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Tensor:
    """Memory of a device: a linear buffer, or with ``image`` a 2D image of ``(height, width, 4)`` texels."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    image: bool
    handle: Any  # the device's own


class Device(Protocol):
    """A GPU that runs QCOM CL binaries through tinygrad's QCOM runtime."""

    name: str
    chip: str
    mode: str  # what its times mean: ``model: issue-only``, ``hardware``

    def upload(self, array: NDArray[Any]) -> Tensor:
        """A linear buffer holding ``array`` (C order)."""
        ...

    def image(self, array: NDArray[Any]) -> Tensor:
        """A 2D image holding ``array`` of shape (height, width, 4), float16, float32, uint32 or int8
        (read as fractions of 127).

        Raises:
            LaunchError: wrong shape or dtype, unaligned pitch, larger than the chip's limit.
        """
        ...

    def empty(self, shape: tuple[int, ...], dtype: Any, image: bool = False) -> Tensor:
        """Memory filled with NaN bytes (0xff), so that an output that is not written shows."""
        ...

    def view(self, tensor: Tensor, shape: tuple[int, ...], image: bool, start: int = 0) -> Tensor:
        """A part of a tensor's memory in another shape; ``start`` in elements. Both live as long as either.

        Raises:
            LaunchError: beyond the tensor's end, or as for :meth:`image`.
        """
        ...

    def download(self, tensor: Tensor) -> NDArray[Any]:
        """A copy of the contents, in the tensor's shape and dtype."""
        ...

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
            LaunchError: geometry, registers or arguments that do not fit.
            GpuFault, GpuHang, HazardError: what the GPU ran into.
        """
        ...

    def reset(self) -> None:
        """Frees what tests left behind and recovers from a fault or hang."""
        ...
