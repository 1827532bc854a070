"""A tinygrad program for ``qcom exec``: small computations of each kind, beside what they should give.

Usage: tinygrad_programs.py OUT.npz PROGRAM... The environment (IMAGE, FLOAT16, PROFILE) chooses how they are
compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad import Tensor, TinyJit, Variable, dtypes

Array = NDArray[Any]
Results = dict[str, tuple[Array, Array]]
RNG = np.random.default_rng(20)


def normal(*shape: int, dtype: type[np.floating[Any]] = np.float32) -> Array:
    """Random numbers."""
    return RNG.standard_normal(shape).astype(dtype)


def elementwise() -> Results:
    a, b = normal(37, 50), normal(37, 50)
    whole = RNG.integers(-1000, 1000, (400,), dtype=np.int32)
    divisor = RNG.integers(1, 50, (400,), dtype=np.int32)
    owned = normal(100)  # the device works on the process's own memory
    blob = Tensor.from_blob(owned.ctypes.data, owned.shape, dtype=dtypes.float, device="QCOM")
    return {
        "zero copy": ((blob * 2).numpy(), owned * 2),
        "add": ((Tensor(a) + Tensor(b)).numpy(), a + b),
        "fused": ((Tensor(a) * Tensor(b)).relu().sqrt().numpy(), np.sqrt(np.maximum(a * b, 0))),
        "divide": ((Tensor(a) / (Tensor(b).abs() + 1)).numpy(), a / (np.abs(b) + 1)),
        "where": ((Tensor(a) > 0.5).where(Tensor(b), 2).numpy(), np.where(a > 0.5, b, 2)),
        "exp": (Tensor(a).exp().numpy(), np.exp(a)),
        "sin": (Tensor(a).sin().numpy(), np.sin(a)),
        "integers": ((Tensor(whole) // Tensor(divisor)).numpy(), np.floor_divide(whole, divisor)),
        "shifts": (((Tensor(whole) & 0xFF) << 3).numpy(), (whole & 0xFF) << 3),
        "bytes": (Tensor(whole.astype(np.uint8)).cast(dtypes.float).numpy(), whole.astype(np.uint8)),
    }


def reductions() -> Results:
    a = normal(64, 300)
    return {
        "sum": (Tensor(a).sum().numpy(), a.sum(dtype=np.float64)),
        "rows": (Tensor(a).sum(axis=1).numpy(), a.sum(axis=1, dtype=np.float64)),
        "columns": (Tensor(a).max(axis=0).numpy(), a.max(axis=0)),
        "argmax": (Tensor(a).argmax(axis=1).numpy(), a.argmax(axis=1)),
        "softmax": (
            Tensor(a).softmax().numpy(),
            np.exp(a - a.max(1, keepdims=True)) / np.exp(a - a.max(1, keepdims=True)).sum(1, keepdims=True),
        ),
        "cumsum": (Tensor(a).cumsum(axis=1).numpy(), a.cumsum(axis=1, dtype=np.float64)),
        "sort": (Tensor(a[:8, :64]).sort()[0].numpy(), np.sort(a[:8, :64], axis=1)),
    }


def matmuls() -> Results:
    results = {}
    for dtype, name in ((np.float32, "fp32"), (np.float16, "fp16")):
        for m, k, n in ((64, 96, 64), (33, 17, 65)):
            a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype)
            exact = a.astype(np.float64) @ b.astype(np.float64)
            results[f"matmul {name} {m}x{k}x{n}"] = ((Tensor(a) @ Tensor(b)).numpy(), exact)
    return results


def _convolve(x: Array, w: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    convolved: Array = np.einsum("nchwij,ocij->nohw", windows, w)
    return convolved


def _loss(x: Array, w: Array, v: Array) -> float:
    pooled = np.maximum(_convolve(x, w), 0).reshape(x.shape[0], w.shape[0], 3, 2, 3, 2).max(axis=(3, 5))
    return float(np.square(pooled.reshape(x.shape[0], -1) @ v).mean())


def _slope(loss: Callable[[Array], float], at: Array) -> Array:
    """Central differences of ``loss``, one element after the other."""
    slope = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[index] = 1e-6
        slope[index] = (loss(at + step) - loss(at - step)) / 2e-6
    return slope


def network() -> Results:
    """A convolution, its pooled activations through a matrix, and the gradients of the mean square."""
    x, w, v = normal(2, 3, 8, 8), normal(4, 3, 3, 3), normal(36, 5)
    x64, w64, v64 = (array.astype(np.float64) for array in (x, w, v))
    inputs, weights, last = Tensor(x), Tensor(w), Tensor(v)
    pooled = inputs.conv2d(weights).relu().max_pool2d(2).flatten(1)
    loss = (pooled @ last).square().mean()
    gradients = loss.gradient(inputs, weights, last)
    slopes = (
        _slope(lambda at: _loss(at, w64, v64), x64),
        _slope(lambda at: _loss(x64, at, v64), w64),
        _slope(lambda at: _loss(x64, w64, at), v64),
    )
    results: Results = {"network": (loss.numpy(), np.asarray(_loss(x64, w64, v64)))}
    for name, gradient, slope in zip("xwv", gradients, slopes, strict=True):
        results[f"gradient {name}"] = (gradient.numpy(), slope)
    return results


def jit() -> Results:
    """A captured graph with several kernels and a symbolic size, replayed on new inputs."""

    step = TinyJit(lambda a, b: ((a @ b).relu().sum(0) + 1).realize())
    part = TinyJit(lambda a: (a + 1).sum().realize())

    results = {}
    for turn in range(4):
        a, b = normal(16, 16), normal(16, 16)
        wanted = np.maximum(a.astype(np.float64) @ b, 0).sum(0) + 1
        results[f"jit {turn}"] = (step(Tensor(a), Tensor(b)).numpy(), wanted)
        rows = Variable("rows", 1, 16).bind(turn + 3)
        results[f"symbolic {turn}"] = (part(Tensor(a)[:rows]).numpy(), (a[: turn + 3] + 1).sum(dtype=float))
    return results


def two_devices() -> Results:
    """Each device computes on memory of its own; nothing is copied between them."""
    a, b = normal(40), normal(40)
    first, second = Tensor(a).realize(), Tensor(b, device="QCOM:1").realize()
    return {
        "first device": ((first * 2).numpy(), a * 2),
        "second device": ((second * 3).numpy(), b * 3),
        "first device again": ((first + 1).numpy(), a + 1),
    }


def transfers() -> Results:
    """Copies between devices, which tinygrad makes on its CPU device."""
    a, b = normal(40), normal(40)
    moved = (Tensor(a, device="QCOM:1") * 2).to("QCOM") + Tensor(b)
    whole = normal(4, 6)
    shared = Tensor(whole).shard(("QCOM", "QCOM:1"), axis=0)
    return {
        "moved": (moved.numpy(), a * 2 + b),
        "sharded": ((shared + shared).sum().numpy(), 2 * whole.sum(dtype=float)),
    }


def times() -> Results:
    """Device time of two launches that differ in the length of a loop, by the counter of the GPU."""
    from tinygrad.device import Device

    taken = []
    for size in (1 << 10, 1 << 13):
        a = Tensor(np.ones((1, size), dtype=np.float32)).realize()
        before = Device["QCOM"].fd.node.gpu.ticks
        a.sum(axis=1).realize()
        taken.append(Device["QCOM"].fd.node.gpu.ticks - before)
    return {"times": (np.array([taken[0] > 0, taken[1] > 2 * taken[0]]), np.array([True, True]))}


PROGRAMS = {
    program.__name__: program
    for program in (elementwise, reductions, matmuls, network, jit, two_devices, transfers, times)
}


def main(out: str, *names: str) -> None:
    """Runs the programs of these names and stores ``NAME/got`` and ``NAME/wanted``."""
    arrays = {}
    for program in names:
        for name, (got, wanted) in PROGRAMS[program]().items():
            arrays[f"{name}/got"], arrays[f"{name}/wanted"] = np.asarray(got), np.asarray(wanted)
    np.savez(out, **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:])
