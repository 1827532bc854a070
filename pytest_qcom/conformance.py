"""Runs a declared kernel on a device and judges its output against its oracle.

One path for suites, benchmarks and the command line: :func:`prepare` makes a :class:`Run`, its ``launch``
runs the kernel once, its ``judge`` compares what is on the device with the oracle within the kernel's own
bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.devices.device import Device, Tensor
from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.kernel import Arrays, Build, Declared, Kernel

if TYPE_CHECKING:
    from pytest_qcom.targets import Target

_HEADROOM = 1e-12  # relative rounding of the float64 oracle and of its bound
_MANTISSA = {"float16": 10, "float32": 23, "float64": 52}
_SMALLEST_EXPONENT = {"float16": -14, "float32": -126, "float64": -1022}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an output compares with the oracle.

    Attributes:
        ok: every element of every output is within its bound.
        checked: elements compared; 0 for a probe without output.
        wrong: elements beyond their bound, NaN included.
        max_abs, mean_abs: absolute error; NaN elements count as infinite. ``None`` where nothing is checked.
        output, index, got, expected, bound, ulp: the worst element, that is the one furthest beyond its
            bound, or nearest to it; ``ulp`` is its error in units in the last place of the expected value,
            of an integer in ones. An ``expected`` of NaN is an element that was to be left as it was.
        written: the worst element holds something else than what memory is filled with.
    """

    ok: bool
    checked: int = 0
    wrong: int = 0
    max_abs: float | None = None
    mean_abs: float | None = None
    output: str = ""
    index: tuple[int, ...] = ()
    got: float | None = None
    expected: float | None = None
    bound: float | None = None
    ulp: float | None = None
    written: bool = True

    def facts(self) -> dict[str, Any]:
        """The same as plain values for JSON; numbers that JSON cannot hold as text."""
        names = [name for name in self.__slots__ if name != "index"]
        facts = {name: _plain(getattr(self, name)) for name in names}
        return {**facts, "index": list(self.index)}

    def __str__(self) -> str:
        if not self.checked:
            return "nothing to check"
        assert self.got is not None and self.expected is not None
        verdict = "right" if self.ok else f"wrong in {self.wrong} of {self.checked} elements"
        worst = f"{verdict}; worst is {self.output}{list(self.index)}"
        if not self.written:
            return f"{worst}, which was never written, expected {self.expected:.6g}"
        if np.isnan(self.expected):
            return f"{worst} = {self.got:.6g}, which was to be left as it was"
        return (
            f"{worst} = {self.got:.6g}, expected {self.expected:.6g}, off by "
            f"{abs(self.got - self.expected):.3g} ({self.ulp:.4g} ulp), allowed {self.bound:.3g}"
        )


@dataclass(slots=True)
class Run:
    """A kernel with its inputs on a device.

    Attributes:
        seconds: device time of each launch so far.
    """

    device: Device
    kernel: Kernel
    options: Any
    build: Build
    inputs: Arrays
    pattern: str = ""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    binary: bytes = b""
    seconds: list[float] = field(default_factory=list)

    @property
    def shape(self) -> str:
        """The problem, for tables: ``m x n x k`` or the shapes of the outputs."""
        if all(hasattr(self.options, name) for name in "mnk"):
            return f"{self.options.m}x{self.options.n}x{self.options.k}"
        outputs = [argument for argument in self.build.arguments if argument.written]
        return ", ".join("x".join(map(str, argument.shape)) for argument in outputs)

    @property
    def work(self) -> float:
        """What a launch does, as in :class:`~pytest_qcom.kernels.kernel.Build`."""
        return self.build.work

    @property
    def rate(self) -> float:
        """The best launch so far in the kernel's unit."""
        return self.build.work / min(self.seconds)

    def launch(self) -> float:
        """Runs the kernel once; device seconds.

        Raises:
            LaunchError, GpuFault, GpuHang, HazardError: what the device ran into.
        """
        arguments = [self.tensors[argument.name] for argument in self.build.arguments]
        self.seconds.append(
            self.device.launch(
                self.binary,
                self.kernel.name,
                arguments,
                self.build.groups,
                self.build.local,
                self.build.thread128,
            )
        )
        return self.seconds[-1]

    def outputs(self) -> Arrays:
        """What the kernel wrote."""
        return {
            argument.name: self._output(argument.name)
            for argument in self.build.arguments
            if argument.written
        }

    def _output(self, name: str) -> NDArray[Any]:
        return self.device.download(self.tensors[name])

    def compare(self) -> Outcome:
        """The output against the oracle: within the kernel's bound, for a pattern exactly."""
        return compared(self.kernel, self.options, self.inputs, self.pattern, self._output)

    def judge(self) -> Outcome:
        """:meth:`compare`, for a kernel that claims to be right.

        What is declared as published may be wrong: its outcome says so and nothing is raised.

        Raises:
            KernelError: the output is wrong.
        """
        return judged(self.compare(), self.kernel, self.options, self.shape, self.pattern)


def prepare(
    device: Device,
    kernel: Kernel,
    options: Any,
    generator: np.random.Generator | None = None,
    pattern: str = "",
    build: Build | None = None,
) -> Run:
    """Builds the kernel and puts its inputs onto the device.

    Args:
        generator: draws random inputs.
        pattern: or the name of a pattern of the kernel's, whose result is exact.
        build: instead of the kernel's own, for those who changed it.

    Raises:
        KernelError: options that do not go together, or an unknown pattern.
        LaunchError: an input that the device cannot hold.
    """
    built = build if build is not None else kernel.build(options)  # first: it refuses what has no inputs
    inputs = drawn(kernel, options, generator, pattern)
    run = Run(device, kernel, options, built, inputs, pattern, binary=built.binary(kernel.name))
    run.tensors = {argument.name: _tensor(device, argument, inputs) for argument in built.arguments}
    return run


def _tensor(device: Device, argument: Any, inputs: Arrays) -> Tensor:
    if argument.written:
        return device.empty(argument.shape, argument.dtype, argument.image)
    array = inputs[argument.name]
    if array.shape != argument.shape or array.dtype != np.dtype(argument.dtype):
        raise KernelError(
            f"input {argument.name} is {array.dtype}{list(array.shape)}, the kernel declares "
            f"{argument.dtype}{list(argument.shape)}; correct the declaration"
        )
    return device.image(array) if argument.image else device.upload(array)


def drawn(
    declared: Declared, options: Any, generator: np.random.Generator | None = None, pattern: str = ""
) -> Arrays:
    """Inputs: random ones, or those of a pattern.

    Raises:
        KernelError: an unknown pattern.
    """
    if not pattern:
        return declared.inputs(options, generator if generator is not None else np.random.default_rng(0))
    if pattern not in declared.patterns:
        known = ", ".join(declared.patterns) or "none"
        raise KernelError(f"{declared.kind} {declared.name} has no pattern {pattern!r}; it has {known}")
    return declared.patterns[pattern](options)


def compared(
    declared: Declared, options: Any, inputs: Arrays, pattern: str, output: Callable[[str], NDArray[Any]]
) -> Outcome:
    """Outputs, by name, against the oracle: within the declared bound, for a pattern exactly."""
    expected = declared.oracle(options, inputs)
    bounds: Mapping[str, Any] = dict.fromkeys(expected, 0.0)
    if not pattern:
        bounds = declared.tolerance(options, inputs)
    return compare({name: output(name) for name in expected}, expected, bounds)


def judged(outcome: Outcome, declared: Declared, options: Any, shape: str, pattern: str) -> Outcome:
    """The outcome of what claims to be right.

    Raises:
        KernelError: it is wrong.
    """
    if not outcome.ok and declared.claim != "as-published":
        raise KernelError(
            f"{declared.name} ({shape}{', ' + pattern if pattern else ''}): {outcome}; "
            f"repeat with: {declared.command(options)}",
            **outcome.facts(),
        )
    return outcome


def compare(outputs: Arrays, expected: Arrays, bounds: Mapping[str, Any]) -> Outcome:
    """Outputs against the exact results, each element within its bound.

    NaN is never right, but where it is expected: there the kernel must have left the NaN of
    :meth:`~pytest_qcom.devices.device.Device.empty`, as between rows of C that lie further apart than n.
    """
    outcomes = [_compare(name, outputs[name], expected[name], bounds[name]) for name in expected]
    if not outcomes:
        return Outcome(ok=True)
    worst = max(outcomes, key=lambda outcome: (not outcome.ok, outcome.wrong, outcome.max_abs))
    checked = sum(outcome.checked for outcome in outcomes)
    means = [(outcome.mean_abs or 0.0) * outcome.checked for outcome in outcomes]
    return Outcome(
        **{
            **{name: getattr(worst, name) for name in Outcome.__slots__},
            "ok": all(outcome.ok for outcome in outcomes),
            "checked": checked,
            "wrong": sum(outcome.wrong for outcome in outcomes),
            "max_abs": max(outcome.max_abs or 0.0 for outcome in outcomes),
            "mean_abs": sum(means) / checked,
        }
    )


def _compare(name: str, output: NDArray[Any], expected: NDArray[Any], bound: Any) -> Outcome:
    got = output.astype(np.float64)
    untouched = np.isnan(expected)
    allowed = np.where(untouched, 0.0, np.asarray(bound, np.float64))
    error = np.abs(got - expected)
    error[np.isnan(error)] = np.inf
    kept = untouched & np.isnan(got)
    error[kept] = 0.0
    excess = error - allowed * (1 + _HEADROOM) - _HEADROOM * np.abs(np.where(untouched, 0.0, expected))
    excess[kept] = -np.inf  # no element that was computed, so never the worst
    wrong = int((excess > 0).sum())
    place = np.unravel_index(int(excess.argmax()), excess.shape)
    unit, written = 1.0, True
    if (kind := output.dtype.name) in _MANTISSA:
        unit = 2.0 ** (_exponent(0.0 if untouched[place] else expected[place], kind) - _MANTISSA[kind])
        written = output[place].tobytes() != b"\xff" * output.itemsize
    return Outcome(
        ok=not wrong,
        checked=int(error.size),
        wrong=wrong,
        max_abs=float(error.max()),
        mean_abs=float(error.mean()),
        output=name,
        index=tuple(int(index) for index in place),
        got=float(got[place]),
        expected=float(expected[place]),
        bound=float(allowed[place]),
        ulp=float(error[place]) / unit,
        written=written,
    )


def _exponent(value: float, dtype: str) -> int:
    """Of ``value``, but not below that of the type's smallest normal number."""
    exponent = int(np.floor(np.log2(abs(value)))) if value else _SMALLEST_EXPONENT[dtype]
    return max(exponent, _SMALLEST_EXPONENT[dtype])


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def facts(device: Device, target: Target, seed: int, rounds: int, pattern: str = "") -> dict[str, Any]:
    """Runs a target on random inputs; what came of it, for the command line.

    Args:
        seed: of the inputs.
        rounds: launches that are timed; the best one counts.
        pattern: inputs with an exact result instead.

    Raises:
        KernelError, LaunchError, GpuFault, GpuHang, HazardError: it could not run.
    """
    run = prepare(device, target.kernel, target.options, np.random.default_rng(seed), pattern)
    for _ in range(max(1, rounds)):
        run.launch()
    outcome = run.compare()
    return {
        "kernel": target.key,
        "device": device.name,
        "mode": device.mode,
        "claim": target.kernel.claim,
        "shape": run.shape,
        "unit": target.kernel.unit,
        target.kernel.unit.lower().replace("/", "_per_"): run.rate,
        "device_seconds": min(run.seconds),
        "seed": seed,
        "repeat": target.kernel.command(target.options, seed),
        "verdict": str(outcome),
        **outcome.facts(),
    }


def seconds(device: Device, kernel: Kernel, options: Any) -> float:
    """Device seconds of one launch on random inputs; the output is not looked at."""
    return prepare(device, kernel, options).launch()
