"""What a declared patch is: a rewrite of a captured graph that is found by structure and checked by running.

A patch says where it applies (:attr:`Patch.find`), what becomes of a site (:attr:`Patch.rewrite`) and how far
results may move (:attr:`Patch.tolerance`). :func:`apply` rewrites all sites, verifies the graph before and
after, and asserts that nothing is left to rewrite; :func:`check` also runs both graphs on the same inputs. A
graph without sites comes back as it is, with the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pytest_qcom.errors import GraphError, KernelError, PatchError, closest
from pytest_qcom.openpilot import execution
from pytest_qcom.openpilot.graph import Call, Graph, Memory, Program, View


@dataclass(frozen=True, slots=True)
class Site:
    """Calls that a patch rewrites together.

    Attributes:
        facts: what the patch found out about them, to be told.
        found: the same as it is needed to rewrite them.
    """

    calls: tuple[int, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    found: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that looks like part of a site, and why it is none."""

    call: int
    reason: str


Findings = tuple[tuple[Site, ...], tuple[Refusal, ...]]


Judge = Callable[[Call, Program], tuple[Mapping[str, Any], Any] | str]
"""A call of a program to the facts of the site that it is and what rewriting it takes; or to why it is none,
nothing where it does not look like one. It may raise GraphError and KernelError with the reason as well."""


def single(judge: Judge) -> Callable[[Graph], Findings]:
    """The find of a patch whose sites are calls of programs, each for itself."""

    def find(graph: Graph) -> Findings:
        sites, refusals = [], []
        for number, call in enumerate(graph.calls):
            if call.program is None:
                continue
            try:
                judged = judge(call, call.program)
            except (GraphError, KernelError) as error:
                judged = str(error)
            if not isinstance(judged, str):
                sites.append(Site((number,), *judged))
            elif judged:
                refusals.append(Refusal(number, judged))
        return tuple(sites), tuple(refusals)

    return find


def in_place(change: Callable[[Call, Any], Program | tuple[Call, ...]]) -> Callable[[Graph, Site], Edit]:
    """The rewrite of such a patch.

    Args:
        change: a call and what was found of it to the program that it launches from now on, or to the calls
            in its place.
    """

    def rewrite(graph: Graph, site: Site) -> Edit:
        (number,) = site.calls
        call = graph.calls[number]
        made = change(call, site.found)
        return Edit(calls={number: (replace(call, program=made),) if isinstance(made, Program) else made})

    return rewrite


@dataclass(frozen=True, slots=True)
class Edit:
    """What becomes of a site.

    Attributes:
        calls: what stands in the place of a call; calls that are not named stay.
        aliases: what is read in the place of a memory, from its start.
        order: of all calls of the graph, by number; ``None`` to leave them.
    """

    calls: Mapping[int, tuple[Call, ...]] = field(default_factory=dict)
    aliases: Mapping[Memory, View] = field(default_factory=dict)
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far results may move.

    Attributes:
        share: of the largest magnitude of a result; 0 for the same bits.
        reason: why they may.
    """

    share: float
    reason: str


EXACT = Tolerance(0.0, "the same operations in the same order")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A patch of a captured graph.

    Attributes:
        find: a graph to the sites, none over another, and the refusals.
        rewrite: (graph, site) to what becomes of it.
        tolerance: a graph to how far its results may move.
        models: the declared models that have a site.
        source: what it is derived from.
    """

    name: str
    summary: str
    find: Callable[[Graph], Findings]
    rewrite: Callable[[Graph, Site], Edit]
    models: tuple[str, ...]
    tolerance: Tolerance = EXACT
    source: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """A graph after a patch, and how it came about.

    Attributes:
        left: sites that were not asked for, which stay as they are.
    """

    patch: Patch
    before: Graph
    graph: Graph
    sites: tuple[Site, ...]
    refusals: tuple[Refusal, ...]
    left: tuple[Site, ...] = ()

    @property
    def reason(self) -> str:
        """Why nothing was rewritten; empty if something was."""
        if self.sites:
            return ""
        if self.left:
            calls = ", ".join(f"{call} ({self.before.calls[call].label})" for call in self.left[0].calls)
            return f"none of its {len(self.left)} sites has a call that is named; the first is of {calls}"
        if not self.refusals:
            return "no call looks like a site"
        first = self.refusals[0]
        others = f" (and {len(self.refusals) - 1} more)" if len(self.refusals) > 1 else ""
        return f"call {first.call} ({self.before.calls[first.call].label}): {first.reason}{others}"

    def facts(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        return {
            "patch": self.patch.name,
            "applied": bool(self.sites),
            "sites": [{"calls": list(site.calls), **site.facts} for site in self.sites],
            "left": [{"calls": list(site.calls), **site.facts} for site in self.left],
            "refusals": [{"call": each.call, "reason": each.reason} for each in self.refusals],
            "reason": self.reason,
            "calls": [len(self.before.calls), len(self.graph.calls)],
            "digests": [self.before.digest, self.graph.digest],
        }


def apply(patch: Patch, graph: Graph, only: Collection[str] = ()) -> Applied:
    """Rewrites the sites of a patch.

    Args:
        only: calls, by number or by their program's name: sites without one of them stay. Nothing is all.

    Raises:
        GraphError: the graph before or after is none, or a call that it does not have.
        PatchError: sites that overlap, or that are still there afterwards.
    """
    graph.verify()
    sites, refusals = patch.find(graph)
    taken = [call for site in sites for call in site.calls]
    if len(set(taken)) != len(taken):
        raise PatchError(f"patch {patch.name}: sites share calls {sorted(taken)}; its find is wrong")
    named = named_calls(graph, only)
    left = tuple(site for site in sites if only and named.isdisjoint(site.calls))
    sites = tuple(site for site in sites if site not in left)
    if not sites:
        return Applied(patch, graph, graph, (), refusals, left)
    after = graph.with_calls(_edited(graph, [patch.rewrite(graph, site) for site in sites]))
    still = patch.find(after)[0]
    if len(still) > len(left):
        raise PatchError(
            f"patch {patch.name}: call {still[0].calls[0]} is a site after it still, of {len(still)} in all; "
            "its rewrite does not end"
        )
    return Applied(patch, graph, after, sites, refusals, left)


def named_calls(graph: Graph, words: Collection[str]) -> set[int]:
    """The numbers of calls that are named, by number or by their program's name.

    Raises:
        GraphError: a word that is no call.
    """
    named: set[int] = set()
    for word in words:
        found = {n for n, call in enumerate(graph.calls) if word in (str(n), call.label)}
        if not found:
            raise GraphError(
                f"call {word!r}: the graph has {len(graph.calls)} calls and none is called so; give a number "
                f"or a program's name, {closest(word, dict.fromkeys(call.label for call in graph.calls))}"
            )
        named |= found
    return named


def _edited(graph: Graph, edits: list[Edit]) -> list[Call]:
    becomes: dict[int, tuple[Call, ...]] = {}
    aliases: dict[Memory, View] = {}
    order: tuple[int, ...] = tuple(range(len(graph.calls)))
    for edit in edits:
        becomes.update(edit.calls)
        aliases.update(edit.aliases)
        order = edit.order if edit.order is not None else order

    def final(memory: Memory) -> View:
        view = aliases[memory]
        while view.memory in aliases:
            view = view.within(aliases[view.memory])
        return view

    found = [call for number in order for call in becomes.get(number, (graph.calls[number],))]
    known = {memory: final(memory) for memory in aliases}
    return [call.substituted(known) for call in found] if known else found


@dataclass(frozen=True, slots=True)
class Report:
    """What a check of a patch found.

    Attributes:
        ok: every result is within the tolerance.
        error: the largest difference of a result as a share of that result's largest magnitude.
        seconds: device seconds of all calls, before and after.
    """

    applied: Applied
    ok: bool
    error: float
    seconds: tuple[float, float]

    def facts(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        return {
            **self.applied.facts(),
            "ok": self.ok,
            "error": self.error,
            "tolerance": self.applied.patch.tolerance.share,
            "seconds": list(self.seconds),
        }


def check(
    patch: Patch,
    graph: Graph,
    generator: np.random.Generator,
    run: execution.Execute = execution.run,
    only: Collection[str] = (),
) -> Report:
    """Applies a patch and runs the graph before and after it on the same random inputs.

    Args:
        run: runs a graph; by default on this process's device.
        only: as for :func:`apply`.

    Raises:
        PatchError: results that differ by more than the patch allows.
        GraphError, LaunchError, GpuFault, GpuHang, HazardError: a graph that does not run.
    """
    return judge(apply(patch, graph, only), generator, run)


def judge(applied: Applied, generator: np.random.Generator, run: execution.Execute = execution.run) -> Report:
    """Runs the graph before and after what was applied on the same random inputs.

    Raises:
        PatchError, GraphError, LaunchError, GpuFault, GpuHang, HazardError: as :func:`check`.
    """
    inputs = execution.random_inputs(applied.before, generator)
    before = run(applied.before, inputs)
    return compare(applied, before, run(applied.graph, inputs) if applied.sites else before)


def compare(applied: Applied, before: execution.Run, after: execution.Run) -> Report:
    """What runs of the graph before and after on the same inputs say of what was applied.

    Raises:
        PatchError: results that differ by more than the patch allows.
    """
    patch = applied.patch
    error = max(map(difference, before.results, after.results), default=0.0)
    report = Report(applied, error <= patch.tolerance.share, error, (sum(before.seconds), sum(after.seconds)))
    if not report.ok:
        raise PatchError(
            f"patch {patch.name}: results moved by {error:.3g} of their largest value, it allows "
            f"{patch.tolerance.share:.3g}; find the first call that differs with 'qcom graph compare'",
            **report.facts(),
        )
    return report


def difference(before: Any, after: Any) -> float:
    """The largest difference as a share of the largest magnitude before; infinite where one alone is NaN."""
    one, other = (np.asarray(each, np.float64).ravel() for each in (before, after))
    if one.shape != other.shape:
        return float("inf")
    if not one.size or np.array_equal(one, other, equal_nan=True):
        return 0.0
    gap = np.abs(one - other)
    gap[np.isnan(one) & np.isnan(other)] = 0.0
    scale = np.nanmax(np.abs(one), initial=0.0)
    return float("inf") if np.isnan(gap).any() or not scale else float(gap.max() / scale)
