"""The published 8-row FP16 GEMMs: facts on ones and on random matrices, hazards, counts, bad options."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_qcom import conformance, linting
from pytest_qcom.analysis.findings import errors
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import HazardError, KernelError
from pytest_qcom.kernels.edit import branches
from pytest_qcom.kernels.eight_rows import Published
from pytest_qcom.kernels.kernel import Build, Case, Kernel
from pytest_qcom.kernels.published import options_from_notes
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.kernels.rewrite import counts
from suites.kernels.conftest import built

PUBLISHED = [
    pytest.param(kernel, case, id=f"{kernel.name}[{case.name}]")
    for kernel in KERNELS.values()
    if kernel.name.startswith("gemm_8x") and kernel.name.endswith("_fp16_published")
    for case in kernel.cases
]
RACING = [param for param in PUBLISHED if "persistent" not in str(param.id)]
WAITING = ("gemm_8x4_fp16_published[p011]", *(f"gemm_8x8_fp16_published[{row}]" for row in ("p012", "p013")))
"""A preset pair a sample, five idle slots before it, where six are asked for, a (sy) a K step."""
BEST = (
    "split-a split-k-unroll=8 b-coord-delay=0 donor8-add256-store split-prefetch-next-b split-fast-coords "
    "fregs-override=8 add256-store-mode=tight"
)


def shrunk(kernel: Kernel, case: Case) -> Any:
    """A case on one workgroup, with two passes of a loop of two K steps where the notes unroll more."""
    options = kernel.configure({}, case.name)
    unroll = min(options.split_k_unroll, 2)
    small = {"m": options.threads // 4, "n": 128 * options.ncols, "k": 32}
    return replace(options, split_k_unroll=unroll, **small)


@pytest.mark.parametrize(("kernel", "case"), RACING)
def test_right_on_ones_and_lane_x_on_random(lenient: Device, kernel: Kernel, case: Case) -> None:
    """Two facts, even where hardware waits: ones are right; of each random vec4, x is, and y, z, w are x."""
    options = shrunk(kernel, case)
    ones = conformance.prepare(lenient, kernel, options, pattern="ones")
    ones.launch()
    assert ones.judge().ok
    random = conformance.prepare(lenient, kernel, options, np.random.default_rng(3))
    random.launch()
    outcome = random.judge()  # raises nothing: it is declared as what it is
    assert not outcome.ok
    got = random.outputs()["C"].reshape(options.m, -1, 4)
    np.testing.assert_array_equal(got, np.broadcast_to(got[..., :1], got.shape))
    expected = kernel.oracle(options, random.inputs)["C"].reshape(got.shape)
    bound = np.asarray(kernel.tolerance(options, random.inputs)["C"]).reshape(got.shape)
    assert (np.abs(got.astype(np.float64) - expected)[..., 0] <= bound[..., 0]).all()


def test_persistent_is_right(device: Device) -> None:
    """The published kernel with immutable coordinates and every wait."""
    kernel = KERNELS["gemm_8x8_fp16_published"]
    options = kernel.configure({"m": 32, "n": 512, "k": 44, "persistent": "true"})
    run = conformance.prepare(device, kernel, options, np.random.default_rng(4))
    run.launch()
    assert run.judge().ok


@pytest.mark.parametrize(("kernel", "case"), [param for param in RACING if param.id not in WAITING])
def test_published_is_a_hazard(device: Device, kernel: Kernel, case: Case) -> None:
    if device.mode == "hardware":
        pytest.skip("hardware does not explain hazards")
    run = conformance.prepare(device, kernel, shrunk(kernel, case), pattern="ones")
    with pytest.raises(HazardError, match=r"early-read|source-overwrite|missing-sy"):
        run.launch()


@pytest.mark.parametrize(("kernel", "case"), [param for param in RACING if param.id in WAITING])
def test_the_compilers_loops_wait(kernel: Kernel, case: Case) -> None:
    """But for a slot before each sample, and for the first accumulator, from which the rest are zeroed."""
    build = kernel.build(shrunk(kernel, case))
    first, *others = errors(linting.lint(build))
    assert (first.rule.name, first.register) == ("early-read", "hr16.x")
    assert first.producer and first.producer.text == "mov.u16u16 hr16.x, 0"
    assert all("isam" in finding.consumer.text for finding in others)
    assert all((finding.available, finding.needed) == (5, 6) for finding in others)


@pytest.mark.parametrize(("kernel", "case"), PUBLISHED)
def test_runs_within_its_declared_registers(kernel: Kernel, case: Case) -> None:
    build = built(kernel.name, case.name)
    fregs, hregs = build.program.footprint()
    assert fregs <= build.fregs
    assert hregs <= build.hregs


@pytest.mark.parametrize(
    ("case", "footprint"),
    [
        ("p012", (28, 32)),
        ("p013", (15, 32)),
        ("p014", (12, 32)),
        ("p015", (10, 28)),
        ("p017", (10, 28)),
        ("p020", (8, 28)),
        ("p023", (9, 28)),
        ("p054", (15, 48)),
    ],
)
def test_published_footprints(case: str, footprint: tuple[int, int]) -> None:
    build = built("gemm_8x8_fp16_published", case)
    assert (build.fregs, build.hregs) == footprint


@pytest.mark.parametrize(
    ("case", "steps", "step", "isam", "instructions", "fewer"),
    [
        # What the notes count: instructions a K step, samples and instructions of the whole program.
        ("p017", 4, 110, 64, 602, 37),
        ("p028", 8, 109, 128, 1022, 36),
        ("p040", 16, 109, 256, None, 0),
    ],
)
def test_published_counts(
    case: str, steps: int, step: int, isam: int, instructions: int | None, fewer: int
) -> None:
    """Published: loop 110 an unrolled step, 64 isam, 2 (sy), 602 instructions; 109, 128, 2 and 1022.

    ============================  ====  ====
    a K step                      p017  p028
    ============================  ====  ====
    MADs                            64    64
    samples                         16    16
    B: x, once a column              2     2
    B: y and a delay a sample    8 + 8 8 + 8
    A: x, once a group or a step     2     1
    A: y a sample                    8     8
    counters                         2     2
    sum                            110   109
    ============================  ====  ====

    The counters stand between steps; behind the last are the five of the loop test. What is around the loop
    is ours: no slices of a compiled prologue, and other addresses.
    """
    build = built("gemm_8x8_fp16_published", case)
    found = dict(counts(build.program))
    loop = loop_length(build)
    assert loop == steps * step - 2 + 5
    assert loop // steps == step  # as the notes divide it
    assert (found["isam"], found["sy"]) == (isam, 2)
    assert found["mad"] == found["rpt3"] == 64 * steps
    if instructions is not None:
        assert found["instructions"] == instructions - fewer


def loop_length(build: Build) -> int:
    """Instructions of the only loop, without its branch."""
    (branch,) = [index for index, instr in enumerate(build.program.instrs) if branches(instr)]
    return branch - build.program.target(branch)


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("split-hoist-b0-coord fregs-override=9", -8),  # one x a step less
        ("split-high-a", 0),
        ("split-prefetch-next-a swapped before B1", 8),  # A's x again, since B1 has taken the pair
        ("b-coord-delay=-1", -8 * 8),  # no delay of B
        ("split-inline-b-wait split-inline-b-nop=3", -8 * 8),  # in the additions
        ("split-base-b-y", -2 * 4 - 7 * 2 * 2),  # no delays; of the steps ahead a base and its delay a column
        ("split-base-b-y b-coord-delay=-1", -2 * 4 - 7 * 2 * 2),
        ("split-interleave-next-b", 0),
        ("split-stream-next-b1", 0),
        ("skip-a-loads no-store", -8 * 8),
        ("skip-b-loads no-store", -8 * 8),
        ("skip-a-loads skip-b-loads no-store", -2 * 8 * 8),
    ],
)
def test_an_option_changes_what_it_says(words: str, more: int) -> None:
    kernel, options = options_from_notes("gemm_8x8_fp16", f"{BEST} {words}")
    assert loop_length(kernel.build(options)) == loop_length(built("gemm_8x8_fp16_published", "p028")) + more


@pytest.mark.parametrize(
    ("words", "isam", "mad"),
    [
        ("serial profile=alu", 0, 64),
        ("serial profile=isam", 16, 0),
        ("experimental-twopass profile=alu", 0, 64),
    ],
)
def test_profiles_leave_out_what_they_say(words: str, isam: int, mad: int) -> None:
    kernel, options = options_from_notes("gemm_8x8_fp16", words)
    found = dict(counts(kernel.build(options).program))
    assert (found["isam"], found["mad"]) == (isam, mad)


def test_what_leaves_out_the_only_sync_reads_texels_that_were_never_there(device: Device) -> None:
    """The notes: first outputs -inf or NaN."""
    kernel, options = options_from_notes(
        "gemm_8x8_fp16", "split-a split-k-unroll=4 b-coord-delay=3 donor8-add256-store strip-mad-sy"
    )
    assert dict(counts(kernel.build(options).program))["sy"] == 1  # the prologue's
    if device.mode != "hardware":
        with pytest.raises(HazardError):
            conformance.prepare(device, kernel, replace(options, m=32, n=256, k=64)).launch()


@pytest.mark.parametrize(
    ("words", "footprint"),
    [
        ("split-reuse-b", (12, 24)),
        ("split-row-stream", (12, 25)),
        ("split-phase-stream", (12, 28)),
        ("split-mid-acc", (12, 36)),
        ("split-high-inputs", (12, 48)),
        ("split-high-a split-low-pairs split-stream-b-a8", (12, 32)),
        ("split-buffer-a", (12, 32)),
        ("split-single-high-coord", (15, 28)),
        ("split-low-stable-coords split-mid-acc donor8-add256-store", (10, 36)),
        ("split-safe-coords", (22, 28)),
        ("split-separate-coords donor8-add256-store", (10, 28)),
        ("split-separate-coords split-triple-coords", (16, 28)),
        ("split-separate-coords split-triple-coords split-dual-a-coords", (18, 28)),
        ("split-low-pairs split-high-pair-b", (12, 28)),
    ],
)
def test_registers_of_the_notes(words: str, footprint: tuple[int, int]) -> None:
    """Published: f/h of each layout of texels and of each set of pairs."""
    kernel, options = options_from_notes("gemm_8x8_fp16", f"split-a split-k-unroll=2 {words}")
    found = kernel.build(options)
    assert (found.fregs, found.hregs) == footprint


@pytest.mark.parametrize(
    ("words", "isam", "sy"),
    [
        ("split-a split-relaxed-sync split-sync-mask=3", 16, 3),
        ("split-a split-k-unroll=1 row-sync", 16, 9),
        ("split-a split-k-unroll=1 split-one-sync-tile", 16, 2),
        ("split-a split-k-unroll=1 split-row-stream", 16, 9),
        ("split-a split-k-unroll=1 split-high-a split-low-pairs split-stream-b-a8", 16, 19),
        ("split-a split-k-unroll=1 stream-b1", 16, 2),
        ("split-a split-k-unroll=1 stream-b1 with sync", 16, 3),
        ("persistent", 16, 2),
        ("persistent one-sync", 16, 1),
        ("persistent masked-prefetch-a4", 20, 2),
        ("preload", 17, 21),  # one before the loop, and a (sy) on each of the others
        ("experimental-twopass overlap-b1", 16, 3),
    ],
)
def test_samples_and_syncs(words: str, isam: int, sy: int) -> None:
    kernel, options = options_from_notes("gemm_8x8_fp16", words)
    found = dict(counts(kernel.build(options).program))
    assert (found["isam"], found["sy"], found["mad"]) == (isam, sy, 64)


def test_persistent_loop_of_the_notes() -> None:
    """Published: 100 instructions and the branch. Ours counts with the first pair of A, and its test is far
    enough from the branch to need no idle slot: 3 fewer."""
    build = built("gemm_8x8_fp16_published", "persistent")
    (branch,) = [index for index, instr in enumerate(build.program.instrs) if branches(instr)]
    assert branch - build.program.target(branch) == 16 + 64 + 16 + 1


@pytest.mark.parametrize("seed", range(40))
def test_options_compose_or_are_refused(seed: int) -> None:
    """Any options make a kernel whose products are all there, or one line that says which do not."""
    rng = random.Random(seed)
    names = [
        option.name.replace("_", "-")
        for option in dataclasses.fields(Published)
        if isinstance(option.default, bool)
        and option.name.startswith(("split_", "grouped_", "stream_b", "add256"))
    ]
    words = " ".join(
        ("split-a", *rng.sample(names, rng.randint(2, 5)), f"split-k-unroll={rng.choice((1, 2))}")
    )
    kernel, options = options_from_notes("gemm_8x8_fp16", words, {"m": "64", "n": "256", "k": "64"})
    try:
        found = kernel.build(options)
    except KernelError as error:
        assert str(error).startswith("gemm_8x8_fp16_published: ")
        assert "\n" not in str(error)
        return
    behind = options.split_k_unroll if options.split_prefetch_loop_b else 0  # K steps behind the loop
    assert dict(counts(found.program))["mad"] == 64 * (options.split_k_unroll + behind)


def test_a_waited_schedule_is_no_probe() -> None:
    kernel = KERNELS["gemm_8x8_fp16_waited"]
    for option, value in (("split_quad_map", "1032"), ("skip_a_loads", True)):
        words = option.replace("_", "-")
        with pytest.raises(KernelError, match=rf"^gemm_8x8_fp16_waited: {words} does not give C; leave it"):
            kernel.build(kernel.configure({"split_a": True, "split_quad_a": True, option: value}))


@pytest.mark.parametrize(
    ("family", "words", "message"),
    [
        ("gemm_8x8_fp16", "", "no form; give one of donor-store, serial, preload, experimental-twopass"),
        ("gemm_8x8_fp16", "serial split-a", "serial with split-a; give one of"),
        ("gemm_8x4_fp16", "split-a", "split-a; give one of donor-store, pipeline, pipeline4, batch2"),
        ("gemm_8x8_fp16", "ncols=4 serial", "ncols is 4; this kernel has 2, leave it out"),
        ("gemm_8x8_fp16", "serial split-high-a", "split-high-a is about split-a; give that too"),
        ("gemm_8x8_fp16", "split-a split-low-a split-high-a", "split-low-a with split-high-a; give one"),
        ("gemm_8x8_fp16", "split-a split-stream-next-b1", "split-stream-next-b1 needs split-prefetch-next-b"),
        ("gemm_8x16_fp16", "split-a grouped-b", "grouped-b is about 2 vec4 columns; leave it out"),
        ("gemm_8x8_fp16", "serial add256-gap=32", "add256-gap is 32; 0, 8 and 16 are those that can be"),
        ("gemm_8x8_fp16", "serial add256-store-mode=lose", "add256-store-mode is 'lose'; give donor, pairs"),
        ("gemm_8x8_fp16", "serial b-coord-delay=8", "b-coord-delay is 8; give -1 (none) to 7"),
        ("gemm_8x8_fp16", "serial profile=tex", "profile is 'tex'; give alu or isam"),
        ("gemm_8x8_fp16", "split-a split-k-unroll=3", "256 K steps do not divide by 3; the published"),
        ("gemm_8x8_fp16", "split-a split-k-unroll=-1", "split-k-unroll is -1; give 1 or more"),
        ("gemm_8x8_fp16", "split-a split-inline-b-wait split-inline-b-nop=4", "nop is 4; give 1, 2 or 3"),
        (
            "gemm_8x8_fp16",
            "split-a grouped-b split-prefetch-next-b split-hoist-b0-coord",
            "split-hoist-b0-coord with grouped-b; give one of them",
        ),
        ("gemm_8x8_fp16", "serial donor8-store donor8-add256-store", "donor8-store with donor8-add256-store"),
        ("gemm_8x8_fp16", "serial double-b", "double-b is about persistent; give that too"),
        ("gemm_8x8_fp16", "serial overlap-b1", "overlap-b1 needs experimental-twopass; give it too"),
        ("gemm_8x8_fp16", "persistent double-b rotate-b", "double-b with rotate-b; give one of them"),
        (
            "gemm_8x8_fp16",
            "persistent rotate-b k-count=255",
            "255 K steps do not divide by 3 with 1 left; the",
        ),
        ("gemm_8x8_fp16", "persistent k-start=250 k-count=8", "K steps 250 to 258 of 256; give k-start and"),
        ("gemm_8x8_fp16", "serial alu-order=row", "alu-order is 'row'; give one of kk_row_col"),
        ("gemm_8x8_fp16", "split-a split-stream-b-a8", "split-stream-b-a8 needs split-high-a; give it too"),
        ("gemm_8x8_fp16", "split-a split-reuse-b split-row-stream", "split-reuse-b with split-row-stream"),
        ("gemm_8x8_fp16", "split-a split-low-pairs grouped-b", "grouped-b with split-low-pairs; give one"),
        ("gemm_8x8_fp16", "split-a split-low-stable-coords", "split-low-stable-coords needs split-mid-acc"),
        (
            "gemm_8x8_fp16",
            "split-a split-buffer-a split-high-inputs",
            "split-buffer-a with split-high-inputs: 'a4' ends beyond index 47 of a file; leave one of them",
        ),
        (
            "gemm_8x8_fp16",
            "split-a split-high-inputs split-low-a",
            "split-low-a with split-high-inputs; give",
        ),
        (
            "gemm_8x8_fp16",
            "persistent mergedregs",
            "mergedregs: 'b0' and 'b_pairs' are in the same registers",
        ),
        ("gemm_8x16_fp16", "preload", "preload; give one of donor-store, serial, split-a"),
        (
            "gemm_8x16_fp16",
            "split-a split-high-pair-coords",
            "split-high-pair-coords is about 2 vec4 columns",
        ),
        ("gemm_8x8_fp16", "serial stagger-rows=1", "stagger-rows is about persistent; give that too"),
        ("gemm_8x8_fp16", "persistent stagger-rows=5 stagger-b", "stagger-rows is 5; give 0 to 4"),
        ("gemm_8x8_fp16", "persistent one-sync one-sync-wait=9", "one-sync-wait is 9; give 0 to 8"),
        ("gemm_8x8_fp16", "persistent stream-a4-gap=8", "stream-a4-gap is 8; give -1 (none) to 7"),
        ("gemm_8x8_fp16", "persistent strip-mad-sy", "persistent with strip-mad-sy; give one of them"),
        ("gemm_8x8_fp16", "lifetime split-high-a", "split-high-a is about split-a; give that too"),
        ("gemm_8x8_fp16", "lifetime split-k-unroll=5000", "split-k-unroll is 5000; no K has more than 4096"),
        (
            "gemm_8x8_fp16",
            "split-a split-quad-a split-quad-map=0012",
            "split-quad-map is '0012'; give 0, 1, 2",
        ),
        ("gemm_8x8_fp16", "split-a split-sync-mask=16", "split-sync-mask is 16; give 0 to 15"),
        (
            "gemm_8x8_fp16",
            "split-a split-sync-wait=2",
            "split-sync-wait needs split-relaxed-sync; give it too",
        ),
        ("gemm_8x8_fp16", "split-a split-reserved-out=16", "split-reserved-out is 16; give -1 to 15"),
        ("gemm_8x8_fp16", "serial image-store-gap=8", "image-store-gap needs image-store; give it too"),
        (
            "gemm_8x8_fp16",
            "serial image-store image-store-gap=4",
            "image-store-gap is 4; 0, 8 and 16 are those",
        ),
        ("gemm_8x8_fp16", "serial thread-store stride=2048", "stride with thread-store; give one of them"),
        ("gemm_8x8_fp16", "serial stride=1026", "stride is 1026; give a multiple of 4 from n = 1024 on"),
        ("gemm_8x8_fp16", "serial fregs-override=-1", "fregs-override is -1; give 0 to 48"),
        ("gemm_8x8_fp16", "serial post-sequence no-store", "post-sequence with no-store; give one of them"),
        (
            "gemm_8x8_fp16",
            "split-a thread-store-lid-reg=r28.x",
            "thread-store-lid-reg needs thread-store; give",
        ),
        (
            "gemm_8x8_fp16",
            "split-a thread-store thread-store-lid-reg=hr1.x",
            "thread-store-lid-reg is hr1.x, thread-store-group-regs none; give one of r0.x to r47.w, and two",
        ),
        (
            "gemm_8x8_fp16",
            "split-a thread-store thread-store-group-regs=r36.y",
            "thread-store-lid-reg is none, thread-store-group-regs r36.y; give one of r0.x to r47.w, and two",
        ),
        (
            "gemm_8x8_fp16",
            "split-a thread-store thread-store-lid-reg=r6.z",
            "thread-store-lid-reg: 'k4' and 'lid' are in the same registers; leave it out",
        ),
        ("gemm_8x8_fp16", "split-a image-store thread-store", "image-store with thread-store; give one"),
    ],
)
def test_bad_options_are_explained(family: str, words: str, message: str) -> None:
    kernel, options = options_from_notes(family, words)
    with pytest.raises(KernelError) as caught:
        kernel.build(options)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{family}_published: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("words", "footprint"), [("lifetime", (16, 32)), ("self-coords", (8, 32))])
def test_forms_of_few_pairs(device: Device, words: str, footprint: tuple[int, int]) -> None:
    """The notes call them right on random matrices; and they leave K where the loop body ends with it."""
    kernel, options = options_from_notes("gemm_8x8_fp16", words, {"m": "32", "n": "256", "k": "32"})
    found = kernel.build(options)
    assert (found.fregs, found.hregs) == footprint
    run = conformance.prepare(device, kernel, options, np.random.default_rng(6), build=found)
    run.launch()
    assert run.judge().ok


def test_eight_pairs_of_the_wide_kernel(lenient: Device) -> None:
    """Its safe coordinates: r24 to r29, 30 full vec4 and 48 half ones, which only a wave of 64 has."""
    words = "split-a split-safe-coords split-k-unroll=4 image-store thread128=false"
    kernel, options = options_from_notes("gemm_8x16_fp16", words, {"m": "32", "n": "512", "k": "32"})
    found = kernel.build(options)
    assert (found.fregs, found.hregs) == (30, 48)
    run = conformance.prepare(lenient, kernel, options, np.random.default_rng(6), build=found)
    run.launch()
    assert run.judge().ok


@pytest.mark.parametrize(
    "words", ["serial", "split-a donor8-add256-store add256-offset-before-gap", "lifetime"]
)
def test_post_sequence_numbers_the_vectors(lenient: Device, words: str) -> None:
    shape = {"m": "32", "n": "512", "k": "16"}
    kernel, options = options_from_notes("gemm_8x8_fp16", f"{words} post-sequence", shape)
    run = conformance.prepare(lenient, kernel, options, np.random.default_rng(1))
    run.launch()
    got = run.outputs()["C"].reshape(4, 8, 2, 2, 128)
    np.testing.assert_array_equal(got, np.broadcast_to(np.arange(1, 17).reshape(8, 1, 2, 1), got.shape))


def test_other_names_of_the_scripts() -> None:
    words = "split-a stream-col1 stream-col1-sync high-pair-coords store-row-shift=11 quad-map=3210"
    _, found = options_from_notes("gemm_8x8_fp16", words)
    assert found == Published(
        split_a=True,
        stream_b1=True,
        stream_b1_sync=True,
        split_high_pair_coords=True,
        stride=2048,
        split_quad_map="3210",
    )
    _, found = options_from_notes("gemm_8x8_fp16", "pipelined")
    assert found == Published(pipeline=True)


@pytest.mark.parametrize(
    ("mask", "syncs"),
    [(0, 0), (1, 1), (2, 1), (4, 0), (8, 1), (9, 2), (15, 3)],  # column 1 is streamed: its bit is 3
)
def test_sync_mask_counts_groups(mask: int, syncs: int) -> None:
    words = "split-a split-k-unroll=1 split-prefetch-next-b split-stream-next-b1 split-relaxed-sync no-store"
    kernel, options = options_from_notes("gemm_8x8_fp16", f"{words} split-sync-mask={mask}")
    found = dict(counts(kernel.build(options).program))
    assert found["sy"] == syncs + 1  # and the prologue's
    waiting = kernel.build(replace(options, split_sync_wait=3)).program.instrs
    assert len(waiting) == found["instructions"] + 6 - syncs  # six groups: four of them one k each


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (
            {"base": "1", "adelay": "3", "bdelay": "-1", "pmad": "0", "grouped_cols": "1", "fregs": "9"},
            dict(
                a_coord_delay=3, b_coord_delay=-1, split_pre_mad_nops=0, grouped_b_cols=True, fregs_override=9
            ),
        ),
        (
            {"base": "1", "kunroll": "4", "high-a": "1", "prefetch": "1", "store-mode": "tight", "gap": "2"},
            dict(
                split_k_unroll=4,
                split_high_a=True,
                split_prefetch_next_b=True,
                add256_store_mode="tight",
                split_unroll_gap=2,
            ),
        ),
        ({"persistent8": "1", "persistent-pipeline": "1", "separate-regs": "1"}, dict(pipeline_b=True)),
        ({"mode": "pipeline4", "separate_regs": "0"}, dict(pipeline4=True, mergedregs=True)),
    ],
)
def test_options_by_the_names_of_the_scripts(given: dict[str, str], meant: dict[str, Any]) -> None:
    form = Published(split_a="base" in given, persistent="persistent8" in given)
    assert KERNELS["gemm_8x8_fp16_published"].configure(given) == replace(form, **meant)
