"""New calls for a graph: hand kernels, computations written as tinygrad expressions, products' epilogues."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_qcom.errors import GraphError
from pytest_qcom.kernels.kernel import Build
from pytest_qcom.openpilot import library, lowered, nodes, products, reading
from pytest_qcom.openpilot.graph import LANES, Call, Memory, Program, View, temporary
from pytest_qcom.openpilot.products import Product

if TYPE_CHECKING:
    from tinygrad import Tensor
    from tinygrad.uop.ops import UOp


def hand(
    like: Call, name: str, build: Build, views: Mapping[str, View], shapes: Mapping[str, tuple[int, ...]]
) -> Call:
    """A launch of a hand kernel, in the batch of another call.

    Args:
        name: what it is called.
        views: its arguments by name.
        shapes: of arguments that have another than the kernel declares, such as an image with wider rows.

    Raises:
        GraphError: what tinygrad cannot launch.
    """
    if like.program is None or like.program.renderer != "IR3":
        raise GraphError(f"kernel {name}: the graph's programs are not Mesa's; capture it with DEV=QCOM:IR3")
    made = library.of_build(build, name).to_bytes()
    arguments = [
        (argument.dtype, shapes.get(argument.name, _shape(argument.shape, argument.image)))
        for argument in build.arguments
    ]
    outs = [number for number, argument in enumerate(build.arguments) if argument.written]
    ins = [number for number, argument in enumerate(build.arguments) if not argument.written]
    target = nodes.argument(like.program.node).fields["target"]
    node = nodes.program(
        name, made, build.groups, build.local, arguments, outs, ins, target, build.work * 1e9
    )
    return Call(
        reading.program(node),
        tuple(views[argument.name] for argument in build.arguments),
        like.batch,
    )


def _shape(shape: tuple[int, ...], image: bool) -> tuple[int, ...]:
    """As the runtime takes it: what has three dimensions is an image there."""
    return shape if image else (int(np.prod(shape)),)


@dataclass(frozen=True, eq=False)
class Expressed:
    """A computation as programs: arguments are numbers of values, of which the first are the inputs.

    Attributes:
        calls: each program with the values that are its arguments.
        sizes: (numpy type, elements) of each value.
        results: the values that the computation gives.
    """

    calls: tuple[tuple[Program, tuple[int, ...]], ...]
    sizes: tuple[tuple[str, int], ...]
    results: tuple[int, ...]

    def inserted(self, like: Call, inputs: Sequence[View]) -> tuple[tuple[Call, ...], tuple[View, ...]]:
        """The calls in the batch of another one, and where their results are.

        Raises:
            GraphError: an input of another size.
        """
        for view, (dtype, count) in zip(inputs, self.sizes, strict=False):
            if view.nbytes < count * np.dtype(dtype).itemsize:
                raise GraphError(
                    f"expression: {view.memory.name} has {view.nbytes} bytes, it takes {count} {dtype}"
                )
        views = [
            View(v.memory, v.start, v.nbytes, dtype, v.node)
            for v, (dtype, _) in zip(inputs, self.sizes, strict=False)
        ]
        views += [View.of(temporary(dtype, count)) for dtype, count in self.sizes[len(inputs) :]]
        calls = tuple(
            Call(program, tuple(views[number] for number in numbers), like.batch)
            for program, numbers in self.calls
        )
        return calls, tuple(views[number] for number in self.results)


def expressed(
    like: Program,
    function: Callable[..., Sequence[Tensor]],
    inputs: Sequence[tuple[tuple[int, ...], str]],
    image: bool = False,
) -> Expressed:
    """A computation of tensors as programs for the chip of another program; nothing is run.

    Args:
        function: tensors to a sequence of tensors.
        inputs: shape and numpy type of each.
        image: with images, in halves.
    """
    from tinygrad import Tensor
    from tinygrad.codegen import to_program
    from tinygrad.helpers import Context
    from tinygrad.uop.ops import Ops

    with Context(IMAGE=int(image), FLOAT16=int(image)):
        given = [
            Tensor.empty(*shape, dtype=nodes.tinygrad_type(dtype), device="NULL") for shape, dtype in inputs
        ]
        made = [tensor.contiguous() for tensor in function(*given)]
        linear = made[0].schedule_linear(*made[1:])
        numbers: dict[UOp, int] = {}
        sizes: list[tuple[str, int]] = []
        for tensor in given:
            _number(tensor.uop.base, numbers, sizes)
        calls = []
        for call in linear.src:
            if call.src[0].op is not Ops.SINK:
                raise GraphError("expression: it copies, which no launch does; write it without")
            built = to_program(call.src[0], lowered.renderer(like))
            arguments = tuple(_number(argument, numbers, sizes) for argument in call.src[1:])
            calls.append((reading.program(nodes.described(built)), arguments))
        results = tuple(_number(tensor.uop.base, numbers, sizes) for tensor in made)
    return Expressed(tuple(calls), tuple(sizes), results)


def _number(buffer: Any, numbers: dict[Any, int], sizes: list[tuple[str, int]]) -> int:
    """The number of a value, which is a new one the first time."""
    if buffer not in numbers:
        numbers[buffer] = len(sizes)
        sizes.append((np.dtype(buffer.dtype.fmt).name, int(buffer.max_numel())))
    return numbers[buffer]


@functools.lru_cache(maxsize=256)
def epilogue(program: Program, product: Product, dtype: str) -> tuple[Program, tuple[int, ...]]:
    """What a product's program does with its sums, as a program of its own.

    Returns:
        The program, whose argument 0 is the product's output and argument 1 an image (m, n / 4, 4) of
        ``dtype`` with the sums; and which arguments of the product's are its further ones.

    Raises:
        GraphError: fibers of a workgroup make the sums together, or rows are not whole texels.
    """
    from tinygrad.uop.ops import Ops, UOp

    sink = lowered.body(program)
    if lowered.has_local_memory(sink):
        raise GraphError("the fibers of a workgroup make its sums together")
    if any(size % LANES for size in (product.out_start, product.out_stride, product.n)):
        raise GraphError("its rows are no whole texels")
    kept = [slot for slot in range(len(program.parameters)) if slot not in (product.left, product.right)]
    order = [product.out, *(slot for slot in kept if slot != product.out)]
    slots = {slot: number if number == 0 else number + 1 for number, slot in enumerate(order)}
    image = _image(1, dtype, (product.m, product.n // LANES, LANES))
    places: dict[UOp, UOp] = {}
    for slot, store in lowered.stores(sink):
        texel = _texel(store.src[0].src[1:], program.parameters[slot].shape)
        loaded = UOp(Ops.LOAD, src=(image.index(*_place(texel, product), dtype=None),))
        for lane, value in enumerate(lowered.lanes(store)):
            for total in products.totals(value):
                places[total] = loaded.index(UOp.const(lane).cast(_long()))

    def change(node: UOp, sources: tuple[UOp, ...]) -> UOp | None:
        if node in places:
            return places[node]
        if node.op is Ops.PARAM and node.arg.slot in slots:
            return _renumbered(node, slots[node.arg.slot])
        return None

    made = lowered.transformed(sink, change)
    return lowered.compiled(program, made, f"epilogue_{program.function}"), tuple(order[1:])


def _image(slot: int, dtype: str, shape: tuple[int, int, int]) -> UOp:
    """An image argument, as it is when a program has been lowered."""
    from tinygrad.uop.ops import Ops, UOp

    dims = tuple(map(lowered.number, shape))
    plain = UOp.param(slot, nodes.tinygrad_type(dtype), shape, device="QCOM")
    return plain.replace(src=(UOp(Ops.STACK, src=dims),))


def _renumbered(node: UOp, slot: int) -> UOp:
    from dataclasses import replace

    return node.replace(arg=replace(node.arg, slot=slot))


def _long() -> Any:
    from tinygrad.dtype import dtypes

    return dtypes.long


def _texel(index: tuple[UOp, ...], shape: tuple[int, ...]) -> UOp:
    """The number of a texel of an image from its row and column."""
    row, column = index
    if lowered.constant(row) == 0:
        return column
    return row * lowered.number(shape[1]) + column


def _place(texel: UOp, product: Product) -> tuple[UOp, UOp]:
    """Row and column in the image of the sums of a texel of the output."""
    from tinygrad.uop.ops import Ops

    start, stride = product.out_start // LANES, product.out_stride // LANES
    place = texel + lowered.number(-start) if start else texel
    if stride & (stride - 1) == 0:
        return (
            place.alu(Ops.SHR, lowered.number(stride.bit_length() - 1)),
            place.alu(Ops.AND, lowered.number(stride - 1)),
        )
    return place.alu(Ops.CDIV, lowered.number(stride)), place.alu(Ops.CMOD, lowered.number(stride))


def sums_memory(product: Product, dtype: str) -> Memory:
    """Memory for the (m, n) sums of a product."""
    return temporary(dtype, product.m * product.n)
