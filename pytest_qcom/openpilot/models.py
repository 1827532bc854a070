"""Small models with the structure of openpilot's, to capture and to patch: no weights of its are needed.

Sizes are as small as tinygrad still treats in the same way, such that images are images.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_qcom.errors import GraphError, closest
from pytest_qcom.openpilot import reading
from pytest_qcom.openpilot.capture import Function, Model, Shape
from pytest_qcom.openpilot.graph import Graph

if TYPE_CHECKING:
    from tinygrad import Tensor

_HEADS = 6
_TWINS = 2  # heads that were exported twice


def _weight(generator: np.random.Generator, *shape: int) -> Tensor:
    """A weight that keeps the magnitude of what it is multiplied with."""
    from tinygrad import Tensor

    fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
    array = generator.standard_normal(shape).astype(np.float32) / np.sqrt(np.float32(fan_in))
    return Tensor(array, device="QCOM").realize()


def _vision_mlp(generator: np.random.Generator) -> Function:
    """Two blocks of up-projection, GELU, down-projection, residual."""
    blocks = [
        (_weight(generator, 64, 256), _weight(generator, 256), _weight(generator, 256, 64)) for _ in range(2)
    ]

    def run(x: Any) -> Any:
        for up, bias, down in blocks:
            x = x + ((x @ up + bias).gelu() @ down).contiguous()
        return x.cast("float32").contiguous()

    return run


def _heads(generator: np.random.Generator) -> Function:
    """Many small products of one vector, some of which are exported twice, one head after the other."""
    from tinygrad import Tensor

    weights = [(_weight(generator, 128, 64), _weight(generator, 64, 32)) for _ in range(_HEADS)]
    twins = [tuple(Tensor(w.numpy(), device="QCOM").realize() for w in pair) for pair in weights[:_TWINS]]

    def run(features: Any) -> Any:
        made = [((features @ one).relu().contiguous() @ two).realize() for one, two in (*weights, *twins)]
        return Tensor.cat(*made, dim=1).cast("float32").contiguous()

    return run


def _shared_heads(generator: np.random.Generator) -> Function:
    """Small products of one vector, all at once."""
    from tinygrad import Tensor

    weights = [
        (_weight(generator, 128, 64), _weight(generator, 64), _weight(generator, 64, 32)) for _ in range(4)
    ]

    def run(features: Any) -> Any:
        made = [
            ((features @ one + bias).relu().contiguous() @ two).contiguous() for one, bias, two in weights
        ]
        return Tensor.cat(*made, dim=1).cast("float32").contiguous()

    return run


def _stem(generator: np.random.Generator) -> Function:
    """The first convolution, of two frames of six planes, and a GELU."""
    kernel, bias = _weight(generator, 16, 12, 3, 3), _weight(generator, 16)

    def run(frames: Any) -> Any:
        return frames.conv2d(kernel, bias, stride=2, padding=1).gelu().cast("float32").contiguous()

    return run


def _attention(generator: np.random.Generator) -> Function:
    """One block of attention with two heads."""
    width, heads = 64, 2
    query, key, value, out = (_weight(generator, width, width) for _ in range(4))

    def run(x: Any) -> Any:
        rows = x.shape[0]
        q, k, v = (
            (x @ w).contiguous().reshape(rows, heads, width // heads).permute(1, 0, 2)
            for w in (query, key, value)
        )
        mixed = q.scaled_dot_product_attention(k, v).permute(1, 0, 2).reshape(rows, width).contiguous()
        return (x + mixed @ out).cast("float32").contiguous()

    return run


def _input_pack(generator: np.random.Generator) -> Function:
    """Planes of an image in YUV 4:2:0, laid out as six planes of a quarter of its size."""
    scale = float(generator.uniform(0.5, 1.0)) / 128

    def run(yuv: Any) -> Any:
        height, width = yuv.shape[0] * 2 // 3, yuv.shape[1]
        luma = yuv[:height].reshape(height // 2, 2, width // 2, 2).permute(1, 3, 0, 2)
        planes = luma.reshape(4, height // 2, width // 2)
        chroma = yuv[height:].reshape(2, height // 2, width // 2)
        packed = planes.cat(chroma, dim=0).cast("float32")
        return ((packed - 128) * scale).contiguous()

    return run


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="vision-mlp",
            summary="two blocks of up-projection, GELU, down-projection and residual",
            inputs={"x": Shape((256, 64))},
            build=_vision_mlp,
        ),
        Model(
            name="heads",
            summary="many small products of one vector, some of them exported twice",
            inputs={"features": Shape((1, 128))},
            build=_heads,
        ),
        Model(
            name="shared-heads",
            summary="small products of one vector with biases, all at once",
            inputs={"features": Shape((1, 128))},
            build=_shared_heads,
        ),
        Model(
            name="stem",
            summary="the first convolution, of two frames of six planes, with a GELU",
            inputs={"frames": Shape((1, 12, 16, 32))},
            build=_stem,
        ),
        Model(
            name="attention",
            summary="a block of attention with two heads",
            inputs={"x": Shape((32, 64))},
            build=_attention,
        ),
        Model(
            name="input-pack",
            summary="an image in YUV 4:2:0 laid out as six planes",
            inputs={"yuv": Shape((48, 64), "uint8")},
            build=_input_pack,
        ),
    )
}
"""The declared models by name."""


@functools.cache
def pickled(name: str, seed: int = 0) -> bytes:
    """The pickle of a declared model, captured once a process for each seed of its weights.

    Raises:
        GraphError: there is no such model.
    """
    return find(name).pickled(seed)


@functools.cache
def captured(name: str) -> Graph:
    """The graph of a declared model, captured once a process.

    Raises:
        GraphError: there is no such model.
    """
    return reading.read(pickled(name), name)


def find(name: str) -> Model:
    """The model called ``name``.

    Raises:
        GraphError: there is none.
    """
    if name in MODELS:
        return MODELS[name]
    raise GraphError(f"no model is called {name!r}; {closest(name, MODELS)}")
