"""From registers and state loads to a launch: what the hardware would do with what was written.

:func:`decode_launch` reads a :class:`~pytest_qcom.virtual.dispatch.Dispatch` from the register file and
holds it against the chip's limits.
"""

from __future__ import annotations

import struct

from pytest_qcom.chip import A630
from pytest_qcom.errors import LaunchError
from pytest_qcom.isa.registers import NO_REGISTER
from pytest_qcom.virtual import registers as regs
from pytest_qcom.virtual.dispatch import Dispatch, Format, Image
from pytest_qcom.virtual.findings import Finding
from pytest_qcom.virtual.state import Block, State
from pytest_qcom.virtual.strictness import report

_UNIT = A630.memories.instruction_unit.value
_INSTRUCTION_BYTES = A630.code.bytes_per_instruction.value
_REMEMBERED = 4096  # descriptors whose decoded form is kept
_LINEAR_2D = 1  # A6XX_TEX_2D
TEXEL_BYTES = {
    form: {0x30: 4, 0x60: 8, 0x80: 16}[form.value & 0xF0] for form in Format
}  # a6xx_format groups formats by the width of a texel


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
    report(state)
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
