"""Several FP16 products in one launch of the 8x8 kernel, and its store into an image.

A fiber finds out of which product its tile is, and where that product's B starts; the loop is that of
:mod:`gemm_8xn_fp16`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import matmul
from pytest_qcom.kernels.choices import check_unroll
from pytest_qcom.kernels.coordinates import Persistent
from pytest_qcom.kernels.families import gemm_8xn_fp16
from pytest_qcom.kernels.gemm import HalfGemm, build_gemm, check_shape
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case
from pytest_qcom.kernels.launch import GROUP_Z, Tile, emit_multiply
from pytest_qcom.kernels.notes import flag
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import Epilogue, Schedule
from pytest_qcom.kernels.stores import POINTER, ImageStore, RowMajor
from pytest_qcom.kernels.writer import Writer, constant_name

COLS = 2
LAYOUTS = ("z", "stacked", "horizontal", "repeat-b", "repeat-b-x")
_REPEATED = ("repeat-b", "repeat-b-x")
_SIDE_BY_SIDE = ("horizontal", "repeat-b-x")
"""Layouts in which the B are."""
_BLOCK = gemm_8xn_fp16.ROWS
_MASK = 91
"""c22.w: the mask of ``const_mask``, between the store's constants and the loop's."""
_WORD = (1 << 32) - 1
_LAYOUTS = {
    "batch_z": "z",
    "batch_horizontal": "horizontal",
    "batch_repeat_b": "repeat-b",
    "batch_repeat_b_x": "repeat-b-x",
}
"""Layouts by the words of the notes."""
_NAMES = {f"batch_{name}": name for name in ("const_mask", "fixed_b", "b_offset", "row_offset")}
_BY_Z = "-2"
"""The row of a fixed B by which the notes mean workgroup z."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the batched 8x8 kernel.

    Attributes:
        m, n, k: of each product; m a multiple of ``threads`` / 4, n of 256, k of 4.
        batches: products.
        layout: ``z``: workgroup z counts products, A, B and C are stacked. ``stacked``: the same arrays, and
            the row says which product, so m is a power of 2. ``horizontal``: the B lie side by side, A and C
            are stacked; the column says which product, so n is a power of 2. ``repeat-b``: one product with a
            copy of B for each 8 rows, the copies below each other; with ``repeat-b-x`` side by side.
        const_mask: with ``stacked`` and m = k, where B starts is a mask of the row, which is a constant.
        fixed_b: with ``stacked``, the row of all B at which that of every product starts; -1: its own.
        b_offset: without it every product takes the first B. row_offset: without it, with ``horizontal``,
            every product takes the first A and stores to the first C, so that random inputs have one B in all
            copies. Both are diagnostics.
        threads: fibers of a workgroup.
        k_unroll: K steps of the loop body.
        image_store: C is a half image, and the first argument.
    """

    m: int = 256
    n: int = 256
    k: int = 256
    batches: int = 16
    layout: str = "z"
    const_mask: bool = False
    fixed_b: int = -1
    b_offset: bool = True
    row_offset: bool = True
    threads: int = 128
    k_unroll: int = 2
    image_store: bool = False


def read(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options by the words of the notes, whose kernel is the ``persistent`` one.

    ``batch`` products are ``stacked`` unless another word says how they lie.
    """
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = key.replace("-", "_")
        if name == "batch":
            found = {"layout": "stacked", **found, "batches": value}
        elif name in _LAYOUTS and flag(value):
            found["layout"] = _LAYOUTS[name]
        elif name == "batch_fixed_b" and str(value) == _BY_Z:
            found["layout"] = "z"
        elif name in _NAMES:
            found[_NAMES[name]] = value
        elif name != "persistent" or not flag(value):
            found[key] = value
    return found


def _parts(options: Options) -> int:
    """Products, as far as B is concerned."""
    return options.m // _BLOCK if options.layout in _REPEATED else options.batches


def _same(options: Options) -> bool:
    """Whether all copies of B are alike, and where products store to one place, those of A too."""
    return options.layout in _REPEATED or not options.row_offset


def _one(options: Options) -> matmul.Sides:
    """The product of each part."""
    return matmul.Sides(_BLOCK if options.layout in _REPEATED else options.m, options.n, options.k)


@dataclass(frozen=True, slots=True)
class Batched(Persistent):
    """Persistent pairs that start in the product that the fiber works on. The plan gives ``base``.

    Attributes:
        masked: B starts at the row without its bits within a product, by a mask in constant memory.
        fixed: the row at which B starts, or -1.
        moved: row and column are those of the product.
    """

    base: str = "base"
    layout: str = "z"
    masked: bool = False
    fixed: int = -1
    moved: bool = True
    m: int = 0
    n: int = 0
    k: int = 0

    def prepare(self, w: Writer, schedule: Schedule) -> None:
        plan = schedule.plan
        row, base, scratch = plan["row"][0], plan["base"][0], plan["scratch"][0]
        if self.masked:
            w.alu("and.b", base, row, constant_name(_MASK))
            Persistent.prepare(self, w, schedule)
            return
        if self.layout == "z":
            w.mov(scratch, GROUP_Z)
        elif self.layout == "horizontal":
            w.alu("shr.b", scratch, plan["col"][0], (self.n // 4).bit_length() - 1)
        else:
            w.alu("shr.b", scratch, row, self.m.bit_length() - 1)
        if self.layout == "repeat-b-x":
            emit_multiply(w, scratch, scratch, self.n // 4)
            w.alu("add.s", plan["col"][0], plan["col"][0], scratch)
        if self.layout in _SIDE_BY_SIDE or self.fixed >= 0:
            w.mov(base, max(0, self.fixed))
        else:
            emit_multiply(w, base, scratch, self.k)
        if self.moved and self.layout in ("z", "horizontal"):
            emit_multiply(w, scratch, scratch, self.m)
            w.alu("add.s", row, row, scratch)
        Persistent.prepare(self, w, schedule)


@dataclass(frozen=True, slots=True)
class Folded:
    """A store whose column counts within one of products side by side, ``width`` vec4 columns each."""

    store: Epilogue
    width: int

    def constants(self, tile: Tile, row_bytes: int) -> tuple[tuple[int, int], ...]:
        return self.store.constants(tile, row_bytes)

    def emit(self, w: Writer, tile: Tile, plan: RegisterPlan) -> None:
        col = plan["col"][0]
        w.alu("and.b", col, col, self.width - 1)
        self.store.emit(w, tile, plan)


def build(options: Options) -> Build:
    """One launch for all products.

    Raises:
        KernelError: options that do not go together.
    """
    name = "gemm_8x8_fp16_batched"
    _check(name, options)
    tile = Tile(gemm_8xn_fp16.ROWS, COLS, options.threads)
    columns, rows, _ = tile.groups(name, options.m, options.n)
    ours = gemm_8xn_fp16.schedule(gemm_8xn_fp16.Options(k_unroll=options.k_unroll), COLS)
    one = _one(options)
    store: Epilogue = ImageStore() if options.image_store else RowMajor()
    schedule = replace(
        ours,
        tile=tile,
        plan=_plan(ours.plan),
        coordinates=Batched(
            layout=options.layout,
            masked=options.const_mask,
            fixed=options.fixed_b if options.b_offset else 0,
            moved=options.row_offset,
            m=one.m,
            n=one.n,
            k=one.k,
        ),
        epilogue=Folded(store, options.n // 4) if options.layout in _SIDE_BY_SIDE else store,
    )
    groups = {
        "z": (columns, rows, options.batches),
        "stacked": (columns, rows * options.batches, 1),
        "horizontal": (columns * options.batches, rows, 1),
        "repeat-b": (columns, rows, 1),
        "repeat-b-x": (columns, rows, 1),
    }
    built = build_gemm(name, one, schedule, _arguments(options), groups[options.layout])
    mask = ((_MASK, -options.m & _WORD),) if options.const_mask else ()
    return replace(built, work=built.work * _parts(options), constants=(*built.constants, *mask))


def _check(name: str, options: Options) -> None:
    if options.layout not in LAYOUTS:
        raise KernelError(f"{name}: layout is {options.layout!r}; give one of {', '.join(LAYOUTS)}")
    if options.batches < 1 or (options.layout in _REPEATED and options.batches != 1):
        raise KernelError(f"{name}: batches is {options.batches}; give 1 or more, with repeat-b and -x 1")
    check_unroll(name, options.k_unroll)
    if options.const_mask and (options.layout != "stacked" or options.m != options.k):
        raise KernelError(
            f"{name}: const-mask with layout={options.layout}, m {options.m} and k {options.k}; it is about "
            "layout=stacked and m = k"
        )
    _check_diagnostics(name, options)
    side, what = (options.n, "n") if options.layout in _SIDE_BY_SIDE else (options.m, "m")
    if options.layout in ("stacked", *_SIDE_BY_SIDE) and side & (side - 1):
        raise KernelError(f"{name}: {what} is {side}; with layout={options.layout} give a power of 2")
    if max(_one(options).m, options.k) >= 1024 and any(
        side & (side - 1) for side in (_one(options).m, options.k)
    ):
        raise KernelError(f"{name}: m {options.m} and k {options.k}; beyond 1023 give powers of 2")
    a, b = _sides(options)
    check_shape(name, matmul.Sides(a[0], options.n, options.k))
    check_shape(name, matmul.Sides(1, b[1], max(b[0], 4)))


def _check_diagnostics(name: str, options: Options) -> None:
    if options.fixed_b >= 0 and (options.layout != "stacked" or options.const_mask or not options.b_offset):
        raise KernelError(
            f"{name}: fixed-b is {options.fixed_b} with layout={options.layout}, const-mask or no b-offset; "
            "give layout=stacked alone, or -1"
        )
    last = (options.batches - 1) * options.k
    if not -1 <= options.fixed_b <= last:
        raise KernelError(f"{name}: fixed-b is {options.fixed_b}; give -1, or a row of B from 0 to {last}")
    if not options.b_offset and (options.layout in _SIDE_BY_SIDE or options.const_mask):
        raise KernelError(f"{name}: no b-offset with layout={options.layout} or const-mask; B has none there")
    if not options.row_offset and options.layout != "horizontal":
        raise KernelError(
            f"{name}: no row-offset with layout={options.layout}; only layout=horizontal adds one to the row"
        )


def _sides(options: Options) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns of all A and of all B, as matrices."""
    parts = _parts(options)
    b = (options.k, parts * options.n) if options.layout in _SIDE_BY_SIDE else (parts * options.k, options.n)
    return (parts * _one(options).m, options.k), b


def _arguments(options: Options) -> tuple[Argument, ...]:
    (rows, k), (depth, width) = _sides(options)
    inputs = (
        Argument("A", (rows, matmul.a_texels(k), 4), "float16", image=True, written=False),
        Argument("B", (depth, width // 4, 4), "float16", image=True, written=False),
    )
    if options.image_store:
        return (Argument("C", (rows, options.n // 4, 4), "float16", image=True, written=True), *inputs)
    return (*inputs, Argument("C", (rows, options.n), "float16", image=False, written=True, pointer=POINTER))


def _plan(plan: RegisterPlan) -> RegisterPlan:
    """With the first row of B over the first x of A, and what an image store needs between row and column."""
    plan = plan.place("base", "r4.x", 1, over=("a_pairs", "addresses", "carries"))
    dead = ("a_pairs", "b_pairs", "scratch", "addresses", "carries", "offsets", "base")
    return plan.place("at", "r1.x", 6, over=dead).place("texels", "r5.x", 12, over=dead)


def _images(options: Options, products: list[tuple[NDArray[Any], NDArray[Any]]]) -> Arrays:
    """The arrays of the products' matrices."""
    (rows, k), (depth, width) = _sides(options)
    a = np.concatenate([a for a, _ in products])
    b = np.concatenate([b for _, b in products], axis=1 if options.layout in _SIDE_BY_SIDE else 0)
    image = matmul.images(matmul.Sides(rows, 4, k), a, np.zeros((k, 4)))["A"]
    return {"A": image, "B": np.ascontiguousarray(b, np.float16).reshape(depth, width // 4, 4)}


def _products(options: Options, arrays: Arrays) -> list[Arrays]:
    """The arrays of each product, as those of a product alone."""
    one, parts = _one(options), _parts(options)
    (_, _), (depth, width) = _sides(options)
    b = arrays["B"].reshape(depth, width)
    if options.layout in _SIDE_BY_SIDE:
        split = np.split(b, parts, axis=1)
    elif options.fixed_b >= 0 or not options.b_offset:
        start = max(0, options.fixed_b)
        split = [b[start : start + options.k]] * parts
    else:
        split = np.split(b, parts)
    return [
        {"A": a, "B": own.reshape(one.k, one.n // 4, 4)}
        for a, own in zip(np.split(arrays["A"], parts), split, strict=True)
    ]


def _random(options: Options, rng: np.random.Generator) -> Arrays:
    """Standard normal matrices; with ``repeat-b`` and without ``row-offset`` one B in all copies."""
    one, parts = _one(options), _parts(options)
    a = rng.standard_normal((parts, one.m, one.k))
    b = rng.standard_normal((parts, one.k, one.n))
    if _same(options):
        b[:] = b[0]
    return _images(options, list(zip(a, b, strict=True)))


def _pattern(name: str) -> Callable[[Any], Arrays]:
    """A pattern of one product, rolled by a row and a column from product to product."""

    def make(options: Options) -> Arrays:
        one = _one(options)
        a, b = matmul.matrices(one, matmul.HALF_PATTERNS[name](one))
        rolls = [part * options.row_offset for part in range(_parts(options))]
        return _images(options, [(np.roll(a, roll, 0), np.roll(b, roll, 1)) for roll in rolls])

    return make


def _shaped(options: Options, values: list[NDArray[Any]]) -> NDArray[Any]:
    """The products' results as C is, NaN where none is stored."""
    c = np.concatenate(values)
    if not options.row_offset:
        c[options.m :] = np.nan
    return c.reshape(-1, options.n // 4, 4) if options.image_store else c


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """Each ``A @ B`` in float64, inputs below the smallest normal float16 taken as 0."""
    one = _one(options)
    return {"C": _shaped(options, [matmul.product(one, own)["C"] for own in _products(options, arrays)])}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """A half that is stored as a float texel and converted back is the same half."""
    one = _one(options)
    return {"C": _shaped(options, [matmul.half_bound(one, own)["C"] for own in _products(options, arrays)])}


GEMM = HalfGemm(
    name="gemm_8x8_fp16_batched",
    summary="several FP16 products in one launch, 8 rows by 8 columns a fiber; buffer or image",
    options=Options,
    build=build,
    inputs=_random,
    oracle=_oracle,
    tolerance=_tolerance,
    patterns={name: _pattern(name) for name in matmul.HALF_PATTERNS},
    cases=(
        Case("n256x16", {}),
        Case("z", dict(m=64, n=256, k=36, batches=3)),
        Case("stacked", dict(m=32, n=256, k=32, batches=3, layout="stacked")),
        Case("const-mask", dict(m=32, n=256, k=32, batches=3, layout="stacked", const_mask=True)),
        Case("fixed-b", dict(m=32, n=256, k=32, batches=3, layout="stacked", fixed_b=20)),
        Case("horizontal", dict(m=32, n=256, k=40, batches=3, layout="horizontal")),
        Case("repeat-b", dict(m=64, n=256, k=20, batches=1, layout="repeat-b")),
        Case("repeat-b-x", dict(m=64, n=256, k=20, batches=1, layout="repeat-b-x")),
        Case("image-store", dict(m=64, n=512, k=32, batches=1, image_store=True)),
        Case("image-horizontal", dict(m=32, n=256, k=8, batches=4, layout="horizontal", image_store=True)),
    ),
    family="gemm_8x8_fp16",
    reads=read,
)

KERNELS = (GEMM,)
