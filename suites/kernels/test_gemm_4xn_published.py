"""Options of the published 4xN GEMMs: what each changes in the program, probes, bad combinations."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

from pytest_qcom import conformance
from pytest_qcom.devices import registry
from pytest_qcom.devices.device import Device
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import notes
from pytest_qcom.kernels.edit import branches
from pytest_qcom.kernels.four_rows import Published
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.kernels.published import options_from_notes
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.kernels.rewrite import counts

BEST = (
    "ncols=4 direct compact-acc stable-bx stable-ay inc-coords persistent-coords alu-order=row_col_kk "
    "coord-delay=-1 k-unroll=4 first-sync-only b-first"
)
LOOP = 417
"""Instructions of its loop: 80 samples, 256 products, 72 of coordinates, 9 behind the last."""


def build(words: str) -> Build:
    kernel, options = options_from_notes("gemm_4xn_fp16", f"ncols=4 direct {words}")
    return kernel.build(options)


def loop_length(found: Build) -> int:
    (branch,) = [index for index, instr in enumerate(found.program.instrs) if branches(instr)]
    return branch - found.program.target(branch)


@pytest.mark.parametrize(
    ("words", "loop", "isam", "mad"),
    [
        ("", LOOP, 80, 256),
        ("post-constant", LOOP, 80, 256),
        ("no-store", LOOP, 80, 256),
        ("no-store alu-reps=2", LOOP + 256, 80, 512),
        ("no-store alu-reps=4", LOOP + 3 * 256, 80, 1024),
        ("no-store skip-a-loads", LOOP - 16, 64, 256),  # coordinates are written all the same
        ("no-store skip-b-loads", LOOP - 64, 16, 256),
        ("no-store skip-a-loads skip-b-loads", LOOP - 80, 0, 256),
        ("store-shlg-offsets", LOOP, 80, 256),
        ("low-a-coords", LOOP + 4 * 2, 80, 256),  # the one odd pair gets its x for either column
    ],
)
def test_an_option_changes_what_it_says(words: str, loop: int, isam: int, mad: int) -> None:
    found = build(f"{BEST} {words}")
    assert loop_length(found) == loop
    assert {name: dict(counts(found.program))[name] for name in ("isam", "mad")} == {"isam": isam, "mad": mad}


@pytest.mark.parametrize(
    ("words", "footprint", "syncs"),
    [
        ("native-store", (28, 32), 2),
        ("stream-b", (8, 32), 3),
        ("stream-b stream-b-no-sync", (8, 32), 2),
        (BEST, (10, 28), 2),
        (f"{BEST} low-a-coords", (8, 28), 2),
    ],
)
def test_registers_and_syncs(words: str, footprint: tuple[int, int], syncs: int) -> None:
    found = build(words)
    assert (found.fregs, found.hregs) == footprint
    assert dict(counts(found.program))["sy"] == syncs


@pytest.mark.parametrize("words", ["post-constant", "store-constant", "store-constant thread-store"])
def test_post_constant_stores_its_number(lenient: Device, words: str) -> None:
    kernel, options = options_from_notes(
        "gemm_4xn_fp16", f"{BEST} {words}", {"m": "16", "n": "512", "k": "32"}
    )
    run = conformance.prepare(lenient, kernel, options, np.random.default_rng(1))
    run.launch()
    assert (run.outputs()["C"] == 1024).all()


def test_store_constant_multiplies_nothing() -> None:
    """What is left is the prologue and the store of a number."""
    found = dict(counts(build(f"{BEST} store-constant").program))
    whole = dict(counts(build(f"{BEST} post-constant").program))
    assert (found["isam"], found["mad"]) == (0, 0)
    assert whole["instructions"] - found["instructions"] == LOOP + 1


def test_the_random_checked_configuration_is_right(device: Device, lenient: Device) -> None:
    """The one that the notes checked on random matrices: pairs of their own, a (sy) for each two columns, an
    image store that keeps the lanes. Some pairs are too fresh by Mesa's distances; no output shows it."""
    kernel = KERNELS["gemm_4xn_fp16_published"]
    options = kernel.configure({"m": 32, "n": 512, "k": 64}, "random-checked")
    if device.mode != "hardware":
        with registry.find("virtual", Path.cwd()).open("emulate") as late:
            run = conformance.prepare(late, kernel, options, np.random.default_rng(1))
            run.launch()
            assert run.judge().ok
    run = conformance.prepare(lenient, kernel, options, np.random.default_rng(2))
    run.launch()
    assert run.judge().ok
    ones = conformance.prepare(lenient, kernel, options, pattern="ones")
    ones.launch()
    assert ones.judge().max_abs == 0


def test_a_waited_schedule_is_no_probe() -> None:
    kernel = KERNELS["gemm_4xn_fp16_waited"]
    for words in ({"no_store": True}, {"no_store": True, "alu_reps": 2}):
        with pytest.raises(KernelError, match=r"^gemm_4xn_fp16_waited: .* does not give C; leave it out"):
            kernel.build(kernel.configure(words))


@pytest.mark.parametrize(
    ("words", "footprint"),
    [
        ("preload-b", (8, 36)),
        ("preload-b preload-b-safe-coords", (28, 36)),
        ("high-inputs", (10, 48)),
        ("high-inputs stable-ay low-a-coords", (8, 44)),
        ("high-a-only", (8, 36)),
        ("separate-b-coords compact-acc", (10, 28)),
        ("persistent-b-coords", (18, 32)),
        ("persistent-b-coords save-output-coords", (19, 32)),
        ("high-b-coords", (18, 32)),
        ("safe-b-y", (16, 32)),
        ("pipeline", (8, 40)),
        ("isolated image-store", (23, 28)),
        ("donor4-store", (28, 32)),
        ("ncols=2 donor2-store", (28, 24)),
        ("ncols=2 direct=false", (8, 48)),
        ("compact-acc image-store high-store", (30, 28)),
        ("ncols=1 compact-acc", (8, 16)),
        ("fregs-override=7 hregs-override=30", (7, 30)),
    ],
)
def test_registers_of_the_notes(words: str, footprint: tuple[int, int]) -> None:
    """Published: f/h of each plan."""
    found = build(words)
    assert (found.fregs, found.hregs) == footprint


@pytest.mark.parametrize(
    ("words", "isam", "mad", "sy"),
    [
        ("quad-a", 28, 64, 3),  # 8 of them broadcasts, which wait for the samples
        ("pipeline", 52, 128, 6),  # 12 before the loop; two a K step, and the last samples end with the store
        ("b-kk-pipeline", 20, 64, 2),
        ("serial-b-cols", 20, 64, 10),  # on A, and twice a column: on its last sample and its first product
        ("single-cols-all", 20, 64, 9),
        ("interleave-second-pair alu-order=kk_col_row", 20, 64, 4),
        ("row-sync", 20, 64, 9),
        ("separate-b-coords", 20, 64, 3),
        ("separate-b-coords first-sync-only", 20, 64, 3),
        ("persistent-b-coords first-sync-only", 20, 64, 2),
    ],
)
def test_samples_products_and_syncs(words: str, isam: int, mad: int, sy: int) -> None:
    found = dict(counts(build(words).program))
    assert {name: found[name] for name in ("isam", "mad", "sy")} == {"isam": isam, "mad": mad, "sy": sy}


FLAGS = [
    option.name.replace("_", "-")
    for option in dataclasses.fields(Published)
    if isinstance(option.default, bool) and not option.default
]


@pytest.mark.parametrize("seed", range(40))
def test_options_compose_or_are_refused(seed: int) -> None:
    """Any options make a kernel whose products are all there, or one line that says which do not."""
    rng = random.Random(seed)
    chosen = rng.sample(FLAGS, rng.randint(2, 6))
    words = " ".join(
        ("direct", *chosen, f"ncols={rng.choice((1, 2, 3, 4, 4))}", f"k-unroll={rng.choice((1, 2))}")
    )
    kernel, options = options_from_notes("gemm_4xn_fp16", words, {"m": "128", "n": "1536", "k": "64"})
    try:
        found = kernel.build(options)
    except KernelError as error:
        assert str(error).startswith("gemm_4xn_fp16_published: ")
        assert "\n" not in str(error)
        return
    done = dict(counts(found.program))["mad"]
    columns = 0 if options.store_constant or options.copy_b_probe else len(options.multiplied)
    assert done == 4 * 4 * columns * options.unroll


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("alu-reps=0", "alu-reps is 0; give 1 or more"),
        ("low-a-coords", "low-a-coords needs stable-ay; give it too"),
        ("alu-reps=2", "alu-reps beyond 1 is a probe; give no-store too"),
        ("stream-b ncols=2", "stream-b is about 4 columns; there are 2"),
        ("stream-b-no-sync", "stream-b-no-sync needs stream-b; give it too"),
        ("stable-bx ncols=2", "stable-bx is about 4 columns; there are 2"),
        ("persistent-coords stable-ay inc-coords", "persistent-coords needs stable-bx too"),
        ("persistent-coords stable-ay", "persistent-coords needs inc-coords; give it too"),
        ("coord-delay=8", "coord-delay is 8; give -1 (none) to 7"),
        ("direct=false", "four accumulators an output are for 1 or 2 columns in plain order; give direct"),
        ("pipeline stream-b", "stream-b with pipeline; give one of them"),
        ("isolated stable-ay", "isolated has registers of its own; leave those of coordinates out"),
        ("donor2-store ncols=1", "donor2-store is about 2 or 4 columns; there are 1"),
        ("pipeline stable-ay", "pipeline has coordinates of its own"),
        ("interleave-second-pair", "interleave-second-pair goes with alu-order=kk_col_row"),
        ("safe-store image-store", "safe-store with image-store; give one of them"),
        ("k-start=200 k-count=60", "K steps 200 to 260 of 256; give k-start and k-count within them"),
        ("dynamic-split-k=3", "dynamic-split-k is 3 for m 1024 and 256 K steps; give a power of 2"),
        ("dynamic-split-k=2 stable-bx", "dynamic-split-k with stable-bx; give one of them"),
        ("acc-hr=36", "acc-hr is 36; give 0 to 32"),
        (
            "acc-hr=5",
            "acc-hr: 'b0' and 'acc' are in the same registers; leave it out, or give another number",
        ),
        (
            "isolated acc-hr=12",
            "acc-hr with isolated: 'a0' and 'acc' are in the same registers; leave one of them out, or give",
        ),
        ("mergedregs", "mergedregs: 'b1' and 'even' are in the same registers; leave it out"),
        (
            "isolated mergedregs",
            "mergedregs: 'acc' and 'addresses' are in the same registers; leave it out",
        ),
        ("ncols=2 direct=false preload-b", "four accumulators an output are for 1 or 2 columns in plain"),
        ("selected-cols=4", "selected-cols is '4'; give columns below 4, such as 0,2"),
        ("selected-cols=first", "selected-cols is 'first'; give columns below 4, such as 0,2"),
        ("first-cols-only selected-cols=1", "first-cols-only and selected-cols leave no column; give others"),
        ("first-cols-offset=1", "first-cols-offset needs first-cols-only; give it too"),
        ("first-cols-only first-cols-offset=2", "first-cols-offset is 2; give 0 to 1"),
        ("store-gap=4", "store-gap is 4; give one of 0, 8, 16"),
        ("repeat-each image-store", "repeat-each with image-store; give one of them"),
        ("output-float", "output-float needs image-store; give it too"),
        ("stride=512", "stride is 512; give a multiple of 4 from n = 1024 on, to 65536"),
        ("store-row-shift=9", "stride is 512; give a multiple of 4 from n = 1024 on, to 65536"),
        ("store-row-shift=99", "has no option 'store-row-shift'"),
        ("store-row-base=-1", "store-row-base is -1; give 0 to 16384"),
        ("store-row-base=16000 image-store", "C of 17024 rows is beyond an image's 16384; give fewer"),
        ("thread-store-group-regs=r36.y,r36.z", "thread-store-group-regs needs thread-store; give it too"),
        (
            "thread-store thread-store-lid-reg=r99.x",
            "thread-store-lid-reg is r99.x, thread-store-group-regs none; give",
        ),
        ("store-row-base=4 thread-store", "store-row-base with thread-store; give one of them"),
        ("copy-b-probe post-constant", "post-constant with copy-b-probe; give one of them"),
        ("alu-order=rows", "alu-order is 'rows'; give one of auto, kk_row_col"),
        ("fregs-override=49", "fregs-override is 49; give 0 to 48"),
        ("no-store alu-reps=65", "alu-reps is 65; give 1 to 64"),
        ("k-unroll=4097", "k-unroll is 4097; no K has more than 4096 steps, give fewer"),
    ],
)
def test_bad_options_are_explained(words: str, message: str) -> None:
    with pytest.raises(KernelError) as caught:
        build(words)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "words", ["", "stream-b", "b-kk-pipeline", "pipeline", "separate-b-coords image-store"]
)
def test_copy_b_stores_a_row_of_b(lenient: Device, words: str) -> None:
    """Of the first K step the first; but where the store by hand keeps lane x alone."""
    kernel, options = options_from_notes(
        "gemm_4xn_fp16",
        f"ncols=4 direct copy-b-probe k-start=3 {words}",
        {"m": "16", "n": "512", "k": "32"},
    )
    found = kernel.build(options)
    assert "mad" not in dict(counts(found.program)) or dict(counts(found.program))["mad"] == 0
    run = conformance.prepare(lenient, kernel, options, np.random.default_rng(1), build=found)
    run.launch()
    expected = run.inputs["B"][12] if options.image_store else np.repeat(run.inputs["B"][12, :, :1], 4, 1)
    got = run.outputs()["C"].reshape(16, 128, 4)
    np.testing.assert_array_equal(got, np.broadcast_to(expected, got.shape))


@pytest.mark.parametrize(
    ("words", "stores"),
    [
        ("", 16),
        ("repeat-first", 17),
        ("repeat-each", 32),
        ("repair-row1", 20),
        ("repeat-each repair-row1 selected-cols=2", 9),
        ("first-cols-only", 8),
        ("hybrid-store selected-cols=0,3", 8),
    ],
)
def test_stores_that_are_issued(words: str, stores: int) -> None:
    kernel = KERNELS["gemm_4xn_fp16_waited"]
    found = kernel.build(kernel.configure(dict(notes.words(f"ncols=4 direct {words}"))))
    assert sum(instr.op.name == "stg" for instr in found.program.instrs) == stores


def test_other_names_of_the_scripts() -> None:
    words = "ncols=2 repeat-first-store repair-row1-store repeat-each-store partial store-row-shift=11"
    _, found = options_from_notes("gemm_4xn_fp16", words)
    assert found == Published(
        ncols=2, repeat_first=True, repair_row1=True, repeat_each=True, direct=False, stride=2048
    )


@pytest.mark.parametrize(
    ("words", "footprint", "broadcasts"),
    [
        ("isolated image-store", (23, 28), 0),
        ("isolated image-store mergedregs", (23, 28), 0),
        ("high-inputs mergedregs", (24, 48), 0),  # of one file, full registers count for half ones too
        ("quad-a", (8, 33), 4),  # what is sampled lies in the gap below the accumulators, a number above
        ("quad-a high-inputs mergedregs", (24, 48), 8),  # as published: a full register is two halves
    ],
)
def test_files_and_what_goes_around(words: str, footprint: tuple[int, int], broadcasts: int) -> None:
    kernel = KERNELS["gemm_4xn_fp16_waited"]
    found = kernel.build(kernel.configure(dict(notes.words(f"ncols=4 direct {words}"))))
    assert (found.fregs, found.hregs, found.merged) == (*footprint, "mergedregs" in words)
    assert sum(instr.op.name == "quad_shuffle.brcst" for instr in found.program.instrs) == broadcasts


def test_fast_is_several_words() -> None:
    kernel = KERNELS["gemm_4xn_fp16_published"]
    fast = kernel.configure({"fast": "1", "low-a": "1", "k-unroll": "4", "post": "true"})
    assert fast == kernel.configure(
        dict(notes.words(f"{BEST} alu-order=auto low-a-coords k-unroll=4 post-constant"))
    )


def test_half_of_the_columns_is_half_of_the_work() -> None:
    whole, half = build(""), build("first-cols-only")
    assert half.work == whole.work / 2
    assert 2 * dict(counts(half.program))["mad"] == dict(counts(whole.program))["mad"]


def test_accumulators_are_zeroed_lane_by_lane() -> None:
    """One move and one repeated move a vec4, in place of one with an immediate."""
    assert len(build("vector-init").program.instrs) == len(build("").program.instrs) + 16


def test_late_texels_of_the_pipeline_by_k_are_missed_once(device: Device) -> None:
    """The notes: one or two contributions of 1024 are missing, of all-ones inputs."""
    if device.mode == "hardware":
        pytest.skip("what is late there is not ours to say")
    kernel, options = options_from_notes(
        "gemm_4xn_fp16", "ncols=4 direct b-kk-pipeline", {"m": "64", "n": "1024", "k": "256"}
    )
    with registry.find("virtual", Path.cwd()).open("emulate") as late:
        run = conformance.prepare(late, kernel, options, pattern="ones")
        run.launch()
        missing = options.k - run.outputs()["C"]
    assert set(np.unique(missing)) <= {0, 1, 2}
    assert (missing > 0).any()
