"""Category 4: the special function unit (Mesa, ``ir3-cat4.xml``)."""

from __future__ import annotations

from dataclasses import replace

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.fields import Field, Fixed, Layout
from pytest_qcom.isa.form import Form, attributes, destination, source
from pytest_qcom.isa.instruction import Instr, Latency, Op, Sync
from pytest_qcom.isa.operands import pack_source, unpack_source
from pytest_qcom.isa.table.cat2 import common_width, lift_dst, lower_dst

_FIELDS = (
    Field("src", 0, 15),
    Field("dst", 32, 39),
    Field("rpt", 40, 41),
    Field("sat", 42, 42),
    Field("r", 43, 43),
    Field("ss", 44, 44),
    Field("ul", 45, 45),
    Field("conv", 46, 46),
    Field("full", 52, 52),
    Field("jp", 59, 59),
    Field("sy", 60, 60),
)


def key(word: int) -> tuple[int, ...]:
    """OPC."""
    return (4, word >> 53 & 63)


def _lift(op: Op, f: dict[str, int], word: int) -> Instr:
    full = bool(f["full"])
    dst, attrs = lift_dst(f, full)
    operand = unpack_source(f["src"], not full, bool(f["r"]), word, 0, op.name)
    flags = {name: bool(f[name]) for name in ("sat", "ss", "ul", "jp", "sy")}
    return Instr(op, dst, (operand,), rpt=f["rpt"], attrs=attributes(attrs), **flags)


def _lower(instr: Instr) -> dict[str, int]:
    if len(instr.srcs) != 1 or instr.nop or instr.ei:
        raise EncodeError(f"{instr.op.name} takes one source and none of (nop)(ei); correct it")
    operand = instr.srcs[0]
    full = common_width(instr, instr.srcs)
    fields = {name: int(getattr(instr, name)) for name in ("rpt", "sat", "ss", "ul", "jp", "sy")}
    packed = pack_source(replace(operand, repeat=False), not full, instr.op.name)
    return {
        **dict(instr.attrs),
        **fields,
        **lower_dst(instr, full),
        "full": int(full),
        "src": packed,
        "r": int(operand.repeat),
    }


def _op(name: str, opcode: int, function: str) -> Op:
    layout = Layout(
        _FIELDS,
        (Fixed(61, 63, 4), Fixed(53, 58, opcode), Fixed(16, 31, care=False), Fixed(47, 51, care=False)),
    )
    form = Form(
        layout,
        _lift,
        _lower,
        ("sy", "ss", "jp", "sat", "rpt", "ul"),
        name,
        ("{dst}", "{src}"),
        {"dst": destination(), "src": source(0)},
    )
    return Op(
        name,
        4,
        Latency.SFU,
        Sync.SS,
        compute=lambda b, v, i: b.sfu(function, v[0]),
        reads="f",
        result="f",
        confidence="inferred",
        source="Mesa: ir3-cat4.xml; the accuracy is not documented",
        layout=form,
    )


OPS: tuple[Op, ...] = (
    _op("rcp", 0, "rcp"),
    _op("rsq", 1, "rsq"),
    _op("log2", 2, "log2"),
    _op("exp2", 3, "exp2"),
    _op("sin", 4, "sin"),
    _op("cos", 5, "cos"),
    _op("sqrt", 6, "sqrt"),
    _op("hrsq", 9, "rsq"),
    _op("hlog2", 10, "log2"),
    _op("hexp2", 11, "exp2"),
)
