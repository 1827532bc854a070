"""Compiled programs: from the process's memory, from the cache on disk, or from the compiler."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pytest_qcom.isa.program import Program
from pytest_qcom.virtual.dispatch import Dispatch
from pytest_qcom.virtual.executor.cache import ObjectCache
from pytest_qcom.virtual.executor.layout import Layout
from pytest_qcom.virtual.executor.runtime import Runtime, runtime
from pytest_qcom.virtual.executor.target import Compiler
from pytest_qcom.virtual.executor.translate import translate


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program ready to run.

    Attributes:
        address: of the kernel function.
        barriers: whether waves of a workgroup may wait for each other.
        handle: keeps the code alive.
    """

    layout: Layout
    address: int
    barriers: bool
    runtime: Runtime
    handle: Any


class Library:
    """All programs that this process has compiled for one host and cache directory."""

    def __init__(self, compiler: Compiler, directory: Path) -> None:
        self.compiler = compiler
        self.cache = ObjectCache(directory)
        self._kernels: dict[tuple[Any, ...], Compiled] = {}
        self._lock = threading.Lock()

    def kernel(self, dispatch: Dispatch) -> Compiled:
        """The compiled form of a launch's program.

        Raises:
            DecodeError: the code holds a word that is no instruction.
        """
        key = (dispatch.code, dispatch.entry, dispatch.wave_size, dispatch.merged, dispatch.constant_demotion)
        known = self._kernels.get(key)
        if known is None:
            with self._lock:
                known = self._kernels.get(key) or self._make(dispatch)
                self._kernels[key] = known
        return known

    def _make(self, dispatch: Dispatch) -> Compiled:
        wave, merged = dispatch.wave_size, dispatch.merged
        flags = f"{dispatch.entry}|{wave}|{merged}|{dispatch.constant_demotion}"
        key = f"{sha256(dispatch.code).hexdigest()}|{flags}|{self.compiler.target.key}"
        shared = runtime(self.compiler, self.cache.directory, wave)
        entry = self.cache.load(key)
        if entry is None:
            instrs = Program.decode(dispatch.code).instrs
            made = translate(
                instrs, dispatch.entry, wave, merged, dispatch.constant_demotion, self.compiler.target
            )
            header: dict[str, Any] = {
                "full": made.layout.full,
                "half": made.layout.half,
                "imports": list(made.imports),
                "barriers": bool(made.barriers),
            }
            code = self.compiler.compile(made.text, optimize=False)
            self.cache.store(key, header, code)
        else:
            header, code = entry
        imports = {name: shared.symbols[name] for name in header["imports"]}
        addresses, handle = self.compiler.link(code, ("kernel",), imports)
        layout = Layout(wave, header["full"], header["half"], merged)
        return Compiled(layout, addresses["kernel"], header["barriers"], shared, handle)
