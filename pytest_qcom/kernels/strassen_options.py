"""The options of a product by Strassen's or Winograd's form, and the stages of sums that they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import strassen
from pytest_qcom.kernels.strassen import PRODUCTS

NAME = "strassen"
SUMS = {"fp16": "float16", "fp32": "float32"}
LEAVES = ("gemm", "buffers", "fused", "terminal")
TILES = {"4x8": (8, 256), "8x8": (16, 256), "halfwave": (16, 64)}
"""Rows and columns of a workgroup of 64 fibers of the FP32 GEMM."""
_MOST_THREADS = 64
_TEXEL_ROW = 32  # halves in the least pitch of an image


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a product by seven products.

    Attributes:
        m, n, k: C is (m, n). A product is 1 / 2**levels of each side: with leaf=gemm m a multiple of 32,
            n of 256, k of 32; with fp32 m and n of the leaf's tiles.
        levels: 1 to 5.
        form: ``strassen`` or ``winograd``.
        accumulate: ``fp16`` or ``fp32``: sums of the products, and C.
        half_products: with fp32, products are rounded to half before they are combined.
        float_sums: sums of blocks of A and B are float32, rounded once.
        float_operands: they are not rounded at all, and the products' inputs are float32.
        together: levels that share a launch of sums: 1 to 3.
        local: sums go through local memory; else a fiber has them in registers.
        images: sums sample images and store them; else buffers.
        leaf: what computes the products: ``gemm``, the hand GEMMs; ``buffers``, small products from buffers;
            ``fused``, GEMMs that do the last sums of A and B themselves; ``terminal``, those that do the
            last combination too.
        leaf_tile: of the FP32 GEMM: ``4x8``, ``8x8``, or ``halfwave``: 4x4, 64 columns a workgroup.
        leaf_threads: fibers of its workgroup: 64 or 128.
        leaf_unroll: K steps of its loop body; of 4x8 a multiple of 3.
        stream: outer levels whose products are made one after the other, in the same memory: 0 to 2.
        host_sums: with stream, the inner levels' sums are made by this machine's processor, beside the
            products of the part before; in ``host_threads`` bands of rows at once.
        split_combine: the last combination is a launch for each block of C.
        half_combine: with half_products, inner combinations add halves; else floats, rounded once.
        transform_vec, combine_vec: consecutive elements of a row for a fiber of a launch of sums, 1 to 16;
            0 is the longest vector that is worth it. transform_threads, combine_threads: fibers of its
            workgroups; 0 is 128, or 64 where a block has no more.
    """

    m: int = 1024
    n: int = 1024
    k: int = 1024
    levels: int = 1
    form: str = "strassen"
    accumulate: str = "fp16"
    half_products: bool = False
    float_sums: bool = False
    float_operands: bool = False
    together: int = 2
    local: bool = False
    images: bool = False
    leaf: str = "gemm"
    leaf_tile: str = "4x8"
    leaf_threads: int = 64
    leaf_unroll: int = 3
    stream: int = 0
    host_sums: bool = False
    host_threads: int = 1
    split_combine: bool = False
    half_combine: bool = False
    transform_vec: int = 0
    combine_vec: int = 0
    transform_threads: int = 0
    combine_threads: int = 0

    @property
    def floats(self) -> bool:
        """Products are summed in float32."""
        return self.accumulate == "fp32"

    @property
    def product(self) -> str:
        """The type of products between launches."""
        return "float32" if self.floats and not self.half_products else "float16"

    @property
    def operand(self) -> str:
        """The type of operands between launches."""
        return "float32" if self.float_operands else "float16"


@dataclass(frozen=True, slots=True)
class Stage:
    """The levels of one launch of sums, and the matrices that it starts from: how many, of what shape.

    Attributes:
        number: of the stage, the outermost is 1.
        fused: there is no such launch: the products do the sums.
    """

    number: int
    levels: int
    batch: int
    m: int
    n: int
    k: int
    fused: bool = False

    def side(self, which: str) -> tuple[int, int]:
        """Rows and columns of A, B or C."""
        return {"A": (self.m, self.k), "B": (self.k, self.n), "C": (self.m, self.n)}[which]

    @property
    def products(self) -> int:
        """Products of a matrix."""
        return int(PRODUCTS**self.levels)


def stages(options: Options) -> tuple[Stage, ...]:
    """From the whole product to the leaves: what is streamed, what does not fill a launch, and the others."""
    last = [1] if options.leaf == "terminal" else []
    rest = options.levels - options.stream - sum(last)
    together = rest if options.host_sums else options.together
    first = [options.stream] if options.stream else []
    odd = [rest % together] if rest and rest % together else []
    found, done, batch = [], 0, 1
    sizes = [*first, *odd, *[together] * (rest // together if rest else 0), *last]
    for number, levels in enumerate(sizes, start=1):
        side = 2**done
        fused = options.leaf in ("fused", "terminal") and number == len(sizes)
        shape = (options.m // side, options.n // side, options.k // side)
        found.append(Stage(number, levels, batch, *shape, fused=fused))
        streamed = options.stream and number == 1
        done, batch = done + levels, batch if streamed else batch * PRODUCTS**levels
    return tuple(found)


def check(options: Options) -> None:
    """What all launches together need of the options.

    Raises:
        KernelError: options that do not go together.
    """
    for name, given, known in (
        ("levels", options.levels, range(1, strassen.LEVELS + 1)),
        ("form", options.form, strassen.FORMS),
        ("accumulate", options.accumulate, SUMS),
        ("leaf", options.leaf, LEAVES),
        ("leaf_tile", options.leaf_tile, TILES),
        ("leaf_threads", options.leaf_threads, (64, 128)),
        ("together", options.together, (1, 2, 3)),
        ("stream", options.stream, (0, 1, 2)),
    ):
        if given not in known:
            wanted = ", ".join(map(str, known))
            raise KernelError(f"{NAME}: {name.replace('_', '-')} is {given!r}; give one of {wanted}")
    if not 1 <= options.host_threads <= _MOST_THREADS:
        raise KernelError(f"{NAME}: host-threads is {options.host_threads}; give 1 to {_MOST_THREADS}")
    for words in _conflicts(options):
        raise KernelError(f"{NAME}: {words}")
    _check_sides(options)


def _conflicts(options: Options) -> Iterator[str]:
    """What does not go together."""
    fused = options.leaf in ("fused", "terminal")
    if not options.floats:
        for name, words in (
            ("half_products", "its products are half anyway"),
            ("float_operands", "its products take halves"),
            ("host_sums", "they are float32"),
        ):
            if getattr(options, name):
                yield f"{name.replace('_', '-')} with accumulate=fp16; {words}"
        if fused:
            yield f"leaf={options.leaf} with accumulate=fp16; its sums are float32"
    single_gemm = options.floats and options.leaf == "gemm"
    if (options.leaf_tile, options.leaf_threads) != ("4x8", 64) and not single_gemm:
        yield (
            f"leaf-tile={options.leaf_tile} and leaf-threads={options.leaf_threads} with leaf={options.leaf} "
            f"and accumulate={options.accumulate}; give leaf=gemm and accumulate=fp32 too"
        )
    if fused and options.float_operands:
        yield f"leaf={options.leaf} with float-operands; it samples halves"
    if fused and options.host_sums:
        yield f"host-sums with leaf={options.leaf}; the host does not multiply"
    if options.leaf == "terminal" and options.half_products:
        yield "leaf=terminal with half-products; it stores float32"
    if options.host_threads > 1 and not options.host_sums:
        yield f"host-threads={options.host_threads} without host-sums; give host-sums=true too"
    if options.half_combine and not options.half_products:
        yield "half-combine without half-products; its sums are float32, give half-products=true too"
    if options.images and options.local:
        yield "images with local; local memory is filled from buffers"
    if options.host_sums and not options.stream:
        yield "host-sums without stream; give stream=1 or 2"
    if options.stream >= options.levels:
        yield f"stream={options.stream} of {options.levels} levels; leave one to do at once"


def _check_sides(options: Options) -> None:
    side = 2**options.levels
    rows, cols = TILES[options.leaf_tile]
    tile = (rows * options.leaf_threads // 64, cols) if options.floats else (32, 256)
    units = (*tile, _TEXEL_ROW) if options.leaf == "gemm" else (4, 4, 4)
    sides = (options.m, options.n, options.k)
    if any(given < 1 or given % (side * unit) for given, unit in zip(sides, units, strict=True)):
        wanted = " x ".join(str(side * unit) for unit in units)
        raise KernelError(
            f"{NAME}: {' x '.join(map(str, sides))} is not made of {PRODUCTS**options.levels} products that "
            f"the GEMM can compute; give multiples of {wanted}"
        )
