"""Every ALU instruction of the table through the compiler, against the table run on numpy."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_qcom.errors import DecodeError
from pytest_qcom.isa import access
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.decoder import decode
from pytest_qcom.isa.encoder import encode
from pytest_qcom.isa.instruction import Instr, Kind, Latency, Op, Operand
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.reference import Registers, execute
from pytest_qcom.isa.registers import ADDRESS, FIRST_SHARED, PREDICATE, Ty
from pytest_qcom.isa.table import OPS
from pytest_qcom.isa.text import text
from pytest_qcom.virtual.executor import Executor
from suites.isa.strategies import word_of
from suites.virtual.executor.rig import Array, Memory, aligned, lane_address, launch, name

ALU = tuple(op for op in OPS if op.compute is not None)
FULL, HALF = 24, 48  # source registers: what a lane's record of 192 bytes holds
VARIANTS = 4  # random forms of each entry
BATCH = 8  # instructions of a program, each with destinations of its own
OUT_FULL, OUT_HALF = 40, 48  # first destinations

EDGES_32 = np.array(
    [0, 1, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00400000, 0x80000001, 0x3F800000, 0xBF800000,
     0x477FE000, 0x477FF000, 0x4F000000, 0x4F800000, 0x7F7FFFFF, 0x00800000, 0x33800000, 0x38800000,
     0x387FFFFF, 0xFFFFFFFF, 0x7FFFFFFF, 0x8000, 0xFFFF, 31, 32, 33, 0x3F000000, 0x40200000,
     0x4B000001, 0x0000FF80],
    np.uint32,
)  # fmt: skip
EDGES_16 = np.array(
    [0, 1, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x0200, 0x8001, 0x3C00, 0xBC00, 0x7BFF, 0x0400, 0x83FF, 0xFFFF,
     0x7FFF, 15, 16, 17, 0x00FF, 0x0080, 0x3800, 0x4100, 0x6400, 0x5640],
    np.uint16,
)  # fmt: skip


def _register_file(seed: int, lanes: int) -> tuple[Array, Array]:
    """Random source registers, (24, lanes) full and (48, lanes) half: edges, small numbers, floats, bits."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 4, (FULL, lanes))
    floats = rng.normal(0, 10.0, (FULL, lanes)).astype(np.float32).view(np.uint32)
    bits = rng.integers(0, 1 << 32, (FULL, lanes), dtype=np.uint32)
    small = rng.integers(0, 64, (FULL, lanes), dtype=np.uint32)
    full = np.choose(kinds, [rng.choice(EDGES_32, (FULL, lanes)), floats, bits, small]).astype(np.uint32)
    kinds = rng.integers(0, 4, (HALF, lanes))
    floats = rng.normal(0, 1.0, (HALF, lanes)).astype(np.float16).view(np.uint16)
    bits = rng.integers(0, 1 << 16, (HALF, lanes), dtype=np.uint16)
    small = rng.integers(0, 64, (HALF, lanes), dtype=np.uint16)
    half = np.choose(kinds, [rng.choice(EDGES_16, (HALF, lanes)), floats, bits, small]).astype(np.uint16)
    return full, half


def _source(operand: Operand, draw: random.Random) -> Operand:
    """The operand moved into the registers and constants that the test fills."""
    if operand.kind is Kind.GPR and not PREDICATE <= operand.value < PREDICATE + 4:
        return replace(operand, value=draw.randrange((HALF if operand.half else FULL) - 4))
    if operand.kind is Kind.CONST:
        return replace(operand, value=4 + draw.randrange(28))
    return operand


def _draw(op: Op, slot: int, draw: random.Random) -> Instr | None:
    """A random use of ``op`` that writes the destinations of ``slot``; ``None`` if the word is none."""
    try:
        instr = decode(word_of(op, draw))
    except DecodeError:  # operands that do not exist
        return None
    operands = (*instr.srcs, *((instr.dst,) if instr.dst else ()))
    if instr.op is not op or any(o.kind in (Kind.REL_GPR, Kind.REL_CONST) for o in operands):
        return None
    assert instr.dst is not None
    dst = instr.dst
    if not PREDICATE <= dst.value < PREDICATE + 4:
        dst = replace(dst, value=(OUT_HALF if dst.half else OUT_FULL) + 4 * slot)
    elif access.elements(instr) > 1:
        return None
    attrs = tuple(
        (key, dst.value + int(key[3])) if key in ("dst1", "dst2", "dst3") else (key, value)
        for key, value in instr.attrs
    )
    srcs = tuple(_source(o, draw) for o in instr.srcs)
    return decode(encode(replace(instr, dst=dst, srcs=srcs, attrs=attrs, sy=False, jp=False)))


def _instruction(op: Op, slot: int, draw: random.Random) -> Instr:
    """The first random use of ``op`` that is one."""
    found = next(filter(None, (_draw(op, slot, draw) for _ in range(2000))), None)
    assert found is not None, f"no legal form of {op.name} found"
    return found


def _program(instrs: list[Instr]) -> tuple[Program, list[int]]:
    """Loads each lane's record, runs ``instrs``, stores all destinations; predicates go through r."""
    a = Assembler()
    lane_address(a, 176, "r0.x", "c0.x", 8)
    lane_address(a, 178, "r0.x", "c0.z", 8)
    for number in range(0, FULL, 4):
        a.emit("ldg.u32", name(number), f"g[{name(176)}+{4 * number}]", 4)
    for number in range(0, HALF, 4):
        a.emit("ldg.u16", name(number, True), f"g[{name(176)}+{96 + 2 * number}]", 4)
    head = a.program().instrs[:]
    middle: list[Instr] = []
    predicates = []
    for slot, instr in enumerate(instrs):
        middle.append(instr)
        assert instr.dst is not None
        if instr.dst.value >= PREDICATE:
            predicates.append(slot)
            move = Assembler()
            move.emit("mov.u32u32", name(OUT_FULL + 4 * slot), f"p0.{'xyzw'[instr.dst.value - PREDICATE]}")
            middle += move.program().instrs
    a = Assembler()
    for slot in range(BATCH):
        a.emit("stg.u32", f"g[{name(178)}+{16 * slot}]", name(OUT_FULL + 4 * slot), 4)
        a.emit("stg.u16", f"g[{name(178)}+{128 + 8 * slot}]", name(OUT_HALF + 4 * slot, True), 4)
    a.emit("end")
    return Program((*head, *middle, *a.program().instrs)), predicates


CONSTANTS = np.random.default_rng(7).choice(EDGES_32, 32)


def _expected(instrs: list[Instr], full: Array, half: Array, constants: Array) -> tuple[Array, Array]:
    lanes = full.shape[1]
    registers = Registers(
        np.zeros((192, lanes), np.uint32), np.zeros((192, lanes), np.uint16), constants,
        np.zeros((4, lanes), bool), np.zeros((4, lanes), np.int16),
    )  # fmt: skip
    registers.full[:FULL], registers.half[:HALF] = full, half
    for slot, instr in enumerate(instrs):
        execute(instr, registers)
        assert instr.dst is not None
        if instr.dst.value >= PREDICATE:
            chosen = registers.predicates[instr.dst.value - PREDICATE]
            registers.full[OUT_FULL + 4 * slot] = np.where(chosen, 0xFFFFFFFF, 0)
    out = slice(OUT_FULL, OUT_FULL + 4 * BATCH), slice(OUT_HALF, OUT_HALF + 4 * BATCH)
    return registers.full[out[0]], registers.half[out[1]]


def _far(instr: Instr, full: Array) -> Array:
    """Where the argument of sin or cos is beyond what the executor reduces with full accuracy."""
    source = instr.srcs[0]
    if source.half:  # f16 ends before that
        return np.zeros((4, full.shape[1]), bool)
    rows = [source.value + (n if source.repeat else 0) for n in range(4)]
    return np.asarray(np.abs(full[rows].view(np.float32)) >= 2.0**20)


def _agree(instr: Instr, got: Array, want: Array, full: Array) -> Array:
    """Where results agree: same bits; NaNs of float results are alike; the SFU may be an ulp off."""
    same = got == want
    if instr.op.result == "f" or (instr.op.cat == 1 and Ty(instr["dst_type"]).float):
        dtype: Any = np.float16 if got.dtype == np.uint16 else np.float32
        a, b = got.view(dtype), want.view(dtype)
        same |= np.isnan(a) & np.isnan(b)
        if instr.op.latency is Latency.SFU:
            signed: Any = np.int16 if got.dtype == np.uint16 else np.int32
            same |= (np.abs(got.view(signed).astype(np.int64) - want.view(signed)) <= 1) & (
                np.signbit(a) == np.signbit(b)
            )
            if instr.op.name in ("sin", "cos"):
                with np.errstate(invalid="ignore"):
                    same |= (np.abs(a.astype(np.float64) - b) < 1e-6) | _far(instr, full)
    return np.asarray(same)


def _run(executor: Executor, seed: int, ops: tuple[Op, ...], thread128: bool) -> None:
    draw = random.Random(seed)
    lanes = 128 if thread128 else 64
    full, half = _register_file(seed, lanes)
    instrs = [_instruction(op, slot, draw) for slot, op in enumerate(ops)]
    program, _ = _program(instrs)
    records = aligned((lanes, 256), np.uint8)
    records[:, :96] = np.ascontiguousarray(full.T).view(np.uint8)
    records[:, 96:192] = np.ascontiguousarray(half.T).view(np.uint8)
    results = aligned((lanes, 256), np.uint8)
    memory = Memory()
    addresses = np.array([memory.add(records), memory.add(results)], np.uint64).view(np.uint32)
    constants = np.concatenate([addresses, CONSTANTS]).astype(np.uint32)
    executor.run(launch(program, constants.tobytes(), thread128=thread128), memory)
    got_full = np.ascontiguousarray(results[:, :128]).view(np.uint32).T
    got_half = np.ascontiguousarray(results[:, 128:192]).view(np.uint16).T
    want_full, want_half = _expected(instrs, full, half, constants)
    for slot, instr in enumerate(instrs):
        assert instr.dst is not None
        is_half = instr.dst.half and instr.dst.value < FIRST_SHARED
        got, want = (got_half, want_half) if is_half else (got_full, want_full)
        rows = slice(4 * slot, 4 * slot + 4)
        a, b = np.ascontiguousarray(got[rows]), np.ascontiguousarray(want[rows])
        bad = np.argwhere(~_agree(instr, a, b, full))
        detail = [(int(e), int(lane), hex(a[e, lane]), hex(b[e, lane])) for e, lane in bad[:4]]
        assert not len(bad), f"{text(instr)}: (element, lane, got, expected) {detail}"


def _batches() -> list[Any]:
    found = []
    queue = [op for _ in range(VARIANTS) for op in ALU]
    for number, start in enumerate(range(0, len(queue), BATCH)):
        ops = tuple(queue[start : start + BATCH])
        found.append(pytest.param(number, ops, id=f"{number}-{ops[0].name}-{ops[-1].name}"))
    return found


@pytest.mark.parametrize("seed,ops", _batches())
def test_matches_the_reference(executor: Executor, seed: int, ops: tuple[Op, ...]) -> None:
    _run(executor, seed, ops, thread128=bool(seed & 1))


@pytest.mark.parametrize("seed,ops", _batches()[::3])
def test_portable_code_gives_the_same(portable: Executor, seed: int, ops: tuple[Op, ...]) -> None:
    _run(portable, seed, ops, thread128=False)


def test_enough_random_words_are_used() -> None:
    """What is drawn in vain is known: relative operands, table entries that do not exist, wide predicates."""
    draw = random.Random(5)
    used = {op.name: sum(_draw(op, 0, draw) is not None for _ in range(100)) for op in ALU}
    assert len(used) == len(ALU) and min(used.values()) >= 5, used
    assert sum(used.values()) > 25 * len(ALU), used


def test_every_alu_entry_is_covered() -> None:
    covered = {op.name for parameters in _batches() for op in parameters.values[1]}
    assert covered == {op.name for op in ALU}
    assert len(ALU) > 60
    assert ADDRESS < PREDICATE
