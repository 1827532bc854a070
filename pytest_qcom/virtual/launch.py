"""From registers and state loads to a launch: what the hardware would do with what was written.

:class:`State` is the register file and what CP_LOAD_STATE6 brought in; :func:`decode_launch` reads a
:class:`~pytest_qcom.virtual.dispatch.Dispatch` from it, holds it against the chip's limits, and reports
fields whose value the hardware would ignore or misread.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_qcom.chip import A630
from pytest_qcom.errors import GpuFault, LaunchError
from pytest_qcom.isa.registers import NO_REGISTER
from pytest_qcom.virtual import registers as regs
from pytest_qcom.virtual.dispatch import Dispatch, Format, Image
from pytest_qcom.virtual.findings import Finding, Findings
from pytest_qcom.virtual.memory import Memory

_VEC4 = 16
_UNIT = A630.memories.instruction_unit.value
_CONSTANT_BYTES = A630.memories.constant_vec4.value * _VEC4
_INSTRUCTION_BYTES = A630.code.bytes_per_instruction.value
_REMEMBERED = 4096
_LINEAR_2D = 1  # A6XX_TEX_2D
TEXEL_BYTES = {
    form: {0x30: 4, 0x60: 8, 0x80: 16}[form.value & 0xF0] for form in Format
}  # a6xx_format groups formats by the width of a texel


class Block(enum.Enum):
    """What CP_LOAD_STATE6 can load for compute: (STATE_BLOCK, STATE_TYPE)."""

    SAMPLERS = (0x5, 0)  # SB6_CS_TEX
    TEXTURES = (0x5, 1)
    SHADER = (0xD, 0)  # SB6_CS_SHADER
    CONSTANTS = (0xD, 1)
    UAVS = (0xD, 3)


@dataclass(slots=True)
class _Load:
    """A pending load: where from, how many units, behind which unit."""

    address: int
    offset: int
    units: int


class State:
    """The register file and the loads that belong to the next launch."""

    def __init__(self, memory: Memory, findings: Findings) -> None:
        self.memory = memory
        self.findings = findings
        self.constants = bytearray(_CONSTANT_BYTES)
        self.constant_vec4 = 0  # loaded since the last reset
        self.loads: dict[Block, _Load] = {}
        self.images: dict[tuple[str, tuple[int, ...]], Image] = {}  # descriptors decoded before
        self.reports: dict[tuple[int, ...], list[Finding]] = {}  # register values reported on before
        self._values: dict[int, int] = {}
        self._fresh: set[int] = set()  # registers written since the last launch

    def get(self, address: int) -> int:
        """The register at ``address``; 0 if it was never written."""
        return self._values.get(address, 0)

    def word(self, word: regs.Word) -> int:
        """The value of a register."""
        return self._values.get(word.address, 0)

    def field(self, word: regs.Word, field: str) -> int:
        """The value of a field, with its shift undone."""
        return word.get(self._values.get(word.address, 0), field)

    def address(self, word: regs.Word) -> int:
        """The 64-bit value of a register and the one behind it."""
        return self.get(word.address) | self.get(word.address + 1) << 32

    def write(self, word: regs.Word, value: int) -> None:
        """Writes a register; reports bits that it does not have, and a value that was never used."""
        if value & ~word.defined:
            why = f"sets undefined bits {value & ~word.defined:#x}"
            self.findings.add(Finding(word.name, "undefined", value, None, why))
        old = self._values.get(word.address, 0)
        if word.address in self._fresh and old != value and not word.trigger:
            why = "is overwritten before the launch that it was for"
            self.findings.add(Finding(word.name, "dead write", old, value, why, harmless=True))
        self._fresh.add(word.address)
        self._values[word.address] = value
        if word is regs.SP_UPDATE_CNTL:
            self._reset_loads(value)

    def _reset_loads(self, value: int) -> None:
        """SP_UPDATE_CNTL drops what CP_LOAD_STATE6 brought in, by kind."""
        if regs.SP_UPDATE_CNTL.get(value, "CS_STATE"):
            self.constant_vec4 = 0
            for block in (Block.SAMPLERS, Block.TEXTURES, Block.SHADER, Block.CONSTANTS):
                self.loads.pop(block, None)
        if regs.SP_UPDATE_CNTL.get(value, "CS_UAV"):
            self.loads.pop(Block.UAVS, None)

    def load(self, block: Block, address: int, offset: int, units: int) -> None:
        """A CP_LOAD_STATE6 from memory of ``units`` units, behind ``offset`` units.

        Raises:
            GpuFault: nothing is mapped at ``address``, or the constant file is too small.
        """
        self.memory.check(address, 1, f"CP_LOAD_STATE6 of {block.name.lower()}")
        self.loads[block] = _Load(address, offset, units)
        if block is Block.CONSTANTS:
            self._load_constants(address, offset, units)

    def _load_constants(self, address: int, offset: int, units: int) -> None:
        start, size = offset * _VEC4, units * _VEC4
        if start + size > _CONSTANT_BYTES:
            raise GpuFault(
                f"CP_LOAD_STATE6 of {units} vec4 behind c{offset}: the constant file of compute has "
                f"{_CONSTANT_BYTES // _VEC4} vec4; load fewer"
            )
        mapped = min(size, self.memory.available(address))
        if mapped < size:
            self.findings.add(
                Finding(
                    "CP_LOAD_STATE6",
                    "NUM_UNIT of constants",
                    units,
                    mapped // _VEC4,
                    f"reads {size} bytes of constants where {mapped} are mapped; the device may fault",
                )
            )
        data = self.memory.read(address, mapped, "CP_LOAD_STATE6 of constants")
        self.constants[start : start + size] = data.ljust(size, b"\0")
        self.constant_vec4 = max(self.constant_vec4, offset + units)

    def units(self, block: Block) -> int:
        """How many units of a kind are loaded."""
        load = self.loads.get(block)
        return load.offset + load.units if load else 0

    def launched(self) -> None:
        """A launch has used what was written."""
        self._fresh.clear()


def decode_launch(state: State, groups: tuple[int, int, int] | None) -> Dispatch:
    """The launch that the registers describe.

    Args:
        groups: workgroups, of a CP_EXEC_CS; ``None`` for CP_RUN_OPENCL, which takes them from registers.

    Raises:
        LaunchError: what the chip does not allow, or what nobody knows the hardware's answer to.
        GpuFault: code or images that are not in mapped memory.
    """
    code_address, code, entry = _code(state)
    local = _local_size(state)
    control, wave = regs.SP_CS_CNTL_0, regs.SP_CS_WGE_CNTL
    ids = {name: _regid(state, name) for name in ("WGIDCONSTID", "WGSIZECONSTID", "WGOFFSETCONSTID")}
    shared = state.field(regs.SP_CS_CNTL_1, "SHARED_SIZE")
    unit = A630.memories.local_unit.value
    dispatch = Dispatch(
        code=code,
        code_address=code_address,
        entry=entry,
        constants=bytes(state.constants),
        textures=_textures(state),
        images=_images(state),
        local_size=local,
        groups=_groups(state, local) if groups is None else groups,
        thread128=bool(state.field(wave, "THREADSIZE")),
        fregs=state.field(control, "FULLREGFOOTPRINT"),
        hregs=state.field(control, "HALFREGFOOTPRINT"),
        merged=bool(state.field(control, "MERGEDREGS")),
        branchstack=state.field(control, "BRANCHSTACK"),
        shared_bytes=(shared + 1) * unit if shared else A630.memories.local_bytes.value,
        private_bytes=state.field(regs.SP_CS_PVT_MEM_PARAM, "MEMSIZEPERITEM"),
        private_base=state.address(regs.SP_CS_PVT_MEM_BASE),
        constant_demotion=bool(state.field(regs.SP_MODE_CNTL, "CONSTANT_DEMOTION_ENABLE")),
        group_id_regid=ids["WGIDCONSTID"],
        local_size_regid=ids["WGSIZECONSTID"],
        group_offset_regid=ids["WGOFFSETCONSTID"],
        local_id_regid=state.field(regs.SP_CS_CONST_CONFIG_0, "LOCALIDREGID"),
        linear_local_id_regid=state.field(wave, "LINEARLOCALIDREGID"),
    )
    _check_limits(state, dispatch)
    _report(state)
    return dispatch


def _code(state: State) -> tuple[int, bytes, int]:
    """Address and bytes of the instructions, and the first one's index."""
    address = state.address(regs.SP_CS_BASE)
    units = state.field(regs.SP_CS_INSTR_SIZE, "UNITS")
    load = state.loads.get(Block.SHADER)
    if load is None:
        raise LaunchError(
            "launch without a shader: no CP_LOAD_STATE6 of one since the last SP_UPDATE_CNTL; load it first"
        )
    if load.address != address:
        raise LaunchError(
            f"launch of the shader at {address:#x} (SP_CS_BASE), but CP_LOAD_STATE6 loaded the one at "
            f"{load.address:#x}; give both the same address"
        )
    if not units:
        raise LaunchError("launch with SP_CS_INSTR_SIZE 0: the shader is empty; write its size in 128 bytes")
    size = min(units * _UNIT, state.memory.available(address))  # the last unit may be cut short
    state.memory.check(address, (units - 1) * _UNIT + 1, "shader")
    code = state.memory.read(address, size - size % _INSTRUCTION_BYTES, "shader")
    offset = state.word(regs.SP_CS_PROGRAM_COUNTER_OFFSET)
    if offset % _INSTRUCTION_BYTES or offset >= len(code):
        raise LaunchError(
            f"launch at byte {offset} of a shader of {len(code)} bytes (SP_CS_PROGRAM_COUNTER_OFFSET): "
            f"give a multiple of {_INSTRUCTION_BYTES} within it"
        )
    return address, code, offset // _INSTRUCTION_BYTES


def _local_size(state: State) -> tuple[int, int, int]:
    size = regs.SP_CS_NDRANGE_0
    x, y, z = (state.field(size, f"LOCALSIZE{axis}") + 1 for axis in "XYZ")
    dimensions = state.field(size, "KERNELDIM")
    if dimensions != 3:
        raise LaunchError(f"launch with KERNELDIM {dimensions}; the runtime always launches in 3 dimensions")
    return x, y, z


def _groups(state: State, local: tuple[int, int, int]) -> tuple[int, int, int]:
    """Workgroups of a CP_RUN_OPENCL, which launches a number of work items."""
    found = []
    for axis in range(3):
        total = state.get(regs.SP_CS_NDRANGE_0.address + 1 + 2 * axis)
        offset = state.get(regs.SP_CS_NDRANGE_0.address + 2 + 2 * axis)
        written = state.get(regs.SP_CS_KERNEL_GROUP_X.address + axis)
        if offset:
            raise LaunchError(
                f"launch with global offset {offset} in {'xyz'[axis]}: it is not modelled; use 0"
            )
        if total != written * local[axis]:
            raise LaunchError(
                f"launch of {total} work items in {'xyz'[axis]} as {written} groups of {local[axis]}: "
                "the last group would be cut; give whole workgroups"
            )
        found.append(written)
    return found[0], found[1], found[2]


def _regid(state: State, field: str) -> int:
    """A register that all fibers share, or none."""
    number = state.field(regs.SP_CS_CONST_CONFIG_0, field)
    if (
        number == NO_REGISTER
        or 0 <= number - A630.registers.shared_first.value <= A630.registers.shared.value - 3
    ):
        return number
    state.findings.add(
        Finding(
            "SP_CS_CONST_CONFIG_0",
            field,
            number,
            NO_REGISTER,
            "is no register that a wave shares (r48.x and up), the only kind that it may name",
        )
    )
    return NO_REGISTER


def _textures(state: State) -> tuple[Image, ...]:
    count = state.field(regs.SP_CS_CONFIG, "NTEX")
    return _descriptors(state, regs.SP_CS_TEXMEMOBJ_BASE, count, "texture", Block.TEXTURES)


def _images(state: State) -> tuple[Image, ...]:
    # Slots above the loaded ones are left alone: the shader does not use them.
    count = min(state.field(regs.SP_CS_CONFIG, "NUAV"), state.units(Block.UAVS))
    return _descriptors(state, regs.SP_CS_UAV_BASE, count, "image", Block.UAVS)


def _descriptors(state: State, base: regs.Word, count: int, what: str, block: Block) -> tuple[Image, ...]:
    if not count:
        return ()
    address = state.address(base)
    load = state.loads.get(block)
    if load is None or load.address != address:
        loaded = "none is loaded" if load is None else f"those at {load.address:#x} are loaded"
        raise LaunchError(
            f"launch with {what} descriptors at {address:#x} ({base.name}), but {loaded}; "
            "load them with CP_LOAD_STATE6"
        )
    data = state.memory.read(address, count * regs.DESCRIPTOR_BYTES, f"{what} descriptors")
    words = struct.unpack(f"<{len(data) // 4}I", data)
    step = regs.DESCRIPTOR_BYTES // 4
    return tuple(
        _image(state, words[index * step : (index + 1) * step], f"{what} {index}") for index in range(count)
    )


def _image(state: State, words: tuple[int, ...], what: str) -> Image:
    """One descriptor, held against what the chip allows, and its memory against what is mapped."""
    image = state.images.get((what, words))
    if image is None:
        if len(state.images) >= _REMEMBERED:
            state.images.clear()
        image = state.images[what, words] = _decode_image(state, words, what)
    size = (image.height - 1) * image.pitch + image.width * TEXEL_BYTES[image.format]
    state.memory.check(image.address, size, f"{what} of {image.width}x{image.height} texels")
    return image


def _decode_image(state: State, words: tuple[int, ...], what: str) -> Image:
    for word, value in zip(regs.DESCRIPTOR, words, strict=False):
        if value & ~word.defined:
            bits = value & ~word.defined
            why = f"sets undefined bits {bits:#x}"
            state.findings.add(Finding(word.name, "undefined", value, value - bits, why, harmless=True))

    def field(index: int, name: str) -> int:
        return regs.DESCRIPTOR[index].get(words[index], name)

    code = field(0, "FMT")
    try:
        form = Format(code)
    except ValueError:
        known = ", ".join(f"{known.name} {known.value:#x}" for known in Format)
        raise LaunchError(f"{what} has texel format {code:#x}; the virtual device knows {known}") from None
    for index, name, allowed in (
        (2, "TYPE", _LINEAR_2D),
        (0, "TILE_MODE", 0),
        (0, "SWAP", 0),
        (0, "SRGB", 0),
    ):
        if field(index, name) != allowed:
            raise LaunchError(
                f"{what} has {name} {field(index, name)}; the virtual device knows {allowed}, linear images"
            )
    swizzle = (field(0, "SWIZ_X"), field(0, "SWIZ_Y"), field(0, "SWIZ_Z"), field(0, "SWIZ_W"))
    if what.startswith("image"):
        swizzle = (0, 1, 2, 3)  # of a UAV the field is not used and stands at 0
    address = field(4, "BASE_LO") | field(5, "BASE_HI") << 32
    image = Image(address, field(1, "WIDTH"), field(1, "HEIGHT"), field(2, "PITCH"), form, swizzle)
    _check_image(image, what)
    return image


def _check_image(image: Image, what: str) -> None:
    limits, texel = A630.images, TEXEL_BYTES[image.format]
    title = f"{what} of {image.width}x{image.height} texels"
    if not 0 < image.width <= limits.side.value or not 0 < image.height <= limits.side.value:
        raise LaunchError(
            f"{title}: the A630 allows 1 to {limits.side.value} texels a side; split or reshape the image"
        )
    align = limits.pitch_align.value
    if image.pitch % align:
        raise LaunchError(
            f"{title} with a pitch of {image.pitch} bytes: rows must be a multiple of {align} bytes apart; "
            f"make the width a multiple of {align // texel}"
        )
    if image.pitch < image.width * texel:
        raise LaunchError(
            f"{title} with a pitch of {image.pitch} bytes: a row has {image.width * texel}; correct the pitch"
        )
    if max(image.swizzle) > 5:
        raise LaunchError(f"{title} with swizzle {image.swizzle}: 0 to 5 exist; correct the descriptor")


def register_cost(dispatch: Dispatch) -> int:
    """Full vec4 registers that a fiber takes (Mesa, ``ir3_get_reg_dependent_max_waves``)."""
    halves = -(-dispatch.hregs // A630.registers.halves_per_full.value)
    return max(dispatch.fregs, halves) if dispatch.merged else dispatch.fregs + halves


def _check_limits(state: State, dispatch: Dispatch) -> None:
    x, y, z = dispatch.local_size
    title = f"launch of {dispatch.fibers} fibers a workgroup ({x}x{y}x{z})"
    most = A630.waves.workgroup.value
    if dispatch.fibers > most:
        raise LaunchError(f"{title}: the A630 allows {most}; choose a smaller local size")
    registers = A630.registers.full.value // 4
    if max(dispatch.fregs, dispatch.hregs) > registers:
        raise LaunchError(
            f"{title} with {dispatch.fregs} full and {dispatch.hregs} half vec4 registers: "
            f"the A630 has {registers} of each; use fewer"
        )
    cost = register_cost(dispatch)
    pairs = A630.registers.vec4.value // (max(1, cost) * (2 if dispatch.thread128 else 1))
    waves = min(pairs * A630.waves.granularity.value, A630.waves.per_sp.value)
    needed = -(-dispatch.fibers // dispatch.wave_size)
    if needed > waves:
        mode = "THREAD128" if dispatch.thread128 else "THREAD64"
        raise LaunchError(
            f"{title} in {mode} with {dispatch.fregs} full and {dispatch.hregs} half vec4 registers: it "
            f"needs {needed} waves at once, the registers of the A630 hold {waves}; choose a local size of "
            f"at most {waves * dispatch.wave_size} fibers or use fewer registers",
            needed=needed,
            waves=waves,
        )
    if dispatch.private_bytes:
        # Whole shader processors: the layout interleaves fibers, so all of the area is used.
        total = state.field(regs.SP_CS_PVT_MEM_SIZE, "TOTALPVTMEMSIZE") * A630.cores.shader_processors.value
        state.memory.check(dispatch.private_base, total, "private memory")


def _report(state: State) -> None:
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
