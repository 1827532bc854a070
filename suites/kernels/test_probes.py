"""Probes: every map against what it should be, what the probes refuse, and that rates follow the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.conformance import Outcome
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.edit import branches
from pytest_qcom.kernels.kernel import Case, Kernel
from pytest_qcom.kernels.published import options_from_notes
from pytest_qcom.kernels.registry import KERNELS

NAMES = (
    "shfl_probe",
    "branch_probe",
    "compiled_branch_probe",
    "subgroup_probe",
    "image_probe",
    "mad_peak",
)
LARGE = {"shfl", "quad", "fp16", "fp16-64", "fp32", "fp32-64"}
"""Cases as published, which store nothing or take long; their floors are elsewhere."""

CHECKED = [
    pytest.param(KERNELS[name], case, id=f"{name}[{case.name}]")
    for name in NAMES
    for case in KERNELS[name].cases
    if case.name not in LARGE
]


def column(device: Device, name: str, number: int = 0, **given: Any) -> list[int]:
    """One word of each fiber of the first workgroup."""
    kernel = KERNELS[name]
    run = conformance.prepare(device, kernel, kernel.configure(given))
    run.launch()
    return [int(word) for word in run.outputs()["C"][: run.build.local[0], number]]


@pytest.mark.parametrize(("kernel", "case"), CHECKED)
def test_map_is_as_declared(device: Device, kernel: Kernel, case: Case) -> None:
    run = conformance.prepare(device, kernel, kernel.configure({}, case.name), np.random.default_rng(3))
    run.launch()
    outcome = run.judge()
    assert outcome.ok
    assert outcome.checked > 0


SMALL = dict(groups_x=1, groups_y=1)


@pytest.mark.parametrize(
    ("given", "number", "head", "tail"),
    [
        # of 128 fibers in one wave: the first six, and the last
        (dict(mode="xor"), 0, [1, 0, 3, 2, 5, 4], 126),
        (dict(mode="xor"), 4, [16, 17, 18, 19, 20, 21], 111),
        (dict(mode="up"), 0, [0, 0, 1, 2, 3, 4], 126),
        (dict(mode="down"), 1, [2, 3, 4, 5, 6, 7], 127),
        (dict(mode="rup"), 0, [127, 0, 1, 2, 3, 4], 126),
        (dict(mode="rdown"), 4, [16, 17, 18, 19, 20, 21], 15),
        (dict(mode="rdown", thread128=False), 4, [16, 17, 18, 19, 20, 21], 79),
        (dict(mode="rdown"), 5, [5, 6, 7, 8, 9, 10], 4),
        (dict(op="quad", mode="brcst"), 3, [3, 3, 3, 3, 7, 7], 127),
        (dict(op="quad", mode="brcst"), 0, [0, 0, 0, 0, 4, 4], 124),
        (dict(op="quad", mode="horiz"), 0, [1, 0, 3, 2, 5, 4], 126),
        (dict(op="quad", mode="vert"), 0, [2, 3, 0, 1, 6, 7], 125),
        (dict(op="quad", mode="diag"), 0, [3, 2, 1, 0, 7, 6], 124),
        (dict(blocks=True), 3, [0, 0, 0, 0, 0, 0], 96),  # the first of 32 fibers goes to all of them
        (dict(blocks=True), 5, [0, 0, 0, 0, 0, 0], 0),  # and of the whole wave
        (dict(fiberid=True, thread128=False), 0, [0, 1, 2, 3, 4, 5], 63),
    ],
)
def test_shuffle_reads(
    device: Device, given: dict[str, Any], number: int, head: list[int], tail: int
) -> None:
    words = column(device, "shfl_probe", number, **SMALL, **given)
    assert words[:6] == head
    assert words[-1] == tail


def test_branch_is_taken_by_every_fourth_fiber_alone(device: Device) -> None:
    assert column(device, "branch_probe", 1) == [1, 0, 0, 0] * 32
    assert column(device, "branch_probe", 1, turns=True, period=8) == [1, 2, 3, 4, 5, 6, 7, 8] * 16


@pytest.mark.parametrize("bench", ["throughput", "chain"])
@pytest.mark.parametrize("op", ["shfl", "quad"])
def test_shuffles_of_a_loop_are_counted(op: str, bench: str) -> None:
    kernel = KERNELS["shfl_probe"]
    for count in (1, 16, 40):
        build = kernel.build(kernel.configure(dict(op=op, bench=bench, ops_per_iter=count, loops=3)))
        moved = [
            instr for instr in build.program.instrs if instr.op.name.startswith(("shfl", "quad_shuffle"))
        ]
        assert len(moved) == count
        assert build.work == pytest.approx(1e-9 * 8 * 64 * 128 * 3 * count)


def test_a_chain_is_slower_than_independent_shuffles(device: Device) -> None:
    """In one workgroup, where no other waves hide the latency."""
    rates = {}
    for bench in ("throughput", "chain"):
        kernel = KERNELS["shfl_probe"]
        options = kernel.configure(dict(bench=bench, loops=31, groups_x=1, groups_y=1))
        run = conformance.prepare(device, kernel, options)
        run.launch()
        assert run.compare().ok
        rates[bench] = run.rate
    assert rates["throughput"] > 1.05 * rates["chain"]


def test_peak_doubles_in_the_wide_mode_for_halves_only(device: Device) -> None:
    """345 to 690 GFLOPS for halves, 345 to 468 for words."""
    rate = {}
    for dtype in ("fp16", "fp32"):
        for wide in (True, False):
            kernel = KERNELS["mad_peak"]
            options = kernel.configure(dict(dtype=dtype, thread128=wide, groups=256))
            run = conformance.prepare(device, kernel, options)
            run.launch()
            rate[dtype, wide] = run.rate
    assert rate["fp16", False] == pytest.approx(rate["fp32", False], rel=0.02)
    assert rate["fp16", True] / rate["fp16", False] == pytest.approx(2, abs=0.15)
    assert 1.2 < rate["fp32", True] / rate["fp32", False] < 1.6


def test_declared_registers_cost_waves_and_nothing_else() -> None:
    kernel = KERNELS["texture_bw"]
    plain, padded = (
        kernel.build(kernel.configure(dict(m=16, n=1024, k=64, fregs_override=full, hregs_override=half)))
        for full, half in ((0, 0), (40, 44))
    )
    assert ((plain.fregs, plain.hregs), (padded.fregs, padded.hregs)) == ((8, 32), (40, 44))
    assert plain.program == padded.program


@pytest.mark.parametrize(
    ("family", "config", "columns", "options"),
    [
        ("shfl_probe", "op=quad bench=throughput ops-per-iter=16", {"thread128": "1"}, {"op": "quad"}),
        ("shfl_probe", "fiberid", {"threads": "128"}, {"fiberid": True}),
        (
            "mad_peak",
            "dtype=fp32",
            {"threads": "256", "thread128": "0"},
            {"thread128": False, "dtype": "fp32"},
        ),
        ("texture_bw", "loads=20", {"thread128": "1"}, {"loads": 20, "thread128": True}),
        ("shfl_probe", "quad-map", {}, {"op": "quad", "mode": "brcst"}),
        ("shfl_probe", "quad-only groups=1", {}, {"op": "quad", "groups_x": 1}),
        ("shfl_probe", "shfl-modes", {"threads": "64"}, {"op": "shfl", "mode": "", "threads": 64}),
        ("shfl_probe", "branch", {"threads": "64"}, {"period": 4, "turns": False}),
        ("shfl_probe", "compiled-branch", {"threads": "64"}, {"image": False, "threads": 64}),
        ("shfl_probe", "compiled-image-branch", {}, {"image": True, "period": 4}),
        ("subgroup_probe", "api=up selector=i&31", {}, {"lane_mask": 31, "selector": 1, "qbc": False}),
        ("subgroup_probe", "qbc qbc-zero qbc-selector=2", {}, {"qbc_selector": 2, "qbc_target": "own"}),
        ("subgroup_probe", "qbc qbc-dst1 merged0", {}, {"qbc_target": "apart", "mergedregs": False}),
        ("alu_peak", "groups=64 rpt=1 unroll=2", {}, {"groups": 64, "gemm_pattern": False}),
    ],
)
def test_published_rows_are_options(
    family: str, config: str, columns: dict[str, str], options: dict[str, Any]
) -> None:
    kernel, found = options_from_notes(family, config, columns)
    assert {name: getattr(found, name) for name in options} == options
    kernel.build(found)


@pytest.mark.parametrize(("image", "stores", "samples"), [(False, 2, 0), (True, 1, 1)])
def test_the_compiler_predicates_short_branches(image: bool, stores: int, samples: int) -> None:
    """Nothing jumps; of two stores each is predicated, of a sample the zeros for the other fibers, too."""
    kernel = KERNELS["compiled_branch_probe"]
    program = kernel.build(kernel.configure({"image": image})).program
    names = [instr.op.name.partition(".")[0] for instr in program.instrs]
    assert (names.count("stg"), names.count("isam")) == (stores, samples)
    assert (names.count("predt"), names.count("predf")) == ((1, 1) if image else (2, 0))
    assert names.count("predt") == names.count("prede")
    assert not any(branches(instr) for instr in program.instrs)


@pytest.mark.parametrize(
    ("form", "head"),
    [
        ({}, [13, 13, 13, 13, 17, 17, 17, 17]),  # the word of the last fiber
        ({"qbc_zero": True}, [10, 10, 10, 10, 14, 14, 14, 14]),
        ({"qbc_known": True}, [12, 13, 10, 11, 16, 17, 14, 15]),  # the words say whose, modulo 4
        ({"qbc_swap": True, "qbc_selector": 7}, [7] * 8),
    ],
)
def test_forms_of_the_broadcast(device: Device, form: dict[str, Any], head: list[int]) -> None:
    kernel = KERNELS["subgroup_probe"]
    options = kernel.configure({"qbc": True, "groups": 1, **form})
    run = conformance.prepare(device, kernel, options)
    words = np.arange(10, 138, dtype=np.uint32)
    run.tensors = {**run.tensors, "X": device.upload(words)}
    run.launch()
    assert list(run.outputs()["C"][:8, 0]) == head


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("shfl_probe", {"op": "any"}, "shfl_probe: op is 'any'; give shfl or quad"),
        ("shfl_probe", {"op": "quad", "mode": "up"}, "shfl_probe: mode of quad is 'up'; give one of brcst, "),
        ("shfl_probe", {"bench": "x"}, "shfl_probe: bench is 'x'; give throughput, chain or nothing"),
        ("shfl_probe", {"bench": "chain", "fiberid": True}, "shfl_probe: fiberid is a map; give it without "),
        ("shfl_probe", {"bench": "chain", "blocks": True}, "shfl_probe: blocks is a map; give it without "),
        ("shfl_probe", {"op": "quad", "blocks": True}, "shfl_probe: blocks is a map of its own; give it "),
        ("shfl_probe", {"loops": 0}, "shfl_probe: loops is 0; give 1 to 1023"),
        ("shfl_probe", {"op": "quad", "amount": 4}, "shfl_probe: amount is 4; give a fiber of 4 or a dist"),
        ("compiled_branch_probe", {"period": 3}, "compiled_branch_probe: period is 3; give a power of 2 fr"),
        ("compiled_branch_probe", {"groups": 65}, "compiled_branch_probe: groups is 65; give 1 to 64"),
        ("compiled_branch_probe", {"threads": 96}, "compiled_branch_probe: threads is 96; give one of "),
        ("subgroup_probe", {"api": "all"}, "subgroup_probe: api is 'all'; give one of xor, up, down, rup, r"),
        ("subgroup_probe", {"lane_mask": 6}, "subgroup_probe: lane-mask is 6; give one less than a power"),
        ("subgroup_probe", {"selector": 64}, "subgroup_probe: selector is 64; give 0 to 63"),
        ("subgroup_probe", {"qbc_wait": 2}, "subgroup_probe: qbc-wait is about qbc; give that too"),
        ("subgroup_probe", {"qbc": True, "qbc_target": "r1"}, "subgroup_probe: qbc-target is 'r1'; give one"),
        (
            "subgroup_probe",
            {"qbc": True, "qbc_by_value": True, "qbc_swap": True},
            "subgroup_probe: qbc-by-value with qbc-swap: both sources are one; give one of them",
        ),
        ("branch_probe", {"period": 3}, "branch_probe: period is 3; give a power of 2 up to 128"),
        ("branch_probe", {"threads": 32}, "branch_probe: threads is 32; give one of "),
        ("image_probe", {"way": "sampler"}, "image_probe: way is 'sampler'; give one of texture, storage, "),
        ("image_probe", {"dtype": "int8"}, "image_probe: dtype is 'int8'; give float16 or float32"),
        ("image_probe", {"groups": 9}, "image_probe: groups is 9; give 1 to 8"),
        ("mad_peak", {"dtype": "fp8"}, "mad_peak: dtype is 'fp8'; give fp16 or fp32"),
        ("mad_peak", {"loops": 1024}, "mad_peak: loops is 1024; give 1 to 1023"),
        ("mad_peak", {"groups": 0}, "mad_peak: groups is 0; give 1 to 8192"),
        ("texture_bw", {"fregs_override": 4}, "texture_bw: fregs-override is 4, 8 are used; give 8 to 48, "),
        (
            "texture_bw",
            {"hregs_override": 49},
            "texture_bw: hregs-override is 49, 32 are used; give 32 ",
        ),
    ],
)
def test_bad_options_are_refused(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError) as error:
        KERNELS[name].build(KERNELS[name].configure(given))
    assert str(error.value).startswith(message)


@pytest.mark.qcom_kernel("shfl_probe")
@pytest.mark.qcom_kernel("branch_probe")
@pytest.mark.qcom_kernel("compiled_branch_probe")
@pytest.mark.qcom_kernel("subgroup_probe")
@pytest.mark.qcom_kernel("image_probe")
@pytest.mark.qcom_kernel("mad_peak")
def test_probe_holds_its_floor(kernel_run: Callable[[], Outcome]) -> None:
    assert kernel_run().ok


@pytest.mark.parametrize(
    ("config", "hregs", "advances"),
    [
        ("groups pattern, sources hr0.x and hr4.x repeated", 48, [False, True, True]),
        ("groups pattern, r1 (source1 relative)", 32, [True, True, True]),
        ("groups-pattern independent", 32, [False, True, True]),
    ],
)
def test_groups_patterns_are_as_published(config: str, hregs: int, advances: list[bool]) -> None:
    kernel, options = options_from_notes("alu_peak", config, {"threads": "128"})
    build = kernel.build(options)
    mads = [instr for instr in build.program.instrs if instr.op.name == "mad.f16"]
    assert (build.fregs, build.hregs, len(mads)) == (8, hregs, hregs - 16)
    assert all([source.repeat for source in mad.srcs] == advances for mad in mads)
