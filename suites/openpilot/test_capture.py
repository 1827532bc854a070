"""Models in ONNX, written with its own library, captured through tinygrad's reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from pytest_qcom import cli
from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import execution, products, reading
from pytest_qcom.openpilot.capture import capture, compiling, from_onnx


def written(path: Path, rows: int | str = 64) -> dict[str, NDArray[Any]]:
    """A projection with a GELU, a projection back, a residual; its weights."""
    generator = np.random.default_rng(12)
    weights: dict[str, NDArray[Any]] = {
        "up": generator.standard_normal((64, 128)).astype(np.float32) / 8,
        "bias": generator.standard_normal(128).astype(np.float32),
        "down": generator.standard_normal((128, 64)).astype(np.float32) / 12,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "up"], ["wide"]),
        helper.make_node("Add", ["wide", "bias"], ["biased"]),
        helper.make_node("Gelu", ["biased"], ["hidden"], approximate="tanh"),
        helper.make_node("MatMul", ["hidden", "down"], ["narrow"]),
        helper.make_node("Add", ["x", "narrow"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 64])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [rows, 64])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return weights


def test_a_model_in_onnx_is_captured(tmp_path: Path) -> None:
    weights = written(tmp_path / "mlp.onnx")
    with compiling(image=True, half=True):
        function, inputs = from_onnx(tmp_path / "mlp.onnx")
        graph = reading.read(capture(function, inputs))
    assert [memory.name for memory in graph.inputs] == ["x"]
    assert [(p.m, p.n, p.k) for p in products.products(graph.calls).values()] == [
        (64, 128, 64),
        (64, 64, 128),
    ]
    x = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    wide = x @ weights["up"] + weights["bias"]
    hidden = wide / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    expected = x + hidden @ weights["down"]
    (result,) = execution.run(graph, {"x": x}).results
    np.testing.assert_allclose(result, expected, atol=4e-3 * np.abs(expected).max())


def test_capture_of_onnx_at_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "mlp.onnx")
    out = tmp_path / "mlp.pkl"
    assert cli.main(["graph", "capture", str(out), "--onnx", str(tmp_path / "mlp.onnx")]) == 0
    assert capsys.readouterr().out.startswith(f"mlp.onnx written to {out}: {reading.load(out).digest}")


def test_what_is_no_onnx_says_so(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"\x0a\xff\xff\xff")
    for name in ("broken.onnx", "none.onnx"):
        with pytest.raises(GraphError, match=rf"{name}: no readable ONNX model \(.*\); export it again$"):
            from_onnx(tmp_path / name)


def test_an_input_of_any_size_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "any.onnx", rows="rows")
    with pytest.raises(GraphError, match=r"input x has shape \('rows', 64\); export it with fixed shapes$"):
        from_onnx(tmp_path / "any.onnx")
