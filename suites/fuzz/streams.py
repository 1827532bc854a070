"""Command streams gone wrong: how they are made and what must hold of them."""

from __future__ import annotations

import random

from tinygrad.runtime.ops_qcom import pkt4_hdr, pkt7_hdr

from pytest_qcom.errors import QcomError
from pytest_qcom.virtual.dispatch import Dispatch
from pytest_qcom.virtual.memory import Memory
from pytest_qcom.virtual.pm4 import Opcode
from pytest_qcom.virtual.registers import REGISTERS
from suites.virtual.bench import Bench, descriptor, signal, wait

OPCODES = [int(code) for code in Opcode]
INTERESTING = [0, 1, 2, 3, 4, 8, 0x3F, 0x40, 0xFF, 0x100, 0xFFF, 0x1000, 0x80000000, 0xFFFFFFFF, 0xFCFCFCFC]


def stream(bench: Bench) -> list[int]:
    """A sound stream that launches with images, waits, and signals."""
    place = bench.buffer(4096, "signals")
    image = descriptor(bench.buffer(4096), 8, 4, 64, 0x62)
    words = bench.launch(textures=[image], uavs=[image]) + signal(place, 1)
    return words + wait(place, 1) + bench.launch(opencl=True) + signal(place + 8, 2)


def touch(dispatch: Dispatch, memory: Memory) -> None:
    """What an executor may rely on: all of the images and the code is mapped."""
    for image in (*dispatch.textures, *dispatch.images):
        assert memory.contains(image.address, image.pitch * (image.height - 1) + 1)
    assert dispatch.entry < len(dispatch.code) // 8 and len(dispatch.constants) == 4096
    assert 0 < dispatch.fibers <= 1024 and 0 not in dispatch.groups


def submit(bench: Bench, words: list[int]) -> bool:
    """Runs a stream; whether it did what it should. One line says what is wrong with it otherwise."""
    sound = True
    try:
        bench.submit(words)
        bench.gpu.check()
    except QcomError as error:
        assert "\n" not in str(error) and len(str(error)) > 20
        sound = False
    assert bench.gpu.wait(bench.context, bench.gpu.submitted(bench.context), seconds=5)
    return sound


def mutate(source: random.Random, words: list[int]) -> list[int]:
    """A few changed, dropped, doubled or moved dwords, some with a sound header."""
    words = list(words)
    for _ in range(source.choice((1, 1, 2, 5))):
        at = source.randrange(len(words))
        kind = source.randrange(7)
        if kind == 0:
            words[at] ^= 1 << source.randrange(32)
        elif kind == 1:
            words[at] = source.choice(INTERESTING)
        elif kind == 2:
            words[at] = source.getrandbits(32)
        elif kind == 3:
            del words[at : at + source.randrange(1, 4)]
        elif kind == 4:
            words[at:at] = words[at : at + source.randrange(1, 40)]
        elif kind == 5:
            count = source.randrange(5)
            header = pkt4_hdr(source.choice(list(REGISTERS)), count)
            words[at:at] = [header, *(source.choice(INTERESTING) for _ in range(count))]
        else:
            count = source.randrange(7)
            values = (source.choice([*INTERESTING, *words]) for _ in range(count))
            words[at:at] = [pkt7_hdr(source.choice(OPCODES), count), *values]
        words = words or [0]
    return words
