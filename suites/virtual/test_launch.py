"""From registers to a launch: what is decoded, what is refused, and what is reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_qcom.errors import GpuFault, LaunchError
from pytest_qcom.virtual.dispatch import Dispatch, Format, Image
from pytest_qcom.virtual.findings import Finding
from suites.virtual.bench import CODE, Bench, cmd, descriptor, halves, load, reg

HALF = Format.RGBA16_FLOAT.value


def launched(bench: Bench, **changes: Any) -> Dispatch:
    bench.submit(bench.launch(**changes))
    return bench.executor.launches[-1]


def findings(bench: Bench) -> list[Finding]:
    return list(bench.gpu.findings)


def test_a_launch_as_mesa_writes_it() -> None:
    bench = Bench()
    code = bench.buffer(CODE)
    constants = bench.buffer(bytes(range(256)) * 16)
    dispatch = launched(bench, code=code, constants=constants, groups=(3, 2, 1))
    assert dispatch == Dispatch(
        code=CODE,
        code_address=code,
        entry=0,
        constants=bytes(range(256)) * 16,
        textures=(),
        images=(),
        local_size=(64, 1, 1),
        groups=(3, 2, 1),
        thread128=False,
        fregs=4,
        hregs=2,
        merged=False,
        branchstack=0,
        shared_bytes=2048,
        private_bytes=0,
        private_base=0,
        constant_demotion=True,
        group_id_regid=192,
        local_size_regid=252,
        group_offset_regid=252,
        local_id_regid=0,
        linear_local_id_regid=252,
    )
    assert findings(bench) == []


def test_every_field_reaches_the_launch() -> None:
    bench = Bench()
    private = bench.buffer(2 << 20)
    dispatch = launched(
        bench,
        opencl=True,
        code=bench.buffer(bytes(16) + CODE[:112]),
        SP_CS_PROGRAM_COUNTER_OFFSET=16,
        SP_CS_CNTL_0=1 << 31 | 1 << 20 | 5 << 14 | 9 << 7,
        SP_CS_CNTL_1=0,
        SP_CS_WGE_CNTL=1 << 9 | 7,
        SP_CS_CONST_CONFIG_0=0x00CCC0CF,
        SP_MODE_CNTL=2,
        SP_CS_PVT_MEM_PARAM=1,
        SP_CS_PVT_MEM_SIZE=256,
        **dict(zip(("SP_CS_PVT_MEM_BASE", "SP_CS_PVT_MEM_BASE+1"), halves(private), strict=True)),
    )
    assert (dispatch.entry, dispatch.thread128, dispatch.merged) == (2, True, True)
    assert (dispatch.fregs, dispatch.hregs, dispatch.branchstack) == (9, 0, 5)
    assert (dispatch.shared_bytes, dispatch.private_bytes, dispatch.private_base) == (32768, 512, private)
    assert (dispatch.group_id_regid, dispatch.local_size_regid) == (0xCF, 0xC0)
    assert (dispatch.group_offset_regid, dispatch.local_id_regid) == (0xCC, 0)
    assert (dispatch.linear_local_id_regid, dispatch.constant_demotion) == (7, False)
    assert dispatch.groups == (1, 1, 1) and dispatch.wave_size == 128


@given(st.integers(1, 1024), st.integers(1, 1024), st.integers(1, 1024))
def test_any_local_size(x: int, y: int, z: int) -> None:
    size = (x, min(y, 1024 // x), 1)
    size = (*size[:2], min(z, 1024 // (size[0] * size[1])))
    bench = Bench()
    word = 3 | size[0] - 1 << 2 | size[1] - 1 << 12 | size[2] - 1 << 22
    assert launched(bench, SP_CS_NDRANGE_0=word).local_size == size


def test_textures_and_images() -> None:
    bench = Bench()
    place = bench.buffer(64 * 4)
    form = Format.RGBA32_FLOAT.value
    dispatch = launched(
        bench,
        textures=[descriptor(place, 8, 4, 64, HALF), descriptor(place, 4, 4, 64, form)],
        uavs=[descriptor(place, 7, 3, 64, HALF, w0=HALF << 22)],
    )
    assert dispatch.textures == (
        Image(place, 8, 4, 64, Format.RGBA16_FLOAT),
        Image(place, 4, 4, 64, Format.RGBA32_FLOAT),
    )
    assert dispatch.images == (Image(place, 7, 3, 64, Format.RGBA16_FLOAT),)
    assert findings(bench) == []


def test_constants_load_behind_others_until_the_update() -> None:
    bench = Bench()
    source = bench.buffer(b"\x11" * 32)
    words = bench.launch(units=1)
    bench.submit(words[:-5] + load(0xD, 1, source, 2, offset=254) + words[-5:])
    assert bench.executor.launches[0].constants == bytes(254 * 16) + b"\x11" * 32
    assert findings(bench) == []  # 256 vec4 are declared and loaded
    with pytest.raises(LaunchError, match=r"^launch without a shader"):
        bench.submit(reg(0xBB08, 0x20) + words[-5:])


def message(bench: Bench, kind: type[Exception], **changes: Any) -> str:
    with pytest.raises(kind) as caught:
        bench.submit(bench.launch(**changes))
    assert bench.executor.launches == []
    return str(caught.value)


REFUSED = {
    "fibers": (
        {"SP_CS_NDRANGE_0": 3 | 1023 << 2 | 1 << 12},
        "launch of 2048 fibers a workgroup (1024x2x1): the A630 allows 1024; choose a smaller local size",
    ),
    "waves": (
        {"SP_CS_NDRANGE_0": 3 | 1023 << 2, "SP_CS_CNTL_0": 48 << 7},
        "launch of 1024 fibers a workgroup (1024x1x1) in THREAD64 with 48 full and 0 half vec4 registers: it "
        "needs 16 waves at once, the registers of the A630 hold 4; choose a local size of at most "
        "256 fibers or "
        "use fewer registers",
    ),
    "none": (
        {"SP_CS_CNTL_0": 1 << 20 | 48 << 7 | 2 << 1, "SP_CS_WGE_CNTL": 1 << 9 | 0xFC},
        "launch of 64 fibers a workgroup (64x1x1) in THREAD128 with 48 full and 2 half vec4 "
        "registers: it needs 1 "
        "waves at once, the registers of the A630 hold 0; choose a local size of at most 0 fibers or "
        "use fewer "
        "registers",
    ),
    "registers": (
        {"SP_CS_CNTL_0": 50 << 7},
        "launch of 64 fibers a workgroup (64x1x1) with 50 full and 0 half vec4 registers: the A630 "
        "has 48 of each; "
        "use fewer",
    ),
    "dimensions": (
        {"SP_CS_NDRANGE_0": 1 | 63 << 2},
        "launch with KERNELDIM 1; the runtime always launches in 3 dimensions",
    ),
    "offset": (
        {"SP_CS_NDRANGE_4.GLOBALOFF_Y": 5, "opencl": True},
        "launch with global offset 5 in y: it is not modelled; use 0",
    ),
    "cut": (
        {"SP_CS_NDRANGE_1.GLOBALSIZE_X": 100, "opencl": True},
        "launch of 100 work items in x as 1 groups of 64: the last group would be cut; give whole workgroups",
    ),
    "empty": (
        {"SP_CS_INSTR_SIZE": 0},
        "launch with SP_CS_INSTR_SIZE 0: the shader is empty; write its size in 128 bytes",
    ),
    "entry": (
        {"SP_CS_PROGRAM_COUNTER_OFFSET": 128},
        "launch at byte 128 of a shader of 128 bytes (SP_CS_PROGRAM_COUNTER_OFFSET): give a multiple "
        "of 8 within it",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_launches_that_the_chip_does_not_allow(name: str) -> None:
    changes, expected = REFUSED[name]
    assert message(Bench(), LaunchError, **changes) == expected


IMAGES = {
    "wide": (
        {"width": 16385, "pitch": 131136},
        "texture 0 of 16385x1 texels: the A630 allows 1 to 16384 texels a side; split or reshape the image",
    ),
    "flat": (
        {"height": 0},
        "texture 0 of 8x0 texels: the A630 allows 1 to 16384 texels a side; split or reshape the image",
    ),
    "narrow": (
        {"pitch": 128, "width": 32},
        "texture 0 of 32x1 texels with a pitch of 128 bytes: a row has 256; correct the pitch",
    ),
    "format": (
        {"form": 0x66},
        "texture 0 has texel format 0x66; the virtual device knows the plain ones of 1, 2 and 4 components, "
        "R8_UNORM 0x3 to RGBA32_SINT 0x84",
    ),
    "tiled": (
        {"w0": HALF << 22 | 0x6880 | 3},
        "texture 0 has TILE_MODE 3; the virtual device knows 0, linear images",
    ),
    "type": (
        {"w2": 6 << 29 | 64 << 7},
        "texture 0 has TYPE 6; there are 0 to 4: images of one and two dimensions, cubes, those of three "
        "dimensions, buffers; correct the descriptor",
    ),
    "layers": (
        {"height": 3, "w3": 0, "w5": 2 << 17},
        "texture 0 of 8x3 texels and 2 layers 0 bytes apart: one has 192; correct ARRAY_PITCH",
    ),
    "empty": (
        {"width": 0, "height": 0, "w2": 4 << 29},
        "texture 0 is a buffer of 0 elements: give its size",
    ),
    "swizzle": (
        {"w0": HALF << 22 | 7 << 4},
        "texture 0 of 8x1 texels with swizzle (7, 0, 0, 0): 0 to 5 exist; correct the descriptor",
    ),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_that_the_chip_does_not_allow(name: str) -> None:
    changes, expected = IMAGES[name]
    bench = Bench()
    place = bench.buffer(1 << 20)
    given = {"width": 8, "height": 1, "pitch": 64, "form": HALF} | changes
    assert message(bench, LaunchError, textures=[descriptor(place, **given)]) == expected


def test_an_unaligned_pitch() -> None:
    bench = Bench()
    # The field has no bits for less than 64 bytes in a sound stream: PITCH is written in bytes.
    item = descriptor(bench.buffer(4096), 9, 2, 72, HALF)
    assert message(bench, LaunchError, textures=[item]) == (
        "texture 0 of 9x2 texels with a pitch of 72 bytes: rows must be a multiple of 64 bytes "
        "apart; make the "
        "width a multiple of 8"
    )


def test_an_image_that_leaves_its_buffer() -> None:
    bench = Bench()
    place = bench.buffer(64 * 3, "picture")
    number = next(b.number for b in bench.gpu.memory.buffers if b.address == place)
    text = message(bench, GpuFault, textures=[descriptor(place, 8, 4, 64, HALF)])
    assert text == (
        f"texture 0 of 8x4 texels of 256 bytes at {place:#x} touches {place + 192:#x}, which is not "
        "mapped: 0 bytes "
        f"past the end of buffer #{number} 'picture' (192 bytes at {place:#x}); allocate the memory "
        "or correct the "
        "address"
    )


def test_descriptors_and_code_must_be_the_loaded_ones() -> None:
    bench = Bench()
    place = bench.buffer(64)
    words = bench.launch(SP_CS_CONFIG=0x100 | 1 << 9)
    with pytest.raises(LaunchError) as caught:
        bench.submit(words)
    assert str(caught.value) == (
        "launch with texture descriptors at 0x0 (SP_CS_TEXMEMOBJ_BASE), but none is loaded; load them with "
        "CP_LOAD_STATE6"
    )
    words = bench.launch(textures=[descriptor(place, 8, 1, 64, HALF)])
    words = words[:-5] + load(5, 1, place, 1) + words[-5:]
    with pytest.raises(
        LaunchError, match=rf"^launch with texture .*, but those at {place:#x} are loaded; load"
    ):
        bench.submit(words)
    code = bench.buffer(CODE)
    words = bench.launch(code=code)
    with pytest.raises(LaunchError) as caught:
        bench.submit(words[:-5] + load(0xD, 0, place, 1) + words[-5:])
    assert str(caught.value) == (
        f"launch of the shader at {code:#x} (SP_CS_BASE), but CP_LOAD_STATE6 loaded the one at "
        f"{place:#x}; give "
        "both the same address"
    )


def test_the_constant_file_has_an_end() -> None:
    bench = Bench()
    with pytest.raises(GpuFault) as caught:
        bench.submit(load(0xD, 1, bench.buffer(8192), 3, offset=254))
    assert str(caught.value) == (
        "CP_LOAD_STATE6 of 3 vec4 behind c254: the constant file of compute has 256 vec4; load fewer"
    )


def test_private_memory_must_be_mapped() -> None:
    bench = Bench()
    text = message(bench, GpuFault, SP_CS_PVT_MEM_PARAM=1, SP_CS_PVT_MEM_SIZE=256)
    assert text.startswith("private memory of 2097152 bytes at 0x0 touches 0x0, which is not mapped: ")


FOUND: dict[str, tuple[dict[str, Any], Finding]] = {
    "constants": (
        {"SP_CS_CONST_CONFIG": 0x110},
        Finding(
            "SP_CS_CONST_CONFIG", "CONSTLEN", 0x110, 0x140, "declares 64 vec4 of constants, 256 are loaded"
        ),
    ),
    "stack": (
        {"SP_CS_PVT_MEM_STACK_OFFSET": 0x100000},
        Finding(
            "SP_CS_PVT_MEM_STACK_OFFSET",
            "undefined",
            0x100000,
            None,
            "sets undefined bits 0x100000",
        ),
    ),
    "wave size": (
        {"SP_CS_CNTL_0": 1 << 20 | 4 << 7},
        Finding(
            "SP_CS_CNTL_0",
            "THREADSIZE",
            1 << 20 | 4 << 7,
            4 << 7,
            "differs from SP_CS_WGE_CNTL.THREADSIZE, which it must match",
        ),
    ),
    "samplers": (
        {"SP_CS_CONFIG": 0x100 | 1 << 22},
        Finding("SP_CS_CONFIG", "NUAV", 0x400100, 0x100, "declares 1 slots, 0 are loaded"),
    ),
    "register": (
        {"SP_CS_CONST_CONFIG_0": 0xFCFC08C0},
        Finding(
            "SP_CS_CONST_CONFIG_0",
            "WGSIZECONSTID",
            8,
            252,
            "is no register that a wave shares (r48.x and up), the only kind that it may name",
        ),
    ),
    "slots": (
        {"SP_CS_TSIZE": 3},
        Finding("SP_CS_TSIZE", "COUNT", 3, 1, "is more than the 0 slots of SP_CS_CONFIG.NTEX", harmless=True),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_the_hardware_would_misread_is_found(name: str) -> None:
    changes, expected = FOUND[name]
    bench = Bench()
    launched(bench, **changes)
    assert expected in findings(bench)
    launched(bench, **changes)
    assert findings(bench).count(expected) == 1 and bench.gpu.findings.count(expected) == 2


def test_a_finding_reads_as_one_line() -> None:
    (_, found) = FOUND["constants"]
    assert str(found) == (
        "SP_CS_CONST_CONFIG.CONSTLEN = 0x110: declares 64 vec4 of constants, 256 are loaded; needs 0x140"
    )


def test_a_shader_beyond_the_cache_is_found() -> None:
    bench = Bench()
    code = bench.buffer(CODE + bytes(8192))
    launched(bench, code=code, SP_CS_INSTR_SIZE=65)
    why = "preloads more than the instruction cache, 64 units of 128 bytes"
    assert findings(bench) == [Finding("SP_CS_INSTR_SIZE", "UNITS", 65, 64, why)]


def test_constants_that_are_not_there_are_found_and_zero() -> None:
    bench = Bench()
    source = bench.buffer(b"\x22" * 64)
    dispatch = launched(bench, constants=source)
    assert dispatch.constants == (b"\x22" * 64).ljust(4096, b"\0")
    why = "reads 4096 bytes of constants where 64 are mapped; the device may fault"
    assert findings(bench) == [Finding("CP_LOAD_STATE6", "NUM_UNIT of constants", 256, 4, why)]


def test_a_value_that_is_never_used_is_found() -> None:
    bench = Bench()
    bench.submit(reg(0xAB00, 2) + bench.launch())
    why = "is overwritten before the launch that it was for"
    assert findings(bench) == [Finding("SP_MODE_CNTL", "dead write", 2, 5, why, harmless=True)]


def test_a_marker_of_other_work_is_found() -> None:
    bench = Bench()
    bench.submit(cmd(0x65, 1))
    assert findings(bench) == [
        Finding("CP_SET_MARKER", "MODE", 1, 8, "marks no compute work, which is RM6_COMPUTE")
    ]
    bench.gpu.findings.clear()
    assert len(bench.gpu.findings) == 0


def test_undefined_descriptor_bits_are_found() -> None:
    bench = Bench()
    place = bench.buffer(64)
    item = descriptor(place, 8, 1, 64, HALF, w0=HALF << 22 | 0x6888)
    launched(bench, textures=[item])
    assert findings(bench) == [
        Finding("TEX_CONST_0", "undefined", item[0], item[0] - 8, "sets undefined bits 0x8", harmless=True)
    ]


def test_more_textures_than_a_load_brings() -> None:
    bench = Bench()
    place = bench.buffer(64)
    items = [descriptor(place, 8, 1, 64, HALF)] * 3
    words = bench.launch(textures=items)
    table = next(b.address for b in bench.gpu.memory.buffers if b.name == "descriptors")
    bench.submit(words[:-5] + load(5, 1, table, 2) + words[-5:])
    assert len(bench.executor.launches[0].textures) == 3
    why = "brings 2 of 3 texture descriptors; the rest come from SP_CS_TEXMEMOBJ_BASE"
    assert findings(bench) == [Finding("CP_LOAD_STATE6", "NUM_UNIT of textures", 2, 3, why, harmless=True)]


def test_code_may_end_within_its_last_unit() -> None:
    bench = Bench()
    code = bench.buffer(CODE + bytes(40))
    assert launched(bench, code=code, SP_CS_INSTR_SIZE=2).code == CODE + bytes(40)
