"""The direct FP16 GEMM of 4 rows by 1 to 4 vec4 columns a fiber: our schedule, and those that were published.

Our schedule gives every sample a coordinate pair of its own that lives through the loop, waits for the
samples of each pair of columns, and stores all four lanes. Its K step is 20 samples, 20 additions and 64
repeated MADs: the instruction count of the fastest published one, with one more (sy).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.coordinates import Noted, Persistent
from pytest_qcom.kernels.gemm import build_gemm, check_shape
from pytest_qcom.kernels.kernel import Build, Case, Kernel
from pytest_qcom.kernels.launch import Tile
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import ALL_K, ORDERS, Epilogue, Load, Multiply, Schedule, Step
from pytest_qcom.kernels.stores import Constant, NoStore, RowMajor

ROWS = 4
_NOTES = "QUALCOMM.md of tinygrad's QCOM GEMM experiments, tinygrad commit f072c2bf97"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the 4xN kernels, by the names of the notes.

    Attributes:
        m, n, k: C is (m, n); m a multiple of ``threads`` / 8, n of 128 ``ncols``, k of 4.
        ncols: vec4 columns a fiber, 1 to 4.
        threads: fibers of a workgroup: 64, 128 or 256.
        k_unroll: K steps of the loop body. A rest is done behind the loop.
        compact_acc: accumulators from hr12, behind the texels; else from hr16.
        own_pairs: our coordinates, one persistent pair a sample. The next four need it off.
        stable_bx: columns 2 and 3 keep their x in own registers.
        stable_ay: A pairs keep their y.
        inc_coords: unrolled steps add to coordinates instead of writing them.
        persistent_coords: coordinates live over the back edge; needs the three above.
        b_first: samples of B before those of A.
        first_sync_only: only the first MAD of the loop body waits for samples. That is a race.
        coord_delay: nop repeats before the samples of written coordinates; -1 is none.
        alu_order: nesting of the MADs.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    ncols: int = 4
    threads: int = 128
    k_unroll: int = 4
    compact_acc: bool = True
    own_pairs: bool = True
    stable_bx: bool = False
    stable_ay: bool = False
    inc_coords: bool = False
    persistent_coords: bool = False
    b_first: bool = True
    first_sync_only: bool = False
    coord_delay: int = -1
    alu_order: str = "row_col_kk"


@dataclass(frozen=True, slots=True)
class Published(Options):
    """The same options with the defaults of the notes, for configurations as they were published.

    Attributes:
        direct: one accumulator an output; the notes' other form is not declared.
        donor_store: the vendor compiler's store code. What it stores is the same.
        native_store: that of its direct kernel of four columns, which declares 28 full vec4.
        store_shlg_offsets: another way to the same offsets.
        post_constant: 1024 is stored in place of the products: a probe.
        no_store: the products are dropped; a probe.
        skip_a_loads, skip_b_loads: nothing is sampled there; a probe.
        alu_reps: how often each product is added; more than once is a probe.
        low_a_coords: A pairs with a kept y lie below, and 8 full vec4 are declared.
        stream_b: columns 2 and 3 are sampled k by k, each k behind the products of the first two columns.
        stream_b_no_sync: with that, no (sy) before the products of columns 2 and 3.
    """

    direct: bool = True
    donor_store: bool = False
    native_store: bool = False
    store_shlg_offsets: bool = False
    post_constant: bool = False
    no_store: bool = False
    skip_a_loads: bool = False
    skip_b_loads: bool = False
    alu_reps: int = 1
    low_a_coords: bool = False
    stream_b: bool = False
    stream_b_no_sync: bool = False
    k_unroll: int = 1
    compact_acc: bool = False
    own_pairs: bool = False
    b_first: bool = False
    coord_delay: int = 5
    alu_order: str = "kk_row_col"


def build(options: Options) -> Build:
    """Our kernel: every wait that the hardware needs, all lanes stored.

    ``first_sync_only`` alone takes waits away, for those who want to see what it does.
    """
    name = "gemm_4xn_fp16"
    _check(name, options)
    schedule = _schedule(options)
    if options.first_sync_only:
        schedule = replace(schedule, sync=_first_only, waits="slots")
    return build_gemm(name, options, schedule)


def build_published(options: Published) -> Build:
    """A published configuration as its code did it.

    MADs take the scalar of A first; a K step has one (sy), with ``first_sync_only`` a loop body has one;
    nothing else waits, so the second pair of columns is multiplied before it has arrived and the single odd
    pair is rewritten under outstanding samples; the store stage is filled by repeated moves without (r), so
    that lane x of each vector is stored four times. The address arithmetic is ours.
    """
    name = "gemm_4xn_fp16_published"
    _check(name, options)
    if not options.direct:
        raise KernelError(
            f"{name}: direct is false; four accumulators an output are not declared, leave it true"
        )
    if options.k // 4 % options.k_unroll:
        raise KernelError(
            f"{name}: {options.k // 4} K steps do not divide by k-unroll {options.k_unroll}; the published "
            "kernels have no remainder"
        )
    _check_published(name, options)
    built = build_gemm(name, options, _published(options))
    built = replace(built, work=built.work * options.alu_reps)  # each of them counts in the notes
    return replace(built, fregs=28) if options.native_store else built


def _published(options: Published) -> Schedule:
    schedule = _schedule(options)
    store: Epilogue = RowMajor(staging="broadcast")
    if options.no_store:
        store = NoStore()
    elif options.post_constant:
        store = Constant(RowMajor(staging="broadcast"))
    if isinstance(schedule.coordinates, Noted):
        skip = "A" * options.skip_a_loads + "B" * options.skip_b_loads
        schedule = replace(schedule, coordinates=replace(schedule.coordinates, skip=skip))
    sync = _first_only if options.first_sync_only else _first_of_step
    if options.stream_b and not options.stream_b_no_sync:
        sync = _first_of_both
    repeated: list[Load | Multiply] = []
    for phase in _streamed(options.b_first) if options.stream_b else phases(options.ncols, options.b_first):
        repeated += [phase] * (options.alu_reps if isinstance(phase, Multiply) else 1)
    return replace(
        schedule,
        phases=tuple(repeated),
        scalar_first=True,
        sync=sync,
        waits="written",
        epilogue=store,
    )


def _streamed(b_first: bool) -> tuple[Load | Multiply, ...]:
    """Columns 2 and 3 go into the texels of columns 0 and 1, k by k."""
    rows, steps = tuple(range(ROWS)), [Load("A", tuple(range(ROWS))), Load("B", (0, 1))]
    streamed: list[Load | Multiply] = [*(steps[::-1] if b_first else steps)]
    for kk in ALL_K:
        streamed += [Multiply(rows, (0, 1), (kk,)), Load("B", (2, 3), (kk,))]
    return (*streamed, Multiply(rows, (2, 3)))


def _check_published(name: str, options: Published) -> None:
    """What only published configurations have."""
    if options.alu_reps < 1:
        raise KernelError(f"{name}: alu-reps is {options.alu_reps}; give 1 or more")
    if options.low_a_coords and not options.stable_ay:
        raise KernelError(f"{name}: low-a-coords is about pairs with a kept y; give stable-ay too")
    if options.stream_b and (options.ncols != 4 or options.alu_reps > 1):
        raise KernelError(f"{name}: stream-b is about 4 columns and single products; leave alu-reps out")
    if options.stream_b_no_sync and not options.stream_b:
        raise KernelError(f"{name}: stream-b-no-sync is about stream-b; give that too")
    if options.own_pairs and (options.skip_a_loads or options.skip_b_loads):
        raise KernelError(f"{name}: skipped loads are about published coordinates; give own-pairs=false")


def _first_of_both(products: int, step: Step) -> bool:
    """The first products, and those of columns 2 and 3 behind the four k of the first columns."""
    return products in (0, len(ALL_K))


def _first_only(products: int, step: Step) -> bool:
    return products == 0 and step.index == 0


def _first_of_step(products: int, step: Step) -> bool:
    return products == 0


def _check(name: str, options: Options) -> None:
    """Combinations that make no kernel."""
    check_shape(name, options)
    if not 1 <= options.ncols <= 4:
        raise KernelError(f"{name}: ncols is {options.ncols}; give 1 to 4")
    if options.k_unroll < 1:
        raise KernelError(f"{name}: k-unroll is {options.k_unroll}; give 1 or more")
    if not -1 <= options.coord_delay <= 7:
        raise KernelError(f"{name}: coord-delay is {options.coord_delay}; give -1 (none) to 7")
    noted = [
        flag
        for flag in ("stable_bx", "stable_ay", "inc_coords", "persistent_coords")
        if getattr(options, flag)
    ]
    if options.own_pairs and (noted or options.coord_delay >= 0):
        flags = ", ".join(flag.replace("_", "-") for flag in noted) or "coord-delay"
        raise KernelError(f"{name}: {flags} with own-pairs, which has no such choice; give own-pairs=false")
    needed = ["stable_ay", "inc_coords"] + (["stable_bx"] if options.ncols > 2 else [])
    missing = [flag.replace("_", "-") for flag in needed if not getattr(options, flag)]
    if options.persistent_coords and missing:
        raise KernelError(f"{name}: persistent-coords needs {', '.join(missing)} too")
    if options.stable_bx and options.ncols != 4:
        raise KernelError(
            f"{name}: stable-bx is about columns 2 and 3, there are {options.ncols}; give ncols=4"
        )


def _schedule(options: Options) -> Schedule:
    tile = Tile(ROWS, options.ncols, options.threads)
    return Schedule(
        tile=tile,
        plan=_own_plan(options) if options.own_pairs else _noted_plan(options),
        phases=phases(options.ncols, options.b_first),
        coordinates=Persistent()
        if options.own_pairs
        else Noted(
            ncols=options.ncols,
            stable_bx=options.stable_bx,
            stable_ay=options.stable_ay,
            inc_coords=options.inc_coords,
            persistent_coords=options.persistent_coords,
            coord_delay=options.coord_delay,
        ),
        epilogue=RowMajor(),
        order=options.alu_order,
        unroll=options.k_unroll,
    )


def phases(ncols: int, b_first: bool) -> tuple[Load | Multiply, ...]:
    """A K step: columns two by two, with the rows of A sampled once."""
    rows = tuple(range(ROWS))
    steps: list[Load | Multiply] = []
    for first in range(0, ncols, 2):
        cols = tuple(range(first, min(first + 2, ncols)))
        loads = [Load("B", cols)]
        if first == 0:
            loads.insert(1 if b_first else 0, Load("A", rows))
        steps += [*loads, Multiply(rows, cols)]
    return tuple(steps)


def _texels(plan: RegisterPlan, options: Options, rows: tuple[int, ...]) -> RegisterPlan:
    """Half registers: a texel of each row of A, four of one or two columns of B, accumulators."""
    for row, vec in enumerate(rows):
        plan = plan.place(f"a{row}", f"hr{vec}.x", 4)
    for slot in range(min(options.ncols, 2)):
        plan = plan.place(f"b{slot}", f"hr{4 + 4 * slot}.x", 16)
    first = 16 if not options.compact_acc else 4 + 4 * min(options.ncols, 2)
    return plan.place("acc", f"hr{first}.x", 16 * options.ncols)


def _own_plan(options: Options) -> RegisterPlan:
    """Pairs of B, then pairs of A; everything else lies over them at the start and at the end."""
    columns = 2 * options.ncols  # vec4 that the pairs of B take
    plan = _texels(RegisterPlan(), options, (0, 1, 2, 3))
    plan = plan.place("b_pairs", "r0.x", 8 * options.ncols)
    plan = plan.place("a_pairs", f"r{columns}.x", 2 * ROWS)
    dead = ("a_pairs", "b_pairs", "row", "col", "scratch")
    plan = plan.place("row", f"r{columns}.y", 1, over=dead)
    plan = plan.place("col", "r0.x", 1, over=dead)
    plan = plan.place("scratch", f"r{columns + 1}.x", 4, over=dead)
    plan = plan.place("addresses", "r0.x", 2 * ROWS, over=dead)
    plan = plan.place("offsets", f"r{columns}.z", 2, over=dead)
    return plan.place("carries", f"r{columns + 1}.x", ROWS, over=dead)


def _noted_plan(options: Options) -> RegisterPlan:
    """Where the notes have their values; A texels in falling order."""
    plan = _texels(RegisterPlan(), options, (3, 2, 1, 0))
    low = isinstance(options, Published) and options.low_a_coords
    kept = "r2.x" if low else "r8.x"
    plan = plan.place("a_pairs", kept if options.stable_ay else "r2.y", 2 * ROWS)
    plan = plan.place("even", "r4.y", 8).place("ky", "r6.y", 1).place("k4", "r6.z", 1)
    plan = plan.place("row", "r7.x", 1).place("col", "r7.y", 1).place("odd", "r7.z", 2)
    if options.stable_bx:
        plan = plan.place("even2", "r0.x", 8)
        own = options.stable_ay and not low  # else the odd column's one pair takes x from a register
        plan = plan.place("odd2", "r3.w", 2) if own else plan.place("x3", "r6.w", 1)
    if not options.persistent_coords:
        plan = plan.place("next", "r2.x", 1)
    dead = tuple(block.name for block in plan.blocks)
    plan = plan.place("scratch", "r2.x", 4, over=dead)
    dead = (*dead, "scratch")
    plan = plan.place("addresses", "r2.x", 2 * ROWS, over=dead).place("carries", "r4.x", ROWS, over=dead)
    return plan.place("offsets", "r6.z", 2, over=dead).place("stage", "hr0.x", 4 * ROWS, over=dead)


_ALL = dict(stable_bx=True, stable_ay=True, inc_coords=True, persistent_coords=True)
_BEST = dict(
    **_ALL,
    compact_acc=True,
    alu_order="row_col_kk",
    coord_delay=-1,
    k_unroll=4,
    first_sync_only=True,
    b_first=True,
)

GEMM = Kernel(
    name="gemm_4xn_fp16",
    summary="FP16 GEMM, 4 rows by 1 to 4 vec4 columns a fiber, right on random matrices",
    options=Options,
    build=build,
    inputs=matmul.random,
    oracle=matmul.product,
    tolerance=matmul.half_bound,
    patterns=matmul.HALF_PATTERNS,
    unit="GFLOPS",
    cases=(
        Case("n1024", {}),
        Case("square", dict(m=64, n=512, k=64)),
        Case("wide", dict(m=16, n=1536, k=32)),
        Case("tall", dict(m=256, n=512, k=32)),
        Case("rest", dict(m=32, n=512, k=44)),  # 11 K steps: 4, 4 and a rest of 3, in padded images
        Case("short", dict(m=16, n=512, k=12)),  # fewer K steps than the loop body
        Case("ncols-1", dict(m=32, n=256, k=68, ncols=1)),
        Case("ncols-2", dict(m=32, n=512, k=68, ncols=2)),
        Case("ncols-3", dict(m=32, n=768, k=36, ncols=3, k_unroll=2)),
        Case("threads-64", dict(m=32, n=512, k=64, threads=64)),
        Case("threads-256", dict(m=64, n=512, k=64, threads=256)),
        Case("unroll-1", dict(m=16, n=512, k=32, k_unroll=1)),
        Case("unroll-8", dict(m=16, n=512, k=96, k_unroll=8)),
        Case("a-first", dict(m=16, n=512, k=64, k_unroll=1, b_first=False)),
        Case("wide-acc", dict(m=16, n=512, k=64, k_unroll=1, compact_acc=False)),
        *(
            Case(order.replace("_", "-"), dict(m=16, n=512, k=32, k_unroll=1, alu_order=order))
            for order in ORDERS
            if order != "row_col_kk"
        ),
        Case("noted", dict(m=32, n=512, k=20, k_unroll=2, own_pairs=False)),
        Case("noted-ncols-1", dict(m=32, n=128, k=64, own_pairs=False, ncols=1, inc_coords=True)),
        Case("noted-ncols-2", dict(m=32, n=256, k=36, k_unroll=2, own_pairs=False, ncols=2, coord_delay=0)),
        Case("noted-ncols-3", dict(m=32, n=384, k=64, k_unroll=1, own_pairs=False, ncols=3)),
        Case("noted-stable", dict(m=32, n=512, k=44, k_unroll=1, own_pairs=False, stable_bx=True)),
        Case("noted-best", dict(m=32, n=512, k=44, k_unroll=2, own_pairs=False, **_ALL)),
    ),
    source=_NOTES,
)

PUBLISHED = Kernel(
    name="gemm_4xn_fp16_published",
    summary="FP16 4xN GEMM as published: right on all-ones inputs, wrong on random ones",
    options=Published,
    build=build_published,
    inputs=matmul.random,
    oracle=matmul.product,
    tolerance=matmul.half_bound,
    patterns=matmul.HALF_PATTERNS,
    unit="GFLOPS",
    cases=(
        Case("p095", dict(ncols=2, coord_delay=0, donor_store=True)),
        Case("p096", dict(native_store=True)),
        Case("p097", dict(coord_delay=4, donor_store=True)),
        Case("p098", dict(compact_acc=True, k_unroll=4)),
        Case("p099", dict(compact_acc=True, stable_bx=True, k_unroll=4, first_sync_only=True)),
        Case("p101", _BEST),
        Case("p117", dict(_BEST, store_shlg_offsets=True)),
        Case("p119", dict(_BEST, threads=256)),
        Case("p120", dict(_BEST, low_a_coords=True, threads=64)),
        Case("p123", dict(_BEST, first_sync_only=False)),
        Case("p124", dict(_BEST, k_unroll=8)),
        Case("p126", dict(_BEST, alu_order="kk_row_col")),
        Case("p127", dict(_BEST, alu_order="col_kk_row")),
        Case("p128", dict(_BEST, alu_order="row_kk_col")),
        Case("p134", dict(stream_b=True)),
        Case("p135", dict(stream_b=True, stream_b_no_sync=True)),
        Case("p136", dict(k_unroll=4)),
        Case("p137", dict(compact_acc=True, stable_bx=True, first_sync_only=True, k_unroll=8)),
        Case("p139", dict(ncols=2, threads=256, donor_store=True)),
    ),
    claim="as-published",
    family="gemm_4xn_fp16",
    source=_NOTES,
)

KERNELS = (GEMM, PUBLISHED)
