"""What a program computes, worked out from its UOps with numpy: for all fibers at once, without a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import accesses, lowered
from pytest_qcom.openpilot.graph import LANES, Program

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

Arrays = dict[int, NDArray[np.float64]]


def interpret(program: Program, arrays: Arrays) -> None:
    """Runs a program on flat arrays by argument number, in float64; stores go into them.

    Raises:
        GraphError: fibers exchange values, or it does what is not known here.
    """
    sink = lowered.body(program)
    if lowered.has_local_memory(sink):
        raise GraphError(f"interpreting {program.label}: its fibers exchange values")
    _Machine(sink, program, arrays).do(sink)


def _operations() -> dict[Any, Callable[..., Any]]:
    from tinygrad.uop.ops import Ops

    return {
        Ops.ADD: np.add, Ops.SUB: np.subtract, Ops.MUL: np.multiply, Ops.MAX: np.maximum,
        Ops.EXP2: np.exp2, Ops.FDIV: np.divide, Ops.RECIPROCAL: np.reciprocal, Ops.NEG: np.negative,
        Ops.SHL: np.left_shift, Ops.SHR: np.right_shift, Ops.AND: np.bitwise_and,
        Ops.CDIV: np.floor_divide, Ops.CMOD: np.remainder,
    }  # fmt: skip


class _Machine:
    def __init__(self, sink: UOp, program: Program, arrays: Arrays) -> None:
        from tinygrad.uop.ops import Ops

        self._program, self._arrays = program, arrays
        self._operations = _operations()
        self._symbols: dict[Any, Any] = dict(
            accesses.mesh([node for node in sink.toposort() if node.op is Ops.SPECIAL])
        )
        self._registers: dict[tuple[int, int], Any] = {}
        self._known: dict[Any, Any] = {}
        self._done: set[Any] = set()

    def do(self, node: UOp) -> None:
        """Makes what a node stores happen, once a turn of the loops around it."""
        from tinygrad.uop.ops import Ops

        if node in self._done or node.op is Ops.RANGE:
            return
        self._done.add(node)
        if node.op is Ops.STORE:
            self._store(node)
        elif node.op is Ops.END:
            self._loop(node)
        elif node.op in (Ops.GROUP, Ops.SINK):
            for part in node.src:
                self.do(part)
        else:
            raise GraphError(f"interpreting {self._program.label}: it has a {node.op.name.lower()}")

    def _loop(self, node: UOp) -> None:
        from tinygrad.uop.ops import Ops

        body, loops = node.src[0], node.src[1:]
        for store in body.toposort():  # what starts the sums stands before the loop
            if store.op is Ops.STORE and not any(loop in store.toposort() for loop in loops):
                self.do(store)
        before = set(self._done)
        turns = accesses.mesh(list(loops))
        for turn in range(max(map(len, turns.values()), default=1)):
            self._symbols.update({loop: int(axis[turn]) for loop, axis in turns.items()})
            self._known.clear()
            self._done = set(before)
            self.do(body)
        self._known.clear()
        self._done |= before

    def _place(self, index: UOp) -> tuple[UOp, tuple[Any, ...]]:
        """The buffer of an INDEX, once what stands before has happened, and the index."""
        from tinygrad.uop.ops import Ops

        below = index.src[0]
        while below.op is Ops.AFTER:
            for part in below.src[1:]:
                self.do(part)
            below = below.src[0]
        return below, tuple(self.value(part) for part in index.src[1:])

    def _elements(self, buffer: UOp, index: tuple[Any, ...]) -> Any:
        """(lanes, fibers) of an image's texel; (fibers,) of a buffer's element."""
        if len(index) == 1:
            return index[0]
        width = self._program.parameters[buffer.arg.slot].shape[1]
        return (index[0] * width + index[1]) * LANES + np.arange(LANES)[:, None]

    def _store(self, node: UOp) -> None:
        from tinygrad.uop.ops import Ops

        value = self.value(node.src[1])
        buffer, index = self._place(node.src[0])
        if buffer.op is Ops.PARAM:
            self._arrays[buffer.arg.slot][self._elements(buffer, index)] = value
        else:
            self._registers[buffer.arg.slot, int(index[0])] = value
        self._known.clear()

    def value(self, node: UOp) -> Any:
        """The value of a node for all fibers."""
        if node not in self._known:
            made = self._value(node)
            self._known[node] = made
        return self._known[node]

    def _value(self, node: UOp) -> Any:
        from tinygrad.uop.ops import Ops

        if node in self._symbols:
            return self._symbols[node]
        if node.op is Ops.CONST:
            return node.arg
        if node.op is Ops.CAST:
            return self.value(node.src[0])
        if node.op is Ops.STACK:
            return np.stack(np.broadcast_arrays(*map(self.value, node.src)))
        if node.op is Ops.INDEX:
            return self.value(node.src[0])[int(self.value(node.src[1]))]
        if node.op is Ops.LOAD and len(node.src) == 1:
            buffer, index = self._place(node.src[0])
            if buffer.op is Ops.PARAM:
                return self._arrays[buffer.arg.slot][self._elements(buffer, index)]
            return self._registers[buffer.arg.slot, int(index[0])]
        if node.op in self._operations:
            return self._operations[node.op](*map(self.value, node.src))
        raise GraphError(f"interpreting {self._program.label}: it has a {node.op.name.lower()}")
