"""Compiled programs: from the process's memory, from the cache on disk, or from the compiler."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pytest_qcom.errors import GpuHang
from pytest_qcom.isa.program import Program
from pytest_qcom.virtual.dispatch import Dispatch
from pytest_qcom.virtual.executor.cache import ObjectCache
from pytest_qcom.virtual.executor.late import translate_late
from pytest_qcom.virtual.executor.layout import Layout
from pytest_qcom.virtual.executor.runtime import Runtime, runtime
from pytest_qcom.virtual.executor.target import Compiler, Effort
from pytest_qcom.virtual.executor.translate import Translation, translate
from pytest_qcom.virtual.executor.watched import translate_watched

_PATIENCE = 0.25e-3
"""Seconds of running, for each issue slot of the code, after which a program is worth compiling with more
effort: about what that costs, so that no program takes twice as long as if the best had been known."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program ready to run.

    Attributes:
        address: of the kernel function.
        barriers: whether waves of a workgroup may wait for each other.
        slots: issue slots of the code, each instruction counted once with its repeats.
        handle: keeps the code alive.
    """

    layout: Layout
    address: int
    barriers: bool
    slots: int
    effort: Effort
    runtime: Runtime
    handle: Any


class Library:
    """All programs that this process has compiled for one host and cache directory."""

    def __init__(self, compiler: Compiler, directory: Path) -> None:
        self.compiler = compiler
        self.cache = ObjectCache(directory)
        self._kernels: dict[tuple[Any, ...], Compiled] = {}
        self._spent: dict[tuple[Any, ...], float] = {}
        self._lock = threading.Lock()

    def kernel(self, dispatch: Dispatch, late: bool = False, watched: bool = False) -> Compiled:
        """The compiled form of a launch's program.

        Args:
            late: with its late results, instead of as if every wait were there.
            watched: with calls that look for races.

        Raises:
            DecodeError: the code holds a word that is no instruction.
            GpuHang: the launch starts behind the program.
        """
        variant = "late" if late else "watched" if watched else ""
        key = _key(dispatch, variant)
        known = self._kernels.get(key)
        if known is None:
            with self._lock:
                known = self._kernels.get(key) or self._first(dispatch, variant)
                self._kernels[key] = known
        return known

    def ran(self, dispatch: Dispatch, seconds: float) -> None:
        """Notes how long a launch took; a program that runs for long is compiled again, with full effort."""
        key = _key(dispatch, "")
        known = self._kernels[key]
        if known.effort is Effort.FULL:
            return
        spent = self._spent[key] = self._spent.get(key, 0.0) + seconds
        if spent > known.slots * _PATIENCE:
            with self._lock:
                self._kernels[key] = self._make(dispatch, Effort.FULL, "")

    def _first(self, dispatch: Dispatch, variant: str) -> Compiled:
        """The best that the cache has, else a quick compilation."""
        entry = self.cache.load(self._name(dispatch, Effort.FULL, variant))
        if entry:
            return self._load(dispatch, Effort.FULL, entry)
        return self._make(dispatch, Effort.QUICK, variant)

    def _name(self, dispatch: Dispatch, effort: Effort, variant: str) -> str:
        flags = f"{dispatch.entry}|{dispatch.wave_size}|{dispatch.merged}|{dispatch.constant_demotion}"
        if variant == "watched":
            flags += "|watched"
        if variant == "late":
            flags += f"|late|{dispatch.fregs}|{dispatch.hregs}"
        return f"{sha256(dispatch.code).hexdigest()}|{flags}|{effort.name}|{self.compiler.target.key}"

    def _make(self, dispatch: Dispatch, effort: Effort, variant: str) -> Compiled:
        name = self._name(dispatch, effort, variant)
        stored = self.cache.load(name)
        if stored is None:
            instrs = Program.decode(dispatch.code).instrs
            wave, merged, demoted = dispatch.wave_size, dispatch.merged, dispatch.constant_demotion
            entry, host = dispatch.entry, self.compiler.target
            if not entry < len(instrs):
                raise GpuHang(
                    f"GPU hang at instruction {entry}: the launch starts there, behind the program's last "
                    f"one, {len(instrs) - 1}; correct where it starts",
                    pc=entry,
                )
            if variant == "watched":
                made = translate_watched(instrs, entry, wave, merged, demoted, host)
            elif variant == "late":
                footprint = dispatch.fregs, dispatch.hregs
                made = translate_late(instrs, entry, wave, merged, demoted, footprint, host)
            else:
                made = translate(instrs, entry, wave, merged, demoted, host)
            slots = sum(1 + instr.rpt for instr in instrs)
            stored = _header(made, slots), self.compiler.compile(made.text, effort)
            self.cache.store(name, *stored)
        return self._load(dispatch, effort, stored)

    def _load(self, dispatch: Dispatch, effort: Effort, entry: tuple[dict[str, Any], bytes]) -> Compiled:
        header, code = entry
        shared = runtime(self.compiler, self.cache.directory, dispatch.wave_size)
        imports = {name: shared.symbols[name] for name in header["imports"]}
        addresses, handle = self.compiler.link(code, ("kernel",), imports)
        files = header["full"], header["half"]
        layout = Layout(dispatch.wave_size, *files, dispatch.merged, header["late"])
        return Compiled(
            layout, addresses["kernel"], header["barriers"], header["slots"], effort, shared, handle
        )


def _key(dispatch: Dispatch, variant: str) -> tuple[Any, ...]:
    footprint = (dispatch.fregs, dispatch.hregs) if variant == "late" else ()
    mode = dispatch.wave_size, dispatch.merged, dispatch.constant_demotion
    return (dispatch.code, dispatch.entry, variant, *mode, *footprint)


def _header(made: Translation, slots: int) -> dict[str, Any]:
    """What must be known of an object to use it."""
    return {
        "full": made.layout.full,
        "half": made.layout.half,
        "late": made.layout.late_bytes,
        "imports": list(made.imports),
        "barriers": bool(made.barriers),
        "slots": slots,
    }
