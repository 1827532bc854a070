"""Tests of other projects that are known to fail on the A630: which, how, why, and what shows it.

A list is TOML, one table a cause::

    [[failure]]
    tests = ["test/backend/test_ops.py::TestOps::test_sin"]
    match = "failed shape"          # a regular expression that the failure's message must match
    cause = "what happens, one paragraph of Markdown"
    evidence = "what shows that the device fails it too"
    drawn = true                    # of inputs drawn at random only some fail; false, unless given
    hazards = ["strict"]            # the hazards modes in which it fails; all, unless given
    when = { IMAGE = "1" }          # what the environment must say; nothing, unless given

``--qcom-expected tinygrad`` takes the list that comes with the package. Each test of it must fail, and fail
so: one that passes fails the session (unless its inputs are drawn), and so does one that fails with another
message.
``python -m pytest_qcom.expected LIST`` prints a list as a Markdown table.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pytest_qcom.errors import ExpectationError

PACKAGED = {"tinygrad": Path(__file__).with_name("tinygrad.toml")}
"""Lists by name."""

_KINDS: dict[str, tuple[type, str]] = {
    "tests": (list, "a list of strings"),
    "hazards": (list, "a list of strings"),
    "when": (dict, "a table of strings"),
    "drawn": (bool, "true or false"),
}
_TABLE = ("| tests | what happens | what shows it |", "| --- | --- | --- |")


@dataclass(frozen=True, slots=True)
class Failure:
    """One cause and the tests that fail of it; :mod:`pytest_qcom.expected` says what the fields hold."""

    tests: tuple[str, ...]
    match: str
    cause: str
    evidence: str
    drawn: bool = False
    hazards: tuple[str, ...] = ("strict", "emulate", "off")
    when: Mapping[str, str] = field(default_factory=dict)

    def applies(self, hazards: str, environment: Mapping[str, str]) -> bool:
        """Whether these tests fail in a session with this hazards mode and this environment."""
        return hazards in self.hazards and all(
            environment.get(name, "") == value for name, value in self.when.items()
        )


def read(name: str) -> tuple[Failure, ...]:
    """The list ``name``: one of the package, or else a TOML file.

    Raises:
        ExpectationError: there is none, or it says something else than a list does.
    """
    path = PACKAGED.get(name, Path(name))
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = ", ".join(PACKAGED)
        raise ExpectationError(
            f"expected failures {name!r}: {error.strerror}; name a file, or one of {known}"
        ) from error
    except ValueError as error:
        raise ExpectationError(
            f"expected failures in {path}: no readable TOML ({error}); correct it"
        ) from error
    if document.keys() != {"failure"} or not isinstance(document["failure"], list):
        raise ExpectationError(
            f"expected failures in {path}: no tables, or others than [[failure]]; write one table a cause"
        )
    found = tuple(_failure(path, number, table) for number, table in enumerate(document["failure"], 1))
    _distinct(path, found)
    return found


def _failure(path: Path, number: int, table: Any) -> Failure:
    """One table of a list."""
    where = f"expected failures in {path}, table {number}"
    if not isinstance(table, dict):
        raise ExpectationError(f"{where}: a table is needed")
    names = {item.name for item in fields(Failure)}
    needed = {"tests", "match", "cause", "evidence"}
    if wrong := sorted((table.keys() - names) | (needed - table.keys())):
        raise ExpectationError(
            f"{where}: {', '.join(wrong)} unknown or missing; fields are {', '.join(sorted(names))}"
        )
    for name, value in table.items():
        kind, what = _KINDS.get(name, (str, "a string"))
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if not isinstance(value, kind) or not all(isinstance(item, str) for item in items):
            raise ExpectationError(f"{where}: {name} = {value!r}; {what} is needed")
    try:
        re.compile(table["match"])
    except re.error as error:
        raise ExpectationError(f"{where}: match is no regular expression: {error}") from error
    lists = {name: tuple(table[name]) for name in ("tests", "hazards") if name in table}
    return Failure(**{**table, **lists})


def _distinct(path: Path, failures: Sequence[Failure]) -> None:
    """Refuses a test that has two causes at once."""
    seen: dict[str, Failure] = {}
    for failure in failures:
        for test in failure.tests:
            other = seen.setdefault(test, failure)
            if other is not failure and not other.when and not failure.when:
                raise ExpectationError(f"expected failures in {path}: {test} is there twice")


def apply(
    failures: Iterable[Failure], items: Mapping[str, Any], mark: Callable[[Any, Failure], None]
) -> dict[str, str]:
    """Marks the tests that are expected to fail.

    Args:
        items: the collected tests by node id.
        mark: what is called with each test that is listed.

    Returns:
        What is wrong with the list, by the node id of the first test of each file that lacks a listed one.
    """
    problems: dict[str, str] = {}
    for failure in failures:
        for test in failure.tests:
            found = [name for name in items if name == test or name.endswith("/" + test)]
            for name in found:
                mark(items[name], failure)
            file = test.partition("::")[0] + "::"
            first = next((name for name in items if name.startswith(file) or f"/{file}" in name), None)
            if first is not None and not found:
                problems[first] = f"expected failure {test}: no such test in its file; take it off the list"
    return problems


def table(failures: Iterable[Failure]) -> list[str]:
    """The list as a Markdown table."""
    return [
        *_TABLE,
        *(f"| {_short(item.tests)} | {item.cause} | {item.evidence} |" for item in failures),
    ]


def _short(tests: Iterable[str]) -> str:
    """Tests by file and class, for people: ``test_ops`` ``TestOps`` sin, cos."""
    groups: dict[tuple[str, str], list[str]] = {}
    for test in tests:
        file, _, rest = test.partition("::")
        cls, _, name = rest.rpartition("::")
        groups.setdefault((Path(file).stem, cls), []).append(name.removeprefix("test_"))
    return "; ".join(f"`{file}` {cls} {', '.join(names)}" for (file, cls), names in groups.items())


if __name__ == "__main__":
    print("\n".join(table(read(sys.argv[1]))))
