"""What the checks share: a program with its graph, steps and storage, and the search for who is to blame."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pytest_qcom.analysis.findings import Finding, Rule, Site
from pytest_qcom.analysis.graph import Graph
from pytest_qcom.analysis.steps import Step, registers_of
from pytest_qcom.analysis.storage import Storage
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.text import text

S = TypeVar("S")
"""What a check knows at a place of the program."""


@dataclass(frozen=True, slots=True)
class Context:
    """One program under one launch.

    Attributes:
        storage: where registers lie.
        timing: where they lie for waits and distances: the same, unless Mesa's view is asked for.
        as_mesa: whether it is.
        order: the reachable nodes in program order.
        issue: slots from the start of the program to each instruction, and to behind the last one.
    """

    program: Program
    graph: Graph
    steps: tuple[Step, ...]
    storage: Storage
    timing: Storage
    as_mesa: bool
    order: tuple[int, ...]
    issue: tuple[int, ...]

    def finding(
        self,
        rule: Rule,
        index: int,
        effect: str,
        fix: str,
        *,
        producer: int | None = None,
        register: str = "",
        available: int | None = None,
        needed: int | None = None,
    ) -> Finding:
        """What goes wrong at instruction ``index``, because of ``producer`` where one is to blame."""
        cause = None if producer is None else site(self.program, producer)
        return Finding(rule, site(self.program, index), effect, fix, register, cause, available, needed)

    def within(self, position: int) -> range:
        """The instructions of a node."""
        node = self.graph.nodes[position]
        return range(node.start, node.stop)

    def entries(self, first: S, through: Callable[[int, S], S], join: Callable[[S, S], S]) -> dict[int, S]:
        """What holds before each reachable node, joined over all paths to it until nothing changes.

        Args:
            first: what holds before the first instruction.
            through: (node, what holds before it) to what holds behind it; it leaves its argument as it is.
            join: of two paths; equal to the first one where the second one adds nothing.
        """
        found = {0: first}
        todo = list(reversed(self.order))
        queued = set(todo)
        while todo:
            position = todo.pop()
            queued.discard(position)
            if position not in found:  # comes back once a predecessor has been seen
                continue
            leaving = through(position, found[position])
            for successor in self.graph.nodes[position].successors:
                known = successor in found
                joined = join(found[successor], leaving) if known else leaving
                if not known or joined != found[successor]:
                    found[successor] = joined
                    if successor not in queued:
                        queued.add(successor)
                        todo.append(successor)
        return found

    def names(self, index: int, cells: int, *, written: bool, timing: bool = False) -> str:
        """The registers of an instruction that lie on ``cells`` of either storage: ``r0.x, r0.y``."""
        storage = self.timing if timing else self.storage
        found = registers_of(self.steps[index], storage, cells, written=written)
        return ", ".join(str(reg) for reg in found)

    def search(self, index: int, found: Callable[[Step], bool], over: Callable[[Step], bool]) -> int | None:
        """The nearest instruction before ``index`` that is ``found``, on any path; paths end where ``over``.

        An instruction that is both counts as found.
        """
        queue = deque(self.graph.before(index))
        seen = set(queue)
        while queue:
            at = queue.popleft()
            step = self.steps[at]
            if found(step):
                return at
            if over(step):
                continue
            for earlier in self.graph.before(at):
                if earlier not in seen:
                    seen.add(earlier)
                    queue.append(earlier)
        return None

    def between(self, producer: int, index: int) -> int:
        """Issue slots strictly between two instructions, on the shortest path between them."""
        graph, issue = self.graph, self.issue
        node = graph.nodes[graph.node_of[index]]
        if node.start <= producer < index:
            return issue[index] - issue[producer + 1]
        paths = [(issue[index] - issue[node.start], other) for other in node.predecessors]
        heapq.heapify(paths)
        seen: set[int] = set()
        while paths:
            slots, position = heapq.heappop(paths)
            node = graph.nodes[position]
            if node.start <= producer < node.stop:
                return slots + issue[node.stop] - issue[producer + 1]
            if position not in seen:
                seen.add(position)
                slots += issue[node.stop] - issue[node.start]
                for other in node.predecessors:
                    heapq.heappush(paths, (slots, other))
        return 0


def site(program: Program, index: int) -> Site:
    """An instruction as a finding names it."""
    return Site(index, text(program.instrs[index]))
