"""Shuffles: which fiber a value comes from, mode by mode, and how many come a second.

Without ``bench`` every fiber stores, one word a case, the number of the fiber that each shuffle read; the
oracle says which one that is. With ``bench`` a loop of shuffles is timed: ``throughput`` into registers of
their own, ``chain`` each from the one before it.

A fiber whose partner is beyond the end of the wave keeps its own value here; the notes saw no case of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.launch import LOCAL_ID, check_threads
from pytest_qcom.kernels.notes import flag
from pytest_qcom.kernels.registers import Block, RegisterPlan
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE
from pytest_qcom.kernels.stores import POINTER
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.words import emit_fiber_number, emit_word_store
from pytest_qcom.kernels.writer import Writer

SHUFFLES = ("xor", "up", "down", "rup", "rdown")
QUADS = ("brcst", "horiz", "vert", "diag")
_BENCHES = ("", "throughput", "chain")
_SOURCES, _RESULTS = 8, 16  # registers of the throughput loop, as published


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the shuffle probe.

    Attributes:
        op: ``shfl``, between fibers of a wave, or ``quad``, within four neighbours.
        mode: of ``shfl`` xor, up, down, rup, rdown (the last two go round the wave); of ``quad`` brcst,
            horiz, vert, diag; empty for all of them in a map, for rdown and brcst in a loop.
        amount: of a loop's ``shfl`` the distance, of its ``brcst`` the fiber.
        bench: empty for a map, else ``throughput`` or ``chain``.
        ops_per_iter, loops: of a loop.
        blocks: a map of broadcasts by ``shfl`` instead: each fiber goes up by its place within a block, of 4
            fibers, of 8, and so on up to the wave, so that all of the block get the word of its first.
        fiberid: the map of what getfiberid says instead. The notes' device hung on it.
        threads, thread128, groups_x, groups_y: the launch.
    """

    op: str = "shfl"
    mode: str = ""
    amount: int = 1
    bench: str = ""
    ops_per_iter: int = 16
    loops: int = 255
    blocks: bool = False
    fiberid: bool = False
    threads: int = 128
    thread128: bool = True
    groups_x: int = 8
    groups_y: int = 64


@dataclass(frozen=True, slots=True)
class Shuffle:
    """One shuffle: the instruction, its mode, and the distance or fiber, in a register or in the word.

    ``block``: the distance is a fiber's own, its place within so many neighbours.
    """

    op: str
    mode: str
    amount: int
    in_register: bool = False
    block: int = 0

    def source(self, lanes: NDArray[np.int64], wave: int) -> NDArray[np.int64]:
        """The fiber of the wave that each of ``lanes`` reads."""
        reach = {
            "xor": lanes ^ self.amount,
            "up": lanes - (lanes % self.block if self.block else self.amount),
            "down": lanes + self.amount,
            "rup": (lanes - self.amount) % wave,
            "rdown": (lanes + self.amount) % wave,
            "brcst": lanes // 4 * 4 + self.amount,
            "horiz": lanes ^ 1,
            "vert": lanes ^ 2,
            "diag": lanes ^ 3,
        }[self.mode]
        return np.where((reach >= 0) & (reach < wave), reach, lanes)


def shuffles(options: Options) -> tuple[Shuffle, ...]:
    """What a map has a column of."""
    if options.blocks:
        return tuple(Shuffle("shfl", "up", 0, in_register=True, block=block) for block in _blocks(options))
    modes = (options.mode,) if options.mode else SHUFFLES if options.op == "shfl" else QUADS
    if options.op == "quad":
        return tuple(
            Shuffle("quad", mode, amount)
            for mode in modes
            for amount in (range(4) if mode == "brcst" else (0,))
        )
    amounts = (1, 2, 3, 4, 16)
    words = tuple(Shuffle("shfl", mode, amount) for mode in modes for amount in amounts)
    return (*words, *(Shuffle("shfl", mode, 5, in_register=True) for mode in modes))


def _blocks(options: Options) -> list[int]:
    """4 and its doubles up to the fibers of a wave."""
    wave = min(128 if options.thread128 else 64, options.threads)
    return [1 << power for power in range(2, wave.bit_length())]


_MAPS: Mapping[str, Mapping[str, Any]] = {
    "quad_map": dict(op="quad", mode="brcst"),
    "quad_only": dict(op="quad", mode="brcst"),
    "shfl_modes": dict(op="shfl"),
}
"""What the notes call maps, as the options that they are here: a map always has all fibers."""


def _words(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options with the notes' maps, and their number of groups, which is that in x."""
    found = {name: value for name, value in given.items() if name.replace("-", "_") not in _MAPS}
    for name, value in given.items():
        if flag(value):
            found |= _MAPS.get(name.replace("-", "_"), {})
    if "groups" in found:
        found["groups_x"] = found.pop("groups")
    return found


def build(options: Options) -> Build:
    """The probe's launch."""
    _check(options)
    plan = RegisterPlan().place("lid", "r0.x", 1).place("scratch", "r1.x", 4).place("number", "r2.x", 1)
    plan = plan.place("index", "r2.y", 1).place("counter", "r2.z", 1).place("own", "r2.w", 1)
    w = Writer()
    emit_fiber_number(w, plan["number"][0], plan["scratch"][0], options.groups_x, options.threads)
    w.mov(plan["own"][0], LOCAL_ID)
    if options.bench:
        plan = plan.place("sources", "r3.x", _SOURCES).place("results", "r5.x", _RESULTS)
        words = _emit_loop(w, plan, options)
    else:
        count = 1 if options.fiberid else len(shuffles(options))
        plan = plan.place("results", "r3.x", count)
        words = _emit_map(w, plan, options)
    emit_word_store(w, plan["number"][0], words, plan["scratch"])
    w.end()
    fregs, hregs = plan.footprint()
    fibers = options.groups_x * options.groups_y * options.threads
    return Build(
        program=insert_waits(w.program()),
        fregs=fregs,
        hregs=hregs,
        arguments=(Argument("C", (fibers, len(words)), "uint32", False, True, pointer=POINTER),),
        groups=(options.groups_x, options.groups_y, 1),
        local=(options.threads, 1, 1),
        thread128=options.thread128,
        work=1e-9 * fibers * (options.loops * options.ops_per_iter if options.bench else len(words)),
    )


def _check(options: Options) -> None:
    name = "shfl_probe"
    modes = {"shfl": SHUFFLES, "quad": QUADS}
    if options.op not in modes:
        raise KernelError(f"{name}: op is {options.op!r}; give shfl or quad")
    if options.mode and options.mode not in modes[options.op]:
        raise KernelError(
            f"{name}: mode of {options.op} is {options.mode!r}; give one of {', '.join(modes[options.op])}"
        )
    if options.bench not in _BENCHES:
        raise KernelError(f"{name}: bench is {options.bench!r}; give throughput, chain or nothing")
    for option in ("fiberid", "blocks"):
        if options.bench and getattr(options, option):
            raise KernelError(f"{name}: {option} is a map; give it without bench")
    if options.blocks and (options.fiberid or options.op != "shfl" or options.mode):
        raise KernelError(f"{name}: blocks is a map of its own; give it without fiberid, mode and op=quad")
    check_threads(name, options.threads)
    for option in ("ops_per_iter", "loops", "groups_x", "groups_y"):
        if not 1 <= getattr(options, option) <= LARGEST_IMMEDIATE:
            word = option.replace("_", "-")
            raise KernelError(f"{name}: {word} is {getattr(options, option)}; give 1 to {LARGEST_IMMEDIATE}")
    if not 0 <= options.amount < (4 if options.op == "quad" else 64):
        raise KernelError(f"{name}: amount is {options.amount}; give a fiber of 4 or a distance below 64")


def _emit(w: Writer, one: Shuffle, dst: Reg, src: Reg, index: Reg) -> None:
    """The shuffle; ``index`` must hold the amount where the instruction takes a register."""
    if one.op == "shfl":
        w.emit(f"shfl.{one.mode}.u32", dst, src, index if one.in_register else one.amount)
        return
    operands = (dst, src, index) if one.mode == "brcst" else (dst, src)
    w.emit(f"quad_shuffle.{one.mode}", *operands, type="u32", wrmask=1)


def _emit_map(w: Writer, plan: RegisterPlan, options: Options) -> list[Reg]:
    results, index = plan["results"], plan["index"][0]
    if options.fiberid:
        w.emit("getfiberid.u32", results[0])
        return [results[0]]
    for number, one in enumerate(shuffles(options)):
        if one.block:
            w.alu("and.b", index, plan["own"][0], one.block - 1)
        elif one.in_register or one.mode == "brcst":
            w.mov(index, one.amount)
        _emit(w, one, results[number], plan["own"][0], index)
    return list(results)


def _emit_loop(w: Writer, plan: RegisterPlan, options: Options) -> list[Reg]:
    """The timed loop; its result is the word that the last shuffle of it left first."""
    one = _looped(options)
    own, counter, index = plan["own"][0], plan["counter"][0], plan["index"][0]
    sources, results = plan["sources"], plan["results"]
    for source in sources:
        w.mov(source, own)
    for result in results:
        w.mov(result, own)
    w.mov(index, options.amount)
    w.mov(counter, 0)
    w.label("loop")
    for number in range(options.ops_per_iter):
        dst, src = _registers(options, sources, results, own, number)
        _emit(w, one, dst, src, index)
    w.alu("add.s", counter, counter, 1)
    w.alu("cmps.s.eq", "p0.x", counter, options.loops)
    w.branch("loop")
    return [own if options.bench == "chain" else results[0]]


def _registers(options: Options, sources: Block, results: Block, own: Reg, number: int) -> tuple[Reg, Reg]:
    if options.bench == "chain":
        return own, own
    return results[number % _RESULTS], sources[number % _SOURCES]


def _looped(options: Options) -> Shuffle:
    mode = options.mode or {"shfl": "rdown", "quad": "brcst"}[options.op]
    return Shuffle(options.op, mode, options.amount)


def _inputs(options: Options, rng: np.random.Generator) -> Arrays:
    """None: the fibers' own numbers are what is moved."""
    return {}


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """For each fiber the local id that each shuffle gives it."""
    wave = 128 if options.thread128 else 64
    lids = np.arange(options.threads)
    lanes, first = lids % wave, lids // wave * wave
    if options.fiberid:
        rows = lanes[:, None]
    elif options.bench:
        one, came = _looped(options), lanes
        for _ in range(options.loops * options.ops_per_iter if options.bench == "chain" else 1):
            came = came[one.source(lanes, min(wave, options.threads))]
        rows = (first + came)[:, None]
    else:
        size = min(wave, options.threads)
        rows = np.stack([first + one.source(lanes, size) for one in shuffles(options)], axis=1)
    return {"C": np.tile(rows, (options.groups_x * options.groups_y, 1)).astype(np.float64)}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """0: words are moved."""
    return {"C": 0.0}


_SMALL = dict(groups_x=2, groups_y=2)

SHUFFLE = Kernel(
    name="shfl_probe",
    summary="shuffles: which fiber they read, how many a second",
    options=Options,
    build=build,
    inputs=_inputs,
    oracle=_oracle,
    tolerance=_tolerance,
    unit="Gops/s",
    reads=_words,
    family="shfl_probe",
    cases=(
        Case("shfl", dict(op="shfl", bench="throughput")),
        Case("quad", dict(op="quad", bench="throughput")),
        Case("shfl-chain", dict(op="shfl", bench="chain", loops=15, amount=3, **_SMALL)),
        Case("quad-chain", dict(op="quad", bench="chain", mode="diag", loops=15, ops_per_iter=3, **_SMALL)),
        Case("shfl-modes", _SMALL),
        Case("shfl-modes-64", dict(threads=64, thread128=False, **_SMALL)),
        Case("shfl-modes-256", dict(threads=256, thread128=False, **_SMALL)),
        Case("quad-map", dict(op="quad", **_SMALL)),
        Case("quad-map-64", dict(op="quad", thread128=False, **_SMALL)),
        Case("blocks", dict(blocks=True, **_SMALL)),
        Case("blocks-64", dict(blocks=True, threads=256, thread128=False, **_SMALL)),
        Case("fiberid", dict(fiberid=True, **_SMALL)),
        Case("fiberid-64", dict(fiberid=True, thread128=False, **_SMALL)),
    ),
    claim="probe",
    source="qcom_shfl_probe.py and qcom_subgroup_broadcast_probe.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (SHUFFLE,)
