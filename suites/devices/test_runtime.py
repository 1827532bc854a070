"""The device interface over tinygrad's runtime, on the virtual A630."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytest_qcom.devices import virtual
from pytest_qcom.devices.device import Device
from pytest_qcom.devices.runtime import RuntimeDevice
from pytest_qcom.envelope import parse
from pytest_qcom.errors import (
    DeviceUnavailable,
    EnvelopeError,
    GpuFault,
    GpuHang,
    HazardError,
    LaunchError,
    QcomError,
)
from suites.devices import programs

GROUP = (64, 1, 1)
TICK = 1 / 19.2e6


@pytest.fixture(scope="module")
def opened() -> Iterator[RuntimeDevice]:
    with virtual.opened("virtual", "Adreno 630", "strict") as device:
        yield device


@pytest.fixture
def device(opened: RuntimeDevice) -> Iterator[RuntimeDevice]:
    yield opened
    opened.reset()


def test_it_is_a_device(device: RuntimeDevice) -> None:
    interface: Device = device
    assert (interface.name, interface.chip, interface.mode) == ("virtual", "Adreno 630", "model: cycle")


def test_a_view_is_part_of_a_tensor(device: RuntimeDevice) -> None:
    array = np.arange(4096, dtype=np.float16).reshape(64, 64)
    whole = device.upload(array)
    part = device.view(whole, (4, 8, 4), image=True, start=256)
    twice = device.view(part, (2, 3), image=False, start=1)
    del whole, part
    gc.collect()
    np.testing.assert_array_equal(device.download(twice), np.arange(257, 263).reshape(2, 3))


@pytest.mark.parametrize(
    ("shape", "image", "start", "message"),
    [
        ((64, 64), False, 1, "that has 4096 elements; give a part of them"),
        ((4,), False, -1, "that has 4096 elements; give a part of them"),
        ((4, 8, 4), True, 16, "images start at multiples of 64; give another start"),
        ((4, 8), True, 0, "image"),
    ],
)
def test_no_view_beyond_a_tensor_or_askew(
    device: RuntimeDevice, shape: tuple[int, ...], image: bool, start: int, message: str
) -> None:
    whole = device.upload(np.zeros((64, 64), np.float16))
    with pytest.raises(LaunchError, match=message):
        device.view(whole, shape, image, start)


@given(
    arrays.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.uint32, np.int64, np.bool_]),
        arrays.array_shapes(max_dims=3, max_side=9),
        elements={"allow_nan": False},
    )
)
def test_what_is_uploaded_comes_back(opened: RuntimeDevice, array: Any) -> None:
    for source in (array, array.T, array[::-1]):
        tensor = opened.upload(source)
        assert (tensor.shape, tensor.dtype, tensor.image) == (source.shape, source.dtype, False)
        np.testing.assert_array_equal(opened.download(tensor), source)


def test_a_single_number(device: RuntimeDevice) -> None:
    assert device.download(device.upload(np.asarray(1.5))).shape == ()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_images_come_back(device: RuntimeDevice, dtype: Any) -> None:
    pixels = np.random.default_rng(1).standard_normal((5, 8, 4)).astype(dtype)
    tensor = device.image(pixels)
    assert tensor.image
    np.testing.assert_array_equal(device.download(tensor), pixels)


def test_empty_memory_is_not_a_number(device: RuntimeDevice) -> None:
    assert np.isnan(device.download(device.empty((3, 8, 4), np.float16, image=True))).all()
    assert (device.download(device.empty((7,), "uint16")) == 0xFFFF).all()


@pytest.mark.parametrize("thread128", [False, True])
def test_a_launch_runs_every_work_item(device: RuntimeDevice, thread128: bool) -> None:
    out = device.empty((640,), np.uint32)
    device.launch(programs.number(), "k", [out], (5, 1, 1), (128, 1, 1), thread128)
    np.testing.assert_array_equal(device.download(out), np.arange(640) + 7)


def test_a_launch_takes_the_same_time_always(device: RuntimeDevice) -> None:
    out = device.empty((64 * 512,), np.uint32)
    times = {device.launch(programs.number(), "k", [out], (512, 1, 1), GROUP) for _ in range(3)}
    (seconds,) = times
    assert seconds / TICK == pytest.approx(round(seconds / TICK)) and seconds > 2 * TICK
    faster = device.launch(programs.number(), "k", [out], (256, 1, 1), (128, 1, 1), thread128=True)
    assert faster <= seconds


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_images_are_read_and_written(device: RuntimeDevice, dtype: Any) -> None:
    pixels = np.random.default_rng(2).standard_normal((3, 64, 4)).astype(dtype)
    out, between = device.empty(pixels.shape, dtype, image=True), device.upload(np.zeros(3))
    device.launch(programs.copy(), "k", [out, between, device.image(pixels)], (1, 1, 1), GROUP)
    result = device.download(out)
    np.testing.assert_array_equal(result[0], pixels[0])
    assert np.isnan(result[1:]).all()


def test_the_register_mode_of_the_binary(device: RuntimeDevice) -> None:
    from dataclasses import replace

    content = parse(programs.number(), "k")
    for merged in (None, False, True):
        out = device.empty((64,), np.uint32)
        data = replace(content, merged=merged, template=b"").to_bytes()
        device.launch(data, "k", [out], (1, 1, 1), GROUP)
        np.testing.assert_array_equal(device.download(out), np.arange(64) + 7)


def test_a_hazard_does_not_run(device: RuntimeDevice) -> None:
    out = device.empty((64,), np.uint32)
    for _ in range(2):
        with pytest.raises(HazardError) as caught:
            device.launch(programs.early(), "k", [out], (1, 1, 1), GROUP)
    assert str(caught.value) == (
        "early-read r1.x at #1 `shl.b r2.z, r1.x, 2` of #0 `add.u r1.x, r0.x, r51.x`, 0 slots apart, "
        "3 needed: "
        "reads r1.x from before the write; fix: (nop3) on #0"
    )
    with virtual.opened("virtual", "Adreno 630", "off") as lenient:
        lenient.launch(programs.early(), "k", [lenient.empty((64,), np.uint32)], (1, 1, 1), GROUP)


def test_an_unknown_hazards_mode() -> None:
    with pytest.raises(DeviceUnavailable) as caught:
        virtual.gpu("sometimes")
    assert str(caught.value) == (
        "virtual device with hazards mode 'sometimes': the modes are strict, emulate, off; choose one of them"
    )


def test_a_store_past_the_end_is_a_fault_and_the_next_launch_runs(device: RuntimeDevice) -> None:
    out = device.empty((100,), np.uint32)
    with pytest.raises(GpuFault, match=r"stg\.u32 .* 0 bytes past the end of buffer #\d+ \(400 bytes at 0x"):
        device.launch(programs.number(), "k", [out], (2, 1, 1), GROUP)
    device.launch(programs.number(), "k", [out], (1, 1, 1), (100, 1, 1))
    np.testing.assert_array_equal(device.download(out), np.arange(100) + 7)


def test_an_endless_loop_is_a_hang_and_the_next_launch_runs(device: RuntimeDevice) -> None:
    out = device.empty((64,), np.uint32)
    with pytest.raises(GpuHang, match=r"^GPU hang at instruction 0 \(nop\), wave 0 of workgroup \(0, 0, 0\)"):
        device.launch(programs.endless(), "k", [out], (1, 1, 1), GROUP)
    device.launch(programs.number(), "k", [out], (1, 1, 1), GROUP)
    np.testing.assert_array_equal(device.download(out), np.arange(64) + 7)


def test_two_devices_know_nothing_of_each_other(device: RuntimeDevice) -> None:
    with virtual.opened("other", "Adreno 630", "off") as other:
        mine, theirs = device.empty((64,), np.uint32), other.empty((64,), np.uint32)
        device.launch(programs.number(), "k", [mine], (1, 1, 1), GROUP)
        assert (other.download(theirs) == 0xFFFFFFFF).all()
        with pytest.raises(LaunchError) as caught:
            device.launch(programs.number(), "k", [theirs], (1, 1, 1), GROUP)
    assert str(caught.value) == (
        "launch of k with a tensor of shape (64,) that virtual does not hold: it is of another device or was "
        "freed by a reset; upload it again"
    )


def test_memory_is_freed_with_its_last_user_or_by_a_reset(device: RuntimeDevice) -> None:
    memory = device._runtime.fd.node.gpu.memory
    device.reset()
    gc.collect()
    before = len(memory.buffers)
    kept, dropped = device.upload(np.zeros(9)), device.upload(np.zeros(9))
    assert len(memory.buffers) == before + 2
    del dropped
    gc.collect()
    assert len(memory.buffers) == before + 1
    device.reset()
    assert len(memory.buffers) == before
    with pytest.raises(LaunchError) as caught:
        device.download(kept)
    assert str(caught.value) == (
        "download with a tensor of shape (9,) that virtual does not hold: it is of another device or "
        "was freed by "
        "a reset; upload it again"
    )


def test_a_closed_device_says_so() -> None:
    with virtual.opened("virtual", "Adreno 630", "off") as device:
        tensor = device.upload(np.zeros(4))
    acts: list[Callable[[], object]] = [
        lambda: device.upload(np.zeros(4)),
        lambda: device.download(tensor),
        device.reset,
    ]
    for act in acts:
        with pytest.raises(DeviceUnavailable) as caught:
            act()
        assert str(caught.value) == "device virtual: it is closed; open it again"
    device.close()


def test_a_device_that_stopped_answering_is_opened_again(
    opened: RuntimeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.reset()
    lost = opened.upload(np.zeros(64, np.uint32))
    monkeypatch.setattr(opened._runtime, "error_state", RuntimeError("Wait timeout: 30000 ms!"))
    with pytest.raises(GpuHang, match=r"^download on virtual: the GPU does not answer \(Wait timeout"):
        opened.download(lost)
    with pytest.raises(GpuHang) as caught:
        opened.launch(programs.number(), "k", [lost], (1, 1, 1), GROUP)
    assert str(caught.value) == (
        "launch of k on virtual: the GPU does not answer (Wait timeout: 30000 ms!); reset the "
        "device, and if that "
        "fails reboot it"
    )
    opened.reset()
    out = opened.empty((64,), np.uint32)
    opened.launch(programs.number(), "k", [out], (1, 1, 1), GROUP)
    np.testing.assert_array_equal(opened.download(out), np.arange(64) + 7)
    with pytest.raises(LaunchError):
        opened.download(lost)


MEMORY: dict[str, tuple[Callable[[Any], Any], str]] = {
    "nothing": (
        lambda d: d.upload(np.zeros((3, 0))),
        "memory for shape (3, 0) of float64: the device holds numbers, at least one; give an array "
        "of a number type",
    ),
    "objects": (
        lambda d: d.upload(np.array([None])),
        "memory for shape (1,) of object: the device holds numbers, at least one; give an array of a "
        "number type",
    ),
    "words": (
        lambda d: d.upload(np.array(["a", "b"])),
        "memory for shape (2,) of <U1: the device holds numbers, at least one; give an array of a number "
        "type",
    ),
    "list": (lambda d: d.upload([1, 2]), "upload of a list: it has no shape and dtype; give a numpy array"),
    "none": (
        lambda d: d.image(None),
        "image of a NoneType: it has no shape and dtype; give a numpy array",
    ),
    "download": (
        lambda d: d.download(np.zeros(4)),
        "download with a ndarray: it is no memory of the device; give what device.upload, device.image or "
        "device.empty returned",
    ),
    "image shape": (
        lambda d: d.image(np.zeros((8, 8, 3), np.float32)),
        "image of shape (8, 8, 3) and float32: an image is (height, width, 4) of float16, float32, uint32 "
        "or int8; "
        "reshape or "
        "convert the array",
    ),
    "image dtype": (
        lambda d: d.image(np.zeros((8, 8, 4), np.float64)),
        "image of shape (8, 8, 4) and float64: an image is (height, width, 4) of float16, float32, uint32 "
        "or int8; "
        "reshape or "
        "convert the array",
    ),
    "image side": (
        lambda d: d.empty((16385, 8, 4), np.float16, image=True),
        "image of 8x16385 texels: the A630 allows 16384 texels a side; split the array",
    ),
    "image pitch": (
        lambda d: d.image(np.zeros((2, 7, 4), np.float16)),
        "image of 7 texels of 8 bytes a row: rows of 56 bytes are no multiple of 64; make the width "
        "a multiple of 8",
    ),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_that_the_device_refuses(device: RuntimeDevice, name: str) -> None:
    act, text = MEMORY[name]
    with pytest.raises(LaunchError) as caught:
        act(device)
    assert str(caught.value) == text


def _launch(device: RuntimeDevice, **changes: Any) -> float:
    out = device.empty((64,), np.uint32)
    call = {"binary": programs.number(), "name": "k", "args": [out], "groups": (1, 1, 1), "local": GROUP}
    return device.launch(**call | changes)


def test_resources_that_no_launch_has(device: RuntimeDevice) -> None:
    given = {"branchstack": 64, "private_bytes": 131072, "shared_bytes": 32769, "entry": 128}
    texts = (
        "64 entries of branch stack: the A630 allows 63",
        "131072 bytes of private memory: the A630 allows 130560",
        "32769 bytes of local memory: the A630 allows 32768",
        "128 bytes before its first instruction: the A630 allows 127",
    )
    for (name, value), text in zip(given.items(), texts, strict=True):
        with pytest.raises(LaunchError) as caught:
            _launch(device, binary=programs.binary("end\n", programs.BUFFER, **{name: value}))
        assert str(caught.value) == f"launch of k with {text}; use less"


def test_memory_that_is_not_there(device: RuntimeDevice) -> None:
    with pytest.raises(LaunchError) as caught:
        device._allocate((1 << 40,), np.dtype(np.int8), image=False)
    assert str(caught.value).startswith(
        "memory for shape (1099511627776,) of int8: no 1099511627776 bytes are left ([Errno 12] "
        "Cannot allocate "
    )


def test_a_command_that_the_runtime_cannot_submit(
    device: RuntimeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tinygrad has counted the launch by then; nothing may wait for it."""
    out = device.empty((64,), np.uint32)
    monkeypatch.setattr(type(device._runtime.fd), "ioctl", lambda *_: np.uint32(-1))
    with pytest.raises(
        LaunchError, match=r"^launch of k on virtual: the runtime cannot submit it \(.*-1.*\); check"
    ):
        device.launch(programs.number(), "k", [out], (1, 1, 1), GROUP)
    monkeypatch.undo()
    device.launch(programs.number(), "k", [out], (1, 1, 1), GROUP)
    np.testing.assert_array_equal(device.download(out), np.arange(64) + 7)


LAUNCHES: dict[str, tuple[dict[str, Any], type[QcomError], str]] = {
    "groups": (
        {"groups": (1, 0, 1)},
        LaunchError,
        "launch of k with groups (1, 0, 1): give three positive integers",
    ),
    "two": ({"groups": (1, 1)}, LaunchError, "launch of k with groups (1, 1): give three positive integers"),
    "one": ({"groups": 4}, LaunchError, "launch of k with groups 4: give three positive integers"),
    "array": (
        {"args": [np.zeros(64, np.uint32)]},
        LaunchError,
        "launch of k with a ndarray: it is no memory of the device; give what device.upload, device.image or "
        "device.empty returned",
    ),
    "float": (
        {"local": (1.5, 1, 1)},
        LaunchError,
        "launch of k with local size (1.5, 1, 1): give three positive integers",
    ),
    "workgroup": (
        {"local": (64, 32, 1)},
        LaunchError,
        "launch of k with local size (64, 32, 1): 2048 fibers in a workgroup, the A630 allows 1024; "
        "choose a smaller "
        "local size",
    ),
    "items": (
        {"groups": (1 << 26, 1, 1)},
        LaunchError,
        "launch of k with groups (67108864, 1, 1) of (64, 1, 1): a side has 2**32 work items or "
        "more; launch in parts",
    ),
    "count": (
        {"args": []},
        LaunchError,
        "launch of k with 0 arguments: the binary has 1; give one tensor for each",
    ),
    "registers": (
        {"binary": programs.binary("end\n", programs.BUFFER, fregs=48), "local": (512, 1, 1)},
        LaunchError,
        "launch of k with local size (512, 1, 1) in THREAD64: 48 full and 0 half vec4 registers "
        "leave room for 256 "
        "fibers in a workgroup; choose a smaller local size or use fewer registers",
    ),
    "truncated": (
        {"binary": programs.number()[:100]},
        EnvelopeError,
        "binary has 100 bytes, but the image offset should stand at byte 0xc0: it is truncated or "
        "damaged; compile or "
        "fetch it again",
    ),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_launches_that_the_device_refuses(device: RuntimeDevice, name: str) -> None:
    changes, kind, text = LAUNCHES[name]
    with pytest.raises(kind) as caught:
        _launch(device, **changes)
    assert str(caught.value) == text


def test_arguments_of_the_wrong_kind(device: RuntimeDevice) -> None:
    picture, linear = device.empty((1, 64, 4), np.float16, image=True), device.empty((4,), np.float16)
    with pytest.raises(LaunchError) as caught:
        _launch(device, args=[picture])
    assert str(caught.value) == (
        "launch of k: argument 0 is an image of shape (1, 64, 4), the binary takes a linear buffer; "
        "create it with "
        "device.upload"
    )
    with pytest.raises(LaunchError) as caught:
        _launch(device, binary=programs.copy(), args=[picture, linear, linear])
    assert str(caught.value) == (
        "launch of k: argument 2 is a linear buffer of shape (4,), the binary takes an image; create it with "
        "device.image"
    )


@given(st.data())
def test_damaged_binaries_only_raise_errors_of_ours(opened: RuntimeDevice, data: st.DataObject) -> None:
    content = bytearray(programs.number())
    for _ in range(data.draw(st.integers(1, 3))):
        bit = data.draw(st.integers(0, 8 * len(content) - 1))
        content[bit // 8] ^= 1 << bit % 8
    try:
        _launch(opened, binary=bytes(content))
    except QcomError as error:
        assert "\n" not in str(error)
    opened.reset()
