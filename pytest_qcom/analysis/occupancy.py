"""How many waves a shader processor holds, and what bounds them.

The rules are those of Mesa (``ir3_shader.c``/``ir3.c``, ``ir3_get_reg_dependent_max_waves`` and
``ir3_get_reg_independent_max_waves``), and the suite holds them against those functions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from pytest_qcom.chip import A630, Chip
from pytest_qcom.errors import LaunchError


class Launch(Protocol):
    """What analysis needs to know of a launch. A dispatch of the virtual device is one, structurally."""

    @property
    def local_size(self) -> tuple[int, int, int]: ...
    @property
    def groups(self) -> tuple[int, int, int]: ...
    @property
    def thread128(self) -> bool: ...
    @property
    def fregs(self) -> int: ...
    @property
    def hregs(self) -> int: ...
    @property
    def merged(self) -> bool: ...
    @property
    def branchstack(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...


class Limiter(enum.Enum):
    """What bounds the waves in flight."""

    CHIP = "chip"
    REGISTERS = "registers"
    BRANCHSTACK = "branch stack"
    LOCAL_MEMORY = "local memory"


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Waves that a shader processor holds.

    Attributes:
        waves: waves in flight on a shader processor; a wave has ``wave_fibers`` fibers.
        register_cost: full vec4 registers that a fiber takes.
        limits: the bound that each limiter sets, in waves.
        limiter: the one that binds; the chip itself when none does.
    """

    waves: int
    wave_fibers: int
    register_cost: int
    limits: dict[Limiter, int]
    limiter: Limiter

    @property
    def fibers(self) -> int:
        """Fibers in flight on a shader processor."""
        return self.waves * self.wave_fibers


def wave_fibers(thread128: bool, chip: Chip = A630) -> int:
    """Fibers of a wave."""
    return chip.waves.fibers.value * (2 if thread128 else 1)


def group_waves(fibers: int, thread128: bool, chip: Chip = A630) -> int:
    """Waves of a workgroup of ``fibers``."""
    return -(-fibers // wave_fibers(thread128, chip))


def register_cost(fregs: int, hregs: int, merged: bool = False) -> int:
    """Full vec4 registers that a fiber takes; footprints are in vec4.

    Split files add up, two half vec4 for a full one. In merged mode both lie on the same storage.
    """
    halves = -(-hregs // A630.registers.halves_per_full.value)
    return max(fregs, halves) if merged else fregs + halves


def register_waves(cost: int, thread128: bool, chip: Chip = A630) -> int:
    """Waves a shader processor that ``cost`` vec4 registers a fiber allow; 0 when they do not fit at all."""
    if cost <= 0:
        return chip.waves.per_sp.value
    pairs = chip.registers.vec4.value // (cost * (2 if thread128 else 1))
    return min(pairs * chip.waves.granularity.value, chip.waves.per_sp.value)


def branchstack_waves(branchstack: int, chip: Chip = A630) -> int:
    """Waves that a declared branch stack allows; see the choice ``branchstack`` of the chip."""
    if branchstack <= 0:
        return chip.waves.per_sp.value
    groups = chip.waves.branchstack.value // branchstack
    return min(groups * chip.waves.granularity.value, chip.waves.per_sp.value)


def local_waves(shared_bytes: int, fibers: int, thread128: bool, chip: Chip = A630) -> int:
    """Waves that local memory allows: workgroups of ``fibers`` with ``shared_bytes`` each."""
    if shared_bytes <= 0:
        return chip.waves.per_sp.value
    unit = chip.memories.local_unit.value
    each = -(-shared_bytes // unit) * unit
    granularity = chip.waves.granularity.value
    pair = wave_fibers(thread128, chip) * granularity
    waves = -(-fibers // pair) * (chip.memories.local_bytes.value // each) * granularity
    return min(waves, chip.waves.per_sp.value)


def occupancy(
    fregs: int,
    hregs: int,
    *,
    thread128: bool,
    fibers: int = 1,
    branchstack: int = 0,
    shared_bytes: int = 0,
    merged: bool = False,
    chip: Chip = A630,
) -> Occupancy:
    """Waves in flight for footprints in vec4 and workgroups of ``fibers``.

    Raises:
        LaunchError: when not a single wave fits.
    """
    cost = register_cost(fregs, hregs, merged)
    limits = {
        Limiter.CHIP: chip.waves.per_sp.value,
        Limiter.REGISTERS: register_waves(cost, thread128, chip),
        Limiter.BRANCHSTACK: branchstack_waves(branchstack, chip),
        Limiter.LOCAL_MEMORY: local_waves(shared_bytes, fibers, thread128, chip),
    }
    limiter = min(limits, key=lambda name: limits[name])
    if limits[limiter] == 0:
        mode = "THREAD128" if thread128 else "THREAD64"
        raise LaunchError(
            f"launch in {mode} with fregs={fregs}, hregs={hregs}, branchstack={branchstack}, "
            f"{shared_bytes} bytes of local memory: the {limiter.value} of the {chip.name} holds no wave; "
            "declare less or use THREAD64",
            limiter=limiter.value,
            register_cost=cost,
        )
    return Occupancy(limits[limiter], wave_fibers(thread128, chip), cost, limits, limiter)


def of_launch(launch: Launch, chip: Chip = A630) -> Occupancy:
    """The occupancy of a launch.

    Raises:
        LaunchError: when not a single wave fits.
    """
    x, y, z = launch.local_size
    return occupancy(
        launch.fregs,
        launch.hregs,
        thread128=launch.thread128,
        fibers=x * y * z,
        branchstack=launch.branchstack,
        shared_bytes=launch.shared_bytes,
        merged=launch.merged,
        chip=chip,
    )


def waves_of(launch: Launch, chip: Chip = A630) -> int:
    """Waves that a launch consists of, over all of its workgroups."""
    x, y, z = launch.local_size
    gx, gy, gz = launch.groups
    return gx * gy * gz * group_waves(x * y * z, launch.thread128, chip)
