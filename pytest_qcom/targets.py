"""What a test or a command is to run: a declared kernel, one of its cases, changed options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_qcom import baselines
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels import registry
from pytest_qcom.kernels.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Target:
    """A kernel in one case, with the options ``changed`` from those of the case."""

    kernel: Kernel
    case: str
    changed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Test id, baseline key and command line name: ``kernel[case]``."""
        return baselines.key(self.kernel.name, self.case, self.changed)

    @property
    def options(self) -> Any:
        """The kernel's options."""
        return self.kernel.options(**{**self.kernel.case(self.case).options, **self.changed})


def read(arguments: Sequence[Any], options: Mapping[str, Any]) -> list[Target]:
    """From the arguments of the ``qcom_kernel`` marker: one target, or one a case when none is named.

    Raises:
        KernelError: what is wrong with them.
    """
    usage = "write qcom_kernel(name, case=None, **options)"
    if len(arguments) != 1 or not isinstance(arguments[0], str):
        raise KernelError(f"marker qcom_kernel{tuple(arguments)}: one kernel name is needed; {usage}")
    changed = dict(options)
    case = changed.pop("case", None)
    if case is not None and not isinstance(case, str):
        raise KernelError(f"marker qcom_kernel({arguments[0]!r}): case {case!r} is no text; {usage}")
    kernel = registry.find(arguments[0])
    cases = [kernel.case(case).name] if case is not None else [case.name for case in kernel.cases]
    unknown = set(changed) - {option.name for option in dataclasses.fields(kernel.options)}
    if unknown:
        known = ", ".join(option.name for option in dataclasses.fields(kernel.options))
        raise KernelError(f"kernel {kernel.name}: no option {', '.join(sorted(unknown))}; it has {known}")
    targets = [Target(kernel, name, changed) for name in cases]
    for target in targets:
        _ = target.options
    return targets
