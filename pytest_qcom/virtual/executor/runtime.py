"""The shared part of generated code: compiled once a machine and wave size, used by all kernels."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llvmlite import ir

from pytest_qcom.virtual.executor import (
    address_ops,
    atomic_ops,
    filter_ops,
    image_ops,
    lane_ops,
    memory_ops,
    race_ops,
    scheduler,
    sfu,
    surface_ops,
    texel_ops,
)
from pytest_qcom.virtual.executor.cache import ObjectCache
from pytest_qcom.virtual.executor.target import Compiler, Effort, Host


@dataclass(frozen=True, slots=True)
class Runtime:
    """Addresses of the runtime's functions for one wave size.

    Attributes:
        symbols: what kernels call, by name.
        run: ``run(job, arena)`` with both as addresses; releases the interpreter's lock.
    """

    symbols: dict[str, int]
    run: Any
    handle: Any


def module_text(host: Host, wave: int) -> tuple[str, tuple[str, ...]]:
    """IR of the runtime for waves of ``wave`` fibers, and the functions that it exports."""
    module = ir.Module(f"qcom_runtime_{wave}")
    address_ops.emit(module, wave)
    memory_ops.emit(module, wave)
    lane_ops.emit(module, wave)
    atomic_ops.emit(module, wave)
    texel_ops.emit(module)
    image_ops.emit(module, wave)
    surface_ops.emit(module, wave)
    race_ops.emit(module, wave)
    filter_ops.emit(module, wave)
    scheduler.emit(module, wave, host.flushes)
    names = [f.name for f in module.functions if f.blocks and f.linkage != "internal"]
    names += [f"sfu_{name}" for name in sfu.NAMES]
    body = "\n".join(line for line in str(module).splitlines() if not line.startswith("target "))
    return body + "\n" + sfu.text(host), tuple(names)


@functools.cache
def runtime(compiler: Compiler, directory: Path, wave: int) -> Runtime:
    """The process's runtime for waves of ``wave`` fibers, from the cache in ``directory`` if it is there."""
    cache = ObjectCache(directory)
    key = f"runtime|{wave}|{compiler.target.key}"
    entry = cache.load(key)
    if entry is None:
        text, names = module_text(compiler.target, wave)
        code = compiler.compile(text, Effort.PASSES)
        cache.store(key, {"names": list(names)}, code)
    else:
        names, code = tuple(entry[0]["names"]), entry[1]
    symbols, handle = compiler.link(code, names, {})
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(symbols["run"])
    return Runtime(symbols, run, handle)
