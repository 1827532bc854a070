"""The UOps of which a program was compiled, and programs compiled from UOps.

A captured PROGRAM keeps the UOps that were rendered (its SINK): loads, stores, loops, launch dimensions. They
say what the program computes without regard to how the compiler allotted registers. Rewritten ones are
compiled by Mesa anew, here as on any machine.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import nodes, pickles, reading
from pytest_qcom.openpilot.graph import Program
from pytest_qcom.openpilot.pickles import Record

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

_PLAIN = 6  # arguments of a node without the content of a buffer


@functools.lru_cache(maxsize=512)
def body(program: Program) -> UOp:
    """The SINK of a program, as tinygrad's own object.

    Raises:
        GraphError: the program was not made of UOps.
    """
    sink = nodes.sources(program.node)[0]
    if not nodes.sources(sink):
        raise GraphError(f"UOps of {program.label}: it was written by hand and has none")

    def plain(record: Record) -> tuple[Any, ...]:
        return record.arguments[:_PLAIN] if record.name == "UOp" else record.arguments

    # Made of records of tinygrad's own data classes a moment ago; no buffer among them.
    return pickle.loads(pickles.dumps(sink, plain))


def compiled(program: Program, sink: UOp, name: str = "") -> Program:
    """The program that Mesa makes of other UOps, for the same chip.

    Args:
        sink: their SINK; its PARAMs are the arguments.
        name: what it is called; by default as before.

    Raises:
        GraphError: the graph's programs are the vendor's compiler's.
    """
    from tinygrad.codegen import to_program
    from tinygrad.helpers import Context
    from tinygrad.uop.ops import Ops, ProgramInfo, UOp

    made_for = renderer(program)
    sink = sink.replace(arg=replace(sink.arg, name=name or sink.arg.name, estimates=None), tag=1)
    info = ProgramInfo.from_sink(sink, made_for.target)
    with Context(IMAGE=int("IMAGE" in made_for.target.arch), NOOPT=1):
        made = to_program(UOp(Ops.PROGRAM, src=(sink,), arg=info), made_for)
    return reading.program(nodes.described(made))


def renderer(program: Program) -> Any:
    """Mesa's compiler for the chip of a program.

    Raises:
        GraphError: the graph's programs are the vendor's compiler's.
    """
    from tinygrad.helpers import Target
    from tinygrad.renderer.nir import IR3Renderer

    if program.renderer != "IR3":
        raise GraphError(
            f"compiling {program.label}: it is of the compiler {program.renderer or 'of the vendor'}, which "
            "runs on the device only; capture the graph with DEV=QCOM:IR3"
        )
    target = nodes.argument(program.node).fields["target"].fields
    return IR3Renderer(Target(target["device"], target["renderer"], target["arch"]))


def transformed(sink: UOp, change: Callable[[UOp, tuple[UOp, ...]], UOp | None]) -> UOp:
    """UOps with each node replaced, sources before what uses them.

    Args:
        change: (node, its new sources) to a new node, or ``None`` for the node with its new sources.
    """
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        sources = tuple(done[source] for source in node.src)
        new = change(node, sources)
        if new is None:
            new = node if sources == node.src else node.replace(src=sources)
        done[node] = new
    return done[sink]


def constant(node: UOp) -> float | int | None:
    """The value of a number, converted or not."""
    from tinygrad.uop.ops import Ops

    while node.op is Ops.CAST:
        node = node.src[0]
    return node.arg if node.op is Ops.CONST else None


def number(value: int) -> UOp:
    """A number as what indices are computed of."""
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import UOp

    return UOp.const(value).cast(dtypes.int)


def lanes(store: UOp) -> tuple[UOp, ...]:
    """The values that a STORE stores, one or a vector's."""
    from tinygrad.uop.ops import Ops

    value = store.src[1]
    return value.src if value.op is Ops.STACK else (value,)


def addends(node: UOp) -> list[UOp]:
    """What an expression adds up, from the left."""
    from tinygrad.uop.ops import Ops

    return [each for part in node.src for each in addends(part)] if node.op is Ops.ADD else [node]


def stores(sink: UOp) -> Iterator[tuple[int, UOp]]:
    """(argument number, STORE) of each store to an argument."""
    from tinygrad.uop.ops import Ops

    for node in sink.toposort():
        if node.op is Ops.STORE and node.src[0].src[0].op is Ops.PARAM:
            yield node.src[0].src[0].arg.slot, node


def has_local_memory(sink: UOp) -> bool:
    """Whether fibers of a workgroup exchange values, so that the workgroup must stay as it is."""
    from tinygrad.dtype import AddrSpace
    from tinygrad.uop.ops import Ops

    return any(
        node.op is Ops.BARRIER or (node.op is Ops.BUFFER and node.arg.addrspace is AddrSpace.LOCAL)
        for node in sink.toposort()
    )
