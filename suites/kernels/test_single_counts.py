"""Float32 kernels in numbers: those that were published of each configuration, and how ours compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_qcom.kernels.published import options_from_notes
from pytest_qcom.kernels.registry import KERNELS
from suites.kernels.test_counts import case

FAMILIES = ("gemm_4x4_fp32", "gemm_4x8_fp32", "gemm_8x4_fp32", "gemm_8x8_fp32")
MEASURED = Path(__file__).parents[2] / "baselines" / "tc3" / "0001_measurements.json"


def figures() -> list[dict[str, Any]]:
    """The published measurements of the float32 families."""
    entries = json.loads(MEASURED.read_text())["benchmarks"]
    return [entry for entry in entries if entry["group"] in FAMILIES]


def test_every_published_figure_has_its_kernel() -> None:
    """19 rows of the table, from the words of the notes to a kernel; p189 repeats p188 on another host."""
    rows = {entry["extra_info"]["provenance"]["row"]: entry for entry in figures()}
    assert len(rows) == 19
    found = set()
    for row, entry in rows.items():
        kernel, options = options_from_notes(entry["group"], entry["params"]["config"], entry["params"])
        assert kernel.build(options).program.instrs
        name = "p188" if row == "p189" else row
        assert kernel.configure({}, name) == options, row
        found.add(name)
    declared = {
        case.name
        for family in FAMILIES
        for case in KERNELS[f"{family}_published"].cases
        if case.name[1:].isdigit()
    }
    assert declared - found == {"p187", "p196", "p198"}  # published without a figure: two wrong, one hung


@pytest.mark.parametrize(
    ("name", "row", "published"),
    [
        # "161 instructions, loop 47, 8 isam, 2 (sy), f20 h1". The loop is the published one; prologue and
        # store are not the compiler's and 67 shorter; the one half vec4 is declared there and never used.
        ("gemm_4x4_fp32", "p170", dict(loop=47, isam=8, sy=2, fregs=20, instructions=161 - 67, hregs=0)),
        ("gemm_4x4_fp32", "p178", dict(fregs=12, isam=8)),
        ("gemm_4x4_fp32", "p180", dict(fregs=13, isam=8)),
        ("gemm_4x4_fp32", "preload", dict(fregs=13)),
        # 73 instructions a loop, 12 isam, 2 (sy), f21.
        ("gemm_4x8_fp32", "p188", dict(loop=73, isam=12, sy=2, fregs=21)),
        ("gemm_4x8_fp32", "one-bank", dict(fregs=17)),
        ("gemm_4x8_fp32", "p198", dict(fregs=20)),
        ("gemm_4x4_fp32", "quad-b", dict(fregs=17, isam=8 + 4)),  # four broadcasts beside
        ("gemm_4x8_fp32", "plain", dict(fregs=32, isam=12)),
        ("gemm_4x8_fp32", "pipeline", dict(fregs=30)),
        ("gemm_8x4_fp32", "p167", dict(fregs=28, sy=2)),
        # 9 + 4n and 13 + 4n of the notes, and those of the other tiles.
        ("gemm_wide_fp32", "4x16", dict(fregs=25, isam=20)),
        ("gemm_wide_fp32", "4x12", dict(fregs=21)),
        ("gemm_wide_fp32", "pipeline-b", dict(fregs=29)),
        ("gemm_wide_fp32", "5x8", dict(fregs=24)),
        ("gemm_wide_fp32", "6x8", dict(fregs=27)),
        ("gemm_wide_fp32", "8x4", dict(fregs=21)),
        ("gemm_wide_fp32", "8x8", dict(fregs=33)),
        ("gemm_4x4_fp32_halfwave", "n64x64", dict(fregs=14, isam=8)),
        # f37 of the notes: r36.w keeps the local id for a second run of the prologue, which ours has not.
        ("gemm_8x8_fp32", "p168", dict(fregs=37 - 1, sy=2)),
    ],
)
def test_published_counts(name: str, row: str, published: dict[str, int]) -> None:
    found = case(f"{name}_published", row)
    assert {key: found[key] for key in published} == published


@pytest.mark.parametrize(
    ("name", "case_name", "fregs"),
    [
        ("gemm_4x4_fp32", "n1024", 13),  # as compact-preload
        ("gemm_4x8_fp32", "n1024", 21),  # as low with preload-b
        ("gemm_4x8_fp32", "one-bank", 17),  # as low without it
        ("gemm_4x8_fp32_rotate", "n1024", 21),
        ("gemm_4x8_fp32_splitk", "n256", 15 - 1),  # the notes' reduction needs another vec4
        ("gemm_4x8_fp32_waksman", "small", 25),
        ("gemm_4x12_fp32", "one-bank-unroll", 9 + 4 * 3),  # the stream kernels have 9 + 4 n
        ("gemm_4x16_fp32", "one-bank-unroll", 9 + 4 * 4),
        ("gemm_4x12_fp32", "pipeline-b", 13 + 4 * 3),
        ("gemm_4x16_fp32", "pipeline-b", 13 + 4 * 4),
        ("gemm_5x8_fp32", "small", 24),
        ("gemm_6x8_fp32", "small", 27),
        ("gemm_8x4_fp32", "n1024", 21),
        ("gemm_8x8_fp32", "small", 33),
        ("gemm_dp4", "n1024", 13),
    ],
)
def test_ours_is_no_larger_than_the_plans_of_the_notes(name: str, case_name: str, fregs: int) -> None:
    found = case(name, case_name)
    assert (found["fregs"], found["hregs"]) == (fregs, 0)


def test_ours_is_as_short_as_the_best_published_4x8() -> None:
    """73 instructions, with the wait for the last coordinate in place of a copy of the counter."""
    ours, published = case("gemm_4x8_fp32", "small"), case("gemm_4x8_fp32_published", "p188")
    names = ("loop", "isam", "mad", "rpt3", "fregs")
    assert {name: ours[name] for name in names} == {name: published[name] for name in names}
    assert (ours["sy"], ours["ss"]) == (1, 0)


def test_paired_coordinates_are_one_instruction_each() -> None:
    """12 fewer, in the same registers and with the same waits."""
    ours, plain = case("gemm_4x8_fp32", "n1024"), case("gemm_4x8_fp32", "small")
    assert ours["loop"] == plain["loop"] - 12
    assert (ours["fregs"], ours["sy"], ours["ss"]) == (plain["fregs"], plain["sy"], plain["ss"])


def test_own_pairs_need_fewer_instructions_and_more_registers() -> None:
    """12 additions a step in place of 24, and nothing to wait for."""
    found = case("gemm_4x8_fp32", "own-pairs")
    assert (found["loop"], found["fregs"]) == (12 + 12 + 32 + 1, 26)


def test_rotating_banks() -> None:
    """72 instructions a step, 74 in the notes, and one (sy) each."""
    found = case("gemm_4x8_fp32_rotate", "n1024")
    assert found["loop"] == 3 * 72
    assert found["isam"] == 12 * (1 + 3)  # before the loop, and in its three steps
    assert found["sy"] == 4  # three in the loop, one behind it
    published = case("gemm_4x8_fp32_rotate_published", "image")
    # The notes' step has a counter of its own and waits for it; here a pass counts once.
    assert (published["fregs"], published["loop"]) == (21, 3 * (32 + 12 + 24) + 4)


@pytest.mark.parametrize("rows", [4, 8])
def test_dp4_products_are_not_repeated(rows: int) -> None:
    """16 instructions a row and vec4 column, where float32 has four repeated ones."""
    kernel = KERNELS["gemm_dp4"]
    build = kernel.build(kernel.configure({"rows": rows}))
    products = [instr for instr in build.program.instrs if instr.op.name == "dp4acc"]
    assert len(products) == 16 * rows
