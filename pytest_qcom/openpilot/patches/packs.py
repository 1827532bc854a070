"""Patches of programs that gather bytes, as those that lay out the planes of an image in texels."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_qcom.errors import GraphError
from pytest_qcom.openpilot import accesses, lowered
from pytest_qcom.openpilot.accesses import Access, NoProduct
from pytest_qcom.openpilot.graph import Call, Program
from pytest_qcom.openpilot.patch import Patch, in_place, single
from pytest_qcom.openpilot.patches import tiles

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

_WORD = 4  # bytes of a word
_FIBERS = 1 << 20  # whose places are looked at


@dataclass(frozen=True, eq=False)
class Loaded:
    """A load of a byte: where the word with it is, and how far the byte is shifted in it.

    Attributes:
        base: index of a byte of the same word, or of one that is ``behind`` words before it.
        lane: the byte's number in its word; ``None`` if fibers differ.
    """

    base: UOp
    behind: int
    lane: int | None

    @property
    def key(self) -> tuple[UOp, int]:
        """The same for bytes of one word."""
        return self.base, self.behind


@dataclass(frozen=True, eq=False)
class Words:
    """A program that loads words where another one loads bytes.

    Attributes:
        loads: of a fiber, before and after; a fiber after it may do what two did before.
        axis: along which fibers were put together; empty where none were.
    """

    program: Program
    loads: tuple[int, int]
    axis: str


@functools.lru_cache(maxsize=256)
def in_words(program: Program, slot: int) -> Words | str:
    """The program with the bytes of an argument loaded a word at a time; or why they are not."""
    try:
        return _in_words(program, slot)
    except (NoProduct, GraphError) as error:
        return str(error)


def _in_words(program: Program, slot: int) -> Words:
    size = program.parameters[slot].nbytes
    if size % _WORD:
        raise GraphError(f"argument {slot} has {size} bytes, no whole words")
    best: Words | None = None
    for axis, candidate in _candidates(program):
        sink = lowered.body(candidate)
        found = _bytes(sink, slot)
        places = _shared(found, candidate)
        count = len({(*each.key, _gate(node)) for node, each in places.items()})
        if 2 * count > len(found):
            continue
        made = Words(
            lowered.compiled(candidate, _rebuilt(sink, slot, size, places)), (len(found), count), axis
        )
        if best is None or made.loads[1] * best.loads[0] < best.loads[1] * made.loads[0]:
            best = made
    if best is None:
        raise GraphError("the bytes that a fiber loads do not lie together in words")
    return best


def _candidates(program: Program) -> Iterator[tuple[str, Program]]:
    """The program, and with two neighbours along each axis as one fiber."""
    from tinygrad.uop.ops import Ops

    yield "", program
    for node in lowered.body(program).toposort():
        if node.op is Ops.SPECIAL:
            try:
                yield node.arg, tiles.coarsened(program, node.arg)
            except GraphError:  # an odd number along it
                continue


def _bytes(sink: UOp, slot: int) -> list[UOp]:
    """The loads of single bytes of an argument.

    Raises:
        GraphError: it is used in another way, or the program has loops.
    """
    from tinygrad.uop.ops import Ops

    nodes = sink.toposort()
    if any(node.op in (Ops.RANGE, Ops.BARRIER) for node in nodes):
        raise GraphError("it has loops or barriers, and is no gather")
    places = [
        node for node in nodes if any(part.op is Ops.PARAM and part.arg.slot == slot for part in node.src)
    ]
    loads = [node for node in nodes if node.op is Ops.LOAD and node.src[0] in places]
    users = [node for node in nodes if any(part in places for part in node.src)]
    if not loads or users != loads or any(place.op is not Ops.INDEX for place in places):
        raise GraphError(f"argument {slot} is not only loaded from")
    return loads


def _gate(load: UOp) -> UOp | None:
    """The condition under which a load is made."""
    return load.src[2] if len(load.src) > 2 else None


def _shared(loads: list[UOp], program: Program) -> dict[UOp, Loaded]:
    """Of each load, the word it is in: that of an earlier load, if it is so for all fibers.

    Indices of fibers whose load a condition forbids count as well: they are computed alike.
    """
    indices = [load.src[0].src[1] for load in loads]
    symbols = {node for index in indices for node in accesses.symbols(Access(0, (index,), 0))}
    fibers = accesses.mesh(sorted(symbols, key=lambda node: str(node.arg)))
    count = max((len(axis) for axis in fibers.values()), default=1)
    if count > _FIBERS:
        raise GraphError(f"it has {count} fibers, too many to look at")
    known: list[tuple[UOp, accesses.Indices]] = []
    found: dict[UOp, Loaded] = {}
    for load, index in zip(loads, indices, strict=True):
        place = np.broadcast_to(accesses.evaluate(index, fibers), count)
        lanes = np.unique(place % _WORD)
        lane = int(lanes[0]) if len(lanes) == 1 else None
        for base, word in known:
            behind = np.unique(place // _WORD - word)
            if len(behind) == 1:
                found[load] = Loaded(base, int(behind[0]), lane)
                break
        else:
            known.append((index, place // _WORD))
            found[load] = Loaded(index, 0, lane)
    return found


def _rebuilt(sink: UOp, slot: int, size: int, places: dict[UOp, Loaded]) -> UOp:
    """The UOps with words loaded, and bytes taken out of them."""
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import Ops, UOp

    words = UOp.param(slot, dtypes.uint, (size // _WORD,), device="QCOM").replace(
        src=(lowered.number(size // _WORD),)
    )

    def change(node: UOp, sources: tuple[UOp, ...]) -> UOp | None:
        if node not in places:
            return None
        place = places[node]
        base = place.base.src[0] if place.base.op is Ops.CAST else place.base
        at = base.alu(Ops.SHR, lowered.number(2))
        at = at + lowered.number(place.behind) if place.behind else at
        index = words.index(at.cast(dtypes.long))
        gate = sources[2] if len(sources) > 2 else None
        nothing = UOp.const(0).cast(dtypes.uint)
        word = UOp(Ops.LOAD, src=(index, nothing, gate) if gate is not None else (index,))
        own = node.src[0].src[1]
        own = own.src[0] if own.op is Ops.CAST else own
        lane = (
            lowered.number(place.lane)
            if place.lane is not None
            else own.alu(Ops.AND, lowered.number(_WORD - 1))
        )
        bits = lane.alu(Ops.SHL, lowered.number(3)).cast(dtypes.uint)
        byte = word.alu(Ops.SHR, bits).alu(Ops.AND, UOp.const(0xFF).cast(dtypes.uint)).cast(dtypes.uchar)
        if gate is None or lowered.constant(node.src[1]) == 0:
            return byte
        return gate.where(byte, sources[1])

    return lowered.transformed(sink, change)


def _judge(call: Call, program: Program) -> tuple[dict[str, Any], Program] | str:
    """The first argument of bytes, read from a buffer and not written, that words can be loaded of."""
    reasons = []
    for slot, parameter in enumerate(program.parameters):
        if parameter.dtype != "uint8" or parameter.image or slot in program.outs:
            continue
        if call.views[slot].start % _WORD:
            reasons.append(f"argument {slot} does not start with a word of its memory")
            continue
        found = in_words(program, slot)
        if isinstance(found, Words):
            return {"argument": slot, "loads": list(found.loads), "axis": found.axis}, found.program
        reasons.append(found)
    return ", ".join(reasons)


PATCHES = (
    Patch(
        name="input-pack",
        summary="bytes that are laid out in texels are loaded a word at a time, each word once",
        find=single(_judge),
        rewrite=in_place(lambda call, program: program),
        models=("input-pack",),
        source="a load of a byte takes as long as one of a word, and a plane's row feeds two texels",
    ),
)
