"""Runs the GEMM: on the DSP of the phone, as its program under QEMU, or by the meanings of its operations.

The first two are tinygrad's: its compiler, and its DSP runtime or the mock of that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.dsp import csource, emulation, gemm, hvx
from pytest_qcom.dsp.gemm import Options
from pytest_qcom.dsp.listing import Listing
from pytest_qcom.errors import DeviceUnavailable, KernelError

DEVICE_FILES = ("/dev/adsprpc-smd", "/dev/ion", "/dsp/cdsp/fastrpc_shell_3")
"""What tinygrad's DSP runtime opens."""
EMULATOR = "qemu-hexagon-static"
"""The name under which tinygrad's mock starts QEMU."""
OTHER_EMULATOR = "qemu-hexagon"
MOCK_RATE = 1e9
"""Instructions that the mock calls a second."""


Memory = Mapping[str, hvx.Bytes]
"""The bytes of each buffer; a run changes those of the written ones."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What a run says of its speed.

    Attributes:
        seconds: least of the device's own times; None where nothing is timed.
        instructions: that QEMU counted; None elsewhere.
    """

    seconds: float | None = None
    instructions: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave: (n, m), int32 or uint8, in the order of the columns."""

    output: NDArray[Any]
    speed: Speed


def run(
    options: Options, weight: NDArray[Any], activation: NDArray[Any], on: str, rounds: int = 1
) -> Outcome:
    """Runs the GEMM.

    Args:
        weight: (n, k) uint8.
        activation: (k, m) int8.
        on: one of :data:`PLACES`.
        rounds: launches, of which the quickest counts.

    Raises:
        KernelError: inputs that are not as the options say, no rounds, or a source that the compiler refuses.
        DeviceUnavailable: what ``on`` needs and this machine lacks, or what the device answered.
    """
    if rounds < 1:
        raise KernelError(f"{gemm.NAME}: {rounds} rounds; give 1 or more")
    memory = gemm.memory(options, weight, activation)
    require(on)
    speed = PLACES[on].run(gemm.listing(options), memory, rounds)
    return Outcome(gemm.output(options, memory), speed)


def choose() -> str:
    """The DSP where there is one, else QEMU.

    Raises:
        DeviceUnavailable: neither is there.
    """
    lacking = {name: missing(name) for name in ("dsp", "qemu")}
    for name, reasons in lacking.items():
        if not reasons:
            return name
    found = "; ".join(f"{name}: {', '.join(reasons)}" for name, reasons in lacking.items())
    raise DeviceUnavailable(
        f"no place to run a DSP program ({found}); install what is missing, or choose numpy (--on numpy)"
    )


def missing(on: str) -> tuple[str, ...]:
    """What this machine lacks to run the GEMM there; empty where nothing does.

    Raises:
        DeviceUnavailable: no such place.
    """
    if on not in PLACES:
        raise DeviceUnavailable(f"DSP program on {on!r}: there are {', '.join(PLACES)}")
    return tuple(PLACES[on].missing())


def require(on: str) -> None:
    """Makes sure that the GEMM can run there.

    Raises:
        DeviceUnavailable: what is missing.
    """
    reasons = missing(on)
    if reasons:
        raise DeviceUnavailable(
            f"DSP program on {on}: {', '.join(reasons)}; install it, or choose another place (--on)"
        )


def _missing_files() -> Iterator[str]:
    for name in DEVICE_FILES:
        if not Path(name).exists():
            yield f"no {name}"
    yield from missing_compiler()


def _missing_emulator() -> Iterator[str]:
    if not shutil.which(EMULATOR) and not shutil.which(OTHER_EMULATOR):
        yield f"no {EMULATOR} or {OTHER_EMULATOR}"
    yield from missing_compiler()


def missing_compiler() -> Iterator[str]:
    """What the compiler lacks that tinygrad uses: clang or ``CC``, for Hexagon, with LLVM's linker."""
    from tinygrad.helpers import getenv

    compiler = getenv("CC", "clang")
    if not shutil.which(compiler):
        yield f"no {compiler}, which CC can name otherwise"
        return
    if "hexagon" not in _said(compiler, "--print-targets"):
        yield f"{compiler} has no target hexagon"
    if not shutil.which(_said(compiler, "-print-prog-name=ld.lld").strip()):
        yield f"{compiler} finds no ld.lld"


def _said(compiler: str, question: str) -> str:
    return subprocess.run([compiler, question], capture_output=True, text=True, check=False).stdout


@dataclass(frozen=True, slots=True)
class Machine:
    """tinygrad's side of a run: what compiles, gives memory and runs programs.

    Attributes:
        entry: of the source.
        compiler: a ``DSPCompiler``.
        allocate: bytes to a ``DSPBuffer`` that starts at a vector.
        free: the buffer.
        load: a ``TinyELF`` to a program that is called with buffers and gives seconds.
    """

    entry: str
    compiler: Any
    allocate: Callable[[int], Any]
    free: Callable[[Any], None]
    load: Callable[[Any], Callable[..., float]]


def hardware(device: Any) -> Machine:
    """The machine of a ``DSPDevice``."""
    from tinygrad.device import BufferSpec
    from tinygrad.runtime.ops_dsp import DSPCompiler

    spec = BufferSpec(nolru=True)
    return Machine(
        "fastrpc",
        DSPCompiler(),
        lambda size: device.allocator.alloc(size, spec),
        lambda buffer: device.allocator.free(buffer, buffer.size, spec),
        device.runtime,
    )


def mock() -> Machine:
    """The machine of tinygrad's mock: memory of this process, programs under QEMU."""
    from tinygrad.runtime.ops_dsp import DSPBuffer, DSPCompiler, MockDSPProgram

    memory: dict[int, hvx.Bytes] = {}

    def allocate(size: int) -> Any:
        data = np.zeros(size, np.uint8)
        memory[data.ctypes.data] = data
        return DSPBuffer(data.ctypes.data, size, None)

    return Machine(
        "stdio",
        DSPCompiler(mock=True),
        allocate,
        lambda buffer: memory.__delitem__(buffer.va_addr),
        lambda binary: MockDSPProgram(None, binary),
    )


def launch(machine: Machine, listing: Listing, memory: Memory, rounds: int) -> float:
    """Compiles a listing and runs it on copies of its buffers, then copies the written ones back.

    Returns:
        The least seconds.

    Raises:
        KernelError: the compiler refuses the source.
        DeviceUnavailable: the program fails.
    """
    from tinygrad.device import TinyELF
    from tinygrad.helpers import Target, to_mv

    try:
        library = machine.compiler.compile_cached(csource.program(listing, machine.entry))
    except (RuntimeError, OSError) as error:
        raise KernelError(
            f"{listing.name}: it does not compile: {_line(error)}; check the compiler"
        ) from error
    program = machine.load(TinyELF(library, "entry", Target(device="DSP"), ()))
    with contextlib.ExitStack() as stack:
        try:
            buffers = {each.name: _allocated(machine, each.size, stack) for each in listing.buffers}
            views = {name: to_mv(buffer.va_addr, buffer.size) for name, buffer in buffers.items()}
            for name, view in views.items():
                view[:] = memory[name].tobytes()
            seconds = min(program(*buffers.values(), wait=True) for _ in range(rounds))
        except (RuntimeError, OSError, MemoryError, subprocess.SubprocessError) as error:
            raise DeviceUnavailable(
                f"{listing.name}: the program failed: {_line(error)}; run it again"
            ) from error
        for each in listing.buffers:
            if each.written:
                memory[each.name][:] = np.frombuffer(views[each.name], np.uint8)
    return seconds


def _allocated(machine: Machine, size: int, stack: contextlib.ExitStack) -> Any:
    buffer = machine.allocate(size)
    stack.callback(machine.free, buffer)
    return buffer


def _line(error: Exception) -> str:
    """The line of a message that says what is wrong, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if "error:" in line), lines[-1])[:200]


def _on_hardware(listing: Listing, memory: Memory, rounds: int) -> Speed:
    from tinygrad import Device

    try:
        device = Device["DSP"]
    except (RuntimeError, OSError) as error:
        raise DeviceUnavailable(f"DSP does not open: {_line(error)}; does another process use it?") from error
    return Speed(seconds=launch(hardware(device), listing, memory, rounds))


def _under_qemu(listing: Listing, memory: Memory, rounds: int) -> Speed:
    with _named_for_tinygrad():
        return Speed(instructions=round(launch(mock(), listing, memory, rounds) * MOCK_RATE))


@contextlib.contextmanager
def _named_for_tinygrad() -> Iterator[None]:
    """While entered, QEMU is found by the name that tinygrad knows."""
    found = shutil.which(OTHER_EMULATOR)
    if shutil.which(EMULATOR) or found is None:
        yield
        return
    before = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, EMULATOR).symlink_to(found)
        os.environ["PATH"] = os.pathsep.join([before, folder])
        try:
            yield
        finally:
            os.environ["PATH"] = before


def _by_numpy(listing: Listing, memory: Memory, rounds: int) -> Speed:
    emulation.run(listing, memory)
    return Speed()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a listing can run: what that lacks here, and running it on its buffers so many times."""

    missing: Callable[[], Iterator[str]]
    run: Callable[[Listing, Memory, int], Speed]


PLACES: dict[str, Place] = {
    "dsp": Place(_missing_files, _on_hardware),
    "qemu": Place(_missing_emulator, _under_qemu),
    "numpy": Place(lambda: iter(()), _by_numpy),
}
"""By name."""
