"""Fields of a launch that the hardware would ignore or misread, from all of its registers together.

What shows in a single write is reported where it is written, in :mod:`pytest_qcom.virtual.state`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qcom.chip import A630
from pytest_qcom.virtual import registers as regs
from pytest_qcom.virtual.findings import Finding
from pytest_qcom.virtual.state import Block, State

_UNIT = A630.memories.instruction_unit.value
_REMEMBERED = 4096  # combinations of values whose findings are kept
_REPORTED = (
    regs.SP_CS_CONST_CONFIG,
    regs.SP_CS_PVT_MEM_STACK_OFFSET,
    regs.SP_CS_CONFIG,
    regs.SP_CS_TSIZE,
    regs.SP_CS_USIZE,
    regs.SP_CS_CNTL_0,
    regs.SP_CS_WGE_CNTL,
    regs.SP_CS_INSTR_SIZE,
)


def report(state: State) -> None:
    """Findings that show only when all of a launch's registers are known."""
    key = (
        *(state.word(word) for word in _REPORTED),
        *(state.units(block) for block in Block),
        state.constant_vec4,
        state.memory.available(state.address(regs.SP_CS_PVT_MEM_BASE)),
    )
    if key not in state.reports:
        if len(state.reports) >= _REMEMBERED:
            state.reports.clear()
        state.reports[key] = [
            *_constant_length(state),
            *_stack_offset(state),
            *_counts(state),
            *_sizes(state),
        ]
    for finding in state.reports[key]:
        state.findings.add(finding)


def _sizes(state: State) -> Iterator[Finding]:
    control, wave = state.word(regs.SP_CS_CNTL_0), state.field(regs.SP_CS_WGE_CNTL, "THREADSIZE")
    field = regs.SP_CS_CNTL_0["THREADSIZE"]
    if field.get(control) != wave:
        why = "differs from SP_CS_WGE_CNTL.THREADSIZE, which it must match"
        yield Finding("SP_CS_CNTL_0", "THREADSIZE", control, control & ~field.mask | field.put(wave), why)
    size = state.field(regs.SP_CS_INSTR_SIZE, "UNITS")
    cache = A630.memories.instruction_preload.value // _UNIT
    if size > cache:
        why = f"preloads more than the instruction cache, {cache} units of {_UNIT} bytes"
        yield Finding("SP_CS_INSTR_SIZE", "UNITS", size, cache, why)


def _constant_length(state: State) -> Iterator[Finding]:
    config = regs.SP_CS_CONST_CONFIG
    value = state.word(config)
    length = config.get(value, "CONSTLEN")
    if length < state.constant_vec4:
        needed = config["ENABLED"].mask | config["CONSTLEN"].put(state.constant_vec4)
        why = f"declares {length} vec4 of constants, {state.constant_vec4} are loaded"
        yield Finding(config.name, "CONSTLEN", value, needed, why)


def _stack_offset(state: State) -> Iterator[Finding]:
    register = regs.SP_CS_PVT_MEM_STACK_OFFSET
    value, field = state.word(register), register["OFFSET"]
    available = state.memory.available(state.address(regs.SP_CS_PVT_MEM_BASE))
    offset = value << field.shift
    if offset > available:
        # The value is in bytes if that lies in the private memory.
        needed = field.put(value) if value <= available else None
        why = f"puts the call stack {offset} bytes into private memory of {available} bytes"
        yield Finding(register.name, "OFFSET", value, needed, why)


def _counts(state: State) -> Iterator[Finding]:
    config = state.word(regs.SP_CS_CONFIG)
    for name, block in (("NTEX", Block.TEXTURES), ("NSAMP", Block.SAMPLERS), ("NUAV", Block.UAVS)):
        field, loaded = regs.SP_CS_CONFIG[name], state.units(block)
        declared = field.get(config)
        if block is Block.TEXTURES and loaded < declared:
            why = (
                f"brings {loaded} of {declared} texture descriptors; the rest come from SP_CS_TEXMEMOBJ_BASE"
            )
            yield Finding("CP_LOAD_STATE6", "NUM_UNIT of textures", loaded, declared, why, harmless=True)
        elif declared != loaded:
            why = f"declares {declared} slots, {loaded} are loaded"
            fits = loaded << field.low <= field.mask
            needed = (config & ~field.mask) | loaded << field.low if fits else None
            yield Finding("SP_CS_CONFIG", name, config, needed, why)
    for word, used in ((regs.SP_CS_TSIZE, "NTEX"), (regs.SP_CS_USIZE, "NUAV")):
        count, reserved = regs.SP_CS_CONFIG.get(config, used), state.field(word, "COUNT")
        if reserved < count:
            why = f"is less than the {count} slots of SP_CS_CONFIG.{used}"
            yield Finding(word.name, "COUNT", state.word(word), count, why)
        elif reserved > max(count, 1):
            why = f"is more than the {count} slots of SP_CS_CONFIG.{used}"
            yield Finding(word.name, "COUNT", state.word(word), max(count, 1), why, harmless=True)
