"""The published FP16 8x8 GEMMs from texels of eight halves: their registers and delays, with every wait.

Which waits the notes had is not known; with all of them their schedule is right. But for ``merged-alias``: it
samples words into the full registers that would lie over B's halves if the files were merged, in launches
whose files are separate, so that products read what nobody wrote. In merged files its accumulators would lie
over its counters; our kernel (:mod:`gemm_8x8_fp16_packed`) has them apart and is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.choices import check_delays, check_range
from pytest_qcom.kernels.families import gemm_8x8_fp16_packed as packed
from pytest_qcom.kernels.gemm import HalfGemm, check_shape
from pytest_qcom.kernels.kernel import Build, Case
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.notes import flag
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Schedule
from pytest_qcom.kernels.stores import RowMajor

NAME = "gemm_8x8_fp16_packed_published"
_WORDS = {"packed8": "ab", "packed_b8": "b", "b_packed": "b", "bpacked": "b"}
_FOOTPRINTS = {("ab", False): (14, 36), ("b", False): (12, 28), ("b", True): (8, 28)}


@dataclass(frozen=True, slots=True)
class Published(packed.Options):
    """Options of the published packed kernels; ``packed8`` and ``packed-b8`` are words for ``packed``.

    Attributes:
        k_unroll: 1, what they have.
        thread128: waves of 128 fibers.
        coord_delay: nop repeats between coordinates and their samples; -1 is none.
        fregs_override, hregs_override: vec4 declared; 0 is what the notes declare.
    """

    k_unroll: int = 1
    thread128: bool = True
    coord_delay: int = 5
    fregs_override: int = 0
    hregs_override: int = 0


def read(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options by the words of the notes."""
    found = {}
    for key, value in given.items():
        name = key.replace("-", "_")
        if name in _WORDS and flag(value):
            found["packed"] = _WORDS[name]
        else:
            found["merged_alias" if name == "packed_b_alias" else key] = value
    return found


def build(options: Published) -> Build:
    """A published kernel.

    Raises:
        KernelError: options that do not go together.
    """
    check_shape(NAME, options)
    packed.check(NAME, options)
    if options.k_unroll != 1:
        raise KernelError(f"{NAME}: k-unroll is {options.k_unroll}; the published loops have 1 K step")
    check_delays(NAME, options, ("coord_delay",))
    check_range(NAME, options, dict.fromkeys(("fregs_override", "hregs_override"), (0, 48)))
    step = packed.step_of(options)
    schedule = Schedule(
        tile=Tile(packed.ROWS, packed.COLS, options.threads, adjacent=True),
        plan=_plan(options),
        phases=packed.phases(step),
        coordinates=packed.Packed(step, options.merged_alias, ahead=step - 1, delay=options.coord_delay),
        epilogue=RowMajor() if options.merged_alias else packed.Ordered(),
        scalar_first=True,
        unroll=1,
        b_index=packed.interleaved,
    )
    built = packed.launch(NAME, options, schedule, options.thread128)
    fregs, hregs = _FOOTPRINTS[options.packed, options.merged_alias]
    return replace(built, fregs=options.fregs_override or fregs, hregs=options.hregs_override or hregs)


def _plan(options: Published) -> RegisterPlan:
    """B, A and accumulators; words, their pairs and the place where the notes have them."""
    step = packed.step_of(options)
    plan, vectors = RegisterPlan().place("b", "hr0.x", 8 * step), step // 4  # of a row of A
    for row in range(packed.ROWS):
        over = tuple(f"a{other}" for other in range(row))
        plan = plan.place(f"a{row}", f"hr{2 * step + row * vectors % 4}.x", step, over=over)
    plan = plan.place("acc", f"hr{2 * step + 4}.x", 4 * packed.ROWS * packed.COLS)
    plan = plan.place("spare", "hr0.x", 8, over=("b",))
    for name, at in (("ky", "r6.y"), ("k4", "r6.z"), ("row", "r7.x"), ("col", "r7.y")):
        plan = plan.place(name, at, 1)
    plan = plan.place("raw", "r0.x" if options.merged_alias else "r8.x", 16)
    plan = plan.place("pairs", "r12.x" if options.packed == "ab" else "r4.x", 8)
    dead = tuple(block.name for block in plan.blocks if not block.first.half)
    held = tuple(name for name in dead if name not in ("row", "col"))
    plan = plan.place("scratch", "r1.x", 4, over=held)
    plan = plan.place("addresses", "r0.x", 2 * packed.ROWS, over=(*held, "scratch"))
    plan = plan.place("carries", "r4.x", packed.ROWS, over=held)
    return plan.place("offsets", "r6.z", 2, over=held)


PUBLISHED = HalfGemm(
    name=NAME,
    summary="FP16 GEMM, 8 rows by 8 columns a fiber, from texels of eight halves, in published registers",
    options=Published,
    build=build,
    inputs=packed.GEMM.inputs,
    oracle=packed.GEMM.oracle,
    tolerance=packed.GEMM.tolerance,
    patterns=packed.GEMM.patterns,
    cases=(
        Case("packed8", dict(coord_delay=2)),
        Case("packed-b8", dict(packed="b")),
        Case("packed-b8-alias", dict(packed="b", merged_alias=True)),
    ),
    claim="as-published",
    family="gemm_8x8_fp16",
    reads=read,
    source="qcom_packed8_gemm_check.py and qcom_8x8_check.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (PUBLISHED,)
