"""What a hazard finding is, which rules there are, and how findings leave: text, JSON, SARIF."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest_qcom


class Severity(enum.Enum):
    """``ERROR``: wrong on the hardware. ``WARNING``: legal, and seldom what was meant."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the checker: what it demands and where that comes from."""

    name: str
    demand: str
    source: str
    severity: Severity = Severity.ERROR


_LEGALIZE = "Mesa, ir3_legalize.c"

EARLY_READ = Rule(
    "early-read",
    "a result is read only after its latency",
    f"{_LEGALIZE} ir3_required_delay and ir3_delay.c ir3_delayslots",
)
EARLY_PREDICATE = Rule(
    "early-predicate",
    "a predicate is read only after its latency",
    f"{_LEGALIZE} ir3_required_delay, pred_ready",
)
EARLY_ADDRESS = Rule(
    "early-address",
    "a relative access follows the write of its address register at a distance",
    f"{_LEGALIZE} ir3_required_delay, addr_ready",
)
MISSING_SY = Rule(
    "missing-sy",
    "a result of the texture or memory pipe is read only after (sy)",
    f"{_LEGALIZE} ir3_required_sync_flags, needs_sy",
)
MISSING_SS = Rule(
    "missing-ss",
    "a result of the special function unit, local memory or a shared register is read only after (ss)",
    f"{_LEGALIZE} ir3_required_sync_flags, needs_ss",
)
OVERWRITE_SY = Rule(
    "overwrite-sy",
    "a register that the texture or memory pipe is still to write is written only after (sy)",
    f"{_LEGALIZE} ir3_required_sync_flags, needs_sy on destinations",
)
OVERWRITE_SS = Rule(
    "overwrite-ss",
    "a register that the special function unit or local memory is still to write is written only after (ss)",
    f"{_LEGALIZE} ir3_required_sync_flags, needs_ss on destinations",
)
SOURCE_OVERWRITE = Rule(
    "source-overwrite",
    "a register that an asynchronous instruction still reads is written only after (ss), "
    "or after the (sy) that awaits its result",
    f"{_LEGALIZE} needs_ss_war, is_war_hazard_producer",
)
BARRIER_WAIT = Rule(
    "barrier-wait",
    "the instruction behind a barrier carries (ss) and (sy)",
    f"{_LEGALIZE} sync_update, force_ss and force_sy",
)
FULL_FOOTPRINT = Rule(
    "full-footprint",
    "full registers lie within the declared fregs",
    "Mesa, ir3.c ir3_collect_info; a6xx.xml SP_CS_CNTL_0 FULLREGFOOTPRINT",
)
HALF_FOOTPRINT = Rule(
    "half-footprint",
    "half registers lie within the declared hregs",
    "Mesa, ir3.c ir3_collect_info; a6xx.xml SP_CS_CNTL_0 HALFREGFOOTPRINT",
)
REGISTER_BUDGET = Rule(
    "register-budget",
    "the declared registers leave room for a wave",
    "Mesa, ir3_get_reg_dependent_max_waves",
)
UNINITIALIZED = Rule(
    "uninitialized",
    "a register is read only where the launch or an instruction has written it",
    "registers keep what an earlier wave left in them",
)
ALIAS = Rule(
    "alias",
    "in merged mode a value is read back at the width at which it was written",
    "Mesa, ir3.h ir3_reg_file_offset: hr(2k) and hr(2k+1) are the halves of full scalar k",
    Severity.WARNING,
)
BRANCH_RANGE = Rule(
    "branch-range",
    "a branch stays within the program",
    "Mesa, ir3-cat0.xml: the offset counts instructions from the branch",
)
AFTER_END = Rule(
    "after-end",
    "stores and branches stand where they are reached, not behind end",
    "control-flow graph; Mesa, ir3-cat0.xml: end stops the wave",
)
IMMEDIATE_WIDTH = Rule(
    "immediate-width",
    "an immediate fits its field and the type as which it is read",
    "Mesa, ir3-cat0.xml to ir3-cat6.xml",
)
ILLEGAL_OPERAND = Rule(
    "illegal-operand",
    "operands are of a kind and in a place that the instruction can read",
    "Mesa, ir3.c ir3_valid_flags",
)
WORKGROUP_WAVES = Rule(
    "workgroup-waves",
    "the waves of a workgroup fit the register file together",
    "Mesa, ir3_get_reg_dependent_max_waves",
)
OUTSIDE_IMAGE = Rule(
    "outside-image",
    "coordinates lie within the image",
    "Mesa, a6xx_isam_mode: a texel outside is that of the zero border",
    Severity.WARNING,
)
MISSING_END = Rule("missing-end", "every path reaches end", "Mesa, ir3.c ir3_collect_info")
UNREACHABLE = Rule("unreachable", "every instruction can be reached", "control-flow graph", Severity.WARNING)
DIVERGENT_BARRIER = Rule(
    "divergent-barrier",
    "all fibers of a workgroup reach a barrier together",
    "a wave that waits with parked fibers never completes the workgroup",
)
MISSING_JOIN = Rule(
    "missing-join",
    "where fibers that parted meet again stands a (jp)",
    "Mesa, ir3_reconvergence.c: parked fibers wake only at (jp)",
)

RULES: tuple[Rule, ...] = (
    EARLY_READ,
    EARLY_PREDICATE,
    EARLY_ADDRESS,
    MISSING_SY,
    MISSING_SS,
    OVERWRITE_SY,
    OVERWRITE_SS,
    SOURCE_OVERWRITE,
    BARRIER_WAIT,
    FULL_FOOTPRINT,
    HALF_FOOTPRINT,
    REGISTER_BUDGET,
    UNINITIALIZED,
    ALIAS,
    WORKGROUP_WAVES,
    IMMEDIATE_WIDTH,
    ILLEGAL_OPERAND,
    OUTSIDE_IMAGE,
    BRANCH_RANGE,
    AFTER_END,
    MISSING_END,
    UNREACHABLE,
    DIVERGENT_BARRIER,
    MISSING_JOIN,
)


AWAITED = {MISSING_SY: "sy", MISSING_SS: "ss", OVERWRITE_SY: "sy", OVERWRITE_SS: "ss"}
"""Rules about results that come when they come, and the flag that awaits them."""


@dataclass(frozen=True, slots=True)
class Site:
    """An instruction of the program: its index and its text."""

    index: int
    text: str

    def __str__(self) -> str:
        return f"#{self.index} `{self.text}`"


@dataclass(frozen=True, slots=True)
class Finding:
    """One hazard.

    Attributes:
        rule: what is broken.
        consumer: the instruction that goes wrong.
        effect: what the hardware would do.
        fix: the smallest change that mends it.
        register: the register concerned, by name; empty where none is.
        producer: the instruction that it should have waited for, where there is one.
        available: issue slots between the two, ``None`` where they do not count.
        needed: issue slots that the hardware needs; of a result that a flag awaits, the fewest cycles that it
            takes: cached, one component, one wave.
    """

    rule: Rule
    consumer: Site
    effect: str
    fix: str
    register: str = ""
    producer: Site | None = None
    available: int | None = None
    needed: int | None = None

    def __str__(self) -> str:
        cause = f" of {self.producer}" if self.producer else ""
        slots = "" if self.needed is None else f", {self.available} slots apart{self._need()}"
        register = f" {self.register}" if self.register else ""
        return f"{self.rule.name}{register} at {self.consumer}{cause}{slots}: {self.effect}; fix: {self.fix}"

    def _need(self) -> str:
        """What the slots should have been; there are never enough of them in place of a flag."""
        if self.rule not in AWAITED:
            return f", {self.needed} needed"
        return f" and no ({AWAITED[self.rule]}), the result takes {self.needed} cycles or more"

    def facts(self) -> dict[str, Any]:
        """The same as plain data for JSON."""
        return {
            "rule": self.rule.name,
            "severity": self.rule.severity.value,
            "demand": self.rule.demand,
            "source": self.rule.source,
            "register": self.register,
            "consumer": _plain(self.consumer),
            "producer": _plain(self.producer),
            "available": self.available,
            "needed": self.needed,
            "effect": self.effect,
            "fix": self.fix,
        }


def _plain(site: Site | None) -> dict[str, Any] | None:
    return None if site is None else {"index": site.index, "text": site.text}


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that are wrong on the hardware, without the warnings."""
    return tuple(finding for finding in findings if finding.rule.severity is Severity.ERROR)


def to_json(findings: Sequence[Finding]) -> str:
    """Findings as a JSON array, in the order of the program."""
    return json.dumps([finding.facts() for finding in findings], indent=2)


def to_sarif(findings: Sequence[Finding], artifact: str) -> str:
    """Findings as a SARIF 2.1.0 log for code review tools.

    ``artifact`` names the disassembly; instruction ``n`` is its line ``n + 1``.
    """
    rules = [
        {
            "id": rule.name,
            "shortDescription": {"text": rule.demand},
            "help": {"text": rule.source},
            "defaultConfiguration": {"level": rule.severity.value},
        }
        for rule in RULES
    ]
    order = {rule.name: index for index, rule in enumerate(RULES)}

    def location(site: Site) -> dict[str, Any]:
        region = {"startLine": site.index + 1, "snippet": {"text": site.text}}
        return {"physicalLocation": {"artifactLocation": {"uri": artifact}, "region": region}}

    results = [
        {
            "ruleId": finding.rule.name,
            "ruleIndex": order[finding.rule.name],
            "level": finding.rule.severity.value,
            "message": {"text": str(finding)},
            "locations": [location(finding.consumer)],
            "relatedLocations": [location(finding.producer)] if finding.producer else [],
            "properties": finding.facts(),
        }
        for finding in findings
    ]
    driver = {"name": "pytest-qcom", "version": pytest_qcom.__version__, "rules": rules}
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2)
