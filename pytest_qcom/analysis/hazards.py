"""The hazard checker: what a program does that the hardware does not wait for.

:func:`lint` walks the control-flow graph, loops to a fixed point, and explains each hazard; :func:`check`
raises on the first. The rules are Mesa's, as far as Mesa states them, and stand in
:mod:`pytest_qcom.analysis.findings`.

Not modelled: which element a relative access (``r<a0.x + n>``) touches; hazards through memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Protocol

from pytest_qcom.analysis import findings
from pytest_qcom.analysis.context import Context, site
from pytest_qcom.analysis.coordinates import Extent, coordinates
from pytest_qcom.analysis.definitions import aliases, budget, footprint, uninitialized
from pytest_qcom.analysis.distances import distances
from pytest_qcom.analysis.divergence import divergence
from pytest_qcom.analysis.findings import Finding, Site, errors, to_json, to_sarif
from pytest_qcom.analysis.graph import build, escaping
from pytest_qcom.analysis.limits import after_end, operands, workgroup
from pytest_qcom.analysis.steps import steps
from pytest_qcom.analysis.storage import SHARED, Storage
from pytest_qcom.analysis.trace import Steering
from pytest_qcom.analysis.waits import waits
from pytest_qcom.errors import HazardError
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import NO_REGISTER, Reg

__all__ = ["Presets", "check", "lint", "preset", "to_json", "to_sarif"]

DEFAULT_INPUTS = frozenset(Reg(number) for number in range(3))
"""r0.xyz, the local id; the shared registers are always taken as filled by the launch."""


class Presets(Protocol):
    """Where a launch puts ids, as scalar register numbers. A dispatch of the virtual device is one."""

    @property
    def group_id_regid(self) -> int: ...
    @property
    def local_size_regid(self) -> int: ...
    @property
    def group_offset_regid(self) -> int: ...
    @property
    def local_id_regid(self) -> int: ...
    @property
    def linear_local_id_regid(self) -> int: ...


def preset(launch: Presets) -> frozenset[Reg]:
    """The registers that a launch fills before the first instruction."""
    triples = (
        launch.group_id_regid,
        launch.local_size_regid,
        launch.group_offset_regid,
        launch.local_id_regid,
    )
    numbers = [first + i for first in triples if first < NO_REGISTER for i in range(3)]
    if launch.linear_local_id_regid < NO_REGISTER:
        numbers.append(launch.linear_local_id_regid)
    return frozenset(Reg(number) for number in numbers)


def lint(
    program: Program,
    *,
    fregs: int,
    hregs: int,
    merged: bool = False,
    thread128: bool = False,
    inputs: Collection[Reg] | None = None,
    as_mesa: bool = False,
    launch: Steering | None = None,
    textures: Sequence[Extent] = (),
    images: Sequence[Extent] = (),
) -> tuple[Finding, ...]:
    """All hazards of a program, in program order.

    Args:
        fregs, hregs: declared footprints in vec4.
        merged: whether half and full registers share storage.
        thread128: the launch mode, for the register budget.
        inputs: registers that the launch fills, see :func:`preset`; the local id in r0.xyz by default.
        as_mesa: take waits and distances as Mesa's legalizer does: between half and full registers of one
            number even in split mode, and without credit for the time that a flag waits. The hardware does
            not need that; it is there to compare with Mesa.
        launch: sizes, constants and where ids stand, as far as that is known: for what a workgroup needs and,
            with the width and height of ``textures`` and ``images``, for coordinates outside of them.
    """
    broken = _structure(program)
    if broken:
        return tuple(broken)
    graph = build(program)
    storage = Storage(merged)
    timing = Storage(merged or as_mesa)
    order = tuple(position for position, live in enumerate(graph.reachable) if live)
    issue = tuple(accumulate((1 + instr.rpt + instr.nop for instr in program.instrs), initial=0))
    made = steps(program, storage, timing, as_mesa)
    context = Context(program, graph, made, storage, timing, as_mesa, order, issue)
    filled = storage.mask(DEFAULT_INPUTS if inputs is None else inputs) | SHARED
    found = [
        *budget(context, fregs, hregs, thread128),
        *_paths(context),
        *operands(context),
        *distances(context),
        *waits(context),
        *footprint(context, fregs, hregs),
        *uninitialized(context, filled),
        *aliases(context),
        *divergence(context, filled),
    ]
    if launch is not None:
        found += workgroup(context, fregs, hregs, thread128, math.prod(launch.local_size))
        found += coordinates(context, launch, textures, images)
    return tuple(sorted(found, key=lambda finding: finding.consumer.index))


def check(
    program: Program,
    *,
    fregs: int,
    hregs: int,
    merged: bool = False,
    thread128: bool = False,
    inputs: Collection[Reg] | None = None,
) -> None:
    """Raises on a program with a hazard; warnings pass. Arguments as for :func:`lint`.

    Raises:
        HazardError: names the first hazard and how many there are; ``facts["findings"]`` has all of them.
    """
    found = errors(lint(program, fregs=fregs, hregs=hregs, merged=merged, thread128=thread128, inputs=inputs))
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise HazardError(f"{found[0]}{more}", findings=[finding.facts() for finding in found])


def _structure(program: Program) -> list[Finding]:
    """Faults that leave no graph to walk."""
    size = len(program.instrs)
    if not size:
        return [Finding(findings.MISSING_END, Site(0, ""), "runs whatever lies in memory", "append end")]
    return [
        Finding(
            findings.BRANCH_RANGE,
            site(program, index),
            f"jumps to #{index + program.instrs[index]['target']}, outside #0 to #{size - 1}",
            "a target within the program",
        )
        for index in escaping(program)
    ]


def _paths(context: Context) -> list[Finding]:
    """Paths that never end and code that never runs."""
    graph = context.graph
    found = [
        context.finding(
            findings.MISSING_END,
            graph.nodes[position].stop - 1,
            "runs on into what lies behind the program",
            "append end",
        )
        for position in graph.falls_off
    ]
    lost, told = after_end(context)  # what follows is told with it
    found += lost
    found += [
        context.finding(
            findings.UNREACHABLE,
            node.start,
            f"#{node.start} to #{node.stop - 1} never run",
            "remove them, or branch there",
        )
        for position, (node, live) in enumerate(zip(graph.nodes, graph.reachable, strict=True))
        if not live and position < told
    ]
    return found
