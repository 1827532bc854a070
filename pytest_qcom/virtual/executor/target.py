"""The host as LLVM sees it: features, machine code from IR text, linking."""

from __future__ import annotations

import enum
import functools
import threading
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

LOCK = threading.RLock()
"""Held around every call into LLVM, whose context is shared."""

# A region of straight-line code is one block of hundreds of vector operations with as many loads and
# stores: the machine scheduler's dependence graph is quadratic in them and was 80 % of the compile time.
_OPTIONS = ("-enable-misched=false",)


@dataclass(frozen=True, slots=True)
class Host:
    """What generated code may rely on.

    Attributes:
        features: LLVM's feature string.
        flushes: the floating-point unit flushes f32 subnormals itself once told so (x86 MXCSR).
        half_class: native f16 arithmetic and ``vfpclassph`` exist (AVX512-FP16), which ignore MXCSR's flush.
    """

    triple: str
    cpu: str
    features: str
    flushes: bool
    half_class: bool

    @property
    def key(self) -> str:
        """What machine code depends on, for cache keys."""
        return f"{self.triple}|{self.cpu}|{self.features}|{self.flushes}|{self.half_class}"


@functools.cache
def host(portable: bool = False) -> Host:
    """The machine that this process runs on.

    Args:
        portable: rely on no floating-point special of it; gives the same results, slower. Tests use it to
            run the code that other hosts get.
    """
    triple = llvm.get_default_triple()
    features = dict(llvm.get_host_cpu_features())
    x86 = triple.startswith(("x86_64", "amd64"))
    if portable:
        features = {
            name: on and "avx512" not in name and "avx10" not in name for name, on in features.items()
        }
    if x86 and features.get("avx512f"):
        # The CPU name may be misdetected, and a generic CPU does not know that wide shuffles are fast.
        features |= {
            "fast-variable-crosslane-shuffle": True,
            "fast-variable-perlane-shuffle": True,
            "prefer-256-bit": False,
        }
    text = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
    return Host(
        triple=triple,
        cpu="x86-64" if x86 else "",
        features=text,
        flushes=x86 and not portable,
        half_class=x86 and bool(features.get("avx512fp16")),
    )


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for option in _OPTIONS:
        llvm.set_option("pytest-qcom", option)


class Effort(enum.Enum):
    """How much LLVM does. All give the same results."""

    QUICK = 0  # code generation without optimisation: half the time to compile, 1.5 times as long to run
    FULL = 2  # kernels are emitted in the form that they should have and need no more
    PASSES = 3  # optimisation passes too


class Compiler:
    """Compiles IR text to object code and links object code into this process."""

    def __init__(self, target: Host) -> None:
        self.target = target
        with LOCK:
            _initialize()
            self._machines = {effort: self._create_machine(min(effort.value, 2)) for effort in Effort}
            # The JIT owns the machine that it is given.
            self._jit = llvm.create_lljit_compiler(self._create_machine(2), use_jit_link=True)
        self._count = 0

    def _create_machine(self, level: int) -> Any:
        return llvm.Target.from_triple(self.target.triple).create_target_machine(
            cpu=self.target.cpu, features=self.target.features, opt=level, reloc="pic", codemodel="small"
        )

    def compile(self, text: str, effort: Effort) -> bytes:
        """Object code of a module in LLVM's text form."""
        machine = self._machines[effort]
        with LOCK:
            module = llvm.parse_assembly(text)
            module.verify()  # code generation for what is not sound may crash
            module.triple = self.target.triple
            module.data_layout = str(machine.target_data)
            if effort is Effort.PASSES:
                tuning = llvm.create_pipeline_tuning_options(speed_level=2)
                builder = llvm.create_pass_builder(machine, tuning)
                builder.getModulePassManager().run(module, builder)
            return bytes(machine.emit_object(module))

    def link(
        self, code: bytes, exports: tuple[str, ...], imports: dict[str, int]
    ) -> tuple[dict[str, int], Any]:
        """Loads object code: addresses of ``exports``, and the handle that keeps them alive."""
        with LOCK:
            self._count += 1
            library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
            for name, address in imports.items():
                library.import_symbol(name, address)
            for name in exports:
                library.export_symbol(name)
            tracker = library.link(self._jit, f"qcom{self._count}")
            return {name: int(tracker[name]) for name in exports}, tracker


@functools.cache
def compiler(portable: bool = False) -> Compiler:
    """The process's compiler for this host."""
    with LOCK:
        return Compiler(host(portable))
