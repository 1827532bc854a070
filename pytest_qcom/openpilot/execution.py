"""Runs captured graphs with tinygrad, call by call, on the QCOM device of this process.

The device is what :func:`pytest_qcom.devices.session.installed` has put there: the virtual A630, or this
machine's own. tinygrad loads the very pickle that would be written to a file.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import writing
from pytest_qcom.openpilot.graph import Graph

Inputs = Mapping[str, NDArray[Any]]


@dataclass(slots=True)
class Run:
    """What a run gave.

    Attributes:
        results: what the model returns, in its order.
        seconds: device seconds of each call.
        outputs: of the calls that were watched, what each wrote, one array an argument.
    """

    results: tuple[NDArray[Any], ...] = ()
    seconds: tuple[float, ...] = ()
    outputs: dict[int, tuple[NDArray[Any], ...]] = field(default_factory=dict)


class Execute(Protocol):
    """Runs a graph somewhere, as :func:`run` does on this process's device."""

    def __call__(
        self, graph: Graph, inputs: Inputs, watch: Collection[int] = (), stop: int | None = None
    ) -> Run:
        """What :func:`run` gives."""
        ...


def random_inputs(graph: Graph, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Inputs of a graph: normally distributed floats, integers over the whole range of bytes."""
    found: dict[str, NDArray[Any]] = {}
    for memory, shape in zip(graph.inputs, graph.shapes, strict=True):
        dtype = np.dtype(memory.dtype)
        dims = shape if -1 not in shape else (memory.nbytes // dtype.itemsize,)
        if dtype.kind == "f":
            found[memory.name] = generator.standard_normal(dims).astype(dtype)
        elif dtype.kind == "b":
            found[memory.name] = generator.integers(0, 2, dims).astype(dtype)
        else:
            found[memory.name] = generator.integers(0, min(np.iinfo(dtype).max, 255) + 1, dims).astype(dtype)
    return found


def run(graph: Graph, inputs: Inputs, watch: Collection[int] = (), stop: int | None = None) -> Run:
    """Runs the calls one after the other.

    Args:
        inputs: by name, in the shapes of the graph.
        watch: numbers of calls whose outputs are kept; what they do not write of them is all ones in bits.
        stop: the first call that is not run; then there are no results.

    Raises:
        GraphError: inputs that are not those of the graph.
        LaunchError, GpuFault, GpuHang, HazardError: what the device ran into.
    """
    jit = _loaded(graph)
    names, tensors = _tensors(graph, inputs)
    done = Run()
    seconds = []
    for number, call, context in _steps(jit, names, tensors):
        if number == stop:
            break
        if number in watch:
            _blank(call, context)
        seconds.append(_execute(call, context))
        if number in watch:
            done.outputs[number] = _written(call, context)
    done.seconds = tuple(seconds)
    if stop is None:
        done.results = _results(jit)
    return done


def submit(graph: Graph, inputs: Inputs) -> tuple[NDArray[Any], ...]:
    """The results of the graph as its users run it: the whole TinyJit at once.

    Raises:
        GraphError, LaunchError, GpuFault, GpuHang, HazardError: as :func:`run`.
    """
    jit = _loaded(graph)
    names, tensors = _tensors(graph, inputs)
    positions = [tensor for name, tensor in zip(names, tensors, strict=True) if isinstance(name, int)]
    jit(*positions, **{n: t for n, t in zip(names, tensors, strict=True) if isinstance(n, str)})
    return _results(jit)


def _loaded(graph: Graph) -> Any:
    """The TinyJit, with buffers whose numbers no other buffer of this process has."""
    from tinygrad.uop.ops import UOp

    numbers = [next(UOp.unique_num) for _ in range(writing.slots(graph))]
    # Written by ourselves a moment ago, of records that are all of tinygrad's own classes.
    return pickle.loads(writing.dumps(graph, first_slot=numbers[0]))


def _tensors(graph: Graph, inputs: Inputs) -> tuple[list[Any], list[Any]]:
    from tinygrad import Tensor

    known = {memory.name for memory in graph.inputs}
    if set(inputs) != known:
        raise GraphError(
            f"run with inputs {', '.join(sorted(inputs)) or 'none'}: the graph has "
            f"{', '.join(sorted(known)) or 'none'}; give exactly these"
        )
    names, tensors = [], []
    for memory, shape in zip(graph.inputs, graph.shapes, strict=True):
        array = np.ascontiguousarray(inputs[memory.name])
        if array.dtype != np.dtype(memory.dtype) or array.nbytes != memory.nbytes:
            raise GraphError(
                f"run with input {memory.name} of {array.dtype}{list(array.shape)}: the graph takes "
                f"{memory.dtype}{list(shape)}; convert it"
            )
        names.append(int(memory.name) if memory.name.isdigit() else memory.name)
        flat = -1 in shape
        tensors.append(Tensor(array if flat else array.reshape(shape), device=writing.DEVICE).realize())
    return names, tensors


def _steps(jit: Any, names: list[Any], tensors: list[Any]) -> Iterator[tuple[int, Any, Any]]:
    """(number, call, context of tinygrad) of each call."""
    from tinygrad.engine.jit import _prepare_jit_inputs
    from tinygrad.engine.realize import ExecContext
    from tinygrad.uop.ops import Ops

    positions = tuple(t for n, t in zip(names, tensors, strict=True) if isinstance(n, int))
    named = {n: t for n, t in zip(names, tensors, strict=True) if isinstance(n, str)}
    uops, variables, _, infos = _prepare_jit_inputs(positions, named)
    if infos != jit.captured.expected_input_info:
        raise GraphError(f"run with inputs {names}: they are not laid out as the captured ones; copy them")
    context = ExecContext(variables, tuple(uops), update_stats=False, jit=True, wait=True)
    number = 0
    for outer in jit.captured.linear.src:
        graphed = outer.src[0].op is Ops.CUSTOM_FUNCTION and outer.src[0].arg == "graph"
        for call in outer.src[0].src[0].src if graphed else (outer,):
            yield number, call, context
            number += 1


def _execute(call: Any, context: Any) -> float:
    from tinygrad.engine.realize import pm_exec

    return float(sum(seconds or 0.0 for seconds in pm_exec.rewrite(call, context) or ()))


def _blank(call: Any, context: Any) -> None:
    """Fills what a call only writes, so that what it leaves out can be told."""
    from tinygrad.engine.realize import get_call_outs_ins, resolve_params

    arguments = resolve_params(call, context.input_uops)
    outs, ins = (set(each) for each in get_call_outs_ins(call))
    for number in outs - ins:
        buffer = arguments[number].buffer.ensure_allocated()
        buffer.allocator.dev.synchronize()
        buffer.allocator._copyin(buffer._buf, memoryview(bytearray(b"\xff") * buffer.nbytes))


def _written(call: Any, context: Any) -> tuple[NDArray[Any], ...]:
    from tinygrad.engine.realize import get_call_outs_ins, resolve_params

    arguments = resolve_params(call, context.input_uops)
    return tuple(np.array(arguments[n].buffer.numpy()) for n in sorted(set(get_call_outs_ins(call)[0])))


def _results(jit: Any) -> tuple[NDArray[Any], ...]:
    from tinygrad.nn.state import get_parameters

    return tuple(tensor.numpy() for tensor in get_parameters(jit.captured.ret))
