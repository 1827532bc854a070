"""Graphs as data: what is read, what depends on what, and that tinygrad runs what is written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tinygrad.runtime.autogen import mesa

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import accesses, execution, library, models, reading, writing
from pytest_qcom.openpilot.capture import Shape, capture, compiling
from pytest_qcom.openpilot.graph import Call, Graph, Kind, Memory, View

Captured = Callable[[str], Graph]
NAMES = sorted(models.MODELS)


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_survives_writing(captured: Captured, name: str) -> None:
    graph = captured(name)
    again = reading.read(writing.dumps(graph))
    assert again.digest == graph.digest
    assert again.dependencies() == graph.dependencies()
    assert reading.read(writing.dumps(graph, first_slot=1 << 20)).digest == graph.digest


def test_a_digest_is_of_the_program_and_not_of_the_process_that_compiled_it(captured: Captured) -> None:
    """Mesa's structure begins the container; it holds addresses."""
    program = captured("heads").calls[0].program
    assert program is not None
    fields = {name: at for name, _, at, *_ in mesa.struct_ir3_shader_variant._real_fields_}
    digests = {}
    for name in ("ir", "compiler", "const_state", "branchstack"):
        changed = bytearray(program.binary)
        changed[fields[name]] ^= 1
        digests[name] = replace(program, binary=bytes(changed)).digest
    assert [name for name, digest in digests.items() if digest != program.digest] == ["branchstack"]


@pytest.mark.parametrize("name", NAMES)
def test_call_by_call_and_at_once_give_the_same(captured: Captured, name: str) -> None:
    graph = captured(name)
    inputs = execution.random_inputs(graph, np.random.default_rng(5))
    done = execution.run(graph, inputs, watch=[0])
    assert len(done.seconds) == len(graph.calls)
    assert min(done.seconds) > 0
    assert done.outputs[0][0].nbytes == graph.calls[0].outs[0].nbytes
    for one, other in zip(done.results, execution.submit(graph, inputs), strict=True):
        np.testing.assert_array_equal(one, other)


PLAIN = """
import pickle, sys
import numpy as np
from tinygrad import Tensor
with open(sys.argv[1], "rb") as file:
    jit = pickle.load(file)
x = Tensor(np.random.default_rng(9).standard_normal((32, 64)).astype(np.float32)).realize()
np.save(sys.argv[2], jit(x=x).numpy())
"""


def test_tinygrad_alone_runs_what_is_written(captured: Captured, tmp_path: Path) -> None:
    graph = captured("attention")
    writing.save(graph, tmp_path / "model.pkl")
    (tmp_path / "plain.py").write_text(PLAIN)
    qcom = "from pytest_qcom.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", qcom, "exec", str(tmp_path / "plain.py"), "model.pkl", "out.npy"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=110)
    x = np.random.default_rng(9).standard_normal((32, 64)).astype(np.float32)
    expected = execution.run(graph, {"x": x}).results[0]
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def test_what_the_model_computes_is_right(captured: Captured) -> None:
    """Against numpy, with the weights that stand in the graph: layouts and kinds of memory are understood."""
    graph = captured("heads")
    weights = [
        view.array()[accesses.reads(call.program, slot)].tobytes()
        for call in graph.calls
        if call.program
        for slot, view in enumerate(call.views)
        if view.memory.contents and slot in call.program.ins
    ]
    assert len(weights) == 16
    twins = set(weights)
    assert len(twins) == 12  # of sixteen matrices, four are exported twice
    features = np.random.default_rng(3).standard_normal((1, 128)).astype(np.float32)
    (result,) = execution.run(graph, {"features": features}).results
    assert result.shape == (1, 256)
    np.testing.assert_array_equal(result[:, :64], result[:, 192:])
    generator = np.random.default_rng(0)
    one = generator.standard_normal((128, 64)).astype(np.float32) / np.sqrt(np.float32(128))
    two = generator.standard_normal((64, 32)).astype(np.float32) / np.sqrt(np.float32(64))
    expected = np.maximum(features @ one, 0) @ two
    np.testing.assert_allclose(result[:, :32], expected, atol=3e-3 * np.abs(expected).max())


def test_kinds_of_memory(captured: Captured) -> None:
    graph = captured("vision-mlp")
    kinds = {memory.kind for memory in graph.memories}
    assert kinds == {Kind.INPUT, Kind.WEIGHT, Kind.TEMPORARY, Kind.FIXED}
    assert [memory.name for memory in graph.inputs] == ["x"]
    assert graph.shapes == ((256, 64),)
    (result,) = graph.results
    assert result.memory.kind is Kind.FIXED
    assert graph.writer(result, len(graph.calls)) == len(graph.calls) - 1
    (x,) = graph.inputs
    assert all(x in {view.memory for view in graph.calls[n].ins} for n in graph.readers(x))


def test_state_keeps_its_place() -> None:
    """A buffer that is read before it is written lives from run to run; its readers stay in front."""
    from tinygrad import Tensor

    with compiling(image=False, half=False):
        state = Tensor(np.zeros(64, np.float32), device="QCOM").realize()

        def run(x: Tensor) -> Tensor:
            out = (state + x).contiguous().realize()
            state.assign(out * 2).realize()
            return out

        graph = reading.read(capture(run, {"x": Shape((64,))}))
    assert [memory.kind for memory in graph.memories].count(Kind.FIXED) == 2
    for number, before in enumerate(graph.dependencies()):
        assert before == frozenset(range(number)), "nothing may be reordered here"
    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(execution.run(graph, {"x": x}).results[0], x)


def test_the_planner_reuses_bytes_and_never_of_the_living(captured: Captured) -> None:
    graph = captured("heads")
    plan = writing.plan(graph)
    temporaries = [memory for memory in graph.memories if memory.kind is Kind.TEMPORARY]
    assert plan.nbytes < sum(-(-memory.nbytes // 256) * 256 for memory in temporaries)
    lives = {
        memory: [n for n, call in enumerate(graph.calls) if memory in {view.memory for view in call.views}]
        for memory in temporaries
    }
    for one in temporaries:
        for other in temporaries:
            together = lives[one][0] <= lives[other][-1] and lives[other][0] <= lives[one][-1]
            if one is not other and together:
                a, b = plan.starts[one], plan.starts[other]
                assert a + one.nbytes <= b or b + other.nbytes <= a


def test_levels_and_the_critical_path() -> None:
    """Of a diamond: one call, two that need it, one that needs both."""
    memories = [Memory(Kind.TEMPORARY, f"t{n}", "float32", 4) for n in range(4)]
    views = [View(memory, 0, 4, "float32") for memory in memories]
    source = Memory(Kind.INPUT, "x", "float32", 4)
    calls = [Call(None, (views[0], View(source, 0, 4, "float32")))]
    calls += [Call(None, (views[n], views[0])) for n in (1, 2)]
    calls += [Call(None, (views[3], views[1])), Call(None, (views[3], views[2]))]
    graph = Graph(tuple(calls), (source,), (), ((1,),), frame=None)  # type: ignore[arg-type]
    assert graph.levels() == (0, 1, 1, 2, 3)  # both of the last write one memory
    assert graph.critical_path([1, 5, 2, 1, 1]) == (0, 1, 3, 4)
    with pytest.raises(GraphError, match=r"^graph: call 4 \(copy\) writes t3 a second time; "):
        graph.verify()


def test_what_is_wrong_with_a_graph_is_said(captured: Captured) -> None:
    graph = captured("stem")
    first, second = graph.calls
    with pytest.raises(
        GraphError, match=r"call 0 \(r_\w+\) reads temporary0, which no call before it writes"
    ):
        graph.with_calls((second, first))
    assert second.program is not None
    wide = replace(second, program=replace(second.program, local=(64, 64, 1)))
    with pytest.raises(GraphError, match=r"is launched with \(1, 1, 1\) groups of \(64, 64, 1\) fibers"):
        graph.with_calls((first, wide))
    short = replace(second, views=(*second.views[:3], replace(second.views[3], nbytes=32)))
    with pytest.raises(GraphError, match=r"has argument 3 of 32 bytes, its program declares 64"):
        graph.with_calls((first, short))
    with pytest.raises(GraphError, match="has 3 arguments, its program declares 4"):
        graph.with_calls((first, replace(second, views=second.views[:3])))
    weight = second.views[2]
    with pytest.raises(GraphError, match="writes weight0, a weight"):
        graph.with_calls((replace(first, views=(weight, *first.views[1:])), second))


def test_inputs_that_do_not_fit_are_refused(captured: Captured) -> None:
    graph = captured("stem")
    with pytest.raises(GraphError, match=r"^run with inputs y: the graph has frames; give exactly these$"):
        execution.run(graph, {"y": np.zeros(3)})
    with pytest.raises(GraphError, match=r"^run with input frames of float64\[3\]: the graph takes float32"):
        execution.run(graph, {"frames": np.zeros(3)})


@pytest.mark.parametrize("name", NAMES)
def test_libraries_survive_writing(captured: Captured, name: str) -> None:
    for call in captured(name).calls:
        assert call.program is not None
        parsed = library.parse(call.program.binary)
        assert library.parse(parsed.to_bytes()) == parsed
        assert call.program.code == parsed.program


def test_a_damaged_library_says_so(captured: Captured) -> None:
    program = captured("stem").calls[0].program
    assert program is not None
    for data in (b"", program.binary[:100], program.binary[:-8]):
        with pytest.raises(GraphError, match=r"^compiled program: no container of Mesa's"):
            library.parse(data)
