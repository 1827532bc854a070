"""What the published FP16 GEMMs of 4 and of 8 rows check alike: K steps, the order of MADs, where C is."""

from __future__ import annotations

from typing import Protocol

from pytest_qcom.errors import KernelError
from pytest_qcom.kernels.gemm import LARGEST_IMAGE
from pytest_qcom.kernels.schedule import ORDERS


class Part(Protocol):
    """Options of a product of some of K."""

    @property
    def k(self) -> int: ...
    @property
    def k_start(self) -> int: ...
    @property
    def steps(self) -> int: ...


class Apart(Protocol):
    """Options of a C whose rows may lie apart."""

    @property
    def n(self) -> int: ...
    @property
    def stride(self) -> int: ...


def check_steps(name: str, options: Part) -> None:
    """The K steps that are multiplied are some.

    Raises:
        KernelError: none, or some that K does not have.
    """
    whole = options.k // 4
    if options.k_start < 0 or options.steps < 1 or options.k_start + options.steps > whole:
        raise KernelError(
            f"{name}: K steps {options.k_start} to {options.k_start + options.steps} of {whole}; give "
            "k-start and k-count within them"
        )


def check_order(name: str, order: str, *others: str) -> None:
    """A nesting of the MADs, or one of ``others``.

    Raises:
        KernelError: it is none.
    """
    if order not in (*ORDERS, *others):
        known = ", ".join((*others, *ORDERS))
        raise KernelError(f"{name}: alu-order is {order!r}; give one of {known}")


def check_stride(name: str, options: Apart) -> None:
    """Rows of C that do not overlap and that an image can hold.

    Raises:
        KernelError: they are too near, too far apart or not made of vec4.
    """
    stride = options.stride
    if stride and (stride < options.n or stride % 4 or stride // 4 > LARGEST_IMAGE):
        raise KernelError(
            f"{name}: stride is {stride}; give a multiple of 4 from n = {options.n} on, to "
            f"{4 * LARGEST_IMAGE}"
        )
