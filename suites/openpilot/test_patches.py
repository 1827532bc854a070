"""Every declared patch: where it applies, that results stay, where it refuses, that it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_qcom.errors import PatchError
from pytest_qcom.kernels.edit import replace_instructions
from pytest_qcom.kernels.rewrites.delays import DelayTrim
from pytest_qcom.kernels.waits import nop
from pytest_qcom.openpilot import execution, patch, products, reading, registry, writing
from pytest_qcom.openpilot.capture import Model, Shape
from pytest_qcom.openpilot.graph import Graph
from pytest_qcom.openpilot.models import MODELS
from pytest_qcom.openpilot.patch import EXACT, Edit, Patch, Report, Site, Tolerance
from pytest_qcom.openpilot.patches import programs
from pytest_qcom.openpilot.patches.arithmetic import gelu_polynomial
from suites.openpilot.near_misses import NEAR_MISSES, with_another_reader

Captured = Callable[[str], Graph]
PatchRun = Callable[[], Report]
OTHERS = [
    (each.name, model) for each in registry.PATCHES.values() for model in MODELS if model not in each.models
]


@pytest.mark.qcom_patch()
def test_a_patch_keeps_results_and_holds_its_floor(patch_run: PatchRun) -> None:
    report = patch_run()
    assert report.ok
    applied = report.applied
    assert applied.sites
    assert applied.graph.digest != applied.before.digest
    stored = reading.read(writing.dumps(applied.graph))
    assert stored.digest == applied.graph.digest
    again = patch.apply(applied.patch, stored)
    assert again.graph is stored
    assert not again.sites


@pytest.mark.parametrize(("name", "model"), OTHERS)
def test_a_patch_without_a_site_changes_nothing(captured: Captured, name: str, model: str) -> None:
    graph = captured(model)
    digest = graph.digest
    applied = patch.apply(registry.find(name), graph)
    assert applied.graph is graph
    assert (graph.digest, applied.sites) == (digest, ())
    assert applied.reason


@pytest.mark.parametrize(
    ("name", "number"), [(n, i) for n, ms in NEAR_MISSES.items() for i in range(len(ms))]
)
def test_a_near_miss_is_left_alone(captured: Captured, name: str, number: int) -> None:
    model, change = NEAR_MISSES[name][number]
    graph = change(captured(model))
    applied = patch.apply(registry.find(name), graph)
    assert applied.graph is graph
    assert applied.reason


def test_every_patch_has_a_near_miss_and_a_model() -> None:
    assert set(NEAR_MISSES) == set(registry.PATCHES)
    assert all(each.summary and each.source for each in registry.PATCHES.values())
    assert {each.name for each in registry.PATCHES.values() if not each.models} == {
        "recompile",
        "schedule-projection",
    }
    assert all(set(each.models) <= set(MODELS) for each in registry.PATCHES.values())
    for each in registry.PATCHES.values():
        assert bool(each.tolerance.share) != (each.tolerance.reason == EXACT.reason), each.name


def test_a_block_whose_middle_has_another_reader_keeps_it(captured: Captured) -> None:
    graph = with_another_reader(captured("vision-mlp"))
    applied = patch.apply(registry.find("fuse-mlp"), graph)
    assert [site.calls for site in applied.sites] == [(4, 5)]
    assert [each.reason for each in applied.refusals] == ["what it multiplies is read by others, too"]


@pytest.mark.parametrize(("name", "blocks"), [("fuse-mlp", [(1, 2), (3, 4)]), ("skip-mlp", [(1, 2)])])
def test_products_behind_each_other_are_in_one_block_each(name: str, blocks: list[tuple[int, int]]) -> None:
    """Of four, the middle two would be one as well; what is returned is not left out."""

    def build(generator: np.random.Generator) -> Callable[..., Any]:
        from tinygrad import Tensor

        arrays = generator.standard_normal((4, 64, 64)).astype(np.float32) / 8
        weights = [Tensor(array, device="QCOM").realize() for array in arrays]

        def run(x: Any) -> Any:
            for each in weights:
                x = (x @ each).gelu()
            return x.cast("float32").contiguous()

        return run

    model = Model(name="four", summary="", inputs={"x": Shape((64, 64))}, build=build)
    report = patch.check(registry.find(name), model.graph(), np.random.default_rng(5))
    assert [site.calls for site in report.applied.sites] == blocks


@pytest.mark.parametrize("model", list(MODELS))
def test_delays_of_compiled_programs_are_no_longer_than_their_coordinates_need(
    captured: Captured, model: str
) -> None:
    """Why no patch of graphs trims them."""
    codes = [call.program.code for call in captured(model).calls if call.program]
    assert codes
    assert not any(DelayTrim().find(code)[0] for code in codes)


def test_what_a_block_is_worth(captured: Captured) -> None:
    report = patch.check(registry.find("skip-mlp"), captured("vision-mlp"), np.random.default_rng(3))
    assert report.error > 0.1
    assert report.seconds[1] < report.seconds[0] / 2


def test_what_is_left_out_of_a_product_is_its_epilogue(captured: Captured) -> None:
    """The last product of the block adds the block's input, and nothing else, to its sums."""
    graph = captured("attention")
    applied = patch.apply(registry.find("raw-sums"), graph)
    assert [site.facts["left out"] for site in applied.sites] == [[1]]
    inputs = execution.random_inputs(graph, np.random.default_rng(9))
    before, after = execution.run(graph, inputs), execution.run(applied.graph, inputs)
    moved = before.results[0] - after.results[0]
    assert np.allclose(moved, inputs["x"], rtol=0, atol=1e-5)
    assert sum(after.seconds) < sum(before.seconds)


def test_what_was_patched_by_hand_is_compiled_again(captured: Captured) -> None:
    graph = captured("stem")
    packed = patch.apply(registry.find("inverse-full-rpt"), graph).graph
    assert packed.digest != graph.digest
    report = patch.check(registry.find("recompile"), packed, np.random.default_rng(4))
    assert [site.calls for site in report.applied.sites] == [(1,)]
    assert [c.program and c.program.code for c in report.applied.graph.calls] == [
        c.program and c.program.code for c in graph.calls
    ]


def delayed(graph: Graph) -> Graph:
    """The graph with idle slots before each sample, as where each waits for its own coordinate."""
    calls = list(graph.calls)
    for number, call in enumerate(calls):
        if call.program is not None and number in products.products(graph.calls):
            code = call.program.code
            edits = {n: (nop(5), instr) for n, instr in enumerate(code.instrs) if instr.op.cat == 5}
            slow = programs.with_code(call.program, replace_instructions(code, edits))
            calls[number] = replace(call, program=slow)
    return graph.with_calls(calls)


def test_idle_slots_before_samples_are_saved(captured: Captured) -> None:
    graph = delayed(captured("vision-mlp"))
    report = patch.check(registry.find("schedule-projection"), graph, np.random.default_rng(6))
    assert [site.calls for site in report.applied.sites] == [(1,), (2,), (4,), (5,)]
    assert report.seconds[1] < report.seconds[0]
    for site in report.applied.sites:
        before, after = site.facts["slots"]
        assert after <= before - 5 * 8  # eight samples, five idle slots before each
    again = patch.apply(registry.find("schedule-projection"), report.applied.graph)
    assert again.graph is report.applied.graph


def test_a_fiber_loads_each_word_once(captured: Captured) -> None:
    """Two luma texels of one row of eight bytes, and a chroma texel for each: 16 bytes before."""
    report = patch.check(registry.find("input-pack"), captured("input-pack"), np.random.default_rng(8))
    (site,) = report.applied.sites
    assert (site.facts["loads"], site.facts["axis"]) == ([16, 4], "gidx1")
    assert report.seconds[1] < report.seconds[0]


@pytest.mark.parametrize("x", [-9.0, -4.0, -1.5, -0.25, 0.0, 0.5, 2.0, 3.999, 4.0, 50.0])
def test_the_polynomial_of_gelu(x: float) -> None:
    coefficients, bound = gelu_polynomial()
    assert bound < 1.5e-4
    size = abs(x)
    inside = np.polynomial.Polynomial(coefficients)(size / 2 - 1) + min(x, 0.0)
    exact = x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    assert (inside if size < 4 else max(x, 0.0)) == pytest.approx(exact, abs=bound)


def test_the_pipeline_in_its_order(captured: Captured) -> None:
    """All patches one after the other: each leaves a graph that the next one reads."""
    graph = captured("heads")
    for each in registry.PATCHES.values():
        graph = patch.check(each, graph, np.random.default_rng(2)).applied.graph
    assert len(graph.calls) < len(captured("heads").calls)
    assert list(graph.levels()) == sorted(graph.levels())


def test_a_wrong_patch_is_noticed(captured: Captured) -> None:
    """One that gives a call the weights of another call of the same program."""
    graph = captured("vision-mlp")
    first, second = (n for n, c in enumerate(graph.calls) if sum(bool(v.memory.contents) for v in c.ins) == 2)
    assert graph.calls[first].label == graph.calls[second].label
    right = graph.calls[first].views[2]

    def find(graph: Graph) -> patch.Findings:
        return ((Site((first,)),) if graph.calls[first].views[2] == right else ()), ()

    def rewrite(graph: Graph, site: Site) -> Edit:
        call = graph.calls[first]
        other = graph.calls[second].views[2]
        return Edit(calls={first: (replace(call, views=(*call.views[:2], other, *call.views[3:])),)})

    each = Patch(name="wrong", summary="", find=find, rewrite=rewrite, models=())
    with pytest.raises(PatchError, match=r"^patch wrong: results moved by .* it allows 0; find the first"):
        patch.check(each, graph, np.random.default_rng(0))


def test_a_patch_that_does_not_end_is_noticed(captured: Captured) -> None:
    each = Patch(
        name="endless",
        summary="",
        find=lambda graph: ((Site((0,)),), ()),
        rewrite=lambda graph, site: Edit(),
        models=(),
    )
    with pytest.raises(
        PatchError, match=r"^patch endless: call 0 is a site after it still, of 1 in all; its"
    ):
        patch.apply(each, captured("stem"))
    twice = replace(each, name="twice", find=lambda graph: ((Site((0,)), Site((0, 1))), ()))
    with pytest.raises(PatchError, match=r"^patch twice: sites share calls \[0, 0, 1\]; its find is wrong$"):
        patch.apply(twice, captured("stem"))


def test_an_unknown_patch_names_its_neighbours() -> None:
    with pytest.raises(PatchError, match=r"^no patch is called 'dedupe'; did you mean dedupe-head"):
        registry.find("dedupe")


def test_differences_are_shares_of_the_largest_value() -> None:
    one = np.array([1.0, -4.0, np.nan])
    assert patch.difference(one, one) == 0
    assert patch.difference(one, np.array([1.0, -3.0, np.nan])) == 0.25
    assert patch.difference(one, np.array([np.nan, -4.0, np.nan])) == np.inf
    assert patch.difference(np.zeros(2), np.array([0.0, 1e-9])) == np.inf
    assert patch.difference(np.zeros(2), np.zeros(3)) == np.inf
    assert Tolerance(0.0, EXACT.reason) == EXACT
