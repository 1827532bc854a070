"""What is fuzzed: each target makes an input from random numbers, uses it, and says how it ended.

An input that ends in an error of ours, or of the driver, ended well. Everything else is raised.
"""

from __future__ import annotations

import contextlib
import functools
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
from tinygrad.runtime.ops_qcom import QCOMProgram

from pytest_qcom import envelope
from pytest_qcom.analysis import hazards
from pytest_qcom.envelope import Argument, ArgumentKind, Constant, Envelope
from pytest_qcom.errors import DecodeError, EncodeError, KernelError, QcomError
from pytest_qcom.isa import access
from pytest_qcom.isa.assembler import Assembler
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.table import OPS
from pytest_qcom.kernels.registry import KERNELS
from pytest_qcom.virtual.dispatch import Compare, DescriptorSet, Format, Image, Sampler, Uniforms, Wrap
from pytest_qcom.virtual.executor import Executor
from suites.fuzz.ioctls import attack
from suites.fuzz.streams import mutate, stream, submit, touch
from suites.isa.strategies import word_of
from suites.virtual.bench import Bench
from suites.virtual.executor.rig import Memory, aligned, image, launch

END = 0x03000000 << 32
GOOD, REFUSED = "accepted", "refused"
Save = Callable[[bytes], None]
"""Takes the input before it is used, so that it is known also when the process dies of it."""


@functools.cache
def corpus() -> tuple[bytes, ...]:
    """Instruction images of declared kernels, the small ones."""
    images = set()
    for kernel in KERNELS.values():
        for case in kernel.cases[:1]:
            try:
                image = kernel.build(kernel.configure({}, case.name)).program.encode()
            except KernelError:
                continue
            if len(image) < 2400:
                images.add(image)
    return tuple(sorted(images))


def image_of(source: random.Random, legal: bool) -> bytes:
    """An instruction image: of random legal words, or of a kernel, with a few words changed."""
    if source.random() < 0.5:
        count = source.randrange(1, 13)
        words = [word_of(source.choice(OPS), source) for _ in range(count)] + [END]
    else:
        image = source.choice(corpus())
        words = list(struct.unpack(f"<{len(image) // 8}Q", image))
        for _ in range(source.choice((1, 1, 2, 8))):
            at = source.randrange(len(words))
            kind = source.randrange(5)
            if kind == 0:
                words[at] ^= 1 << source.randrange(64)
            elif kind == 1:
                words[at] = word_of(source.choice(OPS), source)
            elif kind == 2:
                words.insert(at, source.choice(words))
            elif kind == 3:
                words[at] = words[at] & ~0xFFFF | source.getrandbits(16)
            elif len(words) > 1:
                del words[at]
    return struct.pack(f"<{len(words)}Q", *(near(word, source) if legal else word for word in words))


def near(word: int, source: random.Random) -> int:
    """The word, with the target of a branch near enough to be in the program; an end for no instruction."""
    try:
        (instr,) = Program.decode(struct.pack("<2Q", word, END)).instrs[:1]
    except DecodeError:
        return END if source.random() < 0.9 else word
    if "target" in dict(instr.attrs) and not -40 < instr["target"] < 40:
        return word & ~0xFFFFFFFF | source.randrange(-8, 8) & 0xFFFFFFFF
    return word


class Target(Protocol):
    """Something that takes inputs; made with a folder that it may write to."""

    def run(self, source: random.Random, save: Save) -> str:
        """Makes one input, hands it to ``save`` and uses it: ``accepted`` or ``refused``."""


class Words:
    """Instruction words through decoder, text, assembler, encoder and hazard checker."""

    def __init__(self, folder: Path) -> None:
        corpus()

    def run(self, source: random.Random, save: Save) -> str:
        code = image_of(source, legal=source.random() < 0.7)
        save(code)
        try:
            program = Program.decode(code)
        except DecodeError:
            return REFUSED
        text = program.text()
        again = Program.decode(program.encode())
        assert again.instrs[: len(program.instrs)] == program.instrs  # without an end, padding stays
        with contextlib.suppress(DecodeError):  # a branch to nowhere
            program.blocks()
        program.footprint()
        for instr in program.instrs:
            access.reads(instr), access.writes(instr)
        with contextlib.suppress(EncodeError):
            Assembler().parse(text)
        if len(program.instrs) > 60 and source.random() < 0.8:  # takes most of the time
            return GOOD
        hazards.lint(
            program, fregs=source.randrange(49), hregs=source.randrange(49),
            merged=source.random() < 0.3, thread128=source.random() < 0.3,
        )  # fmt: skip
        return GOOD


class Shaders:
    """Programs on the executor, in memory with guards around it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.executors: tuple[Executor, ...] = ()
        self.count = 0
        corpus()
        for thread128 in (False, True):  # compiles what all programs share
            program = launch(struct.pack("<Q", END), thread128=thread128)
            Executor(threads=1, cache_dir=folder).run(program, Memory())
        self.guarded = aligned((3, 4096), np.uint8)
        base = int(self.guarded[1].ctypes.data)
        texture = self.guarded[1].view(np.float16).reshape(8, 64, 4)
        forms = (Format.RGBA16_FLOAT, Format.RGBA32_FLOAT, Format.RGBA8_UNORM, Format.RGBA32_UINT)
        self.bound = (
            *(
                replace(image(texture, f), width=4096 // 8 // (2 if "32" in f.name else 1) // 8)
                for f in forms
            ),
            Image(base, 64, 16, 64, Format.R8_SINT, depth=4, layer_pitch=1024),
            Image(base, 8, 8, 64, Format.RG16_FLOAT, depth=3, layer_pitch=1024, levels=4),
            Image(base, 8, 8, 64, Format.R32_FLOAT, depth=6, layer_pitch=640, levels=2, cube=True),
            Image(base, 8, 4, 64, Format.RGBA8_UINT, depth=4, layer_pitch=256, levels=3, solid=True),
            Image(base, 4, 4, 64, Format.R32_UINT, samples=4),
        )
        words = Image(base, 1000, 1, 4000, Format.R32_UINT)
        uniforms = (Uniforms(base, 4096), Uniforms(base + 64, 1 << 16), Uniforms(1, 64))
        repeat, border = (Wrap.REPEAT,) * 3, (Wrap.MIRROR_CLAMP, Wrap.CLAMP_TO_BORDER, Wrap.MIRROR_REPEAT)
        self.samplers = (
            Sampler(repeat, True, True, lods=(0.0, 9.0), mips=True, compare=Compare.LESS),
            Sampler(border, unnormalized=True, lod_bias=0.3, lods=(0.0, 9.0), seamless=False),
        )
        described = DescriptorSet((*self.bound, None, words), uniforms, (None, *self.samplers))
        self.uniforms, self.sets = uniforms, (described, None)

    def run(self, source: random.Random, save: Save) -> str:
        if self.count % 64 == 0:  # what was compiled before is let go
            self.executors = tuple(
                Executor(
                    threads=1, cache_dir=self.folder, budget=1 << 12, total=1 << 18, late=late, races=races
                )
                for late, races in ((None, False), (lambda dispatch: True, False), (None, True))
            )
        self.count += 1
        code = image_of(source, legal=True)
        save(code)
        base = int(self.guarded[1].ctypes.data)
        constants = b"".join(
            struct.pack("<Q", source.choice((base, base + 64, 1, source.getrandbits(64)))) for _ in range(64)
        )
        dispatch = launch(
            code, constants, merged=source.random() < 0.2, thread128=source.random() < 0.3,
            shared_bytes=source.choice((0, 1024)), private_bytes=source.choice((0, 512)),
            constant_demotion=source.random() < 0.5, textures=self.bound, images=self.bound,
            uniforms=self.uniforms, sets=self.sets, samplers=self.samplers,
            local_size=(source.choice((1, 32, 64, 100)), source.choice((1, 1, 2)), 1),
            groups=(source.choice((1, 3)), 1, 1),
        )  # fmt: skip
        try:
            self.executors[source.choice((0, 0, 1, 1, 2))].run(dispatch, Memory([self.guarded[1]]))
            result = GOOD
        except QcomError as error:
            assert "\n" not in str(error) and len(str(error)) > 20, error
            result = REFUSED
        assert not self.guarded[0].any() and not self.guarded[2].any(), "bytes outside of memory changed"
        return result


class Streams:
    """Command streams; every eighth launches on the executor, the others only say what they would launch."""

    def __init__(self, folder: Path) -> None:
        self.bench: Bench | None = None
        self.count = 0
        self.executor = Executor(threads=1, cache_dir=folder, budget=1 << 12, total=1 << 18)

    def run(self, source: random.Random, save: Save) -> str:
        if self.count % 64 == 0:
            self.bench = Bench(wait_limit=0.002)
        assert self.bench is not None
        executor = self.executor
        if self.count % 8:
            self.bench.executor.act = touch
        else:
            self.bench.executor.act = lambda dispatch, memory: void(executor.run(dispatch, memory))
        self.bench.executor.launches.clear()
        self.count += 1
        words = mutate(source, stream(self.bench))
        save(struct.pack(f"<{len(words)}I", *words))
        return GOOD if submit(self.bench, words) else REFUSED


def void(_: object) -> None:
    """Nothing, of something."""


class Ioctls:
    """Sequences of ioctls and mmaps on a node of their own."""

    def __init__(self, folder: Path) -> None:
        pass

    def run(self, source: random.Random, save: Save) -> str:
        return GOOD if attack(source) else REFUSED


class Containers:
    """QCOM CL binaries. What our parser takes, tinygrad's takes, and it is written back as it was."""

    def __init__(self, folder: Path) -> None:
        pass

    def run(self, source: random.Random, save: Save) -> str:
        data = damaged(source, sound(source))
        save(data)
        try:
            found = envelope.parse(data, *source.choice(((), ("kernel",))))
        except QcomError as error:
            assert "\n" not in str(error) and len(str(error)) > 20, error
            return REFUSED
        assert found.to_bytes() == data
        program = QCOMProgram.__new__(QCOMProgram)
        program.name = found.name
        program._parse_lib(data)
        assert bytes(program.image) == found.image
        try:
            found.inject(bytes(8 * source.randrange(1, 40)), source.randrange(49), source.randrange(49))
            replace(found, private_bytes=source.randrange(4096)).to_bytes()
        except QcomError:
            pass
        return GOOD


def sound(source: random.Random) -> bytes:
    """A sound binary with arguments, literals and code."""
    kinds = [ArgumentKind.WRITTEN_IMAGE] * source.randrange(3) + [ArgumentKind.READ_IMAGE] * source.randrange(
        3
    )
    arguments = [Argument(kind) for kind in kinds]
    arguments += [
        Argument(ArgumentKind.BUFFER, 8 * source.randrange(200)) for _ in range(source.randrange(4))
    ]
    return Envelope(
        name="kernel",
        image=source.randbytes(8 * source.randrange(1, 20)),
        fregs=source.randrange(49),
        hregs=source.randrange(49),
        arguments=tuple(arguments),
        samplers=source.randrange(2),
        constants=tuple(Constant(4 * n, source.getrandbits(32)) for n in range(source.randrange(4))),
        branchstack=source.randrange(8),
        private_bytes=source.choice((0, 64)),
        shared_bytes=source.choice((0, 1024)),
        merged=source.choice((None, None, True, False)),
    ).to_bytes()


def damaged(source: random.Random, data: bytes) -> bytes:
    """A few words changed, bytes dropped or added."""
    out = bytearray(data)
    words = (0, 1, 4, 0x7F, 0x80, 0x100, len(data), len(data) - 4, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
    for _ in range(source.choice((1, 1, 2, 4))):
        if not out:
            break
        kind = source.randrange(5)
        at = source.randrange(len(out))
        if kind == 0:
            out[at] ^= 1 << source.randrange(8)
        elif kind in (1, 2) and len(out) >= 4:
            at = source.choice((at, source.randrange(0x34, 0x140), len(out) - source.randrange(len(out))))
            at = min(at & ~3, len(out) - 4)
            value = source.choice((*words, source.getrandbits(32), source.randrange(2 * len(out))))
            struct.pack_into("<I", out, at, value)
        elif kind == 3:
            del out[at : at + source.choice((1, 4, 32, len(out)))]
        else:
            out[at:at] = source.randbytes(source.choice((1, 4, 40)))
    return bytes(out)


TARGETS: dict[str, Callable[[Path], Target]] = {
    "words": Words,
    "shaders": Shaders,
    "streams": Streams,
    "ioctls": Ioctls,
    "containers": Containers,
}
