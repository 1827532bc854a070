"""By how much a value of a loop grows from one pass to the next."""

from __future__ import annotations

from pytest_qcom.isa.instruction import Kind, Operand
from pytest_qcom.kernels.rewrites.loop import Value


def stride(value: Value | Operand, counter: Value) -> int | None:
    """What is added to ``value`` in each pass, where ``counter`` grows by 1; ``None`` where that varies."""
    if value is counter:
        return 1
    if isinstance(value, Operand) or value.instr is None or value.sampled:
        return 0
    strides = [stride(source, counter) for source in value.srcs]
    if not any(strides):  # None is not known, 0 stays
        return None if None in strides else 0
    if None in strides:
        return None
    signs = [-1 if operand.neg else 1 for operand in value.instr.srcs]
    name, known = value.instr.op.name, [sign * (by or 0) for sign, by in zip(signs, strides, strict=True)]
    if name in ("add.u", "add.s"):
        return sum(known)
    if name in ("sub.u", "sub.s"):
        return known[0] - known[1]
    factors = [source for source in value.srcs if isinstance(source, Operand) and source.kind is Kind.IMM]
    if len(factors) != 1:
        return None
    if name == "shl.b" and factors[0] is value.srcs[1]:
        return known[0] << factors[0].value
    return sum(known) * factors[0].value if name in ("mul.s24", "mul.u24") else None
