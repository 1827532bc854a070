"""Threads, caches and repeated launches: none of them changes a result."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pytest_qcom.errors import GpuFault, GpuHang
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from pytest_qcom.virtual.executor import Executor, kernels, runtime
from pytest_qcom.virtual.executor.cache import ObjectCache, default_directory
from pytest_qcom.virtual.executor.target import Compiler, Effort
from suites.virtual.executor.rig import Array, Memory, aligned, constants, lane_address, launch


def _program(salt: int = 0) -> Program:
    """Every fiber goes round as often as its number says and stores a value."""
    a = Assembler()
    a.emit("mul.u24", "r1.x", "r48.x", 96)
    a.emit("add.u", "r1.x", "r1.x", "r0.x")
    a.emit("and.b", "r1.y", "r1.x", 31)
    a.emit("mov.u32u32", "r1.z", salt)
    a.label("loop")
    a.emit("add.u", "r1.z", "r1.z", "r1.x")
    a.emit("sub.u", "r1.y", "r1.y", 1)
    a.emit("cmps.s.ge", "p0.x", "r1.y", 0)
    a.emit("br", "p0.x", "loop")
    lane_address(a, 40, "r1.x", "c0.x", 2)
    a.emit("stg.u32", "g[r10.x]", "r1.z", 1, jp=True)
    a.emit("end")
    return a.program()


def _outcome(executor: Executor, salt: int = 0) -> tuple[Array, object]:
    target = aligned((96 * 200,), "uint32")
    memory = Memory()
    dispatch = launch(
        _program(salt), constants(memory.add(target)), local_size=(96, 1, 1), groups=(200, 1, 1)
    )
    return target, executor.run(dispatch, memory)


def _expected(salt: int = 0) -> Array:
    fiber = np.arange(96 * 200)
    return (salt + fiber * ((fiber & 31) + 1)).astype(np.uint32)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_do_not_change_results(cache_dir: Path, threads: int) -> None:
    target, execution = _outcome(Executor(threads=threads, cache_dir=cache_dir))
    assert np.array_equal(target, _expected())
    assert execution == _outcome(Executor(threads=1, cache_dir=cache_dir))[1]


def test_portable_code_does_not_either(cache_dir: Path) -> None:
    target, execution = _outcome(Executor(cache_dir=cache_dir, portable=True))
    assert np.array_equal(target, _expected())
    assert execution == _outcome(Executor(cache_dir=cache_dir))[1]


@pytest.fixture
def warm(cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one's own that holds the runtime; no program runs for so long that it is compiled twice."""
    monkeypatch.setattr(kernels, "_PATIENCE", 1e9)
    _outcome(Executor(cache_dir=cache_dir))
    shutil.copytree(cache_dir, tmp_path / "objects")
    return tmp_path / "objects"


def _objects(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.o"))


def test_objects_are_kept_and_used_again(warm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second executor compiles nothing: kernel and runtime come from the directory."""
    _outcome(Executor(cache_dir=warm), salt=5)
    before = {path: path.read_bytes() for path in _objects(warm)}

    def refuse(self: Compiler, text: str, effort: Effort) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(Compiler, "compile", refuse)
    runtime.runtime.cache_clear()
    target, _ = _outcome(Executor(cache_dir=warm), salt=5)
    assert np.array_equal(target, _expected(5))
    assert {path: path.read_bytes() for path in _objects(warm)} == before
    with pytest.raises(AssertionError, match="compiled again"):
        _outcome(Executor(cache_dir=warm), salt=6)


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "garbage"])
def test_damaged_objects_are_replaced(warm: Path, damage: str) -> None:
    """A damaged entry is compiled anew, and whole afterwards."""
    known = set(_objects(warm))
    _outcome(Executor(cache_dir=warm), salt=7)
    (path,) = set(_objects(warm)) - known
    data = path.read_bytes()
    wrong = {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "flipped": data[:100] + bytes([data[100] ^ 1]) + data[101:],
        "garbage": b"\xff" * 300,
    }[damage]
    path.write_bytes(wrong)
    target, _ = _outcome(Executor(cache_dir=warm), salt=7)
    assert np.array_equal(target, _expected(7))
    assert path.read_bytes() == data
    assert set(_objects(warm)) == known | {path}


def test_what_runs_for_long_is_compiled_with_more_effort(warm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results stay; the next process starts with the better code."""
    efforts = []
    compile_ = Compiler.compile

    def watch(self: Compiler, text: str, effort: Effort) -> bytes:
        efforts.append(effort)
        return compile_(self, text, effort)

    monkeypatch.setattr(Compiler, "compile", watch)
    monkeypatch.setattr(kernels, "_PATIENCE", 0.0)
    executor = Executor(cache_dir=warm)
    results = [_outcome(executor, salt=8)[0] for _ in range(3)]
    assert all(np.array_equal(target, _expected(8)) for target in results)
    assert efforts == [Effort.QUICK, Effort.FULL]
    assert np.array_equal(_outcome(Executor(cache_dir=warm), salt=8)[0], _expected(8))
    assert len(efforts) == 2


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """The cache is an optimisation: without it everything is compiled."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    cache = ObjectCache(blocked)
    cache.store("one", {}, b"code")
    assert cache.load("one") is None
    assert blocked.read_text() == "in the way"


def test_entries_are_told_apart(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.store("one", {"a": 1}, b"code")
    assert cache.load("one") == ({"a": 1}, b"code")
    assert cache.load("two") is None
    assert not list(tmp_path.rglob("tmp*"))


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "pytest-qcom"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_directory() == tmp_path / "home" / ".cache" / "pytest-qcom"


def test_a_wave_starts_with_zeros(executor: Executor) -> None:
    """Registers, predicates and local memory of an earlier workgroup are not seen."""
    target = aligned((50 * 64,), "uint32")
    memory = Memory()
    a = Assembler()
    a.emit("shl.b", "r1.x", "r0.x", 2)
    a.emit("ldl.u32", "r1.y", "l[r1.x]", 1)
    a.emit("add.u", "r5.x", "r5.x", "r1.y")
    a.emit("cov.u16u32", "r1.z", "hr5.x")
    a.emit("add.u", "r5.x", "r5.x", "r1.z")
    a.emit("stl.u32", "l[r1.x]", "r0.x", 1)
    a.emit("shl.b", "r2.x", "r48.x", 6)
    a.emit("add.u", "r2.x", "r2.x", "r0.x")
    lane_address(a, 40, "r2.x", "c0.x", 2)
    a.emit("stg.u32", "g[r10.x]", "r5.x", 1)
    a.emit("mov.u32u32", "r5.x", 77)
    a.emit("mov.u16u16", "hr5.x", 77)
    a.emit("end")
    dispatch = launch(a.program(), constants(memory.add(target)), groups=(50, 1, 1), shared_bytes=256)
    executor.run(dispatch, memory)
    assert not target.any()


def test_host_rounding_is_left_alone(executor: Executor) -> None:
    """Generated code flushes subnormals; the thread that called it does not afterwards."""
    _outcome(executor)
    tiny = np.float32(1e-40)
    assert tiny / np.float32(2) > 0


@pytest.mark.parametrize("threads", [1, 3])
def test_a_launch_has_a_budget_as_a_whole(threads: int, cache_dir: Path) -> None:
    """Billions of waves that each end at once, and fewer that each end just in time."""
    executor = Executor(threads=threads, cache_dir=cache_dir, budget=1 << 12, total=1 << 20)
    short, loop = Assembler(), Assembler()
    short.emit("end")
    loop.emit("mov.u32u32", "r1.x", 500)
    loop.label("again")
    loop.emit("sub.u", "r1.x", "r1.x", 1)
    loop.emit("cmps.u.ne", "p0.x", "r1.x", 0)
    loop.emit("br", "p0.x", "again")
    loop.emit("end")
    programs: tuple[tuple[Assembler, tuple[int, int, int]], ...] = (
        (short, (1 << 16, 1 << 16, 4)),
        (short, (1 << 32, 1 << 32, 1 << 32)),
        (loop, (1000, 1000, 1)),
    )
    for a, groups in programs:
        with pytest.raises(GpuHang) as info:
            executor.run(launch(a.program(), groups=groups), Memory())
        assert str(info.value) == (
            f"GPU hang: the launch of {groups} workgroups of (64, 1, 1) fibers used up its budget of 1048576 "
            "issue cycles, not all of them have run; make it smaller, or give the executor a larger total"
        )
    executor.run(launch(short.program(), groups=(4000, 1, 1)), Memory())


def test_a_fault_goes_before_the_budget(cache_dir: Path) -> None:
    executor = Executor(threads=1, cache_dir=cache_dir, total=1 << 10)
    a = Assembler()
    a.emit("mov.u32u32", "r1.x", 0)
    a.emit("stl.u32", "l[r1.x]", "r0.x", 1)
    a.emit("end")
    with pytest.raises(GpuFault, match=r"workgroup \(0, 0, 0\)"):
        executor.run(launch(a.program(), groups=(1000, 1, 1)), Memory())
