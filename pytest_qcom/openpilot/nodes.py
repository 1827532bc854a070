"""tinygrad's UOps as records: what is read from a node of a pickled graph, and new nodes.

Numbers of operations are those of the tinygrad that is installed; the project pins it.
"""

from __future__ import annotations

import functools
import itertools
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import pickles
from pytest_qcom.openpilot.pickles import Record

_UOPS = "tinygrad.uop.ops"
_CONTENT = 6  # the argument of a BUFFER that holds its content
_SLOT_FIELDS = ("slot", "dtype", "device")


@functools.cache
def _names() -> dict[int, str]:
    from tinygrad.uop import Ops

    return {int(op): str(op.name) for op in Ops}


def is_uop(value: Any) -> bool:
    """Whether it is a node with operation, type and sources."""
    if not (isinstance(value, Record) and value.name == "UOp" and len(value.arguments) >= _CONTENT):
        return False
    operation, _, sources = value.arguments[:3]
    return isinstance(operation, Record) and operation.name == "Ops" and isinstance(sources, tuple)


def op(node: Any) -> str:
    """The operation's name, ``CALL``.

    Raises:
        GraphError: no node, or an operation that this tinygrad does not know.
    """
    if not is_uop(node):
        raise unexpected(f"{node!r:.60} where a node should be")
    name: str | None = _names().get(node.arguments[0].arguments[0])
    if name is None:
        raise unexpected(f"operation {node.arguments[0].arguments[0]!r:.20}")
    return name


def sources(node: Record) -> tuple[Record, ...]:
    """The nodes that it is made of."""
    found: tuple[Record, ...] = node.arguments[2]
    return found


def argument(node: Record) -> Any:
    """What the operation carries besides its sources."""
    return node.arguments[3]


def unexpected(found: str) -> GraphError:
    """The error of a graph that is not as tinygrad 0.14.0 makes one."""
    return GraphError(
        f"captured graph: {found}; expected is a TinyJit as tinygrad 0.14.0 pickles it for the QCOM device, "
        "with launches of fixed size: capture the model with that version"
    )


def type_name(dtype: Any) -> str:
    """numpy's name of a type.

    Raises:
        GraphError: numpy has none.
    """
    if not (isinstance(dtype, Record) and dtype.name == "DType" and len(dtype.arguments) == 4):
        raise unexpected(f"{dtype!r:.60} where a type should be")
    letter = dtype.arguments[3]
    try:
        return str(np.dtype(letter).name)
    except TypeError:
        raise unexpected(f"type {dtype.arguments[2]}, which numpy does not have") from None


def integer(node: Record) -> int:
    """The value of a constant node.

    Raises:
        GraphError: it is none.
    """
    if op(node) == "CAST":
        return integer(sources(node)[0])
    if op(node) != "CONST" or not isinstance(argument(node), int):
        raise unexpected(f"a {op(node)} where a number should be")
    return int(argument(node))


def shape(node: Record) -> tuple[int, ...]:
    """A shape as nodes have it: a number, or a stack of them."""
    return tuple(map(integer, sources(node))) if op(node) == "STACK" else (integer(node),)


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a BUFFER or PARAM is: its number, numpy type, count of elements, device."""

    slot: int
    dtype: str
    count: int
    device: str


def storage(node: Record) -> Storage:
    """Of a BUFFER or PARAM.

    Raises:
        GraphError: spread over devices, or not described as one.
    """
    described = argument(node)
    if not (isinstance(described, Record) and described.name == "ParamArg"):
        raise unexpected(f"a {op(node)} without a description")
    slot, dtype, device = (described.fields.get(name) for name in _SLOT_FIELDS)
    if not isinstance(slot, int) or not isinstance(device, str):
        raise unexpected(f"a {op(node)} of device {device!r:.40}")
    return Storage(slot, type_name(dtype), int(np.prod(shape(sources(node)[0]))), device)


def content(node: Record) -> bytes | None:
    """What a BUFFER held when it was pickled; ``None`` for one that was not allocated.

    Raises:
        GraphError: a view of another buffer, or no buffer.
    """
    if len(node.arguments) <= _CONTENT:
        return None
    buffer = node.arguments[_CONTENT]
    if not (isinstance(buffer, Record) and buffer.name == "Buffer" and len(buffer.arguments) == 7):
        raise unexpected("a buffer that is a view of another one")
    data = buffer.arguments[5]
    if isinstance(data, Record) and data.name == "bytearray":
        (data,) = data.arguments or (b"",)
    if data is not None and not isinstance(data, bytes | bytearray):
        raise unexpected("a buffer whose content is no bytes")
    return None if data is None else bytes(data)


_fresh = itertools.count(1 << 40)


def fresh_slot() -> int:
    """A number that no buffer of a graph has; written graphs number theirs from 0."""
    return next(_fresh)


def described(value: Any) -> Any:
    """An object of tinygrad's as records. It must hold no buffer of a device."""
    return pickles.loads(pickle.dumps(value))


def numbered(node: Record, slots: Mapping[int, int]) -> tuple[Any, ...]:
    """The arguments of a node; of a BUFFER with the number that ``slots`` has for its own."""
    if op(node) != "BUFFER":
        return node.arguments
    fields = argument(node).fields
    if not isinstance(fields["device"], str):  # in registers or local memory of a kernel
        return node.arguments
    renamed = pickles.made(_UOPS, "ParamArg", **{**fields, "slot": slots[fields["slot"]]})
    return (*node.arguments[:3], renamed, *node.arguments[4:])


def buffer(slot: int, dtype: str, count: int, device: str, data: bytes | None = None) -> Record:
    """A BUFFER, with its content."""
    from tinygrad.uop.ops import UOp

    plain = described(UOp.new_buffer(device, count, tinygrad_type(dtype), num=_UNUSED))
    plain.arguments[3].state["slot"] = slot
    if data is None:
        return plain  # type: ignore[no-any-return]
    held = pickles.call(
        "tinygrad.device", "Buffer", device, count, plain.arguments[3].fields["dtype"], None, None, data, 1
    )
    return pickles.call(_UOPS, "UOp", *plain.arguments, held)


_UNUSED = -(1 << 60)  # no buffer of a program has this number


def part(whole: Record, start: int, nbytes: int, dtype: str) -> Record:
    """Bytes of a BUFFER of bytes as elements of another type."""
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import UOp

    size = storage(whole).count
    view = UOp.new_buffer(storage(whole).device, size, dtypes.int8, num=_UNUSED)[start : start + nbytes]
    node = described(view.bitcast(tinygrad_type(dtype)))
    _replace_source(node, whole)
    return node  # type: ignore[no-any-return]


def _replace_source(node: Record, whole: Record) -> None:
    """Puts ``whole`` for the buffer below a view."""
    while op(sources(node)[0]) != "BUFFER":
        node = sources(node)[0]
    operation, dtype, srcs, *rest = node.arguments
    node.arguments = (operation, dtype, (whole, *srcs[1:]), *rest)


def tinygrad_type(name: str) -> Any:
    """tinygrad's type of a numpy type's name."""
    from tinygrad.dtype import dtypes

    for dtype in dtypes.all:
        if dtype.fmt is not None and np.dtype(dtype.fmt).name == name:
            return dtype
    raise GraphError(f"type {name}: tinygrad has none of it; give one that the device can hold")


def linear(calls: Sequence[Record]) -> Record:
    """A LINEAR of calls."""
    return _node("LINEAR", tuple(calls))


def _node(name: str, srcs: tuple[Record, ...], arg: Any = None) -> Record:
    from tinygrad.dtype import dtypes
    from tinygrad.uop import Ops

    operation = pickles.call("tinygrad.uop", "Ops", int(Ops[name]))
    return pickles.call(_UOPS, "UOp", operation, described(dtypes.void), srcs, arg, None, None)


def invocation(program: Record, arguments: Sequence[Record], info: Any) -> Record:
    """A CALL of a program, or of whatever may be called."""
    return _node("CALL", (program, *arguments), info)


def graphed(calls: Sequence[Record], parameters: Sequence[Record], info: Any) -> Record:
    """Calls as one that tinygrad's graph runner submits at once; ``parameters`` are the inputs among them."""
    return invocation(_node("CUSTOM_FUNCTION", (linear(calls),), "graph"), parameters, info)


def call_info() -> Record:
    """The description of a call that has nothing to say."""
    from tinygrad.uop.ops import CallInfo

    return described(CallInfo())  # type: ignore[no-any-return]


def program(
    name: str,
    code: bytes,
    groups: Sequence[int],
    local: Sequence[int],
    arguments: Sequence[tuple[str, tuple[int, ...]]],
    outs: Sequence[int],
    ins: Sequence[int],
    target: Any,
    operations: float,
) -> Record:
    """A compiled PROGRAM.

    Args:
        arguments: numpy type and shape of each; of an image (height, width, 4).
        target: the record of what it was compiled for.
        operations: what a launch computes, for tinygrad's statistics.
    """
    from tinygrad.renderer import Estimates
    from tinygrad.uop.ops import KernelInfo, Ops, ProgramInfo, UOp

    params = [
        UOp.param(slot, tinygrad_type(dtype), dims, device="QCOM")
        for slot, (dtype, dims) in enumerate(arguments)
    ]
    numbers = tuple(range(len(params)))
    info = ProgramInfo(name, tuple(groups), tuple(local), (), numbers, tuple(outs), tuple(ins))
    node = UOp(
        Ops.PROGRAM,
        src=(
            UOp(Ops.SINK, arg=KernelInfo(name=name, estimates=Estimates(ops=int(operations)))),
            UOp(Ops.LINEAR, src=tuple(params)),
            UOp(Ops.SOURCE, arg=f"// {name}, written by hand"),
            UOp(Ops.BINARY, arg=code),
        ),
        arg=info,
    )
    record: Record = described(node)
    record.arguments[3].state["target"] = target
    return record


def with_binary(program: Record, code: bytes) -> Record:
    """A PROGRAM with other compiled code."""
    operation, dtype, srcs, *rest = program.arguments
    kind, void, none, _, *others = srcs[3].arguments
    binary = pickles.call(_UOPS, "UOp", kind, void, none, code, *others)
    return pickles.call(_UOPS, "UOp", operation, dtype, (*srcs[:3], binary), *rest)
