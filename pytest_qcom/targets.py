"""What a test or a command is to run: a declared kernel, one of its cases, changed options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pytest_qcom import baselines
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import compositions, registry
from pytest_qcom.kernels.composition import Composition
from pytest_qcom.kernels.kernel import Build, Declared, Kernel
from pytest_qcom.kernels.published import configured

D = TypeVar("D", bound=Declared)


@dataclass(frozen=True, slots=True)
class Chosen(Generic[D]):
    """What is declared, in one case, with the options ``changed`` from those of the case."""

    kernel: D
    case: str
    changed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Test id, baseline key and command line name: ``name[case]``."""
        return baselines.key(self.kernel.name, self.case, self.changed)

    @property
    def options(self) -> Any:
        """The options object.

        Raises:
            KernelError: an unknown option, or a value that it cannot have.
        """
        return self.kernel.configure(self.changed, self.case)


class Target(Chosen[Kernel]):
    """A kernel in one case."""

    __slots__ = ()

    def build(self) -> Build:
        """The kernel, built.

        Raises:
            KernelError: options that do not go together.
        """
        return self.kernel.build(self.options)


class Composed(Chosen[Composition]):
    """A composition in one case."""

    __slots__ = ()


def read(arguments: Sequence[Any], options: Mapping[str, Any]) -> list[Target | Composed]:
    """From the arguments of the ``qcom_kernel`` marker: one target, or one a case when none is named.

    A composition is named like a kernel; where no case is named, it gets those that are not long.

    Raises:
        KernelError: what is wrong with them.
    """
    usage = "write qcom_kernel(name, case=None, **options)"
    if len(arguments) != 1 or not isinstance(arguments[0], str):
        raise KernelError(f"marker qcom_kernel with {tuple(arguments)!r}: one kernel name is needed; {usage}")
    changed = dict(options)
    case = changed.pop("case", None)
    if case is not None and not isinstance(case, str):
        raise KernelError(f"marker qcom_kernel of {arguments[0]}: case {case!r} is no text; {usage}")
    kernel = compositions.COMPOSITIONS.get(arguments[0]) or registry.find(arguments[0])
    names = [kernel.case(case).name] if case is not None else [each.name for each in kernel.cases]
    targets: list[Target | Composed]
    if isinstance(kernel, Composition):
        targets = [Composed(kernel, name, changed) for name in names if case or name not in kernel.long]
    else:
        targets = [Target(kernel, name, changed) for name in names]
    for target in targets:
        _ = target.options  # a wrong one is an error now, not when the test runs
    return targets


def published() -> Callable[[Mapping[str, str]], tuple[str, float] | None]:
    """Finds the declared case that a row of measurements is about, and the work of its launch.

    A row is about a case when its family is the kernel's name and its configuration, together with the
    columns that are options, gives the case's options. Of several rows about one case the first counts.
    """
    seen: set[str] = set()
    families: dict[str, list[Kernel]] = {}
    for kernel in registry.KERNELS.values():
        families.setdefault(kernel.family or kernel.name, []).append(kernel)

    def match(row: Mapping[str, str]) -> tuple[str, float] | None:
        found = [target for kernel in families.get(row["family"], ()) for target in _cases(kernel, row)]
        if len(found) != 1 or found[0].key in seen:
            return None
        seen.add(found[0].key)
        return found[0].key, found[0].build().work

    return match


def _cases(kernel: Kernel, row: Mapping[str, str]) -> list[Target]:
    """The cases of a kernel that have exactly the options of a row."""
    try:
        options = configured(kernel, row["config"], row)
    except KernelError:  # a configuration that the kernel does not offer
        return []
    return [Target(kernel, case.name) for case in kernel.cases if kernel.configure({}, case.name) == options]


def assignments(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """``name=value`` words, dashes as underscores; a name alone is a flag."""
    for word in words:
        name, separator, value = word.partition("=")
        yield name.replace("-", "_"), value if separator else "true"


def named(kernel: str, case: str | None, words: Iterable[str]) -> Target:
    """From a command line: ``KERNEL option=value … --case CASE``; the first case when none is named.

    Raises:
        KernelError: what is wrong with it.
    """
    found = registry.find(kernel)
    return Target(found, _case(found, case), dict(assignments(words)))


def composed(composition: str, case: str | None, words: Iterable[str]) -> Composed:
    """The same of a composition.

    Raises:
        KernelError: what is wrong with it.
    """
    found = compositions.find(composition)
    return Composed(found, _case(found, case), dict(assignments(words)))


def _case(found: Declared, case: str | None) -> str:
    return found.cases[0].name if case is None else found.case(case).name
