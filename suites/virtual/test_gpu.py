"""Streams, contexts and time: faults end a test and not the session, waits end as hangs."""

from __future__ import annotations

import struct
import threading

import pytest

from pytest_qcom.errors import DecodeError, GpuFault, GpuHang, HazardError, LaunchError, QcomError
from pytest_qcom.virtual.dispatch import Dispatch
from pytest_qcom.virtual.pm4 import Opcode
from suites.virtual.bench import CODE, END, TICKS, Bench, cmd, signal, stamp, wait


def test_a_fault_in_a_launch_does_not_stop_the_signals() -> None:
    bench = Bench()
    place = bench.buffer(64)

    def fault(*_: object) -> None:
        raise GpuFault("wrote nowhere")

    bench.executor.act = fault
    words = bench.launch() + signal(place, 5) + bench.launch() + wait(place, 9) + stamp(place + 8)
    with pytest.raises(GpuFault, match=r"^wrote nowhere$"):
        bench.submit(words + signal(place + 4, 6))
    assert struct.unpack("<2I", bench.gpu.memory.read(place, 8, "test")) == (5, 6)
    assert len(bench.executor.launches) == 1  # nothing is launched after a fault
    bench.executor.act = lambda *_: None
    bench.submit(bench.launch())
    assert len(bench.executor.launches) == 2


def test_a_broken_packet_does_not_stop_the_signals_behind_it() -> None:
    bench = Bench()
    place = bench.buffer(64)
    with pytest.raises(GpuFault, match="at dword 0 of the command stream: type 0 is no packet"):
        bench.submit([7, *signal(place, 5)])
    assert bench.word(place) == 5
    assert bench.gpu.wait(bench.context, 1)


def test_an_error_that_is_not_ours_does_not_wedge_the_gpu() -> None:
    bench = Bench()
    place = bench.buffer(64)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    bench.executor.act = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.submit(bench.launch() + signal(place, 5))
    assert bench.word(place) == 5
    bench.executor.act = lambda *_: None
    bench.submit(signal(place, 6))
    assert bench.word(place) == 6


def test_a_wait_that_nothing_satisfies_is_a_hang() -> None:
    bench = Bench(wait_limit=0.05)
    place = bench.buffer(64, "signals")
    timestamp = bench.submit(wait(place, 3) + signal(place + 4, 8))
    assert bench.word(place + 4) == 0
    with pytest.raises(GpuHang) as caught:
        bench.gpu.wait(bench.context, timestamp)
    number = next(b.number for b in bench.gpu.memory.buffers if b.name == "signals")
    assert str(caught.value) == (
        f"CP_WAIT_REG_MEM at dword 0 of the command stream waits for the word at {place:#x} (byte 0 "
        "of buffer "
        f"#{number} 'signals' (64 bytes at {place:#x})) >= 3; it is 0 and nothing changed it for 0.05 s; the "
        "stream is dropped, submit the signal before the wait"
    )
    assert bench.word(place + 4) == 8
    assert bench.gpu.wait(bench.context, timestamp)  # told once


def test_a_hang_that_nobody_waits_for_is_told_by_the_next_command() -> None:
    bench = Bench(wait_limit=0.02)
    place = bench.buffer(64)
    bench.submit(wait(place, 3))
    with pytest.raises(GpuHang):
        bench.gpu.check()
    bench.gpu.check()


def test_a_wait_is_satisfied_by_another_context() -> None:
    bench = Bench()
    place = bench.buffer(64)
    other = bench.gpu.create_context()
    bench.submit(wait(place, 3) + signal(place + 4, 8))
    bench.submit(signal(place, 3), other)
    assert bench.word(place + 4) == 8


def test_a_stream_that_waits_keeps_its_registers() -> None:
    """What another context launches meanwhile leaves them alone, and finds none of them."""
    bench = Bench(wait_limit=30)
    place = bench.buffer(64)
    other = bench.gpu.create_context()
    mine, theirs = bench.launch(SP_CS_CNTL_0=5 << 7 | 3 << 1), bench.launch(SP_CS_CNTL_0=9 << 7 | 1 << 1)
    start = len(mine) - len(cmd(Opcode.CP_EXEC_CS, 0, 1, 1, 1))
    timestamp = bench.submit([*mine[:start], *wait(place, 1), *mine[start:]])
    bench.submit([*theirs, *signal(place, 1)], other)
    assert bench.gpu.wait(bench.context, timestamp, seconds=30)
    assert [(launch.fregs, launch.hregs) for launch in bench.executor.launches] == [(9, 1), (5, 3)]


def test_a_wait_is_satisfied_by_the_host() -> None:
    bench = Bench(wait_limit=30)
    place = bench.buffer(64)
    timestamp = bench.submit(wait(place, 3) + signal(place + 4, 8))
    assert not bench.gpu.wait(bench.context, timestamp, seconds=0.01)
    bench.gpu.memory.write(place, struct.pack("<I", 3), "test")
    assert bench.gpu.wait(bench.context, timestamp, seconds=30)
    assert bench.word(place + 4) == 8


def test_streams_of_a_context_keep_their_order() -> None:
    bench = Bench(wait_limit=30)
    place = bench.buffer(64)
    bench.submit(wait(place, 1))
    timestamp = bench.submit(signal(place + 4, 8))
    assert bench.word(place + 4) == 0
    bench.gpu.memory.write(place, struct.pack("<I", 1), "test")
    assert bench.gpu.wait(bench.context, timestamp, seconds=30)
    assert bench.word(place + 4) == 8


def test_a_context_can_be_dropped_while_it_waits() -> None:
    bench = Bench(wait_limit=30)
    other = bench.gpu.create_context()
    bench.submit(wait(bench.buffer(64), 1), other)
    bench.gpu.destroy_context(other)
    bench.gpu.check()
    assert not bench.gpu.has_context(other)


def test_many_threads_submit_at_once() -> None:
    bench = Bench()
    count, rounds = 8, 25
    places = [bench.buffer(64) for _ in range(count)]
    contexts = [bench.gpu.create_context() for _ in range(count)]
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for number in range(1, rounds + 1):
                words = bench.launch() + signal(places[index], number)
                assert bench.gpu.wait(contexts[index], bench.submit(words, contexts[index]))
                assert bench.word(places[index]) == number
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert bench.gpu.launches == count * rounds and bench.gpu.ticks == count * rounds * TICKS


def test_every_launch_takes_at_least_a_tick() -> None:
    bench = Bench()
    bench.gpu.clock = lambda *_: 0.0
    bench.submit(bench.launch())
    assert (bench.gpu.ticks, bench.gpu.last_seconds) == (1, 0.0)


def test_the_clock_is_asked_when_the_time_is_read() -> None:
    bench = Bench()
    asked: list[object] = []

    def clock(*launch: object) -> float:
        asked.append(launch[0])
        return len(asked) / 19.2e6

    bench.gpu.clock = clock
    for _ in range(3):
        bench.submit(bench.launch())
    assert not asked and bench.gpu.launches == 3
    assert bench.gpu.last_seconds == 3 / 19.2e6 and bench.gpu.ticks == 1 + 2 + 3
    assert len(asked) == 3


def test_a_launch_of_no_groups_does_nothing() -> None:
    bench = Bench()
    bench.submit(bench.launch(groups=(3, 0, 1)))
    assert bench.executor.launches == [] and bench.gpu.ticks == 0


def test_a_program_is_looked_at_once_and_refused_always() -> None:
    seen: list[Dispatch] = []

    def look(program: object, dispatch: Dispatch) -> None:
        seen.append(dispatch)
        if dispatch.fregs == 5:
            raise HazardError("too early")

    bench = Bench(on_program=look)
    code = bench.buffer(CODE)
    for _ in range(3):
        bench.submit(bench.launch(code=code))
        with pytest.raises(HazardError, match=r"^too early$"):
            bench.submit(bench.launch(code=code, SP_CS_CNTL_0=5 << 7))
    assert [dispatch.fregs for dispatch in seen] == [4, 5]
    assert len(bench.executor.launches) == 3
    bench.gpu.watch(None)
    bench.submit(bench.launch(code=code, SP_CS_CNTL_0=5 << 7))
    assert len(bench.executor.launches) == 4


def test_code_that_is_none_is_refused() -> None:
    bench = Bench()
    with pytest.raises(DecodeError):
        bench.submit(bench.launch(code=bench.buffer(b"\xff" * 8 + END + bytes(112))))
    assert bench.executor.launches == []


def test_a_command_buffer_must_be_mapped() -> None:
    bench = Bench()
    with pytest.raises(
        GpuFault, match=r"^command buffer of 16 bytes at 0x10 touches 0x10, which is not mapped"
    ):
        bench.gpu.submit(bench.context, [(0x10, 16)])
    assert bench.gpu.submitted(bench.context) == 0


def test_several_command_buffers_are_one_stream() -> None:
    bench = Bench()
    place = bench.buffer(64)
    parts = [signal(place, 1), signal(place + 4, 2)]
    buffers = [(bench.buffer(struct.pack(f"<{len(p)}I", *p)), 4 * len(p)) for p in parts]
    assert bench.gpu.submit(bench.context, buffers) == 1
    assert (bench.word(place), bench.word(place + 4)) == (1, 2)


def test_only_the_first_error_of_a_stream_is_raised() -> None:
    bench = Bench()
    with pytest.raises(LaunchError, match=r"^launch without a shader"):
        bench.submit([*cmd(0x33, 0, 1, 1, 1), 1, 2, 3, *cmd(0x33, 0, 1, 1, 1)])
    try:
        bench.gpu.check()
    except QcomError as error:  # pragma: no cover
        pytest.fail(f"raised again: {error}")
