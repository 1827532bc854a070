"""From registers and state loads to a launch: what the hardware would do with what was written.

:func:`decode_launch` reads a :class:`~pytest_qcom.virtual.dispatch.Dispatch` from the register file and
holds it against the chip's limits.
"""

from __future__ import annotations

from pytest_qcom.chip import A630
from pytest_qcom.errors import LaunchError
from pytest_qcom.isa.registers import NO_REGISTER
from pytest_qcom.virtual import descriptors
from pytest_qcom.virtual import registers as regs
from pytest_qcom.virtual.dispatch import Dispatch
from pytest_qcom.virtual.findings import Finding
from pytest_qcom.virtual.state import Block, State
from pytest_qcom.virtual.strictness import report

_UNIT = A630.memories.instruction_unit.value
_INSTRUCTION_BYTES = A630.code.bytes_per_instruction.value


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
        textures=descriptors.textures(state),
        images=descriptors.images(state),
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
        uniforms=descriptors.uniforms(state),
        sets=descriptors.sets(state),
        samplers=descriptors.samplers(state),
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
