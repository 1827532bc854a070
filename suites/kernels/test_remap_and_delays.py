"""Accumulators that move to neighbouring registers, and delays of coordinates that become shorter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import HazardError
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels.kernel import Kernel
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.kernels.rewrite import MadRepeat, Refusal, apply, counts
from pytest_qcom.kernels.rewrites.delays import DelayTrim
from pytest_qcom.kernels.rewrites.remap import AccumulatorRemap
from pytest_qcom.kernels.waits import insert_waits, slots

COMPILED = KERNELS["gemm_4x4_fp16"]


def program(*lines: str) -> Program:
    return Assembler().parse("\n".join((*lines, "end"))).program()


def torn(*accumulators: str) -> list[str]:
    return [f"mad.f16 {acc}, hr0.x, hr4.{c}, {acc}" for acc, c in zip(accumulators, "xyzw", strict=True)]


APART = torn("hr8.x", "hr8.y", "hr10.z", "hr10.w")


def test_a_torn_vector_moves_and_packs() -> None:
    before = program("mov.u16u16 hr8.x, 0", "(rpt1)mov.u16u16 hr10.z, 0", *APART)
    after = apply(AccumulatorRemap(), before)
    assert after == program(
        "mov.u16u16 hr1.x, 0", "mov.u16u16 hr1.z, 0", "mov.u16u16 hr1.w, 0",
        *torn("hr1.x", "hr1.y", "hr1.z", "hr1.w"),
    )  # fmt: skip
    assert dict(counts(apply(MadRepeat(), after)))["mad"] == 1
    assert apply(AccumulatorRemap(), after) is after


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([*APART, "stg.f16 g[r0.x], hr10.z, 2"], "hr10.z is used at #4 by stg, which takes registers in a"),
        (["isam.1d (f16)(xyzw)hr10.x, r0.x, s#0, t#0", *APART], "hr10.z is used at #0 by isam, which"),
        ([f"mov.u16u16 hr{number}.x, 0" for number in range(48)] + APART, "four registers in a row are not"),
    ],
)
def test_what_cannot_move_is_left_alone(lines: list[str], reason: str) -> None:
    before = program(*lines)
    sites, refusals = AccumulatorRemap().find(before)
    assert sites == ()
    assert refusals[0].reason.startswith(reason)
    assert apply(AccumulatorRemap(), before) is before


@pytest.mark.parametrize("lines", [torn("hr8.x", "hr8.y", "hr8.z", "hr8.w"), APART[:3], APART[::-1]])
def test_what_is_no_torn_vector(lines: list[str]) -> None:
    assert AccumulatorRemap().find(program(*lines)) == ((), ())


def test_the_compiled_kernel_packs_whole_once_remapped(device: Device) -> None:
    """Its one torn vector: 63 of 64 vectors pack without, all of them with; the same bits either way."""
    found, outputs = [], []
    for remapped in (False, True):
        given = dict(m=32, n=128, k=36, strip_sync=True, pack_repeats=True, merge_pairs=True)
        options = COMPILED.configure({**given, "remap_accumulators": remapped})
        run = conformance.prepare(device, COMPILED, options, np.random.default_rng(1))
        run.launch()
        assert run.judge().ok
        outputs.append(run.outputs()["C"])
        found.append(dict(counts(run.build.program)))
    assert [numbers["mad"] for numbers in found] == [17, 16]
    np.testing.assert_array_equal(outputs[0], outputs[1], strict=True)


# ---- delays

SAMPLE = "isam.1d (f32)(xyzw)r4.x, r0.x, s#0, t#0"
COORDINATES = ["mov.u32u32 r0.x, r2.x", "mov.u32u32 r0.y, r2.y"]


@pytest.mark.parametrize(
    ("between", "left"),
    [
        (["(rpt5)nop"], ["(rpt5)nop"]),  # six slots are what a coordinate needs
        (["(rpt7)nop"], ["(rpt5)nop"]),
        (["add.s r8.x, r9.x, 1", "(rpt7)nop"], ["add.s r8.x, r9.x, 1", "(rpt4)nop"]),
        (["(rpt3)add.s r8.x, r9.x, 1"] * 2 + ["(rpt3)nop"], ["(rpt3)add.s r8.x, r9.x, 1"] * 2),
    ],
)
def test_a_delay_becomes_what_is_needed(between: list[str], left: list[str]) -> None:
    before = program(*COORDINATES, *between, SAMPLE)
    after = apply(DelayTrim(), before)
    assert after == program(*COORDINATES, *left, SAMPLE)
    assert insert_waits(after) == after
    assert apply(DelayTrim(), after) is after


def test_what_is_no_delay_stays() -> None:
    for between in (["(ss)(rpt5)nop"], ["(rpt5)nop", "add.f r8.x, r9.x, r9.y"]):
        before = program(*COORDINATES, *between, SAMPLE)
        assert apply(DelayTrim(least=0), before) is before
    other = program("mov.u32u32 r3.x, r2.x", "(rpt5)nop", SAMPLE)
    assert DelayTrim().find(other) == ((), ())


def test_the_first_delay_may_be_kept() -> None:
    before = program(*COORDINATES, "(rpt7)nop", SAMPLE, "(rpt3)nop", SAMPLE.replace("r4", "r5"))
    sites, refusals = DelayTrim(least=0, keep_first=True).find(before)
    assert [site.indices for site in sites] == [(4,)]
    assert refusals == (Refusal(2, "the first delay of a row of samples is kept"),)
    assert len(apply(DelayTrim(least=0), before).instrs) == len(before.instrs) - 2


def run(device: Device, kernel: Kernel, options: Any, changed: Program | None = None) -> Any:
    build = kernel.build(options)
    build = replace(build, program=changed) if changed else build
    launched = conformance.prepare(device, kernel, options, np.random.default_rng(2), build=build)
    launched.launch()
    assert launched.compare().ok
    return launched.outputs()["C"]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("gemm_4x8_fp32_published", dict(low_4x8_fp32=True, preload_b=True, coord_delay=7)),
        ("gemm_4x8_fp32_published", dict(low_4x8_fp32=True, coord_delay=6)),
    ],
)
def test_published_delays_are_trimmed_to_the_same_bits(
    device: Device, name: str, given: dict[str, Any]
) -> None:
    kernel = KERNELS[name]
    options = kernel.configure(dict(given, m=16, n=256, k=32))
    before = kernel.build(options).program
    after = apply(DelayTrim(), before)
    saved = sum(map(slots, before.instrs)) - sum(map(slots, after.instrs))
    assert saved >= 12 * (given["coord_delay"] - 5)
    np.testing.assert_array_equal(
        run(device, kernel, options), run(device, kernel, options, after), strict=True
    )


def test_a_delay_that_is_needed_shows_when_it_goes(device: Device) -> None:
    """The patch of the notes: one slot, ready or not. Strict hazards refuse it, as they should."""
    kernel = KERNELS["gemm_4x8_fp32_published"]
    options = kernel.configure(dict(low_4x8_fp32=True, preload_b=True, coord_delay=5, m=16, n=256, k=32))
    bare = apply(DelayTrim(least=1), kernel.build(options).program)
    assert len(bare.instrs) == len(kernel.build(options).program.instrs)
    if device.mode == "hardware":
        pytest.skip("hardware does not explain hazards")
    with pytest.raises(HazardError, match=r"^[^:]*early-read"):
        run(device, kernel, options, bare)
