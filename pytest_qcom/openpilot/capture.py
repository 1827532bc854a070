"""Captures a model as openpilot does: tinygrad compiles it for the A630 and pickles the TinyJit.

Half images, one batch and pruned constants are openpilot's settings: what depends on no input (weights that
are laid out for the GPU) runs once, and its results become weights. The process must have a QCOM device.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import reading
from pytest_qcom.openpilot.graph import Graph

if TYPE_CHECKING:
    from tinygrad import Tensor

Function = Callable[..., "Tensor"]
"""A model: tensors by keyword to a tensor."""
_PITCH = "IMAGE_PITCH_ALIGNMENT=64"  # what tinygrad adds to the QCOM target where images are on
_CAPTURES = 1  # the count at which a TinyJit captures; before it, it would only run


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape and numpy type of an input."""

    dims: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A small model with random weights.

    Attributes:
        inputs: by name.
        build: draws the weights from a generator and gives the function.
        image, half: compiled with images, and with their texels as halves.
    """

    name: str
    summary: str
    inputs: Mapping[str, Shape]
    build: Callable[[np.random.Generator], Function]
    image: bool = True
    half: bool = True

    def graph(self, seed: int = 0) -> Graph:
        """The captured graph.

        Raises:
            GraphError: tinygrad made something else of it than we can read.
        """
        return reading.read(self.pickled(seed), self.name)

    def pickled(self, seed: int = 0) -> bytes:
        """The pickle of the captured model, as openpilot stores it."""
        with compiling(self.image, self.half):
            return capture(self.build(np.random.default_rng(seed)), self.inputs)


def capture(function: Function, inputs: Mapping[str, Shape]) -> bytes:
    """The pickle of a function's TinyJit, captured on zeros."""
    from tinygrad import Tensor, TinyJit

    jit = TinyJit(function, prune=True)
    jit.cnt = _CAPTURES
    tensors: dict[str, Any] = {
        name: Tensor(np.zeros(shape.dims, shape.dtype), device="QCOM").contiguous().realize()
        for name, shape in inputs.items()
    }
    jit(**tensors)
    return pickle.dumps(jit)


@contextlib.contextmanager
def compiling(image: bool, half: bool) -> Iterator[None]:
    """While entered, tinygrad compiles for the QCOM device with these settings.

    tinygrad decides about images when it opens a device; one that is open already is told here.
    """
    from tinygrad import Device
    from tinygrad.helpers import Context

    device = Device["QCOM"]
    chip = device.arch.split(",")[0]
    before = device.arch
    device.arch = f"{chip},{_PITCH}" if image else chip
    try:
        with Context(IMAGE=int(image), FLOAT16=int(half), JIT_BATCH_SIZE=0, JIT=1, BEAM=0):
            yield
    finally:
        device.arch = before


def from_onnx(path: Path) -> tuple[Function, dict[str, Shape]]:
    """A model in ONNX, by tinygrad's own reader, as a function of its inputs; and these.

    Raises:
        GraphError: no such file, none that is ONNX, or an input whose shape is not fixed.
    """
    from tinygrad.nn.onnx import OnnxRunner

    try:
        runner = OnnxRunner(path)
    except Exception as error:  # its reader trusts what it reads: anything may happen
        reason = " ".join(str(error).split()) or type(error).__name__
        raise GraphError(f"{path}: no readable ONNX model ({reason}); export it again") from error
    inputs = {}
    for name, declared in runner.graph_inputs.items():
        if not all(isinstance(size, int) for size in declared.shape):
            raise GraphError(f"{path}: input {name} has shape {declared.shape}; export it with fixed shapes")
        inputs[name] = Shape(tuple(declared.shape), np.dtype(declared.dtype.fmt).name)

    def run(**tensors: Any) -> Any:
        """The first output, as openpilot takes it."""
        results = runner({name: tensor.to(None) for name, tensor in tensors.items()})
        return next(iter(results.values())).cast("float32").contiguous()

    return run, inputs
